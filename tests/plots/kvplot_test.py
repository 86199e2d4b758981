"""Tests of kvplot on made-up results, and on real ones. Usage: kvplot_test.py KVBENCH

Exits 77 where a Python package is missing.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
try:
    import numpy
    import pandas
    from kvplot import Results, ResultsError, load_results, mean_over_units, read_results
    from kvplot.__main__ import main
    from kvplot.lines import Records
    from kvplot.report import sections
    from kvplot.results import UNIT, undrawn, with_params
    from kvplot.results import mean_over_units as mean_of
    from kvplot.statistics import mean_interval
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from made_results import cell, document, sweep

METRIC = "errors.relative_l2.mean"
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = None


def in_common(frame, metric, by):
    """By cell whether it is compared, from the definition with sets of Python."""
    has, unit_of = {}, {}
    rows = list(frame.fillna({"kv_head": -1}).to_dict("records"))
    for row in rows:
        unit = tuple(row[name] for name in UNIT)
        unit_of[unit] = tuple(row[name] for name in by)
        units = has.setdefault((row["algorithm"], row["label"], row["point"]), set())
        if row["status"] == "ok" and row[metric] == row[metric]:
            units.add(unit)
    compared = {}
    for group in set(unit_of.values()):
        here = {setting: {unit for unit in units if unit_of[unit] == group} for setting, units in has.items()}
        every = {unit for unit, own in unit_of.items() if own == group}
        taking = {setting: units for setting, units in here.items() if units}
        common = every.intersection(*taking.values())
        fit = set(here)
        if taking and not common:
            methods = {}
            for (_, label, _), units in taking.items():
                methods.setdefault(label, set()).update(units)
            common = every.intersection(*methods.values())
            fit = {setting for setting, units in here.items() if common <= units} if common else fit
            common = common or every
        compared |= {(setting, unit): unit in common and setting in fit for setting in here for unit in every}
    return [row["status"] == "ok" and compared[(row["algorithm"], row["label"], row["point"]),
                                               tuple(row[name] for name in UNIT)] for row in rows]


class KvplotTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, content):
        path = self.folder / "results.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def test_a_refused_input_does_not_wait_for_other_figures(self):
        script = ("import sys; from kvplot.__main__ import main\n"
                  "code = main(['score_bars', '--dump', '/dev/null', '--out', 'x'])\n"
                  "print(code, sorted({'scipy', 'kvplot.report', 'kvplot.figures.forest'} & set(sys.modules)))")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "plots")})
        self.assertEqual(done.stdout, "2 []\n")

    def test_frame_has_one_row_per_cell_and_one_column_per_leaf(self):
        frame = load_results(self.write(sweep()))
        self.assertEqual(len(frame), len(sweep()["cells"]))
        row = frame[(frame["algorithm"] == "subgen") & (frame["params.s"] == 256)].iloc[0]
        self.assertEqual(row["params.delta_quantile"], 0.05)
        self.assertEqual(row["layer"], 0)
        self.assertGreater(row[METRIC], 0)
        self.assertEqual(set(frame["status"]), {"ok", "failed", "skipped"})
        self.assertIn("overflow", set(frame["reason"]))

    def write_lines(self, made, **more):
        """As kvbench lays a results.json out."""
        members = []
        for name, value in {**made, **more}.items():
            if isinstance(value, list) and value:
                lines = ",\n".join(f"    {json.dumps(each)}" for each in value)
                members.append(f"  {json.dumps(name)}: [\n{lines}\n  ]")
            else:
                members.append(f"  {json.dumps(name)}: {json.dumps(value)}")
        return self.write("{\n" + ",\n".join(members) + "\n}\n")

    def test_records_that_are_read_one_by_one_give_the_frame_of_all_at_once(self):
        pandas.testing.assert_frame_equal(load_results(self.write_lines(sweep())),
                                          load_results(self.write(sweep())))
        streamed, whole = Results(self.write_lines(sweep())), json.loads(json.dumps(sweep()))
        self.assertIsInstance(streamed.document["cells"], Records)
        self.assertEqual(list(streamed.document["cells"]), whole["cells"])
        self.assertEqual(streamed.document["cells"][7], whole["cells"][7])
        self.assertEqual(streamed.document["cells"][-3:], whole["cells"][-3:])
        self.assertEqual({**streamed.document, "cells": whole["cells"]}, whole)

    def test_columns_that_are_asked_for_and_what_means_need(self):
        path = self.write_lines(sweep())
        few = load_results(path, columns=[METRIC])
        self.assertEqual(set(few), {METRIC, "status", "reason", "label", "algorithm", "point", "seed", "dump", "sequence",
                                    "layer", "kv_head"})
        pandas.testing.assert_frame_equal(mean_over_units(few, [METRIC]),
                                          mean_over_units(load_results(path), [METRIC]))

    def test_a_record_that_is_none_of_the_programs_is_refused(self):
        made = sweep()
        made["cells"][5]["key"] = None
        for path in (self.write_lines(made), self.write(made)):
            with self.assertRaisesRegex(ResultsError, "a record is not as `kvbench run` writes it"):
                load_results(path)
        with self.assertRaisesRegex(ResultsError, 'member "cells" is missing'):
            load_results(self.write({name: value for name, value in sweep().items() if name != "cells"}))
        with self.assertRaisesRegex(ResultsError, "truncated"):
            load_results(self.write(json.dumps(sweep())[:700]))

    def test_cells_are_grouped_by_their_storage_and_by_codec(self):
        plain = cell("exact", {}, 0.0, 1.0)
        made = [plain]
        for keys, values, text in (({"codec": "kivi", "bits": 4}, {"codec": "q4_0"},
                                    "K kivi bits=4 V q4_0"),
                                   ({"codec": "q8_0"}, "float", "K q8_0 V float")):
            stored = json.loads(json.dumps(plain))
            stored["key"]["storage"] = {"keys": keys, "values": values}
            stored["label"] = f"my | own | {text}"
            made.append(stored)
        frame = load_results(self.write(document(made)))
        self.assertEqual(list(frame["storage"]),
                         ["float", "K kivi bits=4 V q4_0", "K q8_0 V float"])
        self.assertEqual(list(frame["storage.keys.codec"]), ["float", "kivi", "q8_0"])
        self.assertEqual(list(frame["storage.values.codec"]), ["float", "q4_0", "float"])
        self.assertEqual(frame["storage.keys.bits"][1], 4)
        self.assertEqual(len(frame.groupby("storage")), 3)
        by_layer = [{"storage": "float"}, {"layers": [3], "storage": {"keys": {"codec": "q8_0"}, "values": "float"}}]
        made = [json.loads(json.dumps(plain)) for _ in (0, 3)]
        for layer, one in zip((0, 3), made):
            one["key"].update(layer=layer, storage={"by_layer": by_layer})
        frame = load_results(self.write(document(made)))
        self.assertEqual(list(frame["storage.keys.codec"]), ["float", "q8_0"])
        frame = load_results(self.write(document([plain])))
        self.assertEqual(list(frame["storage"]), ["float"])
        self.assertNotIn("storage.keys.codec", frame)

    def test_mean_runs_over_seeds_then_units_and_spread_over_seeds(self):
        # Unit 0 has seeds 1, 3; unit 1 has seeds 5, 11: unit means 2, 8; seed means 3, 7.
        cells = [cell("uniform", {"T": 1}, error, 0.5, kv_head=head, seed=seed)
                 for head, seed, error in ((0, 0, 1), (0, 1, 3), (1, 0, 5), (1, 1, 11))]
        cells.append(cell("uniform", {"T": 1}, 99, 0.5, kv_head=2, seed=0, status="failed"))
        point, = mean_over_units(load_results(self.write(document(cells))), [METRIC]).itertuples()
        self.assertEqual((point.units, point.seeds, point.cells), (2, 2, 4))
        table = mean_over_units(load_results(self.write(document(cells))), [METRIC])
        self.assertAlmostEqual(table[METRIC][0], 5.0)
        self.assertAlmostEqual(table[f"{METRIC}.std_over_seeds"][0], 2.0)

    def test_seeds_are_compared_over_the_units_that_have_every_seed(self):
        # Unit 0 has seeds 1, 3; of unit 1 seed 0 failed: the seeds' means are 1, 3, not 1, 7.
        cells = [cell("uniform", {"T": 1}, error, 0.5, kv_head=head, seed=seed)
                 for head, seed, error in ((0, 0, 1), (0, 1, 3), (1, 1, 11))]
        cells.append(cell("uniform", {"T": 1}, 99, 0.5, kv_head=1, seed=0, status="failed"))
        for metric in (METRIC, "memory.fraction"):
            table = mean_over_units(load_results(self.write(document(cells))), [METRIC, metric])
            self.assertEqual((table["units"][0], table["seeds"][0]), (2, 2))
            self.assertAlmostEqual(table[METRIC][0], 6.5)
            self.assertAlmostEqual(table[f"{METRIC}.std_over_seeds"][0], 1.0)
        self.assertAlmostEqual(table["memory.fraction.std_over_seeds"][0], 0.0)
        other = cell("uniform", {"T": 1}, 2, 0.5, kv_head=1, seed=0)
        table = mean_over_units(load_results(self.write(document([cells[1], other]))), [METRIC])
        self.assertTrue(table[f"{METRIC}.std_over_seeds"].isna()[0])  # no unit has both seeds

    def test_means_of_many_cells_are_those_of_pandas_own_groups(self):
        # With settings, units and seeds that some cells lack, in a random order.
        draws = numpy.random.default_rng(5)
        kept = {"status": ["ok", "ok", "failed"], "algorithm": ["a", "b"], "label": ["x", "y", "z"],
                "point": ["{}", '{"T": 10}', '{"T": 2}'], "dump": ["d", "c"],
                "sequence": ["1", "0"], "layer": [0, 3, 1], "kv_head": [0, 1, numpy.nan], "seed": [None, 7, 5]}
        for rows in (1, 40, 3000):
            frame = pandas.DataFrame({
                name: [values[i] for i in draws.integers(0, len(values), rows)]
                for name, values in kept.items()})
            frame.loc[0, "status"] = "ok"
            frame["m"] = numpy.where(draws.random(rows) < 0.9, draws.random(rows), numpy.nan)
            for by in ([], ["kv_head"], ["layer", "sequence"]):
                group = [*by, "algorithm", "label", "point"]
                ok = frame[in_common(frame, "m", by)].copy()
                ok["seed"] = ok["seed"].fillna(-1)
                unit = [*group, *(name for name in UNIT if name not in by)]
                units = ok.groupby(unit, dropna=False)["m"].mean()
                units = units.groupby(level=group, dropna=False)
                # Seeds are compared over the units that have every seed.
                every = ok.groupby(group, dropna=False)["seed"].transform("nunique")
                spread = ok["m"].where(ok.groupby(unit, dropna=False)["m"].transform("count") >= every)
                seeds = spread.groupby([ok[name] for name in (*group, "seed")], dropna=False).mean()
                expected = units.mean().to_frame()
                expected["m.std_over_seeds"] = seeds.groupby(level=group, dropna=False).std(ddof=0)
                expected["units"] = units.size()
                expected["seeds"] = ok.groupby(group, dropna=False)["seed"].nunique()
                expected["cells"] = ok.groupby(group, dropna=False).size()
                found = mean_of(frame, ["m"], by)
                self.assertTrue((found["has"] <= found["asked"]).all())
                pandas.testing.assert_frame_equal(found.drop(columns=["has", "asked"]), expected.reset_index(),
                                                  check_exact=True)

    def test_memory_asked_for_and_an_axis_of_tokens_keep_settings_apart(self):
        cells = [cell("window", {"budget": {"memory": part}}, part, part) for part in (0.25, 0.5)]
        frame = load_results(self.write(document(cells)))
        self.assertEqual(list(frame["params.budget.memory"]), [0.25, 0.5])
        self.assertEqual(list(with_params(frame[["point"]])["params.budget.memory"]), [0.25, 0.5])
        cells = [cell("window", {"budget": 8}, tokens / 100, 0.5) for tokens in (64, 96)]
        for each, tokens in zip(cells, (64, 96)):
            each["key"]["tokens"] = tokens
        made = document(cells)
        self.assertEqual(list(mean_over_units(load_results(self.write(made)), [METRIC])[METRIC]),
                         [0.8])  # sequences of two lengths
        made["config"] = {"select": {"tokens": [64, 96]}}
        table = mean_over_units(load_results(self.write(made)), [METRIC])
        self.assertEqual(list(with_params(table)["params.tokens"]), [64, 96])
        self.assertEqual(list(table[METRIC]), [0.64, 0.96])

    def test_the_report_says_which_rows_were_scored(self):
        for rows, words in (("all", "every decoded row"), ({"every": 4}, "every 4th decoded row"),
                            ({"last": 64}, "last 64 rows"), ([8, 9, 40], "3 chosen rows")):
            one = cell("window", {}, 0.2, 0.5)
            one["key"]["rows"] = rows
            dumps = [{"path": "d.h5", "fingerprint": "d", "model": "made", "n_layers": 1}]
            text = sections.what_ran(Results(self.write({**document([one]), "dumps": dumps})))
            heads = re.findall(r'<th scope="col">(.*?)</th>', text)
            fields = re.findall(r"<td>(.*?)</td>", text)
            self.assertEqual(dict(zip(heads, fields))["scored"], words)

    def test_captions_name_what_is_not_drawn(self):
        cells = [cell("uniform", {"T": t}, 0.1, 0.5) for t in (1, 2)]
        cells += [cell("window", {}, 0.2, 0.5), cell("exact", {}, 1e-17, 1.0)]
        frame = load_results(self.write(document(cells)))
        drawn = frame[frame["label"] == "window"]
        self.assertEqual(undrawn(frame, frame, "no T"), "")
        self.assertEqual(undrawn(frame, drawn, "too far"),
                         " Not drawn, too far: uniform (2 of 2 settings), exact.")
        self.assertEqual(undrawn(frame, drawn, "too far", METRIC),
                         " Not drawn, too far: uniform (2 of 2 settings)."
                         " Not drawn, exact to rounding: exact.")
        some = frame[(frame["label"] == "window") | (frame["params.T"] == 1)]
        self.assertEqual(undrawn(frame, some, "too far"),
                         " Not drawn, too far: uniform (1 of 2 settings), exact.")

    def test_unequal_seeds_weigh_units_equally(self):
        cells = [cell("uniform", {}, 1, 0.5, kv_head=0, seed=s) for s in range(3)]
        cells.append(cell("uniform", {}, 5, 0.5, kv_head=1, seed=0))
        table = mean_over_units(load_results(self.write(document(cells))), [METRIC])
        self.assertAlmostEqual(table[METRIC][0], 3.0)

    def test_foreign_files_are_refused_with_their_name(self):
        for content, words in (("{", "is truncated"), ("{,}", "invalid JSON"), ("[1]", "kind"), ({"kind": "other"}, "kind"),
                               (dict(sweep(), schema_version="2.0.0"), "schema version 2.0.0")):
            with self.assertRaisesRegex(ResultsError, words) as raised:
                load_results(self.write(content))
            self.assertIn("results.json", str(raised.exception))
        with self.assertRaisesRegex(ResultsError, "none.json: no such file; `kvbench run`"):
            load_results(self.folder / "none.json")
        (self.folder / "results.json").unlink()
        with self.assertRaisesRegex(ResultsError, "is a folder; .* as results.json"):
            load_results(self.folder)

    def test_a_folder_is_the_file_in_it(self):
        path = self.write(sweep())
        pandas.testing.assert_frame_equal(load_results(path.parent), load_results(path))
        self.assertEqual(Results(path.parent).path, path)

    def test_files_that_are_no_json_are_called_what_they_are(self):
        path = self.folder / "results.json"
        whole = json.dumps(sweep())
        for content, words in ((b"", "is empty"), (b"\x89HDF\r\n\x1a\n", "is an HDF5 file"),
                               (whole[:700].encode(), "is truncated"),
                               (b"hello", "invalid JSON")):
            path.write_bytes(content)
            with self.assertRaisesRegex(ResultsError, f"results.json: {words}.*`kvbench run` writes"):
                load_results(path)

    def test_what_is_misspelt_is_named_with_what_was_meant(self):
        frame = load_results(self.write(sweep()))
        for column, words in (("errors.relative_l2.maen", "did you mean errors.relative_l2.mean"),
                              ("errors.relative_l2", "did you mean errors.relative_l2.mean or"),
                              ("nonsense", "no cell has nonsense$")):
            with self.assertRaisesRegex(ResultsError, words):
                mean_over_units(frame, [METRIC, column])
        with self.assertRaisesRegex(ResultsError, "no cell has laier"):
            mean_over_units(frame, [METRIC], ["laier"])
        pandas.testing.assert_frame_equal(mean_over_units(frame, METRIC, "layer"),
                                          mean_over_units(frame, [METRIC], ["layer"]))
        results = str(self.write(sweep()))
        self.assertIn("no finished cell has errors.relative_l2.maen; did you mean "
                      "errors.relative_l2.mean?",
                      self.refused("error_vs_memory", "--results", results, "--metric",
                                   "errors.relative_l2.maen", "--out", self.folder))
        self.assertIn("did you mean pareto?", self.refused("paretto", "--results", results))

    def test_no_fault_is_told_in_the_words_of_errno(self):
        results, taken = self.write(sweep()), self.folder / "taken"
        taken.write_text("")
        for words, arguments in (
                ("none.json: no such file", ("error_vs_memory", "--results", "none.json",
                                                      "--out", self.folder)),
                ("none.h5: no such file", ("tsne", "--dump", "none.h5", "--out", self.folder)),
                ("taken: cannot be read; expected a dump", ("tsne", "--dump", taken, "--out", self.folder)),
                ("none.csv: no such file", ("table", "none.csv", "--rows", "a", "--value",
                                                     "b")),
                ("taken: cannot be written, there can be no such file or folder; choose another --out",
                 ("error_vs_memory", "--results", results, "--out", taken))):
            said = self.refused(*arguments)
            self.assertIn(words, said)
            self.assertNotIn("rrno", said)
            self.assertEqual(said.count("\n"), 1)

    def refused(self, *arguments):
        """The message for a command line that ends with 2."""
        with contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                code = main([str(word) for word in arguments])
            except SystemExit as end:
                code = end.code
        self.assertEqual(code, 2, said.getvalue())
        return said.getvalue()

    def table(self, *arguments):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(main(["table", *map(str, arguments)]), 0)
        return said.getvalue().splitlines()

    def test_table_of_a_csv_and_of_a_result(self):
        csv = self.folder / "numbers.csv"
        csv.write_text("label,layer,x\na_b,0,1\na_b,0,4\na_b,1,2\nc,0,5\nc,1,7\nd,0,9\n")
        self.assertEqual(self.table(csv, "--rows", "label", "--value", "x"),
                         ["| label | x |", "|---|---|", "| a_b | 2.33 |", "| c | 6 |", "| d | 9 |"])
        # Several values of one column: rows with any of them. One value has no spread.
        chosen = ("--rows", "label", "--columns", "layer", "--value", "x", "--where", "label=a_b",
                  "label=c")
        self.assertEqual(self.table(csv, *chosen, "--pm", "sd"),
                         ["| label | 0 | 1 |", "|---|---|---|", "| a_b | 2.5 ± 2.1 | 2 |",
                          "| c | 5 | 7 |"])
        self.assertEqual(self.table(csv, *chosen, "--pm", "se", "--format", "latex"),
                         [r"\begin{tabular}{lrr}", r"\toprule", r"label & 0 & 1 \\", r"\midrule",
                          r"a\_b & 2.5 $\pm$ 1.5 & 2 \\", r"c & 5 & 7 \\", r"\bottomrule",
                          r"\end{tabular}"])
        self.assertEqual(self.table(csv, *chosen, "--format", "csv"),
                         ["label,0,1", "a_b,2.5,2", "c,5,7"])
        self.assertEqual(self.table(csv, *chosen, "--pm", "se", "--format", "csv")[0],
                         "label,0,1,0 ±,1 ±")
        results = self.write(document([cell("h2o", {}, 0, 0), cell("h2o", {}, 0, 0, status="failed")]))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(len(self.table(results, "--rows", "label", "--value", METRIC)), 3)
        self.assertIn("Left out, failed: 1 of 2 cells (h2o)", said.getvalue())
        partial = self.folder / "partial.csv"
        partial.write_text("label,T,x\nuniform,1,2\nwindow,,3\n")
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(len(self.table(partial, "--rows", "T", "--value", "x")), 3)
        self.assertIn("Left out, no T: 1 of 2 rows (window)", said.getvalue())
        for words, arguments in (
                ("is not a column of numbers", (csv, "--rows", "layer", "--value", "label")),
                ("leave out --of max", (csv, "--rows", "layer", "--value", "x", "--of", "max", "--pm",
                                        "sd"))):
            self.assertIn(words, self.refused("table", *arguments))
        partial.write_text("label,T,R,x\nuniform,1,,2\nwindow,,1,3\n")
        self.assertIn("no row has all of T, R", self.refused("table", partial, "--rows", "T", "R", "--value", "x"))
        for option in (("--digits", "-1"), ("--digits", "x")):
            self.assertIn("from 1 to 17", self.refused("table", csv, "--rows", "label", "--value", "x", *option))
        self.assertIn("from 1 to 10000", self.refused("error_vs_memory", "--results", results, "--out",
                                                      self.folder, "--dpi", "0"))
        csv.write_text("label,x\nexact | K q8_0 V a*b<c,1\n")
        self.assertEqual(self.table(csv, "--rows", "label", "--value", "x")[2], r"| exact \| K q8_0 V a\*b\<c | 1 |")
        self.assertEqual(self.table(csv, "--rows", "label", "--value", "x", "--format", "latex")[4],
                         r"exact \textbar{} K q8\_0 V a*b\textless{}c & 1 \\")
        csv.write_text(",".join(f"column_{place}" for place in range(200)) + "\n" + ",".join(["1"] * 200) + "\n")
        said = self.refused("table", csv, "--rows", "colum_7", "--value", "column_1")
        self.assertIn("did you mean column_7?", said)
        self.assertIn("column_19 and 180 more", said)
        csv.write_text("a,b\n1,2\n1,2,3\n")
        self.assertIn("is not a CSV", self.refused("table", csv, "--rows", "a", "--value", "b"))

    def test_figure_files_and_caption(self):
        out = self.folder / "out"
        path = self.write(sweep())
        self.assertEqual(main(["error_vs_memory", "--results", str(path), "--out", str(out)]), 0)
        self.assertTrue((out / "error_vs_memory.png").read_bytes().startswith(b"\x89PNG"))
        self.assertTrue((out / "error_vs_memory.pdf").read_bytes().startswith(b"%PDF"))
        self.assertIn(b"<svg", (out / "error_vs_memory.svg").read_bytes())
        caption = (out / "error_vs_memory.txt").read_text()
        for words in ("; 6 units (KV heads of layers 0, 1, 15)", "3 seeds", "below the axis: exact (5e-17)",
                      "dilated_window, oracle_topk", "failed: 1 of", "skipped: 1 of"):
            self.assertIn(words, caption)
        table = pandas.read_csv(out / "error_vs_memory.csv")
        self.assertEqual(len(table), 1 + 7 * 4 + 4 + 12)
        exact = table[table["algorithm"] == "exact"].iloc[0]
        self.assertFalse(exact["on_axis"])

    def test_panels_by_layer_split_the_table(self):
        path = self.write(sweep())
        self.assertEqual(main(["error_vs_memory", "--results", str(path), "--out",
                               str(self.folder), "--panels", "layer"]), 0)
        table = pandas.read_csv(self.folder / "error_vs_memory_by_layer.csv")
        self.assertIn("; 2 units (KV heads of layers 0, 1, 15) per layer",
                      (self.folder / "error_vs_memory_by_layer.txt").read_text())
        self.assertEqual(sorted(table["layer"].unique()), [0, 1, 15])
        self.assertTrue(numpy.isfinite(table["errors.relative_frobenius_error"]).all())

    def test_results_without_a_finished_cell_end_with_a_message(self):
        path = self.write(document([cell("h2o", {}, 0, 0, status="skipped", reason="none")]))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(main(["error_vs_memory", "--results", str(path), "--out",
                                   str(self.folder)]), 2)
        self.assertIn("no finished cell (1 skipped); `python -m kvplot report`", said.getvalue())
        path = self.write(document([]))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(main(["error_vs_memory", "--results", str(path), "--out", str(self.folder)]), 2)
        self.assertIn("has no cells; its run or shard computed none", said.getvalue())

    def test_exports_have_every_digit_and_every_name_as_it_is(self):
        sweep_file = self.folder / "sweep.json"
        sweep_file.write_text(json.dumps({
            "schema_version": 1, "name": "csv", "dumps": [str(ROOT / "data/clusterable.h5")],
            "select": {"tokens": 128}, "algorithms": [
                {"algorithm": "window", "params": {"budget": [3, 5, 9, 17]}, "label": "=1+1"},
                {"algorithm": "h2o", "params": {"budget": [3, 5, 9, 17]}, "label": "@b"}]}))
        results = self.folder / "out" / "results.json"
        text = {}
        for name, command in (("", ["run", "--config", sweep_file, "--out", results.parent, "--quiet"]),
                              ("csv", ["export", "--results", results, "--format", "csv"]),
                              ("jsonl", ["export", "--results", results, "--format", "jsonl"])):
            done = subprocess.run([PROGRAM, *map(str, command)], capture_output=True, check=True)
            text[name] = io.StringIO(done.stdout.decode())
        cells = load_results(results)
        for table in (pandas.read_csv(text["csv"], dtype=str),  # as configs/RESULTS.md says
                      pandas.read_json(text["jsonl"], lines=True, precise_float=True)):
            self.assertEqual(list(table["label"]), list(cells["label"]))
            for column in (METRIC, "errors.kl_divergence.max", "mass.kept.p99"):
                self.assertEqual(list(table[column].astype(float)), list(cells[column]), column)

    def test_means_are_those_of_the_programs_own_summary(self):
        out = self.folder / "run"
        run = subprocess.run(
            [PROGRAM, "run", "--config", str(ROOT / "configs/quick.json"), "--out", str(out),
             "--set", "/select/tokens=512", "--only", "uniform/*/*/*/*", "--only", "h2o/*/*/*/*",
             "--quiet"], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        names = ["relative_l2.mean", "relative_frobenius_error", "epsilon_spectral.max"]
        table = mean_over_units(load_results(out / "results.json"),
                                [f"errors.{name}" for name in names] + ["memory.fraction"])
        table = table.set_index(["label", "point"])
        summary = [line for line in read_results(out / "results.json")["summary"]
                   if line["layer"] is None]
        self.assertEqual(len(summary), len(table))
        for line in summary:
            row = table.loc[(line["label"], json.dumps(line["params"], sort_keys=True))]
            for name in names:
                expected = line["errors"][name]
                self.assertAlmostEqual(row[f"errors.{name}"], expected["mean"], delta=1e-12)
                self.assertAlmostEqual(row[f"errors.{name}.std_over_seeds"],
                                       expected["std_over_seeds"], delta=1e-12)
            self.assertAlmostEqual(row["memory.fraction"], line["memory"]["fraction"], delta=1e-12)
        self.assert_intervals_are_the_programs(out / "results.json")

    def assert_intervals_are_the_programs(self, results):
        cells = load_results(results)
        checked = set()
        for line in read_results(results)["summary"]:
            point = json.dumps(line["params"], sort_keys=True)
            units = cells[(cells["label"] == line["label"]) & (cells["point"] == point)]
            if line["layer"] is not None:
                units = units[units["layer"] == line["layer"]]
            units = units.groupby(UNIT)[METRIC].mean().reset_index()
            low, high, level, groups = mean_interval(units, METRIC)
            self.assertEqual(line["ci95_over"], {"level": level, "groups": groups})
            for ours, theirs in zip((low, high), line["errors"]["relative_l2.mean"]["ci95"]):
                self.assertAlmostEqual(ours, theirs, delta=1e-8 * (high - low) + 1e-20)
            checked.add(level)
        self.assertEqual(checked, {"layer", "kv_head"})


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
