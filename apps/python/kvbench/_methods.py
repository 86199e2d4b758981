"""Methods written in Python: what to keep of a prompt."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kvbench._caches import Cache
from kvbench._core import Error, algorithms

_Class = TypeVar("_Class", bound=type)


class Kept(Cache):
    """What a method keeps of a prompt: rows as of a Cache, of tokens below P. Every decoded token
    is kept besides, from its own row on."""


@dataclasses.dataclass(frozen=True)
class Prompt:
    """What a method sees of one KV head; arrays are float64 and read-only."""

    q: NDArray[np.float64]
    """[G, rows, d]: queries of the prompt's last positions, of all if the stream has them."""
    k: NDArray[np.float64]
    """[P, d]"""
    v: NDArray[np.float64]
    """[P, dv]"""
    scale: float
    """Multiplies <q, k>."""
    window: int
    """Sliding window in tokens, 0: none."""
    softcap: float
    sequence: str
    layer: int
    head: int
    """The KV head."""
    seed: int

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random numbers that depend on seed, sequence, layer and head alone. A method that never
        asks for them is deterministic: its cell has no seed."""
        place = f"{self.sequence}\n{self.layer}\n{self.head}".encode()
        stream = int.from_bytes(hashlib.sha256(place).digest()[:8], "little")
        return np.random.default_rng([self.seed, stream])

    @property
    def is_random(self) -> bool:
        """Whether random numbers were asked for."""
        return "rng" in self.__dict__


def method(cls: _Class) -> _Class:
    """Makes a class a method, for `kvbench.replay`: a dataclass whose fields are the parameters.

        @kb.method
        class LargestKeys:
            budget: int = 256

            def compress(self, prompt: kb.Prompt) -> kb.Kept:
                norm = np.linalg.norm(prompt.k, axis=1)
                return kb.Kept(np.argsort(-norm, kind="stable")[: self.budget])

    Its id is the class's name in snake_case. Fields are numbers, texts or booleans. Raises
    kvbench.Error for a class without `compress`, and for one that is named like an algorithm.
    """
    if not callable(getattr(cls, "compress", None)):
        raise Error(f"{cls.__name__}: a method needs compress(self, prompt); add it")
    for name in ("step", "compress_layer"):
        if hasattr(cls, name):
            raise Error(f"{cls.__name__}.{name}: is not supported; decide in compress")
    words = r"(?<=[a-z0-9])(?=[A-Z])|(?<!^)(?=[A-Z][a-z])"
    name = re.sub(words, "_", cls.__name__).lower()
    if f'"id":"{name}"' in algorithms():
        raise Error(f"{cls.__name__}: {name} is an algorithm of kvbench; rename the class")
    source = _source_hash(cls)  # before there are generated functions
    made: Any = dataclasses.dataclass(frozen=True)(cls)
    made._kvbench_id = name
    made._kvbench_source = source
    return made


def is_method(given: Any) -> bool:
    return hasattr(given, "_kvbench_id")


def _source_hash(cls: type) -> str:
    """Of its functions' text, inherited ones too; of the compiled ones if there is no text."""
    texts = []
    for each in cls.__mro__[:-1]:
        for name, function in sorted(vars(each).items()):
            if not inspect.isfunction(function):
                continue
            try:
                texts.append(inspect.getsource(function))
            except OSError:
                code = function.__code__
                texts.append(repr((name, code.co_code, code.co_names)))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def parameters(made: Any) -> dict[str, Any]:
    """The fields, and `source`, a hash of the method's text: what the cell's key says of it."""
    params = dataclasses.asdict(made)
    for name, value in params.items():
        if not isinstance(value, (bool, int, float, str)):
            raise Error(f"{name}: must be a number, a text or a boolean, got {value!r}")
    return {**params, "source": made._kvbench_source}


def compressed(made: Any, prompt: Prompt) -> dict[str, Any]:
    """What the method keeps, as columns for the extension."""
    for array in (prompt.q, prompt.k, prompt.v):
        array.flags.writeable = False
    kept = made.compress(prompt)
    if not isinstance(kept, Cache):
        raise Error(
            f"{made._kvbench_id}: compress must return a kvbench.Kept, got {type(kept).__name__}"
        )
    columns = dict(kept._columns)
    token, tokens = columns["token"], len(prompt.k)
    if np.any(token >= tokens):
        raise Error(
            f"{made._kvbench_id}: token {token.max()} is not of the prompt of {tokens} tokens"
        )
    weight = columns.pop("weight", np.ones(len(token)))
    columns.setdefault("weight_numerator", weight)
    columns.setdefault("weight_denominator", weight)
    return {
        name: np.ascontiguousarray(each, dtype=np.float64)
        if name in ("key", "value", "weight_numerator", "weight_denominator")
        else np.ascontiguousarray(each, dtype=np.int64)
        for name, each in columns.items()
    }
