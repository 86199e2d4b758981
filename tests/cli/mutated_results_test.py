"""Damaged results files: export, check, compare and merge end with a documented code, never with a bug
or a signal, and refusals name the file.

KVBENCH_TEST_SEEDS=k makes k times as many; KVBENCH_TEST_FIRST_SEED=s starts elsewhere.
"""

import json
import os
import random
import subprocess
import tempfile
import unittest
from pathlib import Path

from mutated_json import random_mutation

PROGRAM = os.environ["KVBENCH_PROGRAM"]
SOURCE = Path(os.environ["KVBENCH_SOURCE"])
COUNT = 60 * int(os.environ.get("KVBENCH_TEST_SEEDS", "1"))
FIRST = int(os.environ.get("KVBENCH_TEST_FIRST_SEED", "1"))
SWEEP = {"schema_version": 1, "name": "small", "dumps": [str(SOURCE / "data/clusterable.h5")],
         "seeds": [0, 1], "select": {"tokens": 128}, "evaluate": {"rows": {"every": 16}},
         "algorithms": [{"algorithm": "h2o", "params": {"budget": [2, 32]}},
                        {"algorithm": "uniform", "params": {"T": 1}}]}


class MutatedResults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.folder = Path(made.name)
        (cls.folder / "sweep.json").write_text(json.dumps(SWEEP))
        done = cls.kvbench("run", "--config", cls.folder / "sweep.json", "--out", cls.folder / "out",
                           "--quiet")
        assert done.returncode == 0, done.stderr
        cls.results = cls.folder / "out" / "results.json"
        cls.document = json.loads(cls.results.read_text())
        cls.bounds = cls.folder / "bounds.json"
        cls.bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
            {"name": "small", "metric": "errors.relative_l2.mean", "at_most": 1e-9}]}))
        cls.journal = (cls.folder / "out" / "journal.jsonl").read_bytes().splitlines(keepends=True)

    @staticmethod
    def kvbench(*arguments):
        return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=60,
                              check=False)

    def commands(self, file):
        return (("export", "--results", file, "--format", "csv"),
                ("export", "--results", file, "--format", "md"),
                ("check", "--results", file, "--bounds", self.bounds),
                ("compare", self.results, file), ("compare", file, self.results))

    def test_the_whole_file_is_taken(self):
        for command in self.commands(self.results):
            done = self.kvbench(*command)
            # No compression keeps the bound: 4 of check.
            self.assertEqual(done.returncode, 4 if command[0] == "check" else 0, command)
            self.assertEqual(done.stderr, b"", command)

    def test_damage_has_a_documented_end(self):
        file = self.folder / "damaged.json"
        for number in range(FIRST, FIRST + COUNT):
            rng = random.Random(number)
            what, data = random_mutation(self.document, rng)
            file.write_bytes(data)
            self.check_end(number, what, self.commands(file)[rng.randrange(5)], b"damaged.json")

    def check_end(self, number, what, command, name):
        done = self.kvbench(*command)
        message = f"seed {number}: {what}: {command[0]}: {done.returncode} {done.stderr[-300:]}"
        self.assertIn(done.returncode, (0, 2, 3, 4, 5), message)
        self.assertNotIn(b"internal error", done.stderr, message)
        if done.returncode == 2:
            self.assertIn(name, done.stderr, message)

    def test_merge_of_a_damaged_journal_has_a_documented_end(self):
        part = self.folder / "part"
        part.mkdir()
        for number in range(FIRST, FIRST + COUNT // 2):
            rng = random.Random(number)
            # The header changed in any way, or a record cut short or followed by something else.
            lines = list(self.journal)
            at = rng.choice((0, rng.randrange(len(lines))))
            if at == 0:
                what, lines[0] = random_mutation(json.loads(lines[0]), rng)
            else:
                kept = rng.randrange(len(lines[at]))
                what, lines[at] = f"cut to {kept}", lines[at][:kept] + rng.choice((b"", b"}", b"\0"))
            (part / "journal.jsonl").write_bytes(b"".join(
                line.rstrip(b"\n") + b"\n" for line in lines))
            self.check_end(number, f"line {at}: {what}",
                           ("merge", part, "--out", self.folder / "merged.json"), b"kvbench: ")


if __name__ == "__main__":
    unittest.main()
