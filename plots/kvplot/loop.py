"""loop.json of data/closed_loop.py: what a model says over compressed caches, by setting."""

import json
from collections.abc import Collection
from functools import cached_property
from pathlib import Path

import pandas

from kvplot.documents import file_of, read_document
from kvplot.faults import ResultsError, did_you_mean
from kvplot.figure import left_out, span
from kvplot.results import numbers_of, point_of

KIND = "kvbench.closed_loop"
MEMBERS = ("model", "decisions", "texts", "records")


class Loop:
    """A loop.json, its records as a frame; several, of other texts by the same model, as one."""

    def __init__(self, path: Path | str, *more: Path | str) -> None:
        self.path = file_of(path, KIND)
        self.document = dict(read_document(path, KIND, MEMBERS))
        for other in more:
            found = read_document(other, KIND, MEMBERS)
            for name in ("model", "decisions"):
                if found[name] != self.document[name]:
                    raise ResultsError(
                        f"{other}: {name} is {found[name]}, and that of {path} is "
                        f"{self.document[name]}; draw them apart"
                    )
            twice = self._texts() & {text["sequence"] for text in found["texts"]}
            if twice:
                raise ResultsError(f"{other}: another file has {min(twice)} too; give one of them")
            for name in ("texts", "records"):
                self.document[name] = [*self.document[name], *found[name]]

    def _texts(self) -> set[str]:
        return {text["sequence"] for text in self.document["texts"]}

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """One row per record, one column per leaf (kl.mean, errors.relative_l2.mean, ..); `point`
        is the canonical JSON of parameters and storage."""
        records = [
            {**each, "point": point_of({**each["params"], "storage": each.get("storage")})}
            for each in self.document["records"]
        ]
        if not records:
            raise ResultsError(f"{self.path}: no record")
        return pandas.json_normalize(records)

    @cached_property
    def ok(self) -> pandas.DataFrame:
        """The finished records; there is at least one."""
        ok = self.frame[self.frame["status"] == "ok"]
        if ok.empty:
            raise ResultsError(f"{self.path}: no finished record; their reasons stand in the file")
        return ok

    def need(self, *columns: str) -> None:
        for column in columns:
            if column not in self.ok or self.ok[column].isna().all():
                raise ResultsError(
                    f"{self.path}: no finished record has {column}"
                    f"{did_you_mean(column, numbers_of(self.ok))}"
                )

    def facts(self, drawn: Collection[str] | None = None) -> str:
        """Where the numbers come from, for a caption; `drawn`: the texts shown, all by default."""
        texts = [
            text for text in self.document["texts"] if drawn is None or text["sequence"] in drawn
        ]
        rows = [text["tokens"] - text["prompt_tokens"] for text in texts]
        names = ", ".join(text["sequence"] for text in texts)
        seeds = self.ok["seed"].dropna().nunique() if "seed" in self.ok else 0
        draws = f"{seeds} seed{'s' if seeds > 1 else ''} for randomised algorithms"
        decisions = {
            "replayed": "decisions of the uncompressed model, replayed",
            "live": "each method sees the compressed model's own queries",
        }[self.document["decisions"]]
        text = (
            f"{self.document['model']}: {span(text['tokens'] for text in texts)} tokens, the last "
            f"{span(rows)} decoded teacher-forced over the compressed cache ({names}); "
            f"{decisions}; "
            f"{draws if seeds else 'no random numbers'}."
        )
        return text + left_out(self.frame).replace("cells", "records")


def setting_names(records: pandas.DataFrame) -> list[str]:
    """For legends: each record's label, and the parameters in which its settings differ."""
    settings = [(str(one.label), json.loads(str(one.point))) for one in records.itertuples()]
    values: dict[tuple[str, str], set[str]] = {}
    for label, params in settings:
        for name, value in params.items():
            values.setdefault((label, name), set()).add(json.dumps(value))
    return [
        " ".join(
            [label]
            + [
                f"{name} {_told(value)}"
                for name, value in params.items()
                if len(values[label, name]) > 1 and value is not None
            ]
        )
        for label, params in settings
    ]


def _told(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {_told(each)}" for name, each in value.items())
    return str(value)
