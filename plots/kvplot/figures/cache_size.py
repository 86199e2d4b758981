"""Keyformer Fig. 1b and the cache sizes of SubGen Table 1: formulas, and as measured by replay."""

from argparse import Namespace

import numpy
import pandas

from kvplot import style
from kvplot.figure import Figure, facts
from kvplot.results import ResultsError

NEEDS = ("results",)
GIB = 2.0**30
# Layers x heads x dimension of Llama-2-7B and MPT-7B, keys and values of two bytes.
PER_TOKEN = 2 * 32 * 32 * 128 * 2
BEAMS = 4
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
    figure, axes = style.panels(1, 2, 2.7)
    left, right = axes[0]
    left.plot(sizes["tokens"], sizes["GiB"], marker="o", color=style.KEYS, label="cache, beam 4")
    left.axhline(WEIGHTS / GIB, color="black", linestyle="--", label="weights, MPT-7B")
    left.set_xscale("log", base=2)
    left.set_xticks(lengths, [f"{n / 1024:g}k" for n in lengths])
    left.set_xlabel("tokens")
    left.set_ylabel("GiB")
    left.legend()

    rows = []
    cells = results.ok
    for tokens, held, exact, cut, name in TABLE:
        measured = cells[cells["label"] == f"subgen {name}"]["memory.fraction"]
        rows.append(
            {
                "of": name,
                "printed": cut / exact,
                "GiB": tokens * PER_TOKEN / GIB,
                "formula": held / tokens,
                "replay": measured.mean() if len(measured) else numpy.nan,
                "GiB printed": exact,
            }
        )
    table = pandas.DataFrame(rows)
    at = numpy.arange(len(table))
    for place, (column, face) in enumerate(
        (("printed", "black"), ("formula", "grey"), ("replay", style.look("kcenter")[0]))
    ):
        right.bar(at + (place - 1) * 0.26, table[column], 0.26, color=face, label=column)
        for x, value in zip(at, table[column]):
            if numpy.isnan(value):  # no cell of these results has this label
                continue
            right.text(
                x + (place - 1) * 0.26,
                value + 0.01,
                f"{value:.3f}",
                ha="center",
                fontsize=6,
                rotation=90,
                va="bottom",
            )
    right.set_xticks(at, table["of"])
    right.set_ylabel("memory / exact")
    right.set_ylim(0, 1)
    right.legend(ncol=3, loc="upper center")
    return Figure(
        "cache_size",
        figure,
        pandas.concat([sizes, table]),
        "Left, of models of one shape (Llama-2-7B, MPT-7B), whatever model was replayed: "
        "2 (keys, values) x 32 layers x 4096 x 2 bytes per token and beam, against "
        f"{WEIGHTS / GIB:.1f} GiB of weights (6.65e9 at 2 bytes). Right: SubGen's Table 1: "
        "its printed GB as ratios, (budget + generated) / n from its text, and "
        f"memory.fraction of the replay with the same parts. {facts(results)}",
    )
