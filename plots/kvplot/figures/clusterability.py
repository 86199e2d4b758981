"""Do keys cluster better than values: covering radius, clusters m'(delta), their growth with n."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

import numpy
import pandas
from matplotlib.axes import Axes

from kvplot import style
from kvplot.figure import Figure
from kvplot.inspection import HEAD
from kvplot.results import Entry

NEEDS = ("inspection",)
KINDS = (("keys", style.KEYS, "-"), ("values", style.VALUES, "--"))
CURVES = (
    ("covering radius / rms norm", "x"),
    ("clusters / tokens", "delta_quantile"),
    ("growth", "x"),
)
# The exponent is fitted to m'(n) ~ n^exponent from this many tokens on.
FIT_FROM = 128


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--growth-quantile",
        type=float,
        default=0.05,
        help="delta of the lowest panels, as a quantile of distances; default 0.05",
    )


def _rows(layer: Entry, head: Entry) -> Iterator[Entry]:
    for kind, _, _ in KINDS:
        part = head[kind]
        rms = part["norms"]["rms"]
        tokens = head["clustering_tokens"]
        for k, radius in part["covering_radius"]:
            yield {"of": kind, "curve": "covering radius / rms norm", "x": k, "y": radius / rms}
        for at in part["clustering"]:
            quantile = at["delta_quantile"]
            yield {
                "of": kind,
                "curve": "clusters / tokens",
                "delta_quantile": quantile,
                "x": at["delta"] / rms,
                "y": at["clusters"] / tokens,
            }
            for n, clusters in at["growth"]:
                yield {
                    "of": kind,
                    "curve": "growth",
                    "delta_quantile": quantile,
                    "x": n,
                    "y": clusters,
                }


def exponents(table: pandas.DataFrame) -> pandas.DataFrame:
    """Frame with the fitted exponent of m'(n) per head, kind and quantile of delta."""
    growth = table[(table["curve"] == "growth") & (table["x"] >= FIT_FROM) & (table["y"] > 0)]
    of = [*HEAD, "of", "delta_quantile"]
    fitted = [
        (*key, numpy.polyfit(numpy.log(part["x"]), numpy.log(part["y"]), 1)[0])
        for key, part in growth.groupby(of)
        if len(part) > 1  # a short dump has none from FIT_FROM on
    ]
    return pandas.DataFrame(fitted, columns=[*of, "exponent"])


def draw(inputs: Namespace) -> Figure:
    table = inputs.inspection.table(_rows)
    fitted = exponents(table)
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(3, len(layers), 5.0, sharey="row")
    shown = table[
        (table["curve"] != "growth") | (table["delta_quantile"] == inputs.growth_quantile)
    ]
    handles: dict[str, Any] = {}
    for row, (curve, x) in zip(axes, CURVES):
        for axis, layer in zip(row, layers):
            axis.set_xscale("log", base=2 if x == "x" else 10)
            for kind, colour, dashes in KINDS:
                here = shown[
                    (shown["curve"] == curve) & (shown["of"] == kind) & (shown["layer"] == layer)
                ]
                heads = here.groupby(x)["y"]
                handles[kind] = band(axis, heads, colour, dashes)
    growth = shown[shown["curve"] == "growth"]
    for axis in axes[2]:
        axis.set_yscale("log", base=2)
        _slopes(axis, growth)
        axis.set_xlabel("tokens n")
        style.plain_log(axis.yaxis)
    for axis, layer in zip(axes[0], layers):
        axis.set_title(f"layer {layer}")
        axis.set_ylim(bottom=0)
        axis.set_xlabel("centres k")
    for axis in axes[1]:
        axis.set_xlabel(r"quantile for $\delta$")
        axis.set_ylim(0, 1)
    for axis in axes.flat:
        style.plain_log(axis.xaxis)
    for row, text in zip(
        axes, ("covering radius / rms norm", "clusters / tokens", "clusters $m'$")
    ):
        row[0].set_ylabel(text)
    style.legend_above(axes[0][0], handles)
    at = fitted[fitted["delta_quantile"] == inputs.growth_quantile].groupby("of")["exponent"]
    spans = "; ".join(
        f"{kind} {at.min()[kind]:.2f} to {at.max()[kind]:.2f}"
        if kind in at.groups
        else f"{kind}: none"
        for kind, _, _ in KINDS
    )
    return Figure(
        "clusterability",
        figure,
        pandas.concat([table, fitted.assign(curve="fitted exponent")]),
        "Top: covering radius of greedy k-center. Middle: clusters of SubGen's rule, delta at a "
        "quantile of pairwise distances. Bottom: their growth at the "
        f"{inputs.growth_quantile:g} quantile; dotted: slopes 1 and 1/2. Line: median over KV "
        f"heads, band: all of them. Exponents of the growth fitted from n = {FIT_FROM} on: "
        f"{spans}. {inputs.inspection.facts()}",
    )


def band(axis: Axes, heads: Any, colour: style.Colour, dashes: style.Dashes) -> Any:
    """Median and range of groups of values over their keys; returns the line."""
    middle = heads.median()
    axis.fill_between(middle.index, heads.min(), heads.max(), color=colour, alpha=0.25, linewidth=0)
    return axis.plot(middle.index, middle, color=colour, linestyle=dashes, linewidth=1.3)[0]


def _slopes(axis: Axes, growth: pandas.DataFrame) -> None:
    largest = growth["x"].max()
    for slope, words in ((1.0, "1"), (0.5, "1/2")):
        axis.plot([1, largest], [1, largest**slope], color="black", linewidth=0.7, linestyle=":")
        axis.annotate(
            words, (largest, largest**slope), xytext=(2, 0), textcoords="offset points", fontsize=7
        )
