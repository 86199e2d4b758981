"""python -m kvplot prefill RESULTS --out DIR: what masks of a prompt cost.

RESULTS are runs of configs/prefill.json on dumps of one model. `read` is the fraction of the pairs
of a query and a key that are computed, of those that exact attention computes in the prompt. Where
it is `at`, prefill.csv has the geometric mean over units of a rule's error over another's, both
interpolated between their settings in that unit; units in which either does not reach it are left
out. A unit is a KV head, or a text where `equal` is text: then fraction and error are means over
its heads. `rise` is in how many units the ratio of Frobenius errors is above 1, `error` the rule's
mean Frobenius error. `holds` is how many texts can be left out, one at a time, so that the interval
keeps its side of 1.

prefill_layers.csv has the same of each layer. prefill_settings.csv has a row per setting: `blocks`,
the fraction of the pairs of blocks, `read`, and the error over that of xattention at the setting's
own fraction.
"""

from argparse import Namespace, _SubParsersAction
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy
import pandas

from kvplot.results import ROUNDING, UNIT, ResultsError, load_results
from kvplot.statistics import at_equal
from kvplot.study_tables import METRICS, add_study, ratio_table, write

BLOCKS = "derived.read_blocks"
PAIRS_READ = "derived.read_pairs"
BLOCK = "params.block"
SETTINGS = ["params.threshold", "params.coverage", "params.budget", "params.slash"]
BEST = "exact masses"
MASK, RULE, WINDOW, LINES = "xattention", "flexprefill", "streaming_llm", "minference"
# By method those that are compared with it. Not all layers have the exact masses.
PAIRS = {
    BEST: (MASK, RULE, WINDOW, LINES),
    MASK: (RULE, WINDOW, f"{WINDOW}, 4 sinks", LINES),
    RULE: (WINDOW, LINES),
    LINES: (WINDOW,),
}
AT = (0.45, 0.6)
SETTING = ["block", "method", "setting"]


def add_command(commands: "_SubParsersAction[Any]") -> None:
    parser = add_study(
        commands, "prefill", __doc__, run, "the errors of masks of a prompt's blocks"
    )
    parser.add_argument("results", type=Path, nargs="+", help="results.json of a run")


def run(arguments: Namespace) -> list[str]:
    heads = pandas.concat([read(path) for path in arguments.results], ignore_index=True)
    of_text = heads.groupby([*SETTING, "dump", "sequence"])[["read", *METRICS]].mean()
    texts = of_text.reset_index().assign(layer=0, kv_head=0)
    each = paired(heads, at_fractions(heads), PAIRS)
    of_all_layers = {name: PAIRS[name] for name in (MASK, RULE, LINES)}
    whole = paired(texts, at_fractions(texts), of_all_layers)
    both = pandas.concat([each.assign(equal="head"), whole.assign(equal="text")]).dropna()
    others = {MASK: heads["method"].unique()}
    settings = paired(heads, heads.assign(at=heads["read"]), others)
    by, held = ["block", "method", "other", "at"], {"frobenius": "holds"}
    tables = {
        "prefill": ratio_table(both, ["equal", *by], ["error"], held=held),
        "prefill_layers": ratio_table(each.dropna(), [*by, "layer"], ["error"], held=held),
        "prefill_settings": ratio_table(settings, SETTING, ["blocks", "read", "error"]),
    }
    return write(tables, arguments.out)


def curves(units: pandas.DataFrame) -> dict[Any, pandas.DataFrame]:
    """The settings of each method in each unit. Those that read all have no error."""
    return dict(iter(units[units["frobenius"] > ROUNDING].groupby(["block", "method", *UNIT])))


def value_at(curve: pandas.DataFrame, metric: str, at: Any) -> Any:
    """Its logarithm is interpolated: errors fall nearly exponentially in the fraction."""
    return at_equal(curve.assign(cost=numpy.exp(curve["read"])), "cost", metric, numpy.exp(at))


def at_fractions(units: pandas.DataFrame) -> pandas.DataFrame:
    """One row per method, unit and fraction of AT that its settings reach."""
    keys, at = ["block", "method", *UNIT], numpy.array(AT)
    rows = [
        pandas.DataFrame({name: value_at(own, name, at) for name in METRICS}).assign(
            at=at, **dict(zip(keys, key))
        )
        for key, own in curves(units).items()
    ]
    return pandas.concat(rows, ignore_index=True).dropna()


def paired(
    units: pandas.DataFrame, rows: pandas.DataFrame, pairs: Mapping[str, Iterable[str]]
) -> pandas.DataFrame:
    """Each error of the rows of a method over that of the method that `pairs` pairs it with, in the
    same unit at the same fraction `at`; NaN where that does not reach it, or reads all."""
    found, others = [], curves(units)
    for (block, *unit), own in rows.groupby(["block", *UNIT]):
        for other, methods in pairs.items():
            base = others.get((block, other, *unit))
            own_rows = own[own["method"].isin(methods)]
            if base is None or own_rows.empty:
                continue
            part = own_rows.assign(other=other, error=own_rows["frobenius"])
            for name in METRICS:
                value = part[name].where(part["error"] > ROUNDING)
                part[name] = value / value_at(base, name, part["at"])
            found.append(part)
    if not found:
        raise ResultsError(f"no unit has two of {', '.join(PAIRS)} to pair")
    both = pandas.concat(found, ignore_index=True)
    return both.assign(rise=both["frobenius"] > 1)


def read(path: Path) -> pandas.DataFrame:
    """One row per cell; a mask not of blocks has one for each size of a block in its unit."""
    columns = [*METRICS.values(), BLOCKS, PAIRS_READ, BLOCK, *SETTINGS, "prompt_tokens"]
    cells = load_results(path, columns)
    cells = cells[cells["status"] == "ok"]
    cells = cells.reindex(columns=list(dict.fromkeys([*cells.columns, *columns])))
    masks, others = cells[cells[BLOCKS].notna()], cells[cells[BLOCKS].isna()]
    sizes = masks[[*UNIT, BLOCK]].drop_duplicates()
    others = others.drop(columns=BLOCK).merge(sizes, on=UNIT)
    cells = pandas.concat([masks, others], ignore_index=True)
    prompt, block = cells["prompt_tokens"], cells[BLOCK].astype(int)
    setting = cells[SETTINGS].astype(float).bfill(axis=1).iloc[:, 0]
    # All blocks of the diagonal are read, and row and column in them are above it in one half.
    count = prompt // block
    in_blocks = cells[BLOCKS] * count * (count + 1) / 2 * block**2 - prompt * (block - 1) / 2
    every = prompt * (prompt + 1) / 2
    in_window = setting * (2 * prompt - setting + 1) / 2
    pairs = in_blocks.fillna(cells[PAIRS_READ].astype(float) * every).fillna(in_window)
    return cells.rename(columns={metric: name for name, metric in METRICS.items()}).assign(
        method=cells["label"],
        block=block,
        setting=setting,
        blocks=cells[BLOCKS].astype(float),
        read=(pairs / every).astype(float),
    )
