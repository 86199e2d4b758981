"""python -m kvplot calibration RESULTS --out DIR: what numbers of other texts cost a method.

RESULTS are runs of plots/calibration.sh: methods calibrated on their own prompt, and with files
<..>/one/<text>.cal.h5, made from one text, and <..>/others/<text>.cal.h5, made from all texts
except that one. calibration.csv has a row per method, setting and `kind` of calibration, one other
text or all others: the geometric mean over units of its error over that of the same method
calibrated on the prompt. Those of several other texts are averaged in each unit first. `rise` is in
how many units the ratio of Frobenius errors is above 1. `holds` is how many texts can be left out,
one at a time, so that its interval keeps its side of 1. calibration_layers.csv has the same of each
layer, calibration_texts.csv of each pair of texts, and calibration_ranks.csv compares errors with
those of methods without a calibration at the same setting, for each kind and for the prompt.
"""

from argparse import Namespace, _SubParsersAction
from pathlib import Path
from typing import Any

import numpy
import pandas

from kvplot.results import ROUNDING, UNIT, Results, ResultsError
from kvplot.study_tables import METRICS, add_study, ratio_table, write

COSTS = ["memory.fraction", "traffic.fraction"]
AT = ["params.budget.memory", "params.budget", "params.k"]
FILE = "params.calibration"
PROMPT, KINDS = "prompt", ("one", "others")
SETTING = ["method", "at"]
HELD = {"frobenius": "holds"}


def add_command(commands: "_SubParsersAction[Any]") -> None:
    parser = add_study(commands, "calibration", __doc__, run, "the cost of a calibration")
    parser.add_argument("results", type=Path, nargs="+", help="results.json of a run")


def run(arguments: Namespace) -> list[str]:
    cells = pandas.concat([read(path) for path in arguments.results], ignore_index=True)
    own = ratios(cells)
    tables = {
        "calibration": ratio_table(own, [*SETTING, "kind"], COSTS, held=HELD),
        "calibration_layers": ratio_table(own, [*SETTING, "kind", "layer"], COSTS),
        "calibration_texts": texts(cells),
        "calibration_ranks": ranks(cells),
    }
    return write(tables, arguments.out)


def read(path: Path) -> pandas.DataFrame:
    """One row per unit, setting and calibration, with means over seeds: `kind` is one, others or
    prompt, or empty for methods that take none; `source` is the text that a file is named for."""
    results = Results(path, columns=[*METRICS.values(), *COSTS, *AT, FILE])
    files = {
        each["fingerprint"]: Path(each["path"]) for each in results.document.get("calibrations", [])
    }
    cells = results.frame[results.frame["status"] == "ok"]
    cells = cells.reindex(columns=list(dict.fromkeys([*cells.columns, *AT, FILE])))
    cells["method"] = cells["label"]
    cells["at"] = cells[AT].bfill(axis=1).iloc[:, 0].astype(float)
    named = cells[FILE].map(files)
    calibrated = cells["method"].isin(set(cells["method"][named.notna()]))
    cells["kind"] = [each.parent.name if isinstance(each, Path) else "" for each in named]
    cells.loc[calibrated & named.isna(), "kind"] = PROMPT
    cells["source"] = [_text(each) if isinstance(each, Path) else "" for each in named]
    unknown = set(cells["kind"]) - {"", PROMPT, *KINDS}
    if unknown:
        raise ResultsError(
            f"{path}: calibration files are in folders one and others, not {', '.join(unknown)}"
        )
    keys = [*SETTING, "kind", "source", *UNIT]
    return cells.groupby(keys)[[*METRICS.values(), *COSTS]].mean().reset_index()


def _text(path: Path) -> str:
    return path.name.removesuffix(".cal.h5")


def _logs(cells: pandas.DataFrame, by: list[str]) -> pandas.DataFrame:
    """Means of the logarithms of all metrics; units whose error is 0 to rounding are left out."""
    cells = cells[cells[METRICS["frobenius"]] > ROUNDING]
    logs = cells[by + COSTS].assign(**{m: numpy.log(cells[own]) for m, own in METRICS.items()})
    return logs.groupby(by)[[*METRICS, *COSTS]].mean().reset_index()


def _over(cells: pandas.DataFrame, base: pandas.DataFrame, on: list[str]) -> pandas.DataFrame:
    """Ratios of all metrics in each unit, and memory and traffic of the numerator."""
    both = cells.merge(base, on=on, suffixes=("", "_base"))
    if both.empty:
        raise ResultsError("no cell has one of the same unit and setting to be compared with")
    for name in METRICS:
        both[name] = numpy.exp(both[name] - both[f"{name}_base"])
    both["rise"] = both["frobenius"] > 1
    return both


def ratios(cells: pandas.DataFrame, more: tuple[str, ...] = ()) -> pandas.DataFrame:
    keys = [*SETTING, *UNIT]
    logs = _logs(cells, [*keys, "kind", *more])
    calibrated = logs[logs["kind"].isin(KINDS)]
    prompt = _logs(cells[cells["kind"] == PROMPT], keys)
    return _over(calibrated, prompt, keys)


def texts(cells: pandas.DataFrame) -> pandas.DataFrame:
    """Geometric means over the heads of a pair of texts: that of the file, and the scored one."""
    pairs = ratios(cells[cells["kind"].isin(["one", PROMPT])], ("source",))
    logs = pairs.assign(**{name: numpy.log(pairs[name]) for name in METRICS})
    by = [*SETTING, "source", "sequence"]
    return logs.groupby(by)[list(METRICS)].mean().transform(numpy.exp).reset_index()


def ranks(cells: pandas.DataFrame) -> pandas.DataFrame:
    keys = ["at", *UNIT]
    logs = _logs(cells, ["method", "kind", *keys])
    rows = []
    for other, base in logs[logs["kind"] == ""].groupby("method"):
        own = logs[(logs["kind"] != "") & logs["at"].isin(base["at"])]
        if not own.empty:
            rows.append(_over(own, base.drop(columns=["method", "kind"]), keys).assign(other=other))
    if not rows:
        raise ResultsError("no method without a calibration has a setting of a calibrated one")
    by = ["method", "other", "at", "kind"]
    return ratio_table(pandas.concat(rows), by, COSTS, held=HELD)
