"""python -m kvplot paging RESULTS --out DIR: what whole pages and shared choices cost.

paging.csv has a row per method, budget and variant (pages, page_score, same_in): the geometric mean
over units of its error over that of the free choice, which has the same other parameters. `rise`
is how many units have the larger error, `bytes` the variant's memory over the free choice's.
"""

import json
from argparse import Namespace, _SubParsersAction
from pathlib import Path
from typing import Any

import pandas

from kvplot.results import ROUNDING, UNIT, ResultsError, load_results
from kvplot.statistics import geometric_means

METRICS = {
    "frobenius": "errors.relative_frobenius_error",
    "spectral": "errors.relative_spectral_error",
    "mean": "errors.relative_l2.mean",
}
MEMORY = "memory.fraction"
FREE = {"pages": 1, "page_score": "mean", "same_in": "head"}
SETTING = ["method", "budget", *FREE]


def add_command(commands: "_SubParsersAction[Any]") -> None:
    text = " ".join(__doc__.split())
    parser = commands.add_parser("paging", help="what whole pages cost", description=text)
    parser.add_argument("results", type=Path, nargs="+", help="results.json of a run")
    parser.add_argument("-o", "--out", required=True, type=Path, metavar="DIR")
    parser.set_defaults(run=run)


def run(arguments: Namespace) -> list[str]:
    columns = [*METRICS.values(), MEMORY]
    cells = pandas.concat([load_results(path, columns) for path in arguments.results])
    table = ratios(cells[cells["status"] == "ok"].reset_index(drop=True))
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "paging.csv"
    table.to_csv(path, index=False)
    return [str(path)]


def ratios(cells: pandas.DataFrame) -> pandas.DataFrame:
    """One row per setting that is not a free choice."""
    params = [json.loads(point) for point in cells["point"]]
    for name, free in FREE.items():
        cells[name] = [each.get(name, free) for each in params]
    cells["budget"] = [each.get("budget") for each in params]
    cells["method"] = cells["label"]
    cells["others"] = [
        json.dumps(
            {name: value for name, value in each.items() if name not in FREE}, sort_keys=True
        )
        for each in params
    ]
    numbers = [*METRICS.values(), MEMORY]
    units = cells.groupby([*SETTING, "others", *UNIT])[numbers].mean().reset_index()
    units = units[units[METRICS["frobenius"]] > ROUNDING]
    free = (units[list(FREE)] == pandas.Series(FREE)).all(axis=1)
    base = units[free].drop(columns=list(FREE))
    both = units[~free].merge(
        base, on=["method", "budget", "others", *UNIT], suffixes=("", ".free")
    )
    if both.empty:
        raise ResultsError("no cell with pages or same_in has one without them to pair with")
    both["bytes"] = both[MEMORY] / both[f"{MEMORY}.free"]
    table = both.groupby(SETTING)[[MEMORY, "bytes"]].mean().reset_index()
    for name, metric in METRICS.items():
        both[name] = both[metric] / both[f"{metric}.free"]
        means = geometric_means(both, name, SETTING, name)
        rise = both.assign(rise=both[name] > 1).groupby(SETTING)["rise"].sum().rename("rise")
        keep = [*SETTING, name, f"{name}_low", f"{name}_high"]
        keep += ["groups", "units"] if name == "frobenius" else []
        table = table.merge(means[keep], on=SETTING)
        if name == "frobenius":
            table = table.merge(rise.reset_index(), on=SETTING)
    return table
