"""A model's KL divergence and perplexity over the bytes held, a line per method.

Points are settings: means over texts of the KL divergence, geometric means of the perplexity over
that of the full cache. Bars are 95 % intervals over texts. The CSV has errors of attention too.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

import pandas

from kvplot import style
from kvplot.curves import interval_line
from kvplot.figure import Figure
from kvplot.figures.error_vs_kld import KL, ROUNDING, means, of_labels
from kvplot.figures.rank_agreement import METRICS, asked_memory
from kvplot.loop import Loop
from kvplot.results import POINT, ResultsError
from kvplot.statistics import geometric_means, mean_interval

NEEDS = ("loop",)
MEMORY, RATIO = "memory.fraction", "perplexity.ratio"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--only", nargs="+", metavar="LABEL", help="draw these methods (default: all)"
    )


def settings(loop: Loop) -> pandas.DataFrame:
    """One row per setting that every text has: `memory.fraction`, means over texts of KL and of
    the known METRICS, the geometric mean of the perplexity ratio; all but the memory with _low and
    _high."""
    known = [name for name, *_ in METRICS if name in loop.ok and loop.ok[name].notna().any()]
    table = means(loop, RATIO)[["sequence", *POINT, KL, RATIO, MEMORY]]
    for name in known:
        table[name] = means(loop, name)[name].to_numpy()
    table = table[table[KL] > ROUNDING].assign(dump="", layer=0, kv_head=0)
    count = table["sequence"].nunique()
    rows = []
    for key, own in table.groupby(POINT, sort=False):
        if len(own) < count:
            continue
        row = {
            **dict(zip(POINT, key)),
            "asked": asked_memory(str(key[2])),
            MEMORY: own[MEMORY].mean(),
        }
        row["texts"] = count
        for name in dict.fromkeys([KL, *known]):
            if name == MEMORY:
                continue
            interval = mean_interval(own, name)
            row |= {name: own[name].mean(), f"{name}_low": interval.low,
                    f"{name}_high": interval.high}  # fmt: skip
        rows.append(row)
    if not rows:
        raise ResultsError(f"{loop.path}: no setting has a divergence in every text")
    return pandas.DataFrame(rows).merge(geometric_means(table, RATIO, POINT, RATIO), on=POINT)


def draw(inputs: Namespace) -> Figure:
    loop = inputs.loop
    loop.need(KL, RATIO, MEMORY)
    table = settings(loop)
    drawn = of_labels(table, inputs.only)
    figure, axes = style.panels(1, 2, 3.0)
    handles: dict[str, Any] = {}
    colours = style.label_colours(drawn)
    for axis, (column, words) in zip(
        axes[0],
        {KL: "KL divergence of next tokens, nats", RATIO: "perplexity / full cache's"}.items(),
    ):
        axis.set_yscale("log")
        for label, own in drawn.groupby("label", sort=False):
            marker = style.look(own["algorithm"].iloc[0])[1]
            handles[str(label)] = interval_line(
                axis, own, MEMORY, column, colours[str(label)], marker, linewidth=0.8
            )
        style.plain_log(axis.yaxis)
        axis.set_ylabel(words)
    style.outer_labels(axes, "memory / memory of the exact cache")
    style.legend_above(axes[0][0], dict(sorted(handles.items())), style.shortened)
    count = int(table["texts"].iloc[0])
    over = f"; bars: 95 % intervals of the mean, Student's t over {count} texts"
    return Figure(
        "quality",
        figure,
        table.sort_values(["label", MEMORY]),
        "What the model loses over the bytes held. Left: mean KL divergence of next-token "
        "distributions from those over the full cache; right: perplexity of the decoded tokens "
        "over that of the full cache, geometric mean over texts"
        f"{over if count > 1 else ''}. {loop.facts()}",
    )
