"""The still parts of the page: what ran, a summary, figures, what was left out, where."""

import base64
import json
import tempfile
from collections import Counter
from html import escape
from typing import Any

import pandas

from kvplot import figures, papers
from kvplot.figure import Figure, columns_of, scored_rows, span
from kvplot.figure import left_out as left_out_words
from kvplot.meanings import meaning_of
from kvplot.report.tables import number_text, params_text, shown_path, table
from kvplot.results import PARTS, POINT, Entry, Results, ResultsError
from kvplot.statistics import over, summarised

# Columns of the summary table: heading and column of the cells; the first has an interval.
COLUMNS = (
    ("Frobenius", "errors.relative_frobenius_error"),
    ("spectral", "errors.relative_spectral_error"),
    ("mean of a row", "errors.relative_l2.mean"),
    ("memory", "memory.fraction"),
    ("epsilon spectral", "errors.epsilon_spectral.mean"),
    ("epsilon Frobenius", "errors.epsilon_frobenius.mean"),
    ("KL", "errors.kl_divergence.mean"),
    ("cosine distance", "errors.cosine_distance.mean"),
)
GENERAL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("error_vs_memory", {}),
    ("error_vs_memory", {"panels": "layer"}),
    ("error_vs_traffic", {}),
    ("storage_map", {}),
    ("settings", {}),
    ("forest", {}),
    ("layer_head", {}),
    ("layer_impact", {}),
    ("ecdf", {}),
    ("position", {}),
)
EXAMPLES = 3
DPI = 130
# Columns of the table of what ran, besides those of the rows that were scored, and of what did not.
RAN = ("sequence", "layer", "kv_head", "tokens", "prompt_tokens")
WHY = ("label", "reason", "layer", "kv_head", "point", "repro")


def counts(results: Results) -> str:
    """How the cells ended."""
    plan = results.document["plan"]
    status = results.document["status"]
    count = {word: escape(str(plan[word])) for word in ("cells", "ok", "failed", "skipped")}
    text = '<p class="counts">'
    text += f"<span>{count['cells']} cells</span><span>{count['ok']} ok</span>"
    for word in ("failed", "skipped"):
        text += f'<span class="{word if plan[word] else "quiet"}">{count[word]} {word}</span>'
    if status != "complete":
        text += f'<span class="incomplete">{escape(status)}: run again to go on</span>'
    return text + "</p>"


def what_ran(results: Results) -> str:
    rows = []
    frame = results.frame
    shown = frame[[name for name in frame if name in RAN or str(name).startswith("rows")]]
    ran = frame.groupby("dump").indices
    for dump in results.document["dumps"]:
        if dump["fingerprint"] not in ran:
            continue
        cells = shown.iloc[ran.pop(dump["fingerprint"])]
        layers = ", ".join(map(str, sorted(cells["layer"].unique())))
        rows.append(
            (
                dump["model"],
                shown_path(dump["path"]),
                dump["fingerprint"],
                ", ".join(sorted(cells["sequence"].unique())),
                f"{layers} of {dump['n_layers']}",
                span(cells["tokens"]),
                span(cells["prompt_tokens"]),
                scored_rows(cells),
                str(cells[["sequence", "layer", "kv_head"]].drop_duplicates().shape[0]),
            )
        )
    return (
        "<h2>What ran</h2>"
        + table(
            (
                "model",
                "dump",
                "fingerprint",
                "sequences",
                "layers",
                "tokens",
                "prompt",
                "scored",
                "units",
            ),
            rows,
        )
        + (
            '<p class="quiet">A unit is one sequence, layer and KV head. Errors are of attention '
            "outputs with the queries of the uncompressed model: how well a layer is reproduced, "
            "not what a model would write. Compare methods by memory, not by budget.</p>"
        )
    )


def summary(results: Results) -> str:
    """Means over the units that all settings have, for readers without scripts."""
    frame = results.frame
    metric = COLUMNS[0][1]
    there = set(map(str, frame))
    columns = [(head, name) for head, name in COLUMNS if {name, *PARTS.get(name, ())} <= there]
    if not columns or columns[0][1] != metric or not (frame["status"] == "ok").any():
        return ""
    found = summarised(frame, metric, [name for _, name in columns[1:]])
    means = results.ok[POINT].drop_duplicates().merge(found, how="left").to_dict("records")
    lines = [{"label": str(row["label"]), "params": json.loads(row["point"])} for row in means]
    differing = _differing(lines)
    rows = []
    for line, row in zip(lines, means, strict=True):
        chosen = {
            name: line["params"][name]
            for name in differing[line["label"]]
            if name in line["params"]
        }
        numbers = [number_text(row[name]) for _, name in columns]
        if numbers[0] and row["groups"] > 1:
            numbers[0] += f" [{row[f'{metric}_low']:.2g}, {row[f'{metric}_high']:.2g}]"
        has = "" if row["has"] != row["has"] else f"{row['has']:.0f} of {row['asked']:.0f}"
        rows.append((line["label"], params_text(chosen), *numbers, has))
    over_groups = pandas.DataFrame([row for row in means if row["groups"] == row["groups"]])
    said = (results.compared(metric).said + left_out_words(frame)).strip()
    meanings = "; ".join(f"{head}: {meaning_of(name)}" for head, name in columns)
    return (
        "<h2>Summary</h2>"
        '<p class="quiet">Means over seeds, then over units; in brackets the 95 % interval: '
        f"{over(over_groups) if len(over_groups) else 'none'}. {escape(said)} {escape(meanings)}."
        "</p>" + table(("method", "parameters", *(head for head, _ in columns), "units"), rows)
    )


def _differing(lines: list[Entry]) -> dict[str, list[str]]:
    """Parameters in which a label's settings differ, by label."""
    found: dict[str, dict[str, set[str]]] = {}
    for line in lines:
        values = found.setdefault(line["label"], {})
        for name, value in line["params"].items():
            values.setdefault(name, set()).add(json.dumps(value))
    counts = Counter(line["label"] for line in lines)
    present = Counter((line["label"], name) for line in lines for name in line["params"])
    return {
        label: [
            name
            for name, every in values.items()
            if len(every) > 1 or present[label, name] < counts[label]
        ]
        for label, values in found.items()
    }


def stills(results: Results) -> str:
    """Figures that fit the sweep, as pictures."""
    text = ["<h2>Figures</h2>"]
    if not (results.frame["status"] == "ok").any():
        return text[0] + "<p>No cell finished: nothing to draw.</p>"
    sweep_name = results.document["name"]
    wanted = [
        (figure, options) for _, figure, reads, options in papers.DRAWINGS if reads == sweep_name
    ]
    wanted += [entry for entry in GENERAL if entry not in wanted]
    drawn = set()
    for figure, options in wanted:
        module = figures.module(figure)
        made_for = hasattr(module, "fits")
        try:
            with columns_of(results):
                if made_for and not module.fits(results):
                    continue
            if options.get("panels") == "layer" and results.ok["layer"].nunique() < 2:
                continue
            drawing = papers.draw(figure, results, options)
            if drawing.name in drawn:
                continue
            picture = _embedded(drawing)
        except ResultsError as error:
            text.append(f'<p class="quiet">{escape(figure)}: {escape(str(error))}</p>')
            continue
        drawn.add(drawing.name)
        text.append(picture)
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


def left_out(results: Results) -> str:
    frame = results.frame
    shown = frame[[name for name in frame if name in WHY]]
    text = []
    for status, words in (("failed", "Failed"), ("skipped", "Skipped")):
        cells = shown[frame["status"] == status]
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
            + table(
                ("method", "reason", "cells", f"the first {EXAMPLES}", "repeats the first"), rows
            )
        )
    return "\n".join(text)


def where(results: Results) -> str:
    rows = []
    for entry in results.document["provenance"]:
        git = entry.get("git") or {}
        commit = str(git.get("commit"))[:12] + (" (changed)" if git.get("dirty") else "")
        rows.append(
            (
                f"{entry.get('version')}, {commit}",
                str(entry.get("cpu")),
                str(entry.get("threads")),
                str(entry.get("gpu") or "none"),
                str(entry.get("host") or "not named"),
                str(entry.get("started")),
                str(entry.get("compiler")),
                " ".join(entry.get("argv") or []),
            )
        )
    return "<h2>Where</h2>" + table(
        ("kvbench", "processor", "threads", "GPU", "host", "started", "compiler", "command"), rows
    )


def sweep(results: Results) -> str:
    return (
        "<h2>Sweep</h2><details><summary>as resolved</summary><pre>"
        f"{escape(json.dumps(results.document['config'], indent=1))}</pre></details>"
    )
