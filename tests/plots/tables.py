"""The shipped tables of plots/tables as rows, and what a page says."""

import csv
import json
import re
import shlex
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "plots/tables"
INDEX = {entry["table"].removesuffix(".csv"): entry for entry in json.loads((TABLES / "index.json").read_text())}
GALLERY = (ROOT / "plots/GALLERY.md").read_text(encoding="utf-8")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
           "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty")


def value(text):
    try:
        return float(text)
    except ValueError:
        return text


def table(name):
    """Rows of plots/tables/<name>.csv as dictionaries; numbers are floats."""
    with (TABLES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [{column: value(cell) for column, cell in row.items()} for row in csv.DictReader(file)]


def command(name):
    """Words of `kvplot table` that make a shipped table: its source, then options."""
    entry = INDEX[name]
    return [entry["from"], *shlex.split(entry["options"])]


def by(rows, *names):
    return {tuple(row[name] for name in names) if len(names) > 1 else row[names[0]]: row for row in rows}


def plain(text):
    """The page as one line, without marks of emphasis and links."""
    return re.sub(r"\s+", " ", re.sub(r"\]\([^)]*\)|[`*\[\]]", "", text))


def span(values, digits=2):
    values = list(values)
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


class Page(unittest.TestCase):
    def stands(self, sentence, page=GALLERY):
        self.assertIn(re.sub(r"\s+", " ", sentence), plain(page))
