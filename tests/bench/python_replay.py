#!/usr/bin/env python3
"""The cost of kb.replay next to the program: seconds of the same cell, and the seconds that Python
adds.

    .venv-tools/bin/python tests/bench/python_replay.py build/bin/kvbench

One KV head of 8192 tokens and three query heads, d = 64, the last 256 rows. The program and the call
take turns; medians of nine. `in kvbench` is the time inside the compiled extension, which calls
what the program calls; `around it` is the rest of the call: arguments, JSON, the result's arrays.
"""
import json
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import kvbench as kb
from kvbench import _replay

ROUNDS = 9
CELLS = [("exact", {}), ("window", {"budget": 1024}), ("snapkv", {"budget": 1024}),
         ("h2o", {"budget": 1024}), ("subgen", {"delta_quantile": 0.01, "t": 8, "s": 1024})]


class Timed:
    """The extension, with the seconds of its last replay."""

    def __init__(self, core):
        self._core, self.seconds = core, 0.0

    def __getattr__(self, name):
        return getattr(self._core, name)

    def replay(self, *arguments, **named):
        start = time.perf_counter()
        answer = self._core.replay(*arguments, **named)
        self.seconds = time.perf_counter() - start
        return answer


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main():
    program = Path(sys.argv[1]).resolve() if len(sys.argv) == 2 else sys.exit(__doc__)
    core = _replay._core = Timed(_replay._core)
    with tempfile.TemporaryDirectory(prefix="kvbench-python-") as name:
        folder = Path(name)
        subprocess.run([program, "synth", "gaussian", "--out", folder / "d.h5", "--tokens", "8192",
                        "--d", "64", "--layers", "1", "--group", "3", "--kv-heads", "1"],
                       check=True, capture_output=True)
        layer = kb.open_dump(folder / "d.h5")["0"][0]
        arrays = [each[...].astype("float64") for each in (layer.q, layer.k, layer.v)]
        print("| cell | program | kb.replay | in kvbench | around it |\n|---|---:|---:|---:|---:|")
        for algorithm, params in CELLS:
            sweep = folder / "s.json"
            sweep.write_text(json.dumps({
                "schema_version": 1, "name": "one", "dumps": ["d.h5"], "seeds": [0],
                "evaluate": {"rows": {"last": 256}},
                "algorithms": [{"algorithm": algorithm, "params": params}]}))
            command = [program, "run", "--config", sweep, "--out", folder / "out", "--fresh", "--quiet"]
            of_program = partial(subprocess.run, command, check=True, capture_output=True)
            of_call = partial(kb.replay, *arrays, algorithm, scale=layer.scale, rows={"last": 256}, **params)
            samples = {"program": [], "call": [], "inside": []}
            for _ in range(ROUNDS + 1):
                samples["program"].append(seconds(of_program))
                samples["call"].append(seconds(of_call))
                samples["inside"].append(core.seconds)
            around = statistics.median(
                call - inside for call, inside in zip(samples["call"][1:], samples["inside"][1:]))
            whole, call, inside = (statistics.median(samples[each][1:]) for each in samples)
            print(f"| {algorithm} | {1e3 * whole:.0f} ms | {1e3 * call:.0f} ms | {1e3 * inside:.0f} ms "
                  f"| {1e3 * around:.1f} ms, {100 * around / whole:.1f} % of the program |")


if __name__ == "__main__":
    main()
