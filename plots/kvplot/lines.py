"""results.json as kvbench writes it, an element of its lists per line: records are read one by
one, however many there are."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from kvplot.faults import ResultsError

Entry = dict[str, Any]
Parse = Callable[[bytes], Any]

_INDENT = b"    "
_LONG = 2**10  # bytes of a line that begins no list


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
        try:
            entry: Entry = self._parse(file.readline().rstrip(b"\n").removesuffix(b","))
        except ValueError as error:
            raise ResultsError(f"{self._path}: a record is not JSON: {error}") from error
        return entry


def read(path: Path, parse: Parse, lists: Sequence[str]) -> Entry | None:
    """The document, with `lists` as Records; None where it is not laid out as kvbench does."""
    records: dict[str, Records] = {}
    rest = bytearray()
    with path.open("rb") as file:
        if file.readline(2) != b"{\n":
            return None
        rest += b"{\n"
        name = None  # name of the list whose elements are being read
        while line := file.readline():
            if name is not None and line.startswith(_INDENT):
                records[name].add(file.tell() - len(line))
                continue
            rest += line
            start = line.strip() if len(line) < _LONG else b""  # no further copy of it
            name = next((each for each in lists if start == b'"' + each.encode() + b'": ['), None)
            if name is not None:
                records[name] = Records(path, parse)
    try:
        document = parse(bytes(rest))
    except ValueError:
        return None
    if not isinstance(document, dict) or any(document.get(name) != [] for name in records):
        return None
    return {**document, **records}


__all__ = ["Records", "read"]
