"""Recent tokens against heavy ones: error over that of recent tokens and sinks of the same budget.

From a sweep that crosses the share of recent tokens, the damping factor of accumulated scores and
the budget. Below 1 the heavy tokens are worth more than the recent ones whose slots they take.
"""

import itertools
from argparse import Namespace
from typing import Any

import pandas

from kvplot import style
from kvplot.curves import interval_line, words
from kvplot.figure import Figure, facts
from kvplot.results import POINT, ROUNDING, UNIT, Results, ResultsError, undrawn, with_params
from kvplot.statistics import geometric_means, over

NEEDS = ("results",)
METRIC, RATIO, REFERENCE = "errors.relative_l2.mean", "ratio", "streaming_llm"
AXES = ["params.budget", "params.damping", "params.recent_fraction"]


def fits(results: Results) -> bool:
    found = set(AXES) <= set(results.ok) and (results.ok["label"] == REFERENCE).any()
    return bool(found) and not ratios(results).empty


def ratios(results: Results) -> pandas.DataFrame:
    """One row per unit and setting: error over that of REFERENCE with the same budget."""
    cells = results.ok[[*POINT, *UNIT, METRIC]].copy()
    cells[METRIC] = pandas.to_numeric(cells[METRIC])
    units = with_params(cells.groupby([*POINT, *UNIT])[METRIC].mean().reset_index())
    units = units[units[METRIC] > ROUNDING]
    at = [*UNIT, "params.budget"]
    base = units[units["label"] == REFERENCE][[*at, METRIC]]
    units = units[units["params.damping"].notna() & units["params.recent_fraction"].notna()]
    units = units.merge(base.rename(columns={METRIC: "reference"}), on=at)
    units[RATIO] = units[METRIC] / units["reference"]
    return units


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need(METRIC, *AXES)
    units = ratios(results)
    if units.empty:
        raise ResultsError(
            f"{results.path}: no cell to pair with: it takes cells labelled {REFERENCE} and others "
            "with damping and a share of recent tokens at the same budgets"
        )
    table = geometric_means(units, RATIO, AXES, RATIO).assign(layer="all")
    layers = [
        geometric_means(own, RATIO, AXES, RATIO).assign(layer=layer)
        for layer, own in units.groupby("layer")
    ]
    budgets = sorted(table["params.budget"].unique())
    alphas = sorted(table["params.damping"].unique())
    figure, axes = style.panels(1, len(budgets), 2.7, sharey="row")
    handles: dict[str, Any] = {}
    for axis, budget in zip(axes[0], budgets):
        looks = zip(alphas, style.ordered(len(alphas)), itertools.cycle("osD^vP"))
        for alpha, colour, marker in looks:
            own = table[(table["params.budget"] == budget) & (table["params.damping"] == alpha)]
            name = rf"$\alpha$ = {alpha:g}" + (" (H2O)" if alpha == 1 else "")
            handles[name] = interval_line(
                axis, own, "params.recent_fraction", RATIO, colour, marker
            )
        handles["sinks and recent tokens"] = axis.axhline(
            1.0, color=style.look(REFERENCE)[0], linewidth=1.2
        )
        axis.set_yscale("log")
        style.plain_log(axis.yaxis)
        axis.set_title(f"budget {budget:g} of the prompt")
    style.outer_labels(axes, "recent tokens / budget", "error / error of\nsinks and recent tokens")
    style.legend_above(axes[0][0], handles)
    cells = results.ok[results.ok["label"] != REFERENCE]
    return Figure(
        "recency",
        figure,
        pandas.concat([table, *layers], ignore_index=True),
        f"{words(METRIC)}, of tokens of largest accumulated attention and recent ones, divided by "
        "that of four sinks and recent tokens alone with the same budget, paired by unit; "
        "accumulated scores decay by the factor alpha per row. Geometric means over units, with "
        f"95 % intervals, {over(table)}. "
        f"{facts(results)}{undrawn(cells, units, 'no damping or no such budget')}",
    )
