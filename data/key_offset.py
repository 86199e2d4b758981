#!/usr/bin/env python3
"""The offset that the keys of a KV head share, which a key bias makes: measured, or planted.

    key_offset.py measure DUMP --out offsets.csv
    key_offset.py plant DUMP --from OTHER --layer 0 --rope before --out planted.h5

The offset is the mean of the prompt's keys before RoPE. `measure` writes a row per layer and KV
head: the offset's norm, the root mean square of the norms of keys and of what is left without it,
and the errors of keys (relative Frobenius) that rounding errors predict from the offset alone: a
step over the root of 12 for every number. `plant` adds the offset of each KV head of OTHER's layer
to the keys of a copy of DUMP: before RoPE, as a bias is, which changes what the model attends to,
or after it, which adds one number to all logits of a row and changes no exact answer. Head h takes
the offset of OTHER's head h mod their number. Keys become float32; `out` is left out. Layers that
read another layer's keys have no keys of their own, and are skipped. Errors of q4_0 and q8_0
are empty if keys have more than 32 numbers and blocks of 32 do not divide them.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from pathlib import Path
from typing import Any

from command import exit_code, packages

with packages("key_offset.py"):
    import h5py
    import numpy as np
    from fault import Fault

Array = Any
COLUMNS = ("layer", "kv_head", "offset", "key", "rest", "q4_0", "q8_0", "token", "turboquant")
POINTS_OF_4_BITS = 0.009497  # distortion of the best 16 points of N(0, 1): Max, 1960


def turned(vectors: Array, rope: Any, sign: float) -> Array:
    """Rows [n, d] turned by sign times their positions 0, 1, .."""
    frequencies = rope["inv_freq"][:]
    half = len(frequencies)
    first, second = slice(0, half), slice(half, 2 * half)
    layout = rope.attrs["layout"]
    if (layout.decode() if isinstance(layout, bytes) else layout) == "interleaved":
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    angles = sign * np.arange(len(vectors))[:, None] * frequencies
    out = vectors.copy()
    out[:, first] = vectors[:, first] * np.cos(angles) - vectors[:, second] * np.sin(angles)
    out[:, second] = vectors[:, second] * np.cos(angles) + vectors[:, first] * np.sin(angles)
    return out


def rope_of(dump: Any, layer: Any) -> Any:
    """The layer's rotation, or the dump's."""
    for group in (layer, dump):
        if "rope" in group:
            return group["rope"]
    raise Fault(f"{dump.filename}: has no RoPE data; export it with its rope group")


def layers_of(dump: Any) -> Any:
    """Layers of the only sequence, by number."""
    sequences = list(dump["sequences"].values())
    if len(sequences) != 1:
        raise Fault(f"{dump.filename}: has {len(sequences)} sequences; give a dump of one")
    return sequences[0]["layers"]


def own_keys(layers: Any) -> list[str]:
    """Names of the layers that have keys, by number."""
    return [name for name in sorted(layers, key=int) if "k" in layers[name]]


def keys_of(layer: Any, head: int) -> Array:
    """Keys [n, d] of a KV head in double precision."""
    keys = layer["k"][head]
    if keys.dtype.kind == "u":  # bfloat16, in either byte order
        keys = (keys.astype(np.uint32) << 16).view(np.float32)
    return keys.astype(np.float64)


def offset_of(before: Array, prompt: int | None) -> Array:
    """The mean of the prompt's keys, before RoPE; None: of all but the last 64 tokens."""
    prompt = len(before) - 64 if prompt is None else prompt
    if not 1 <= prompt <= len(before):
        raise Fault(f"--prompt {prompt}: expected 1 to {len(before)}, the tokens of the dump")
    return before[:prompt].mean(axis=0)


def sizes(vectors: Array) -> float:
    """Root mean square of the rows' norms."""
    return float(np.sqrt((vectors**2).sum(axis=1).mean()))


def predicted(offset: Array, keys: Array, rope: Any) -> list[float]:
    """Errors of keys that are nothing but the offset, relative to all keys."""
    alone = turned(np.repeat(offset[None], len(keys), axis=0), rope, 1.0)
    d = alone.shape[1]
    width = min(32, d)
    blocks = np.full((len(alone), 1), np.nan)
    if d % width == 0:
        blocks = np.abs(alone.reshape(len(alone), -1, width)).max(axis=2)
    steps = [
        np.sqrt((blocks**2).mean(axis=1)) / 8,
        np.sqrt((blocks**2).mean(axis=1)) / 127,
        (alone.max(axis=1) - alone.min(axis=1)) / 15,
    ]
    errors = [float(np.sqrt((step**2).mean() * d / 12)) for step in steps]
    errors.append(float(np.sqrt(POINTS_OF_4_BITS)) * sizes(keys))
    return [error / sizes(keys) for error in errors]


def rows_of(dump: Any, prompt: int | None) -> list[list[Any]]:
    """Rows that `measure` writes."""
    rows = []
    layers = layers_of(dump)
    for name in own_keys(layers):
        layer = layers[name]
        rope = rope_of(dump, layer)
        for head in range(len(layer["k"])):
            keys = keys_of(layer, head)
            before = turned(keys, rope, -1.0)
            offset = offset_of(before, prompt)
            measured = [float(np.linalg.norm(offset)), sizes(keys), sizes(before - offset)]
            numbers = [*measured, *predicted(offset, keys, rope)]
            texts = ("" if np.isnan(number) else f"{number:.6g}" for number in numbers)
            rows.append([int(name), head, *texts])
    return rows


def measure(arguments: argparse.Namespace) -> None:
    with h5py.File(arguments.dump) as dump:
        rows = rows_of(dump, arguments.prompt)
    with arguments.out.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def plant(arguments: argparse.Namespace) -> None:
    with h5py.File(arguments.source) as other:
        layers, number = layers_of(other), str(arguments.layer)
        if number not in own_keys(layers):
            raise Fault(
                f"--layer {number}: {arguments.source} has keys in layers "
                f"{', '.join(own_keys(layers))}"
            )
        layer, offsets = layers[number], []
        for head in range(len(layer["k"])):
            before = turned(keys_of(layer, head), rope_of(other, layer), -1.0)
            offsets.append(offset_of(before, arguments.prompt))
    for given in (arguments.dump, arguments.source):
        if arguments.out.exists() and arguments.out.samefile(given):
            raise Fault(f"--out {arguments.out}: is {given}; choose another file")
    unfinished = arguments.out.with_suffix(".unfinished")
    try:
        shutil.copyfile(arguments.dump, unfinished)
        add(arguments, unfinished, offsets)
        unfinished.replace(arguments.out)
    finally:
        unfinished.unlink(missing_ok=True)


def add(arguments: argparse.Namespace, path: Path, offsets: list[Array]) -> None:
    """Adds the offsets to the keys of a dump."""
    with h5py.File(path, "r+") as dump:
        layers = layers_of(dump)
        for name in own_keys(layers):
            layer = layers[name]
            if "value_in_key" in layer.attrs:
                raise Fault(f"{arguments.dump}: layer {name} has its values in its keys")
            keys = np.stack([keys_of(layer, head) for head in range(len(layer["k"]))])
            if keys.shape[2] != len(offsets[0]):
                raise Fault(
                    f"{arguments.dump}: its keys have {keys.shape[2]} numbers and the offset "
                    f"{len(offsets[0])}; take dumps of one width"
                )
            for head, of_head in enumerate(keys):
                offset = np.repeat(offsets[head % len(offsets)][None], len(of_head), axis=0)
                before = arguments.rope == "before"
                of_head += turned(offset, rope_of(dump, layer), 1.0) if before else offset
            for name in ("k", "out"):
                if name in layer:
                    del layer[name]
            layer["k"] = keys.astype(np.float32)


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = out.add_subparsers(required=True)
    for verb, function in (("measure", measure), ("plant", plant)):
        options = verbs.add_parser(verb)
        options.set_defaults(run=function)
        options.add_argument("dump", type=Path)
        options.add_argument(
            "--prompt", type=int, metavar="TOKENS", help="default: all but the last 64 tokens"
        )
        options.add_argument("--out", type=Path, required=True)
        if verb == "plant":
            options.add_argument("--from", dest="source", type=Path, required=True)
            options.add_argument("--layer", type=int, default=0)
            options.add_argument("--rope", choices=("before", "after"), default="before")
    return out


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)

    def work() -> None:
        try:
            args.run(args)
        except OSError as error:  # files that are not there, or no HDF5
            raise Fault(str(error)) from error

    return exit_code("key_offset.py", work)


if __name__ == "__main__":
    sys.exit(main())
