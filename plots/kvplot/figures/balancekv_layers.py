"""BalanceKV Fig. 2: relative error per layer against compression 2^-T, BalanceKV and uniform."""

from argparse import ArgumentParser, Namespace
from typing import Any

import pandas

from kvplot import style
from kvplot.curves import NAMES, by_layer, labelled_lines
from kvplot.figure import Figure, facts
from kvplot.results import ResultsError

NEEDS = ("results",)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--metric",
        default="errors.relative_l2.mean",
        help="path of the error; the paper's code plots errors.relative_l2_posclamp_mean",
    )


def draw(inputs: Namespace) -> Figure:
    results, metric = inputs.results, inputs.metric
    results.need(metric, "params.T")
    table = by_layer(results.ok, [metric, "memory.fraction"])
    table["compression"] = 0.5 ** pandas.to_numeric(table["params.T"], errors="coerce")
    table = table[table["compression"].notna()].copy()
    if table.empty:
        raise ResultsError(f"{results.path}: no finished cell has a number as params.T")
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(1, len(layers), 2.5, sharey=True)
    handles: dict[str, Any] = {}
    for axis, layer in zip(axes[0], layers):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        labelled_lines(axis, table[table["layer"] == layer], "compression", metric, handles)
        axis.set_xticks(
            sorted(table["compression"].unique()),
            [f"1/{1 / value:.0f}" for value in sorted(table["compression"].unique())],
        )
        axis.minorticks_off()
        style.plain_log(axis.yaxis)
        axis.set_title(f"layer {layer}")
    axes[0][len(layers) // 2].set_xlabel("kept part of the middle, $2^{-T}$")
    axes[0][0].set_ylabel(NAMES.get(metric, metric))
    style.legend_right(axes[0][-1], handles)
    suffix = "" if metric == "errors.relative_l2.mean" else "_posclamp"
    return Figure(
        f"balancekv_layers{suffix}",
        figure,
        table,
        f"{metric} against the part of the prompt's middle that is kept; bars: standard "
        f"deviation over seeds of the mean over heads. {facts(results, by=['layer'])}",
    )
