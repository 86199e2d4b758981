"""Keyformer appendix A.8 as attention error: the temperatures tau_init and tau_end."""

from argparse import Namespace

from matplotlib.patches import Rectangle

from kvplot import style
from kvplot.curves import by_layer, words
from kvplot.figure import Figure, facts
from kvplot.heat import heat

NEEDS = ("results",)
BY = ("layer",)
METRIC = "errors.relative_l2.mean"
PAPER = (1.0, 2.0)  # tau_init and tau_end


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.tau_init", "params.tau_end", METRIC)
    table = by_layer(results.ok, [METRIC, "memory.fraction"])
    table = table[table["params.tau_init"].notna()]
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(1, len(layers), 2.3)
    framed = ""
    for axis, layer in zip(axes[0], layers):
        here = table[table["layer"] == layer]
        fields = here.pivot(index="params.tau_init", columns="params.tau_end", values=METRIC)
        heat(axis, fields, digits="{:.3f}")
        if PAPER[0] in fields.index and PAPER[1] in fields.columns:
            corner = (fields.columns.get_loc(PAPER[1]) - 0.5, fields.index.get_loc(PAPER[0]) - 0.5)
            axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="black", linewidth=1.2))
            framed = " Framed: the paper's 1 to 2."
        axis.set_title(f"layer {layer}")
    style.outer_labels(axes, r"$\tau_{end}$", r"$\tau_{init}$")
    noise = table[f"{METRIC}.standard_error"].median()
    budgets = ", ".join(f"{value:g}" for value in sorted(table["params.budget"].unique()))
    return Figure(
        "tau",
        figure,
        table,
        f"{words(METRIC)}, of Keyformer over the temperature in the prompt and at the end, budget "
        f"{budgets} of the prompt; colours per panel.{framed} Median standard error "
        f"over seeds: {noise:.2g}. {facts(results, by=['layer'])}",
    )
