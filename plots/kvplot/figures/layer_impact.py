"""Errors of heads after the output projection, layer by layer, a line per method.

Three panels over the layers: the error of the whole layer's output relative to that output, the
same relative to the residual stream that it is added to, and how much of the heads' errors is left
after they are added up (1: none cancels). Each method has one setting, with memory nearest to
--memory; means over seeds, then texts.
"""

from argparse import ArgumentParser, Namespace

import pandas
from matplotlib.ticker import MaxNLocator

from kvplot import style
from kvplot.figure import Figure, facts
from kvplot.results import POINT, ROUNDING, Results, ResultsError, mean_over_units, undrawn
from kvplot.units import same_units

NEEDS = ("results",)
BY = ("layer",)
MEMORY = "memory.fraction"
# Column, name of the axis, whether it is logarithmic.
PANELS = (
    ("errors.relative_output_l2", r"$\Vert\sum_h W_h e_h\Vert\,/\,\Vert\sum_h W_h a_h\Vert$", True),
    ("errors.residual_ratio", r"$\Vert\sum_h W_h e_h\Vert\,/\,\Vert x\Vert$", True),
    ("errors.cancellation", r"$\Vert\sum_h W_h e_h\Vert\,/\,\sum_h\Vert W_h e_h\Vert$", False),
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--memory",
        type=float,
        default=0.25,
        help="draw each method's setting with memory nearest to this fraction of the exact cache",
    )


def fits(results: Results) -> bool:
    return not _finished(results).empty and results.layers["layer"].nunique() > 1


def _finished(results: Results) -> pandas.DataFrame:
    layers = results.layers
    name = f"{PANELS[0][0]}.mean"
    if name not in layers:
        return layers.iloc[:0]
    return layers[(layers["status"] == "ok") & layers[name].notna()]


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    layers = _finished(results)
    if layers.empty:
        raise ResultsError(
            f"{results.path}: no finished record of a whole layer; the dump needs the output "
            "projection (wo), and the sweep all KV heads of a layer"
        )
    columns = [f"{name}.mean" for name, _, _ in PANELS if f"{name}.mean" in layers]
    columns = [name for name in columns if layers[name].notna().any()]
    same = same_units(results.layers, columns[0], ["layer"])
    layers = results.layers[same.kept]
    means = mean_over_units(layers, [*columns, MEMORY], ["layer"])
    held = mean_over_units(layers, [columns[0], MEMORY])
    held = held[held[columns[0]] >= ROUNDING]
    drawn = _nearest(means[means[columns[0]] >= ROUNDING], held, inputs.memory)
    if drawn.empty:
        raise ResultsError(f"{results.path}: every error is below {ROUNDING:g}")
    shown = [panel for panel in PANELS if f"{panel[0]}.mean" in columns]
    figure, axes = style.panels(1, len(shown), 3.0)
    looks = style.variants(drawn)
    handles = {}
    for axis, (name, title, is_log) in zip(axes[0], shown):
        for key, line in drawn.groupby(["label", "algorithm"]):
            label, algorithm = map(str, key)
            colour, marker = style.look(algorithm, drawn["algorithm"].unique())
            dashes, filled = looks[label]
            line = line.sort_values("layer")
            (handles[label],) = axis.plot(
                line["layer"],
                line[f"{name}.mean"],
                linestyle=dashes,
                marker=marker,
                color=colour,
                markerfacecolor=colour if filled else "white",
                markeredgecolor="white" if filled else colour,
                markeredgewidth=0.4,
            )
        if is_log:
            axis.set_yscale("log")
            style.plain_log(axis.yaxis)
        else:
            axis.set_ylim(0.0, 1.05)
        axis.set_xlabel("layer")
        axis.set_ylabel(title)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    style.legend_right(axes[0][-1], dict(sorted(handles.items())))
    return Figure(
        "layer_impact",
        figure,
        drawn.sort_values(["label", "layer"]),
        _caption(results, layers, drawn, inputs.memory) + same.words,
    )


def _nearest(means: pandas.DataFrame, held: pandas.DataFrame, memory: float) -> pandas.DataFrame:
    """For each label, the setting whose memory over all layers is nearest to `memory`."""
    if held.empty:
        return held
    distance = (held[MEMORY] - memory).abs()
    nearest = held.loc[distance.groupby(held["label"]).idxmin(), POINT]
    return means.merge(nearest, on=POINT)


def _caption(
    results: Results, layers: pandas.DataFrame, drawn: pandas.DataFrame, memory: float
) -> str:
    return (
        "Errors of whole layers after the output projection, means over scored rows and seeds: e "
        "the error of a head's answer, a its exact output, x the residual stream. Right: below 1 "
        "the errors of heads cancel. Of each method the setting whose memory is nearest to "
        f"{memory:g} of the exact cache's: {drawn[MEMORY].min():.3g} to {drawn[MEMORY].max():.3g}. "
        + facts(results)
        + undrawn(layers, drawn, "memory farther away", f"{PANELS[0][0]}.mean")
    )
