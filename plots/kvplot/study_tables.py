"""The command of a study, and its tables: errors in each unit over those of another choice, as
means with intervals."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas

from kvplot.statistics import geometric_means, holds

METRICS = {
    "frobenius": "errors.relative_frobenius_error",
    "spectral": "errors.relative_spectral_error",
    "mean": "errors.relative_l2.mean",
}


def add_study(
    commands: "_SubParsersAction[Any]",
    name: str,
    text: str,
    run: Callable[[Namespace], list[str]],
    words: str,
) -> ArgumentParser:
    """A command that writes tables into --out, with `words` in the list of commands and `text` in
    its own help."""
    parser: ArgumentParser = commands.add_parser(
        name, help=words, description=" ".join(text.split())
    )
    parser.add_argument("-o", "--out", required=True, type=Path, metavar="DIR")
    parser.set_defaults(run=run)
    return parser


def ratio_table(
    units: pandas.DataFrame,
    by: list[str],
    sizes: list[str],
    ratios: Iterable[str] = METRICS,
    held: dict[str, str] | None = None,
) -> pandas.DataFrame:
    """One row per group of `by`: means of the columns `sizes`, in how many units `rise` is true,
    and of each column of `ratios` the geometric mean over units with its interval, over what the
    interval runs for the first. `held` names for a column of `ratios` that of holds()."""
    groups = units.groupby(by)
    out = groups[sizes].mean().join(groups["rise"].sum()).reset_index()
    counts = ["groups", "units"]
    for name in ratios:
        own = units[units[name].notna()]
        if own.empty:
            continue
        means = geometric_means(own, name, by, name)
        out = out.merge(means[[*by, name, f"{name}_low", f"{name}_high", *counts]], "left", on=by)
        counts = []
    for name, count in (held or {}).items():
        own = units[units[name].notna()]
        if not own.empty:
            out = out.merge(holds(own, name, by, count), "left", on=by)
    return out


def write(tables: dict[str, pandas.DataFrame], folder: Path) -> list[str]:
    """Each table as <name>.csv in the folder, which is made; the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.csv" for name in tables]
    for path, table in zip(paths, tables.values()):
        table.to_csv(path, index=False)
    return list(map(str, paths))
