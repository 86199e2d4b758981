"""The model's KL divergence of next tokens against the error of attention, by setting.

Both axes are logarithmic; a panel per text. A point is a setting, a mean over its seeds; a line
joins the settings of a label by their memory. Bars are the standard error of the mean over decoded
rows, from means of blocks of consecutive rows.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

import pandas

from kvplot import style
from kvplot.curves import NAMES, cut, labelled_lines, words_within
from kvplot.figure import Figure
from kvplot.loop import Loop
from kvplot.results import HEADLINE, POINT, ResultsError, did_you_mean

NEEDS = ("loop",)
KL = "kl.mean"
# Below it a divergence is rounding: exact attention in float32 has less.
ROUNDING = 1e-9


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--metric", default=HEADLINE, metavar="PATH", help=f"of the error; default {HEADLINE}"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="LABEL", help="draw these methods (default: all)"
    )
    parser.add_argument("--texts", nargs="+", metavar="NAME", help="draw these (default: all)")


def means(loop: Loop, metric: str) -> pandas.DataFrame:
    """Per text and setting, over seeds: metric, KL divergence, its standard error, memory."""
    loop.need(metric, KL, "memory.fraction")
    whole = loop.ok[loop.ok["layers"].map(len) > 1]
    if whole.empty:
        raise ResultsError(
            f"{loop.path}: every record compresses one layer alone; kld_by_layer draws those"
        )
    columns = list(dict.fromkeys([metric, KL, "kl.se", "memory.fraction"]))
    numbers = whole[columns].apply(pandas.to_numeric, errors="coerce")
    table = whole[["sequence", *POINT]].join(numbers)
    return table.groupby(["sequence", *POINT], sort=False)[columns].mean().reset_index()


def of_labels(table: pandas.DataFrame, only: list[str] | None) -> pandas.DataFrame:
    """The settings of these labels, all where none are given."""
    labels = list(dict.fromkeys(table["label"]))
    for label in only or []:
        if label not in labels:
            raise ResultsError(
                f"--only: no method {label}{did_you_mean(label, labels)}; there are "
                f"{', '.join(labels)}"
            )
    return table[table["label"].isin(only)] if only else table


def chosen(loop: Loop, texts: list[str], names: list[str] | None) -> list[str]:
    """The texts to draw, a panel each."""
    unknown = [name for name in names or [] if name not in texts]
    if unknown:
        raise ResultsError(f"{loop.path}: no text {unknown[0]}; there are {', '.join(texts)}")
    drawn = names or texts
    if len(drawn) > style.MAX_PANELS:
        raise ResultsError(
            f"{loop.path}: {len(drawn)} texts, and a figure has at most {style.MAX_PANELS} "
            f"panels: choose some with --texts, of {', '.join(texts)}; rank_agreement shows all "
            "together"
        )
    return drawn


def draw(inputs: Namespace) -> Figure:
    loop, metric = inputs.loop, inputs.metric
    table = means(loop, metric)
    drawn = table[(table[metric] > ROUNDING) & (table[KL] > ROUNDING)]
    if drawn.empty:
        raise ResultsError(f"{loop.path}: no setting has an error and a divergence above rounding")
    texts = chosen(loop, list(dict.fromkeys(drawn["sequence"])), inputs.texts)
    drawn = drawn[drawn["sequence"].isin(texts)]
    table = table[table["sequence"].isin(texts)]
    ranked, drawn = drawn, of_labels(drawn, inputs.only)
    figure, axes = style.panels(1, len(texts), 3.2, sharey=True)
    handles: dict[str, Any] = {}
    for axis, text in zip(axes[0], texts):
        axis.set_xscale("log")
        axis.set_yscale("log")
        own = drawn[drawn["sequence"] == text]
        labelled_lines(
            axis, own, metric, KL, handles, drawn, "kl.se", "memory.fraction", linewidth=0.7
        )
        style.plain_log(axis.xaxis)
        style.plain_log(axis.yaxis)
        if len(texts) > 1:
            axis.set_title(style.shortened(text))
    style.outer_labels(axes, NAMES.get(metric, metric), "KL divergence of next tokens, nats")
    style.legend_right(axes[0][-1], dict(sorted(handles.items())), style.shortened)
    ranks = ranked.groupby("sequence", sort=False)[[metric, KL]].apply(
        lambda own: own[metric].corr(own[KL], method="spearman")
    )
    listed = ", ".join(f"{rho:.2f} ({text})" for text, rho in ranks.items() if rho == rho)
    counts = ranked.groupby("sequence").size()
    return Figure(
        "error_vs_kld",
        figure,
        table.sort_values(["sequence", "label", "memory.fraction"]),
        "Mean KL divergence, in nats, of next-token distributions over a compressed cache from "
        f"those over the full one, against the {words_within(metric)}, "
        "averaged over layers and KV heads. Lines join the settings of a method by memory; bars: "
        "standard error of the mean over decoded rows, from blocks of consecutive ones"
        f"{cut(drawn[KL], drawn['kl.se'])}. "
        f"Spearman's rank correlation over {counts.min()} settings"
        f"{' of all methods' if inputs.only else ''}: {listed or 'undefined'}. "
        f"{loop.facts(texts)}",
    )
