"""Pages of the repository, written for GitHub, as Python-Markdown and the site want them."""

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

# A fence, and what begins a list, a table or a quotation.
_FENCE = re.compile(r"^ *(```+|~~~+)")
_LIST = re.compile(r"^ {0,3}(?:[*+-]|\d+[.)]) ")
_BLOCK = re.compile(r"^ {0,3}(?:[*+-] |\d+[.)] |\||>)")
# Inline code, or the target of a link or picture.
_CODE_OR_TARGET = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)|(\]\()([^()\s]+)(\))", re.DOTALL)
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


class SiteError(Exception):
    """Errors of the sources, all of them, one line each."""


def anchor(title: str, separator: str = "-") -> str:
    """The id of a heading, by GitHub's rule, which links of the repository's pages follow."""
    words = re.sub(r"[^\w\- ]", "", title.strip().lower())
    return words.replace(" ", separator)


def parts(text: str) -> Iterator[tuple[bool, str]]:
    """(whether it is a fenced block, lines) of a page, in order."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence:
            lines.append(line)
            if line.strip() == fence:
                yield True, "".join(lines)
                lines, fence = [], ""
        elif mark:
            if lines:
                yield False, "".join(lines)
            lines, fence = [line], mark[1]
        else:
            lines.append(line)
    if lines:
        yield bool(fence), "".join(lines)


def separated(text: str) -> str:
    """Text without fences as Python-Markdown wants it: an empty line before a list or table, where
    GitHub needs none, and four spaces before what belongs to an item, where GitHub takes two."""
    out: list[str] = []
    for line in text.splitlines(keepends=True):
        line = re.sub(r"^( +)(?=\S)", r"\1\1", line)
        kind = _BLOCK.match(line)
        if kind and out and out[-1].strip() and not _continues(line, out):
            out.append("\n")
        out.append(line)
    return "".join(out)


def _continues(line: str, before: list[str]) -> bool:
    """Whether a line that begins an item, or a row, follows others of the same list or table."""
    if line[0] in "|>":
        return before[-1][0] == line[0]
    for earlier in reversed(before):
        if not earlier[0].isspace():
            return _LIST.match(earlier) is not None
    return False


def table_code(text: str) -> str:
    r"""`a \| b` in a table is `a | b`: Python-Markdown splits no code."""
    return re.sub(
        r"^\|.*$",
        lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0]),
        text,
        flags=re.MULTILINE,
    )


def with_targets(text: str, changed: Callable[[str], str]) -> str:
    """Text without fences, every target of a link or picture in it changed."""

    def replace(found: re.Match[str]) -> str:
        if found[1]:
            return found[0]
        return found[2] + changed(found[3]) + found[4]

    return _CODE_OR_TARGET.sub(replace, text)


def linked_ids(text: str, pages: dict[str, str], page: str) -> str:
    """Ids that stand alone in the first cell of a table's row, linked from `page`; `pages` has
    the page of each."""

    def link(found: re.Match[str]) -> str:
        target = pages.get(found[1])
        return f"[{found[0]}]({relative(target, page)})" if target else found[0]

    def row(found: re.Match[str]) -> str:
        return found[1] + re.sub(r"`([^`]+)`", link, found[2]) + found[3]

    return re.sub(r"^(\| *)(`[^|]*`)( *\|)", row, text, flags=re.MULTILINE)


def relative(target: str, page: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


class Links:
    """Where a link of a page leads on the site.

    Pages lead to pages. Notebooks are shown as pages; pictures and other files are copied, these
    with .txt after their names, so that browsers show them, or, with `repository`, lead there."""

    def __init__(self, root: Path, pages: list[str], repository: str | None):
        self._root = root
        self._pages = set(pages)
        self._repository = repository.rstrip("/") if repository else None
        self.copied: dict[str, str] = {}
        self.notebooks: set[str] = set()
        self.faults: list[str] = []

    def changed(self, page: str, target: str) -> str:
        if _SCHEME.match(target) or target.startswith("#"):
            return target
        path, mark, fragment = target.partition("#")
        source = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if not (self._root / source).is_file() or source.startswith(".."):
            self.faults.append(f"{page}: {target}: there is no file {source}; correct the link")
            return target
        if self._repository and source not in self._pages and not source.endswith((".png", ".svg")):
            return f"{self._repository}/{source}"
        return relative(self.place(source), page) + mark + fragment

    def place(self, source: str) -> str:
        """The place of a repository's file in the folder that mkdocs reads; it will be there."""
        suffix = PurePosixPath(source).suffix
        if source in self._pages:
            return source
        if suffix == ".ipynb":
            self.notebooks.add(source)
            return source[: -len(suffix)] + ".md"
        if suffix in (".png", ".svg"):
            self.copied[source] = source
            return source
        self.copied[source] = source + ".txt"
        return source + ".txt"


def page_text(text: str, page: str, links: Links, ids: dict[str, str]) -> str:
    """A page of the repository as the site has it."""
    out = []
    for fenced, part in parts(text):
        if not fenced:
            part = with_targets(part, lambda target: links.changed(page, target))
            part = linked_ids(part, ids, page)
            part = table_code(separated(part))
        out.append(part)
    return "".join(out)
