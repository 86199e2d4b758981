"""Writes caches that other programs made, for kvbench to replay. README.md has the format."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from fault import Fault

FORMAT = {"format": "kvbench-cache", "format_version": 1}


@dataclass(frozen=True)
class Origin:
    """Who made a cache: the method's name (a label), its settings, and the program."""

    method: str
    producer: str
    params: dict


@dataclass(frozen=True)
class KeptRows:
    """Rows that one KV head keeps of its prompt, every row until the end.

    token [m]: positions in the stream, -1 for a row that is none of them. key [m, d] and
    value [m, dv] stand in for those of the tokens; without tokens both are needed.
    """

    token: np.ndarray
    key: np.ndarray | None = None
    value: np.ndarray | None = None


@dataclass(frozen=True)
class Head:
    """A KV head of a dump, and the length of the prompt that its rows were made of."""

    sequence: str
    layer: int
    head: int
    prompt_tokens: int


def token_numbers(token: np.ndarray) -> np.ndarray:
    """Positions, not a mask of those that are kept."""
    if token.dtype.kind not in "iu":
        raise Fault(
            f"tokens are of the type {token.dtype}; give their numbers, np.flatnonzero of a mask"
        )
    return token.astype(np.int32)


def write_caches(path: Path, origin: Origin, heads: Iterable[tuple[Head, KeptRows]]) -> int:
    """Writes the file, whole or not at all; returns the number of heads."""
    unfinished = path.with_name(path.name + ".unfinished")
    count = 0
    try:
        with h5py.File(unfinished, "w", libver=("v108", "v108")) as file:  # smaller groups
            file.attrs.update(
                {
                    **FORMAT,
                    "method": origin.method,
                    "producer": origin.producer,
                    "params": json.dumps(origin.params),
                }
            )
            for head, rows in heads:
                place = f"sequences/{head.sequence}/layers/{head.layer}/heads/{head.head}"
                group = file.create_group(place)
                group.attrs["prompt_tokens"] = head.prompt_tokens
                group["token"] = token_numbers(rows.token)
                if rows.key is not None:
                    group["key"] = rows.key
                if rows.value is not None:
                    group["value"] = rows.value
                count += 1
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count
