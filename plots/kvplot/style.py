"""One look for all figures: an algorithm keeps its colour and marker wherever it appears."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import matplotlib
import numpy

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.mathtext import MathTextParser
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from kvplot.looks import COLOURS
from kvplot.looks import LINES as LINES
from kvplot.looks import Dashes as Dashes
from kvplot.looks import label_colours as label_colours
from kvplot.looks import look as look
from kvplot.looks import variants as variants
from kvplot.results import ResultsError

Colour = str | tuple[float, float, float, float]

# Widths of a column and of a page in two-column papers, inches.
COLUMN = 3.35
PAGE = 6.9
WIDTHS = {"column": COLUMN, "page": PAGE}
MAX_PANELS = 6
LONGEST_FORMULA = 200  # characters; those of figures are far shorter
_width = PAGE

KEYS, VALUES, REFERENCE = "#0072B2", "#E69F00", "#000000"
# Colours of unordered things that are not methods: the same in every figure, black first.
SERIES = list(COLOURS)
# Greatest height of a legend in inches, and its greatest fraction of the width next to axes.
_MAX_LEGEND = 4.0
_MAX_BESIDE = 0.42


def ordered(count: int) -> list[Colour]:
    """Colours for `count` ordered things (layers, settings), dark to light, without yellow."""
    ramp = matplotlib.colormaps["viridis"]
    return [ramp(0.85 * place / max(count - 1, 1)) for place in range(count)]


def unit(layer: int, head: int) -> str:
    """ "L15 h1": a KV head of a layer."""
    return f"L{layer} h{head}"


def shortened(label: str) -> str:
    """A label that others wrote, as text of a figure: at most 40 characters, and no formula."""
    text = label if len(label) <= 40 else f"{label[:37]}..."
    return text.replace("$", r"\$")


@lru_cache(maxsize=4096)
def _is_formula(text: str) -> bool:
    try:
        for line in text.splitlines():  # as matplotlib draws it
            MathTextParser("path").parse(line)
    except (ValueError, RecursionError):
        return False
    return True


def literal(artist: Artist) -> None:
    """Has every text below the artist drawn as it stands where it is no formula: names that others
    gave may hold dollar signs."""
    for text in artist.findobj(Text):
        words = text.get_text()
        if words.count("$") > 1 and not (len(words) <= LONGEST_FORMULA and _is_formula(words)):
            text.set_parse_math(False)


# One hue from pale to dark: prints in grey, safe with every colour blindness.
HEAT_COLOURS = ["#F7FBFF", "#6BAED6", "#08306B"]
HEAT = LinearSegmentedColormap.from_list("heat", HEAT_COLOURS)


def dark(fraction: float) -> bool:
    """Whether text on HEAT at this fraction of its range should be white."""
    return fraction > 0.55


class _PlainTicks(LogLocator):
    """Ticks at round numbers, as many as the axis has room for and at least two."""

    CHOICES = (
        (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9),
        (1, 2, 3, 4, 6, 8),
        (1, 2, 3, 5),
        (1, 2, 5),
        (1, 3),
        (1,),
    )

    def _room(self) -> int:
        box = self.axis.axes.bbox
        across = self.axis.axis_name == "x"
        length = (box.width if across else box.height) / self.axis.get_figure().dpi
        return int(numpy.clip(length / (0.3 if across else 0.2), 3, 6))

    def tick_values(self, vmin: float, vmax: float) -> Any:
        vmin, vmax = sorted((vmin, vmax))
        room = self._room()
        for subs in self.CHOICES:
            self.set_params(subs=subs, numticks=20)
            ticks = super().tick_values(vmin, vmax)
            seen = int(((ticks >= vmin) & (ticks <= vmax)).sum())
            if 2 <= seen <= room:
                return ticks
            if seen < 2:
                return MaxNLocator(3, steps=[1, 2, 5, 10]).tick_values(vmin, vmax)
        return LogLocator(numticks=room).tick_values(vmin, vmax)


def plain_log(axis: Axis) -> None:
    """A logarithmic x or y axis with plain numbers."""
    axis.set_major_locator(_PlainTicks())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


@contextmanager
def width(name: str) -> Iterator[None]:
    """Figures made inside are as wide as WIDTHS[name]."""
    global _width
    before, _width = _width, WIDTHS[name]
    try:
        yield
    finally:
        _width = before


def narrow() -> bool:
    """Whether figures are made for one column of a paper."""
    return _width == COLUMN


def panels(
    rows: int, columns: int, height: float, *, across: int = 0, **more: Any
) -> tuple[pyplot.Figure, Any]:
    """A figure in this style with a grid of axes, [rows][columns], `height` inches high.

    In one column there are at most two panels side by side: a single row of more stands one below
    the other, or in pairs, and a larger grid with more columns than rows lies on its side; the axes
    keep their places in the array. `across`: how many stand side by side in one column.
    """
    if columns > MAX_PANELS:
        raise ResultsError(
            f"{columns} panels side by side are unreadable: choose layers, at most "
            f"{MAX_PANELS}, with --layers"
        )
    apply()
    shape, turned = (rows, columns), False
    count = rows * columns
    if narrow() and (across or (rows == 1 and columns > 2)):
        across = across or (1 if columns <= 3 else 2)
        shape = (-(-count // across), across)
        if rows == 1 and more.get("sharey") == "row":
            more["sharey"] = True
    elif narrow() and columns > max(rows, 2):
        shape, turned = (columns, rows), True
    if shape != (rows, columns):
        more.pop("width_ratios", None)
        height = shape[0] * min(height / rows, 2.1 if count == 2 else 1.55)
        if turned:
            for name in ("sharex", "sharey"):
                shared = more.get(name, False)
                more[name] = {"row": "col", "col": "row"}.get(shared, shared)
    figure, axes = pyplot.subplots(
        *shape, figsize=(_width, height), squeeze=False, layout="constrained", **more
    )
    if turned:
        axes = axes.T
    elif shape != (rows, columns):
        for spare in axes.flat[count:]:
            spare.remove()
        axes = axes.flat[:count].reshape(rows, columns)
    return figure, axes


def outer_labels(axes: Any, x: str | None = None, y: str | Sequence[str] | None = None) -> None:
    """Labels of axes that all panels share: x below the lowest panels, y left of the first ones.

    y: one text, or one for each row of the array."""
    rows, columns = axes.shape
    grid = axes[0][0].get_gridspec()
    turned = rows > 1 and (grid.nrows, grid.ncols) != (rows, columns)
    lowest: dict[int, Axes] = {}
    for axis in axes.flat:
        lowest[axis.get_subplotspec().colspan.start] = axis
    if x is not None:
        below = list(lowest.values())
        for axis in below[len(below) // 2 : len(below) // 2 + 1] if len(below) % 2 else below:
            axis.set_xlabel(x)
    if y is None:
        return
    texts = [y] * rows if isinstance(y, str) else list(y)
    if turned:
        for row, text in zip(axes, texts):
            row[columns // 2].set_ylabel(text)
        return
    left = [a for a in axes.flat if a.get_subplotspec().colspan.start == 0]
    if rows == 1:
        texts *= len(left)
        if len(left) % 2 and len(left) > 1:
            left = left[len(left) // 2 : len(left) // 2 + 1]
    for axis, text in zip(left, texts):
        axis.set_ylabel(text)


def legend_right(
    axis: Axes, handles: Mapping[str, Any] | None = None, text: Callable[[str], str] = str
) -> None:
    """A legend next to the axis; in one column, and where it would be higher than the figure or
    take the axes' width, above all panels. Shows `handles` by name, or the lines of the axis;
    `text` replaces a name."""
    shown, names = axis.get_legend_handles_labels()
    if handles is not None:
        shown, names = list(handles.values()), list(handles)
    figure = axis.get_figure()
    wide, high = _legend_size(map(text, names), 1)
    if narrow() or high > figure.get_figheight() or wide > _MAX_BESIDE * _width:
        legend_above(axis, dict(zip(names, shown)), text)
        return
    axis.legend(
        shown,
        list(map(text, names)),
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        borderaxespad=0.0,
    )


def _legend_size(names: Iterable[str], columns: int) -> tuple[float, float]:
    """Width and height of a legend, inches."""
    names = list(names)
    size = pyplot.rcParams["legend.fontsize"]
    longest = max(map(len, names), default=1)
    return columns * (0.45 + longest * size * 0.0058), -(-len(names) // columns) * size * 0.0197


def grow(figure: pyplot.Figure, above: float = 0.0, below: float = 0.0) -> None:
    """Makes a figure higher, by inches that the layout leaves free above, or may use below."""
    engine, height = figure.get_layout_engine(), figure.get_figheight()
    free = (1.0 - engine.get()["rect"][3]) * height + above
    height += above + below
    figure.set_figheight(height)
    engine.set(rect=(0.0, 0.0, 1.0, 1.0 - free / height))


def legend_above(axis: Axes, handles: Mapping[str, Any], text: Callable[[str], str] = str) -> None:
    """A legend above all panels of the axis' figure, which grows by its height. ResultsError if it
    were higher than a reader can use."""
    figure = axis.get_figure()
    names = list(map(text, handles))
    fit = int(figure.get_figwidth() / _legend_size(names, 1)[0])
    columns = max(1, min(len(handles), fit, 6))
    _, high = _legend_size(names, columns)
    if high > _MAX_LEGEND:
        raise ResultsError(
            f"a legend of {len(handles)} entries is unreadable: choose some with --labels PATTERN"
        )
    room = int((figure.get_figwidth() - 0.45) / (pyplot.rcParams["legend.fontsize"] * 0.0058))
    legend = figure.legend(
        list(handles.values()),
        [name if len(name) <= room else f"{name[: room - 3]}..." for name in names],
        loc="upper center",
        borderaxespad=0.2,
        ncols=columns,
        columnspacing=1.0,
        handletextpad=0.5,
    )
    literal(legend)
    height = legend.get_window_extent(figure.canvas.get_renderer()).height / figure.dpi
    grow(figure, above=height)


def apply() -> None:
    small = 1 if narrow() else 0
    pyplot.rcParams.update(
        {
            "font.family": "serif",
            "font.serif": ["STIXGeneral", "DejaVu Serif"],
            "mathtext.fontset": "stix",
            "font.size": 9 - small,
            "axes.labelsize": 9 - small,
            "axes.titlesize": 9 - small,
            "legend.fontsize": 8 - small,
            "xtick.labelsize": 8 - small,
            "ytick.labelsize": 8 - small,
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
            "svg.fonttype": "path",  # the same picture where its fonts are missing
            "svg.hashsalt": "kvplot",  # the same figure, the same bytes
            "savefig.dpi": 200,
        }
    )
