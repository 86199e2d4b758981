"""Caches that others made, as files that kvbench replays (algorithm `given`)."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvbench._arrays import numpy_of, plain, refuse_mask, refuse_masked, whole
from kvbench._core import Error, version

_FORMAT, _FORMAT_VERSION = "kvbench-cache", 1


def _column(name: str, given: ArrayLike | None, rows: int, kind: type) -> NDArray[Any] | None:
    """An array [rows] of integers or finite numbers; None for None."""
    if given is None:
        return None
    refuse_masked(name, given)
    array = numpy_of(name, given, integers=True) if kind is float else np.asarray(given)
    if array.shape != (rows,):
        raise Error(f"{name}: must have shape [{rows}], one per token, got {list(array.shape)}")
    if kind is int:
        if array.dtype == np.bool_:
            refuse_mask(name, array, "rows" if name in ("begin", "end") else f"{name}s")
        is_whole = array.dtype.kind in "iu" or (
            array.dtype.kind == "f" and bool(np.all(array == np.trunc(array)))
        )
        if array.size > 0 and not is_whole:
            raise Error(f"{name}: must be integers, got {array.dtype}")
        if np.any((array < -(2**31)) | (array >= 2**31)):
            raise Error(f"{name}: must fit in 32 bits")
        return array.astype(np.int32)
    if not np.all(np.isfinite(array)):
        raise Error(f"{name}: every element must be finite")
    return array.astype(np.float64)


def _vectors(name: str, given: ArrayLike | None, rows: int) -> NDArray[Any] | None:
    """An array [rows, columns] of finite numbers, of the type that was given."""
    if given is None:
        return None
    array = numpy_of(name, given)
    if array.ndim != 2 or array.shape[0] != rows:
        raise Error(f"{name}: must have shape [{rows}, columns], got {list(array.shape)}")
    if array.dtype not in (np.float16, np.float32, np.float64):
        raise Error(f"{name}: must be float16, float32 or float64, got {array.dtype}")
    if not np.all(np.isfinite(array)):
        raise Error(f"{name}: every element must be finite")
    return array


def _count(name: str, given: Any) -> int:
    count = whole(name, given)
    if count is None or count < 0:
        raise Error(f"{name}: must be an integer of at least 0, got {given}")
    return count


class Cache:
    """Rows that a method keeps of one KV head: m rows, each a token or vectors of its own.

    A query x is answered with sum w_num exp(x) v / sum w_den exp(x) over the rows.

    token [m]: position in the stream; -1: no token, then `key` and `value` are both needed.
    weight [m]: w_num and w_den; or weight_numerator [m] and weight_denominator [m]. Default 1. A
        bias b on a row's logit is weight exp(b).
    key [m, d], value [m, dv]: stand in for the token's own (keys after the rotation to positions).
    begin, end [m]: the row is kept while decode rows begin <= i < end are answered; default P and
        n.
    head [m]: the query head of the group that reads the row, 0 to G - 1; -1 (default): all.

    Raises kvbench.Error for lengths that differ, weights that are negative in the denominator, and
    numbers that are not finite.
    """

    def __init__(
        self,
        token: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        weight_numerator: ArrayLike | None = None,
        weight_denominator: ArrayLike | None = None,
        key: ArrayLike | None = None,
        value: ArrayLike | None = None,
        begin: ArrayLike | None = None,
        end: ArrayLike | None = None,
        head: ArrayLike | None = None,
    ) -> None:
        refuse_masked("token", token)
        tokens = np.atleast_1d(np.asarray(token))
        if tokens.ndim != 1:
            raise Error(f"token: must have one dimension, got {tokens.ndim}")
        if weight is not None and (weight_numerator is not None or weight_denominator is not None):
            raise Error("weight: weight_numerator or weight_denominator is given too; leave it out")
        if (weight_numerator is None) != (weight_denominator is None):
            raise Error("weight_numerator, weight_denominator: one is given alone; give both")
        rows = len(tokens)
        alone = all(each is None for each in (key, value, begin, end, head))
        if tokens.dtype == np.bool_ or alone:  # rows that nothing else tells apart
            refuse_mask("token", tokens)
        columns: dict[str, NDArray[Any] | None] = {
            "token": _column("token", tokens, rows, int),
            "weight": _column("weight", weight, rows, float),
            "weight_numerator": _column("weight_numerator", weight_numerator, rows, float),
            "weight_denominator": _column("weight_denominator", weight_denominator, rows, float),
            "key": _vectors("key", key, rows),
            "value": _vectors("value", value, rows),
            "begin": _column("begin", begin, rows, int),
            "end": _column("end", end, rows, int),
            "head": _column("head", head, rows, int),
        }
        self._columns = {name: each for name, each in columns.items() if each is not None}
        self._check()

    def _check(self) -> None:
        token = self._columns["token"]
        if np.any(token < -1):
            raise Error(f"token: must be a position or -1, got {token.min()}")
        for name in ("key", "value"):
            if np.any(token == -1) and name not in self._columns:
                raise Error(f"{name}: is missing; a row without a token needs it")
        for name in ("weight", "weight_denominator"):
            if name in self._columns and np.any(self._columns[name] < 0):
                raise Error(f"{name}: must not be negative")
        if "head" in self._columns and np.any(self._columns["head"] < -1):
            raise Error("head: must be a query head of the group or -1")
        begin, end = self._columns.get("begin"), self._columns.get("end")
        if begin is not None and end is not None and np.any(begin > end):
            at = int(np.argmax(begin > end))
            raise Error(f"end: must be at least begin, got {end[at]} after {begin[at]} in row {at}")

    def __len__(self) -> int:
        return len(self._columns["token"])

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        sequence: str,
        layer: int,
        head: int,
        prompt_tokens: int,
        method: str,
        producer: str | None = None,
        params: dict[str, Any] | None = None,
        decode: str = "append",
        key_bytes: int | None = None,
        value_bytes: int | None = None,
        extra_bytes: int | None = None,
        reads_future: bool = False,
        replace: bool = False,
    ) -> None:
        """Writes the cache of KV head `head` into the file at `path`, made if it is not there.

        prompt_tokens: the P that it was made for.
        method: names it in results; one per file.
        decode: "append": every decoded token is kept from its own row on; "given": none is added.
        key_bytes, value_bytes, extra_bytes: what the method declares that it stores.
        reads_future: rows may name tokens that are not yet there.
        replace: an earlier cache of this head may go.

        Needs h5py; several processes must not write one file at the same time.
        """
        try:
            import h5py
        except ImportError as missing:
            raise ImportError("Cache.save needs h5py; pip install 'kvbench[caches]'") from missing
        layer, head = _count("layer", layer), _count("head", head)
        prompt_tokens = _count("prompt_tokens", prompt_tokens)
        if decode not in ("append", "given"):
            raise Error(f'decode: must be "append" or "given", got {decode!r}')
        if not sequence or "/" in sequence:
            raise Error(f"sequence: must be a name without /, got {sequence!r}")
        begin = self._columns.get("begin")
        if begin is not None and np.any(begin < prompt_tokens):
            raise Error(f"begin: must be at least prompt_tokens, got {begin.min()}")
        if decode == "append" and np.any(self._columns["token"] >= prompt_tokens):
            raise Error(
                'token: decoded tokens are kept already; leave them out or give decode="given"'
            )
        attributes: dict[str, Any] = {"prompt_tokens": np.int64(prompt_tokens), "decode": decode}
        for name, count in (
            ("key_bytes", key_bytes),
            ("value_bytes", value_bytes),
            ("extra_bytes", extra_bytes),
        ):
            if count is not None:
                attributes[name] = np.int64(_count(name, count))
        if reads_future:
            attributes["reads_future"] = np.int64(1)
        group_path = f"sequences/{sequence}/layers/{layer}/heads/{head}"
        with h5py.File(path, "a") as file:
            self._write_root(file, path, method, producer, params)
            if group_path in file:
                if not replace:
                    raise Error(
                        f"{os.fspath(path)}: /{group_path} is there already; give replace=True"
                    )
                del file[group_path]
            group = file.create_group(group_path)
            group.attrs.update(attributes)
            for name, column in self._columns.items():
                group.create_dataset(name, data=column)

    @staticmethod
    def _write_root(
        file: Any,
        path: str | os.PathLike[str],
        method: str,
        producer: str | None,
        params: dict[str, Any] | None,
    ) -> None:
        """The file's own attributes; of an existing file format, method and, if given, params must
        be the same."""
        wanted = {"format": _FORMAT, "method": method}
        if params is not None:
            wanted["params"] = json.dumps(params, sort_keys=True, default=plain)
        if len(file) == 0 and len(file.attrs) == 0:
            file.attrs.update(wanted)
            file.attrs["format_version"] = np.int64(_FORMAT_VERSION)
            file.attrs["producer"] = producer or f"kvbench {version()}"
            return
        for name, value in wanted.items():
            found = file.attrs.get(name)
            if found != value:
                raise Error(
                    f"{os.fspath(path)}: {name} is {found!r}, not {value!r}; choose another file"
                )

    def __repr__(self) -> str:
        return f"<cache of {len(self)} rows: {', '.join(self._columns)}>"
