"""The evidence that a whole model loses, compared with a count from the cache files of the same
run. Usage: evidence_test.py KVBENCH. Exits 77 where a Python package is missing."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import h5py
    import kvplot
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROGRAM = None
LAYERS, HEADS, EVIDENCE = 3, 2, range(40, 60)


def run(folder, *algorithms):
    """Results of 256 tokens of three layers, of which the last row asks for twenty."""
    dump = folder / "dump.h5"
    span = f"{EVIDENCE[0]},{EVIDENCE[-1]}"
    subprocess.run([PROGRAM, "synth", "gaussian", "--tokens", "256", "--layers", str(LAYERS), "--kv-heads",
                    str(HEADS), "--d", "8", "--evidence", span, "--out", dump],
                   check=True, capture_output=True)
    sweep = folder / "sweep.json"
    sweep.write_text(json.dumps({"schema_version": 1, "name": "lost", "dumps": [str(dump)],
                                 "seeds": {"first": 0, "count": 3}, "output": {"caches": True},
                                 "algorithms": algorithms}))
    subprocess.run([PROGRAM, "run", "--config", sweep, "--out", folder / "out", "--quiet"], check=True,
                   capture_output=True)
    return folder / "out/results.json"


def held_at(path, row):
    """Tokens that any query head of any layer holds at a row, from a cache file."""
    held = set()
    with h5py.File(path) as file:
        sequence = next(iter(file["sequences"].values()))
        for layer in sequence["layers"].values():
            for head in layer["heads"].values():
                prompt, n = int(head.attrs["prompt_tokens"]), int(head.attrs["tokens"])
                tokens = head["token"][:]
                begin = head["begin"][:] if "begin" in head else [prompt] * len(tokens)
                end = head["end"][:] if "end" in head else [n] * len(tokens)
                held |= {int(t) for t, b, e in zip(tokens, begin, end) if b <= row < e}
                if head.attrs.get("decode", "append") == "append":
                    held |= set(range(prompt, row + 1))
    return held


class Lost(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_it_is_what_no_cache_file_holds(self):
        path = run(self.folder, {"algorithm": "window", "params": {"budget": [32, 210]}},
                   {"algorithm": "knorm", "params": {"budget": [16, 96]}}, {"algorithm": "exact"},
                   {"algorithm": "uniform", "params": {"budget": 24, "sinks": 4}})
        rows = kvplot.globally_lost(path)
        self.assertEqual(len(rows), 5 + 3)
        self.assertEqual(set(rows["layers"]), {LAYERS})
        counted = {}
        for file in sorted((path.parent / "caches").glob("*.h5")):
            held = held_at(file, 255)
            with h5py.File(file) as cache:
                setting = (cache.attrs["method"], json.dumps(json.loads(cache.attrs["params"]), sort_keys=True),
                           int(cache.attrs["seed"]) if "seed" in cache.attrs else None)
            counted[setting] = [token for token in EVIDENCE if token not in held]
        found = {(row.label, row.point, None if row.seed != row.seed else row.seed): row.lost
                 for row in rows.itertuples()}
        self.assertEqual(found, counted)
        shares = dict(zip(rows["point"] + rows["seed"].astype(str), rows["share"]))
        self.assertEqual(sorted({share for share in shares.values() if share in (0, 1)}), [0, 1])
        self.assertTrue(any(0 < share < 1 for share in shares.values()), shares)

    def test_a_setting_with_a_failed_layer_is_left_out(self):
        path = run(self.folder, {"algorithm": "window", "params": {"budget": [32, 64]}})
        document = json.loads(path.read_text())
        first = document["layers"][0]
        first["status"], first["reason"] = "failed", "planted"
        path.write_text(json.dumps(document))
        rows = kvplot.globally_lost(path)
        budget = first["key"]["params"]["budget"]
        self.assertEqual(list(rows["point"]), [json.dumps({"budget": {32: 64, 64: 32}[budget]})])

    def test_without_evidence_there_are_no_rows(self):
        path = run(self.folder, {"algorithm": "window", "params": {"budget": 32}})
        document = json.loads(path.read_text())
        document["layers"] = []
        path.write_text(json.dumps(document))
        rows = kvplot.globally_lost(path)
        self.assertEqual((len(rows), list(rows)[-1]), (0, "share"))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
