"""python -m kvplot paging RESULTS --out DIR: what whole pages and shared choices cost.

paging.csv has a row per method, budget and variant (pages, page_score, same_in): the geometric mean
over units of its error over that of the free choice, which has the same other parameters. `later`
is that of the Frobenius error without layer 0, `rise` in how many units it is above 1, `bytes` the
variant's memory over the free choice's. `holds` is how many texts can be left out, one at a time,
so that the interval of the Frobenius error keeps its side of 1, and `later_holds` that of `later`.
paging_layers.csv has the same of each layer, without these.
"""

import json
from argparse import Namespace, _SubParsersAction
from pathlib import Path
from typing import Any

import pandas

from kvplot.results import ROUNDING, UNIT, ResultsError, load_results
from kvplot.study_tables import METRICS, add_study, ratio_table, write

MEMORY = "memory.fraction"
FREE = {"pages": 1, "page_score": "mean", "same_in": "head"}
SETTING = ["method", "budget", *FREE]
SIZES = ["memory", "bytes"]


def add_command(commands: "_SubParsersAction[Any]") -> None:
    parser = add_study(
        commands,
        "paging",
        __doc__,
        run,
        "Table of plots/PAGING.md: error of whole pages over the free choice of tokens.",
    )
    parser.add_argument("results", type=Path, nargs="+", help="results.json of a run")


def run(arguments: Namespace) -> list[str]:
    columns = [*METRICS.values(), MEMORY]
    cells = pandas.concat([load_results(path, columns) for path in arguments.results])
    units = ratios(cells[cells["status"] == "ok"].reset_index(drop=True))
    ratio_columns = [*METRICS, "later"]
    held = {"frobenius": "holds", "later": "later_holds"}
    tables = {
        "paging": ratio_table(units, SETTING, SIZES, ratio_columns, held),
        "paging_layers": ratio_table(units, [*SETTING, "layer"], SIZES, ratio_columns),
    }
    return write(tables, arguments.out)


def ratios(cells: pandas.DataFrame) -> pandas.DataFrame:
    """One row per unit and setting that is not free: each metric over that of the free choice."""
    params = [json.loads(point) for point in cells["point"]]
    for name, free in FREE.items():
        cells[name] = [each.get(name, free) for each in params]
    cells["budget"] = [each.get("budget") for each in params]
    cells["method"] = cells["label"]
    cells["others"] = [
        json.dumps({name: each[name] for name in sorted(each.keys() - FREE.keys())})
        for each in params
    ]
    keys = ["method", "budget", "others", *UNIT]
    units = cells.groupby([*keys, *FREE])[[*METRICS.values(), MEMORY]].mean().reset_index()
    units = units[units[METRICS["frobenius"]] > ROUNDING]
    is_free = (units[list(FREE)] == pandas.Series(FREE)).all(axis=1)
    both = units[~is_free].merge(units[is_free].drop(columns=list(FREE)), on=keys)
    if both.empty:
        raise ResultsError("no cell with pages or same_in has one without them to pair with")
    for name, metric in {**METRICS, "bytes": MEMORY}.items():
        both[name] = both[f"{metric}_x"] / both[f"{metric}_y"]
    both["later"] = both["frobenius"].where(both["layer"] > 0)
    both["rise"] = both["frobenius"] > 1
    return both.rename(columns={f"{MEMORY}_x": "memory"})
