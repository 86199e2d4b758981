"""Keyformer eq. 8: number of tokens over which a head's attention is spread, per layer and head."""

from argparse import Namespace
from collections.abc import Iterator

import numpy

from kvplot import style
from kvplot.figure import Figure
from kvplot.results import Entry

NEEDS = ("inspection",)


def _rows(layer: Entry, head: Entry) -> Iterator[Entry]:
    attention = head["attention"]
    for query in attention["per_query_head"]:
        yield {
            "query_head": query["query_head"],
            "entropy_nats": query["entropy_nats"],
            "spread_over": float(numpy.exp(query["entropy_nats"])),
            "rows": attention["rows"],
            "tokens": layer["tokens"],
        }


def draw(inputs: Namespace) -> Figure:
    table = inputs.inspection.table(_rows).sort_values(["sequence", "layer", "kv_head"])
    units = list(table.groupby(["sequence", "layer", "kv_head"], sort=False))
    names = [style.unit(key[1], key[2]) for key, _ in units]
    figure, axes = style.panels(1, 1, 2.7)
    axis = axes[0][0]
    axis.set_yscale("log")
    for place, (_, own) in enumerate(units):
        axis.plot(
            [place] * len(own),
            own["spread_over"],
            "o",
            color=style.KEYS,
            markeredgecolor="white",
            markeredgewidth=0.4,
        )
    axis.axhline(table["tokens"].max(), color="black", linewidth=0.7, linestyle=":")
    few = max(len(names) // 30, 1)
    axis.set_xticks(range(0, len(names), few), names[::few], rotation=60 if len(names) > 6 else 0)
    axis.set_ylabel("tokens, $e^{entropy}$")
    style.plain_log(axis.yaxis)
    by_layer = table.groupby("layer")["entropy_nats"].mean()
    said = ", ".join(f"{value:.2f} in layer {layer}" for layer, value in by_layer.items())
    return Figure(
        "entropy",
        figure,
        table,
        "The exponential of the entropy of a row's attention: over how many tokens of equal weight "
        f"it would be spread. One dot per query head, entropy averaged over {table['rows'].max()} "
        "rows; by layer (L) and KV head (h); dotted: all tokens. Mean entropy in nats: "
        f"{said}. {inputs.inspection.facts()}",
    )
