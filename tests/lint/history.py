"""Facts that git has of a checkout: commits since a rule began, and the files that a change
touches."""

import os
import subprocess
from pathlib import Path


def git(root: Path, *arguments: str) -> list[str] | None:
    """The lines that git prints; None if it fails."""
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines() if done.returncode == 0 else None


def commit(root: Path, name: str) -> str | None:
    found = git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return found[0] if found else None


def base(root: Path) -> str | None:
    """The commit that a change is compared with: $KVBENCH_LINT_BASE, or where the branch left main,
    or on main itself the commit before. None if this clone has none of them."""
    head = commit(root, "HEAD")
    given = os.environ.get("KVBENCH_LINT_BASE")
    if given:
        found = commit(root, given)
        if found is None:
            raise SystemExit(f"KVBENCH_LINT_BASE: {given} is not a commit of this clone")
        return found
    for main in ("origin/HEAD", "origin/main", "main"):
        left = git(root, "merge-base", "HEAD", main) if commit(root, main) else None
        if left and left[0] != head:
            return left[0]
    return commit(root, "HEAD^")


def changed(root: Path, since: str) -> list[str]:
    """Files that differ from commit `since`, with what is not committed yet, and that still exist."""
    tracked = git(root, "diff", "--name-only", "--diff-filter=d", since)
    new = git(root, "ls-files", "--others", "--exclude-standard")
    if tracked is None or new is None:
        raise SystemExit(f"cannot compare with {since}: git fails in {root}")
    return sorted({*tracked, *new})
