"""The tokens that kvbench keeps next to those that kvpress keeps: the program's record of a sweep,
the press's tokens through data/kvpress_caches.py, and exact attention over given tokens, in numpy
alone."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

import kvpress_caches
from format.dump_file import decode, element_type

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = os.environ["KVBENCH_PROGRAM"]
DUMP = SOURCE / "data/smollm2-constitution.h5"
SEQUENCE, TOKENS, LAYERS, KV_HEADS, GROUP = "constitution", 2048, (0, 1, 15), 3, 3


def called(*arguments: object) -> tuple[int, str, str]:
    """kvpress_caches.py in this process: its exit code, stdout and stderr."""
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(out):
        try:
            code = kvpress_caches.main([str(argument) for argument in arguments])
        except SystemExit as left:
            code = left.code
    return code, out.getvalue(), said.getvalue()


@dataclass
class Record:
    """A cell of results.json, and its values per query head and row [G, R]."""

    cell: dict
    values: dict[str, np.ndarray]


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kvbench-peers-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def caches(self, spec: str, *options: object, dump: Path = DUMP) -> Path:
        """The cache file that kvpress_caches.py makes of one press."""
        out = self.folder / "caches"
        code, printed, said = called(dump, spec, "--out", out, "--fresh", *options)
        self.assertEqual(code, 0, said)
        return Path(printed.rsplit(": ", 1)[0])

    def run_sweep(self, algorithms: list[dict], prompt: object, dump: Path = DUMP,
                  seeds: object = (0,), **more: object) -> dict[tuple, Record]:
        """Records by label (else algorithm), layer, KV head, seed."""
        sweep = self.folder / "sweep.json"
        sweep.write_text(json.dumps({
            "schema_version": 1, "name": "peers", "dumps": [str(dump)],
            "output": {"rows": True, "caches": True},
            "seeds": seeds if isinstance(seeds, dict) else list(seeds),
            "replay": {"prompt_tokens": prompt}, "algorithms": algorithms, **more}))
        out = self.folder / "results"
        done = subprocess.run([PROGRAM, "run", "--config", sweep, "--out", out, "--fresh", "--quiet"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {}
        with h5py.File(out / "results.rows.h5") as rows:
            for cell in json.loads((out / "results.json").read_text())["cells"]:
                self.assertEqual(cell["status"], "ok", cell.get("reason"))
                key = cell["key"]
                found[cell["label"], key["layer"], key["kv_head"], key["seed"]] = Record(
                    cell, {name: rows[cell["id"]][name][:] for name in rows[cell["id"]]})
        return found


def kept_tokens(path: Path, layer: int, head: int) -> set[int]:
    """The prompt's tokens that a cache file holds at the first decoded row."""
    with h5py.File(path) as file:
        rows = file[f"sequences/{SEQUENCE}/layers/{layer}/heads/{head}"]
        prompt, token = int(rows.attrs["prompt_tokens"]), rows["token"][:]
        begin, end = (rows[name][:] if name in rows else np.full(len(token), default)
                      for name, default in (("begin", prompt), ("end", TOKENS)))
        held = token[(begin <= prompt) & (prompt < end) & (token < prompt)]
        return set(held.tolist())


@functools.cache
def tensors(layer: int, head: int) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """scale, q [G, n, d], k, v [n, d] of a KV head of the shipped dump, in float64."""
    with h5py.File(DUMP) as file:
        group = file[f"sequences/{SEQUENCE}/layers/{layer}"]
        q, k, v = (decode(group[name][:], element_type(group[name])) for name in "qkv")
        return (float(group.attrs["scale"]), q[head * GROUP:(head + 1) * GROUP], k[head], v[head])


@functools.lru_cache(maxsize=16)
def weights(layer: int, head: int, prompt: int) -> np.ndarray:
    """Exact attention weights [G, n - prompt, n] of the decoded rows."""
    scale, q, k, _ = tensors(layer, head)
    n = len(k)
    x = scale * q[:, prompt:] @ k.T
    x[:, np.arange(n)[None, :] > np.arange(prompt, n)[:, None]] = -np.inf
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def errors(layer: int, head: int, kept: set[int], prompt: int) -> dict[str, np.ndarray]:
    """relative_l2 and kept_mass [G, n - prompt] of attention over `kept` and the decoded tokens."""
    p, v = weights(layer, head, prompt), tensors(layer, head)[3]
    seen = [*sorted(kept), *range(prompt, len(v))]
    exact, mass = p @ v, p[..., seen].sum(axis=-1)
    z = p[..., seen] @ v[seen] / mass[..., None]
    return {"relative_l2": np.linalg.norm(z - exact, axis=-1) / np.linalg.norm(exact, axis=-1),
            "kept_mass": mass}


def answers(path: Path, layer: int, head: int, prompt: int) -> tuple[np.ndarray, np.ndarray]:
    """Attention [G, n - prompt, d] over a cache file's rows and the decoded tokens, and over all."""
    scale, q, k, v = tensors(layer, head)
    with h5py.File(path) as file:
        rows = file[f"sequences/{SEQUENCE}/layers/{layer}/heads/{head}"]
        token = rows["token"][:]
        keys, values = (rows[name][:] if name in rows else own[token]
                        for name, own in (("key", k), ("value", v)))
    later = np.arange(prompt, len(k))
    x = scale * q[:, prompt:] @ np.concatenate([keys, k[prompt:]]).T
    hidden = np.zeros(x.shape[1:], bool)
    hidden[:, len(token):] = later[None, :] > later[:, None]
    x[:, hidden] = -np.inf
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    z = p @ np.concatenate([values, v[prompt:]]) / p.sum(axis=-1, keepdims=True)
    return z, weights(layer, head, prompt) @ v


def digits(a: np.ndarray, b: np.ndarray) -> float:
    """The decimal digits to which two arrays agree at least, relative to the larger one."""
    worst = float((np.abs(a - b) / np.maximum(np.maximum(np.abs(a), np.abs(b)), 1e-300)).max())
    return 16.0 if worst == 0 else -np.log10(worst)
