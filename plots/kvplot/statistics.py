"""Intervals of means over nested units, by the rule of the program's own summary."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
import pandas

from kvplot.results import POINT, UNIT, mean_over_units
from kvplot.units import same_units

# From the outside in: a text is a sequence of a dump.
LEVELS = {"sequence": ["dump", "sequence"], "layer": ["layer"], "kv_head": ["kv_head"]}
NAMES = {"sequence": "texts", "layer": "layers", "kv_head": "KV heads"}
FEW = 5  # groups: the t quantile of fewer is 3.2 and more
NARROWER = {"sequence": "more texts"} | dict.fromkeys(("layer", "kv_head"), "more texts or layers")


class Interval(NamedTuple):
    low: float  # NaN: there is nothing to estimate it from
    high: float
    level: str
    groups: int


def mean_interval(units: pandas.DataFrame, column: str, signed: bool = False) -> Interval:
    """Student's 95 % interval of the mean of `column`, one row per unit.

    Groups of units are taken for independent by the outermost of sequence, layer and KV head that
    differs; each counts by the units it has. With m the mean, e its standard error and t the
    quantile it is m exp(+- t e / m), which stays above 0; of what is `signed` (a logarithm, a
    difference), or has a value below 0, it is m +- t e, which covers 95 % if the groups' means are
    normal, whatever the correlation within them.
    """
    from scipy import stats  # takes as long as all other imports of most figures

    units = units[units[column].notna()]
    nested = {name: units.groupby(columns) for name, columns in LEVELS.items()}
    level = next((name for name, groups in nested.items() if groups.ngroups > 1), "kv_head")
    groups = nested[level]
    count = groups.ngroups
    if count < 2:
        return Interval(numpy.nan, numpy.nan, level, count)
    mean = units[column].mean()
    parts = (groups[column].sum() - groups[column].count() * mean) / len(units)
    half = stats.t.ppf(0.975, count - 1) * numpy.sqrt(count / (count - 1) * (parts**2).sum())
    if signed or (units[column] < 0).any():
        return Interval(mean - half, mean + half, level, count)
    if mean == 0:
        return Interval(0.0, 0.0, level, count)
    factor = numpy.exp(half / mean)
    return Interval(mean / factor, mean * factor, level, count)


def geometric_means(
    units: pandas.DataFrame, column: str, by: list[str], name: str
) -> pandas.DataFrame:
    """Geometric means of a positive column, one row per group of `by`: <name>, <name>_low and
    <name>_high (95 %), what the interval runs over, and the number of groups and units."""
    logs = units.assign(log=numpy.log(units[column]))
    rows = []
    for key, own in logs.groupby(by, sort=False):
        interval = mean_interval(own, "log", signed=True)
        rows.append(
            {
                **dict(zip(by, key)),
                name: numpy.exp(own["log"].mean()),
                f"{name}_low": numpy.exp(interval.low),
                f"{name}_high": numpy.exp(interval.high),
                "over": interval.level,
                "groups": interval.groups,
                "units": len(own),
            }
        )
    return pandas.DataFrame(rows)


def holds(units: pandas.DataFrame, column: str, by: list[str], name: str) -> pandas.DataFrame:
    """One row per group of `by`; <name> is how many of its texts can be left out, one at a time, so
    that the interval of geometric_means() keeps its side of 1: 0 where it contains 1."""
    sides = {}
    texts = units["sequence"].unique()
    for text in [None, *(texts if len(texts) > 2 else [])]:
        means = geometric_means(units[units["sequence"] != text], column, by, "ratio")
        above, below = means["ratio_low"] > 1, means["ratio_high"] < 1
        sides[text] = (above.astype(int) - below.astype(int)).set_axis(
            pandas.MultiIndex.from_frame(means[by])
        )
    whole = sides.pop(None)
    same = 0 * whole
    for text, each in sides.items():
        own = pandas.MultiIndex.from_frame(units.loc[units["sequence"] == text, by])
        same += (
            (each.reindex(whole.index) == whole) & (whole != 0) & whole.index.isin(own)
        ).astype(int)
    return same.rename(name).reset_index()


# How far beyond the ends of a reference's settings it stands for what is compared with it: budgets
# are whole tokens, so that one that was asked for at an end may lie just behind it.
ENDS = 1.02


def at_equal(own: pandas.DataFrame, cost: str, metric: str, at: Any) -> Any:
    """`metric` of a reference's settings in one unit where `cost` is `at`, a number or an array,
    interpolated log against log; NaN beyond its settings, whose ends reach 2 % further with the
    same value."""
    own = own.sort_values(cost)
    near = (own[cost].iloc[0] / ENDS <= at) & (at <= own[cost].iloc[-1] * ENDS)
    with numpy.errstate(divide="ignore"):  # the reference may have settings without error
        value = numpy.interp(numpy.log(at), numpy.log(own[cost]), numpy.log(own[metric]))
    return numpy.where(near, numpy.exp(value), numpy.nan)[()]


def standard_error(table: pandas.DataFrame, column: str) -> "pandas.Series[float]":
    """Standard error over seeds of the means of mean_over_units; NaN with fewer than two seeds."""
    # The population's deviation over sqrt(n - 1) is the sample's over sqrt(n).
    return table[f"{column}.std_over_seeds"] / numpy.sqrt(
        (table["seeds"] - 1).where(lambda n: n > 0)
    )


def over(table: pandas.DataFrame) -> str:
    """ "Student's t over 3 layers": what the intervals of a table with over and groups are; where
    few groups carry one, also what narrows it."""
    kinds = table[["over", "groups"]].drop_duplicates()
    text = "Student's t over " + ", ".join(
        f"{groups} {NAMES[level]}" for level, groups in kinds.itertuples(index=False)
    )
    few = kinds[(kinds["groups"] > 1) & (kinds["groups"] < FEW)]
    return text + (f", few: {NARROWER[few['over'].iloc[0]]} narrow them" if len(few) else "")


def summarised(
    cells: pandas.DataFrame, metric: str, columns: Sequence[str] = (), by: Sequence[str] = ()
) -> pandas.DataFrame:
    """Per point the means of a metric and of `columns` over the units that all points have, with
    the metric's interval: <metric>_low and <metric>_high, what it runs over and the number of
    groups."""
    means = mean_over_units(cells, [metric, *columns], by)
    compared = cells[same_units(cells, metric, by).kept]
    group = [*by, *POINT]
    every = list(dict.fromkeys([*group, *UNIT]))
    compared = compared[every].assign(**{metric: pandas.to_numeric(compared[metric])})
    units = compared.groupby(every, dropna=False)[metric].mean().reset_index()
    rows = []
    for key, own in units.groupby(group, dropna=False):
        interval = mean_interval(own, metric)
        ends = {f"{metric}_low": interval.low, f"{metric}_high": interval.high}
        rows.append({**dict(zip(group, key)), **ends, "over": interval.level,
                     "groups": interval.groups})  # fmt: skip
    intervals = pandas.DataFrame(
        rows, columns=[*group, f"{metric}_low", f"{metric}_high", "over", "groups"]
    )
    return means.merge(intervals, on=group, how="left")
