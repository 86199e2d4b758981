"""Keyformer Fig. 7 as attention error and kept mass, over the size of the cache."""

from argparse import Namespace
from typing import Any

from kvplot import style
from kvplot.curves import NAMES, bars, by_layer, labelled_lines
from kvplot.figure import Figure, facts
from kvplot.results import undrawn

NEEDS = ("results",)
BY = ("layer",)
METRICS = ("errors.relative_l2.mean", "mass.kept.mean")


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.budget", *METRICS)
    cells = results.ok.copy()
    fraction = cells["params.recent_fraction"]
    several = cells.groupby("label")["params.recent_fraction"].transform("nunique") > 1
    cells.loc[several, "label"] += fraction[several].map(", {:g} recent".format)
    table = by_layer(cells, [*METRICS, "memory.fraction"])
    without = table
    table = table[table["params.budget"].notna()]
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(len(METRICS), len(layers), 4.2, sharex=True, sharey="row")
    handles: dict[str, Any] = {}
    for row, metric in zip(axes, METRICS):
        for axis, layer in zip(row, layers):
            axis.set_yscale("log" if metric == METRICS[0] else "linear")
            labelled_lines(axis, table[table["layer"] == layer], "params.budget", metric, handles)
            if metric == METRICS[0]:
                style.plain_log(axis.yaxis)
                axis.set_title(f"layer {layer}")
    style.outer_labels(axes, "cache / prompt", [NAMES[metric] for metric in METRICS])
    style.legend_right(axes[0][-1], handles)
    return Figure(
        "budget",
        figure,
        table,
        "Relative error of the attention output and attention mass on the kept tokens, means over "
        f"scored rows, against the budget; {bars(table, METRICS[0])}. "
        f"Full attention has error 0 and kept mass 1. {facts(results, by=['layer'])}"
        f"{undrawn(without, table, 'no budget in tokens')}",
    )
