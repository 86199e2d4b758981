#!/usr/bin/env python3
"""How time and memory grow: a table with fitted exponents, and a figure.

    .venv/bin/python tests/bench/growth.py build/bin/kvbench --out results/growth [--most 131072]

Each point is a run of the program on a synthetic dump made for the purpose in a temporary folder.
Against tokens: seconds and peak memory, next to what `kvbench plan` said of the memory. Against cells,
seeds, KV heads and threads: seconds. Seconds are the least of `--rounds` runs less those of the same
run of a dump of 64 tokens, that is, without the program's start. The exponent of a line is the slope of
a straight line through the logarithms of its last four points.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import chain
from math import log
from pathlib import Path
from statistics import linear_regression

LAST = {"last": 256}
# Answers that cost next to nothing: what is left is the reference, the norms of the values, the errors.
REFERENCE = ("window", {"budget": 64})
# label, algorithm, parameters, rows, exponent of theory
AGAINST_TOKENS = [
    ("reference, last 256 rows", *REFERENCE, LAST, 1),
    ("reference, every row", *REFERENCE, "all", 2),
    ("SubGen, last 256 rows", "subgen", {"delta_quantile": 0.01, "s": 256, "t": 8}, LAST, None),
    ("k-center, 512 centres", "kcenter", {"budget": 1024}, LAST, 1),
    ("walk in segments of 256", "balancekv_prefill", {"T": 1, "block": 256}, LAST, 1),
    ("walk over all tokens", "softmax_balance", {"T": 1}, LAST, 2),
    ("h2o, score sums of the prompt", "h2o", {"budget": 512}, LAST, 2),
]
SHORTEST = 64
# Whose colours and markers the lines of a panel borrow.
LOOKS = ["exact", "h2o", "subgen", "kcenter", "balancekv", "softmax_balance", "snapkv", "uniform"]


@dataclass
class Line:
    """One line of the figure: what it is plotted against, and its points."""
    against: str
    label: str
    theory: float | None = None
    x: list = field(default_factory=list)
    seconds: list = field(default_factory=list)
    peak_mib: list = field(default_factory=list)
    planned_mib: list = field(default_factory=list)

    def exponent(self, values):
        points = positive(self.x, values)[-4:]
        if len(points) < 2:
            return float("nan")
        return linear_regression([log(x) for x, _ in points], [log(y) for _, y in points]).slope


def positive(x, y):
    """The points that a logarithm can show: a run can be as short as the program's start."""
    return [(a, b) for a, b in zip(x, y) if b > 0.0]


class Bench:
    def __init__(self, program, folder, rounds):
        self.program, self.folder, self.rounds = program, folder, rounds
        self.runs = 0

    def dump(self, tokens, kv_heads=1, d=64):
        path = self.folder / f"n{tokens}-h{kv_heads}-d{d}.h5"
        if not path.exists():
            subprocess.run([self.program, "synth", "gaussian", "--out", path, "--tokens", str(tokens),
                            "--d", str(d), "--layers", "1", "--kv-heads", str(kv_heads)],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return path

    def sweep(self, dump, algorithm, params, rows, seeds=1):
        path = self.folder / "sweep.json"
        document = {"schema_version": 1, "name": "growth", "dumps": [str(dump)],
                    "seeds": {"first": 0, "count": seeds}, "evaluate": {"rows": rows},
                    "algorithms": [{"algorithm": algorithm, "params": params}]}
        if algorithm == REFERENCE[0]:  # rows before the prompt's end are not scored
            document["replay"] = {"prompt_tokens": 0}
        path.write_text(json.dumps(document))
        return path

    def once(self, config, threads):
        """Seconds and peak resident MiB of one run from nothing."""
        self.runs += 1
        command = [self.program, "run", "--config", config, "--out", self.folder / f"out{self.runs}",
                   "--quiet"] + (["--threads", str(threads)] if threads else [])
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            sys.exit(f"{' '.join(map(str, command))}: exit {os.waitstatus_to_exitcode(status)}")
        return time.monotonic() - start, usage.ru_maxrss / 1024

    def measure(self, config, threads=0, rounds=0):
        taken = [self.once(config, threads) for _ in range(rounds or self.rounds)]
        return min(seconds for seconds, _ in taken), max(peak for _, peak in taken)

    def planned_mib(self, config):
        out = subprocess.run([self.program, "plan", "--config", config, "--json"], check=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        return json.loads(out)["memory_bytes"] / 2**20

    def start_seconds(self, algorithm, params, threads=0):
        config = self.sweep(self.dump(SHORTEST), algorithm, params, {"last": 1})
        # Every point of a line depends on it, and a first run finds the program out of the cache.
        return self.measure(config, threads, rounds=5 + self.rounds)[0]


def against_tokens(bench, most):
    for label, algorithm, params, rows, theory in AGAINST_TOKENS:
        start = bench.start_seconds(algorithm, params)
        line = Line("tokens", label, theory)
        tokens = 2048
        while tokens <= most:
            config = bench.sweep(bench.dump(tokens), algorithm, params, rows)
            seconds, peak = bench.measure(config)
            line.x.append(tokens)
            line.seconds.append(max(seconds - start, 0.0))
            line.peak_mib.append(peak)
            line.planned_mib.append(bench.planned_mib(config))
            # Quadratic work ends where one point would take minutes.
            if theory == 2 and seconds > 20:
                break
            tokens *= 2
        yield line


def against_counts(bench):
    """Scored rows, cells, seeds, heads and threads: what more of them cost."""
    start = bench.start_seconds(*REFERENCE)
    rows = Line("scored rows", "reference, 16384 tokens", 1)
    for count in (64, 256, 1024, 4096):
        config = bench.sweep(bench.dump(16384), *REFERENCE, {"last": count})
        rows.x.append(count)
        rows.seconds.append(bench.measure(config)[0] - start)
    yield rows
    subgen = ("subgen", {"delta_quantile": 0.01, "s": 256, "t": 8})
    start = bench.start_seconds("uniform", {"T": 1})
    cells = Line("cells", "64 tokens, one row", 1)
    for count in (1000, 10000, 100000):
        config = bench.sweep(bench.dump(SHORTEST), "uniform", {"T": 1}, {"last": 1}, count)
        cells.x.append(count)
        cells.seconds.append(bench.measure(config)[0] - start)
    yield cells
    start = bench.start_seconds(*subgen)
    seeds = Line("seeds", "SubGen, 8192 tokens", 1)
    heads = Line("KV heads", "SubGen, 8192 tokens", 1)
    threads = Line("threads", "SubGen, 8192 tokens, 8 heads, 10 seeds", -1)
    for count in (1, 2, 4, 8, 16, 32):
        config = bench.sweep(bench.dump(8192), *subgen, LAST, count)
        seeds.x.append(count)
        seeds.seconds.append(bench.measure(config)[0] - start)
        config = bench.sweep(bench.dump(8192, count), *subgen, LAST)
        heads.x.append(count)
        heads.seconds.append(bench.measure(config)[0] - start)
    yield seeds
    yield heads
    count = 1
    while count <= (os.cpu_count() or 1):
        config = bench.sweep(bench.dump(8192, 8), *subgen, LAST, 10)
        threads.x.append(count)
        threads.seconds.append(bench.measure(config, count)[0] - start)
        count *= 2
    yield threads


def table(lines):
    yield "| against | what | from | to | exponent | theory | peak MiB at the end | planned |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for line in lines:
        theory = "" if line.theory is None else f"{line.theory:g}"
        peak = f"{line.peak_mib[-1]:.0f}" if line.peak_mib else ""
        planned = f"{line.planned_mib[-1]:.0f}" if line.planned_mib else ""
        yield (f"| {line.against} | {line.label} | {line.x[0]}: {line.seconds[0]:.3f} s "
               f"| {line.x[-1]}: {line.seconds[-1]:.2f} s | {line.exponent(line.seconds):.2f} "
               f"| {theory} | {peak} | {planned} |")


def ticks_at(x):
    """At most four of the points, and their words: 2048 is 2k."""
    x = x[::-(len(x) // -4)]
    return x, [f"{each // 1024}k" if each % 1024 == 0 else f"{each:g}" for each in x]


def draw(lines, path):
    # Not before the last run: a child's peak memory is at least its parent's when it was made.
    from kvplot import style

    against = list(dict.fromkeys(line.against for line in lines))
    figure, axes = style.panels(3, 3, height=6.4)
    ticks = {}
    for axis, quantity in zip(axes.flat, against):
        shown = [line for line in lines if line.against == quantity]
        for place, line in enumerate(shown):
            colour, marker = style.look(LOOKS[place])
            axis.loglog(*zip(*positive(line.x, line.seconds)), color=colour, marker=marker,
                        label=f"{line.label}: {line.exponent(line.seconds):.2f}")
        axis.set_xlabel(quantity)
        ticks[axis] = ticks_at(max((line.x for line in shown), key=len))
        axis.set_ylabel("seconds")
        if len(shown) == 1:
            axis.set_title(f"{shown[0].label}: {shown[0].exponent(shown[0].seconds):.2f}", fontsize=7)
    memory = axes.flat[len(against)]
    for place, line in enumerate(line for line in lines if line.peak_mib):
        colour, marker = style.look(LOOKS[place])
        memory.loglog(line.x, line.peak_mib, color=colour, marker=marker)
        memory.loglog(line.x, line.planned_mib, color=colour, linestyle=":")
    memory.set_xlabel("tokens")
    ticks[memory] = ticks[axes.flat[0]]
    memory.set_ylabel("peak MiB (dotted: planned)")
    for axis in axes.flat[len(against) + 1:]:
        axis.axis("off")
    for axis in axes.flat[:len(against) + 1]:
        axis.set_xticks(*ticks[axis])
        axis.minorticks_off()
        style.plain_log(axis.yaxis)
        axis.tick_params(labelsize=7)
    axes.flat[-1].legend(*axes.flat[0].get_legend_handles_labels(), loc="center", fontsize=7,
                         title="against tokens", title_fontsize=7)
    axes.flat[-1].axis("off")
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of growth.csv and growth.png")
    parser.add_argument("--most", type=int, default=131072, help="most tokens")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kvbench-growth-") as name:
        bench = Bench(options.program.resolve(), Path(name), options.rounds)
        lines = []
        for line in chain(against_tokens(bench, options.most), against_counts(bench)):
            lines.append(line)
            print(list(table([line]))[2], flush=True)
    with (options.out / "growth.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("against", "what", "x", "seconds", "peak_mib", "planned_mib"))
        for line in lines:
            for place, x in enumerate(line.x):
                memory = (f"{line.peak_mib[place]:.1f}", f"{line.planned_mib[place]:.1f}"
                          ) if line.peak_mib else ("", "")
                out.writerow((line.against, line.label, x, f"{line.seconds[place]:.4f}", *memory))
    draw(lines, options.out / "growth.png")
    print("\n".join(table(lines)))


if __name__ == "__main__":
    main()
