"""Tables of still text: every field is escaped."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from kvplot.results import Entry


def table(heads: Iterable[str], rows: Sequence[Sequence[str]], tall: bool = False) -> str:
    """Every field is text."""
    text = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    body = ["<tr><td>" + "</td><td>".join(map(escape, row)) + "</td></tr>" for row in rows]
    return (
        f'<div class="scroll{" tall" if tall else ""}" tabindex="0"><table><thead><tr>{text}</tr>'
        f"</thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def number_text(value: Entry | float | None) -> str:
    """Text of a number or of the mean of a {mean, ..}."""
    mean = value["mean"] if isinstance(value, dict) else value
    return "" if mean is None or mean != mean else f"{mean:.3g}"


def shown_path(path: Path | str) -> str:
    """A path as it is written; of an absolute one the last folder and the name, so that a page
    says nothing of who made it."""
    path = Path(path)
    return "/".join(path.parts[-2:]) if path.is_absolute() else str(path)


def params_text(params: Entry) -> str:
    return ", ".join(f"{name} {shown_text(value)}" for name, value in params.items())


def shown_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
