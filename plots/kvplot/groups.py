"""Groups of many rows by several columns, of which one is in memory at a time, in numbers of four
bytes: a groupby() of pandas has several of eight for every column and row."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy
import pandas

ROWS = 2**16  # rows of a column whose values are separated at once


class Numbered(NamedTuple):
    """Rows by the number of their group, and of each group its first row. Groups are numbered in
    the order of their keys, what is missing last, as pandas sorts them."""

    numbers: Any
    first: Any


def _coded(column: pandas.Series) -> tuple[Any, int]:
    """Values by their place in order, what is missing behind all, and how many places there are."""
    if column.dtype != object:
        wide, distinct = pandas.factorize(column, sort=True)
        codes = wide.astype(numpy.int32)
    else:
        found: dict[Any, int] = {}
        codes = numpy.empty(len(column), numpy.int32)
        for start in range(0, len(column), ROWS):
            some, values = pandas.factorize(column.iloc[start : start + ROWS])
            places = [found.setdefault(value, len(found)) for value in values]
            codes[start : start + ROWS] = numpy.array([*places, -1], numpy.int32)[some]
        order, distinct = pandas.factorize(pandas.Series(list(found), dtype=object), sort=True)
        codes = numpy.array([*order, -1], numpy.int32)[codes]
    codes[codes < 0] = len(distinct)
    return codes, len(distinct) + 1


def _renumbered(numbers: Any, limit: int) -> Numbered:
    """The same groups in the same order, of numbers below `limit`, without gaps."""
    rows = len(numbers)
    if limit > 4 * rows + ROWS:
        _, first, inverse = numpy.unique(numbers, return_index=True, return_inverse=True)
        return Numbered(inverse.astype(numpy.int32), first)
    first = numpy.full(limit, -1, numpy.int32)
    first[numbers[::-1]] = numpy.arange(rows - 1, -1, -1, dtype=numpy.int32)  # the last one stays
    there = first >= 0
    places = numpy.cumsum(there, dtype=numpy.int32) - 1
    return Numbered(places[numbers], first[there])


def numbered(columns: Iterable[pandas.Series], within: Numbered | None = None) -> Numbered:
    """Groups of the rows that agree in all columns, and are in one group of `within`."""
    found = within
    for column in columns:
        codes, places = _coded(column)
        if found is None:
            found = _renumbered(codes, places)
            continue
        limit = len(found.first) * places
        if limit > numpy.iinfo(numpy.int32).max:
            codes = codes.astype(numpy.int64)
        codes += found.numbers * codes.dtype.type(places)
        found = _renumbered(codes, limit)
    if found is None:
        raise ValueError("rows are grouped by at least one column")
    return found
