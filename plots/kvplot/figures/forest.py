"""Every setting against uniform sampling at equal memory: ratio of errors, paired by unit.

Uniform's error at a setting's memory, or that of another label (`--against`), is interpolated
between its own settings, log against log, unit by unit; more than 2 % outside of their range there
is no comparison. `--cost traffic` compares at what a row reads instead of what is held.
"""

from argparse import ArgumentParser, Namespace

import numpy
import pandas

from kvplot import style
from kvplot.curves import words
from kvplot.faults import RequestError, few
from kvplot.figure import Figure, always_kept, facts
from kvplot.figures.settings import in_words, names
from kvplot.results import (
    HEADLINE,
    PARTS,
    POINT,
    ROUNDING,
    UNIT,
    Results,
    ResultsError,
    bytes_over_bytes,
    did_you_mean,
    undrawn,
)
from kvplot.statistics import at_equal, mean_interval, over

NEEDS = ("results",)
MEMORY = "memory.fraction"
COSTS = {"memory": MEMORY, "traffic": "traffic.fraction"}
# Words for the cost that two settings have in common.
SAME = {"memory": "at the same memory", "traffic": "where a row reads as many bytes"}
MAX_POINTS = 60
NEAR = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # costs that group the rows
UNIFORM = "uniform"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--metric", default=HEADLINE, metavar="PATH", help=f"of the error; default {HEADLINE}"
    )
    parser.add_argument(
        "--against",
        default=UNIFORM,
        metavar="LABEL",
        help="baseline of the ratios; default uniform",
    )
    parser.add_argument(
        "--cost",
        choices=list(COSTS),
        default="memory",
        help="cost that is equal: memory (default), or the bytes that a row reads",
    )


def fits(results: Results) -> bool:
    table = ratios(results)
    return len(table) > 0 and table.groupby(POINT).ngroups <= MAX_POINTS


def ratios(
    results: Results, against: str = UNIFORM, cost: str = MEMORY, metric: str = HEADLINE
) -> pandas.DataFrame:
    """log2 of error / error of `against` at the same cost, per unit and setting; of errors that are
    not exact to rounding."""
    if metric not in results.ok or cost not in results.ok:
        return pandas.DataFrame()
    numbers = list(dict.fromkeys([metric, cost, *PARTS[cost]]))
    cells = results.ok[[*POINT, *UNIT, *numbers]].copy()  # not of all columns
    cells[numbers] = cells[numbers].apply(pandas.to_numeric)
    if against not in set(cells["label"]):
        return pandas.DataFrame()
    units = cells.groupby([*POINT, *UNIT])[numbers].mean().reset_index()
    base = dict(iter(units[units["label"] == against].groupby(UNIT)))
    rows = []
    for _, row in units[(units["label"] != against) & (units[metric] > ROUNDING)].iterrows():
        reference = base.get(tuple(row[UNIT]))
        if reference is None:
            continue
        expected = at_equal(reference, cost, metric, row[cost])
        if expected > ROUNDING:
            rows.append({**row, "log2_ratio": numpy.log2(row[metric] / expected)})
    return pandas.DataFrame(rows)


def nothing_to_pair(results: Results, against: str, cost: str = "memory") -> str:
    """Why no setting is compared with `against`."""
    labels = sorted(set(results.ok["label"]))
    if against not in labels:
        return (
            f"{results.path}: no finished cell is labelled {against!r}"
            f"{did_you_mean(against, labels)}; labels here are {few(labels)}"
        )
    others = few([label for label in labels if label != against])
    errors = results.ok.loc[results.ok["label"] == against, HEADLINE]
    if pandas.to_numeric(errors).max() <= ROUNDING:
        return (
            f"{results.path}: {against} has no error above rounding to compare with; name another "
            f"label with --against: {others}"
        )
    return (
        f"{results.path}: no other setting has a {cost} in the range of {against}'s; give "
        f"{against} more settings, or name another label with --against: {others}"
    )


def intervals(table: pandas.DataFrame, cost: str = MEMORY) -> pandas.DataFrame:
    """Mean of log2_ratio per setting with its 95 % interval, and in how many units it is better."""
    rows = []
    for point, group in table.groupby(POINT, sort=False):
        interval = mean_interval(group, "log2_ratio", signed=True)
        rows.append(
            {
                **dict(zip(POINT, point)),
                "mean": group["log2_ratio"].mean(),
                "low": interval.low,
                "high": interval.high,
                "over": interval.level,
                "groups": interval.groups,
                "units": len(group),
                "better": int((group["log2_ratio"] < 0).sum()),
                cost: bytes_over_bytes(group, cost),
            }
        )
    return pandas.DataFrame(rows)


def draw(inputs: Namespace) -> Figure:
    results, metric = inputs.results, inputs.metric
    cost, same = COSTS[inputs.cost], SAME[inputs.cost]
    results.need(metric, cost)
    against = inputs.against
    named = "uniform sampling" if against == UNIFORM else against
    table = ratios(results, against, cost, metric)
    if table.empty:
        raise RequestError(nothing_to_pair(results, against, inputs.cost))
    means = intervals(table, cost)
    whole = means["units"] == means["units"].max()
    means = means[whole].reset_index(drop=True)
    means["setting"] = names(means)
    for end in ("mean", "low", "high"):
        means[f"ratio_{end}"] = 2.0 ** means[end]
    means["near"] = means[cost].map(lambda held: min(NEAR, key=lambda at: abs(at - held)))
    means = means.sort_values(["near", "mean"]).reset_index(drop=True)
    if len(means) > MAX_POINTS:
        raise ResultsError(f"{results.path}: {len(means)} settings are too many for one figure")
    others = results.ok[results.ok["label"] != against]
    every = len(results.ok[UNIT].drop_duplicates())
    said = ""
    if means["units"].max() < every:
        said = (
            f" Ratios are over {means['units'].max()} of {every} KV heads; in the others an error "
            f"is exact to rounding, or the {inputs.cost} is outside."
        )
    figure, axes = style.panels(1, 1, 0.9 + 0.155 * len(means))
    axis = axes[0][0]
    # Faint where there are many, which would hide the interval.
    faint = min(0.6, max(0.08, 12 / means["units"].max()))
    for place, row in means.iterrows():
        colour, marker = style.look(row["algorithm"], means["algorithm"].unique())
        units = table[(table["label"] == row["label"]) & (table["point"] == row["point"])]
        axis.plot(
            2.0 ** units["log2_ratio"],
            [place] * len(units),
            "|",
            color=colour,
            alpha=faint,
            markersize=4,
        )
        axis.plot(
            2.0 ** numpy.array([row["low"], row["high"]]),
            [place, place],
            color=colour,
            linewidth=1.1 if faint == 0.6 else 2.2,
        )
        axis.plot(
            2.0 ** row["mean"],
            place,
            marker=marker,
            color=colour,
            markeredgecolor="white",
            markeredgewidth=0.4,
        )
    reference = results.ok[results.ok["label"] == against]["algorithm"].iloc[0]
    outside = f"{inputs.cost} more than 2 % outside of that of {against} in some unit"
    if (pandas.to_numeric(results.ok[metric]) <= ROUNDING).any():
        outside += ", or an error exact to rounding"
    axis.axvline(1.0, color=style.look(reference)[0], linewidth=0.9)
    axis.set_xscale("log")
    style.plain_log(axis.xaxis)
    axis.set_yticks(
        range(len(means)),
        [f"{in_words(name)} ({part:.2f})" for name, part in zip(means["setting"], means[cost])],
        fontsize=7,
    )
    for place in means.index[means["near"].diff().fillna(0.0) > 0]:
        axis.axhline(place - 0.5, color="0.6", linewidth=0.7)
    axis.set_ylim(len(means) - 0.5, -0.5)
    axis.set_xlabel(f"error / error of {against} {same}")
    return Figure(
        "forest",
        figure,
        means.drop(columns="near").merge(table[[*POINT, *UNIT, "log2_ratio"]], on=POINT),
        f"{words(metric)}, over that of {named} {same} (in brackets), paired by unit; left of 1 is "
        f"better. Ticks: units; line: 95 % interval of the geometric mean, {over(means)}. Rows are "
        f"grouped by the nearest tenth of the {inputs.cost}.{said} "
        f"{facts(results)}{always_kept(results.ok)}"
        f"{undrawn(others, means, outside, metric)}",
    )
