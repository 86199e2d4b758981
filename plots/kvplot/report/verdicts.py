"""Output of `kvbench compare --json` and `kvbench check --json`, for the page."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvplot import checks
from kvplot.documents import Entry, read_json
from kvplot.results import Results, ResultsError

FLAG = checks.leaf("true or false", lambda value: isinstance(value, bool))
WORDS = ("same", "better", "worse", "unclear")
INTERVAL = checks.members(
    {"mean": checks.optional(checks.NUMBER)},
    {"ci95": checks.optional(checks.array(checks.NUMBER, 2))},
)
METRIC = checks.members(
    {"units": checks.COUNT},
    {
        "a": checks.optional(checks.NUMBER),
        "b": checks.optional(checks.NUMBER),
        "ratio": INTERVAL,
        "verdict": checks.one_of(*WORDS),
    },
)
CELL = checks.members({}, others=checks.shown)
COMPARISON = checks.members(
    {
        "a": checks.TEXT,
        "b": checks.TEXT,
        "passed": FLAG,
        "tolerance": checks.NUMBER,
        "pairs": checks.COUNT,
        "settings": checks.array(
            checks.members(
                {
                    "algorithm": checks.TEXT,
                    "label": checks.TEXT,
                    "params": checks.PARAMS,
                    "metrics": checks.members({}, others=METRIC),
                }
            )
        ),
        **dict.fromkeys(("lost", "gained", "only_a", "only_b"), checks.array(checks.shown)),
    }
)
VIOLATION = checks.members(
    {"reason": checks.TEXT},
    {
        "cell": checks.optional(CELL),
        "value": checks.optional(checks.NUMBER),
        "allowed": checks.optional(checks.NUMBER),
    },
)
CHECK = checks.members(
    {
        "results": checks.TEXT,
        "bounds_file": checks.TEXT,
        "passed": FLAG,
        "violations": checks.array(VIOLATION),
        "bounds": checks.array(
            checks.members(
                {
                    "name": checks.TEXT,
                    "kind": checks.TEXT,
                    "metric": checks.TEXT,
                    "held": FLAG,
                    "matched": checks.COUNT,
                    "tested": checks.COUNT,
                    "evidence": checks.members({}, others=checks.shown),
                    "violations": checks.array(VIOLATION),
                    **dict.fromkeys(
                        ("vacuous", "skipped", "undefined"), checks.array(checks.shown)
                    ),
                }
            )
        ),
    }
)


def _read(path: Path, expected: checks.Check, command: str) -> Entry:
    document = read_json(path, f"`{command}` prints it")
    fault = expected(document, "")
    if fault:
        raise ResultsError(f"{path}: {fault}; `{command}` prints it")
    return document


def setting_key(algorithm: str, label: str, params: Entry) -> str:
    """The key by which a setting is recognised in a comparison and in results."""
    return json.dumps([algorithm, label, params], sort_keys=True)


def _compared_key(entry: Entry) -> str:
    """The key of a comparison's entry; it has `tokens` if they are an axis (setting_params)."""
    tokens = {"tokens": entry["tokens"]} if "tokens" in entry else {}
    return setting_key(entry["algorithm"], entry["label"], {**entry["params"], **tokens})


def read_comparison(path: Path, every: Sequence[Results]) -> Entry:
    """ResultsError if it is not of these two results: if another number of settings, or others."""
    document = _read(path, COMPARISON, "kvbench compare A B --json")
    keys = [
        {
            setting_key(
                cell["key"]["algorithm"], cell["label"], results.setting_params(cell["key"])
            )
            for cell in results.document["cells"]
        }
        for results in every
    ]
    for entry in document["settings"]:
        for name, results, known in zip("AB", every, keys):
            if _compared_key(entry) not in known:
                raise ResultsError(
                    f"{path}: compares {document['a']} with {document['b']}, and {results.path} "
                    f"({name}) has no cell of {entry['label']} {json.dumps(entry['params'])}; "
                    f"make it again: kvbench compare {every[0].path} {every[1].path} --json"
                )
    return document


def comparison_payload(document: Entry, settings: Sequence[Entry]) -> Entry:
    """Verdicts by the page's numbers of settings; the words that the page's script shows."""
    places = {
        setting_key(entry["algorithm"], entry["label"], entry["params"]): place
        for place, entry in enumerate(settings)
    }
    verdicts: dict[int, Any] = {}
    for entry in document["settings"]:
        verdicts[places[_compared_key(entry)]] = {
            name: [
                metric["verdict"],
                metric.get("ratio", {}).get("mean"),
                metric.get("ratio", {}).get("ci95"),
            ]
            for name, metric in entry["metrics"].items()
            if "verdict" in metric
        }
    return {"verdicts": verdicts}


def read_check(path: Path, every: Sequence[Results]) -> Entry:
    """With a `note` if it is of a file that is not among these results."""
    document = _read(path, CHECK, "kvbench check --json")
    known = {str(results.path.resolve()) for results in every}
    # Cells of a baseline may be missing from the results, so that their ids decide nothing.
    if str(Path(document["results"]).resolve()) not in known:
        document["note"] = "That path is not one of this page's results."
    return document
