"""How many tokens each cell of BalanceKV's merge-and-reduce trees holds (BalanceKV Fig. 1).

First and second column: the tree of the denominator, and those of the numerator's buckets together,
of one KV head, after every token, one row per T. Third: the most that each cell ever held, by the
side that a reduction keeps.
"""

from argparse import ArgumentParser, Namespace
from typing import Any, NamedTuple

import numpy
import pandas
from numpy.typing import NDArray

from kvplot import style
from kvplot.cache import Cache, Caches, Place, Rows
from kvplot.figure import Figure
from kvplot.figures import kept
from kvplot.results import ResultsError

NEEDS = ("caches",)
METHOD = "balancekv"
MAX_ROWS = 3  # values of T
STEPS = 401  # tokens at which a trace is drawn
TREES = ("denominator", "numerator")
SIDES = {"smaller": "smaller side, as printed", "exact_half": "exact half", "random": "random side"}
Counts = NDArray[numpy.int64]


class Setting(NamedTuple):
    """A cache file of balancekv."""

    file: Cache
    t: int
    T: str
    side: str


def add_options(parser: ArgumentParser) -> None:
    kept.add_options(parser)


def settings_of(caches: Caches) -> list[Setting]:
    found = []
    for file in caches.files:
        if file.method != METHOD:
            raise ResultsError(
                f"{file.path}: is of {file.method}; cells are those of {METHOD}: name its files"
            )
        try:
            t, levels, side = int(file.settings["t"]), file.settings["T"], file.settings["side"]
        except (KeyError, ValueError) as error:
            raise ResultsError(
                f"{file.path}: attribute params must have t, T and side; `kvbench run` with "
                '"output": {"caches": true} writes them'
            ) from error
        found.append(Setting(file, t, levels, side))
    return found


def sizes(rows: Rows, tokens: int, place: str) -> dict[str, Counts]:
    """By tree [levels, rows]: the tokens of every cell when a row is answered. C^l's weigh 2^l in
    one of the two sums and nothing in the other; exact tokens weigh 1 in both and are in no cell.
    """
    found = {}
    for tree, own, other in (
        ("denominator", rows.denominator, rows.numerator),
        ("numerator", rows.numerator, rows.denominator),
    ):
        chosen = (own != 0) & (other == 0)
        exponent = numpy.log2(numpy.where(chosen, own, 1.0))
        level = exponent.round().astype(numpy.int64)
        if (level != exponent).any() or level.min(initial=0) < 0:
            raise ResultsError(f"{place}: has a weight that is not a power of two, of no cell")
        steps = numpy.zeros((level.max(initial=0) + 1, tokens + 1), dtype=numpy.int64)
        numpy.add.at(steps, (level[chosen], rows.begin[chosen]), 1)
        numpy.subtract.at(steps, (level[chosen], rows.end[chosen]), 1)
        found[tree] = steps.cumsum(axis=1)[:, :-1]
    return found


def held_by(setting: Setting, unit: Place, tokens: int) -> dict[str, Counts]:
    """Sizes of the cells of one unit; ResultsError if weights are not those of every row."""
    place = f"{setting.file.path}: {unit}"
    rows = setting.file.heads[unit].rows(tokens)
    found = sizes(rows, tokens, place)
    exact = numpy.zeros(tokens + 1, dtype=numpy.int64)
    both = (rows.numerator == 1) & (rows.denominator == 1)
    numpy.add.at(exact, rows.begin[both], 1)
    numpy.subtract.at(exact, rows.end[both], 1)
    at = numpy.arange(setting.file.heads[unit].prompt, tokens)
    sent = at + 1 - exact.cumsum()[at]
    # C^0 is what came after the last multiple of t.
    if setting.T != "0" and (found["denominator"][0][at] != sent % setting.t).any():
        raise ResultsError(
            f"{place}: weights are not those of every row; run the sweep again with "
            '"evaluate": {"rows": "all"}'
        )
    return found


def draw(inputs: Namespace) -> Figure:
    caches: Caches = inputs.caches
    settings = settings_of(caches)
    shown = kept.chosen(inputs)
    heads, tokens = caches.heads(shown)
    units = caches.common(shown.sequence)
    ordered = sorted(settings, key=lambda setting: [*SIDES, setting.side].index(setting.side))
    by_halvings: dict[str, Setting] = {}
    for each in sorted(ordered, key=lambda setting: setting.T):
        by_halvings.setdefault(each.T, each)
    if len(by_halvings) > MAX_ROWS:
        raise ResultsError(
            f"{len(by_halvings)} values of T are unreadable below one another: name files of at "
            f"most {MAX_ROWS}"
        )
    held = {
        (setting, unit): held_by(setting, unit, tokens) for setting in settings for unit in units
    }
    largest = _largest(held)
    most = max(len(tree) for both in held.values() for tree in both.values())
    colours = style.ordered(most)
    figure, axes = style.panels(len(by_halvings), 3, 2.2 * len(by_halvings) + 0.2)
    handles: dict[str, Any] = {}
    lines: dict[str, Any] = {}
    traces = []
    at = kept.decode_rows(heads[0].prompt, tokens, STEPS)
    for row, (halvings, setting) in zip(axes, by_halvings.items()):
        for axis, tree in zip(row, TREES):
            trace = held[setting, shown][tree][:, at]
            stack = axis.stackplot(at + 1, trace, colors=colours[: len(trace)], linewidth=0)
            handles |= {f"$C^{level}$": part for level, part in enumerate(stack)}
            traces += [
                {
                    "panel": "trace",
                    "T": halvings,
                    "t": setting.t,
                    "side": setting.side,
                    "tree": tree,
                }
                | dict(zip(Place._fields, shown))
                | {"cell": level, "tokens": int(row) + 1, "size": int(size)}
                for level, line in enumerate(trace)
                for row, size in zip(at, line)
            ]
            axis.set_title(f"T {halvings}, {tree}", loc="left")
            axis.set_ylim(bottom=0)
        _levels(row[2], largest[largest["T"] == halvings], lines)
        row[2].set_title(f"T {halvings}, the most held", loc="left")
        lines["t / 2"] = row[2].axhline(setting.t / 2, color="black", linewidth=0.7, linestyle=":")
    for axis in axes[:, :2].flat:
        axis.set_xlabel("tokens sent")
        axis.set_ylabel("tokens held")
    for axis in axes[:, 2]:
        axis.set_xlabel("cell $C^l$ by its level l")
        axis.set_ylabel("tokens held")
    cells = {f"$C^{level}$": handles[f"$C^{level}$"] for level in range(most)}
    style.legend_above(axes[0][0], {**cells, **lines})
    table = pandas.concat([pandas.DataFrame(traces), largest.assign(panel="largest")])
    return Figure(
        "occupancy", figure, table, _caption(settings, by_halvings, shown, units, caches, largest)
    )


def _largest(held: dict[tuple[Setting, Place], dict[str, Counts]]) -> pandas.DataFrame:
    """The most tokens that a cell held after any token, of each unit."""
    return pandas.DataFrame(
        [
            {"T": setting.T, "t": setting.t, "side": setting.side, "tree": tree}
            | dict(zip(Place._fields, unit))
            | {"cell": level, "size": int(size)}
            for (setting, unit), both in held.items()
            for tree, counts in both.items()
            for level, size in enumerate(counts.max(axis=1))
        ]
    )


def _levels(axis: Any, largest: pandas.DataFrame, lines: dict[str, Any]) -> None:
    """Means over units by level: a colour per side, dashes for the numerator's trees."""
    sides = [side for side in SIDES if side in set(largest["side"])]
    for side, colour, marker in zip(sides, style.SERIES[1:], "osD"):
        for tree, dashes in zip(TREES, ("-", "--")):
            own = largest[(largest["side"] == side) & (largest["tree"] == tree)]
            means = own.groupby("cell")["size"].mean()
            (line,) = axis.plot(means.index, means, color=colour, marker=marker, linestyle=dashes)
            lines.setdefault(SIDES[side], line)
    for tree, dashes in zip(TREES, ("-", "--")):
        lines[tree] = style.pyplot.Line2D([], [], color="0.4", linestyle=dashes)
    axis.set_yscale("log")
    style.plain_log(axis.yaxis)
    axis.set_xticks(range(int(largest["cell"].max()) + 1))


def _caption(
    settings: list[Setting],
    by_halvings: dict[str, Setting],
    shown: Place,
    units: list[Place],
    caches: Caches,
    largest: pandas.DataFrame,
) -> str:
    totals = []
    for halvings, setting in by_halvings.items():
        own = largest[(largest["T"] == halvings) & (largest["side"] == setting.side)]
        count = {
            tree: own[own["tree"] == tree].groupby(list(Place._fields))["size"].sum().mean()
            for tree in TREES
        }
        totals.append(
            f"T {halvings} {count['denominator']:.0f} in the denominator's tree and "
            f"{count['numerator']:.0f} in the numerator's"
        )
    layers = ", ".join(str(layer) for layer in sorted({unit.layer for unit in units}))
    seeds = {s.file.settings["seed"] for s in settings if "seed" in s.file.settings}
    sides = " and ".join(dict.fromkeys(SIDES.get(s.side, s.side) for s in by_halvings.values()))
    return (
        "Tokens in the cells of BalanceKV's merge-and-reduce trees, batch t "
        f"{', '.join(dict.fromkeys(str(s.t) for s in settings))}. Left and middle: after every "
        f"token, of {style.unit(shown.layer, shown.kv_head)} ({sides}), the denominator's tree and "
        "those of the numerator, one per power of two of the value norm, together. Right: the most "
        f"that a cell held, mean over {len(units)} units (KV heads of layers {layers}); dotted: "
        "half a batch, which a cell between the first and the last of one tree exceeds only with "
        f"random sides. These sizes added up, {sides}: {'; '.join(totals)}. {shown.sequence}: "
        f"{caches.length(shown)}; "
        + (f"seed {', '.join(sorted(seeds))}." if seeds else "no seed is named.")
    )
