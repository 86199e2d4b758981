#!/usr/bin/env python3
"""How fast dumps are read from the page cache, next to cat and h5py: processor seconds and GB/s of raw elements.

    python3 tests/bench/reading.py build/bin/kvbench [--tokens N] [--rounds N]

Dumps are gaussian, of one layer of Llama-3-8B's shape (8 KV heads, 32 query heads, d = 128), made for the purpose in a
temporary folder. `run` is one row of `window` on every KV head; it reads each number twice, once for the fingerprint.
Times are medians of the rounds, on one thread, less those of a start without a dump.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

DUMPS = {"bfloat16, contiguous": ("bfloat16",), "float16, chunks of 1024 rows": ("float16", "--chunk-rows", "1024"),
         "float16, gzip 4": ("float16", "--gzip", "4")}
H5PY = "import h5py\nlayer = h5py.File({!r})['sequences/0/layers/0']\nfor each in 'qkv': layer[each][:]"


def seconds(rounds, *command):
    taken = []
    for _ in range(rounds):
        before = os.times()
        done = subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.decode()}")
        after = os.times()
        taken.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return median(taken)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    raw = (32 + 2 * 8) * options.tokens * 128 * 2 / 1e9
    starts = {"h5py": seconds(options.rounds, sys.executable, "-c", "import h5py"),
              "cat": 0.0, "validate": 0.0, "run": 0.0}
    print(f"{raw:.2f} GB of raw elements\n\n| dump | by | processor s | GB/s |\n|---|---|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        path, sweep = Path(folder, "dump.h5"), Path(folder, "sweep.json")
        sweep.write_text(json.dumps({
            "schema_version": 1, "name": "reading", "dumps": [str(path)], "evaluate": {"rows": {"last": 1}},
            "algorithms": [{"algorithm": "window", "params": {"budget": 64}}]}))
        for name, (dtype, *more) in DUMPS.items():
            seconds(1, options.program, "synth", "gaussian", "--tokens", options.tokens, "--kv-heads", 8, "--group", 4,
                    "--d", 128, "--out-rows", 1, "--dtype", dtype, *more, "--out", path)
            commands = {"cat": ("cat", path), "h5py": (sys.executable, "-c", H5PY.format(str(path))),
                        "validate": (options.program, "validate", path),
                        "run": (options.program, "run", "--config", sweep, "--out", Path(folder, "out"), "--fresh",
                                "--quiet")}
            for by, command in commands.items():
                took = seconds(options.rounds, *command) - starts[by]
                print(f"| {name} | {by} | {took:.2f} | {raw / took:.2f} |", flush=True)


if __name__ == "__main__":
    main()
