"""Pairs of methods that a metric orders otherwise than the model does, at one memory.

A point is a pair at a memory that both ask for: the ratio of the model's KL divergences, of the
worse method over the better one, against that of a metric of attention; geometric means over texts.
Points left of 1 are exceptions. The CSV has all metrics, with 95 % intervals over texts.
"""

from argparse import ArgumentParser, Namespace
from itertools import combinations

import numpy
import pandas

from kvplot import style
from kvplot.figure import Figure
from kvplot.figures.error_vs_kld import KL, ROUNDING, means, of_labels
from kvplot.figures.rank_agreement import METRICS, asked_memory, of_memories
from kvplot.loop import Loop
from kvplot.results import ResultsError

NEEDS = ("loop",)
PANELS = (
    "errors.relative_frobenius_error",
    "errors.relative_spectral_error",
    "errors.relative_l2.mean",
    "outputs.residual_ratio.p99",
)
WORDS = {name: words for name, words, _ in METRICS}


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", metavar="LABEL", help="these methods (default: all)")
    parser.add_argument(
        "--memories", nargs="+", type=float, metavar="F", help="at these memories (default: all)"
    )


def pairs(loop: Loop, only: list[str] | None, memories: list[float] | None) -> pandas.DataFrame:
    """One row per memory, pair of labels and metric that grows with the error. `kl`: the KL
    divergence of `one` over that of `other`, at least 1; `ratio`: the metric's; both with _low and
    _high. `decided`: 1 where kl_low is above 1; `turned`: 1 where the ratio is below 1; `firmly`:
    where its interval is."""
    known = [name for name, _, sign in METRICS if sign > 0 and name in loop.ok]
    known = [name for name in known if loop.ok[name].notna().any()]
    table = means(loop, KL)[["sequence", "label", "algorithm", "point", KL]]
    for name in known:
        table[name] = means(loop, name)[name].to_numpy()
    table = of_memories(of_labels(table[table[KL] > ROUNDING], only), memories)
    table = table.assign(at=table["point"].map(asked_memory)).dropna(subset=["at", KL, *known])
    rows = []
    for at, own in table.groupby("at"):
        logs = {label: each.set_index("sequence")[[KL, *known]].transform(numpy.log)
                for label, each in own.groupby("label", sort=False)}  # fmt: skip
        for pair in combinations(logs, 2):
            apart = (logs[pair[0]] - logs[pair[1]]).dropna()
            one, other, apart = (*pair, apart) if apart[KL].mean() > 0 else (*pair[::-1], -apart)
            ends = ratios(apart)
            for metric in known:
                rows.append(
                    {"at": at, "one": one, "other": other, "metric": metric}
                    | {f"kl{end}": value for end, value in ends[KL].items()}
                    | {f"ratio{end}": value for end, value in ends[metric].items()}
                    | {"texts": len(apart)}
                )
    if not rows:
        raise ResultsError(f"{loop.path}: no two methods ask for one memory")
    whole = pandas.DataFrame(rows)
    return whole.assign(
        decided=(whole["kl_low"] > 1).astype(int),
        turned=(whole["ratio"] < 1).astype(int),
        firmly=(whole["ratio_high"] < 1).astype(int),
    )


def ratios(logs: pandas.DataFrame) -> pandas.DataFrame:
    """Per column of logarithms the geometric mean, "", and its 95 % interval, "_low", "_high"."""
    from scipy import stats

    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std() / numpy.sqrt(len(logs))
    mean = logs.mean()
    ends = pandas.DataFrame({"": mean, "_low": mean - half, "_high": mean + half})
    return ends.transform(numpy.exp).T


def draw(inputs: Namespace) -> Figure:
    loop = inputs.loop
    loop.need(KL, PANELS[0])
    table = pairs(loop, inputs.only, inputs.memories)
    drawn = [name for name in PANELS if name in set(table["metric"])]
    memories = sorted(table["at"].unique())
    looks = dict(zip(memories, style.ordered(len(memories))))
    figure, axes = style.panels(1, len(drawn), 2.7, sharex=True, sharey=True)
    for axis, metric in zip(axes[0], drawn):
        own = table[table["metric"] == metric]
        for at, colour in looks.items():
            for decided, face in ((0, "white"), (1, colour)):
                part = own[(own["at"] == at) & (own["decided"] == decided)]
                axis.plot(part["ratio"], part["kl"], "o", color=colour, markerfacecolor=face,
                          markersize=3, markeredgewidth=0.6)  # fmt: skip
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.axvline(1.0, color="black", linewidth=0.8)
        axis.set_title(WORDS[metric], fontsize=7.5)
        style.plain_log(axis.xaxis)
        style.plain_log(axis.yaxis)
    style.outer_labels(axes, "ratio of the metric", "ratio of KL divergences")
    handles = {
        f"{at:g} of the memory": style.pyplot.Line2D(
            [], [], linestyle="none", marker="o", color=colour
        )
        for at, colour in looks.items()
    }
    style.legend_above(axes[0][0], handles)
    sure = table[table["decided"] == 1].groupby("metric", sort=False)
    counts = ", ".join(
        f"{WORDS[str(metric)].replace('$', '')} {int(own['turned'].sum())} of {len(own)}"
        for metric, own in sure
        if metric in drawn
    )
    return Figure(
        "pairs",
        figure,
        table,
        "Left of 1 a metric orders two methods otherwise than the model's KL divergence does. A "
        "point is a pair of methods at one memory, the one with the larger divergence over the "
        f"other; geometric means over {int(table['texts'].max())} texts. Filled: the 95 % interval "
        f"of the divergences' ratio is above 1. Of these, turned by {counts or 'no metric'}. "
        f"{loop.facts()}",
    )
