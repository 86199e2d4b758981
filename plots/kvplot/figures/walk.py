"""BalanceKV's self-balancing walk: how far from coin flips, what it gains, what the sides cost."""

from argparse import Namespace

import numpy
import pandas
from matplotlib.axes import Axes

from kvplot import style
from kvplot.curves import line, means, words
from kvplot.figure import Figure, facts
from kvplot.results import ResultsError

NEEDS = ("results",)
METRIC = "errors.relative_l2.mean"
NORMALIZER = "mass.denominator.mean"
MASSES = ("mass.numerator.mean", NORMALIZER)
C_WORDS = (("small r", "c as proved"), ("small c and r", "c 1"))


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
    steps = cells["derived.p_histogram"].map(sum, na_action="ignore").astype(float)
    table = means(
        cells.assign(outside=cells["counters.clamped"] / steps), [METRIC, *MASSES, "outside"]
    )
    histograms = _histograms(walks)
    figure, axes = style.panels(2, 2, 4.6, across=1)
    _probabilities(axes[0][0], histograms)
    numeric = table[table["params.r"].map(lambda r: isinstance(r, (int, float)))].copy()
    numeric["r"] = numeric["params.r"].astype(float)
    numeric = numeric[numeric["r"].notna()]
    for axis, metric in ((axes[0][1], METRIC), (axes[1][0], "outside")):
        for (label, name), colour, marker in zip(C_WORDS, style.ordered(3), "os"):
            here = numeric[numeric["label"] == label]
            line(axis, here, "r", metric, colour, marker, label=name)
        axis.set_xlabel("key norm bound r")
        axis.set_xticks(sorted(numeric["r"].unique()))
    _references(axes[0][1], table[table["params.T"] == 1])
    axes[0][1].set_ylim(bottom=0)
    axes[0][1].set_ylabel("relative error at T = 1")
    axes[1][0].set_ylabel("steps outside the theorem")
    axes[1][0].set_ylim(bottom=0)
    axes[1][0].legend(loc="upper right")
    _masses(axes[1][1], table)
    biggest = walks[walks["label"] == "theory"]["derived.max_abs_p_minus_half"].max()
    for axis, letter in zip(axes.flat, "abcd"):
        axis.set_title(f"({letter})", loc="left")
    return Figure(
        "walk",
        figure,
        pandas.concat([table.assign(panel="means"), histograms]),
        "(a) The walk's probabilities of a sign, one halving (T = 1), all steps of all cells. "
        f"(b) {words(METRIC)}, against the bound r of key norms. (c) Steps whose probability had "
        "to be clamped, which the theorem excludes. (d) Estimated normalizer over the exact one "
        "(1 is right) after T halvings, by the side that the walk keeps; bars of (b) to (d): "
        "standard error of the mean over seeds. Largest distance of p from 1/2 with the theory's c "
        f"and r: {biggest:.2g}. {facts(results)}",
    )


def _probabilities(axis: Axes, histograms: pandas.DataFrame) -> None:
    chosen = [
        ("theory", "theory", "oracle", "as proved"),
        ("small c", "0.5", "oracle", "c 0.5"),
        ("small r", "theory", "8.0", "r 8"),
        ("small c and r", "1.0", "8.0", "c 1, r 8"),
    ]
    for (label, c, r, name), colour, dashes in zip(
        chosen, style.ordered(4), ("-", "--", "-.", ":")
    ):
        here = histograms[
            (histograms["label"] == label) & (histograms["c"] == c) & (histograms["r"] == r)
        ]
        if len(here):
            axis.stairs(
                here["share"].where(here["share"] > 0),
                numpy.linspace(0, 1, len(here) + 1),
                color=colour,
                linestyle=dashes,
                linewidth=1.2,
                label=name,
            )
    axis.set_yscale("log")
    axis.set_ylim(top=30)
    axis.set_xlabel("probability p of sign +1")
    axis.set_ylabel("part of all steps")
    axis.legend(loc="upper center", ncols=2)


def _references(axis: Axes, once: pandas.DataFrame) -> None:
    """Lines of what the walk is compared with, each with its name."""
    proved = (once["label"] == "theory") & (once["params.side"] == "exact_half")
    for pick, name, colour in (
        (proved, "walk as proved", style.look("softmax_balance")[0]),
        (once["algorithm"] == "uniform", "uniform sampling", style.look("uniform")[0]),
        (
            once["algorithm"] == "balancekv_prefill",
            "walk as evaluated",
            style.look("balancekv_prefill")[0],
        ),
    ):
        for value in once[pick][METRIC]:
            axis.axhline(value, color=colour, linestyle="--", linewidth=0.9, zorder=0)
            axis.annotate(
                name,
                (0.01, value),
                xycoords=("axes fraction", "data"),
                xytext=(0, 1.5),
                textcoords="offset points",
                fontsize=6.5,
            )


def _masses(axis: Axes, table: pandas.DataFrame) -> None:
    sides = (
        ("softmax_balance", "smaller", "smaller side, as printed", "v", "-"),
        ("softmax_balance", "random", "random side", "d", "--"),
        ("softmax_balance", "exact_half", "exact half", "^", ":"),
        ("uniform", None, "uniform sampling", "D", "-"),
        ("balancekv_prefill", None, "walk as evaluated", "X", "-"),
    )
    ramp = iter(style.ordered(4)[:3])
    for algorithm, side, name, marker, dashes in sides:
        here = table[(table["algorithm"] == algorithm) & ~table["label"].str.startswith("small ")]
        if side:
            here = here[here["params.side"] == side]
        if here["params.T"].nunique() < 2:
            continue
        colour = next(ramp) if side else style.look(algorithm)[0]
        line(axis, here, "params.T", NORMALIZER, colour, marker, linestyle=dashes, label=name)
    axis.axhline(1.0, color="black", linewidth=0.6, linestyle=":")
    axis.set_xticks(sorted(table["params.T"].dropna().unique()))
    axis.set_xlabel("halvings T")
    axis.set_ylabel("normalizer / exact")
    low, high = axis.get_ylim()
    axis.set_ylim(low - (0.6 * (high - low) if style.narrow() else 0.0), high)  # for the legend
    axis.legend(loc="lower left", fontsize=6.5, ncols=2 if style.narrow() else 1)
