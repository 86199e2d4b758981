"""Sentences of the pages that CONTRIBUTING.md's rules forbid, against tests/lint/prose_allowed.json.

A page may have as many of each kind as that file says, which is what it had when it was counted. A page that
has fewer is to be counted anew: `prose.py --record`, which never raises a count.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = Path(__file__).with_name("prose_allowed.json")
LONGEST = 35  # words

Counts = dict[str, dict[str, int]]


def sentences(page: str) -> list[str]:
    """Without code, tables, headings and links' targets."""
    text = re.sub(r"^(```|~~~).*?^\1$", "", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(\||#|---|    ).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"`[^`]*`", "`code`", text)
    blocks = re.split(r"\n\s*\n|\n\s*(?:[*-]|\d+\.)\s+", "\n" + text)
    found = []
    for block in blocks:
        found += re.split(r"(?<=[.!?])\s+(?=[A-Z`*(\[])", " ".join(block.split()))
    return [each for each in found if each]


def kinds(sentence: str) -> list[str]:
    """Rules that a sentence breaks."""
    found = []
    if re.match(r"\W*(Of|What) [^?]*$", sentence):
        found.append("opening")
    if re.search(r"\bbut for\b", sentence):
        found.append("but for")
    if re.search(r"\bas (it|they) came\b", sentence):
        found.append("as it came")
    if len(sentence.split()) > LONGEST:
        found.append("long")
    return found


def counted(root: Path) -> Counts:
    counts: Counts = {}
    for path in sorted(root.rglob("*.md")):
        name = path.relative_to(root).as_posix()
        if re.match(r"\.|build|results", name):
            continue
        for sentence in sentences(path.read_text(encoding="utf-8")):
            for kind in kinds(sentence):
                counts.setdefault(name, {}).setdefault(kind, 0)
                counts[name][kind] += 1
    return counts


def faults(counts: Counts, allowed: Counts) -> list[str]:
    found = []
    for name in sorted({*counts, *allowed}):
        for kind in sorted({*counts.get(name, {}), *allowed.get(name, {})}):
            has, may = counts.get(name, {}).get(kind, 0), allowed.get(name, {}).get(kind, 0)
            if has > may:
                found.append(f"{name}: {has} sentences of the kind '{kind}', {may} are allowed")
            elif has < may:
                found.append(
                    f"{name}: fewer of '{kind}': record it by tests/lint/prose.py --record"
                )
    return found


def main(arguments: list[str]) -> int:
    counts = counted(ROOT)
    if arguments == ["--show"]:
        for path in sorted(counts):
            for sentence in sentences((ROOT / path).read_text(encoding="utf-8")):
                if kinds(sentence):
                    print(f"{path}: {', '.join(kinds(sentence))}: {sentence}")
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
