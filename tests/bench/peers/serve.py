"""Runs peers one at a time on request: python serve.py DUMP SEQUENCE LAYER SCALE DELTA THREADS.
Prints one line about itself, then reads lines "TASK<tab>PEER<tab>REPEATS" from standard input and
answers each with "ok SECONDS_PER_RUN NAME=VALUE .." or "error REASON"."""

import sys
import time

import numpy as np

import head
import numpy_dense  # noqa: F401 (each of these adds its peers)
import numpy_streams  # noqa: F401
from peer import PEERS


def torch_version(threads):
    try:
        import torch
    except ImportError:
        return "none"
    torch.set_num_threads(threads)
    import torch_dense  # noqa: F401
    return torch.__version__


def blas():
    try:
        return np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    except TypeError:  # numpy before 1.25 cannot say
        return "unknown"


def main():
    path, sequence, layer, scale, delta, threads = sys.argv[1:]
    narrow = head.read(path, sequence, layer, float(scale), float(delta))
    wide = []
    ready = {}
    print(f"ready numpy={np.__version__} blas={blas()} torch={torch_version(int(threads))}",
          flush=True)
    for line in sys.stdin:
        task, name, repeats = line.rstrip("\n").split("\t")
        peer = PEERS.get((task, name))
        if peer is None:
            print(f"error no peer {name!r} for {task}", flush=True)
            continue
        if (task, name) not in ready:
            if task.endswith("_wide") and not wide:
                wide.append(head.read_wide(path, sequence))
            ready[task, name] = peer.prepare(wide[0] if task.endswith("_wide") else narrow)
        run = ready[task, name]
        start = time.perf_counter()
        for _ in range(int(repeats)):
            result = run()
        seconds = (time.perf_counter() - start) / int(repeats)
        answers = " ".join(f"{key}={value!r}" for key, value in peer.answers(result).items())
        print(f"ok {seconds!r} {answers}", flush=True)


main()
