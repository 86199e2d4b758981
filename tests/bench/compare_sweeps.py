#!/usr/bin/env python3
"""Whole sweeps by kvbench and by what a user would run instead, over the same cells of a dump.

    compare_sweeps.py --program build/bin/kvbench --dump DUMP --numpy PYTHON [--kvpress PYTHON]
                      [--check | --record] [--rounds 3] [--only SWEEP ..]

kvbench's time is that of the whole program, reading the dump and writing every metric; a peer's
begins after its imports and ends when two or three means per cell are written. Both use all threads, in
turns. Before a peer is timed, which computes in single precision, it runs once in double, and its
means are compared with kvbench's.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import h5py

from compare_peers import FALLEN, RECORDED, fallen, machine, recorded, say, seconds_text
from worker import VARIABLES, WorkerError

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
BAR = 20.0
TOLERANCE = 1e-9      # means of deterministic cells, where the peer computes in double
SINGLE = 1e-2         # where it does not: scores that are nearly equal may rank another token
STANDARD_ERRORS = 5   # mean log ratio of randomised cells, whose draws are the peer's own


@dataclass(frozen=True)
class Peer:
    title: str
    script: str
    python: str          # which of the options names its Python
    options: tuple = ()


@dataclass(frozen=True)
class Sweep:
    title: str
    config: dict | Path
    peers: tuple
    one_layer: bool = False  # the dump's last one alone


def axis(first, last):
    return {"pow2": [first, last]}


QUICK = SOURCE / "configs/quick.json"
PRESSES = {"schema_version": 1, "name": "presses", "evaluate": {"rows": "all"}, "algorithms": [
    {"algorithm": "snapkv",
     "params": {"budget": axis(7, 10), "window": 64, "kernel": 5, "pool": "avg"}},
    {"algorithm": "knorm", "params": {"budget": axis(7, 10)}},
    {"algorithm": "keydiff", "params": {"budget": axis(7, 10)}},
    {"algorithm": "expected_attention", "params": {"budget": axis(7, 10)}},
    {"algorithm": "curdkv", "params": {"budget": axis(7, 10)}}]}
SWEEPS = {
    "quick": Sweep("configs/quick.json", QUICK,
                   (Peer("numpy, work shared between cells", "numpy_sweep.py", "numpy"),)),
    "quick_apart": Sweep("configs/quick.json, one layer", QUICK,
                         (Peer("numpy, a call per cell", "numpy_sweep.py", "numpy", ("--apart",)),),
                         one_layer=True),
    "presses": Sweep("five presses, four budgets", PRESSES,
                     (Peer("kvpress and torch", "kvpress_sweep.py", "kvpress"),)),
}


# The results of both sides.


def ours(cell):
    return {"relative_l2": cell["errors"]["relative_l2"]["mean"],
            "epsilon_spectral": cell["errors"]["epsilon_spectral"]["mean"],
            "kept": cell["mass"]["kept"]["mean"]}


def disagreement(cells, records, tolerance):
    """The difference between a peer's {id: {metric: mean}} and kvbench's cells, as text; '' if they
    agree."""
    if set(records) != {cell["id"] for cell in cells}:
        return f"{len(records)} cells, not the {len(cells)} of kvbench"
    if not all({"relative_l2", "epsilon_spectral"} <= set(record) for record in records.values()):
        return "a cell without relative_l2 or epsilon_spectral"
    logs = defaultdict(lambda: defaultdict(list))  # (algorithm, metric) -> (KV head, seed) -> logs
    for cell in cells:
        key = cell["key"]
        for metric, theirs in records[cell["id"]].items():
            own = ours(cell)[metric]
            if key["seed"] is None:
                if not abs(theirs - own) <= tolerance * max(own, 1e-3):
                    return (f"{metric} of {cell['label']} {key['params']}, layer {key['layer']}, KV "
                            f"head {key['kv_head']} is {own:.9g}, the peer's {theirs:.9g}")
            else:
                logs[key["algorithm"], metric][key["layer"], key["kv_head"], key["seed"]].append(
                    math.log(theirs / own))
    for (algorithm, metric), found in logs.items():
        means = [statistics.fmean(each) for each in found.values()]
        mean = statistics.fmean(means)
        allowed = STANDARD_ERRORS * statistics.stdev(means) / math.sqrt(len(means))
        if not abs(mean) <= allowed:
            return (f"{metric} of {algorithm}: the peer's is exp({mean:.3g}) times kvbench's, "
                    f"{STANDARD_ERRORS} standard errors are {allowed:.3g}")
    return ""


# Running them.


def environment(threads):
    return dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=str(SOURCE / "data"),
                **{variable: str(threads) for variable in VARIABLES})


class Runs:
    def __init__(self, options, folder, threads):
        self.options, self.folder, self.environment = options, folder, environment(threads)

    def config(self, sweep):
        """The sweep's file, and the options that give it this dump."""
        path = sweep.config
        if isinstance(path, dict):
            path = self.folder / "presses.json"
            path.write_text(json.dumps(sweep.config | {"dumps": [self.options.dump]}),
                            encoding="utf-8")
        given = ["--config", path, "--set", f"dumps={json.dumps([self.options.dump])}"]
        if sweep.one_layer:
            given += ["--set", f"select.layers=[{last_layer(self.options.dump)}]"]
        return given

    def kvbench(self, sweep):
        """Seconds of the whole program, and its cells."""
        start = time.perf_counter()
        done = subprocess.run([self.options.program, "run", *self.config(sweep), "--out",
                               self.folder / "out", "--fresh", "--quiet"], check=False,
                              env=self.environment, capture_output=True, text=True)
        seconds = time.perf_counter() - start
        if done.returncode:
            raise WorkerError(f"kvbench ended with {done.returncode}: {done.stderr.strip()}")
        return seconds, json.loads((self.folder / "out/results.json").read_text())["cells"]

    def peer(self, peer, cells, *options, tolerance=SINGLE):
        """Its seconds, once its means are those of `cells`."""
        named, out = self.folder / "cells.json", self.folder / "peer.json"
        named.write_text(json.dumps([{"id": cell["id"], "key": cell["key"]} for cell in cells]))
        out.unlink(missing_ok=True)
        python = getattr(self.options, peer.python)
        done = subprocess.run([python, HERE / "peers" / peer.script, self.options.dump, named, out,
                               *peer.options, *options], check=False, env=self.environment,
                              capture_output=True, text=True)
        if done.returncode:
            raise WorkerError(f"{peer.script} ended with {done.returncode}: {done.stderr.strip()}")
        fault = disagreement(cells, json.loads(out.read_text()), tolerance)
        if fault:
            raise WorkerError(f"kvbench and {peer.title} disagree: {fault}")
        return float(done.stdout)


def last_layer(path):
    with h5py.File(path) as dump:
        return max(int(layer) for sequence in dump["sequences"].values()
                   for layer in sequence["layers"])


def verdict(ratio):
    return f"{ratio:.3g} ({'meets' if ratio >= BAR else 'MISSES'} {BAR:g})"


def compare(name, runs, rounds):
    """A row per peer: medians of so many rounds in turns."""
    sweep = SWEEPS[name]
    rows = []
    for peer in sweep.peers:
        if getattr(runs.options, peer.python) is None:
            say(f"{sweep.title:32} skipped: no Python with {peer.python} was given")
            continue
        cells = [cell for cell in runs.kvbench(sweep)[1] if cell["status"] == "ok"]
        runs.peer(peer, cells, "--double", tolerance=TOLERANCE)
        turns = [(runs.kvbench(sweep)[0], runs.peer(peer, cells)) for _ in range(rounds)]
        mine, theirs = (statistics.median(each) for each in zip(*turns))
        rows.append({"task": name, "title": sweep.title, "peer": peer.title, "cells": len(cells),
                     "kvbench_s": mine, "peer_s": theirs, "ratio": theirs / mine, "bar": BAR})
        say(f"{sweep.title:32} {len(cells):6} {seconds_text(mine):>8}  {peer.title:34} "
            f"{seconds_text(theirs):>8}  {verdict(theirs / mine)}")
    return rows


def measure(runs, chosen, rounds):
    return [row for name in chosen for row in compare(name, runs, rounds)]


def check(runs, name, rows, rounds):
    """1 where a ratio fell below what is recorded, in two measurements."""
    before = recorded(name)[1]
    if before["machine"]["processor"] != machine()["processor"]:
        say(f"note: recorded on {before['machine']['processor']}; ratios differ between machines")
    worse = fallen(rows, before)
    if worse:
        say("\nfell; once more:")
        worse = fallen(measure(runs, sorted({row["task"] for row, _ in worse}), rounds), before)
    for row, old in worse:
        say(f"FELL {row['task']}, {row['peer']}: ratio {row['ratio']:.3g}, was {old['ratio']:.3g}")
    if not worse:
        say(f"\nno ratio of a sweep fell by more than {100 * (1 - FALLEN):.0f} %")
    return 1 if worse else 0


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--program", required=True, help="kvbench")
    parser.add_argument("--dump", required=True, type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--numpy", required=True, help="a Python with numpy and h5py")
    parser.add_argument("--kvpress", help="a Python with kvpress and torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(SWEEPS), default=list(SWEEPS))
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true",
                      help=f"fail when a ratio is below {FALLEN} of the one in {RECORDED.name}")
    mode.add_argument("--record", action="store_true", help=f"write {RECORDED.name}")
    options = parser.parse_args()
    if options.record and (options.only != list(SWEEPS) or options.kvpress is None):
        parser.error("--record wants every sweep, so not --only, and --kvpress")
    return options


def main():
    options = parsed()
    threads = len(os.sched_getaffinity(0))
    name = "sweeps of " + Path(options.dump).name
    if options.check and recorded(name)[1] is None:
        say(f"{RECORDED.name} has no figures for {name}: bench --record writes them")
        return 2
    with tempfile.TemporaryDirectory(prefix="kvbench-sweeps-") as folder:
        runs = Runs(options, Path(folder), threads)
        say(f"\nwhole sweeps of {options.dump}, {threads} threads\n"
            f"{'sweep':32} {'cells':>6} {'kvbench':>8}  {'peer':34} {'time':>8}  ratio")
        rows = measure(runs, options.only, options.rounds)
        if options.check:
            return check(runs, name, rows, options.rounds)
    if options.record:
        result = {"machine": machine(), "rounds": options.rounds, "rows": rows}
        RECORDED.write_text(json.dumps(recorded(name)[0] | {name: result}, indent=1) + "\n")
        say(f"\n{RECORDED.name} holds the figures of {name}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WorkerError as error:
        sys.exit(f"bench: {error}")
