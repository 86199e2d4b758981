"""compare: two results of the same cells; exit codes, table, JSON, bad input."""

import json
import unittest

from program import DONE, VIOLATION, Folder, kvbench, strict_json


class Compare(Folder):
    def setUp(self):
        super().setUp()
        self.before = self.run_sweep()
        self.a = self.folder / "out/results.json"

    def changed(self, change, name="b.json"):
        """The results with `change` made to every cell (that it does not return False for)."""
        document = json.loads(json.dumps(self.before))
        document["cells"] = [cell for cell in document["cells"] if change(cell) is not False]
        path = self.folder / name
        path.write_text(json.dumps(document))
        return path

    def scaled(self, factor, algorithm="uniform", metric="relative_frobenius_error"):
        def change(cell):
            if cell["key"]["algorithm"] != algorithm:
                return
            errors = cell["errors"]
            if isinstance(errors[metric], dict):
                errors[metric] = {name: value * factor for name, value in errors[metric].items()}
            else:
                errors[metric] *= factor
        return self.changed(change)

    def test_the_same_sweep_run_twice_has_no_regression(self):
        done = kvbench("run", "--config", self.sweep(), "--out", self.folder / "again")
        self.assertEqual(done.returncode, DONE, done.stderr)
        done = kvbench("compare", self.a, self.folder / "again/results.json", "--tolerance", 0)
        self.assertEqual((done.returncode, done.stderr), (DONE, ""), done.stdout)
        for word in ("worse", "WORSE", "better", "unclear"):
            self.assertNotIn(word, done.stdout)
        self.assertTrue(done.stdout.endswith(
            f"\n{len(self.before['cells'])} cells in both; no regression\n"))

    def test_a_larger_error_is_a_regression_a_smaller_one_is_not(self):
        worse = self.scaled(1.2)
        done = kvbench("compare", self.a, worse)
        self.assertEqual((done.returncode, done.stderr), (VIOLATION, ""))
        self.assertRegex(done.stdout, r"(?m)^WORSE +uniform T=1 .* 1\.2 +1\.2 \.\. 1\.2 ")
        self.assertRegex(done.stdout, r"(?m)^uniform T=2 +errors\.relative_frobenius_error +0/\d/\d: ")
        self.assertRegex(done.stdout, r"(?m)^same +exact ")
        self.assertIn("; 2 regressions, 0 numbers lost\n", done.stdout)
        self.assertEqual(kvbench("compare", worse, self.a).returncode, DONE)
        self.assertEqual(kvbench("compare", self.a, worse, "--tolerance", 0.25).returncode, DONE)

    def test_every_error_counts_unless_one_is_chosen(self):
        for worse, chosen in (("relative_frobenius_error", "relative_l2.mean"),
                              ("relative_l2", "relative_frobenius_error")):
            path = self.scaled(1.2, metric=worse)
            every = kvbench("compare", self.a, path)
            self.assertEqual(every.returncode, VIOLATION)
            self.assertTrue(every.stdout.startswith("errors.relative_frobenius_error of A and B"), every.stdout)
            done = kvbench("compare", self.a, path, "--metric", f"errors.{chosen}")
            self.assertEqual(done.returncode, DONE, done.stdout)

    def test_more_memory_is_a_regression(self):
        def change(cell):
            cell["memory"]["fraction"] *= 1.5
        done = kvbench("compare", self.a, self.changed(change))
        self.assertEqual(done.returncode, VIOLATION)
        self.assertIn("memory.fraction", done.stdout)

    def test_a_cell_that_failed_is_lost(self):
        def change(cell):
            if cell["key"]["seed"] == 1 and cell["key"]["layer"] == 0:
                reason = (f"tipped over at row {cell['key']['kv_head']}"
                          if cell["key"]["params"]["T"] == 1 else "lost")
                if reason != "lost" or cell["key"]["kv_head"] == 0:
                    cell.update(status="failed", reason=reason, errors=None, memory=None)
        done = kvbench("compare", self.a, self.changed(change))
        self.assertEqual(done.returncode, VIOLATION)
        self.assertRegex(done.stdout, r"(?m)^  2 cells: failed: tipped over at row 0 \(and similar\); the "
                                      r"first: \S+/0/0/0 .*seed=1$")
        self.assertRegex(done.stdout, r"(?m)^  \S+/0/0/0 .*seed=1: failed: lost$")

    def test_cells_of_one_file_alone_are_listed_and_decide_nothing(self):
        part = self.changed(lambda cell: cell["key"]["layer"] == 0)
        done = kvbench("compare", self.a, part)
        self.assertEqual(done.returncode, DONE)
        self.assertRegex(done.stdout, r"\n(\d+) cells in both, \1 in A only; no regression\n$")
        self.assertIn("exact/exact/0/1/0\n", done.stdout)
        self.assertIn("in B only", kvbench("compare", part, self.a).stdout)

    def test_json_has_every_setting_and_metric(self):
        document = strict_json(kvbench("compare", self.a, self.scaled(1.2, metric="relative_l2"), "--json").stdout)
        self.assertFalse(document["passed"])
        self.assertEqual(document["pairs"], len(self.before["cells"]))
        settings = {(entry["algorithm"], json.dumps(entry["params"])) for entry in
                    document["settings"]}
        self.assertEqual(len(settings), 5)
        for entry in document["settings"]:
            self.assertEqual({name.removeprefix("errors.").removesuffix(".mean") for name in entry["metrics"]},
                             {*self.before["cells"][0]["errors"], "memory.fraction"})
            error = entry["metrics"]["errors.relative_l2.mean"]
            self.assertEqual(error["verdict"] == "worse", entry["algorithm"] == "uniform")
            self.assertEqual(error["units"], 4)
        # A's means are those of the summary of A.
        for entry in self.before["summary"]:
            if entry["layer"] is not None:
                continue
            same = next(other for other in document["settings"]
                        if other["label"] == entry["label"] and other["params"] == entry["params"])
            self.assertAlmostEqual(same["metrics"]["errors.relative_l2.mean"]["a"],
                                   entry["errors"]["relative_l2.mean"]["mean"], places=14)


if __name__ == "__main__":
    unittest.main()
