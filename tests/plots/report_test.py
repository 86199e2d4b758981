"""kvplot report: one page that says what ran, what it gave and what was left out, and loads nothing.

Usage: report_test.py KVBENCH. Where a headless chromium is installed (Debian: chromium-headless-shell)
the page is also run in it; without, those tests are skipped and say so. Exits 77 where a Python
package is missing.
"""

import base64
import contextlib
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
try:
    import matplotlib.image
    from kvplot import ResultsError, read_results
    from kvplot import report as report_module
    from kvplot.__main__ import main
    from kvplot.results import Results
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from made_results import cell, document
from mutated_json import places, replaced

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = None
BROWSER = next(filter(None, map(shutil.which, (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))), None)
VOID = {"meta", "img", "br", "link", "input"}


class Page(HTMLParser):
    """Tags of a page; faults are unbalanced ones and anything that is loaded from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.open, self.faults, self.figures, self.ids = [], [], [], []
        self.rows, self.text = [], ""
        self.feed(text)
        self.faults += [f"unclosed {tag}" for tag in self.open]

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name in ("src", "href", "action", "srcset", "data"):
            if not (attributes.get(name) or "data:").startswith(("data:", "#")):
                self.faults.append(f"{tag} loads {attributes[name]}")
        if tag in ("link", "iframe", "object", "embed"):
            self.faults.append(tag)
        if tag == "figure":
            self.figures.append(attributes.get("id"))
        if tag == "tr" and "data-layer" in attributes:
            self.rows.append(attributes["data-layer"])
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"stray </{tag}>")

    def handle_data(self, data):
        self.text += data


def report(results, out):
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["report", str(results), "--out", str(out)]) == 0
    return out.read_text(encoding="utf-8")


class ReportOfARun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="kvbench-report-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run = subprocess.run(
            [PROGRAM, "run", "--config", str(ROOT / "configs/figures/pareto.json"), "--out",
             str(cls.folder), "--quiet", "--set", "/select/tokens=512", "--set", "/seeds=[0,1]",
             "--set", "/select/layers=[0,15]"], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        cls.results = cls.folder / "results.json"
        cls.path = cls.folder / "report.html"
        cls.html = report(cls.results, cls.path)
        cls.page = Page(cls.html)

    def test_it_is_well_formed_and_loads_nothing(self):
        self.assertEqual(self.page.faults, [])
        self.assertIsNone(re.search(r"https?://|@import|url\(", self.html))
        self.assertEqual(len(self.page.ids), len(set(self.page.ids)))

    def test_its_policy_allows_its_own_style_and_script_and_no_network(self):
        head, policy = re.search(
            r'(.*)<meta http-equiv="Content-Security-Policy" content="([^"]*)">', self.html,
            re.DOTALL).groups()
        self.assertNotIn("<style", head)
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        self.assertEqual(rules["default-src"], "'none'")
        self.assertEqual(rules["img-src"], "data:")
        for tag in ("style", "script"):
            texts = re.findall(f"<{tag}>(.*?)</{tag}>", self.html, re.DOTALL)
            self.assertEqual(len(texts), 1)
            digest = base64.b64encode(hashlib.sha256(texts[0].encode()).digest()).decode()
            self.assertEqual(rules[f"{tag}-src"], f"'sha256-{digest}'")
        self.assertNotIn("unsafe", policy)
        self.assertIsNone(re.search(r'\s(style|on[a-z]+)="', self.html.split("</head>")[1]))

    def test_it_has_every_line_of_the_summary(self):
        document = read_results(self.results)
        layers = ["all" if line["layer"] is None else str(line["layer"])
                  for line in document["summary"]]
        self.assertEqual(self.page.rows, layers)
        for line in document["summary"][:40:7]:
            mean = line["errors"]["relative_l2.mean"]["mean"]
            self.assertIn(f'data-value="{mean!r}"', self.html)

    def test_it_says_what_ran_and_where(self):
        document = read_results(self.results)
        provenance = document["provenance"][0]
        for words in (document["name"], document["dumps"][0]["fingerprint"],
                      document["dumps"][0]["model"], provenance["cpu"],
                      provenance["git"]["commit"][:12], f"{document['plan']['cells']} cells"):
            self.assertIn(words, self.page.text)

    def test_the_figures_that_fit_are_embedded_with_captions(self):
        self.assertLessEqual({"pareto", "error_vs_memory", "error_vs_memory_by_layer", "ecdf",
                              "layer_head", "forest"}, set(self.page.figures))
        self.assertEqual(len(self.page.figures), self.html.count("data:image/png;base64,"))
        self.assertEqual(len(self.page.figures), self.html.count("<figcaption>"))
        self.assertIn("2 seeds for randomised algorithms", self.page.text)

    def browser(self, page, *options):
        if BROWSER is None:
            self.skipTest("no headless chromium (Debian: chromium-headless-shell)")
        return subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             f"--user-data-dir={self.folder / 'profile'}", *options, page.as_uri()],
            capture_output=True, text=True, timeout=120, check=False)

    def test_a_screenshot_shows_more_than_an_empty_page(self):
        shot = self.folder / "report.png"
        done = self.browser(self.path, f"--screenshot={shot}", "--window-size=1200,1600")
        self.assertEqual(done.returncode, 0, done.stderr)
        pixels = matplotlib.image.imread(shot)[:, :, :3]
        self.assertEqual(pixels.shape[:2], (1600, 1200))
        dark = (pixels.mean(axis=2) < 0.5).mean()
        self.assertTrue(0.005 < dark < 0.5, dark)

    def test_every_leaf_is_text_not_markup(self):
        """Each value of the file replaced by markup: it is refused, or escaped."""
        evil = "<script>alert(1)</script>"
        made = json.loads(self.results.read_text())
        by_status = {(each["status"], each["label"]): each for each in made["cells"]}
        made["cells"], made["summary"] = list(by_status.values()), made["summary"][:2]
        changed = self.folder / "changed.json"
        escaped = set()
        figures_of, report_module._figures = report_module._figures, lambda results: ""
        try:
            for path in list(places(made)):
                changed.write_text(json.dumps(replaced(made, path, evil)))
                try:
                    html = report_module.page(Results(changed))
                except ResultsError:
                    continue
                self.assertNotIn("<script>alert", html, path)
                if "&lt;script&gt;alert(1)" in html:
                    escaped.add(path[0])
        finally:
            report_module._figures = figures_of
        self.assertLessEqual({"name", "config", "provenance", "dumps", "cells", "summary"}, escaped)

    def test_a_browser_runs_the_pages_script_and_no_other(self):
        style = "<style>#summary { display: none }</style>"
        page = self.folder / "policy.html"
        page.write_text(self.html.replace(
            "</body>", f'{style}<script>document.title = "run"</script>'
            '<img src="http://127.0.0.1:9/x.png" onerror="document.title = 1"></body>'))
        done = self.browser(page, "--dump-dom")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"<title>kvbench: {read_results(self.results)['name']}</title>", done.stdout)
        # The page's own script has hidden the rows of single layers.
        self.assertIn("hidden", done.stdout.split('id="summary"')[1])

    def clicked(self, script):
        """Text of the first column's visible rows, and the error column, after a script ran."""
        page = self.folder / "clicked.html"
        without_policy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", self.html)
        self.assertLess(len(without_policy), len(self.html))
        page.write_text(without_policy.replace("</body>", f"<script>{script}</script></body>"))
        done = self.browser(page, "--dump-dom")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = re.findall(r'<tr data-layer="(\w+)"([^>]*)>(.*?)</tr>', done.stdout, re.DOTALL)
        return [(layer, re.findall(r'data-value="([^"]*)"', fields)) for layer, hidden, fields in rows
                if "hidden" not in hidden]

    def test_a_click_sorts_and_the_select_filters(self):
        rows = self.clicked("")
        self.assertEqual({layer for layer, _ in rows}, {"all"})
        click = 'document.querySelectorAll("#summary th button")[3].click();'
        for script, falling in ((click, False), (click + click, True)):
            errors = [float(values[1]) for _, values in self.clicked(script)]
            self.assertEqual(errors, sorted(errors, reverse=falling))
        chosen = self.clicked('const s = document.getElementById("layer"); s.value = "15";'
                              's.dispatchEvent(new Event("change"));')
        self.assertEqual({layer for layer, _ in chosen}, {"15"})
        self.assertEqual(len(chosen), len(rows))


class ReportOfMadeResults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def report(self, cells, **more):
        made = document(cells)
        made["plan"] = {"cells": len(cells), "ok": sum(c["status"] == "ok" for c in cells),
                        "failed": sum(c["status"] == "failed" for c in cells),
                        "skipped": sum(c["status"] == "skipped" for c in cells)}
        made.update(more)
        path = self.folder / "results.json"
        path.write_text(json.dumps(made))
        return report(path, self.folder / "report.html")

    def test_failed_and_skipped_cells_stand_with_their_reasons(self):
        cells = [cell("h2o", {"budget": 4}, 0, 0, kv_head=head, status="skipped",
                      reason="budget 4 < recent 9", repro="r") for head in (0, 1)]
        cells.append(cell("subgen", {}, 0, 0, status="failed", reason="logits <overflow>",
                          repro="kvbench run --only x"))
        cells.append(cell("uniform", {"T": 1}, 0.3, 0.5, seed=0))
        page = Page(self.report(cells))
        self.assertEqual(page.faults, [])
        for words in ("1 failed", "2 skipped", "budget 4 < recent 9", "logits <overflow>",
                      "kvbench run --only x"):
            self.assertIn(words, page.text)

    def test_failures_of_one_cause_are_one_line(self):
        cells = [cell("subgen", {}, 0, 0, kv_head=row, status="failed", repro="again",
                      reason=f"logits overflow at row {row}") for row in (5, 17, 240)]
        page = Page(self.report([*cells, cell("exact", {}, 1e-16, 1.0)]))
        self.assertEqual(page.text.count("logits overflow"), 1)
        self.assertIn("logits overflow at row 5 (and similar)3", page.text)

    def test_results_without_a_finished_cell_still_have_a_page(self):
        page = Page(self.report([cell("h2o", {}, 0, 0, status="failed", reason="why")],
                                status="incomplete"))
        self.assertEqual(page.faults, [])
        self.assertEqual(page.figures, [])
        for words in ("No cell finished", "why", "incomplete: run again"):
            self.assertIn(words, page.text)

    def test_names_from_the_file_are_text_not_markup(self):
        evil = "<script>alert(1)</script>"
        html = self.report([cell("h2o", {}, 0.3, 0.5)], name=evil)
        self.assertNotIn(evil, html)
        self.assertEqual(html.count("<script>"), 1)

    def test_a_planted_link_is_found(self):
        self.assertEqual(Page('<p><img src="http://x/y.png"></p>').faults,
                         ["img loads http://x/y.png"])
        self.assertEqual(Page("<p><b></p>").faults, ["stray </p>", "unclosed p"])


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
