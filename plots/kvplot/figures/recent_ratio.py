"""Keyformer appendix A.4 as attention error: the share of recent tokens in the cache."""

from argparse import Namespace
from typing import Any

from kvplot import style
from kvplot.curves import by_layer, labelled_lines
from kvplot.figure import Figure, facts

NEEDS = ("results",)
METRIC = "errors.relative_l2.mean"


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.recent_fraction", "params.budget", METRIC)
    table = by_layer(results.ok, [METRIC, "memory.fraction"])
    budgets = sorted(table["params.budget"].unique())
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(len(budgets), len(layers), 1.2 + 1.6 * len(budgets), sharex=True)
    handles: dict[str, Any] = {}
    for row, budget in zip(axes, budgets):
        for axis, layer in zip(row, layers):
            here = table[(table["layer"] == layer) & (table["params.budget"] == budget)]
            labelled_lines(axis, here, "params.recent_fraction", METRIC, handles)
            axis.axvspan(0.2, 0.3, color="black", alpha=0.07, linewidth=0)
            axis.set_ylim(bottom=0)
            if budget == budgets[0]:
                axis.set_title(f"layer {layer}")
        row[0].set_ylabel(f"budget {budget:g}\nrelative error, mean")
    axes[-1][len(layers) // 2].set_xlabel("recent tokens, as a part of the cache")
    style.legend_right(axes[0][-1], handles)
    return Figure(
        "recent_ratio",
        figure,
        table,
        f"{METRIC} over the share of recent tokens, for budgets as parts "
        "of the prompt; bars: standard deviation over seeds; grey: the 20 % to 30 % that "
        f"Keyformer's appendix A.4 finds best. {facts(results, by=['layer'])}",
    )
