"""Which tokens each method keeps at which decode row: a raster per cache file of one KV head."""

from argparse import ArgumentParser, Namespace
from typing import Any

import numpy
import pandas
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from numpy.typing import NDArray

from kvplot import style
from kvplot.cache import Caches, Place, Rows
from kvplot.figure import Figure
from kvplot.results import ResultsError

NEEDS = ("caches",)
MAX_BANDS = 12
MAX_LINES = 256  # decode rows of a band: more than its height has pixels
Array = NDArray[numpy.float64]

UNSEEN = (0.93, 0.93, 0.93)
GREY = "#7F7F7F"
# Base-2 logarithms of the weights per token at both ends of the shades.
MIN_EXPONENT, MAX_EXPONENT = -2.0, 4.0


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--sequence", metavar="S", help="default: the first that all files have")
    parser.add_argument(
        "--layer", type=int, metavar="L", help="default: the first that all files have"
    )
    parser.add_argument(
        "--head",
        "--kv-head",
        type=int,
        dest="kv_head",
        metavar="H",
        help="KV head; default: the first that all files have",
    )


def chosen(inputs: Namespace) -> Place:
    """The head of --sequence, --layer and --head; whether the files have it is not checked."""
    sequence = inputs.caches.sequence(inputs.sequence)
    for place in inputs.caches.common(sequence):
        if inputs.layer in (None, place.layer) and inputs.kv_head in (None, place.kv_head):
            return place
    return Place(sequence, inputs.layer or 0, inputs.kv_head or 0)


def decode_rows(prompt: int, tokens: int, count: int) -> NDArray[numpy.int64]:
    """At most `count` decode rows at equal distances, the first and the last among them."""
    return numpy.unique(numpy.linspace(prompt, tokens - 1, count).round().astype(numpy.int64))


def raster(rows: Rows, at: NDArray[numpy.int64], tokens: int, width: int) -> Array:
    """Weight per token [decode rows `at`, bins of `width` positions]; 0 where no token is kept.

    The larger of the sums of |w_num| and of w_den, and of rows that one query head reads, the
    largest over query heads. Rows of no token have no position.
    """
    bins = -(-tokens // width)
    shape = (len(at) + 1, bins)
    rows = rows.chosen(rows.token >= 0)
    first, last = numpy.searchsorted(at, rows.begin), numpy.searchsorted(at, rows.end)
    place = rows.token // width

    def summed(of: NDArray[numpy.bool_], values: NDArray[Any]) -> NDArray[Any]:
        steps = numpy.zeros(shape, dtype=values.dtype)
        numpy.add.at(steps, (first[of], place[of]), values[of])
        numpy.subtract.at(steps, (last[of], place[of]), values[of])
        return numpy.asarray(steps.cumsum(axis=0)[:-1])

    def weights(of: NDArray[numpy.bool_]) -> Array:
        kept = summed(of, numpy.ones(len(rows.token), dtype=numpy.int64)) > 0
        sums = [summed(of, w) for w in (numpy.abs(rows.numerator), rows.denominator)]
        # Differences of sums leave a rest where nothing is kept any more.
        return numpy.where(kept, numpy.maximum(*sums).clip(1e-300), 0.0)

    common = weights(rows.query_head < 0)
    single = [
        weights(rows.query_head == head) for head in set(rows.query_head[rows.query_head >= 0])
    ]
    total = common + numpy.max(single, axis=0) if single else common
    sizes = numpy.minimum(width, tokens - width * numpy.arange(bins))
    return numpy.asarray(total / sizes)


def shade(weight: Array, colour: style.Colour) -> Array:
    """RGB of a method's colour: pale for a light weight, dark for a heavy one, white for none."""
    with numpy.errstate(divide="ignore"):
        part = ((numpy.log2(weight) - MIN_EXPONENT) / (MAX_EXPONENT - MIN_EXPONENT)).clip(0, 1)[
            ..., None
        ]
    pure = numpy.array(to_rgb(colour))
    pale, dark = 1 - 0.4 * (1 - pure), 0.3 * pure
    shown = numpy.where(
        part < 0.5, pale + (pure - pale) * 2 * part, pure + (dark - pure) * (2 * part - 1)
    )
    return numpy.where((weight > 0)[..., None], shown, 1.0)


def _steady(rows: Rows, prompt: int, tokens: int) -> bool:
    """Whether the rows of the prompt are kept from its end to the sequence's, and every decode
    token from its own row on."""
    begin = numpy.where(rows.token < prompt, prompt, rows.token)
    return bool((rows.begin == begin).all() and (rows.end == tokens).all())


def _count(rows: Rows, row: int) -> int:
    """Distinct tokens that are kept at a decode row."""
    there = (rows.begin <= row) & (row < rows.end) & (rows.token >= 0)
    return len(numpy.unique(rows.token[there]))


def _band(axis: Axes, rows: Rows, colour: style.Colour, prompt: int, tokens: int) -> bool:
    """Draws a band; returns whether it is one line, since the kept tokens of the prompt stay."""
    width = -(-tokens // (512 if style.narrow() else 1024))
    steady = _steady(rows, prompt, tokens)
    at = numpy.array([tokens - 1]) if steady else decode_rows(prompt, tokens, MAX_LINES)
    picture = shade(raster(rows, at, tokens, width), colour)
    starts = width * numpy.arange(picture.shape[1])
    picture[(picture == 1.0).all(axis=2) & (starts > at[:, None])] = UNSEEN
    right = width * picture.shape[1] - 0.5
    axis.imshow(
        picture,
        extent=(-0.5, right, tokens - 0.5, prompt - 0.5),
        aspect="auto",
        interpolation="nearest",
        rasterized=True,
    )
    axis.axvline(prompt - 0.5, color="black", linewidth=0.8, linestyle=(0, (2, 1.5)))
    axis.set_xlim(-0.5, tokens - 0.5)
    axis.grid(False)
    axis.set_yticks([] if steady else [prompt, tokens - 1])
    axis.tick_params(axis="y", labelsize=6, length=2, pad=1.5)
    return steady


def _table(label: str, method: str, place: Place, rows: Rows) -> pandas.DataFrame:
    return pandas.DataFrame(
        {
            "label": label,
            "algorithm": method,
            "layer": place.layer,
            "kv_head": place.kv_head,
            "token": rows.token,
            "begin": rows.begin,
            "end": rows.end,
            "weight_numerator": rows.numerator,
            "weight_denominator": rows.denominator,
            "query_head": rows.query_head,
        }
    )


def draw(inputs: Namespace) -> Figure:
    caches: Caches = inputs.caches
    if len(caches.files) > MAX_BANDS:
        raise ResultsError(
            f"{len(caches.files)} cache files are unreadable below one another: name at most "
            f"{MAX_BANDS}"
        )
    place = chosen(inputs)
    heads, tokens = caches.heads(place)
    prompt = heads[0].prompt
    kept = [head.rows(tokens) for head in heads]
    thick = [0.16 if _steady(rows, prompt, tokens) else 0.44 for rows in kept]
    figure, axes = style.panels(
        len(kept), 1, sum(thick) + 0.19 * len(kept) + 0.35, sharex=True, height_ratios=thick
    )
    figure.get_layout_engine().set(h_pad=0.015, hspace=0.0)
    tables, steady = [], []
    for axis, rows, label, method in zip(axes[:, 0], kept, caches.labels, caches.methods):
        colour, _ = style.look(method, caches.methods)
        steady.append(_band(axis, rows, colour, prompt, tokens))
        names = {"fontsize": 7, "pad": 2.5}
        first, last = _count(rows, prompt), _count(rows, tokens - 1)
        axis.set_title(style.shortened(label), loc="left", **names)
        axis.set_title(f"{first} to {last} tokens", loc="right", **names)
        tables.append(_table(label, method, place, rows))
    for axis in axes[:-1, 0]:
        axis.tick_params(axis="x", length=0)
    axes[-1][0].set_xlabel("position in the sequence")
    figure.supylabel("decode row", fontsize=style.pyplot.rcParams["axes.labelsize"])
    style.legend_above(axes[0][0], _legend())
    table = pandas.concat(tables)
    return Figure("kept", figure, table, _caption(inputs, place, prompt, tokens, table, steady))


def _legend() -> dict[str, object]:
    weights = {"weight ≤ 1/4": 0.25, "weight 1": 1.0, "4": 4.0, "≥ 16": 16.0}
    return {
        **{
            name: Patch(facecolor=shade(numpy.array(weight), GREY))
            for name, weight in weights.items()
        },
        "not there yet": Patch(facecolor=UNSEEN, edgecolor="0.6", linewidth=0.4),
        "prompt end": style.pyplot.Line2D(
            [], [], color="black", linewidth=0.8, linestyle=(0, (2, 1.5))
        ),
    }


def _caption(
    inputs: Namespace,
    place: Place,
    prompt: int,
    tokens: int,
    table: pandas.DataFrame,
    steady: list[bool],
) -> str:
    width = -(-tokens // (512 if style.narrow() else 1024))
    several = f", mean over {width} positions" if width > 1 else ""
    text = (
        f"Tokens that are kept at each decode row, for KV head {place.kv_head} of layer "
        f"{place.layer} on {place.sequence}: prompt {prompt}, {inputs.caches.length(place)}. "
        "Shade: weight per "
        f"token{several}; 1 is what the exact cache has; white: not kept. Right: distinct tokens "
        "at the first and the last decode row."
    )
    if any(steady):
        text += (
            " Strips without an axis: what is kept of the prompt is the same at every decode row."
        )
    if (table["weight_numerator"] != table["weight_denominator"]).any():
        text += " Where numerator and denominator weigh a token differently, the larger weight."
    if (table["query_head"] >= 0).any():
        text += " Rows of single query heads: the largest weight of the group."
    nowhere = table[table["token"] < 0].groupby("label", sort=False).size()
    for label, count in nowhere.items():
        text += f" Not drawn, of no position: {count} rows of {label}."
    seeds = {file.settings["seed"] for file in inputs.caches.files if "seed" in file.settings}
    return text + (
        f" One head; seed {', '.join(sorted(seeds))} for randomised methods."
        if seeds
        else " One head; no seed is named."
    )
