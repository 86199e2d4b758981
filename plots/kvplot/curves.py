"""The chart of most sweeps: a metric over a parameter, a line per label, a panel per layer."""

from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer

from kvplot import style
from kvplot.figure import capped
from kvplot.results import mean_over_units, with_params

NAMES = {
    "errors.relative_l2.mean": r"mean $\Vert z-a\Vert\,/\,\Vert a\Vert$",
    "errors.relative_l2_posclamp_mean": r"mean $\Vert z-a\Vert\,/\,\Vert\max(a,10^{-8})\Vert$",
    "memory.fraction": "memory / memory of the exact cache",
    "mass.kept.mean": "kept attention mass, mean",
}


def by_layer(cells: pandas.DataFrame, metrics: list[str]) -> pandas.DataFrame:
    """Means per layer and point, with the points' parameters as columns."""
    return with_params(mean_over_units(cells, metrics, ["layer"]))


def line(
    axis: Axes,
    table: pandas.DataFrame,
    x: str,
    y: str,
    colour: style.Colour,
    marker: str,
    bars: bool = True,
    **more: Any,
) -> ErrorbarContainer:
    """One line with markers; bars are the standard deviation over seeds if there is any."""
    table = table.sort_values(x)
    spread = table.get(f"{y}.std_over_seeds")
    error: Any = None
    if bars and spread is not None and spread.fillna(0.0).any():
        spread = spread.fillna(0.0)
        error = capped(spread, table[y]) if axis.get_yscale() == "log" else spread
    return axis.errorbar(
        table[x],
        table[y],
        yerr=error,
        color=colour,
        marker=marker,
        elinewidth=0.7,
        capsize=1.5,
        markeredgecolor=more.pop("edge", "white"),
        markeredgewidth=0.4,
        **more,
    )


def labelled_lines(
    axis: Axes,
    table: pandas.DataFrame,
    x: str,
    y: str,
    handles: dict[str, Any],
    names: dict[str, str] | None = None,
    bars: bool = True,
) -> None:
    """A line per label of the table, in the algorithm's look; fills `handles` by name."""
    looks = style.variants(table)
    shown = table["algorithm"].unique()
    for key, series in table.groupby(["algorithm", "label"], sort=False):
        algorithm, label = map(str, key)
        colour, marker = style.look(algorithm, shown)
        dashes, filled = looks[label]
        handles[(names or {}).get(label, label)] = line(
            axis,
            series,
            x,
            y,
            colour,
            marker,
            bars,
            linestyle=dashes,
            markerfacecolor=colour if filled else "white",
            edge="white" if filled else colour,
        )
