"""python -m kvplot questions FOLDER --out DIR: what data/ask_questions.py found, as tables.

FOLDER is its --out. Only questions that the model answers over the full cache count. methods.csv
has a row per protocol, memory and method, distances.csv one per distance too. pairs.csv compares
two methods question by question, protocols.csv one method with and without the question in its
prompt. ranks.csv has rank correlations over methods with the model's KL divergence. Intervals are
Student's t at 95 % over texts.
"""

import json
from argparse import Namespace, _SubParsersAction
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pandas

from kvplot.results import ResultsError
from kvplot.statistics import mean_interval
from kvplot.study_tables import add_study, write

# Pairs of which FINDINGS.md says what texts without questions give.
PAIRS = (
    ("snapkv", "uniform"),
    ("tova", "uniform"),
    ("expected_attention", "uniform"),
    ("h2o", "uniform"),
    ("streaming_llm", "uniform"),
    ("knorm", "uniform"),
    ("kcenter", "uniform"),
    ("balancekv_prefill", "uniform"),
    ("h2o with decay", "h2o"),
    ("snapkv", "h2o"),
    ("snapkv", "streaming_llm"),
    ("quest", "tova"),
)
READING = "quest"  # holds every token
# Values of an answer, and the least and the most that their means can be.
VALUES = {"right": (0, 1), "rank": (1, numpy.inf), "kl": (0, numpy.inf), "error": (0, numpy.inf),
          "held": (0, 1), "mass": (0, numpy.inf)}  # fmt: skip
BY = ["protocol", "asked", "label"]


def add_command(commands: "_SubParsersAction[Any]") -> None:
    parser = add_study(
        commands,
        "questions",
        __doc__,
        run,
        "Tables of plots/QUESTIONS.md, of what data/ask_questions.py found.",
    )
    parser.add_argument("folder", type=Path, help="the folder of data/ask_questions.py")


def run(arguments: Namespace) -> list[str]:
    asked, answers = read(arguments.folder)
    tables = {
        "asked": counts(asked),
        "methods": means(answers, BY),
        "distances": means(answers, [*BY, "depth"]),
        "pairs": pairs(answers),
        "protocols": protocols(answers),
        "ranks": ranks(answers),
    }
    return write(tables, arguments.out)


def read(folder: Path) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """A row per question, and one per question, protocol and setting that was answered: `right`, 1
    where every token of the answer is the most likely one; `rank`, of the answer's first token;
    `kl`, the mean over the evidence rows; `mass`, the evidence's attention over its exact one."""
    asked, rows = [], []
    for path in sorted(folder.glob("*.jsonl")):
        head, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if head.get("kind") != "kvbench.questions":
            raise ResultsError(f"{path}: is not a journal of data/ask_questions.py")
        for line in lines:
            facts = {name: line[name] for name in ("text", "needle", "depth", "distance")}
            asked.append({**facts, "question": line["id"], "answers": line["answers"]})
            if not line["answers"]:
                continue
            without = {"label": "without the sentence", **line["without"]}
            records = [{**without, "protocol": name} for name in ("seen", "unseen")]
            for record in [*records, *line["records"]]:
                if record.get("status", "ok") != "ok":
                    continue
                rows.append({**asked[-1], **_row(record)})
    if not rows:
        raise ResultsError(f"{folder}: has no answered question; data/ask_questions.py asks them")
    return pandas.DataFrame(asked), pandas.DataFrame(rows)


def _row(record: dict[str, Any]) -> dict[str, Any]:
    known = {name: record.get(name, numpy.nan) for name in ("error", "held", "memory", "reads")}
    exact = record.get("mass_exact")
    return {
        "protocol": record["protocol"],
        "label": record["label"],
        "asked": _asked(record),
        "right": float(max(record["rank"]) == 1),
        "rank": float(record["rank"][0]),
        "kl": numpy.mean(record["kl"]),
        "mass": record["mass"] / exact if exact else numpy.nan,
        **known,
    }


def _asked(record: dict[str, Any]) -> float:
    """The share of the memory that the sweep asks for, of a method that reads, of the tokens; of
    one without a budget the share near it."""
    if "memory" not in record:
        return 1.0  # the full cache, less the sentence
    budget = record["params"].get("budget")
    if isinstance(budget, dict):
        return float(budget["memory"])
    return float(budget or (0.2 if record["memory"] < 0.35 else 0.5))


def counts(asked: pandas.DataFrame) -> pandas.DataFrame:
    """Questions and those that the model answers over the full cache, by depth, and all."""
    whole = pandas.concat([asked, asked.assign(depth="all")])
    return (
        whole.groupby("depth", sort=False)
        .agg(asked=("answers", "size"), answered=("answers", "sum"), texts=("text", "nunique"),
             distance=("distance", "mean"), nearest=("distance", "min"),
             farthest=("distance", "max"))
        .reset_index()
    )  # fmt: skip


def interval(own: pandas.DataFrame, column: str) -> dict[str, float]:
    """The mean and the ends of its interval, question by question, with texts as groups."""
    units = own.assign(dump="", sequence=own["text"], layer=0, kv_head=0)
    found = mean_interval(units, column, signed=True)
    return {column: own[column].mean(), f"{column}_low": found.low, f"{column}_high": found.high}


def log_interval(own: pandas.DataFrame, column: str) -> dict[str, float]:
    """The same of a geometric mean."""
    logs = own.assign(**{column: numpy.log(own[column])})
    return {name: float(numpy.exp(value)) for name, value in interval(logs, column).items()}


def means(answers: pandas.DataFrame, by: list[str]) -> pandas.DataFrame:
    """Arithmetic means over questions, of the rank a geometric one."""
    rows = []
    for key, own in answers.groupby(by, sort=False, dropna=False):
        row: dict[str, Any] = {**dict(zip(by, key)), "distance": own["distance"].mean(),
               "memory": own["memory"].mean(), "reads": own["reads"].mean()}  # fmt: skip
        for name, (least, most) in VALUES.items():
            row |= (log_interval if name == "rank" else interval)(own, name)
            ends = (f"{name}_low", f"{name}_high")
            row |= {end: float(numpy.clip(row[end], least, most)) for end in ends}
        rows.append({**row, "questions": len(own), "texts": own["text"].nunique()})
    return pandas.DataFrame(rows).sort_values(
        [name for name in by if name != "label"], kind="stable"
    )


def _by_label(own: pandas.DataFrame) -> dict[str, pandas.DataFrame]:
    return {str(label): each.set_index("question") for label, each in own.groupby("label")}


def _differences(one: pandas.DataFrame, other: pandas.DataFrame) -> pandas.DataFrame:
    """Question by question: `ratio` of the errors, differences of KL, right answers, evidence."""
    both = one.index.intersection(other.index)
    one, other = one.loc[both], other.loc[both]
    return pandas.DataFrame(
        {
            "text": one["text"],
            "ratio": one["error"] / other["error"],
            **{name: one[name] - other[name] for name in ("kl", "right", "held")},
        }
    )


def _compared(apart: pandas.DataFrame) -> dict[str, Any]:
    """`kl_holds` and `ratio_holds` are of the sides of 0 and of 1."""
    row: dict[str, Any] = {"texts": apart["text"].nunique(), "questions": len(apart)}
    if row["texts"] < 3:
        return row
    for name in ("ratio", "kl", "right", "held"):
        make = log_interval if name == "ratio" else interval
        row |= make(apart, name)
        if name in ("ratio", "kl"):
            row[f"{name}_holds"] = _holds(apart, name, make, 1.0 if name == "ratio" else 0.0)
    return row


def _holds(
    apart: pandas.DataFrame,
    name: str,
    make: Callable[[pandas.DataFrame, str], dict[str, float]],
    middle: float,
) -> int:
    """How many texts can be left out, one at a time, so that the interval keeps its side."""
    sides = []
    for text in [None, *apart["text"].unique()]:
        ends = make(apart[apart["text"] != text], name)
        above, below = ends[f"{name}_low"] > middle, ends[f"{name}_high"] < middle
        sides.append(int(above) - int(below))
    return sum(side == sides[0] != 0 for side in sides[1:])


def pairs(answers: pandas.DataFrame) -> pandas.DataFrame:
    """Over all distances, and at each."""
    depths = [("all", answers), *answers.groupby("depth")]
    rows = []
    for depth, at in depths:
        for (protocol, asked), own in at.groupby(["protocol", "asked"]):
            labels = _by_label(own)
            for one, other in PAIRS:
                if one in labels and other in labels:
                    found = _compared(_differences(labels[one], labels[other]))
                    rows.append({"depth": depth, "protocol": protocol, "asked": asked, "one": one,
                                 "other": other, **found})  # fmt: skip
    return pandas.DataFrame(rows)


def protocols(answers: pandas.DataFrame) -> pandas.DataFrame:
    """Not seen against seen: the `ratio` of errors, and differences of the others."""
    rows = []
    for asked, own in answers.groupby("asked"):
        seen, unseen = (_by_label(own[own["protocol"] == name]) for name in ("seen", "unseen"))
        for label in seen.keys() & unseen.keys():
            found = _compared(_differences(unseen[label], seen[label]))
            rows.append({"asked": asked, "label": label, **found})
    table = pandas.DataFrame(rows)
    return table.sort_values(["asked", "label"]) if len(table) else table


def ranks(answers: pandas.DataFrame) -> pandas.DataFrame:
    """Spearman's rank correlation with KL over the methods that hold as much, of each text's means:
    of the error, and of what is lost of the evidence and of its attention. Over all distances, and
    at each. The protocol "unseen - seen" has the difference of a text's two correlations; `holds`
    is of their side of 0."""
    held = answers[(answers["label"] != READING) & (answers["asked"] < 1)]
    rows = []
    for depth, at in [("all", held), *held.groupby("depth")]:
        for asked, own in at.groupby("asked"):
            for metric, sign in (("error", 1), ("held", -1), ("mass", -1)):
                known = {str(protocol): _correlations(each, metric, sign)
                         for protocol, each in own.groupby("protocol")}  # fmt: skip
                if len(known) == 2:
                    known["unseen - seen"] = known["unseen"] - known["seen"]
                for protocol, rho in known.items():
                    of_texts = rho.rename("rho").dropna().reset_index()
                    rows.append({"depth": depth, "protocol": protocol, "asked": asked,
                                 "metric": metric, **interval(of_texts, "rho"),
                                 "holds": _holds(of_texts, "rho", interval, 0.0),
                                 "methods": own["label"].nunique(),
                                 "texts": len(of_texts)})  # fmt: skip
    return pandas.DataFrame(rows)


def _correlations(own: pandas.DataFrame, metric: str, sign: int) -> "pandas.Series[float]":
    """By text."""
    per = own.groupby(["text", "label"])[[metric, "kl"]].mean()
    return pandas.Series(
        {text: sign * each[metric].rank().corr(each["kl"].rank())
         for text, each in per.groupby("text")}
    ).rename_axis("text")  # fmt: skip
