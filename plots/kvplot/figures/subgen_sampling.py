"""Norms by which SubGen's reservoir draws: error over the number of slots, exact normalizer."""

from argparse import Namespace

from kvplot import style
from kvplot.curves import NAMES, bars, by_layer, line, words
from kvplot.figure import Figure, facts

NEEDS = ("results",)
BY = ("layer",)
METRIC = "errors.relative_l2.mean"
KINDS = (
    ("v2", r"$\Vert v\Vert^2$ (Algorithm 1)"),
    ("v1", r"$\Vert v\Vert$"),
    ("k2", r"$\Vert k\Vert^2$ (the text)"),
    ("uniform", "uniform"),
)


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.sampling", "params.s", METRIC)
    table = by_layer(results.ok, [METRIC, "memory.fraction"])
    table = table[table["algorithm"] == "subgen"]
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(1, len(layers), 2.4)
    handles = {}
    for axis, layer in zip(axes[0], layers):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        for (kind, formula), colour, marker, dashes in zip(
            KINDS, style.ordered(4), "osD^", ("-", "--", ":", "-.")
        ):
            here = table[(table["layer"] == layer) & (table["params.sampling"] == kind)]
            handles[formula] = line(
                axis, here, "params.s", METRIC, colour, marker, linestyle=dashes
            )
        axis.set_xticks(
            sorted(table["params.s"].unique()),
            [f"{s:g}" for s in sorted(table["params.s"].unique())],
        )
        axis.minorticks_off()
        style.plain_log(axis.yaxis)
        axis.set_title(f"layer {layer}")
    style.outer_labels(axes, "slots s of the reservoir", NAMES[METRIC])
    style.legend_right(axes[0][-1], handles)
    return Figure(
        "subgen_sampling",
        figure,
        table,
        f"{words(METRIC)}, of SubGen with the exact normalizer, slots drawn by the norm named; "
        f"{bars(table, METRIC)}. {facts(results, by=['layer'])}",
    )
