"""Theorems: promised epsilon, measured epsilon, and that of trivial answers."""

from argparse import Namespace
from typing import Any

import numpy
import pandas
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from kvplot import style
from kvplot.figure import Figure, facts
from kvplot.results import Entry, Results, ResultsError

NEEDS = ("results",)
BY = ("dump", "sequence", "layer", "kv_head")
# Algorithm, norm of its theorem, what the sizes that it keeps promise, and the theorem's name.
THEOREMS = (
    ("subgen", "spectral", "derived.epsilon_effective", "SubGen Theorem 1"),
    ("balancekv", "frobenius", "derived.theorem_epsilon", "BalanceKV Theorem 3.3"),
)
STREAM = ["dump", "sequence", "layer", "kv_head"]
ASKED = "derived.promised_epsilon_spectral"
SURE = 0.99
LARGEST = 1e6  # promises beyond it are drawn at the edge


def fits(results: Results) -> bool:
    return "trivial.zero.epsilon_spectral.last" in results.ok and any(
        promise in results.ok for _, _, promise, _ in THEOREMS
    )


def _numbers(cells: pandas.DataFrame, name: str) -> "pandas.Series[float]":
    if name not in cells:
        return pandas.Series(numpy.nan, index=cells.index)
    return pandas.to_numeric(cells[name], errors="coerce")


def _setting(seeds: pandas.DataFrame, norm: str, promise: str) -> Entry:
    """One stream and setting: median and quantiles over seeds. Vectors are keys and values."""
    measured = _numbers(seeds, f"errors.epsilon_{norm}.last")

    def get(*names: str) -> float:  # the first that is there
        found = [float(_numbers(seeds, name).iloc[0]) for name in names]
        return next((value for value in found if value == value), numpy.nan)

    clusters, s = get("clusters.final"), get("derived.proved_s")
    return {
        "algorithm": seeds["algorithm"].iloc[0],
        "epsilon": get(ASKED),
        "promised": get(ASKED, promise),
        "measured": measured.median(),
        "low": measured.quantile(1 - SURE),
        "high": measured.quantile(SURE),
        "zero": get(f"trivial.zero.epsilon_{norm}.last"),
        "mean_value": get(f"trivial.mean_value.epsilon_{norm}.last"),
        "kappa": get("trivial.kappa.last"),
        "vacuous": seeds["derived.vacuous"].iloc[0] if get(ASKED) == get(ASKED) else None,
        "memory": _numbers(seeds, "memory.fraction").mean(),
        "t": get("derived.t", "params.t"),
        "s": get("derived.s"),
        "clusters": clusters,
        "proved_t": get("derived.proved_t", "derived.theorem_t"),
        "proved_s": s,
        "vectors_proved": clusters * (get("derived.proved_t") + 1) + 2 * s,
        "vectors_kept": _numbers(seeds, "memory.vectors").mean(),
        "vectors_exact": 2 * get("tokens"),
        "seeds": len(seeds),
    }


def _settings(cells: pandas.DataFrame, norm: str, promise: str) -> pandas.DataFrame:
    rows = []
    for (*stream, label, point), seeds in cells.groupby([*STREAM, "label", "point"], sort=False):
        of = {**dict(zip(STREAM, stream)), "label": label, "point": point}
        rows.append({**of, **_setting(seeds, norm, promise)})
    table = pandas.DataFrame(rows)
    # The fewest vectors, of all settings of a stream, with which 99 % of the seeds stay below the
    # epsilon that was asked for.
    needed = []
    for _, row in table.iterrows():
        same = (table[STREAM] == row[STREAM]).all(axis=1)
        needed.append(table[same & (table["high"] <= row["epsilon"])]["vectors_kept"].min())
    table["vectors_needed"] = needed
    return table


def _panel(axis: Axes, here: pandas.DataFrame, shades: LogNorm, handles: dict[str, Any]) -> None:
    """One stream of one theorem; adds to `handles` what the legend names."""
    axis.set_xscale("log")
    axis.set_yscale("log")
    zero, mean = here["zero"].iloc[0], here["mean_value"].iloc[0]
    least = min(zero, mean)
    promised = here["promised"].replace(numpy.inf, numpy.nan).fillna(LARGEST).clip(upper=LARGEST)
    handles["answer 0"] = axis.axhline(zero, color="black", linewidth=0.8, linestyle="--")
    handles["mean value"] = axis.axhline(mean, color="black", linewidth=0.8, linestyle=":")
    grey = axis.axvspan(least, 4 * LARGEST, color="black", alpha=0.08, linewidth=0)
    handles["promises nothing"] = grey
    ends = [min(here["low"].min(), least) / 2, 4 * LARGEST]
    handles["as promised"] = axis.plot(ends, ends, color="black", linewidth=0.6)[0]
    for words, marker, shown in (
        ("sizes as proved", "D", here["epsilon"].notna()),
        ("sizes given", "o", here["epsilon"].isna()),
    ):
        if not shown.any():
            continue
        bars = (promised[shown], here["low"][shown], here["high"][shown])
        axis.vlines(*bars, color="grey", linewidth=0.6)
        handles[words] = axis.scatter(
            promised[shown],
            here["measured"][shown],
            c=here["memory"][shown],
            norm=shades,
            cmap="viridis",
            marker=marker,
            s=16,
            edgecolors="black",
            linewidths=0.3,
            zorder=3,
        )
    positive = [each for each in (least, promised.min()) if each > 0]
    axis.set_xlim(min(positive, default=1.0) / 3, 4 * LARGEST)


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    parts = []
    for algorithm, norm, promise, title in THEOREMS:
        cells = results.ok[results.ok["algorithm"] == algorithm]
        if len(cells):
            results.need(f"errors.epsilon_{norm}.last", f"trivial.zero.epsilon_{norm}.last")
            parts.append((title, _settings(cells, norm, promise)))
    if not parts:
        raise ResultsError(f"{results.path}: no finished cell of subgen or balancekv")
    table = pandas.concat([part for _, part in parts], ignore_index=True)
    streams = table[STREAM].drop_duplicates().sort_values(STREAM, ignore_index=True)
    models = results.models()
    memory = table["memory"]
    shades = LogNorm(memory.min(), max(memory.max(), 1.01 * memory.min()))
    figure, axes = style.panels(len(parts), len(streams), 1.3 + 1.9 * len(parts), sharey="row")
    handles: dict[str, Any] = {}
    for line, (title, part) in zip(axes, parts):
        for axis, (_, stream) in zip(line, streams.iterrows()):
            here = part[(part[STREAM] == stream).all(axis=1)]
            if len(here):
                _panel(axis, here, shades, handles)
            name = str(models.get(stream["dump"], stream["dump"])).split("-")[0]
            axis.set_title(f"{name}\nlayer {stream['layer']}, head {stream['kv_head']}", fontsize=7)
        shown = part[["low", "high", "zero", "mean_value"]]
        shown = shown[shown > 0]
        line[0].set_ylim(shown.min().min() / 2, 2 * shown.max().max())
        line[0].set_ylabel(rf"{title}: $\hat\varepsilon$", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel(r"promised $\varepsilon$", fontsize=8)
    style.legend_right(axes[0][-1], handles)
    points = next(handles[name] for name in ("sizes given", "sizes as proved") if name in handles)
    bar = figure.colorbar(points, ax=axes[-1][-1], fraction=0.08)
    bar.set_label("memory / exact cache")
    table.insert(0, "model", table["dump"].map(models))
    return Figure(
        "tightness",
        figure,
        table,
        "Largest error over query heads at the last row, over the theorem's scale (SubGen: "
        "spectral norm of V; BalanceKV: Frobenius norm, the constant of its O taken as 1), "
        "median over seeds and 1 to 99 %, against what the sizes promise. Grey: an answer that "
        f"needs no method keeps the promise too. Promises above {LARGEST:g} are drawn there. "
        f"{facts(results)}",
    )
