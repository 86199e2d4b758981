"""Error against the fraction of the exact cache's memory, both logarithmic, one line per algorithm.

A line joins the points of an algorithm with one swept parameter; if several are swept every
setting is a faint point and the line is the frontier: the least error for at most that memory.
Bars are the standard error of the mean over seeds; of several texts they are 95 % intervals of the
mean, Student's t over texts. In a sweep over storages, a method has its colour
and marker, and the storage fills the marker and has the line's dashes.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from kvplot import storages, style
from kvplot.curves import (
    NAMES,
    WORDS,
    bars,
    bars_of,
    frontier,
    interval_bars,
    interval_words,
    words,
)
from kvplot.figure import Figure, always_kept, facts
from kvplot.figures.settings import names
from kvplot.results import HEADLINE, Results, ResultsError, mean_over_units, with_params
from kvplot.statistics import summarised

NEEDS = ("results",)
# An error below this is exact to rounding and has no place on a logarithmic axis.
ROUNDING = 1e-9
COSTS = {"memory.fraction": "memory", "traffic.fraction": "traffic"}


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--metric", default=HEADLINE, metavar="PATH", help=f"of the error; default {HEADLINE}"
    )
    parser.add_argument(
        "--panels",
        choices=["layer"],
        help="one panel per layer instead of the mean over all units; "
        "files error_vs_memory_by_layer",
    )


def fits(results: Results, cost: str = "memory.fraction") -> bool:
    points = mean_over_units(results.ok, [cost, HEADLINE])
    drawn = points[points[HEADLINE] >= ROUNDING]
    return drawn[cost].nunique() > 1


def draw(inputs: Namespace) -> Figure:
    return draw_against(inputs, "error_vs_memory", "memory.fraction")


def draw_against(inputs: Namespace, name: str, cost: str) -> Figure:
    """Figure `name`: the error against a part of what exact attention takes, memory or traffic."""
    results = inputs.results
    frame = results.frame
    metric = inputs.metric
    results.need(metric)
    results.need(cost)
    by = [inputs.panels] if inputs.panels else []
    if results.texts > 1:
        points = summarised(frame, metric, [cost], by)
    else:
        points = mean_over_units(frame, [metric, cost], by)
        points[[f"{metric}_low", f"{metric}_high"]] = float("nan")  # no interval over one text
    points["setting"] = names(points)
    points["on_axis"] = points[metric] >= ROUNDING
    drawn = points[points["on_axis"]]
    if drawn.empty:
        raise ResultsError(f"{results.path}: every error is below {ROUNDING:g}")

    looks, handles = _looks(results, drawn, cost)
    panels = sorted(drawn[by[0]].unique()) if by else [None]
    figure, axes = style.panels(1, len(panels), 3.5, sharey=True)
    for axis, panel in zip(axes[0], panels):
        shown = drawn if panel is None else drawn[drawn[by[0]] == panel]
        _draw_panel(axis, shown, metric, cost, looks)
        if panel is not None:
            axis.set_title(f"layer {panel}")
    style.outer_labels(axes, NAMES[cost], NAMES.get(metric, metric))
    style.legend_right(axes[0][-1], handles)
    return Figure(
        name + "".join(f"_by_{column}" for column in by),
        figure,
        points.sort_values([*by, "label", cost]),
        _caption(results, points, metric, cost, by),
    )


def _looks(
    results: Results, drawn: pandas.DataFrame, cost: str
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """How every label's lines are drawn, and the legend of the figure."""
    labels = storages.of_labels(results.ok)
    methods = storages.methods(labels, drawn)
    several = len({labels[label][1] for label in drawn["label"]}) > 1
    kinds = storages.Drawn(drawn["label"].map(lambda label: labels[label][1])) if several else None
    lines, colours = style.variants(drawn), style.label_colours(drawn)
    looks: dict[str, dict[str, Any]] = {}
    named: dict[str, Any] = {}
    for label, algorithm in sorted(set(zip(drawn["label"], drawn["algorithm"]))):
        if kinds is None:
            colour = colours[label]
            marker = style.look(algorithm, drawn["algorithm"].unique())[1]
            dashes, filled = lines[label]
            looks[label] = {
                "color": colour,
                "marker": marker,
                "markerfacecolor": colour if filled else "white",
                "markeredgecolor": "white" if filled else colour,
                "markeredgewidth": 0.4,
            }
        else:
            base, storage = labels[label]
            colour, marker = style.look(methods[label], set(methods.values()))
            dashes = kinds.dashes[storage]
            looks[label] = storages.mark(colour, marker)
            looks[label]["markerfacecolor"] = kinds.colours[storage]
            named[base] = storages.method_handle(colour, marker)
        # At fraction 1 every token is kept or read: a line would suggest a choice.
        joined = (drawn.loc[drawn["label"] == label, cost] < 1.0).any()
        looks[label]["linestyle"] = dashes if joined else "none"
        if kinds is None:
            named[label] = Line2D([], [], **looks[label])
    return looks, named | (kinds.handles() if kinds else {})


def _draw_panel(
    axis: Axes, points: pandas.DataFrame, metric: str, cost: str, looks: dict[str, dict[str, Any]]
) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    for label, series in points.groupby("label"):
        look = looks[str(label)]
        series = series.sort_values([cost, metric])
        several = _swept(series) > 1
        line = frontier(series, metric, cost) if several else series
        if several:
            axis.plot(
                series[cost],
                series[metric],
                **look | {"linestyle": "none", "markeredgewidth": 0},
                alpha=0.25,
            )
        texts = bool(line[f"{metric}_high"].notna().any())
        ends = interval_bars(line, metric) if texts else bars_of(line, metric, log=True)
        axis.errorbar(line[cost], line[metric], yerr=ends, elinewidth=0.7, capsize=1.5, **look)
    axis.axvline(1.0, color="black", linewidth=0.7, linestyle=":", zorder=0)
    style.plain_log(axis.xaxis)
    style.plain_log(axis.yaxis)


def _swept(series: pandas.DataFrame) -> int:
    """How many parameters differ between the points of a series."""
    settings = with_params(series).filter(like="params.").astype(str)
    return int((settings.nunique() > 1).sum())


def _caption(
    results: Results, points: pandas.DataFrame, metric: str, cost: str, by: list[str]
) -> str:
    drawn = points[points["on_axis"]]
    labels = storages.of_labels(results.ok)
    ends = interval_words(drawn) if "groups" in drawn else bars(drawn, metric)
    stored = len({labels[label][1] for label in drawn["label"]}) > 1
    text = [
        f"{words(metric)}, against {WORDS[cost]}; {ends}.",
        *(["Markers and their edges: methods; filling and dashes: storages."] if stored else []),
        facts(results, results.ok, by),
    ]
    kept = "" if stored else always_kept(results.ok).strip()
    if kept:
        text.append(kept)
    panels = drawn.groupby([*by, "label"] if by else "label")
    frontiers = sorted({str(series["label"].iloc[0]) for _, series in panels if _swept(series) > 1})
    if frontiers:
        text.append(
            f"{', '.join(frontiers)}: all settings faint, the line is the least error for at most "
            f"that {COSTS[cost]}."
        )
    exact = points[~points["on_axis"]].groupby("label")[metric].max()
    if len(exact):
        held = ", ".join(f"{label} ({error:.0e})" for label, error in exact.items())
        text.append(f"Exact to rounding and so below the axis: {held}.")
    least = drawn.groupby("label")[cost].min()
    whole = [str(label) for label in least[least >= 1.0].index]
    if whole:
        text.append(f"At {COSTS[cost]} 1 or more, where nothing is saved: {', '.join(whole)}.")
    return " ".join(text)
