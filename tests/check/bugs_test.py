"""A bug in an algorithm ends the real program with exit code 1 and says what was being done, in which
cell; it is not recorded as the failure of a cell, and what was finished before it stays."""

import json
import os
import subprocess
import unittest

from program import BUG, DONE, FAILED_CELLS, THREE, Folder, kvbench

PLANTED = os.environ["KVBENCH_PLANTED_PROGRAM"]
MODEL = [{"algorithm": "keyformer", "params": {"budget": 16, "scope": "model"}}]


class Bugs(Folder):
    def planted(self, command, algorithm, place, config, *options):
        return subprocess.run(
            [PLANTED, command, "--config", str(config), *map(str, options)], capture_output=True,
            text=True, timeout=300, check=False,
            env={**os.environ, "KVBENCH_PLANTED": algorithm, "KVBENCH_PLANTED_BUG": place})

    def assert_bug(self, done, *stack):
        """Exit code 1, and `stack` in lines that follow one another."""
        self.assertEqual(done.returncode, BUG, done.stderr)
        self.assertIn("this is a bug; please report it", done.stderr)
        lines = done.stderr.splitlines()
        first = next(i for i, line in enumerate(lines) if "internal error" in line)
        for line, words in zip(lines[first:], stack, strict=False):
            self.assertIn(words, line)

    def records(self):
        return [json.loads(line) for line in self.journal()[1:]]

    def test_a_bug_in_a_cell(self):
        config = self.sweep()
        for threads in (1, 2):
            for place in ("create", "decode"):
                with self.subTest(place=place, threads=threads):
                    done = self.planted("run", "window", place, config, "--out",
                                        self.folder / "out", "--threads", threads, "--fresh")
                    self.assert_bug(done, "computing window budget=", "because: planted bug")
                    self.assertRegex(done.stderr, r"of sequence \S+, layer 0, KV head 0")
                    self.assertFalse((self.folder / "out/results.json").exists())
                    for record in self.records():
                        self.assertEqual(record["status"], "ok")

    def test_what_was_finished_before_a_bug_stays_and_the_run_goes_on_without_it(self):
        config = self.sweep()
        out = self.folder / "out"
        self.assertEqual(kvbench("run", "--config", config, "--out", out, "--only",
                                 "exact/*/*/*/*").returncode, DONE)
        before = self.journal()[1:]
        self.assertGreater(len(before), 0)
        self.assert_bug(self.planted("run", "window", "decode", config, "--out", out),
                        "computing window")
        self.assertEqual(self.journal()[1:1 + len(before)], before)
        done = kvbench("run", "--config", config, "--out", out)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertTrue(all(cell["status"] == "ok" for cell in self.results()["cells"]))

    def test_a_bug_in_what_cells_share(self):
        done = self.planted("run", "window", "shared", self.sweep(), "--out", self.folder / "out")
        self.assert_bug(done, "PlantedWork, of sequence",
                        "because: bad any_cast")

    def test_a_bug_in_what_is_decided_for_the_whole_model(self):
        done = self.planted("run", "keyformer", "model", self.sweep(MODEL), "--out",
                            self.folder / "out")
        self.assert_bug(done, "deciding for the whole model: keyformer/keyformer/",
                        "because: planted bug")

    def test_a_bug_while_a_plan_tries_cells(self):
        for algorithms, algorithm, place in ((THREE, "window", "decode"),
                                             (MODEL, "keyformer", "model")):
            with self.subTest(place):
                done = self.planted("plan", algorithm, place, self.sweep(algorithms))
                self.assertEqual(done.returncode, BUG, done.stderr)
                self.assertIn("planted bug", done.stderr)

    def test_memory_that_runs_out_in_a_cell_is_the_cells_own(self):
        done = self.planted("run", "window", "memory", self.sweep(), "--out", self.folder / "out")
        self.assertEqual(done.returncode, FAILED_CELLS, done.stderr)
        for cell in self.results()["cells"]:
            if cell["key"]["algorithm"] == "window":
                self.assertEqual(cell["status"], "failed")
                self.assertIn("not enough memory", cell["reason"])
            else:
                self.assertEqual(cell["status"], "ok")


if __name__ == "__main__":
    unittest.main()
