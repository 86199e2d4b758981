"""Sentences that CONTRIBUTING.md's rules forbid, against tests/lint/prose_allowed.json.

Pages are counted one by one; comments of sources are counted by top folder, so that files may move.
Each may have as many of a kind as that file says. A page or folder that has fewer is to be counted
anew: `prose.py --record`, which never raises a count.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = Path(__file__).with_name("prose_allowed.json")
LONGEST = 35  # words
WIDEST = 120  # columns, without the targets of links
LONGEST_PAGE = 500  # lines
# Words that the glossary or CONTRIBUTING.md replaces.
REPLACED = r"\b(asking rows?|as (it|they) came|beside)\b"
# Marks of comments, by suffix.
MARKS = dict.fromkeys(("cpp", "hpp", "cu", "cuh", "js"), "//")
MARKS |= dict.fromkeys(("py", "pyi", "sh", "txt", "cmake", "supp", "yml", "yaml", ""), "#")
# Files that quote what the rules forbid.
QUOTING = ("tests/lint/prose.py", "tests/lint/lint_test.py", "CONTRIBUTING.md")

Counts = dict[str, dict[str, int]]


def without_code(page: str) -> str:
    """The page without fences, tables, headings, pictures and targets of links."""
    text = re.sub(r"^(```|~~~).*?^\1$", "", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(\||#|---|!\[|    ).*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\]\([^)]*\)", "]", text)


def split(text: str) -> list[str]:
    """Sentences of paragraphs and items."""
    text = re.sub(r"`[^`]*`", "`code`", text)
    found = []
    for block in re.split(r"\n\s*\n|\n\s*(?:[*-]|\d+\.)\s+", "\n" + text):
        found += re.split(r"(?<=[.!?])\s+(?=[A-Z`*(\[])", " ".join(block.split()))
    return [each for each in found if each]


def sentences(page: str) -> list[str]:
    return split(without_code(page))


def cells(page: str) -> list[str]:
    """Cells of a page's tables."""
    text = re.sub(r"^(```|~~~).*?^\1$", "", page, flags=re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    return [each for row in rows for cell in row.split(" | ") for each in split(cell)]


def comments(source: str, suffix: str) -> list[str]:
    """Sentences of a source file's comments and docstrings, those after code with a capital. The
    text after the indented lines of a list begins another one."""
    mark = MARKS.get(suffix[1:], "//")
    blocks: list[list[str]] = [[]]
    for line in source.splitlines():
        alone = re.match(rf"\s*{mark}+!? ?(.*)", line)
        after = re.search(rf"\S\s+{mark} (.*)", line)
        if alone:
            if blocks[-1] and blocks[-1][-1].startswith("  ") and not alone[1].startswith(" "):
                blocks.append([])
            blocks[-1].append(alone[1])
        else:
            blocks += [[after[1][:1].upper() + after[1][1:]], []] if after else [[]]
    texts = ["\n".join(block) for block in blocks]
    if suffix == ".py":
        texts += re.findall(r'"""(.*?)"""', source, re.DOTALL)
    return [each for text in texts for each in split(text)]


def kinds(sentence: str) -> list[str]:
    """Rules that a sentence breaks."""
    found = []
    if re.match(r"\W*(Of|What) [^?]*$", sentence):
        found.append("opening")
    if re.search(r"\bbut for\b", sentence):
        found.append("but for")
    if re.search(REPLACED, sentence):
        found.append("replaced word")
    if len(sentence.split()) > LONGEST:
        found.append("long")
    return found


def found_in(path: Path, name: str) -> list[tuple[str, str, str]]:
    """(page or folder, kind, sentence) of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        read = sentences(text) + cells(text)
        found = [(name, kind, each) for each in read for kind in kinds(each)]
        wide = [line for line in without_code(text).splitlines() if len(line) > WIDEST]
        found += [(name, "wide line", line) for line in wide]
        lines = len(text.splitlines())
        return found + [(name, "long page", f"{lines} lines")] * (lines > LONGEST_PAGE)
    folder = f"comments of {name.partition('/')[0] if '/' in name else 'scripts'}"
    return [
        (folder, kind, f"{name}: {each}")
        for each in comments(text, path.suffix)
        for kind in kinds(each)
        if kind != "long"
    ]


def everything(root: Path) -> list[tuple[str, str, str]]:
    patterns = [f"*.{suffix}" for suffix in ("md", *MARKS) if suffix not in ("txt", "")]
    patterns += ["*CMakeLists.txt", "*Snakefile", "configs/*.json"]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    found = []
    for name in sorted(listed.stdout.splitlines()):
        path = root / name
        if name not in QUOTING and path.is_file() and not path.is_symlink():
            found += found_in(path, name)
    return found


def counted(found: list[tuple[str, str, str]]) -> Counts:
    counts: Counts = {}
    for place, kind, _ in found:
        counts.setdefault(place, {}).setdefault(kind, 0)
        counts[place][kind] += 1
    return counts


def faults(counts: Counts, allowed: Counts) -> list[str]:
    found = []
    for name in sorted({*counts, *allowed}):
        for kind in sorted({*counts.get(name, {}), *allowed.get(name, {})}):
            has, may = counts.get(name, {}).get(kind, 0), allowed.get(name, {}).get(kind, 0)
            if has > may:
                found.append(
                    f"{name}: {has} of the kind '{kind}', {may} are allowed; "
                    "tests/lint/prose.py --show lists them"
                )
            elif has < may:
                found.append(
                    f"{name}: fewer of '{kind}': record it by tests/lint/prose.py --record"
                )
    return found


def main(arguments: list[str]) -> int:
    listed = everything(ROOT)
    counts = counted(listed)
    if arguments == ["--show"]:
        for place, kind, sentence in listed:
            print(f"{place}: {kind}: {sentence}")
        return 0
    allowed: Counts = json.loads(ALLOWED.read_text(encoding="utf-8"))
    if arguments == ["--record"]:
        allowed = {
            name: {
                kind: min(count, allowed.get(name, {}).get(kind, 0)) for kind, count in own.items()
            }
            for name, own in counts.items()
        }
        allowed = {name: {k: n for k, n in own.items() if n} for name, own in allowed.items()}
        allowed = {name: own for name, own in allowed.items() if own}
        ALLOWED.write_text(json.dumps(allowed, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    found = faults(counts, allowed)
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
