"""How long tokens of the prompt are kept, which ones, and how many KV heads agree about them.

Left: share of the prompt's tokens that are still kept at a decode row. Middle: share that is kept,
by position. Right: share that at least k KV heads keep. The last two at --row.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

import numpy
import pandas
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy import stats

from kvplot import style
from kvplot.cache import Caches, Place
from kvplot.figure import Figure
from kvplot.figures.kept import decode_rows
from kvplot.results import ResultsError
from kvplot.statistics import mean_interval, over

NEEDS = ("caches",)
MAX_LINES = 12
CURVE = 33  # decode rows
PARTS = 24  # parts of the prompt
Mask = NDArray[numpy.bool_]


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--sequence", metavar="S", help="default: the first that all files have")
    parser.add_argument(
        "--layers", type=int, nargs="+", metavar="L", help="default: all that all files have"
    )
    parser.add_argument(
        "--row",
        type=int,
        metavar="N",
        help="decode row of the second and third panel; default: the first",
    )


def places_of(caches: Caches, sequence: str, layers: list[int] | None) -> list[Place]:
    """The units: heads that all files have."""
    common = caches.common(sequence)
    for layer in layers or []:
        if layer not in {place.layer for place in common}:
            there = ", ".join(str(layer) for layer in sorted({place.layer for place in common}))
            raise ResultsError(
                f"{caches.files[0].path}: no layer {layer} that all files have; there is "
                f"{there or 'none'}"
            )
    found = [place for place in common if not layers or place.layer in layers]
    if not found:
        raise ResultsError(
            f"{caches.files[0].path}: no KV head of {sequence} that all files have; choose "
            "files of the same sweep"
        )
    return found


def kept_at(caches: Caches, place: Place, rows: NDArray[numpy.int64]) -> tuple[list[Mask], int]:
    """[decode rows, prompt] of each file: whether a token of the prompt is kept; and n."""
    heads, tokens = caches.heads(place)
    masks = []
    for head in heads:
        of = head.rows(tokens)
        of = of.chosen((of.token >= 0) & (of.token < head.prompt))
        mask = numpy.zeros((len(rows), head.prompt), dtype=bool)
        for line, row in zip(mask, rows):
            line[of.token[(of.begin <= row) & (row < of.end)]] = True
        masks.append(mask)
    return masks, tokens


def shares(caches: Caches, places: list[Place], row: int | None) -> tuple[pandas.DataFrame, int]:
    """A number per panel, label, x and unit (`agreement`: for all units together); the row."""
    heads, tokens = caches.heads(places[0])
    prompt = heads[0].prompt
    if prompt == 0:
        raise ResultsError(
            f"{caches.files[0].path}: {places[0]}: has no prompt, prompt_tokens is 0"
        )
    row = prompt if row is None else row
    if not prompt <= row < tokens:
        raise ResultsError(f"--row {row}: expected a decode row, {prompt} to {tokens - 1}")
    curve = decode_rows(prompt, tokens, CURVE)
    edges = numpy.unique(numpy.linspace(0, prompt, PARTS + 1).round().astype(int))
    agree = numpy.zeros((len(caches.files), prompt), dtype=int)
    records = []
    for place in places:
        masks, own = kept_at(caches, place, numpy.append(curve, row))
        if (caches.files[0].heads[place].prompt, own) != (prompt, tokens):
            raise ResultsError(
                f"{caches.files[0].path}: {place}: has another prompt or n than {places[0]}; "
                "choose --layers that are alike"
            )
        for at, mask in enumerate(masks):
            agree[at] += mask[-1]
            by_part = numpy.add.reduceat(mask[-1], edges[:-1], dtype=int) / numpy.diff(edges)
            records += [("rows", at, *place, x, y) for x, y in zip(curve, mask[:-1].mean(axis=1))]
            records += [
                ("position", at, *place, x, y)
                for x, y in zip((edges[1:] + edges[:-1] - 1) / 2, by_part)
            ]
    table = pandas.DataFrame(
        records, columns=["panel", "file", "sequence", "layer", "kv_head", "x", "share"]
    )
    counts = [
        ("agreement", at, places[0].sequence, numpy.nan, numpy.nan, k, (own >= k).mean())
        for at, own in enumerate(agree)
        for k in range(1, len(places) + 1)
    ]
    return pandas.concat([table, pandas.DataFrame(counts, columns=table.columns)]), row


def means(units: pandas.DataFrame, labels: list[str]) -> pandas.DataFrame:
    """Mean over units with its interval, per panel, file and x."""
    rows = []
    for (panel, at, x), group in units.groupby(["panel", "file", "x"], sort=False):
        file = int(str(at))
        found: dict[str, Any] = {"panel": panel, "file": file, "label": labels[file], "x": x}
        found["share"] = group["share"].mean()
        if panel != "agreement":
            interval = mean_interval(group.assign(dump=""), "share")
            found |= {"low": interval.low, "high": interval.high}
            found |= {"over": interval.level, "groups": interval.groups}
        rows.append(found)
    return pandas.DataFrame(rows)


def independent(table: pandas.DataFrame, units: int) -> NDArray[numpy.float64]:
    """Share of tokens that at least k of the units keep, k = 1, .., if each chose at random as many
    as the methods keep on average."""
    kept = table[table["panel"] == "agreement"].groupby("file")["share"].sum().mean() / units
    return numpy.asarray(stats.binom.sf(numpy.arange(units), units, min(kept, 1.0)))


def draw(inputs: Namespace) -> Figure:
    caches: Caches = inputs.caches
    if len(caches.files) > MAX_LINES:
        raise ResultsError(
            f"{len(caches.files)} lines in one panel are unreadable: name at most {MAX_LINES} "
            "cache files"
        )
    sequence = caches.sequence(inputs.sequence)
    places = places_of(caches, sequence, inputs.layers)
    units, row = shares(caches, places, inputs.row)
    table = means(units, caches.labels)
    table.insert(2, "algorithm", [caches.methods[at] for at in table["file"]])
    figure, axes = style.panels(1, 3, 2.5)
    handles = {}
    lines = style.variants(table)
    for axis, panel in zip(axes[0], ("rows", "position", "agreement")):
        shown = table[table["panel"] == panel]
        for key, series in shown.groupby("label", sort=False):
            label = str(key)
            handles[label] = _line(axis, series, caches.methods, lines[label], panel == "rows")
        top = 1.04 * max(shown["share"].max(), shown["high"].clip(upper=1.0).max(), 0.1)
        axis.set_ylim(-0.025 * top, top)
    chance = independent(table, len(places))
    handles["independent heads"] = axes[0][2].plot(
        range(1, len(places) + 1), chance, color="black", linewidth=0.9, linestyle=":"
    )[0]
    for axis, words in zip(
        axes[0], ("decode row", "position in the prompt", "at least this many KV heads")
    ):
        axis.set_xlabel(words)
    style.outer_labels(axes, y="share of the prompt kept")
    style.legend_above(axes[0][0], handles, style.shortened)
    table = pandas.concat(
        [
            table,
            pandas.DataFrame(
                {
                    "panel": "agreement",
                    "label": "independent heads",
                    "x": range(1, len(places) + 1),
                    "share": chance,
                }
            ),
        ]
    )
    return Figure("survival", figure, table, _caption(inputs, places, row, table))


def _line(
    axis: Axes,
    series: pandas.DataFrame,
    shown: list[str],
    variant: tuple[style.Dashes, bool],
    band: bool,
) -> style.pyplot.Line2D:
    colour, marker = style.look(series["algorithm"].iloc[0], shown)
    dashes, filled = variant
    if band and series["low"].notna().all():
        axis.fill_between(
            series["x"],
            series["low"].clip(0, 1),
            series["high"].clip(0, 1),
            color=colour,
            alpha=0.13,
            linewidth=0,
        )
    (line,) = axis.plot(
        series["x"],
        series["share"],
        color=colour,
        marker=marker,
        markersize=3.5,
        markevery=max(len(series) // 8, 1),
        linestyle=dashes,
        markerfacecolor=colour if filled else "white",
        markeredgecolor="white" if filled else colour,
        markeredgewidth=0.4,
    )
    return line


def _caption(inputs: Namespace, places: list[Place], row: int, table: pandas.DataFrame) -> str:
    heads, _ = inputs.caches.heads(places[0])
    layers = sorted({place.layer for place in places})
    bands = table.dropna(subset=["low"])
    interval = "no interval"
    if len(bands):
        interval = f"band on the decode rows: 95 % interval, {over(bands.astype({'groups': int}))}"
    seeds = {file.settings["seed"] for file in inputs.caches.files if "seed" in file.settings}
    return (
        f"Share of the {heads[0].prompt} tokens of the prompt that are kept: at each decode row; "
        f"by position, in {PARTS} parts; and by at least a number of KV heads; the last two at "
        f"decode row {row}. Lines: means over {len(places)} units (KV heads of "
        f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers))}), {interval}. "
        "Methods that keep equally many lie on one another. Dotted: heads that choose at random, "
        "each as many as the methods keep on average. "
        f"{places[0].sequence}: {inputs.caches.length(places[0])}; "
        + (f"seed {', '.join(sorted(seeds))}." if seeds else "no seed is named.")
    )
