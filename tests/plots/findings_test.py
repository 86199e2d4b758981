"""Every command of plots/FINDINGS.md runs on small runs of the shipped sweeps, and where
plots/figures.sh or texts has been run its tables are what the commands print. With
KVBENCH_UPDATE_FINDINGS=1 the tables are written, and the diff is reviewed: prose that names their
numbers is not. Usage: findings_test.py KVBENCH. Exits 77 where a Python package is missing."""

import contextlib
import io
import os
import re
import shlex
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import figures_test  # ends with 77 where a package is missing
from kvplot.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "plots/FINDINGS.md"
TEXT = PAGE.read_text(encoding="utf-8")
# A command in a fence, and the table that follows it.
PAIR = re.compile(r"(?<=```sh\n)(kvplot table .*?)(\n```\n\n)((?:\|[^\n]*\n)+)", re.DOTALL)


def words(command):
    return shlex.split(command.replace("\\\n", " "))[1:]


PAIRS = [(words(command), table.strip().splitlines()) for command, _, table in PAIR.findall(TEXT)]


# Where plots/figures.sh and texts put what they draw: the same figures.
DRAWN = ("results/figures/", "results/texts/")


def said(arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(arguments)
    return code, out.getvalue().strip().splitlines()


class Findings(unittest.TestCase):
    def test_every_table_has_its_command(self):
        tables = re.findall(r"^\|(?:-+\|)+$", TEXT, re.MULTILINE)
        self.assertGreater(len(PAIRS), 10)
        self.assertEqual(len(PAIRS), len(tables))

    def test_commands_run_on_small_runs(self):
        class Small(figures_test.Real):
            pass
        figures_test.PROGRAM = PROGRAM
        Small.setUpClass()
        self.addCleanup(Small.doClassCleanups)
        with contextlib.redirect_stdout(io.StringIO()):
            Small().papers("--only", *{Path(command[1]).stem for command, _ in PAIRS
                                       if command[1].startswith(DRAWN) and command[1].endswith(".csv")})
        for command, table in PAIRS:
            if command[1].startswith(DRAWN):
                with self.subTest(command[1]):
                    named = Path(command[1])  # what a figure wrote, or a sweep's results
                    path = Small.folder / ("out" if named.name != "results.json" else named.parent.name) / named.name
                    code, lines = said([command[0], str(path), *command[2:]])
                    self.assertEqual(code, 0)
                    rows = command.index("--rows")
                    for name in command[rows + 1:command.index("--value")]:
                        if not name.startswith("--") and "--columns" not in command:
                            self.assertIn(name, lines[0])
                    self.assertEqual(lines[0].split("|")[1], table[0].split("|")[1])

    def updated(self, found):
        """A command with what it prints, where its file is here."""
        arguments = words(found[1])
        if not (ROOT / arguments[1]).is_file():
            return found[0]
        code, lines = said([arguments[0], str(ROOT / arguments[1]), *arguments[2:]])
        self.assertEqual(code, 0, found[1])
        return found[1] + found[2] + "\n".join(lines) + "\n"

    def test_tables_are_what_the_commands_print(self):
        if os.environ.get("KVBENCH_UPDATE_FINDINGS") == "1":
            PAGE.write_text(PAIR.sub(self.updated, TEXT), encoding="utf-8")
            self.skipTest("plots/FINDINGS.md was written; review the diff")
        checked = 0
        for command, table in PAIRS:
            path = ROOT / command[1]
            if path.is_file():
                with self.subTest(command[1]):
                    checked += 1
                    self.assertEqual(said([command[0], str(path), *command[2:]]), (0, table))
        if not checked:
            self.skipTest("no results here; plots/figures.sh makes them")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
