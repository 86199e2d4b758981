"""Dumps: the queries, keys and values that the layers of a model worked with (data/FORMAT.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvbench import _core


def _named(every: Iterable[Any]) -> str:
    return ", ".join(map(repr, every))


class Layer:
    """One attention layer of a sequence.

    Arrays are float64 and read when they are first asked for; a Layer keeps them while it lives.
    """

    def __init__(self, dump: Dump, sequence: Sequence, info: dict[str, Any]) -> None:
        self.dump = dump
        self.sequence: str = sequence.name
        self.prompt_tokens: int | None = sequence.prompt_tokens
        self.index: int = info["layer"]
        self.kv_layer: int | None = info["kv_layer"]
        """The layer whose keys and values it reads, None: its own."""
        self.readers = [sequence[reader] for reader in info["readers"]]
        """The layers that read its keys and values."""
        self.query_heads: int = info["query_heads"]
        self.kv_heads: int = info["kv_heads"]
        self.tokens: int = info["tokens"]
        """n: tokens of the sequence."""
        self.query_rows: int = info["query_rows"]
        """Nq: queries are stored for the last Nq positions."""
        self.dtype: str = info["dtype"]
        """The type that the file stores."""
        self.scale: float = info["scale"]
        """Multiplies <q, k>."""
        self.window: int = info["window"]
        """Sliding window in tokens, 0: none."""
        self.softcap: float = info["softcap"]
        """c of c tanh(x / c), 0: none."""
        self.sinks: list[float] | None = info["sinks"] or None
        """A logit per query head besides those of its tokens; None: there are none."""
        self.alibi_slopes: list[float] | None = info["alibi_slopes"] or None
        """A slope per query head: slope (j - i) is added to the logit of row i and token j."""
        bias = info["key_bias"]
        self.key_bias: NDArray[np.float64] | None = None
        """[KV heads, d]: what the model adds to keys before RoPE turns them; None: not stored."""
        if bias:
            self.key_bias = np.array(bias, np.float64).reshape(self.kv_heads, -1)
        self.causal: bool = info["causal"]
        """False: every row sees every token."""
        self.chunk: int = info["chunk"]
        """Tokens of a chunk, beyond which no row sees, 0: none."""
        self.value_in_key: int | None = info["value_in_key"] or None
        """How many columns of the keys, from the first on, are the values; None: v is stored."""
        rope = info["rope"]
        self.rope: tuple[list[float], str] | None = None
        """(radians per position of each pair of dimensions, "half" or "interleaved")."""
        if rope is not None:
            self.rope = (rope["inv_freq"], "interleaved" if rope["interleaved"] else "half")
        self._out_rows: int = info["out_rows"]

    @cached_property
    def _tensors(
        self,
    ) -> tuple[
        NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None
    ]:
        return self.dump._file.read_layer(self.sequence, self.index)

    @property
    def q(self) -> NDArray[np.float64]:
        """[query heads, Nq, d]: queries of the last Nq positions."""
        return self._tensors[0]

    @property
    def k(self) -> NDArray[np.float64]:
        """[KV heads, n, d]."""
        return self._tensors[1]

    @property
    def v(self) -> NDArray[np.float64]:
        """[KV heads, n, dv]."""
        return self._tensors[2]

    @property
    def wo_v_l1(self) -> NDArray[np.float64] | None:
        """[query heads, n]: 1-norm of what the output projection makes of each value for the query
        head; None if the dump does not have it."""
        return self._tensors[3]

    @cached_property
    def out(self) -> NDArray[np.float64] | None:
        """[query heads, No, dv]: what the model itself gave at the last No positions; None if the
        dump does not have it."""
        if self._out_rows == 0:
            return None
        return self.dump._file.read_out(self.sequence, self.index)

    def __repr__(self) -> str:
        return (
            f"<layer {self.index} of {self.sequence!r}: {self.tokens} tokens, {self.query_heads} "
            f"query heads, {self.kv_heads} KV heads, {self.dtype}>"
        )


class Sequence(Mapping[int, Layer]):
    """The layers of one sequence, by their index in the model."""

    def __init__(self, dump: Dump, info: dict[str, Any]) -> None:
        self._dump = dump
        self._layers = {layer["layer"]: layer for layer in info["layers"]}
        self.name: str = info["name"]
        self.description: str = info["description"]
        self.prompt_tokens: int | None = info["prompt_tokens"]
        """Tokens of the prompt, if the dump says so."""

    def __getitem__(self, layer: int) -> Layer:
        if layer not in self._layers:
            raise KeyError(f"sequence {self.name} has no layer {layer!r}; it has {_named(self)}")
        return Layer(self._dump, self, self._layers[layer])

    def __iter__(self) -> Iterator[int]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        return f"<sequence {self.name!r}: layers {', '.join(map(str, self))}>"


class Dump(Mapping[str, Sequence]):
    """An open dump: its sequences by name."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = _core.Dump(os.fspath(path))
        info = json.loads(self._file.document())
        self.path: str = info["path"]
        self.model: str = info["model"]
        self.producer: str = info["producer"]
        self.n_layers: int = info["n_layers"]
        """Layers of the model, dumped or not."""
        self._sequences = {each["name"]: each for each in info["sequences"]}

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content, which cells of the dump have in their key."""
        return self._file.fingerprint()

    def __getitem__(self, sequence: str) -> Sequence:
        if sequence not in self._sequences:
            raise KeyError(f"{self.path} has no sequence {sequence!r}; it has {_named(self)}")
        return Sequence(self, self._sequences[sequence])

    def __iter__(self) -> Iterator[str]:
        return iter(self._sequences)

    def __len__(self) -> int:
        return len(self._sequences)

    def __repr__(self) -> str:
        return f"<dump {self.path!r} of {self.model}: {', '.join(map(repr, self))}>"


def open_dump(path: str | os.PathLike[str]) -> Dump:
    """Opens a dump and checks its structure; tensors are read when they are asked for.

    dump["constitution"][15] is a Layer, with .q .k .v .out .wo_v_l1 .scale .window
    .softcap and what else it attends by (.sinks, .alibi_slopes, .causal, .chunk).
    Raises kvbench.Error with every error of the file's structure.
    """
    return Dump(path)
