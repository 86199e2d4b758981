"""Where in the model a method errs: a field per layer and KV head, at about equal memory."""

from argparse import Namespace

from kvplot import style
from kvplot.curves import words
from kvplot.figure import Figure, always_kept, facts
from kvplot.figures import ecdf
from kvplot.heat import heat
from kvplot.results import Results, ResultsError, mean_over_units

NEEDS = ("results",)
METRIC, MEMORY = "errors.relative_l2.mean", "memory.fraction"
MAX_UNITS = 36
add_options = ecdf.add_options


def fits(results: Results) -> bool:
    units = results.ok[["layer", "kv_head"]].drop_duplicates()
    return 1 < len(units) <= MAX_UNITS and len(ecdf.at_memory(results, 0.35)) > 1


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need(METRIC, MEMORY)
    points = ecdf.at_memory(results, inputs.memory)
    if points.empty:
        raise ResultsError(f"{results.path}: no setting has a memory near {inputs.memory:g}")
    table = mean_over_units(results.whole, [METRIC, MEMORY], ["layer", "kv_head"])
    table = table.merge(points[["label", "point"]], on=["label", "point"])
    table["unit"] = [style.unit(*head) for head in zip(table["layer"], table["kv_head"])]
    columns = list(dict.fromkeys(table.sort_values(["layer", "kv_head"])["unit"]))
    fields = table.pivot(index="label", columns="unit", values=METRIC)
    fields = fields.loc[list(points["label"]), columns]
    memory = points.set_index("label")[MEMORY]
    fields.index = [f"{label} ({memory[label]:.2f})" for label in fields.index]
    figure, axes = style.panels(1, 1, 1.1 + 0.2 * len(fields))
    image = heat(axes[0][0], fields, digits="{:.1g}" if style.narrow() else "{:.2g}")
    axes[0][0].set_xlabel("layer and KV head")
    if style.narrow():  # the numbers say it
        axes[0][0].tick_params(axis="x", rotation=90)
    else:
        figure.colorbar(image, ax=axes[0][0], pad=0.01).set_label("relative error, mean")
    return Figure(
        "layer_head",
        figure,
        table.sort_values(["label", "layer", "kv_head"]),
        f"{words(METRIC)} and seeds, per layer (L) and KV head (h); of every method the setting "
        f"nearest to memory {inputs.memory:g} (own memory in brackets), ordered by the "
        f"mean over units. {facts(results)}{always_kept(results.ok)}"
        f"{ecdf.left_out(results, points, inputs.memory)}",
    )
