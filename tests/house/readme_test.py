"""What README.md says of the program, asked of the program, and scripts that explain themselves.
Usage: readme_test.py KVBENCH"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM = None


def kvbench(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)


class Readme(unittest.TestCase):
    def test_tables_are_those_that_the_program_prints(self):
        results = (ROOT / "configs/RESULTS.md").read_text(encoding="utf-8")
        for what, page in (("algorithms", README), ("metrics", results), ("derived", results)):
            self.assertIn(kvbench("list", what, "--markdown").stdout, page)

    def test_the_sweep_shown_is_a_sweep(self):
        sweep = re.search(r"```jsonc\n(.*?)```", README, re.DOTALL).group(1)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "mine.json")
            path.write_text(sweep.replace("data/smollm2", str(ROOT / "data/smollm2")))
            checked = kvbench("validate", "--config", str(path))
            self.assertEqual(checked.returncode, 0, checked.stderr)
            path.write_text(sweep.replace('"budget"', '"budgt"'))
            self.assertEqual(kvbench("validate", "--config", str(path)).returncode, 2)

    def test_commands_shown_exist(self):
        named = set(re.findall(r"(?:build/bin/)?kvbench ([a-z]+)\b", README)) - {"replays", "as"}
        named |= set(re.findall(r"`(\w+)`", re.search(
            r"`kvbench inspect`(.*?)explained", README, re.DOTALL).group(1)))
        self.assertGreaterEqual(len(named), 6)
        for command in named:
            self.assertEqual(kvbench(command, "--help").returncode, 0, command)


class Scripts(unittest.TestCase):
    def test_bootstrap_names_every_verb(self):
        script = ROOT / "bootstrap.sh"
        asked = subprocess.run([script, "--help"], capture_output=True, text=True, check=False)
        self.assertEqual((asked.returncode, asked.stderr), (0, ""))
        verbs = re.findall(r"^  ([a-z-]+)\) ", script.read_text(), re.MULTILINE)
        self.assertGreater(len(verbs), 10)
        for verb in verbs:
            self.assertRegex(asked.stdout, rf"(?m)(bootstrap\.sh|parts:.*) {verb}\b")
        for words in ([], ["demonstrate"]):
            refused = subprocess.run([script, *words], capture_output=True, text=True, check=False)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""))
            self.assertTrue(refused.stderr.endswith(asked.stdout))
            for word in words:
                self.assertIn(f"unknown verb {word}", refused.stderr)

    def test_dumps_and_loop_explain_themselves_and_make_nothing(self):
        with tempfile.TemporaryDirectory() as copy:
            shutil.copy(ROOT / "bootstrap.sh", copy)
            shutil.copytree(ROOT / "data", Path(copy, "data"), ignore=shutil.ignore_patterns("*.h5"))
            before = sorted(Path(copy).rglob("*"))
            for verb, options in (("dumps", ("[FOLDER [OPTIONS]]", "--only")),
                                  ("loop", ("loop ARGUMENTS", "--decisions"))):
                asked = subprocess.run([Path(copy, "bootstrap.sh"), verb, "--help"], capture_output=True,
                                       text=True, check=False, timeout=60)
                self.assertEqual((asked.returncode, asked.stderr), (0, ""))
                for option in options:
                    self.assertIn(option, asked.stdout)
                self.assertNotIn("./bootstrap.sh test", asked.stdout)
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
        self.assertIn("No module named 'torch'; requirements.txt", refused.stderr)

    def test_the_maker_of_kvpress_caches_explains_itself_without_kvpress(self):
        def make(*arguments):
            return self.run_without(("kvpress",), "data/kvpress_caches.py", *arguments)
        asked = make("--help")
        self.assertEqual((asked.returncode, asked.stderr), (0, ""))
        self.assertIn("--budget", asked.stdout)
        refused = make("--list")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("No module named 'kvpress'; ./bootstrap.sh test-peers", refused.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
