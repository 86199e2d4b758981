"""Evidence that is lost to a whole model: the tokens that no head of any layer reads."""

from pathlib import Path
from typing import Any

import pandas

from kvplot.results import Entry, Results, point_of

SETTING = ("dump", "sequence", "algorithm", "label", "point", "seed")


def globally_lost(path: Path | str) -> pandas.DataFrame:
    """One row per sequence with evidence, setting and seed, with the columns of load_results.

    `layers` is how many layers the row is of, `tokens` how many evidence tokens there are, `lost`
    those that no query head of any of these layers reads at the last evidence row, `share` their
    part: the Global Eviction Ratio if the dump has all layers of its model. A setting of which a
    layer failed or was skipped is left out, for its other layers do not say what the model lost.
    """
    results = Results(path)
    rows: dict[tuple[Any, ...], Entry] = {}
    left_out = set()
    for record in results.document.get("layers", []):
        key = record["key"]
        setting = {
            **{name: key.get(name) for name in SETTING},
            "label": record["label"],
            "point": point_of(results.setting_params(key)),
        }
        name = tuple(setting.values())
        if record["status"] != "ok":
            left_out.add(name)
        elif "evidence" in record:
            lost = set(record["evidence"]["lost"])
            row = rows.setdefault(name, {**setting, "layers": 0, "lost": lost})
            row["layers"] += 1
            row["tokens"] = record["evidence"]["tokens"]
            row["lost"] = row["lost"] & lost
    kept = [row for name, row in rows.items() if name not in left_out]
    for row in kept:
        row["lost"] = sorted(row["lost"])
        row["share"] = len(row["lost"]) / row["tokens"]
    columns = [*SETTING, "layers", "tokens", "lost", "share"]
    return pandas.DataFrame(kept, columns=columns)
