#!/usr/bin/env python3
"""Time and memory of every method on long contexts, next to what `kvbench plan` says.

    python3 tests/bench/planning.py build/bin/kvbench [--tokens N ..] [--d D] [--group G] [--only ID ..] [--most S]

Each number is of one cell: one KV head with G query heads, bfloat16, the last 256 rows, on a dump made for the
purpose in a temporary folder (`synth rope`). It runs on one thread, after its plan. Seconds are processor time, which
leaves out the load of other programs. A length is left out where the plan says more than S seconds, and its number is
the plan's, in brackets. The exponent is the slope between the last two lengths that ran.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import median

# Parameters of methods that need more than a budget; the others hold or read a tenth of the prompt.
PARAMS = {"criticalkv": {"budget": 0.1, "norm": "value_l1"}, "subgen": {"delta_quantile": 0.02, "t": 8, "s": 1024},
          "softmax_balance": {"T": 3}, "balancekv": {"t": 128, "T": 5}, "balancekv_prefill": {"T": 3},
          "sparq": {"rank": 16}, "hsa": {"budget": 0.1, "rank": 32}, "loki": {"budget": 0.1, "rank": 32},
          "blasst": {"threshold": 1e-3}}
# They replay a file, need a second pass over the prompt, or leave tokens out in rows of the prompt alone.
WITHOUT = ("given", "kvzip", "xattention", "flexprefill", "minference")


def measured(*command):
    """Standard output, processor seconds and peak resident MiB of a command, which must succeed."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            sys.exit(f"{' '.join(map(str, command))}: exit {os.waitstatus_to_exitcode(status)}")
        out.seek(0)
        return out.read(), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


@dataclass
class Point:
    """One cell of a method at one length: planned and taken."""
    tokens: int
    said: float | None
    said_mib: float
    plan: float  # processor seconds of the plan itself
    took: float = 0.0
    mib: float = 0.0


def methods(program):
    for each in json.loads(measured(program, "list", "algorithms", "--json")[0]):
        if each["id"] not in WITHOUT:
            budget = any(parameter["name"] == "budget" for parameter in each["parameters"])
            yield each["id"], PARAMS.get(each["id"], {"budget": 0.1} if budget else {})


def point(program, folder, dump, tokens, method, params, most):
    config = folder / "sweep.json"
    config.write_text(json.dumps({
        "schema_version": 1, "name": "planning", "dumps": [str(dump)], "evaluate": {"rows": {"last": 256}},
        "seeds": {"first": 0, "count": 1}, "algorithms": [{"algorithm": method, "params": params}]}))
    out, processor, _ = measured(program, "plan", "--threads", 1, "--config", config, "--json")
    plan = json.loads(out)
    if plan["skipped"]:
        sys.exit(f"{method}: {plan['skips'][0]['reason']}")
    said = None if plan["cost"].get("unknown_cells") else plan["cost"]["seconds"]
    result = Point(tokens, said, plan["memory_bytes"] / 2**20, processor)
    if said is None or said <= most:
        _, result.took, result.mib = measured(program, "run", "--threads", 1, "--config", config,
                                              "--out", folder / "out", "--fresh", "--quiet")
    return result


def exponent(points):
    """Slope of the time between the last two lengths that ran."""
    if len(points) < 2:
        return ""
    before, last = points[-2:]
    return f"{log(last.took / before.took) / log(last.tokens / before.tokens):.1f}"



def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 32768, 131072])
    parser.add_argument("--d", type=int, default=128)
    parser.add_argument("--group", type=int, default=4, help="query heads")
    parser.add_argument("--most", type=float, default=60, help="seconds: longer cells are left out")
    parser.add_argument("--only", nargs="+", help="these methods")
    given = parser.parse_args()
    taken = {}
    with tempfile.TemporaryDirectory(prefix="kvbench-planning-") as name:
        for tokens in sorted(given.tokens):
            dump = Path(name) / f"{tokens}.h5"
            subprocess.run([given.program, "synth", "rope", "--out", dump, "--tokens", str(tokens), "--d", str(given.d),
                            "--kv-heads", "1", "--group", str(given.group), "--dtype", "bfloat16", "--out-rows", "0"],
                           check=True, stdout=subprocess.DEVNULL)
            for method, params in methods(given.program):
                if not given.only or method in given.only:
                    each = point(given.program, Path(name), dump, tokens, method, params, given.most)
                    taken.setdefault(method, []).append(each)
                    print(f"{method}: {each}", file=sys.stderr, flush=True)
            dump.unlink()
    columns = " | ".join(f"{tokens}, s" for tokens in sorted(given.tokens))
    print(f"| method | {columns} | exponent | MiB |\n|---|{'---:|' * (len(given.tokens) + 2)}")
    for method, points in taken.items():
        cells = [f"{each.took:.2f}" if each.took else f"({each.said:.0f})" for each in points]
        ran = [each for each in points if each.took]
        print(f"| `{method}` | {' | '.join(cells)} | {exponent(ran)} | {ran[-1].mib if ran else 0:.0f} |")
    ran = [each for points in taken.values() for each in points if each.took]
    ratios = [each.said / each.took for each in ran if each.said is not None]
    outside = sum(not 0.5 <= ratio <= 2.0 for ratio in ratios)
    print(f"\n{outside} of {len(ratios)} plans beyond a factor of two; said / taken {min(ratios):.2f} to "
          f"{max(ratios):.2f}, median {median(ratios):.2f}; a plan takes at most {max(each.plan for each in ran):.2f} s;"
          f" memory taken at most {max(each.mib / each.said_mib for each in ran):.2f} of what is said")


if __name__ == "__main__":
    main()
