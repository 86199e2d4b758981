"""Rows of a cache file (FORMAT.md) that a layer's decoded rows read: weights of the text's tokens
and of further entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from format.dump_file import decode, element_type


class Unsuitable(Exception):
    """A setting that the loop cannot compute faithfully; it is skipped with this reason."""


@dataclass(frozen=True)
class Span:
    """The decoded rows [prompt, tokens), and the layer's sliding window (0: none)."""

    prompt: int
    tokens: int
    window: int

    @property
    def rows(self) -> int:
        return self.tokens - self.prompt


@dataclass(frozen=True)
class HeadReads:
    """Entries that the decoded rows of one KV head read.

    weight [G, R, n + e]: how often row r of query head g counts each token of the text, and after
    these each of e further entries; 0: not at all. key [e, d] and value [e, dv] are the entries'.
    """

    weight: np.ndarray
    key: np.ndarray
    value: np.ndarray


def _column(group: h5py.Group, name: str, count: int, default: int | float) -> np.ndarray:
    if name in group:
        return decode(group[name][:], element_type(group[name]))
    return np.full(count, float(default))


def _weights(group: h5py.Group, count: int) -> np.ndarray:
    if "weight_numerator" not in group:
        return _column(group, "weight", count, 1)
    numerator, denominator = (
        _column(group, f"weight_{part}", count, 1) for part in ("numerator", "denominator")
    )
    if not np.array_equal(numerator, denominator):
        raise Unsuitable(
            "its rows have other weights in the numerator than in the denominator, which are not "
            "weights of a softmax; --decisions live answers it"
        )
    return numerator


def _own(group: h5py.Group, name: str) -> np.ndarray | None:
    return decode(group[name][:], element_type(group[name])) if name in group else None


def head_reads(
    group: h5py.Group, span: Span, heads: int, k: np.ndarray, v: np.ndarray, scores_all: bool = True
) -> HeadReads:
    """Reads a KV head's group in a cache file. `heads`: G; k [P, d], v [P, dv]: the prompt's own,
    which stand in where a row brings only one of key and value. `scores_all`: every decoded row is
    scored; weights of others are not in the file. Raises Unsuitable."""
    token = group["token"][:].astype(np.int64)
    count = len(token)
    weight = _weights(group, count)
    begin = _column(group, "begin", count, span.prompt).astype(np.int64)
    end = _column(group, "end", count, span.tokens).astype(np.int64)
    reader = _column(group, "head", count, -1).astype(np.int64)
    key, value = _own(group, "key"), _own(group, "value")
    if not scores_all:
        last = np.where((token >= 0) & (span.window > 0), token + span.window, span.tokens)
        changes = (begin > span.prompt) | (end < np.minimum(last, span.tokens))
        if bool((changes & (weight != 1)).any()):
            raise Unsuitable(
                "its weights change while it decodes, and the cache file has them at scored rows "
                "alone; leave evaluate.rows out of the sweep, or --decisions live answers it"
            )
    further = count if key is not None or value is not None else 0
    if further and bool(((begin > span.prompt) | (token >= span.prompt)).any()):
        raise Unsuitable(
            "it makes keys or values of its own while it decodes, and those in the cache file are "
            "made of the uncompressed model's; --decisions live makes them anew"
        )
    column = span.tokens + np.arange(count) if further else token
    begin = np.maximum(begin, token)  # a row counts from its token's own row on
    if span.window:  # and leaves with it
        end = np.where(token >= 0, np.minimum(end, token + span.window), end)
    table = np.zeros((heads, span.rows, span.tokens + further))
    lengths = np.maximum(end - begin, 0)
    each = np.repeat(np.arange(count), lengths)
    row = begin[each] + np.arange(len(each)) - np.repeat(lengths.cumsum() - lengths, lengths)
    for head in range(heads):
        reads = (reader[each] < 0) | (reader[each] == head)
        at = (row[reads] - span.prompt, column[each][reads])
        np.add.at(table[head], at, weight[each][reads])
    if group.attrs.get("decode", "append") == "append":
        _append_decoded(table, span)
    if bool((table.sum(axis=-1) == 0).any()):
        raise Unsuitable("a row of it reads nothing at all")
    if not further:
        return HeadReads(table, np.zeros((0, k.shape[1])), np.zeros((0, v.shape[1])))
    return HeadReads(table, k[token] if key is None else key, v[token] if value is None else value)


def _append_decoded(table: np.ndarray, span: Span) -> None:
    """Every decoded token is read from its own row on, as long as the window has it."""
    row, token = np.arange(span.rows)[:, None], np.arange(span.rows)[None, :]
    seen = token <= row
    if span.window:
        seen &= token > row - span.window
    table[:, :, span.prompt : span.tokens] += seen


class CacheFiles:
    """The cache files of a run, by the cell that kept the rows, and by fingerprint the paths of
    calibrations that its results name."""

    def __init__(self, folder: Path, results: Mapping[str, Any] | None = None) -> None:
        named = (results or {}).get("calibrations", [])
        self.calibrations = {each["fingerprint"]: each["path"] for each in named}
        self._place: dict[str, tuple[Path, str]] = {}
        for path in sorted(folder.glob("*.h5")):
            with h5py.File(path) as file:
                for sequence in file["sequences"].values():
                    for layer in sequence["layers"].values():
                        for head in layer["heads"].values():
                            self._place[str(head.attrs["cell"])] = (path, head.name)

    def __contains__(self, cell: str) -> bool:
        return cell in self._place

    def reads(
        self,
        cell: str,
        span: Span,
        heads: int,
        k: np.ndarray,
        v: np.ndarray,
        scores_all: bool = True,
    ) -> HeadReads:
        path, place = self._place[cell]
        with h5py.File(path) as file:
            return head_reads(file[place], span, heads, k, v, scores_all)

    def keeps_tokens_alone(self, cell: str) -> bool:
        """Whether its rows are tokens with weight 1 and their own keys and values."""
        path, place = self._place[cell]
        with h5py.File(path) as file:
            group = file[place]
            count = len(group["token"])
            return (
                bool((group["token"][:] >= 0).all())
                and _own(group, "key") is None
                and _own(group, "value") is None
                and bool((_column(group, "head", count, -1) < 0).all())
                and "weight_numerator" not in group
                and bool((_weights(group, count) == 1).all())
            )

    def decided_once(self, cell: str, span: Span) -> bool:
        """Whether its rows are all of the prompt, and none comes or goes while it decodes."""
        path, place = self._place[cell]
        with h5py.File(path) as file:
            group = file[place]
            token = group["token"][:]
            begin = _column(group, "begin", len(token), span.prompt)
            end = _column(group, "end", len(token), span.tokens)
            return (
                group.attrs.get("decode", "append") == "append"
                and bool((token < span.prompt).all())
                and bool((begin == span.prompt).all())
                and bool((end == span.tokens).all())
            )
