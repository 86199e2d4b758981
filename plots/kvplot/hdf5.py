"""HDF5 files of kvbench."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy

from kvplot.faults import ResultsError, unreadable

Found = TypeVar("Found")


def attribute(of: h5py.Group | h5py.Dataset, name: str) -> Any:
    """A number, or a text of any of HDF5's kinds as str, also in an array of one element; None
    without."""
    value = of.attrs.get(name)
    if isinstance(value, numpy.ndarray | numpy.generic) and value.size == 1:
        value = value.item()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def is_bfloat16(data: h5py.Dataset) -> bool:
    return bool(attribute(data, "dtype") == "bfloat16")


class Hdf5File:
    """Common parts of a dump and a cache file; messages call it KIND and end with REMEDY."""

    KIND = "file"
    REMEDY = "data/FORMAT.md has the format"

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def _read(self, work: Callable[[h5py.File], Found]) -> Found:
        """The result of `work` on the file."""
        if self.path.exists() and not self.path.is_file():  # a pipe would be waited for
            raise ResultsError(f"{self.path}: is not a regular file; name a {self.KIND}")
        try:
            with h5py.File(self.path, "r") as file:
                return work(file)
        except ResultsError:
            raise
        except (
            OSError,
            RuntimeError,
            KeyError,
            TypeError,
            ValueError,
        ) as error:  # h5py raises any of these on a damaged file
            why = unreadable(self.path, error) if isinstance(error, OSError) else "is damaged"
            raise ResultsError(
                f"{self.path}: {why}; expected a {self.KIND} (HDF5), {self.REMEDY}"
            ) from error

    def _group(self, parent: h5py.Group, name: str) -> h5py.Group:
        group: Any = parent.get(name)
        if not isinstance(group, h5py.Group):
            raise ResultsError(
                f"{self.path}: expected a group /{name}; `kvbench inspect` tells more"
            )
        return group
