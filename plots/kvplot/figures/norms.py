"""ClusterGen C.1: norms of queries, keys and values per layer, and exponents of theorems."""

import math
from argparse import Namespace
from collections.abc import Iterator

from kvplot import style
from kvplot.figure import Figure
from kvplot.results import Entry, ResultsError

NEEDS = ("inspection",)
QUANTILE = 0.05
TENSORS: tuple[tuple[str, style.Colour], ...] = (
    ("queries", style.look("h2o")[0]),
    ("keys", style.KEYS),
    ("values", style.VALUES),
)
THEOREMS = (
    ("r", r"$r=\max\Vert\beta q\Vert$", "o"),
    ("delta_r", r"$\delta r$ (SubGen)", "s"),
    ("balancekv_exponent", r"$2\beta r^2$ (BalanceKV)", "D"),
    ("coreset_exponent", r"$\rho=r\max\Vert k\Vert$ (coresets)", "^"),
)


def _drawn(norms: Entry) -> Entry:
    return {q: norms[q] for q in ("p1", "p25", "median", "p75", "p99", "max")}


def _rows(layer: Entry, head: Entry) -> Iterator[Entry]:
    row = {
        "r": head["r"],
        "balancekv_exponent": head["balancekv_exponent"],
        "coreset_exponent": head["r"] * head["keys"]["norms"]["max"],
        "log_n": math.log(layer["tokens"]),
    }
    for name, _ in TENSORS:
        norms = head[name]["norms"]
        row.update({f"{name}.{q}": value for q, value in {**norms, **_drawn(norms)}.items()})
    at = [at for at in head["keys"]["clustering"] if at["delta_quantile"] == QUANTILE]
    if not at:
        raise ResultsError(
            f"no clusters at the {QUANTILE:g} quantile of distances; inspect the dump with "
            f"--delta-quantiles {QUANTILE:g}"
        )
    yield {**row, "delta_r": at[0]["delta_r"]}


def draw(inputs: Namespace) -> Figure:
    table = inputs.inspection.table(_rows).sort_values(["sequence", "layer", "kv_head"])
    places = range(len(table))
    figure, axes = style.panels(2, 2, 4.2)
    for axis, (name, colour) in zip(axes.flat, TENSORS):
        axis.vlines(places, table[f"{name}.p1"], table[f"{name}.p99"], color=colour, linewidth=0.8)
        axis.vlines(
            places, table[f"{name}.p25"], table[f"{name}.p75"], color=colour, linewidth=4, alpha=0.6
        )
        axis.plot(
            places,
            table[f"{name}.median"],
            "o",
            color=colour,
            markersize=4,
            markeredgecolor="white",
        )
        axis.plot(places, table[f"{name}.max"], "_", color=colour, markersize=7)
        axis.set_ylim(bottom=0)
        axis.set_ylabel(f"norms of {name}")
    last = axes[1][1]
    for (name, words, marker), colour in zip(THEOREMS, style.ordered(len(THEOREMS))):
        last.plot(places, table[name], marker, color=colour, label=words)
    # A line each, where sequences differ in length.
    last.step(places, table["log_n"], "k:", where="mid", linewidth=0.9, label=r"$\log n$")
    last.set_yscale("log")
    style.plain_log(last.yaxis)
    last.set_ylabel("exponents of the theorems")
    style.legend_above(last, dict(zip(*reversed(last.get_legend_handles_labels()))))
    names = [style.unit(*head) for head in zip(table["layer"], table["kv_head"])]
    few = max(len(names) // 12, 1)
    for axis in axes.flat:
        axis.set_xticks(list(places)[::few], names[::few], rotation=60)
    return Figure(
        "norms",
        figure,
        table,
        "Euclidean norms as stored, per layer (L) and KV head (h): dot median, bar quartiles, "
        "line 1 % to 99 %, dash maximum. "
        f"delta is the {QUANTILE:g} quantile of key distances; the theorems' sample sizes "
        "grow like exp(2 delta r) and exp(2 beta r^2), beta the model's scale; SubGen's "
        "Corollary 1 asks for a delta r that grows more slowly than log n. Coresets for any "
        "keys and queries of such norms need an order of exp(rho) tokens (arXiv 2605.05602). "
        f"{inputs.inspection.facts()}",
    )
