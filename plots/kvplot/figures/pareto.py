"""Error against memory of all methods with intervals over units: three panels, one scale."""

from argparse import Namespace

import pandas

from kvplot import style
from kvplot.curves import NAMES
from kvplot.figure import Figure, facts
from kvplot.results import Results, ResultsError, undrawn

NEEDS = ("results",)
WHOLE = True  # reads the program's summary over all layers
METRIC = "relative_l2.mean"
PANELS = (
    ("positions", ("window", "streaming_llm", "dilated_window")),
    ("scores", ("h2o", "key_attention", "keyformer", "snapkv", "pyramidkv", "oracle_topk")),
    (
        "samples and sketches",
        ("kcenter", "subgen", "balancekv", "balancekv_prefill", "softmax_balance"),
    ),
)
REFERENCE = "uniform"


def summary(results: Results) -> pandas.DataFrame:
    """The program's own summary over all layers: mean and interval over units per point."""
    rows = []
    for line in results.document["summary"]:
        error = line["errors"].get(METRIC)
        if line["layer"] is not None or not error or error["mean"] is None:
            continue
        low, high = error["ci95"] or (None, None)
        rows.append(
            {
                "algorithm": line["algorithm"],
                "label": line["label"],
                "point": results.summary_point(line),
                "cells": line["cells"],
                "memory": line["memory"]["fraction"],
                "error": error["mean"],
                "low": low,
                "high": high,
            }
        )
    return pandas.DataFrame(rows)


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    table = summary(results)
    table = table[table["error"] > 1e-9] if len(table) else table
    if table.empty:
        raise ResultsError(f"{results.path}: no error above rounding in the summary")
    shown = table[table["algorithm"].isin([REFERENCE, *(name for _, of in PANELS for name in of)])]
    figure, axes = style.panels(1, len(PANELS), 3.6, sharex=True, sharey=True)
    for axis, (title, algorithms) in zip(axes[0], PANELS):
        axis.set_xscale("log")
        axis.set_yscale("log")
        for algorithm in (REFERENCE, *algorithms):
            series = table[table["algorithm"] == algorithm].sort_values(["memory", "error"])
            if series.empty:
                continue
            best = (
                series[series["error"] < series["error"].cummin().shift(fill_value=float("inf"))]
                if algorithm == "subgen"
                else series
            )
            colour, marker = style.look(algorithm)
            flat = (best["memory"] >= 1.0).all()
            axis.plot(
                best["memory"],
                best["error"],
                color=colour,
                marker=marker,
                label=algorithm,
                linestyle="none" if flat else "-",
                markeredgecolor="white",
                markeredgewidth=0.4,
            )
            if not flat and best["low"].notna().all():
                axis.fill_between(
                    best["memory"], best["low"], best["high"], color=colour, alpha=0.13, linewidth=0
                )
        axis.axvline(1.0, color="black", linewidth=0.7, linestyle=":")
        axis.set_title(title)
        style.plain_log(axis.xaxis)
        style.plain_log(axis.yaxis)
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncol=2, fontsize=7)
    axes[0][0].set_ylabel(NAMES["errors.relative_l2.mean"])
    axes[0][1].set_xlabel(NAMES["memory.fraction"])
    return Figure(
        "pareto",
        figure,
        table,
        "errors.relative_l2.mean against memory.fraction, mean over seeds and units; "
        "ribbons: 95 % intervals, Student's t over texts, layers or KV heads, the outermost that "
        "differs; uniform in every "
        "panel; subgen: the best settings. Exact has error 0 at memory 1. "
        f"{facts(results)}{undrawn(table, shown, 'in no panel', 'error')}",
    )
