"""Statements of README.md about the program, asked of the program, and scripts that explain
themselves. Usage: readme_test.py KVBENCH"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import known_methods
from sources import files, text

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM = None


def kvbench(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)


class Readme(unittest.TestCase):
    def test_tables_are_those_that_the_program_prints(self):
        results = (ROOT / "configs/RESULTS.md").read_text(encoding="utf-8")
        algorithms = (ROOT / "lib/algorithms/ALGORITHMS.md").read_text(encoding="utf-8")
        storage = (ROOT / "lib/storage/README.md").read_text(encoding="utf-8")
        self.assertIn(known_methods.algorithms(PROGRAM), algorithms)
        self.assertIn(known_methods.codecs(PROGRAM), storage)
        for what in ("metrics", "derived"):
            self.assertIn(kvbench("list", what, "--markdown").stdout, results)

    def test_it_is_short(self):
        self.assertLessEqual(len(README.splitlines()), 120)
        self.assertLessEqual(len(README.split()), 1300)

    def test_minutes_and_sizes_are_those_measured(self):
        table = re.findall(r"^\|.*\| (\d+) min (\d+) s \| (\d+) min (\d+) s \|$", text(ROOT / "tests/README.md"), re.MULTILINE)
        measured = [[int(row[i]) + int(row[i + 1]) / 60 for row in table] for i in (0, 2)]
        named = re.findall(r"^\./bootstrap\.sh \w+ .*?(\d+) to (\d+) (?:more )?minutes", README, re.MULTILINE)
        self.assertEqual(named, [(str(round(min(each))), str(round(max(each)))) for each in measured])
        sizes = {size for path in files(ROOT) if path.suffix in (".md", ".sh")
                 for size in re.findall(r"(?:\.venv-model|deps model)[^|;]{,150}?(\d+ GB)", text(ROOT / path))}
        self.assertEqual(sizes, {"6 GB"})

    def test_families_name_algorithms_and_count_them(self):
        rows = re.findall(r"^\| [a-z][^|`]* \| (\d+) \| (`.*) \|$", README, re.MULTILINE)
        named = [name for _, ids in rows for name in re.findall(r"`(\w+)`", ids)]
        self.assertEqual([int(n) for n, _ in rows], [len(re.findall(r"`\w+`", ids)) for _, ids in rows])
        self.assertEqual(len(named), len(set(named)))
        known = {each["id"] for each in json.loads(kvbench("list", "algorithms", "--json").stdout)}
        self.assertEqual(set(named) - known, set())
        codecs = known_methods.CODECS
        self.assertEqual(set(codecs) - {each["id"] for each in json.loads(kvbench("list", "storage", "--json").stdout)}, set())
        self.assertIn(f"through {len(named)} KV-cache methods and {len(codecs)} quantisers", README.replace("\n", " "))
        self.assertIn(f"\n| quantisers, crossed with most methods | {len(codecs)} |", README)

    def test_counts_of_methods_are_written_once(self):
        """Other pages link to README.md or name no number."""
        for path in files(ROOT):
            if path.suffix == ".md" and str(path) != "README.md":
                for count in re.findall(r"\b(?:of the )?(\d\d) (?:KV-cache )?methods\b", text(ROOT / path)):
                    self.assertFalse(45 <= int(count) <= 99, f"{path}: {count} methods")

    def test_what_methods_were_compared_with_is_counted(self):
        page = (ROOT / "lib/algorithms/VERIFIED.md").read_text(encoding="utf-8")
        for table in (known_methods.verified(), known_methods.verified_codecs(), known_methods.not_in_field()):
            self.assertIn(f"\n{table}\n", page)
        known = {each["id"] for each in json.loads(kvbench("list", "algorithms", "--json").stdout)}
        rows = re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", page, re.MULTILINE)
        levels = {name: level for names, level in rows for name in re.findall(r"`(\w+)`", names) if name in known}
        cases = [name for name, level in levels.items() if level.startswith("cases")]
        self.assertIn(f"{len(levels) - len(cases)} methods were compared with", README)
        self.assertIn(f"{len(cases)} with cases worked by hand", README.replace("\n ", ""))

    def test_the_demo_prints_the_table(self):
        shown, = (fence for fence in re.findall(r"```text\n(.*?)```", README, re.DOTALL) if "streaming_llm" in fence)
        with tempfile.TemporaryDirectory() as folder:
            said = kvbench("run", "--config", str(ROOT / "configs/quick.json"), "--out", f"{folder}/quick").stderr
        for line in shown.splitlines():
            self.assertTrue(any(each.startswith(line) for each in said.splitlines()), f"{line}\n{said}")

    def test_commands_shown_exist(self):
        named = set(re.findall(r"(?:`|build/bin/)kvbench ([a-z]+)\b", README))
        self.assertLessEqual({"run", "validate", "verify"}, named)
        for command in named:
            self.assertEqual(kvbench(command, "--help").returncode, 0, command)


class Scripts(unittest.TestCase):
    def test_bootstrap_names_every_verb(self):
        script = ROOT / "bootstrap.sh"
        asked = subprocess.run([script, "--help"], capture_output=True, text=True, check=False)
        self.assertEqual((asked.returncode, asked.stderr), (0, ""))
        verbs = re.findall(r"^  ([a-z-]+)\)(?: |$)", script.read_text(), re.MULTILINE)
        self.assertEqual(verbs, ["deps", "build", "demo", "test", "check", "lint"])
        for verb in verbs:
            self.assertRegex(asked.stdout, rf"(?m)bootstrap\.sh {verb}\b")
        for name in re.findall(r"[\w./]+\.sh\b", asked.stdout):
            self.assertTrue((ROOT / name).is_file(), name)
        for words in ([], ["demonstrate"]):
            refused = subprocess.run([script, *words], capture_output=True, text=True, check=False)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""))
            self.assertTrue(refused.stderr.endswith(asked.stdout))
            for word in words:
                self.assertIn(f"unknown verb {word}", refused.stderr)

    def test_every_other_script_is_named_short_and_says_what_it_does(self):
        """Those that end users and tests call; a script of up to 80 lines begins with what it is."""
        asked = subprocess.run([ROOT / "bootstrap.sh", "help"], capture_output=True, text=True, check=True).stdout
        for path in files(ROOT):
            if path.suffix != ".sh":
                continue
            lines = text(ROOT / path).splitlines()
            most = 150 if path.name == "bootstrap.sh" else 80
            self.assertLessEqual(len(lines), most, path)
            self.assertTrue(lines[1].startswith("# ") or lines[0].startswith("# "), path)
            if "environment.sh" in text(ROOT / path) and path.name not in ("environment.sh", "targets.sh"):
                called = [text(ROOT / other) for other in files(ROOT) if other.suffix == ".sh" or ".ci" in other.parts]
                self.assertTrue(str(path) in asked or any(str(path) in each for each in called), path)

    def test_dumps_and_loop_explain_themselves_and_make_nothing(self):
        with tempfile.TemporaryDirectory() as copy:
            for name in ("environment.sh", "targets.sh"):
                shutil.copy(ROOT / name, copy)
            shutil.copytree(ROOT / "data", Path(copy, "data"), ignore=shutil.ignore_patterns("*.h5"))
            before = sorted(Path(copy).rglob("*"))
            for script, options in (("dumps", ("[FOLDER [OPTIONS]]", "--only")),
                                    ("loop", ("loop.sh ARGUMENTS", "--decisions"))):
                asked = subprocess.run([Path(copy, f"data/{script}.sh"), "--help"], capture_output=True,
                                       text=True, check=False, timeout=60)
                self.assertEqual((asked.returncode, asked.stderr), (0, ""))
                for option in options:
                    self.assertIn(option, asked.stdout)
            self.assertEqual(sorted(Path(copy).rglob("*")), before)

    def run_without(self, modules, script, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            for name in modules:
                Path(folder, f"{name}.py").write_text(
                    f"raise ModuleNotFoundError(\"No module named '{name}'\")")
            return subprocess.run([sys.executable, ROOT / script, *arguments],
                                  env={**os.environ, "PYTHONPATH": folder}, cwd=folder,
                                  capture_output=True, text=True, check=False)

    def test_the_exporter_explains_itself_without_torch(self):
        def export(*arguments):
            return self.run_without(("torch", "transformers"), "data/export_transformers.py",
                                    *arguments)
        asked = export("--help")
        self.assertEqual((asked.returncode, asked.stderr), (0, ""))
        self.assertIn("--token-ids", asked.stdout)
        refused = export("model", "--text", ROOT / "README.md", "--out", "x.h5")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("No module named 'torch'; pip install torch transformers", refused.stderr)

    def test_the_maker_of_kvpress_caches_explains_itself_without_kvpress(self):
        def make(*arguments):
            return self.run_without(("kvpress",), "data/kvpress_caches.py", *arguments)
        asked = make("--help")
        self.assertEqual((asked.returncode, asked.stderr), (0, ""))
        self.assertIn("--budget", asked.stdout)
        refused = make("--list")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("No module named 'kvpress'; tests/peers/run.sh", refused.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
