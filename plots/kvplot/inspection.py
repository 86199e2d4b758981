"""The output of `kvbench inspect DUMP --json`, as frames with one row per layer and head."""

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

import numpy
import pandas

from kvplot.documents import Entry, read_document
from kvplot.faults import ResultsError

KIND = "kvbench.inspection"
HEAD = ["sequence", "layer", "kv_head"]


def attention_of(head: Entry) -> Entry:
    """A head's statistics of attention; KeyError for one that has none."""
    attention: Entry | None = head["attention"]
    if attention is None:
        raise KeyError("attention")
    return attention


class Inspection:
    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.document = read_document(path, KIND, ("model", "n_layers", "sequences"))
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
        """Frame of the dicts that rows_of(layer, head) yields, each with its head's key.

        ResultsError where a head lacks what rows_of() reads of it, or no head yields a row.
        """
        rows = []
        for key, layer, head in self.heads:
            place = f"{self.path}: layer {key['layer']}, KV head {key['kv_head']}"
            try:
                rows += [{**key, **row} for row in rows_of(layer, head)]
            except KeyError as error:  # which heads without stored queries lack, for one
                why = f" ({head['attention_missing']})" if "attention_missing" in head else ""
                raise ResultsError(f"{place}: no {error.args[0]}{why}") from error
            except ResultsError as error:
                raise ResultsError(f"{place}: {error}") from error
            except ZeroDivisionError as error:
                raise ResultsError(f"{place}: its norms are 0") from error
        if not rows:
            raise ResultsError(f"{self.path}: nothing to draw")
        table = pandas.DataFrame(rows)
        for name, column in table.select_dtypes("number").items():
            if numpy.isinf(column).any():
                raise ResultsError(f"{self.path}: {name} is beyond what a double holds")
        return table

    def facts(self) -> str:
        """Where the numbers come from, for a caption."""
        layers = sorted({key["layer"] for key, _, _ in self.heads})
        tokens = sorted({layer["tokens"] for _, layer, _ in self.heads})
        count = " to ".join(str(n) for n in sorted({tokens[0], tokens[-1]}))
        return (
            f"{self.document['model']}, {count} tokens; {len(self.heads)} KV heads of layers "
            f"{', '.join(map(str, layers))} (of {self.document['n_layers']})."
        )
