"""python -m kvplot pieces LOOPS --out DIR: what compressing while a prompt is read costs.

LOOPS are loop.json of plots/reading.sh: prompts read whole and, with --prompt-pieces, in pieces of
the same texts. Texts that not every method has both ways are left out, and so is a memory that one
text alone has.

pieces.csv has a row per method, memory and length of a piece. The geometric mean over texts of a
value in pieces over that of the prompt read whole is there of KL divergence (`kl`), of perplexity,
and of Frobenius errors against the compressed model's own exact attention (`live`) and against the
uncompressed model's answers (`dense`). Arithmetic means of differences are those of KL in nats
(`more`) and of the fraction of rows with the same most likely token (`same`). `holds` is how many
texts can be left out, one at a time, so that the interval of `kl` keeps its side of 1. `rank_whole`
and `rank_pieces` order the geometric means of KL, the lowest first. `read` is the fraction of the
text's tokens that is held at most while the prompt is read.

pieces_pairs.csv has KL of one method over another's, read whole and in pieces; `turns` is whether
both are decided, on opposite sides of 1.

pieces_ranks.csv has Spearman's rank correlations of the methods' KL: of a text read whole and in
pieces (`rho`), and, as a yardstick, of a text and each other text that is read in the same way
(`text_whole`, `text_pieces`). `less` is the mean over texts of rho less text_whole. Each text is in
many pairs of texts, so intervals of these three are of the jackknife over texts, of which there
must be three. `of` is all methods, or those whose interval of `kl` contains 1 (`undecided`).

pieces_errors.csv has those of KL and the Frobenius error (`error`: of the replay on the
uncompressed model's queries, which is one number for both ways, live and dense), in both ways, and
their difference in each text (`change`), `of` the same methods.
"""

from argparse import Namespace, _SubParsersAction
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy
import pandas

from kvplot.documents import read_document
from kvplot.loop import KIND, MEMBERS
from kvplot.results import ResultsError
from kvplot.statistics import geometric_means, holds, mean_interval
from kvplot.study_tables import add_study, write

KEYS = ["method", "memory", "sequence"]
GROUP = ["memory", "pieces"]
SETTING = ["method", *GROUP]
RATIOS = ("kl", "perplexity", "live", "dense")
ERRORS = {"replay": "errors", "live": "errors_live", "dense": "errors_dense"}


def add_command(commands: "_SubParsersAction[Any]") -> None:
    parser = add_study(
        commands, "pieces", __doc__, run, "Tables of a prompt that is compressed while it is read."
    )
    parser.add_argument("loops", type=Path, nargs="+", help="loop.json of a closed loop")


def run(arguments: Namespace) -> list[str]:
    records = pandas.concat([read(path) for path in arguments.loops], ignore_index=True)
    both = paired(records)
    table = ratios(both)
    of = {"all": both, "undecided": undecided(both, table)}
    tables = {"pieces": table, "pieces_pairs": pairs(both)}
    for name, make in (("pieces_ranks", ranks), ("pieces_errors", errors)):
        parts = [make(own).assign(of=which) for which, own in of.items() if not own.empty]
        tables[name] = pandas.concat(parts, ignore_index=True)
    return write(tables, arguments.out)


def read(path: Path) -> pandas.DataFrame:
    """One row per finished record of a method with a budget in memory; `pieces` is 0 where the
    prompt was read whole."""
    document = read_document(path, KIND, MEMBERS)
    rows = []
    for record in document["records"]:
        budget = record["params"].get("budget")
        if record["status"] != "ok" or not isinstance(budget, dict):
            continue
        rows.append(
            {
                "method": record["label"],
                "memory": budget["memory"],
                "sequence": record["sequence"],
                "pieces": document.get("prompt_pieces") or 0,
                "kl": record["kl"]["mean"],
                "perplexity": record["perplexity"]["ratio"],
                **{name: record[kind]["relative_frobenius_error"] for name, kind in ERRORS.items()},
                "same": record["same_top1"]["mean"],
                "held": record["memory"]["fraction"],
                "read": record.get("pieces", {}).get("fraction", numpy.nan),
            }
        )
    return pandas.DataFrame(rows)


def paired(records: pandas.DataFrame) -> pandas.DataFrame:
    """One row per text and setting that was read both ways."""
    means = records.groupby([*KEYS, "pieces"]).mean().reset_index()
    whole, pieces = means[means["pieces"] == 0], means[means["pieces"] > 0]
    both = pieces.merge(whole.drop(columns=["pieces", "read"]), on=KEYS, suffixes=("", "_whole"))
    # Texts that every method has, so that orders are of the same methods.
    count = both.groupby(GROUP)["method"].transform("nunique")
    has = both.groupby([*GROUP, "sequence"])["method"].transform("size")
    both = both[has == count]
    both = both[both.groupby(GROUP)["sequence"].transform("nunique") > 1]
    if both.empty:
        raise ResultsError("no two texts were read both whole and in pieces with the same settings")
    return of_texts(both).reset_index(drop=True)


def of_texts(rows: pandas.DataFrame) -> pandas.DataFrame:
    """A text is a unit of mean_interval()."""
    return rows.assign(dump="", layer=0, kv_head=0)


def ratios(both: pandas.DataFrame) -> pandas.DataFrame:
    units = both.copy()
    for name in RATIOS:
        units[name] = both[name] / both[f"{name}_whole"]
    units["more"] = both["kl"] - both["kl_whole"]
    units["same"] = both["same"] - both["same_whole"]
    groups = both.groupby(SETTING)
    out = groups[["held", "read"]].mean().reset_index()
    for name in RATIOS:
        out = joined(out, geometric_means(units, name, SETTING, name), name)
    for name in ("more", "same"):
        out = out.merge(means(units, SETTING, name), on=SETTING)
    out = out.merge(holds(units, "kl", SETTING, "holds"), on=SETTING)
    for way, column in (("whole", "kl_whole"), ("pieces", "kl")):
        name = f"kl_{way}"
        out = joined(out, geometric_means(both, column, SETTING, name), name)
        out[f"rank_{way}"] = out.groupby(GROUP)[name].rank().astype(int)
    return out.assign(texts=groups.size().to_numpy())


def undecided(both: pandas.DataFrame, table: pandas.DataFrame) -> pandas.DataFrame:
    """Rows of methods whose interval of `kl` contains 1, where there are three or more to rank."""
    stay = table[(table["kl_low"] <= 1) & (table["kl_high"] >= 1)]
    own = both.merge(stay[SETTING], on=SETTING)
    return own[own.groupby(GROUP)["method"].transform("nunique") > 2]


def joined(out: pandas.DataFrame, means: pandas.DataFrame, name: str) -> pandas.DataFrame:
    """A geometric mean and its interval as further columns."""
    by = [each for each in (*SETTING, "one", "other") if each in out and each in means]
    return out.merge(means[[*by, name, f"{name}_low", f"{name}_high"]], on=by)


def means(
    units: pandas.DataFrame, by: list[str], *columns: str, most: float = numpy.inf
) -> pandas.DataFrame:
    """Arithmetic means of columns over texts, with intervals that end at `most`."""
    rows = []
    for key, own in units.groupby(by):
        row: dict[str, Any] = dict(zip(by, key))
        for name in columns:
            ends = mean_interval(own, name, signed=True)
            high = min(ends.high, most)
            row |= {name: own[name].mean(), f"{name}_low": ends.low, f"{name}_high": high}
        rows.append(row)
    return pandas.DataFrame(rows)


def pairs(both: pandas.DataFrame) -> pandas.DataFrame:
    """One row per memory and two methods, the first of which has the lower KL, read whole."""
    by = [*GROUP, "one", "other"]
    on = [*GROUP, "sequence"]
    found = []
    for _, own in both.groupby(GROUP):
        log = numpy.log(own["kl_whole"]).groupby(own["method"]).mean()
        for one, other in combinations(log.sort_values().index, 2):
            units = own[own["method"] == one].merge(
                own[own["method"] == other], on=on, suffixes=("", "_other")
            )
            units["whole"] = units["kl_whole"] / units["kl_whole_other"]
            units["in_pieces"] = units["kl"] / units["kl_other"]
            found.append(of_texts(units.assign(one=one, other=other)))
    if not found:
        raise ResultsError("one method alone has no pair to compare")
    units = pandas.concat(found, ignore_index=True)
    out = units.groupby(by).size().rename("texts").reset_index()
    for name in ("whole", "in_pieces"):
        out = joined(out, geometric_means(units, name, by, name), name)
        out = out.merge(holds(units, name, by, f"{name}_holds"), on=by)
    sides = [
        (out[f"{name}_low"] > 1).astype(int) - (out[f"{name}_high"] < 1)
        for name in ("whole", "in_pieces")
    ]
    return out.assign(turns=sides[0] * sides[1] == -1)


def spearman(one: "pandas.Series[float]", other: "pandas.Series[float]") -> float:
    return float(one.rank().corr(other.rank()))


def by_text(
    both: pandas.DataFrame,
    row: Callable[[pandas.DataFrame, list[pandas.DataFrame]], dict[str, float]],
) -> pandas.DataFrame:
    """`row` of each text's methods and of those of each other text, at each memory."""
    found = []
    for key, own in both.groupby(GROUP):
        texts = {text: rows.set_index("method") for text, rows in own.groupby("sequence")}
        for text, rows in texts.items():
            values = row(rows, [each for name, each in texts.items() if name != text])
            found.append({**dict(zip(GROUP, key)), "sequence": text, **values})
    return of_texts(pandas.DataFrame(found))


def ranks(both: pandas.DataFrame) -> pandas.DataFrame:
    """`lowest` is the lowest rho of a text, and `rho_of_means` that of geometric means."""

    def row(text: pandas.DataFrame, others: list[pandas.DataFrame]) -> dict[str, float]:
        rho = spearman(text["kl"], text["kl_whole"])
        whole, pieces = (
            float(numpy.mean([spearman(text[column], other[column]) for other in others]))
            for column in ("kl_whole", "kl")
        )
        return {"rho": rho, "text_whole": whole, "text_pieces": pieces}

    texts = by_text(both, row)
    for name in ("text_whole", "text_pieces"):
        texts[name] = of_pairs(texts, name)
    texts["less"] = texts["rho"] - texts["text_whole"]
    out = means(texts, GROUP, "rho", "text_whole", "text_pieces", most=1.0)
    out = out.merge(means(texts, GROUP, "less"), on=GROUP)
    lowest = texts.groupby(GROUP)["rho"].min().rename("lowest").reset_index()
    counts = both.groupby(GROUP)[["method", "sequence"]].nunique().reset_index()
    logs = both.assign(kl=numpy.log(both["kl"]), kl_whole=numpy.log(both["kl_whole"]))
    of_means = logs.groupby([*GROUP, "method"])[["kl", "kl_whole"]].mean().groupby(GROUP)
    counts["rho_of_means"] = [spearman(own["kl"], own["kl_whole"]) for _, own in of_means]
    counts = counts.rename(columns={"method": "methods", "sequence": "texts"})
    return out.merge(lowest, on=GROUP).merge(counts, on=GROUP)


def of_pairs(texts: pandas.DataFrame, name: str) -> "pandas.Series[float]":
    """The jackknife's pseudo-values of a mean over pairs of texts, from each text's mean over the
    pairs that it is in: n times the mean over all pairs, less n - 1 times that without the text."""
    groups = texts.groupby(GROUP)[name]
    n = groups.transform("size")
    return (2 * (n - 1) * texts[name] - n * groups.transform("mean")) / (n - 2).where(n > 2)


def errors(both: pandas.DataFrame) -> pandas.DataFrame:
    found = []
    for name in ERRORS:
        texts = by_text(both, partial(agreement, name))
        out = means(texts, GROUP, "whole", "in_pieces", most=1.0)
        out = out.merge(means(texts, GROUP, "change"), on=GROUP)
        found.append(out.assign(error=name, texts=texts.groupby(GROUP).size().to_numpy()))
    return pandas.concat(found, ignore_index=True)


def agreement(error: str, text: pandas.DataFrame, _: list[pandas.DataFrame]) -> dict[str, float]:
    whole = spearman(text["kl_whole"], text[f"{error}_whole"])
    pieces = spearman(text["kl"], text[error])
    return {"whole": whole, "in_pieces": pieces, "change": pieces - whole}
