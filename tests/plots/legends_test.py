"""Every method has a look of its own; sweeps of many methods and storages are drawn with axes whole, or
refused. Usage: legends_test.py KVBENCH

Exits 77 where a Python package is missing.
"""

import itertools
import json
import re
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
try:
    import numpy
    import pandas
    from called import called
    from kvplot import Results, looks, papers, storages, style
    from kvplot.figure import COLLAPSED, Figure
    from kvplot.figures import settings
    from kvplot.results import ResultsError
    from matplotlib.colors import to_hex
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from made_results import cell, document, traffic

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = None
# Shapes that are taken for one another where they are small.
ALIKE = {"o": "round", "8": "round", "h": "round", "p": "round", "D": "diamond", "d": "diamond"}
CODECS = ("bf16", "fp16", "q8_0", "q5_0", "q5_1", "q4_0", "q4_1", "mxfp4", "nvfp4", "hqq", "kivi", "token",
          "int", "turboquant", "polarquant", "think")


def stored(codecs, methods=("exact", "snapkv", "h2o", "tova", "expected_attention")):
    """A sweep of methods over storages, one setting each; exact without a codec has no error."""
    cells = []
    for place, method in enumerate(methods):
        cells.append(cell(method, {}, 1e-16 if method == "exact" else 0.1 + place, 1.0 - 0.1 * place))
        for at, codec in enumerate(codecs):
            made = cell(method, {}, 0.05 * (1 + at + place), 0.1 + 0.02 * at, label=f"{method} | K {codec} V {codec}")
            made["id"] += codec
            settings = {"codec": codec, **({"bits": 2} if codec in ("kivi", "turboquant") else {})}
            made["key"]["storage"] = {"keys": settings, "values": settings}
            made["memory"] |= {"exact_bytes": 1000, "shared_bytes": 63 if codec == "turboquant" else 0}
            cells.append(made)
    return cells


class Made(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(style.pyplot.close, "all")
        self.folder = Path(folder.name)

    def results(self, cells, **more):
        path = self.folder / "results.json"
        path.write_text(json.dumps(document(cells) | more))
        return path

    def whole(self, figure):
        """The axes keep their place next to and below the legend, which is inside of the figure."""
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=COLLAPSED)
            figure.plot.draw_without_rendering()
        axis = figure.plot.axes[0]
        box = axis.get_position()
        self.assertGreater(box.width, 0.45)
        self.assertGreater(box.height * figure.plot.get_figheight(), 1.5)
        renderer = figure.plot.canvas.get_renderer()
        whole = figure.plot.bbox
        axes = axis.get_window_extent(renderer)
        legends = [*figure.plot.legends, *filter(None, [axis.get_legend()])]
        self.assertEqual(len(legends), 1)
        for legend in legends:
            frame = legend.get_window_extent(renderer)
            self.assertGreaterEqual(frame.x0, whole.x0 - 1)
            self.assertLessEqual(frame.x1, whole.x1 + 1)
            self.assertGreaterEqual(frame.y0, whole.y0 - 1)
            self.assertLessEqual(frame.y1, whole.y1 + 1)
            self.assertFalse(frame.overlaps(axes))


class Looks(Made):
    def test_every_known_method_has_a_look_of_its_own(self):
        self.assertEqual({colour for colour, *_ in looks.LOOK.values()}, set(looks.COLOURS))
        count = len(looks.LOOK)
        self.assertGreater(count, 40)
        self.assertEqual(len({(colour, marker) for colour, marker, _ in looks.LOOK.values()}), count)
        self.assertEqual(len({(colour, line) for colour, _, line in looks.LOOK.values()}), count)

    def test_methods_of_one_colour_have_markers_of_other_shapes(self):
        for one, other in itertools.combinations(looks.LOOK, 2):
            if looks.LOOK[one][0] == looks.LOOK[other][0]:
                markers = [looks.LOOK[name][1] for name in (one, other)]
                self.assertNotEqual(*(ALIKE.get(marker, marker) for marker in markers), (one, other))

    def test_the_page_has_every_marker(self):
        script = (ROOT / "plots/kvplot/report/page/marks.js").read_text()
        known = re.search(r"const MARKERS = {(.*?)^};", script, re.S | re.M)[1]
        known = set(re.findall(r'^  "?([^\s":]+)"?:', known, re.M))
        self.assertEqual({marker for _, marker, _ in looks.LOOK.values()} - known, set())
        self.assertEqual({marker for _, marker in looks._FREE} - known, set())

    def test_an_unknown_method_keeps_its_look_and_has_that_of_no_other(self):
        alone = style.look("mine")
        self.assertEqual(alone, style.look("mine", ["h2o", "theirs", "mine"]))
        known = {(colour, marker) for colour, marker, _ in looks.LOOK.values()}
        many = [f"method {place}" for place in range(60)]
        found = [style.look(name, many) for name in many]
        self.assertEqual(len(set(found)), len(many))
        self.assertEqual(set(found) & known, set())

    def test_no_two_labels_of_a_figure_have_one_colour(self):
        names = [*looks.LOOK][:14]
        table = pandas.DataFrame({"algorithm": [*names, names[3], names[3]], "label": [*names, "b", "c"]})
        found = style.label_colours(table)
        self.assertEqual(len(set(found.values())), 16)
        self.assertEqual(found[names[3]], style.look(names[3], names)[0])
        alike = [name for name in looks.LOOK if looks.LOOK[name][0] == looks.LOOK["uniform"][0]]
        self.assertGreater(len(alike), 1)
        self.assertEqual(len({style.look(name, alike)[0] for name in alike}), len(alike))
        self.assertEqual(style.look("uniform"), looks.LOOK["uniform"][:2])

    def test_labels_in_words(self):
        for name, words in (("exact | K q8_0 V q8_0", "all tokens in q8_0"),
                            ("snapkv | K kivi bits=4 V kivi bits=4: budget memory 0.2",
                             "snapkv in kivi 4 bits, 0.2 of the memory"),
                            ("exact | K int bits=2 per=channel V float", "keys in int 2 bits per channel"),
                            ("exact | K float V kivi", "values in kivi"), ("h2o: budget 128", "h2o, budget 128")):
            self.assertEqual(settings.in_words(name), words)

    def test_the_first_label_has_the_methods_line(self):
        table = pandas.DataFrame({"algorithm": ["quest", "quest", "h2o"], "label": ["quest", "b", "h2o"]})
        lines = {label: line for label, (line, _) in style.variants(table).items()}
        self.assertEqual(lines["quest"], style.LINES[looks.LOOK["quest"][2]])
        self.assertNotEqual(lines["quest"], lines["b"])


class Gallery(unittest.TestCase):
    def test_every_picture_names_its_figure(self):
        page = (ROOT / "plots/GALLERY.md").read_text()
        figure = {name: drawn for name, drawn, *_ in papers.DRAWINGS}
        pictures = re.findall(r"^!\[[^]]*\]\(gallery/(?:\w+/)?(\w+)\.png\)\n(.*\n?.*)", page, re.M)
        self.assertGreater(len(pictures), 50)
        for name, text in pictures:
            figure.setdefault("quick", "error_vs_memory")
            self.assertIn(f"(`kvplot {figure.get(name, name)}`):", text, name)  # a loop's figure has its own name

    def test_every_picture_stands_on_a_page(self):
        gallery = ROOT / "plots/gallery"
        pages = "".join(page.read_text() for page in (ROOT / "README.md", *(ROOT / "plots").glob("*.md")))
        shown = set(re.findall(r"^!\[[^]]+\]\((?:plots/)?gallery/([\w/]+)\.png\)$", pages, re.M))
        self.assertEqual({path.relative_to(gallery).with_suffix("").as_posix() for path in gallery.rglob("*.png")}, shown)


class Storages(Made):
    def test_words_of_a_storage_name_its_bits(self):
        frame = Results(self.results(stored(("kivi", "q4_0")))).ok
        self.assertEqual(storages.of_labels(frame)["h2o | K kivi V kivi"], ("h2o", "K and V kivi 2 bits"))
        self.assertEqual(storages.of_labels(frame)["h2o | K q4_0 V q4_0"], ("h2o", "K and V q4_0"))
        self.assertEqual(storages.of_labels(frame)["h2o"], ("h2o", "float"))
        made = cell("h2o", {}, 0.1, 0.1, label="a | b | K kivi bits=1 rotate=x V q8_0")
        made["key"]["storage"] = {"keys": {"codec": "kivi", "bits": 1}, "values": {"codec": "q8_0"}}
        bar = cell("h2o", {}, 0.1, 0.1, label="mine | yours")
        frame = Results(self.results([made, bar])).ok
        self.assertEqual(list(storages.of_labels(frame).values()),
                         [("a | b", "K kivi 1 bit rotate=x V q8_0"), ("mine | yours", "float")])
        made["label"] = "h2o | K q8_0"
        made["key"]["storage"] = {"keys": {"codec": "q8_0"}, "values": {"codec": "float"}}
        self.assertEqual(list(storages.of_labels(Results(self.results([made])).ok).values()), [("h2o", "K q8_0")])

    def test_dozens_of_labels_leave_the_axes_whole_and_every_point_is_told_apart(self):
        results = Results(self.results(stored(CODECS[:15])))
        for figure, options in (("error_vs_memory", {}), ("storage_map", {})):
            for width in style.WIDTHS:
                with self.subTest((figure, width)), style.width(width):
                    drawn = papers.draw(figure, results, options)
                    self.whole(drawn)
                    points = [line for line in drawn.plot.axes[0].lines if line.get_marker() not in ("None", "")]
                    marks = {(line.get_marker(), to_hex(line.get_color()), to_hex(line.get_markerfacecolor()))
                             for line in points}
                    labels = len(drawn.table) - 1  # all but exact
                    self.assertEqual(len(marks), labels)
                    self.assertIn("exact", drawn.caption)

    def test_a_method_has_its_colour_and_marker_whatever_wrote_it(self):
        drawn = papers.draw("storage_map", Results(self.results(stored(CODECS[:3]))), {})
        names = [text.get_text() for text in drawn.plot.axes[0].get_legend().get_texts()]
        self.assertEqual(names, ["exact", "expected_attention", "h2o", "snapkv", "tova", "float", "K and V bf16",
                                 "K and V fp16", "K and V q8_0"])
        legend = drawn.plot.axes[0].get_legend()  # the name of its handles changed in matplotlib 3.7
        handles = dict(zip(names, getattr(legend, "legend_handles", None) or legend.legendHandles))
        for name in names[:5]:
            self.assertEqual((to_hex(handles[name].get_color()).upper(), handles[name].get_marker()),
                             style.look(name))

    def test_storages_side_by_side_have_one_colour_per_method(self):
        drawn = papers.draw("storage_map", Results(self.results(stored(CODECS[:3]))), {"panels": "storage"})
        axes = drawn.plot.axes
        self.assertEqual([axis.get_title() for axis in axes], ["16 bits", "bf16", "fp16", "q8_0"])
        colours = [[to_hex(line.get_color()) for line in axis.lines if line.get_marker() not in ("None", "")] for axis in axes]
        self.assertEqual([len(set(own)) for own in colours], [4, 5, 5, 5])
        self.assertEqual(len({colour for own in colours for colour in own}), 5)

    def test_lines_are_flat_up_to_the_next_setting(self):
        cells = stored(("q8_0", "q4_0"), methods=("h2o",))
        drawn = papers.draw("storage_map", Results(self.results(cells)), {})
        steps = [line for line in drawn.plot.axes[0].lines if line.get_drawstyle() == "steps-post"]
        self.assertEqual(len(steps), 4)  # all, float, two codecs
        numpy.testing.assert_allclose(steps[0].get_xdata(), [0.1, 1.0])
        numpy.testing.assert_allclose(steps[0].get_ydata(), [0.05, 0.05])

    def test_what_codecs_keep_beside_the_memory_is_said(self):
        drawn = papers.draw("storage_map", Results(self.results(stored(("q8_0", "turboquant")))), {})
        self.assertIn("K and V turboquant 2 bits 0.063. ", drawn.caption)
        drawn = papers.draw("storage_map", Results(self.results(stored(("q8_0", "q4_0")))), {})
        self.assertNotIn("Not counted", drawn.caption)

    def test_too_many_storages_are_refused_with_a_remedy_that_works(self):
        results = self.results(stored(CODECS))
        for figure in ("error_vs_memory", "storage_map"):
            code, said = called(figure, "--results", results, "--out", self.folder / "none")
            self.assertEqual((code, said.count("\n")), (2, 1))
            self.assertIn("17 storages in one figure are unreadable: choose at most 16 with --labels", said)
            self.assertFalse((self.folder / "none").exists())
            code, said = called(figure, "--results", results, "--out", self.folder / "out", "--labels", "*q8_0*",
                                "*nvfp4*", "h2o")
            self.assertEqual((code, said), (0, ""))
        table = pandas.read_csv(self.folder / "out/storage_map.csv")
        self.assertEqual(set(table["storage"]), {"float", "K and V q8_0", "K and V nvfp4"})
        code, said = called("storage_map", "--results", results, "--out", self.folder, "--labels", "h2oo")
        self.assertEqual(code, 2)
        self.assertIn("no label matches 'h2oo'; did you mean h2o?", said)


class Legends(Made):
    def test_many_methods_are_drawn_with_axes_whole_and_hundreds_refused(self):
        for count in (40, 400):
            cells = [cell("h2o", {"budget": b}, 0.1 + 0.01 * at, 0.1 * b, label=f"a setting of a long name {at}")
                     for at in range(count) for b in (1, 2)]
            results = Results(self.results(cells))
            for width in style.WIDTHS:
                with self.subTest((count, width)), style.width(width):
                    if count == 40:
                        self.whole(papers.draw("error_vs_memory", results, {}))
                        continue
                    with self.assertRaisesRegex(ResultsError, "legend of 400 entries is unreadable: .*--labels"):
                        papers.draw("error_vs_memory", results, {})

    def test_axes_without_room_are_an_error_and_nothing_is_written(self):
        with style.width("column"):
            plot, axes = style.panels(1, 1, 1.0)
        axes[0][0].set_yticks([0.5], ["a label that is wider than the whole figure is, however one sees it" * 2])
        out = self.folder / "out"
        with self.assertRaisesRegex(ResultsError, "labels leave the axes no room: .*--labels"):
            Figure("made", plot, pandas.DataFrame(), "caption").save(out)
        self.assertEqual(list(out.iterdir()), [])
        self.assertEqual(style.pyplot.get_fignums(), [])

    def test_labels_choose_records_of_whole_layers_too(self):
        layers = []
        for name in ("h2o", "uniform"):
            for layer in (0, 1):
                record = cell(name, {}, 0.1, 0.5, layer=layer)
                record["errors"] = {"relative_output_l2": {"mean": 0.1}}
                del record["key"]["kv_head"]
                layers.append(record)
        results = self.results([cell(name, {}, 0.1, 0.5) for name in ("h2o", "uniform", "exact")], layers=layers)
        for patterns, left in (([], {"h2o", "uniform"}), (["--labels", "h2o"], {"h2o"})):
            self.assertEqual(called("layer_impact", "--results", results, "--out", self.folder, *patterns), (0, ""))
            self.assertEqual(set(pandas.read_csv(self.folder / "layer_impact.csv")["label"]), left)

    def test_captions_count_in_singular(self):
        cells = [cell("uniform", {"T": t}, 0.1, 0.5 / t, seed=0) for t in (1, 2)]
        drawn = papers.draw("error_vs_memory", Results(self.results(cells)), {})
        self.assertIn("1 unit (KV heads of layer 0); 1 seed for randomised algorithms.", drawn.caption)

    def test_a_bar_that_is_cut_is_said_to_be(self):
        for errors, words in (((0.1, 0.1001, 0.1002), False), ((0.001, 0.001, 10.0), True)):
            cells = [cell("uniform", {"T": t}, error, 0.5 / t, seed=seed) for t in (1, 2)
                     for seed, error in enumerate(errors)]
            results = Results(self.results(cells))
            for figure in ("error_vs_memory", "balancekv_layers"):
                drawn = papers.draw(figure, results, {})
                self.assertEqual("cut at a tenth of the mean" in drawn.caption, words, figure)

    def test_a_caption_says_how_lines_and_memory_are_meant(self):
        cells = [cell("subgen", {"t": t, "s": s}, 1 / (t * s), 1.0 + 0.1 * t * s) for t in (1, 2) for s in (1, 2)]
        cells += [cell("h2o", {"budget": b}, 1 / b, 0.1 * b) for b in (1, 2)]
        drawn = papers.draw("error_vs_memory", Results(self.results(cells)), {})
        self.assertIn(" subgen: all settings faint, the line is the least error for at most that memory. At memory 1 or "
                      "more, where nothing is saved: subgen.", drawn.caption)
        self.assertNotIn("storages", drawn.caption)
        cells[0]["key"]["params"]["sinks"], cells[-1]["key"]["params"]["recent_fraction"] = 32, 0.3
        for figure in ("error_vs_memory", "error_vs_traffic"):
            for made in cells:
                made["traffic"] = traffic(made["memory"]["fraction"])
            drawn = papers.draw(figure, Results(self.results(cells)), {})
            self.assertIn(" Always kept: h2o 0.3 of the budget recent; subgen 32 sinks. ", drawn.caption)
        drawn = papers.draw("error_vs_memory", Results(self.results(stored(("q8_0", "q4_0")))), {})
        self.assertIn(" Markers and their edges: methods; filling and dashes: storages. ", drawn.caption)

    def test_a_reader_that_stops_reading_is_no_fault(self):
        results = self.results([cell("h2o", {"budget": b}, 0.1, 0.1, label=str(b)) for b in range(9000)])
        table = subprocess.Popen(
            [sys.executable, "-m", "kvplot", "table", str(results), "--rows", "label", "--value", "memory.fraction"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        table.stdout.readline()
        table.stdout.close()
        self.assertEqual(table.stderr.read(), "")
        table.stderr.close()
        self.assertEqual(table.wait(), 0)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
