"""Inputs that the tests of the Python package replay."""

import os
from pathlib import Path

import numpy as np

SOURCE = Path(os.environ["KVBENCH_SOURCE"])
PROGRAM = os.environ["KVBENCH_PROGRAM"]
DUMP = SOURCE / "data/smollm2-constitution.h5"

# Settings of algorithms that need more than their required parameters, or are tried in several ways.
SETTINGS = (
    ("exact", {}),
    ("window", {"budget": 64}),
    ("dilated_window", {"budget": 64, "dilation": 2}),
    ("streaming_llm", {"budget": 64, "sinks": 4}),
    ("streaming_llm", {"budget": 64, "positions": "cache"}),
    ("key_attention", {"budget": 64}),
    ("h2o", {"budget": 64}),
    ("h2o", {"budget": {"memory": 0.25}}),
    ("keyformer", {"budget": 64}),
    ("keyformer", {"budget": 64, "scope": "model"}),
    ("snapkv", {"budget": 64, "window": 16}),
    ("pyramidkv", {"budget": 64}),
    ("uniform", {"T": 2}),
    ("uniform", {"budget": 300, "replacement": True}),
    ("kcenter", {"budget": 64}),
    ("subgen", {"delta_quantile": 0.05, "t": 4, "s": 64}),
    ("softmax_balance", {"T": 1}),
    ("balancekv", {"t": 64, "T": 2, "buckets": False}),
    ("balancekv_prefill", {"T": 2}),
    ("oracle_topk", {"budget": 32}),
    ("quest", {"budget": 64}),
    ("sparq", {"rank": 8, "k": 32, "recent": 8}),
    ("loki", {"rank": 8, "budget": 32}),
    ("vattention", {"sinks": 8, "recent": 16, "top": 16}),
    ("hyperattention", {"block": 64, "samples": 64, "exact_below": 64}),
    ("kdeformer", {"samples": 100}),
    ("compactor", {"budget": 64, "chunk": 128}),
    ("magicpig", {"tables": 20}),
    ("knorm", {"budget": 64}),
    ("keydiff", {"budget": 64}),
    ("lagkv", {"budget": 256, "lag": 32}),
    ("expected_attention", {"budget": 64}),
    ("curdkv", {"budget": 64}),
    ("capkv", {"budget": 64}),
    ("qfilters", {"budget": 64}),
    ("rkv", {"budget": 64}),
    ("roco", {"budget": 64}),
    ("caote", {"budget": 64}),
    ("cam", {"budget": 64}),
    ("d2o", {"budget": 64}),
    ("merge_cosine", {"budget": 64}),
    ("kf_merge", {"budget": 64}),
    ("thinformer", {"g": 1}),
    ("attention_matching", {"budget": 64}),
    ("wildcat", {"budget": 128}),
    ("performer", {}),
    ("tova", {"budget": 64}),
    ("tova", {"budget": 64, "scope": "head"}),
    ("adakv", {"budget": 64, "window": 16}),
    ("criticalkv", {"budget": 64, "window": 16, "norm": "value_l1"}),
    ("cake", {"budget": 64}),
    ("chunkkv", {"budget": 64, "window": 16}),
)


def stream(n=256, d=16, dv=8, heads=2, seed=0):
    """q [heads, n, d], k [n, d], v [n, dv] of random numbers."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((heads, n, d)), rng.standard_normal((n, d)),
            rng.standard_normal((n, dv)))


def slow(n=4096):
    """Arguments of a replay that takes seconds."""
    q, k, v = stream(n=n, d=64, dv=64)
    return (q, k, v, "subgen"), {"delta_quantile": 0.02, "t": 16, "s": 512, "prompt": n // 4}


def without(record, *names):
    """A record without what differs between runs: times and the command that repeats it."""
    return {name: value for name, value in record.items()
            if name not in ("timing", "repro", *names)}
