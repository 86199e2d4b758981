"""The look of every method: a colour, a marker and a line of its own, the same in every figure."""

import json
import zlib
from collections.abc import Iterable
from pathlib import Path

import pandas

Dashes = str | tuple[int, tuple[int, ...]]

LINES: tuple[Dashes, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))

# No two colours are alike, with common colour vision or without: found by a search for the largest
# smallest distance, which tests/plots/style_test.py computes.
COLOURS = (
    "#000000",
    "#DF2579",
    "#F1B961",
    "#5300FF",
    "#1F513B",
    "#27D9CC",
    "#95D299",
    "#C554B5",
    "#770599",
    "#88026F",
    "#B7A5FF",
    "#9850E8",
    "#CACC02",
    "#CB6900",
    "#504A04",
    "#9F834E",
)
# The facts about each method besides its code; tests/support/known_methods.py lists the members. A
# method may lack all of them.
METHODS = json.loads((Path(__file__).parent / "methods.json").read_text(encoding="utf-8"))
# Colour, marker, and which of LINES the first label has. No two methods have the same colour and
# marker, nor the same colour and line; methods of one colour have markers of other shapes.
LOOK: dict[str, tuple[str, str, int]] = {
    name: (known["look"][0], known["look"][1], known["look"][2])
    for name, known in METHODS.items()
    if "look" in known
}
# The remaining pairs of colours and markers that can be told apart, in a fixed order.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_FREE = [
    (colour, marker)
    for marker in _MARKERS
    for colour in COLOURS
    if colour != "#000000"
    and not any(colour == other and marker == taken for other, taken, _ in LOOK.values())
]


def look(algorithm: str, shown: Iterable[str] = ()) -> tuple[str, str]:
    """Colour and marker of an algorithm, in a figure that has the algorithms `shown`.

    One without a look in methods.json (a new one, one written in Python or of a cache file) gets a
    free pair by a hash of its name, so that it looks alike in all figures. If two among
    `shown` have one colour, the later one (by methods.json, then by name) takes a colour that no
    other has, as long as there are enough.
    """
    shown = list(shown)
    own = {name: _own_look(name, shown) for name in dict.fromkeys([algorithm, *shown])}
    colours = distinct({name: colour for name, (colour, _) in sorted(own.items(), key=_rank)})
    return colours[algorithm], own[algorithm][1]


def _rank(item: tuple[str, tuple[str, str]]) -> tuple[int, str]:
    name = item[0]
    return (list(LOOK).index(name) if name in LOOK else len(LOOK)), name


def distinct(wished: dict[str, str]) -> dict[str, str]:
    """A colour for every name, no two the same: its wish, unless an earlier name has it. The wishes
    themselves if there are more names than COLOURS."""
    if len(wished) > len(COLOURS):
        return wished
    found: dict[str, str] = {}
    free = [colour for colour in COLOURS if colour not in wished.values()]  # black last
    for name, colour in wished.items():
        found[name] = free.pop() if colour in found.values() else colour
    return found


def label_colours(table: pandas.DataFrame) -> dict[str, str]:
    """The colour of every label of a figure; no two are the same, as long as there are enough."""
    pairs = table[["algorithm", "label"]].drop_duplicates().astype(str).to_numpy().tolist()
    shown = [algorithm for algorithm, _ in pairs]
    first = dict(reversed(pairs))
    pairs.sort(key=lambda pair: first[pair[0]] != pair[1])  # first labels have their method's
    return distinct({label: look(algorithm, shown)[0] for algorithm, label in pairs})


def _own_look(algorithm: str, shown: Iterable[str]) -> tuple[str, str]:
    """Colour and marker that an algorithm wishes."""
    if algorithm in LOOK:
        return LOOK[algorithm][:2]
    taken: dict[int, str] = {}
    for name in sorted({name for name in shown if name not in LOOK} | {algorithm}):
        place = zlib.crc32(name.encode()) % len(_FREE)
        while place in taken and len(taken) < len(_FREE):
            place = (place + 1) % len(_FREE)
        taken.setdefault(place, name)
        if name == algorithm:
            return _FREE[place]
    raise AssertionError


def variants(table: pandas.DataFrame) -> dict[str, tuple[Dashes, bool]]:
    """Line style and filled (or hollow) marker of every label: an algorithm that stands under
    several labels keeps its colour and marker, and its labels differ in these."""
    found: dict[str, tuple[Dashes, bool]] = {}
    for algorithm, labels in table.groupby("algorithm")["label"]:
        first = LOOK[str(algorithm)][2] if algorithm in LOOK else 0
        for place, label in enumerate(dict.fromkeys(labels)):
            found[label] = (LINES[(first + place) % len(LINES)], place == 0)
    return found
