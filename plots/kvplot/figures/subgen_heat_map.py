"""SubGen's Algorithm 1: error over cluster radius delta and samples per cluster t, slots fixed."""

from argparse import ArgumentParser, Namespace

from kvplot import style
from kvplot.curves import WORDS, by_layer, words
from kvplot.figure import Figure, facts
from kvplot.heat import heat
from kvplot.results import ResultsError

NEEDS = ("results",)
BY = ("layer",)
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
    for row, metric in zip(axes, (METRIC, MEMORY)):
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
    style.outer_labels(
        axes,
        "samples per cluster t",
        [f"{of}\nquantile for $\\delta$" for of in ("relative error", "memory / exact")],
    )
    return Figure(
        "subgen_heat_map",
        figure,
        table,
        f"{words(METRIC)} (first), and {WORDS[MEMORY]} (second), of SubGen "
        f"with s = {slots} slots; delta as a quantile of key distances; colours per panel. "
        f"Mean over seeds and heads. {facts(results, by=['layer'])}",
    )
