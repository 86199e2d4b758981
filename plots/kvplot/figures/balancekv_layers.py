"""BalanceKV Fig. 2: relative error per layer against compression 2^-T, BalanceKV and uniform."""

from argparse import Namespace
from typing import Any

import pandas

from kvplot import style
from kvplot.curves import NAMES, bars, by_layer, labelled_lines, words
from kvplot.figure import Figure, facts
from kvplot.results import ResultsError, undrawn

NEEDS = ("results",)
BY = ("layer",)
METRICS = ("errors.relative_l2.mean", "errors.relative_l2_posclamp_mean")


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need(METRICS[0], "params.T")
    metrics = [name for name in METRICS if name in results.ok]
    table = by_layer(results.ok, [*metrics, "memory.fraction"])
    table["compression"] = 0.5 ** pandas.to_numeric(table["params.T"], errors="coerce")
    table = table[table["compression"].notna()].copy()
    if table.empty:
        raise ResultsError(f"{results.path}: no finished cell has a number as params.T")
    layers = sorted(table["layer"].unique())
    parts = sorted(table["compression"].unique())
    figure, axes = style.panels(len(metrics), len(layers), 0.5 + 1.8 * len(metrics), sharey="row")
    handles: dict[str, Any] = {}
    for row, metric in zip(axes, metrics):
        for axis, layer in zip(row, layers):
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            labelled_lines(axis, table[table["layer"] == layer], "compression", metric, handles)
            axis.set_xticks(parts, [f"1/{1 / value:.0f}" for value in parts])
            axis.minorticks_off()
            style.plain_log(axis.yaxis)
            if metric == metrics[0]:
                axis.set_title(f"layer {layer}")
    style.outer_labels(
        axes, "kept part of the middle, $2^{-T}$", [NAMES[metric] for metric in metrics]
    )
    style.legend_above(axes[0][0], handles)
    second = (
        "first as the paper states it, then as the authors' code computes it, with the positive "
        "part of the exact output in the denominator"
    )
    return Figure(
        "balancekv_layers",
        figure,
        table,
        f"{words(METRICS[0])}, against the part of the prompt's middle that is kept"
        f"{f': {second}' if len(metrics) > 1 else ''}; {bars(table, *metrics)}. "
        f"{facts(results, by=['layer'])}{undrawn(results.ok, table, 'T is not a number')}",
    )
