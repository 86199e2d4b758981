"""Subjects of commits: at most 72 characters, so that `git log --oneline` can be read."""

import sys
from pathlib import Path

from history import commit, git

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 72
# The last commit before the rule; a clone that does not reach back to it has later ones only.
BEFORE = "a48c3379ff8916186ef33762afbf6bace4076980"


def too_long(root: Path, before: str) -> list[str]:
    """One line per commit since `before` whose subject is too long."""
    since = [f"{before}..HEAD"] if commit(root, before) else ["HEAD"]
    lines = git(root, "log", "--format=%h %s", *since)
    if lines is None:
        raise SystemExit(f"cannot read the commits of {root}: it is not a git checkout")
    split = (line.partition(" ") for line in lines)
    return [
        f"{name}: {len(subject)} characters, at most {LONGEST}: {subject}"
        for name, _, subject in split
        if len(subject) > LONGEST
    ]


if __name__ == "__main__":
    found = too_long(ROOT, BEFORE)
    print("".join(f"{line}\n" for line in found), end="", file=sys.stderr)
    sys.exit(1 if found else 0)
