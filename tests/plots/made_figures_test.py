"""Numbers that figures compute themselves are compared with worked cases. Usage:
made_figures_test.py KVBENCH

Exits 77 where a Python package is missing.
"""

import itertools
import json
import math
import subprocess
import sys
import tempfile
import unittest
import warnings
from argparse import Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
try:
    import h5py
    import numpy
    import pandas
    from kvplot import Results, ResultsError, anchors, calibration, field_modes, looks, paging, papers, pieces, prefill, style
    from kvplot.dump import Dump
    from kvplot.figure import facts
    from kvplot.figures import (balancekv_layers, bytes_per_token, clusterability, displacement, ecdf, failure_rate,
                                field, forest, layer_impact, position, rotation, score_bars,
                                settings, subgen_attribution, tsne)
    from kvplot.results import mean_over_units
    from kvplot.statistics import standard_error
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from made_results import cell, document, traffic

PROGRAM = None


def kvbench(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Made(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def results(self, cells):
        path = self.folder / "results.json"
        path.write_text(json.dumps(document(cells)))
        return Results(path)

    def test_forest_pairs_units_at_equal_memory(self):
        cells = []
        for head, scale in ((0, 1.0), (1, 3.0)):
            # Uniform's error is scale / memory, a straight line in logarithms.
            cells += [cell("uniform", {"T": level}, scale / memory, memory, kv_head=head, seed=0)
                      for level, memory in ((1, 0.5), (2, 0.125))]
            cells.append(cell("h2o", {"budget": 1}, 0.5 * scale / 0.25, 0.25, kv_head=head))
            cells.append(cell("h2o", {"budget": 2}, 1.0, 0.6, kv_head=head))
        table = forest.ratios(self.results(cells))
        self.assertEqual(set(table["point"]), {'{"budget": 1}'})
        numpy.testing.assert_allclose(table["log2_ratio"], [-1.0, -1.0], atol=1e-12)
        interval, = forest.intervals(table).itertuples()
        self.assertAlmostEqual(interval.mean, -1.0)
        self.assertEqual(interval.units, 2)

    def test_a_reference_without_error_pairs_with_none_in_silence(self):
        cells = [cell("exact", {}, 0.0, 1.0), cell("h2o", {"budget": 1}, 0.5, 1.0)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            results = self.results(cells)
            self.assertTrue(forest.ratios(results, against="exact").empty)
        self.assertIn("exact has no error above rounding", forest.nothing_to_pair(results, "exact"))
        self.assertIn("in the range of h2o's", forest.nothing_to_pair(results, "h2o"))

    def test_settings_are_paired_by_unit_with_the_nearest_in_memory(self):
        cells = []
        for head, scale in ((0, 1.0), (1, 9.0)):
            cells += [cell("h2o", {"budget": budget}, scale * error, memory, kv_head=head)
                      for budget, error, memory in ((1, 0.2, 0.3), (2, 0.1, 0.6))]
            cells += [cell("window", {"budget": budget}, scale * error, memory, kv_head=head)
                      for budget, error, memory in ((1, 0.1, 0.35), (2, 0.4, 0.9))]
        results = self.results(cells)
        table = pandas.DataFrame([
            {"algorithm": name, "label": name, "point": json.dumps({"budget": budget}), "memory": memory,
             "setting": f"{name}: {budget}"}
            for name, budget, memory in (("h2o", 1, 0.3), ("h2o", 2, 0.6), ("window", 1, 0.35), ("window", 2, 0.9))])
        found = settings.paired(results, table, "h2o")[0].set_index("setting")
        self.assertEqual(list(found["against"]), ["h2o: 1", "h2o: 2"])
        self.assertEqual(list(found.index), ["window: 1", "window: 2"])
        numpy.testing.assert_allclose(found["ratio"], [0.5, 4.0])  # whatever the units' scales
        self.assertEqual(list(found["better"]), [2, 0])
        numpy.testing.assert_allclose(found["memory_ratio"], [0.35 / 0.3, 1.5])
        self.assertEqual(list(settings.paired(results, table, "window: 2")[0]["against"]), ["window: 2"] * 3)
        with self.assertRaisesRegex(ResultsError, "no setting is called 'windw'; did you mean window"):
            settings.paired(results, table, "windw")

    def test_a_ranking_says_in_how_many_units_each_setting_is_better(self):
        drawn = self.ranked({"h2o": 0.5, "window": 0.5, "kcenter": 0.509})
        beside = drawn.plot.axes[0]
        self.assertEqual({(round(text.xy[1]), text.get_text()) for text in beside.texts}, {(1, "1/2"), (2, "0/2")})
        self.assertEqual(beside.get_xlabel(), "error / error of h2o")
        numpy.testing.assert_allclose(drawn.table["ratio"], [numpy.nan, 1.0, 3 ** 0.5])
        self.assertIn(" Memories of the two are within 2 %. ", drawn.caption)

    def ranked(self, memory):
        cells = []
        for label, errors in (("h2o", (0.2, 0.4)), ("window", (0.1, 0.8)), ("kcenter", (0.4, 0.6))):
            cells += [cell(label, {"budget": 1}, error, memory[label], kv_head=head) for head, error in enumerate(errors)]
        drawn = settings.draw(Namespace(results=self.results(cells), against="h2o"))
        self.addCleanup(style.pyplot.close, drawn.plot)
        return drawn

    def test_a_ranking_names_what_is_not_compared_at_equal_memory(self):
        drawn = self.ranked({"h2o": 0.5, "window": 1.0, "kcenter": 0.48})
        self.assertIn(" Not at equal memory: window (2 times), kcenter (0.96 times). ", drawn.caption)
        self.assertNotIn("within 2 %", drawn.caption)

    def test_an_interval_of_an_error_stays_above_0(self):
        """0.1 and 0.8 of two heads: the mean 0.45, its standard error 0.35, t with one degree of freedom 12.7062."""
        table = self.ranked({"h2o": 0.5, "window": 0.5, "kcenter": 0.5}).table.set_index("label")
        factor = math.exp(12.706204736 * 0.35 / 0.45)
        self.assertAlmostEqual(table["error"]["window"], 0.45)
        numpy.testing.assert_allclose([table["low"]["window"], table["high"]["window"]], [0.45 / factor, 0.45 * factor])

    def of_tokens(self, exact=1.0):
        """Two methods that read a half and all of the exact bytes, of two numbers of tokens."""
        cells = []
        for tokens in (512, 1024):
            for label, part in (("exact", exact), ("keyformer", 0.5), ("h2o", 1.0)):
                made = cell(label, {"budget": 0.5}, 0.1, part)
                made["key"]["tokens"] = tokens
                made["id"] += str(tokens)
                read = 256.0 * part * tokens
                made["traffic"] = {"bytes_read": {"mean": read, "max": read}, "fraction": part}
                cells.append(made)
        path = self.folder / "results.json"
        path.write_text(json.dumps({**document(cells), "config": {"select": {"tokens": [512, 1024]}}}))
        return Results(path)

    def test_bytes_per_token_are_those_read_and_a_steps_are_weights_and_cache(self):
        table = bytes_per_token.of_caches(self.of_tokens())
        half = table[table["label"] == "keyformer"].sort_values("params.tokens")
        self.assertEqual((list(half["KiB"]), list(half["fewer"])), ([64.0, 128.0], [2.0, 2.0]))
        steps = bytes_per_token.of_steps(table).set_index(["label", "tokens"])
        # 13.3e9 bytes of weights; 1536.5 tokens of 2 x 32 layers x 4096 x 2 bytes on average.
        full, kept = 13.3e9 + 1536.5 * 524288, 13.3e9 + 768.25 * 524288
        self.assertAlmostEqual(steps["bytes"]["keyformer", 2048], full / kept, places=12)
        self.assertAlmostEqual(steps["bytes"]["h2o", 8192], 1.0, places=12)
        self.assertAlmostEqual(steps["speed printed"]["keyformer", 8192], 17.0 / 8.3, places=12)
        drawn = bytes_per_token.draw(Namespace(results=self.of_tokens()))
        self.assertIn("2.00 times; its Fig. 10 prints 2.9", drawn.caption)
        style.pyplot.close(drawn.plot)
        results = self.of_tokens()
        results.keep_labels(["h2o"])
        with self.assertRaisesRegex(ResultsError, "no finished cell labelled exact"):
            bytes_per_token.of_caches(results)

    def test_field_compares_at_mean_bytes_of_what_is_held_or_read(self):
        def made(label, budget, error, held, read=None, **unit):
            out = cell(label.split(" | ")[0], {"budget": budget}, error, held, **unit)
            return {**out, "label": label, "traffic": traffic(held if read is None else read)}
        cells = []
        for head, scale in ((0, 1.0), (1, 3.0)):
            unit = {"kv_head": head}
            # Uniform's error is scale / memory; what it reads is what it holds.
            cells += [made("uniform", m, scale / m, m, **unit) for m in (0.05, 0.8)]
            # 0.1 and 0.3 of the memory: 0.2 on average, where uniform has 5 scale.
            cells.append(made("adakv", 1, 2.5 * scale, 0.1 + 0.2 * head, **unit))
            # The nearer of two settings, at its own bytes; another is too far from all.
            cells += [made("quest", b, scale / t * 2, 1.06, t, **unit)
                      for b, t in ((1, 0.33), (2, 0.4), (3, 0.6))]
            cells.append(made("kivi | K kivi V kivi", 1, scale / 0.1, 0.1, **unit))
        cells.append(made("cake", 1, 1.0, 0.2, kv_head=0))  # in one unit alone
        cells.append(made("adakv", 1, 1.0, 0.2, kv_head=2))  # where uniform was skipped
        table = field.compared(self.results(cells))
        found = table.groupby(["kind", "method", "at", "point"])["ratio"].agg(list)
        self.assertEqual(list(found.index), [
            ("bits", "kivi", 0.1, '{"budget": 1}'), ("holds", "adakv", 0.2, '{"budget": 1}'),
            ("reads", "quest", 0.35, '{"budget": 1}')])
        numpy.testing.assert_allclose(list(found), [[1, 1], [0.5, 0.5], [2, 2]], rtol=1e-12)
        means = field.means(table).set_index("method")
        self.assertEqual(list(means.index), ["adakv", "kivi", "quest"])
        self.assertEqual(list(means["better"]), [2, 0, 0])
        self.assertAlmostEqual(means["ratio"]["quest"], 2.0)

    def test_a_family_is_one_vote_and_orders_of_modes_are_compared(self):
        """In texts 0 and 1 SnapKV has 1/2 and 4 of uniform's error, TOVA 1/4: sqrt 2, 1/4, and as a family sqrt(1/8)
        and 1, 2 ** -0.75. In the other mode SnapKV has 1/4 and TOVA 4. Spectral errors are twice as large for methods."""
        def made(label, budget, error, memory, sequence, spectral=1.0):
            out = cell(label.split(",")[0], {"budget": budget}, error, memory)
            out["key"]["sequence"] = sequence
            out["errors"] |= {"relative_frobenius_error": error, "relative_spectral_error": spectral * error}
            return {**out, "id": out["id"] + sequence, "label": label, "traffic": traffic(memory)}
        for mode, snapkv, tova in (("published", (0.5, 4.0), 0.25), ("equalised", (0.25, 0.25), 4.0)):
            cells = []
            for sequence, ratio in zip("01", snapkv):
                cells += [made("uniform", m, 1 / m, m, sequence) for m in (0.1, 0.4)]
                cells += [made(label, 1, own / 0.2, 0.2, sequence, 2.0) for label, own in (
                    ("snapkv", ratio), ("tova", tova), ("tova, own rule", 0.01))]
            path = self.folder / f"runs/{mode}/results.json"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(document(cells)))
        # On the other model SnapKV has the other side of 1 in both modes, with an interval that excludes 1.
        ends = {"published": (0.5, 0.3), "equalised": (2.0, 0.5)}
        other = pandas.DataFrame([
            {"mode": mode, "at": 0.2, "method": name} | {f"{metric}{end}": value * (0.8 if end == "_low" else 1.2 if end else 1)
                                                         for metric in field_modes.METRICS for end in ("", "_low", "_high")}
            for mode, values in ends.items() for name, value in zip(("snapkv", "tova"), values)])
        other.to_csv(self.folder / "other.csv", index=False)
        field_modes.run(Namespace(runs=self.folder / "runs", out=self.folder, against=self.folder / "other.csv"))
        models = pandas.read_csv(self.folder / "models.csv", keep_default_na=False)
        found = models[models["metric"] == "frobenius"][["mode", "at", "rho", "methods", "names", "opposed"]]
        self.assertEqual([tuple(row) for row in found.to_numpy()], [
            ("published", 0.2, 1.0, 2, "snapkv", "none"), ("equalised", 0.2, -1.0, 2, "snapkv tova", "snapkv tova")])
        methods, families, orders = (pandas.read_csv(self.folder / f"{name}.csv") for name in
                                     ("field", "families", "orders"))
        self.assertEqual(list(methods["mode"]), ["published"] * 3 + ["equalised"] * 3)
        self.assertEqual(list(methods["method"]), ["tova, own rule", "tova", "snapkv", "tova, own rule", "snapkv", "tova"])
        numpy.testing.assert_allclose(methods["frobenius"], [0.01, 0.25, 2 ** 0.5, 0.01, 0.25, 4], rtol=1e-9)
        numpy.testing.assert_allclose(methods["spectral"], 2 * methods["frobenius"], rtol=1e-9)
        self.assertEqual(list(methods["better"]), [2, 2, 1, 2, 2, 0])
        self.assertEqual(set(methods["holds"]), {0})  # two texts: none can be left out
        # 1.5 ln 2 either side of the mean is the standard error, t with one degree of freedom 12.7062.
        self.assertAlmostEqual(methods["frobenius_high"][2] / 2 ** (0.5 + 1.5 * 12.706204736), 1.0, places=6)
        numpy.testing.assert_allclose(families["frobenius"], [2 ** -0.75, 1.0], rtol=1e-9)
        self.assertEqual(list(families["methods"]), [2, 2])
        layers = pandas.read_csv(self.folder / "layers.csv").set_index(["mode", "method", "layer"])
        self.assertAlmostEqual(layers.loc["published", "snapkv", 0]["frobenius"], 2 ** 0.5)
        self.assertEqual(layers.loc["equalised", "tova", 0]["units"], 2)
        turn, = orders[(orders["choice"] == "mode") & (orders["metric"] == "frobenius")].itertuples()
        self.assertEqual((turn.methods, turn.turned, turn.names), (3, 2, "tova snapkv"))
        self.assertAlmostEqual(turn.rho, 0.5)
        (self.folder / "runs/equalised/results.json").write_text(json.dumps(document(cells[:5])))
        with self.assertRaisesRegex(ResultsError, "published and equalised have other units"):
            field_modes.run(Namespace(runs=self.folder / "runs", out=self.folder, against=None))

    def test_paging_pairs_variants_with_the_free_choice_of_their_parameters(self):
        """Pages have 2 and 8 times the error in texts 0 and 1, pages in a layer half of it: geometric means 4 and 1/2.
        Another window has another free choice, and is not paired."""
        cells = []
        for sequence, ratio in zip("01", (2.0, 8.0)):
            for more, error in (({}, 0.1), ({"pages": 16}, 0.1 * ratio), ({"pages": 16, "same_in": "layer"}, 0.05),
                                ({"window": 8, "pages": 16}, 0.7)):
                out = cell("snapkv", {"budget": 352, "window": 32} | more, error, 0.2)
                out["key"]["sequence"] = sequence
                out["errors"] |= {"relative_frobenius_error": error, "relative_spectral_error": error ** 2}
                cells.append({**out, "id": out["id"] + sequence})
        self.results(cells)
        made, of_layers = paging.run(Namespace(results=[self.folder / "results.json"], out=self.folder))
        table = pandas.read_csv(made)
        self.assertEqual(list(pandas.read_csv(of_layers)["layer"]), [0, 0])
        self.assertNotIn("later", table)
        self.assertEqual([tuple(row) for row in table[["method", "budget", "pages", "same_in"]].to_numpy()],
                         [("snapkv", 352, 16, "head"), ("snapkv", 352, 16, "layer")])
        numpy.testing.assert_allclose(table["frobenius"], [4.0, 0.5], rtol=1e-9)
        numpy.testing.assert_allclose(table["spectral"], [16.0, 0.25], rtol=1e-9)
        self.assertEqual(list(table["rise"]), [2, 0])
        numpy.testing.assert_allclose(table["bytes"], 1.0, rtol=1e-9)
        # ln 2 either side of the mean is the standard error, t with one degree of freedom 12.7062.
        self.assertAlmostEqual(table["frobenius_high"][0] / (4 * 2 ** 12.706204736), 1.0, places=6)
        self.assertEqual(list(table["holds"]), [0, 0])
        # Pages have twice the error, and half of it in layer 4 of text 2: both intervals contain 1. Pages in a layer have
        # half of it in all three texts, whichever is left out.
        more = []
        for sequence in "012":
            for layer in (0, 4):
                for params, error in (({}, 0.1), ({"pages": 16}, 0.05 if (layer, sequence) == (4, "2") else 0.2),
                                      ({"pages": 16, "same_in": "layer"}, 0.05)):
                    out = cell("snapkv", {"budget": 352} | params, error, 0.2)
                    out["key"] |= {"sequence": sequence, "layer": layer}
                    out["errors"] |= {"relative_frobenius_error": error, "relative_spectral_error": error}
                    more.append({**out, "id": f"{out['id']}{sequence}{layer}"})
        self.results(more)
        table = pandas.read_csv(paging.run(Namespace(results=[self.folder / "results.json"], out=self.folder))[0])
        numpy.testing.assert_allclose(table["later"], [2 ** (1 / 3), 0.5], rtol=1e-9)
        self.assertEqual([list(table[name]) for name in ("holds", "later_holds")], [[0, 3], [0, 3]])
        self.results(cells[1:4])
        with self.assertRaisesRegex(ResultsError, "no cell with pages"):
            paging.run(Namespace(results=[self.folder / "results.json"], out=self.folder))

    def test_calibration_pairs_each_kind_with_the_prompt_of_its_text(self):
        """One other text has 2 and 8 times the prompt's error in texts 0 to 2, whose geometric mean is 4; all others have
        half of it in texts 0 and 1 and twice in text 2. SnapKV has twice the prompt's error in all."""
        cells, files = [], []
        for kind, name in (("one", "a"), ("one", "b"), ("others", "c")):
            files.append({"path": f"x/{kind}/{name}.cal.h5", "fingerprint": name, "method": "qfilters"})
        for sequence, others in zip("012", (0.5, 0.5, 2.0)):
            for file, ratio in ((None, 1.0), ("a", 2.0), ("b", 8.0), ("c", others), ("snapkv", 2.0)):
                named = {"calibration": file} if file in ("a", "b", "c") else {}
                label = "snapkv" if file == "snapkv" else "qfilters"
                out = cell(label, {"budget": {"memory": 0.2}} | named, 0.1 * ratio, 0.2)
                out["key"]["sequence"] = sequence
                out["errors"]["relative_spectral_error"] = (0.1 * ratio) ** 2
                cells.append({**out, "id": out["id"] + sequence, "traffic": traffic(0.2)})
        path = self.folder / "results.json"
        path.write_text(json.dumps(document(cells) | {"calibrations": files}))
        made, layers, texts, ranks = map(pandas.read_csv, calibration.run(Namespace(results=[path], out=self.folder)))
        self.assertEqual([tuple(row) for row in made[["method", "at", "kind", "groups"]].to_numpy()],
                         [("qfilters", 0.2, "one", 3), ("qfilters", 0.2, "others", 3)])
        numpy.testing.assert_allclose(made["frobenius"], [4.0, 0.5 ** (1 / 3)], rtol=1e-9)
        numpy.testing.assert_allclose(made["spectral"], [16.0, 0.25 ** (1 / 3)], rtol=1e-9)
        self.assertEqual((list(made["rise"]), list(made["holds"])), ([3, 1], [3, 0]))
        # Logarithms are -1, -1 and 1 in units of ln 2: standard error 2/3, and Student's t of two degrees 4.302653.
        self.assertAlmostEqual(numpy.log2(made["frobenius_high"][1]), (-1 + 2 * 4.302653) / 3, places=5)
        numpy.testing.assert_allclose(layers["frobenius"], made["frobenius"], rtol=1e-9)
        self.assertEqual(list(texts[texts["sequence"] == 1]["source"]), ["a", "b"])
        numpy.testing.assert_allclose(texts[texts["source"] == "b"]["frobenius"], 8.0, rtol=1e-9)
        self.assertEqual(list(ranks["kind"]), ["one", "others", "prompt"])
        numpy.testing.assert_allclose(ranks["frobenius"], [2.0, 0.5 ** (1 / 3) / 2, 0.5], rtol=1e-9)
        self.assertEqual(list(ranks["holds"]), [3, 0, 3])
        files[0]["path"] = "x/a.cal.h5"
        path.write_text(json.dumps(document(cells) | {"calibrations": files}))
        with self.assertRaisesRegex(ResultsError, "folders one and others"):
            calibration.run(Namespace(results=[path], out=self.folder))
        path.write_text(json.dumps(document(cells[-1:])))
        with self.assertRaisesRegex(ResultsError, "nothing|no cell"):
            calibration.run(Namespace(results=[path], out=self.folder))

    def test_anchors_pair_each_setting_with_the_own_best_tokens_of_its_layer(self):
        """With anchors every 4 layers the error is 2 and 8 times that of the own best tokens in layers 6 and 7 of three
        texts, SnapKV's 8 times it; layer 7 is an anchor. Layer 5, the first, which reads all, and an own error of 0 to
        rounding do not count."""
        cells = []
        for sequence in "012":
            for layer, best, ratio in ((5, 0.1, 1.0), (6, 0.1, 2.0), (7, 0.01, 8.0), (8, 1e-15, 4.0)):
                for method, params, error in (
                        ("oracle_topk", {"budget": 0.1}, best), ("snapkv", {"budget": 0.1}, 8 * best),
                        ("sparq", {"k": 0.1}, 2 * best),
                        ("kascade", {"budget": 0.1, "every": 4, "match": "same"}, ratio * best),
                        ("kascade", {"budget": 0.1, "every": 100, "match": "closest"}, 4 * best),
                        *(("kascade", {"budget": 0.1, "every": 100, "first": first}, 2 * best) for first in (1, 2) if layer == 7)):
                    out = cell(method, params, error, 1.0, layer=layer)
                    out["key"]["sequence"] = sequence
                    if method == "kascade":
                        anchor = layer if (layer, params["every"]) == (7, 4) else 5 + int("first" in params)
                        out["label"] = "one anchor" if "first" in params else method
                        out["derived"] = {"anchor": anchor, "overlap": 0.5 + 0.1 * int(sequence)}
                    cells.append({**out, "id": out["id"] + sequence, "traffic": traffic(0.1)})
        self.results(cells)
        path = self.folder / "results.json"
        table, over, pairs = map(pandas.read_csv, anchors.run(Namespace(results=[path], out=self.folder)))
        table = table.set_index(["method", "every"])
        numpy.testing.assert_allclose(table.loc[("kascade", 4)]["frobenius"], 4.0, rtol=1e-9)
        numpy.testing.assert_allclose(table.loc[("kascade", 4)]["overlap"], 0.6, rtol=1e-9)
        self.assertEqual(list(table.loc[("kascade", 4)][["rise", "holds", "groups", "units"]]), [6, 3, 3, 6])
        # Means 0.5, 0.6 and 0.7: standard error 0.1 / sqrt 3, and Student's t of two degrees 4.302653.
        factor = numpy.exp(4.302653 * 0.1 / numpy.sqrt(3) / 0.6)
        self.assertAlmostEqual(table.loc[("kascade", 4)]["overlap_high"], 0.6 * factor, places=6)
        numpy.testing.assert_allclose(table.loc[("snapkv", 0)]["frobenius"], 8.0, rtol=1e-9)
        numpy.testing.assert_allclose(over[over["every"] == 4]["frobenius"], [0.5, 2.0], rtol=1e-9)
        numpy.testing.assert_allclose(over[over["every"] == 4]["followers"], [0.25, 1.0], rtol=1e-9)
        self.assertEqual([tuple(row) for row in pairs[["anchor", "layer"]].to_numpy()], [(5, 6), (5, 7), (6, 7)])
        self.assertEqual(list(pairs["units"]), [3, 3, 3])  # two settings have layer 6 as the anchor of layer 7
        numpy.testing.assert_allclose(pairs[["frobenius", "sparq", "snapkv"]], [[4, 2, 0.5], [4, 2, 0.5], [2, 1, 0.25]], rtol=1e-9)
        self.assertEqual(list(pairs["snapkv_holds"]), [3, 3, 3])
        self.results([each for each in cells if each["key"]["algorithm"] != "oracle_topk"])
        with self.assertRaisesRegex(ResultsError, "oracle_topk"):
            anchors.run(Namespace(results=[path], out=self.folder))

    def test_prefill_pairs_rules_at_equal_fractions_of_the_pairs(self):
        """In a prompt of 4 tokens in blocks of 2 there are 10 pairs. Two of the three blocks are those of the diagonal,
        with 6 pairs; a window of 2 tokens reads 7. Errors are a exp(-3 read): a is 1 with xattention, 3 with a window, 6 with
        minference, whose blocks are others, and 2, 4 and 8 with flexprefill in three texts. They are half as high in a second
        head. One setting of xattention reads all."""
        settings = [("xattention", {"block": 2, "threshold": 0.2}, 0.6, 2 / 3), ("xattention", {"block": 2, "threshold": 0.6}, 0.8, 2.5 / 3),
                    ("xattention", {"block": 2, "threshold": 0.9}, 1.0, 1.0), ("flexprefill", {"block": 2, "coverage": 0.2}, 0.6, 2 / 3),
                    ("flexprefill", {"block": 2, "coverage": 0.6}, 0.8, 2.5 / 3), ("streaming_llm", {"budget": 1}, 0.4, None),
                    ("streaming_llm", {"budget": 2}, 0.7, None), ("streaming_llm", {"budget": 3}, 0.9, None),
                    ("minference", {"block": 1, "slash": 1}, 0.5, None), ("minference", {"block": 1, "slash": 2}, 0.7, None)]
        cells = []
        for sequence, head, (method, params, read, blocks) in itertools.product("012", (0, 1), settings):
            a = {"xattention": 1.0, "flexprefill": 2.0 ** (1 + int(sequence)), "streaming_llm": 3.0, "minference": 6.0}[method]
            error = a / (1 + head) * math.exp(-3 * read) if read < 1 else 1e-17
            out = cell(method, params, error, 1.0, kv_head=head)
            out["key"] |= {"sequence": sequence, "prompt_tokens": 4}
            out["errors"]["relative_spectral_error"] = out["errors"]["relative_frobenius_error"]
            cells.append({**out, "id": out["id"] + sequence, "derived": {"read_blocks": blocks} if blocks else {"read_pairs": read} if method == "minference" else {}})
        self.results(cells)
        path = self.folder / "results.json"
        table, layers, settings = map(pandas.read_csv, prefill.run(Namespace(results=[path], out=self.folder)))
        self.assertEqual(set(table["at"]), {0.6})
        table = table.set_index(["equal", "method", "other"])
        for equal, units in (("head", 6), ("text", 3)):
            row = table.loc[equal, "flexprefill", "xattention"]
            self.assertEqual(list(row[["rise", "holds", "groups", "units"]]), [units, 0, 3, units])
            for name in ("frobenius", "spectral", "mean"):
                self.assertAlmostEqual(row[name], 4.0)
            # The binary logarithms 1, 2 and 3: standard error 1 / sqrt 3, and Student's t of two degrees 4.302653.
            self.assertAlmostEqual(numpy.log2(row["frobenius_low"]), 2 - 4.302653 / numpy.sqrt(3), places=5)
            row = table.loc[equal, "streaming_llm", "xattention"]
            self.assertEqual((round(row["frobenius"], 9), row["holds"]), (3.0, 3))
            for method, other, ratio in (("streaming_llm", "flexprefill", 0.75), ("minference", "xattention", 6.0),
                                         ("minference", "flexprefill", 1.5), ("streaming_llm", "minference", 0.5)):
                self.assertAlmostEqual(table.loc[equal, method, other]["frobenius"], ratio)
        self.assertAlmostEqual(table.loc["head", "flexprefill", "xattention"]["error"], 14 / 3 * 0.75 * math.exp(-1.8))
        self.assertEqual(list(layers["layer"].unique()), [0])
        settings = settings.set_index(["method", "setting"])
        numpy.testing.assert_allclose(settings.loc["xattention"]["read"], [0.6, 0.8, 1.0])
        numpy.testing.assert_allclose(settings.loc["streaming_llm"]["read"], [0.4, 0.7, 0.9])
        numpy.testing.assert_allclose(settings.loc["minference"]["read"], [0.5, 0.7])
        numpy.testing.assert_allclose(settings.loc["flexprefill"]["frobenius"][:2], 4.0)
        # A window of 1 reads less than any mask, one of 3 more than any that has an error.
        numpy.testing.assert_allclose(settings.loc["streaming_llm"]["frobenius"], [numpy.nan, 3.0, numpy.nan])
        self.results([each for each in cells if each["label"] == "xattention"])
        with self.assertRaisesRegex(ResultsError, "to pair"):
            prefill.run(Namespace(results=[path], out=self.folder))

    def loop(self, pieces, kl, error=None, memory=0.2):
        """A loop.json of KL by method and text; None: skipped. Errors are 0.1 KL, those of a replay `error` by method."""
        records = [{"sequence": "0", "label": "exact", "params": {}, "status": "ok"}]
        for (method, text), value in kl.items():
            own = {"sequence": text, "label": method, "params": {"budget": {"memory": memory}}, "status": "skipped"}
            if value is not None:
                errors = {"errors": error[method], "errors_live": value / 10, "errors_dense": value / 10}
                own |= {"status": "ok", "kl": {"mean": value}, "perplexity": {"ratio": 2 * value}, "memory": {
                    "fraction": 0.2}, "same_top1": {"mean": 1 - value / 10}}
                own |= {name: {"relative_frobenius_error": each} for name, each in errors.items()}
                own |= {"pieces": {"fraction": 0.6}} if pieces else {}
            records.append(own)
        path = self.folder / f"loop-{pieces}-{memory}.json"
        path.write_text(json.dumps({"kind": "kvbench.closed_loop", "schema_version": "1.3.0", "prompt_pieces": pieces, "model": "m",
                                    "decisions": "live", "texts": [], "records": records}))
        return path

    def test_pieces_pair_each_text_with_its_prompt_read_whole(self):
        """Read whole, KL is 0.5, 1 and 4. In pieces it is 1.5 times as much with streaming_llm, 2, 4 and 8 times with
        SnapKV and an eighth with knorm, which a fourth text lacks. The replay ranks as KL read whole does."""
        whole, rises = {"snapkv": 0.5, "streaming_llm": 1.0, "knorm": 4.0}, {"snapkv": (2, 4, 8), "streaming_llm": (
            1.5, 1.5, 1.5), "knorm": (0.125, 0.125, 0.125)}
        texts = [(method, text) for method in whole for text in "0123"]
        paths = [self.loop(None, {(method, text): whole[method] for method, text in texts}, whole),
                 self.loop(256, {(method, text): whole[method] * rises[method][int(text)] for method, text in texts
                                 if text != "3"} | {("snapkv", "3"): 9.0, ("knorm", "3"): None}, whole)]
        table, pairs, ranks, errors = map(pandas.read_csv, pieces.run(Namespace(loops=paths, out=self.folder)))
        table = table.set_index("method")
        for name in ("kl", "live", "dense", "perplexity"):
            numpy.testing.assert_allclose(table[name][["snapkv", "streaming_llm", "knorm"]], [4.0, 1.5, 0.125])
        # The binary logarithms 1, 2 and 3: standard error 1 / sqrt 3, and Student's t of two degrees 4.302653.
        self.assertAlmostEqual(numpy.log2(table["kl_low"]["snapkv"]), 2 - 4.302653 / numpy.sqrt(3), places=5)
        self.assertEqual(list(table["holds"][["snapkv", "streaming_llm", "knorm"]]), [0, 3, 3])
        self.assertAlmostEqual(table["same"]["knorm"], 0.35)
        numpy.testing.assert_allclose(table["more"][["snapkv", "knorm"]], [(0.5 + 1.5 + 3.5) / 3, -3.5])
        self.assertEqual(list(table["rank_whole"][list(whole)]), [1, 2, 3])
        self.assertEqual(list(table["rank_pieces"][list(whole)]), [3, 2, 1])
        self.assertEqual((set(table["texts"]), set(table["read"]), set(table["pieces"])), ({3}, {0.6}, {256}))
        pairs = pairs.set_index(["one", "other"])
        row = pairs.loc["snapkv", "streaming_llm"]
        numpy.testing.assert_allclose(row[["whole", "in_pieces"]].astype(float), [0.5, 4 / 3])
        self.assertEqual((row["whole_holds"], row["in_pieces_holds"], row["turns"]), (3, 0, False))
        self.assertEqual(list(pairs["turns"][[("streaming_llm", "knorm"), ("snapkv", "knorm")]]), [True, False])
        # From the highest the order in pieces is snapkv, streaming_llm, knorm; but in text 0 snapkv has 1 and
        # streaming_llm 1.5. So that text has a correlation of 0.5 with the two others, which have 1.
        row = ranks.iloc[0]
        numpy.testing.assert_allclose(row[["rho", "lowest", "rho_of_means"]].astype(float), [-2.5 / 3, -1.0, -1.0])
        numpy.testing.assert_allclose(row[["text_whole", "text_pieces", "less"]].astype(float), [1.0, 2 / 3, -5.5 / 3])
        # Without text 0 the mean over pairs is 1, else 0.5: pseudo-values 3 * 2 / 3 - 2 * (1, 0.5, 0.5) are 0, 1 and 1.
        self.assertAlmostEqual(row["text_pieces_low"], 2 / 3 - 4.302653 / 3, places=5)
        errors = errors.set_index("error")
        numpy.testing.assert_allclose(errors.loc["replay", ["whole", "in_pieces", "change"]].astype(float), [1, -2.5 / 3, -5.5 / 3])
        for name in ("live", "dense"):
            numpy.testing.assert_allclose(errors.loc[name, ["whole", "in_pieces", "change"]].astype(float), [1, 1, 0])
        with self.assertRaisesRegex(ResultsError, "both whole and in pieces"):
            pieces.run(Namespace(loops=paths[:1], out=self.folder))

    def test_pieces_keep_memories_apart(self):
        """At the larger memory there is a text less, and the order of the methods is another."""
        paths = []
        for memory, texts, whole in ((0.2, "0123", {"snapkv": 1.0, "knorm": 2.0}), (0.35, "012", {"snapkv": 9.0, "knorm": 1.0})):
            both = {(method, text): kl for method, kl in whole.items() for text in texts}
            read = {key: kl / 2 for key, kl in both.items()}
            paths += [self.loop(None, both, whole, memory), self.loop(256, read, whole, memory)]
        table, pairs, *_ = map(pandas.read_csv, pieces.run(Namespace(loops=paths, out=self.folder)))
        self.assertEqual(set(zip(table["memory"], table["texts"], table["holds"])), {(0.2, 4, 4), (0.35, 3, 3)})
        self.assertEqual(list(zip(pairs["memory"], pairs["one"], pairs["whole_holds"])), [(0.2, "snapkv", 4), (0.35, "knorm", 3)])

    def test_pieces_rank_the_methods_that_neither_lose_nor_gain(self):
        """Three methods whose KL is as often lower as higher keep their order; a fourth falls to an eighth of its KL,
        below them all."""
        whole = {"snapkv": 1.0, "tova": 2.0, "knorm": 4.0, "uniform": 6.0}
        both = {(method, text): kl for method, kl in whole.items() for text in "0123"}
        read = {(method, text): kl * (0.125 if method == "uniform" else 1.1 if text in "01" else 1 / 1.1)
                for (method, text), kl in both.items()}
        paths = [self.loop(None, both, whole), self.loop(256, read, whole)]
        _, _, ranks, errors = map(pandas.read_csv, pieces.run(Namespace(loops=paths, out=self.folder)))
        self.assertEqual(list(zip(ranks["of"], ranks["methods"])), [("all", 4), ("undecided", 3)])
        numpy.testing.assert_allclose(ranks["rho"], [-0.2, 1.0])
        replay = errors[errors["error"] == "replay"].set_index("of")
        numpy.testing.assert_allclose(replay["change"][["all", "undecided"]], [-1.2, 0.0], atol=1e-12)

    def test_at_memory_takes_the_nearest_setting_of_each_label(self):
        cells = [cell("h2o", {"budget": b}, 1 / b, b / 100) for b in (10, 30, 60)]
        cells += [cell("window", {"budget": 1}, 1.0, 0.9), cell("exact", {}, 1e-16, 0.35)]
        points = ecdf.at_memory(self.results(cells), 0.35)
        self.assertEqual(list(points["point"]), ['{"budget": 30}'])
        self.assertEqual(ecdf.left_out(self.results(cells), points, 0.35),
                         " Not drawn, no setting near memory 0.35: window."
                         " Not drawn, exact to rounding: exact.")

    def layer_records(self, **more):
        """Records of three layers: of h2o at two budgets, of exact without any error."""
        records = []
        for layer in (0, 3, 7):
            for budget, error in ((10, 0.4), (30, 0.2)):
                record = cell("h2o", {"budget": budget}, 1.0, budget / 100, layer=layer)
                record["errors"] = {name: {"mean": factor * error * (layer + 1)} for name, factor in
                                    (("relative_output_l2", 1.0), ("cancellation", 0.1))}
                records.append(record)
            record = cell("exact", {}, 1.0, 1.0, layer=layer)
            record["errors"] = {"relative_output_l2": {"mean": 1e-17}, "cancellation": {"mean": 0.5}}
            records.append(record)
        for record in records:
            del record["key"]["kv_head"]
            record.update(more)
        return records

    def test_layer_impact_takes_the_setting_nearest_in_memory_and_names_the_others(self):
        made = document([cell("h2o", {"budget": 10}, 0.5, 0.1)])
        made["layers"] = self.layer_records()
        path = self.folder / "results.json"
        path.write_text(json.dumps(made))
        results = Results(path)
        self.assertTrue(layer_impact.fits(results))
        drawn = layer_impact.draw(Namespace(results=results, memory=0.25))
        self.assertEqual(set(drawn.table["point"]), {'{"budget": 30}'})
        numpy.testing.assert_allclose(drawn.table["errors.relative_output_l2.mean"],
                                      [0.2, 0.8, 1.6])
        self.assertIn("Not drawn, memory farther away: h2o (1 of 2 settings). Not drawn, exact to rounding: exact.",
                      drawn.caption)
        self.assertEqual(len(drawn.plot.axes), 2)  # no residual norms
        style.pyplot.close(drawn.plot)
        made["layers"] = self.layer_records(status="failed", reason="because")
        path.write_text(json.dumps(made))
        self.assertFalse(layer_impact.fits(Results(path)))
        with self.assertRaisesRegex(ResultsError, "output projection"):
            layer_impact.draw(Namespace(results=Results(path), memory=0.25))

    def test_layer_impact_draws_what_the_program_wrote(self):
        kvbench("synth", "gaussian", "--tokens", 128, "--layers", 3, "--d", 8, "--hidden", 32,
                "--out", self.folder / "wo.h5")
        kvbench("run", "--dump", self.folder / "wo.h5", "--algorithm", "window", "--budget", "16,64",
                "--out", self.folder / "out", "--quiet")
        results = Results(self.folder / "out/results.json")
        drawn = layer_impact.draw(Namespace(results=results, memory=0.5))
        self.assertEqual(len(drawn.plot.axes), 3)
        summary = {line["layer"]: line["layers"]["errors"]["relative_output_l2.mean"]
                   for line in results.document["summary"]
                   if line["params"] == {"budget": 64} and line["layer"] is not None}
        for row in drawn.table.itertuples():
            index = drawn.table.columns.get_loc("errors.relative_output_l2.mean")
            self.assertAlmostEqual(row[index + 1], summary[row.layer]["mean"], places=14)
        style.pyplot.close(drawn.plot)

    def test_a_setting_whose_t_is_not_a_number_is_named(self):
        cells = [cell("balancekv", {"T": level}, 0.1, 0.5, seed=0) for level in (1, 2, "auto")]
        cells.append(cell("h2o", {"budget": 1}, 0.1, 0.5))
        drawn = balancekv_layers.draw(Namespace(results=self.results(cells)))
        self.assertEqual(len(drawn.table), 2)
        self.assertIn("Not drawn, T is not a number: balancekv (1 of 3 settings), h2o.", drawn.caption)
        style.pyplot.close(drawn.plot)

    def test_rms_runs_over_rows_heads_and_seeds(self):
        cells = []
        for seed, errors in ((0, [[3.0, 4.0]]), (1, [[0.0, 5.0]])):
            for slots in (1, 4):
                made = cell("subgen", {"s": slots, "t": 2, "numerator": "sampled",
                                       "normalizer": "exact"}, 1.0, 0.5, seed=seed)
                made["derived"] = {"predicted_rmse_numerator": 2.0 / slots ** 0.5,
                                   "predicted_rmse_normalizer": 0.0}
                made["rows"] = numpy.array(errors) / slots
                cells.append(made)
        with h5py.File(self.folder / "results.rows.h5", "w") as file:
            for made in cells:
                group = file.create_group(made["id"])
                group["numerator_error"] = made.pop("rows")
                group["rows"] = numpy.arange(2)
        table = subgen_attribution.rms(self.results(cells))
        self.assertEqual(set(table["side"]), {"numerator"})
        numpy.testing.assert_allclose(table["measured"], [12.5 ** 0.5, 12.5 ** 0.5 / 4])
        numpy.testing.assert_allclose(table["predicted"], [2.0, 1.0])
        # Mean squares of two seeds that are the same have no spread; 4.5 and 12.5 have a standard error of 4.
        numpy.testing.assert_allclose(table["standard_error"], [0.0, 0.0], atol=1e-12)
        self.assertAlmostEqual(self.spread(cells), 4 / (2 * 8.5 ** 0.5))

    def spread(self, cells):
        with h5py.File(self.folder / "results.rows.h5", "r+") as file:
            for made in cells:
                if made["key"]["params"]["s"] == 1 and made["key"]["seed"] == 0:
                    file[made["id"]]["numerator_error"][...] = [[0.0, 3.0]]
        return subgen_attribution.rms(self.results(cells))["standard_error"][0]

    def test_failures_are_counted_per_stream_with_exact_intervals(self):
        # Clopper and Pearson: 0 of n has the upper limit 1 - 0.025^(1/n).
        self.assertEqual(failure_rate.clopper_pearson(0, 10)[0], 0.0)
        self.assertAlmostEqual(failure_rate.clopper_pearson(0, 10)[1], 1 - 0.025 ** 0.1)
        low, high = failure_rate.clopper_pearson(5, 10)
        self.assertAlmostEqual(low, 0.18709, places=5)
        self.assertAlmostEqual(low + high, 1.0)
        cells = [cell("subgen", {"s": 4}, 1.0, 0.5, seed=seed, derived={"vacuous": False, "sublinear": True},
                      clusters={"final": 3}, errors={"epsilon_spectral": {"last": last}})
                 for seed, last in enumerate((0.1, 0.2, 0.3, 0.4))]
        table = failure_rate.rates(self.results(cells).ok, [0.05, 0.2, 0.5])
        self.assertEqual(list(table["failures"]), [4, 2, 0])
        self.assertEqual(set(table["seeds"]), {4})
        self.assertEqual([set(table[name]) for name in ("clusters", "memory", "s", "median")], [{3}, {0.5}, {4}, {0.25}])

    def of_theorem(self, trivial=True):
        """Two streams with the errors of four seeds, and those that trivial answers have there."""
        cells = []
        for layer, zero in ((0, 0.25), (7, 0.35)):
            for seed, last in enumerate((0.1, 0.2, 0.3, 0.4)):
                made = cell("subgen", {"s": 4, "t": 2, "delta_quantile": 0.05}, 1.0, 0.5, layer=layer, seed=seed,
                            derived={"vacuous": False}, clusters={"final": 3},
                            errors={"epsilon_spectral": {"last": last}})
                if trivial:
                    made["trivial"] = {"zero": {"epsilon_spectral": {"last": zero}},
                                       "mean_value": {"epsilon_spectral": {"last": zero / 5}}}
                cells.append(made)
        return failure_rate.draw(Namespace(results=self.results(cells)))

    def test_failure_rates_have_the_lines_of_trivial_answers(self):
        drawn = self.of_theorem()
        self.addCleanup(style.pyplot.close, drawn.plot)
        for axis, zero in zip(drawn.plot.axes, (0.25, 0.35)):
            upright = {line.get_label(): line.get_xdata()[0] for line in axis.lines
                       if len(set(line.get_xdata())) == 1}
            self.assertEqual(upright, {"answer 0": zero, "mean value": zero / 5})
        by_layer = drawn.table.groupby("layer")[["zero", "mean_value"]].agg(set)
        self.assertEqual(by_layer.loc[7].tolist(), [{0.35}, {0.35 / 5}])
        self.assertIn("upright: what the answer 0", drawn.caption)
        without = self.of_theorem(trivial=False)
        self.addCleanup(style.pyplot.close, without.plot)
        self.assertNotIn("answer 0 and the mean of the values reach", without.caption)

    def test_tables_of_papers_that_rank_methods_are_drawn_paired(self):
        of_tables = {name: options for name, figure, _, options in papers.DRAWINGS if figure == "settings"}
        self.assertEqual([name for name, options in of_tables.items() if not options.get("against")], [])
        self.assertEqual(set(of_tables), {"subgen_table1", "clustergen_table2", "balancekv_longbench",
                                          "keyformer_fig3", "keyformer_table3"})

    def test_farthest_first_on_a_line(self):
        points = numpy.array([[0.0], [1.0], [10.0], [6.0], [10.0]])
        self.assertEqual(tsne.farthest_first(points, 4), [0, 2, 3, 1])
        self.assertEqual(tsne.farthest_first(points, 9), [0, 2, 3, 1, 4])

    def test_exponents_are_those_of_a_power_law(self):
        table = pandas.DataFrame({
            "sequence": "a", "layer": 0, "kv_head": 0, "of": "keys", "delta_quantile": 0.05,
            "curve": "growth", "x": [64, 128, 256, 512], "y": [9, 128 ** 0.5, 16, 512 ** 0.5]})
        self.assertAlmostEqual(clusterability.exponents(table)["exponent"][0], 0.5)
        for few in (table[:2], table[:1]):  # one number of tokens from 128 on, and none
            none = clusterability.exponents(few)
            self.assertEqual((len(none), list(none)), (0, list(clusterability.exponents(table))))

    def test_standard_errors_are_those_of_the_seeds(self):
        errors = {0: [1.0, 5.0], 1: [2.0, 8.0], 2: [6.0, 4.0]}
        cells = [cell("uniform", {"T": 1}, error, 0.5, kv_head=head, seed=seed)
                 for seed, both in errors.items() for head, error in enumerate(both)]
        cells += [cell("h2o", {"budget": 1}, error, 0.5, kv_head=head)
                  for head, error in enumerate((1.0, 2.0))]
        metric = "errors.relative_l2.mean"
        means = mean_over_units(self.results(cells).ok, [metric]).set_index("label")
        found = standard_error(means, metric)
        self.assertAlmostEqual(found["uniform"], pandas.Series([3.0, 5.0, 5.0]).sem())
        self.assertTrue(numpy.isnan(found["h2o"]))

    def test_a_rotation_is_undone(self):
        rng = numpy.random.default_rng(1)
        keys, inv_freq = rng.standard_normal((9, 10)), numpy.array([1.0, 0.3, 0.01, 2.0])
        for layout in ("half", "interleaved"):
            first, second = ((slice(0, 4), slice(4, 8)) if layout == "half" else
                             (slice(0, 8, 2), slice(1, 8, 2)))
            rotated = keys.copy()
            for at in range(9):
                turned = (keys[at, first] + 1j * keys[at, second]) * numpy.exp(1j * at * inv_freq)
                rotated[at, first], rotated[at, second] = 1.25 * turned.real, 1.25 * turned.imag
            numpy.testing.assert_allclose(rotation.unrotated(rotated, inv_freq, layout, 1.25), keys,
                                          atol=1e-12)

    def test_layers_of_a_dump_that_differ(self):
        rng = numpy.random.default_rng(2)
        made = {0: ({"q": (4, 8), "k": (2, 8), "v": (2, 8)}, {}),
                1: ({"q": (4, 8)}, {"kv_layer": 0}),
                2: ({"q": (6, 10), "k": (1, 10)}, {"value_in_key": 4, "sliding_window": 7}),
                3: ({"q": (4, 8), "k": (2, 8), "v": (2, 8), "sinks": None}, {}),
                4: ({"q": (4, 8), "k": (2, 8), "v": (2, 8)}, {"chunk": 8})}
        path = self.folder / "unlike.h5"
        with h5py.File(path, "w") as file:
            file.attrs.update({"format": "kvbench-dump", "format_version": 2, "model": "m", "n_layers": 5})
            for layer, (tensors, attributes) in made.items():
                group = file.create_group(f"sequences/text/layers/{layer}")
                group.attrs.update({"scale": 0.3, "sliding_window": 0, "logit_softcap": 0.0, **attributes})
                group["rope/inv_freq"] = numpy.ones(2)
                group["rope"].attrs["layout"] = "half"
                for name, shape in tensors.items():
                    group[name] = (rng.standard_normal((shape[0], 20, shape[1])) if shape
                                   else numpy.zeros(4))
            held = {name: file[f"sequences/text/layers/2/{name}"][()] for name in "qk"}
            shared = file["sequences/text/layers/0/v"][()]
        dump = Dump(path)
        self.assertEqual([dump.kv_heads(layer) for layer in dump.layers], [2, 2, 1, 2, 2])
        numpy.testing.assert_array_equal(dump.head(1, "v", 1), shared[1])
        numpy.testing.assert_array_equal(dump.head(2, "v", 0), held["k"][0, :, :4])
        logits = numpy.full(20, -numpy.inf)
        logits[13:] = 0.3 * held["k"][0, 13:] @ held["q"][5, 19]
        numpy.testing.assert_allclose(score_bars.scores(dump, 2, 0, [19])[5, 0],
                                      numpy.exp(logits) / numpy.exp(logits).sum(), rtol=1e-12)
        self.assertEqual(set(rotation.draw(Namespace(dump=dump, quantile=0.1)).table["layer"]), {0, 2, 3, 4})
        asked = Namespace(dump=dump, kv_head=0, query_head=0, decoded=8, cache=0.5, recent=0.5, shown=5)
        score_bars.check(asked, 2)
        for layer, words in ((0, "several layers"), (1, "several layers"), (3, "sinks"), (4, "chunk")):
            with self.assertRaisesRegex(ResultsError, words):
                score_bars.check(asked, layer)

    def test_attributes_of_a_dump_are_of_every_kind_that_h5py_writes(self):
        bits = numpy.arange(2 * 20 * 4, dtype=numpy.uint16).reshape(2, 20, 4) + 0x3F80
        values = (bits.astype(numpy.uint32) << 16).view(numpy.float32)
        for text, order in ((str, "<"), (numpy.bytes_, ">"), (lambda word: numpy.array([word], "S"), "<")):
            path = self.folder / "kinds.h5"
            with h5py.File(path, "w") as file:
                file.attrs.update({"format": text("kvbench-dump"), "format_version": 1, "model": text("m")})
                group = file.create_group("sequences/text/layers/0")
                group.attrs.update({"scale": numpy.array([0.5]), "sliding_window": numpy.array([0]), "logit_softcap": 0.0})
                group["rope/inv_freq"] = numpy.ones(2)
                group["rope"].attrs.update({"layout": text("half"), "attention_scaling": numpy.array([1.0])})
                for name in "qkv":
                    group[name] = bits.astype(f"{order}u2")
                    group[name].attrs["dtype"] = text("bfloat16")
            dump = Dump(path)
            self.assertEqual((dump.model, dump.attributes(0)["scale"], dump.rope(0)[1:]), ("m", 0.5, ("half", 1.0)))
            numpy.testing.assert_array_equal(dump.head(0, "k", 1), values[1])

    def test_lost_mass_and_displacement_multiply_to_the_error(self):
        made = cell("window", {"budget": 512}, 1.0, 0.5)
        other = cell("subgen", {"budget": 512}, 1.0, 0.5)
        errors, kept = numpy.array([[0.5, 0.08, 0.0]]), numpy.array([[0.5, 0.8, 1.0]])
        with h5py.File(self.folder / "results.rows.h5", "w") as file:
            for one in (made, other):
                group = file.create_group(one["id"])
                group["relative_l2"], group["kept_mass"] = errors, kept
                group["rows"] = numpy.arange(3)
        table = displacement.parts(self.results([made, other]), 0.35, 512)
        self.assertEqual(list(table["algorithm"]), ["window"])  # subgen's answer has weights
        self.assertAlmostEqual(table["lost"][0], (0.5 * 0.2) ** 0.5)
        self.assertAlmostEqual(table["displacement"][0], (1.0 * 0.4) ** 0.5)
        self.assertAlmostEqual(table["error"][0], (0.5 * 0.08) ** 0.5)

    def test_parts_of_a_stream_are_over_the_same_heads_first(self):
        cells = [cell("window", {"budget": 1}, 1.0, 0.5, kv_head=head) for head in (0, 1)]
        with h5py.File(self.folder / "results.rows.h5", "w") as file:
            for scale, made in zip((1.0, 7.0), cells):
                group = file.create_group(made["id"])
                group["relative_l2"] = scale * numpy.array([[1.0, 3.0, 2.0, 4.0, 6.0, 2.0]])
                group["rows"] = numpy.arange(100, 106)
        table = position.parts_of(self.results(cells), 3)
        self.assertEqual(list(table["ratio"]), [1.0, 1.5, 2.0] * 2)
        self.assertEqual(list(table["at"]), [101.0, 103.0, 105.0] * 2)

    def test_captions_say_which_rows_are_scored(self):
        for rows, words in (("all", "every decoded row scored"),
                            ({"every": 2}, "every 2nd decoded row scored"),
                            ({"last": 1}, "last row scored"),
                            ([7, 9], "2 chosen rows scored"),
                            ({"prompt": "all"}, "every row of the prompt scored"),
                            ({"prompt": {"every": 64}}, "every 64th row of the prompt scored"),
                            ({"prompt": {"last": 8}}, "last 8 rows of the prompt scored"),
                            ({"prompt": [3]}, "1 chosen rows of the prompt scored")):
            with self.subTest(rows):
                made = cell("window", {"budget": 512}, 1.0, 0.5)
                made["key"]["rows"] = rows
                self.assertIn(f", {words};", facts(self.results([made])))

    def test_panels_of_one_column_stand_below_each_other_and_keep_their_places(self):
        for rows, columns, shape in ((1, 3, (3, 1)), (2, 3, (3, 2)), (1, 4, (2, 2)), (3, 3, (3, 3)),
                                     (1, 2, (1, 2))):
            with self.subTest((rows, columns)), style.width("column"):
                figure, axes = style.panels(rows, columns, 2.0, sharey="row")
                self.assertEqual(axes.shape, (rows, columns))
                self.assertEqual(figure.get_figwidth(), style.COLUMN)
                grid = axes[0][0].get_gridspec()
                self.assertEqual((grid.nrows, grid.ncols), shape)
                style.outer_labels(axes, "x", [f"y{row}" for row in range(rows)])
                for row in range(rows):
                    self.assertIn(f"y{row}", [axis.get_ylabel() for axis in axes[row]])
                    for axis in axes[row][1:]:
                        self.assertTrue(axis.get_shared_y_axes().joined(axis, axes[row][0]))
                style.pyplot.close(figure)
        self.assertFalse(style.narrow())

    def test_no_two_algorithms_look_alike_and_labels_of_one_differ_in_line(self):
        own = [style.look(name) for name in looks.LOOK]
        self.assertEqual(len(own), len(set(own)))
        table = pandas.DataFrame({"algorithm": ["h2o", "h2o", "uniform"],
                                  "label": ["h2o", "h2o, released", "uniform"]})
        variants = style.variants(table)
        self.assertNotEqual(variants["h2o"], variants["h2o, released"])
        self.assertEqual(variants["h2o"], variants["uniform"])


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
