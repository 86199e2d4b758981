"""BalanceKV's Algorithm 1 as proved: error and mass against memory over batch t and levels T."""

from argparse import Namespace
from typing import Any

import pandas

from kvplot import style
from kvplot.curves import NAMES, labelled_lines
from kvplot.figure import Figure, facts
from kvplot.results import ResultsError, mean_over_units, with_params

NEEDS = ("results",)
METRIC, MEMORY = "errors.relative_l2.mean", "memory.fraction"
COLUMNS = [METRIC, "mass.denominator.mean", MEMORY, "memory.tokens_peak"]


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.t", "params.T", *COLUMNS)
    table = with_params(mean_over_units(results.ok, COLUMNS))
    levels = [level for level in ("1", "2", "auto") if level in set(table["params.T"].astype(str))]
    tree = table[table["algorithm"] == "balancekv"]
    rest = table[table["algorithm"] != "balancekv"]
    if not levels or tree.empty:
        raise ResultsError(f"{results.path}: no finished cell of balancekv with T 1, 2 or auto")
    figure, axes = style.panels(2, len(levels), 4.2, sharex=True, sharey="row")
    handles: dict[str, Any] = {}
    for row, metric in zip(axes, (METRIC, "mass.denominator.mean")):
        for axis, level in zip(row, levels):
            axis.set_xscale("log")
            if metric == METRIC:
                axis.set_yscale("log")
                axis.set_title(f"T {level}")
            labelled_lines(
                axis, tree[tree["params.T"].astype(str) == level], MEMORY, metric, handles
            )
            labelled_lines(axis, rest, MEMORY, metric, handles)
            axis.axvline(1.0, color="black", linewidth=0.7, linestyle=":")
            if metric == METRIC:
                style.plain_log(axis.yaxis)
            else:
                axis.axhline(1.0, color="black", linewidth=0.6, linestyle=":")
            style.plain_log(axis.xaxis)
    axes[0][0].set_ylabel(NAMES[METRIC])
    axes[1][0].set_ylabel("estimated mass, normalizer")
    axes[1][len(levels) // 2].set_xlabel(NAMES[MEMORY])
    style.legend_right(axes[0][-1], handles)
    batches = tree["params.t"]
    most = pandas.to_numeric(rest["params.T"], errors="coerce").max()
    return Figure(
        "merge_reduce",
        figure,
        table,
        f"{METRIC} and mass.denominator.mean (1 is right) against {MEMORY}; along a line "
        f"batches of t = {batches.min():g} to {batches.max():g} tokens; uniform: T 1 to "
        f"{most:g} in every panel. Bars: standard "
        f"deviation over seeds. balancekv: the smaller side is kept, as printed. "
        f"{facts(results)}",
    )
