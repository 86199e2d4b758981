#!/usr/bin/env python3
"""What large sweeps and long streams cost: seconds and peak memory of kvbench itself.

    python3 tests/bench/scale.py build/bin/kvbench

On synthetic dumps made for the purpose in a temporary folder: 10^4 and 10^5 small cells, planned, run, run again,
merged, exported, compared and checked; and the last 256 rows of 131,072 tokens.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def measured(*command):
    """Seconds and peak resident MiB of a command, which must succeed."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - start, usage.ru_maxrss / 1024


def sweep(folder, name, dump, seeds, rows, algorithms):
    path = folder / f"{name}.json"
    path.write_text(json.dumps({
        "schema_version": 1, "name": name, "dumps": [dump], "seeds": {"first": 0, "count": seeds},
        "evaluate": {"rows": rows},
        "algorithms": [{"algorithm": id, "params": params} for id, params in algorithms]}))
    return path


def report(task, *command):
    seconds, mebibytes = measured(*command)
    print(f"| {task} | {seconds:.1f} | {mebibytes:.0f} |", flush=True)


def of_many_cells(program, folder, cells):
    """Every command that reads or writes results, on one setting of so many seeds on two heads."""
    many = sweep(folder, f"many-{cells}", "small.h5", cells // 2, {"last": 1},
                 [("uniform", {"T": 1, "sinks": 4})])
    out = folder / f"many-{cells}"
    results = out / "results.json"
    bounds = folder / "bounds.json"
    bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
        {"name": "below", "where": {"algorithm": "uniform"}, "metric": "errors.relative_l2.mean",
         "limit": 1e9}]}))
    of = f"of {cells:,} cells"
    report(f"plan {of}", program, "plan", "--config", many)
    report(f"run {of} of 64 tokens", program, "run", "--config", many, "--out", out, "--quiet")
    report(f"run again, nothing to do, {of}", program, "run", "--config", many, "--out", out, "--quiet")
    report(f"merge {of}", program, "merge", out, "--out", folder / "merged.json")
    for form in ("csv", "jsonl", "md"):
        report(f"export as {form} {of}", program, "export", "--results", results, "--format", form)
    report(f"compare with itself {of}", program, "compare", results, results)
    report(f"check one bound {of}", program, "check", "--results", results, "--bounds", bounds)


def main():
    program = Path(sys.argv[1]).resolve() if len(sys.argv) == 2 else sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="kvbench-scale-") as name:
        folder = Path(name)
        for dump, tokens, d in (("small.h5", 64, 8), ("long.h5", 131072, 64)):
            subprocess.run([program, "synth", "gaussian", "--out", folder / dump, "--tokens",
                            str(tokens), "--d", str(d), "--layers", "1"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        long = sweep(folder, "long", "long.h5", 2, {"last": 256},
                     [("window", {"budget": 4096}), ("uniform", {"T": 4}),
                      ("snapkv", {"budget": 4096}), ("kcenter", {"budget": 512}),
                      ("balancekv_prefill", {"T": 2}),
                      ("subgen", {"delta_quantile": 0.01, "t": 8, "s": 1024})])
        print("| task | seconds | peak MiB |\n|---|---:|---:|")
        for cells in (10_000, 100_000):
            of_many_cells(program, folder, cells)
        report("last 256 rows of 131,072 tokens, six algorithms", program, "run", "--config", long,
               "--out", folder / "long", "--quiet", "--memory-limit", "4GiB")


if __name__ == "__main__":
    main()
