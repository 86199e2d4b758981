"""Keys or values: error with a codec on keys only over that with the codec on values only.

By layer and over all of them, paired by unit; above 1 keys need the bits more. Where a sweep has
both ways to share a scale, keys per channel against values per token as well.
"""

import re
from argparse import Namespace
from typing import Any

import pandas
from matplotlib.lines import Line2D

from kvplot import storages, style
from kvplot.curves import words
from kvplot.figure import Figure, facts
from kvplot.results import FLOAT, POINT, ROUNDING, UNIT, Results, ResultsError
from kvplot.statistics import geometric_means, over

NEEDS = ("results",)
METRIC, ALL = "errors.relative_l2.mean", "all"
CHANNEL = " per=channel"
# By whether keys and values share a scale among tokens of a channel.
SHARED = {
    (False, False): "{}: both per token",
    (True, True): "{}: both per channel",
    (True, False): "{}: keys per channel, values per token",
}
# "int 2 bits per=channel": what the codec is besides its bits, which are an axis.
BITS = re.compile(r" (\d+) bits?\b")


def fits(results: Results) -> bool:
    return METRIC in results.ok and not pairs(results).empty


def pairs(results: Results) -> pandas.DataFrame:
    """One row per unit and pair of settings: codec, bits, and the ratio of the errors."""
    cells = results.ok.assign(**{METRIC: pandas.to_numeric(results.ok[METRIC])})
    units = cells.groupby([*POINT, *UNIT])[METRIC].mean().reset_index()
    named = storages.of_labels(cells)
    units["method"] = [named[label][0] for label in units["label"]]
    parts = [re.fullmatch("K (.+) V (.+)", named[label][1]) for label in units["label"]]
    units["keys"] = [part[1] if part else FLOAT for part in parts]
    units["values"] = [part[2] if part else FLOAT for part in parts]
    units = units[units[METRIC] > ROUNDING]
    keys = units[(units["keys"] != FLOAT) & (units["values"] == FLOAT)]
    values = units[(units["keys"] == FLOAT) & (units["values"] != FLOAT)]
    at = ["method", "algorithm", "point", *UNIT]
    both = keys.merge(values, on=at, suffixes=("", "_of_values"))
    one, other = both["keys"], both["values_of_values"]
    both["mixed"] = one == other + CHANNEL
    both = both[(one == other) | both["mixed"]].copy()
    both["ratio"] = both[METRIC] / both[f"{METRIC}_of_values"]
    found = [BITS.search(codec) for codec in both["keys"]]
    both["bits"] = [int(match[1]) if match else float("nan") for match in found]
    sides = [
        [BITS.sub("", codec) for codec in both[column]] for column in ("keys", "values_of_values")
    ]
    ways = {codec.removesuffix(CHANNEL) for codec in sides[0] if codec.endswith(CHANNEL)}
    both["codec"] = [_named(keys, values, ways) for keys, values in zip(*sides)]
    return both


def _named(keys: str, values: str, ways: set[str]) -> str:
    """A codec without its bits; of one that shares scales in several ways the way as well."""
    base = values.removesuffix(CHANNEL)
    if base not in ways:
        return base
    return SHARED[keys.endswith(CHANNEL), values.endswith(CHANNEL)].format(base)


def means(table: pandas.DataFrame) -> pandas.DataFrame:
    """Geometric means per codec, bits and layer, and over all layers, with their intervals."""
    by = ["method", "codec", "bits"]
    kept = table.fillna({"bits": 0}).sort_values(by, kind="stable")
    layers = [
        geometric_means(own, "ratio", by, "ratio").assign(layer=layer)
        for layer, own in kept.groupby("layer")
    ]
    every = geometric_means(kept, "ratio", by, "ratio").assign(layer=ALL)
    better = kept.assign(layer=ALL)
    counts = (
        pandas.concat([kept.astype({"layer": object}), better.astype({"layer": object})])
        .groupby([*by, "layer"])["ratio"]
        .agg(lambda ratio: int((ratio > 1).sum()))
        .rename("keys_worse")
        .reset_index()
    )
    found = pandas.concat([every, *layers], ignore_index=True).astype({"layer": object})
    return found.merge(counts, on=[*by, "layer"])


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need(METRIC)
    table = pairs(results)
    if table.empty:
        raise ResultsError(
            f"{results.path}: nothing to pair: it takes cells with a codec on keys alone and "
            "others with the same codec on values alone"
        )
    found = means(table)
    panels = list(dict.fromkeys(zip(found["method"], found["codec"])))
    several = found["method"].nunique() > 1
    bits = sorted(found["bits"].unique())
    looks = dict(zip(bits, zip(style.ordered(len(bits)), "osD^vPX*", strict=False), strict=True))
    layers = [ALL, *sorted(table["layer"].unique())]
    across = min(len(panels), 3)
    rows = -(-len(panels) // across)
    figure, axes = style.panels(rows, across, 0.4 + 1.7 * rows, sharey=True, sharex=True)
    handles: dict[str, Any] = {}
    for axis, (method, codec) in zip(axes.flat, panels):
        own = found[(found["method"] == method) & (found["codec"] == codec)]
        there = sorted(own["bits"].unique())
        for at, (colour, marker) in looks.items():
            points = own[own["bits"] == at]
            shift = 0.2 * (there.index(at) - (len(there) - 1) / 2) if at in there else 0.0
            spots = [layers.index(layer) + shift for layer in points["layer"]]
            if points["groups"].max() > 1:
                axis.vlines(
                    spots, points["ratio_low"], points["ratio_high"], color=colour, linewidth=0.9
                )
            axis.plot(spots, points["ratio"], linestyle="none", marker=marker, color=colour,
                      markersize=3.4, markeredgecolor="white", markeredgewidth=0.3)  # fmt: skip
            name = f"{at:g} bits" if at else "bits not said"
            handles[name] = Line2D([], [], linestyle="none", marker=marker, color=colour)
        axis.axhline(1.0, color="0.5", linewidth=0.8)
        axis.set_yscale("log")
        style.plain_log(axis.yaxis)
        axis.set_xticks(range(len(layers)), list(map(str, layers)))
        axis.set_title(f"{method}: {codec}" if several else codec, fontsize=7)
    for spare in axes.flat[len(panels) :]:
        spare.set_visible(False)
    for axis in axes.flat[len(panels) - across : len(panels)]:
        axis.tick_params(labelbottom=True)  # also above a panel that is not there
    style.outer_labels(axes, "layer", "error of keys alone /\nerror of values alone")
    style.legend_above(axes[0][0], handles)
    drawn = {*table["label"], *table["label_of_values"]}
    stored = {label for label, (_, kind) in storages.of_labels(results.ok).items() if kind != FLOAT}
    alone = len(stored - drawn)
    return Figure(
        "keys_or_values",
        figure,
        found,
        f"{words(METRIC)}, with keys alone through a codec, over that with values alone through "
        "it, paired by unit; above 1 keys need the bits more. Titles: what shares a scale, if the "
        "codec lets one choose. Geometric means over units, with 95 % intervals, "
        f"{over(found)}. {facts(results)}"
        + (f" Not drawn, no partner: {alone} storage{'s' if alone > 1 else ''}." if alone else ""),
    )
