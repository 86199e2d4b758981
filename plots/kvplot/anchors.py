"""python -m kvplot anchors RESULTS --out DIR: what reading an earlier layer's tokens costs.

RESULTS are runs of plots/anchors.sh. anchors.csv has a row per method and setting: the geometric
mean over units after the first layer of its error over that of the layer's own best tokens
(oracle_topk) at the same budget. `rise` is in how many units the ratio of Frobenius errors is above
1, `overlap` the mean fraction of a layer's own best tokens that is read, with its interval over
texts. `holds` is how many texts can be left out, one at a time, so that the interval keeps its side
of 1. anchors_over.csv has ratios to the errors of SnapKV and SparQ instead; `followers` is that of
the Frobenius error over layers that are no anchor. anchors_distance.csv has overlap and Frobenius
error, also over those of SnapKV and SparQ, by layer and by the layer that it reads, at the least
budget.
"""

from argparse import Namespace, _SubParsersAction
from pathlib import Path
from typing import Any

import pandas

from kvplot.results import ROUNDING, UNIT, ResultsError, load_results
from kvplot.statistics import mean_interval
from kvplot.study_tables import METRICS, add_study, ratio_table, write

COSTS = ["traffic.fraction"]
OVERLAP, ANCHOR = "derived.overlap", "derived.anchor"
EVERY, MATCH = "params.every", "params.match"
BUDGETS = ["params.budget", "params.k"]
SETTING = ["method", "at", "every", "match"]
BEST, OTHERS = "oracle_topk", ("snapkv", "sparq")
PAIRS = "one anchor"  # label of the cells that have one anchor after layer 0
ALONE = 100  # layers from anchor to anchor where layer 0 is the only one


def add_command(commands: "_SubParsersAction[Any]") -> None:
    parser = add_study(
        commands, "anchors", __doc__, run, "the cost of reading an earlier layer's tokens"
    )
    parser.add_argument("results", type=Path, nargs="+", help="results.json of a run")


def run(arguments: Namespace) -> list[str]:
    cells = pandas.concat([read(path) for path in arguments.results], ignore_index=True)
    pairs = cells[cells["method"] == PAIRS]
    cells = cells[cells["method"] != PAIRS]
    alone = cells[(cells["every"] == ALONE) & (cells["match"] == "closest")]
    over_best = ratios(cells, BEST)
    over = pandas.concat([ratios(cells, other).assign(other=other) for other in OTHERS])
    columns = [*COSTS, "overlap"]
    table = ratio_table(over_best, SETTING, columns, held={"frobenius": "holds"})
    best = cells[cells["method"] == BEST]
    # Several settings may have one anchor for a layer, and then the same tokens.
    read_from = pandas.concat([alone, pairs, best]).drop_duplicates([*UNIT, "at", "anchor"])
    layers = ratios(read_from, BEST)
    keys = ["at", *UNIT]
    for other in OTHERS:
        base = cells[cells["method"] == other].set_index(keys)[METRICS["frobenius"]].rename(other)
        layers = layers.join(base, on=keys)
        layers[other] = layers[METRICS["frobenius"]] / layers[other]
    layers = layers[(layers["layer"] > layers["anchor"]) & (layers["at"] == layers["at"].min())]
    tables = {
        "anchors": table.merge(overlaps(over_best), "left", on=SETTING),
        "anchors_over": ratio_table(
            over, ["other", *SETTING], COSTS, [*METRICS, "followers"], {"frobenius": "holds"}
        ),
        "anchors_distance": ratio_table(
            layers,
            ["anchor", "layer"],
            ["overlap"],
            ["frobenius", *OTHERS],
            {name: f"{name}_holds" for name in OTHERS},
        ),
    }
    return write(tables, arguments.out)


def read(path: Path) -> pandas.DataFrame:
    """One row per cell of a layer after the first; `at` is the fraction of the prompt that a row
    reads, or that is kept."""
    columns = [*METRICS.values(), *COSTS, "prompt_tokens", OVERLAP, ANCHOR, EVERY, MATCH, *BUDGETS]
    cells = load_results(path, columns)
    cells = cells[(cells["status"] == "ok") & (cells["layer"] > cells["layer"].min())]
    cells = cells[cells[METRICS["frobenius"]] > ROUNDING].reset_index(drop=True)
    cells = cells.reindex(columns=list(dict.fromkeys([*cells.columns, *columns])))
    asked = cells[BUDGETS].bfill(axis=1).iloc[:, 0].astype(float)
    fraction = (asked / cells["prompt_tokens"]).round(2)
    return cells.assign(
        method=cells["label"],
        at=asked.where(asked < 1, fraction),
        every=cells[EVERY].fillna(0).astype(int),
        match=cells[MATCH].fillna("none"),
        overlap=cells[OVERLAP].astype(float),
        anchor=cells[ANCHOR].fillna(-1).astype(int),
    )


def ratios(cells: pandas.DataFrame, other: str) -> pandas.DataFrame:
    """Each metric over that of the method `other` in the same unit, at the same budget."""
    keys = ["at", *UNIT]
    base = cells[cells["method"] == other][[*keys, *METRICS.values()]]
    both = cells[cells["method"] != other].merge(base, on=keys, suffixes=("", "_base"))
    if both.empty:
        raise ResultsError(f"no cell has one of {other} of the same unit and budget to pair with")
    for name, metric in METRICS.items():
        both[name] = both[metric] / both[f"{metric}_base"]
    followers = both["frobenius"].where(both["anchor"] != both["layer"])
    return both.assign(rise=both["frobenius"] > 1, followers=followers)


def overlaps(units: pandas.DataFrame) -> pandas.DataFrame:
    """Intervals over texts of the mean overlap, one row per setting that has one."""
    rows = []
    for setting, own in units[units["overlap"].notna()].groupby(SETTING):
        interval = mean_interval(own, "overlap")
        ends = {"overlap_low": interval.low, "overlap_high": interval.high}
        rows.append(dict(zip(SETTING, setting)) | ends)
    return pandas.DataFrame(rows, columns=[*SETTING, "overlap_low", "overlap_high"])
