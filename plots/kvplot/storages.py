"""Storages of cells, as figures name and draw them."""

import re
from typing import Any

import pandas
from matplotlib.lines import Line2D

from kvplot import style
from kvplot.results import FLOAT, SEPARATOR, ResultsError

# More have no colours that are told apart.
MAX_STORAGES = len(style.SERIES)


def of_labels(cells: pandas.DataFrame) -> dict[str, tuple[str, str]]:
    """By label: the label without its storage, and the storage in words, "K q8_0 V kivi 2 bits"
    or "K and V q4_0"; "float" where numbers are unquantised. The words name the codec's bits,
    which the label leaves out if they are its default."""
    found = {}
    codecs = [name for name in cells if re.fullmatch(r"storage\.\w+\.codec", str(name))]
    for row in cells.drop_duplicates("label").to_dict("records"):
        label = str(row["label"])
        stored = any(not _missing(row[name]) and row[name] != FLOAT for name in codecs)
        if not stored or SEPARATOR not in label:
            found[label] = (label, FLOAT)
            continue
        base, text = label.rsplit(SEPARATOR, 1)
        found[label] = (base, _words(text, row))
    return found


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _words(text: str, row: dict[Any, Any]) -> str:
    parts = {}
    for side, codec in re.findall(r"(?:^| )([KV]) (.+?)(?= V |$)", text):
        bits = row.get(f"storage.{'keys' if side == 'K' else 'values'}.bits")
        if re.search(r"\bbits=", codec):
            codec = re.sub(r"\bbits=(\d+)", r"\1 bits", codec)
        elif not _missing(bits):
            codec = re.sub(r"^(\S+)", rf"\1 {bits:g} bits", codec)
        parts[side] = re.sub(r"\b1 bits", "1 bit", codec)
    if len(parts) == 2 and parts["K"] == parts["V"]:
        return f"K and V {parts['K']}"
    return " ".join(f"{side} {codec}" for side, codec in parts.items()) or text


class Drawn:
    """Colour, line and legend of every storage of a figure; ResultsError for too many of them."""

    def __init__(self, storages: "pandas.Series[str]") -> None:
        self.names = sorted(storages.unique(), key=lambda name: (name != FLOAT, name))
        if len(self.names) > MAX_STORAGES:
            raise ResultsError(
                f"{len(self.names)} storages in one figure are unreadable: choose at most "
                f"{MAX_STORAGES} with --labels PATTERN, for example --labels '*q8_0*'"
            )
        self.colours = dict(zip(self.names, style.SERIES, strict=False))
        self.dashes = {
            name: style.LINES[place % len(style.LINES)] for place, name in enumerate(self.names)
        }

    def handles(self) -> dict[str, Line2D]:
        return {
            name: Line2D(
                [],
                [],
                color=self.colours[name],
                linestyle=self.dashes[name],
                marker="o",
                markeredgewidth=0,
            )
            for name in self.names
        }


def methods(labels: dict[str, tuple[str, str]], points: pandas.DataFrame) -> dict[str, str]:
    """By label the name whose look it has: the algorithm's, or, for further labels of
    one algorithm, the label."""
    found: dict[str, str] = {}
    first: dict[str, str] = {}
    for label, algorithm in zip(points["label"], points["algorithm"]):
        base = labels[label][0]
        found[label] = algorithm if first.setdefault(algorithm, base) == base else base
    return found


def mark(colour: style.Colour, marker: str) -> dict[str, Any]:
    """How the marker of a method is drawn, whose face is the storage's colour."""
    return {
        "color": colour,
        "marker": marker,
        "markersize": 8.0 if marker == "*" else 5.0,
        "markeredgewidth": 0.8,
        "markeredgecolor": colour,
    }


def method_handle(colour: style.Colour, marker: str) -> Line2D:
    """A method in the legend."""
    return Line2D([], [], linestyle="none", markerfacecolor="white", **mark(colour, marker))


__all__ = ["FLOAT", "MAX_STORAGES", "Drawn", "mark", "method_handle", "methods", "of_labels"]
