"""The head of a dump that kvbench names, as arrays in double precision."""

from dataclasses import dataclass

import h5py
import numpy as np

WIDE = 256
ROWS = 256  # the last rows, which are answered


@dataclass
class Head:
    q: np.ndarray  # [n, d], the logit scale not applied
    k: np.ndarray  # [n, d]
    v: np.ndarray  # [n, dv]
    scale: float
    delta: float = 0.0  # SubGen's radius

    @property
    def tokens(self):
        return len(self.k)


def read(path, sequence, layer, scale, delta):
    """KV head 0 with its first query head."""
    with h5py.File(path) as dump:
        group = dump[f"sequences/{sequence}/layers/{layer}"]
        return Head(*(np.ascontiguousarray(group[name][0], dtype=np.float64) for name in "qkv"),
                    scale=scale, delta=delta)


def read_wide(path, sequence):
    """Heads side by side, layer by layer, until keys have WIDE dimensions."""
    parts = {"q": [], "k": [], "v": []}
    with h5py.File(path) as dump:
        layers = dump[f"sequences/{sequence}/layers"]
        for layer in sorted(layers, key=int):
            heads = len(layers[layer]["k"])
            group = len(layers[layer]["q"]) // heads
            for head in range(heads):
                parts["q"].append(layers[layer]["q"][head * group])
                parts["k"].append(layers[layer]["k"][head])
                parts["v"].append(layers[layer]["v"][head])
    return Head(*(np.concatenate(parts[name], axis=1)[:, :WIDE].astype(np.float64)
                  for name in "qkv"), scale=WIDE ** -0.5)
