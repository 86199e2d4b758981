"""python -m kvplot table FILE --rows R --columns C --value V: Means of a figure's or a result's
numbers."""

import re
import sys
from argparse import Namespace, _SubParsersAction
from pathlib import Path
from typing import Any

import pandas

from kvplot import documents
from kvplot.faults import ResultsError, did_you_mean, few, integer, unreadable
from kvplot.figure import left_out
from kvplot.loop import KIND, Loop
from kvplot.results import PARTS, exact_bytes, load_cells
from kvplot.terminal import one_line
from kvplot.units import POINT, UNIT, same_units

HEADLINES = (
    "errors.relative_frobenius_error",
    "errors.relative_spectral_error",
    "errors.relative_l2.mean",
    "memory.fraction",
)
SPREADS = {"sd": "std", "se": "sem"}


def add_command(commands: "_SubParsersAction[Any]") -> None:
    text = " ".join(__doc__.split())
    parser = commands.add_parser("table", help=text.split(": ", 1)[1], description=text)
    parser.add_argument(
        "file",
        type=Path,
        help="a figure's CSV; or a results.json or loop.json, or its folder: its finished records "
        "are read",
    )
    parser.add_argument(
        "--rows", nargs="+", required=True, metavar="COLUMN", help="a row per value of these"
    )
    parser.add_argument("--columns", metavar="COLUMN", help="a column per value of this")
    parser.add_argument(
        "--value",
        nargs="+",
        metavar="COLUMN",
        help="default, of a results.json: its Frobenius, spectral and mean errors, and its memory",
    )
    parser.add_argument(
        "--where",
        nargs="+",
        default=[],
        metavar="COLUMN=TEXT",
        help="only rows with these values; of several values of one column, with any of them",
    )
    parser.add_argument(
        "--of",
        choices=["mean", "median", "min", "max", "sum"],
        default="mean",
        help="what a field shows of its values; default mean, of records over seeds first",
    )
    parser.add_argument(
        "--pm",
        choices=list(SPREADS),
        help="next to each mean the sample standard deviation of the values in its field, or the "
        "standard error of the mean if they are independent; nothing next to a single value",
    )
    parser.add_argument(
        "--digits", type=integer(1, 17), default=3, help="significant digits; default 3"
    )
    parser.add_argument("--format", choices=list(FORMATS), default="markdown")
    parser.set_defaults(run=run)


def run(arguments: Namespace) -> list[str]:
    if arguments.pm and arguments.of != "mean":
        raise ResultsError(f"--pm is the spread of means; leave out --of {arguments.of}")
    arguments.file = documents.file_of(arguments.file, documents.KIND, KIND)
    rows = _read(arguments.file)
    if not arguments.value:
        arguments.value = _headlines(arguments, rows)
    table = chosen(arguments, rows)
    compared = {name: of_same_units(arguments, table, name) for name in arguments.value}
    table = table[table["status"] == "ok"] if is_cells(table) else table
    said = [*notes(arguments, rows, table), *(words for _, words in compared.values())]
    for note in dict.fromkeys(filter(None, said)):
        print(one_line(f"kvplot: {arguments.file}: {note}"), file=sys.stderr)
    values = {name: rows_of for name, (rows_of, _) in compared.items()}
    means = pivot(arguments, values, arguments.of)
    if means.empty:
        fields = ", ".join([*arguments.rows, *filter(None, [arguments.columns])])
        raise ResultsError(f"{arguments.file}: no row has all of {fields}; name fewer of them")
    spreads = pivot(arguments, values, SPREADS[arguments.pm]) if arguments.pm else None
    return FORMATS[arguments.format](means, spreads, arguments.digits)


def _headlines(arguments: Namespace, rows: pandas.DataFrame) -> list[str]:
    """Columns of cells that are shown without --value; one of them with --columns."""
    found = [name for name in HEADLINES if name in rows] if is_cells(rows) else []
    if not found:
        raise ResultsError(f"{arguments.file}: --value is missing; name a column of numbers")
    return found[:1] if arguments.columns else found


def is_cells(table: pandas.DataFrame) -> bool:
    """Whether rows are cells of a results.json, with those that did not finish."""
    return {"status", *UNIT, *POINT} <= set(table)


def of_same_units(
    arguments: Namespace, table: pandas.DataFrame, value: str
) -> tuple[pandas.DataFrame, str]:
    """Rows that a value is taken from: of cells those of the units in which every chosen setting
    has the value, in each field that names units; and what is said of the others."""
    if not is_cells(table):
        return table, ""
    fields = [*arguments.rows, *filter(None, [arguments.columns])]
    by = [name for name in UNIT if name in fields]
    of_loop = "layers" in table and "layers" in fields
    heads = "texts and layers" if "layers" in table else "KV heads"
    same = same_units(table, value, by + ["layer"] * of_loop, heads)
    return table[same.kept], same.words.strip()


def chosen(arguments: Namespace, table: pandas.DataFrame) -> pandas.DataFrame:
    """The rows that --where leaves, one of them finished."""
    wanted = [*arguments.rows, *arguments.value, *filter(None, [arguments.columns])]
    pairs = [pair.partition("=")[::2] for pair in arguments.where]
    unknown = [name for name in (*wanted, *(name for name, _ in pairs)) if name not in table]
    if unknown:
        raise ResultsError(
            f"{arguments.file}: no column {', '.join(unknown)}"
            f"{did_you_mean(unknown[0], list(table.columns))}; there is {few(table.columns)}"
        )
    for name in dict(pairs):
        texts = [text for other, text in pairs if other == name]
        table = table[[any(_same(value, text) for text in texts) for value in table[name]]]
    if not (table["status"] == "ok").any() if is_cells(table) else table.empty:
        where = f" with {' and '.join(arguments.where)}" if arguments.where else ""
        raise ResultsError(f"{arguments.file}: no finished row{where}")
    for name in arguments.value:
        if not pandas.api.types.is_numeric_dtype(table[name]):
            raise ResultsError(f"{arguments.file}: {name} is not a column of numbers")
    return table


def pivot(arguments: Namespace, values: dict[str, pandas.DataFrame], of: str) -> pandas.DataFrame:
    """A column per value, or for --columns; `values`: the rows that each is taken from."""
    fields = [*arguments.rows, *filter(None, [arguments.columns])]
    if arguments.columns and len(values) > 1:
        raise ResultsError("--columns takes one --value")
    found = []
    for name, table in values.items():
        if of == "mean" and is_cells(table):
            found.append(_mean_over_units(table, fields, name))
        else:
            found.append(table.groupby(fields, sort=False)[name].agg(of))
    means = pandas.concat(found, axis=1)
    if arguments.columns:
        means = means[found[0].name].unstack()
    return means


def _mean_over_units(table: pandas.DataFrame, fields: list[str], name: str) -> Any:
    """A column's means over the settings and units of each field, each over its seeds first: seeds
    that failed do not make a unit count less."""
    cells = table[list(dict.fromkeys([*fields, *POINT, *UNIT, name]))]
    if name in PARTS:
        cells = cells.assign(of=exact_bytes(table, name))
        cells[name] = pandas.to_numeric(cells[name]) * cells["of"]
    cells = cells[cells[name].notna()]
    values = [name, "of"] if name in PARTS else [name]
    every = list(dict.fromkeys([*fields, *POINT, *UNIT]))
    units = cells.groupby(every, sort=False, dropna=False)[values].mean().reset_index()
    groups = units.groupby(fields, sort=False)
    if name in PARTS:  # bytes over bytes
        return (groups[name].sum() / groups["of"].sum()).rename(name)
    return groups[name].mean()


def notes(arguments: Namespace, rows: pandas.DataFrame, table: pandas.DataFrame) -> list[str]:
    """Records in no field: cells that did not finish, chosen rows without a key."""
    found = []
    if arguments.file.suffix == ".json":
        found.append(left_out(rows).strip())
    for name in [*arguments.rows, *filter(None, [arguments.columns])]:
        missing = table[table[name].isna()]
        if len(missing):
            labels = sorted(set(missing["label"].dropna())) if "label" in table else []
            whose = f" ({', '.join(labels)})" if labels and name != "label" else ""
            found.append(f"Left out, no {name}: {len(missing)} of {len(table)} rows{whose}.")
    return list(filter(None, found))


def _read(path: Path) -> pandas.DataFrame:
    try:
        if path.suffix == ".json":
            return _records(Loop(path)) if _is_loop(path) else load_cells(path)
        return pandas.read_csv(path)
    except OSError as error:
        raise ResultsError(
            f"{path}: {unreadable(path, error)}; expected a CSV that a figure wrote, a "
            "results.json or a loop.json"
        ) from error
    except ValueError as error:  # pandas' ParserError and UnicodeDecodeError are
        raise ResultsError(f"{path}: is not a CSV that a figure wrote: {error}") from error


def _records(loop: Loop) -> pandas.DataFrame:
    """Records of a closed loop with the columns of cells: a unit is a text and a choice of
    layers."""
    loop.ok  # noqa: B018, there is a finished one
    return loop.frame.assign(dump="", layer=loop.frame["layers"].map(str), kv_head=float("nan"))


def _is_loop(path: Path) -> bool:
    """By its kind, which stands first in what kvbench writes."""
    with path.open("rb") as file:
        return f'"{KIND}"'.encode() in file.read(200)


def _same(value: Any, text: str) -> bool:
    try:
        return float(value) == float(text)
    except ValueError:
        return str(value) == text


def _fields(
    table: pandas.DataFrame, spreads: pandas.DataFrame | None, digits: int, plus_minus: str
) -> list[list[str]]:
    """Heads, then one list per row."""
    lines = [[*map(str, table.index.names), *(_text(name, 12) for name in table.columns)]]
    for place, (key, row) in enumerate(zip(table.index, table.to_numpy())):
        keys = key if isinstance(key, tuple) else (key,)
        fields = [_text(value, digits) for value in row]
        if spreads is not None:
            beside = [_text(value, 2) for value in spreads.to_numpy()[place]]
            fields = [f"{mean}{plus_minus}{sd}" if sd else mean for mean, sd in zip(fields, beside)]
        lines.append([_text(value, 12) for value in keys] + fields)
    return lines


def markdown(table: pandas.DataFrame, spreads: pandas.DataFrame | None, digits: int) -> list[str]:
    heads, *rows = [
        [_in_a_field(text) for text in row] for row in _fields(table, spreads, digits, " ± ")
    ]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _in_a_field(text: str) -> str:
    """Text that a table of Markdown shows as it is."""
    return re.sub(r"([\\|`*<])", r"\\\1", " ".join(text.splitlines()))


def latex(table: pandas.DataFrame, spreads: pandas.DataFrame | None, digits: int) -> list[str]:
    """A tabular with booktabs' rules."""
    heads, *rows = _fields(table, spreads, digits, r" $\pm$ ")
    keys = len(table.index.names)
    # Marks around numbers are kept; text is escaped.
    lines = [" & ".join(map(_escaped, row[:keys])) + " & " + " & ".join(row[keys:]) for row in rows]
    return [
        rf"\begin{{tabular}}{{{'l' * keys}{'r' * (len(heads) - keys)}}}",
        r"\toprule",
        " & ".join(map(_escaped, heads)) + r" \\",
        r"\midrule",
        *(line + r" \\" for line in lines),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def csv(table: pandas.DataFrame, spreads: pandas.DataFrame | None, digits: int) -> list[str]:
    """Every digit, and spreads as columns of their own."""
    del digits
    if spreads is not None:
        spreads = spreads.rename(columns=lambda name: f"{name} ±")
        table = pandas.concat([table, spreads], axis=1)
    text: str = table.to_csv(float_format="%.17g")
    return [text.removesuffix("\n")]  # one, for a name may have line ends of its own


FORMATS = {"markdown": markdown, "latex": latex, "csv": csv}

_LATEX = {character: "\\" + character for character in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _text(value: Any, digits: int) -> str:
    if isinstance(value, str):
        return value
    return "" if pandas.isna(value) else f"{value:.{digits}g}"
