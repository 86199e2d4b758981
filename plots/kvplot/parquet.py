"""python -m kvplot parquet cells.jsonl -o cells.parquet: what `kvbench export --format jsonl`
printed as a Parquet file."""

import json
from argparse import Namespace, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvplot.documents import Entry
from kvplot.faults import ResultsError, unreadable

# Rows of the file that are in memory at one time, and one row group each.
ROWS_AT_ONCE = 4096

WRITTEN_BY = "expected lines of `kvbench export --format jsonl`"


def add_command(commands: "_SubParsersAction[Any]") -> None:
    text = " ".join(__doc__.split())
    parser = commands.add_parser("parquet", help=text.split(": ", 1)[1], description=text)
    parser.add_argument("file", type=Path, help="lines of `kvbench export --format jsonl`")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE")
    parser.set_defaults(run=run)


def run(arguments: Namespace) -> list[str]:
    write(arguments.file, arguments.out)
    return [str(arguments.out)]


def write(source: Path, out: Path) -> None:
    """One column per name that a line has, in the order in which names come; null where a line
    lacks it. Numbers are int64 if all are integers, else double; other columns are text, with JSON
    for what is neither text nor of one type.

    Reads the lines twice, since only all of them tell the types, and has few in memory.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:  # one for another NumPy is of that kind, too
        raise ResultsError(f"Parquet needs pyarrow ({error}); pip install pyarrow") from error
    if out.exists() and source.exists() and out.samefile(source):
        raise ResultsError(f"{source}: the output would replace it; choose another --out")
    kinds: dict[str, set[type]] = {}
    for row in _rows(source):
        for name, value in row.items():
            kinds.setdefault(name, set()).add(type(value))
    if not kinds:
        raise ResultsError(f"{source}: has no rows; {WRITTEN_BY}")
    types = {name: _type_of(kinds[name] - {type(None)}) for name in kinds}
    arrow: dict[type | None, Any] = {
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
    }
    schema = pyarrow.schema(
        [(name, arrow.get(kind, pyarrow.string())) for name, kind in types.items()]
    )
    temporary = out.with_name(f"{out.name}.tmp")
    try:
        with pyarrow.parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for rows in _batches(_rows(source)):
                columns = [
                    pyarrow.array(
                        [_value(row.get(field.name), types[field.name]) for row in rows], field.type
                    )
                    for field in schema
                ]
                writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def _rows(source: Path) -> Iterator[Entry]:
    try:
        with source.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise ResultsError(f"{source}:{number}: {error}; {WRITTEN_BY}") from error
                if not isinstance(row, dict):
                    raise ResultsError(f"{source}:{number}: is not an object; {WRITTEN_BY}")
                yield row
    except OSError as error:
        raise ResultsError(f"{source}: {unreadable(source, error)}; {WRITTEN_BY}") from error
    except UnicodeDecodeError as error:
        raise ResultsError(f"{source}: is not UTF-8; {WRITTEN_BY}") from error


def _batches(rows: Iterator[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    for row in rows:
        batch.append(row)
        if len(batch) == ROWS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _type_of(kinds: set[type]) -> type | None:
    """int, float, bool or str; None: values of several types, or lists."""
    if kinds == {int, float}:
        return float
    return next(iter(kinds)) if len(kinds) == 1 and kinds <= {int, float, bool, str} else None


def _value(value: Any, kind: type | None) -> Any:
    if value is None or kind in (int, bool, str):
        return value
    return float(value) if kind is float else json.dumps(value)
