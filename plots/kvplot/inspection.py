"""The output of `kvbench inspect DUMP --json`, as frames with one row per layer and head."""

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

import pandas

from kvplot.results import Entry, ResultsError, read_document

KIND = "kvbench.inspection"
HEAD = ["sequence", "layer", "kv_head"]


class Inspection:
    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.document = read_document(path, KIND)
        if not self.heads:
            raise ResultsError(f"{path}: no layer")

    @cached_property
    def heads(self) -> list[tuple[Entry, Entry, Entry]]:
        """One (key, layer, head) per KV head: the key as a dict, the other two as in the file."""
        return [
            (
                {
                    "sequence": sequence["sequence"],
                    "layer": layer["layer"],
                    "kv_head": head["kv_head"],
                },
                layer,
                head,
            )
            for sequence in self.document["sequences"]
            for layer in sequence["layers"]
            for head in layer["heads"]
        ]

    def table(self, rows_of: Callable[[Entry, Entry], Iterable[Entry]]) -> pandas.DataFrame:
        """Frame of the dicts that rows_of(layer, head) yields, each with its head's key."""
        return pandas.DataFrame(
            [{**key, **row} for key, layer, head in self.heads for row in rows_of(layer, head)]
        )

    def facts(self) -> str:
        """Where the numbers come from, for a caption."""
        layers = sorted({key["layer"] for key, _, _ in self.heads})
        tokens = sorted({layer["tokens"] for _, layer, _ in self.heads})
        count = " to ".join(str(n) for n in sorted({tokens[0], tokens[-1]}))
        return (
            f"{self.document['model']}, {count} tokens; {len(self.heads)} KV heads of layers "
            f"{', '.join(map(str, layers))} (of {self.document['n_layers']})."
        )
