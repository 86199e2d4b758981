"""Bytes that a decoded token reads of the cache, and of a whole step (Keyformer Table 1)."""

from argparse import Namespace
from typing import Any, NamedTuple

import pandas
from matplotlib.axes import Axes

from kvplot import style
from kvplot.curves import labelled_lines
from kvplot.figure import Figure, facts
from kvplot.figures.cache_size import GIB, PER_TOKEN, WEIGHTS
from kvplot.figures.settings import in_words
from kvplot.results import Results, ResultsError, mean_over_units, with_params

NEEDS = ("results",)
BYTES, FRACTION = "traffic.bytes_read.mean", "traffic.fraction"
EXACT = "exact"


class Printed(NamedTuple):
    """Rows of Keyformer's Table 1: tokens of prompt and answer together, tokens per second with the
    full cache, and with a label's cache."""

    tokens: int
    full: float
    label: str
    reduced: float


# MPT-7B, one sequence at a time.
TABLE1 = (
    Printed(2048, 24.9, "h2o", 27.8),
    Printed(4096, 15.0, "h2o", 20.5),
    Printed(8192, 8.3, "h2o", 14.1),
    Printed(2048, 24.9, "keyformer", 32.0),
    Printed(4096, 15.0, "keyformer", 24.3),
    Printed(8192, 8.3, "keyformer", 17.0),
)


def fits(results: Results) -> bool:
    return results.tokens_vary and BYTES in results.ok and EXACT in set(results.ok["label"])


def of_caches(results: Results) -> pandas.DataFrame:
    """KiB per decoded token and KV head of each setting and n, and how many times fewer than
    `exact` reads on average."""
    table = with_params(mean_over_units(results.ok, [BYTES, FRACTION]))
    table["KiB"] = table[BYTES] / 1024
    exact = table[table["label"] == EXACT].set_index("params.tokens")[BYTES]
    if exact.empty:
        raise ResultsError(f"{results.path}: no finished cell labelled {EXACT} to compare with")
    table["fewer"] = table["params.tokens"].map(exact) / table[BYTES]
    return table


def of_steps(table: pandas.DataFrame) -> pandas.DataFrame:
    """Keyformer's Table 1: times fewer bytes of a whole step of MPT-7B, weights and cache, if it
    reads the part of the cache that the replay of the longest n read; and times more tokens per
    second."""
    longest = table[table["params.tokens"] == table["params.tokens"].max()]
    rows = []
    for printed in TABLE1:
        own = longest[longest["label"] == printed.label]
        if len(own) != 1:
            continue
        # Half are the prompt, half decoded: row i of the latter sees i + 1 tokens.
        seen = (printed.tokens / 2 + 1 + printed.tokens) / 2
        kept = 1.0 / float(own["fewer"].iloc[0])
        full, reduced = (WEIGHTS + PER_TOKEN * seen * part for part in (1.0, kept))
        rows.append(
            {
                "label": printed.label,
                "algorithm": own["algorithm"].iloc[0],
                "tokens": printed.tokens,
                "GiB full": full / GIB,
                "GiB": reduced / GIB,
                "bytes": full / reduced,
                "speed printed": printed.reduced / printed.full,
            }
        )
    return pandas.DataFrame(rows)


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need(BYTES, FRACTION)
    if not results.tokens_vary:
        raise ResultsError(f"{results.path}: select.tokens of the sweep is not an axis")
    table = of_caches(results)
    steps = of_steps(table)
    tokens = sorted(table["params.tokens"].unique())
    figure, axes = style.panels(1, 3 if len(steps) else 2, 2.5)
    handles: dict[str, Any] = {}
    for axis, y, words in (
        (axes[0][0], "KiB", "KiB read per token"),
        (axes[0][1], "fewer", "times fewer bytes"),
    ):
        axis.set_yscale("log")
        labelled_lines(axis, table.assign(bars=0.0), "params.tokens", y, handles, error="bars")
        axis.set_ylabel(words)
        axis.set_title("one KV head", loc="left")
        _tokens(axis, tokens)
    if len(steps):
        _steps(axes[0][2], steps, table, handles)
    style.legend_above(axes[0][0], handles, in_words)
    return Figure(
        "bytes_per_token",
        figure,
        pandas.concat([table.assign(panel="cache"), steps.assign(panel="step")]),
        "Bytes that one decoded token reads of a KV head, in KiB (first), and how many times fewer "
        "these are than those of the exact cache (second). They are keys, values and what else a "
        "method stores or looks through, as a mean over all decoded tokens, as many as the prompt "
        "has. A cache of a fixed size saves more, the longer the text; one that is a fraction of "
        f"the prompt saves a constant factor. {_budgets(table)}"
        f"{_said(table, steps)}{facts(results)}",
    )


def _budgets(table: pandas.DataFrame) -> str:
    """Budgets of the labels, as the sweep gives them, for the caption."""
    if "params.budget" not in table:
        return ""
    budgets = table[["label", "params.budget"]].dropna().drop_duplicates("label")
    listed = ", ".join(
        f"{in_words(label)} {float(budget):g}" for label, budget in budgets.to_numpy().tolist()
    )
    return (
        f"Budgets in tokens, or below 1 as a fraction of the prompt: {listed}. " if listed else ""
    )


def _tokens(axis: Axes, tokens: list[float]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(tokens, [f"{n:g}" if n < 1024 else f"{n / 1024:g}k" for n in tokens])
    axis.minorticks_off()
    style.plain_log(axis.yaxis)
    axis.set_xlabel("prompt and decoded tokens")


def _steps(
    axis: Axes, steps: pandas.DataFrame, table: pandas.DataFrame, handles: dict[str, Any]
) -> None:
    """Filled: bytes; hollow and dotted: the table's speeds."""
    for key, own in steps.groupby("label", sort=False):
        colour, marker = style.look(own["algorithm"].iloc[0])
        axis.plot(own["tokens"], own["bytes"], color=colour, marker=marker)
        (handles[f"{key}, speed printed"],) = axis.plot(
            own["tokens"],
            own["speed printed"],
            color=colour,
            marker=marker,
            markerfacecolor="white",
            linestyle=":",
        )
    axis.set_ylim(bottom=0.9)
    axis.set_ylabel("times fewer, times faster")
    axis.set_title("a step of MPT-7B", loc="left")
    axis.set_xscale("log", base=2)
    axis.set_xticks(sorted(steps["tokens"].unique()), ["2k", "4k", "8k"])
    axis.minorticks_off()
    axis.set_xlabel("prompt and decoded tokens")


def _said(table: pandas.DataFrame, steps: pandas.DataFrame) -> str:
    if steps.empty:
        return ""
    longest = table[table["params.tokens"] == table["params.tokens"].max()]
    half = longest[longest["label"] == "keyformer"]["fewer"]
    text = ""
    if len(half):
        text = (
            f"Keyformer with half of the prompt: {half.iloc[0]:.2f} times; its Fig. 10 prints 2.9. "
        )
    return (
        f"{text}Third: the same of a whole step of MPT-7B, {WEIGHTS / GIB:.1f} GiB of weights and "
        "its cache, by formula (filled), and the speeds of Keyformer's Table 1 over those of the "
        "full cache (hollow). "
    )
