"""Attention mass of the kept tokens over the budget, added the way plots/README.md says."""

from argparse import Namespace
from typing import Any

from kvplot import style
from kvplot.curves import by_layer, labelled_lines
from kvplot.figure import Figure, facts

NEEDS = ("results",)
BY = ("layer",)
METRIC = "mass.kept.mean"


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.budget", METRIC)
    table = by_layer(results.ok, [METRIC])
    table = table[table["params.budget"].notna()]
    figure, axes = style.panels(1, 1, 2.4)
    handles: dict[str, Any] = {}
    layer = table["layer"].min()
    labelled_lines(axes[0][0], table[table["layer"] == layer], "params.budget", METRIC, handles)
    style.outer_labels(axes, "cache / prompt", "kept mass")
    style.legend_right(axes[0][0], handles)
    return Figure(
        "kept_mass",
        figure,
        table,
        "Attention mass on the kept tokens, means over scored rows, against the budget; layer "
        f"{layer}. {facts(results, by=['layer'])}",
    )
