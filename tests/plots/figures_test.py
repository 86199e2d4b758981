"""Every figure of the papers is drawn, from runs of the shipped sweeps made small, and what figures
compute themselves is held against the program. Usage: figures_test.py KVBENCH

Exits 77 where a Python package is missing.
"""

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parent))
try:
    import numpy
    import pandas
    from kvplot import Results, figures, looks, papers, style
    from kvplot.__main__ import main
    from kvplot.dump import Dump
    from kvplot.figures import bytes_per_token, displacement, rotation, score_bars, tsne
    from kvplot.inspection import Inspection
    from matplotlib.text import Text
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


ROOT = Path(__file__).resolve().parents[2]
DUMP = ROOT / "data/smollm2-constitution.h5"
SWEEPS = [*sorted((ROOT / "configs/figures").glob("*.json")), ROOT / "configs/field.json"]
PROGRAM = None
# Small enough for seconds, large enough that no sweep loses all of its cells.
SMALL = {"/select/tokens": 1024, "/select/kv_heads": [0], "/seeds": [0, 1],
         "/evaluate/rows": {"every": 32}, "/select/layers": [0, 15]}
# Sweeps that score one row, of two dumps, the second with one layer.
ONE_ROW = {"/select/tokens": 512, "/select/layers": [0], "/seeds": [0, 1]}
KEPT = {"subgen_failure_rate": ONE_ROW, "tightness": ONE_ROW,
        "kept_sets": {"/select/tokens": 512, "/select/layers": [0, 15]},
        "balancekv_cells": {"/select/tokens": 512, "/select/layers": [0, 15]},  # every row is scored
        "bytes_per_token": {"/select/tokens": [256, 512], "/select/kv_heads": [0], "/select/layers": [0]},
        "scaling": {"/select/tokens": [256, 512], "/select/kv_heads": [0], "/seeds": [0, 1]},
        "methods": {"/select/kv_heads": [0], "/select/layers": [0, 15], "/seeds": [0, 1],
                    "/evaluate/rows": {"every": 32}},
        # Cache files are of the whole sequence and its default prompt.
        "kvpress": {"/seeds": [0, 1], "/evaluate/rows": {"every": 32}},
        "error_vs_position": {"/select/kv_heads": [0], "/select/layers": [0, 15],
                              "/evaluate/rows": {"every": 16}}}


def kvbench(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_small(config, out, *others):
    """The shipped dump, and others."""
    settings = dict(KEPT.get(config.stem, SMALL))
    if others:
        settings["/dumps"] = [str(DUMP), *map(str, others)]
    kvbench("run", "--config", config, "--out", out, "--quiet",
            *(word for pointer, value in settings.items()
              for word in ("--set", f"{pointer}={json.dumps(value)}")))


class Real(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="kvbench-figures-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        kvbench("synth", "rope", "--tokens", 2048, "--layers", 16, "--kv-heads", 1, "--d", 8, "--out",
                cls.folder / "other.h5")
        for config in SWEEPS:
            other = () if config.stem != "methods" else (cls.folder / "other.h5",)
            run_small(config, cls.folder / config.stem, *other)
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
                         set())
        self.assertEqual(set(figures.NAMES) - {entry[1] for entry in papers.DRAWINGS},
                         {"error_vs_memory",  # the demo's
                          "layer_impact",  # the shipped dump has no output projection
                          # of closed loops: loop_test.py
                          "error_vs_kld", "quality", "rank_agreement", "held_out", "pairs", "kld_by_layer"})

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
                self.assertIn("svg", ElementTree.parse(out.with_suffix(".svg")).getroot().tag)
                caption = out.with_suffix(".txt").read_text()
                self.in_words(caption)
                # A cache file knows its sequence and not the model.
                self.assertIn("constitution" if name in ("kept", "survival", "occupancy") else
                              "SmolLM2-135M-Instruct-Q4_1", caption)
                self.assertRegex(caption, r"\d+ tokens|n 2048")
                self.assertRegex(caption, r"seed|no random numbers|KV heads of layers")
                self.assertLess((gallery / f"{name}.png").stat().st_size, 100_000)
        page = (self.folder / "out/index.html").read_text()
        self.assertEqual(re.findall(r'<img src="(\w+)\.svg" alt="[^"]', page),
                         [entry[0] for entry in papers.DRAWINGS if entry[0] in names])
        self.assertEqual(page.count('<a href="#'), 2 * len(names))
        drawn = "0 figures drawn" if len(names) == len(papers.DRAWINGS) else "not drawn"
        self.assertIn(drawn, self.papers("--gallery", str(gallery)))

    def in_words(self, caption):
        """Neither names of a program nor paths into JSON, except names that users give."""
        labels = {label.split(" | ")[0] for label in Results(self.folder / "field/results.json").frame["label"]}
        for name in sorted(["SmolLM2-135M-Instruct-Q4_1", *labels, *looks.LOOK], key=len, reverse=True):
            caption = caption.replace(name, "")
        self.assertNotIn("_", caption)
        self.assertNotRegex(caption, r"[a-z]\.[a-z]|\bnan\b")

    def test_all_are_legible_in_one_column(self):
        for name, figure, reads, options in papers.DRAWINGS:
            if name == "tsne" and find_spec("sklearn") is None:
                continue
            path, _, kind = papers.source(figure, reads, self.folder, self.inspection, DUMP)
            with self.subTest(name), style.width("column"):
                drawn = papers.draw(figure, kind(path), options)
                drawn.save(self.folder / "column", endings=(".png",))
                plot = drawn.plot
                self.assertEqual(plot.get_figwidth(), style.COLUMN)
                self.assertLess(plot.get_figheight(), 9.5)
                least = min(text.get_fontsize() for text in plot.findobj(Text) if text.get_text())
                self.assertGreaterEqual(least, 6)
                box = plot.get_tightbbox(plot.canvas.get_renderer())
                self.assertGreaterEqual(box.x0, -0.05)
                self.assertLessEqual(box.x1, style.COLUMN + 0.05)
                self.assertGreaterEqual(box.y0, -0.05)
                self.assertLessEqual(box.y1, plot.get_figheight() + 0.05)

    def test_exact_attention_reads_every_token_that_it_sees(self):
        table = bytes_per_token.of_caches(Results(self.folder / "bytes_per_token/results.json"))
        exact = table[table["label"] == "exact"].set_index("params.tokens")["KiB"]
        for tokens in (256, 512):  # rows tokens / 2 to tokens - 1, 64 + 64 numbers of 2 bytes a token
            seen = sum(range(tokens // 2 + 1, tokens + 1)) / (tokens // 2)
            self.assertAlmostEqual(exact[tokens], seen * 128 * 2 / 1024, places=9)
        window = table[table["label"] == "streaming_llm"].set_index("params.tokens")["KiB"]
        self.assertAlmostEqual(window[512], 128 * 128 * 2 / 1024, places=9)  # its budget, whatever n

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
                                 str(self.folder / "keyformer_fig4/results.json"), "--out",
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

    def test_clusters_of_stored_keys_are_those_of_the_program(self):
        dump = Dump(DUMP)
        for key, _, head in Inspection(self.inspection).heads[::4]:
            apart = rotation.distances(dump.head(key["layer"], "k", key["kv_head"]))
            for at in head["keys"]["clustering"][::3]:
                counts = rotation.clusters(apart, at["delta"])
                self.assertEqual([counts[n - 1] for n, _ in at["growth"]],
                                 [clusters for _, clusters in at["growth"]], key)

    def test_displacement_is_the_distance_of_kept_and_evicted_answers(self):
        out = self.folder / "evicted"
        kvbench("run", "--config", ROOT / "configs/figures/keyformer_fig4.json", "--out", out,
                "--quiet", "--set", "/select/layers=[1]", "--set", "/select/kv_heads=[2]", "--set",
                '/algorithms=[{"algorithm": "window", "params": {"budget": 512}}]',
                "--set", '/evaluate={"rows": {"last": 1}}')
        dump = Dump(DUMP)
        weights = score_bars.scores(dump, 1, 2, [2047])[:, 0]
        values = dump.head(1, "v", 2)
        rho = weights[:, -512:].sum(axis=1, keepdims=True)
        keep = weights[:, -512:] @ values[-512:] / rho
        evict = weights[:, :-512] @ values[:-512] / (1 - rho)
        apart = numpy.linalg.norm(keep - evict, axis=1) / numpy.linalg.norm(weights @ values, axis=1)
        table = displacement.parts(Results(out / "results.json"), 0.35, 512)
        self.assertAlmostEqual(table["displacement"][0], numpy.exp(numpy.log(apart).mean()), places=6)
        self.assertAlmostEqual(table["lost"][0], numpy.exp(numpy.log(1 - rho).mean()), places=6)

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


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
