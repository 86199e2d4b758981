"""Named arrays as the tensors of layers: which array is which, in what order its dimensions are,
batches, padding, and heads that were repeated."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from fault import Fault
from format.dump_file import common_type

from importer.array_files import BITS, SMALL_FLOATS
from importer.import_options import LARGEST_LAYER

MAX_HEADS = 8192  # heads of a tensor, as the program has it
MAX_D = 640  # numbers of a key; more are those of several heads
SIDE_BY_SIDE = (
    "; if heads are side by side, give q.reshape(*q.shape[:-1], heads, d), k and v likewise, with "
    "--order tokens"
)
Held = tuple[Mapping, str]  # a file and an array's name within it
TENSORS = {
    **dict.fromkeys(("q", "query", "queries"), "q"),
    **dict.fromkeys(("k", "key", "keys", "key_cache"), "k"),
    **dict.fromkeys(("v", "value", "values", "value_cache"), "v"),
    "out": "out",
}
# Arrays that are not [heads, tokens, columns]: their dimensions.
FURTHER = {
    "sinks": "Hq",
    "alibi_slopes": "Hq",
    "residual_norm": "rows",
    "wo": "Hq, dv, hidden",
    "key_bias": "Hkv, d",
}
# Facts of a layer that an array next to it gives, in place of an option.
FACTS = (
    *("inv_freq", "scale", "sliding_window", "logit_softcap", "chunk", "value_in_key"),
    *("kv_layer", "rope_theta", "rope_attention_scaling"),
)
NAMES = {
    **TENSORS,
    **dict.fromkeys(("s_aux", "sinks"), "sinks"),
    **{name: name for name in (*FURTHER, *FACTS)},
}
PATTERN = re.compile(
    r"(?:(?:(?P<sequence>(?!layers?[/.])[^/.]+)[/.])?"
    r"(?:layers?[/._]?)?(?P<layer>\d+)[/.])?(?P<tensor>[A-Za-z_]+)"
)
# A list by layer, as torch.save writes it: q/0, q/1; and caches of pairs.
LISTED = re.compile(r"(?P<tensor>[A-Za-z_]+)[/.](?P<layer>\d+)")
PAIRS = re.compile(r"past_key_values?[/.](?P<layer>\d+)[/.](?P<place>[01])")
MASK = (
    "a mask of its own (it knows causal attention, windows, chunks and no mask; attention_mask [n] "
    "or [B, n] of 0 and 1 says which tokens are padding)"
)
# Arrays of texts that lie in one row.
PACKED = (
    *("position_ids", "cache_position", "segment_ids"),
    *("cu_seqlens", "cu_seqlens_q", "cu_seqlens_k"),
)
QUANTISED = ("q_scale", "k_scale", "v_scale")
REFUSED = {
    "alibi": "ALiBi's bias (it knows the slopes, as alibi_slopes)",
    "position_bias": "a relative bias",
    "attention_bias": "a bias of the logits",
    "bias": "a bias of the logits",
    **dict.fromkeys(("mask", "causal_mask", "key_padding_mask", "padding_mask"), MASK),
}


@dataclass
class Found:
    """Where the arrays of one sequence, or of a batch of them, are."""

    layers: dict[int, dict[str, Held]] = field(default_factory=dict)
    token_ids: Held | None = None
    attention_mask: Held | None = None


def sort_arrays(files: dict[Path, Mapping], layer: int) -> tuple[dict[str, Found], Held | None]:
    """The arrays by sequence, and the inv_freq of all layers if there is one."""
    sequences: dict[str, Found] = {}
    inv_freq = None
    for path, arrays in files.items():
        for name in arrays:
            last = re.split(r"[/.]", name)[-1]
            if last in REFUSED:
                raise Fault(f"{path}: {name}: {REFUSED[last]}, which the dump format cannot hold")
            if last in QUANTISED:
                raise Fault(
                    f"{path}: {name}: is a scale of quantised numbers; multiply {last[0]} with it, "
                    "in float32, and leave it out"
                )
            if last in ("token_ids", "attention_mask"):
                sequence = name.removesuffix(last).strip("/.") or "0"
                found = sequences.setdefault(sequence, Found())
                if getattr(found, last) is not None:
                    raise Fault(f"{path}: {name}: sequence {sequence} has its {last} already")
                setattr(found, last, (arrays, name))
                continue
            if name == "inv_freq":
                inv_freq = (arrays, name)
                continue
            sequence, number, tensor = _place(name, layer)
            if tensor is None:
                raise Fault(f"{path}: {name}: {_why_not_read(last, name)}")
            if number > LARGEST_LAYER:
                raise Fault(f"{path}: {name}: expected a layer of at most {LARGEST_LAYER}")
            place = sequences.setdefault(sequence, Found()).layers.setdefault(number, {})
            if tensor in place:
                raise Fault(
                    f"{path}: {name}: layer {number} has its {tensor} already; name the arrays of "
                    f"several layers <layer>/{tensor}"
                )
            place[tensor] = (arrays, name)
    return sequences, inv_freq


def _why_not_read(last: str, name: str) -> str:
    if last in PACKED:
        return (
            "not read, for token j of a text is at position j; of several texts in one row give "
            "each its own tensors, <sequence>/<layer>/q, and leave it out"
        )
    if re.fullmatch(r"[\d/.]+", name):
        return (
            "tensors of a list have no names; save {'q': [q of each layer], 'past_key_values': "
            "((k, v) of each layer)}"
        )
    return (
        "no name of an array that is known; leave it out, or name it q, k, v, out, token_ids, "
        f"attention_mask, {', '.join((*FURTHER, *FACTS))}, after <layer>/ or <sequence>/<layer>/"
    )


def _place(name: str, layer: int) -> tuple[str, int, str | None]:
    """Sequence, layer and tensor that a name means; no tensor for an unknown name."""
    if match := PAIRS.fullmatch(name):
        return "0", int(match["layer"]), "kv"[int(match["place"])]
    if (match := LISTED.fullmatch(name)) and match["tensor"] in NAMES:
        return "0", int(match["layer"]), NAMES[match["tensor"]]
    match = PATTERN.fullmatch(name)
    if match is None or match["tensor"] not in NAMES:
        return "0", layer, None
    number = int(match["layer"]) if match["layer"] else layer
    return match["sequence"] or "0", number, NAMES[match["tensor"]]


@dataclass
class Tensors:
    """Tensors of one layer: q [B, Hq, Nq, d], k [B, Hkv, n, d], v, out; the types of their
    elements; and arrays of other shapes."""

    rows: dict[str, np.ndarray]
    types: dict[str, str]
    further: dict[str, np.ndarray]

    @property
    def batch(self) -> int:
        return len(self.rows["q"])


def read_tensors(
    place: str, held: dict[str, Held], order: str | None, dv: int | None = None
) -> Tensors:
    """The tensors of a layer; `out` last, as its layout is read off the others' shapes. `dv`:
    columns of values, where no array v says it."""
    found = Tensors({}, {}, {})
    for name in ("q", "k", "v"):
        if name in held:
            file, key = held[name]
            array, found.types[name] = file[key]
            found.rows[name] = _heads_first(key, array, order)
    batches = {name: len(array) for name, array in found.rows.items()}
    batch = batches.get("q", 1)
    for name, wanted in FURTHER.items():
        if name in held:
            file, key = held[name]
            of_each = name == "residual_norm" and batch > 1
            wanted = f"{batch}, {wanted}" if of_each else wanted
            found.further[name] = array = _further(key, file[key][0], wanted)
            if of_each and len(array) != batch:
                raise Fault(f"{key}: {list(array.shape)}; expected [{wanted}]")
    if len(set(batches.values())) > 1:
        raise Fault(
            f"{place}: {', '.join(f'{name} has a batch of {b}' for name, b in batches.items())}; "
            "give all the same sequences"
        )
    if "out" in held and "q" in found.rows:
        file, key = held["out"]
        array, found.types["out"] = file[key]
        dv = found.rows["v"].shape[3] if "v" in found.rows else dv
        found.rows["out"] = _out(key, array, order, found.rows["q"].shape[:2], dv)
    return found


def _floating(place: str, array: np.ndarray, wanted: str) -> None:
    if array.dtype.kind == "f" and 0 not in array.shape:
        return
    message = f"{place}: {array.dtype} {list(array.shape)}; floating-point {wanted} is wanted"
    if array.dtype.kind in "iu" and array.dtype.itemsize <= 2:
        fitting = [t for t in (*BITS,) if BITS[t] == array.dtype.itemsize]
        message += f"; if these are the bits of floats, name them by --bits: {', '.join(fitting)}"
    raise Fault(message)


def _heads_first(place: str, array: np.ndarray, order: str | None) -> np.ndarray:
    """[B, H, rows, columns]"""
    wanted = "[heads, tokens, columns] or a batch of it"
    _floating(place, array, wanted)
    if array.ndim not in (3, 4):
        name = re.split(r"[/.]", place)[-1]
        remedy = {
            2: f"; of one head it is {name}[None], and [tokens, heads d] is reshape(tokens, heads, "
            "d) with --order tokens",
            5: f"; layers are named, <layer>/{name}, and groups of heads lie side by side: "
            f"[B, H, G, tokens, d] is {name}.reshape(B, H * G, tokens, d)",
        }
        raise Fault(
            f"{place}: {array.dtype} {list(array.shape)}; {wanted} is wanted"
            f"{remedy.get(array.ndim, '')}"
        )
    batch = array[None] if array.ndim == 3 else array
    return batch.transpose(0, 2, 1, 3) if order == "tokens" else batch


def _out(
    place: str, array: np.ndarray, order: str | None, heads: tuple[int, ...], dv: int | None
) -> np.ndarray:
    """[B, Hq, No, dv] of any layout that attention functions return: heads before tokens or behind
    them, or side by side; told by the number of heads, and by `order` where that is no help."""
    batch, count = heads
    _floating(place, array, "[heads, tokens, columns]")
    if dv is not None and array.shape[-1] == count * dv and count > 1 and array.ndim in (2, 3):
        array = array.reshape(*array.shape[:-1], count, dv)  # heads side by side
        order = "tokens"
    array = array[None] if array.ndim == 3 else array
    if array.ndim != 4 or len(array) != batch:
        raise Fault(
            f"{place}: {array.dtype} {list(array.shape)}; [heads, tokens, columns] is wanted, as q "
            f"has, for {batch} sequence{'s' if batch > 1 else ''}"
        )
    behind = array.shape[2] == count and (order == "tokens" or array.shape[1] != count)
    return array.transpose(0, 2, 1, 3) if behind else array


def _further(place: str, array: np.ndarray, wanted: str) -> np.ndarray:
    """One that is not [heads, tokens, columns], in float32 or float64. A row may have further
    dimensions of one element, and whole numbers of 32 or 64 bits."""
    dimensions = wanted.count(",") + 1
    if dimensions == 1 and array.ndim > 1 and max(array.shape) == array.size:
        array = array.reshape(-1)
    if array.dtype.kind in "iu" and array.dtype.itemsize >= 4:
        array = array.astype(np.float64)
    if array.ndim != dimensions or array.dtype.kind != "f" or 0 in array.shape:
        is_weight = dimensions == 3 and array.ndim == 2
        linear = "; the weight W [hidden, Hq dv] of a layer is W.T.reshape(Hq, dv, hidden)"
        raise Fault(
            f"{place}: {array.dtype} {list(array.shape)}; expected floating-point numbers "
            f"[{wanted}]{linear if is_weight else ''}"
        )
    if not np.isfinite(array).all():
        raise Fault(f"{place}: expected finite numbers")
    return array.astype(np.float64 if array.dtype == np.float64 else np.float32)


def stored_type(types: set[str]) -> str:
    """The smallest type of a dump that holds numbers of all of these exactly."""
    wide = types - SMALL_FLOATS.keys()
    return common_type(wide) if wide else "float16"


def tokens_of(place: str, mask: np.ndarray, index: int, batch: int, tokens: int) -> tuple[int, int]:
    """First and end of the tokens that an attention mask [n] or [B, n] has 1 for."""
    row = mask[index] if mask.shape == (batch, tokens) else mask
    if row.shape != (tokens,) or (row is mask and batch > 1) or not np.isin(row, (0, 1)).all():
        raise Fault(f"{place}: {mask.dtype} {list(mask.shape)}: {MASK}; here n is {tokens}")
    seen = np.flatnonzero(row)
    if len(seen) == 0:
        raise Fault(f"{place}: expected 1 for each token and 0 for padding, got zeros alone")
    if seen[-1] - seen[0] + 1 != len(seen):
        raise Fault(
            f"{place}: expected the 1s of a sequence side by side, got {len(seen)} of them with "
            "zeros between; leave these tokens out of all arrays"
        )
    return int(seen[0]), int(seen[-1]) + 1


def cut(array: np.ndarray, tokens: int, first: int, end: int) -> np.ndarray:
    """Rows [H, R, ..] or [R] of the last R of `tokens` positions, cut to [first, end)."""
    axis = 1 if array.ndim == 3 else 0
    before = tokens - array.shape[axis]
    rows = slice(max(first - before, 0), max(end - before, 0))
    return array[:, rows] if axis else array[rows]


def refuse_padding(place: str, k: np.ndarray, v: np.ndarray) -> None:
    """Fault where the first or last tokens have keys and values of zeros in every head."""
    seen = np.flatnonzero(k.any((0, 2)) | v.any((0, 2)))
    n = k.shape[1]
    if len(seen) == 0 or len(seen) == n:
        return
    first, end = int(seen[0]), int(seen[-1]) + 1
    keep = f"--tokens {n} keeps them"
    if end < n:
        raise Fault(
            f"{place}: the last {n - end} of {n} tokens have keys and values of zeros alone, as "
            f"unused places of a static cache; --tokens {end} cuts them, {keep}"
        )
    if first > 0:
        raise Fault(
            f"{place}: the first {first} of {n} tokens have keys and values of zeros alone, as "
            f"padding; an array attention_mask [{n}] with 0 there leaves them out, {keep}"
        )


def one_of_equal_heads(
    place: str, k: np.ndarray, v: np.ndarray, wanted: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """k and v with the model's KV heads, where they may have been repeated for query heads."""
    heads = len(k)
    first: dict[bytes, int] = {}
    equal = [
        first.setdefault(hashlib.blake2b(k[h].tobytes() + v[h].tobytes()).digest(), h)
        for h in range(heads)
    ]
    if wanted is None:
        if len(first) == heads:
            return k, v
        each = heads // len(first)
        beside = all(at == h // each * each for h, at in enumerate(equal))
        message = f"{place}: only {len(first)} of {heads} KV heads differ from one another"
        if len(first) == 1:
            message = f"{place}: all {heads} KV heads are equal"
        if beside and heads % len(first) == 0:
            raise Fault(
                f"{message}: {each} at a time are equal, as after repeat_kv, and memory would be "
                f"{each} times the model's; --kv-heads {len(first)} keeps one of each, --kv-heads "
                f"{heads} keeps all"
            )
        copy = next(h for h, at in enumerate(equal) if at != h)
        raise Fault(
            f"{message}: KV head {copy} is equal to {equal[copy]}; give k and v from before heads "
            f"are repeated (query head h reads KV head h / (Hq / Hkv)), or --kv-heads {heads} to "
            "keep all"
        )
    each = heads // wanted
    if heads % wanted or any(equal[h] != equal[h // each * each] for h in range(heads)):
        raise Fault(
            f"--kv-heads {wanted}: {place} has {heads} KV heads, which are not {wanted} groups of "
            f"equal ones; leave it out"
        )
    return k[::each], v[::each]


def check_order(place: str, q: np.ndarray, k: np.ndarray, is_proved: bool) -> None:
    """Fault where heads and tokens look exchanged: q [Hq, Nq, d], k [Hkv, n, d]. `is_proved`: an
    array out will tell."""
    for name, array in (("q", q), ("k", k)):
        if array.shape[0] > MAX_HEADS:
            raise Fault(
                f"{place}: {name} has {array.shape[0]} heads; a dump has at most {MAX_HEADS}"
            )
    looks_exchanged = q.shape[0] >= k.shape[1] and q.shape[0] > q.shape[1]
    is_square = q.shape[:2] == k.shape[:2] and k.shape[0] == k.shape[1] > 1 and not is_proved
    if k.shape[0] > k.shape[1] or looks_exchanged or is_square:
        raise Fault(
            f"{place}: q {list(q.shape)} and k {list(k.shape)} would be {q.shape[0]} query heads "
            f"and {k.shape[1]} tokens; say --order tokens for [tokens, heads, d], or --order heads "
            "if it is so"
        )
    if k.shape[2] > MAX_D:
        raise Fault(
            f"{place}: k {list(k.shape)} would be keys of {k.shape[2]} numbers{SIDE_BY_SIDE}, or "
            "say --order heads if it is so"
        )
