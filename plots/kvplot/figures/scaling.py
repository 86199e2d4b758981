"""Error over the number of tokens, and over that of uniform sampling at the same T: slopes.

From a sweep with an axis of select.tokens. Settings are paired by unit, number of tokens and T.
The error of the normalizer after one halving is the discrepancy of the two halves.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

import numpy
import pandas
from matplotlib.axes import Axes

from kvplot import style
from kvplot.curves import NAMES, interval_line, words
from kvplot.figure import Figure, facts
from kvplot.results import (
    HEADLINE,
    POINT,
    ROUNDING,
    UNIT,
    Results,
    ResultsError,
    undrawn,
    with_params,
)
from kvplot.statistics import geometric_means, mean_interval, over

NEEDS = ("results",)
METRIC, RATIO, REFERENCE = HEADLINE, "ratio", "uniform"
SETTING = ["algorithm", "label", "params.T"]
ENDS = ("", "_low", "_high")
ERROR = "value"  # column of the metric in tables of units


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--metric", default=METRIC, metavar="PATH", help=f"of the error; default {METRIC}"
    )


def fits(results: Results) -> bool:
    return results.tokens_vary and "params.T" in results.ok and not ratios(results).empty


def ratios(results: Results, metric: str = METRIC) -> pandas.DataFrame:
    """One row per unit, setting and number of tokens: error, and ratio to that of REFERENCE."""
    cells = results.ok[list(dict.fromkeys([*POINT, *UNIT, "params.T", metric]))].copy()
    cells[ERROR] = pandas.to_numeric(cells[metric])
    cells = cells[pandas.to_numeric(cells["params.T"], errors="coerce") > 0]
    units = with_params(cells.groupby([*POINT, *UNIT])[ERROR].mean().reset_index())
    if units.empty:
        return units
    units = units[units[ERROR] > ROUNDING].sort_values(["params.T", "params.tokens"], kind="stable")
    at = [*UNIT, "params.tokens", "params.T"]
    base = units[units["label"] == REFERENCE][[*at, ERROR]]
    units = units.merge(base.rename(columns={ERROR: "reference"}), on=at)
    units[RATIO] = units[ERROR] / units["reference"]
    return units


def slopes(units: pandas.DataFrame) -> pandas.DataFrame:
    """Exponents x of error ~ n^x and ratio ~ n^x: fitted unit by unit, then their means with
    intervals, per setting over all layers (layer "all") and per layer."""
    fitted = []
    every = units["params.tokens"].nunique()
    for key, own in units.groupby([*SETTING, *UNIT], sort=False):
        if len(own) < every:
            continue
        n = numpy.log(own["params.tokens"].astype(float))
        row = dict(zip([*SETTING, *UNIT], key))
        row["error"] = numpy.polyfit(n, numpy.log(own[ERROR]), 1)[0]
        row[RATIO] = numpy.polyfit(n, numpy.log(own[RATIO]), 1)[0]
        fitted.append(row)
    table = pandas.DataFrame(fitted, columns=[*SETTING, *UNIT, "error", RATIO])
    rows = []
    for layer, here in [("all", table), *table.groupby("layer")]:
        for key, own in here.groupby(SETTING, sort=False):
            for of in ("error", RATIO):
                interval = mean_interval(own, of, signed=True)
                rows.append(
                    {
                        "panel": "slope",
                        **dict(zip(SETTING, key)),
                        "layer": layer,
                        "of": of,
                        "slope": own[of].mean(),
                        "slope_low": interval.low,
                        "slope_high": interval.high,
                        "over": interval.level,
                        "groups": interval.groups,
                        "units": len(own),
                    }
                )
    return pandas.DataFrame(rows)


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    metric = inputs.metric
    results.need(metric, "params.T")
    if not results.tokens_vary:
        raise ResultsError(f"{results.path}: select.tokens of the sweep is not an axis")
    units = ratios(results, metric)
    if units.empty:
        raise ResultsError(f"{results.path}: no finished cell labelled {REFERENCE} to pair with")
    by = [*SETTING, "params.tokens"]
    table = geometric_means(units, ERROR, by, "error").merge(
        geometric_means(units, RATIO, by, RATIO)[[*by, *(f"{RATIO}{end}" for end in ENDS)]], on=by
    )
    levels = sorted(table["params.T"].unique())
    tokens = sorted(table["params.tokens"].unique())
    if len(levels) > 1:
        figure, axes = style.panels(2, len(levels), 4.2, sharex=True, sharey="row")
    else:
        figure, axes = style.panels(1, 2, 2.5)
        axes = axes.T
    looks, colours = style.variants(table), style.label_colours(table)
    handles: dict[str, Any] = {}
    for place, level in enumerate(levels):
        top, bottom = axes[:, place]
        top.set_title(f"T {level:g}")
        for label, own in table[table["params.T"] == level].groupby("label", sort=False):
            shift = 1.0 + 0.05 * (list(looks).index(str(label)) - (len(looks) - 1) / 2)
            _lines(
                top,
                bottom,
                own.assign(**{"params.tokens": own["params.tokens"] * shift}),
                looks[str(label)],
                colours[str(label)],
                handles,
            )
        guide = [(n / tokens[0]) ** -0.5 for n in tokens]
        handles["slope -1/2"] = bottom.plot(tokens, guide, "k:", linewidth=0.8)[0]
        bottom.axhline(1.0, color=colours[REFERENCE], linewidth=0.9)
        for axis in (top, bottom):
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_xticks(tokens, [f"{n:g}" for n in tokens])
            axis.minorticks_off()
            style.plain_log(axis.yaxis)
    style.outer_labels(axes, "tokens n", [NAMES.get(metric, metric), "error / error of uniform"])
    style.legend_above(axes[0][0], handles)
    fitted = slopes(units)
    if fitted.empty:
        raise ResultsError(f"{results.path}: no unit has finished cells of every number of tokens")
    return Figure(
        "scaling",
        figure,
        pandas.concat([table.assign(panel="means"), fitted], ignore_index=True),
        f"{words(metric)}, against the number of tokens (first), and divided by that of uniform "
        "sampling at the same T, paired by unit (second): geometric means over units, with 95 % "
        f"intervals, {over(table)}. A level ratio means the rate of uniform sampling, the dotted "
        f"slope a faster one. {_said(fitted)} "
        f"{facts(results)}{undrawn(results.ok, units, f'no {REFERENCE} with this T')}",
    )


def _lines(
    top: Axes,
    bottom: Axes,
    own: pandas.DataFrame,
    look: tuple[style.Dashes, bool],
    colour: style.Colour,
    handles: dict[str, Any],
) -> None:
    """Error and ratio of one label."""
    label = own["label"].iloc[0]
    _, marker = style.look(own["algorithm"].iloc[0])
    dashes, filled = look
    for axis, y in ((top, "error"), (bottom, RATIO)):
        if y == "error" or label != REFERENCE:
            drawn = interval_line(
                axis,
                own,
                "params.tokens",
                y,
                colour,
                marker,
                linestyle=dashes,
                markerfacecolor=colour if filled else "white",
                edge="white" if filled else colour,
            )
            handles.setdefault(label, drawn)


def _said(fitted: pandas.DataFrame) -> str:
    """The slopes of the ratios over all layers."""
    found = []
    here = fitted[(fitted["layer"] == "all") & (fitted["of"] == RATIO)]
    for label, own in here[here["label"] != REFERENCE].groupby("label", sort=False):
        numbers = own[["slope", "slope_low", "slope_high"]].to_numpy(dtype=float)
        each = [
            f"{slope:.2f}" + ("" if numpy.isnan(low) else f" [{low:.2f}, {high:.2f}]")
            for slope, low, high in numbers
        ]
        found.append(f"{label} {', '.join(each)}")
    return f"Fitted slopes of the ratio, T by T: {'; '.join(found)}." if found else ""
