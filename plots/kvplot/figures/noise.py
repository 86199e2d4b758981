"""Keyformer Table 4 as attention error: noise that is added to the logits of the score function."""

from argparse import Namespace
from typing import Any

import numpy
import pandas

from kvplot import style
from kvplot.curves import NAMES, bars, bars_of, by_layer, words
from kvplot.figure import Figure, facts

NEEDS = ("results",)
BY = ("layer",)
METRIC = "errors.relative_l2.mean"
ORDER = ("gumbel", "gaussian", "gumbel per row", "gaussian per row", "constant", "none", "h2o")


def _kind(row: "pandas.Series[Any]") -> str:
    if row["algorithm"] != "keyformer":
        return row["algorithm"]
    return row["params.noise"] + (" per row" if row["params.draw"] == "row" else "")


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.noise", "params.budget", METRIC)
    table = by_layer(results.ok, [METRIC, "memory.fraction"])
    table["noise"] = table.apply(_kind, axis=1)
    kinds = [kind for kind in ORDER if kind in set(table["noise"])]
    budgets = sorted(table["params.budget"].unique())
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(1, len(layers), 2.6, sharex=True)
    width = 0.8 / len(budgets)
    colours = style.ordered(len(budgets) + 1)
    for axis, layer in zip(axes[0], layers):
        for place, budget in enumerate(budgets):
            here = table[(table["layer"] == layer) & (table["params.budget"] == budget)]
            here = here.set_index("noise").reindex(kinds)
            at = numpy.arange(len(kinds)) + (place - (len(budgets) - 1) / 2) * width
            axis.bar(
                at,
                here[METRIC],
                width,
                color=colours[place],
                label=f"budget {budget:g}",
                yerr=bars_of(here, METRIC, log=False),
                error_kw={"elinewidth": 0.7, "capsize": 1.5},
            )
        axis.set_xticks(range(len(kinds)), kinds, rotation=60, ha="right", rotation_mode="anchor")
        axis.set_title(f"layer {layer}")
        axis.grid(axis="x", visible=False)
    style.outer_labels(axes, y=NAMES[METRIC])
    style.legend_right(axes[0][-1])
    return Figure(
        "noise",
        figure,
        table,
        f"{words(METRIC)}, per kind of noise (standard: one draw per token; per row: drawn "
        f"afresh); {bars(table)}; h2o: plain softmax at temperature "
        f"1 with the same share of recent tokens. {facts(results, by=['layer'])}",
    )
