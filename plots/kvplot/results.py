"""Reading results.json into pandas, and the averages that figures show."""

import json
from pathlib import Path

import pandas

KIND = "kvbench.results"
SCHEMA_MAJOR = 1

# A unit is what a mean and its interval run over; a point is one setting of one algorithm.
UNIT = ["dump", "sequence", "layer", "kv_head"]
POINT = ["algorithm", "label", "point"]


class ResultsError(ValueError):
    """The file is no results.json that this package can read."""


def read_results(path):
    """The JSON document, checked for its kind and the major number of its schema version."""
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ResultsError(f"{path}: not JSON: {error}") from error
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind != KIND:
        raise ResultsError(f"{path}: kind is {kind!r}, expected {KIND!r}; is it a results.json?")
    version = str(document.get("schema_version"))
    if version.split(".")[0] != str(SCHEMA_MAJOR):
        raise ResultsError(
            f"{path}: schema version {version}, this kvplot reads {SCHEMA_MAJOR}.x; "
            "use the kvplot that came with the kvbench that wrote it"
        )
    return document


def load_results(path):
    """One row per cell, one column per leaf.

    The key's entries stand without prefix (algorithm, layer, kv_head, seed, ...), parameters as
    params.<name>, the rest under its path (errors.relative_l2.mean, memory.fraction). `point` is
    the canonical JSON of the parameters. Failed and skipped cells are rows with their reason.
    """
    document = read_results(path)
    rows = []
    for cell in document["cells"]:
        row = {name: value for name, value in cell.items() if name != "key"}
        row.update(cell["key"])
        row["point"] = json.dumps(cell["key"]["params"], sort_keys=True)
        rows.append(row)
    frame = pandas.json_normalize(rows)
    for name in ("status", "reason", "label", "seed", *UNIT):
        if name not in frame:
            frame[name] = None
    return frame


def mean_over_units(frame, columns, by=()):
    """Means of `columns` per point over the cells that are ok: over seeds, then over units.

    Beside each column stands <column>.std_over_seeds, the population standard deviation over seeds
    of the mean over units (0 for deterministic algorithms), and the number of units, seeds and
    cells. `by` splits further, for example by layer.
    """
    columns = [name for name in columns if name in frame]
    ok = frame[frame["status"] == "ok"].copy()
    ok["seed"] = ok["seed"].fillna(-1)
    ok[columns] = ok[columns].apply(pandas.to_numeric)
    group = [*by, *POINT]
    if ok.empty:
        return pandas.DataFrame(columns=[*group, *columns, "units", "seeds", "cells"])
    units = ok.groupby([*group, *UNIT], dropna=False)[columns].mean()
    means = units.groupby(level=group, dropna=False).mean()
    per_seed = ok.groupby([*group, "seed"], dropna=False)[columns].mean()
    spread = per_seed.groupby(level=group, dropna=False).std(ddof=0)
    means = means.join(spread.add_suffix(".std_over_seeds"))
    means["units"] = units.groupby(level=group, dropna=False).size()
    means["seeds"] = ok.groupby(group, dropna=False)["seed"].nunique()
    means["cells"] = ok.groupby(group, dropna=False).size()
    return means.reset_index()
