"""The tail of the errors of single rows, at about equal memory: how often one is larger."""

from argparse import ArgumentParser, Namespace

import numpy
import pandas
from matplotlib.axes import Axes

from kvplot import style
from kvplot.dump import Array
from kvplot.figure import Figure, always_kept, facts
from kvplot.results import Results, ResultsError, mean_over_units, undrawn

NEEDS = ("results",)
METRIC, MEMORY = "errors.relative_l2.mean", "memory.fraction"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--memory",
        type=float,
        default=0.35,
        help="draw every method's setting with the memory nearest to this; default 0.35",
    )


def fits(results: Results) -> bool:
    return results.has_rows and results.ok[METRIC].max() > 1e-9


def at_memory(results: Results, memory: float, tolerance: float = 1.6) -> pandas.DataFrame:
    """One point per label: the one nearest to `memory` on a log scale, within the tolerance."""
    points = mean_over_units(results.ok, [METRIC, MEMORY])
    points = points[points[METRIC] > 1e-9].copy()
    points["away"] = numpy.log(points[MEMORY] / memory).abs()
    points = points[points["away"] <= numpy.log(tolerance)]
    return points.sort_values(["away", METRIC]).groupby("label").head(1).sort_values(METRIC)


def left_out(results: Results, points: pandas.DataFrame, memory: float) -> str:
    """The labels of which at_memory() has no point, and why."""
    cells = results.ok[~results.ok["label"].isin(points["label"])]
    return undrawn(cells, points, f"no setting near memory {memory:g}", METRIC)


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need(METRIC, MEMORY)
    points = at_memory(results, inputs.memory)
    if points.empty:
        raise ResultsError(f"{results.path}: no setting has a memory near {inputs.memory:g}")
    figure, axes = style.panels(1, 2, 3.2, width_ratios=(1.25, 1), across=1)
    tail, strip = axes[0]
    tables, names = [], []
    for place, (_, point) in enumerate(points.iterrows()):
        cells = results.ok[
            (results.ok["label"] == point["label"]) & (results.ok["point"] == point["point"])
        ]
        values = numpy.sort(results.rows("relative_l2", cells["id"])["relative_l2"])
        colour, marker = style.look(point["algorithm"], points["algorithm"].unique())
        names.append(f"{point['label']} ({point[MEMORY]:.2f})")
        # Nothing is above the largest value: its fraction is half of one value's.
        above = (len(values) - numpy.arange(len(values)) - 0.5) / len(values)
        tail.plot(
            values,
            above,
            color=colour,
            marker=marker,
            markevery=[int(len(values) * (1 - 0.1**k)) for k in (1, 2, 3)],
            markersize=4,
            linewidth=1.0,
            drawstyle="steps-pre",
            markeredgecolor="white",
            markeredgewidth=0.4,
        )
        _strip(strip, place, values, colour, marker)
        shares = numpy.concatenate([numpy.linspace(0.01, 0.99, 99), 1 - 0.1 ** numpy.arange(3, 5)])
        shares = numpy.append(shares[shares < 1 - 0.5 / len(values)], 1.0)
        tables.append(
            pandas.DataFrame(
                {
                    "label": point["label"],
                    "memory": point[MEMORY],
                    "share": shares,
                    "error": numpy.quantile(values, shares),
                    "count": len(values),
                }
            )
        )
    table = pandas.concat(tables)
    for axis in (tail, strip):
        axis.set_xscale("log")
        axis.set_xlabel(r"relative error $\Vert z-a\Vert\,/\,\Vert a\Vert$")
        style.plain_log(axis.xaxis)
    tail.set_yscale("log")
    tail.set_xlim(left=table[table["share"] >= 0.1]["error"].min())
    tail.set_ylabel("part of rows with a larger error")
    style.plain_log(tail.yaxis)
    strip.set_yticks(range(len(names)), names, fontsize=7)
    strip.set_ylim(len(names) - 0.5, -0.5)
    return Figure(
        "ecdf",
        figure,
        table,
        "Errors of single rows and query heads, all seeds pooled: the part that is larger, and per "
        "method the median (marker), the middle 98 % (line), the 99.9 % quantile (dash) and the "
        f"largest (cross). Of every method the setting nearest to memory {inputs.memory:g} (own "
        f"memory in brackets). {facts(results)}{always_kept(results.ok)}"
        f"{left_out(results, points, inputs.memory)}",
    )


def _strip(axis: Axes, place: int, values: Array, colour: str, marker: str) -> None:
    low, middle, high, far = numpy.quantile(values, (0.01, 0.5, 0.99, 0.999))
    axis.plot([low, high], [place, place], color=colour, linewidth=1.4)
    axis.plot(middle, place, marker, color=colour, markeredgecolor="white", markeredgewidth=0.4)
    axis.plot(far, place, "|", color=colour, markersize=5)
    axis.plot(values[-1], place, "x", color=colour, markersize=3.5)
