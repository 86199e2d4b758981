"""The cards of plots/FINDINGS.md, "In short": each has a claim, a number with its interval, a picture, a table and a
limit; what it says of numbers stands in the table that it names, and what it links to is there. The tables are held
by findings_test.py."""

import re
import unittest

from prose import FINDINGS, ROOT, table

PARTS = ("Number", "Picture", "Table", "Limit")
LEAST = 13
# A name of a row, then a number with its interval: `snapkv: T 1`, 0.758 (0.737 to 0.781).
NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?"
INTERVAL = re.compile(rf"`([^`]+)`[^`()]*?({NUMBER}) \(({NUMBER}) to ({NUMBER})\)")
DECIMAL = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]\d+)?(?![\w.]*\d)")
WITHOUT = "no interval: "
LINK = re.compile(r"\[[^\]]+\]\(([^)]+)\)")


def section(title, page=FINDINGS):
    """The text below a heading, up to the next one of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[2]


def cards(page=FINDINGS):
    """By claim the parts of every card."""
    found = {}
    for text in re.split(r"^\d+\. (?=\*\*)", section("In short", page), flags=re.MULTILINE)[1:]:
        claim, *parts = re.split(r"^ +\* ", text, flags=re.MULTILINE)
        claim = re.sub(r"\s+", " ", claim).strip()
        found[claim] = {name: re.sub(r"\s+", " ", rest).strip()
                        for name, _, rest in (part.partition(": ") for part in parts)}
    return found


def anchors(page=FINDINGS):
    """By the anchor of a heading the heading."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"): title
            for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}


def fields(rows):
    return {cell for row in rows for cell in row.values() if isinstance(cell, float)}


def faults(claim, parts):
    """What is wrong with a card, in words."""
    found = [f"{name} is missing" for name in PARTS if not parts.get(name)]
    if not re.fullmatch(r"\*\*[^*]+\.\*\*", claim):
        found.append("the claim must be a sentence in bold")
    if found:
        return found
    picture = LINK.search(parts["Picture"])
    if not picture or not (ROOT / "plots" / picture[1]).is_file():
        found.append("the picture is not there")
    words, place = re.search(r"`([^`]+)`", parts["Table"]), LINK.search(parts["Table"])
    if not words or not place or place[1].lstrip("#") not in anchors():
        return [*found, "Table must name words of a command and its section"]
    rows = table(*words[1].split())
    command = words[1].split()[0]
    if command not in section(anchors()[place[1].lstrip("#")]):
        found.append(f"{command} is not in {place[1]}")
    intervals = INTERVAL.findall(parts["Number"])
    if not intervals and WITHOUT not in parts["Number"]:
        found.append(f"Number needs an interval, or '{WITHOUT}' and why")
    for name, *numbers in intervals:
        value, low, high = map(float, numbers)
        its = [row for row in rows if name in {cell if isinstance(cell, str) else f"{cell:g}" for cell in row.values()}]
        if not any({value, low, high} <= fields([row]) for row in its):
            found.append(f"no row {name} has {value:g} ({low:g} to {high:g})")
        if not low <= value <= high:
            found.append(f"{value:g} is not within {low:g} to {high:g}")
    bare = re.sub(r"`[^`]*`", "", claim + " " + parts["Number"])
    found += [f"{number} is not in the table" for number in DECIMAL.findall(bare) if float(number) not in fields(rows)]
    return found


class Cards(unittest.TestCase):
    def test_every_card_is_whole_and_its_numbers_are_those_of_its_table(self):
        found = cards()
        self.assertGreaterEqual(len(found), LEAST)
        self.assertEqual(len(re.findall(r"^\d+\. ", section("In short"), re.MULTILINE)), len(found))
        for claim, parts in found.items():
            with self.subTest(claim):
                self.assertEqual(faults(claim, parts), [])

    def test_what_a_card_lacks_or_has_wrong_is_found(self):
        claim, parts = next((claim, parts) for claim, parts in cards().items() if INTERVAL.search(parts["Number"]))
        for name in PARTS:
            self.assertEqual(faults(claim, parts | {name: ""}), [f"{name} is missing"])
        number = INTERVAL.search(parts["Number"])[2]
        wrong = parts["Number"].replace(number, "0.12345")
        self.assertIn("0.12345 is not in the table", faults(claim, parts | {"Number": wrong}))
        self.assertTrue(any(fault.startswith("no row ") for fault in faults(claim, parts | {"Number": wrong})))
        self.assertEqual(faults(claim, parts | {"Number": "it is less."}),
                         ["Number needs an interval, or 'no interval: ' and why"])
        self.assertEqual(faults(claim, parts | {"Picture": "[gone](gallery/gone.png)"}), ["the picture is not there"])
        elsewhere = re.sub(r"\(#[^)]*\)", "(#larger-dumps)", parts["Table"])
        self.assertTrue(any("is not in #larger-dumps" in fault for fault in faults(claim, parts | {"Table": elsewhere})))
        self.assertEqual(faults(claim.strip("*"), parts), ["the claim must be a sentence in bold"])

    def test_rules_for_names_and_numbers(self):
        self.assertEqual(INTERVAL.findall("`a: T 1` at T 1, 0.5 (0.25 to 1), `b | c` -2e-05 (-1 to 0.5)"),
                         [("a: T 1", "0.5", "0.25", "1"), ("b | c", "-2e-05", "-1", "0.5")])
        self.assertEqual(DECIMAL.findall("0.1, of 36, -0.25 and 1.5e-05; v1.2"), ["0.1", "-0.25", "1.5e-05"])


if __name__ == "__main__":
    unittest.main()
