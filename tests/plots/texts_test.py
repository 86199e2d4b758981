"""Numbers that the figures over several texts compute, on cells that follow known laws. Exits 77
where a Python package is missing."""

import json
import math
import sys
import tempfile
import unittest
from argparse import Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
try:
    import numpy
    import pandas
    from kvplot import Results
    from kvplot import papers
    from kvplot.figures import forest, keys_or_values, mixture, recency, scaling, variance
    from kvplot.results import HEADLINE, MEAN, ResultsError
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from made_results import cell, document, traffic


class Texts(unittest.TestCase):
    def results(self, cells, **more):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name, "results.json")
        path.write_text(json.dumps({**document(cells), **more}))
        return Results(path)

    def test_forest_compares_with_another_label(self):
        cells = [cell("snapkv", {"budget": budget}, 1 / memory, memory) for budget, memory in ((1, 0.5), (2, 0.125))]
        cells += [cell("exact", {}, 1.0, 0.25), cell("uniform", {"T": 1}, 9.0, 0.25)]
        table = forest.ratios(self.results(cells), "snapkv")
        self.assertEqual(dict(zip(table["label"], table["log2_ratio"].round(12))),
                         {"exact": -2.0, "uniform": round(float(numpy.log2(9 / 4)), 12)})
        self.assertTrue(forest.ratios(self.results(cells), "h2o").empty)

    def test_ticks_of_many_units_do_not_hide_their_interval(self):
        for heads, faint in ((9, False), (100, True)):
            cells = []
            for head in range(heads):
                cells += [cell("uniform", {"T": t}, 1 / t, 0.5 / t, kv_head=head) for t in (1, 2)]
                cells.append(cell("h2o", {}, 1.0 + head / heads, 0.3, kv_head=head))
            drawn = papers.draw("forest", self.results(cells), {})
            ticks, interval, *_ = drawn.plot.axes[0].lines
            self.assertEqual((ticks.get_marker(), len(ticks.get_xdata()), len(interval.get_xdata())), ("|", heads, 2))
            self.assertEqual((ticks.get_alpha() < 0.2, interval.get_linewidth() > 2), (faint, faint))

    def test_the_ends_of_the_reference_reach_two_percent(self):
        cells = [cell("uniform", {"T": t}, 1 / memory, memory) for t, memory in ((1, 0.5), (2, 0.125))]
        memories = {"inside": 0.25, "rounded": 0.5 * 1.0004, "below": 0.125 / 1.019, "above": 0.5 * 1.019,
                    "too little": 0.125 / 1.021, "too much": 0.5 * 1.021}
        cells += [cell(label, {}, 1.0, memory) for label, memory in memories.items()]
        table = forest.ratios(self.results(cells))
        self.assertEqual(dict(zip(table["label"], table["log2_ratio"].round(12))),
                         {"inside": -2.0, "rounded": -1.0, "below": -3.0, "above": -1.0})

    def test_forest_compares_where_as_much_is_read(self):
        """Error is 1 / what a row reads for tova and half of that for quest, which holds everything."""
        cells = [cell("tova", {"budget": budget}, 1 / read, read, traffic=traffic(read))
                 for budget, read in ((1, 0.5), (2, 0.125))]
        cells += [cell("quest", {"budget": budget}, 0.5 / read, 1.0, traffic=traffic(read))
                  for budget, read in ((1, 0.25), (2, 0.75))]
        results = self.results(cells)
        self.assertTrue(forest.ratios(results, "tova").empty)
        drawn = papers.draw("forest", results, {"against": "tova", "cost": "traffic"})
        self.assertEqual(list(zip(drawn.table["setting"], drawn.table["traffic.fraction"])), [("quest", 0.25)])
        self.assertAlmostEqual(drawn.table["ratio_mean"][0], 0.5)
        self.assertIn("that of tova where a row reads as many bytes", drawn.caption)
        self.assertIn("traffic more than 2 % outside of that of tova in some unit: quest", drawn.caption)

    def test_figures_have_the_frobenius_error_unless_asked_for_another(self):
        """h2o has half of uniform's Frobenius error at the same memory, and twice its mean error."""
        cells = [cell(label, {"budget": memory}, 0.0, memory, kv_head=head) for head in (0, 1)
                 for label, memories in (("uniform", (0.5, 0.125)), ("h2o", (0.25, 0.4))) for memory in memories]
        for made in cells:
            own, fraction = made["label"] == "h2o", made["memory"]["fraction"]
            made["errors"] = {"relative_frobenius_error": (0.5 if own else 1.0) / fraction,
                              "relative_l2": {"mean": (2.0 if own else 1.0) / fraction}}
            made["traffic"] = traffic(fraction)
        results = self.results(cells)
        asked = ((HEADLINE, {}, 0.5, "relative Frobenius error"), (MEAN, {"metric": MEAN}, 2.0, "mean over scored rows"))
        for metric, options, ratio, words in asked:
            for figure in ("forest", "pareto"):
                drawn = papers.draw(figure, results, options)
                numpy.testing.assert_allclose(drawn.table["ratio_mean"], ratio)
                self.assertIn(words, drawn.caption[:1].lower() + drawn.caption[1:])
            numpy.testing.assert_allclose(papers.draw("field", results, options).table["ratio"], ratio)
            for figure in ("error_vs_memory", "error_vs_traffic"):
                drawn = papers.draw(figure, results, options)
                rows = drawn.table.set_index(["label", "memory.fraction" if figure == "error_vs_memory" else "traffic.fraction"])
                self.assertAlmostEqual(rows[metric]["h2o", 0.25], 4 * ratio)
                self.assertIn(words, drawn.caption[:1].lower() + drawn.caption[1:])
        self.assertEqual(papers.defaults(scaling)["metric"], HEADLINE)
        for made in cells:
            made["key"]["storage"] = {"keys": {"codec": "q8_0"}, "values": {"codec": "q8_0"}}
            made["label"] += " | K q8_0 V q8_0"
            made["id"] += "q8_0"
        results = self.results([*cells, cell("h2o", {}, 0.1, 1.0)])
        for metric, options, _, words in asked:
            drawn = papers.draw("storage_map", results, options)
            self.assertIn(metric, drawn.table)
            self.assertIn(words, drawn.caption[:1].lower() + drawn.caption[1:])

    def test_the_gallery_has_mean_errors(self):
        drawings = [(name, options) for name, figure, _, options in papers.DRAWINGS
                    if papers.defaults(papers.figures.module(figure)).get("metric") == HEADLINE and name != "density"]
        self.assertEqual({name for name, _ in drawings}, {"pareto", "forest", "methods", "kvpress", "reading",
                                                          "reading_paired", "storage", "bits", "scaling", "field",
                                                          "discrepancy"})
        for name, options in drawings:
            self.assertEqual(options["metric"], "errors.normalizer_error.mean" if name == "discrepancy" else MEAN, name)

    def test_bars_of_several_texts_are_intervals_over_texts(self):
        """Heads of a text agree: what is independent are three means, 1, 2 and 6."""
        cells = []
        for text, error in (("a", 1.0), ("b", 2.0), ("c", 6.0)):
            for head, more in ((0, -0.5), (1, 0.5)):
                for budget in (1, 2):
                    made = cell("h2o", {"budget": budget}, (error + more) / budget, 0.2 * budget, kv_head=head)
                    made["key"]["sequence"] = text
                    cells.append(made)
        for figure in ("error_vs_memory", "error_vs_traffic"):
            for made in cells:
                made["traffic"] = traffic(made["memory"]["fraction"] / 2)
            drawn = papers.draw(figure, self.results(cells), {})
            row = drawn.table.iloc[0]
            half = 4.302653 * 7 ** 0.5 / 3 ** 0.5  # t with 2 degrees of freedom, the sample's variance 7
            self.assertAlmostEqual(row[HEADLINE], 3)
            factor = math.exp(half / 3)  # on the log scale, so that the lower end is above 0
            self.assertAlmostEqual(row[f"{HEADLINE}_low"], 3 / factor, places=4)
            self.assertAlmostEqual(row[f"{HEADLINE}_high"], 3 * factor, places=4)
            self.assertIn("; bars: 95 % intervals of the mean, Student's t over 3 texts, few: more texts narrow them. ",
                          drawn.caption)
        drawn = papers.draw("error_vs_memory", self.results([made for made in cells
                                                             if made["key"]["sequence"] == "a"]), {})
        self.assertIn("standard error of the mean over seeds", drawn.caption)

    def test_keys_alone_are_paired_with_values_alone(self):
        """Keys cost 4 times what values do where both share a scale per token, half as much per channel."""
        def stored(keys, values, error, text, layer):
            label = " ".join(f"{side} {'int bits=2' if kind else 'float'}{' per=channel' * (kind == 'channel')}"
                             for side, kind in (("K", keys), ("V", values)))
            made = cell("exact", {}, error, 0.6, layer=layer, label=f"exact | {label}")
            made["id"] += label + text
            made["key"]["sequence"] = text
            made["key"]["storage"] = {name: {"codec": "int", "bits": 2} if kind else {"codec": "float"}
                                      for name, kind in (("keys", keys), ("values", values))}
            return made

        cells = []
        for text, scale in (("a", 1.0), ("b", 3.0)):
            for layer in (0, 7):
                more = scale * (1 + layer)
                cells += [stored("token", None, 0.4 * more, text, layer), stored(None, "token", 0.1 * more, text, layer),
                          stored("channel", None, 0.05 * more, text, layer),
                          stored("channel", "channel", 9.0, text, layer)]
        results = self.results(cells)
        found = keys_or_values.means(keys_or_values.pairs(results)).set_index(["codec", "layer"])
        for layer in ("all", 0, 7):
            self.assertAlmostEqual(found["ratio"]["int: both per token", layer], 4)
            self.assertAlmostEqual(found["ratio"]["int: keys per channel, values per token", layer], 0.5)
        self.assertEqual(len(found), 6)
        self.assertEqual(set(found["bits"]), {2})
        self.assertEqual((found["keys_worse"]["int: both per token", "all"],
                          found["units"]["int: both per token", "all"]), (4, 4))
        self.assertEqual(set(found["over"]), {"sequence"})
        drawn = papers.draw("keys_or_values", results, {})
        self.assertIn("Not drawn, no partner: 1 storage.", drawn.caption)
        both = self.results([made for made in cells if "K float" not in made["label"]])
        with self.assertRaisesRegex(ResultsError, "nothing to pair"):
            papers.draw("keys_or_values", both, {})

    def test_slopes_are_those_of_power_laws_and_ratios_are_paired(self):
        cells = []
        for text, scale in (("a", 1.0), ("b", 5.0)):
            for n in (256, 512, 1024):
                for label, power, factor in (("uniform", -0.5, 1.0), ("balanced", -0.75, 0.5)):
                    made = cell(label, {"T": 1}, factor * scale * n ** power, 0.5, seed=0)
                    made["key"].update(tokens=n, sequence=text)
                    cells.append(made)
        with self.assertRaisesRegex(ResultsError, "select.tokens of the sweep is not an axis"):
            scaling.draw(Namespace(results=self.results(cells), metric=scaling.METRIC))
        axis = {"select": {"tokens": [256, 512, 1024]}}
        units = scaling.ratios(self.results(cells, config=axis))
        balanced = units[units["label"] == "balanced"]
        self.assertEqual(len(balanced), 6)
        numpy.testing.assert_allclose(balanced["ratio"], 0.5 * balanced["params.tokens"] ** -0.25)
        table = scaling.slopes(units).set_index(["label", "of", "layer"])["slope"]
        self.assertAlmostEqual(table["balanced", "error", "all"], -0.75)
        self.assertAlmostEqual(table["balanced", "ratio", 0], -0.25)
        self.assertAlmostEqual(table["uniform", "ratio", "all"], 0.0)

    def test_recency_is_paired_with_as_many_recent_tokens(self):
        cells = []
        for head, scale in ((0, 1.0), (1, 9.0)):
            for budget in (0.2, 0.5):
                cells.append(cell("streaming_llm", {"budget": budget}, scale / budget, 0.5,
                                  kv_head=head))
                cells += [cell("keyformer", {"budget": budget, "damping": 1, "recent_fraction": r},
                               (2 - r) * scale / budget, 0.5, kv_head=head) for r in (0.5, 1)]
        units = recency.ratios(self.results(cells))
        self.assertEqual(len(units), 8)
        numpy.testing.assert_allclose(units["ratio"], 2 - units["params.recent_fraction"])

    def test_choices_on_other_texts_do_not_see_their_own(self):
        # Per text and layer, the errors of two methods. Layer 0 is better with h2o in a and b;
        # c alone would turn the choice, so that one that sees it takes window there.
        errors = {"a": [(1, 2), (8, 3)], "b": [(1, 2), (8, 3)], "c": [(9, 1), (8, 3)]}
        cells = []
        for text, layers in errors.items():
            for layer, both in enumerate(layers):
                for label, error in zip(("h2o", "window"), both):
                    made = cell(label, {}, float(error), 0.38, layer=layer)
                    made["key"]["sequence"] = text
                    cells.append(made)
        table, _ = mixture.logs(self.results(cells), 0.38)
        expected = {"oracle per head": [1, 3, 1, 3, 1, 3],
                    "per layer, chosen on other texts": [2, 3, 2, 3, 9, 3],
                    "one method, chosen on other texts": [2, 3, 2, 3, 1, 3]}
        for name, source, by in mixture.CHOICES:
            if name in expected:
                numpy.testing.assert_allclose(numpy.exp(mixture.chosen(table, source, by)),
                                              expected[name], err_msg=name)
        ratios = mixture.compared(table).groupby("setting", sort=False)["ratio"].agg(list)
        self.assertEqual(ratios["window"], [1.0] * 6)
        numpy.testing.assert_allclose(ratios["oracle per layer"], [0.5, 1, 0.5, 1, 1, 1])

    def test_variance_components_are_unbiased(self):
        rng = numpy.random.default_rng(7)
        true = {"layer": 1.0, "head": 0.25, "text": 0.09, "text x layer": 0.04,
                "text x head": 0.16, "seed": 0.36}

        def drawn(a, b, c, r):
            shapes = ((1, b, 1, 1), (1, b, c, 1), (a, 1, 1, 1), (a, b, 1, 1), (a, b, c, 1),
                      (a, b, c, r))
            return sum(rng.standard_normal(shape) * value ** 0.5
                       for shape, value in zip(shapes, true.values()))

        for shape, merged in (((6, 4, 3, 3), {}), ((6, 4, 1, 3), {"text x layer": "text x head",
                                                                 "layer": "head"}),
                              ((6, 4, 3, 1), {"text x head": "seed"})):
            found = pandas.DataFrame([variance.components(drawn(*shape)) for _ in range(600)])
            for name in found:
                expected = true[name] + true.get(merged.get(name), 0.0)
                error = found[name].std() / 600 ** 0.5
                self.assertLess(abs(found[name].mean() - expected), 4 * error, (shape, name))
            self.assertEqual(set(true) - set(found), set(merged.values()))
        one = variance.components(drawn(1, 4, 3, 3))
        self.assertEqual(set(one), {"layer", "head", "seed"})


if __name__ == "__main__":
    unittest.main()
