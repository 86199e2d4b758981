"""results.json as kvbench writes it, an element of its lists per line: records are read one by
one, however many there are."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

Entry = dict[str, Any]
Parse = Callable[[bytes], Any]
# Takes a record where it is one of the list.
Fits = Callable[[Any], bool]

_INDENT = b"    "
_LONG = 2**10  # bytes of a line that begins no list
_LONGEST = 2**26  # bytes of a line; a stranger's file can be one without end


class Records(Sequence[Entry]):
    """Elements of a list of a JSON file, read anew each time they are asked for."""

    def __init__(self, path: Path, parse: Parse) -> None:
        self._path = path
        self._parse = parse
        self._offsets = array("q")

    def add(self, offset: int) -> None:
        self._offsets.append(offset)

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[Entry]:
        with self._path.open("rb") as file:
            for offset in self._offsets:
                yield self._read(file, offset)

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> list[Entry]: ...
    def __getitem__(self, place: int | slice) -> Entry | list[Entry]:
        with self._path.open("rb") as file:
            if isinstance(place, slice):
                return [self._read(file, offset) for offset in self._offsets[place]]
            return self._read(file, self._offsets[place])

    def _read(self, file: Any, offset: int) -> Entry:
        if file.tell() != offset:
            file.seek(offset)
        entry: Entry = self._parse(_element(file.readline()))
        return entry


def _element(line: bytes) -> bytes:
    return line.rstrip(b"\n").removesuffix(b",")


def _taken(content: bytearray) -> bytes:
    """There is one copy, not two, while it is parsed."""
    taken = bytes(content)
    content.clear()
    return taken


def read(path: Path, parse: Parse, lists: dict[str, Fits]) -> Entry | None:
    """The document, with `lists` as Records of what fits.

    None where the file is not laid out as kvbench does, or something in it is wrong: who reads it
    whole finds out what.
    """
    try:
        return _read(path, parse, lists)
    except (ValueError, RecursionError, MemoryError):
        return None


def _read(path: Path, parse: Parse, lists: dict[str, Fits]) -> Entry | None:
    records: dict[str, Records] = {}
    rest = bytearray()
    with path.open("rb") as file:
        if file.readline(2) != b"{\n":
            return None
        rest += b"{\n"
        name = None  # name of the list whose elements are being read
        goes_on = False  # a comma stood behind the last of them
        while line := file.readline(_LONGEST):
            if len(line) == _LONGEST:
                return None
            if name is not None and line.startswith(_INDENT):
                records[name].add(file.tell() - len(line))
                if len(records[name]) > 1 and not goes_on:
                    return None
                if not lists[name](parse(_element(line))):
                    return None
                goes_on = line.endswith(b",\n")
                continue
            if goes_on:
                return None
            rest += line
            start = line.strip() if len(line) < _LONG else b""  # no further copy of it
            name = next((each for each in lists if start == b'"' + each.encode() + b'": ['), None)
            if name is not None:
                if name in records:
                    return None
                records[name] = Records(path, parse)
    document = parse(_taken(rest))
    if not isinstance(document, dict):
        return None
    for name, found in records.items():
        if document.get(name) != []:
            return None
        document[name] = found
    return document


__all__ = ["Records", "read"]
