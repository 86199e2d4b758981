"""Do keys cluster because of RoPE: covering radius and number of clusters before and after it."""

from argparse import ArgumentParser, Namespace

import numpy
import pandas

from kvplot import style
from kvplot.dump import Array, Dump
from kvplot.figure import Figure
from kvplot.figures.clusterability import FIT_FROM, band
from kvplot.figures.tsne import farthest_first
from kvplot.results import ResultsError

NEEDS = ("dump",)
CENTERS = 64
KINDS = (("after rotation", style.KEYS, "-"), ("before rotation", style.REFERENCE, "--"))


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--quantile",
        type=float,
        default=0.05,
        help="delta as a quantile of key distances; default 0.05",
    )


def unrotated(keys: Array, inv_freq: Array, layout: str, scaling: float) -> Array:
    """Keys [n, d] before the rotation of the first 2 len(inv_freq) columns to positions 0, 1, .."""
    half = len(inv_freq)
    angle = numpy.arange(len(keys))[:, None] * inv_freq
    cos, sin = numpy.cos(angle), numpy.sin(angle)
    pairs = (
        (slice(0, half), slice(half, 2 * half))
        if layout == "half"
        else (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    )
    first, second = (keys[:, columns] for columns in pairs)
    out = keys.copy()
    out[:, pairs[0]] = (first * cos + second * sin) / scaling
    out[:, pairs[1]] = (second * cos - first * sin) / scaling
    return out


def distances(points: Array) -> Array:
    """Euclidean distances [n, n]."""
    squares = (points**2).sum(axis=1)
    square = squares[:, None] + squares - 2 * points @ points.T
    return numpy.sqrt(numpy.maximum(square, 0.0))


def clusters(apart: Array, delta: float) -> list[int]:
    """SubGen's number of clusters after every token: one that is farther than delta from the first
    token of every cluster begins a new one."""
    first: list[int] = []
    counts = []
    for token, row in enumerate(apart):
        if not first or row[first].min() > delta:
            first.append(token)
        counts.append(len(first))
    return counts


def _of_head(keys: Array, quantile: float) -> pandas.DataFrame:
    rms = numpy.sqrt((keys**2).sum(axis=1).mean())
    apart = distances(keys)
    delta = float(numpy.quantile(apart[numpy.triu_indices(len(keys), 1)], quantile))
    centers = farthest_first(keys, CENTERS)
    rows = [
        {
            "curve": "covering radius / rms norm",
            "x": k,
            "y": apart[centers[:k]].min(axis=0).max() / rms,
        }
        for k in (2**power for power in range(CENTERS.bit_length()))
        if k <= len(centers)
    ]
    counts = clusters(apart, delta)
    sizes = 2 ** numpy.arange(int(numpy.log2(len(keys))) + 1)
    rows += [{"curve": "growth", "x": n, "y": counts[n - 1]} for n in sizes]
    return pandas.DataFrame(rows)


def draw(inputs: Namespace) -> Figure:
    dump: Dump = inputs.dump
    if not 0 < inputs.quantile < 1:
        raise ResultsError(f"--quantile {inputs.quantile:g}: expected above 0 and below 1")
    tables = []
    layers = [layer for layer, of in dump.keys_of.items() if layer == of]
    for layer in layers:
        rope = dump.rope(layer)
        for head in range(dump.kv_heads(layer)):
            keys = dump.head(layer, "k", head)
            for (kind, _, _), points in zip(KINDS, (keys, unrotated(keys, *rope))):
                tables.append(
                    _of_head(points, inputs.quantile).assign(layer=layer, kv_head=head, of=kind)
                )
    table = pandas.concat(tables, ignore_index=True)
    figure, axes = style.panels(2, len(layers), 3.8, sharey="row")
    handles = {}
    for row, curve in zip(axes, ("covering radius / rms norm", "growth")):
        for axis, layer in zip(row, layers):
            axis.set_xscale("log", base=2)
            for kind, colour, dashes in KINDS:
                here = table[
                    (table["curve"] == curve) & (table["of"] == kind) & (table["layer"] == layer)
                ]
                handles[kind] = band(axis, here.groupby("x")["y"], colour, dashes)
            if curve == "growth":
                axis.set_yscale("log", base=2)
                axis.plot([1, dump.tokens], [1, dump.tokens], "k:", linewidth=0.7)
                style.plain_log(axis.yaxis)
                axis.set_xlabel("tokens n")
            else:
                axis.set_ylim(bottom=0)
                axis.set_title(f"layer {layer}")
                axis.set_xlabel("centres k")
            style.plain_log(axis.xaxis)
    style.outer_labels(axes, y=("covering radius / rms norm", "clusters $m'$"))
    style.legend_above(axes[0][0], handles)
    return Figure(
        "rotation",
        figure,
        table,
        f"Keys of {dump.model} on {dump.sequence} as stored and with RoPE undone. First: covering "
        "radius of greedy k-center; second: clusters of SubGen's rule among the first n tokens, "
        f"delta the {inputs.quantile:g} quantile of the distances of the same keys; dotted: every "
        "token its own. Line: median over KV heads, band: all of them. "
        f"{_exponents(table)}{dump.tokens} tokens, no random numbers.",
    )


def _exponents(table: pandas.DataFrame) -> str:
    growth = table[(table["curve"] == "growth") & (table["x"] >= FIT_FROM)]
    if growth["x"].nunique() < 2:
        return ""
    said = []
    for kind, own in growth.groupby("of", sort=False):
        fitted = [
            numpy.polyfit(numpy.log(head["x"]), numpy.log(head["y"]), 1)[0]
            for _, head in own.groupby(["layer", "kv_head"])
        ]
        said.append(f"{kind} {min(fitted):.2f} to {max(fitted):.2f}")
    return f"Exponents of the growth from n = {FIT_FROM} on: {', '.join(said)}. "
