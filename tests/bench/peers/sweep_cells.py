"""The cells of a sweep, as kvbench's results.json names them, KV head by KV head, and what a peer
answers of each: means over rows and query heads."""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np


def arguments(description):
    """The arguments of every peer's command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("dump")
    parser.add_argument("cells", help="a list of {id, key} of kvbench's cells")
    parser.add_argument("out", help="gets {id: {metric: mean}}")
    parser.add_argument("--double", action="store_true", help="compute in double precision")
    return parser


def by_layer(path):
    """{(sequence, layer): {kv_head: [cell]}} of a file of {id, key}."""
    found = defaultdict(lambda: defaultdict(list))
    for cell in json.loads(Path(path).read_text(encoding="utf-8")):
        key = cell["key"]
        found[key["sequence"], key["layer"]][key["kv_head"]].append(cell)
    return found


def layer_group(dump, sequence, layer):
    return dump[f"sequences/{sequence}/layers/{layer}"]


def tensors(group, tokens, real):
    """q [Hq, n, d], k [Hkv, n, d] and v [Hkv, n, dv] of such numbers, of the first n tokens."""
    return [group[name][:, :tokens].astype(real) for name in "qkv"]


def operator_norms(v, prompt, block=64):
    """The largest singular value of the first i + 1 values, for every decoded row i: float64 [R]."""
    v = v.astype(np.float64)
    gram, norms = v[:prompt].T @ v[:prompt], []
    for first in range(prompt, len(v), block):
        part = v[first:first + block]
        grams = np.cumsum(part[:, :, None] * part[:, None, :], axis=0) + gram
        norms.append(np.linalg.eigvalsh(grams)[:, -1])
        gram = grams[-1]
    return np.sqrt(np.concatenate(norms))


def write(path, records):
    Path(path).write_text(json.dumps(records), encoding="utf-8")
