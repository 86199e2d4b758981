"""No single best method? Errors over that of the best one, and of choosing per layer or head.

At about equal memory. An oracle chooses what was best in that very unit: a bound for methods that
adapt, not a method. Choices that were made on the other texts can be made in advance.
"""

from argparse import ArgumentParser, Namespace

import numpy
import pandas

from kvplot import style
from kvplot.curves import words
from kvplot.figure import Figure, always_kept, facts
from kvplot.figures import ecdf
from kvplot.results import POINT, UNIT, Results, ResultsError
from kvplot.statistics import geometric_means, over

NEEDS = ("results",)
METRIC, MEMORY, RATIO = "errors.relative_l2.mean", "memory.fraction", "ratio"
MEMORIES = [0.27, 0.38, 0.6]  # those of the sweep `methods`
TEXT, HEAD = ["dump", "sequence"], ["layer", "kv_head"]
# The choice, its units, and the coordinates that it may depend on.
CHOICES: tuple[tuple[str, str, list[str]], ...] = (
    ("one method, chosen on other texts", "others", []),
    ("per layer, chosen on other texts", "others", ["layer"]),
    ("per head, chosen on other texts", "others", HEAD),
    ("oracle per layer", "own", [*TEXT, "layer"]),
    ("oracle per head", "own", UNIT),
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--memory",
        type=float,
        nargs="+",
        default=MEMORIES,
        help="draw every method's setting with the memory nearest to this; default 0.27 0.38 0.6",
    )


def fits(results: Results) -> bool:
    return all(len(logs(results, memory)[0].columns) > 2 for memory in MEMORIES)


def logs(results: Results, memory: float) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Logarithms of errors, a row per unit and a column per label that has all units; and the
    settings that stand for the labels."""
    points = ecdf.at_memory(results, memory, tolerance=1.1)
    cells = results.ok[[*POINT, *UNIT, METRIC]].merge(
        points[["label", "point"]], on=["label", "point"]
    )
    cells[METRIC] = pandas.to_numeric(cells[METRIC])
    units = cells.groupby([*UNIT, "label"])[METRIC].mean().unstack()
    table = units.dropna(axis="columns").transform(numpy.log)
    return table, points[points["label"].isin(table.columns)]


def chosen(table: pandas.DataFrame, source: str, by: list[str]) -> "pandas.Series[float]":
    """Per unit the logarithm of the error of the label that is best on average over the units that
    agree in `by`: those of the other texts ("others"), or also of its own ("own")."""
    sums = table.groupby(level=by).transform("sum") if by else table * 0.0 + table.sum()
    if source == "others":
        sums = sums - table.groupby(level=[*TEXT, *by]).transform("sum")
    best = sums.to_numpy().argmin(axis=1)
    return pandas.Series(table.to_numpy()[numpy.arange(len(table)), best], index=table.index)


def compared(table: pandas.DataFrame) -> pandas.DataFrame:
    """One row per unit and method or choice: error over that of the best single method."""
    single = table.mean().idxmin()
    texts = len(table.groupby(level=TEXT))
    found = {str(label): table[label] for label in table}
    for name, source, by in CHOICES:
        if source == "own" or texts > 1:
            found[name] = chosen(table, source, by)
    rows = [
        (one - table[single]).transform(numpy.exp).rename(RATIO).reset_index().assign(setting=name)
        for name, one in found.items()
    ]
    return pandas.concat(rows, ignore_index=True).assign(best=str(single))


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need(METRIC, MEMORY)
    memories = [inputs.memory] if isinstance(inputs.memory, float) else list(inputs.memory)
    tables = []
    for memory in memories:
        table, points = logs(results, memory)
        if len(table.columns) < 2:
            raise ResultsError(
                f"{results.path}: fewer than two methods within 10 % of memory {memory:g} in every "
                "unit; choose another --memory"
            )
        means = geometric_means(compared(table), RATIO, ["setting", "best"], RATIO)
        held = points.set_index("label")[MEMORY]
        first = table.idxmin(axis="columns").value_counts() / len(table)
        means["memory"], means[MEMORY] = memory, means["setting"].map(held)
        means["share_best"] = means["setting"].map(first)
        tables.append(means)
    table = pandas.concat(tables, ignore_index=True)
    names = [name for name, *_ in CHOICES if name in set(table["setting"])]
    order = table[~table["setting"].isin(names)].groupby("setting")[RATIO].mean().sort_values()
    names = [*names, *order.index]
    figure, axes = style.panels(1, len(memories), 0.8 + 0.17 * len(names), sharey=True)
    looks = results.ok.drop_duplicates("label").set_index("label")["algorithm"]
    for axis, memory in zip(axes[0], memories):
        for _, row in table[table["memory"] == memory].iterrows():
            place = names.index(row["setting"])
            label = row["setting"]
            colour, marker = style.look(looks[label]) if label in looks else ("#000000", "o")
            axis.plot([row[f"{RATIO}_low"], row[f"{RATIO}_high"]], [place] * 2, color=colour)
            axis.plot(
                row[RATIO],
                place,
                marker,
                color=colour,
                markeredgecolor="white",
                markeredgewidth=0.4,
            )
        axis.axvline(1.0, color="black", linewidth=0.7, linestyle=":")
        axis.set_xscale("log")
        style.plain_log(axis.xaxis)
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_title(f"memory {memory:g}")
    style.outer_labels(axes, "error / error of the best single method")
    left = sorted(set(results.ok["label"]) - set(order.index) - {"exact"})
    return Figure(
        "mixture",
        figure,
        table,
        f"{words(METRIC)} and seeds, over that of the single method with the least geometric mean, "
        "paired by unit; of every method the setting nearest to the memory, within 10 %. Black: a "
        "method per layer or head, chosen by its errors on the other texts, or by an oracle that "
        "knows the errors of the very unit. Geometric means over units with 95 % intervals, "
        f"{over(table)}. {facts(results)}{always_kept(results.ok)}"
        + (f" Not drawn, no setting near: {', '.join(left)}." if left else ""),
    )
