"""Writes kvbench dumps, and recomputes the attention that they hold. README.md has the format."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
from fault import Fault

FORMAT = {"format": "kvbench-dump", "format_version": 1, "fingerprint": "by tensor"}
# Members of a layer that only files of format_version 2 have.
SECOND_FORMAT = ("sinks", "alibi_slopes", "causal", "chunk", "value_in_key", "kv_layer")
STORED = {
    "float16": np.float16,
    "bfloat16": np.uint16,
    "float32": np.float32,
    "float64": np.float64,
}
# `kvbench validate` has the same limit.
TOLERANCE = 1e-4
PRECISION = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}  # binary digits
MIN_EXPONENT = {"float16": -14, "bfloat16": -126, "float32": -126, "float64": -1022}
# Roundings that a model in 16 bits may lose. A scale that is off by more than SCALE_TOLERANCE is
# told apart from them.
ROUNDINGS, SCALE_TOLERANCE, STANDARD_ERRORS = 8, 0.02, 6
CHUNK_ROWS = 1024
ROOM = 8 * 2**20  # bytes that HDF5 may hold back; a file that it cannot close crashes the process


@dataclass(frozen=True)
class Terms:
    """How a layer's logits are made: scale <q, k>, soft-capped, over the last `window` tokens or
    those of a chunk."""

    scale: float
    window: int = 0  # 0 = none
    softcap: float = 0.0  # 0 = none
    chunk: int = 0  # 0 = none
    causal: bool = True  # False: every row sees every token


@dataclass(frozen=True)
class Rope:
    """A rotation of the first 2 len(inv_freq) dimensions, in radians per position."""

    inv_freq: tuple[float, ...]
    theta: float
    layout: str  # "half" or "interleaved"
    attention_scaling: float = 1.0

    def write(self, parent: h5py.Group) -> None:
        group = parent.create_group("rope")
        group.attrs.update(
            {
                "theta": self.theta,
                "layout": self.layout,
                "attention_scaling": self.attention_scaling,
            }
        )
        group["inv_freq"] = np.asarray(self.inv_freq, np.float64)

    def turn(self, rows: np.ndarray, positions: float) -> np.ndarray:
        """`rows` [..., d] rotated by this many positions."""
        pairs = len(self.inv_freq)
        angle = positions * np.asarray(self.inv_freq)
        if self.layout == "half":
            a, b = np.arange(pairs), np.arange(pairs) + pairs
        else:
            a, b = 2 * np.arange(pairs), 2 * np.arange(pairs) + 1
        turned = rows.copy()
        turned[..., a] = rows[..., a] * np.cos(angle) - rows[..., b] * np.sin(angle)
        turned[..., b] = rows[..., b] * np.cos(angle) + rows[..., a] * np.sin(angle)
        return turned


def common_type(types: set[str]) -> str:
    """The smallest type of a dump that holds numbers of all of these exactly."""
    if len(types) == 1 and types <= {"float16", "bfloat16", "float32"}:
        return next(iter(types))
    return "float32" if types <= {"float16", "bfloat16", "float32"} else "float64"


def encode(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers as a dump stores them, rounded to nearest even; bfloat16 as its 16 bits."""
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):  # infinity is found and named by the caller
            return rows.astype(STORED[dtype])
    bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def decode(stored: np.ndarray, dtype: str) -> np.ndarray:
    """The float64 numbers behind stored elements."""
    if dtype == "bfloat16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float64)


def element_type(dataset: h5py.Dataset) -> str:
    return str(dataset.attrs.get("dtype", dataset.dtype.name))


def exact_rows(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    terms: Terms,
    sink: float = -np.inf,
    slope: float = 0.0,
) -> np.ndarray:
    """Attention [R, dv] of one head in float64: q [R, d] are the last R rows of k [n, d]. `sink`: a
    logit of no token; `slope`: of ALiBi."""
    x = seen_logits(q, k, terms, slope)
    most = np.maximum(x.max(axis=1, keepdims=True), sink)
    p = np.exp(x - most)
    return p @ v.astype(np.float64) / (p.sum(axis=1, keepdims=True) + np.exp(sink - most))


def seen_logits(q: np.ndarray, k: np.ndarray, terms: Terms, slope: float = 0.0) -> np.ndarray:
    """Logits [R, n] of one head in float64, -inf where a row does not see a token."""
    q, k = (t.astype(np.float64) for t in (q, k))
    row, token = np.arange(len(k) - len(q), len(k))[:, None], np.arange(len(k))[None, :]
    x = terms.scale * q @ k.T
    if terms.softcap > 0:
        x = terms.softcap * np.tanh(x / terms.softcap)
    x += slope * (token - row)
    unseen = (terms.window > 0) & (token <= row - terms.window)
    if terms.causal:
        unseen = unseen | (token > row)
    if terms.chunk > 0:
        unseen = unseen | (token // terms.chunk != row // terms.chunk)
    x[unseen] = -np.inf
    return x


def allowed_difference(q: np.ndarray, k: np.ndarray, terms: Terms, slope: float = 0.0) -> float:
    """How far outputs of arithmetic in float32 may be off, relative, as in `kvbench validate`: the
    largest logit is rounded like every other number, and an error of x is a factor of e^x."""
    x = seen_logits(q, k, terms, slope)
    most = float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
    return TOLERANCE + 2.0 ** -PRECISION["float32"] * (2 + most)


def relative_difference(z: np.ndarray, out: np.ndarray, stored: str = "") -> float:
    """The largest ||z - out|| / ||out|| over rows; infinite if it is undefined. Elements of `out`
    of the type `stored` are as far off as their rounding explains for nothing."""
    out = out.astype(np.float64)
    apart = np.abs(z - out)
    if stored:
        exponent = np.maximum(np.frexp(out)[1] - 1, MIN_EXPONENT[stored])
        apart = np.maximum(apart - np.ldexp(0.5, exponent + 1 - PRECISION[stored]), 0.0)
    difference, norm = np.linalg.norm(apart, axis=-1), np.linalg.norm(out, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(difference == 0, 0.0, difference / norm)
    return float(np.nan_to_num(ratio, nan=np.inf).max(initial=0.0))


@dataclass(frozen=True)
class Difference:
    """How far `out` is from what q, k, v give, beyond the rounding of its elements; what is
    allowed of arithmetic in float32, and in 16 bits where q, k and v have them; by which factor the
    scale would have to change to explain it best (None: not looked for, as all is well), which
    share of its square that explains, and of how many elements."""

    relative: float
    single: float
    half: float
    scale_factor: float | None = None
    explained: float = 0.0
    elements: int = 0

    @property
    def is_of_scale(self) -> bool:
        """More than chance: `explained` is the square of a correlation."""
        chance = STANDARD_ERRORS**2 / (STANDARD_ERRORS**2 + self.elements)
        off = abs((self.scale_factor or 1.0) - 1.0)
        return off > SCALE_TOLERANCE and self.explained > chance

    def agrees(self, tolerance: float) -> bool:
        """Within `tolerance`, or what arithmetic loses, in 16 bits unless another scale explains
        it."""
        if self.relative <= max(tolerance, self.single):
            return True
        return self.relative <= self.half and not self.is_of_scale


def narrow_types(numbers: np.ndarray) -> set[str]:
    """The types of 16 bits that hold all of these exactly."""
    return {
        dtype
        for dtype in ("float16", "bfloat16")
        if np.array_equal(decode(encode(numbers, dtype), dtype), numbers)
    }


def equal_ends(values: np.ndarray) -> dict[str, int]:
    """Tokens of values [heads, n, dv] that are equal at the "last" and the "first" places, as
    padding has them; fewer than 8 are left out. Values of a first layer depend on the token alone.
    """
    ends = {"last": values[:, ::-1], "first": values}
    equal = {end: int((v != v[:, :1]).any((0, 2)).argmax()) for end, v in ends.items()}
    return {end: count for end, count in equal.items() if count >= 8}


def kv_group(layer: h5py.Group) -> h5py.Group:
    """The layer whose keys and values it reads: itself, or that of its `kv_layer`."""
    number = layer.attrs.get("kv_layer")
    return layer if number is None else layer.parent[str(int(number))]


@dataclass(frozen=True)
class Answers:
    """One query head, and the last rows of its `out`."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    terms: Terms
    sink: float
    slope: float
    out: np.ndarray

    def exact(self, scale: float) -> np.ndarray:
        terms = replace(self.terms, scale=scale)
        return exact_rows(self.q, self.k, self.v, terms, self.sink, self.slope)

    def scale_step(self, z: np.ndarray, scale: float) -> np.ndarray:
        """The change of `z`, which has this scale, by the scale's logarithm."""
        step = SCALE_TOLERANCE / 2
        return (self.exact(scale * (1 + step)) - z) / step


def answers_of(layer: h5py.Group) -> Iterator[Answers]:
    """Each query head in turn; one KV head in memory."""
    out, held = layer["out"], kv_group(layer)
    rows = min(out.shape[1], layer["q"].shape[1])
    group = out.shape[0] // held["k"].shape[0]
    terms = Terms(
        float(layer.attrs["scale"]),
        int(layer.attrs["sliding_window"]),
        float(layer.attrs["logit_softcap"]),
        int(layer.attrs.get("chunk", 0)),
        bool(layer.attrs.get("causal", 1)),
    )
    heads = out.shape[0]
    sinks = layer["sinks"][()] if "sinks" in layer else np.full(heads, -np.inf)
    slopes = layer["alibi_slopes"][()] if "alibi_slopes" in layer else np.zeros(heads)
    for h in range(held["k"].shape[0]):
        k = decode(held["k"][h], element_type(held["k"]))
        if "value_in_key" in held.attrs:
            v = k[:, : held.attrs["value_in_key"]]
        else:
            v = decode(held["v"][h], element_type(held["v"]))
        for head in range(h * group, (h + 1) * group):
            q = decode(layer["q"][head, -rows:], element_type(layer["q"]))
            answer = decode(out[head, -rows:], element_type(out))
            yield Answers(q, k, v, terms, float(sinks[head]), float(slopes[head]), answer)


def type_of_out(layer: h5py.Group) -> str:
    """The element type of `out` before it was widened, if it was."""
    stored = element_type(layer["out"])
    if PRECISION[stored] <= PRECISION["float16"]:
        return stored
    narrow = narrow_types(decode(layer["out"][()], stored))
    # Most of bfloat16's numbers are float16's, too.
    return min(narrow, key=PRECISION.__getitem__, default=stored)


def layer_difference(layer: h5py.Group) -> Difference:
    """Between `out` and what q, k, v give; one head in memory."""
    stored = type_of_out(layer)
    narrow = {"float16", "bfloat16"}  # types of 16 bits that q, k and v have
    most, single, along, across, square, elements = 0.0, TOLERANCE, 0.0, 0.0, 0.0, 0
    k = None
    for each in answers_of(layer):
        for tensor in (each.q,) if each.k is k else (each.k, each.v, each.q):
            narrow &= narrow_types(tensor) if narrow else set()
        k = each.k
        z = each.exact(each.terms.scale)
        apart = relative_difference(z, each.out, stored)
        most = max(most, apart)
        if apart > TOLERANCE:  # rounded logits or a change of the scale may explain a part
            single = max(single, allowed_difference(each.q, each.k, each.terms, each.slope))
            slope = each.scale_step(z, each.terms.scale)
            along += float(np.sum((each.out - z) * slope))
            across += float(np.sum(slope * slope))
            square += float(np.sum((each.out - z) ** 2))
            elements += z.size
    return Difference(
        most,
        single,
        ROUNDINGS * max((2.0 ** -PRECISION[each] for each in narrow), default=0.0),
        1 + along / across if across > 0 else None,
        along**2 / (across * square) if across > 0 else 0.0,
        elements,
    )


def fitting_scale(layer: h5py.Group, found: Difference) -> float | None:
    """Another scale with which the first query head agrees with its `out`, if some steps of Gauss
    and Newton lead to one."""
    head = next(answers_of(layer))
    given = scale = head.terms.scale
    for _ in range(20):
        z = head.exact(scale)
        slope = head.scale_step(z, scale)
        across = float(np.sum(slope * slope))
        if across == 0:
            return None
        ratio = 1 + float(np.sum((head.out - z) * slope)) / across
        scale *= min(max(ratio, 0.5), 2.0)
        if abs(ratio - 1) < 1e-6:
            break
    off = relative_difference(head.exact(scale), head.out, type_of_out(layer))
    if abs(scale / given - 1) < 1e-3 or off > max(found.single, found.half):
        return None
    return scale


def layer_differences(path: Path) -> dict[str, Difference]:
    """`layer_difference` of every layer that holds `out`, by its place in the file."""
    with h5py.File(path) as file:
        layers = [
            layer
            for sequence in file["sequences"].values()
            for layer in sequence["layers"].values()
        ]
        return {layer.name: layer_difference(layer) for layer in layers if "out" in layer}


@dataclass(frozen=True)
class LayerShape:
    """The tensors of one layer: q [query_heads, query_rows, d], k [kv_heads, tokens, d], ..."""

    query_heads: int
    kv_heads: int
    tokens: int
    query_rows: int
    d: int
    dv: int
    out_rows: int
    wo_norms: bool = False
    value_in_key: bool = False  # values are the first dv columns of k
    out_dtype: str = "float32"
    kv_layer: int | None = None  # whose keys and values it reads; k and v are then left out


def is_of_second_format(layer: h5py.Group) -> bool:
    """Whether the layer has a member that asks for format_version 2."""
    return any(name in layer or name in layer.attrs for name in SECOND_FORMAT)


def _require_room(dataset: h5py.Dataset, size: int) -> None:
    path = Path(dataset.file.filename)
    free = shutil.disk_usage(path.parent).free if path.exists() else size + ROOM  # else in memory
    if free < size + ROOM:
        raise Fault(
            f"{path}: {free / 2**20:.3g} MiB are free on its disk, and {dataset.name} needs up to "
            f"{(size + ROOM) / 2**20:.3g}; free some, or choose another place"
        )


class LayerWriter:
    """One layer of a dump, written in pieces of rows."""

    def __init__(
        self, parent: h5py.Group, layer: int, shape: LayerShape, dtype: str, compression: int = 4
    ) -> None:
        if shape.query_heads % shape.kv_heads:
            raise Fault(
                f"layer {layer}: {shape.query_heads} query heads are not a multiple of "
                f"{shape.kv_heads} KV heads"
            )
        self.group = parent.create_group(str(layer))
        self.shape = shape
        self._dtype = dtype
        self._compression = compression
        self._create("q", shape.query_heads, shape.query_rows, shape.d, dtype)
        if shape.kv_layer is None:
            self._create("k", shape.kv_heads, shape.tokens, shape.d, dtype)
        if shape.kv_layer is None and not shape.value_in_key:
            self._create("v", shape.kv_heads, shape.tokens, shape.dv, dtype)
        if shape.out_rows:
            self._create("out", shape.query_heads, shape.out_rows, shape.dv, shape.out_dtype)
        if shape.wo_norms:
            self._create("wo_v_l1", shape.query_heads, shape.tokens, 1, "float32")

    def write_projection(self, wo: np.ndarray, dtype: str) -> None:
        """wo [Hq, dv, hidden] as elements of `dtype`."""
        heads, dv, hidden = wo.shape
        self._create("wo", heads, dv, hidden, dtype)
        self.group["wo"][...] = encode(wo, dtype)

    def write_residual_norms(self, norms: np.ndarray) -> None:
        """[tokens]; of the positions whose queries are stored those are kept."""
        last = norms[len(norms) - self.shape.query_rows :]
        self.group["residual_norm"] = last.astype(np.float32)

    def add_repeat(self, rows: int) -> None:
        """Room for the queries and keys of a pass of so many rows that repeats the prompt."""
        self._create("q_repeat", self.shape.query_heads, rows, self.shape.d, self._dtype)
        self._create("k_repeat", self.shape.kv_heads, rows, self.shape.d, self._dtype)

    def write_repeat(self, name: str, first: int, rows: np.ndarray) -> None:
        """Rows [heads, R, d] of that pass from row `first`."""
        dataset = self.group[name]
        stored = encode(rows, element_type(dataset))
        self._check_finite(dataset, stored, rows, first)
        dataset[:, first : first + rows.shape[1]] = stored

    def _create(self, name: str, heads: int, rows: int, columns: int, dtype: str) -> None:
        packed = (
            {"compression": "gzip", "compression_opts": self._compression, "shuffle": True}
            if self._compression
            else {}
        )
        dataset = self.group.create_dataset(
            name,
            (heads, rows, columns),
            STORED[dtype],
            chunks=(1, min(CHUNK_ROWS, rows), columns),
            **packed,
        )
        if dtype == "bfloat16":
            dataset.attrs["dtype"] = dtype

    def write(self, name: str, first: int, rows: np.ndarray) -> None:
        """Rows [heads, R, columns] of the positions from `first`; earlier ones than are stored are
        left out."""
        dataset = self.group[name]
        place = first - (self.shape.tokens - dataset.shape[1])
        rows = rows[:, max(0, -place) :]
        if rows.shape[1] == 0:
            return
        stored = encode(rows, element_type(dataset))
        self._check_finite(dataset, stored, rows, first + max(0, -place))
        _require_room(dataset, stored.nbytes)
        place = max(0, place)
        dataset[:, place : place + rows.shape[1]] = stored

    def _check_finite(
        self, dataset: h5py.Dataset, stored: np.ndarray, rows: np.ndarray, first: int
    ) -> None:
        dtype = element_type(dataset)
        finite = (stored & 0x7F80) != 0x7F80 if dtype == "bfloat16" else np.isfinite(stored)
        if finite.all():
            return
        head, row, column = np.argwhere(~finite)[0]
        value = rows[head, row, column]
        if np.isfinite(value):
            raise Fault(
                f"{dataset.name}, head {head}, token {first + row}: {value:.6g} does not "
                f"fit into {dtype}; store bfloat16 or float32 (--dtype)"
            )
        is_overflow = rows.dtype == np.float16 and not np.isnan(value)
        raise Fault(
            f"{dataset.name}, head {head}, token {first + row}: {value}; a dump holds "
            "finite numbers only: "
            + (
                "float16 ends at 65504; keep bfloat16 or float32"
                if is_overflow
                else "see what the model computed there"
            )
        )

    def finish(self, terms: Terms, rope: Rope | None = None) -> None:
        self.group.attrs.update(
            {
                "scale": float(terms.scale),
                "sliding_window": int(terms.window),
                "logit_softcap": float(terms.softcap),
            }
        )
        if terms.chunk:
            self.group.attrs["chunk"] = int(terms.chunk)
        if not terms.causal:
            self.group.attrs["causal"] = 0
        if self.shape.kv_layer is not None:
            self.group.attrs["kv_layer"] = self.shape.kv_layer
        elif self.shape.value_in_key:
            self.group.attrs["value_in_key"] = self.shape.dv
        if rope:
            rope.write(self.group)
