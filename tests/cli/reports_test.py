"""The outputs that other programs read: check's JUnit and Markdown, bounds that check suggests, run
--print."""

import json
import re
import statistics
import unittest
import xml.etree.ElementTree as ElementTree

from program import DONE, VIOLATION, Folder, kvbench, strict_json

METRIC = "errors.relative_l2.mean"


class Reports(Folder):
    def bounds(self, *limits):
        document = {"schema_version": 1, "bounds": [
            {"name": name, "where": {"algorithm": algorithm}, "metric": METRIC, "limit": limit}
            for name, algorithm, limit in limits]}
        path = self.folder / "bounds.json"
        path.write_text(json.dumps(document))
        return path

    def check(self, bounds, form, expect):
        done = kvbench("check", "--results", self.folder / "out/results.json", "--bounds", bounds,
                       "--format", form)
        self.assertEqual((done.returncode, done.stderr), (expect, ""))
        return done.stdout

    def test_junit_has_a_case_per_bound(self):
        self.run_sweep()
        path = self.bounds(("exact <&> \"quotes\"", "exact", 1e-10), ("too strict", "window", 0.0))
        root = ElementTree.fromstring(self.check(path, "junit", VIOLATION))
        suite = root.find("testsuite")
        self.assertEqual((root.get("tests"), root.get("failures"), suite.get("failures")),
                         ("2", "1", "1"))
        good, bad = suite.findall("testcase")
        self.assertEqual(good.get("name"), "exact <&> \"quotes\"")
        self.assertIsNone(good.find("failure"))
        lines = bad.find("failure").text.strip().splitlines()
        windows = [cell for cell in self.results()["cells"]
                   if cell["key"]["algorithm"] == "window"]
        self.assertEqual(len(lines), len(windows))
        self.assertIn("window/window/", lines[0])

    def test_markdown_is_one_table_and_the_violations(self):
        self.run_sweep()
        path = self.bounds(("a|b", "exact", 1e-10), ("too *strict*", "window", 0.0))
        text = self.check(path, "markdown", VIOLATION)
        self.assertTrue(text.startswith("### kvbench check: 1 of 2 bounds held\n"), text)
        self.assertIn("| held | a\\|b | limit | ", text)
        self.assertIn("| **VIOLATED** | too \\*strict\\* | limit | ", text)
        self.assertIn("\n**too \\*strict\\***\n\n* ", text)

    def test_json_by_either_name(self):
        self.run_sweep()
        path = self.bounds(("exact", "exact", 1e-10))
        done = kvbench("check", "--results", self.folder / "out/results.json", "--bounds", path,
                       "--json")
        self.assertEqual(done.stdout, self.check(path, "json", DONE))

    def test_suggested_bounds_hold_for_both_runs_and_catch_a_worse_one(self):
        self.run_sweep(seeds=[0, 1, 2])
        second = self.folder / "second"
        done = kvbench("run", "--config", self.sweep(seeds=[3, 4, 5]), "--out", second)
        self.assertEqual(done.returncode, DONE, done.stderr)
        first = self.folder / "out/results.json"
        done = kvbench("check", "--results", first, "--suggest", second / "results.json",
                       "--metric", METRIC, "--metric", "memory.fraction")
        self.assertEqual((done.returncode, done.stderr), (DONE, ""))
        self.assertEqual(len(strict_json(done.stdout)["bounds"]), 2 * 5)
        bounds = self.folder / "suggested.json"
        bounds.write_text(done.stdout)
        for results in (first, second / "results.json"):
            held = kvbench("check", "--results", results, "--bounds", bounds)
            self.assertEqual(held.returncode, DONE, held.stdout)
        worse = strict_json(first.read_text())
        for cell in worse["cells"]:
            if cell["key"]["algorithm"] == "window":
                cell["errors"]["relative_l2"]["mean"] *= 1.5
        path = self.folder / "worse.json"
        path.write_text(json.dumps(worse))
        self.assertEqual(kvbench("check", "--results", path, "--bounds", bounds).returncode,
                         VIOLATION)

    def test_settings_with_too_few_seeds_are_named(self):
        self.run_sweep()
        results = self.folder / "out/results.json"
        done = kvbench("check", "--results", results, "--suggest", results)
        self.assertEqual(done.returncode, DONE)
        self.assertIn("no bound for uniform T=1", done.stderr)
        self.assertIn("3 are needed", done.stderr)
        self.assertEqual({bound["metric"] for bound in strict_json(done.stdout)["bounds"]},
                         {"errors.relative_frobenius_error"})

    def test_print_is_one_number(self):
        one = [{"algorithm": "uniform", "params": {"T": 1, "sinks": 4}}]
        done = kvbench("run", "--config", self.sweep(one), "--out", self.folder / "out", "--print",
                       METRIC)
        self.assertEqual(done.returncode, DONE, done.stderr)
        values = [cell["errors"]["relative_l2"]["mean"] for cell in self.results()["cells"]]
        self.assertAlmostEqual(float(done.stdout), statistics.fmean(values), delta=1e-15)
        again = kvbench("run", "--config", self.sweep(one), "--out", self.folder / "out", "--quiet",
                        "--print", METRIC)
        self.assertEqual((again.returncode, again.stdout, again.stderr), (DONE, done.stdout, ""))

    def test_print_needs_one_setting_and_a_metric(self):
        refused = kvbench("run", "--config", self.sweep(), "--out", self.folder / "out", "--print",
                          "errors.relative_l2.men")
        self.assert_refused(refused, "--print: ", "several settings", "--only")
        self.assertFalse((self.folder / "out").exists())
        layers = kvbench("run", "--config", self.sweep(), "--out", self.folder / "out", "--print",
                         "errors.relative_output_l2.mean")
        self.assert_refused(layers, "is of whole layers")
        one = kvbench("run", "--config", self.sweep(), "--out", self.folder / "out", "--print",
                      METRIC, "--only", "exact/*/*/*/*")
        self.assertEqual(one.returncode, DONE, one.stderr)
        null = kvbench("run", "--config", self.sweep(), "--out", self.folder / "out", "--print",
                       "errors.score_error.mean", "--only", "exact/*/*/*/*")
        self.assert_refused(null, "is null in cell")
        none = kvbench("run", "--config", self.sweep(), "--out", self.folder / "out", "--print",
                       "derived.budget", "--only", "exact/*/*/*/*")
        self.assert_refused(none, "exact has no derived.budget in cell", "choose a number of `kvbench list metrics`")
        window = kvbench("run", "--config", self.sweep([{"algorithm": "h2o", "params": {"budget": {"memory": 0.5}}}]),
                         "--out", self.folder / "h2o", "--quiet", "--print", "derived.bugdet")
        offered = re.search(r"choose one of (derived\.\w+)", window.stderr)[1]
        done = kvbench("run", "--config", self.sweep([{"algorithm": "h2o", "params": {"budget": {"memory": 0.5}}}]),
                       "--out", self.folder / "h2o", "--quiet", "--print", offered)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertGreater(float(done.stdout), 0)


if __name__ == "__main__":
    unittest.main()
