"""The still sections about verdicts of `kvbench compare` and `kvbench check`."""

from html import escape

from kvplot.report.tables import number_text, params_text, shown_path, shown_text, table
from kvplot.results import Entry

MAX_VIOLATIONS = 200
VERDICTS = ("worse", "unclear", "better", "same")
LISTED = ("vacuous", "skipped", "undefined")


def compared(document: Entry) -> str:
    """Verdicts of `kvbench compare`: how many of each, and those that are not "same"."""
    found = dict.fromkeys(VERDICTS, 0)
    rows = []
    for entry in document["settings"]:
        for name, metric in entry["metrics"].items():
            if "verdict" not in metric:
                continue
            found[metric["verdict"]] += 1
            if metric["verdict"] != "same":
                rows.append(
                    (
                        metric["verdict"],
                        entry["label"],
                        params_text(entry["params"]),
                        name,
                        number_text(metric.get("a")),
                        number_text(metric.get("b")),
                        _ratio(metric.get("ratio") or {}),
                    )
                )
    rows.sort(key=lambda row: VERDICTS.index(row[0]))
    passed = "passed" if document["passed"] else "failed"
    text = (
        f'<h2 id="compared">A against B: <span class="{passed}">{passed}</span></h2>'
        '<p class="quiet">Verdicts of kvbench compare on the whole results, whatever is chosen '
        f"above: {document['pairs']} pairs of cells, tolerance {document['tolerance']:g}. A is "
        f"{escape(shown_path(document['a']))}, B is {escape(shown_path(document['b']))}.</p>"
        '<p class="counts">'
    )
    text += "".join(
        f'<span class="{word}">{count} {word}</span>' for word, count in found.items() if count
    )
    for name, words in (
        ("lost", "a number of A is null in B"),
        ("gained", "a number of B is null in A"),
        ("only_a", "only in A"),
        ("only_b", "only in B"),
    ):
        if document[name]:
            text += f"<span>{len(document[name])} cells: {words}</span>"
    text += "</p>"
    if rows:
        heads = ("verdict", "method", "parameters", "metric", "A", "B", "B/A and 95 % interval")
        text += table(heads, rows, tall=True)
    return text


def checked(document: Entry) -> str:
    """Verdicts of `kvbench check`: every bound, then what violated one."""
    passed = "passed" if document["passed"] else "failed"
    bounds = [
        (
            "held" if bound["held"] else "violated",
            bound["name"],
            bound["kind"],
            bound["metric"],
            f"{bound['tested']} of {bound['matched']}",
            str(len(bound["violations"])),
            ", ".join(f"{len(bound[word])} {word}" for word in LISTED if bound[word]),
            "; ".join(
                f"{name} {number_text(value)}"
                for name, value in bound["evidence"].items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            ),
        )
        for bound in document["bounds"]
    ]
    named = [("(results)", each) for each in document["violations"]]
    named += [(b["name"], each) for b in document["bounds"] for each in b["violations"]]
    rows = [
        (
            name,
            each["reason"],
            number_text(each.get("value")),
            number_text(each.get("allowed")),
            _reference(each.get("cell") or {}),
        )
        for name, each in named[:MAX_VIOLATIONS]
    ]
    of_results, of_bounds = (
        escape(shown_path(document[name])) for name in ("results", "bounds_file")
    )
    text = (
        f'<h2 id="checked">Bounds: <span class="{passed}">{passed}</span></h2>'
        f'<p class="quiet">Verdicts of kvbench check on {of_results} against {of_bounds}. '
        "A vacuous or skipped cell is not evidence that a "
        f"bound held. {escape(document.get('note', ''))}</p>"
    )
    heads = ("verdict", "bound", "kind", "metric", "tested", "violations", "not tested", "evidence")
    text += table(heads, bounds)
    if rows:
        text += f"<h3>{len(named)} violations</h3>"
        if len(named) > len(rows):
            text += f"<p>The first {len(rows)}; kvbench check --json prints all.</p>"
        text += table(("bound", "reason", "value", "allowed", "cell"), rows, tall=True)
    return text


def _ratio(ratio: Entry) -> str:
    limits = ratio.get("ci95")
    text = number_text(ratio.get("mean"))
    return f"{text} [{limits[0]:.3g}, {limits[1]:.3g}]" if limits else text


def _reference(cell: Entry) -> str:
    return ", ".join(
        f"{name} {params_text(value) if isinstance(value, dict) else shown_text(value)}"
        for name, value in cell.items()
    )
