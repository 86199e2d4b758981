"""Dots, lines and legends of numbers with intervals, for pictures of the shipped tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pandas
from matplotlib import pyplot
from matplotlib.axes import Axes

from kvplot import style
from kvplot.results import HEADLINE, ResultsError

TABLES = Path(__file__).resolve().parents[1] / "tables"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#7F7F7F", "#56B4E9")
# Lines over the memory and over decoded tokens: methods of every family, no two of one colour.
LINES = {
    "tova": ("#0072B2", "o", "-"),
    "h2o": ("#D55E00", "^", "-"),
    "snapkv": ("#009E73", "s", "-"),
    "streaming_llm": ("#7F7F7F", "h", "-"),
    "uniform": ("#000000", "D", "--"),
    "expected_attention": ("#CC79A7", "v", "-"),
    "knorm": ("#E69F00", "P", "-"),
    "kcenter": ("#56B4E9", "X", "-"),
}
# Metrics that pictures compare: words, colour, marker.
RANKED = {
    "outputs.residual_ratio.p99": ("after W_O / residual stream, 99th percentile", "#000000", "o"),
    HEADLINE: ("Frobenius error", "#0072B2", "s"),
    "errors.relative_spectral_error": ("spectral error", "#009E73", "^"),
    "errors.relative_l2.mean": ("mean error of a row", "#D55E00", "D"),
}


class Tables:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> pandas.DataFrame:
        path = self.folder / f"{name}.csv"
        try:
            return pandas.read_csv(path)
        except (OSError, ValueError) as error:
            raise ResultsError(f"{path}: {error}; a checkout has it under plots/tables") from error


def dots(
    axis: Any,
    rows: pandas.DataFrame,
    value: str,
    colours: Sequence[str],
    ends: str = "",
    shift: float = 0.0,
    marker: str = "o",
) -> None:
    """A dot with its interval per row, the first one on top. Columns: `value`, `ends`_low and
    _high."""
    found = rows[[value, *(f"{ends or value}_{end}" for end in ("low", "high"))]].to_numpy()
    for place, ((middle, low, high), colour) in enumerate(zip(found, colours)):
        if numpy.isnan(middle):
            continue
        axis.hlines(place + shift, low, high, color=colour, linewidth=1.0)
        axis.plot(middle, place + shift, marker, color=colour, markersize=3.6)


def name_rows(axis: Any, names: Sequence[str]) -> None:
    axis.set_yticks(range(len(names)), names, fontsize=6.5)
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(len(names) - 0.4, -0.6)


def ratio_axis(axis: Any, label: str = "") -> None:
    axis.set_xscale("log")
    style.plain_log(axis.xaxis)
    axis.axvline(1.0, color="black", linewidth=0.8)
    axis.set_xlabel(label)


def handles_of(looks: dict[str, str]) -> dict[str, Any]:
    return {
        name: pyplot.Line2D([], [], linestyle="none", marker="o", color=colour)
        for name, colour in looks.items()
    }


def line_of_intervals(
    axis: Axes, at: "pandas.Series[Any]", rows: pandas.DataFrame, column: str, **looks: Any
) -> None:
    """Means of a column against `at`, with bars from <column>_low to <column>_high."""
    ends = [rows[column] - rows[f"{column}_low"], rows[f"{column}_high"] - rows[column]]
    axis.errorbar(at, rows[column], yerr=ends, linewidth=0.8, **looks)
