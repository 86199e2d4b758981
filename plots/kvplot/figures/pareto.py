"""Error over that of uniform sampling at the same memory, a panel per method, against memory."""

from argparse import ArgumentParser, Namespace

import numpy
import pandas
from matplotlib.axes import Axes

from kvplot import style
from kvplot.curves import words
from kvplot.faults import RequestError
from kvplot.figure import Figure, always_kept, facts
from kvplot.figures import forest
from kvplot.results import HEADLINE, UNIT, undrawn
from kvplot.statistics import over

NEEDS = ("results",)
WHOLE = True
MEMORY = forest.MEMORY
# Limits of the axis: values outside are drawn at its end; the table has all.
MIN_RATIO, MAX_RATIO = 0.2, 20.0


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--metric", default=HEADLINE, metavar="PATH", help=f"of the error; default {HEADLINE}"
    )


def draw(inputs: Namespace) -> Figure:
    results, metric = inputs.results, inputs.metric
    results.need(metric, MEMORY)
    units = forest.ratios(results, metric=metric)
    if units.empty:
        raise RequestError(forest.nothing_to_pair(results, forest.UNIFORM))
    table = forest.intervals(units)
    table = table[table["units"] == table["units"].max()].copy()
    for end in ("mean", "low", "high"):
        table[f"ratio_{end}"] = 2.0 ** table[end]
    order = table.groupby("label")["mean"].min().sort_values().index
    columns = 2 if style.narrow() else 4
    rows = -(-len(order) // columns)
    height = 0.4 + min(1.25 * rows, 7.0)
    figure, axes = style.panels(rows, columns, height, across=columns, sharex=True, sharey=True)
    for axis, label in zip(axes.flat, order):
        own = table[table["label"] == label].sort_values(MEMORY)
        points = units[(units["label"] == label) & units["point"].isin(own["point"])]
        _panel(axis, own, points)
        axis.set_title(label, pad=3)
    for axis in axes.flat[len(order) :]:
        axis.remove()
    for place, axis in enumerate(axes.flat[: len(order)]):
        if place + columns >= len(order):
            axis.set_xlabel("memory / exact")
            axis.tick_params(labelbottom=True)
    axes[rows // 2][0].set_ylabel("error / error of uniform at the same memory")
    others = results.ok[results.ok["label"] != "uniform"]
    return Figure(
        "pareto",
        figure,
        table,
        f"{words(metric)}, over that of uniform sampling at the same memory, paired by unit; below "
        "1 is better. Faint: units; marker and bar: geometric mean with its 95 % interval, "
        f"{over(table)}; what lies outside of {MIN_RATIO:g} to {MAX_RATIO:g} is drawn at that end. "
        f"{facts(results)}{always_kept(results.ok)}"
        f"{undrawn(others, table, 'memory outside of that of uniform in some unit', metric)}",
    )


def _panel(axis: Axes, own: pandas.DataFrame, units: pandas.DataFrame) -> None:
    colour, marker = style.look(own["algorithm"].iloc[0])
    joined = own[MEMORY].is_unique and len(own) > 1 and own["algorithm"].iloc[0] != "subgen"
    for _, unit in units.sort_values(MEMORY).groupby(UNIT):
        axis.plot(
            unit[MEMORY],
            numpy.clip(2.0 ** unit["log2_ratio"], MIN_RATIO, MAX_RATIO),
            color="0.55",
            linewidth=0.6,
            linestyle="-" if joined else "none",
            marker="_",
            markersize=3.5,
        )
    middle = own["ratio_mean"].to_numpy()
    ends = numpy.clip(own[["ratio_low", "ratio_high"]].to_numpy(), MIN_RATIO, MAX_RATIO).T
    axis.errorbar(
        own[MEMORY],
        middle,
        yerr=numpy.maximum([middle - ends[0], ends[1] - middle], 0.0),
        color=colour,
        marker=marker,
        linestyle="-" if joined else "none",
        capsize=2,
        elinewidth=1.0,
        markeredgecolor="white",
        markeredgewidth=0.4,
    )
    axis.axhline(1.0, color="black", linewidth=0.7, linestyle=":")
    axis.set_yscale("log")
    axis.set_ylim(MIN_RATIO, MAX_RATIO)
    style.plain_log(axis.yaxis)
