"""Figures of cache files: what they compute against worked cases and the program, and bad files.

Usage: caches_test.py KVBENCH. Exits 77 where a Python package is missing.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from argparse import Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
try:
    import h5py
    import numpy
    import pandas
    from called import called
    from kvplot import looks, style
    from kvplot.cache import Cache, Caches, Place
    from kvplot.figures import kept, occupancy, survival
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROGRAM = None
P, N = 64, 96
METHODS = [{"algorithm": "window", "params": {"budget": 16}},
           {"algorithm": "h2o", "params": {"budget": 16}},
           {"algorithm": "uniform", "params": {"T": 2, "sinks": 4}},
           {"algorithm": "subgen", "params": {"delta_quantile": 0.1, "t": 2, "s": 16}}]


def write_cache(path, heads=(("0", 0, 0),), method="mine", attributes=None, root=None, **datasets):
    """A cache file whose heads are all alike; `attributes` of the heads, `root` of the file."""
    with h5py.File(path, "w") as cache:
        cache.attrs.update({"format": "kvbench-cache", "format_version": 1, "method": method})
        for name, value in (root or {}).items():
            cache.attrs[name] = value
        for sequence, layer, head in heads:
            group = cache.create_group(f"sequences/{sequence}/layers/{layer}/heads/{head}")
            group.attrs["prompt_tokens"] = P
            for name, value in (attributes or {}).items():
                group.attrs[name] = value
            for name, values in datasets.items():
                group[name] = values
    return path


class Made(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name="mine.h5", **more):
        return write_cache(self.folder / name, **more)

    def drawn(self, figure, *arguments):
        return called(figure, *arguments, "--out", self.folder / "out", "--png-only", "--dpi", 30)


class Worked(Made):
    def rows(self, tokens=8, attributes=None, **datasets):
        path = self.write(attributes={"prompt_tokens": 4, "decode": "given", **(attributes or {})},
                          **datasets)
        return Cache(path).heads[Place("0", 0, 0)].rows(tokens)

    def test_a_raster_has_the_weight_of_each_token_at_each_decode_row(self):
        rows = self.rows(token=[0, 0, 3, 5], begin=[4, 6, 4, 5], end=[8, 8, 6, 7],
                         weight_numerator=[1.0, 2.0, -3.0, 0.0], weight_denominator=[1.0, 2.0, 1.0, 4.0])
        expected = numpy.zeros((4, 8))
        expected[:, 0] = [1, 1, 3, 3]
        expected[:2, 3] = 3
        expected[1:3, 5] = 4
        at = numpy.arange(4, 8)
        numpy.testing.assert_allclose(kept.raster(rows, at, 8, 1), expected)
        # Positions in bins of three, the last of two.
        binned = numpy.add.reduceat(expected, [0, 3, 6], axis=1) / [3, 3, 2]
        numpy.testing.assert_allclose(kept.raster(rows, at, 8, 3)[[0, 3]], binned[[0, 3]])
        numpy.testing.assert_allclose(kept.raster(rows, at[[0, 2]], 8, 1), expected[[0, 2]])

    def test_nothing_is_left_of_weights_that_do_not_cancel(self):
        rows = self.rows(token=[1, 1, 1], end=[5, 6, 7], weight=[0.1, 0.2, 0.3])
        numpy.testing.assert_array_equal(kept.raster(rows, numpy.arange(4, 8), 8, 1)[:, 1] > 0,
                                         [True, True, True, False])

    def test_rows_of_one_query_head_count_by_the_largest(self):
        rows = self.rows(token=[2, 2, 2], weight=[1.0, 2.0, 5.0], head=[-1, 0, 1])
        self.assertEqual(kept.raster(rows, numpy.arange(4, 8), 8, 1)[0, 2], 6.0)

    def test_decode_tokens_future_rows_and_rows_without_a_token(self):
        appended = self.rows(attributes={"decode": "append"}, token=[1])
        at = numpy.arange(4, 8)
        shown = kept.raster(appended, at, 8, 1)
        numpy.testing.assert_array_equal(shown[:, 4:], numpy.tril(numpy.ones((4, 4))))
        future = self.rows(attributes={"reads_future": 1}, token=[6])
        numpy.testing.assert_array_equal(kept.raster(future, at, 8, 1)[:, 6], [0, 0, 1, 1])
        own = self.rows(token=[-1, 2], key=numpy.ones((2, 3)), value=numpy.ones((2, 3)))
        self.assertEqual(kept.raster(own, at, 8, 1).sum(), 4)

    def test_a_file_that_does_not_say_n_is_of_at_least_its_last_row(self):
        for attributes, words in (({"tokens": 90}, "90 tokens"), ({}, "at least 65 tokens, no file says how many")):
            path = self.write(attributes=attributes, token=[1])
            self.assertEqual(Caches([path]).length(Place("0", 0, 0)), words)
            drawn = kept.draw(Namespace(caches=Caches([path]), sequence=None, layer=None, kv_head=None))
            self.assertIn(f"prompt 64, {words}. Shade", drawn.caption)
            style.pyplot.close(drawn.plot)

    def test_shades_darken_with_weight(self):
        for colour, *_ in looks.LOOK.values():
            shades = kept.shade(numpy.array([0.0, 0.25, 1.0, 4.0, 16.0]), colour).sum(axis=1)
            self.assertEqual(shades[0], 3.0)
            if colour != "#000000":
                self.assertTrue((numpy.diff(shades) < -0.02).all(), colour)

    def test_survival_counts_tokens_positions_and_heads(self):
        heads = [("0", 0, 0), ("0", 0, 1)]
        path = self.write(heads=heads, attributes={"prompt_tokens": 4, "decode": "given", "tokens": 8},
                          token=[0, 0, 1], begin=[4, 6, 4], end=[6, 8, 6])
        with h5py.File(path, "r+") as file:
            file["sequences/0/layers/0/heads/1/token"][2] = 3
        caches = Caches(path)
        places = survival.places_of(caches, "0", None)
        units, row = survival.shares(caches, places, None)
        self.assertEqual(row, 4)
        rows = units[(units["panel"] == "rows") & (units["kv_head"] == 1)]
        self.assertEqual(dict(zip(rows["x"], rows["share"])), {4: 0.5, 5: 0.5, 6: 0.25, 7: 0.25})
        at = units[(units["panel"] == "position") & (units["kv_head"] == 0)]
        self.assertEqual(dict(zip(at["x"], at["share"])), {0: 1, 1: 1, 2: 0, 3: 0})
        agree = units[units["panel"] == "agreement"]
        self.assertEqual(dict(zip(agree["x"], agree["share"])), {1: 0.75, 2: 0.25})
        table = survival.means(units, caches.labels)
        self.assertEqual(table[(table["panel"] == "position") & (table["x"] == 3)]["share"].item(), 0.5)
        # Each of two heads keeps one of two tokens: at least one does with 3/4, both with 1/4.
        numpy.testing.assert_allclose(survival.independent(table, 2), [0.75, 0.25])

    def test_labels_name_what_differs(self):
        paths = [self.write(f"{i}.h5", token=[1], method=method, root={"params": params, "seed": seed})
                 for i, (method, params, seed) in enumerate((
                     ("h2o", '{"budget": 8, "group": "mean"}', 0),
                     ("h2o", '{"budget": 16, "group": "mean"}', 0), ("other", "no JSON", 1)))]
        self.assertEqual(Caches(paths).labels, ["h2o, budget 8", "h2o, budget 16", "other"])
        again = self.write("again.h5", token=[2], method="other")
        self.assertEqual(len(set(Caches([paths[2], again]).labels)), 2)
        again.unlink()
        self.assertEqual([file.path.name for file in Caches(self.folder).files], ["0.h5", "1.h5", "2.h5"])

    def test_names_of_others_are_no_formulas(self):
        path = self.write(method=r"$\frac$" + "x" * 80, heads=[(r"$\frac$", 0, 0)], token=[1, 2],
                          attributes={"tokens": N})
        for figure in ("kept", "survival"):
            self.assertEqual(self.drawn(figure, path), (0, ""))


class Bad(Made):
    def refused(self, path, *words, figure="kept", more=()):
        code, said = self.drawn(figure, path, *more)
        self.assertEqual(code, 2, said)
        self.assertTrue(said.startswith("kvplot: "), said)
        self.assertEqual(said.count("\n"), 1, said)
        for word in words:
            self.assertIn(word, said)

    def test_rows_that_no_stream_could_have(self):
        for words, datasets in (
                ("row 0: begins at 3, in the prompt of 64", {"token": [1], "begin": [3]}),
                ("row 0: ends at 64, before it begins at 65", {"token": [1], "begin": [65], "end": [64]}),
                ("row 0: is of token 70, which is not there at row 64", {"token": [70]}),
                ('which decode = "append" keeps already', {"token": [64]})):
            with self.subTest(words):
                self.refused(self.write(**datasets), "mine.h5: /sequences/0/layers/0/heads/0", words)

    def test_attributes(self):
        for words, attributes in (
                ("attribute tokens is 10; its rows are of at least 65", {"tokens": 10}),
                ("is damaged", {"prompt_tokens": "many"})):
            with self.subTest(words):
                self.refused(self.write(attributes=attributes, token=[1]), words)
        for words, root in (("attribute format is 'kvbench-dump'", {"format": "kvbench-dump"}),
                            ("format_version is 2", {"format_version": 2})):
            with self.subTest(words):
                self.refused(self.write(root=root, token=[1]), words)

    def test_files_of_other_kinds(self):
        path = self.folder / "no.h5"
        self.refused(path, "no such file")
        path.write_text("{}")
        self.refused(path, "expected a cache file (HDF5)")
        (self.folder / "empty").mkdir()
        self.refused(self.folder / "empty", "has no cache file")
        with h5py.File(path, "w") as file:
            file["x"] = [1]
        self.refused(path, "attribute format is None; expected 'kvbench-cache'")
        self.refused(self.write(heads=(), token=[1]), "expected a group /sequences")
        with h5py.File(self.write(token=[1]), "r+") as file:
            del file["sequences/0/layers/0/heads/0"]
        self.refused(self.folder / "mine.h5", "has no rows of any head")
        with h5py.File(self.write(token=[1]), "r+") as file:
            file["sequences/0/layers/first"] = 1
        self.refused(self.folder / "mine.h5", "is damaged")

    def test_heads_and_files_that_do_not_fit(self):
        path = self.write(token=[1])
        self.refused(path, "no rows of layer 3, KV head 0; there is L0 h0", more=("--layer", 3))
        self.refused(path, "no rows of layer 0, KV head 7", more=("--head", 7))
        self.refused(path, "no sequence 'other'; there is 0", more=("--sequence", "other"))
        self.refused(path, "no layer 3", figure="survival", more=("--layers", 3))
        self.refused(path, "--row 3: expected a decode row, 64 to 64", figure="survival",
                     more=("--row", 3))
        one, two = (self.write(f"{dump}.h5", root={"dump": dump}, token=[1]) for dump in "ab")
        self.refused(one, "b.h5", "is of another dump", more=(two,))
        other = self.write("other.h5", attributes={"prompt_tokens": 63}, token=[1])
        self.refused(path, "other.h5", "has prompt 63 and another of the files 64", more=(other,))
        long = self.write("long.h5", attributes={"tokens": 99}, token=[1])
        other = self.write("other.h5", attributes={"tokens": 98}, token=[1])
        self.refused(long, "other.h5", "has n 98 and another of the files 99", more=(other,))
        other = self.write("other.h5", token=[1], end=[120])
        self.refused(long, "other.h5", "has rows of at least 120 tokens and another of the files is of 99",
                     more=(other,))
        for figure in ("kept", "survival"):
            self.refused(path, "13", "12", figure=figure, more=[path] * 12)


class Cells(Made):
    """The trees that balancekv's rows describe."""

    def test_cells_are_told_by_the_weights_of_one_sum(self):
        path = self.write(
            attributes={"prompt_tokens": 0, "decode": "given", "tokens": 6},
            token=[0, 1, 2, 0, 0, 5], begin=[0, 1, 2, 3, 1, 5], end=[2, 3, 6, 6, 4, 6],
            # Two of C^0 and one of C^1 in the denominator, one of C^2 in the numerator, and an exact one.
            weight_denominator=[1.0, 1.0, 1.0, 2.0, 0.0, 1.0], weight_numerator=[0.0, 0.0, 0.0, 0.0, 4.0, 1.0])
        rows = Cache(path).heads[Place("0", 0, 0)].rows(6)
        found = occupancy.sizes(rows, 6, "there")
        self.assertEqual(found["denominator"].tolist(), [[1, 2, 2, 1, 1, 1], [0, 0, 0, 1, 1, 1]])
        self.assertEqual(found["numerator"].tolist(), [[0] * 6, [0] * 6, [0, 1, 1, 1, 0, 0]])

    def test_weights_of_some_rows_alone_are_refused(self):
        params = {"params": '{"t": 2, "T": 1, "side": "smaller"}'}
        attributes = {"prompt_tokens": 0, "decode": "given", "tokens": 4}
        # One of each pair stays: with its weight of 2 from the row that halves, or two rows late.
        for name, begin, end, weights, code in (("good", [0, 1, 2, 3], [1, 4, 3, 4], [1.0, 2.0, 1.0, 2.0], 0),
                                                ("late", [0, 1, 3, 2, 3], [1, 3, 4, 3, 4], [1.0, 1.0, 2.0, 1.0, 2.0], 2)):
            tokens = [0, 1, 2, 3] if name == "good" else [0, 1, 1, 2, 3]
            self.write(f"{name}.h5", method="balancekv", root=params, attributes=attributes, token=tokens, begin=begin,
                       end=end, weight_denominator=weights, weight_numerator=[0.0] * len(weights))
            found, said = self.drawn("occupancy", self.folder / f"{name}.h5")
            self.assertEqual(found, code, said)
            self.assertEqual("weights are not those of every row" in said, code == 2)

    def test_files_without_cells_are_refused(self):
        for name, more, pattern in (
                ("other", {"method": "h2o"}, "is of h2o; cells are those of balancekv"),
                ("bare", {"method": "balancekv"}, "attribute params must have t, T and side"),
                ("odd", {"method": "balancekv", "weight_denominator": [3.0], "weight_numerator": [0.0],
                         "root": {"params": '{"t": 4, "T": 1, "side": "smaller"}'}},
                 "a weight that is not a power of two")):
            with self.subTest(name):
                self.write(f"{name}.h5", token=[0], **more)
                code, said = self.drawn("occupancy", self.folder / f"{name}.h5")
                self.assertEqual(code, 2)
                self.assertIn(pattern, said)


class Real(Made):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.run_folder = Path(made.name)
        sweep = {"schema_version": 1, "name": "small", "dumps": ["tiny.h5"], "seeds": [0],
                 "replay": {"prompt_tokens": P}, "output": {"caches": True}, "algorithms": METHODS}
        (cls.run_folder / "sweep.json").write_text(json.dumps(sweep))
        for command in (["synth", "gaussian", "--tokens", str(N), "--d", "8", "--layers", "2",
                         "--kv-heads", "2", "--out", "tiny.h5"],
                        ["run", "--config", "sweep.json", "--out", "out", "--quiet"]):
            done = subprocess.run([PROGRAM, *command], capture_output=True, text=True, check=False,
                                  cwd=cls.run_folder)
            assert done.returncode == 0, done.stderr
        cls.caches = cls.run_folder / "out/caches"

    def test_tokens_and_rows_are_those_that_the_program_counts(self):
        for file in Caches(self.caches).files:
            done = subprocess.run([PROGRAM, "inspect", file.path, "--json"], capture_output=True,
                                  text=True, check=True)
            heads = json.loads(done.stdout)["heads"]
            self.assertEqual(len(heads), 4)
            for theirs in heads:
                mine = file.heads[Place(theirs["sequence"], theirs["layer"], theirs["kv_head"])]
                stored = mine.stored
                self.assertEqual((len(stored.token), mine.prompt, mine.tokens),
                                 (theirs["rows"], theirs["prompt_tokens"], theirs["tokens"]))
                self.assertEqual(len(set(stored.token[stored.token >= 0])), theirs["distinct_tokens"])
                both = numpy.array([stored.numerator, stored.denominator])
                self.assertEqual([both.min(), both.max()], theirs["weights"])

    def test_kept_sets_of_known_methods(self):
        self.assertEqual(self.drawn("kept", self.caches, "--layer", 1, "--head", 1), (0, ""))
        caches = Caches(self.caches)
        heads, tokens = caches.heads(Place("0", 1, 1))
        at = numpy.arange(P, tokens)
        shown = {method: kept.raster(head.rows(tokens), at, tokens, 1)
                 for method, head in zip(caches.methods, heads)}
        position = numpy.arange(tokens)[None, :]
        band = (position <= at[:, None]) & (position > at[:, None] - 16)
        numpy.testing.assert_array_equal(shown["window"], band)
        self.assertTrue(set((shown["h2o"] > 0).sum(axis=1)) <= {16, 17})
        # Each sampled token stands for others: weights add up to the exact cache's tokens.
        numpy.testing.assert_allclose(shown["uniform"].sum(axis=1), at + 1, rtol=0.3)

    def test_cells_are_as_large_as_the_program_says(self):
        sweep = {"schema_version": 1, "name": "cells", "dumps": ["tiny.h5"], "seeds": [0],
                 "replay": {"prompt_tokens": 0}, "output": {"caches": True}, "algorithms": [
                     {"algorithm": "balancekv", "params": {"t": 8, "T": [2, "auto"], "side": ["smaller", "exact_half"]}}]}
        (self.run_folder / "cells.json").write_text(json.dumps(sweep))
        subprocess.run([PROGRAM, "run", "--config", "cells.json", "--out", "cells", "--quiet"], check=True,
                       capture_output=True, cwd=self.run_folder)
        said = {}
        for record in json.loads((self.run_folder / "cells/results.json").read_text())["cells"]:
            key = record["key"]
            said[str(key["params"]["T"]), key["params"]["side"], key["layer"], key["kv_head"]] = record["derived"]
        caches = Caches(self.run_folder / "cells/caches")
        seen = 0
        for setting in occupancy.settings_of(caches):
            for place, head in setting.file.heads.items():
                self.assertEqual(head.prompt, 0)
                counts = occupancy.held_by(setting, place, N)
                derived = said[setting.T, setting.side, place.layer, place.kv_head]
                for tree, most in ((tree, derived[f"{tree}_cells"]) for tree in occupancy.TREES):
                    largest = counts[tree].max(axis=1).tolist()
                    self.assertEqual(largest + [0] * (len(most) - len(largest)), most)
                    seen += 1
        self.assertEqual(seen, 2 * 2 * 4 * 2)
        out = self.folder / "cells"
        self.assertEqual(called("occupancy", self.run_folder / "cells/caches", "-o", out), (0, ""))
        table = pandas.read_csv(out / "occupancy.csv")
        self.assertEqual(set(table["panel"]), {"trace", "largest"})
        self.assertIn("seed 0", (out / "occupancy.txt").read_text())

    def test_both_are_drawn_with_table_and_caption(self):
        for figure in ("kept", "survival"):
            out = self.folder / figure
            self.assertEqual(called(figure, *sorted(self.caches.glob("*.h5")), "-o", out), (0, ""))
            table = pandas.read_csv(out / f"{figure}.csv")
            self.assertEqual(set(table["algorithm"].dropna()), {"window", "h2o", "uniform", "subgen"})
            caption = (out / f"{figure}.txt").read_text()
            self.assertIn("seed 0", caption)
        self.assertIn("Student's t over 2 layers", caption)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
