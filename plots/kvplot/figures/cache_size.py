"""Keyformer Fig. 1b, bytes read per decoded token, and SubGen Table 1's cache sizes: formulas."""

from argparse import Namespace

import numpy
import pandas

from kvplot import style
from kvplot.figure import Figure, facts
from kvplot.results import ResultsError, bytes_over_bytes

NEEDS = ("results",)
GIB = 2.0**30
# Layers x heads x dimension of Llama-2-7B and MPT-7B, keys and values of two bytes.
PER_TOKEN = 2 * 32 * 32 * 128 * 2
BEAMS = 4
KEPT = (1.0, 0.7, 0.5, 0.2)  # Keyformer: 0.5 to 0.7
WEIGHTS = 6.65e9 * 2
# SubGen Table 1: tokens when the answer is written, budget with the tokens generated, GB printed.
TABLE = (
    (4815, 3072 + 23, 2.351, 1.511, "n=5k"),
    (7143, 4096 + 25, 3.488, 2.012, "n=7k"),
    (9447, 4608 + 25, 4.613, 2.262, "n=9k"),
)


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("memory.fraction")
    labels = [f"subgen {name}" for *_, name in TABLE]
    if not results.ok["label"].isin(labels).any():
        raise ResultsError(
            f"{results.path}: no finished cell is labelled {', '.join(labels[:-1])} or {labels[-1]}"
        )
    lengths = 2.0 ** numpy.arange(9, 14)
    sizes = pandas.DataFrame(
        {"of": "formula", "tokens": lengths, "GiB": BEAMS * PER_TOKEN * lengths / GIB}
    )
    reads = pandas.DataFrame(
        [
            {"of": "read per token", "kept": kept, "tokens": n, "GiB": _read(n, kept) / GIB}
            for kept in KEPT
            for n in lengths
        ]
    )
    rows = []
    cells = results.ok
    for tokens, held, exact, cut, name in TABLE:
        measured = cells[cells["label"] == f"subgen {name}"]
        rows.append(
            {
                "of": name,
                "printed": cut / exact,
                "GiB": tokens * PER_TOKEN / GIB,
                "formula": held / tokens,
                "replay": bytes_over_bytes(measured, "memory.fraction")
                if len(measured)
                else numpy.nan,
                "GiB printed": exact,
            }
        )
    table = pandas.DataFrame(rows)
    figure, axes = style.panels(1, 2, 2.5, across=1)
    for axis in axes[0]:
        axis.set_xscale("log", base=2)
        axis.set_xticks(lengths, [f"{n / 1024:g}k" for n in lengths])
        axis.axhline(WEIGHTS / GIB, color="black", linestyle="--", label="weights, MPT-7B")
        axis.set_xlabel("tokens")
        axis.set_ylim(0, 30)
    left, right = axes[0]
    left.plot(sizes["tokens"], sizes["GiB"], marker="o", color=style.KEYS, label="cache, beam 4")
    left.set_ylabel("GiB held")
    for kept, colour, marker in zip(KEPT, style.ordered(len(KEPT)), "os^D"):
        here = reads[reads["kept"] == kept]
        right.plot(
            here["tokens"], here["GiB"], marker=marker, color=colour, label=f"{100 * kept:g} % kept"
        )
    right.set_ylabel("GiB read per token")
    left.legend(loc="upper left")
    right.legend(loc="upper left")
    said = "; ".join(
        f"{row['of']} {row['printed']:.3f}, {row['formula']:.3f}, {row['replay']:.3f}"
        for _, row in table.iterrows()
    )
    return Figure(
        "cache_size",
        figure,
        pandas.concat([sizes, reads, table]),
        "Formulas for models of one shape (Llama-2-7B, MPT-7B), whatever model was replayed: keys "
        "and values of 32 layers x 4096 x 2 bytes per token and beam. First: what a cache of 4 "
        f"beams holds; weights are {WEIGHTS / GIB:.1f} GiB (6.65e9 at 2 bytes). Second: what "
        "one step of decoding reads, the weights and the kept part of that cache. SubGen's Table "
        "1, cache over exact cache as printed, by its budgets, and replayed with the same parts: "
        f"{said}. {facts(results)}",
    )


def _read(tokens: float, kept: float) -> float:
    """Bytes that one decoded token of each beam reads: all weights once, and the kept tokens."""
    return WEIGHTS + BEAMS * PER_TOKEN * kept * tokens
