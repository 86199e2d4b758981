"""The page as HTML: a template, a style, D3 and the page's own script, the data and still parts."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from string import Template

from kvplot.report import sections, verdict_sections
from kvplot.report.columns import payload
from kvplot.report.d3 import LICENCE, d3
from kvplot.report.tables import shown_path
from kvplot.report.verdicts import comparison_payload
from kvplot.results import Entry, Results

ASSETS = Path(__file__).parent / "page"
# A module's line that names what it uses of another.
IMPORT = re.compile(r'^import (?:\{[^}]*\} from )?"\./(\w+)\.js";\n', re.M)


def page(
    every: Sequence[Results],
    comparison: Entry | None = None,
    check: Entry | None = None,
    metrics: Sequence[str] = (),
    figures: bool = True,
) -> str:
    """The whole page; nothing in it is loaded from elsewhere."""
    style, library, code = _asset("page.css"), f"/*\n{LICENCE}\n*/\n{d3()}", script()
    title = " and ".join(dict.fromkeys(results.document["name"] for results in every))
    parts = {
        "policy": _policy(style, [library, code]),
        "title": escape(title),
        "style": style,
        "library": library,
        "script": code,
        "counts": "".join(sections.counts(results, name) for name, results in _named(every)),
        "verdicts": (verdict_sections.compared(comparison) if comparison else _no_verdicts(every))
        + (verdict_sections.checked(check) if check else ""),
        "links": _links(every, comparison or check, figures),
        "summary": _each(every, sections.summary),
        "what_ran": _each(every, sections.what_ran),
        "left_out": _each(every, sections.left_out),
        "figures": _figures(every) if figures else "",
        "where": _each(every, sections.where),
        "sweep": _each(every, sections.sweep),
    }
    for results in every:  # they and the data of the page need not be in memory at once
        results.forget_frames()
    parts["data"] = _data(every, comparison, metrics)
    return Template(_asset("page.html")).substitute(parts)


def _data(every: Sequence[Results], comparison: Entry | None, metrics: Sequence[str]) -> str:
    data = payload(every, metrics)
    data["comparison"] = comparison and comparison_payload(comparison, data["settings"])
    return _embedded(data)


def _named(every: Sequence[Results]) -> list[tuple[str, Results]]:
    return [("" if len(every) == 1 else "AB"[place], each) for place, each in enumerate(every)]


def _links(every: Sequence[Results], verdicts: Entry | None, figures: bool) -> str:
    links = {"explore": "explore", "verdicts": "verdicts", "ran": "what ran", "figures": "figures"}
    if not verdicts and len(every) == 1:
        del links["verdicts"]
    if not figures:
        del links["figures"]
    return " ".join(f'<a href="#{name}">{words}</a>' for name, words in links.items())


def _each(every: Sequence[Results], section: Callable[[Results], str]) -> str:
    """A section of every result; of two, under A and B."""
    return "".join(_under(name, results, section(results)) for name, results in _named(every))


def _under(name: str, results: Results, content: str) -> str:
    if not name or not content:
        return content
    return f"<div><h3>{name}: {escape(shown_path(results.path))}</h3>{content}</div>"


def _figures(every: Sequence[Results]) -> str:
    return "".join(
        _under(name, results, sections.stills(results, name)) for name, results in _named(every)
    )


def _no_verdicts(every: Sequence[Results]) -> str:
    if len(every) == 1:
        return ""
    a, b = (escape(shown_path(results.path)) for results in every)
    return (
        '<h2 id="compared">A against B</h2><p>Ratios are in the table under '
        "<q>A against B</q>. Whether one is better or worse is decided by kvbench: "
        f"<code>kvbench compare {a} {b} --json &gt; compare.json</code>, then "
        "<code>kvplot report A B --compare compare.json</code>.</p>"
    )


def _policy(style: str, scripts: Sequence[str]) -> str:
    """Should a name ever get into the page unescaped, a browser runs and loads nothing for it: only
    the page's own style and scripts, by their hashes, and pictures that are in the page."""

    def source(text: str) -> str:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        return f"'sha256-{digest}'"

    return (
        f"default-src 'none'; img-src data:; style-src {source(style)}; "
        f"script-src {' '.join(map(source, scripts))}; base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def script(name: str = "main") -> str:
    """A module of the page and those that it imports, each before those that use it, as one script.
    A page that is opened as a file cannot import."""
    joined: dict[str, str] = {}

    def join(name: str) -> None:
        text = _asset(f"{name}.js")
        for other in IMPORT.findall(text):
            if other not in joined:
                join(other)
        joined[name] = re.sub("^export ", "", IMPORT.sub("", text), flags=re.M)

    join(name)
    return '"use strict";\n' + "\n".join(joined.values())


def _embedded(data: Entry) -> str:
    """JSON that can stand in a script element: no < in it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
