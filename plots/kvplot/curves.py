"""The chart of most sweeps: a metric over a parameter, a line per label, a panel per layer."""

from collections.abc import Sequence
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer

from kvplot import style
from kvplot.figure import capped
from kvplot.results import HEADLINE, MEAN, mean_over_units, with_params
from kvplot.statistics import over, standard_error

# Labels of axes.
NAMES = {
    HEADLINE: r"$\Vert Z-A\Vert_F\,/\,\Vert A\Vert_F$",
    "errors.relative_spectral_error": r"$\Vert Z-A\Vert_{op}\,/\,\Vert A\Vert_{op}$",
    MEAN: r"mean $\Vert z-a\Vert\,/\,\Vert a\Vert$",
    "errors.relative_l2_posclamp_mean": r"mean $\Vert z-a\Vert\,/\,\Vert\max(a,10^{-8})\Vert$",
    "errors.normalizer_error.mean": r"mean $|\tau-Z|\,/\,Z$",
    "memory.fraction": "memory / memory of the exact cache",
    "traffic.fraction": "bytes a row reads / bytes that exact attention reads",
    "mass.kept.mean": "kept attention mass, mean",
}
# In captions.
WORDS = {
    HEADLINE: "Relative Frobenius error of the attention output, all scored rows stacked",
    "errors.relative_spectral_error": "Relative spectral error of the attention output, all scored "
    "rows stacked",
    MEAN: "Relative error of the attention output, mean over scored rows",
    "errors.relative_l2_posclamp_mean": "Relative error of the attention output with the positive "
    "part of the exact output in the denominator, mean over scored rows",
    "errors.normalizer_error.mean": "Error of the normalizer over the exact one, mean over scored "
    "rows",
    "memory.fraction": "memory as a part of the exact cache's",
    "traffic.fraction": "bytes that a row reads as a part of what exact attention reads",
    "mass.kept.mean": "attention mass on the kept tokens",
}
CUT = ", cut at a tenth of the mean where they would reach below"


def words(metric: str) -> str:
    """A metric's name in a caption."""
    path = metric.removeprefix("errors.").replace(".", ", ").replace("_", " ")
    return WORDS.get(metric, path[:1].upper() + path[1:])


def words_within(metric: str) -> str:
    """The same within a sentence."""
    text = words(metric)
    return text[:1].lower() + text[1:]


def bars_of(table: pandas.DataFrame, metric: str, log: bool) -> Any:
    """Lengths of error bars, None if there are none: the standard error over seeds."""
    return _lengths(standard_error(table, metric), table[metric], log)


def _lengths(errors: "pandas.Series[Any]", values: "pandas.Series[Any]", log: bool) -> Any:
    errors = errors.fillna(0.0)
    if not errors.any():
        return None
    return capped(errors, values) if log else errors


def cut(values: "pandas.Series[Any]", errors: "pandas.Series[Any]") -> str:
    """For a caption: where error bars end that have no place on a log axis, "" if all have."""
    return CUT if (errors.fillna(0.0) > 0.9 * values).any() else ""


def bars(table: pandas.DataFrame, *log: str) -> str:
    """For a caption: what bars over seeds are, and whether any is cut of the metrics `log`, whose
    axes are logarithmic."""
    ends = [cut(table[metric], standard_error(table, metric)) for metric in log]
    return f"bars: standard error of the mean over seeds{max(ends, default='')}"


def interval_bars(table: pandas.DataFrame, metric: str) -> Any:
    """Lengths of bars from <metric>_low to <metric>_high; None if there are none."""
    ends = [table[metric] - table[f"{metric}_low"], table[f"{metric}_high"] - table[metric]]
    ends = [length.fillna(0.0) for length in ends]
    return ends if any(length.any() for length in ends) else None


def interval_words(table: pandas.DataFrame) -> str:
    """For a caption: what such bars are."""
    known = table[table["groups"] > 1]
    if known.empty:
        return "no bars, a single unit each"
    return f"bars: 95 % intervals of the mean, {over(known)}"


def by_layer(cells: pandas.DataFrame, metrics: list[str]) -> pandas.DataFrame:
    """Means per layer and point, with the points' parameters as columns."""
    return means(cells, metrics, ["layer"])


def means(cells: pandas.DataFrame, metrics: list[str], by: Sequence[str] = ()) -> pandas.DataFrame:
    """Means per point with <metric>.standard_error and the points' parameters as columns."""
    table = with_params(mean_over_units(cells, metrics, by))
    for metric in metrics:
        table[f"{metric}.standard_error"] = standard_error(table, metric)
    return table


def frontier(series: pandas.DataFrame, metric: str, memory: str) -> pandas.DataFrame:
    """The points, by rising memory, with a smaller error than every point before them."""
    return series[series[metric] < series[metric].cummin().shift(fill_value=float("inf"))]


def _marked_line(
    axis: Axes, x: pandas.Series, y: pandas.Series, bars: Any, **more: Any
) -> ErrorbarContainer:
    """`bars`: as matplotlib's yerr; `edge`: the colour round markers."""
    return axis.errorbar(
        x,
        y,
        yerr=bars,
        elinewidth=0.7,
        capsize=1.5,
        markeredgecolor=more.pop("edge", "white"),
        markeredgewidth=0.4,
        **more,
    )


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
    """One line with markers and error bars."""
    table = table.sort_values(x)
    error = bars_of(table, y, axis.get_yscale() == "log") if bars else None
    return _marked_line(axis, table[x], table[y], error, color=colour, marker=marker, **more)


def interval_line(
    axis: Axes,
    table: pandas.DataFrame,
    x: str,
    y: str,
    colour: style.Colour,
    marker: str,
    **more: Any,
) -> ErrorbarContainer:
    """One line with markers, and bars from <y>_low to <y>_high."""
    table = table.sort_values(x)
    bars = interval_bars(table, y)
    return _marked_line(axis, table[x], table[y], bars, color=colour, marker=marker, **more)


def labelled_lines(
    axis: Axes,
    table: pandas.DataFrame,
    x: str,
    y: str,
    handles: dict[str, Any],
    among: pandas.DataFrame | None = None,
    error: str | None = None,
    along: str | None = None,
    **more: Any,
) -> None:
    """A line per label of the table, in the look that it has `among` the rows of a figure (default:
    the table's); fills `handles` by label. `error`: the column of the bars, default that over
    seeds; `along`: what the points are joined by, default x."""
    among = table if among is None else among
    looks, colours = style.variants(among), style.label_colours(among)
    shown = among["algorithm"].unique()
    for key, series in table.groupby(["algorithm", "label"], sort=False):
        algorithm, label = map(str, key)
        colour, marker = colours[label], style.look(algorithm, shown)[1]
        dashes, filled = looks[label]
        series = series.sort_values(along or x)
        log = axis.get_yscale() == "log"
        handles[label] = _marked_line(
            axis,
            series[x],
            series[y],
            bars_of(series, y, log) if error is None else _lengths(series[error], series[y], log),
            color=colour,
            marker=marker,
            linestyle=dashes,
            markerfacecolor=colour if filled else "white",
            edge="white" if filled else colour,
            **more,
        )
