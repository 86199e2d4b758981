#!/usr/bin/env python3
"""The time and memory that `kvbench plan` says, next to those of the run: a table of methods, lengths and widths.

    python3 tests/bench/planning.py build/bin/kvbench [--tokens N ..] [--d D ..] [--only ID ..] [--before PROGRAM]

Each row is one cell of one KV head with one query head, the last 256 rows, on a gaussian dump made for the
purpose in a temporary folder, on one thread. `plan` is run first, then the cell. Seconds taken are processor time,
because a plan leaves out the load of other programs. --before adds the plan of another program.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

TENTH = {"budget": {"memory": 0.1}}
METHODS = [
    ("exact", {}), ("streaming_llm", TENTH), ("h2o", TENTH), ("key_attention", TENTH), ("keyformer", {"budget": 1024}),
    ("tova", {"budget": 1024}), ("roco", TENTH), ("caote", TENTH), ("rkv", {"budget": 1024}), ("snapkv", TENTH),
    ("adakv", {"budget": 1024}), ("cake", {"budget": 1024}), ("knorm", TENTH), ("qfilters", TENTH),
    ("uniform", {"T": 3}), ("kcenter", TENTH), ("subgen", {"delta_quantile": 0.02, "t": 8, "s": 1024}),
    ("softmax_balance", {"T": 2}), ("balancekv_prefill", {"T": 3}), ("thinformer", {}), ("attention_matching", TENTH),
    ("quest", {"budget": 1024}), ("magicpig", {}),
]


def measured(*command):
    """Standard output, processor seconds and peak resident MiB of a command, which must succeed."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            sys.exit(f"{' '.join(map(str, command))}: exit {os.waitstatus_to_exitcode(status)}")
        out.seek(0)
        return out.read(), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def planned(program, config):
    """Seconds and MiB that the plan says, and the processor seconds that it took itself."""
    out, processor, _ = measured(program, "plan", "--threads", 1, "--config", config, "--json")
    plan = json.loads(out)
    if plan["skipped"]:
        sys.exit(f"{config}: {plan['skips'][0]['reason']}")
    if plan["cost"].get("unknown_cells"):
        return None, plan["memory_bytes"] / 2**20, processor
    return plan["cost"]["seconds"], plan["memory_bytes"] / 2**20, processor


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096, 16384, 32768])
    parser.add_argument("--d", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--only", nargs="+", help="these methods")
    parser.add_argument("--before", type=Path, help="another program, whose plan is shown as well")
    given = parser.parse_args()
    more = " said before, s | plan itself before, s |" if given.before else ""
    print("| tokens | d | method | said, s | taken, s | said / taken | plan itself, s |"
          f" said, MiB | taken, MiB |{more}\n|---:|---:|---|{'---:|' * (6 + more.count('|'))}")
    ratios, memories, plans = [], [], []
    with tempfile.TemporaryDirectory(prefix="kvbench-planning-") as name:
        folder = Path(name)
        for tokens in given.tokens:
            for d in given.d:
                dump = folder / f"{tokens}-{d}.h5"
                subprocess.run([given.program, "synth", "gaussian", "--out", dump, "--tokens", str(tokens),
                                "--d", str(d), "--kv-heads", "1", "--group", "1", "--out-rows", "0"],
                               check=True, stdout=subprocess.DEVNULL)
                for method, params in METHODS:
                    if given.only and method not in given.only:
                        continue
                    config = folder / "sweep.json"
                    config.write_text(json.dumps({
                        "schema_version": 1, "name": "planning", "dumps": [str(dump)],
                        "seeds": {"first": 0, "count": 1}, "evaluate": {"rows": {"last": 256}},
                        "algorithms": [{"algorithm": method, "params": params}]}))
                    said, said_mib, plan_processor = planned(given.program, config)
                    _, took, mib = measured(
                        given.program, "run", "--threads", 1, "--config", config, "--out", folder / "out",
                        "--fresh", "--quiet")
                    plans.append(plan_processor)
                    memories.append(mib / said_mib)
                    ratio = "unknown"
                    if said is not None:
                        ratios.append(said / took)
                        ratio = f"{said / took:.2f}"
                    row = (f"| {tokens} | {d} | `{method}` | {said or 0:.2f} | {took:.2f} | {ratio} |"
                           f" {plan_processor:.2f} | {said_mib:.0f} | {mib:.0f} |")
                    if given.before:
                        before, _, before_processor = planned(given.before, config)
                        row += f" {before:.2f} | {before_processor:.2f} |"
                    print(row, flush=True)
                dump.unlink()
    outside = sum(not 0.5 <= ratio <= 2.0 for ratio in ratios)
    print(f"\n{outside} of {len(ratios)} beyond a factor of two; said / taken {min(ratios):.2f} to {max(ratios):.2f},"
          f" median {median(ratios):.2f}; a plan takes at most {max(plans):.2f} s; memory taken at most "
          f"{max(memories):.2f} of what is said")


if __name__ == "__main__":
    main()
