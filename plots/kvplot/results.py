"""Reading results.json into pandas, and the averages that figures show."""

import copy
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy
import pandas

from kvplot.documents import CELLS, KIND, RESULTS, Entry, file_of, read_records
from kvplot.faults import ResultsError, did_you_mean
from kvplot.groups import numbered
from kvplot.records import flattened
from kvplot.rows_file import RowsFile
from kvplot.units import POINT, UNIT, same_units

# The storage of an unquantised cell; the text between the label and another storage.
FLOAT = "float"
SEPARATOR = " | "
# The error that figures show unless another is asked for, pooled over rows, and the mean of rows.
HEADLINE, MEAN = "errors.relative_frobenius_error", "errors.relative_l2.mean"
# An error below this is exact to rounding and has no place on a logarithmic axis.
ROUNDING = 1e-9
# Parts of what exact attention takes, and the columns that its bytes are read from: over several
# units they are bytes over bytes.
PARTS = {
    "memory.fraction": ("memory.exact_bytes",),
    "traffic.fraction": ("traffic.bytes_read.mean", "traffic.fraction"),
}


def load_results(path: Path | str, columns: Sequence[str] | None = None) -> pandas.DataFrame:
    """One row per cell, one column per leaf.

    `columns`: of all leaves only these, besides the unit, the setting, the seed and the status,
    which mean_over_units() needs; at a million cells each takes 8 MB, all of them more than 1 GB.

    The key's entries stand without prefix (algorithm, layer, kv_head, seed, ...), parameters as
    params.<name> (params.budget.memory for {"memory": F}), the rest under its path
    (errors.relative_l2.mean, memory.fraction). `storage` is how the label says that the cache is
    written, "K q8_0 V q4_0", or "float"; if any cell has one, storage.keys.codec and
    storage.values.codec are the codecs of every cell. `point` is the canonical JSON of the
    parameters, with the tokens of a sweep that has an axis of them. Failed and skipped cells are
    rows with their reason.
    """
    return Results(path, columns=columns).frame


def load_layers(path: Path | str) -> pandas.DataFrame:
    """One row per record of a whole layer, with the columns of load_results; `kv_head` is None.

    Empty where the dumps have neither an output projection (wo) nor evidence.
    """
    return Results(path).layers


def load_cells(path: Path | str) -> pandas.DataFrame:
    """The same of a baseline too, which has cells alone."""
    return Results(path, CELLS).frame


def _as_expression(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")


class Results:
    """A results.json, its cells as a frame, and its per-row values."""

    def __init__(
        self,
        path: Path | str,
        members: Sequence[str] = RESULTS,
        columns: Sequence[str] | None = None,
        left_out: Callable[[str], bool] | None = None,
    ) -> None:
        """`columns`: as of load_results(); `left_out`: whether the frame lacks a column."""
        self.path = file_of(path, KIND)
        self.document = read_records(self.path, members)
        self._columns = columns
        self._left_out = left_out

    @cached_property
    def frame(self) -> pandas.DataFrame:
        return self._flat(self.document["cells"])

    @cached_property
    def whole(self) -> pandas.DataFrame:
        """`frame`, before compared() left out cells."""
        return self.frame

    said = ""  # sentences for a caption: the cells that compared() left out

    def compared(self, metric: str | None = None, by: Sequence[str] = ()) -> "Results":
        """The same results with the cells of units that all settings have (same_units)."""
        same = same_units(self.frame, metric, by)
        view = copy.copy(self)
        view.whole, view.said = self.frame, same.words
        kept = same.kept | (self.frame["status"] != "ok").to_numpy()
        if not kept.all():
            view.frame = self.frame[kept]
            view.__dict__.pop("ok", None)
        return view

    @cached_property
    def layers(self) -> pandas.DataFrame:
        """Records of whole layers, with the columns of `frame`."""
        return self._flat(self.document.get("layers", []))

    def _flat(self, records: Sequence[Entry]) -> pandas.DataFrame:
        present = ("status", "reason", "label", "algorithm", "point", "seed", *UNIT)
        wanted: Callable[[str], bool] | None = None
        if self._columns is not None:
            bytes_ = [name for part in self._columns for name in PARTS.get(part, ())]
            wanted = {*present, *self._columns, *bytes_}.__contains__
        elif self._left_out is not None:
            left_out = self._left_out

            def wanted(name: str) -> bool:
                return not left_out(name)

        try:
            return flattened(map(self._row, records), wanted, present)
        except (KeyError, TypeError, AttributeError) as error:
            raise ResultsError(
                f"{self.path}: a record is not as `kvbench run` writes it: {error!r}; "
                "rerun the sweep"
            ) from error

    def forget_frames(self) -> None:
        """Gives back the memory of `frame`, `ok` and `layers`, which are made again if needed."""
        for name in ("frame", "whole", "ok", "layers"):
            self.__dict__.pop(name, None)

    def _row(self, record: Entry) -> Entry:
        row = {name: value for name, value in record.items() if name != "key"}
        row.update(record["key"])
        row["storage"] = storage_of(record["label"]) if "storage" in record["key"] else FLOAT
        row.update(self._codecs_of(record["key"]))
        row["point"] = point_of(self.setting_params(record["key"]))
        return row

    @cached_property
    def has_storage(self) -> bool:
        """Whether a codec writes the cache of any cell."""
        return any("storage" in cell["key"] for cell in self.document["cells"])

    def _codecs_of(self, key: Entry) -> Entry:
        """storage.keys and storage.values of a cell, each an object with a codec."""
        if not self.has_storage:
            return {}
        given = storage_at(key.get("storage", {}), key["layer"])
        codecs = {name: given.get(name, FLOAT) for name in ("keys", "values")}
        return {
            f"storage.{name}": {"codec": codec} if isinstance(codec, str) else codec
            for name, codec in codecs.items()
        }

    @cached_property
    def tokens_vary(self) -> bool:
        """Whether select.tokens of the sweep is an axis: means are not taken over it."""
        select = self.document.get("config", {}).get("select")
        tokens = select.get("tokens") if isinstance(select, dict) else None
        return isinstance(tokens, list) and len(tokens) > 1

    def setting_params(self, entry: Entry) -> Entry:
        """Parameters of a cell's key or of an entry of the summary, with an axis of tokens."""
        params: Entry = entry["params"]
        return {**params, "tokens": entry.get("tokens")} if self.tokens_vary else params

    def keep_layers(self, layers: Iterable[int]) -> None:
        """Forgets the cells of all other layers."""
        missing = sorted(set(layers) - set(self.frame["layer"]))
        if missing:
            raise ResultsError(f"{self.path}: no layer {', '.join(map(str, missing))}")
        self.frame = self.frame[self.frame["layer"].isin(layers)]
        self.layers = self.layers[self.layers["layer"].isin(layers)]

    def keep_labels(self, patterns: Sequence[str]) -> None:
        """Forgets the cells whose label matches none of the patterns, in which * and ? alone have
        a meaning; records of whole layers as well."""
        labels = sorted(self.frame["label"].dropna().unique())
        matches = [re.compile(_as_expression(pattern)).fullmatch for pattern in patterns]
        for pattern, match in zip(patterns, matches):
            if not any(map(match, labels)):
                near = did_you_mean(pattern, labels)
                raise ResultsError(f"{self.path}: no label matches {pattern!r}{near}")
        chosen = [label for label in labels if any(match(label) for match in matches)]
        self.frame = self.frame[self.frame["label"].isin(chosen)]
        self.layers = self.layers[self.layers["label"].isin(chosen)]

    @cached_property
    def ok(self) -> pandas.DataFrame:
        """The cells that are ok; there is at least one. Not to be changed: where all are, it is
        `frame`."""
        is_ok = self.frame["status"] == "ok"
        ok = self.frame if is_ok.all() else self.frame[is_ok]
        if ok.empty:
            counts = self.frame["status"].value_counts()
            states = ", ".join(f"{count} {status}" for status, count in counts.items())
            if not states:
                raise ResultsError(
                    f"{self.path}: has no cells; its run or shard computed none, so run the whole "
                    "sweep, or merge its shards"
                )
            raise ResultsError(
                f"{self.path}: no finished cell ({states}); "
                "`python -m kvplot report` shows the reasons"
            )
        return ok

    @property
    def texts(self) -> int:
        """Sequences of dumps with a finished cell."""
        return len(self.ok[UNIT[:2]].drop_duplicates())

    def need(self, *columns: str) -> None:
        """Ends with a message if a figure's columns are missing from every cell."""
        for column in columns:
            if column not in self.ok or self.ok[column].isna().all():
                raise ResultsError(
                    f"{self.path}: no finished cell has {column}"
                    f"{did_you_mean(column, numbers_of(self.ok))}"
                )

    def models(self) -> dict[str, str]:
        """Name of the model by fingerprint of the dump."""
        return {dump["fingerprint"]: dump["model"] for dump in self.document["dumps"]}

    @property
    def has_rows(self) -> bool:
        return self._rows_path.exists()

    @property
    def _rows_path(self) -> Path:
        return self.path.with_name("results.rows.h5")

    def rows(self, metric: str, cells: Iterable[str] | None = None) -> pandas.DataFrame:
        """Frame of per-row values: columns id, head (query head of the group), row, <metric>.

        `cells`: ids; default all finished ones.
        """
        if not self.has_rows:
            raise ResultsError(
                f'{self._rows_path}: missing; the sweep needs "output": {{ "rows": true }}'
            )
        ids = list(self.ok["id"] if cells is None else cells)
        return pandas.concat(RowsFile(self._rows_path).rows(metric, ids), ignore_index=True)


def numbers_of(frame: pandas.DataFrame) -> list[str]:
    """Names of the columns that hold numbers of a cell: errors, memory, ..."""
    return [
        name
        for name in map(str, frame)
        if "." in name
        and not name.startswith("params.")
        and pandas.to_numeric(frame[name], errors="coerce").notna().any()
    ]


def exact_bytes(frame: pandas.DataFrame, part: str) -> "pandas.Series[float]":
    """The number of exact attention in each cell, the unit of a column of PARTS."""
    missing = [name for name in PARTS[part] if name not in frame]
    whole_models = "kv_head" not in frame or frame["kv_head"].isna().all()
    if missing and whole_models:  # each share is bytes over bytes already
        return pandas.Series(1.0, index=frame.index)
    if missing:
        raise ResultsError(
            f"{part} is bytes over bytes: load {' and '.join(missing)} too, which no cell has here"
        )
    numbers = [pandas.to_numeric(frame[name]) for name in PARTS[part]]
    return numbers[0] if len(numbers) == 1 else numbers[0] / numbers[1]


def bytes_over_bytes(cells: pandas.DataFrame, part: str) -> float:
    """A column of PARTS over several cells, or units: their bytes over those of exact attention."""
    values, exact = pandas.to_numeric(cells[part]), exact_bytes(cells, part)
    return float((values * exact).sum() / exact.where(values.notna()).sum())


def mean_over_units(
    frame: pandas.DataFrame, columns: Sequence[str], by: Sequence[str] = ()
) -> pandas.DataFrame:
    """Means of `columns` per point over the cells that are ok: over seeds, then over the units in
    which every point has the first of them (same_units); `by` splits further, for example by layer.

    ResultsError for a column that the frame does not have.

    A part of what exact attention takes (memory.fraction, traffic.fraction) is bytes over bytes.
    A column that is null in some of these units has no mean (NaN). Next to each stands
    <column>.std_over_seeds, the population standard deviation over seeds of the mean over the units
    that have every seed (0 for deterministic algorithms, NaN where no unit has), and the number of
    units, seeds and cells; `has` is how many units of `asked` the point has. `attrs["said"]` is
    what is said of the units that some lack.
    """
    columns, by = ([each] if isinstance(each, str) else list(each) for each in (columns, by))
    for name in (*columns, *by):
        if name not in frame:
            raise ResultsError(f"no cell has {name}{did_you_mean(name, numbers_of(frame))}")
    group = [*by, *POINT]
    same = same_units(frame, columns[0] if columns else None, [name for name in by if name in UNIT])
    # One column of the cells that are compared is copied at a time: there may be a million of them.
    ok = numpy.flatnonzero(same.kept)
    if not len(ok):
        counts = ["units", "seeds", "cells", "has", "asked"]
        return pandas.DataFrame(columns=[*group, *columns, *counts])

    def taken(column: pandas.Series) -> pandas.Series:
        return column if len(ok) == len(frame) else column.iloc[ok]

    settings = numbered(taken(frame[name]) for name in group)
    units = numbered((taken(frame[name]) for name in UNIT), settings)
    seeds = numbered([taken(frame["seed"]).fillna(-1)], settings)
    of_unit = settings.numbers[units.first]
    of_seed = settings.numbers[seeds.first]
    every_seed = numpy.bincount(of_seed)[of_unit]  # by unit: how many seeds its setting has
    names = pandas.DataFrame({name: frame[name].to_numpy()[ok[settings.first]] for name in group})
    spreads = {}
    for name in columns:
        values = pandas.to_numeric(taken(frame[name])).reset_index(drop=True)
        of_units = values.groupby(units.numbers).mean()
        has_every_seed = values.groupby(units.numbers).count().to_numpy() >= every_seed
        spread = values if has_every_seed.all() else values.where(has_every_seed[units.numbers])
        if name in PARTS:
            exact = taken(exact_bytes(frame, name)).reset_index(drop=True).where(values.notna())
            weights = exact.groupby(units.numbers).mean()
            sums = (of_units * weights).groupby(of_unit).sum(min_count=1)
            names[name] = sums / weights.groupby(of_unit).sum()
            sums = (spread * exact).groupby(seeds.numbers).sum(min_count=1)
            of_seeds = sums / exact.where(spread.notna()).groupby(seeds.numbers).sum()
        else:
            names[name] = of_units.groupby(of_unit).mean()
            of_seeds = spread.groupby(seeds.numbers).mean()
        spreads[f"{name}.std_over_seeds"] = of_seeds.groupby(of_seed).std(ddof=0)
        if name != columns[0]:  # no mean over fewer units than the first has
            whole = of_units.notna().groupby(of_unit).all()
            names[name] = names[name].where(whole)
    names = names.assign(**spreads)
    for name, of_group in (("units", of_unit), ("seeds", of_seed), ("cells", settings.numbers)):
        names[name] = numpy.bincount(of_group)
    for name, counts in (("has", same.has), ("asked", same.asked)):
        names[name] = counts[ok[settings.first]]
    # Each group is one row by now; grouped once more, it is in pandas' order and has its types.
    means = names.groupby(group, dropna=False).first().reset_index()
    means.attrs["said"] = same.words
    return means


def storage_of(label: str) -> str:
    """The storage in a label: "K q8_0 V q4_0", or "float"."""
    return label.rsplit(SEPARATOR, 1)[1] if SEPARATOR in label else FLOAT


def storage_at(storage: object, layer: int) -> Entry:
    """A cell's storage as it is on its layer; {} for float."""
    if isinstance(storage, dict) and "by_layer" in storage:
        every = storage["by_layer"]
        named = [each for each in every if layer in each.get("layers", [])]
        others = [each for each in every if "layers" not in each]
        storage = next((each["storage"] for each in named + others), {})
    return storage if isinstance(storage, dict) else {}


def point_of(params: Entry) -> str:
    """Canonical JSON."""
    return json.dumps(params, sort_keys=True)


def with_params(table: pandas.DataFrame) -> pandas.DataFrame:
    """The table with its points' parameters as columns params.<name>."""
    settings = pandas.json_normalize([json.loads(point) for point in table["point"]])
    settings.index = table.index
    return table.join(settings.add_prefix("params."))


def undrawn(cells: pandas.DataFrame, drawn: pandas.DataFrame, why: str, error: str = "") -> str:
    """Which settings of `cells` are not in `drawn`, as sentences for a caption; "" if all are.

    " Not drawn, no budget: window, uniform (3 of 4 settings)." With the name of an error, settings
    that have none above rounding are named apart, whatever else keeps them from being drawn."""
    every: dict[str, int] = {}
    shown = set(drawn[POINT].itertuples(index=False, name=None))
    left: dict[str, list[str]] = {why: [], "exact to rounding": []}
    for setting, part in cells.groupby(POINT, sort=False):
        label = str(part["label"].iloc[0])
        every[label] = every.get(label, 0) + 1
        if setting not in shown:
            exact = error and pandas.to_numeric(part[error]).max() <= ROUNDING
            left["exact to rounding" if exact else why].append(label)
    text = ""
    for reason, labels in left.items():
        counts = {label: labels.count(label) for label in labels}
        names = [
            f"{name} ({n} of {every[name]} settings)" if every[name] > 1 else name
            for name, n in counts.items()
        ]
        text += f" Not drawn, {reason}: {', '.join(names)}." if names else ""
    return text
