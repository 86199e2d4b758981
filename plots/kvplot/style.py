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

# Okabe and Ito's colours and three dark ones, distinct with every common colour blindness; black
# is kept for exact.
_BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_PINK, _SKY, _BROWN, _GREY, _BLACK = "#CC79A7", "#56B4E9", "#8C510A", "#7F7F7F", "#000000"
_INDIGO = "#332288"
KEYS, VALUES, REFERENCE = _BLUE, _ORANGE, _BLACK

_LOOK = {
    "exact": (_BLACK, "*"),
    "subgen": (_RED, "o"),
    "kcenter": (_ORANGE, "s"),
    "uniform": (_BLUE, "D"),
    "balancekv": (_GREEN, "P"),
    "balancekv_prefill": (_GREEN, "X"),
    "softmax_balance": (_GREEN, "d"),
    "h2o": (_PINK, "^"),
    "key_attention": (_INDIGO, "v"),
    "keyformer": (_INDIGO, ">"),
    "snapkv": (_SKY, "<"),
    "pyramidkv": (_SKY, "p"),
    "streaming_llm": (_SKY, "h"),
    "window": (_BROWN, "8"),
    "dilated_window": (_BROWN, "d"),
    "oracle_topk": (_GREY, "P"),
}
_SPARE = [(c, m) for m in ("o", "s", "^", "D") for c in (_GREY, _BLUE, _RED, _GREEN, _ORANGE)]
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
HEAT = LinearSegmentedColormap.from_list("heat", ["#F7FBFF", "#6BAED6", "#08306B"])


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
