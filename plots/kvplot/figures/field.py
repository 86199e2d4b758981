"""Every method against uniform sampling at equal bytes, a row per method, a mark per memory.

Methods that evict count the bytes that they hold, on average over units, so that methods that move
tokens between heads or layers are judged by their mean. Methods that keep every token count the
bytes that a row reads. Uniform's error at as many bytes is interpolated between its own
settings, log against log, unit by unit; more than 2 % outside of their range nothing is compared.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

import numpy
import pandas
from matplotlib.lines import Line2D

from kvplot import style
from kvplot.curves import words
from kvplot.figure import Figure, facts
from kvplot.results import (
    HEADLINE,
    PARTS,
    POINT,
    ROUNDING,
    SEPARATOR,
    UNIT,
    Results,
    ResultsError,
    bytes_over_bytes,
)
from kvplot.statistics import at_equal, geometric_means, over

NEEDS = ("results",)
METRIC, MEMORY, TRAFFIC = HEADLINE, "memory.fraction", "traffic.fraction"
AT = (0.1, 0.2, 0.35)
# The memory that orders the methods; the interval of the one nearest to it is drawn.
MIDDLE = AT[1]
# A setting stands for a memory if its own is within this factor.
NEAR = 1.35
# Methods that keep every token have this memory at least, and read less.
WHOLE = 0.99
KINDS = {
    "holds": "a part is held",
    "bits": "held in fewer bits",
    "reads": "all is held, a part is read",
}
MARKS = ("o", "D", "s")
MIN_METHODS, MAX_METHODS = 12, 80


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--metric", default=METRIC, metavar="PATH", help=f"of the error; default {METRIC}"
    )


def fits(results: Results) -> bool:
    table = compared(results)
    return len(table) > 0 and MIN_METHODS <= table["method"].nunique() <= MAX_METHODS


def compared(results: Results, metric: str = METRIC) -> pandas.DataFrame:
    """of_cells() of the cells that are ok."""
    return of_cells(results.ok, metric)


def of_cells(cells: pandas.DataFrame, metric: str = METRIC) -> pandas.DataFrame:
    """One row per unit and setting that stands for a memory of AT: method, kind, at, cost, and the
    ratio of its error to uniform's at that cost."""
    numbers = [metric, MEMORY, TRAFFIC]
    if not set(numbers) <= set(cells):
        return pandas.DataFrame()
    numbers = list(dict.fromkeys([*numbers, *PARTS[MEMORY], *PARTS[TRAFFIC]]))
    cells = cells[[*POINT, *UNIT, *numbers]].copy()  # not of all columns
    cells[numbers] = cells[numbers].apply(pandas.to_numeric)
    units = cells.groupby([*POINT, *UNIT])[numbers].mean().reset_index()
    base = dict(iter(units[units["label"] == "uniform"].groupby(UNIT)))
    # Where uniform was skipped, as in layers with a sliding window, nothing is compared.
    known = [tuple(unit) in base for unit in units[UNIT].itertuples(index=False)]
    units = units[
        pandas.Series(known, units.index)
        & (units["label"] != "uniform")
        & (units[metric] > ROUNDING)
    ]
    if units.empty:
        return pandas.DataFrame()
    all_units = units[UNIT].drop_duplicates()
    settings = []
    for _, setting in units.groupby(POINT, sort=False):
        if len(setting) < len(all_units):
            continue  # a mean over some heads cannot be compared with one over all
        held, read = (bytes_over_bytes(setting, part) for part in (MEMORY, TRAFFIC))
        whole = held >= WHOLE and read < WHOLE
        kind = "bits" if SEPARATOR in setting["label"].iloc[0] else "reads" if whole else "holds"
        cost = TRAFFIC if kind == "reads" else MEMORY
        distance = {at: abs(numpy.log((read if whole else held) / at)) for at in AT}
        near = min(AT, key=distance.__getitem__)
        far = distance[near]
        if far > numpy.log(NEAR):
            continue
        texts = [setting["dump"], setting["sequence"]]
        of_text = {text: bytes_over_bytes(own, cost) for text, own in setting.groupby(texts)}
        mean = [of_text[text] for text in zip(*texts)]
        expected = [
            at_equal(base[tuple(unit)], cost, metric, bytes_)
            for *unit, bytes_ in zip(*(setting[name] for name in UNIT), mean)
        ]
        settings.append(
            setting.assign(kind=kind, at=near, far=far, cost=mean, ratio=setting[metric] / expected)
        )
    if not settings:
        return pandas.DataFrame()
    table = pandas.concat(settings, ignore_index=True)
    table = table[table.groupby(POINT)["ratio"].transform(lambda ratio: ratio.notna().all())]
    table["method"] = [str(label).split(SEPARATOR, 1)[0] for label in table["label"]]
    nearest = table.groupby(["method", "at"])["far"].transform("min")
    return table[table["far"] == nearest].reset_index(drop=True)


def means(table: pandas.DataFrame, metric: str = METRIC) -> pandas.DataFrame:
    """Geometric means over units with their intervals, in the order of the figure."""
    by = ["kind", "method", "algorithm", "label", "point", "at"]
    found = geometric_means(table, "ratio", by, "ratio")
    groups = table.groupby(by)
    found = found.merge(groups[metric].mean().reset_index(), on=by)
    for part in (MEMORY, TRAFFIC):
        parts = (
            groups[list(dict.fromkeys([part, *PARTS[part]]))]
            .apply(bytes_over_bytes, part)
            .rename(part)
        )
        found = found.merge(parts.reset_index(), on=by)
    found["cost"] = found[TRAFFIC].where(found["kind"] == "reads", found[MEMORY])
    better = groups["ratio"].agg(lambda ratio: int((ratio < 1).sum())).rename("better")
    found = found.merge(better.reset_index(), on=by)
    # A method without a setting near the middle stands by what it has.
    distance = numpy.log(found["at"] / MIDDLE).abs()
    found["middle"] = distance == distance.groupby(found["method"]).transform("min")
    place = found[found["middle"]].groupby(["kind", "method"])["ratio"].min()
    found["place"] = [place[row] for row in zip(found["kind"], found["method"])]
    found["group"] = found["kind"].map(list(KINDS).index)
    return found.sort_values(["group", "place", "method", "at"]).drop(columns=["group", "place"])


def draw(inputs: Namespace) -> Figure:
    results: Results = inputs.results
    results.need(inputs.metric, MEMORY, TRAFFIC)
    table = compared(results, inputs.metric)
    if table.empty:
        raise ResultsError(
            f"{results.path}: nothing to compare at {', '.join(f'{at:g}' for at in AT)} of the "
            "bytes: it takes cells labelled uniform and others with about as many"
        )
    found = means(table, inputs.metric)
    rows = list(dict.fromkeys(zip(found["kind"], found["method"])))
    if len(rows) > MAX_METHODS:
        raise ResultsError(f"{results.path}: {len(rows)} methods are too many for one figure")
    kinds = list(dict.fromkeys(kind for kind, _ in rows))
    # A line between two kinds, which names the next one.
    places = {row: i + kinds.index(row[0]) + 1 for i, row in enumerate(rows)}
    lines = len(rows) + len(kinds)
    figure, axes = style.panels(1, 1, 0.7 + 0.122 * lines)
    axis = axes[0][0]
    handles: dict[str, Any] = {}
    for at, colour, marker in zip(AT, style.ordered(len(AT)), MARKS, strict=True):
        own = found[found["at"] == at]
        if own.empty:  # a sweep of fewer budgets
            continue
        spots = [places[row] for row in zip(own["kind"], own["method"])]
        lines_at = [spot for spot, middle in zip(spots, own["middle"]) if middle]
        ends = own.loc[own["middle"], ["ratio_low", "ratio_high"]]
        if ends["ratio_low"].notna().all():  # one unit has no interval
            axis.hlines(lines_at, *ends.to_numpy().T, color=colour, linewidth=0.8)
        axis.plot(
            own["ratio"],
            spots,
            linestyle="none",
            marker=marker,
            markersize=3.4,
            color=colour,
            markeredgecolor="white",
            markeredgewidth=0.3,
        )
        handles[f"{at:g} of the bytes"] = Line2D(
            [], [], linestyle="none", marker=marker, color=colour
        )
    axis.axvline(1.0, color=style.look("uniform")[0], linewidth=0.9)
    axis.set_xscale("log")
    _room(axis, found)
    style.plain_log(axis.xaxis)
    heads = {min(places[row] for row in rows if row[0] == kind) - 1: kind for kind in kinds}
    ticks = {**{spot: method for (_, method), spot in places.items()}, **dict.fromkeys(heads, "")}
    for spot, kind in heads.items():
        axis.axhspan(spot - 0.5, spot + 0.5, color="0.93", zorder=0)
        axis.text(0.01, spot, KINDS[kind], transform=axis.get_yaxis_transform(), va="center",
                  fontsize=6.5, style="italic")  # fmt: skip
    axis.set_yticks(list(ticks), list(ticks.values()), fontsize=6.5)
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(lines - 0.4, -0.6)
    axis.set_xlabel("error / error of uniform sampling with as many bytes")
    style.legend_above(axis, handles)
    shown = results.ok.merge(table[UNIT].drop_duplicates(), on=UNIT)
    return Figure("field", figure, found, _caption(results, shown, found, inputs.metric))


def _room(axis: Any, found: pandas.DataFrame) -> None:
    """The means decide the range; intervals may leave it."""
    axis.set_xlim(found["ratio"].min() / 1.5, found["ratio"].max() * 1.5)


def _caption(
    results: Results, cells: pandas.DataFrame, found: pandas.DataFrame, metric: str
) -> str:
    methods = {str(label).split(SEPARATOR, 1)[0] for label in cells["label"]}
    others = sorted(methods - set(found["method"]) - {"uniform"})
    lines = (
        f"Lines: 95 % intervals at {MIDDLE:g} or what is nearest, {over(found)}; they may leave "
        "the picture. "
    )
    return (
        f"{words(metric)}, over that of uniform sampling with as many bytes, geometric means over "
        "units; left of 1 is better. Bytes are those that a method holds, or that a row reads if "
        f"it holds all tokens. A setting counts if its bytes are within a factor of {NEAR:g} of "
        "those named; uniform sampling then has as many. "
        + (lines if found["groups"].min() > 1 else "")
        + facts(results, cells)
        + (f" No bytes near those: {', '.join(others)}." if others else "")
    )
