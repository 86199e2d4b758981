"""Every setting of a sweep as one line: mean error with its interval over units, and its memory."""

import json
from argparse import Namespace

import pandas

from kvplot import style
from kvplot.curves import NAMES, WORDS, words
from kvplot.figure import Figure, always_kept, facts
from kvplot.results import Results, ResultsError, undrawn

NEEDS = ("results",)
WHOLE = True  # reads the program's summary over all layers
MOST = 60


def summary(results: Results) -> pandas.DataFrame:
    """The program's own summary over all layers: mean and interval over units per point."""
    rows = []
    for line in results.document["summary"]:
        error = line["errors"].get("relative_l2.mean")
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


def fits(results: Results) -> bool:
    return 1 < len(_drawn(results)) <= MOST


def _drawn(results: Results) -> pandas.DataFrame:
    table = summary(results)
    return table[table["error"] > 1e-9] if len(table) else table


def names(table: pandas.DataFrame) -> list[str]:
    """Label and the parameters in which the settings of a label differ."""
    out = []
    params = table["point"].map(json.loads)
    for label, own in zip(table["label"], params):
        same = [p for p, other in zip(params, table["label"]) if other == label]
        differ = [name for name in own if len({json.dumps(p.get(name)) for p in same}) > 1]
        words = ", ".join(f"{name} {_number(own[name])}" for name in differ)
        out.append(f"{label}: {words}" if words else label)
    return out


def _number(value: object) -> str:
    if isinstance(value, dict):  # {"memory": F}
        return " ".join(f"{name} {_number(part)}" for name, part in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    table = _drawn(results)
    if table.empty:
        raise ResultsError(f"{results.path}: no error above rounding in the summary")
    if len(table) > MOST:
        raise ResultsError(f"{results.path}: {len(table)} settings are too many for one figure")
    table = table.assign(setting=names(table)).reset_index(drop=True)
    places = range(len(table))
    figure, axes = style.panels(1, 2, 0.9 + 0.16 * len(table), sharey=True, width_ratios=(2, 1))
    error, memory = axes[0]
    for place, row in table.iterrows():
        colour, marker = style.look(row["algorithm"], table["algorithm"].unique())
        if row["low"] is not None:
            error.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=0.9)
        error.plot(
            row["error"],
            place,
            marker=marker,
            color=colour,
            markeredgecolor="white",
            markeredgewidth=0.4,
        )
        memory.barh(place, row["memory"], color=colour, height=0.6)
    error.set_xscale("log")
    style.plain_log(error.xaxis)
    error.set_yticks(places, table["setting"], fontsize=7)
    error.invert_yaxis()
    error.set_xlabel("relative error" if style.narrow() else NAMES["errors.relative_l2.mean"])
    memory.set_xlabel("memory" if style.narrow() else "memory / exact")
    return Figure(
        "settings",
        figure,
        table,
        f"{words('errors.relative_l2.mean')}, seeds and units, and {WORDS['memory.fraction']}, per "
        "setting; lines: 95 % intervals, Student's t over texts, layers or KV heads, the outermost "
        f"that differs. {facts(results)}{always_kept(results.ok)}"
        f"{undrawn(summary(results), table, 'no error', 'error')}",
    )
