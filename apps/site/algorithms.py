"""A page per algorithm: its entry in the registry, the head of its file, figures."""

import html
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pages import Links, SiteError, relative

FOLDER = "algorithms"
COMPARED = "lib/algorithms/VERIFIED.md"
GALLERY = "plots/GALLERY.md"
FIELD = "configs/field.json"
FIELD_PICTURE = "gallery/field.png"
PAPERS = "configs/papers"


def page_of(algorithm: str) -> str:
    return f"{FOLDER}/{algorithm}.md"


@dataclass
class Head:
    """The comment that an algorithm's file begins with; `kept` paragraphs stand as they are."""

    paragraphs: list[str]
    kept: set[int]


def read_head(source: str, name: str) -> Head:
    lines: list[str] = []
    for line in source.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:].removeprefix(" "))
    if not lines:
        raise SiteError(f"{name}: expected a comment at its beginning: what, Source, Departures")
    head = Head([], set())
    last_kept = False
    for line in lines:
        kept = line.startswith("  ")
        begins = re.match(r"(Source|Departures|Variants|Noted|Compared|Run next to)\b", line)
        if not line.strip():
            head.paragraphs.append("")
        elif not head.paragraphs or kept != last_kept or (begins and not kept):
            head.paragraphs.append(line)
        else:
            head.paragraphs[-1] += ("\n" if kept else " " if head.paragraphs[-1] else "") + line
        if kept and line.strip():
            head.kept.add(len(head.paragraphs) - 1)
        last_kept = kept
    return head


def _prose(text: str) -> str:
    """Plain words as HTML: what stands between backticks is code, nothing else is a mark."""
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    return re.sub(
        r"^(Source|Departures and resolutions|Departures|Variants|Compared|No departures)\b",
        r"<strong>\1</strong>",
        escaped,
    )


def head_text(head: Head) -> str:
    out = []
    for number, paragraph in enumerate(head.paragraphs):
        if not paragraph:
            continue
        if number in head.kept:
            plain = paragraph.replace("`", "").splitlines()
            lines = html.escape("\n".join(line[2:] for line in plain), quote=False)
            out.append(f"<pre><code>{lines}</code></pre>")
        else:
            out.append(f"<p>{_prose(paragraph)}</p>")
    return "\n\n".join(out)


def cell(text: str) -> str:
    """Plain words in a cell of a table."""
    return _prose(text).replace("|", "&#124;").replace("*", "&#42;").replace("_", "&#95;")


def value(parameter: dict[str, Any], optional: Iterable[str]) -> str:
    if parameter["default"] is not None:
        return f"<code>{cell(json.dumps(parameter['default']).strip(chr(34)))}</code>"
    return "" if parameter["name"] in optional else "required"


def parameters_text(entry: dict[str, Any]) -> str:
    if not entry["parameters"]:
        return "It has no parameters."
    alternatives = [name for group in entry["exclusive"] for each in group for name in names(each)]
    out = ["| parameter | type | range | default | what |", "|---|---|---|---|---|"]
    for parameter in entry["parameters"]:
        out.append(
            f"| `{parameter['name']}` | {parameter['type']} | {cell(parameter['range'])} "
            f"| {value(parameter, alternatives)} | {cell(parameter['description'])} |"
        )
    for group in entry["exclusive"]:
        each = [" with ".join(f"`{name}`" for name in names(one)) for one in group]
        out.append(f"\nExactly one of these is given: {', or '.join(each)}.")
    return "\n".join(out)


def names(alternative: Any) -> list[str]:
    return [alternative] if isinstance(alternative, str) else list(alternative)


def rows_of(table: str, algorithm: str) -> list[list[str]]:
    """Cells of the rows whose first cell names the algorithm, each after its table's head."""
    out: list[list[str]] = []
    head: list[str] = []
    for line in table.splitlines():
        if not line.startswith("|"):
            head = []
            continue
        cells = [each.strip() for each in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not head:
            head = cells
        elif f"`{algorithm}`" in cells[0]:
            out += [head, cells]
    return out


def pictures_of(gallery: str, algorithm: str) -> list[tuple[str, str]]:
    """(words, picture) of the gallery's pictures whose paragraph names the algorithm as code."""
    found = []
    for paragraph in re.split(r"\n\s*\n", gallery):
        picture = re.match(r"!\[(.*?)\]\((.*?)\)", paragraph)
        if picture and re.search(rf"`{re.escape(algorithm)}`", paragraph):
            found.append((picture[1], picture[2]))
    return found


def sweeps_of(root: Path, algorithm: str) -> list[str]:
    quoted = f'"algorithm": "{algorithm}"'
    return [
        path.relative_to(root).as_posix()
        for path in sorted((root / PAPERS).glob("*.json"))
        if quoted in path.read_text(encoding="utf-8")
    ]


class AlgorithmPages:
    """Texts of the pages, with links through `links`."""

    def __init__(self, root: Path, listed: list[dict[str, Any]], links: Links):
        self._root = root
        self._listed = listed
        self._links = links
        self._read = {
            name: (root / name).read_text(encoding="utf-8") for name in (COMPARED, GALLERY, FIELD)
        }

    def _link(self, page: str, text: str, source: str, fragment: str = "") -> str:
        return f"[{text}]({self._links.changed(page, relative(source, page))}{fragment})"

    def index(self) -> str:
        page = page_of("README")
        rows = ["| id | keeps | parameters | source |", "|---|---|---|---|"]
        for entry in self._listed:
            named = ", ".join(f"`{each['name']}`" for each in entry["parameters"])
            rows.append(
                f"| [`{entry['id']}`]({entry['id']}.md) | {cell(entry['title'])} | {named} "
                f"| {cell(entry['source'])} |"
            )
        guide = self._link(page, "how one is added", "lib/algorithms/README.md")
        compared = self._link(page, "what each was compared with", COMPARED)
        return (
            f"# Algorithms\n\n{len(self._listed)} methods, in the order of "
            "`kvbench list algorithms`, from which these pages are made: parameters with ranges "
            "and defaults, where a method comes from, what departs from its paper, and figures "
            f"that show it. See also {compared}, and {guide}.\n\n" + "\n".join(rows) + "\n"
        )

    def text(self, entry: dict[str, Any]) -> str:
        algorithm = entry["id"]
        page = page_of(algorithm)
        source = f"lib/algorithms/methods/{algorithm}.cpp"
        head = read_head((self._root / source).read_text(encoding="utf-8"), source)
        aliases = "".join(f", also `{alias}`" for alias in entry["aliases"])
        out = [
            f"# {algorithm}",
            f"<p>{_prose(entry['title'])}{_prose(aliases)}. Source: {_prose(entry['source'])}.</p>",
            f"<p>Memory: {_prose(entry['memory'])}.</p>",
            f"## Parameters of {algorithm}",
            parameters_text(entry),
            f"## Where {algorithm} comes from, and what departs",
            head_text(head),
            f"The head of {self._link(page, f'`{source}`', source)}.",
        ]
        out += self._compared(page, algorithm)
        out += self._reported(page, entry)
        out += self._figures(page, algorithm)
        out += self._sweeps(page, algorithm)
        return "\n\n".join(out) + "\n"

    def _compared(self, page: str, algorithm: str) -> list[str]:
        rows = rows_of(self._read[COMPARED], algorithm)
        if not rows:
            return []
        said = self._link(page, "What the words mean", COMPARED)
        facts = [f"* {cells[1]}: {cells[2]}" for cells in rows[1::2]]
        return [f"## What {algorithm} was compared with", "\n".join(facts), f"{said}."]

    def _reported(self, page: str, entry: dict[str, Any]) -> list[str]:
        if not entry["derived"]:
            return []
        rows = ["| `derived.` | what |", "|---|---|"]
        rows += [f"| `{each['name']}` | {cell(each['definition'])} |" for each in entry["derived"]]
        results = self._link(page, "the results page", "configs/RESULTS.md")
        return [
            f"## What {entry['id']} reports",
            "\n".join(rows),
            f"Every other number is defined on {results}.",
        ]

    def _figures(self, page: str, algorithm: str) -> list[str]:
        named = pictures_of(self._read[GALLERY], algorithm)
        shown = [each for each in named if each[1] != FIELD_PICTURE]
        if f'"algorithm": "{algorithm}"' in self._read[FIELD]:
            shown.insert(0, ("All methods at equal bytes", FIELD_PICTURE))
        if not shown:
            said = self._link(page, "The gallery", GALLERY)
            return [f"## Figures with {algorithm}", f"None of {said} shows it."]
        gallery = GALLERY.rpartition("/")[0]
        pictures = [f"!{self._link(page, words, f'{gallery}/{name}')}" for words, name in shown]
        said = self._link(page, "the gallery", GALLERY)
        return [f"## Figures with {algorithm}", *pictures, f"{said} says what each shows."]

    def _sweeps(self, page: str, algorithm: str) -> list[str]:
        sweeps = sweeps_of(self._root, algorithm)
        if not sweeps:
            return []
        listed = [f"* {self._link(page, f'`{each}`', each)}" for each in sweeps]
        return [f"## Published settings of {algorithm}", "\n".join(listed)]
