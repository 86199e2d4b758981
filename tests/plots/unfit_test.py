"""Results and dumps that do not fit a figure: kvplot ends with 0, or with 2 and one sentence.

Usage: unfit_test.py KVBENCH. Exits 77 where a Python package is missing.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
try:
    import h5py
    import numpy
    from called import called
    from kvplot import figures, terminal
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from made_results import cell, document, sweep

ROOT = Path(__file__).resolve().parents[2]
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
        # One cell of every algorithm and status, and a line of the summary for each.
        cls.small = json.loads(cls.results.read_text())
        kept = {(each["status"], each["label"]): each for each in cls.small["cells"]}
        cls.small["cells"] = list(kept.values())
        cls.small["summary"] = list({line["label"]: line for line in cls.small["summary"]}.values())
        cls.file = cls.folder / "made.json"

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

    def test_results_that_lack_a_column_of_a_figure(self):
        errors = {"epsilon_spectral": {"last": 0.1, "mean": 0.1}}
        path = self.write(document([cell("window", {"budget": 8}, 0.1, 0.5, derived={"vacuous": False}, errors=errors)]))
        self.one_sentence(called("failure_rate", "--results", path, "--out", self.folder / "f"),
                          "no finished cell has params.s; the gallery")

    def test_nothing_steers_a_terminal(self):
        evil = "\x1b[41mE\x07\x9b31m\u202e\r"
        shown = r"\u001b[41mE\u0007\u009b31m\u202e\u000d"
        self.assertEqual(terminal.printable(evil + "\n"), shown + "\n")
        self.assertEqual(terminal.one_line(evil + "\n"), shown + r"\u000a")
        said = io.StringIO()
        terminal.show_warning(UserWarning(f"Glyph {evil}"), UserWarning, "figure.py", 1, said, "")
        self.assertIn(f"Glyph {shown}", said.getvalue())
        made = document([cell("window", {"budget": 8}, 0.1, 0.5, label=evil)])
        path = self.write(made)
        command = [sys.executable, "-m", "kvplot", "table", path, "--rows", "label", "--value",
                   "errors.relative_l2.mean", "--format", "csv"]
        self.assertIn(evil.encode(), subprocess.run(command, capture_output=True, check=True).stdout)
        mine, of_table = os.openpty()
        subprocess.run(command, stdout=of_table, stderr=subprocess.PIPE, check=True)
        os.close(of_table)
        seen = os.read(mine, 10_000).decode()
        os.close(mine)
        self.assertIn(shown, seen)
        self.assertNotIn("\x1b", seen)

    def test_names_with_dollar_signs_are_drawn_as_they_stand(self):
        for name in (r"$\input{/etc/passwd}$", "$^^$", "$" + "{" * 3000 + "$", "$x$"):
            cells = [cell("window", {"budget": budget}, 8 / budget, budget / 64, label=name)
                     for budget in (8, 16, 32)]
            path = self.write(document(cells))
            for command, out in ((("error_vs_memory", "--png-only", "--results"), "out"),
                                 (("report",), "out.html")):
                with self.subTest(name=name[:20], command=command[0]):
                    code, said = called(*command, path, "--out", self.folder / out)
                    self.assertEqual(code, 0, said)

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
