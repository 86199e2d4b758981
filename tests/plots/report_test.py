"""kvplot report: the page as a file: well-formed, self-contained, escaped, complete.

The actions of a person on it are in report_browser_test.py. Usage: report_test.py KVBENCH. Exits 77
where a Python package or D3 is missing.
"""

import base64
import contextlib
import hashlib
import io
import json
import math
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
try:
    import numpy
    from kvplot import ResultsError, figures, read_results
    from kvplot.__main__ import main
    from kvplot.report import is_unused
    from kvplot.report.d3 import d3
    from kvplot.report.page import ASSETS, page
    from kvplot.results import Results
    d3()
except (ImportError, ResultsError) as error:
    print(f"skipped: {error}")
    sys.exit(77)

from made_results import cell, document

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = None
VOID = {"meta", "img", "br", "link", "input"}
PIECES = ("data", "library", "script")  # the script elements, in their order


def module_names(text):
    """Exports and imports of each module: {module: names}."""
    exported = set()
    for function, constants in re.findall(r"^export (?:(?:async )?function (\w+)|(?:const|let)( .*))", text, re.M):
        exported |= {function} - {""} | set(re.findall(r"(?:^|,) (\w+) =", constants))
    imported = {name: set(re.findall(r"\w+", names))
                for names, name in re.findall(r'^import (?:\{([^}]*)\} from )?"\./(\w+)\.js";$', text, re.M)}
    return exported, imported


class Modules(unittest.TestCase):
    """The page's script is joined of modules: without this they could use names that they do not import."""

    def setUp(self):
        self.texts = {path.stem: path.read_text(encoding="utf-8") for path in ASSETS.glob("*.js")}
        self.names = {name: module_names(text) for name, text in self.texts.items()}
        self.exported = {each: name for name, (exported, _) in self.names.items() for each in exported}

    def used(self, name):
        """Names of other modules in the code of a module, without imports, comments, strings and members."""
        code = re.sub(r"^import [^;]*;$", "", self.texts[name], flags=re.M)
        code = re.sub(r"//[^\n]*", "", re.sub(r'"(?:\\.|[^"\\\n])*"', '""', code))
        words = set(re.findall(r"(?<![\w.$])(\w+)\b(?!\s*:)|(?<=\.\.\.)(\w+)|\? *(\w+) *:", code))
        return {each for found in words for each in found if self.exported.get(each, name) != name}

    def test_a_module_imports_what_it_uses_and_no_more(self):
        self.assertGreater(len(self.exported), 60)
        for name, (_, imported) in self.names.items():
            with self.subTest(name):
                for other, names in imported.items():
                    self.assertLessEqual(names, self.names[other][0], other)
                self.assertEqual(set().union(*imported.values()), self.used(name))

    def test_a_module_exports_what_another_imports(self):
        imported = set().union(*(names for _, others in self.names.values() for names in others.values()))
        self.assertEqual(set(self.exported), imported)

    def test_there_is_no_circle(self):
        left = {name: set(imported) for name, (_, imported) in self.names.items()}
        while ready := [name for name, others in left.items() if not others & left.keys()]:
            for name in ready:
                del left[name]
        self.assertEqual(left, {})


class Page(HTMLParser):
    """Tags of a page; faults are unbalanced ones and anything that is loaded from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.open, self.faults, self.figures, self.ids = [], [], [], []
        self.text, self.blocks = "", {}
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
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"stray </{tag}>")

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside in ("script", "style"):
            self.blocks.setdefault(inside, []).append(data)
        else:
            self.text += data


def report(*arguments, out):
    """Text of the page that the command writes."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["report", *map(str, arguments), "--out", str(out)]) == 0
    return out.read_text(encoding="utf-8")


def refused(test, *arguments):
    """The message of the command when it refuses."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        test.assertEqual(main(["report", *map(str, arguments)]), 2)
    test.assertEqual(said.getvalue().count("\n"), 1, said.getvalue())
    return said.getvalue()


def column(part):
    kind = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "f4": "<f4", "f8": "<f8"}[part["type"]]
    return numpy.frombuffer(base64.b64decode(part["data"]), dtype=kind)


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
        cls.html = report(cls.results, out=cls.path)
        cls.page = Page(cls.html)

    def test_it_is_well_formed_and_loads_nothing(self):
        self.assertEqual(self.page.faults, [])
        library = self.page.blocks["script"][PIECES.index("library")]
        self.assertIsNone(re.search(r"https?://|@import|url\(", self.html.replace(library, "")))
        self.assertEqual(len(self.page.ids), len(set(self.page.ids)))

    def test_its_policy_allows_its_own_style_and_scripts_and_no_network(self):
        head, policy = re.search(
            r'(.*)<meta http-equiv="Content-Security-Policy" content="([^"]*)">', self.html,
            re.DOTALL).groups()
        self.assertNotIn("<style", head)
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        self.assertEqual(rules["default-src"], "'none'")
        self.assertEqual(rules["img-src"], "data:")

        def source(text):
            return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

        (style,), scripts = self.page.blocks["style"], self.page.blocks["script"]
        self.assertEqual(rules["style-src"], source(style))
        self.assertEqual(len(scripts), len(PIECES))
        self.assertEqual(rules["script-src"], " ".join(map(source, scripts[1:])))
        self.assertEqual(self.html.count('<script type="application/json"'), 1)
        self.assertNotIn("unsafe", policy)
        own = self.html.replace(scripts[1], "").replace(scripts[2], "").replace(scripts[0], "")
        self.assertIsNone(re.search(r'\s(style|on[a-z]+)="', own.split("</head>")[1]))

    def test_the_library_stands_with_its_licence(self):
        library = self.page.blocks["script"][PIECES.index("library")]
        for words in ("Copyright 2010", "Mike Bostock", "Redistributions in binary form",
                      "https://d3js.org v5"):
            self.assertIn(words, library)

    def test_every_cell_is_in_the_data_once(self):
        cells = read_results(self.results)["cells"]
        data = json.loads(self.page.blocks["script"][PIECES.index("data")])
        part = data["result"]
        self.assertEqual(part["count"], len(cells))
        ids = base64.b64decode(part["id"]["hex"]).hex()
        self.assertEqual(ids, "".join(cell["id"] for cell in cells))
        for number, each in list(enumerate(cells))[::97]:
            setting = data["settings"][column(part["setting"])[number]]
            self.assertEqual((setting["label"], setting["params"]),
                             (each["label"], each["key"]["params"]))
            unit = data["units"][column(part["unit"])[number]]
            self.assertEqual(unit, {name: each["key"][name] for name in unit})
            self.assertEqual(part["seeds"][column(part["seed"])[number]], each["key"]["seed"])
            before, after = part["commands"][column(part["command"])[number]]
            self.assertEqual(before + each["id"] + after.replace("repro/@", f"repro/{each['id'][:8]}"), each["repro"])
        for path, place in (("errors.relative_l2.mean", "mean"), ("errors.relative_l2.p99", "p99")):
            values = column(part["numbers"][data["numbers"].index(path)])
            numpy.testing.assert_allclose(
                values, [cell["errors"]["relative_l2"][place] if cell["errors"] else math.nan
                         for cell in cells], rtol=1e-6)

    def test_numbers_are_added_by_name(self):
        more = report(self.results, "--no-figures", "--metric", "errors.relative_l2.p90",
                      out=self.folder / "more.html")
        data = json.loads(Page(more).blocks["script"][0])
        self.assertIn("errors.relative_l2.p90", data["numbers"])
        said = refused(self, self.results, "--metric", "errors.relative_l2.p91")
        self.assertIn("no cell has errors.relative_l2.p91; did you mean errors.relative_l2.p9", said)

    def test_without_scripts_it_has_the_means_of_the_programs_summary(self):
        still = re.search("<noscript>(.*?)</noscript>", self.html, re.DOTALL)[1]
        rows = re.findall(r"<tr><td>(.*?)</td></tr>", still)
        lines = [line for line in read_results(self.results)["summary"] if line["layer"] is None and line["cells"]]
        heads = re.findall(r'<th scope="col">(.*?)</th>', still)
        self.assertEqual(heads[2:6], ["Frobenius", "spectral", "mean of a row", "memory"])
        self.assertEqual(len(rows), len(lines))
        shown = sorted(tuple(field.split(" ")[0] for field in row.split("</td><td>")[2:6]) for row in rows)
        names = ("relative_frobenius_error", "relative_spectral_error", "relative_l2.mean")
        self.assertEqual(shown, sorted((*(f'{line["errors"][name]["mean"]:.3g}' for name in names),
                                        f'{line["memory"]["fraction"]:.3g}') for line in lines))

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

    def test_the_columns_that_are_left_out_are_on_no_page(self):
        """The page is made with them left out; it is the one of a frame of all columns, and no figure that
        may stand on a page names one."""
        self.assertEqual(page(Results(self.results)), self.html)
        every = Results(self.results).frame
        few = Results(self.results, left_out=is_unused).frame
        self.assertLess(len(few.columns), 0.7 * len(every.columns))
        named = []
        for name in figures.NAMES:
            module = figures.module(name)
            if "results" in module.NEEDS:
                named += re.findall(r'"((?:errors|mass|trivial)\.[\w.{}]+)"', Path(module.__file__).read_text())
        self.assertGreater(len(named), 30)
        self.assertEqual([name for name in named if is_unused(name)], [])

    def test_frames_are_made_again_after_they_were_forgotten(self):
        results = Results(self.results)
        ok = results.ok
        results.forget_frames()
        self.assertIsNot(results.ok, ok)
        self.assertTrue(results.ok.equals(ok))

    def test_the_page_replaces_none_of_its_inputs(self):
        content = self.results.read_bytes()
        self.assertIn("the page would replace it; choose another --out",
                      refused(self, self.results, "--out", self.results))
        self.assertEqual(self.results.read_bytes(), content)

    def test_the_page_replaces_no_file_of_another_kind(self):
        other = self.folder / "journal.jsonl"
        other.write_text('{"kind": "kvbench.journal"}')
        self.assertIn("is not a page and would be replaced; choose another --out",
                      refused(self, self.results, "--out", other))
        self.assertEqual(other.read_text(), '{"kind": "kvbench.journal"}')

    def test_an_earlier_page_stays_where_the_disk_is_full(self):
        out = self.folder / "full/report.html"
        report(self.results, "--no-figures", out=out)
        page_before = out.read_bytes()
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        for existing in (True, False):
            if not existing:
                out.unlink()
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limit[1]))
            try:
                said = refused(self, self.results, "--no-figures", "--out", out)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            self.assertIn(f"kvplot: {out}: cannot be written, the system says", said)
            self.assertEqual([path.read_bytes() == page_before for path in out.parent.iterdir()], [True] * existing)


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
        return report(path, out=self.folder / "report.html")

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
        evil = "</script><script>alert(1)</script>"
        made = cell(evil, {evil: evil}, 0.3, 0.5, repro=evil)
        html = self.report([made, cell("h2o", {}, 0, 0, status="failed", reason=evil)], name=evil)
        self.assertNotIn("<script>alert", html)
        self.assertEqual(html.count("</script>"), len(PIECES))

    def test_a_planted_link_is_found(self):
        self.assertEqual(Page('<p><img src="http://x/y.png"></p>').faults,
                         ["img loads http://x/y.png"])
        self.assertEqual(Page("<p><b></p>").faults, ["stray </p>", "unclosed p"])


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
