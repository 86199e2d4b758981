"""What README.md says of the program, asked of the program. Usage: readme_test.py KVBENCH"""

import re
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
    def test_the_table_of_algorithms_is_printed_by_the_program(self):
        self.assertIn(kvbench("list", "algorithms", "--markdown").stdout, README)

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
        named = set(re.findall(r"(?:build/bin/)?kvbench ([a-z]+)\b", README)) - {"replays"}
        named |= set(re.findall(r"`(\w+)`", re.search(
            r"`kvbench inspect`(.*?)explained", README, re.DOTALL).group(1)))
        self.assertGreaterEqual(len(named), 6)
        for command in named:
            self.assertEqual(kvbench(command, "--help").returncode, 0, command)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
