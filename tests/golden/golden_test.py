"""The shipped dump, replayed, against the values of an independent float64 program.

Every deterministic value agrees to 1e-9 relative: errors, kept mass, tokens held, covering radius,
clusters. (`exact` is 0 up to rounding on both sides: compared absolutely.)
"""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ["KVBENCH_PROGRAM"]
SOURCE = Path(os.environ["KVBENCH_SOURCE"])
EXPECTED = json.loads((SOURCE / "tests/golden/constitution_1024.json").read_text())
RELATIVE = 1e-9
ROUNDING = 1e-13


def flat(document, prefix=""):
    for name, value in document.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def replayed():
    """Results by (algorithm, given parameters, layer, KV head)."""
    points = {(cell["algorithm"], json.dumps(cell["params"])): cell for cell in EXPECTED["cells"]}
    entries = []
    for cell in points.values():
        params = dict(cell["params"])
        if cell["algorithm"] == "subgen":
            params.update(t=1, s=1)
        entries.append({"algorithm": cell["algorithm"], "params": params,
                        "label": json.dumps(cell["params"])})
    sweep = {"schema_version": 1, "name": "golden",
             "dumps": [str(SOURCE / "data/smollm2-constitution.h5")],
             "select": {"tokens": EXPECTED["tokens"]},
             "replay": {"prompt_tokens": EXPECTED["prompt_tokens"]}, "algorithms": entries}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "golden.json"
        config.write_text(json.dumps(sweep))
        subprocess.run([PROGRAM, "run", "--config", config, "--out", Path(folder) / "out",
                        "--quiet"], check=True, stdout=subprocess.DEVNULL)
        results = json.loads((Path(folder) / "out/results.json").read_text())
    return {(cell["key"]["algorithm"], cell["label"], cell["key"]["layer"],
             cell["key"]["kv_head"]): cell for cell in results["cells"]}


class Golden(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results = replayed()

    def result_of(self, cell):
        result = self.results[cell["algorithm"], json.dumps(cell["params"]), cell["layer"],
                              cell["kv_head"]]
        self.assertEqual(result["status"], "ok", result.get("reason"))
        return result

    def agree(self, name, ours, theirs, algorithm):
        self.assertIsNotNone(ours, f"{algorithm} {name}")
        limit = ROUNDING if algorithm == "exact" else RELATIVE * max(abs(theirs), 1e-12)
        self.assertLessEqual(abs(ours - theirs), limit, f"{algorithm} {name}: {ours} {theirs}")

    def test_errors_masses_and_tokens(self):
        compared = 0
        for cell in EXPECTED["cells"]:
            if "errors" not in cell:
                continue
            result = self.result_of(cell)
            ours = dict(flat(result["errors"]))
            ours.update(flat({"kept_mass": result["mass"]["kept"]}))
            ours["tokens"] = result["memory"]["tokens"]
            ours["tokens_peak"] = result["memory"]["tokens_peak"]
            for name, theirs in flat(cell["errors"]):
                self.agree(name, ours[name], theirs, cell["algorithm"])
                compared += 1
            if "covering_radius" in cell:
                self.agree("covering_radius", result["derived"]["covering_radius"],
                           cell["covering_radius"], cell["algorithm"])
        self.assertGreater(compared, 1000)

    def test_clusters(self):
        cells = [cell for cell in EXPECTED["cells"] if "clusters" in cell]
        self.assertTrue(cells)
        for cell in cells:
            self.assertEqual(self.result_of(cell)["clusters"]["final"], cell["clusters"])


if __name__ == "__main__":
    unittest.main()
