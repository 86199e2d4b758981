"""Every command that a page or a --help shows runs. The blocks of a page are one session: ```sh is bash,
```python is Python, ```jsonc is a sweep or bounds file, which is then checked. The commands that
are replaced, and the test that runs each for real, are listed in sandbox.py."""

import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path

import sandbox
from sandbox import SOURCE
from workflow_test import replayed

# Fences that hold no commands; ```py needs the package kvbench and is run by tests/python.
OTHER = {"json", "bibtex", "cmake", "text", "py", "yaml", "bash"}  # bash: run by tests/launchers
STARTS = re.compile(r"^(\./|build/|kvbench |kvplot |\.venv|\w+/\S*\.sh\b|python|pip |cmake |ctest |sbatch |configs/)",
                    re.MULTILINE)


def pages():
    return sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.md")
                  if not re.match(r"\.|build|results", path.relative_to(SOURCE).as_posix()))


def blocks(text):
    """[(language, content)] of the fenced blocks."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def sweep_or_bounds(text, folder):
    """Commands that write a ```jsonc block into the page's folder and check it."""
    document = json.loads(re.sub(r"//.*$", "", text, flags=re.MULTILINE))
    name = f"{folder}/{document.get('name', 'bounds')}.json"
    write = f"cat > {name} <<'END'\n{text}END\n"
    if "algorithms" in document:
        return write + f"kvbench validate --config {name}\n"
    check = f"kvbench check --results results/quick/results.json --bounds {name}"
    return f"{write}{check} --write-baselines\n{check}\n"


def script_of(text, folder):
    script = ""
    for language, content in blocks(text):
        if language == "sh":
            script += content
        elif language == "python":
            script += f"python3 - <<'END'\n{content}END\n"
        elif language == "jsonc":
            script += sweep_or_bounds(content, folder)
        else:
            assert language in OTHER, f"```{language} is none of sh, python, jsonc, {OTHER}"
            assert not STARTS.search(content) or language != "text", f"a command in ```text: {content}"
    return script


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="kvbench-pages-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.read = cls.folder / "read"
        cls.read.mkdir()
        sandbox.make(cls.read)
        shutil.copytree(replayed() / "errors", cls.read / "errors")
        said, code = sandbox.session(cls.read, sandbox.READ)
        assert code == 0, said
        listed = sandbox.session(cls.read, "kvbench --help")[0].split("Subcommands:")[1].split("Exit codes")[0]
        cls.help = {command: sandbox.session(cls.read, f"kvbench {command} --help")[0]
                    for command in re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE)}

    def run_in_a_copy(self, name, script):
        """Where a page lives in the checkout its stand-ins are the same: only what it writes differs."""
        folder = self.folder / name
        shutil.copytree(self.read, folder, symlinks=True)
        said, code = sandbox.session(folder, script)
        shutil.rmtree(folder)
        self.assertEqual(code, 0, f"{name}:\n{said[-3000:]}")

    def test_every_page(self):
        run = []
        for page in pages():
            with self.subTest(str(page)):
                script = script_of((SOURCE / page).read_text(encoding="utf-8"), page.parent)
                if script:
                    run.append(str(page))
                    self.run_in_a_copy(str(page).replace("/", "-"), script)
        self.assertLessEqual({"README.md", "configs/README.md", "configs/figures/README.md",
                              "configs/slurm/README.md", "configs/ci/README.md", "data/README.md", "data/FORMAT.md",
                              "plots/README.md", "plots/FINDINGS.md"}, set(run))

    def test_every_example_of_help(self):
        self.assertGreater(len(self.help), 10)
        for command in self.help:
            with self.subTest(command):
                examples = re.findall(r"^  (\S.*)$", self.help[command].split("Examples:")[1],
                                      re.MULTILINE)
                self.assertTrue(examples)
                self.run_in_a_copy(f"help-{command}", "\n".join(examples))

    def test_commands_within_sentences_exist_and_have_their_options(self):
        found = 0
        for page in pages():
            text = re.sub(r"^```.*?^```$", "", (SOURCE / page).read_text(encoding="utf-8"),
                          flags=re.MULTILINE | re.DOTALL)
            for words in re.findall(r"`(?:build/bin/)?kvbench ([^`]*)`", text):
                command, *rest = words.split()
                if command.isupper() or command.startswith("-"):
                    continue
                with self.subTest(f"{page}: {words}"):
                    found += 1
                    self.assertIn(command, (*self.help, "help"))
                    for option in re.findall(r"--[a-z-]+", " ".join(rest)):
                        self.assertRegex(self.help[command], rf"(?m)[ ,]{option}\b")
        self.assertGreater(found, 20)

    def cells(self, budget):
        """Ids of the cells of `window` with these budgets."""
        entry = f'[{{"algorithm":"window","params":{{"budget":{budget}}}}}]'
        said, code = sandbox.session(self.read, "kvbench plan --config configs/quick.json --json "
                                     f"--set '/algorithms={entry}' > plan.json")
        self.assertEqual(code, 0, said)
        return [cell["id"] for cell in json.loads((self.read / "plan.json").read_text())["cell_list"]]

    def test_the_axes_of_the_sweep_page_have_the_values_it_says(self):
        rows = re.findall(r"^\| `(.*?)` \| .*?: ([\d, ]*\d)[.|\s]",
                          (SOURCE / "configs/README.md").read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual(len(rows), 3)
        for axis, values in rows:
            self.assertEqual(self.cells(axis), self.cells(f"[{values}]"), axis)
            self.assertNotEqual(self.cells(axis), self.cells(f"[{values}, 9]"), axis)

    def test_a_stale_command_is_found(self):
        for stale in ("kvbench run --config configs/quick.json --thread 2", "kvbench replay",
                      "./bootstrap.sh demonstrate", "kvplot no_such_figure --out x"):
            folder = self.read
            self.assertNotEqual(sandbox.session(folder, script_of(f"```sh\n{stale}\n```\n", "."))[1],
                                0, stale)
        self.assertNotEqual(sandbox.session(self.read, script_of(
            '```jsonc\n{ "schema_version": 1, "name": "x", "dumps": [], "algorithms": [] }\n```\n',
            "."))[1], 0)
        for hidden in ("```\nkvbench run\n```\n", "```text\nkvbench run\n```\n"):
            with self.assertRaises(AssertionError):
                script_of(hidden, ".")


if __name__ == "__main__":
    unittest.main()
