"""Keyformer appendix A.4 as attention error: the fraction of recent tokens in the cache."""

from argparse import Namespace
from typing import Any

from kvplot import style
from kvplot.curves import bars, by_layer, labelled_lines, words
from kvplot.figure import Figure, facts

NEEDS = ("results",)
BY = ("layer",)
METRIC = "errors.relative_l2.mean"


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.recent_fraction", "params.budget", METRIC)
    table = by_layer(results.ok, [METRIC, "memory.fraction"])
    budgets = sorted(table["params.budget"].unique())
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(len(budgets), len(layers), 0.9 + 1.7 * len(budgets), sharex=True)
    handles: dict[str, Any] = {}
    for row, budget in zip(axes, budgets):
        for axis, layer in zip(row, layers):
            here = table[(table["layer"] == layer) & (table["params.budget"] == budget)]
            axis.set_yscale("log")
            labelled_lines(axis, here, "params.recent_fraction", METRIC, handles)
            axis.axvspan(0.2, 0.3, color="black", alpha=0.07, linewidth=0)
            style.plain_log(axis.yaxis)
            if budget == budgets[0]:
                axis.set_title(f"layer {layer}")
    style.outer_labels(
        axes, "recent tokens / budget", [f"budget {budget:g}\nrelative error" for budget in budgets]
    )
    style.legend_above(axes[0][0], handles)
    return Figure(
        "recent_ratio",
        figure,
        table,
        f"{words(METRIC)}, against the share of recent tokens, for budgets as parts of the prompt; "
        f"{bars(table, METRIC)}; grey: the 20 % to 30 % that Keyformer's appendix A.4 finds best. "
        f"{facts(results, by=['layer'])}",
    )
