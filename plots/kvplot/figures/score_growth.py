"""Keyformer Fig. 4 in numbers: by how much eviction raises every kept score of a row."""

from argparse import Namespace
from typing import Any

import numpy
import pandas

from kvplot import style
from kvplot.figure import Figure, facts
from kvplot.results import Results, ResultsError

NEEDS = ("results",)
BY = ("layer",)
# Where the kept mass is known to a double's rounding, 1 / it is too.
MIN_KEPT_MASS = 1e-12


def growth(results: Results) -> pandas.DataFrame:
    """1 / kept mass of every row and query head, per label and unit."""
    cells = results.ok[results.ok["algorithm"] != "exact"]
    if cells.empty:
        raise ResultsError(f"{results.path}: no finished cell but exact ones")
    rows = results.rows("kept_mass", cells["id"])
    rows = rows[rows["kept_mass"] > MIN_KEPT_MASS]
    if rows.empty:
        raise ResultsError(f"{results.path}: no row keeps attention mass")
    rows["factor"] = 1.0 / rows["kept_mass"]
    return rows.merge(cells[["id", "algorithm", "label", "layer", "kv_head"]], on="id")


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("mass.kept.mean")
    rows = growth(results)
    layers = sorted(rows["layer"].unique())
    figure, axes = style.panels(1, len(layers), 2.4, sharey=True)
    handles: dict[str, Any] = {}
    tables = []
    shares = numpy.linspace(0.01, 0.99, 99)
    for axis, layer in zip(axes[0], layers):
        axis.set_xscale("log")
        for (label, algorithm), own in rows[rows["layer"] == layer].groupby(["label", "algorithm"]):
            values = numpy.quantile(own["factor"], shares)
            colour, marker = style.look(algorithm, rows["algorithm"].unique())
            (handles[label],) = axis.plot(
                values,
                1 - shares,
                color=colour,
                marker=marker,
                markevery=20,
                markeredgecolor="white",
                markeredgewidth=0.4,
            )
            tables.append(
                pandas.DataFrame(
                    {"layer": layer, "label": label, "share": shares, "factor": values}
                ).assign(count=len(own))
            )
        axis.set_title(f"layer {layer}")
        style.plain_log(axis.xaxis)
    style.outer_labels(axes, "factor on every kept score", "part of the rows above it")
    style.legend_above(axes[0][0], handles)
    budgets = ", ".join(
        f"{value:g}" for value in sorted(results.ok["params.budget"].dropna().unique())
    )
    return Figure(
        "score_growth",
        figure,
        pandas.concat(tables),
        "Part of the rows in which eviction raises every kept score by more than a factor, over "
        f"rows and query heads, 1 % to 99 %, budget {budgets} of the prompt. The factor is 1 over "
        "the attention mass of the kept tokens. It is the same for all scores of a row, so that "
        f"their order stays. {facts(results, by=['layer'])}",
    )
