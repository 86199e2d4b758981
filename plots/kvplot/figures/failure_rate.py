"""SubGen Theorem 1: how often the error at the last row exceeds epsilon, with exact intervals."""

import json
import textwrap
from argparse import Namespace
from collections.abc import Iterable
from typing import Any

import numpy
import pandas
from scipy.stats import beta

from kvplot import style
from kvplot.figure import Figure, facts

NEEDS = ("results",)
BY = ("dump", "sequence", "layer", "kv_head")
METRIC = "errors.epsilon_spectral.last"
PROMISED = 0.01
STREAM = ["dump", "layer", "kv_head"]
# Answers that need no method: column, path of the same error, name in the legend, dashes.
ANSWERS = (
    ("zero", "trivial.zero.epsilon_spectral.last", "answer 0", "--"),
    ("mean_value", "trivial.mean_value.epsilon_spectral.last", "mean value", "-."),
)


def clopper_pearson(failures: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Lower and upper limit of a binomial probability."""
    tail = (1 - level) / 2
    low = beta.ppf(tail, failures, trials - failures + 1) if failures > 0 else 0.0
    high = beta.ppf(1 - tail, failures + 1, trials - failures) if failures < trials else 1.0
    return float(low), float(high)


def rates(cells: pandas.DataFrame, epsilons: Iterable[float]) -> pandas.DataFrame:
    """Failures over epsilon, one trial per seed of one stream: a row per setting and epsilon."""
    rows = []
    for (dump, layer, head, label, point), seeds in cells.groupby([*STREAM, "label", "point"]):
        errors = seeds[METRIC].dropna().to_numpy(dtype=float)
        for epsilon in epsilons:
            failures = int((errors > epsilon).sum())
            low, high = clopper_pearson(failures, len(errors))
            rows.append(
                {
                    "dump": dump,
                    "layer": layer,
                    "kv_head": head,
                    "label": label,
                    "point": point,
                    "epsilon": epsilon,
                    "failures": failures,
                    "seeds": len(errors),
                    "rate": failures / len(errors),
                    "low": low,
                    "high": high,
                    "vacuous": bool(seeds["derived.vacuous"].any()),
                    "median": numpy.median(errors),
                    **{name: json.loads(str(point)).get(name) for name in ("delta_quantile", "s")},
                    "clusters": seeds["clusters.final"].iloc[0],
                    "memory": seeds["memory.fraction"].astype(float).mean(),
                }
            )
    return pandas.DataFrame(rows)


def trivial(cells: pandas.DataFrame) -> pandas.DataFrame:
    """The error of answers that need no method, a row per stream; none of results that have no such
    numbers (schema versions before 1.2.0)."""
    there = {path: column for column, path, *_ in ANSWERS if path in cells}
    first = cells.groupby(STREAM)[list(there)].first().astype(float)
    return first.rename(columns=there).reset_index()


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need(METRIC, "derived.vacuous")
    cells = results.ok[results.ok["algorithm"] == "subgen"]
    given = cells[cells["params.s"].notna()]
    proved = cells[cells["params.s"].isna()]
    streams = given[STREAM].drop_duplicates().sort_values(STREAM)
    answers = trivial(given)
    largest = given[METRIC].astype(float)
    grid = numpy.geomspace(max(largest[largest > 0].min() / 2, 1e-5), largest.max() * 1.5, 60)
    table = rates(given, grid)
    kept = rates(proved, sorted(proved["params.epsilon"].unique())) if len(proved) else None
    if kept is not None:
        # Each setting is judged at the epsilon that it was made for.
        asked = kept["point"].str.extract(r'"epsilon": ([0-9.eE+-]+)')[0].astype(float)
        kept = kept[asked == kept["epsilon"]]
    points = sorted(
        given["point"].unique(), key=lambda p: given[given["point"] == p]["params.s"].iloc[0]
    )
    models = results.models()
    several = streams["dump"].nunique() > 1
    names = {
        dump: f"{str(models.get(dump, dump)).split('-')[0]}, " if several else ""
        for dump in streams["dump"]
    }
    figure, axes = style.panels(1, len(streams), 2.9, sharey=True)
    for axis, (dump, layer, head) in zip(axes[0], streams.to_numpy()):
        axis.set_xscale("log")
        stream = table[
            (table["dump"] == dump) & (table["layer"] == layer) & (table["kv_head"] == head)
        ]
        for point, colour in zip(points, style.ordered(len(points))):
            here = stream[stream["point"] == point]
            slots = given[given["point"] == point]["params.s"].iloc[0]
            axis.plot(here["epsilon"], here["rate"], color=colour, label=f"{slots:g} samples")
            bars = here.iloc[4::10]
            axis.errorbar(
                bars["epsilon"],
                bars["rate"],
                color=colour,
                linestyle="none",
                yerr=[bars["rate"] - bars["low"], bars["high"] - bars["rate"]],
                elinewidth=0.7,
                capsize=1.5,
            )
        if kept is not None:
            here = kept[
                (kept["dump"] == dump) & (kept["layer"] == layer) & (kept["kv_head"] == head)
            ]
            for vacuous, face, size, words in (
                (True, "white", 6, "sizes as proved: vacuous"),
                (False, "black", 3, "sizes as proved"),
            ):
                part = here[here["vacuous"] == vacuous]
                if len(part):
                    axis.errorbar(
                        part["epsilon"],
                        part["rate"],
                        yerr=[part["rate"] - part["low"], part["high"] - part["rate"]],
                        linestyle="none",
                        marker="o",
                        color="black",
                        markersize=size,
                        markerfacecolor=face,
                        capsize=1.5,
                        elinewidth=0.7,
                        label=words,
                    )
        axis.axhline(PROMISED, color="black", linewidth=0.7, linestyle=":")
        reached = answers[(answers[STREAM] == [dump, layer, head]).all(axis=1)]
        for column, _, words, dashes in ANSWERS:
            for value in reached.get(column, ()):
                axis.axvline(
                    value, color="black", linewidth=0.8, linestyle=dashes, label=words, zorder=0
                )
        axis.set_title(textwrap.fill(f"{names[dump]}layer {layer}", 22), fontsize=7)
    style.outer_labels(axes, r"$\varepsilon$", r"seeds with $\hat\varepsilon > \varepsilon$")
    handles: dict[str, Any] = {}
    for axis in axes[0]:
        handles.update(zip(*reversed(axis.get_legend_handles_labels())))
    style.legend_right(axes[0][-1], handles)
    shown = pandas.concat([table, kept]) if kept is not None else table
    shown = shown.merge(answers, on=STREAM, how="left")
    shown = shown.sort_values([*STREAM, "label", "s"], kind="stable")
    shown.insert(0, "model", shown["dump"].map(models))
    count = int(kept["vacuous"].sum()) if kept is not None else 0
    judged = f"{count} of {len(kept)} settings as proved are vacuous. " if kept is not None else ""
    t = ", ".join(f"{value:g}" for value in sorted(given["params.t"].unique()))
    lines = (
        "upright: what the answer 0 and the mean of the values reach, which need no method and "
        "miss no epsilon to the right of their lines. "
        if len(answers.columns) > len(STREAM)
        else ""
    )
    return Figure(
        "failure_rate",
        figure,
        shown,
        "Fraction of the seeds whose error at the last row, in the norm of SubGen's Theorem 1, is "
        "above epsilon. A panel per stream, a line per "
        f"number of samples; t {t}. Bars: 95 % Clopper-Pearson intervals, at every tenth "
        "of the epsilons that a curve is computed for; "
        f"dotted: the promised 0.01; {lines}Vacuous: nothing is promised, since sizes were "
        "capped, or no less is kept than in the exact cache, or the answer 0 or the mean of the "
        "values keeps the promise too. "
        f"{judged}{facts(results)}",
    )
