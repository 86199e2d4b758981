#!/usr/bin/env python3
"""kvbench against what a user would run instead, in turns, on one head of a dump.

    compare_peers.py --benchmarks build/bin/benchmarks --peers PYTHON --dump DUMP
                     [--check | --record] [--only TASK ..] [--rounds 5] [--json OUT]
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path

from comparison import BAR_TOKENS, FURTHER_SEEDS, SEED_BAR, TASKS, disagreement
from worker import Worker, WorkerError, pairs

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded.json"
FALLEN = 0.7           # share of the recorded ratio
BUSY = 0.3             # load per thread, before anything is run here
SETTLE_SECONDS = 0.1   # threads of the side that ran before stop spinning
SAMPLE_SECONDS = 0.1   # shorter calls are repeated until a sample is about as long


def say(text=""):
    print(text, flush=True)


class Sides:
    """kvbench and the peers, each with one thread and with all."""

    def __init__(self, options, threads):
        self.ours = Worker([options.benchmarks, "--tasks", options.dump], threads)
        about = self.ours.about
        self.theirs = Worker(
            [options.peers, str(HERE / "peers/serve.py"), options.dump, about["sequence"],
             about["layer"], about["scale"], about["delta"], str(threads)], threads)
        self.tasks = about["tasks"].split(",")

    def our_run(self, task, repeats):
        time.sleep(SETTLE_SECONDS)
        seconds, floor, *answers = self.ours.ask(task, repeats)
        return float(seconds), float(floor), {k: float(v) for k, v in pairs(answers).items()}

    def their_run(self, task, peer, repeats):
        time.sleep(SETTLE_SECONDS)
        seconds, *answers = self.theirs.ask(task, peer, repeats, separator="\t")
        return float(seconds), {k: float(v) for k, v in pairs(answers).items()}

    def close(self):
        self.ours.close()
        self.theirs.close()


def repeats_for(seconds):
    return max(1, min(100, math.ceil(SAMPLE_SECONDS / max(seconds, 1e-9))))


def compare(name, task, sides, rounds):
    """A row per peer; the first call of each side warms up and says how often to repeat."""
    torch = sides.theirs.about["torch"] != "none"
    peers = [peer for peer in task.peers if torch or "torch" not in peer]
    warm, _, answers = sides.our_run(task.run, 1)
    repeats = {"": repeats_for(warm)}
    for peer in peers:
        seconds, theirs = sides.their_run(name, peer, 1)
        repeats[peer] = repeats_for(seconds)
        fault = disagreement(name, answers, theirs)
        if fault:
            raise WorkerError(f"{name}: kvbench and {peer} disagree: {fault}")
    samples = {peer: [] for peer in ["", *peers]}
    floors = []
    for _ in range(rounds):
        seconds, floor, _ = sides.our_run(task.run, repeats[""])
        if task.less:
            seconds -= sides.our_run(task.less, repeats[""])[0]
        samples[""].append(seconds / task.share)
        floors.append(floor)
        for peer in peers:
            samples[peer].append(sides.their_run(name, peer, repeats[peer])[0])
    middle = {peer: statistics.median(values) for peer, values in samples.items()}
    floor = 0.0 if task.less else statistics.median(floors)
    rows = []
    for peer, bar in task.peers.items():
        row = {"task": name, "title": task.title, "threads": task.threads, "peer": peer,
               "kvbench_s": middle[""], "floor_s": floor or None,
               "above_floor": middle[""] / floor if floor else None, "floor_bar": task.floor_bar,
               "bar": bar, "peer_s": middle.get(peer)}
        row["ratio"] = row["peer_s"] / middle[""] if peer in middle and middle[""] > 0 else None
        rows.append(row)
    return rows


def seconds_text(seconds):
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1.0 else f"{1e3 * seconds:.3g} ms"


def verdict(value, bar, better, tokens):
    if bar is None or value is None:
        return ""
    if tokens != BAR_TOKENS:
        return f" (bar {bar:g} wants n = {BAR_TOKENS})"
    return f" ({'meets' if better(value, bar) else 'MISSES'} {bar:g})"


def print_row(row, tokens):
    missing = "skipped: no torch" if row["peer_s"] is None else "lost in noise"
    ratio = missing if row["ratio"] is None else f"{row['ratio']:.3g}" + verdict(
        row["ratio"], row["bar"], lambda a, b: a >= b, tokens)
    above = "-" if row["above_floor"] is None else f"{row['above_floor']:.3g}" + verdict(
        row["above_floor"], row["floor_bar"], lambda a, b: a <= b, tokens)
    title = row["title"] + (" (1 thread)" if row["threads"] == 1 else "")
    say(f"{title:52} {seconds_text(row['kvbench_s']):>8}  {row['peer']:25} "
        f"{seconds_text(row['peer_s']):>8}  {ratio:30} {seconds_text(row['floor_s']):>8}  {above}")


def heading():
    say(f"{'task':52} {'kvbench':>8}  {'peer':25} {'time':>8}  {'ratio':30} {'floor':>8}  "
        "times above floor")


def measure(sides, chosen, rounds):
    tokens = int(sides[0].ours.about["tokens"])
    heading()
    rows = []
    for name in chosen:
        task = TASKS[name]
        side = sides[task.threads]
        if task.run not in side.tasks:
            say(f"{task.title:52} skipped: this dump has not the heads for it")
            continue
        found = compare(name, task, side, rounds)
        for row in found:
            print_row(row, tokens)
        rows += found
    return rows


def further_seeds(side):
    """The cost of one more seed next to a first cell, kvbench alone."""
    say(f"\none more seed, of {FURTHER_SEEDS} (last 256 rows, all query heads of the KV head)"
        f"\n{'':32} {'first':>9} {'one more':>9}  of the first")
    rows = []
    for name in (task for task in side.tasks if task.startswith("seeds_")):
        answers = side.our_run(name, 1)[2]
        first, further = answers["~first"], answers["~further"]
        share = further / first
        title = ("all algorithms, layers and heads" if name == "seeds_sweep"
                 else name.removeprefix("seeds_"))
        rows.append({"task": name, "first_s": first, "further_s": further, "share": share})
        tokens = int(side.ours.about["tokens"])
        say(f"{title:32} {seconds_text(first):>9} {seconds_text(further):>9}  {100 * share:.1f} %"
            + verdict(100 * share, 100 * SEED_BAR, lambda a, b: a <= b, tokens))
    return rows


def machine():
    model = "unknown"
    if Path("/proc/cpuinfo").is_file():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"processor": model, "threads": len(os.sched_getaffinity(0))}


def result_of(options, sides, rows):
    about = sides[0].ours.about
    return {"machine": machine() | {name: float(about[name])
                                    for name in ("gflops", "read_gbs", "gexps")},
            "peers": sides[0].theirs.about,
            "stream": {name: about[name] for name in ("sequence", "layer", "tokens", "d")},
            "rounds": options.rounds, "rows": rows}


def keyed(rows):
    return {(row["task"], row["peer"]): row for row in rows if row["ratio"] is not None}


def recorded(name):
    runs = json.loads(RECORDED.read_text()) if RECORDED.is_file() else {}
    return runs, runs.get(name)


def fallen(rows, before):
    old = keyed(before["rows"])
    return [(row, old[key]) for key, row in keyed(rows).items()
            if key in old and row["ratio"] < FALLEN * old[key]["ratio"]]


def check(options, sides, rows):
    """Ratios that fell against the recorded ones; what fell is measured once more, since a noisy
    neighbour can do that too."""
    name = Path(options.dump).name
    before = recorded(name)[1]
    if before is None:
        say(f"{RECORDED.name} has no figures for {name}: bench --record writes them")
        return 2
    if before["machine"]["processor"] != machine()["processor"]:
        say(f"note: recorded on {before['machine']['processor']}; ratios differ between machines")
    again = sorted({row["task"] for row, _ in fallen(rows, before)})
    worse = []
    if again:
        say("\nfell; once more:")
        worse = fallen(measure(sides, again, options.rounds), before)
    for row, old in worse:
        say(f"FELL {row['task']}, {row['peer']}: ratio {row['ratio']:.3g}, was {old['ratio']:.3g}")
    if not worse:
        say(f"\nno ratio fell by more than {100 * (1 - FALLEN):.0f} % below {RECORDED.name}")
    return 1 if worse else 0


def keep(options, result):
    """Writes what is known so far, where that was asked for."""
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    if options.record:
        name = Path(options.dump).name
        runs = recorded(name)[0] | {name: result}
        RECORDED.write_text(json.dumps(runs, indent=1) + "\n")
        say(f"\n{RECORDED.name} holds the figures of {name}")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--benchmarks", required=True)
    parser.add_argument("--peers", required=True, help="a Python with numpy, h5py and perhaps torch")
    parser.add_argument("--dump", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[*TASKS, "seeds"], default=[*TASKS, "seeds"])
    parser.add_argument("--json", help="also write the figures here")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true",
                      help=f"fail when a ratio is below {FALLEN} of the one in {RECORDED.name}")
    mode.add_argument("--record", action="store_true", help=f"write {RECORDED.name}")
    options = parser.parse_args()
    if options.record and len(options.only) != len(TASKS) + 1:
        parser.error("--record wants every task, so not --only")
    return options


def main():
    options = parsed()
    threads = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    sides = {0: Sides(options, threads)}
    sides[1] = Sides(options, 1) if threads > 1 else sides[0]
    about, peers = sides[0].ours.about, sides[0].theirs.about
    say(f"{options.dump}: sequence {about['sequence']}, layer {about['layer']}, KV head 0, its first "
        f"query head; n = {about['tokens']}, d = {about['d']}; {threads} threads")
    say(f"this machine: {about['gflops']} GF/s double, {about['read_gbs']} GB/s, {about['gexps']} G "
        f"exp/s; peers: numpy {peers['numpy']} on {peers['blas']}, torch {peers['torch']}")
    if load > BUSY * threads:
        say(f"note: other programs are running (load {load:.1f}): times are a busy machine's")
    if int(about["tokens"]) != BAR_TOKENS:
        say(f"bars are for n = {BAR_TOKENS}: KVBENCH_BENCH_DUMP=<a dump of so many tokens>")
    say()
    rows = measure(sides, [name for name in options.only if name != "seeds"], options.rounds)
    result = result_of(options, sides, rows)
    result["machine"]["load_before"] = load
    keep(options, result)
    status = check(options, sides, rows) if options.check else 0
    if "seeds" in options.only and not options.check:
        result["seeds"] = further_seeds(sides[0])
        keep(options, result)
    for side in {id(side): side for side in sides.values()}.values():
        side.close()
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WorkerError as error:
        sys.exit(f"bench: {error}")
