"""Keys less the bias of the model, from a dump to the errors of cells: q4_0, the bias's turns and
attention are written here again, from their definitions."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

PROGRAM = os.environ["KVBENCH_PROGRAM"]
N, D, HEADS, PROMPT, SCALE = 48, 64, 2, 32, 0.125
FREQUENCIES = 100.0 ** (-np.arange(0, D, 2) / D)
SETTINGS = {  # by name of what the codec sees: parameters besides the codec's own
    "plain": {},
    "turned": {"centre": "bias"},
    "before": {"centre": "bias", "rope": "before"},
}


def turned(rows, positions):
    """Rows [n, d] turned by their positions [n], pairs half a row apart."""
    angle = np.asarray(positions, float)[:, None] * FREQUENCIES
    a, b = rows[:, :D // 2], rows[:, D // 2:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], 1)


def q4_0(rows):
    """ggml's block_q4_0: 32 numbers, a scale of the largest over -8 in binary16, codes 0 to 15."""
    blocks = rows.astype(np.float32).reshape(-1, 32)
    largest = blocks[np.arange(len(blocks)), np.abs(blocks).argmax(1)]
    scale = largest / np.float32(-8)
    codes = np.minimum(15, np.trunc(blocks * (np.float32(1) / scale)[:, None] + np.float32(8.5)))
    return ((codes - 8) * scale.astype(np.float16).astype(np.float32)[:, None]).reshape(rows.shape).astype(float)


def attention(q, k, v):
    """Rows [PROMPT, N) of causal attention."""
    out = []
    for row in range(PROMPT, N):
        x = SCALE * k[:row + 1] @ q[row]
        p = np.exp(x - x.max())
        out.append(p @ v[:row + 1] / p.sum())
    return np.array(out)


class KeyBias(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="kvbench-key-bias-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        random = np.random.default_rng(3)
        cls.bias = 20 * random.standard_normal((HEADS, D)).round(2)
        cls.z, cls.q, cls.v = random.standard_normal((3, HEADS, N, D))
        cls.k = np.stack([turned(z + b, range(N)) for z, b in zip(cls.z, cls.bias)])

    def run_cells(self, *, bias=True, rope=True, frequencies=FREQUENCIES):
        dump = self.folder / "dump.h5"
        with h5py.File(dump, "w") as file:
            file.attrs.update({"format": "kvbench-dump", "format_version": 1, "model": "m", "producer": "p",
                               "n_layers": 1})
            layer = file.create_group("sequences/text/layers/0")
            layer.attrs.update({"scale": SCALE, "sliding_window": 0, "logit_softcap": 0.0})
            for name, array in (("q", self.q), ("k", self.k), ("v", self.v)):
                layer[name] = array
            if bias:
                layer["key_bias"] = self.bias
            if rope:
                group = file.create_group("rope")
                group.attrs.update({"theta": 100.0, "layout": "half", "attention_scaling": 1.0})
                group["inv_freq"] = frequencies
        sweep = self.folder / "sweep.json"
        sweep.write_text(json.dumps({
            "schema_version": 1, "name": "key_bias", "dumps": [str(dump)], "algorithms": [{"algorithm": "exact"}],
            "replay": {"prompt_tokens": PROMPT},
            "storage": [{"keys": {"codec": "q4_0", **more}} for more in SETTINGS.values()]}))
        done = subprocess.run([PROGRAM, "run", "--config", sweep, "--out", self.folder / "out", "--fresh", "--quiet"],
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        cells = json.loads((self.folder / "out/results.json").read_text())["cells"]
        of = {"plain": [], "turned": [], "before": []}
        for cell in cells:
            keys = cell["key"]["storage"]["keys"]
            name = next(name for name, more in SETTINGS.items()
                        if more == {each: keys[each] for each in ("centre", "rope") if each in keys})
            of[name].append(cell)
        self.assertEqual({len(some) for some in of.values()}, {HEADS})
        return of

    def test_errors_are_those_of_keys_that_had_no_bias(self):
        cells = self.run_cells()
        positions = np.arange(N)
        for head in range(HEADS):
            bias = np.repeat(self.bias[head][None], N, axis=0)
            decoded = {
                "plain": q4_0(self.k[head]),
                "turned": q4_0(turned(self.z[head], positions)) + turned(bias, positions),
                "before": turned(q4_0(self.z[head]) + bias, positions),
            }
            exact = attention(self.q[head], self.k[head], self.v[head])
            found = {}
            for name, keys in decoded.items():
                cell = next(each for each in cells[name] if each["key"]["kv_head"] == head)
                apart = attention(self.q[head], keys, self.v[head]) - exact
                expected = (np.linalg.norm(keys - self.k[head]) / np.linalg.norm(self.k[head]),
                            np.linalg.norm(apart) / np.linalg.norm(exact))
                errors = cell["errors"]
                np.testing.assert_allclose((errors["key_error"], errors["relative_frobenius_error"]), expected,
                                           rtol=1e-9)
                found[name] = expected
                self.assertEqual(cell["memory"]["shared_bytes"], 0)
                self.assertEqual(cell["memory"]["bytes"], N * (D / 32 * 18 + 2 * D))
            for name in ("turned", "before"):  # z is a twentieth of the bias
                self.assertLess(10 * found[name][0], found["plain"][0])

    def test_a_dump_without_bias_or_rotation_skips_with_a_remedy(self):
        for more, words in (({"bias": False}, "the dump has none for this layer; export it anew"),
                            ({"rope": False}, "write its rope group (inv_freq [0] if nothing turns keys)")):
            cells = self.run_cells(**more)
            self.assertEqual({cell["status"] for cell in cells["plain"]}, {"ok"})
            for cell in (*cells["turned"], *(cells["before"] if "bias" in more else ())):
                self.assertEqual(cell["status"], "skipped")
                self.assertIn(words, cell["reason"])
        cells = self.run_cells(frequencies=np.zeros(1))  # the remedy
        self.assertEqual({cell["status"] for some in cells.values() for cell in some}, {"ok"})

    def test_inspect_shows_its_norms(self):
        self.run_cells()
        done = subprocess.run([PROGRAM, "inspect", self.folder / "dump.h5", "--json"], capture_output=True, text=True,
                              timeout=120, check=True)
        layer = json.loads(done.stdout)["sequences"][0]["layers"][0]
        np.testing.assert_allclose(layer["key_bias_norms"], np.linalg.norm(self.bias, axis=1), rtol=1e-12)


if __name__ == "__main__":
    unittest.main()
