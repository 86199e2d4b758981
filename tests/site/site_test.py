"""The site: every link and anchor of it, a page of every algorithm with what the registry and its file say,
nothing taken from elsewhere; and, in a headless chromium where it can be driven, the menu and the search as a
person uses them. Exits 77 where mkdocs or what kvplot needs is missing."""

import functools
import html
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

try:
    import h5py, matplotlib, mkdocs, pandas, scipy  # noqa: E401, F401
except ImportError as missing:
    print(f"skipped: the site is not built without Python's {missing.name}")
    sys.exit(77)

import browser
from pages import Links, SiteError, anchor, page_text, separated
from algorithms import read_head
from build import Site, build
from site_links import Page, broken, read

SOURCE = Path(os.environ["KVBENCH_SOURCE"])
PROGRAM = Path(os.environ["KVBENCH_PROGRAM"])
REPORT = "report/quick.html"
QUICK = ("--set", "/seeds=[0]", "--set", "/select/layers=[0]", "--set", "/select/tokens=512")


def said(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True).stdout


def plain(text):
    return re.sub(r"\s+", " ", text).strip()


def rows(page):
    """Cells of every row of a page's tables, as plain text."""
    return [[plain(html.unescape(re.sub(r"<[^>]*>", "", cell)))
             for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)]
            for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)]


@functools.cache
def built(folder):
    """The site, with a report of a small run, in `folder`."""
    said("run", "--config", SOURCE / "configs/quick.json", "--out", folder / "quick", "--quiet", *QUICK)
    build(folder / "site", Site(SOURCE, PROGRAM), folder / "quick/results.json")
    return folder / "site"


class Built(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.out = built(FOLDER)
        cls.listed = json.loads(said("list", "algorithms", "--json"))

    def text(self, name):
        return (self.out / name).read_text(encoding="utf-8")


class Pages(Built):
    def test_every_link_and_anchor_leads_somewhere(self):
        self.assertEqual(broken(self.out, alone=(REPORT,)), [])

    def test_a_planted_link_anchor_and_foreign_script_are_found(self):
        page = self.out / "planted.html"
        page.write_text('<a href="nowhere.html">a</a><a href="data/index.html#no-such">b</a><a href="../x.html">c</a>'
                        '<a href="index.html#methods">d</a><img src="none.png"><h1 id="e"></h1><h2 id="e"></h2>'
                        '<script src="https://example.org/x.js"></script><a href="https://example.org">f</a>')
        try:
            found = broken(self.out, alone=(REPORT,))
        finally:
            page.unlink()
        self.assertEqual([each.partition(": ")[2] for each in found],
                         ["two anchors are called e", "nowhere.html leads to nothing",
                          "data/index.html#no-such has no such anchor", "../x.html leads to nothing",
                          "none.png leads to nothing", "<script> takes https://example.org/x.js from elsewhere"])

    def test_every_page_of_the_repository_is_there_and_in_the_menu(self):
        tracked = subprocess.run(["git", "-C", SOURCE, "ls-files", "*.md"], capture_output=True, text=True,
                                 check=False).stdout.split()
        if not tracked:
            tracked = ["README.md", "configs/README.md", "plots/FINDINGS.md"]
        menu = re.findall(r'<a class="[^"]*reference internal[^"]*" href="([^"#]*)', self.text("index.html"))
        for name in tracked:
            place = re.sub(r"README\.md$", "index.md", name).removesuffix(".md") + ".html"
            self.assertTrue((self.out / place).is_file(), place)
            self.assertEqual(menu.count(place), 1, place)

    def test_pictures_of_the_gallery_are_shown(self):
        shown = {target for page in (self.out / "plots").glob("*.html")
                 for element, target in Page(page.read_text(encoding="utf-8")).refers if element == "img"}
        self.assertEqual(shown, {path.relative_to(SOURCE / "plots").as_posix()
                                 for path in (SOURCE / "plots/gallery").rglob("*") if path.suffix in (".png", ".svg")})

    def test_tables_and_lists_are_such(self):
        """Every page has as many rows as its Markdown has, and no mark of either left over in a
        paragraph."""
        for name in read(self.out):
            source = SOURCE / re.sub(r"index\.html$", "README.html", name).replace(".html", ".md")
            if not source.is_file():
                continue
            with self.subTest(name):
                outside = re.sub(r"^```.*?^```$|\A---\n.*?^---$", "", source.read_text(encoding="utf-8"),
                                 flags=re.MULTILINE | re.DOTALL)
                marked = re.findall(r"^\|(?!---).*\|$", outside, re.MULTILINE)
                marked = [row for row in marked if not re.fullmatch(r"\|[-:| ]+\|", row)]
                self.assertEqual(len(rows(self.text(name))), len(marked))
                text = self.text(name)
                self.assertEqual(re.findall(r"<p>(?:[^<]|<(?!/p>))*\n\s*(?:[*+-]|\|) ", text), [])
                items = re.findall(r"^ *(?:[*+-]|\d+[.)]) ", outside, re.MULTILINE)
                body = text[text.index('role="main"'):text.index("<footer>")]
                self.assertEqual(len(re.findall(r"<li>", body)), len(items))

    def test_a_notebook_is_a_page(self):
        text = plain(" ".join(Page(self.text("apps/python/examples/first_look.html")).words))
        self.assertIn("kb.replay(layer, \"snapkv\", head=0, budget=256)", text)
        self.assertIn("mean error 0.0", text)
        pictures = [target for element, target in Page(self.text("apps/python/examples/first_look.html")).refers
                    if element == "img" and target.startswith("first_look-")]
        self.assertEqual(len(pictures), 1)
        self.assertEqual((self.out / "apps/python/examples" / pictures[0]).read_bytes()[:4], b"\x89PNG")

    def test_sources_are_shown_or_lead_to_a_repository(self):
        self.assertEqual((self.out / "configs/field.json.txt").read_bytes(),
                         (SOURCE / "configs/field.json").read_bytes())
        links = Links(SOURCE, ["README.md"], "https://example.org/k/blob/main/")
        self.assertEqual(links.changed("lib/README.md", "../configs/field.json"),
                         "https://example.org/k/blob/main/configs/field.json")
        self.assertEqual(links.changed("lib/README.md", "../README.md#results"), "../README.md#results")

    def test_a_stale_link_of_a_page_ends_the_build(self):
        links = Links(SOURCE, ["README.md"], None)
        page_text("[a](lib/none.cpp) `[b](c)`\n```\n[d](e)\n```\n", "README.md", links, {})
        self.assertEqual(len(links.faults), 1)
        self.assertIn("README.md: lib/none.cpp", links.faults[0])
        with tempfile.TemporaryDirectory() as folder:
            self.assertRaises(SiteError, build, Path(folder), Site(SOURCE, Path("/bin/false")))

    def test_headings_have_the_anchors_of_github(self):
        for title, expected in (("Keyformer's choices", "keyformers-choices"), ("The field", "the-field"),
                                ("`a_b`, c: d", "a_b-c-d"), ("A - b", "a---b")):
            self.assertEqual(anchor(title), expected)

    def test_lists_and_tables_are_separated_once(self):
        self.assertEqual(separated("a\n* b\n  c\n  * d\n* e\n| f |\n|---|\n"),
                         "a\n\n* b\n    c\n    * d\n* e\n\n| f |\n|---|\n")


class Algorithms(Built):
    def test_every_algorithm_has_its_parameters_with_ranges_and_defaults(self):
        self.assertGreater(len(self.listed), 40)
        for entry in self.listed:
            with self.subTest(entry["id"]):
                page = self.text(f"algorithms/{entry['id']}.html")
                shown = {row[0]: row for row in rows(page) if len(row) == 5 and row[0] != "parameter"}
                self.assertEqual(list(shown), [each["name"] for each in entry["parameters"]])
                exclusive = json.dumps(entry["exclusive"])
                for each in entry["parameters"]:
                    row = shown[each["name"]]
                    self.assertEqual(row[2], plain(each["range"]))
                    self.assertEqual(row[4], plain(each["description"].replace("`", "")))
                    default = each["default"]
                    if default is None:
                        expected = "" if f'"{each["name"]}"' in exclusive else "required"
                    else:
                        expected = default if isinstance(default, str) else json.dumps(default)
                    self.assertEqual(row[3], expected)
                for each in entry["derived"]:
                    self.assertIn(each["name"], [row[0] for row in rows(page) if len(row) == 2])

    def test_every_algorithm_has_the_words_of_its_file(self):
        for entry in self.listed:
            with self.subTest(entry["id"]):
                source = (SOURCE / f"lib/algorithms/methods/{entry['id']}.cpp").read_text(encoding="utf-8")
                head = re.match(r"(?://.*\n)+", source)[0]
                words = re.sub(r"^//", "", head, flags=re.MULTILINE).replace("`", "").split()
                shown = " ".join("".join(Page(self.text(f"algorithms/{entry['id']}.html")).words).split())
                self.assertIn(" ".join(words), shown)

    def test_figures(self):
        pictures = {entry["id"]: {target for element, target in Page(self.text(f"algorithms/{entry['id']}.html")).refers
                                  if element == "img"} for entry in self.listed}
        self.assertIn("../plots/gallery/field.png", pictures["snapkv"])
        self.assertIn("../plots/gallery/displacement.png", pictures["oracle_topk"])
        self.assertNotIn("../plots/gallery/field.png", pictures["dilated_window"])
        self.assertGreater(sum(bool(each) for each in pictures.values()), 40)
        for name, shown in pictures.items():
            self.assertEqual("shows it." in self.text(f"algorithms/{name}.html"), not shown, name)

    def test_ids_of_tables_lead_to_their_pages(self):
        for page, prefix in (("lib/algorithms/ALGORITHMS.html", "../../algorithms/"), ("algorithms/index.html", "")):
            refers = {target for _, target in Page(self.text(page)).refers}
            for entry in self.listed:
                self.assertIn(f"{prefix}{entry['id']}.html", refers, page)

    def test_the_head_of_a_file_is_cut_into_paragraphs(self):
        head = read_head("// a: b\n// c.\n//\n// Source: d\n//   x -> y\n//   z\n// Departures: e\n// f\n#include\n// g\n", "a")
        self.assertEqual([each for each in head.paragraphs if each],
                         ["a: b c.", "Source: d", "  x -> y\n  z", "Departures: e f"])
        self.assertEqual([head.paragraphs[each] for each in head.kept], ["  x -> y\n  z"])


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@unittest.skipIf(browser.MISSING, f"SKIPPED: {browser.MISSING}: nobody clicks and searches")
class Used(Built):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Quiet, directory=str(cls.out)))
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.server_close)
        cls.addClassCleanup(cls.server.shutdown)
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, name):
        self.browser.visit(f"http://127.0.0.1:{self.server.server_port}/{name}")

    def tearDown(self):
        self.assertEqual(self.browser.errors, [])

    def at(self, name):
        self.browser.wait(f"location.pathname === '/{name}' && document.readyState === 'complete'")

    def test_the_menu_leads_to_a_method_and_from_there_to_its_source(self):
        self.open("index.html")
        self.browser.click('.wy-menu a[href="algorithms/index.html"]')
        self.at("algorithms/index.html")
        self.browser.click('main a[href="snapkv.html"], div[role=main] a[href="snapkv.html"]')
        self.at("algorithms/snapkv.html")
        self.assertEqual(self.browser.run("document.querySelector('h1').firstChild.textContent"), "snapkv")
        self.assertGreater(self.browser.run("document.querySelector('div[role=main] img').naturalWidth"), 300)
        self.browser.click('div[role=main] a[href$="snapkv.cpp.txt"]')
        self.at("lib/algorithms/methods/snapkv.cpp.txt")
        self.assertIn("namespace kvbench::methods::snapkv", self.browser.run("document.body.innerText"))

    def test_a_search_finds_a_method_and_leads_there(self):
        self.open("index.html")
        self.browser.click("#rtd-search-form input")
        self.browser.type("observation window")
        self.browser.press("Enter")
        self.at("search.html")
        self.browser.wait("document.querySelector('#mkdocs-search-results article')")
        found = self.browser.run("[...document.querySelectorAll('#mkdocs-search-results a')].map(a => a.getAttribute('href'))")
        self.assertTrue([each for each in found if "algorithms/snapkv.html" in each], found)
        self.browser.click("#mkdocs-search-results a")
        self.browser.wait("location.pathname !== '/search.html' && document.readyState === 'complete'")
        self.open("search.html?q=xyzzyplugh")
        self.browser.wait("document.querySelector('#mkdocs-search-results').innerText.includes('No results')")

    def test_the_example_report_is_drawn(self):
        self.open("report/index.html")
        self.browser.click('div[role=main] a[href="quick.html"]')
        self.at(REPORT)
        self.browser.wait("document.querySelector('#table') && document.querySelectorAll('#table tbody tr').length > 10")

    def test_nothing_is_wider_than_a_narrow_window(self):
        self.browser.size(400, 900)
        try:
            for name in ("index.html", "algorithms/snapkv.html", "plots/FINDINGS.html", "configs/RESULTS.html"):
                self.open(name)
                self.assertLessEqual(self.browser.run("document.querySelector('.wy-nav-content').scrollWidth"), 400, name)
        finally:
            self.browser.size(1400, 1000)


if __name__ == "__main__":
    del Built
    with tempfile.TemporaryDirectory() as name:
        FOLDER = Path(name)
        unittest.main()
