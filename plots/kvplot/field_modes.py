"""python -m kvplot field_modes RUNS --out DIR: the field in several modes and metrics, as tables.

RUNS/<mode>/**/results.json are sweeps of the same units. field.csv has a row per mode, memory and
method, families.csv one per family: logarithms of its methods are averaged in each unit first.
Ratios are to uniform sampling at as many bytes, as in `kvplot field`. `holds` is how many texts
can be left out, one at a time, so that the interval of the Frobenius error keeps its side of 1.
layers.csv has a row per mode, memory, method and layer, a mean over the heads of the texts that
have the layer. orders.csv has, for each choice of mode, memory and metric, how far the order of the
methods is another one; with --against, models.csv has the same for another model's field.csv.
"""

from argparse import Namespace, _SubParsersAction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy
import pandas

from kvplot.field_pictures import FAMILIES
from kvplot.figures.field import AT, MEMORY, TRAFFIC, of_cells
from kvplot.looks import METHODS
from kvplot.results import UNIT, ResultsError, bytes_over_bytes, load_results
from kvplot.statistics import geometric_means, holds
from kvplot.study_tables import add_study, write

METRICS = {
    "frobenius": "errors.relative_frobenius_error",
    "spectral": "errors.relative_spectral_error",
    "mean": "errors.relative_l2.mean",
}
CHOICES = ("mode", "at", "metric")
# A label with this word is a variant of kvbench's own, a row without a vote in its family.
OWN = "own"


def add_command(commands: "_SubParsersAction[Any]") -> None:
    parser = add_study(
        commands,
        "field_modes",
        __doc__,
        run,
        "Tables of the field: methods, families and layers in several modes.",
    )
    parser.add_argument("runs", type=Path, help="a folder with a folder of runs per mode")
    parser.add_argument("--against", type=Path, metavar="CSV", help="field.csv of another model")


def run(arguments: Namespace) -> list[str]:
    own = {mode: of_mode(arguments.runs, mode) for mode in modes(arguments.runs)}
    sampled = {mode: set(map(tuple, each[UNIT].to_numpy())) for mode, each in own.items()}
    for mode, other in zip(sampled, list(sampled)[1:]):
        if sampled[mode] != sampled[other]:
            raise ResultsError(
                f"{arguments.runs}: {mode} and {other} have other units; finish both sweeps"
            )
    units = pandas.concat(own.values())
    of_methods = methods(units)
    tables = {
        "field": of_methods,
        "families": families(units),
        "layers": layers(units, of_methods),
        "orders": orders(of_methods),
    }
    if arguments.against:
        tables["models"] = models(of_methods, _of_model(arguments.against))
    return write(tables, arguments.out)


def _of_model(path: Path) -> pandas.DataFrame:
    ends = [f"{name}{end}" for name in METRICS for end in ("", "_low", "_high")]
    try:
        table = pandas.read_csv(path, float_precision="round_trip")
        return table[["mode", "at", "method", *ends]]
    except (OSError, ValueError, KeyError) as error:
        raise ResultsError(f"{path}: {error}; name a field.csv of kvplot field_modes") from error


def modes(runs: Path) -> list[str]:
    found = sorted(
        {path.relative_to(runs).parts[0] for path in runs.glob("*/**/results.json")}, reverse=True
    )
    if not found:
        raise ResultsError(f"{runs}: has no <mode>/results.json; plots/field.sh makes them")
    return found


def of_mode(runs: Path, mode: str) -> pandas.DataFrame:
    """One row per unit and setting that holds about as many bytes as one of AT names: `mode`,
    `family`, `method`, `at`, and each metric's ratio to uniform sampling."""
    paths = sorted((runs / mode).glob("**/results.json"))
    columns = [*METRICS.values(), MEMORY, TRAFFIC]
    cells = pandas.concat([load_results(path, columns) for path in paths], ignore_index=True)
    cells = cells[cells["status"] == "ok"]
    found = pandas.DataFrame()
    for name, metric in METRICS.items():
        ratios = of_cells(cells, metric)
        if ratios.empty:
            raise ResultsError(f"{runs / mode}: nothing to compare at {', '.join(map(str, AT))}")
        ratios = ratios[ratios["kind"] == "holds"].rename(columns={"ratio": name})
        keys = [*UNIT, "algorithm", "label", "method", "point", "at"]
        if found.empty:
            found = ratios[[*keys, name, metric, MEMORY, "memory.exact_bytes"]]
        else:
            found = found.merge(ratios[[*keys, name]], on=keys, how="outer")
    family = {method: name for name, own in FAMILIES.items() for method in own.split()}
    return found.assign(mode=mode, family=found["algorithm"].map(family))


def _ratios(units: pandas.DataFrame, by: list[str]) -> pandas.DataFrame:
    """Geometric means of all metrics with their intervals over texts."""
    found = pandas.DataFrame()
    for name in METRICS:
        own = geometric_means(units, name, by, name)
        ends = [name, f"{name}_low", f"{name}_high"]
        counts = own[[*by, "units", "groups", "over"]]
        found = own[[*by, *ends]] if found.empty else found.merge(own[[*by, *ends]], on=by)
    better = units.groupby(by)["frobenius"].agg(lambda ratio: int((ratio < 1).sum()))
    found = found.merge(better.rename("better").reset_index(), on=by)
    found = found.merge(holds(units, "frobenius", by, "holds"), on=by)
    return found.merge(counts, on=by)


def _sorted(table: pandas.DataFrame) -> pandas.DataFrame:
    order = table["mode"].map({mode: i for i, mode in enumerate(table["mode"].unique())})
    table = table.assign(order=order).sort_values(["order", "at", "frobenius"], kind="stable")
    return table.drop(columns="order").reset_index(drop=True)


def methods(units: pandas.DataFrame) -> pandas.DataFrame:
    by = ["mode", "at", "family", "method", "algorithm"]
    found = _ratios(units, by)
    groups = units.groupby(by)
    errors = groups[METRICS["frobenius"]].mean().rename("error")
    held = groups[[MEMORY, "memory.exact_bytes"]].apply(bytes_over_bytes, MEMORY).rename("memory")
    for column in (errors, held):
        found = found.merge(column.reset_index(), on=by)
    found["verified"] = found.pop("algorithm").map(
        lambda method: METHODS[method].get("compared") or METHODS[method]["without"]["compared"]
    )
    return _sorted(found)


def layers(units: pandas.DataFrame, of_methods: pandas.DataFrame) -> pandas.DataFrame:
    """Geometric means of each layer's heads; methods in the order of `of_methods`."""
    by = ["mode", "at", "method", "layer"]
    logs = units.assign(**{name: numpy.log(units[name]) for name in METRICS})
    found = logs.groupby(by)[list(METRICS)].mean().transform(numpy.exp).reset_index()
    found["units"] = logs.groupby(by).size().to_numpy()
    order = of_methods[["mode", "at", "family", "method"]]
    return order.merge(found, on=["mode", "at", "method"]).reset_index(drop=True)


def families(units: pandas.DataFrame) -> pandas.DataFrame:
    """Logarithms are averaged over the rows of a method, then over the methods of a family."""
    own = units[~units["method"].str.contains(f", {OWN}")]
    by = ["mode", "at", "family"]
    logs = own.assign(**{name: numpy.log(own[name]) for name in METRICS})
    of_method = logs.groupby([*by, *UNIT, "algorithm"], sort=False)[list(METRICS)].mean()
    votes = of_method.groupby([*by, *UNIT], sort=False).mean().transform(numpy.exp).reset_index()
    counts = own.groupby(by)["algorithm"].nunique().rename("methods").reset_index()
    return _sorted(_ratios(votes, by).merge(counts, on=by))


def _columns(table: pandas.DataFrame) -> dict[tuple[Any, ...], pandas.DataFrame]:
    """Per mode, memory and metric: by method the ratio, and on which side of 1 its interval is."""
    found = {}
    for (mode, at), own in table.groupby(["mode", "at"], sort=False):
        own = own.set_index("method")
        for metric in METRICS:
            side = (own[f"{metric}_low"] > 1).astype(int) - (own[f"{metric}_high"] < 1)
            found[mode, at, metric] = pandas.DataFrame({"ratio": own[metric], "side": side})
    return found


def _agreement(one: pandas.DataFrame, two: pandas.DataFrame) -> dict[str, Any]:
    """Spearman's rank correlation over the methods that both have; the methods that are better than
    uniform sampling in one of them; and those of which both intervals exclude 1, on other sides."""
    both = one.join(two, rsuffix="_other", how="inner").dropna()
    turned = both.index[(both["ratio"] < 1) != (both["ratio_other"] < 1)]
    opposed = both.index[both["side"] * both["side_other"] < 0]
    return {
        "rho": both[["ratio", "ratio_other"]].rank().corr().loc["ratio", "ratio_other"],
        "methods": len(both),
        "turned": len(turned),
        "names": " ".join(turned) or "none",
        "opposed": " ".join(opposed) or "none",
    }


def orders(table: pandas.DataFrame) -> pandas.DataFrame:
    """Agreement of pairs of columns of numbers that differ in one choice."""
    rows = []
    for (one, first), (two, second) in combinations(_columns(table).items(), 2):
        if sum(a != b for a, b in zip(one, two)) != 1:
            continue
        choice = next(name for name, a, b in zip(("mode", "memory", "metric"), one, two) if a != b)
        rows.append(
            {
                "choice": choice,
                **dict(zip(CHOICES, one)),
                **{f"other_{name}": value for name, value in zip(CHOICES, two)},
                **_agreement(first, second),
            }
        )
    return pandas.DataFrame(rows).sort_values("choice", kind="stable")


def models(table: pandas.DataFrame, other: pandas.DataFrame) -> pandas.DataFrame:
    """Agreement of two models, per mode, memory and metric."""
    others = _columns(other)
    rows = [
        {**dict(zip(CHOICES, key)), **_agreement(own, others[key])}
        for key, own in _columns(table).items()
        if key in others
    ]
    if not rows:
        raise ResultsError("--against: no mode and memory of it is in these runs")
    return pandas.DataFrame(rows)
