"""The units that settings are compared over: those that all of them have."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
import pandas

from kvplot.groups import numbered

# A unit is what a mean and its interval run over; a point is one setting of one algorithm.
UNIT = ["dump", "sequence", "layer", "kv_head"]
POINT = ["algorithm", "label", "point"]
MOST_NAMED = 8  # labels, or layers, in a sentence


class Same(NamedTuple):
    """Cells of a frame that are compared, and what is said of the others."""

    kept: Any  # by cell: ok, and in a unit that every setting has
    has: Any  # by cell: of its setting and group, the units with a number
    asked: Any  # and those with any record
    words: str  # sentences for a caption, each with a blank before it; "" if all have all


def same_units(frame: pandas.DataFrame, metric: str | None = None, by: Sequence[str] = ()) -> Same:
    """Restricts cells to the units that all settings have, apart for each group of `by`, columns
    of UNIT.

    A setting has a unit if a cell of it is ok and, of a `metric`, has a number. It takes no part
    in a group where it has none. A group without a unit that all have keeps every cell, and the
    words say so.
    """
    rows = len(frame)
    ok = (frame["status"] == "ok").to_numpy()
    number = ok
    if metric is not None and metric in frame:
        number = ok & pandas.to_numeric(frame[metric], errors="coerce").notna().to_numpy()
    if not number.any():
        return Same(ok, numpy.zeros(rows, int), numpy.zeros(rows, int), "")
    setting, first_of_setting = numbered(frame[name] for name in POINT)
    unit, first_of_unit = numbered(frame[name] for name in UNIT)
    settings, units = len(first_of_setting), len(first_of_unit)
    if by:
        group, first_of_group = numbered(frame[name].iloc[first_of_unit] for name in by)
    else:
        group, first_of_group = numpy.zeros(units, int), numpy.zeros(1, int)
    groups = len(first_of_group)

    pair = setting.astype(numpy.int64) * units + unit
    asked, had = numpy.unique(pair), numpy.unique(pair[number])

    def per_group(pairs: Any) -> Any:
        """How many of its units each setting has in each group."""
        of = pairs // units * groups + group[pairs % units]
        return numpy.bincount(of, minlength=settings * groups).reshape(settings, groups)

    had_here, asked_here = per_group(had), per_group(asked)
    taking_part = (had_here > 0).sum(axis=0)
    of_all = numpy.bincount(had % units, minlength=units) == taking_part[group]
    shared = numpy.bincount(group[of_all & (taking_part[group] > 0)], minlength=groups)
    apart = (shared == 0) & (taking_part > 0)
    of_cell = group[unit]
    kept = ok & (of_all[unit] | apart[of_cell])

    wanted = numpy.bincount(group[numpy.unique(asked % units)], minlength=groups)
    words = ""
    labels = frame["label"].iloc[first_of_setting].astype(str).to_numpy()
    lacking = _lacking(labels, had_here.sum(axis=1), int(wanted.sum()))
    restricted = (taking_part > 0) & ~apart & (shared < wanted)
    heads = _heads(frame, first_of_unit)
    named = [
        (str(frame[by[0]].iloc[first_of_unit[first_of_group[place]]]) if by else "", place)
        for place in numpy.flatnonzero(restricted | apart)
    ]
    for name, place in named[:MOST_NAMED]:
        where = f"{by[0]} {name}: " if by else ""
        if apart[place]:
            words += (
                f" {_upper(where)}no {heads[:-1]} has every method; each mean is over those that "
                "its method has, and they are not comparable."
            )
        else:
            words += _upper(
                f" {where}over {shared[place]} of {wanted[place]} {heads}: those that every method "
                "has."
            )
    if len(named) > MOST_NAMED:
        words += f" Likewise {len(named) - MOST_NAMED} more."
    if lacking:
        words += f" {lacking} {heads}."
    words += _nulls(frame, metric, ok & ~number, ok)
    return Same(kept, had_here[setting, of_cell], asked_here[setting, of_cell], words)


def _upper(sentence: str) -> str:
    """The first letter as a capital, after a blank or none."""
    text = sentence.lstrip(" ")
    return sentence[: len(sentence) - len(text)] + text[:1].upper() + text[1:]


def _heads(frame: pandas.DataFrame, first_of_unit: Any) -> str:
    """What a unit is called."""
    return "layers" if frame["kv_head"].iloc[first_of_unit].isna().all() else "KV heads"


def _lacking(labels: Any, had: Any, every: int) -> str:
    """ "quest has 2 of 6, kivi 3 to 4 of 6": methods that lack units, "" if none does."""
    found: dict[str, list[int]] = {}
    for label, count in zip(labels, had, strict=True):
        if 0 < count < every:
            found.setdefault(label, []).append(int(count))
    told = []
    for label, counts in sorted(found.items()):
        least, most = min(counts), max(counts)
        told.append(f"{label} has {least if least == most else f'{least} to {most}'} of {every}")
    more = len(told) - MOST_NAMED
    if more > 0:
        told[MOST_NAMED:] = [f"{more} more methods lack some"]
    return ", ".join(told)


def _nulls(frame: pandas.DataFrame, metric: str | None, null: Any, ok: Any) -> str:
    """Finished cells without the number, which are in no mean of it."""
    if not null.any() or metric is None:
        return ""
    labels = sorted(set(frame["label"][null].dropna()))
    more = len(labels) - MOST_NAMED
    listed = ", ".join(labels[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return (
        f" Left out, without a number for {metric.replace('_', ' ')}: {null.sum()} of {ok.sum()} "
        f"finished cells ({listed})."
    )
