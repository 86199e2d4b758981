"""How the extension asks methods written in Python."""

from __future__ import annotations

import json
import re
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvbench._caches import Cache
from kvbench._core import Error
from kvbench._methods import Prompt, Row, decides_for_layer, is_method, parameter_table

MethodTable = tuple[str, str, str, bool, str, Callable[[str, int, list[Any]], Any]]
"""A method as the extension takes it: id, title, parameters, uses_seed, what it decides, ask."""

_FRAMES = 3  # frames of a traceback, in a record


def _failure_text(error: BaseException) -> str:
    """The end of its traceback in one line: the error, then its calls, last one first."""
    what = "".join(traceback.format_exception_only(type(error), error)).strip()
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).parent != Path(__file__).parent
    ]
    places = [
        f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
        + (f": {frame.line}" if frame.line else "")
        for frame in frames[: -_FRAMES - 1 : -1]
    ]
    return re.sub(r"\s*\n\s*", " | ", " | ".join([what, *places]))


def _columns(made: Any, prompt: Prompt, kept: Any) -> dict[str, Any]:
    """Rows that the method keeps of a prompt, as columns for the extension."""
    where = "compress_layer" if decides_for_layer(made) else "compress"
    if not isinstance(kept, Cache):
        raise Error(
            f"{made._kvbench_id}: {where} must return a kvbench.Kept"
            f"{' per prompt' if where == 'compress_layer' else ''}, got {type(kept).__name__}"
        )
    columns = dict(kept._columns)
    token, tokens = columns["token"], len(prompt.k)
    if np.any(token >= tokens):
        raise Error(
            f"{made._kvbench_id}: token {token.max()} is not of the prompt of {tokens} tokens"
        )
    if columns.keys() == {"token"} and len(np.unique(token)) < len(token):
        warnings.warn(
            f"{made._kvbench_id}: {where} names a token more than once, which counts as often in "
            "answers and memory; give np.unique(tokens), or weight= where that is meant",
            stacklevel=2,
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


def _compressed(made: Any, prompts: list[Prompt]) -> list[dict[str, Any]]:
    if not decides_for_layer(made):
        return [_columns(made, prompt, made.compress(prompt)) for prompt in prompts]
    kept = made.compress_layer(list(prompts))
    if not isinstance(kept, (list, tuple)):
        raise Error(
            f"{made._kvbench_id}: compress_layer must return a list of kvbench.Kept, got "
            f"{type(kept).__name__}"
        )
    if len(kept) != len(prompts):
        raise Error(
            f"{made._kvbench_id}: compress_layer must return one kvbench.Kept per prompt, "
            f"{len(prompts)}, got {len(kept)}"
        )
    return [_columns(made, prompt, each) for prompt, each in zip(prompts, kept, strict=True)]


def _stepper(made: Any, raises: bool) -> Callable[[int, NDArray[Any], NDArray[Any]], Any]:
    """`step` for the extension."""

    def step(i: int, tokens: NDArray[Any], logits: NDArray[Any]) -> Any:
        try:
            kept = made.step(Row(i, _read_only(tokens), _read_only(logits)))
            return None if kept is None else _staying(made, "step", kept)
        except Exception as error:
            if raises:
                raise
            return _failure_text(error)

    return step


def _staying(made: Any, where: str, kept: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Tokens and weights, which are all that a method with `step` can keep."""
    if not isinstance(kept, Cache):
        raise Error(
            f"{made._kvbench_id}: {where} must return a kvbench.Kept"
            f"{' or None' if where == 'step' else ''}, got {type(kept).__name__}"
        )
    columns = dict(kept._columns)
    weights = [
        columns.pop(name, columns.get("weight", np.ones(len(kept))))
        for name in ("weight_numerator", "weight_denominator")
    ]
    token = columns.pop("token")
    columns.pop("weight", None)
    if columns:
        raise Error(
            f"{made._kvbench_id}: with step, tokens and weights are kept; {where} gives "
            f"{', '.join(columns)} too"
        )
    if np.any(token < 0) or len(np.unique(token)) != len(token):
        raise Error(f"{made._kvbench_id}: {where} must name each token once")
    numerator, denominator = (np.ascontiguousarray(each, dtype=np.float64) for each in weights)
    return np.ascontiguousarray(token, dtype=np.int64), numerator, denominator


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def prompt_of(made: Any, given: tuple[Any, ...], seed: int) -> Prompt:
    """`given`: what a Prompt has, but the seed; nothing else uses its arrays."""
    q, k, v, scale, window, softcap, sequence, layer, head, sinks, alibi_slopes, chunk = given
    return Prompt(
        q=_read_only(q),
        k=_read_only(k),
        v=_read_only(v),
        scale=scale,
        window=window,
        softcap=softcap,
        sequence=sequence,
        layer=layer,
        head=head,
        seed=seed if getattr(made, "uses_seed", False) else None,
        sinks=tuple(sinks),
        alibi_slopes=tuple(alibi_slopes),
        chunk=chunk,
    )


def method_table(
    cls: Any, *, raises: bool = False, whole_layer: Callable[[Prompt], list[Prompt]] | None = None
) -> MethodTable:
    """Facts of a method for the extension. Its exceptions are texts, for the record, or, if
    `raises`, exceptions that end everything. `whole_layer`: all prompts of a prompt's layer, where
    the extension has only that one."""

    steps = hasattr(cls, "step")

    def ask(params: str, seed: int, given: list[Any]) -> list[Any] | str:
        try:
            fields = json.loads(params)
            del fields["source"]
            made = cls(**fields)
            prompts = [prompt_of(made, each, seed) for each in given]
            if steps:
                first = None
                if hasattr(made, "compress"):
                    kept = made.compress(prompts[0])
                    _staying(made, "compress", kept)
                    first = _columns(made, prompts[0], kept)
                return [(first, _stepper(made, raises))]
            if whole_layer is None:
                return _compressed(made, prompts)
            layer = whole_layer(prompts[0])
            return [
                columns
                for prompt, columns in zip(layer, _compressed(made, layer), strict=True)
                if prompt.head == prompts[0].head
            ]
        except Exception as error:
            if raises:
                raise
            return _failure_text(error)

    uses_seed = bool(getattr(cls, "uses_seed", False))
    by_layer = decides_for_layer(cls) and whole_layer is None
    decides = "rows" if steps else "layer" if by_layer else "prompt"
    return cls._kvbench_id, cls.__name__, json.dumps(parameter_table(cls)), uses_seed, decides, ask


def method_tables(place: str, methods: Iterable[Any]) -> list[MethodTable]:
    """The table of classes made with kvbench.method."""
    tables: list[MethodTable] = []
    for cls in [methods] if isinstance(methods, type) or is_method(methods) else methods:
        if not is_method(cls):
            raise Error(f"{place}: methods: {cls!r} is not made by kvbench.method; decorate it")
        if not isinstance(cls, type):
            raise Error(
                f"{place}: methods: {cls!r} is an instance; give the class, "
                f"{type(cls).__name__}, and its parameters in the sweep"
            )
        table = method_table(cls)
        if any(table[0] == known[0] for known in tables):
            raise Error(f"{place}: methods: two are called {table[0]}; rename one")
        tables.append(table)
    return tables
