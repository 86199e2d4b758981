"""Results that are damaged, or do not fit a figure: kvplot ends with 0, or with 2 and one sentence.

Usage: damaged_results_test.py KVBENCH. Exits 77 where a Python package is missing.
KVBENCH_TEST_SEEDS=k makes k times as many random changes; KVBENCH_TEST_FIRST_SEED=s starts elsewhere.
"""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
try:
    import h5py
    import numpy
    from called import called
    from kvplot import ResultsError, checks, figures
    from kvplot.results import Results
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from made_results import cell, document, sweep
from mutated_json import VALUES, copied, every_mutation, random_mutation, replaced, without

ROOT = Path(__file__).resolve().parents[2]
SEEDS = int(os.environ.get("KVBENCH_TEST_SEEDS", "1"))
FIRST = int(os.environ.get("KVBENCH_TEST_FIRST_SEED", "1"))
PROGRAM = None
SWEEP = {"schema_version": 1, "name": "small", "dumps": [str(ROOT / "data/clusterable.h5")],
         "seeds": [0, 1], "select": {"tokens": 128},
         "algorithms": [
             {"algorithm": "h2o", "params": {"budget": [2, 32]}},
             {"algorithm": "uniform", "params": {"T": [1, 2]}},
             {"algorithm": "balancekv", "params": {"t": 16, "T": [1, "auto"]}},
             {"algorithm": "softmax_balance", "params": {"T": 1, "r": "oracle"}},
             {"algorithm": "subgen", "params": {"delta_quantile": 0.1, "t": 4, "s": [8, 16]}}]}
OF_RESULTS = [name for name in figures.NAMES if figures.module(name).NEEDS == ("results",)]


class WithResults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.folder = Path(made.name)
        sweep_file = cls.folder / "sweep.json"
        sweep_file.write_text(json.dumps(SWEEP))
        run = subprocess.run([PROGRAM, "run", "--config", sweep_file, "--out", cls.folder / "out",
                              "--quiet"], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        cls.results = cls.folder / "out" / "results.json"
        cls.whole = json.loads(cls.results.read_text())
        # One cell of every algorithm and status, and a line of the summary for each.
        cls.small = copied(cls.whole)
        kept = {(each["status"], each["label"]): each for each in cls.small["cells"]}
        cls.small["cells"] = list(kept.values())
        cls.small["summary"] = list({line["label"]: line for line in cls.small["summary"]}.values())
        cls.file = cls.folder / "damaged.json"

    def write(self, content):
        self.file.write_bytes(content if isinstance(content, bytes) else
                              json.dumps(content).encode())
        return self.file

    def one_sentence(self, answer, *words):
        code, said = answer
        self.assertEqual(code, 2, said)
        self.assertTrue(said.startswith("kvplot: "), said)
        self.assertEqual(said.count("\n"), 1, said)
        for word in words:
            self.assertIn(word, said)

    def refused(self, content, *words):
        self.one_sentence(called("report", self.write(content), "--out", self.folder / "r.html"),
                          "damaged.json", *words)


class Damaged(WithResults):
    def test_faults_are_named_by_their_pointer(self):
        for name in ("dumps", "plan", "config", "summary", "provenance", "cells", "name", "status"):
            self.refused(without(self.small, (name,)), f'expected a member "{name}"')
        for path, value, words in (
                (("cells", 0), None, ("/cells/0: expected an object, got null",)),
                (("cells", 0, "label"), 5, ("/cells/0/label: expected text, got 5",)),
                (("cells", 0, "key", "sequence"), 5, ("/cells/0/key/sequence", "got 5")),
                (("cells", 0, "key", "layer"), -1, ("at least 0, got -1",)),
                (("cells", 0, "key", "layer"), True, ("got true",)),
                (("cells", 0, "key", "tokens"), 10 ** 400, ("an integer of 401 digits",)),
                (("cells", 0, "status"), "fine", ('expected "ok" or "failed" or "skipped"',)),
                (("name",), 5, ("/name: expected text, got 5",)),
                (("name",), "\ud800", ("/name: expected text",)),
                (("plan", "cells"), "<script>", ("/plan/cells", 'got "<script>"')),
                (("summary", 0, "cells"), "<script>", ("/summary/0/cells",)),
                (("config",), [], ("/config: expected an object, got an array of 0",)),
                (("provenance", 0, "argv"), [1], ("/provenance/0/argv/0: expected text",))):
            with self.subTest(path=path):
                self.refused(replaced(self.small, path, value), *words)
        self.refused(replaced(self.small, ("name",), "x" * (2 ** 20 + 1)),
                     "/name: expected text, got one of 1048577 characters, 1048576 at most")
        ok = next(place for place, each in enumerate(self.small["cells"]) if each["status"] == "ok")
        path = ("cells", ok, "errors", "relative_l2", "mean")
        self.refused(replaced(self.small, path, "much"), f"/cells/{ok}/errors/relative_l2")
        self.refused(without(self.small, ("cells", 0, "key")), '/cells/0: expected a member "key"')

    def test_a_table_needs_of_the_rest_what_it_reads(self):
        for value in (None, 5, "text", [], True):
            with self.subTest(value=value):
                path = self.write(replaced(self.small, ("config",), value))
                self.one_sentence(called("table", path, "--rows", "label", "--value",
                                         "errors.relative_l2.mean"), "/config: expected an object")

    def test_what_is_not_json_is_said_to_be_so(self):
        text = json.dumps(self.small)
        self.refused(text.replace('"seed": null', '"seed": NaN', 1).encode(), "NaN")
        self.refused(b"{\"a\":" * 100000, "nested too deep")
        self.refused(b"[" * 100000, "expected a JSON object")
        self.refused(text.replace('"config": {', '"config": {"a": ' + "[" * 200 + "]" * 200 + ",", 1)
                     .encode(), "/config/a", "nested")
        self.refused(text.encode() + b"\0", "JSON")

    def test_every_change_of_a_value_passes_the_door_or_is_refused(self):
        """At the door, and in what every command makes of the cells."""
        one = copied(self.small)
        by_status = {(each["status"], "p_histogram" in each["derived"]): each for each in one["cells"]}
        one["cells"], one["config"] = list(by_status.values()), {"name": "x"}
        one["summary"], one["provenance"][0]["libraries"] = one["summary"][:1], {}
        count = 0
        for what, changed in every_mutation(one, min(5 * SEEDS, len(VALUES))):
            count += 1
            self.write(changed)
            try:
                results = Results(self.file)
                len(results.frame), results.models()
            except ResultsError as error:
                self.assertIn("damaged.json", str(error), what)
            except Exception as error:
                raise AssertionError(what) from error
        self.assertGreater(count, 600)

    def test_the_door_refuses_nothing_that_the_programs_schema_takes(self):
        try:
            import jsonschema
        except ImportError:
            self.skipTest("no python3-jsonschema")
        printed = subprocess.run([PROGRAM, "schema", "results"], capture_output=True, check=True)
        schema = jsonschema.Draft202012Validator(json.loads(printed.stdout))
        small = copied(self.small)
        small["cells"], small["summary"] = small["cells"][:2], small["summary"][:1]
        self.assertTrue(schema.is_valid(small))
        rng = random.Random(FIRST)
        changes = [(what, changed) for what, changed in every_mutation(small)
                   if not re.search(r"'1000|\\ud800|config", what)]  # told apart by no schema, or not read
        refused = 0
        for what, changed in rng.sample(changes, 150 * SEEDS):
            if checks.RESULTS(changed, "") is not None:
                refused += 1
                self.assertFalse(schema.is_valid(changed), what)
        self.assertGreater(refused, 20)

    def test_random_changes_end_with_0_or_a_sentence(self):
        """The whole commands: figures that these results fit, and the report without its figures."""
        fit = [name for name in OF_RESULTS
               if called(name, "--results", self.results, "--out", self.folder / "figures",
                         "--png-only", "--dpi", 30)[0] == 0]
        self.assertGreater(len(fit), 6)
        drawn = 0
        for number in range(FIRST, FIRST + 60 * SEEDS):
            rng = random.Random(number)
            what, data = random_mutation(self.small, rng)
            self.write(data)
            figure = rng.choice(fit)
            for command in ((figure, "--results", self.file, "--out", self.folder / "figures",
                             "--png-only", "--dpi", 30),
                            ("report", self.file, "--out", self.folder / "r.html", "--no-figures")):
                try:
                    code, said = called(*command)
                except Exception as error:
                    raise AssertionError(f"seed {number}: {what}: {command[0]}") from error
                self.assertIn(code, (0, 2), f"seed {number}: {what}")
                self.assertLessEqual(said.count("\n"), 1, said)
                drawn += code == 0
        self.assertGreater(drawn, 5 * SEEDS)


class DoNotFit(WithResults):
    """Whole files that a figure is not made for."""

    def test_every_figure_draws_or_says_why_not(self):
        only_auto = [cell("balancekv", {"t": 16, "T": "auto"}, 0.1, 0.5, mass={"denominator": {
            "mean": 1.0}}, memory={"fraction": 0.5, "tokens_peak": 9})]
        for name, made in (
                ("empty", document([])),
                ("exact alone", document([cell("exact", {}, 5e-17, 1.0)])),
                ("one cell", document([cell("h2o", {"budget": 4}, 0.3, 0.5)])),
                ("skipped alone", document([cell("h2o", {}, 0, 0, status="skipped", reason="x")])),
                ("no errors", document([cell("h2o", {"budget": 4}, 0.3, 0.5, errors=None)])),
                ("no memory", document([cell("h2o", {"budget": 4}, 0.3, 0.5, memory=None)])),
                ("automatic levels", document(only_auto)), ("sweep", sweep()), ("small", self.small)):
            file = self.write(made)
            for figure in OF_RESULTS:
                with self.subTest(results=name, figure=figure):
                    answer = called(figure, "--results", file, "--out", self.folder / "figures",
                                    "--png-only", "--dpi", 30)
                    if answer[0] != 0:
                        self.one_sentence(answer)

    def test_merge_reduce_needs_balancekv(self):
        uniform = [cell("uniform", {"T": 1, "t": 4}, 0.1, 0.5, memory={"fraction": 0.5, "exact_bytes": 64, "tokens_peak": 9},
                        mass={"denominator": {"mean": 1.0}})]
        self.one_sentence(called("merge_reduce", "--results", self.write(document(uniform)), "--out",
                                 self.folder / "f"), "no finished cell of balancekv", "merge_reduce.json")

    def test_cache_size_needs_a_setting_of_subgens_table(self):
        self.one_sentence(called("cache_size", "--results", self.write(sweep()), "--out",
                                 self.folder / "f"), "no finished cell is labelled", "subgen n=5k")
        cells = [cell("kcenter", {"budget": 4}, 0.3, 0.5, label="subgen n=7k")]
        code, said = called("cache_size", "--results", self.write(document(cells)), "--out",
                            self.folder / "f")
        self.assertEqual(code, 0)
        self.assertNotIn("posx", said)
        self.assertIn("whatever model", (self.folder / "f/cache_size.txt").read_text())

    def dump(self, tokens=64, nan=False):
        path = self.folder / "dump.h5"
        rng = numpy.random.default_rng(0)
        with h5py.File(path, "w") as file:
            file.attrs.update({"format": "kvbench-dump", "format_version": 1, "model": "m",
                               "producer": "p", "n_layers": 1})
            layer = file.create_group("sequences/s/layers/0")
            layer.attrs.update({"scale": 1.0, "sliding_window": 0, "logit_softcap": 0.0})
            for name in "qkv":
                layer[name] = rng.standard_normal((1, tokens, 4))
            if nan:
                layer["k"][0, 3, 1] = numpy.nan
        return path

    def test_score_bars_needs_more_tokens_than_it_decodes(self):
        out = ("--out", self.folder / "f")
        for options, words in (((), ("64 tokens", "--decoded 256")),
                               (("--decoded", 0), ("--decoded",)),
                               (("--decoded", 8, "--cache", 0), ("--cache",)),
                               (("--decoded", 8, "--cache", 2), ("--cache",)),
                               (("--decoded", 8, "--recent", -1), ("--recent",)),
                               (("--decoded", 8, "--shown", 0), ("--shown",)),
                               (("--decoded", 8, "--kv-head", 7), ("--kv-head 7",)),
                               (("--decoded", 8, "--query-head", 7), ("--query-head 7",)),
                               (("--decoded", 8, "--layers", 7), ("no layer 7",))):
            with self.subTest(options=options):
                self.one_sentence(called("score_bars", "--dump", self.dump(), *out, *options), *words)
        words = self.folder / "words.json"
        for text, said in (('["We", "the"]', "expected a list of 64 texts"), ("{", "give a JSON list of texts with --words")):
            words.write_text(text)
            self.one_sentence(called("score_bars", "--dump", self.dump(), "--decoded", 8, "--words", words, *out), said)
        words.write_text(json.dumps([f" word{place}" for place in range(64)]))
        self.assertEqual(called("score_bars", "--dump", self.dump(), "--decoded", 8, "--words", words, *out)[0], 0)
        self.one_sentence(called("score_bars", "--dump", self.dump(nan=True), "--decoded", 8, *out),
                          "not finite")
        self.assertEqual(called("score_bars", "--dump", self.dump(), "--decoded", 8, *out)[0], 0)

    def test_tsne_needs_finite_keys_and_enough_tokens(self):
        try:
            import sklearn  # noqa: F401
        except ImportError:
            self.skipTest("no scikit-learn")
        out = ("--out", self.folder / "f")
        self.one_sentence(called("tsne", "--dump", self.dump(nan=True), *out), "layer 0", "not finite")
        for options, words in (((), ()), (("--tokens", 5), ("--perplexity",)),
                               (("--kv-head", 3), ("--kv-head 3",)), (("--layers", 4), ("no layer 4",)),
                               (("--centers", 0), ("--centers",)), (("--seed", -1), ("--seed",)),
                               (("--perplexity", 0), ("--perplexity",))):
            with self.subTest(options=options):
                answer = called("tsne", "--dump", self.dump(), *out, *options)
                if words:
                    self.one_sentence(answer, *words)
                else:
                    self.assertEqual(answer[0], 0, answer[1])

    def test_tsne_refuses_points_that_crash_it(self):
        """In a process of its own, which dies where it does not."""
        try:
            import sklearn  # noqa: F401
        except ImportError:
            self.skipTest("no scikit-learn")
        for scale, code in ((0.0, 2), (1e-24, 2), (1e-14, 0), (1e14, 0), (1e24, 2), (1e200, 2)):
            with self.subTest(scale=scale):
                dump = self.dump()
                with h5py.File(dump, "a") as file:
                    file["sequences/s/layers/0/v"][...] *= scale
                done = subprocess.run(
                    [sys.executable, "-W", "ignore", "-m", "kvplot", "tsne", "--dump", dump, "--out",
                     self.folder / "f", "--png-only"], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, code, done.stderr)
                if code:
                    self.one_sentence((done.returncode, done.stderr), "layer 0: values are at most")

    def test_a_dump_without_its_parts(self):
        for path, words in (("sequences/s/layers/0/k", "holds no k"), ("sequences/s/layers", "layers"),
                            ("sequences", "sequences")):
            dump = self.dump()
            with h5py.File(dump, "a") as file:
                del file[path]
            self.one_sentence(called("score_bars", "--dump", dump, "--out", self.folder / "f"),
                              "dump.h5", words)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
