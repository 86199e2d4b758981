"""Tables of plots/FINDINGS.md as rows, and sentences that have to stand on a page."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FINDINGS = (ROOT / "plots/FINDINGS.md").read_text(encoding="utf-8")
GALLERY = (ROOT / "plots/GALLERY.md").read_text(encoding="utf-8")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
           "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty")
TEXTS = "results/texts/smollm2-135m"


def value(text):
    try:
        return float(text)
    except ValueError:
        return text


def table(*words):
    """The rows of the only table whose command has all the words, as dictionaries."""
    fences = re.findall(r"```sh\n(kvplot table .*?)\n```\n\n((?:\|[^\n]*\n)+)", FINDINGS, re.DOTALL)
    found = [lines for command, lines in fences
             if all(word in re.sub(r"[\s\\]+", " ", command) + " " for word in words)]
    assert len(found) == 1, (words, len(found))
    cells = [[value(cell.strip().replace(r"\|", "|")) for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
             for line in found[0].splitlines()]
    header = [f"{name:g}" if isinstance(name, float) else name for name in cells[0]]
    return [dict(zip(header, row)) for row in cells[2:]]


def by(rows, *names):
    return {tuple(row[name] for name in names) if len(names) > 1 else row[names[0]]: row for row in rows}


def plain(text):
    """The page as one line, without marks of emphasis and links."""
    return re.sub(r"\s+", " ", re.sub(r"\]\([^)]*\)|[`*\[\]]", "", text))


def span(values, digits=2):
    values = list(values)
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


class Prose(unittest.TestCase):
    def stands(self, sentence, page=FINDINGS):
        self.assertIn(re.sub(r"\s+", " ", sentence), plain(page))
