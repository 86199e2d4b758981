"""The ids of configs/quick.json, by algorithm: a cell that is the same keeps its id, so that results of
years ago can be compared, resumed and merged. A change here breaks that and needs a MAJOR version."""

import hashlib
import json
import os
import subprocess
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KVBENCH_SOURCE"])
GOLDEN = SOURCE / "tests/golden/quick_ids.json"


class Ids(unittest.TestCase):
    def test_ids_stay(self):
        done = subprocess.run([os.environ["KVBENCH_PROGRAM"], "plan", "--config",
                               SOURCE / "configs/quick.json", "--device", "cpu", "--json"],
                              capture_output=True, text=True, check=True)
        cells = json.loads(done.stdout)["cell_list"]
        found = {}
        for cell in cells:
            found.setdefault(cell["path"].split("/")[0], []).append(cell["id"])
        digests = {name: {"cells": len(ids), "first": ids[0],
                          "all": hashlib.sha256("\n".join(ids).encode()).hexdigest()}
                   for name, ids in found.items()}
        self.assertEqual(digests, json.loads(GOLDEN.read_text()))


if __name__ == "__main__":
    unittest.main()
