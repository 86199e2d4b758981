"""Bad input: exit 2, a message that names place and remedy, nothing on stdout, nothing written."""

import os
import subprocess
import unittest

from program import BAD_INPUT, DONE, PROGRAM, Folder, kvbench

WINDOW = {"algorithm": "window", "params": {"budget": 8}}


class BadInput(Folder):
    def refuse(self, *words, options=(), **sweep):
        """A run of this sweep is refused with these words, and so are plan and validate."""
        config = self.sweep(**sweep)
        before = sorted(self.folder.rglob("*"))
        done = kvbench("run", "--config", config, *options, cwd=self.folder)
        self.assert_refused(done, *words)
        self.assertTrue(done.stderr.startswith("kvbench: "), done.stderr)
        self.assertEqual(sorted(self.folder.rglob("*")), before, "something was written")
        if not options:
            self.assert_refused(kvbench("plan", "--config", config), *words)
            self.assert_refused(kvbench("validate", "--config", config), *words)

    def test_sweeps(self):
        table = [
            (["/algorithms/0/algorithm", "windw", "did you mean window"],
             {"algorithms": [{"algorithm": "windw", "params": {"budget": 8}}]}),
            (["/algorithms/0/params/budgt", "did you mean budget"],
             {"algorithms": [{"algorithm": "window", "params": {"budgt": 8}}]}),
            (["/algorithms/0/params/budget", "empty axis"],
             {"algorithms": [{"algorithm": "window", "params": {"budget": []}}]}),
            (["/algorithms/0/params/budget", "-3"],
             {"algorithms": [{"algorithm": "window", "params": {"budget": -3}}]}),
            (["/algorithms/0/params", "budget"], {"algorithms": [{"algorithm": "window"}]}),
            (["/algorithms"], {"algorithms": []}),
            (["/select/layers", "7"], {"algorithms": [WINDOW], "select": {"layers": [7]}}),
            (["/select/tokens", "1000"], {"algorithms": [WINDOW], "select": {"tokens": 1000}}),
            (["/replay/prompt_tokens"],
             {"algorithms": [WINDOW], "replay": {"prompt_tokens": 96}}),
            (["/seeds"], {"algorithms": [WINDOW], "seeds": [-1]}),
            (["/dumps/0", "none.h5"], {"algorithms": [WINDOW], "dumps": ["none.h5"]}),
            (["same cell"], {"algorithms": [WINDOW, WINDOW]}),
            (["/schema_version"], {"algorithms": [WINDOW], "schema_version": 99}),
        ]
        for words, sweep in table:
            with self.subTest(words=words):
                self.refuse(*words, **sweep)

    def test_all_faults_are_reported_together(self):
        self.refuse("/algorithms/0/algorithm", "/algorithms/1/params/budgt", "/dumps/0",
                    algorithms=[{"algorithm": "windw"}, {"algorithm": "window",
                                                         "params": {"budgt": 1}}],
                    dumps=["none.h5"])

    def test_a_sweep_that_is_no_json_or_not_there(self):
        path = self.folder / "broken.json"
        path.write_text('{"schema_version": 1,')
        self.assert_refused(kvbench("run", "--config", path, cwd=self.folder), "broken.json")
        self.assert_refused(kvbench("run", "--config", "none.json", cwd=self.folder), "none.json")
        self.assert_refused(kvbench("run", "--config", self.folder, cwd=self.folder))
        self.assertEqual(list(self.folder.iterdir()), [path])

    def test_dumps(self):
        good = (self.made / "tiny.h5").read_bytes()
        (self.made / "truncated.h5").write_bytes(good[:len(good) // 2])
        (self.made / "text.h5").write_text("not HDF5\n")
        (self.made / "empty.h5").write_bytes(b"")
        for name in ("truncated.h5", "text.h5", "empty.h5"):
            with self.subTest(name):
                # Also with a good dump beside it.
                self.refuse(name, dumps=[str(self.made / "tiny.h5"), str(self.made / name)])
                self.assert_refused(kvbench("inspect", self.made / name), name)
                self.assert_refused(kvbench("validate", self.made / name), name)

    def test_not_a_number_in_a_tensor_is_named_by_dataset_head_and_token(self):
        try:
            import h5py
        except ImportError:
            self.skipTest("no h5py")
        path = self.synth("nan.h5", "--tokens", 96, "--d", 8)
        with h5py.File(path, "r+") as dump:
            dump["sequences/0/layers/0/v"][1, 17, 3] = float("nan")
        self.refuse("nan.h5", "/sequences/0/layers/0/v", "head 1", "token 17", dumps=[str(path)])

    def test_missing_pieces_of_a_dump(self):
        try:
            import h5py
        except ImportError:
            self.skipTest("no h5py")
        def spoil(name, change):
            path = self.synth(name, "--tokens", 96, "--d", 8)
            with h5py.File(path, "r+") as dump:
                change(dump)
            return [str(path)]
        layer = "sequences/0/layers/0"
        self.refuse("format", dumps=spoil("f.h5", lambda dump: dump.attrs.pop("format")))
        self.refuse("scale", dumps=spoil("s.h5", lambda dump: dump[layer].attrs.pop("scale")))
        def remove_values(dump):
            del dump[layer]["v"]
        self.refuse("v", layer, dumps=spoil("v.h5", remove_values))

    def test_two_dumps_of_the_same_content(self):
        copy = self.made / "copy.h5"
        copy.write_bytes((self.made / "tiny.h5").read_bytes())
        self.refuse("tiny.h5", "copy.h5", dumps=[str(self.made / "tiny.h5"), str(copy)])

    def test_output_places_that_cannot_be_written(self):
        taken = self.folder / "taken"
        taken.write_text("")
        config = self.sweep()
        for place in (taken, taken / "below", "/proc/none/out"):
            with self.subTest(place):
                done = kvbench("run", "--config", config, "--out", place)
                self.assert_refused(done, str(place), "--out")
        self.assertEqual(taken.read_text(), "")
        if os.geteuid() != 0:
            locked = self.folder / "locked"
            locked.mkdir(mode=0o500)
            done = kvbench("run", "--config", config, "--out", locked)
            self.assert_refused(done, "locked", "--out")

    def test_a_folder_whose_journal_is_something_else(self):
        out = self.folder / "out"
        out.mkdir()
        (out / "journal.jsonl").write_text("my diary\n")
        config = self.sweep()
        done = kvbench("run", "--config", config, "--out", out)
        self.assert_refused(done, "journal.jsonl", "--fresh")
        self.assertEqual((out / "journal.jsonl").read_text(), "my diary\n")

    def test_options(self):
        config = self.sweep()
        table = [
            ([], ["no-such-command"]), (["--config"], ["run"]), (["--frob"], ["run", "--config", config, "--frob"]),
            (["cuda"], ["run", "--config", config, "--device", "cuda"]),
            (["--device"], ["run", "--config", config, "--device", "gpu"]),
            (["--threads"], ["run", "--config", config, "--threads", "0"]),
            (["--threads"], ["run", "--config", config, "--threads", "many"]),
            (["--memory-limit"], ["run", "--config", config, "--memory-limit", "much"]),
            (["sequence 0, layer 0", "--memory-limit"],
             ["run", "--config", config, "--memory-limit", "1KiB"]),
            (["zzz"], ["run", "--config", config, "--only", "zzz"]),
            (["/seed"], ["run", "--config", config, "--set", "/seed=3"]),
            (["--set"], ["run", "--config", config, "--set", "nonsense"]),
            (["WHAT"], ["list", "animals"]), (["--format"], ["export", "--results", config]),
            (["is not a kvbench results file"],
             ["export", "--results", config, "--format", "csv"]),
            (["none.json"], ["export", "--results", "none.json", "--format", "csv"]),
            (["KIND"], ["synth", "--out", "x.h5"]),
        ]
        before = sorted(self.folder.rglob("*"))
        for words, arguments in table:
            with self.subTest(arguments=arguments):
                self.assert_refused(kvbench(*arguments, cwd=self.folder), *words)
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_stdout_that_cannot_be_written(self):
        for arguments in (["list", "algorithms"], ["list", "metrics", "--json"],
                          ["plan", "--config", str(self.sweep()), "--json"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE,
                                      text=True, check=False)
            self.assertEqual(done.returncode, BAD_INPUT, done.stderr)
            self.assertIn("standard output", done.stderr)

    def test_the_good_sweep_of_these_tests_is_good(self):
        done = kvbench("validate", "--config", self.sweep(algorithms=[WINDOW]))
        self.assertEqual(done.returncode, DONE, done.stderr)


if __name__ == "__main__":
    unittest.main()
