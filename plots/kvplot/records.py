"""A frame of many nested records, of which one is in memory at a time."""

import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import pandas

Entry = dict[str, Any]

MISSING, NONE, INTEGER, FLOAT = range(4)
LARGEST = 2**53  # bound of the integers that doubles hold


class _Column:
    """Values in the order of rows: doubles while all are numbers, objects from the first other."""

    def __init__(self) -> None:
        self._numbers = array("d")
        self._kinds = bytearray()
        self._objects: list[Any] | None = None
        self._words: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._kinds) if self._objects is None else len(self._objects)

    def fill(self, rows: int) -> None:
        """Rows up to this number that lack it."""
        lacking = rows - len(self)
        if self._objects is None:
            self._numbers.extend([math.nan] * lacking)
            self._kinds.extend([MISSING] * lacking)
        else:
            self._objects.extend([math.nan] * lacking)

    def add(self, value: Any) -> None:
        if self._objects is None:
            kind = self._kind(value)
            if kind is not None:
                self._numbers.append(math.nan if value is None else value)
                self._kinds.append(kind)
                return
            self._objects = self._as_objects()
            self._numbers, self._kinds = array("d"), bytearray()
        self._objects.append(self._words.setdefault(value, value) if type(value) is str else value)

    @staticmethod
    def _kind(value: Any) -> int | None:
        if value is None:
            return NONE
        if type(value) is int and abs(value) <= LARGEST:
            return INTEGER
        return FLOAT if type(value) is float else None

    def _as_objects(self) -> list[Any]:
        make: dict[int, Callable[[float], Any]] = {
            MISSING: float,
            NONE: lambda _: None,
            INTEGER: int,
            FLOAT: float,
        }
        return [make[kind](number) for kind, number in zip(self._kinds, self._numbers)]

    def values(self) -> Any:
        """With the types that pandas gives them."""
        if self._objects is not None:
            if all(type(value) is bool for value in self._objects):
                return numpy.array(self._objects)
            objects = numpy.empty(len(self._objects), dtype=object)
            objects[:] = self._objects
            return objects
        kinds = set(self._kinds)
        if kinds == {NONE}:
            return numpy.array(self._as_objects(), dtype=object)
        numbers = numpy.frombuffer(self._numbers, dtype=float)
        return numbers.astype(numpy.int64) if kinds == {INTEGER} else numbers


def _leaves(record: Entry, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves by their paths; of the record itself before those of its members."""
    nested = []
    for name, value in record.items():
        if not isinstance(value, dict):
            yield prefix + name, value
        elif prefix:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            nested.append((name, value))
    for name, value in nested:
        yield from _leaves(value, f"{name}.")


def flattened(
    records: Iterable[Entry],
    wanted: Callable[[str], bool] | None = None,
    present: Iterable[str] = (),
) -> pandas.DataFrame:
    """pandas.json_normalize(), without the records in memory; of `wanted` columns if given, and
    with those of `present` that no record has, of None."""
    columns: dict[str, _Column | None] = {}  # None: not wanted
    rows = 0
    for record in records:
        for name, value in _leaves(record):
            if name not in columns:
                columns[name] = _Column() if wanted is None or wanted(name) else None
            column = columns[name]
            if column is None:
                continue
            column.fill(rows)
            column.add(value)
        rows += 1
    data = {}
    for name in list(columns):
        column = columns.pop(name)
        if column is not None:
            column.fill(rows)
            data[name] = column.values()
    for name in present:
        data.setdefault(name, numpy.full(rows, None, dtype=object))
    return pandas.DataFrame(data, index=range(rows), copy=False)
