"""BalanceKV's Algorithm 1 as proved: error and mass against memory over batch t and levels T."""

from argparse import Namespace
from typing import Any

import numpy
import pandas
from matplotlib.axes import Axes

from kvplot import style
from kvplot.curves import WORDS, bars, labelled_lines, line, means, words
from kvplot.figure import Figure, facts
from kvplot.results import ResultsError

NEEDS = ("results",)
METRIC, MEMORY = "errors.relative_l2.mean", "memory.fraction"
MASS = "mass.denominator.mean"
COLUMNS = [METRIC, MASS, MEMORY, "memory.tokens_peak"]


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.t", "params.T", *COLUMNS)
    table = means(results.ok, COLUMNS)
    levels = [level for level in ("1", "2", "auto") if level in set(table["params.T"].astype(str))]
    tree = table[table["algorithm"] == "balancekv"]
    rest = table[table["algorithm"] != "balancekv"]
    if not levels or tree.empty:
        raise ResultsError(f"{results.path}: no finished cell of balancekv with T 1, 2 or auto")
    figure, axes = style.panels(3, len(levels), 5.2, sharey="row")
    handles: dict[str, Any] = {}
    labels = list(dict.fromkeys(tree["label"]))
    for place, level in enumerate(levels):
        top, middle, bottom = axes[:, place]
        top.set_title(f"T {level}")
        here = tree[tree["params.T"].astype(str) == level]
        for axis, x, y in (
            (top, "params.t", METRIC),
            (middle, "params.t", MASS),
            (bottom, MEMORY, METRIC),
        ):
            axis.set_xscale("log", base=2 if x == "params.t" else 10)
            axis.set_yscale("log" if y == METRIC else "linear")
            for label, colour, marker, dashes in zip(
                labels, style.ordered(len(labels)), "osD^v", ("-", "--", ":", "-.", "-")
            ):
                series = here[here["label"] == label]
                handles[label] = line(axis, series, x, y, colour, marker, linestyle=dashes)
            style.plain_log(axis.xaxis)
            if y == METRIC:
                style.plain_log(axis.yaxis)
            axis.set_xlabel("batch t" if x == "params.t" else "memory / exact")
        labelled_lines(bottom, rest, MEMORY, METRIC, handles)
        bottom.axvline(1.0, color="black", linewidth=0.7, linestyle=":")
        middle.axhline(1.0, color="black", linewidth=0.6, linestyle=":")
        _guide(top, here)
    for row, text in zip(axes, ("relative error", "normalizer / exact", "relative error")):
        row[0].set_ylabel(text)
    style.legend_above(axes[0][0], handles)
    text = bars(table, METRIC)
    return Figure(
        "merge_reduce",
        figure,
        table,
        f"{words(METRIC)}, of BalanceKV's Algorithm 1 over its batch t (top; dotted: slope -1), "
        "estimated normalizer over the exact one (middle; 1 is right), and the error against "
        f"{WORDS[MEMORY]} next to uniform sampling (bottom). balancekv: the smaller side is kept, "
        f"as printed. {_slopes(tree)} {text[0].upper()}{text[1:]}. {facts(results)}",
    )


def _guide(axis: Axes, here: pandas.DataFrame) -> None:
    """A line of slope -1 through the largest error at the least t."""
    t = here["params.t"].astype(float)
    start = here[t == t.min()][METRIC].max() * 0.75
    low = axis.get_ylim()[0]
    end = min(t.max(), t.min() * start / max(low, here[METRIC].min()))
    axis.plot([t.min(), end], [start, start * t.min() / end], "k:", linewidth=0.7)


def _slopes(tree: pandas.DataFrame) -> str:
    """Exponents of the error over t, fitted per label and T."""
    found = []
    for label, own in tree.groupby("label", sort=False):
        slopes = [
            numpy.polyfit(numpy.log(one["params.t"].astype(float)), numpy.log(one[METRIC]), 1)[0]
            for _, one in own.groupby(own["params.T"].astype(str))
            if len(one) > 1
        ]
        if slopes:
            found.append(f"{label} {max(slopes):.2f} to {min(slopes):.2f}")
    return f"Fitted slopes over t: {', '.join(found)}." if found else ""
