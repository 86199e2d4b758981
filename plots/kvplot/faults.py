"""Errors of a file or a request, in this package's words."""

import argparse
import difflib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

# Lengths of names in a message.
MAX_NAMED = 20


class ResultsError(ValueError):
    """A file that this package cannot read, or that does not hold what a figure shows."""


class RequestError(ResultsError):
    """An option that does not fit the file; the message says what would."""


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """ "; did you mean X?" if a known word is near, or what begins with the word and a dot."""
    below = [name for name in known if name.startswith(f"{word}.")]
    near = below or difflib.get_close_matches(word, known, 1)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def unreadable(path: Path | str, error: OSError) -> str:
    """Why a file cannot be read, in this package's words."""
    if not Path(path).exists():
        return "no such file"
    return "permission denied" if isinstance(error, PermissionError) else "cannot be read"


def integer(least: int, most: int) -> Callable[[str], int]:
    """The type of an option."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"expected an integer from {least} to {most}, got '{text}'"
            )
        return int(text)

    return read


def few(names: Iterable[str]) -> str:
    """All of a few names, of many the first."""
    shown = list(map(str, names))
    more = len(shown) - MAX_NAMED
    if more <= 1:
        return ", ".join(shown)
    return f"{', '.join(shown[:MAX_NAMED])} and {more} more"
