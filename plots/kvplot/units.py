"""The units that settings are compared over: those that all of them have."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
import pandas

from kvplot.groups import numbered

# A unit is what a mean and its interval run over; a point is one setting of one algorithm.
UNIT = ["dump", "sequence", "layer", "kv_head"]
POINT = ["algorithm", "label", "point"]
MAX_NAMED = 8  # labels, or layers, in a sentence


class Same(NamedTuple):
    """Cells of a frame that are compared, and what is said of the others."""

    kept: Any  # by cell: ok, and in a unit that every setting has
    has: Any  # by cell: of its setting and group, the units with a number
    asked: Any  # and those with any record
    words: str  # sentences for a caption, each with a blank before it; "" if all have all


def same_units(
    frame: pandas.DataFrame,
    metric: str | None = None,
    by: Sequence[str] = (),
    heads: str = "KV heads",
) -> Same:
    """Restricts cells to the units that all settings have, apart for each group of `by`, columns
    of UNIT.

    A setting has a unit if a cell of it is ok and, of a `metric`, has a number. It takes no part
    in a group where it has none. Where no unit of a group is in all settings, it is those that
    every method (label) has in some setting, and settings that lack one of them are left out. A
    group without such a unit keeps every cell, and the words say so. `heads`: what units are.
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
    group = numpy.zeros(units, int)
    if by:
        group = numbered(frame[name].iloc[first_of_unit] for name in by).numbers
    labels = frame["label"].iloc[first_of_setting].astype(str).to_numpy()

    asked = numpy.zeros((settings, units), bool)
    has = numpy.zeros((settings, units), bool)
    asked[setting, unit] = True
    has[setting[number], unit[number]] = True
    taken = numpy.zeros((settings, units), bool)
    counts_has, counts_asked = (numpy.zeros((settings, group.max() + 1), int) for _ in range(2))
    if heads == "KV heads" and frame["kv_head"].isna().all():  # records of whole layers
        heads = "layers"
    said = []
    for place in range(group.max() + 1):
        own = group == place
        here = has[:, own]
        counts_has[:, place], counts_asked[:, place] = here.sum(axis=1), asked[:, own].sum(axis=1)
        compared, words = _compared(here, labels)
        taken[:, own] = compared
        if words:
            name = frame[by[0]].iloc[first_of_unit[own][0]] if by else ""
            words = words.format(every=own.sum(), heads=heads, head=heads[:-1])
            said.append(_sentence(f"{by[0]} {name}: {words}" if by else words))
    if len(said) > MAX_NAMED:
        said[MAX_NAMED:] = [f"Likewise {len(said) - MAX_NAMED} more."]
    lacking = _lacking(labels, has.sum(axis=1), units)
    said += [f"{lacking} {heads}."] if lacking else []
    said += _nulls(frame, metric, ok & ~number, ok)
    return Same(
        ok & taken[setting, unit],
        counts_has[setting, group[unit]],
        counts_asked[setting, group[unit]],
        "".join(f" {sentence}" for sentence in said),
    )


def _compared(has: Any, labels: Any) -> tuple[Any, str]:
    """By setting and unit of a group whether it is compared, and what is said if not all are."""
    taking_part = has.any(axis=1)
    if not taking_part.any():
        return has, ""
    every = numpy.ones_like(has)
    common = has[taking_part].all(axis=0)
    if common.all():
        return every, ""
    if common.any():
        words = f"over {common.sum()} of {{every}} {{heads}}: those that every method has."
        return every & common, words
    methods = [has[labels == label].any(axis=0) for label in set(labels[taking_part])]
    common = numpy.all(methods, axis=0)
    if not common.any():
        return every, (
            "no {head} has every method; each mean is over those that its method has, and they "
            "are not comparable."
        )
    fit = has[:, common].all(axis=1)
    left = int((taking_part & ~fit).sum())
    return fit[:, None] & common, (
        f"over {common.sum()} of {{every}} {{heads}}: those that every method has, without {left} "
        "settings that lack some of them."
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _lacking(labels: Any, had: Any, every: int) -> str:
    """ "quest has 2 of 6, kivi 3 to 4 of 6": methods that lack units, "" if none does."""
    found: dict[str, list[int]] = {}
    for label, count in zip(labels, had, strict=True):
        if 0 < count < every:
            found.setdefault(label, []).append(int(count))
    lacking = []
    for label, counts in sorted(found.items()):
        least, most = min(counts), max(counts)
        lacking.append(f"{label} has {least if least == most else f'{least} to {most}'} of {every}")
    more = len(lacking) - MAX_NAMED
    if more > 0:
        lacking[MAX_NAMED:] = [f"{more} more methods lack some"]
    return ", ".join(lacking)


def _nulls(frame: pandas.DataFrame, metric: str | None, null: Any, ok: Any) -> list[str]:
    """Finished cells without the number, which are in no mean of it."""
    if not null.any() or metric is None:
        return []
    labels = sorted(set(frame["label"][null].dropna()))
    more = len(labels) - MAX_NAMED
    listed = ", ".join(labels[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
    name = metric.removeprefix("errors.").replace("_", " ").replace(".", ", ")
    return [
        f"Left out, no number for {name}: {null.sum()} of {ok.sum()} finished cells ({listed})."
    ]
