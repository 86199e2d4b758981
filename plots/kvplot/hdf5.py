"""HDF5 files of kvbench: none leads to another file, and a damaged one ends with a message."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy

from kvplot.child import ChildError, in_child
from kvplot.faults import ResultsError, unreadable

Found = TypeVar("Found")

MAX_LINKS = 16  # soft links that follow each other
LARGEST_CHUNK = 32 * 2**20  # bytes that a chunk of a small dataset may take


def is_bfloat16(data: h5py.Dataset) -> bool:
    dtype = data.attrs.get("dtype")
    return bool(isinstance(dtype, str | bytes) and dtype in ("bfloat16", b"bfloat16"))


def huge_chunk(data: h5py.Dataset) -> str | None:
    """Its size in words, where a chunk is far larger than the dataset: a small file would take all
    memory."""
    chunk = data.dtype.itemsize * numpy.prod(data.chunks or (0,), dtype=float)
    return f"{chunk / 2**20:.0f} MiB" if chunk > max(LARGEST_CHUNK, 4.0 * data.nbytes) else None


def is_written(data: h5py.Dataset) -> bool:
    """Whether no part of it is zeros that HDF5 makes up; one without chunks may have holes."""
    if data.is_virtual or data.chunks is None:
        return bool(data.is_virtual or data.id.get_storage_size() > 0)
    chunks = math.prod(
        -(-size // chunk) for size, chunk in zip(data.shape, data.chunks, strict=True)
    )
    return bool(data.id.get_num_chunks() >= chunks)


class Hdf5File:
    """Common parts of a dump and a cache file; messages call it KIND and end with REMEDY."""

    KIND = "file"
    REMEDY = "data/FORMAT.md has the format"

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def _read(self, work: Callable[[h5py.File], Found]) -> Found:
        """The result of `work` on the file; it runs in a child process and leaves nothing else."""
        if self.path.exists() and not self.path.is_file():  # a pipe would be waited for
            raise ResultsError(f"{self.path}: is not a regular file; name a {self.KIND}")
        try:
            return in_child(self.path, lambda: self._opened(work))
        except ChildError as error:
            raise ResultsError(
                f"{self.path}: reading it {error}; HDF5 does so on damaged files, copy or make it "
                "again"
            ) from error

    def _opened(self, work: Callable[[h5py.File], Found]) -> Found:
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

    def _member(self, parent: h5py.Group, name: str, links: int = 0) -> Any:
        """The object at a path; ResultsError where that leads to another file, which may be any."""
        here: Any = parent
        for part in filter(None, name.split("/")):
            link = here.get(part, getlink=True) if isinstance(here, h5py.Group) else None
            if isinstance(link, h5py.ExternalLink) or links > MAX_LINKS:
                raise ResultsError(
                    f"{self.path}: {name} leads to another file or in a circle; copy what it "
                    f"stands for into the {self.KIND}"
                )
            if isinstance(link, h5py.SoftLink):
                start = here.file if link.path.startswith("/") else here
                here = self._member(start, link.path, links + 1)
            else:
                here = None if link is None else here.get(part)
        if isinstance(here, h5py.Dataset) and (here.is_virtual or here.external):
            raise ResultsError(
                f"{self.path}: {name} has its elements in other files; copy them into the "
                f"{self.KIND}"
            )
        return here

    def _group(self, parent: h5py.Group, name: str) -> h5py.Group:
        group = self._member(parent, name)
        if not isinstance(group, h5py.Group):
            raise ResultsError(
                f"{self.path}: expected a group /{name}; `kvbench inspect` tells more"
            )
        return group
