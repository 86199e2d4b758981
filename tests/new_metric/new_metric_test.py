"""A metric costs its row in the table and its test. Shown on a copy of the tree to which exactly these
two are added: every test that looks at metrics passes as it is, and all that the program and kvplot say
of the metric follows."""

import json
import os
import shutil
import tempfile
import unittest
from pathlib import Path

import jsonschema
import kvplot
from planted_tree import PlantedTree, run

HERE = Path(__file__).parent
SOURCE, BUILD, TREE = (Path(os.environ[f"KVBENCH_{name}"]) for name in ("SOURCE", "BUILD", "TREE"))
NAME = "relative_linf"
MEAN = f"errors.{NAME}.mean"
PARTS = {"mean", "median", "p90", "p99", "max"}
TABLE, TEST = "lib/metrics/metric_table.cpp", f"tests/metrics/{NAME}_test.cpp"


class NewMetric(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = PlantedTree(SOURCE, TREE)
        shutil.copy(HERE / f"{NAME}_test.cpp", TREE / TEST)
        # In the middle: nothing may depend on the place of a metric.
        cls.tree.insert(TABLE, r'(?m)^       \.column = "relative_l2"\},\n',
                        (HERE / "metric_table_row.txt").read_text())
        run(os.environ["KVBENCH_CMAKE"], "--build", BUILD, "--target",
            *os.environ["KVBENCH_TARGETS"].split())
        cls.program = BUILD / "bin/kvbench-with-metric"
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.made = Path(made.name)
        run(cls.program, "synth", "gaussian", "--tokens", 64, "--out", cls.made / "a.h5")
        sweep = {"schema_version": 1, "name": "new", "dumps": [str(cls.made / "a.h5")],
                 "evaluate": {"rows": "all"}, "output": {"rows": True},
                 "algorithms": [{"algorithm": "window", "params": {"budget": [8, 16]}},
                                {"algorithm": "h2o", "params": {"budget": 8}}]}
        (cls.made / "sweep.json").write_text(json.dumps(sweep))
        run(cls.program, "run", "--config", cls.made / "sweep.json", "--out", cls.made / "out")
        cls.path = cls.made / "out/results.json"
        cls.results = json.loads(cls.path.read_text())

    def test_these_two_files_are_all_that_changes(self):
        self.assertEqual(self.tree.changed(), {TABLE, TEST})

    def test_its_own_test_passes(self):
        printed = run(BUILD / "bin/test-metrics-with-metric", f"--test-case=*{NAME}*")
        self.assertRegex(printed, r"test cases: +1 \| +1 passed")

    def test_every_test_that_looks_at_metrics_passes_as_it_is(self):
        for name in ("metrics", "results", "compare", "check"):
            with self.subTest(name):
                printed = run(BUILD / f"bin/test-{name}-with-metric",
                              env={**os.environ, "KVBENCH_SOURCE": str(TREE)})
                self.assertRegex(printed, r"test cases: +[1-9]\d* .* 0 failed")

    def test_without_a_test_it_turns_the_suite_red(self):
        printed = run(BUILD / "bin/test-metrics-with-metric", "--test-case=*every metric has a test*",
                      expected=1, env={**os.environ, "KVBENCH_SOURCE": str(SOURCE)})
        self.assertIn(f"errors.{NAME}", printed)

    def test_cells_and_summary_have_it_and_are_valid(self):
        for cell in self.results["cells"]:
            self.assertEqual(cell["status"], "ok")
            self.assertEqual(set(cell["errors"][NAME]), PARTS)
        names = list(self.results["cells"][0]["errors"])
        self.assertEqual(names.index(NAME), names.index("relative_l2") + 1)
        for entry in self.results["summary"]:
            self.assertGreater(entry["errors"][f"{NAME}.mean"]["mean"], 0.0)
        schema = json.loads(run(self.program, "schema", "results"))
        self.assertEqual(list(jsonschema.Draft202012Validator(schema).iter_errors(self.results)), [])

    def test_it_is_listed_and_accepted_by_check_and_compare(self):
        listed = {each["path"]: each for each in
                  json.loads(run(self.program, "list", "metrics", "--json"))}
        self.assertIn("max |z - a|", listed[f"errors.{NAME}"]["definition"])
        bounds = {"schema_version": 1, "bounds": [{"name": "b", "metric": MEAN, "at_most": 1e-3}]}
        (self.made / "bounds.json").write_text(json.dumps(bounds))
        run(self.program, "check", "--results", self.path, "--bounds", self.made / "bounds.json",
            expected=4)
        self.assertIn(MEAN, run(self.program, "compare", self.path, self.path, "--metric", MEAN))
        # And among those that are compared where none is named.
        self.assertIn(MEAN, run(self.program, "compare", self.path, self.path, "--json"))

    def test_kvplot_reads_its_means_and_its_values_per_row(self):
        results = kvplot.Results(self.path)
        table = kvplot.mean_over_units(results.ok, [MEAN])
        self.assertEqual(len(table), 3)
        self.assertTrue((table[MEAN] > 0).all())
        rows = results.rows(NAME, results.ok["id"].head(1))
        self.assertAlmostEqual(rows[NAME].mean(), results.ok[MEAN].iloc[0])


if __name__ == "__main__":
    unittest.main()
