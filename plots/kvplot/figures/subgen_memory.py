"""SubGen's Algorithm 1: error against memory over cluster radius, samples per cluster and slots."""

from argparse import Namespace

from kvplot import style
from kvplot.curves import NAMES, by_layer, labelled_lines, line
from kvplot.figure import Figure, facts

NEEDS = ("results",)
METRIC, MEMORY = "errors.relative_l2.mean", "memory.fraction"


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.delta_quantile", "params.t", "params.s", METRIC)
    table = by_layer(results.ok, [METRIC, MEMORY])
    table = table[table["algorithm"] != "exact"]
    subgen = table[table["algorithm"] == "subgen"]
    quantiles = sorted(subgen["params.delta_quantile"].unique())
    samples = sorted(subgen["params.t"].unique())
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(1, len(layers), 3.1)
    handles = {}
    for axis, layer in zip(axes[0], layers):
        axis.set_xscale("log")
        axis.set_yscale("log")
        for quantile, colour in zip(quantiles, style.ordered(len(quantiles))):
            for t, marker, dashes in zip(samples, "os^Dv", ("-", "--", ":", "-.", "-")):
                here = subgen[
                    (subgen["layer"] == layer)
                    & (subgen["params.t"] == t)
                    & (subgen["params.delta_quantile"] == quantile)
                ]
                handles[f"subgen {quantile:g}, t {t:g}"] = line(
                    axis, here, MEMORY, METRIC, colour, marker, bars=False, linestyle=dashes
                )
        rest = table[(table["layer"] == layer) & (table["algorithm"] != "subgen")]
        labelled_lines(axis, rest, MEMORY, METRIC, handles, bars=False)
        axis.axvline(1.0, color="black", linewidth=0.7, linestyle=":")
        style.plain_log(axis.xaxis, (1.0, 3.0))
        style.plain_log(axis.yaxis)
        axis.set_title(f"layer {layer}")
    axes[0][0].set_ylabel(NAMES[METRIC])
    axes[0][len(layers) // 2].set_xlabel(NAMES[MEMORY])
    style.legend_right(axes[0][-1], handles)
    slots = subgen["params.s"]
    return Figure(
        "subgen_memory",
        figure,
        table,
        f"{METRIC} against {MEMORY}. subgen q, t: delta at the q quantile of key "
        f"distances, t samples per cluster, along a line s = {slots.min():g} to "
        f"{slots.max():g} slots. Mean over seeds and heads. "
        f"{facts(results, by=['layer'])}",
    )
