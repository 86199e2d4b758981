"""`merge` next to other programs: into one file at once, and into the folder of a run."""

import fcntl
import subprocess
import unittest
from contextlib import contextmanager

from program import BAD_INPUT, DONE, PROGRAM, Folder, deterministic, kvbench


@contextmanager
def locked(path):
    """As a program that writes there holds it."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Merge(Folder):
    def setUp(self):
        super().setUp()
        self.config = self.sweep(output={"rows": True})
        for index in (1, 2):
            done = kvbench("run", "--config", self.config, "--shard", f"{index}/2", "--out",
                           self.folder / str(index))
            self.assertEqual(done.returncode, DONE, done.stderr)
        self.out = self.folder / "merged/results.json"
        self.words = ["merge", self.folder / "1", self.folder / "2", "--out", self.out]

    def whole(self):
        done = kvbench("run", "--config", self.config, "--out", self.folder / "whole")
        self.assertEqual(done.returncode, DONE, done.stderr)
        return deterministic(self.results("whole")), (self.folder / "whole/results.rows.h5").read_bytes()

    def test_folders_by_a_glob(self):
        self.assertEqual(kvbench("merge", self.folder / "[12]", "--out", self.out).returncode, DONE)
        self.assertEqual(deterministic(self.results("merged")), self.whole()[0])
        done = kvbench("merge", self.folder / "[34]", "--out", self.folder / "none.json")
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertIn("[34]: has no journal.jsonl", done.stderr)

    def test_parts_by_only_are_told_how_to_be_parts(self):
        for layer in (0, 1):
            done = kvbench("run", "--config", self.config, "--only", f"*/*/*/{layer}/*", "--out", self.folder / f"only{layer}")
            self.assertEqual(done.returncode, DONE, done.stderr)
        parts = [self.folder / "only0", self.folder / "only1"]
        done = kvbench("merge", *parts, "--out", self.out)
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertIn("only1/journal.jsonl: was run with --only [\"*/*/*/1/*\"]", done.stderr)
        self.assertIn("run all of it into one of these folders, which keeps its cells", done.stderr)
        for pair in ((self.folder / "1", parts[0]), (parts[0], self.folder / "1")):
            done = kvbench("merge", *pair, "--out", self.out)
            self.assertEqual(done.returncode, BAD_INPUT)
            self.assertIn("was run without --only, and" if pair[1] != parts[0] else "/1/journal.jsonl without --only;",
                          done.stderr)
        done = kvbench("run", "--config", self.config, "--out", parts[0])
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(deterministic(self.results("only0")), self.whole()[0])

    def test_merges_into_one_file_take_turns(self):
        self.out.parent.mkdir()
        with locked(self.folder / "merged/results.json.lock"):
            both = [subprocess.Popen([PROGRAM, *map(str, self.words)], stderr=subprocess.PIPE, text=True)
                    for _ in range(2)]
            for each in both:
                self.addCleanup(each.kill)
                self.assertIn("another merge writes", each.stderr.readline())
            self.assertEqual([path.name for path in self.out.parent.iterdir()], ["results.json.lock"])
        for each in both:
            _, said = each.communicate(timeout=120)
            self.assertEqual(each.returncode, DONE, said)
        results, rows = self.whole()
        self.assertEqual(deterministic(self.results("merged")), results)
        self.assertEqual((self.out.parent / "results.rows.h5").read_bytes(), rows)
        self.assertEqual({path.name for path in self.out.parent.iterdir()},
                         {"results.json", "results.rows.h5"})

    def test_the_folder_of_a_run_that_works_is_left_alone(self):
        for folder in ("1", "idle"):  # with results, and without
            into = self.folder / folder
            if folder == "idle":
                into.mkdir()
                (into / "journal.jsonl").write_text("")
            with locked(into / "journal.lock"):
                before = {path: path.read_bytes() for path in into.iterdir()}
                done = kvbench(*self.words[:-1], into / "results.json")
                self.assertEqual(done.returncode, BAD_INPUT, done.stderr)
                self.assertIn("another kvbench run is writing to this folder", done.stderr)
                self.assertEqual({path: path.read_bytes() for path in into.iterdir()}, before)

    def test_its_remedies_work(self):
        into = self.folder / "1"
        with locked(into / "journal.lock"):
            self.assertEqual(kvbench(*self.words[:-1], into / "results.json").returncode, BAD_INPUT)
            self.assertEqual(kvbench(*self.words).returncode, DONE)
        done = kvbench(*self.words[:-1], into / "results.json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(deterministic(self.results("1")), self.whole()[0])


if __name__ == "__main__":
    unittest.main()
