"""Numbers that people bring, as NumPy's and Python's own."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvbench._core import Error


def _as_printed(value: Any) -> Any:
    """Numbers and arrays of NumPy, pandas and others as Python's. np.float32(0.3) is the 0.3 that
    is printed, as in other sweeps, and not 0.30000001192092896, which would be another cell."""
    if str(getattr(value, "dtype", "")).removeprefix("torch.") in ("float16", "float32"):
        held = value.detach().cpu() if hasattr(value, "detach") else value
        value = np.asarray(held).astype(str).astype(np.float64)
    return value.tolist()


def plain(value: Any) -> Any:
    """Numbers and arrays as Python's, and paths as text, for JSON."""
    if hasattr(value, "tolist"):
        return _as_printed(value)
    if isinstance(value, range):
        return list(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    kind = type(value).__name__
    raise Error(f"kvbench: a parameter cannot be of type {kind}; give a number, a text or a list")


def _not_finite(value: Any, place: str = "") -> str:
    """Place and value of the first number of a document that is NaN or infinite; "" if none is."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{place}: must be finite, got {value}"
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, (list, tuple)):
        members = enumerate(value)
    return next(filter(None, (_not_finite(each, f"{place}/{name}") for name, each in members)), "")


def json_text(document: Any, indent: int | None = None) -> str:
    """JSON, which has neither NaN nor infinity."""
    try:
        return json.dumps(document, indent=indent, default=plain, allow_nan=False)
    except Error:
        raise
    except ValueError as error:
        if "Circular" in str(error):
            raise Error("kvbench: a sweep has a member that contains itself; remove it") from None
        place = _not_finite(document)
        raise Error(f"kvbench: {place}; leave a parameter out for its default") from None


def number(value: Any) -> Any:
    """A number of NumPy, or an array of one without dimensions, as Python's; others as they are."""
    is_array = isinstance(value, np.ndarray) and value.ndim == 0
    return _as_printed(value) if is_array or isinstance(value, np.generic) else value


def _single(value: Any) -> Any:
    """The number in an array or a tensor of one element; others as they are."""
    try:
        return value.item() if hasattr(value, "item") else value
    except (ValueError, RuntimeError):  # it has several elements
        return value


def whole(name: str, value: Any) -> int | None:
    """A whole number of any type; None stays."""
    given = _single(value)
    given = int(given) if isinstance(given, float) and given.is_integer() else given
    if given is not None and not isinstance(given, int):
        raise Error(f"{name}: must be an integer, got {given!r}")
    return None if given is None else int(given)  # a truth value, too


def real(name: str, value: Any) -> float | None:
    """A number of any type; None stays."""
    given = _single(value)
    if given is not None and not isinstance(given, (int, float)):
        raise Error(f"{name}: must be a number, got {given!r}")
    return given


def factor(name: str, value: Any) -> float | None:
    """A number that attention multiplies by; of 16 bits only where nothing can be rounded away."""
    given = real(name, value)
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    if given and dtype in ("float16", "bfloat16") and abs(math.frexp(given)[0]) != 0.5:
        raise Error(
            f"{name}: expected float32 or float64, got {given:g} in {dtype}, in which it may be "
            "rounded; give it as the model multiplies by it"
        )
    return given


def flag(name: str, value: Any) -> bool | None:
    """A truth value of any type, 0 and 1 among them; None stays."""
    given = _single(value)
    if not isinstance(given, (bool, int, float, type(None))) or given not in (None, 0, 1):
        raise Error(f"{name}: must be True or False, got {given!r}")
    return None if given is None else bool(given)


def _short(name: str) -> str:
    """The variable at the end of a place."""
    return name.rpartition(": ")[2]


def refuse_masked(name: str, given: Any) -> None:
    """Masked elements would be used as if they were not masked."""
    if not isinstance(given, np.ma.MaskedArray):
        return
    masked = int(np.count_nonzero(np.ma.getmaskarray(given)))
    if masked:
        raise Error(
            f"{name}: {masked} of its {given.size} elements are masked, and would be used as if "
            f"they were not; leave out what is masked, or give {_short(name)}.filled(0)"
        )


def tensor_of(name: str, given: Any) -> Any:
    """A tensor of torch that is its numbers as they are in memory: without gradients, and with the
    signs that a view has only as a mark, which DLPack leaves out."""
    given, own = given.detach(), _short(name)
    layout = str(getattr(given, "layout", "torch.strided")).removeprefix("torch.")
    if getattr(given, "is_nested", False):
        raise Error(f"{name}: is a nested tensor; give the tensor of one sequence")
    if layout != "strided":
        raise Error(f"{name}: is a tensor of the layout {layout}; give {own}.to_dense()")
    if getattr(given, "is_quantized", False):
        raise Error(f"{name}: has elements of {given.dtype}; give {own}.dequantize()")
    if getattr(getattr(given, "device", None), "type", "") == "meta":
        raise Error(f"{name}: is on the device meta, which has no numbers; give the tensor itself")
    for resolved in ("resolve_conj", "resolve_neg"):
        given = getattr(given, resolved)() if hasattr(given, resolved) else given
    return given


def _from_dlpack(name: str, given: Any) -> NDArray[Any]:
    """The numbers of an object that has DLPack alone."""
    try:
        return np.from_dlpack(given)
    except Exception as error:  # each library has exceptions of its own
        raise Error(
            f"{name}: NumPy cannot read this {type(given).__name__} ({error}); give "
            f"torch.from_dlpack({_short(name)}).cpu()"
        ) from None


def one_sequence(name: str, array: Any) -> Any:
    """An array of at most three dimensions: of a batch of one sequence, that one."""
    if len(array.shape) < 4:
        return array
    if len(array.shape) > 4 or array.shape[0] != 1:
        shape = list(array.shape)
        raise Error(f"{name}: has the shape {shape}; give {_short(name)} of one sequence")
    return array[0]


def array_of(name: str, given: Any, integers: bool = False) -> Any:
    """A NumPy array of one of its own types, or what has __dlpack__ (torch's tensors). bfloat16 and
    types of 8 bits, of ml_dtypes, JAX or torch, become the float32 of the same value. `integers`:
    short ones are numbers, where they could not be the bits of floats."""
    refuse_masked(name, given)
    if type(given).__name__.endswith("Tracer"):
        raise Error(
            f"{name}: has no numbers while JAX traces a function (jit, vmap, grad); call kvbench "
            "outside of it, or inside it with jax.debug.callback"
        )
    if hasattr(given, "detach"):
        given = tensor_of(name, given)
        return given.float() if str(given.dtype).startswith("torch.float8") else given
    if not isinstance(given, np.ndarray):
        of_8_bits = str(getattr(given, "dtype", "")).startswith("float8")
        if hasattr(given, "__dlpack__") and not of_8_bits:
            return given if hasattr(given, "shape") else _from_dlpack(name, given)
        given = np.asarray(given)
        refuse_masked(name, given)
    given = np.asarray(given)  # without subclasses
    dtype, own = given.dtype, _short(name)
    if dtype.type.__module__ == "ml_dtypes":
        return given.astype(np.float32)
    if dtype.kind in "iu" and integers:
        return given
    if dtype.kind == "V" and dtype.names is None and dtype.itemsize == 2:
        # Two bytes without a type: bfloat16, as np.load gives it back.
        return (given.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype.kind in "iu" and dtype.itemsize == 2:
        raise Error(
            f"{name}: has elements of {dtype}; if they are the bits of bfloat16, give "
            f"({own}.view(np.uint16).astype(np.uint32) << 16).view(np.float32), else "
            f"{own}.astype(np.float64)"
        )
    if dtype.kind == "V" or (dtype.kind in "iu" and dtype.itemsize == 1):
        raise Error(
            f"{name}: has elements of {dtype}; convert them to float32, with ml_dtypes where they "
            f"are of 8 bits: {own}.view(ml_dtypes.float8_e4m3fn).astype(np.float32)"
        )
    if dtype.kind not in "biufc":
        raise Error(
            f"{name}: has elements of {dtype}; give numbers, as of {own}.astype(np.float64)"
        )
    if dtype.kind == "f" and dtype.itemsize > 8:
        return given.astype(np.float64)
    return given if dtype.isnative else given.astype(dtype.newbyteorder("="))


def numpy_of(name: str, given: Any, integers: bool = False) -> NDArray[Any]:
    """As `array_of`, in NumPy whatever the library; of real numbers."""
    made = array_of(name, given, integers)
    if hasattr(made, "detach"):
        made = made.float() if str(made.dtype) == "torch.bfloat16" else made
    is_array = hasattr(made, "__array__")
    made = array_of(name, np.asarray(made) if is_array else _from_dlpack(name, made), integers)
    if made.dtype.kind == "c":
        raise Error(
            f"{name}: must be float64, float32, float16 or bfloat16; convert it to one of them"
        )
    return made


def in_full_precision(name: str, given: Any) -> list[float]:
    """Frequencies of a rotation: angles are these times positions, up to a text's length."""
    dtype = str(getattr(given, "dtype", "")).removeprefix("torch.")
    if dtype in ("float16", "bfloat16", "|V2"):
        raise Error(
            f"{name}: expected float32 or float64, got {dtype}, in which frequencies are rounded; "
            "give them as the model turns by them"
        )
    return numpy_of(name, given).astype(np.float64).ravel().tolist()


def refuse_mask(name: str, given: NDArray[Any], what: str = "tokens") -> None:
    """Truth values, and zeros and ones alone, are a mask, not the numbers of `what`."""
    is_mask = given.dtype == np.bool_ or (
        given.dtype.kind in "iu" and given.size > 2 and bool(np.isin(given, (0, 1)).all())
    )
    if is_mask:
        raise Error(
            f"{name}: is a mask of {given.size} elements, and numbers of {what} are expected; give "
            f"np.flatnonzero({_short(name)})"
        )
