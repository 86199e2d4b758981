"""What the model says against the error of attention: KL divergence of next tokens, by setting.

Both axes are logarithmic; a panel per text. A point is a setting, a mean over its seeds; a line
joins the settings of a label by their memory. Bars are the standard error of the mean over decoded
rows, from means of blocks of consecutive rows.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

import pandas
from matplotlib.axes import Axes

from kvplot import style
from kvplot.curves import NAMES, words
from kvplot.figure import Figure, capped
from kvplot.loop import Loop
from kvplot.results import POINT, ResultsError

NEEDS = ("loop",)
KL = "kl.mean"
# Below it a divergence is rounding: exact attention in float32 has less.
ROUNDING = 1e-9


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--metric", default="errors.relative_l2.mean", help="path of the error")


def means(loop: Loop, metric: str) -> pandas.DataFrame:
    """Per text and setting, over seeds: metric, KL divergence, its standard error, memory."""
    loop.need(metric, KL, "memory.fraction")
    whole = loop.ok[loop.ok["layers"].map(len) > 1]
    if whole.empty:
        raise ResultsError(
            f"{loop.path}: every record compresses one layer alone; kld_by_layer draws those"
        )
    columns = [metric, KL, "kl.se", "memory.fraction"]
    numbers = whole[columns].apply(pandas.to_numeric, errors="coerce")
    table = whole[["sequence", *POINT]].join(numbers)
    return table.groupby(["sequence", *POINT], sort=False)[columns].mean().reset_index()


def draw(inputs: Namespace) -> Figure:
    loop, metric = inputs.loop, inputs.metric
    table = means(loop, metric)
    drawn = table[(table[metric] > ROUNDING) & (table[KL] > ROUNDING)]
    if drawn.empty:
        raise ResultsError(f"{loop.path}: no setting has an error and a divergence above rounding")
    texts = list(dict.fromkeys(drawn["sequence"]))
    figure, axes = style.panels(1, len(texts), 3.2, sharey=True)
    handles: dict[str, Any] = {}
    for axis, text in zip(axes[0], texts):
        _panel(axis, drawn[drawn["sequence"] == text], drawn, metric, handles)
        if len(texts) > 1:
            axis.set_title(style.shortened(text))
    style.outer_labels(axes, NAMES.get(metric, metric), "KL divergence of next tokens, nats")
    style.legend_right(axes[0][-1], dict(sorted(handles.items())))
    ranks = drawn.groupby("sequence", sort=False)[[metric, KL]].apply(
        lambda own: own[metric].corr(own[KL], method="spearman")
    )
    told = ", ".join(f"{rho:.2f} ({text})" for text, rho in ranks.items() if rho == rho)
    counts = drawn.groupby("sequence").size()
    return Figure(
        "error_vs_kld",
        figure,
        table.sort_values(["sequence", "label", "memory.fraction"]),
        "Mean KL divergence, in nats, of next-token distributions over a compressed cache from "
        f"those over the full one, against: {words(metric)[:1].lower()}{words(metric)[1:]}, "
        "averaged over layers and KV heads. Lines join the settings of a method by memory; bars: "
        "standard error of the mean over decoded rows, from blocks of consecutive ones. "
        f"Spearman's rank correlation over {counts.min()} settings: {told or 'undefined'}. "
        f"{loop.facts()}",
    )


def _panel(
    axis: Axes, own: pandas.DataFrame, drawn: pandas.DataFrame, metric: str, handles: dict[str, Any]
) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    shown, looks = drawn["algorithm"].unique(), style.variants(drawn)
    for key, series in own.groupby(["label", "algorithm"]):
        label, algorithm = map(str, key)
        colour, marker = style.look(algorithm, shown)
        dashes, filled = looks[label]
        series = series.sort_values("memory.fraction")
        handles[style.shortened(label)] = axis.errorbar(
            series[metric],
            series[KL],
            yerr=capped(series["kl.se"].fillna(0.0), series[KL]),
            linestyle=dashes,
            linewidth=0.7,
            marker=marker,
            color=colour,
            elinewidth=0.7,
            capsize=1.5,
            markerfacecolor=colour if filled else "white",
            markeredgecolor="white" if filled else colour,
            markeredgewidth=0.4,
        )
    style.plain_log(axis.xaxis)
    style.plain_log(axis.yaxis)
