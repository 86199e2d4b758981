"""python -m kvplot pieces LOOPS --out DIR: what compressing while a prompt is read costs.

LOOPS are loop.json of plots/reading.sh: prompts read whole and, with --prompt-pieces, in pieces of
the same texts. pieces.csv has a row per method, memory and length of a piece: the geometric mean
over texts of its KL divergence in pieces over that of the prompt read whole (`kl`), the same of the
perplexity (`perplexity`) and of the Frobenius error against the compressed model's own exact
attention (`error`), the difference of the fractions of rows with the same most likely token
(`same`), the ranks of both KL divergences among the methods, and the fraction of the exact cache
that is held at most while the prompt is read. `holds` is how many texts can be left out, one at a
time, so that the interval of `kl` keeps its side of 1. pieces_over.csv has KL over that of
streaming_llm, read whole and in pieces. pieces_ranks.csv has Spearman's rank correlation, by text,
of the methods' orders read whole and in pieces (`rho`), and of a text's order and that of the other
texts' means, both read whole (`others`).
"""

from argparse import Namespace, _SubParsersAction
from pathlib import Path
from typing import Any

import numpy
import pandas

from kvplot.documents import read_document
from kvplot.loop import KIND, MEMBERS
from kvplot.results import ResultsError
from kvplot.statistics import geometric_means, holds, mean_interval
from kvplot.study_tables import write

BASE = "streaming_llm"
KEYS = ["method", "memory", "sequence"]
SETTING = ["method", "memory", "pieces"]
RATIOS = ("kl", "perplexity", "error")
METRICS = (*RATIOS, "same")


def add_command(commands: "_SubParsersAction[Any]") -> None:
    text = " ".join(__doc__.split())
    parser = commands.add_parser(
        "pieces", help="Tables of a prompt that is compressed while it is read.", description=text
    )
    parser.add_argument("loops", type=Path, nargs="+", help="loop.json of a closed loop")
    parser.add_argument("-o", "--out", required=True, type=Path, metavar="DIR")
    parser.set_defaults(run=run)


def run(arguments: Namespace) -> list[str]:
    records = pandas.concat([read(path) for path in arguments.loops], ignore_index=True)
    both = paired(records)
    tables = {"pieces": ratios(both), "pieces_over": over(both), "pieces_ranks": ranks(both)}
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
                "error": record["errors_live"]["relative_frobenius_error"],
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
    if both.empty:
        raise ResultsError("no text was read both whole and in pieces with the same setting")
    # Texts that every method has, so that orders are of the same methods.
    count = both.groupby(["memory", "pieces"])["method"].transform("nunique")
    has = both.groupby(["memory", "pieces", "sequence"])["method"].transform("size")
    # A text is a unit of mean_interval().
    return both[has == count].assign(dump="", layer=0, kv_head=0).reset_index(drop=True)


def ratios(both: pandas.DataFrame) -> pandas.DataFrame:
    units = both.copy()
    for name in RATIOS:
        units[name] = both[name] / both[f"{name}_whole"]
    units["same"] = both["same"] - both["same_whole"]
    groups = both.groupby(SETTING)
    out = groups[["held", "read"]].mean().reset_index()
    for name in RATIOS:
        means = geometric_means(units, name, SETTING, name)
        out = out.merge(means[[*SETTING, name, f"{name}_low", f"{name}_high"]], on=SETTING)
    out = out.merge(differences(units, "same", SETTING), on=SETTING)
    out = out.merge(holds(units, "kl", SETTING, "holds"), on=SETTING)
    for way in ("whole", "pieces"):
        column = "kl" if way == "pieces" else "kl_whole"
        means = numpy.exp(numpy.log(both[column]).groupby([both[name] for name in SETTING]).mean())
        named = means.rename(f"kl_{way}").reset_index()
        out = out.merge(named, on=SETTING)
        out[f"rank_{way}"] = out.groupby(["memory", "pieces"])[f"kl_{way}"].rank().astype(int)
    return out.assign(texts=groups.size().to_numpy())


def differences(units: pandas.DataFrame, column: str, by: list[str]) -> pandas.DataFrame:
    rows = []
    for key, own in units.groupby(by):
        found = mean_interval(own, column, signed=True)
        rows.append({**dict(zip(by, key)), column: own[column].mean(),
                     f"{column}_low": found.low, f"{column}_high": found.high})  # fmt: skip
    return pandas.DataFrame(rows)


def over(both: pandas.DataFrame) -> pandas.DataFrame:
    """`turns` is whether the two intervals are on opposite sides of 1."""
    on = ["memory", "pieces", "sequence"]
    base = both[both["method"] == BASE][[*on, "kl", "kl_whole"]]
    units = both[both["method"] != BASE].merge(base, on=on, suffixes=("", "_base"))
    if units.empty:
        raise ResultsError(f"{BASE} has no setting to compare with")
    units["whole"] = units["kl_whole"] / units["kl_whole_base"]
    units["in_pieces"] = units["kl"] / units["kl_base"]
    out = units.groupby(SETTING).size().rename("texts").reset_index()
    for name in ("whole", "in_pieces"):
        means = geometric_means(units, name, SETTING, name)
        out = out.merge(means[[*SETTING, name, f"{name}_low", f"{name}_high"]], on=SETTING)
        out = out.merge(holds(units, name, SETTING, f"{name}_holds"), on=SETTING)
    sides = [(out[f"{name}_low"] > 1).astype(int) - (out[f"{name}_high"] < 1) for name in
             ("whole", "in_pieces")]  # fmt: skip
    return out.assign(turns=sides[0] * sides[1] == -1)


def ranks(both: pandas.DataFrame) -> pandas.DataFrame:
    rows = []
    for (memory, pieces), own in both.groupby(["memory", "pieces"]):
        for metric in METRICS:
            tables = {way: own.pivot(index="method", columns="sequence", values=metric + suffix)
                      for way, suffix in (("pieces", ""), ("whole", "_whole"))}  # fmt: skip
            found = []
            for text in tables["whole"]:
                whole = tables["whole"][text].rank()
                rest = tables["whole"].drop(columns=text).mean(axis=1)
                found.append({"rho": whole.corr(tables["pieces"][text].rank()),
                              "others": whole.corr(rest.rank())})  # fmt: skip
            texts = pandas.DataFrame(found).assign(dump="", layer=0, kv_head=0)
            texts["sequence"] = range(len(texts))
            row: dict[str, Any] = {"memory": memory, "pieces": pieces, "metric": metric}
            for name in ("rho", "others"):
                ends = mean_interval(texts, name, signed=True)
                row |= {name: texts[name].mean(), f"{name}_low": ends.low,
                        f"{name}_high": min(ends.high, 1.0)}  # fmt: skip
            of_means = [tables[way].mean(axis=1).rank() for way in ("pieces", "whole")]
            row["rho_of_means"] = of_means[0].corr(of_means[1])
            rows.append({**row, "methods": len(of_means[0]), "texts": len(texts)})
    return pandas.DataFrame(rows)
