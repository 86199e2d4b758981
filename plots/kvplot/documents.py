"""Reading kvbench's JSON documents, checked for kind, version and members."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvplot import lines
from kvplot.faults import ResultsError, unreadable

# An object of a JSON document.
Entry = dict[str, Any]

KIND = "kvbench.results"
SCHEMA_MAJOR = 1
# Members of a results.json that kvplot reads; a baseline has cells alone.
RESULTS = ("name", "status", "config", "provenance", "plan", "dumps", "cells", "summary")
CELLS = ("cells",)

WRITTEN_BY = {
    "kvbench.results": "`kvbench run` writes it as results.json",
    "kvbench.inspection": "`kvbench inspect DUMP --json` prints it",
    "kvbench.closed_loop": "`data/closed_loop.py` writes it as loop.json",
}


# The file of each kind in the folder that its program wrote.
WRITTEN_AS = {"kvbench.results": "results.json", "kvbench.closed_loop": "loop.json"}


def file_of(path: Path | str, *kinds: str) -> Path:
    """The file that is named, or in a folder that is named the one of these kinds."""
    path = Path(path)
    found = [path / WRITTEN_AS[kind] for kind in kinds if kind in WRITTEN_AS]
    return next((file for file in found if file.is_file()), path)


def _why_no_json(content: bytes, error: ValueError) -> str:
    if content.startswith(b"\x89HDF"):
        return "is an HDF5 file"
    if not content.strip():
        return "is empty"
    if content.startswith(b"{") and not content.rstrip().endswith(b"}"):
        return "is truncated, its JSON has no end"
    return f"invalid JSON: {error}"


def read_json(path: Path | str, remedy: str) -> Any:
    """A JSON document; ResultsError, which ends with the remedy, for a file that is none."""
    path = Path(path)
    if path.is_dir():
        raise ResultsError(f"{path}: is a folder; name the file in it: {remedy}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ResultsError(f"{path}: {unreadable(path, error)}; {remedy}") from error
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        why = _why_no_json(content, ValueError(error))
        raise ResultsError(f"{path}: {why}; {remedy}") from error


def read_document(path: Path | str, kind: str, members: Sequence[str]) -> Entry:
    """A JSON document of kvbench, checked for kind, major number of its version, and members."""
    path = file_of(path, kind)
    return _checked(path, read_json(path, WRITTEN_BY[kind]), kind, members)


def _checked(path: Path | str, document: Any, kind: str, members: Sequence[str]) -> Entry:
    found = document.get("kind") if isinstance(document, dict) else None
    if found != kind:
        raise ResultsError(
            f"{path}: kind is {json.dumps(found)[:40]}, expected {kind!r}; {WRITTEN_BY[kind]}"
        )
    version = str(document.get("schema_version"))
    if version.partition(".")[0] != str(SCHEMA_MAJOR):
        raise ResultsError(
            f"{path}: schema version {version[:40]}, this kvplot reads {SCHEMA_MAJOR}.x; "
            "use the kvplot that came with the kvbench that wrote it"
        )
    for name in members:
        if name not in document:
            raise ResultsError(f'{path}: member "{name}" is missing; {WRITTEN_BY[kind]}')
    checked: Entry = document
    return checked


def read_results(path: Path | str, members: Sequence[str] = RESULTS) -> Entry:
    """The document of a results.json."""
    return read_document(path, KIND, members)


def read_records(path: Path | str, members: Sequence[str] = RESULTS) -> Entry:
    """The same, with cells and records of whole layers that are read one by one where the file is
    laid out as kvbench writes it."""
    path = file_of(path, KIND)
    if path.is_file():
        try:
            document = lines.read(path, json.loads, ("cells", "layers"))
        except OSError as error:
            raise ResultsError(f"{path}: {unreadable(path, error)}; {WRITTEN_BY[KIND]}") from error
        if document is not None:
            return _checked(path, document, KIND, members)
    return read_results(path, members)
