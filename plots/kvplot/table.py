"""python -m kvplot table FILE.csv --rows R --columns C --value V: means of a figure's numbers."""

from argparse import Namespace, _SubParsersAction
from pathlib import Path
from typing import Any

import pandas

from kvplot.results import ResultsError, did_you_mean, unreadable


def add_command(commands: "_SubParsersAction[Any]") -> None:
    parser = commands.add_parser("table", help=__doc__.split(": ", 1)[1], description=__doc__)
    parser.add_argument("csv", type=Path, help="the CSV that a figure wrote")
    parser.add_argument("--rows", nargs="+", required=True, metavar="COLUMN")
    parser.add_argument("--columns", metavar="COLUMN", help="spread over this; default: the values")
    parser.add_argument("--value", nargs="+", required=True, metavar="COLUMN")
    parser.add_argument(
        "--where", nargs="+", default=[], metavar="COLUMN=TEXT", help="only rows with these values"
    )
    parser.add_argument(
        "--of",
        choices=["mean", "median", "min", "max", "sum"],
        default="mean",
        help="of what falls together; default mean",
    )
    parser.add_argument("--digits", type=int, default=3, help="significant; default 3")
    parser.set_defaults(run=run)


def run(arguments: Namespace) -> list[str]:
    return markdown(pivot(arguments), arguments.digits)


def pivot(arguments: Namespace) -> pandas.DataFrame:
    try:
        table = pandas.read_csv(arguments.csv)
    except OSError as error:
        raise ResultsError(
            f"{arguments.csv}: {unreadable(arguments.csv, error)}; a CSV that a "
            "figure wrote is wanted"
        ) from error
    wanted = [*arguments.rows, *arguments.value, *filter(None, [arguments.columns])]
    pairs = [pair.partition("=")[::2] for pair in arguments.where]
    unknown = [name for name in (*wanted, *(name for name, _ in pairs)) if name not in table]
    if unknown:
        raise ResultsError(
            f"{arguments.csv}: no column {', '.join(unknown)}"
            f"{did_you_mean(unknown[0], list(table.columns))}; there is "
            f"{', '.join(table.columns)}"
        )
    for name, text in pairs:
        table = table[[_same(value, text) for value in table[name]]]
    if table.empty:
        raise ResultsError(f"{arguments.csv}: no row with {' and '.join(arguments.where)}")
    groups = table.groupby([*arguments.rows, *filter(None, [arguments.columns])], sort=False)
    means = groups[arguments.value].agg(arguments.of)
    if arguments.columns:
        if len(arguments.value) > 1:
            raise ResultsError("--columns takes one --value")
        means = means[arguments.value[0]].unstack()
    return means


def _same(value: Any, text: str) -> bool:
    try:
        return float(value) == float(text)
    except ValueError:
        return str(value) == text


def markdown(table: pandas.DataFrame, digits: int) -> list[str]:
    heads = [*map(str, table.index.names), *(_text(name, 12) for name in table.columns)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for key, row in zip(table.index, table.to_numpy()):
        keys = key if isinstance(key, tuple) else (key,)
        fields = [_text(value, 12) for value in keys] + [_text(value, digits) for value in row]
        lines.append("| " + " | ".join(fields) + " |")
    return lines


def _text(value: Any, digits: int) -> str:
    if isinstance(value, str):
        return value
    return "" if pandas.isna(value) else f"{value:.{digits}g}"
