"""Keys, values and queries of a dump, for the figures that show tokens themselves."""

from pathlib import Path
from typing import Any

import h5py
import numpy
from numpy.typing import NDArray

from kvplot.hdf5 import Hdf5File, attribute, is_bfloat16
from kvplot.results import ResultsError

Array = NDArray[numpy.float64]


class Dump(Hdf5File):
    """One sequence of a dump; arrays in float64."""

    KIND = "dump"

    def __init__(self, path: Path | str, sequence: str | None = None) -> None:
        super().__init__(path)
        (self.model, self.sequence, self.layers, self.tokens) = self._read(
            lambda file: self._found(file, sequence)
        )

    def _found(self, file: h5py.File, sequence: str | None) -> tuple[str, str, list[int], int]:
        """Model, sequence, layers, and tokens."""
        if attribute(file, "format") != "kvbench-dump":
            raise ResultsError(f"{self.path}: not a kvbench dump; data/FORMAT.md has the format")
        model = str(attribute(file, "model") or "a model without a name")
        sequences = self._group(file, "sequences")
        names = sorted(sequences)
        self.sequence = sequence or (names[0] if names else "")
        if self.sequence not in sequences:
            raise ResultsError(
                f"{self.path}: no sequence {self.sequence!r}; there is {', '.join(names) or 'none'}"
            )
        group = self._group(file, f"sequences/{self.sequence}/layers")
        self.layers = sorted(int(name) for name in group if name.isdecimal())
        if not self.layers:
            raise ResultsError(f"{self.path}: sequence {self.sequence} has no layer")
        tokens = int(self._tensor(file, self.layers[0], "k").shape[1])
        return model, self.sequence, self.layers, tokens

    def _layer(self, file: h5py.File, layer: int) -> h5py.Group:
        if layer not in self.layers:
            raise ResultsError(
                f"{self.path}: no layer {layer}; there is {', '.join(map(str, self.layers))}"
            )
        return self._group(file, f"sequences/{self.sequence}/layers/{layer}")

    def _keys_of(self, file: h5py.File, layer: int) -> int:
        """The layer whose keys and values it reads."""
        number = attribute(self._layer(file, layer), "kv_layer")
        return layer if number is None else int(number)

    def _tensor(self, file: h5py.File, layer: int, name: str) -> h5py.Dataset:
        if name in ("k", "v"):
            layer = self._keys_of(file, layer)
        data = self._layer(file, layer).get(name)
        if not isinstance(data, h5py.Dataset) or data.ndim != 3 or 0 in data.shape:
            raise ResultsError(
                f"{self.path}: layer {layer} holds no {name} [heads, tokens, columns]"
            )
        is_16_bits = data.dtype.newbyteorder("=") == numpy.uint16
        if data.dtype.kind != "f" and not (is_16_bits and is_bfloat16(data)):
            raise ResultsError(
                f"{self.path}: layer {layer}: {name} has elements of type {data.dtype}; "
                "data/FORMAT.md has those of a dump"
            )
        return data

    def head(self, layer: int, name: str, head: int) -> Array:
        """[n, d] of dataset k, v or q (query head), the last rows of the sequence."""
        rows = self._read(lambda file: self._head(file, layer, name, head))
        if not numpy.isfinite(rows).all():
            raise ResultsError(
                f"{self.path}: layer {layer}: {name} of head {head} is not finite; `kvbench "
                "validate` says where"
            )
        return rows

    def _head(self, file: h5py.File, layer: int, name: str, head: int) -> Array:
        if name == "v":  # they may be the first columns of the keys
            columns = attribute(self._layer(file, self._keys_of(file, layer)), "value_in_key")
            if columns is not None:
                keys = self._rows(self._tensor(file, layer, "k"), head)
                return keys[:, : int(columns)]
        return self._rows(self._tensor(file, layer, name), head)

    @staticmethod
    def _rows(data: h5py.Dataset, head: int) -> Array:
        if data.dtype.kind == "f":
            return numpy.asarray(data[head].astype(numpy.float64))
        bits = data[head].astype(numpy.uint32) << 16
        return numpy.asarray(bits.view(numpy.float32).astype(numpy.float64))

    def check_head(self, layer: int, kv_head: int) -> None:
        """ResultsError if the dump has no such layer or KV head."""
        heads = self.kv_heads(layer)
        if not 0 <= kv_head < heads:
            raise ResultsError(
                f"{self.path}: --kv-head {kv_head}: layer {layer} has {heads} KV head(s), numbered "
                "from 0"
            )

    def attributes(self, layer: int) -> dict[str, Any]:
        def values(file: h5py.File) -> dict[str, Any]:
            group = self._layer(file, layer)
            return {name: attribute(group, name) for name in group.attrs}

        found = self._read(values)
        if "scale" not in found:
            raise ResultsError(f"{self.path}: layer {layer} has no attribute scale")
        scale = found["scale"]
        if not (isinstance(scale, int | float | numpy.number) and 0 < scale < numpy.inf):
            raise ResultsError(
                f"{self.path}: layer {layer}: attribute scale is {scale}; it must be finite and "
                "above 0"
            )
        return found

    def kv_heads(self, layer: int) -> int:
        return self._read(lambda file: int(self._tensor(file, layer, "k").shape[0]))

    @property
    def keys_of(self) -> dict[int, int]:
        """The layer whose keys and values each layer reads: itself, or another one."""
        return self._read(lambda file: {each: self._keys_of(file, each) for each in self.layers})

    def members(self, layer: int) -> set[str]:
        """Names of the tensors of a layer."""
        return self._read(lambda file: set(self._layer(file, layer)))

    def query_heads(self, layer: int) -> int:
        return self._read(lambda file: int(self._tensor(file, layer, "q").shape[0]))

    def rope(self, layer: int) -> tuple[Array, str, float]:
        """Radians per position, "half" or "interleaved", and the scaling of a layer's rotation."""
        return self._read(lambda file: self._rope(file, layer))

    def _rope(self, file: h5py.File, layer: int) -> tuple[Array, str, float]:
        group = self._layer(file, layer).get("rope") or file.get("rope")
        inv_freq = group.get("inv_freq") if isinstance(group, h5py.Group) else None
        if not isinstance(inv_freq, h5py.Dataset) or inv_freq.ndim != 1:
            raise ResultsError(f"{self.path}: no /rope; its keys have no known rotation")
        layout = str(attribute(group, "layout"))
        if layout not in ("half", "interleaved"):
            raise ResultsError(
                f"{self.path}: /rope: expected layout half or interleaved, got {layout!r}"
            )
        scaling = attribute(group, "attention_scaling")
        return inv_freq[:].astype(numpy.float64), layout, 1.0 if scaling is None else float(scaling)
