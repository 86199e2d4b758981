"""Reading kvbench's JSON documents, checked for kind, version and shape."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from kvplot import checks, lines
from kvplot.faults import ResultsError, unreadable

# An object of a JSON document.
Entry = dict[str, Any]

KIND = "kvbench.results"
SCHEMA_MAJOR = 1

MAX_BYTES = 2**28  # bytes of a document that is read whole
START = 2**16  # bytes
BLOCK = 2**22  # bytes
LONG_INTEGER = 21  # digits: more than any integer that kvbench writes
DIGITS_TO_ZERO = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))

WRITTEN_BY = {
    "kvbench.results": "`kvbench run` writes it as results.json",
    "kvbench.inspection": "`kvbench inspect DUMP --json` prints it",
    "kvbench.closed_loop": "`data/closed_loop.py` writes it as loop.json",
}


def _why_no_json(start: bytes, end: bytes, error: ValueError) -> str:
    """The error of a file that begins and ends so."""
    if start.startswith(b"\x89HDF"):
        return "is an HDF5 file"
    if not (start + end).strip():
        return "is empty"
    if start.startswith(b"{") and not end.rstrip().endswith(b"}"):
        return "is truncated, its JSON has no end"
    return f"invalid JSON: {error}"


def _not_json(word: str) -> None:
    raise ValueError(f"{word} is not a number of JSON")


def _integer(digits: str) -> int:
    if len(digits) > 20:  # neither pandas nor another reader of JSON holds it
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def _is_named_pipe(path: Path) -> bool:
    """A pipe in a folder, which waits for a writer; those of a shell lie elsewhere."""
    ends = os.pipe()
    try:
        return path.is_fifo() and path.stat().st_dev != os.fstat(ends[0]).st_dev
    finally:
        os.close(ends[0])
        os.close(ends[1])


def _content(path: Path, remedy: str) -> bytes:
    if path.is_dir():
        raise ResultsError(f"{path}: is a folder; name the file in it: {remedy}")
    if path.exists() and (_is_named_pipe(path) or not (path.is_file() or path.is_fifo())):
        raise ResultsError(f"{path}: is not a regular file or a pipe of a shell; {remedy}")
    try:
        with path.open("rb") as file:
            start = file.read(START)
            if len(start) == START and start.lstrip()[:1] not in (b"", b"{", b"\xef"):
                raise ResultsError(f"{path}: expected a JSON object; {remedy}")
            content = start + file.read(MAX_BYTES)
            if len(content) > MAX_BYTES:
                raise ResultsError(
                    f"{path}: has more than {MAX_BYTES >> 20} MiB, and kvplot reads no larger file "
                    "whole; give results.json as `kvbench run` writes it, a record per line"
                )
            return content
    except OSError as error:
        raise ResultsError(f"{path}: {unreadable(path, error)}; {remedy}") from error


def _has_long_integer(content: bytes) -> bool:
    run = b"0" * LONG_INTEGER
    for start in range(0, len(content), BLOCK):
        part = content[start : start + BLOCK + LONG_INTEGER]
        if run in part.translate(DIGITS_TO_ZERO):
            return True
    return False


def _parsed(content: bytes) -> Any:
    parse_int = _integer if _has_long_integer(content) else None  # a function costs its calls
    text = content.decode("utf-8-sig")
    del content  # the caller gave up its reference, too: there is one copy, not two
    return json.loads(text, parse_constant=_not_json, parse_int=parse_int)


def read_json(path: Path | str, remedy: str) -> Any:
    """A JSON document; ResultsError, which ends with the remedy, for what cannot be read as one."""
    path = Path(path)
    start = end = b""
    try:
        contents = [_content(path, remedy)]
        start, end = contents[0][:START], contents[0][-START:]
        return _parsed(contents.pop())
    except ResultsError:
        raise
    except MemoryError as error:
        raise ResultsError(
            f"{path}: is too large for the memory there is; choose less of it with `kvbench export`"
        ) from error
    except RecursionError as error:
        raise ResultsError(f"{path}: nested too deep; {remedy}") from error
    except ValueError as error:
        raise ResultsError(f"{path}: {_why_no_json(start, end, error)}; {remedy}") from error


def read_document(path: Path | str, kind: str, expected: checks.Check) -> Entry:
    """A JSON document of kvbench, checked for kind, major number of its version, and shape."""
    return _checked(path, read_json(path, WRITTEN_BY[kind]), kind, expected)


def _checked(path: Path | str, document: Any, kind: str, expected: checks.Check) -> Entry:
    found = document.get("kind") if isinstance(document, dict) else None
    if found != kind:
        raise ResultsError(
            f"{path}: kind is {checks.describe(found)}, expected {kind!r}; {WRITTEN_BY[kind]}"
        )
    version = str(document.get("schema_version"))
    if version.partition(".")[0] != str(SCHEMA_MAJOR):
        raise ResultsError(
            f"{path}: schema version {version[:40]}, this kvplot reads {SCHEMA_MAJOR}.x; "
            "use the kvplot that came with the kvbench that wrote it"
        )
    fault = expected(document, "")
    if fault:
        raise ResultsError(f"{path}: {fault}; {WRITTEN_BY[kind]}")
    checked: Entry = document
    return checked


def read_results(path: Path | str, expected: checks.Check = checks.RESULTS) -> Entry:
    """The document of a results.json, checked as far as kvplot reads it."""
    return read_document(path, KIND, expected)


def read_records(path: Path | str, expected: checks.Check = checks.RESULTS) -> Entry:
    """The same, with cells and records of whole layers that are read one by one where the file is
    laid out as kvbench writes it."""
    path = Path(path)
    if path.is_file():
        records = {"cells": checks.CELL, "layers": checks.LAYER}

        def fits(name: str, record: Any) -> bool:
            return records[name](record, "") is None

        try:
            document = lines.read(path, _parsed, {name: partial(fits, name) for name in records})
        except OSError as error:
            raise ResultsError(f"{path}: {unreadable(path, error)}; {WRITTEN_BY[KIND]}") from error
        if document is not None:  # the whole of it, so that it is not read again
            read_one_by_one: Entry = {
                name: [] for name in records if isinstance(document.get(name), lines.Records)
            }
            _checked(path, {**document, **read_one_by_one}, KIND, expected)
            return document
    return read_results(path, expected)
