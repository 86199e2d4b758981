"""The benchmark's sweep in numpy, which shares no line with kvbench, on the shipped dump: its cells
are kvbench's, to rounding where nothing is drawn and in law where something is. Nothing is timed."""

import copy
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from compare_sweeps import TOLERANCE, disagreement, ours

HERE = Path(__file__).parent
SOURCE = HERE.parents[1]
DUMP = SOURCE / "data/smollm2-constitution.h5"
TOKENS, LAYERS = 1536, [1, 15]


class Sweep(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory(prefix="kvbench-sweeps-") as name:
            folder = Path(name)
            subprocess.run([os.environ["KVBENCH_PROGRAM"], "run", "--config",
                            SOURCE / "configs/quick.json", "--set", f"select.tokens={TOKENS}",
                            "--set", f"select.layers={json.dumps(LAYERS)}", "--out", folder / "out",
                            "--quiet"], check=True)
            cls.cells = json.loads((folder / "out/results.json").read_text())["cells"]
            (folder / "cells.json").write_text(json.dumps(cls.cells))
            subprocess.run([sys.executable, HERE / "peers/numpy_sweep.py", DUMP,
                            folder / "cells.json", folder / "peer.json", "--double"], check=True,
                           stdout=subprocess.DEVNULL)
            cls.records = json.loads((folder / "peer.json").read_text())

    def changed(self, algorithm, factor):
        """The records with one metric of an algorithm multiplied."""
        records = copy.deepcopy(self.records)
        for cell in self.cells:
            if cell["key"]["algorithm"] == algorithm:
                records[cell["id"]]["relative_l2"] *= factor
        return records

    def test_every_cell_is_that_of_kvbench(self):
        self.assertGreater(len(self.cells), 600)
        self.assertTrue(all(cell["status"] == "ok" for cell in self.cells))
        self.assertEqual(disagreement(self.cells, self.records, TOLERANCE), "")

    def test_a_deterministic_cell_that_differs_is_named(self):
        self.assertIn("relative_l2 of h2o",
                      disagreement(self.cells, self.changed("h2o", 1 + 1e-7), TOLERANCE))

    def test_a_randomised_algorithm_with_another_mean_is_named(self):
        for algorithm in ("uniform", "balancekv_prefill", "keyformer", "subgen"):
            with self.subTest(algorithm=algorithm):
                self.assertIn(f"relative_l2 of {algorithm}",
                              disagreement(self.cells, self.changed(algorithm, 2.0), TOLERANCE))

    def test_cells_that_are_missing_are_seen(self):
        records = dict(self.records)
        records.pop(self.cells[0]["id"])
        self.assertIn("cells", disagreement(self.cells, records, TOLERANCE))

    def test_a_record_without_its_metrics_is_seen(self):
        records = {**self.records, self.cells[0]["id"]: {"kept": 1.0}}
        self.assertIn("without", disagreement(self.cells, records, TOLERANCE))

    def test_means_are_those_of_the_record(self):
        record = {"errors": {"relative_l2": {"mean": 1.0, "max": 9.0},
                             "epsilon_spectral": {"mean": 2.0, "last": 9.0}},
                  "mass": {"kept": {"mean": 3.0}, "numerator": {"mean": 9.0}}}
        self.assertEqual(ours(record),
                         {"relative_l2": 1.0, "epsilon_spectral": 2.0, "kept": 3.0})


if __name__ == "__main__":
    unittest.main()
