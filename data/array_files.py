"""Named arrays of .npz, .npy, .safetensors and .pt files, each read when it is asked for.

A file's own account of its sizes is compared with the file before memory is allocated for it.
"""

from __future__ import annotations

import json
import math
import zipfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from dump_file import Fault

SUFFIXES = ".npz, .npy, .safetensors or .pt"
DEFLATE = 1100  # no deflated byte becomes more bytes than this


class ArrayFile(Mapping):
    """Arrays by name, each with its type's name; bfloat16 becomes the float32 of the same value."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def _read(self, name: str) -> tuple[np.ndarray, str]:
        """The array and its type's name; any exception if it cannot be read."""

    @abstractmethod
    def _names(self) -> list[str]:
        """In the file's order."""

    def __getitem__(self, name: str) -> tuple[np.ndarray, str]:
        try:
            return self._read(name)
        except Fault:
            raise
        except Exception as error:  # each library has exceptions of its own
            raise Fault(
                f"{self.path}: {name}: cannot read the array: {error or 'damaged'}"
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())


def _check_npy(path: Path, name: str, stream: Any, size: int) -> None:
    """The header of an .npy of `size` bytes describes just what follows it."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    if dtype.hasobject:
        raise Fault(f"{path}: {name}: expected numbers, got Python objects")
    follows, wanted = size - stream.tell(), math.prod(shape) * dtype.itemsize
    if follows != wanted:
        raise Fault(
            f"{path}: {name}: the header says {dtype} {list(shape)}, which is {wanted} bytes, "
            f"and {follows} bytes follow; the file is damaged"
        )


class NpzFile(ArrayFile):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._zip = zipfile.ZipFile(path)
        self._members = {
            info.filename.removesuffix(".npy"): info
            for info in self._zip.infolist()
            if not info.is_dir()
        }

    def _names(self) -> list[str]:
        return list(self._members)

    def _read(self, name: str) -> tuple[np.ndarray, str]:
        info = self._members[name]
        if info.file_size > DEFLATE * info.compress_size:
            raise Fault(
                f"{self.path}: {name}: {info.compress_size} bytes cannot hold the "
                f"{info.file_size} that the file says; the file is damaged"
            )
        with self._zip.open(info) as stream:
            _check_npy(self.path, name, stream, info.file_size)
        with self._zip.open(info) as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
        return array, array.dtype.name


class NpyFile(ArrayFile):
    """One array, named as the file is."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with path.open("rb") as stream:
            _check_npy(path, path.stem, stream, path.stat().st_size)

    def _names(self) -> list[str]:
        return [self.path.stem]

    def _read(self, name: str) -> tuple[np.ndarray, str]:
        array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return array, array.dtype.name


class SafetensorsFile(ArrayFile):
    """The format is a header's size (8 bytes), a header in JSON and the elements. safetensors' own
    reader is not used: it gives bfloat16 to torch alone."""

    TYPES: ClassVar[dict[str, tuple[str, np.dtype]]] = {
        "F16": ("float16", np.dtype("<f2")),
        "BF16": ("bfloat16", np.dtype("<u2")),
        "F32": ("float32", np.dtype("<f4")),
        "F64": ("float64", np.dtype("<f8")),
        "I32": ("int32", np.dtype("<i4")),
        "I64": ("int64", np.dtype("<i8")),
    }

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > size - 8:
                raise Fault(
                    f"{path}: expected a header of {length} bytes, got a file of {size}; it is "
                    "damaged or not a .safetensors file"
                )
            header = json.loads(stream.read(length))
        if not isinstance(header, dict):
            raise Fault(f"{path}: expected a JSON object as header")
        self._header = {name: held for name, held in header.items() if name != "__metadata__"}
        self._first, self._size = 8 + length, size - 8 - length

    def _names(self) -> list[str]:
        return list(self._header)

    def _read(self, name: str) -> tuple[np.ndarray, str]:
        held = self._header[name]
        if held["dtype"] not in self.TYPES:
            raise Fault(
                f"{self.path}: {name}: expected elements of {', '.join(self.TYPES)}, got "
                f"{held['dtype']}"
            )
        dtype, stored = self.TYPES[held["dtype"]]
        shape = tuple(int(extent) for extent in held["shape"])
        begin, end = (int(offset) for offset in held["data_offsets"])
        wanted = math.prod(shape) * stored.itemsize
        if (
            min(shape, default=0) < 0
            or not 0 <= begin <= end <= self._size
            or end - begin != wanted
        ):
            raise Fault(
                f"{self.path}: {name}: the header says {held['dtype']} {list(shape)} in bytes "
                f"{begin} to {end} of {self._size}; the file is damaged"
            )
        if wanted == 0:
            return np.empty(shape, stored), dtype
        array = np.memmap(self.path, stored, "r", self._first + begin, shape)
        if dtype == "bfloat16":
            return (array.astype(np.uint32) << 16).view(np.float32), dtype
        return array, dtype


class TorchFile(ArrayFile):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            import torch
        except ImportError as error:
            raise Fault(
                f"{path}: reading it needs torch: pip install -r data/requirements.txt; or save "
                "the tensors as .safetensors, which needs nothing"
            ) from error
        self._tensor = torch.Tensor
        self._held = dict(_flat(torch.load(path, map_location="cpu", weights_only=True, mmap=True)))

    def _names(self) -> list[str]:
        return list(self._held)

    def _read(self, name: str) -> tuple[np.ndarray, str]:
        tensor: Any = self._held[name]
        if not isinstance(tensor, self._tensor):
            raise Fault(f"{self.path}: {name}: expected a tensor, got {type(tensor).__name__}")
        dtype = str(tensor.dtype).removeprefix("torch.")
        tensor = tensor.detach()
        return (tensor.float() if dtype == "bfloat16" else tensor).numpy(), dtype


def _flat(held: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(held, dict):
        for name, value in held.items():
            yield from _flat(value, f"{prefix}/{name}" if prefix else str(name))
    elif isinstance(held, (list, tuple)):
        for place, value in enumerate(held):
            yield from _flat(value, f"{prefix}/{place}" if prefix else str(place))
    else:
        yield prefix, held


READERS: dict[str, type[ArrayFile]] = {
    ".npz": NpzFile,
    ".npy": NpyFile,
    ".safetensors": SafetensorsFile,
    ".pt": TorchFile,
    ".pth": TorchFile,
}


def open_arrays(path: Path) -> ArrayFile:
    reader = READERS.get(path.suffix)
    if reader is None:
        raise Fault(f"{path}: expected a file named {SUFFIXES}")
    try:
        return reader(path)
    except Fault:
        raise
    except Exception as error:  # each library has exceptions of its own
        raise Fault(f"{path}: cannot read it: {error}") from error
