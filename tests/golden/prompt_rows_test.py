"""Rows of the prompt against numpy: errors of methods at single rows, by the definition of what each
reads there, with plain loops over rows and tokens."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

PROGRAM = os.environ["KVBENCH_PROGRAM"]
N, PROMPT, D, HEADS = 60, 44, 6, 2
BUDGET, SINKS, DILATION, PAGE = 9, 3, 2, 4
SCALE = 0.4
METHODS = [
    {"algorithm": "exact"},
    {"algorithm": "window", "params": {"budget": BUDGET}},
    {"algorithm": "streaming_llm", "params": {"budget": BUDGET, "sinks": SINKS}},
    {"algorithm": "dilated_window", "params": {"budget": BUDGET, "dilation": DILATION}},
    {"algorithm": "oracle_topk", "params": {"budget": BUDGET, "group": "none"}},
    {"algorithm": "quest", "params": {"budget": 4 * PAGE, "page": PAGE}},
]


def read(method, q, k, row):
    """Tokens that a query reads at a row."""
    seen = range(row + 1)
    if method == "exact":
        return list(seen)
    if method == "window":
        return [j for j in seen if j > row - BUDGET]
    if method == "streaming_llm":
        return [j for j in seen if j < SINKS or j > row - (BUDGET - SINKS)]
    if method == "dilated_window":
        return [j for j in seen if (row - j) % (DILATION + 1) == 0
                and (row - j) // (DILATION + 1) < BUDGET]
    if method == "oracle_topk":
        return sorted(seen, key=lambda j: -float(q @ k[j]))[:BUDGET]
    pages = [list(seen)[first:first + PAGE] for first in range(0, row + 1, PAGE)]
    bounds = [sum(max(q[c] * k[page, c].min(), q[c] * k[page, c].max()) for c in range(D))
              for page in pages]
    count = max(3, min(row + 1, 4 * PAGE) // PAGE)  # as the released evaluation counts pages
    chosen = sorted(range(len(pages)), key=lambda p: -bounds[p])[:count]
    return [j for p in chosen for j in pages[p]]


def attention(q, k, v, tokens):
    weights = np.array([np.exp(SCALE * float(q @ k[j])) for j in tokens])
    return (weights[:, None] * v[tokens]).sum(0) / weights.sum()


class PromptRows(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.folder = Path(made.name)
        rng = np.random.default_rng(23)
        cls.q = 2 * rng.standard_normal((HEADS, N, D))
        cls.k = rng.standard_normal((1, N, D))
        cls.v = rng.standard_normal((1, N, D))
        with h5py.File(cls.folder / "prompt.h5", "w") as file:
            file.attrs.update({"format": "kvbench-dump", "format_version": 1, "model": "m",
                               "producer": "a test", "n_layers": 1})
            layer = file.create_group("sequences/s/layers/0")
            layer.attrs.update({"scale": SCALE, "sliding_window": 0, "logit_softcap": 0.0})
            layer["q"], layer["k"], layer["v"] = cls.q, cls.k, cls.v

    def run_with(self, rows):
        sweep = self.folder / "sweep.json"
        sweep.write_text(json.dumps({
            "schema_version": 1, "name": "prompt", "dumps": [str(self.folder / "prompt.h5")],
            "replay": {"prompt_tokens": PROMPT}, "evaluate": {"rows": rows},
            "output": {"rows": True}, "algorithms": METHODS}))
        done = subprocess.run([PROGRAM, "run", "--config", sweep, "--out", self.folder / "out",
                               "--fresh", "--quiet"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((self.folder / "out/results.json").read_text())["cells"]

    def expected(self, method, head, row):
        q, k, v = self.q[head, row], self.k[0], self.v[0]
        exact = attention(q, k, v, list(range(row + 1)))
        answer = attention(q, k, v, read(method, q, k, row))
        return np.linalg.norm(answer - exact) / np.linalg.norm(exact)

    def test_errors_at_rows_of_the_prompt_are_those_of_numpy(self):
        for rows, at in (({"prompt": {"every": 5}}, range(0, PROMPT, 5)),
                         ({"prompt": {"last": 7}}, range(PROMPT - 7, PROMPT)),
                         ({"prompt": [20, 43, 11]}, (11, 20, 43))):
            cells = self.run_with(rows)
            self.assertEqual([cell["key"]["algorithm"] for cell in cells],
                             [method["algorithm"] for method in METHODS])
            with h5py.File(self.folder / "out/results.rows.h5") as file:
                for cell in cells:
                    method = cell["key"]["algorithm"]
                    with self.subTest(rows=rows, method=method):
                        self.assertEqual(cell["status"], "ok")
                        self.assertEqual(cell["key"]["rows"], rows)
                        values = file[cell["id"]]
                        self.assertEqual(list(values["rows"]), list(at))
                        expected = [[self.expected(method, head, row) for row in at]
                                    for head in range(HEADS)]
                        np.testing.assert_allclose(values["relative_l2"], expected, rtol=0,
                                                   atol=1e-12)
                        mean = cell["errors"]["relative_l2"]["mean"]
                        self.assertLess(abs(mean - np.mean(expected)), 1e-12)

    def test_memory_is_that_of_decode_rows(self):
        def memory(rows):
            return [cell["memory"] for cell in self.run_with(rows)]
        self.assertEqual(memory({"prompt": "all"}), memory("all"))


if __name__ == "__main__":
    unittest.main()
