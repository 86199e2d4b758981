"""Keys, values and queries of a dump, for the two figures that show tokens themselves."""

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
        try:
            with h5py.File(self.path, "r") as file:
                if file.attrs.get("format") != "kvbench-dump":
                    raise ResultsError(f"{path}: not a kvbench dump; data/README.md has the format")
                self.model = str(file.attrs["model"])
                self.sequence = sequence or sorted(file["sequences"])[0]
                if self.sequence not in file["sequences"]:
                    raise ResultsError(
                        f"{path}: no sequence {self.sequence!r}; there is "
                        f"{', '.join(sorted(file['sequences']))}"
                    )
                group = file["sequences"][self.sequence]["layers"]
                self.layers = sorted(int(name) for name in group)
                first = group[str(self.layers[0])]
                self.tokens, self.kv_heads = first["k"].shape[1], first["k"].shape[0]
        except OSError as error:
            raise ResultsError(
                f"{path}: {unreadable(path, error)}; a dump (HDF5) is wanted, "
                "data/README.md has the format"
            ) from error

    def head(self, layer: int, name: str, head: int) -> Array:
        """[n, d] of dataset k, v or q (query head), the last rows of the sequence."""
        with h5py.File(self.path, "r") as file:
            group = file["sequences"][self.sequence]["layers"]
            if str(layer) not in group:
                raise ResultsError(f"{self.path}: no layer {layer}")
            data = group[str(layer)][name]
            if data.attrs.get("dtype") == "bfloat16":
                bits = data[head].astype(numpy.uint32) << 16
                return bits.view(numpy.float32).astype(numpy.float64)
            return data[head].astype(numpy.float64)

    def attributes(self, layer: int) -> dict[str, Any]:
        with h5py.File(self.path, "r") as file:
            return dict(file["sequences"][self.sequence]["layers"][str(layer)].attrs)

    def query_heads(self, layer: int) -> int:
        with h5py.File(self.path, "r") as file:
            return file["sequences"][self.sequence]["layers"][str(layer)]["q"].shape[0]
