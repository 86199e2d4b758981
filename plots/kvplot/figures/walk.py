"""BalanceKV's self-balancing walk: how far from coin flips, what it gains, what the sides cost."""

from argparse import Namespace
from collections.abc import Iterator

import numpy
import pandas
from matplotlib.axes import Axes

from kvplot import style
from kvplot.curves import line
from kvplot.figure import Figure, facts
from kvplot.results import ResultsError, mean_over_units, with_params

NEEDS = ("results",)
METRIC = "errors.relative_l2.mean"
MASSES = ("mass.numerator.mean", "mass.denominator.mean")


def _histograms(cells: pandas.DataFrame) -> pandas.DataFrame:
    """Frame of bins of p, as parts of all steps, per label, c and r."""
    rows = []
    for (label, c, r), group in cells.groupby(
        ["label", cells["params.c"].astype(str), cells["params.r"].astype(str)]
    ):
        counts = numpy.sum(
            [numpy.asarray(h, dtype=float) for h in group["derived.p_histogram"]], axis=0
        )
        for place, share in enumerate(counts / counts.sum()):
            rows.append(
                {
                    "panel": "p",
                    "label": label,
                    "c": c,
                    "r": r,
                    "p": (place + 0.5) / len(counts),
                    "share": share,
                }
            )
    return pandas.DataFrame(rows)


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need(
        METRIC,
        "derived.p_histogram",
        "counters.clamped",
        *(f"params.{name}" for name in ("T", "c", "r", "side")),
        *MASSES,
    )
    cells = results.ok
    walks = cells[cells["algorithm"] == "softmax_balance"]
    walks = walks[(walks["params.T"] == 1) & (walks["params.side"] == "exact_half")]
    walks = walks[walks["derived.p_histogram"].notna()]
    if walks.empty:
        raise ResultsError(
            f"{results.path}: no finished cell of softmax_balance with T 1 and side exact_half"
        )
    steps = walks["derived.p_histogram"].map(sum)
    table = with_params(
        mean_over_units(
            cells.assign(fail_rate=cells["counters.clamped"] / steps),
            [METRIC, *MASSES, "fail_rate"],
        )
    )
    figure, axes = style.panels(2, 2, 5.6)

    histograms = _histograms(walks)
    chosen = [
        ("theory", "theory", "oracle"),
        ("small c", "0.5", "oracle"),
        ("small r", "theory", "8.0"),
        ("small c and r", "1.0", "8.0"),
    ]
    for (label, c, r), colour in zip(chosen, style.ordered(4)):
        here = histograms[
            (histograms["label"] == label) & (histograms["c"] == c) & (histograms["r"] == r)
        ]
        if len(here):
            axes[0][0].step(
                here["p"], here["share"], where="mid", color=colour, label=f"c {c}, r {r}"
            )
    axes[0][0].set_yscale("log")
    axes[0][0].set_xlabel("probability p of sign +1")
    axes[0][0].set_ylabel("part of all steps")
    _legend(axes[0][0])

    numeric = table[table["params.r"].map(lambda r: isinstance(r, (int, float)))].copy()
    numeric = numeric[numeric["params.r"].notna()]
    numeric["r"] = numeric["params.r"].astype(float)
    for axis, metric in ((axes[0][1], METRIC), (axes[1][0], "fail_rate")):
        for label, dashes in (("small r", "-"), ("small c and r", "--")):
            here = numeric[numeric["label"] == label]
            c = here["params.c"].iloc[0]
            line(
                axis,
                here,
                "r",
                metric,
                style.look("softmax_balance")[0],
                "d",
                linestyle=dashes,
                label=f"walk, c {c if isinstance(c, str) else f'{c:g}'}",
            )
        axis.set_xlabel("key norm bound r")
    half = table[(table["params.T"] == 1)]
    for algorithm, words, pick in (
        (
            "softmax_balance",
            "walk, c theory, r oracle",
            (half["label"] == "theory") & (half["params.side"] == "exact_half"),
        ),
        ("uniform", "uniform", half["algorithm"] == "uniform"),
        ("balancekv_prefill", "as evaluated", half["algorithm"] == "balancekv_prefill"),
    ):
        for value in half[pick & (half["algorithm"] == algorithm)][METRIC]:
            dashes = ":" if algorithm == "softmax_balance" else "-."
            axes[0][1].axhline(value, color=style.look(algorithm)[0], linestyle=dashes, label=words)
    axes[0][1].set_ylim(bottom=0)
    axes[0][1].set_ylabel("relative error, T = 1")
    _legend(axes[0][1])
    axes[1][0].set_ylabel("steps that FAIL (p clamped)")
    axes[1][0].set_ylim(bottom=0)
    _legend(axes[1][0])

    for label, group in _sides(table):
        group = group.sort_values("params.T")
        for mass, dashes in zip(MASSES, ("-", "--")):
            colour, marker = style.look(group["algorithm"].iloc[0])
            face = {"smaller": colour, "random": "white", "exact_half": "lightgrey"}.get(
                group["params.side"].iloc[0], colour
            )
            axes[1][1].plot(
                group["params.T"],
                group[mass],
                color=colour,
                marker=marker,
                linestyle=dashes,
                markerfacecolor=face,
                label=label if dashes == "-" else None,
            )
    axes[1][1].axhline(1.0, color="black", linewidth=0.6, linestyle=":")
    axes[1][1].set_xlabel("halvings T")
    axes[1][1].set_ylabel("sum of weighted p")
    _legend(axes[1][1])
    biggest = walks[walks["label"] == "theory"]["derived.max_abs_p_minus_half"].max()
    return Figure(
        "walk",
        figure,
        pandas.concat([table.assign(panel="means"), histograms]),
        "Top left: the walk's probabilities (T 1, both walks, all cells). Top right: "
        f"{METRIC} over r. Bottom left: steps outside the theorem. Bottom right: estimated "
        "attention mass, numerator solid, normalizer dashed (1 is right). Largest |p - "
        f"1/2| with the theory's c and r: {biggest:.2g}. {facts(results)}",
    )


def _legend(axis: Axes) -> None:
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2, fontsize=7)


def _sides(table: pandas.DataFrame) -> Iterator[tuple[str, pandas.DataFrame]]:
    for (_, algorithm, side), group in table.groupby(
        ["label", "algorithm", "params.side"], dropna=False
    ):
        if group["params.T"].nunique() > 1:
            yield (f"walk, {side}" if algorithm == "softmax_balance" else str(algorithm)), group
