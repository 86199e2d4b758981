"""Eviction against quantisation at equal bytes: error against memory, one colour per storage.

Every setting is a point in its storage's colour, with its method's marker, edged in the method's
colour. A line steps, of one storage, along the least error for at most that memory, whatever the
method; the grey line is the least error of all.
"""

import textwrap
from argparse import ArgumentParser, Namespace
from typing import Any

import pandas
from matplotlib.axes import Axes

from kvplot import storages, style
from kvplot.curves import NAMES, WORDS, frontier, labelled_lines, words
from kvplot.figure import Figure, facts
from kvplot.figures.error_vs_memory import ROUNDING
from kvplot.results import HEADLINE, Results, ResultsError, mean_over_units, undrawn

NEEDS = ("results",)
MEMORY = "memory.fraction"
SHARED = "memory.shared_bytes"
ACROSS = 4  # panels of storages side by side


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--metric", default=HEADLINE, metavar="PATH", help=f"of the error; default {HEADLINE}"
    )
    parser.add_argument(
        "--panels",
        choices=["layer", "storage"],
        help="one panel per layer instead of the mean over all units, in files "
        "storage_map_by_layer; or one panel per storage with a line per method, at most "
        f"{2 * ACROSS} storages",
    )


def fits(results: Results) -> bool:
    """Where what is kept was written by more than one codec, over some range of memory."""
    cells = results.ok
    written = {storage for _, storage in storages.of_labels(cells).values()}
    return len(written) > 2 and cells[MEMORY].nunique() > 2


def draw(inputs: Namespace) -> Figure:
    results: Results = inputs.results
    metric = inputs.metric
    results.need(metric)
    by = [inputs.panels] if inputs.panels == "layer" else []
    points = mean_over_units(results.frame, [metric, MEMORY], by)
    labels = storages.of_labels(results.ok)
    points["storage"] = [labels[label][1] for label in points["label"]]
    drawn = points[points[metric] >= ROUNDING]
    if drawn["storage"].nunique() < 2:
        raise ResultsError(f"{results.path}: no two storages have an error above {ROUNDING:g}")
    if inputs.panels == "storage":
        return _by_storage(results, metric, points, drawn, labels)
    kinds = storages.Drawn(drawn["storage"])
    methods = storages.methods(labels, drawn)
    looks = {label: style.look(name, set(methods.values())) for label, name in methods.items()}
    panels = sorted(drawn[by[0]].unique()) if by else [None]
    figure, axes = style.panels(1, len(panels), 3.5, sharey=True)
    for axis, panel in zip(axes[0], panels, strict=True):
        shown = drawn if panel is None else drawn[drawn[by[0]] == panel]
        _draw_panel(axis, shown, metric, kinds, looks)
        if panel is not None:
            axis.set_title(f"layer {panel}")
    handles = {labels[label][0]: storages.method_handle(*look) for label, look in looks.items()}
    style.outer_labels(axes, NAMES[MEMORY], NAMES.get(metric, metric))
    style.legend_right(axes[0][-1], dict(sorted(handles.items())) | kinds.handles())
    text = (
        f"{words(metric)}, against {WORDS[MEMORY]}, which counts the bytes of the encoding. Marks: "
        "every setting, filled with its storage's colour. Lines: of one storage the least error "
        "for at most that memory, whatever the method, so that they are flat up to the next "
        "setting; grey: of all storages. "
        + _shared(results.ok, labels)
        + facts(results, results.ok, by)
        + undrawn(results.ok, drawn, "", metric)
    )
    return Figure(
        "storage_map" + "".join(f"_by_{column}" for column in by),
        figure,
        points.sort_values([*by, "storage", "label", MEMORY]),
        text,
    )


def _by_storage(
    results: Results,
    metric: str,
    points: pandas.DataFrame,
    drawn: pandas.DataFrame,
    labels: dict[str, tuple[str, str]],
) -> Figure:
    """A panel per storage; a line per method, the same in all panels, over the least error of all
    storages and methods."""
    names = sorted(drawn["storage"].unique(), key=lambda name: (name != storages.FLOAT, name))
    whole, drawn = drawn, drawn.assign(label=[labels[label][0] for label in drawn["label"]])
    if len(names) > 2 * ACROSS:
        raise ResultsError(
            f"{results.path}: {len(names)} storages, and a figure has at most {2 * ACROSS} panels: "
            "choose some with --labels PATTERN"
        )
    rows = 1 + (len(names) > ACROSS)
    across = -(-len(names) // rows)
    figure, axes = style.panels(rows, across, 2.6 if rows == 1 else 4.4, sharex=True, sharey=True)
    for spare in axes.flat[len(names) :]:
        spare.set_axis_off()
    handles: dict[str, Any] = {}
    for axis, storage in zip(axes.flat, names):
        axis.set_xscale("log")
        axis.set_yscale("log")
        _steps(axis, drawn, metric, color="0.8", linewidth=4.0, zorder=0)
        own = drawn[drawn["storage"] == storage].assign(bars=0.0)
        labelled_lines(axis, own, MEMORY, metric, handles, drawn, error="bars")
        words_of = storage.removeprefix("K and V ").replace(" rotate=hadamard", ", rotated")
        axis.set_title("16 bits" if storage == storages.FLOAT else textwrap.fill(words_of, 22))
        style.plain_log(axis.xaxis)
        style.plain_log(axis.yaxis)
    handles["least of all panels"] = style.pyplot.Line2D([], [], color="0.8", linewidth=4.0)
    style.outer_labels(axes, "memory / exact cache", NAMES.get(metric, metric))
    style.legend_above(axes[0][0], handles)
    return Figure(
        "storage_map_by_storage",
        figure,
        points.sort_values(["storage", "label", MEMORY]),
        f"{words(metric)}, against {WORDS[MEMORY]}, which counts the bytes of the encoding: a "
        "panel per storage, a line per method. Where a line touches the grey one, nothing here has "
        "a lower error for as many bytes. "
        + _shared(results.ok, labels)
        + facts(results)
        + undrawn(results.ok, whole, "", metric),
    )


def _shared(cells: pandas.DataFrame, labels: dict[str, tuple[str, str]]) -> str:
    """Bytes of every storage that the memory leaves out: its codecs keep them once per KV head."""
    if SHARED not in cells:
        return ""
    part = pandas.to_numeric(cells[SHARED]) / pandas.to_numeric(cells["memory.exact_bytes"])
    of = cells["label"].map(lambda label: labels[label][1])
    shares = part.groupby(of).max()
    counted = [f"{name} {share:.2g}" for name, share in shares.items() if share >= 0.001]
    if not counted:
        return ""
    return (
        "Not counted, from a thousandth on, what codecs keep once per KV head for any number of "
        f"tokens (rotations and tables), as a part of the exact cache here: {', '.join(counted)}. "
    )


def _draw_panel(
    axis: Axes,
    points: pandas.DataFrame,
    metric: str,
    kinds: storages.Drawn,
    looks: dict[str, tuple[str, str]],
) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    _steps(axis, points, metric, color="0.8", linewidth=4.0, zorder=0)
    for storage, colour in kinds.colours.items():
        series = points[points["storage"] == storage]
        if series.empty:
            continue
        for label, part in series.groupby("label"):
            axis.plot(
                part[MEMORY],
                part[metric],
                linestyle="none",
                markerfacecolor=colour,
                alpha=0.8,
                **storages.mark(*looks[str(label)]),
            )
        _steps(axis, series, metric, color=colour, linestyle=kinds.dashes[storage])
    axis.axvline(1.0, color="black", linewidth=0.7, linestyle=":", zorder=0)
    style.plain_log(axis.xaxis)
    style.plain_log(axis.yaxis)


def _steps(axis: Axes, points: pandas.DataFrame, metric: str, **more: Any) -> None:
    """The least error for at most that memory, up to the most memory of the points."""
    least = frontier(points.sort_values([MEMORY, metric]), metric, MEMORY)
    memory = [*least[MEMORY], points[MEMORY].max()]
    axis.plot(memory, [*least[metric], least[metric].min()], drawstyle="steps-post", **more)
