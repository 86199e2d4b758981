"""The folder of a run of IBM's vLLM-Hook, as arrays by name: <sequence>/<layer>/q, k, v and scale.

A run writes `tp_rank_<r>/qk.safetensors` and `qk.json` with VLLM_HOOK_USE_SAFETENSORS=1. A layer
has two arrays, of queries and of keys after the rotation, with heads side by side; an entry is what
one request was given in one pass of the model. Three layouts of entries are known:

* padded [entries, tokens, columns], and `seq_lens`: an entry is a sequence;
* padded, with `q_seq_lens` and `k_seq_lens`: keys of an entry begin with those of earlier passes;
* `compact_all_tokens`: entries one behind another, keys of a sequence once (`k_full_lens`), and the
  ends of its passes (`k_prefix_ends`).

vLLM-Hook writes no values. They are read behind the keys, as `torch.cat((k, v), -1)` puts them; the
change of the worker is on apps/python/ATTACH.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from command import note
from fault import Fault

from importer.array_files import SafetensorsFile

NAME = "qk.safetensors"
NO_VALUES = (
    "holds queries and keys alone; store values behind the keys, as apps/python/ATTACH.md shows"
)


@dataclass
class _Piece:
    """Rows of a tensor: of an entry in a padded one, of all rows in a compact one."""

    entry: int | None
    first: int
    end: int

    def of(self, array: np.ndarray) -> np.ndarray:
        """[rows, columns]"""
        return (array if self.entry is None else array[self.entry])[self.first : self.end]


@dataclass
class _Sequence:
    queries: list[_Piece]
    keys: list[_Piece]

    @property
    def tokens(self) -> int:
        return sum(each.end - each.first for each in self.keys)


class HookFolder(Mapping):
    """Arrays by name, each with its type's name, as array_files.ArrayFile gives them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        ranks = {}
        for folder in path.glob("tp_rank_*"):
            number = re.fullmatch(r"tp_rank_([0-9]+)", folder.name)
            if number and (folder / NAME).is_file():
                ranks[int(number[1])] = folder
        if not ranks:
            raise Fault(
                f"{path}: expected the folder of a run of vLLM-Hook, tp_rank_<r>/{NAME} in it; run "
                "it with VLLM_HOOK_USE_SAFETENSORS=1, and name the folder of one run"
            )
        if sorted(ranks) != list(range(len(ranks))):
            raise Fault(f"{path}: expected tp_rank_0 to tp_rank_{max(ranks)}, got {sorted(ranks)}")
        self._files = [SafetensorsFile(ranks[rank] / NAME) for rank in sorted(ranks)]
        self._metas = [_meta(ranks[rank] / "qk.json") for rank in sorted(ranks)]
        self._config = {
            name: _count(path, self._metas[0]["config"], name)
            for name in ("num_attention_heads", "num_key_value_heads")
        }
        self._layers = {
            int(each["layer_num"]): (str(each["key_q"]), str(each["key_k"]))
            for each in self._metas[0]["layer_order"]
        }
        self._noted: set[int] = set()  # layers that a note was given of
        self._sequences = _sequences(path, self._metas[0])
        if any(_sequences(path, meta) != self._sequences for meta in self._metas):
            raise Fault(f"{path}: its ranks have other tokens; record the run again")

    def __iter__(self) -> Iterator[str]:
        for sequence in range(len(self._sequences)):
            for layer in self._layers:
                for name in ("q", "k", "v", *(["scale"] if self._scale(layer) else [])):
                    yield f"{sequence}/{layer}/{name}"

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> tuple[np.ndarray, str]:
        sequence, layer, tensor = name.split("/")
        try:
            if tensor == "scale":
                return np.array([self._scale(int(layer))]), "float64"
            return self._heads(self._sequences[int(sequence)], int(layer), tensor)
        except Fault:
            raise
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise Fault(f"{self.path}: {name}: cannot read the array: {error}") from error

    def _columns(self, rank: int, layer: int, which: int) -> int:
        return self._files[rank].shape(self._layers[layer][which])[-1]

    def _d(self, layer: int) -> int:
        columns = sum(self._columns(rank, layer, 0) for rank in range(len(self._files)))
        heads = self._config["num_attention_heads"]
        if columns % heads:
            raise Fault(f"{self.path}: layer {layer}: {columns} columns of {heads} query heads")
        return columns // heads

    def _scale(self, layer: int) -> float | None:
        """vLLM-Hook computes it from `head_dim`, which is hidden size / heads; None where that is
        another number than the columns of a head."""
        config = self._metas[0]["config"]
        if config.get("head_dim") != self._d(layer):
            return None
        return config.get("attention_multiplier")

    def _heads(self, sequence: _Sequence, layer: int, tensor: str) -> tuple[np.ndarray, str]:
        """[heads, rows, columns]"""
        d, parts, dtype = self._d(layer), [], ""
        kv_heads = self._config["num_key_value_heads"]
        copies = 1 if tensor == "q" else max(1, len(self._files) // kv_heads)  # ranks with a head
        for rank in range(0, len(self._files), copies):
            array, dtype = self._files[rank][self._layers[layer][tensor != "q"]]
            pieces = sequence.queries if tensor == "q" else sequence.keys
            rows = np.concatenate([piece.of(array) for piece in pieces])
            wanted = sum(piece.end - piece.first for piece in pieces)
            if len(rows) != wanted:
                raise Fault(
                    f"{self.path}: layer {layer}: {len(rows)} rows of {tensor}, and qk.json says "
                    f"{wanted}; record the run again"
                )
            heads = rows.shape[1] // d if tensor == "q" else kv_heads * copies // len(self._files)
            if tensor != "q":
                if heads == 0 or rows.shape[1] % heads or rows.shape[1] < heads * d:
                    raise Fault(
                        f"{self.path}: layer {layer}: keys of {rows.shape[1]} columns for {heads} "
                        f"KV heads of {d} numbers"
                    )
                if rows.shape[1] == heads * d:
                    raise Fault(f"{self.path}: layer {layer}: {NO_VALUES}")
                dv = rows.shape[1] // heads - d
                if tensor == "v" and dv != d and rank == 0 and layer not in self._noted:
                    self._noted.add(layer)
                    note(
                        "import_arrays.py",
                        f"{self.path}: layer {layer}: keys have {d} numbers and values {dv}, by "
                        "the numbers of heads that qk.json has for all layers; if this layer "
                        "has others, save its arrays by name",
                    )
                rows = rows[:, : heads * d] if tensor == "k" else rows[:, heads * d :]
            parts.append(rows.reshape(len(rows), heads, -1).transpose(1, 0, 2))
        return np.concatenate(parts), dtype


def open_hook_folder(path: Path) -> HookFolder:
    try:
        return HookFolder(path)
    except Fault:
        raise
    except Exception as error:  # torch raises anything on a damaged file
        raise Fault(f"{path}: cannot read it: {error}") from error


def _meta(path: Path) -> dict[str, Any]:
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        mode = {meta["hookq_mode"], *(e.get("hookq_mode") for e in meta["layer_order"])} - {None}
        config, _ = dict(meta["config"]), [int(e["layer_num"]) for e in meta["layer_order"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fault(f"{path}: expected the description that vLLM-Hook writes: {error}") from error
    if mode != {"all_tokens"}:
        raise Fault(
            f"{path}: hookq_mode is {', '.join(sorted(mode))}, of which one row can be measured; "
            "run it with VLLM_HOOKQ_MODE=all_tokens"
        )
    return {**meta, "config": config}


def _count(path: Path, config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or value < 1:
        raise Fault(f"{path}: qk.json: {name}: expected an integer of at least 1, got {value}")
    return value


def _lengths(path: Path, meta: dict[str, Any], name: str) -> list[int]:
    value = meta.get(name)
    if not isinstance(value, list) or not all(isinstance(e, int) and e > 0 for e in value):
        raise Fault(f"{path}: qk.json: {name}: expected a list of counts of tokens")
    return value


def _sequences(path: Path, meta: dict[str, Any]) -> list[_Sequence]:
    if meta.get("compact_all_tokens"):
        return _compact(path, meta)
    if "k_seq_lens" in meta:
        return _growing(
            path, _lengths(path, meta, "q_seq_lens"), _lengths(path, meta, "k_seq_lens")
        )
    lengths = _lengths(path, meta, "seq_lens")
    if 1 in lengths:
        raise Fault(
            f"{path}: entry {lengths.index(1)} has one token, as a decode step has; run it with "
            "max_tokens=1"
        )
    rows = [_Piece(entry, 0, count) for entry, count in enumerate(lengths)]
    return [_Sequence([each], [each]) for each in rows]


def _growing(path: Path, queries: list[int], keys: list[int]) -> list[_Sequence]:
    """An entry whose keys begin before its queries continues the sequence of as many tokens."""
    sequences: list[_Sequence] = []
    for entry, (rows, tokens) in enumerate(zip(queries, keys, strict=True)):
        past = tokens - rows
        of = [each for each in sequences if each.tokens == past] if past else [_Sequence([], [])]
        if len(of) != 1:
            raise Fault(
                f"{path}: entry {entry} continues {past} tokens, which {len(of)} sequences have; "
                "run one prompt at a time, with enable_prefix_caching=False"
            )
        if past == 0:
            sequences += of
        of[0].queries.append(_Piece(entry, 0, rows))
        of[0].keys[:] = [_Piece(entry, 0, tokens)]
    return sequences


def _compact(path: Path, meta: dict[str, Any]) -> list[_Sequence]:
    rows, sequences, first = iter(_lengths(path, meta, "q_seq_lens")), [], 0
    counts = _lengths(path, meta, "k_full_lens")
    for tokens, ends in zip(counts, meta["k_prefix_ends"], strict=True):
        before = 0
        for end in ends:
            if next(rows, None) != end - before:
                raise Fault(
                    f"{path}: qk.json: a pass ends at token {end} after {before}, and q_seq_lens "
                    "has another count; run it with enable_prefix_caching=False"
                )
            before = end
        if before != tokens:
            raise Fault(f"{path}: qk.json: {tokens} keys of a sequence, and passes of {before}")
        piece = _Piece(None, first, first + tokens)
        sequences.append(_Sequence([piece], [piece]))
        first += tokens
    return sequences
