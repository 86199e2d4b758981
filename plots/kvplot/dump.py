"""Keys, values and queries of a dump, for the figures that show tokens themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy
from numpy.typing import NDArray

from kvplot.results import ResultsError, unreadable

Array = NDArray[numpy.float64]


class Dump:
    """One sequence of a dump; arrays in float64."""

    def __init__(self, path: Path | str, sequence: str | None = None) -> None:
        self.path = Path(path)
        with self._opened() as file:
            if file.attrs.get("format") != "kvbench-dump":
                raise ResultsError(f"{path}: not a kvbench dump; data/README.md has the format")
            self.model = str(file.attrs.get("model", "a model without a name"))
            sequences = self._group(file, "sequences")
            names = sorted(sequences)
            self.sequence = sequence or (names[0] if names else "")
            if self.sequence not in sequences:
                raise ResultsError(
                    f"{path}: no sequence {self.sequence!r}; there is {', '.join(names) or 'none'}"
                )
            group = self._group(file, f"sequences/{self.sequence}/layers")
            self.layers = sorted(int(name) for name in group if name.isdecimal())
            if not self.layers:
                raise ResultsError(f"{path}: sequence {self.sequence} has no layer")
            first = self._tensor(file, self.layers[0], "k")
            self.tokens, self.kv_heads = first.shape[1], first.shape[0]

    @contextmanager
    def _opened(self) -> Iterator[h5py.File]:
        try:
            with h5py.File(self.path, "r") as file:
                yield file
        except (
            OSError,
            RuntimeError,
            KeyError,
        ) as error:  # of h5py: a damaged file has any of these
            why = unreadable(self.path, error) if isinstance(error, OSError) else "is damaged"
            raise ResultsError(
                f"{self.path}: {why}; expected a dump (HDF5), data/README.md has the format"
            ) from error

    def _group(self, parent: h5py.Group, name: str) -> h5py.Group:
        group = parent.get(name)
        if not isinstance(group, h5py.Group):
            raise ResultsError(
                f"{self.path}: expected a group /{name}; `kvbench inspect` tells more"
            )
        return group

    def _layer(self, file: h5py.File, layer: int) -> h5py.Group:
        if layer not in self.layers:
            raise ResultsError(
                f"{self.path}: no layer {layer}; there is {', '.join(map(str, self.layers))}"
            )
        return self._group(file, f"sequences/{self.sequence}/layers/{layer}")

    def _tensor(self, file: h5py.File, layer: int, name: str) -> h5py.Dataset:
        data = self._layer(file, layer).get(name)
        if not isinstance(data, h5py.Dataset) or data.ndim != 3 or 0 in data.shape:
            raise ResultsError(
                f"{self.path}: layer {layer} holds no {name} [heads, tokens, columns]"
            )
        return data

    def head(self, layer: int, name: str, head: int) -> Array:
        """[n, d] of dataset k, v or q (query head), the last rows of the sequence."""
        with self._opened() as file:
            data = self._tensor(file, layer, name)
            if data.attrs.get("dtype") == "bfloat16":
                bits = data[head].astype(numpy.uint32) << 16
                rows = bits.view(numpy.float32).astype(numpy.float64)
            else:
                rows = data[head].astype(numpy.float64)
        if not numpy.isfinite(rows).all():
            raise ResultsError(
                f"{self.path}: layer {layer}: {name} of head {head} is not finite; `kvbench "
                "validate` says where"
            )
        return rows

    def check_head(self, layer: int, kv_head: int) -> None:
        """ResultsError if the dump has no such layer or KV head."""
        with self._opened() as file:
            heads = self._tensor(file, layer, "k").shape[0]
        if not 0 <= kv_head < heads:
            raise ResultsError(
                f"{self.path}: --kv-head {kv_head}: layer {layer} has {heads} KV head(s), numbered "
                "from 0"
            )

    def attributes(self, layer: int) -> dict[str, Any]:
        with self._opened() as file:
            found = dict(self._layer(file, layer).attrs)
        if "scale" not in found:
            raise ResultsError(f"{self.path}: layer {layer} has no attribute scale")
        return found

    def query_heads(self, layer: int) -> int:
        with self._opened() as file:
            return int(self._tensor(file, layer, "q").shape[0])

    def rope(self, layer: int) -> tuple[Array, str, float]:
        """Radians per position, "half" or "interleaved", and the scaling of a layer's rotation."""
        with self._opened() as file:
            group = self._layer(file, layer).get("rope") or file.get("rope")
            if not isinstance(group, h5py.Group) or "inv_freq" not in group:
                raise ResultsError(f"{self.path}: no /rope; its keys have no known rotation")
            layout = str(group.attrs.get("layout"))
            if layout not in ("half", "interleaved"):
                raise ResultsError(
                    f"{self.path}: /rope: expected layout half or interleaved, got {layout!r}"
                )
            scaling = float(group.attrs.get("attention_scaling", 1.0))
            return group["inv_freq"][:].astype(numpy.float64), layout, scaling
