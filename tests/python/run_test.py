"""kb.run: the library's run, as the program does it."""

import json
import subprocess
import tempfile
import threading
import unittest
import warnings
from collections import Counter
from pathlib import Path

import h5py
import numpy as np

import kvbench as kb
from streams import DUMP, PROGRAM, without

SWEEP = {
    "schema_version": 1,
    "name": "small",
    "dumps": [str(DUMP)],
    "select": {"layers": [0], "tokens": 400},
    "algorithms": [{"algorithm": "h2o", "params": {"budget": [32, 64]}},
                   {"algorithm": "uniform", "params": {"T": 1}}],
}


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.config = self.folder / "small.json"
        self.config.write_text(json.dumps(SWEEP))

    def test_it_writes_what_the_program_writes(self):
        got = kb.run(self.config, out=self.folder / "python", threads=2, quiet=True)
        subprocess.run([PROGRAM, "run", "--config", self.config, "--out", self.folder / "program",
                        "--quiet"], check=True)
        expected = json.loads((self.folder / "program/results.json").read_text())
        self.assertEqual(got.path, self.folder / "python/results.json")
        self.assertEqual([without(each) for each in got.cells],
                         [without(each) for each in expected["cells"]])
        self.assertEqual(got.summary, expected["summary"])
        self.assertEqual([each["repro"] for each in got.cells],
                         [each["repro"] for each in expected["cells"]])

    def test_a_second_call_computes_nothing(self):
        first = kb.run(self.config, out=self.folder / "out", quiet=True)
        journal = self.folder / "out/journal.jsonl"
        lines = journal.read_text().count('"id"')
        again = kb.run(self.config, out=self.folder / "out", quiet=True)
        self.assertEqual(journal.read_text().count('"id"'), lines)
        self.assertEqual(first.cells, again.cells)

    def test_a_dict_is_a_sweep(self):
        sweep = {name: value for name, value in SWEEP.items()
                 if name not in ("schema_version", "name")}
        got = kb.run(sweep, out=self.folder / "out", quiet=True, only=["h2o/*/*/*/*"],
                     sets=["/algorithms/0/params/budget=48"])
        self.assertEqual({each["key"]["params"]["budget"] for each in got.cells}, {48})
        written = json.loads((self.folder / "out/sweep.json").read_text())
        self.assertEqual((written["name"], written["dumps"]), ("out", [str(DUMP)]))

    def test_options_reach_the_program(self):
        layers = ["/select/layers=[0,1]"]
        part = kb.run(self.config, out=self.folder / "out", shard="1/2", sets=layers,
                      quiet=True, device="cpu", memory_limit=2**31)
        self.assertFalse(part.complete)
        whole = kb.run(self.config, out=self.folder / "out", fresh=True, quiet=True, sets=layers)
        self.assertTrue(whole.complete)

    def test_a_folder_belongs_to_one_sweep(self):
        out = self.folder / "out"
        first = kb.run(SWEEP, out=out, quiet=True).document
        written = (out / "sweep.json").read_bytes()
        other = {**SWEEP, "algorithms": [{"algorithm": "h2o", "params": {"budget": 48}}]}
        with self.assertRaisesRegex(kb.Error, "finished cells of another sweep.*another out, .* "
                                              "fresh=True, .* add=True"):
            kb.run(other, out=out, quiet=True)
        self.assertEqual((out / "sweep.json").read_bytes(), written)
        self.assertEqual(json.loads((out / "results.json").read_text()), first)
        second = kb.run(other, out=out, add=True, anonymous=True, quiet=True).document
        self.assertEqual(second["provenance"][-1]["host"], "")
        kept = out / f"results-{first['plan']['hash'][:8]}.json"
        self.assertEqual(json.loads(kept.read_text()), first)
        # A folder that a refused call made is left without a sweep.
        with self.assertRaises(kb.Error):
            kb.run({**SWEEP, "dumps": ["none.h5"]}, out=self.folder / "new", quiet=True)
        self.assertEqual(list((self.folder / "new").iterdir()), [])

    def overflowing(self, **more):
        """A sweep of finite numbers whose logits are not."""
        with h5py.File(self.folder / "large.h5", "w") as file:
            file.attrs.update({"format": "kvbench-dump", "format_version": 1, "model": "none",
                               "producer": "test", "n_layers": 1})
            layer = file.create_group("sequences/s/layers/0")
            layer.attrs.update({"scale": 1.0, "sliding_window": 0, "logit_softcap": 0.0})
            for name in "qkv":
                layer[name] = np.full((2, 64, 4), 1e160)
        return {"dumps": [self.folder / "large.h5"], "algorithms": [{"algorithm": "exact"}], **more}

    def test_failed_cells_are_results_and_a_warning_has_the_reasons(self):
        with self.assertWarnsRegex(RuntimeWarning, r"2 of 2 cells failed\n  [12] failed: .*row"):
            got = kb.run(self.overflowing(), out=self.folder / "out", quiet=True)
        self.assertEqual([each["status"] for each in got.cells], ["failed"] * 2)
        self.assertEqual(got.reasons["failed"], dict(Counter(each["reason"] for each in got.cells)))
        self.assertEqual(sum(got.reasons["failed"].values()), 2)

    def test_where_all_cells_are_skipped_a_warning_has_the_reason(self):
        sweep = {**SWEEP, "algorithms": [{"algorithm": "snapkv", "params": {"budget": 8}}]}
        with self.assertWarnsRegex(RuntimeWarning, r"3 of 3 cells skipped\n  3 skipped: .*budget"):
            got = kb.run(sweep, out=self.folder / "out", quiet=True)
        self.assertEqual(list(got.reasons), ["skipped"])

    def test_missing_cells_raise_with_the_reasons_of_those_that_failed(self):
        sweep = self.overflowing()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            kb.run(sweep, out=self.folder / "part", shard="1/2", quiet=True)
        with self.assertRaisesRegex(RuntimeError, r"1 of 2 cells are missing; finish their shards, then "
                                                  r"merge again\n.*1 of 2 cells failed\n  1 failed: .*row"):
            kb.merge([self.folder / "part"], out=self.folder / "merged.json")

        with self.assertRaises(kb.RunError) as raised:
            kb.merge([self.folder / "part"], out=self.folder / "merged.json")
        self.assertEqual([each["status"] for each in raised.exception.failed], ["failed"])
        self.assertEqual(list(raised.exception.reasons), ["failed"])
        self.assertEqual(raised.exception.results.path, self.folder / "merged.json")

    def test_progress_is_called_in_this_thread_with_what_is_finished_of_how_many(self):
        calls = []
        kb.run(self.config, out=self.folder / "out", quiet=True,
               progress=lambda *counts: calls.append((*counts, threading.get_ident())))
        here = threading.get_ident()
        self.assertEqual(calls, [(done, 9, here) for done in range(10)])
        again = []
        kb.run(self.config, out=self.folder / "out", quiet=True,
               progress=lambda *counts: again.append(counts))
        self.assertEqual(again, [(0, 0)])

    def test_a_run_whose_progress_raises_ends_with_that_and_resumes(self):
        def stop_at_four(done, _):
            if done == 4:
                raise LookupError("enough")

        with self.assertRaisesRegex(LookupError, "enough"):
            kb.run(self.config, out=self.folder / "out", quiet=True, progress=stop_at_four)
        rest = []
        kb.run(self.config, out=self.folder / "out", quiet=True,
               progress=lambda *counts: rest.append(counts))
        self.assertLess(rest[0][1], 6)
        self.assertEqual(rest[-1][0], rest[-1][1])

    def test_an_error_lists_its_reasons(self):
        sweep = {**SWEEP, "algorithms": [{"algorithm": "h20"}, {"algorithm": "snapkw"}]}
        with self.assertRaises(kb.Error) as raised:
            kb.run(sweep, out=self.folder / "out", quiet=True)
        reasons = raised.exception.reasons
        self.assertEqual(len(reasons), 2)
        self.assertIn("/algorithms/0", reasons[0])
        self.assertEqual("\n".join(reasons), str(raised.exception))

    def test_errors_are_exceptions(self):
        for sweep, options, words in (
                ({**SWEEP, "algorithms": [{"algorithm": "h20"}]}, {}, ("/algorithms/0", "h2o")),
                ({**SWEEP, "dumps": ["none.h5"]}, {}, ("none.h5",)),
                (self.folder / "none.json", {}, ("none.json",)),
                (self.config, {"device": "tpu"}, ("kvbench.run: device", "tpu")),
                (self.config, {"threads": 0}, ("kvbench.run: threads",)),
                (self.config, {"memory_limit": 0}, ("kvbench.run: memory_limit",)),
                (self.config, {"fresh": True, "add": True}, ("kvbench.run: add", "fresh")),
                (self.config, {"only": "nothing/*"}, ("nothing/*",))):
            with self.subTest(words=words), self.assertRaises(kb.Error) as raised:
                kb.run(sweep, out=self.folder / "out", quiet=True, **options)
            for word in words:
                self.assertIn(word, str(raised.exception))

    def test_frame_is_kvplot_s(self):
        try:
            import pandas  # noqa: F401
        except ImportError as missing:
            raise unittest.SkipTest("SKIPPED: frame needs pandas") from missing
        got = kb.run(self.config, out=self.folder / "out", quiet=True)
        self.assertEqual(len(got.frame()), len(got.cells))
        means = got.means("errors.relative_l2.mean", "memory.fraction")
        self.assertEqual(len(means), len({cell["label"] + str(cell["key"]["params"]) for cell in got.cells}))


class Program(unittest.TestCase):
    def test_the_package_starts_the_program(self):
        import sys
        said = subprocess.run([sys.executable, "-m", "kvbench", "--version"], capture_output=True,
                              text=True, check=True).stdout
        self.assertEqual(said, subprocess.run([PROGRAM, "--version"], capture_output=True, text=True,
                                              check=True).stdout)
        self.assertIn(kb.__version__, said)
        refused = subprocess.run([sys.executable, "-m", "kvbench", "runn"], capture_output=True,
                                 check=False)
        self.assertEqual(refused.returncode, 2)


if __name__ == "__main__":
    unittest.main()
