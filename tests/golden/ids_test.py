"""The ids of configs/quick.json, by algorithm, and those of the baselines of configs/ci.json: a cell that
is the same keeps its id, so that results of years ago can be compared, resumed and merged. A change here
breaks that and needs a MAJOR version."""

import hashlib
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KVBENCH_SOURCE"])
GOLDEN = SOURCE / "tests/golden/quick_ids.json"


def planned(config):
    done = subprocess.run([os.environ["KVBENCH_PROGRAM"], "plan", "--config", config, "--device", "cpu",
                           "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["cell_list"]


class Ids(unittest.TestCase):
    def test_ids_of_baselines_stay(self):
        baselines = json.loads((SOURCE / "configs/baselines/ci.json").read_text())
        theirs = {cell["id"] for cell in baselines["cells"]}
        self.assertEqual(theirs - {cell["id"] for cell in planned(SOURCE / "configs/ci.json")}, set())

    def test_a_later_parameter_at_its_default_changes_no_id(self):
        def ids(params):
            with tempfile.TemporaryDirectory() as folder:
                config = Path(folder) / "sweep.json"
                config.write_text(json.dumps({
                    "schema_version": 1, "name": "ids",
                    "dumps": [str(SOURCE / "data/smollm2-constitution.h5")],
                    "algorithms": [{"algorithm": "snapkv", "params": {"budget": 256, **params}}]}))
                return [cell["id"] for cell in planned(config)]

        plain = ids({})
        self.assertEqual(ids({"reduce": "sum", "order": "group_then_pool"}), plain)
        both = ids({"reduce": ["max", "sum"]})
        self.assertEqual(len(set(both)), 2 * len(plain))
        self.assertEqual(set(plain) - set(both), set())

    def test_ids_stay(self):
        cells = planned(SOURCE / "configs/quick.json")
        found = {}
        for cell in cells:
            found.setdefault(cell["path"].split("/")[0], []).append(cell["id"])
        digests = {name: {"cells": len(ids), "first": ids[0],
                          "all": hashlib.sha256("\n".join(ids).encode()).hexdigest()}
                   for name, ids in found.items()}
        self.assertEqual(digests, json.loads(GOLDEN.read_text()))


if __name__ == "__main__":
    unittest.main()
