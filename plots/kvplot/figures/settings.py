"""Every setting of a sweep as one line: mean error with its interval over units, and its memory.

With `--against`, which a ranking of settings takes, also each unit's error over that of another
label: units differ far more than settings, so that intervals of means overlap where no unit
disagrees.
"""

import json
import re
from argparse import ArgumentParser, Namespace

import pandas
from matplotlib.axes import Axes

from kvplot import style
from kvplot.curves import NAMES, WORDS, words, words_within
from kvplot.faults import RequestError, few
from kvplot.figure import Figure, always_kept, facts
from kvplot.results import (
    FLOAT,
    POINT,
    ROUNDING,
    UNIT,
    Results,
    ResultsError,
    did_you_mean,
    undrawn,
)
from kvplot.statistics import ENDS, geometric_means, over, summarised

NEEDS = ("results",)
MAX_SETTINGS = 60
METRIC, MEMORY = "errors.relative_l2.mean", "memory.fraction"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--against",
        metavar="LABEL",
        help="also each error over that of this label, or of a setting as the figure names it, "
        "paired by unit; of several, the one nearest in memory",
    )


def summary(results: Results) -> pandas.DataFrame:
    """Mean and interval over units per point, and the memory."""
    if METRIC not in results.ok or MEMORY not in results.ok:
        return pandas.DataFrame()
    names = {"cells": "cells", MEMORY: "memory", METRIC: "error", f"{METRIC}_low": "low",
             f"{METRIC}_high": "high", "over": "over", "groups": "groups"}  # fmt: skip
    table = summarised(results.frame, METRIC, [MEMORY])[[*POINT, *names]].rename(columns=names)
    in_order = results.ok[POINT].drop_duplicates().merge(table, on=POINT)
    return in_order[in_order["error"].notna()].reset_index(drop=True)


def fits(results: Results) -> bool:
    return 1 < len(_drawn(results)) <= MAX_SETTINGS


def _drawn(results: Results) -> pandas.DataFrame:
    table = summary(results)
    return table[table["error"] > 1e-9] if len(table) else table


def names(table: pandas.DataFrame) -> list[str]:
    """Label and the parameters in which the settings of a label differ."""
    out = []
    params = table["point"].map(json.loads)
    for label, own in zip(table["label"], params):
        same = [p for p, other in zip(params, table["label"]) if other == label]
        differ = [name for name in own if len({json.dumps(p.get(name)) for p in same}) > 1]
        words = ", ".join(f"{name} {_number(own[name])}" for name in differ)
        out.append(f"{label}: {words}" if words else label)
    return out


def in_words(name: str) -> str:
    """A setting's name as a label of an axis: "all tokens in q8_0", "snapkv in kivi 4 bits, 0.2 of
    the memory", "keys in int 2 bits"."""
    base, *more = name.split(": ", 1)
    parts = re.fullmatch(r"(.+) \| K (.+) V (.+)", base)
    if parts:
        method, keys, values = parts.groups()
        kept = "" if method == "exact" else f" of {method}"
        if keys == values:
            base = f"{'all tokens' if method == 'exact' else method} in {keys}"
        elif values == FLOAT:
            base = f"keys{kept} in {keys}"
        elif keys == FLOAT:
            base = f"values{kept} in {values}"
        else:
            base = f"keys{kept} in {keys}, values in {values}"
        base = re.sub(r"\bbits=(\d+)", r"\1 bits", base).replace("=", " ")
    more = [re.sub(r"budget memory ([\d.]+)", r"\1 of the memory", each) for each in more]
    return ", ".join([base, *more])


def _number(value: object) -> str:
    if isinstance(value, dict):  # {"memory": F}
        return " ".join(f"{name} {_number(part)}" for name, part in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def paired(
    results: Results, table: pandas.DataFrame, against: str
) -> tuple[pandas.DataFrame, dict[str, list[float]]]:
    """Errors over those of the setting `against` that is nearest in memory, unit by unit: geometric
    means with intervals, in how many units the error is the smaller one, and their memory over the
    reference's; and the ratios of the units, by setting. The references have none, and neither has
    a unit in which one of the two errors is exact to rounding."""
    others = table[(table["label"] == against) | (table["setting"] == against)]
    if others.empty:
        known = [*table["label"], *table["setting"]]
        raise RequestError(
            f"{results.path}: no setting is called {against!r}{did_you_mean(against, known)}; "
            f"labels here are {few(table['label'].unique())}"
        )
    units = results.ok.assign(**{METRIC: pandas.to_numeric(results.ok[METRIC])})
    errors = units.groupby([*POINT, *UNIT])[METRIC].mean()
    found = []
    ratios: dict[str, list[float]] = {}
    for _, row in table[~table.index.isin(others.index)].iterrows():
        nearest = others.loc[(others["memory"] - row["memory"]).abs().idxmin()]
        own, reference = errors[tuple(row[POINT])], errors[tuple(nearest[POINT])]
        ratio = (own / reference)[(own > ROUNDING) & (reference > ROUNDING)]
        frame = ratio.dropna().rename("ratio").reset_index()
        if frame.empty:
            continue
        frame = frame.assign(label=row["label"], setting=row["setting"])
        ratios[row["setting"]] = [float(each) for each in frame["ratio"]]
        found.append(
            geometric_means(frame, "ratio", ["label", "setting"], "ratio").assign(
                better=int((frame["ratio"] < 1).sum()),
                against=nearest["setting"],
                memory_ratio=row["memory"] / nearest["memory"],
            )
        )
    if not found:
        raise ResultsError(
            f"{results.path}: no KV head has an error above rounding of {against!r} and of another "
            "setting; name another by --against"
        )
    return pandas.concat(found, ignore_index=True), ratios


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    table = _drawn(results)
    if table.empty:
        raise ResultsError(f"{results.path}: no mean error above rounding")
    if len(table) > MAX_SETTINGS:
        raise ResultsError(f"{results.path}: {len(table)} settings are too many for one figure")
    table = table.assign(setting=names(table)).reset_index(drop=True)
    height = 0.9 + 0.16 * len(table)
    if inputs.against:
        figure, axes = style.panels(1, 1, height)
        error = beside = axes[0][0]
    else:
        figure, axes = style.panels(1, 2, height, sharey=True, width_ratios=(2, 1))
        error, beside = axes[0]
        known = table[table["groups"] > 1]
        said = f"{words(METRIC)}, seeds and units, and {WORDS[MEMORY]}, per setting" + (
            f"; lines: 95 % intervals, {over(known)}." if len(known) else "."
        )
        _line(error, table, ("error", "low", "high"))
        error.set_xlabel("relative error" if style.narrow() else NAMES[METRIC])
    error.set_yticks(range(len(table)), list(map(in_words, table["setting"])), fontsize=7)
    error.set_ylim(len(table) - 0.5, -0.5)
    if inputs.against:
        pairs, ratios = paired(results, table, inputs.against)
        table = table.drop(columns=["over", "groups"])
        table = table.merge(pairs.drop(columns=["label"]), on="setting", how="left")
        _line(beside, table, ("ratio", "ratio_low", "ratio_high"))
        for place, (algorithm, setting) in enumerate(zip(table["algorithm"], table["setting"])):
            of_units = ratios.get(setting, [])
            colour = _look(table, algorithm)[0]
            beside.plot(of_units, [place] * len(of_units), "|", color=colour, alpha=0.6, zorder=1)
            if of_units:
                beside.annotate(
                    f"{sum(ratio < 1 for ratio in of_units)}/{len(of_units)}",
                    (1.01, place),
                    xycoords=("axes fraction", "data"),
                    va="center",
                    fontsize=6.5,
                )
        beside.axvline(1.0, color="black", linewidth=0.7, linestyle=":")
        beside.set_xlabel(f"error / error of {in_words(inputs.against)}")
        said = (
            f"Error of each setting over that of {inputs.against} at the nearest memory, paired by "
            f"unit: geometric mean, 95 % interval ({over(pairs)}) and units (ticks). On the right: "
            "in how many units it is smaller. In brackets: the error, which is the "
            f"{words_within(METRIC)}, seeds and units, and {WORDS[MEMORY]}.{_unequal(pairs)}"
            f"{_unpaired(ratios, len(results.ok[UNIT].drop_duplicates()))}"
        )
        points = zip(table["setting"], table["error"], table["memory"])
        error.set_yticks(
            range(len(table)),
            [f"{in_words(name)} ({error:.3f}; {held:.2f})" for name, error, held in points],
        )
    else:
        for place, (algorithm, held) in enumerate(zip(table["algorithm"], table["memory"])):
            beside.barh(place, held, color=_look(table, algorithm)[0], height=0.6)
        beside.set_xlabel("memory" if style.narrow() else "memory / exact")
    return Figure(
        "settings",
        figure,
        table,
        f"{said} {facts(results)}{always_kept(results.ok)}"
        f"{undrawn(summary(results), table, 'no error', 'error')}",
    )


def _unpaired(ratios: dict[str, list[float]], units: int) -> str:
    """Which settings have a ratio in fewer than all units, in words."""
    fewer: dict[int, list[str]] = {}
    for setting, of_units in ratios.items():
        if len(of_units) < units:
            fewer.setdefault(len(of_units), []).append(setting)
    if not fewer:
        return ""
    listed = "; ".join(f"{few(names)} in {count}" for count, names in sorted(fewer.items()))
    return f" Ratios in fewer than {units} KV heads, for an error exact to rounding: {listed}."


def _unequal(pairs: pandas.DataFrame) -> str:
    """Which settings are compared with one of another memory, in words: a ratio of errors says
    nothing of methods then."""
    apart = pairs[(pairs["memory_ratio"] > ENDS) | (pairs["memory_ratio"] < 1 / ENDS)]
    if apart.empty:
        return f" Memories of the two are within {100 * (ENDS - 1):.0f} %."
    listed = ", ".join(
        f"{setting} ({ratio:.3g} times)"
        for setting, ratio in zip(apart["setting"], apart["memory_ratio"])
    )
    return f" Not at equal memory: {listed}."


def _look(table: pandas.DataFrame, algorithm: str) -> tuple[str, str]:
    return style.look(algorithm, table["algorithm"].unique())


def _line(axis: Axes, table: pandas.DataFrame, columns: tuple[str, str, str]) -> None:
    """A marker and an interval per setting, on a logarithmic axis; the columns of the value and of
    the ends of its interval."""
    drawn = zip(table["algorithm"], *(table[column] for column in columns))
    for place, (algorithm, value, low, high) in enumerate(drawn):
        colour, marker = _look(table, algorithm)
        if pandas.notna(low):
            axis.plot([low, high], [place, place], color=colour, linewidth=0.9)
        axis.plot(
            value, place, marker=marker, color=colour, markeredgecolor="white", markeredgewidth=0.4
        )
    axis.set_xscale("log")
    style.plain_log(axis.xaxis)
