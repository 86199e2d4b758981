"""Tables of still text: every field is escaped."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from kvplot.results import Entry

MARKED = ("worse", "unclear", "better", "same", "held", "violated")


def table(heads: Iterable[str], rows: Sequence[Sequence[str]], tall: bool = False) -> str:
    """Every field is text. A first field that is a verdict gets its colour."""
    text = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    body = []
    for row in rows:
        word = row[0] if row[0] in MARKED else ""
        first = f'<td class="{word}">' if word else "<td>"
        fields = "</td><td>".join(escape(field) for field in row)
        body.append(f"<tr>{first}{fields}</td></tr>")
    return (
        f'<div class="scroll{" tall" if tall else ""}" tabindex="0"><table><thead><tr>{text}</tr>'
        f"</thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def number_text(value: Entry | float | None, interval: bool) -> str:
    """Text of a number or of a {mean, std_over_seeds, ci95}."""
    if isinstance(value, dict):
        mean, spread, limits = value["mean"], value.get("std_over_seeds"), value.get("ci95")
    else:
        mean, spread, limits = value, None, None
    if mean is None:
        return ""
    text = f"{mean:.3g}"
    if interval and spread:
        text += f" \u00b1 {spread:.1g}"
    if interval and limits:
        text += f" [{limits[0]:.2g}, {limits[1]:.2g}]"
    return text


def params_text(params: Entry) -> str:
    return ", ".join(f"{name} {shown_text(value)}" for name, value in params.items())


def shown_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
