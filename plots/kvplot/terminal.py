"""Text on its way to a terminal, which must neither steer it nor fill it."""

import re
import sys
import warnings
from typing import TextIO

LONGEST = 4096  # characters of a message, and of its end, where the remedy is
END = 1024
# Control characters but newlines, line and paragraph separators, and what turns the direction of
# writing; as the program has it.
STEERING = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    return STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """A message as people are shown it; of one that quotes a very long text, the beginning and the
    end."""
    if len(text) > LONGEST:
        left_out = len(text) - LONGEST
        text = f"{text[: LONGEST - END]} ... {left_out} characters ... {text[-END:]}"
    return printable(text).replace("\n", "\\u000a")


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """In place of warnings.showwarning: matplotlib quotes the letters that its font lacks."""
    text = warnings.formatwarning(message, category, filename, lineno, line)
    (file or sys.stderr).write(printable(text))
