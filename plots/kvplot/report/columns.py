"""Cells of results as columns of numbers, which the page holds once, in base64."""

import base64
import json
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy

from kvplot import style
from kvplot.meanings import meaning_of
from kvplot.results import PARTS, Entry, Results, ResultsError, did_you_mean
from kvplot.table import HEADLINES

Array = numpy.ndarray[Any, Any]
# Section, name and, of a name that holds several numbers, which.
Path = tuple[str, ...]

ERROR = ("errors", "relative_frobenius_error")
MEMORY = ("memory", "fraction")
# Besides every error by its mean.
ALSO: tuple[Path, ...] = (
    ("errors", "relative_l2", "p99"),
    ("errors", "relative_l2", "max"),
    ("mass", "kept", "mean"),
    MEMORY,
    ("memory", "peak_bytes"),
    ("memory", "exact_bytes"),
    ("timing", "seconds"),
)
STATUS = ("ok", "failed", "skipped")
# Quantiles of Student's t by degrees of freedom, from 1; beyond, the page's script expands them.
FREEDOM = 200
# Single precision has seven digits and this range; other columns are double.
SINGLE = (1e-30, 1e30)


def payload(results: Results, more: Sequence[str] = ()) -> Entry:
    """Data of the page's script: settings and units once, cells by column."""
    from scipy import stats

    settings, units = _Numbered(), _Numbered()
    paths = _paths(results, more)
    cells = _cells(results, settings, units, paths)
    algorithms = [entry["algorithm"] for entry in settings.entries]
    looks = {name: style.look(name, algorithms) for name in dict.fromkeys(algorithms)}
    return {
        "result": cells,
        "settings": settings.entries,
        "units": units.entries,
        "numbers": [".".join(path) for path in paths],
        "weighted": [name for name in PARTS if tuple(name.split(".")) in paths],
        "headlines": HEADLINES[:-1],  # memory has a column of its own
        "meanings": {name: text for name in map(".".join, paths) if (text := meaning_of(name))},
        "looks": {
            name: {"colour": colour, "marker": marker} for name, (colour, marker) in looks.items()
        },
        "t975": [round(float(value), 10) for value in stats.t.ppf(0.975, range(1, FREEDOM + 1))],
    }


class _Numbered:
    """Entries by their order of appearance, each once."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._places: dict[str, int] = {}

    def place(self, entry: Entry) -> int:
        key = json.dumps(entry, sort_keys=True)
        if key not in self._places:
            self._places[key] = len(self.entries)
            self.entries.append(entry)
        return self._places[key]


def _paths(results: Results, more: Sequence[str]) -> list[Path]:
    """Every error by its mean, the first ones first; then ALSO and `more`, as far as a cell has
    them."""
    errors: dict[Path, None] = {}
    numbers: set[Path] = set()  # leaves that are one in a cell
    for cell in results.document["cells"]:
        for name, value in (cell.get("errors") or {}).items():
            errors[("errors", name, "mean") if isinstance(value, dict) else ("errors", name)] = None
        numbers.update(_numbers_in(cell))
    known = {".".join(path) for path in numbers if path[0] != "key"}
    for name in more:
        if name not in known:
            raise ResultsError(f"no cell has {name}{did_you_mean(name, sorted(known))}")
    first = [ERROR] if ERROR in errors else []
    wanted = dict.fromkeys([*first, *errors, *ALSO, *(tuple(name.split(".")) for name in more)])
    return [path for path in wanted if path in numbers]


def _numbers_in(value: Entry, above: Path = ()) -> Iterator[Path]:
    for name, entry in value.items():
        if isinstance(entry, dict):
            yield from _numbers_in(entry, (*above, name))
        elif type(entry) in (int, float):
            yield (*above, name)


def number(cell: Entry, path: Path) -> float:
    """NaN for what is not there, null, or not a number."""
    value: Any = cell
    for name in path:
        if not isinstance(value, dict):
            return math.nan
        value = value.get(name)
    return float(value) if type(value) in (int, float) else math.nan


def _exact(cell: Entry, part: str) -> float:
    """The bytes of exact attention that a part of a cell is of; as results.exact_bytes."""
    of, *over = (number(cell, tuple(name.split("."))) for name in PARTS[part])
    return of / over[0] if over and over[0] else math.nan if over else of


def _cells(results: Results, settings: _Numbered, units: _Numbered, paths: Iterable[Path]) -> Entry:
    paths = list(paths)
    places = {
        name: array("L") for name in ("setting", "unit", "status", "seed", "reason", "command")
    }
    seeds, reasons, commands = _Words(), _Words(), _Words()
    ids: list[str] = []
    numbers = [array("d") for _ in paths]
    exact = {name: array("d") for name in PARTS if tuple(name.split(".")) in paths}
    for cell in results.document["cells"]:
        key = cell["key"]
        params = results.setting_params(key)
        entry = {"algorithm": key["algorithm"], "label": cell["label"], "params": params}
        unit = {name: key[name] for name in ("dump", "sequence", "layer", "kv_head")}
        # Commands differ in their cell's id alone, as a rule.
        command = _split(cell.get("repro", ""), cell["id"])
        for name, place in (
            ("setting", settings.place(entry)),
            ("unit", units.place(unit)),
            ("status", STATUS.index(cell["status"])),
            ("seed", seeds.place(key["seed"])),
            ("reason", reasons.place(cell.get("reason", ""))),
            ("command", commands.place(command)),
        ):
            places[name].append(place)
        ids.append(cell["id"])
        for column, path in zip(numbers, paths):
            column.append(number(cell, path))
        for name, column in exact.items():
            column.append(_exact(cell, name))
    return {
        "count": len(ids),
        **{name: _integers(column) for name, column in places.items()},
        "seeds": seeds.words,
        "reasons": reasons.words,
        "id": _ids(ids),
        "commands": [list(words) for words in commands.words],
        "numbers": [_floats(numbers.pop(0)) for _ in paths],
        "weights": {name: _floats(column) for name, column in exact.items()},
    }


class _Words:
    def __init__(self) -> None:
        self._places: dict[Any, int] = {}

    def place(self, word: Any) -> int:
        return self._places.setdefault(word, len(self._places))

    @property
    def words(self) -> list[Any]:
        return list(self._places)


def _split(command: str, identity: str) -> tuple[str, ...]:
    """A command's text before and after its cell's id; the whole if the id is not in it once.

    The folder repro/ID8 behind it is repro/@, so that commands of all cells have one text."""
    parts = command.split(identity) if identity else [command]
    if len(parts) != 2:
        return (command,)
    return parts[0], parts[1].replace(f"repro/{identity[:8]}", "repro/@")


def _base64(values: Array) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def _integers(values: Sequence[int]) -> Entry:
    """The narrowest of u1, u2 and u4, little-endian."""
    most = max(values, default=0)
    kind = "u1" if most < 2**8 else "u2" if most < 2**16 else "u4"
    return {"type": kind, "data": _base64(numpy.asarray(values, dtype=f"<{kind}"))}


def _floats(values: Sequence[float]) -> Entry:
    column = numpy.asarray(values, dtype="<f8")
    sizes = numpy.abs(column[numpy.isfinite(column) & (column != 0)])
    single = bool(((sizes > SINGLE[0]) & (sizes < SINGLE[1])).all())
    kind = "f4" if single else "f8"
    return {"type": kind, "data": _base64(column.astype(f"<{kind}"))}


def _ids(ids: Sequence[str]) -> Entry:
    """16 bytes for each if all are 32 hexadecimal digits, as the program's are."""
    try:
        content = b"".join(bytes.fromhex(word) for word in ids)
        if all(len(word) == 32 and word == word.lower() for word in ids):
            return {"hex": base64.b64encode(content).decode("ascii")}
    except ValueError:
        pass
    return {"words": list(ids)}
