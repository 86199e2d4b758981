"""One look for all figures: an algorithm keeps its colour and marker wherever it appears."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import pandas

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from kvplot.results import ResultsError

Colour = str | tuple[float, float, float, float]
Dashes = str | tuple[int, tuple[int, ...]]

# Widths of a column and of a page in two-column papers, inches.
COLUMN = 3.35
PAGE = 6.9
MOST_PANELS = 6

KEYS, VALUES, REFERENCE = "#0072B2", "#E69F00", "#000000"

# No two colours are alike, with common colour vision or without: found by a search for the largest
# smallest distance, which tests/plots/style_test.py computes.
_LOOK = {
    "exact": ("#000000", "*"),
    "subgen": ("#DF2579", "o"),
    "kcenter": ("#F1B961", "s"),
    "uniform": ("#5300FF", "D"),
    "balancekv": ("#1F513B", "P"),
    "balancekv_prefill": ("#27D9CC", "X"),
    "softmax_balance": ("#95D299", "d"),
    "h2o": ("#C554B5", "^"),
    "key_attention": ("#770599", "v"),
    "keyformer": ("#88026F", ">"),
    "snapkv": ("#B7A5FF", "<"),
    "pyramidkv": ("#9850E8", "p"),
    "streaming_llm": ("#CACC02", "h"),
    "window": ("#CB6900", "8"),
    "dilated_window": ("#504A04", "d"),
    "oracle_topk": ("#9F834E", "P"),
}
# Of algorithms that have no colour of their own: markers tell them apart.
_SPARE = [
    (c, m) for m in ("o", "s", "^", "D") for c in ("#7F7F7F", "#0072B2", "#D55E00", "#009E73")
]
_LINES: tuple[Dashes, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))


def look(algorithm: str, shown: Iterable[str] = ()) -> tuple[str, str]:
    """Colour and marker of an algorithm; one that has none of its own gets one by its place among
    the unknown ones of `shown`."""
    if algorithm in _LOOK:
        return _LOOK[algorithm]
    unknown = sorted({name for name in shown if name not in _LOOK} | {algorithm})
    return _SPARE[unknown.index(algorithm) % len(_SPARE)]


def variants(table: pandas.DataFrame) -> dict[str, tuple[Dashes, bool]]:
    """Line style and filled (or hollow) marker of every label: an algorithm that stands under
    several labels keeps its colour and marker, and its labels differ in these."""
    found: dict[str, tuple[Dashes, bool]] = {}
    for _, labels in table.groupby("algorithm")["label"]:
        for place, label in enumerate(dict.fromkeys(labels)):
            found[label] = (_LINES[place % len(_LINES)], place == 0)
    return found


def ordered(count: int) -> list[Colour]:
    """Colours for `count` ordered things (layers, settings), dark to light, without yellow."""
    ramp = matplotlib.colormaps["viridis"]
    return [ramp(0.85 * place / max(count - 1, 1)) for place in range(count)]


# One hue from pale to dark: prints in grey, safe with every colour blindness.
HEAT_COLOURS = ["#F7FBFF", "#6BAED6", "#08306B"]
HEAT = LinearSegmentedColormap.from_list("heat", HEAT_COLOURS)


def dark(fraction: float) -> bool:
    """Whether text on HEAT at this fraction of its range should be white."""
    return fraction > 0.55


def plain_log(axis: Axis, subs: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """A logarithmic x or y axis with plain numbers."""
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def panels(
    rows: int, columns: int, height: float, width: float = PAGE, **more: Any
) -> tuple[pyplot.Figure, Any]:
    """A figure in this style with a grid of axes, [rows][columns]."""
    if columns > MOST_PANELS:
        raise ResultsError(
            f"{columns} panels side by side are unreadable: choose layers, at most "
            f"{MOST_PANELS}, with --layers"
        )
    apply()
    return pyplot.subplots(
        rows, columns, figsize=(width, height), squeeze=False, layout="constrained", **more
    )


def legend_right(axis: Axes, handles: Mapping[str, Any] | None = None) -> None:
    """A legend beside the axis: of `handles` by name, or of what is drawn in it."""
    shown, names = axis.get_legend_handles_labels()
    if handles is not None:
        shown, names = list(handles.values()), list(handles)
    axis.legend(shown, names, loc="upper left", bbox_to_anchor=(1.02, 1.0), borderaxespad=0.0)


def apply() -> None:
    pyplot.rcParams.update(
        {
            "font.family": "serif",
            "font.serif": ["STIXGeneral", "DejaVu Serif"],
            "mathtext.fontset": "stix",
            "font.size": 9,
            "axes.labelsize": 9,
            "axes.titlesize": 9,
            "legend.fontsize": 8,
            "xtick.labelsize": 8,
            "ytick.labelsize": 8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.linewidth": 0.4,
            "grid.alpha": 0.35,
            "axes.axisbelow": True,
            "lines.linewidth": 1.1,
            "lines.markersize": 4.5,
            "legend.frameon": False,
            "pdf.fonttype": 42,
            "savefig.dpi": 200,
        }
    )
