"""Actions of a person on the report, done in a headless chromium: search, click, hover, keys.

Usage: report_browser_test.py KVBENCH. Exits 77, with the reason, where a machine lacks chromium, chromium-driver or
python3-selenium, no D3 (Debian: node-d3) or a Python package is missing.
"""

import io
import json
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
try:
    import matplotlib.image
    import numpy
    from kvplot import ResultsError, read_results
    from kvplot.report.d3 import d3
    from kvplot.report.page import page
    from kvplot.results import Results
    d3()
except (ImportError, ResultsError) as error:
    print(f"skipped: {error}")
    sys.exit(77)

import browser
from made_results import cell, document

if browser.MISSING:
    print(f"skipped: {browser.MISSING}")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = None


class InABrowser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory(prefix="kvbench-report-")
        cls.addClassCleanup(made.cleanup)
        cls.folder = Path(made.name)
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)
        cls.path = cls.folder / "report.html"
        cls.make()

    @classmethod
    def run_sweep(cls, name, *options):
        out = cls.folder / name
        run = subprocess.run(
            [PROGRAM, "run", "--config", str(ROOT / "configs/quick.json"), "--out", str(out), "--quiet",
             "--set", "/select/tokens=1024", "--set", "/seeds=[0,1,2]", *options],
            capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        return out / "results.json"

    def setUp(self):
        self.browser.media()
        self.browser.size(1400, 1000)
        self.open()

    def tearDown(self):
        self.assertEqual(self.browser.errors, [])

    def open(self, fragment=""):
        self.browser.open(self.path, fragment)
        self.js = self.browser.run

    def rows(self):
        """Texts of the table's rows."""
        return self.js("[...table.tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent.trim()))")

    def heads(self):
        return self.js("[...table.tHead.rows[0].cells].map(c => c.textContent)")

    def column(self, name):
        place = self.heads().index(name)
        return [row[place] for row in self.rows()]

    def search(self, words):
        self.browser.click("#search")
        self.js("element('search').select()")
        self.browser.type(words)

    def point(self, which):
        """Pixels of a drawn point, in view; `which` is a condition on the index i."""
        self.js("plot.scrollIntoView({block: 'center'})")
        return self.js("(i => { const b = plot.getBoundingClientRect();"
                       "return [b.x + points.px[i], b.y + points.py[i]]; })"
                       f"(d3.range(points.count).find(i => {which}))")


class OneResult(InABrowser):
    @classmethod
    def make(cls):
        cls.results = cls.run_sweep("run")
        cls.document = read_results(cls.results)
        cls.path.write_text(page(Results(cls.results), figures=False), encoding="utf-8")

    def settings(self, label=None):
        return [line for line in self.document["summary"]
                if line["layer"] is None and label in (None, line["label"])]

    def test_means_and_intervals_are_those_of_the_programs_summary(self):
        paths = [path for path in self.js("METRICS") if path.startswith("errors.")]
        self.assertGreater(len(paths), 8)
        compared = 0
        def key(entry):  # the browser's 1.0 comes back as 1
            params = {name: float(value) if type(value) in (int, float) else value
                      for name, value in entry["params"].items()}
            return entry["label"], json.dumps(params, sort_keys=True)

        places = {key(entry): place
                  for place, entry in enumerate(self.js("DATA.settings"))}
        for layer in (None, *self.js("OF_UNITS.layer")):
            for path in paths:
                found = self.browser.call(
                    "(path, layer) => { const m = meansOf(path, {metric: path, hidden: new Set(), layer, head: null, sequence: null});"
                    "const list = a => Array.from(a, v => v === v ? v : null);"
                    "return {mean: list(m.mean), std: list(m.std), low: list(m.low), high: list(m.high),"
                    "over: m.over}; }", path, layer)
                for line in self.document["summary"]:
                    if line["layer"] != layer:
                        continue
                    setting = places[key(line)]
                    theirs = line["errors"][path[len("errors."):]]
                    size = max(map(abs, theirs["ci95"])) + abs(theirs["mean"])
                    for name, value in (("mean", theirs["mean"]), ("std", theirs["std_over_seeds"]),
                                        ("low", theirs["ci95"][0]), ("high", theirs["ci95"][1])):
                        self.assertAlmostEqual(found[name][setting], value, delta=1e-6 * size,
                                               msg=f"{path} {name} {line['label']} {line['params']}")
                        compared += 1
                    self.assertTrue(found["over"][setting].startswith(str(line["ci95_over"]["groups"])))
        self.assertGreater(compared, 5000)

    def test_it_opens_with_a_row_and_a_point_for_every_setting(self):
        self.assertEqual(len(self.rows()), len(self.settings()))
        self.assertEqual(self.js("points.count"), len(self.settings()))
        self.assertEqual(self.heads()[:4], ["method", "parameters", "memory", "relative frobenius error"])

    def test_search_narrows_table_and_scatter(self):
        self.search("h2o")
        self.assertEqual(set(self.column("method")), {"h2o"})
        self.assertEqual(self.js("points.count"), len(self.settings("h2o")))
        self.search("budget=256")
        self.assertEqual(set(self.column("parameters")), {"budget 256"})
        self.search("memory<0.5 error<0.3")
        self.assertTrue(self.rows())
        self.assertTrue(all(float(value) < 0.5 for value in self.column("memory")))
        self.assertTrue(all(float(value) < 0.3 for value in self.column("relative frobenius error")))
        self.search("nosuchword")
        self.assertEqual(self.rows(), [])
        self.search("nosuch<3")
        self.assertEqual(len(self.rows()), len(self.settings()))
        self.assertIn("nothing is called nosuch<3: ignored", self.js("element('chosen').textContent"))

    def test_methods_are_switched_off_and_on(self):
        self.browser.click('#legend [data-label="subgen"]')
        self.assertNotIn("subgen", self.column("method"))
        self.assertEqual(self.js("points.count"), len(self.settings()) - len(self.settings("subgen")))
        self.browser.click('#legend [data-label="subgen"]')
        self.assertIn("subgen", self.column("method"))
        self.js("document.querySelector('#legend [data-label=\"subgen\"]').dispatchEvent("
                "new MouseEvent('click', {shiftKey: true}))")
        self.assertEqual(set(self.column("method")), {"subgen"})
        self.browser.click('#legend [data-label="h2o"]', count=2)
        self.assertEqual(set(self.column("method")), {"h2o"})

    def test_a_heading_sorts_and_a_second_click_turns_the_order(self):
        click = 'th button[data-key="metric"]'
        for falling in (False, True):
            self.browser.click(click)
            values = list(map(float, self.column("relative frobenius error")))
            self.assertEqual(values, sorted(values, reverse=falling))
            self.assertEqual(self.js("document.querySelector('[aria-sort]').ariaSort"),
                             "descending" if falling else "ascending")

    def test_hovering_says_setting_interval_and_a_command_that_repeats_it(self):
        line = self.settings("h2o")[2]
        self.browser.hover(*self.point(
            "labelOf(i) === 'h2o' && DATA.settings[points.id[i]].params.budget === "
            f"{line['params']['budget']}"))
        said = self.js("element('hover').hidden ? '' : element('hover').textContent")
        error = line["errors"]["relative_frobenius_error"]
        for words in ("h2o", f"budget {line['params']['budget']}", f"{error['mean']:.4g}",
                      f"{error['ci95'][0]:.4g} to {error['ci95'][1]:.4g}", "Student's t over 3 layers"):
            self.assertIn(words, said)
        commands = [each["repro"] for each in self.document["cells"]
                    if each["label"] == "h2o" and each["key"]["params"] == line["params"]]
        self.assertIn(self.js("document.querySelector('#hover code').textContent").split(" (")[0],
                      commands)

    def test_a_click_on_a_point_chooses_its_row(self):
        self.browser.click(self.point("labelOf(i) === 'uniform' && points.y[i] > 1e-3"))
        chosen = self.js("[...document.querySelectorAll('tr[aria-selected=true]')].map(r => r.textContent)")
        self.assertEqual(len(chosen), 1)
        self.assertIn("uniform", self.js("element('hover').textContent"))
        row = self.js("(() => { const r = document.querySelector('tr[aria-selected=true]'), b = table.parentNode;"
                      "const y = r.getBoundingClientRect(), box = b.getBoundingClientRect();"
                      "return [y.top - box.top, box.bottom - y.bottom]; })()")
        self.assertGreaterEqual(min(row), -1)  # scrolled to within the table
        self.assertIn("uniform", chosen[0])
        self.assertEqual(self.js("document.querySelectorAll('.marks .chosen').length"), 1)
        self.browser.press("Escape", "Escape")
        self.assertEqual(self.js("document.querySelectorAll('tr[aria-selected=true]').length"), 0)

    def test_a_dragged_range_narrows_until_escape(self):
        box = self.js("(() => { plot.scrollIntoView({block: 'center'});"
                      "const b = plot.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()")
        x, y, width, height = box
        self.browser.drag(x + 0.3 * width, y + 0.2 * height, x + 0.6 * width, y + 0.8 * height)
        some = len(self.rows())
        self.assertTrue(0 < some < len(self.settings()), some)
        self.assertEqual(self.js("points.count"), some)
        self.browser.press("Escape", "Escape")
        self.assertEqual(len(self.rows()), len(self.settings()))

    def test_the_keyboard_reaches_points_and_rows(self):
        self.js("plot.focus()")
        self.browser.press("ArrowRight", "ArrowRight", "ArrowUp")
        self.assertFalse(self.js("element('hover').hidden"))
        self.browser.press("Enter")
        self.assertEqual(self.js("document.querySelectorAll('tr[aria-selected=true]').length"), 1)
        self.browser.press("Escape")
        self.assertTrue(self.js("element('hover').hidden && state.chosen === null"))
        self.js("table.querySelector('tbody tr[tabindex=\"0\"]').focus()")
        self.browser.press("ArrowDown", "ArrowDown")
        self.assertEqual(self.js("document.activeElement.rowIndex"), 3)
        self.assertFalse(self.js("element('hover').hidden"))
        self.browser.press("Enter")
        self.assertEqual(self.js("document.activeElement.getAttribute('aria-selected')"), "true")

    def test_choices_of_metric_axes_and_scales_are_drawn(self):
        self.browser.select("#metric", "errors.kl_divergence.mean")
        self.browser.select("#against", "params.budget")
        self.browser.select("#xscale", "linear")
        self.browser.select("#yscale", "linear")
        texts = self.js("[...document.querySelectorAll('.words text')].map(t => t.textContent)")
        self.assertEqual(texts, ["budget", "kl divergence, mean"])
        self.assertEqual(self.js("points.count"), len(
            [line for line in self.settings() if "budget" in line["params"]]))
        middle = self.js("(points.px[0] - scene.x.scale(0)) / (points.x[0] - 0)")
        self.assertAlmostEqual(middle, self.js("scene.x.scale(1) - scene.x.scale(0)"), places=6)
        self.assertIn("without these numbers", self.js("element('notes').textContent"))

    def test_single_cells_are_listed_in_pages(self):
        self.browser.select("#view", "cells")
        self.assertEqual(len(self.rows()), 100)
        self.assertIn(f"of {len(self.document['cells']):,}", self.js("element('pages').textContent"))
        self.browser.click("#pages button:last-of-type")
        self.assertIn("rows 101 to 200", self.js("element('pages').textContent"))
        self.search("uniform T=2 layer=1 head=0 seed=2")
        self.assertEqual([row[:6] for row in self.rows()],
                         [["uniform", "T 2", "constitution", "1", "0", "2"]])

    def test_the_address_repeats_a_choice(self):
        self.browser.select("#layer", "1")
        self.search("h2o")
        self.browser.click('th button[data-key="metric"]')
        rows, fragment = self.rows(), self.js("location.hash")
        self.open(fragment)
        self.assertEqual(self.rows(), rows)
        self.browser.click("#reset")
        self.assertEqual(len(self.rows()), len(self.settings()))
        self.open("#metric=<b>&layer=77&view=nothing&hidden=[5")
        self.assertEqual(len(self.rows()), len(self.settings()))

    def test_columns_are_chosen(self):
        self.browser.click("#columns summary")
        self.browser.click('#columns [data-key="command"]')
        self.search("exact")
        (command,) = self.column("command")
        ids = [each["id"] for each in self.document["cells"] if each["label"] == "exact"]
        self.assertEqual([word for word in command.split() if word in ids], ids)

    def test_dark_and_light(self):
        for scheme, bright in (("light", True), ("dark", False)):
            self.browser.media(scheme)
            self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            pixels = matplotlib.image.imread(io.BytesIO(self.browser.screenshot()))[:, :, :3]
            self.assertEqual(bool(numpy.median(pixels) > 0.5), bright)
            self.assertGreater(float(pixels.std()), 0.05)

    def test_nothing_overflows_a_narrow_window(self):
        for width in (1400, 400):
            self.browser.size(width, 900)
            self.open()
            self.assertLessEqual(self.js("document.documentElement.scrollWidth"), width)

    def test_it_prints_all_rows_on_light_ground(self):
        self.browser.media("dark")
        self.browser.select("#view", "cells")
        self.js("window.addEventListener('beforeprint', () => { window.printed = [table.rows.length, variable('--ground')]; })")
        self.assertTrue(self.browser.pdf().startswith(b"%PDF"))
        self.assertEqual(self.js("printed"), [min(1000, len(self.document["cells"])) + 1, "#fff"])
        self.assertEqual(len(self.rows()), 100)

    def test_it_reads_without_scripts(self):
        self.browser.without_scripts()
        try:
            self.open()
            pixels = matplotlib.image.imread(io.BytesIO(self.browser.screenshot()))[:, :, :3]
        finally:
            self.browser.without_scripts(False)
        self.assertTrue(0.005 < float((pixels.mean(axis=2) < 0.5).mean()) < 0.5)

    def test_no_other_script_style_or_picture_is_taken(self):
        text = self.path.read_text(encoding="utf-8")
        self.assertEqual(text.count("</main>"), 1)
        changed = self.folder / "policy.html"
        changed.write_text(text.replace("</main>", (
            '<script>document.title = "run"</script><style>#table { display: none }</style>'
            '<img src="http://127.0.0.1:9/x.png" onerror="document.title = 1"></main>')))
        self.browser.open(changed)
        self.assertEqual(self.js("document.title"), "kvbench: quick")
        self.assertNotEqual(self.js("getComputedStyle(table).display"), "none")
        self.assertEqual(len(self.rows()), len(self.settings()))
        self.assertEqual(len([text for text in self.browser.errors
                              if "Content Security Policy" in text]), 4, self.browser.errors)
        self.browser.errors.clear()


class StrangeResults(InABrowser):
    @classmethod
    def make(cls):
        pass

    def open(self, fragment=""):
        if self.path.exists():
            super().open(fragment)

    def report(self, made):
        results = self.folder / "results.json"
        results.write_text(json.dumps(made))
        self.path.write_text(page(Results(results), figures=False), encoding="utf-8")
        self.open()

    def test_names_reach_the_page_as_text(self):
        evil = '</script><img src=x onerror="document.title=1"><b>&amp;'
        cells = [cell(evil, {evil: evil, "budget": 64}, 0.1 + 0.1 * head, 0.5, kv_head=head,
                      id=evil + str(head), repro=f"run {evil} --only {evil}{head}") for head in (0, 1)]
        for each in cells:
            each.update(label=evil)
            each["key"]["sequence"] = evil
        made = document(cells)
        made["name"] = evil
        self.report(made)
        self.browser.hover(*self.point("true"))
        self.browser.select("#view", "cells")
        self.assertEqual(self.js("document.querySelectorAll('img, main b').length"), 0)
        self.assertEqual(self.column("method"), [evil, evil])
        self.assertEqual(self.column("sequence"), [evil, evil])
        self.assertEqual(self.js("document.title"), f"kvbench: {evil}")

    def test_failed_cells_and_nulls_are_listed_and_not_drawn(self):
        null = cell("h2o", {"budget": 8}, 0.3, 0.4, kv_head=1)
        null["errors"]["relative_frobenius_error"] = None
        cells = [cell("h2o", {"budget": 8}, 0.2, 0.5), null,
                 cell("subgen", {}, 0, 0, status="failed", reason="logits overflow")]
        self.report(document(cells))
        self.browser.select("#view", "cells")
        self.assertEqual(self.column("status"), ["ok", "ok", "failed"])
        self.assertEqual(self.js("points.count"), 1)
        self.search("overflow")
        self.assertEqual(self.column("method"), ["subgen"])

    def test_a_page_without_a_finished_cell_still_reads(self):
        self.report(document([cell("h2o", {}, 0, 0, status="failed", reason="why not")]))
        self.assertTrue(self.js("element('explore').hidden"))
        self.assertIn("why not", self.js("document.body.innerText"))

    def test_100000_cells_stay_usable(self):
        cells = [cell("h2o" if budget % 2 else "window", {"budget": budget}, 0.1 + budget / 100 + seed / 999,
                      budget / 40, layer=layer, kv_head=head, seed=seed)
                 for budget in range(1, 41) for layer in range(25) for head in range(10)
                 for seed in range(10)]
        self.assertEqual(len(cells), 100_000)
        started = time.monotonic()
        self.report(document(cells))
        opened = time.monotonic() - started
        self.assertLess(self.path.stat().st_size, 20e6)
        self.browser.select("#view", "cells")
        self.assertEqual(self.js("points.count"), 100_000)
        took = self.js("new Promise(done => { const start = performance.now();"
                       "document.querySelector('#legend button').click();"
                       "requestAnimationFrame(() => setTimeout(() => done(performance.now() - start))); })")
        self.assertEqual(self.js("points.count"), 50_000)
        # A tenth of this on an idle machine.
        self.assertLess(took, 5000, f"made and opened in {opened:.1f} s")
        self.browser.hover(*self.point("true"))
        self.assertFalse(self.js("element('hover').hidden"))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    del InABrowser
    unittest.main()
