"""Every figure of the papers is drawn, from runs of the shipped sweeps made small, and what figures
compute themselves is held against worked cases and the program. Usage: figures_test.py KVBENCH

Exits 77 where a Python package is missing.
"""

import contextlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
try:
    import h5py
    import numpy
    import pandas
    from kvplot import Results, figures, papers, style
    from kvplot.__main__ import main
    from kvplot.dump import Dump
    from kvplot.figures import (clusterability, ecdf, failure_rate, forest, score_bars,
                                subgen_attribution, tsne)
    from kvplot.inspection import Inspection
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from made_results import cell, document

ROOT = Path(__file__).resolve().parents[2]
DUMP = ROOT / "data/smollm2-constitution.h5"
SWEEPS = sorted((ROOT / "configs/figures").glob("*.json"))
PROGRAM = None
# Small enough for seconds, large enough that no sweep loses all of its cells.
SMALL = {"/select/tokens": 1024, "/select/kv_heads": [0], "/seeds": [0, 1],
         "/evaluate/rows": {"every": 32}, "/select/layers": [0, 15]}
# Sweeps that score one row, of two dumps, the second with one layer.
KEPT = {"subgen_failure_rate": {"/select/tokens": 512, "/select/layers": [0], "/seeds": [0, 1]},
        "error_vs_position": {"/select/kv_heads": [0], "/select/layers": [0, 15],
                              "/evaluate/rows": {"every": 16}}}


def kvbench(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_small(config, out):
    settings = KEPT.get(config.stem, SMALL)
    kvbench("run", "--config", config, "--out", out, "--quiet",
            *(word for pointer, value in settings.items()
              for word in ("--set", f"{pointer}={json.dumps(value)}")))


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

    def test_at_memory_takes_the_nearest_setting_of_each_label(self):
        cells = [cell("h2o", {"budget": b}, 1 / b, b / 100) for b in (10, 30, 60)]
        cells += [cell("window", {"budget": 1}, 1.0, 0.9), cell("exact", {}, 1e-16, 0.35)]
        points = ecdf.at_memory(self.results(cells), 0.35)
        self.assertEqual(list(points["point"]), ['{"budget": 30}'])
        self.assertEqual(ecdf.left_out(self.results(cells), points, 0.35),
                         " Not drawn, no setting near memory 0.35: window."
                         " Not drawn, exact to rounding: exact.")

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

    def test_failures_are_counted_per_stream_with_exact_intervals(self):
        # Clopper and Pearson: 0 of n has the upper limit 1 - 0.025^(1/n).
        self.assertEqual(failure_rate.clopper_pearson(0, 10)[0], 0.0)
        self.assertAlmostEqual(failure_rate.clopper_pearson(0, 10)[1], 1 - 0.025 ** 0.1)
        low, high = failure_rate.clopper_pearson(5, 10)
        self.assertAlmostEqual(low, 0.18709, places=5)
        self.assertAlmostEqual(low + high, 1.0)
        cells = [cell("subgen", {"s": 4}, 1.0, 0.5, seed=seed, derived={"vacuous": False},
                      errors={"epsilon_spectral": {"last": last}})
                 for seed, last in enumerate((0.1, 0.2, 0.3, 0.4))]
        table = failure_rate.rates(self.results(cells).ok, [0.05, 0.2, 0.5])
        self.assertEqual(list(table["failures"]), [4, 2, 0])
        self.assertEqual(set(table["seeds"]), {4})

    def test_farthest_first_on_a_line(self):
        points = numpy.array([[0.0], [1.0], [10.0], [6.0], [10.0]])
        self.assertEqual(tsne.farthest_first(points, 4), [0, 2, 3, 1])
        self.assertEqual(tsne.farthest_first(points, 9), [0, 2, 3, 1, 4])

    def test_exponents_are_those_of_a_power_law(self):
        table = pandas.DataFrame({
            "sequence": "a", "layer": 0, "kv_head": 0, "of": "keys", "delta_quantile": 0.05,
            "curve": "growth", "x": [64, 128, 256, 512], "y": [9, 128 ** 0.5, 16, 512 ** 0.5]})
        self.assertAlmostEqual(clusterability.exponents(table)["exponent"][0], 0.5)

    def test_no_two_algorithms_look_alike_and_labels_of_one_differ_in_line(self):
        looks = [style.look(name) for name in style._LOOK]
        self.assertEqual(len(looks), len(set(looks)))
        table = pandas.DataFrame({"algorithm": ["h2o", "h2o", "uniform"],
                                  "label": ["h2o", "h2o, released", "uniform"]})
        variants = style.variants(table)
        self.assertNotEqual(variants["h2o"], variants["h2o, released"])
        self.assertEqual(variants["h2o"], variants["uniform"])


class Real(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="kvbench-figures-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for config in SWEEPS:
            run_small(config, cls.folder / config.stem)
        cls.inspection = cls.folder / "inspection.json"
        cls.inspection.write_text(kvbench("inspect", DUMP, "--json"))

    def papers(self, *more):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = main(["papers", "--runs", str(self.folder), "--inspection",
                         str(self.inspection), "--dump", str(DUMP), "--out",
                         str(self.folder / "out"), *more])
        self.assertEqual(code, 0, said.getvalue())
        return said.getvalue()

    def test_every_sweep_has_a_drawing_and_every_figure_a_place(self):
        self.assertEqual({path.stem for path in SWEEPS} - {entry[2] for entry in papers.DRAWINGS},
                         {"subgen_clusters",  # its trajectory is inspect's `growth`
                          "keyformer_fig4"})  # score_bars holds its kept mass against the program's
        self.assertEqual(set(figures.NAMES) - {entry[1] for entry in papers.DRAWINGS},
                         {"error_vs_memory"})  # the demo's

    def test_all_are_drawn_once_with_numbers_and_caption(self):
        gallery = self.folder / "gallery"
        said = self.papers("--gallery", str(gallery))
        names = {entry[0] for entry in papers.DRAWINGS}
        if "not drawn" in said:
            self.assertIn("tsne: not drawn", said)
            print("skipped: t-SNE, scikit-learn is missing", file=sys.stderr)
            names.remove("tsne")
        self.assertEqual(said.count(": not drawn"), len(papers.DRAWINGS) - len(names))
        for name in names:
            with self.subTest(name):
                out = self.folder / "out" / name
                self.assertTrue(out.with_suffix(".png").read_bytes().startswith(b"\x89PNG"))
                self.assertTrue(out.with_suffix(".pdf").read_bytes().startswith(b"%PDF"))
                self.assertGreater(len(pandas.read_csv(out.with_suffix(".csv"))), 1)
                caption = out.with_suffix(".txt").read_text()
                self.assertIn("SmolLM2-135M-Instruct-Q4_1", caption)
                self.assertRegex(caption, r"\d+ tokens|n 2048")
                self.assertRegex(caption, r"seed|no random numbers|KV heads of layers")
                self.assertLess((gallery / f"{name}.png").stat().st_size, 100_000)
        drawn = "0 figures drawn" if len(names) == len(papers.DRAWINGS) else "not drawn"
        self.assertIn(drawn, self.papers("--gallery", str(gallery)))

    def test_layers_narrow_a_figure_and_unknown_ones_are_named(self):
        results = self.folder / "keyformer_table4/results.json"
        out = self.folder / "narrow"
        self.assertEqual(main(["noise", "--results", str(results), "--out", str(out),
                               "--layers", "15"]), 0)
        self.assertEqual(set(pandas.read_csv(out / "noise.csv")["layer"]), {15})
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(main(["noise", "--results", str(results), "--out", str(out),
                                   "--layers", "3"]), 2)
        self.assertIn("no layer 3", said.getvalue())

    def test_a_sweep_that_does_not_fit_ends_with_a_message(self):
        for figure in figures.NAMES:
            if figures.module(figure).NEEDS != ("results",):
                continue
            with self.subTest(figure):
                said = io.StringIO()
                with contextlib.redirect_stderr(said):
                    code = main([figure, "--results",
                                 str(self.folder / "subgen_clusters/results.json"), "--out",
                                 str(self.folder / "unfit")])
                self.assertIn(code, (0, 2))
                if code == 2:
                    self.assertIn("results", said.getvalue())

    def test_help_of_every_figure(self):
        for name in ([], *([name] for name in figures.NAMES)):
            with self.subTest(name), contextlib.redirect_stdout(io.StringIO()) as said:
                with self.assertRaises(SystemExit) as ended:
                    main([*name, "--help"])
                self.assertEqual(ended.exception.code, 0)
                self.assertIn("usage", said.getvalue())

    def test_centers_are_those_of_the_program(self):
        dump = Dump(DUMP)
        for key, _, head in Inspection(self.inspection).heads[::4]:
            for kind in ("keys", "values"):
                points = dump.head(key["layer"], kind[0], key["kv_head"])
                self.assertEqual(tsne.farthest_first(points, 64), head[kind]["centers"], key)

    def test_kept_mass_of_the_score_bars_is_that_of_the_program(self):
        out = self.folder / "kept"
        entries = [{"algorithm": "h2o", "params": {"budget": 0.5}},
                   {"algorithm": "h2o", "params": {"budget": 0.3, "recent_fraction": 0.2}},
                   {"algorithm": "key_attention", "params": {"budget": 0.5}}]
        kvbench("run", "--config", ROOT / "configs/figures/keyformer_fig4.json", "--out", out,
                "--quiet", "--set", "/select/layers=[15]", "--set", "/select/kv_heads=[1]", "--set",
                f"/algorithms={json.dumps(entries)}")
        results, dump = Results(out / "results.json"), Dump(DUMP)
        full = score_bars.scores(dump, 15, 1, range(1792, 2048))
        sums = score_bars.scores(dump, 15, 1, range(1792)).sum(axis=1)
        for _, one in results.ok.iterrows():
            budget = int(1792 * one["params.budget"])
            share = one.get("params.recent_fraction")
            recent = 0 if one["algorithm"] == "key_attention" else int(budget * share)
            cut = score_bars.h2o(sums, full, budget, recent)
            expected = results.rows("kept_mass", [one["id"]])["kept_mass"].to_numpy()
            kept = numpy.where(cut > 0, full, 0.0).sum(axis=2)
            numpy.testing.assert_allclose(kept.ravel(), expected, rtol=1e-9, err_msg=one["label"])


class Package(unittest.TestCase):
    def test_it_installs_and_runs_outside_the_repository(self):
        missing = [name for name in ("pip", "setuptools", "wheel") if not find_spec(name)]
        if missing:
            self.skipTest(f"{', '.join(missing)} missing")
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "plots"), Path(folder, "site")
            shutil.copytree(ROOT / "plots", source,
                            ignore=shutil.ignore_patterns("gallery", "__pycache__"))
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
                 "--no-build-isolation", "--target", str(target), str(source)],
                capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue((target / "kvplot/page/page.css").is_file())
            done = subprocess.run([sys.executable, "-m", "kvplot", "report", "--help"],
                                  capture_output=True, text=True, check=False, cwd=folder,
                                  env={"PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"})
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
