#!/usr/bin/env python3
"""The cost of large sweeps and long streams: seconds, processor time and peak memory of kvbench.

    python3 tests/bench/scale.py build/bin/kvbench [--cells N ...] [--plan N] [--shape seeds|settings]
        [--rows] [--python .venv/bin/python] [--folder DIR] [--no-long]

On synthetic dumps made for the purpose in a temporary folder: 10^4, 10^5 and 10^6 small cells, planned, run, run
again, merged, exported, compared and checked, and with --python read by kvplot and written as Parquet; and the last
256 rows of 131,072 tokens. Cells are those of one setting with many seeds, or of a thousand settings over many KV
heads. Exponents are those of processor time, from the number of cells before. 10^6 cells take some 8 GB of disk.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETTINGS = 1000  # with two seeds, in two layers: 4000 cells for each KV head
LOAD = """
import sys
sys.path.insert(0, sys.argv[1])
import kvplot
frame = kvplot.load_results(sys.argv[2], columns=["errors.relative_l2.mean", "memory.fraction"])
print(kvplot.mean_over_units(frame, ["errors.relative_l2.mean", "memory.fraction"]))
"""


def measured(*command, out=subprocess.DEVNULL):
    """Seconds, processor seconds and peak resident MiB of a command, which must succeed."""
    start = time.monotonic()
    process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


class Table:
    def __init__(self):
        self.before = {}  # by task: cells, processor seconds
        print("| task | cells | seconds | processor seconds | exponent | peak MiB |\n|---|---:|---:|---:|---:|---:|")

    def row(self, task, cells, *command, **more):
        seconds, processor, mebibytes = measured(*command, **more)
        exponent = ""
        if task in self.before:
            fewer, took = self.before[task]
            exponent = f"{math.log(processor / took) / math.log(cells / fewer):.2f}"
        self.before[task] = (cells, processor)
        print(f"| {task} | {cells:,} | {seconds:.1f} | {processor:.1f} | {exponent} | {mebibytes:.0f} |", flush=True)


def sweep(folder, name, dump, seeds, rows, algorithms, keep_rows=False):
    path = folder / f"{name}.json"
    path.write_text(json.dumps({
        "schema_version": 1, "name": name, "dumps": [dump], "seeds": {"first": 0, "count": seeds},
        "evaluate": {"rows": rows}, "output": {"rows": keep_rows},
        "algorithms": [{"algorithm": id, "params": params} for id, params in algorithms]}))
    return path


def synth(program, path, *options):
    subprocess.run([program, "synth", "gaussian", "--out", path, *map(str, options)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def many_cells(program, folder, shape, cells, keep_rows=False):
    """A sweep of so many cells, of 64 tokens or of 256."""
    name = f"many-{cells}"
    if shape == "seeds":
        synth(program, folder / "small.h5", "--tokens", 64, "--d", 8, "--layers", 1)
        settings = max(1, cells // 1_000_000)  # a sweep has at most a million seeds
        return sweep(folder, name, "small.h5", cells // 2 // settings, {"last": 1},
                     [("uniform", {"T": 1, "sinks": list(range(4, 4 + settings))})], keep_rows)
    heads = max(1, cells // (4 * SETTINGS))
    synth(program, folder / f"{name}.h5", "--tokens", 256, "--d", 8, "--layers", 2, "--kv-heads", heads)
    return sweep(folder, name, f"{name}.h5", 2, {"last": 1},
                 [("uniform", {"T": [1, 2, 3, 4, 5], "sinks": {"range": [1, SETTINGS // 5, 1]}})], keep_rows)


def of_many_cells(table, program, folder, shape, cells, python, keep_rows):
    """Every command that reads or writes results."""
    many = many_cells(program, folder, shape, cells, keep_rows)
    out = folder / f"many-{cells}"
    results = out / "results.json"
    bounds = folder / "bounds.json"
    bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
        {"name": "below", "where": {"algorithm": "uniform"}, "metric": "errors.relative_l2.mean",
         "limit": 1e9}]}))
    table.row("plan", cells, program, "plan", "--config", many)
    table.row("run", cells, program, "run", "--config", many, "--out", out, "--quiet")
    table.row("run again, nothing to do", cells, program, "run", "--config", many, "--out", out, "--quiet")
    merged = folder / "merged.json"
    table.row("merge", cells, program, "merge", out, "--out", merged)
    for path in folder.glob("merged.*"):
        path.unlink()
    table.row("compare with itself", cells, program, "compare", results, results)
    table.row("check one bound", cells, program, "check", "--results", results, "--bounds", bounds)
    lines = folder / "cells.jsonl"
    with lines.open("w") as to:
        table.row("export as jsonl", cells, program, "export", "--results", results, "--format", "jsonl", out=to)
    for form in ("csv", "md"):
        table.row(f"export as {form}", cells, program, "export", "--results", results, "--format", form)
    if python:
        plots = Path(__file__).resolve().parents[2] / "plots"
        table.row("kvplot.load_results of two columns, means", cells, python, "-c", LOAD, plots, results)
    for path in (lines, results, out / "journal.jsonl", out / "results.rows.h5"):
        path.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--cells", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--plan", type=int, default=10_000_000, help="cells of a plan alone; 0: none")
    parser.add_argument("--shape", choices=["seeds", "settings"], default="seeds")
    parser.add_argument("--rows", action="store_true", help="keep per-row values")
    parser.add_argument("--python", help="one that has kvplot's packages")
    parser.add_argument("--folder", help="where the temporary folder is made")
    parser.add_argument("--no-long", action="store_true", help="without the long stream")
    given = parser.parse_args()
    program = given.program.resolve()
    with tempfile.TemporaryDirectory(prefix="kvbench-scale-", dir=given.folder) as name:
        folder = Path(name)
        table = Table()
        for cells in given.cells:
            of_many_cells(table, program, folder, given.shape, cells, given.python, given.rows)
        if given.plan:
            table.row("plan", given.plan, program, "plan", "--config", many_cells(program, folder, given.shape, given.plan))
        if given.no_long:
            return
        synth(program, folder / "long.h5", "--tokens", 131072, "--d", 64, "--layers", 1)
        long = sweep(folder, "long", "long.h5", 2, {"last": 256},
                     [("window", {"budget": 4096}), ("uniform", {"T": 4}),
                      ("snapkv", {"budget": 4096}), ("kcenter", {"budget": 512}),
                      ("balancekv_prefill", {"T": 2}),
                      ("subgen", {"delta_quantile": 0.01, "t": 8, "s": 1024})])
        table.row("last 256 rows of 131,072 tokens, six algorithms", 12, program, "run", "--config", long,
                  "--out", folder / "long", "--quiet", "--memory-limit", "4GiB")


if __name__ == "__main__":
    main()
