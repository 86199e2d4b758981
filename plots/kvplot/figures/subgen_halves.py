"""SubGen's two halves: the answer's error over memory with neither, or one, of its sums exact."""

from argparse import Namespace

from kvplot import style
from kvplot.curves import NAMES, WORDS, bars, by_layer, line, words
from kvplot.figure import Figure, facts
from kvplot.figures.settings import names
from kvplot.results import ResultsError

NEEDS = ("results",)
BY = ("layer",)
METRIC, MEMORY = "errors.relative_l2.mean", "memory.fraction"
LABELS = ("both sampled", "exact normalizer", "exact numerator")


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.numerator", "params.normalizer", METRIC)
    table = by_layer(results.ok, [METRIC, MEMORY])
    table = table[table["label"].isin(LABELS)]
    if table.empty:
        raise ResultsError(f"{results.path}: no finished cell is labelled {' or '.join(LABELS)}")
    table = table.assign(setting=names(table), error=table[METRIC], memory=table[MEMORY])
    table = table.sort_values(["layer", "label", "params.s", "params.t"])
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(1, len(layers), 2.5)
    handles = {}
    for axis, layer in zip(axes[0], layers):
        axis.set_xscale("log")
        axis.set_yscale("log")
        for label, colour, marker, dashes in zip(LABELS, style.ordered(3), "os^", ("-", "--", ":")):
            here = table[(table["layer"] == layer) & (table["label"] == label)]
            handles[label] = line(axis, here, MEMORY, METRIC, colour, marker, linestyle=dashes)
        axis.axvline(1.0, color="black", linewidth=0.7, linestyle=":")
        style.plain_log(axis.xaxis)
        style.plain_log(axis.yaxis)
        axis.set_title(f"layer {layer}")
    style.outer_labels(axes, NAMES[MEMORY], NAMES[METRIC])
    style.legend_above(axes[0][0], handles)
    sampled = table[table["label"] == LABELS[0]]
    slots, samples = sampled["params.s"], table[table["label"] == LABELS[2]]["params.t"]
    fixed = ", ".join(f"{t:g}" for t in sorted(sampled["params.t"].dropna().unique()))
    return Figure(
        "subgen_halves",
        figure,
        table,
        f"{words(METRIC)}, of SubGen against {WORDS[MEMORY]}: along a line {slots.min():g} to "
        f"{slots.max():g} slots with {fixed} samples per cluster, and with the exact numerator "
        f"{samples.min():g} to {samples.max():g} samples per cluster; dotted: the exact cache; "
        f"{bars(table, METRIC)}. {facts(results, by=['layer'])}",
    )
