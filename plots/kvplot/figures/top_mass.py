"""Keyformer Fig. 3b: attention mass of the top x % of tokens."""

from argparse import Namespace
from collections.abc import Iterator

from kvplot import style
from kvplot.figure import Figure
from kvplot.inspection import attention_of
from kvplot.results import Entry

NEEDS = ("inspection",)


def _rows(layer: Entry, head: Entry) -> Iterator[Entry]:
    attention = attention_of(head)
    for at in attention["top_mass"]:
        yield {
            "percent": at["percent"],
            "per_query": at["per_query"],
            "accumulated": at["accumulated"],
            "rows": attention["rows"],
        }


def draw(inputs: Namespace) -> Figure:
    table = inputs.inspection.table(_rows)
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(1, 2, 2.7, sharey=True)
    for axis, ranking, words in zip(
        axes[0], ("per_query", "accumulated"), ("ranked in each row", "ranked by the sum over rows")
    ):
        for layer, colour, marker in zip(layers, style.ordered(len(layers)), "osD^v<>P" * 20):
            mean = table[table["layer"] == layer].groupby("percent")[ranking].mean()
            axis.plot(
                mean.index,
                mean,
                color=colour,
                marker=marker,
                label=f"layer {layer}",
                markeredgecolor="white",
                markeredgewidth=0.4,
            )
        mean = table.groupby("percent")[ranking].mean()
        axis.plot(mean.index, mean, color="black", linestyle="--", label="mean")
        axis.plot(
            [40],
            [0.9],
            marker="*",
            color="black",
            markersize=9,
            linestyle="none",
            label="Keyformer: 40 %, 0.9",
        )
        axis.set_xlabel("top tokens, % of the visible")
        axis.set_title(words)
        axis.set_ylim(0, 1.02)
    axes[0][0].set_ylabel("attention mass")
    style.legend_right(axes[0][1])
    return Figure(
        "top_mass",
        figure,
        table,
        "Attention mass of the top tokens: mean over the last "
        f"{table['rows'].max()} rows, query heads and KV heads. Star: the paper's "
        f"caption, for its three models. {inputs.inspection.facts()}",
    )
