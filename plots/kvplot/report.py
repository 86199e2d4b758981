"""python -m kvplot report results.json --out report.html: one page about a run, no network."""

import base64
import hashlib
import json
import tempfile
from argparse import Namespace, _SubParsersAction
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from kvplot import figures, papers
from kvplot.figure import Figure, span
from kvplot.results import Entry, Results, ResultsError

ASSETS = Path(__file__).parent / "page"
# What the summary table shows: heading, path in a line of the summary, and what it is.
COLUMNS = (
    ("memory", ("memory", "fraction"), "memory held at the peak, as a part of the exact cache's"),
    ("relative l2", ("errors", "relative_l2.mean"), "mean of ||z - a|| / ||a|| over rows"),
    ("p99", ("errors", "relative_l2.p99"), "99th percentile of the same"),
    ("Frobenius", ("errors", "relative_frobenius_error"), "||Z - A||_F / ||A||_F"),
    ("epsilon spectral", ("errors", "epsilon_spectral.mean"), "SubGen eq. 3"),
    ("epsilon Frobenius", ("errors", "epsilon_frobenius.mean"), "BalanceKV eq. 2"),
    ("KL", ("errors", "kl_divergence.mean"), "KL divergence of attention probabilities"),
    ("cosine distance", ("errors", "cosine_distance.mean"), "1 - cosine of the outputs"),
)
GENERAL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("error_vs_memory", {}),
    ("error_vs_memory", {"panels": "layer"}),
    ("settings", {}),
    ("forest", {}),
    ("layer_head", {}),
    ("ecdf", {}),
    ("position", {}),
)
EXAMPLES = 3
DPI = 130


def add_command(commands: "_SubParsersAction[Any]") -> None:
    parser = commands.add_parser("report", help=__doc__.split(": ", 1)[1], description=__doc__)
    parser.add_argument("results", type=Path, help="results.json of a run")
    parser.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE", help="default: report.html"
    )
    parser.set_defaults(run=run)


def run(arguments: Namespace) -> list[str]:
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(page(Results(arguments.results)), encoding="utf-8")
    return [str(arguments.out)]


def page(results: Results) -> str:
    """The whole page as HTML; nothing in it is loaded from elsewhere."""
    document = results.document
    name = escape(document["name"])
    style, script = _asset("page.css"), _asset("page.js")
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>kvbench: {name}</title>",
        f"<style>{style}</style></head><body>",
        f"<h1>{name}</h1>",
        _counts(results),
        _what_ran(results),
        _summary(results),
        _figures(results),
        _left_out(results),
        _where(document),
        _sweep(document),
        f"<script>{script}</script></body></html>",
    ]
    return "\n".join(parts)


def _policy(style: str, script: str) -> str:
    """Should a name ever get into the page unescaped, a browser runs and loads nothing for it: only
    the page's own style and script, by their hashes, and pictures that are in the page."""

    def source(text: str) -> str:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        return f"'sha256-{digest}'"

    return (
        f"default-src 'none'; img-src data:; style-src {source(style)}; "
        f"script-src {source(script)}; base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _counts(results: Results) -> str:
    plan = results.document["plan"]
    status = results.document["status"]
    count = {word: escape(str(plan[word])) for word in ("cells", "ok", "failed", "skipped")}
    text = f'<p class="counts"><span>{count["cells"]} cells</span><span>{count["ok"]} ok</span>'
    for word in ("failed", "skipped"):
        text += f'<span class="{word if plan[word] else "quiet"}">{count[word]} {word}</span>'
    if status != "complete":
        text += f'<span class="incomplete">{escape(status)}: run again to go on</span>'
    return text + "</p>"


def _what_ran(results: Results) -> str:
    rows = []
    frame = results.frame
    for dump in results.document["dumps"]:
        cells = frame[frame["dump"] == dump["fingerprint"]]
        if cells.empty:
            continue
        layers = ", ".join(map(str, sorted(cells["layer"].unique())))
        rows.append(
            (
                dump["model"],
                dump["path"],
                dump["fingerprint"],
                ", ".join(sorted(cells["sequence"].unique())),
                f"{layers} of {dump['n_layers']}",
                span(cells["tokens"]),
                span(cells["prompt_tokens"]),
                str(cells[["sequence", "layer", "kv_head"]].drop_duplicates().shape[0]),
            )
        )
    return (
        "<h2>What ran</h2>"
        + _table(
            ("model", "dump", "fingerprint", "sequences", "layers", "tokens", "prompt", "units"),
            rows,
        )
        + (
            '<p class="quiet">A unit is one sequence, layer and KV head. Errors are of attention '
            "outputs with the queries of the uncompressed model: how well a layer is reproduced, "
            "not what a model would write. Compare methods by memory, not by budget.</p>"
        )
    )


def _summary(results: Results) -> str:
    lines = results.document["summary"]
    layers = sorted({line["layer"] for line in lines if line["layer"] is not None})
    options = '<option value="all">all together</option>' + "".join(
        f'<option value="{layer}">{layer}</option>' for layer in layers
    )
    heads = [
        ("method", "label", False),
        ("parameters", "those in which a method's settings differ", False),
    ]
    heads += [(head, what, True) for head, _, what in COLUMNS] + [("cells", "finished", True)]
    text = [
        "<h2>Summary</h2>",
        '<p class="quiet">Means over seeds, then over units; after &plusmn; the standard '
        "deviation over seeds; in brackets the 95&nbsp;% interval: Student's t over texts, "
        "layers or KV heads, the outermost that differs. A click on "
        "a heading sorts.</p>",
        f'<p><label>layer <select id="layer">{options}</select></label></p>',
        '<div class="scroll tall"><table class="sortable" id="summary"><thead><tr>',
    ]
    text += [
        f'<th{" class=number" if number else ""} title="{escape(what)}">'
        f'<button type="button">{escape(head)}</button></th>'
        for head, what, number in heads
    ]
    text.append("</tr></thead><tbody>")
    for line in lines:
        layer = "all" if line["layer"] is None else line["layer"]
        text.append(
            f'<tr data-layer="{layer}"><td>{escape(line["label"])}</td>'
            f"<td>{escape(_differing(line, lines))}</td>"
        )
        for head, path, _ in COLUMNS:
            text.append(
                _number(
                    line[path[0]].get(path[1]) if line[path[0]] else None,
                    interval=head == "relative l2",
                )
            )
        cells = escape(str(line["cells"]))
        text.append(f'<td class="number" data-value="{cells}">{cells}</td></tr>')
    text.append("</tbody></table></div>")
    return "\n".join(text)


def _differing(line: Entry, lines: list[Entry]) -> str:
    same = [
        other["params"]
        for other in lines
        if other["label"] == line["label"] and other["layer"] == line["layer"]
    ]
    names = [
        name
        for name in line["params"]
        if len({json.dumps(params.get(name)) for params in same}) > 1
    ]
    return ", ".join(f"{name} {json.dumps(line['params'][name]).strip(chr(34))}" for name in names)


def _number(value: Entry | float | None, interval: bool) -> str:
    """A cell of the table from a number or a {mean, std_over_seeds, ci95}."""
    if isinstance(value, dict):
        mean, spread, limits = value["mean"], value.get("std_over_seeds"), value.get("ci95")
    else:
        mean, spread, limits = value, None, None
    if mean is None:
        return '<td class="number" data-value=""></td>'
    text = f"{mean:.3g}"
    if interval and spread:
        text += f" &plusmn; {spread:.1g}"
    if interval and limits:
        text += f" [{limits[0]:.2g}, {limits[1]:.2g}]"
    return f'<td class="number" data-value="{mean!r}">{text}</td>'


def _figures(results: Results) -> str:
    text = ["<h2>Figures</h2>"]
    if not (results.frame["status"] == "ok").any():
        return text[0] + "<p>No cell finished: nothing to draw.</p>"
    name = results.document["name"]
    wanted = [(figure, options) for _, figure, reads, options in papers.DRAWINGS if reads == name]
    wanted += [entry for entry in GENERAL if entry not in wanted]
    drawn = set()
    for figure, options in wanted:
        module = figures.module(figure)
        made_for = hasattr(module, "fits")
        try:
            if made_for and not module.fits(results):
                continue
            if options.get("panels") == "layer" and results.ok["layer"].nunique() < 2:
                continue
            drawing = papers.draw(figure, results, options)
        except ResultsError as error:
            text.append(f'<p class="quiet">{escape(figure)}: {escape(str(error))}</p>')
            continue
        if drawing.name not in drawn:
            drawn.add(drawing.name)
            text.append(_embedded(drawing))
    return "\n".join(text)


def _embedded(drawing: Figure) -> str:
    with tempfile.TemporaryDirectory() as folder:
        (path,) = drawing.save(folder, caption=False, dpi=DPI, endings=(".png",))
        data = base64.b64encode(path.read_bytes()).decode("ascii")
    caption = escape(drawing.caption)
    return (
        f'<figure id="{escape(drawing.name)}"><img alt="{escape(drawing.name)}" '
        f'src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'
    )


def _left_out(results: Results) -> str:
    frame = results.frame
    text = []
    for status, words in (("failed", "Failed"), ("skipped", "Skipped")):
        cells = frame[frame["status"] == status]
        if cells.empty:
            continue
        rows = []
        # Reasons that differ in their numbers alone are of one cause.
        cause = cells["reason"].astype(str).str.replace(r"\d+", "0", regex=True)
        for (label, _), group in cells.groupby(["label", cause], dropna=False):
            examples = group.head(EXAMPLES)
            reason = str(group["reason"].iloc[0]) + (
                " (and similar)" if group["reason"].nunique() > 1 else ""
            )
            where = "; ".join(
                f"layer {layer}, head {head}, {point}"
                for layer, head, point in zip(
                    examples["layer"], examples["kv_head"], examples["point"]
                )
            )
            rows.append(
                (
                    str(label),
                    reason,
                    str(len(group)),
                    where,
                    str(examples["repro"].iloc[0]) if "repro" in examples else "",
                )
            )
        text.append(
            f'<h2 class="{status}">{words} cells</h2>'
            + _table(
                ("method", "reason", "cells", f"the first {EXAMPLES}", "repeats the first"), rows
            )
        )
    return "\n".join(text)


def _where(document: Entry) -> str:
    rows = []
    for entry in document["provenance"]:
        git = entry.get("git") or {}
        commit = str(git.get("commit"))[:12] + (" (changed)" if git.get("dirty") else "")
        rows.append(
            (
                f"{entry.get('version')}, {commit}",
                str(entry.get("cpu")),
                str(entry.get("threads")),
                str(entry.get("gpu") or "none"),
                str(entry.get("host")),
                str(entry.get("started")),
                str(entry.get("compiler")),
                " ".join(entry.get("argv") or []),
            )
        )
    return "<h2>Where</h2>" + _table(
        ("kvbench", "processor", "threads", "GPU", "host", "started", "compiler", "command"), rows
    )


def _sweep(document: Entry) -> str:
    return (
        "<h2>Sweep</h2><details><summary>as resolved</summary><pre>"
        f"{escape(json.dumps(document['config'], indent=1))}</pre></details>"
    )


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    text = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(field)}</td>" for field in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{text}</tr></thead><tbody>{body}</tbody>'
        "</table></div>"
    )
