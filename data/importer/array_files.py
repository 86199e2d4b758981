"""Named arrays of .npz, .npy, .safetensors and .pt files, each read when it is asked for.

A file's own account of its sizes is compared with the file before memory is allocated for it.
"""

from __future__ import annotations

import json
import math
import pickle
import re
import zipfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from fault import Fault

SUFFIXES = ".npz, .npy, .safetensors or .pt"
DEFLATE = 1100  # no deflated byte becomes more bytes than this


PICKLED = (
    "Python objects, which are not loaded, for loading them runs their code; save the tensors "
    "themselves, as np.savez('arrays.npz', **{'0/q': q, '0/k': k, '0/v': v}) does"
)


def _small_floats(exponent: int, bias: int, finite: bool, unsigned_zero: bool) -> np.ndarray:
    """The float32 of each of the 256 codes of 8 bits. `finite`: the largest exponent has numbers
    too, and only all ones are NaN; `unsigned_zero`: the code 0x80 is the only NaN."""
    mantissa = 7 - exponent
    code = np.arange(256)
    e, m = (code & 0x7F) >> mantissa, code & ((1 << mantissa) - 1)
    number = np.where(e == 0, m, m + (1 << mantissa)) * 2.0 ** (np.maximum(e, 1) - bias - mantissa)
    if unsigned_zero:
        number[0x80] = np.nan
    elif finite:
        number[code & 0x7F == 0x7F] = np.nan
    else:
        number[e == (1 << exponent) - 1] = np.nan
        number[(code & 0x7F) == (((1 << exponent) - 1) << mantissa)] = np.inf
    return np.where(code < 0x80, number, -number).astype(np.float32)


# Types of 8 bits, each exact in float16 and bfloat16.
SMALL_FLOATS = {
    "float8_e4m3fn": _small_floats(4, 7, True, False),
    "float8_e5m2": _small_floats(5, 15, False, False),
    "float8_e4m3fnuz": _small_floats(4, 8, True, True),
    "float8_e5m2fnuz": _small_floats(5, 16, True, True),
}
# Arrays of integers, whatever --bits says.
INTEGERS = (
    *("token_ids", "attention_mask"),
    *("sliding_window", "chunk", "value_in_key", "kv_layer", "kv_heads"),
)
BITS = {"bfloat16": 2, "float16": 2, **dict.fromkeys(SMALL_FLOATS, 1)}  # bytes of an element


def numbers_of(bits: np.ndarray, dtype: str) -> np.ndarray:
    """Elements of 16 or 8 bits, decoded to numbers of type `dtype`."""
    if dtype in SMALL_FLOATS:
        return SMALL_FLOATS[dtype][bits.view(np.uint8)]
    if dtype == "float16":
        return bits.view(np.float16)
    return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


class ArrayFile(Mapping):
    """Arrays by name, each with its type's name; bfloat16 and types of 8 bits become the float32 of
    the same value. `bits`: the type that elements of one or two bytes without one have."""

    def __init__(self, path: Path, bits: str | None = None) -> None:
        self.path = path
        self._bits = bits

    def _typed(self, name: str, array: np.ndarray) -> tuple[np.ndarray, str]:
        """NumPy's array and its type. bfloat16 is stored as two bytes without a type, unlike any
        other type of two bytes; integers are bits where `bits` says so, unless they count."""
        kind, size = array.dtype.kind, array.dtype.itemsize
        bare = kind == "V" and array.dtype.names is None and size <= 2
        counts = re.split(r"[/.]", name)[-1] in INTEGERS
        if not bare and (kind not in "iu" or size > 2 or self._bits is None or counts):
            return array, array.dtype.name
        dtype = self._bits or ("bfloat16" if size == 2 else None)
        if dtype is None:
            raise Fault(
                f"{self.path}: {name}: elements of one byte without a type; --bits says which, "
                f"{', '.join(SMALL_FLOATS)}"
            )
        if BITS[dtype] != size:
            raise Fault(
                f"{self.path}: {name}: --bits {dtype}: has {BITS[dtype]} bytes an element, and "
                f"these have {size}; import arrays of one type at a time"
            )
        native = array if bare else array.astype(array.dtype.newbyteorder("="))
        return numbers_of(np.ascontiguousarray(native), dtype), dtype

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
    read = getattr(np.lib.format, f"read_array_header_{1 if version == (1, 0) else 2}_0")
    try:
        shape, _, dtype = read(stream)
    except ValueError as error:
        if "'<f1'" not in str(error):
            raise
        raise Fault(
            f"{path}: {name}: has elements of the type <f1, as ml_dtypes' float8_e5m2, which no "
            "NumPy reads; save them as view(np.uint8), and give --bits float8_e5m2"
        ) from error
    if dtype.hasobject:
        raise Fault(f"{path}: {name}: expected numbers, got {PICKLED}")
    follows, wanted = size - stream.tell(), math.prod(shape) * dtype.itemsize
    if follows != wanted:
        raise Fault(
            f"{path}: {name}: the header says {dtype} {list(shape)}, which is {wanted} bytes, "
            f"and {follows} bytes follow; the file is damaged"
        )


class NpzFile(ArrayFile):
    def __init__(self, path: Path, bits: str | None = None) -> None:
        super().__init__(path, bits)
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
            return self._typed(name, np.lib.format.read_array(stream, allow_pickle=False))


class NpyFile(ArrayFile):
    """One array, named as the file is."""

    def __init__(self, path: Path, bits: str | None = None) -> None:
        super().__init__(path, bits)
        with path.open("rb") as stream:
            _check_npy(path, path.stem, stream, path.stat().st_size)

    def _names(self) -> list[str]:
        return [self.path.stem]

    def _read(self, name: str) -> tuple[np.ndarray, str]:
        return self._typed(name, np.load(self.path, mmap_mode="r", allow_pickle=False))


class SafetensorsFile(ArrayFile):
    """The format is a header's size (8 bytes), a header in JSON and the elements. safetensors' own
    reader is not used: it gives bfloat16 to torch alone."""

    TYPES: ClassVar[dict[str, tuple[str, np.dtype]]] = {
        "F16": ("float16", np.dtype("<f2")),
        "BF16": ("bfloat16", np.dtype("<u2")),
        "F32": ("float32", np.dtype("<f4")),
        "F64": ("float64", np.dtype("<f8")),
        "F8_E4M3": ("float8_e4m3fn", np.dtype("u1")),
        "F8_E5M2": ("float8_e5m2", np.dtype("u1")),
        "F8_E4M3FNUZ": ("float8_e4m3fnuz", np.dtype("u1")),
        "F8_E5M2FNUZ": ("float8_e5m2fnuz", np.dtype("u1")),
        "U8": ("uint8", np.dtype("u1")),
        "I8": ("int8", np.dtype("i1")),
        "U16": ("uint16", np.dtype("<u2")),
        "I16": ("int16", np.dtype("<i2")),
        "BOOL": ("bool", np.dtype("?")),
        "I32": ("int32", np.dtype("<i4")),
        "I64": ("int64", np.dtype("<i8")),
    }

    def __init__(self, path: Path, bits: str | None = None) -> None:
        super().__init__(path, bits)
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

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(int(extent) for extent in self._header[name]["shape"])

    def _read(self, name: str) -> tuple[np.ndarray, str]:
        held = self._header[name]
        if held["dtype"] not in self.TYPES:
            raise Fault(
                f"{self.path}: {name}: expected elements of {', '.join(self.TYPES)}, got "
                f"{held['dtype']}"
            )
        dtype, stored = self.TYPES[held["dtype"]]
        shape = self.shape(name)
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
        if dtype == "bfloat16" or dtype in SMALL_FLOATS:
            return numbers_of(array, dtype), dtype
        return self._typed(name, array)


class TorchFile(ArrayFile):
    def __init__(self, path: Path, bits: str | None = None) -> None:
        super().__init__(path, bits)
        try:
            import torch
        except ImportError as error:
            raise Fault(
                f"{path}: reading it needs torch: pip install torch; or save "
                "the tensors as .safetensors, which needs nothing"
            ) from error
        self._tensor, self._strided = torch.Tensor, torch.strided
        try:
            held = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except pickle.UnpicklingError as error:
            raise Fault(f"{path}: is damaged, or holds {PICKLED}") from error
        self._held = dict(_flat(held))

    def _names(self) -> list[str]:
        return list(self._held)

    def _read(self, name: str) -> tuple[np.ndarray, str]:
        tensor: Any = self._held[name]
        if not isinstance(tensor, self._tensor):
            raise Fault(f"{self.path}: {name}: expected a tensor, got {type(tensor).__name__}")
        dtype = str(tensor.dtype).removeprefix("torch.")
        if tensor.layout is not self._strided or tensor.is_quantized:
            raise Fault(
                f"{self.path}: {name}: expected a dense tensor of numbers, got {dtype} of the "
                f"layout {str(tensor.layout).removeprefix('torch.')}; save to_dense() or "
                "dequantize() of it"
            )
        tensor = tensor.detach().resolve_conj().resolve_neg()
        if dtype == "bfloat16" or dtype.startswith("float8"):
            return tensor.float().numpy(), dtype
        return self._typed(name, tensor.numpy())


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


def open_arrays(path: Path, bits: str | None = None) -> ArrayFile:
    """`bits`: the type of elements of one or two bytes without a type."""
    reader = READERS.get(path.suffix.lower())
    if path.suffix in (".pkl", ".pickle"):
        raise Fault(f"{path}: holds {PICKLED}")
    if reader is None:
        raise Fault(f"{path}: expected a file named {SUFFIXES}")
    try:
        return reader(path, bits)
    except Fault:
        raise
    except Exception as error:  # each library has exceptions of its own
        raise Fault(f"{path}: cannot read it: {error}") from error
