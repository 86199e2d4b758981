"""Keyformer Fig. 3a: the fraction of attention probabilities that are nearly zero, per layer."""

from argparse import Namespace
from collections.abc import Iterator

import pandas

from kvplot import style
from kvplot.figure import Figure
from kvplot.inspection import attention_of
from kvplot.results import Entry

NEEDS = ("inspection",)
MAX_TICKS = 12


def _rows(layer: Entry, head: Entry) -> Iterator[Entry]:
    attention = attention_of(head)
    sparsity = attention["sparsity"]
    rows = attention["rows"]
    yield {
        "below": "rounds to 0 in half precision",
        "fraction": sparsity["zero_in_fp16"],
        "rows": rows,
    }
    for at in sparsity["share_of_largest_at_most"]:
        yield {
            "below": f"{100 * at['threshold']:g} % of the row's largest",
            "fraction": at["fraction"],
            "rows": rows,
        }
    for at in sparsity["probability_at_most"]:
        yield {
            "below": f"probability {at['threshold']:g}",
            "fraction": at["fraction"],
            "rows": rows,
        }


def draw(inputs: Namespace) -> Figure:
    table = inputs.inspection.table(_rows)
    kinds = list(dict.fromkeys(table["below"]))
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(1, 1, 2.7)
    axis = axes[0][0]
    for kind, colour, marker in zip(kinds, style.ordered(len(kinds)), "osD^v<>P"):
        here = table[table["below"] == kind]
        mean = here.groupby("layer")["fraction"].mean().reindex(layers)
        axis.plot(
            layers,
            100 * mean,
            color=colour,
            marker=marker,
            label=kind,
            markeredgecolor="white",
            markeredgewidth=0.4,
        )
        axis.plot(
            here["layer"],
            100 * here["fraction"],
            linestyle="none",
            color=colour,
            marker=marker,
            alpha=0.3,
            markeredgewidth=0,
            markersize=3.5,
        )
    if len(layers) <= MAX_TICKS:
        axis.set_xticks(layers)
    axis.set_xlabel("layer")
    axis.set_ylabel("probabilities below, %")
    axis.set_ylim(0, 100)
    style.legend_right(axis)
    return Figure(
        "sparsity",
        figure,
        pandas.DataFrame(table),
        "Part of the visible attention probabilities that is at most the threshold named: "
        f"mean over {table['rows'].max()} rows and the query heads of a group; faint: "
        f"single KV heads. {inputs.inspection.facts()}",
    )
