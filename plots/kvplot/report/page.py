"""The page as HTML: a template, a style, D3 and the page's own script, the data and still parts."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from kvplot.report import sections
from kvplot.report.columns import payload
from kvplot.report.d3 import LICENCE, d3
from kvplot.results import Entry, Results

ASSETS = Path(__file__).parent / "page"
# A module's line that names what it uses of another.
IMPORT = re.compile(r'^import (?:\{[^}]*\} from )?"\./(\w+)\.js";\n', re.M)


def page(results: Results, metrics: Sequence[str] = (), figures: bool = True) -> str:
    """The whole page; nothing in it is loaded from elsewhere."""
    style, library, code = _asset("page.css"), f"/*\n{LICENCE}\n*/\n{d3()}", script()
    parts = {
        "policy": _policy(style, [library, code]),
        "title": escape(results.document["name"]),
        "style": style,
        "library": library,
        "script": code,
        "counts": sections.counts(results),
        "links": _links(figures),
        "summary": sections.summary(results),
        "what_ran": sections.what_ran(results),
        "left_out": sections.left_out(results),
        "figures": sections.stills(results) if figures else "",
        "where": sections.where(results),
        "sweep": sections.sweep(results),
    }
    results.forget_frames()  # they and the data of the page need not be in memory at once
    parts["data"] = _embedded(payload(results, metrics))
    return Template(_asset("page.html")).substitute(parts)


def _links(figures: bool) -> str:
    links = {"explore": "explore", "ran": "what ran"}
    if figures:
        links["figures"] = "figures"
    return " ".join(f'<a href="#{name}">{words}</a>' for name, words in links.items())


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
