"""Do keys cluster better than values: covering radius, clusters m'(delta), their growth with n."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

import numpy
import pandas

from kvplot import style
from kvplot.figure import Figure
from kvplot.inspection import HEAD
from kvplot.results import Entry

NEEDS = ("inspection",)
KINDS = (("keys", style.KEYS, "-"), ("values", style.VALUES, "--"))
# The exponent is fitted to m'(n) ~ n^exponent from this many tokens on.
FIT_FROM = 128


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--growth-quantile",
        type=float,
        default=0.05,
        help="delta of the right panel, as a quantile of distances; default 0.05",
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
    return (
        growth.groupby([*HEAD, "of", "delta_quantile"])
        .apply(lambda g: numpy.polyfit(numpy.log(g["x"]), numpy.log(g["y"]), 1)[0])
        .rename("exponent")
        .reset_index()
    )


def draw(inputs: Namespace) -> Figure:
    table = inputs.inspection.table(_rows)
    fitted = exponents(table)
    figure, axes = style.panels(1, 3, 2.7)
    shown = (table["curve"] != "growth") | (table["delta_quantile"] == inputs.growth_quantile)
    layers = sorted(table["layer"].unique())
    for axis, curve in zip(axes[0], ("covering radius / rms norm", "clusters / tokens", "growth")):
        part = table[shown & (table["curve"] == curve)]
        for kind, _, dashes in KINDS:
            for layer, colour in zip(layers, style.ordered(len(layers))):
                here = part[(part["of"] == kind) & (part["layer"] == layer)]
                for _, one in here.groupby(HEAD):
                    axis.plot(one["x"], one["y"], color=colour, linestyle=dashes, linewidth=0.8)
    for axis in (axes[0][0], axes[0][2]):
        axis.set_xscale("log", base=2)
    axes[0][0].set_ylim(bottom=0)
    axes[0][2].set_yscale("log", base=2)
    largest = table[table["curve"] == "growth"]["x"].max()
    axes[0][2].plot([1, largest], [1, largest], color="black", linewidth=0.6, linestyle=":")
    for axis, x, y in zip(
        axes[0],
        ("centres k", r"$\delta$ / rms norm", "tokens n"),
        (
            "covering radius / rms norm",
            r"clusters $m'$ / n",
            rf"$m'$ at quantile {inputs.growth_quantile:g}",
        ),
    ):
        axis.set_xlabel(x)
        axis.set_ylabel(y)
    lines = [pyplot_line("black", dashes) for _, _, dashes in KINDS]
    lines += [pyplot_line(colour, "-") for colour in style.ordered(len(layers))]
    names = [kind for kind, _, _ in KINDS] + [f"layer {layer}" for layer in layers]
    style.legend_right(axes[0][2], dict(zip(names, lines)))
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
        "Left: covering radius of greedy k-center. Middle: clusters of SubGen's rule, "
        "delta from quantiles of pairwise distances. Right: their growth; dotted: every "
        f"token its own. Exponents of m'(n) fitted from n = {FIT_FROM} on: {spans}. One "
        f"line per KV head. {inputs.inspection.facts()}",
    )


def pyplot_line(colour: style.Colour, dashes: str) -> style.pyplot.Line2D:
    return style.pyplot.Line2D([], [], color=colour, linestyle=dashes)
