"""Cache files: which tokens a method kept at which decode row. data/FORMAT.md has the format."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy
from numpy.typing import NDArray

from kvplot.hdf5 import Hdf5File, attribute, is_bfloat16
from kvplot.results import ResultsError

Integers = NDArray[numpy.int64]
Reals = NDArray[numpy.float64]

FORMAT = "kvbench-cache"
TO_THE_END = 2**31 - 1


class Place(NamedTuple):
    """A KV head of a sequence."""

    sequence: str
    layer: int
    kv_head: int

    def __str__(self) -> str:
        return f"/sequences/{self.sequence}/layers/{self.layer}/heads/{self.kv_head}"


@dataclass(frozen=True)
class Rows:
    """Rows of a KV head, arrays [m]. Row r is kept while begin <= i < end at decode row i; token
    is -1 for a row of no token, query_head -1 for one that all query heads of the group read."""

    token: Integers
    begin: Integers
    end: Integers
    numerator: Reals
    denominator: Reals
    query_head: Integers

    def chosen(self, which: Any) -> "Rows":
        return Rows(
            *(
                numpy.asarray(getattr(self, name)[which])
                for name in ("token", "begin", "end", "numerator", "denominator", "query_head")
            )
        )


@dataclass(frozen=True)
class Head:
    """A file's facts of one KV head. `tokens`: the n it was kept for, None if it is missing;
    `least_tokens`: n is at least this."""

    prompt: int
    tokens: int | None
    least_tokens: int
    appends: bool
    stored: Rows

    def rows(self, tokens: int) -> Rows:
        """All rows that have a weight in a sequence of `tokens`, those of decode tokens that are
        kept anyway among them; ends are at most `tokens`."""
        stored = self.stored
        if self.appends:
            decoded = numpy.arange(self.prompt, tokens)
            ones = numpy.ones(len(decoded))
            stored = Rows(
                numpy.concatenate([stored.token, decoded]),
                numpy.concatenate([stored.begin, decoded]),
                numpy.concatenate([stored.end, numpy.full(len(decoded), tokens)]),
                numpy.concatenate([stored.numerator, ones]),
                numpy.concatenate([stored.denominator, ones]),
                numpy.concatenate([stored.query_head, numpy.full(len(decoded), -1)]),
            )
        end = numpy.minimum(stored.end, tokens)
        begin = numpy.maximum(stored.begin, stored.token)  # rows may read the future
        counts = (begin < end) & ((stored.numerator != 0) | (stored.denominator != 0))
        return Rows(
            stored.token, begin, end, stored.numerator, stored.denominator, stored.query_head
        ).chosen(counts)


class Cache(Hdf5File):
    """A cache file, read whole when it is opened, except keys and values."""

    KIND = "cache file"

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self.method, self.settings, self.dump, self.heads = self._read(self._found)
        if not self.heads:
            self._refuse("/sequences", "has no rows of any head")
        self.sequences = list(dict.fromkeys(place.sequence for place in self.heads))

    def _found(self, file: h5py.File) -> tuple[str, dict[str, str], str | None, dict[Place, Head]]:
        """Method, settings, fingerprint of the dump, and heads."""
        found, version = attribute(file, "format"), file.attrs.get("format_version")
        if found != FORMAT:
            raise ResultsError(
                f"{self.path}: /: attribute format is {found!r}; expected {FORMAT!r}: a run with "
                '"output": {"caches": true} writes cache files'
            )
        if version != 1:
            self._refuse("/", f"attribute format_version is {version}; kvplot reads version 1")
        heads = {place: self._head(group, place) for place, group in self._places(file)}
        method = attribute(file, "method") or ""
        return method, self._settings(file), attribute(file, "dump"), heads

    def _refuse(self, place: object, why: str) -> None:
        raise ResultsError(f"{self.path}: {place}: {why}; `kvbench inspect` checks the whole file")

    def _settings(self, file: h5py.File) -> dict[str, str]:
        """Parameters and seed as text, for labels; a file of another program may have none."""
        try:
            params = json.loads(attribute(file, "params") or "{}")
        except ValueError:
            params = {}
        found = dict(params) if isinstance(params, dict) else {}
        if "seed" in file.attrs:
            found["seed"] = int(file.attrs["seed"])
        return {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in found.items()
        }

    def _places(self, file: h5py.File) -> Iterable[tuple[Place, h5py.Group]]:
        sequences = self._group(file, "sequences")
        for sequence in sorted(sequences):
            layers = self._group(file, f"sequences/{sequence}/layers")
            for layer in sorted(map(int, layers)):
                heads = self._group(file, f"sequences/{sequence}/layers/{layer}/heads")
                for head in sorted(map(int, heads)):
                    place = Place(sequence, layer, head)
                    yield place, self._group(file, str(place).lstrip("/"))

    def _head(self, group: h5py.Group, place: Place) -> Head:
        prompt = int(group.attrs["prompt_tokens"])
        tokens = int(group.attrs["tokens"]) if "tokens" in group.attrs else None
        appends = (attribute(group, "decode") or "append") == "append"
        rows = self._rows(group, prompt)
        if "bookkeeping" in group:
            tokens = prompt + len(group["bookkeeping"])
        self._check_rows(place, rows, prompt, group.attrs.get("reads_future") == 1, appends)
        ends = rows.end[rows.end < TO_THE_END]
        if tokens is not None:
            ends = ends[ends != tokens]
        least = max(prompt + 1, int(rows.token.max(initial=-1)) + 1, int(ends.max(initial=0)))
        if tokens is not None and tokens < least:
            self._refuse(
                place, f"attribute tokens is {tokens}; its rows are of at least {least} tokens"
            )
        return Head(prompt, tokens, least, appends, rows)

    def _rows(self, group: h5py.Group, prompt: int) -> Rows:
        token = group["token"][()].astype(numpy.int64)
        ones = numpy.ones(len(token))

        def integers(name: str, default: int) -> Integers:
            values = group[name][()] if name in group else numpy.full(len(token), default)
            return numpy.asarray(values.astype(numpy.int64))

        def weights(name: str) -> Reals:
            both = self._reals(group["weight"]) if "weight" in group else ones
            return self._reals(group[name]) if name in group else both

        return Rows(
            token,
            integers("begin", prompt),
            integers("end", TO_THE_END),
            weights("weight_numerator"),
            weights("weight_denominator"),
            integers("head", -1),
        )

    @staticmethod
    def _reals(data: h5py.Dataset) -> Reals:
        if is_bfloat16(data):
            bits = data[()].astype(numpy.uint32) << 16
            return numpy.asarray(bits.view(numpy.float32).astype(numpy.float64))
        return numpy.asarray(data[()].astype(numpy.float64))

    def _check_rows(
        self, place: Place, rows: Rows, prompt: int, future: bool, appends: bool
    ) -> None:
        """Refuses rows that no stream could have, in the program's words."""
        token, begin, end = rows.token, rows.begin, rows.end
        for bad, words in (
            (begin < prompt, f"begins at {{begin}}, in the prompt of {prompt} tokens"),
            (end < begin, "ends at {end}, before it begins at {begin}"),
            (
                (token > begin) & (not future),
                "is of token {token}, which is not there at row {begin}",
            ),
            (
                (token >= prompt) & appends,
                'is of decode token {token}, which decode = "append" keeps already',
            ),
        ):
            if len(at := numpy.flatnonzero(bad)):
                row = at[0]
                why = words.format(token=token[row], begin=begin[row], end=end[row])
                self._refuse(place, f"row {row}: {why}")


class Caches:
    """Cache files of one dump, one per method, in the order given; a folder stands for its .h5
    files by name."""

    def __init__(self, paths: Path | str | Sequence[Path | str]) -> None:
        paths = [paths] if isinstance(paths, Path | str) else paths
        found: list[Path] = []
        for path in map(Path, paths):
            inside = sorted(path.glob("*.h5")) if path.is_dir() else [path]
            if not inside:
                raise ResultsError(f"{path}: has no cache file (*.h5)")
            found += inside
        self.files = [Cache(path) for path in found]
        named = [file for file in self.files if file.dump]
        for file in named:
            if file.dump != named[0].dump:
                raise ResultsError(
                    f"{file.path}: is of another dump than {named[0].path}; "
                    "choose files of one dump"
                )
        self.labels = _labels(self.files)
        self.methods = [file.method for file in self.files]

    def sequence(self, name: str | None) -> str:
        """The sequence of that name, by default the first that all files have."""
        common = [s for s in self.files[0].sequences if all(s in f.sequences for f in self.files)]
        if name is None and common:
            return common[0]
        for file in self.files:
            if name is None or name not in file.sequences:
                words = f"no sequence {name!r}" if name else "no sequence of the first file"
                raise ResultsError(f"{file.path}: {words}; there is {', '.join(file.sequences)}")
        assert name is not None
        return name

    def heads(self, place: Place) -> tuple[list[Head], int]:
        """That head of each file, and n, the least that it may be if no file says it; ResultsError
        where a file lacks it or is of another stream."""
        found: list[Head] = []
        for file in self.files:
            if place not in file.heads:
                there = [
                    f"L{p.layer} h{p.kv_head}" for p in file.heads if p.sequence == place.sequence
                ]
                raise ResultsError(
                    f"{file.path}: no rows of layer {place.layer}, KV head {place.kv_head}; there "
                    f"is {', '.join(there[:12])}{', ..' if len(there) > 12 else ''}"
                )
            found.append(file.heads[place])
        said = [head.tokens for head in found if head.tokens is not None]
        tokens = said[0] if said else max(head.least_tokens for head in found)
        for file, head in zip(self.files, found):
            for what, mine, theirs in (
                ("prompt", head.prompt, found[0].prompt),
                ("n", head.tokens or tokens, tokens),
            ):
                if mine != theirs:
                    raise ResultsError(
                        f"{file.path}: {place}: has {what} {mine} and another of the files "
                        f"{theirs}; choose files of the same sweep"
                    )
            if head.least_tokens > tokens:
                raise ResultsError(
                    f"{file.path}: {place}: has rows of at least {head.least_tokens} tokens and "
                    f"another of the files is of {tokens}; choose files of the same sweep"
                )
        return found, tokens

    def length(self, place: Place) -> str:
        """ "512 tokens", or "at least 193 tokens, no file says how many": for a caption."""
        found, tokens = self.heads(place)
        if any(head.tokens is not None for head in found):
            return f"{tokens} tokens"
        return f"at least {tokens} tokens, no file says how many"

    def common(self, sequence: str) -> list[Place]:
        """The heads of a sequence that all files have."""
        return [
            place
            for place in self.files[0].heads
            if place.sequence == sequence and all(place in file.heads for file in self.files)
        ]


def _labels(files: Sequence[Cache]) -> list[str]:
    """The method of each file; where several have it, also the settings that differ among them."""
    labels = []
    for file in files:
        alike = [other.settings for other in files if other.method == file.method]
        names = dict.fromkeys(name for settings in alike for name in settings)
        differing = [
            f"{name.replace('_', ' ')} {file.settings[name]}"
            for name in names
            if len({settings.get(name) for settings in alike}) > 1 and name in file.settings
        ]
        labels.append(", ".join([file.method, *differing]))
    twice = {label for label in labels if labels.count(label) > 1}
    return [
        f"{label}, {file.path}" if label in twice else label for label, file in zip(labels, files)
    ]
