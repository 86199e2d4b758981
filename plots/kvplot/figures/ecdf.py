"""How errors are distributed, at about equal memory: over rows and query heads, and over heads."""

from argparse import ArgumentParser, Namespace

import numpy
import pandas

from kvplot import style
from kvplot.figure import Figure, facts
from kvplot.results import Results, ResultsError, mean_over_units, undrawn

NEEDS = ("results",)
METRIC, MEMORY = "errors.relative_l2.mean", "memory.fraction"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--memory",
        type=float,
        default=0.35,
        help="of every method the setting with the memory nearest to this; default 0.35",
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
    figure, axes = style.panels(1, 2, 3.0, sharey=True)
    handles, tables = {}, []
    for _, point in points.iterrows():
        cells = results.ok[
            (results.ok["label"] == point["label"]) & (results.ok["point"] == point["point"])
        ]
        rows = results.rows("relative_l2", cells["id"])
        rows = rows.join(cells.set_index("id")[["layer", "kv_head", "sequence", "dump"]], on="id")
        heads = rows.groupby(["dump", "sequence", "layer", "kv_head", "head"])["relative_l2"].mean()
        colour, marker = style.look(point["algorithm"], points["algorithm"].unique())
        name = f"{point['label']} ({point[MEMORY]:.2f})"
        for axis, values in zip(axes[0], (rows["relative_l2"], heads)):
            values = numpy.sort(values)
            share = numpy.arange(1, len(values) + 1) / len(values)
            (handles[name],) = axis.plot(
                values,
                share,
                color=colour,
                marker=marker,
                markevery=max(len(values) // 6, 1),
                drawstyle="steps-post",
                markersize=3.5,
                linewidth=0.9,
            )
            grid = numpy.linspace(0.01, 1, 100)
            tables.append(
                pandas.DataFrame(
                    {
                        "label": point["label"],
                        "memory": point[MEMORY],
                        "over": "rows" if axis is axes[0][0] else "heads",
                        "share": grid,
                        "error": numpy.quantile(values, grid),
                        "count": len(values),
                    }
                )
            )
    for axis, words in zip(axes[0], ("rows and query heads", "query heads (mean over rows)")):
        axis.set_xscale("log")
        style.plain_log(axis.xaxis, (1.0,))
        axis.set_title(f"over {words}")
        axis.set_xlabel(r"relative error $\Vert z-a\Vert\,/\,\Vert a\Vert$")
        axis.set_ylim(0, 1)
    table = pandas.concat(tables)
    axes[0][0].set_xlim(
        left=table[(table["over"] == "rows") & (table["share"] >= 0.02)]["error"].min()
    )
    axes[0][0].set_ylabel("part with at most this error")
    style.legend_right(axes[0][-1], handles)
    return Figure(
        "ecdf",
        figure,
        table,
        f"relative_l2 of single rows, all seeds pooled; of every method the setting "
        f"nearest to memory {inputs.memory:g} (own memory in brackets). {facts(results)}"
        f"{left_out(results, points, inputs.memory)}",
    )
