"""The chart that most sweeps want: a metric over a parameter, a line per label, a panel per layer."""

from kvplot import style
from kvplot.figure import capped
from kvplot.results import mean_over_units, with_params

NAMES = {
    "errors.relative_l2.mean": r"mean $\Vert z-a\Vert\,/\,\Vert a\Vert$",
    "errors.relative_l2_posclamp_mean": r"mean $\Vert z-a\Vert\,/\,\Vert\max(a,10^{-8})\Vert$",
    "memory.fraction": "memory / memory of the exact cache",
    "mass.kept.mean": "kept attention mass, mean",
}


def by_layer(cells, metrics):
    """Means per layer and point, with the points' parameters as columns."""
    return with_params(mean_over_units(cells, metrics, ["layer"]))


def line(axis, table, x, y, colour, marker, bars=True, **more):
    """One line with markers; bars are the standard deviation over seeds where there is any."""
    table = table.sort_values(x)
    spread = table.get(f"{y}.std_over_seeds")
    has = bars and spread is not None and spread.fillna(0.0).any()
    error = None
    if has:
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


def labelled_lines(axis, table, x, y, handles, names=None, bars=True):
    """A line per label of the table, in the algorithm's look; fills `handles` by name."""
    looks = style.variants(table)
    shown = table["algorithm"].unique()
    for (algorithm, label), series in table.groupby(["algorithm", "label"], sort=False):
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
