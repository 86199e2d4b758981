"""Settings are compared over the units that all of them have, wherever kvplot shows a mean.

Most of it is of made_results.mixed(): h2o has six KV heads, and over the two of layer 2, which quest
has too, the errors are 2.5 and 2.6 against 2.1 and 2.2. Over all its heads h2o's mean is 0.85.
Exits 77 where a Python package is missing.
"""

import contextlib
import io
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
try:
    import kvplot
    import numpy
    import pandas
    from kvplot import Results
    from kvplot.__main__ import main
    from kvplot.report.d3 import DEBIAN
    from kvplot.report.page import script as joined
    from kvplot.results import HEADLINE, mean_over_units
    from kvplot.statistics import mean_interval, summarised
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from called import called
from made_results import cell, document, mixed

METRIC, MEMORY = "errors.relative_l2.mean", "memory.fraction"
SAID = "Over 2 of 6 KV heads: those that every method has. quest has 2 of 6 KV heads."
# Prints means of the page's script: its numbers, without what draws.
SCRIPT = """
const fs = require("fs"), vm = require("vm");
const [page, source, d3, asked] = process.argv.slice(2);
const data = /<script type="application\\/json" id="data">([\\s\\S]*?)<\\/script>/.exec(fs.readFileSync(page, "utf8"))[1];
const context = { document: { getElementById: () => ({ textContent: data }) }, d3: require(d3), out: null,
                  atob: (text) => Buffer.from(text, "base64").toString("latin1") };
vm.runInNewContext(`${fs.readFileSync(source)}\\nout = { meansOf, sameUnits, narrower, VIEWS, DATA };`, context);
const { meansOf, sameUnits, narrower, VIEWS, DATA } = context.out, metric = "errors.relative_l2.mean";
const { hidden, ...more } = JSON.parse(asked);
const choice = { metric, against: "memory.fraction", layer: null, head: null, sequence: null, ...more, hidden: new Set(hidden) };
const rows = VIEWS.settings.ids(), columns = VIEWS.settings.columns(choice);
const shown = (key) => rows.map((id) => columns.find((column) => column.key === key)).map((column, i) =>
  (column.value ?? column.text)(rows[i]));
console.log(JSON.stringify({
  label: shown("method"), mean: shown("metric"), low: shown("low"), high: shown("high"), memory: shown("against"),
  std: shown("std"), seeds: shown("seeds"),
  units: shown("units"), has: shown("has"), said: sameUnits(metric, choice).said,
  narrower: narrower(meansOf(metric, choice), rows), titles: columns.map((column) => column.title ?? ""),
}));
"""


def failed_head(label, heads, failed):
    return [cell(label, {"budget": 1}, 1.0 + head, 0.5, kv_head=head, **({"status": "failed", "reason": "overflow"}
                                                                      if head in failed else {}))
            for head in range(heads)]


class SameUnits(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, cells):
        path = self.folder / "results.json"
        path.write_text(json.dumps(document(cells)))
        return path

    def frame(self, cells):
        return Results(self.write(cells)).frame

    def drawn(self, figure, *options, cells=None):
        """The CSV and the caption of a figure."""
        path, out = self.write(mixed() if cells is None else cells), self.folder / "out"
        code, said = called(figure, "--results", path, "--out", out, *options)
        self.assertEqual((code, said), (0, ""))
        name, = {file.stem for file in out.iterdir()}
        table, caption = pandas.read_csv(out / f"{name}.csv"), (out / f"{name}.txt").read_text()
        shutil.rmtree(out)
        return table, caption

    def table(self, path, *options):
        said, printed = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
            self.assertEqual(main(["table", str(path), *options, "--format", "csv"]), 0)
        return pandas.read_csv(io.StringIO(printed.getvalue())), said.getvalue()

    def test_means_are_over_the_units_that_all_settings_have_and_memory_is_bytes_over_bytes(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            table = kvplot.mean_over_units(self.frame(mixed()), [METRIC, MEMORY]).set_index("label")
        self.assertEqual([str(warning.message) for warning in caught], [SAID])
        numpy.testing.assert_allclose(table[METRIC][["h2o", "quest"]], [2.55, 2.15])
        self.assertEqual(list(table[MEMORY][["h2o", "quest"]]), [0.125, 1.0])
        self.assertEqual(table[["units", "has", "asked"]].to_numpy().tolist(), [[2, 6, 6], [2, 2, 6]])
        alone = [made for made in mixed() if made["key"]["algorithm"] == "h2o"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            table = kvplot.mean_over_units(self.frame(alone), [METRIC, MEMORY, "traffic.fraction"])
        # Four windows of 1024 bytes held whole, two layers of 8192 of which an eighth: not 0.708, the mean of parts.
        self.assertAlmostEqual(table[MEMORY][0], (4 * 1024 + 2 * 1024) / (4 * 1024 + 2 * 8192))
        self.assertAlmostEqual(table["traffic.fraction"][0], 0.3)

    def test_columns_that_memory_needs_are_loaded_with_it(self):
        frame = kvplot.load_results(self.write(mixed()), columns=[METRIC, MEMORY, "traffic.fraction"])
        self.assertEqual(list(mean_over_units(frame, [METRIC, MEMORY])[MEMORY]), [0.125, 1.0])
        with self.assertRaisesRegex(kvplot.ResultsError, "memory.fraction is bytes over bytes: load memory.exact_bytes"):
            mean_over_units(frame.drop(columns="memory.exact_bytes"), [METRIC, MEMORY])

    def test_layers_are_compared_apart(self):
        table = mean_over_units(self.frame(mixed()), [METRIC], ["layer"])
        self.assertEqual([(row.layer, row.label, row.units, row.has, row.asked) for row in table.itertuples()],
                         [(0, "h2o", 2, 2, 2), (1, "h2o", 2, 2, 2), (2, "h2o", 2, 2, 2), (2, "quest", 2, 2, 2)])

    def test_a_failed_head_leaves_the_means_of_all_methods(self):
        cells = failed_head("h2o", 3, []) + failed_head("kivi", 3, [2])
        frame = self.frame(cells)
        self.assertEqual(list(mean_over_units(frame, [METRIC])[METRIC]), [1.5, 1.5])
        _, caption = self.drawn("settings", cells=cells)
        self.assertIn(" Over 2 of 3 KV heads: those that every method has. kivi has 2 of 3 KV heads. "
                      "Left out, failed: 1 of 6 cells (kivi).", caption)

    def test_a_number_that_is_null_is_counted_and_never_zero(self):
        cells = failed_head("h2o", 3, []) + failed_head("kivi", 3, [])
        cells[-1]["errors"]["relative_l2"]["mean"] = None
        frame = self.frame(cells)
        self.assertEqual(list(mean_over_units(frame, [METRIC])[METRIC]), [1.5, 1.5])
        words = "Left out, no number for relative l2, mean: 1 of 6 finished cells (kivi)."
        _, caption = self.drawn("settings", cells=cells)
        self.assertIn(words, caption)
        table, said = self.table(self.write(cells), "--rows", "label", "--value", METRIC)
        self.assertEqual(list(table[METRIC]), [1.5, 1.5])
        self.assertIn(words, said)
        for made in cells:
            made["errors"]["other"] = {"mean": 2.0}
        cells[0]["errors"]["other"]["mean"] = None  # beside another number: no mean over fewer heads than that has
        table = mean_over_units(self.frame(cells[:-1]), [METRIC, "errors.other.mean"])
        self.assertTrue(math.isnan(table["errors.other.mean"][0]))
        self.assertEqual(table["errors.other.mean"][1], 2.0)

    def test_where_no_unit_has_all_settings_methods_are_compared(self):
        """kivi's first setting has head 0 alone, its second the heads 1 and 2."""
        cells = failed_head("h2o", 3, []) + failed_head("kivi", 3, [1, 2])
        second = failed_head("kivi", 3, [0])
        for made in second:
            made["key"]["params"] = {"budget": 2}
            made["id"] += "2"
        results = Results(self.write(cells + second))
        self.assertIn(" No KV head has every method; each mean is over those that its method has, and they are not "
                      "comparable. h2o has 2 of 3, kivi has 1 of 3 KV heads.",
                      Results(self.write(failed_head("h2o", 3, [0]) + failed_head("kivi", 3, [1, 2]))).compared(METRIC).said)
        self.assertIn(" Over 3 of 3 KV heads: those that every method has, without 2 settings that lack some of them. ",
                      results.compared(METRIC).said)
        self.assertEqual(list(mean_over_units(results.frame, [METRIC])["label"]), ["h2o"])

    def test_figures_rank_over_the_same_units_and_say_so(self):
        for figure, column in (("error_vs_memory", HEADLINE), ("error_vs_traffic", HEADLINE), ("settings", "error")):
            table, caption = self.drawn(figure)
            found = table.set_index("label")[column]
            self.assertEqual((round(found["h2o"], 12), round(found["quest"], 12)), (2.55, 2.15), figure)
            self.assertIn(f" {SAID} Left out, skipped: 4 of 12 cells (quest).", caption)
            self.assertIn("; 2 units (KV heads of layer 2); ", caption)
        table, caption = self.drawn("error_vs_memory", "--panels", "layer")
        self.assertEqual(len(table), 4)
        self.assertIn(" quest has 2 of 6 KV heads.", caption)

    def test_pairs_are_over_the_same_units_and_memory_in_brackets_is_bytes_over_bytes(self):
        cells = mixed()
        for made in [made for made in cells if made["key"]["algorithm"] == "h2o"]:
            for level, memory in ((1, 0.05), (2, 2.0)):
                other = json.loads(json.dumps(made))
                other["key"].update(algorithm="uniform", params={"T": level})
                other.update(label="uniform", id=f"{made['id']}{level}")
                other["errors"]["relative_frobenius_error"] = 1.0
                other["memory"]["fraction"] = memory
                cells.append(other)
        table, caption = self.drawn("forest", cells=cells)
        means = table.drop_duplicates("label").set_index("label")
        self.assertEqual(list(means["units"]), [2, 2])
        self.assertAlmostEqual(means["ratio_mean"]["quest"], math.sqrt(2.1 * 2.2))
        self.assertAlmostEqual(means["ratio_mean"]["h2o"], math.sqrt(2.5 * 2.6))
        self.assertIn(f" {SAID}", caption)
        _, caption = self.drawn("forest", "--labels", "h2o", "uniform", cells=cells)
        self.assertNotIn("KV heads: those", caption)

    def test_ratios_of_errors_that_are_exact_to_rounding_are_none(self):
        """In the windows of layers 0 and 1 a larger budget is exact to rounding."""
        cells = []
        for layer in (0, 1, 2):
            for head, scale in ((0, 1.0), (1, 4.0)):
                unit = {"layer": layer, "kv_head": head}
                for name, params, error in (("window", {"budget": 8}, 0.5), ("window", {"budget": 32}, 0.25),
                                            ("h2o", {"budget": 8}, 0.4), ("h2o", {"budget": 32}, 0.2)):
                    exact = layer < 2 and params["budget"] == 32
                    error = 3e-16 if exact else error * scale
                    cells.append(cell(name, params, error, 0.5 if params["budget"] == 32 else 0.2, **unit))
        table, caption = self.drawn("settings", "--against", "window: budget 32", cells=cells)
        ratios = table.set_index("setting")
        self.assertAlmostEqual(ratios["ratio"]["window: budget 8"], 2.0)
        self.assertAlmostEqual(ratios["ratio"]["h2o: budget 32"], 0.8)
        self.assertEqual(ratios["units"]["h2o: budget 32"], 2)
        self.assertEqual(ratios["better"]["h2o: budget 32"], 2)
        self.assertIn(" Ratios in fewer than 6 KV heads, for an error exact to rounding: window: budget 8, h2o: "
                      "budget 8, h2o: budget 32 in 2.", caption)
        table, caption = self.drawn("forest", "--against", "window", cells=cells)
        numpy.testing.assert_allclose(table["memory.fraction"], 0.2)
        self.assertAlmostEqual(table["ratio_mean"][0], 0.8)
        self.assertIn("in some unit, or an error exact to rounding: h2o (1 of 2 settings)", caption)
        whole = [each for each in cells if each["key"]["params"]["budget"] == 32]
        table, caption = self.drawn("forest", "--against", "window", cells=whole)
        self.assertEqual(list(table["units"]), [2, 2])
        self.assertAlmostEqual(table["ratio_mean"][0], 0.8)
        self.assertIn(" Ratios are over 2 of 6 KV heads; in the others an error is exact to rounding", caption)

    def test_a_table_takes_means_over_seeds_first(self):
        """Head 1 has one of three seeds left, which counts as much as the three of head 0."""
        cells = [cell("uniform", {"T": 1}, error, 0.25 + 0.5 * head, kv_head=head, seed=seed)
                 for head, seed, error in ((0, 0, 1.0), (0, 1, 2.0), (0, 2, 3.0), (1, 0, 8.0))]
        path = self.write(cells)
        table, _ = self.table(path, "--rows", "label", "--value", METRIC, MEMORY)
        self.assertEqual(table[[METRIC, MEMORY]].to_numpy().tolist(), [[5.0, 0.5]])
        table, _ = self.table(path, "--rows", "seed", "--value", METRIC)
        self.assertEqual(list(table[METRIC]), [4.5, 2.0, 3.0])
        table, _ = self.table(path, "--rows", "label", "--value", METRIC, "--of", "sum")
        self.assertEqual(list(table[METRIC]), [14.0])

    def test_tables_say_over_what_they_are(self):
        path = self.write(mixed())
        table, said = self.table(path, "--rows", "label", "--value", METRIC, MEMORY)
        numpy.testing.assert_allclose(table[METRIC], [2.55, 2.15])
        self.assertEqual(list(table[MEMORY]), [0.125, 1.0])
        self.assertIn(SAID, said)
        table, said = self.table(path, "--rows", "label", "--value", METRIC, MEMORY, "--where", "label=h2o")
        self.assertAlmostEqual(table[METRIC][0], 0.85)
        self.assertAlmostEqual(table[MEMORY][0], 0.3)
        self.assertNotIn("those that", said)
        table, said = self.table(path, "--rows", "label", "--columns", "layer", "--value", METRIC)
        self.assertEqual(table.iloc[0].tolist()[1:3], [0.0, 0.0])
        self.assertIn("quest has 2 of 6 KV heads.", said)
        table, _ = self.table(path, "--rows", "label")
        self.assertEqual(list(table), ["label", HEADLINE, METRIC, MEMORY])  # the headlines that are there

    def test_intervals_of_the_page_and_of_the_summary_are_on_the_log_scale(self):
        """Means 1 and 3 of two layers of two heads: 2, standard error 1, t with one degree of freedom 12.7062."""
        cells = [cell("h2o", {}, error + more, 0.5, layer=layer, kv_head=head)
                 for layer, error in ((0, 1.0), (1, 3.0)) for head, more in ((0, -0.5), (1, 0.5))]
        row = summarised(self.frame(cells), METRIC).iloc[0]
        ends = [2 / math.exp(12.706204736 / 2), 2 * math.exp(12.706204736 / 2)]
        numpy.testing.assert_allclose(row[[f"{METRIC}_low", f"{METRIC}_high"]].astype(float), ends, rtol=1e-9)
        units = pandas.DataFrame({"dump": "d", "sequence": "s", "layer": 0, "kv_head": [0, 1], "x": [0.0, 0.0]})
        self.assertEqual(mean_interval(units, "x")[:2], (0.0, 0.0))
        below = mean_interval(units.assign(x=[-1.0, 3.0]), "x")
        numpy.testing.assert_allclose(below[:2], [1 - 12.706204736 * 2, 1 + 12.706204736 * 2])
        page = self.page(cells)
        numpy.testing.assert_allclose([page["low"][0], page["high"][0]], ends, rtol=1e-6)
        self.assertEqual(page["narrower"], "2 layers carry these intervals; more texts or layers narrow them: "
                                           "data/dumps.sh.")

    def page(self, cells, **asked):
        """Numbers of the report's table, from its own script."""
        node = shutil.which("node")
        if not (node and DEBIAN.is_file()):
            self.skipTest("node or node-d3 is not installed")
        path, out, script = self.write(cells), self.folder / "report.html", self.folder / "means.js"
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(main(["report", str(path), "--no-figures", "-o", str(out)]), 0)
        script.write_text(SCRIPT)
        source = self.folder / "rows.js"
        source.write_text(joined("rows"), encoding="utf-8")
        done = subprocess.run([node, script, out, source, DEBIAN, json.dumps({"hidden": [], **asked})], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def test_the_page_compares_the_methods_that_it_shows(self):
        page = self.page(mixed())
        self.assertEqual((page["label"], page["units"], page["has"]), (["h2o", "quest"], [2, 2], ["6 of 6", "2 of 6"]))
        numpy.testing.assert_allclose(page["mean"], [2.55, 2.15], rtol=1e-6)
        self.assertEqual(page["memory"], [0.125, 1.0])
        self.assertEqual(page["said"], SAID.replace("method has.", "method shown has."))
        alone = self.page(mixed(), hidden=["quest"])
        self.assertAlmostEqual(alone["mean"][0], 0.85, places=6)
        self.assertAlmostEqual(alone["memory"][0], 0.3, places=6)
        self.assertEqual(alone["said"], "")
        self.assertEqual(self.page(mixed(), layer=2)["said"], "")

    def test_the_page_compares_seeds_over_the_units_that_have_every_seed(self):
        cells = [cell("uniform", {"T": 1}, error, 0.5, kv_head=head, seed=seed)
                 for head, seed, error in ((0, 0, 1.0), (0, 1, 3.0), (1, 1, 11.0))]
        cells.append(cell("uniform", {"T": 1}, 9.0, 0.5, kv_head=1, seed=0, status="failed"))
        found = self.page(cells)
        self.assertEqual((found["mean"], found["std"], found["seeds"]), ([6.5], [1.0], [2]))

    def test_the_page_falls_back_as_the_figures_do(self):
        apart = self.page(failed_head("h2o", 3, [0]) + failed_head("kivi", 3, [1, 2]))
        self.assertIn("No KV head has every method;", apart["said"])
        cells = failed_head("h2o", 3, []) + failed_head("kivi", 3, [])
        cells[-1]["errors"]["relative_l2"]["mean"] = None
        null = self.page(cells)
        self.assertEqual((null["mean"], null["units"]), ([1.5, 1.5], [2, 2]))
        self.assertIn("Left out, no number for relative l2, mean: 1 of 6 finished cells (kivi).", null["said"])

    def test_the_page_without_scripts_says_it_too(self):
        out = self.folder / "report.html"
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(main(["report", str(self.write(mixed())), "--no-figures", "-o", str(out)]), 0)
        still = re.search("<noscript>(.*?)</noscript>", out.read_text(), re.DOTALL)[1]
        self.assertIn(SAID, still)
        self.assertEqual(re.findall(r"<tr><td>(\w+)</td><td></td><td>(\S+) .*?<td>(\d of \d)</td></tr>", still),
                         [("h2o", "2.55", "6 of 6"), ("quest", "2.15", "2 of 6")])


if __name__ == "__main__":
    unittest.main()
