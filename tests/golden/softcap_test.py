"""Soft-caps from 2 to 1e300: errors of `window` against decimal arithmetic of 60 digits, and
`kvbench validate` of outputs that were computed so.

A cap far above the logits changes nothing, which a plain cap tanh(x / cap) in double precision
misses: at 1e20 all logits become 0.
"""

import json
import os
import subprocess
import tempfile
import unittest
from decimal import Decimal, getcontext
from pathlib import Path

import h5py
import numpy as np

PROGRAM = os.environ["KVBENCH_PROGRAM"]
N, PROMPT, D, WINDOW = 24, 16, 4, 6
getcontext().prec = 60


def tanh(y: Decimal) -> Decimal:
    if abs(y) < Decimal("1e-15"):
        return y - y ** 3 / 3  # the next term is below 1e-60 of y
    e = (2 * y).exp()
    return (e - 1) / (e + 1)


def rows_of(tensors, cap, seen):
    """[n][dv]: attention of each row to its last `seen` tokens."""
    q, k, v = ([[Decimal(float(x)) for x in row] for row in tensors[name][0]] for name in "qkv")
    out = []
    for i in range(N):
        weights = []
        tokens = range(max(0, i + 1 - seen), i + 1)
        for j in tokens:
            x = sum(a * b for a, b in zip(q[i], k[j]))
            weights.append((cap * tanh(x / cap) if cap else x).exp())
        total = sum(weights)
        out.append([sum(w * v[j][c] for w, j in zip(weights, tokens)) / total for c in range(D)])
    return out


def norm(row):
    return sum(x * x for x in row).sqrt()


class Softcap(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.folder = Path(made.name)
        rng = np.random.default_rng(17)
        cls.tensors = {name: 3 * rng.standard_normal((1, N, D)) for name in "qkv"}

    def dump(self, cap, out=None):
        path = self.folder / "cap.h5"
        with h5py.File(path, "w") as file:
            file.attrs.update({"format": "kvbench-dump", "format_version": 1, "model": "m",
                               "producer": "a test", "n_layers": 1})
            layer = file.create_group("sequences/s/layers/0")
            layer.attrs.update({"scale": 1.0, "sliding_window": 0, "logit_softcap": float(cap)})
            for name, tensor in self.tensors.items():
                layer[name] = tensor
            if out is not None:
                layer["out"] = np.array([[[float(x) for x in row] for row in out]], np.float32)
        return path

    def error(self, cap):
        """errors of `window` by the program."""
        sweep = self.folder / "sweep.json"
        sweep.write_text(json.dumps({
            "schema_version": 1, "name": "cap", "dumps": [str(self.dump(cap))],
            "replay": {"prompt_tokens": PROMPT},
            "algorithms": [{"algorithm": "window", "params": {"budget": WINDOW}}]}))
        done = subprocess.run([PROGRAM, "run", "--config", sweep, "--out", self.folder / "out",
                               "--fresh", "--quiet"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        (cell,) = json.loads((self.folder / "out/results.json").read_text())["cells"]
        return cell["errors"]

    def test_errors_are_those_of_decimal_arithmetic(self):
        for cap in (0, 2, 50, 128, 129, 1000, 1e6, 1e9, 1e14, 1e20, 1e30, 3.4e38, 1e300):
            exact, kept = (rows_of(self.tensors, Decimal(cap), seen) for seen in (N, WINDOW))
            errors = [norm([a - b for a, b in zip(z, e)]) / norm(e)
                      for z, e in zip(kept[PROMPT:], exact[PROMPT:])]
            with self.subTest(cap=cap):
                expected = float(sum(errors) / len(errors))
                found = self.error(cap)["relative_l2"]["mean"]
                self.assertLess(abs(found - expected), 1e-13 * expected)

    def test_a_cap_that_changes_no_logit_changes_no_bit(self):
        plain = self.error(0)
        for cap in (1e12, 1e30, 1e300):
            self.assertEqual(self.error(cap), plain, cap)

    def test_validate_agrees_with_stored_outputs(self):
        for cap in (50, 1000, 1e16, 1e30):
            file = self.dump(cap, rows_of(self.tensors, Decimal(cap), N))
            done = subprocess.run([PROGRAM, "validate", file], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
