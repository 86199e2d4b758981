"""Means over unlike sets: tables, numbers and summaries where a method is skipped in some KV heads."""

import re
import unittest

import numpy as np
from program import DONE, Folder, kvbench

TWO = [{"algorithm": "h2o", "params": {"budget": 8}},
       {"algorithm": "quest", "params": {"budget": 8, "page": 4}}]


class Units(Folder):
    """`quest` is skipped in the dump whose layers have windows."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.synth("windowed.h5", "--tokens", 96, "--d", 8, "--layers", 2, "--sliding-window", 16, "--seed", 5)

    def run_both(self, algorithms, *options, **more):
        """The finished run, and its results."""
        config = self.sweep(algorithms, dumps=[str(self.made / "windowed.h5"), str(self.made / "tiny.h5")],
                            **more)
        done = kvbench("run", "--config", config, "--out", self.folder / "out", *options)
        self.assertEqual(done.returncode, DONE, done.stderr)
        return done, self.results()

    @staticmethod
    def of(results, algorithm, dump=None):
        return [cell for cell in results["cells"] if cell["status"] == "ok"
                and cell["key"]["algorithm"] == algorithm and dump in (None, cell["key"]["dump"])]

    def test_the_table_is_over_the_heads_that_every_method_has(self):
        done, results = self.run_both(TWO)
        full = results["dumps"][1]["fingerprint"]
        table = done.stderr.split("relative Frobenius error", 1)[1]
        self.assertIn("over 4 of 8 KV heads, those that every method has: quest has 4 of 8", table)
        self.assertIn("2 layers carry these intervals; more texts or layers narrow them",
                      " ".join(table.split()))
        for algorithm in ("h2o", "quest"):
            row = re.search(rf"(?m)^{algorithm} .*$", table).group().split()
            cells = self.of(results, algorithm, full)
            error = np.mean([cell["errors"]["relative_frobenius_error"] for cell in cells])
            self.assertIn(f"{error:.4g}", row)
            l2 = np.mean([cell["errors"]["relative_l2"]["mean"] for cell in cells])
            self.assertIn(f"{l2:.4g}", row)
            memory = (sum(cell["memory"]["peak_bytes"] for cell in cells)
                      / sum(cell["memory"]["exact_bytes"] for cell in cells))
            self.assertIn(f"{100 * memory:.1f}%", row)

    def test_the_summary_counts_units_and_adds_bytes(self):
        _, results = self.run_both(TWO)
        entries = {entry["algorithm"]: entry for entry in results["summary"] if entry["layer"] is None}
        self.assertEqual([entries["h2o"][name] for name in ("units", "units_asked", "skipped")], [8, 8, 0])
        self.assertEqual([entries["quest"][name] for name in ("units", "units_asked", "skipped")], [4, 8, 4])
        cells = self.of(results, "h2o")
        shares = [cell["memory"]["fraction"] for cell in cells]
        memory = (sum(cell["memory"]["peak_bytes"] for cell in cells)
                  / sum(cell["memory"]["exact_bytes"] for cell in cells))
        self.assertGreater(abs(np.mean(shares) - memory), 0.01)
        self.assertAlmostEqual(entries["h2o"]["memory"]["fraction"], memory, places=14)
        done = kvbench("verify", self.folder / "out/results.json")
        self.assertEqual(done.returncode, DONE, done.stdout + done.stderr)

    def test_one_number_says_what_it_is_over(self):
        done, results = self.run_both(TWO[1:], "--quiet", "--print", "errors.relative_l2.mean")
        self.assertEqual(float(done.stdout), np.mean(
            [cell["errors"]["relative_l2"]["mean"] for cell in self.of(results, "quest")]))
        self.assertIn("warning: --print: errors.relative_l2.mean is over 4 of 8 KV heads, 4 cells were skipped",
                      done.stderr)
        done, results = self.run_both(TWO[:1], "--quiet", "--print", "memory.fraction", "--fresh", name="all")
        self.assertNotIn("warning", done.stderr)
        cells = self.of(results, "h2o")
        self.assertAlmostEqual(float(done.stdout), sum(cell["memory"]["peak_bytes"] for cell in cells)
                               / sum(cell["memory"]["exact_bytes"] for cell in cells), places=14)

    def test_columns_are_the_memories_that_are_asked_for(self):
        algorithms = [{"algorithm": name, "params": {"budget": {"memory": [0.2, 0.3, 0.6]}}}
                      for name in ("window", "h2o")]
        results = self.run_sweep(algorithms=algorithms, seeds=[0])
        done = kvbench("run", "--config", self.sweep(algorithms, seeds=[0]), "--out", self.folder / "out")
        table = done.stderr.split("relative Frobenius error", 1)[1]
        self.assertIn("lowest at 30% first", table)
        self.assertRegex(table, r"(?m)^method +20% +95 % +30% +95 % +60% +95 % +spectral +row mean +memory$")
        rows = [line.split()[0] for line in table.splitlines() if re.match(r"(window|h2o) ", line)]
        error = {}
        for name in ("window", "h2o"):
            cells = [cell for cell in self.of(results, name) if cell["key"]["params"]["budget"] == {"memory": 0.3}]
            error[name] = np.mean([cell["errors"]["relative_frobenius_error"] for cell in cells])
            self.assertIn(f"{error[name]:.4g}", re.search(rf"(?m)^{name} .*$", table).group().split())
        self.assertEqual(rows, sorted(error, key=error.get))

    def test_a_method_that_reads_a_part_has_a_column_of_it(self):
        full = [str(self.made / "tiny.h5")]
        for reading in (True, False):
            config = self.sweep(TWO if reading else TWO[:1], dumps=full)
            done = kvbench("run", "--config", config, "--out", self.folder / "out", "--fresh")
            table = done.stderr.split("relative Frobenius error", 1)[1]
            self.assertEqual("(traffic.fraction)" in table, reading)
            self.assertEqual(bool(re.search(r"(?m)^method .* memory +reads\b", table)), reading)
            if reading:
                part = np.mean([cell["traffic"]["fraction"] for cell in self.of(self.results(), "quest")])
                self.assertIn(f"{100 * part:.1f}%", re.search(r"(?m)^quest .*$", table).group().split())

    def test_compare_says_of_how_many_units(self):
        self.run_both(TWO)
        path = self.folder / "out/results.json"
        done = kvbench("compare", path, path)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^same +quest .* 4 of 8 ")
        self.assertIn("16 cells in both, 4 of them without a number in either; no regression", done.stdout)


if __name__ == "__main__":
    unittest.main()
