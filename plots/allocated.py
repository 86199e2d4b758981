"""allocated.py RESULTS: a sweep of choices per layer, on stdout, for plots/allocate.sh.

RESULTS has errors of configs/allocate.json. `kvbench allocate` chooses by them within the bytes of
3 or 4 bits in all layers. The sweep also has the storages of configs/loop_allocate.json, and a rule
that measures nothing: 4 bits in the first and last quarter of the layers, 2 bits in the others.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

TWO, THREE, FOUR = (
    f"K kivi{bits} residual=32 rope=before V kivi{bits} residual=32"
    for bits in ("", " bits=3", " bits=4")
)
EIGHT = "K q8_0 centre=mean rope=before V q8_0"


def chosen(results: dict[str, Any], size: int, names: set[str], label: str) -> dict[str, Any]:
    """The sweep of the choice among storages of these names."""
    cells = [cell for cell in results["cells"] if name_of(cell) in names]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        path.write_text(json.dumps({**results, "cells": cells}))
        done = subprocess.run(
            ["build/bin/kvbench", "allocate", path, "--bytes", str(size)],
            check=True,
            stdout=subprocess.PIPE,
        )
    sweep: dict[str, Any] = json.loads(done.stdout)
    sweep["algorithms"][0]["label"] = label
    return sweep


def name_of(cell: dict[str, Any]) -> str:
    return str(cell["label"]).partition(" | ")[2]


def main(path: str) -> None:
    results = json.loads(Path(path).read_text(encoding="utf-8"))
    cells = results["cells"]
    storages = {name_of(cell): cell["key"]["storage"] for cell in cells}
    totals: Counter[str] = Counter()
    for cell in cells:
        memory = cell["memory"]
        totals[name_of(cell)] += memory["peak_bytes"] + (memory["shared_bytes"] or 0)
    depth = len({cell["key"]["layer"] for cell in cells})
    texts = len({cell["key"]["sequence"] for cell in cells})

    outer = [*range((depth // 2 + 1) // 2), *range(depth - depth // 4, depth)]
    parts = [{"layers": outer, "storage": storages[FOUR]}, {"storage": storages[TWO]}]
    half = {
        "algorithm": "exact",
        "label": "outer half in 4 bits, others in 2",
        "storage": [{"by_layer": parts}],
    }
    every, alike = set(storages), {TWO, THREE, FOUR, EIGHT}
    three_bits = totals[THREE] // texts
    sweeps = [
        chosen(results, three_bits, every, "by layer, bytes of 3 bits"),
        chosen(results, three_bits, alike, "by layer, bits alone, bytes of 3 bits"),
        chosen(results, totals[FOUR] // texts, every, "by layer, bytes of 4 bits"),
    ]
    alone = Path("configs/loop_allocate.json").read_text(encoding="utf-8").partition("\n{")[2]
    entries = [*json.loads("{" + alone)["algorithms"], half]
    entries += [sweep["algorithms"][0] for sweep in sweeps]
    print(json.dumps({**sweeps[0], "algorithms": entries}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
