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


def facts(text):
    """Numbers and number words in their order, without digits of names."""
    return re.findall(rf"(?<![\w.])\d+(?:\.\d+)?(?!\w)|\b(?:{'|'.join(NUMBERS[1:])})\b", plain(text).lower())


def states(block, sentence):
    """Whether the block has the sentence's facts in their order, in whatever words."""
    rest = iter(facts(block))
    return all(fact in rest for fact in facts(sentence))


class Page(unittest.TestCase):
    def stands(self, sentence, page=GALLERY):
        """One paragraph or item has the sentence's numbers; a sentence without decimals is there word by word."""
        if any("." in fact for fact in facts(sentence)):
            blocks = re.split(r"\n\s*\n|\n(?=\* )", page)
            self.assertTrue(any(states(block, sentence) for block in blocks), sentence)
        else:
            self.assertIn(re.sub(r"\s+", " ", sentence), plain(page))
