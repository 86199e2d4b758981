"""Eviction against quantisation at equal bytes: error against memory, one colour per storage.

Every setting is a faint point with its method's marker. A line joins, of one storage, the least
error for at most that memory, whatever the method; the grey line is the least error of all.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from kvplot import style
from kvplot.curves import NAMES, WORDS, frontier, words
from kvplot.figure import Figure, facts
from kvplot.figures.error_vs_memory import ROUNDING
from kvplot.results import FLOAT, Results, ResultsError, mean_over_units

NEEDS = ("results",)
MEMORY = "memory.fraction"
DASHES = ("-", "--", "-.", ":")


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--metric", default="errors.relative_l2.mean", help="path of the error")
    parser.add_argument(
        "--panels",
        choices=["layer"],
        help="one panel per layer instead of the mean over all units; files storage_map_by_layer",
    )


def fits(results: Results) -> bool:
    """Where what is kept was written by more than one codec, over some range of memory."""
    cells = results.ok
    return cells["storage"].nunique() > 2 and cells[MEMORY].nunique() > 2


def draw(inputs: Namespace) -> Figure:
    results: Results = inputs.results
    metric = inputs.metric
    results.need(metric)
    by = [inputs.panels] if inputs.panels else []
    points = mean_over_units(results.frame, [metric, MEMORY], by)
    by_label = results.ok.drop_duplicates("label").set_index("label")["storage"]
    points["storage"] = points["label"].map(by_label)
    drawn = points[points[metric] >= ROUNDING]
    if drawn["storage"].nunique() < 2:
        raise ResultsError(f"{results.path}: no two storages have an error above {ROUNDING:g}")
    panels = sorted(drawn[by[0]].unique()) if by else [None]
    figure, axes = style.panels(1, len(panels), 3.5, sharey=True)
    storages = sorted(drawn["storage"].unique(), key=lambda name: (name != FLOAT, name))
    colours = dict(zip(storages, style.ordered(len(storages)), strict=True))
    handles: dict[str, Any] = {}
    for axis, panel in zip(axes[0], panels, strict=True):
        shown = drawn if panel is None else drawn[drawn[by[0]] == panel]
        _draw_panel(axis, shown, metric, colours, handles)
        if panel is not None:
            axis.set_title(f"layer {panel}")
    for algorithm in sorted(drawn["algorithm"].unique()):
        _, marker = style.look(str(algorithm), drawn["algorithm"].unique())
        handles[str(algorithm)] = Line2D([], [], linestyle="none", marker=marker, color="0.5")
    style.outer_labels(axes, NAMES[MEMORY], NAMES.get(metric, metric))
    style.legend_right(axes[0][-1], handles)
    text = (
        f"{words(metric)}, against {WORDS[MEMORY]}, which counts the bytes of the encoding. Faint: "
        "every setting, with its method's marker. Lines: of one storage the least error for at "
        "most that memory, whatever the method; grey: of all. " + facts(results, results.ok, by)
    )
    return Figure(
        "storage_map" + "".join(f"_by_{column}" for column in by),
        figure,
        points.sort_values([*by, "storage", "label", MEMORY]),
        text,
    )


def _draw_panel(
    axis: Axes,
    points: pandas.DataFrame,
    metric: str,
    colours: dict[str, Any],
    handles: dict[str, Any],
) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    methods = points["algorithm"].unique()
    best = frontier(points.sort_values([MEMORY, metric]), metric, MEMORY)
    axis.plot(best[MEMORY], best[metric], color="0.75", linewidth=4.0, zorder=0)
    for i, (storage, colour) in enumerate(colours.items()):
        series = points[points["storage"] == storage].sort_values([MEMORY, metric])
        for algorithm, part in series.groupby("algorithm"):
            _, marker = style.look(str(algorithm), methods)
            axis.plot(
                part[MEMORY],
                part[metric],
                linestyle="none",
                marker=marker,
                color=colour,
                alpha=0.35,
                markeredgewidth=0,
            )
        least = frontier(series, metric, MEMORY)
        (handles[storage],) = axis.plot(
            least[MEMORY], least[metric], color=colour, linestyle=DASHES[i % len(DASHES)]
        )
    axis.axvline(1.0, color="black", linewidth=0.7, linestyle=":", zorder=0)
    style.plain_log(axis.xaxis)
    style.plain_log(axis.yaxis)
