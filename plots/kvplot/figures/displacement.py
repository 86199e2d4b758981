"""Error of eviction: lost attention mass times the distance of the lost tokens' answer.

A method that keeps tokens without weights has error = (1 - rho) |o_keep - o_evict| / |o| in every
row, where rho is the kept mass and o_keep and o_evict are the answers of the kept and of the
evicted tokens alone: an identity, no fit.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

import numpy
import pandas
from matplotlib.axes import Axes

from kvplot import style
from kvplot.figure import Figure, facts
from kvplot.results import POINT, UNIT, Results, ResultsError

NEEDS = ("results",)
BY = ("layer",)
# Methods that answer with the softmax over the tokens that they keep.
UNWEIGHTED = (
    "window",
    "dilated_window",
    "streaming_llm",
    "h2o",
    "key_attention",
    "keyformer",
    "snapkv",
    "pyramidkv",
    "oracle_topk",
)
ROUNDING = 1e-6  # lost mass below which the quotient is noise


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--memory", type=float, default=0.35, help="memory of the settings; default 0.35"
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=512,
        help="budget of methods without that memory; default 512",
    )


def _chosen(results: Results, memory: float, budget: float) -> pandas.DataFrame:
    """The cells that are drawn: of the asked memory, else of the budget."""
    cells = results.ok[results.ok["algorithm"].isin(UNWEIGHTED)]
    asked = cells.get("params.budget.memory", pandas.Series(numpy.nan, index=cells.index))
    tokens = cells.get("params.budget", pandas.Series(numpy.nan, index=cells.index))
    has_memory = asked.notna().groupby(cells["label"]).transform("any")
    return cells[(asked == memory) | (~has_memory & (tokens == budget))]


def parts(results: Results, memory: float, budget: float) -> pandas.DataFrame:
    """Geometric means over rows, query heads and seeds of lost mass, displacement and error, per
    method and unit; their product holds for the means as it does for rows."""
    cells = _chosen(results, memory, budget)
    if cells.empty:
        raise ResultsError(
            f"{results.path}: no finished cell of memory {memory:g} or budget {budget:g} of "
            f"{', '.join(UNWEIGHTED)}"
        )
    rows = results.rows("relative_l2", cells["id"])
    rows["lost"] = 1.0 - results.rows("kept_mass", cells["id"])["kept_mass"]
    rows = rows[(rows["lost"] > ROUNDING) & (rows["relative_l2"] > 0)]
    if rows.empty:
        raise ResultsError(
            f"{results.path}: no row of memory {memory:g} or budget {budget:g} loses attention mass"
        )
    rows["displacement"] = rows["relative_l2"] / rows["lost"]
    names = {"lost": "lost", "displacement": "displacement", "relative_l2": "error"}
    rows[list(names)] = rows[list(names)].apply(numpy.log)
    logs = rows.merge(cells[["id", *POINT, *UNIT]], on="id")
    table = logs.groupby([*POINT, *UNIT])[list(names)].mean().apply(numpy.exp)
    return table.rename(columns=names).reset_index()


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("errors.relative_l2.mean", "mass.kept.mean")
    table = parts(results, inputs.memory, inputs.budget)
    without = ", ".join(
        table.loc[~table["point"].str.contains('"memory"'), "label"].drop_duplicates()
    )
    which = f"memory {inputs.memory:g}"
    if without:
        which += f" ({without}: budget {inputs.budget:g})"
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(1, len(layers), 2.6, sharex=True, sharey=True)
    handles: dict[str, Any] = {}
    for axis, layer in zip(axes[0], layers):
        axis.set_xscale("log")
        axis.set_yscale("log")
        here = table[table["layer"] == layer]
        for label, own in here.groupby("label", sort=False):
            colour, marker = style.look(own["algorithm"].iloc[0], table["algorithm"].unique())
            (handles[label],) = axis.plot(
                own["lost"],
                own["displacement"],
                marker,
                color=colour,
                markeredgecolor="white",
                markeredgewidth=0.4,
                markersize=5.5,
            )
        axis.set_title(f"layer {layer}")
    for axis in axes[0]:
        _same_error(axis, table)
        style.plain_log(axis.xaxis)
        style.plain_log(axis.yaxis)
    style.outer_labels(
        axes, r"lost mass $1-\rho$", r"displacement $\Vert o_{keep}-o_{evict}\Vert/\Vert o\Vert$"
    )
    style.legend_above(axes[0][0], handles)
    return Figure(
        "displacement",
        figure,
        table,
        "Error of eviction as a product: attention mass on the evicted tokens, times the distance "
        "between the answers of the kept and of the evicted tokens alone, over the length of the "
        f"exact answer. One mark per KV head, {which}; geometric means over rows, "
        "query heads and seeds; along a dotted line the error is what is written on it. "
        f"{facts(results, by=['layer'])}",
    )


def _same_error(axis: Axes, table: pandas.DataFrame) -> None:
    low, high = table["lost"].min() / 1.5, table["lost"].max() * 1.5
    bottom, top = table["displacement"].min() / 1.5, table["displacement"].max() * 1.5
    axis.set_xlim(low, high)
    axis.set_ylim(bottom, top)
    for error in (0.001, 0.01, 0.1, 1.0):
        axis.plot([low, high], [error / low, error / high], "k:", linewidth=0.6, zorder=0)
        at = min(max(low * 1.15, error / (top / 1.25)), high)
        if bottom * 1.3 < error / at < top:
            axis.annotate(f"{error:g}", (at, error / at), fontsize=6.5, ha="left", va="bottom")
