"""configs/ci.json and its bounds, end to end: they hold, and a wrong weight in any one algorithm
turns them red. Also the command itself: exit codes, table, JSON."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ["KVBENCH_PROGRAM"]
PLANTED = os.environ["KVBENCH_PLANTED_PROGRAM"]
SOURCE = Path(os.environ["KVBENCH_SOURCE"])
CONFIG = SOURCE / "configs/ci.json"
BOUNDS = SOURCE / "configs/bounds/ci.json"
DONE, BAD_INPUT, VIOLATION = 0, 2, 4


def run(*arguments, program=PROGRAM, **variables):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True,
                          timeout=300, check=False, env={**os.environ, **variables})


class Regression(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="kvbench-check-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        done = run("run", "--config", CONFIG, "--out", cls.folder / "ci")
        assert done.returncode == DONE, done.stderr
        cls.results = cls.folder / "ci/results.json"

    def check(self, *options, results=None, bounds=BOUNDS):
        return run("check", "--results", results or self.results, "--bounds", bounds, *options)

    def bounds(self, *bounds):
        """Writes a bounds file; returns its path."""
        path = self.folder / "bounds.json"
        path.write_text(json.dumps({"schema_version": 1, "bounds": list(bounds)}))
        return path

    def planted(self, algorithm, factor):
        """Names of the bounds that are violated where `algorithm` has a wrong weight."""
        return self.violated_by(f'"algorithm":"{algorithm}"', KVBENCH_PLANTED=algorithm,
                                KVBENCH_PLANTED_FACTOR=str(factor))

    def violated_by(self, words, **planted):
        """Names of the bounds that are violated by a planted bug in the cells with `words`."""
        # The journal of the right run serves every other cell.
        out = Path(tempfile.mkdtemp(dir=self.folder))
        kept = [line for line in (self.folder / "ci/journal.jsonl").read_text().splitlines(True)
                if words not in line or '"kind"' in line]
        (out / "journal.jsonl").write_text("".join(kept))
        done = run("run", "--config", CONFIG, "--out", out, program=PLANTED, **planted)
        self.assertEqual(done.returncode, DONE, done.stderr)
        checked = self.check("--json", results=out / "results.json")
        report = json.loads(checked.stdout)
        names = {bound["name"] for bound in report["bounds"] if not bound["held"]}
        self.assertEqual(checked.returncode, VIOLATION if names else DONE)
        return names

    def test_the_shipped_bounds_hold(self):
        done = self.check()
        self.assertEqual((done.returncode, done.stderr), (DONE, ""), done.stdout)
        self.assertNotIn("VIOLATED", done.stdout)
        self.assertRegex(done.stdout, r"\n(\d+) of \1 bounds held\n$")

    def test_no_cell_of_the_sweep_is_left_without_a_bound(self):
        results = json.loads(self.results.read_text())
        bounded = set()
        for bound in json.loads(re.sub(r"^\s*//.*$", "", BOUNDS.read_text(), flags=re.M))["bounds"]:
            where = bound.get("where", {})
            for field in ("algorithm", "label", "storage.keys.codec"):
                names = where.get(field, [])
                bounded |= {names} if isinstance(names, str) else set(names)
            bounded |= {bound["than"]["algorithm"]} if "than" in bound else set()
        for cell in results["cells"]:
            names = {cell["label"]}
            if "storage" in cell["key"]:
                names.add(cell["key"]["storage"]["keys"]["codec"])
            else:
                names.add(cell["key"]["algorithm"])
            self.assertTrue(names & bounded, cell["label"])

    def test_without_a_planted_bug_the_planted_program_is_kvbench(self):
        self.assertEqual(self.planted("uniform", 1.0), set())

    def test_a_lost_factor_2_in_any_weighted_algorithm_is_a_violation(self):
        for algorithm, caught_by in {
                "uniform": "weights in the numerator",
                "balancekv_prefill": "weights in the numerator",
                "subgen": "subgen numerator",
                "balancekv": "weights in the numerator",
                "softmax_balance": "weights in the numerator"}.items():
            with self.subTest(algorithm):
                self.assertIn(caught_by, self.planted(algorithm, 0.5))

    def test_a_wrong_weight_in_an_unweighted_algorithm_is_off_its_baseline(self):
        for algorithm in ("window", "h2o", "snapkv", "kcenter"):
            with self.subTest(algorithm):
                self.assertEqual(self.planted(algorithm, 1.01), {"frozen errors"})

    def test_a_wrong_weight_in_exact_is_a_violation(self):
        self.assertEqual(self.planted("exact", 1.0001), {"exact is exact"})

    def test_a_codebook_one_step_off_is_a_violation_at_every_number_of_bits(self):
        names = self.violated_by('"codec":"turboquant"', KVBENCH_PLANTED_CODEC="turboquant")
        bits = ("1 bit", "2 bits", "3 bits", "4 bits")
        self.assertEqual(names, {f"turboquant {form}, {each}" for each in bits
                                 for form in ("theorem", "inner products")})

    def test_signs_one_place_off_are_a_violation(self):
        names = self.violated_by('"codec":"qjl"', KVBENCH_PLANTED_CODEC="qjl")
        self.assertEqual(names, {"qjl's keys"})

    def test_balancekv_no_better_than_uniform_is_a_violation(self):
        name = "balancekv beats uniform, layer 0, T 1"
        self.assertIn(name, self.planted("balancekv_prefill", 0.8))

    def test_the_table_names_bound_value_limit_and_cell(self):
        done = self.check(bounds=self.bounds(
            {"name": "too tight", "where": {"algorithm": "window", "layer": 0, "kv_head": 1},
             "metric": "memory.tokens_peak", "at_most": 255},
            {"name": "nothing", "where": {"algorithm": "windw"}, "metric": "memory.bytes",
             "at_most": 1}))
        self.assertEqual(done.returncode, VIOLATION)
        self.assertEqual(done.stderr, "")
        table = done.stdout[done.stdout.index("violations:"):]
        self.assertRegex(table, r"too tight +256 +255 +above at_most +"
                                r"window/window/constitution/0/1 budget=256\n")
        self.assertIn("matches no cell: no cell has algorithm = windw; did you mean window?", table)
        self.assertTrue(done.stdout.endswith("\n0 of 2 bounds held\n"))

    def test_losing_to_the_other_is_a_violation(self):
        report = json.loads(self.check("--json", bounds=self.bounds(
            {"name": "reversed", "where": {"algorithm": "uniform"},
             "than": {"algorithm": "balancekv_prefill"}, "metric": "errors.relative_l2.mean",
             "paired_by": ["layer", "kv_head", "seed", "params.T"], "test": "sign",
             "false_alarm": 1e-6})).stdout)
        self.assertFalse(report["passed"])
        evidence = report["bounds"][0]["evidence"]
        self.assertEqual(evidence["lower"] + evidence["higher"], evidence["pairs"])
        self.assertGreater(evidence["median_ratio"], 1.0)

    def test_vacuous_cells_are_listed_and_hold_nothing(self):
        results = json.loads(self.results.read_text())
        for cell in results["cells"]:
            if cell["label"] == "theorem 1":
                cell["derived"]["vacuous"] = True
        path = self.folder / "vacuous.json"
        path.write_text(json.dumps(results))
        done = self.check(results=path)
        self.assertEqual(done.returncode, VIOLATION)
        self.assertIn("subgen theorem 1: vacuous: subgen/theorem 1/0/0/0", done.stdout)
        self.assertIn("no cell was tested: 60 vacuous, 0 skipped, 0 undefined", done.stdout)

    def test_the_theorem_promises_what_no_trivial_answer_reaches(self):
        for cell in json.loads(self.results.read_text())["cells"]:
            if cell["label"] == "theorem 1":
                self.assertFalse(cell["derived"]["vacuous"])
                self.assertTrue(cell["derived"]["sublinear"])
                for name in ("zero", "mean_value"):
                    self.assertGreater(cell["trivial"][name]["epsilon_spectral"]["last"],
                                       cell["key"]["params"]["epsilon"])

    def test_cells_as_bad_as_a_trivial_answer_are_violations(self):
        for name in ("zero", "mean_value"):
            results = json.loads(self.results.read_text())
            for cell in results["cells"]:
                if cell["label"] == "theorem 1":
                    cell["errors"] = {**cell["errors"], **cell["trivial"][name]}
            path = self.folder / f"{name}.json"
            path.write_text(json.dumps(results))
            report = json.loads(self.check("--json", results=path).stdout)
            names = {bound["name"] for bound in report["bounds"] if not bound["held"]}
            self.assertEqual(names, {"subgen theorem 1", "subgen beats the trivial answers"})

    def test_a_baseline_is_written_and_then_held(self):
        bounds = self.bounds({"name": "n", "where": {"algorithm": "window"},
                              "metric": "errors.relative_l2.mean", "baseline": "frozen.json",
                              "relative_tolerance": 0})
        self.assertEqual(self.check(bounds=bounds).returncode, BAD_INPUT)
        nowhere = self.bounds({"name": "n", "metric": "errors.relative_l2.mean",
                               "baseline": "none/frozen.json", "relative_tolerance": 0})
        done = self.check("--write-baselines", bounds=nowhere)
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertIn("/bounds/0/baseline: there is no folder", done.stderr)
        bounds = self.bounds({"name": "n", "where": {"algorithm": "window"},
                              "metric": "errors.relative_l2.mean", "baseline": "frozen.json",
                              "relative_tolerance": 0})
        done = self.check("--write-baselines", bounds=bounds)
        self.assertEqual((done.returncode, done.stdout), (DONE, ""), done.stderr)
        self.assertEqual(self.check(bounds=bounds).returncode, DONE)
        frozen = (self.folder / "frozen.json").read_text()
        self.assertNotIn(str(SOURCE), frozen)
        (self.folder / "frozen.json").write_text(frozen.replace('"mean":0.', '"mean":1.', 1))
        self.assertEqual(self.check(bounds=bounds).returncode, VIOLATION)

    def test_the_shipped_synthetic_dumps_are_what_their_commands_make(self):
        for kind, options in {
                "clusterable": ("--tokens", 512, "--delta", 0.25),
                "focused": ("--tokens", 4096, "--delta", 0.1, "--query-rows", 256)}.items():
            with self.subTest(kind):
                made = self.folder / f"{kind}.h5"
                done = run("synth", kind, "--out", made, "--kv-heads", 1, "--group", 1, "--d", 8,
                           "--m", 8, *options)
                self.assertEqual(done.returncode, DONE, done.stderr)
                fingerprints = [json.loads(run("inspect", path, "--json").stdout)["fingerprint"]
                                for path in (made, SOURCE / f"data/{kind}.h5")]
                self.assertEqual(*fingerprints)


if __name__ == "__main__":
    unittest.main()
