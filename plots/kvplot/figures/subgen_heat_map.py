"""SubGen's Algorithm 1: error over cluster radius delta and samples per cluster t, slots fixed."""

from argparse import ArgumentParser, Namespace

from kvplot import style
from kvplot.curves import by_layer
from kvplot.figure import Figure, facts
from kvplot.heat import heat
from kvplot.results import ResultsError

NEEDS = ("results",)
METRIC, MEMORY = "errors.relative_l2.mean", "memory.fraction"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--slots", type=int, help="s; default: the largest of the sweep")


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.delta_quantile", "params.t", "params.s", METRIC)
    table = by_layer(results.ok[results.ok["algorithm"] == "subgen"], [METRIC, MEMORY])
    slots = inputs.slots or int(table["params.s"].max())
    table = table[table["params.s"] == slots]
    if table.empty:
        raise ResultsError(f"{results.path}: no subgen cell with s = {slots}")
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(2, len(layers), 3.6)
    for row, metric, words in zip(axes, (METRIC, MEMORY), ("relative error", "memory fraction")):
        for axis, layer in zip(row, layers):
            heat(
                axis,
                table[table["layer"] == layer].pivot(
                    index="params.delta_quantile", columns="params.t", values=metric
                ),
                digits="{:.3g}",
            )
            if metric == METRIC:
                axis.set_title(f"layer {layer}")
        row[0].set_ylabel(f"{words}\n" + r"quantile of $\delta$")
    axes[-1][len(layers) // 2].set_xlabel("samples per cluster t")
    return Figure(
        "subgen_heat_map",
        figure,
        table,
        f"{METRIC} (above) and {MEMORY} (below) of SubGen with s = {slots} slots; colours "
        f"per panel. Mean over seeds and heads. {facts(results, by=['layer'])}",
    )
