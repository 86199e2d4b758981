"""kvplot on inspections and baselines that are damaged, and on whole inspections that do not fit.

Usage and variables: as of damaged_results_test.py.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
try:
    from called import called
    from kvplot import figures
    from kvplot.results import ResultsError, load_cells
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from mutated_json import VALUES, every_mutation, random_mutation, replaced, without

ROOT = Path(__file__).resolve().parents[2]
SEEDS = int(os.environ.get("KVBENCH_TEST_SEEDS", "1"))
FIRST = int(os.environ.get("KVBENCH_TEST_FIRST_SEED", "1"))
PROGRAM = None
FIGURES = [name for name in figures.NAMES if figures.module(name).NEEDS == ("inspection",)]
FIRST_HEAD = ("sequences", 0, "layers", 0, "heads", 0)


class DamagedInspection(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.folder = Path(made.name)
        dump = cls.folder / "tiny.h5"
        for command in (["synth", "gaussian", "--tokens", "160", "--d", "8", "--layers", "1", "--kv-heads",
                         "2", "--out", dump], ["inspect", dump, "--json", "--quiet", "--centers", "4"]):
            done = subprocess.run([PROGRAM, *command], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        cls.whole = json.loads(done.stdout)
        cls.file = cls.folder / "damaged.json"

    def drawn(self, figure, content):
        """The outcome of drawing the figure; both of a command's ends are right, and a traceback is
        not."""
        self.file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        code, said = called(figure, "--inspection", self.file, "--out", self.folder / "figures",
                            "--png-only", "--dpi", 30)
        self.assertIn(code, (0, 2))
        if code == 2:
            self.assertTrue(said.startswith("kvplot: "), said)
            self.assertEqual(said.count("\n"), 1, said)
            self.assertIn("damaged.json", said)
        return code, said

    def refused(self, figure, content, *words):
        code, said = self.drawn(figure, content)
        self.assertEqual(code, 2)
        for word in words:
            self.assertIn(word, said)

    def test_whole_inspections_are_drawn(self):
        self.assertGreater(len(FIGURES), 3)
        for figure in FIGURES:
            self.assertEqual(self.drawn(figure, self.whole)[0], 0, figure)

    def test_faults_are_named_by_their_pointer(self):
        head = "/sequences/0/layers/0/heads/0"
        for path, value, words in (
                (("model",), 5, ("/model: expected text, got 5",)),
                (("sequences",), {}, ("/sequences: expected an array, got an object",)),
                (FIRST_HEAD, None, (f"{head}: expected an object, got null",)),
                ((*FIRST_HEAD, "kv_head"), -1, (f"{head}/kv_head", "got -1")),
                ((*FIRST_HEAD, "r"), "much", (f"{head}/r", '"much"')),
                ((*FIRST_HEAD, "keys", "norms", "rms"), 1e308, (f"{head}/keys/norms/rms", "1e+100")),
                ((*FIRST_HEAD, "keys", "covering_radius", 0), [1], (f"{head}/keys/covering_radius/0",)),
                ((*FIRST_HEAD, "attention", "rows"), None, (f"{head}/attention/rows",))):
            with self.subTest(path=path):
                self.refused("norms", replaced(self.whole, path, value), *words, "kvbench inspect")
        self.refused("norms", without(self.whole, ("sequences",)), 'expected a member "sequences"')

    def test_whole_inspections_that_lack_what_a_figure_shows(self):
        no_queries = without(without(self.whole, (*FIRST_HEAD, "r")), (*FIRST_HEAD, "balancekv_exponent"))
        no_queries = replaced(no_queries, (*FIRST_HEAD, "attention"), None)
        no_queries = replaced(no_queries, (*FIRST_HEAD, "attention_missing"), "no stored queries")
        no_queries = replaced(no_queries, (*FIRST_HEAD, "queries"), {"norms": {"count": 0}})
        for figure in ("norms", "sparsity", "top_mass"):
            self.refused(figure, no_queries, "layer 0, KV head 0", "no stored queries")
        for tensor in ("keys", "values"):
            no_clusters = replaced(self.whole, (*FIRST_HEAD, tensor, "clustering"), [])
            if tensor == "keys":
                self.refused("norms", no_clusters, "--delta-quantiles 0.05")
            self.drawn("clusterability", no_clusters)
        zeros = replaced(self.whole, (*FIRST_HEAD, "values", "norms", "rms"), 0.0)
        self.refused("clusterability", zeros, "layer 0, KV head 0", "norms are 0")

    def test_every_value_removed_or_replaced(self):
        one = replaced(self.whole, ("definitions",), {})
        layer = one["sequences"][0]["layers"][0]
        layer["heads"] = layer["heads"][:1]
        head = layer["heads"][0]
        head["attention"]["per_query_head"] = []
        for name in ("keys", "values"):
            head[name]["clustering"] = head[name]["clustering"][:2]
            head[name]["centers"] = []
            head[name]["covering_radius"] = head[name]["covering_radius"][:2]
            for at in head[name]["clustering"]:
                at["growth"] = at["growth"][-2:]
        head["attention"]["top_mass"] = head["attention"]["top_mass"][:2]
        changes = list(every_mutation(one, min(SEEDS, len(VALUES))))
        self.assertGreater(len(changes), 300)
        rng = random.Random(FIRST)
        drawn = 0
        for what, changed in rng.sample(changes, min(len(changes), 70 * SEEDS)):
            figure = rng.choice(FIGURES)
            try:
                drawn += self.drawn(figure, changed)[0] == 0
            except Exception as error:
                raise AssertionError(f"{figure}: {what}") from error
        self.assertGreater(drawn, 10)

    def test_random_changes(self):
        for number in range(FIRST, FIRST + 60 * SEEDS):
            rng = random.Random(number)
            what, data = random_mutation(self.whole, rng)
            figure = rng.choice(FIGURES)
            try:
                self.drawn(figure, data)
            except Exception as error:
                raise AssertionError(f"seed {number}: {figure}: {what}") from error


class DamagedBaseline(unittest.TestCase):
    def test_random_changes_of_a_baseline(self):
        """Both load_cells() and `kvbench check`, whose bounds name the baseline, survive them."""
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            sweep = {"schema_version": 1, "name": "small", "dumps": [str(ROOT / "data/clusterable.h5")],
                     "select": {"tokens": 64},
                     "algorithms": [{"algorithm": "h2o", "params": {"budget": [2, 8]}}, {"algorithm": "exact"}]}
            bounds = {"schema_version": 1, "bounds": [
                {"name": "frozen", "baseline": "base.json", "metric": "errors.relative_l2.mean",
                 "relative_tolerance": 0.02, "absolute_tolerance": 1e-9}]}
            (folder / "sweep.json").write_text(json.dumps(sweep))
            (folder / "bounds.json").write_text(json.dumps(bounds))
            check = ["check", "--results", folder / "out/results.json", "--bounds", folder / "bounds.json"]
            for command in (["run", "--config", folder / "sweep.json", "--out", folder / "out", "--quiet"],
                            [*check, "--write-baselines"], check):
                done = subprocess.run([PROGRAM, *command], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
            baseline = json.loads((folder / "base.json").read_text())
            codes = set()
            for number in range(FIRST, FIRST + 100 * SEEDS):
                what, data = random_mutation(baseline, random.Random(number))
                (folder / "base.json").write_bytes(data)
                try:
                    load_cells(folder / "base.json")
                except ResultsError as error:
                    self.assertIn("base.json", str(error))
                except Exception as error:
                    raise AssertionError(f"seed {number}: {what}") from error
                done = subprocess.run([PROGRAM, *check], capture_output=True, text=True, check=False)
                codes.add(done.returncode)
                self.assertIn(done.returncode, (0, 2, 4), f"seed {number}: {what}: {done.stderr}")
                if done.returncode == 2:
                    self.assertTrue(done.stderr.startswith("kvbench: "), done.stderr)
            self.assertEqual(codes, {0, 2, 4})


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
