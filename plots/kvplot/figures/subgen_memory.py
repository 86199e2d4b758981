"""SubGen's Algorithm 1: error against memory over cluster radius, samples per cluster and slots."""

import itertools
from argparse import Namespace

from kvplot import style
from kvplot.curves import NAMES, WORDS, bars, by_layer, frontier, labelled_lines, line, words
from kvplot.figure import Figure, facts

NEEDS = ("results",)
BY = ("layer",)
METRIC, MEMORY = "errors.relative_l2.mean", "memory.fraction"


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.delta_quantile", "params.t", "params.s", METRIC)
    table = by_layer(results.ok, [METRIC, MEMORY])
    table = table[table["algorithm"] != "exact"]
    subgen = table[table["algorithm"] == "subgen"]
    quantiles = sorted(subgen["params.delta_quantile"].unique())
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(1, len(layers), 2.6)
    handles = {}
    for axis, layer in zip(axes[0], layers):
        axis.set_xscale("log")
        axis.set_yscale("log")
        here = subgen[subgen["layer"] == layer]
        for quantile, colour, marker in zip(
            quantiles, style.ordered(len(quantiles)), itertools.cycle("os^v")
        ):
            settings = here[here["params.delta_quantile"] == quantile].sort_values(MEMORY)
            axis.plot(
                settings[MEMORY],
                settings[METRIC],
                marker,
                color=colour,
                alpha=0.3,
                markersize=3,
                markeredgewidth=0,
            )
            best = frontier(settings, METRIC, MEMORY)
            handles[f"SubGen, {quantile:g} quantile"] = line(
                axis, best, MEMORY, METRIC, colour, marker
            )
        rest = table[(table["layer"] == layer) & (table["algorithm"] != "subgen")]
        labelled_lines(axis, rest, MEMORY, METRIC, handles)
        axis.axvline(1.0, color="black", linewidth=0.7, linestyle=":")
        style.plain_log(axis.xaxis)
        style.plain_log(axis.yaxis)
        axis.set_title(f"layer {layer}")
    style.outer_labels(axes, NAMES[MEMORY], NAMES[METRIC])
    style.legend_above(axes[0][0], handles)
    slots, samples = subgen["params.s"], subgen["params.t"]
    return Figure(
        "subgen_memory",
        figure,
        table,
        f"{words(METRIC)}, against {WORDS[MEMORY]}. SubGen as printed: delta at a quantile of key "
        f"distances, all settings of t = {samples.min():g} to {samples.max():g} samples per "
        f"cluster and s = {slots.min():g} to {slots.max():g} slots faint, the line is the least "
        f"error for at most that memory; {bars(table, METRIC)}. {facts(results, by=['layer'])}",
    )
