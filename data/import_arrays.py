#!/usr/bin/env python3
"""Makes a dump of arrays q, k and v in .npz, .npy, .safetensors or .pt files.

    import_arrays.py layer0.npz --scale 0.125 --model my-model --out mine.h5

Arrays are named q, k, v, optionally out (the model's own attention outputs of the last rows),
sinks and alibi_slopes [Hq], wo [Hq, dv, hidden] and residual_norm [Nr],
after `<layer>/` or `<sequence>/<layer>/` if there are several ("." serves as well as "/", and
`layers/` may stand before the number); an .npy is named as its file is. token_ids and inv_freq are
read too. q [Hq, Nq, d], k [Hkv, n, d], v [Hkv, n, dv]; --order tokens for [n, H, d]; a leading
batch of one is dropped. q and k are post-rotation. The format is in README.md next to this file.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import h5py
import numpy as np
from array_files import open_arrays
from command import exit_code, note
from dump_file import (
    CHUNK_ROWS,
    FORMAT,
    STORED,
    Fault,
    LayerWriter,
    Rope,
    Shape,
    Terms,
    differences,
    is_of_second_format,
)
from import_options import LARGEST_LAYER
from import_options import parser as options

MOST_HEADS = 8192  # of a tensor, as the program has it
# Tensors above these sizes, in bytes, may not be compressed further, as the program has it.
MOST_COMPRESSED = 100
SMALL_TENSOR, SMALL_DUMP = 2**22, 2**28
TENSORS = {"q": "q", "query": "q", "k": "k", "key": "k", "v": "v", "value": "v", "out": "out"}
# Arrays that are not [heads, tokens, columns]: their number of dimensions.
FURTHER = {"sinks": 1, "alibi_slopes": 1, "residual_norm": 1, "wo": 3}
TENSORS |= {**dict.fromkeys(("s_aux", "sinks"), "sinks"), **{name: name for name in FURTHER}}
PATTERN = re.compile(
    r"(?:(?:(?P<sequence>(?!layers?[/.])[^/.]+)[/.])?"
    r"(?:layers?[/.])?(?P<layer>\d+)[/.])?(?P<tensor>[A-Za-z_]+)"
)
REFUSED = {
    "alibi": "ALiBi's bias (it knows the slopes, as alibi_slopes)",
    "position_bias": "a relative bias",
    "attention_bias": "a bias of the logits",
    "bias": "a bias of the logits",
    "mask": "a mask of its own (it knows causal attention, windows, chunks and no mask)",
    "attention_mask": "a mask of its own (it knows causal attention, windows, chunks and no mask)",
}


@dataclass
class Found:
    """Where the arrays of one sequence are: file and name within it."""

    layers: dict[int, dict[str, tuple[Mapping, str]]] = field(default_factory=dict)
    token_ids: tuple[Mapping, str] | None = None


def sort_arrays(
    files: dict[Path, Mapping], layer: int
) -> tuple[dict[str, Found], tuple[Mapping, str] | None]:
    """The arrays by sequence, and inv_freq if there is one."""
    sequences: dict[str, Found] = {}
    inv_freq = None
    for path, arrays in files.items():
        for name in arrays:
            refuse_name(path, name)
            match = PATTERN.fullmatch(name)
            tensor = match and match["tensor"]
            if tensor == "inv_freq":
                inv_freq = (arrays, name)
            elif name.endswith("token_ids"):
                sequence = name.removesuffix("token_ids").strip("/.") or "0"
                sequences.setdefault(sequence, Found()).token_ids = (arrays, name)
            elif match and tensor in TENSORS:
                found = sequences.setdefault(match["sequence"] or "0", Found())
                number = int(match["layer"]) if match["layer"] else layer
                if number > LARGEST_LAYER:
                    raise Fault(f"{path}: {name}: expected a layer of at most {LARGEST_LAYER}")
                place = found.layers.setdefault(number, {})
                if TENSORS[tensor] in place:
                    raise Fault(f"{path}: {name}: layer {number} has its {TENSORS[tensor]} already")
                place[TENSORS[tensor]] = (arrays, name)
            else:
                raise Fault(
                    f"{path}: {name}: no name of an array that is known; q, k, v, out, "
                    "token_ids or inv_freq, after <layer>/ or <sequence>/<layer>/"
                )
    return sequences, inv_freq


def refuse_name(path: Path, name: str) -> None:
    last = re.split(r"[/.]", name)[-1]
    if last in REFUSED:
        raise Fault(f"{path}: {name}: {REFUSED[last]}, which the dump format cannot hold")


def heads_first(place: str, array: np.ndarray, order: str) -> np.ndarray:
    """[H, rows, columns]"""
    if array.ndim == 4 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 3 or array.dtype.kind != "f" or 0 in array.shape:
        raise Fault(
            f"{place}: {array.dtype} {list(array.shape)}; floating-point "
            "[heads, tokens, columns] is wanted"
        )
    return array.transpose(1, 0, 2) if order == "tokens" else array


def write_layer(
    parent: h5py.Group,
    layer: int,
    arrays: dict[str, tuple[Mapping, str]],
    rope: Rope | None,
    args: argparse.Namespace,
) -> int:
    """Writes one layer; returns its number of tokens."""
    wanted = ("q", "k") if args.value_in_key else ("q", "k", "v")
    missing = [name for name in wanted if name not in arrays]
    if missing:
        raise Fault(f"{parent.name}/{layer}: no array {', '.join(missing)}")
    if args.value_in_key and "v" in arrays:
        raise Fault(
            f"{parent.name}/{layer}: an array v and --value-in-key, which says that values are "
            "columns of k; leave one of them out"
        )
    rows, types, further = {}, {}, {}
    for name, (file, key) in arrays.items():
        if name in FURTHER:
            further[name] = further_array(key, file[key][0], FURTHER[name])
            continue
        array, types[name] = file[key]
        rows[name] = heads_first(key, array, args.order)
    if args.value_in_key:
        if args.value_in_key > rows["k"].shape[2]:
            raise Fault(
                f"--value-in-key {args.value_in_key}: {parent.name}/{layer} has keys of "
                f"{rows['k'].shape[2]} numbers"
            )
        rows["v"], types["v"] = rows["k"][:, :, : args.value_in_key], types["k"]
    check_shapes(f"{parent.name}/{layer}", {name: array.shape for name, array in rows.items()})
    q, k, v = rows["q"], rows["k"], rows["v"]
    if rope and 2 * len(rope.inv_freq) > k.shape[2]:
        raise Fault(
            f"RoPE data turns {2 * len(rope.inv_freq)} dimensions, and {parent.name}/{layer} has "
            f"d = {k.shape[2]}; see --rope-dims or inv_freq"
        )
    out_rows = rows["out"].shape[1] if "out" in rows else 0
    shape = Shape(
        q.shape[0],
        k.shape[0],
        k.shape[1],
        q.shape[1],
        q.shape[2],
        v.shape[2],
        out_rows,
        value_in_key=bool(args.value_in_key),
    )
    check_further(f"{parent.name}/{layer}", shape, further, args)
    writer = LayerWriter(parent, layer, shape, args.dtype or widest(types), args.compression)
    for name, array in rows.items():
        if name == "v" and args.value_in_key:
            continue
        before = shape.tokens - array.shape[1]
        for first in range(0, array.shape[1], CHUNK_ROWS):
            writer.write(name, before + first, array[:, first : first + CHUNK_ROWS])
    writer.finish(
        Terms(
            args.scale,
            window_of(args.sliding_window, layer),
            args.logit_softcap,
            window_of(args.chunk, layer),
            not args.every_token,
        )
    )
    for name, array in further.items():
        writer.group[name] = array
    return shape.tokens


def further_array(place: str, array: np.ndarray, dimensions: int) -> np.ndarray:
    """One that is not [heads, tokens, columns], in float32 or float64."""
    if array.ndim != dimensions or array.dtype.kind != "f" or 0 in array.shape:
        raise Fault(
            f"{place}: {array.dtype} {list(array.shape)}; expected floating-point numbers of "
            f"{dimensions} dimension{'s' if dimensions > 1 else ''}"
        )
    if not np.isfinite(array).all():
        raise Fault(f"{place}: expected finite numbers")
    return array.astype(np.float64 if array.dtype == np.float64 else np.float32)


def check_further(
    place: str, shape: Shape, further: dict[str, np.ndarray], args: argparse.Namespace
) -> None:
    expected = {
        "sinks": (shape.query_heads,),
        "alibi_slopes": (shape.query_heads,),
        "wo": (shape.query_heads, shape.dv),
    }
    for name, array in further.items():
        if name in expected and array.shape[: len(expected[name])] != expected[name]:
            raise Fault(
                f"{place}: {name} {list(array.shape)}; it begins with {list(expected[name])}"
            )
        if name in ("alibi_slopes", "residual_norm") and array.min() < 0:
            raise Fault(f"{place}: {name}: expected numbers of at least 0, got {array.min():.6g}")
    if "residual_norm" in further and len(further["residual_norm"]) > shape.tokens:
        raise Fault(
            f"{place}: residual_norm of {len(further['residual_norm'])} rows, and there are "
            f"{shape.tokens} tokens"
        )
    layer = int(place.rsplit("/", 1)[1])
    masks = {
        "--every-token": args.every_token,
        "--chunk": window_of(args.chunk, layer) > 0,
        "--sliding-window": window_of(args.sliding_window, layer) > 0,
        "alibi_slopes": args.every_token and "alibi_slopes" in further,
    }
    told = [name for name, is_told in masks.items() if is_told]
    if len(told) > 1:
        raise Fault(f"{place}: {' and '.join(told)} exclude each other")


def window_of(told: int | dict[int, int], layer: int) -> int:
    return told if isinstance(told, int) else told[layer]


def widest(types: dict[str, str]) -> str:
    kinds = {types[name] for name in ("q", "k", "v")}
    if len(kinds) == 1 and kinds <= set(STORED):
        return kinds.pop()
    return "float64" if "float64" in kinds else "float32"


def check_shapes(place: str, shapes: dict[str, tuple[int, ...]]) -> None:
    q, k, v = shapes["q"], shapes["k"], shapes["v"]
    told = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    if q[2] != k[2] or k[:2] != v[:2] or q[1] > k[1] or q[0] % k[0]:
        raise Fault(
            f"{place}: {told}: q and k share their columns, k and v their heads and "
            "tokens; q has a multiple of k's heads and no more rows (--order tokens for "
            "[n, H, d])"
        )
    if q[0] > MOST_HEADS:
        raise Fault(f"{place}: q has {q[0]} heads; a dump has at most {MOST_HEADS}")
    if "out" in shapes:
        out = shapes["out"]
        if out[0] != q[0] or out[2] != v[2] or out[1] > k[1]:
            raise Fault(f"{place}: {told}: out has q's heads and v's columns")


def rope_of(args: argparse.Namespace, inv_freq: tuple[Mapping, str] | None) -> Rope | None:
    if inv_freq is None and args.rope_dims is None:
        if args.rope_theta is not None:
            raise Fault(
                "--rope-theta needs --rope-dims, the number of dimensions that are turned, "
                "or an array inv_freq"
            )
        return None
    if args.rope_theta is None or args.rope_layout is None:
        raise Fault("RoPE data needs --rope-theta and --rope-layout (half or interleaved)")
    if inv_freq is not None:
        array = inv_freq[0][inv_freq[1]][0]
        if array.ndim != 1 or not 0 < len(array) <= 65536 or array.dtype.kind != "f":
            raise Fault(
                f"{inv_freq[1]}: expected floating-point [d_rot / 2], got {array.dtype} "
                f"{list(array.shape)}"
            )
        frequencies = array.astype(np.float64)
        if not np.isfinite(frequencies).all():
            raise Fault(f"{inv_freq[1]}: expected finite numbers")
    else:
        frequencies = args.rope_theta ** (-np.arange(0, args.rope_dims, 2) / args.rope_dims)
    return Rope(
        tuple(frequencies.tolist()), args.rope_theta, args.rope_layout, args.rope_attention_scaling
    )


def check_layers(sequences: dict[str, Found], args: argparse.Namespace) -> None:
    """The options that name layers name those that there are."""
    layers = {layer for found in sequences.values() for layer in found.layers}
    if args.n_layers is not None and max(layers) >= args.n_layers:
        raise Fault(
            f"--n-layers {args.n_layers}: there is a layer {max(layers)}; layers are numbered from "
            f"0, so that --n-layers is at least {max(layers) + 1}"
        )
    for option, told in (("--sliding-window", args.sliding_window), ("--chunk", args.chunk)):
        if not isinstance(told, dict):
            continue
        absent = sorted(told.keys() - layers)
        if absent:
            raise Fault(
                f"{option}: there is no layer {absent[0]}; the arrays have "
                f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, sorted(layers)))}"
            )
        unsaid = sorted(layers - told.keys())
        if unsaid:
            raise Fault(f"{option}: nothing is said of layer {unsaid[0]}; add {unsaid[0]}=0")


def token_ids_of(sequence: str, ids: tuple[Mapping, str], tokens: int) -> np.ndarray:
    numbers = np.asarray(ids[0][ids[1]][0]).reshape(-1)
    if len(numbers) != tokens:
        raise Fault(f"sequence {sequence}: {len(numbers)} token_ids for {tokens} tokens")
    if numbers.dtype.kind not in "iu" or not -(2**31) <= numbers.min() <= numbers.max() < 2**31:
        raise Fault(
            f"sequence {sequence}: token_ids: expected integers of 32 bits, got {numbers.dtype}"
        )
    return numbers.astype(np.int32)


def write_dump(
    path: Path, sequences: dict[str, Found], rope: Rope | None, args: argparse.Namespace
) -> None:
    highest = max(layer for found in sequences.values() for layer in found.layers)
    with h5py.File(path, "w") as file:
        file.attrs.update(
            {
                **FORMAT,
                "model": args.model,
                "producer": "import_arrays.py",
                "n_layers": args.n_layers or highest + 1,
                "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            }
        )
        if rope:
            rope.write(file)
        for name, found in sequences.items():
            group = file.create_group(f"sequences/{name}")
            if args.prompt_tokens is not None:
                group.attrs["prompt_tokens"] = args.prompt_tokens
            layers = group.create_group("layers")
            tokens = {
                layer: write_layer(layers, layer, arrays, rope, args)
                for layer, arrays in sorted(found.layers.items())
            }
            if len(set(tokens.values())) != 1:
                raise Fault(
                    f"sequence {name}: expected layers of one number of tokens, got {tokens} "
                    "(tokens by layer)"
                )
            count = next(iter(tokens.values()))
            if args.prompt_tokens is not None and args.prompt_tokens > count:
                raise Fault(
                    f"--prompt-tokens {args.prompt_tokens}: sequence {name} has {count} tokens"
                )
            if found.token_ids:
                group["token_ids"] = token_ids_of(name, found.token_ids, count)
            if any(is_of_second_format(layer) for layer in layers.values()):
                file.attrs["format_version"] = 2


def refuse_inflated(path: Path) -> None:
    """Fault where kvbench would not read the dump: a large tensor, or all but `wo` together, takes
    less than a hundredth of its size in the file."""
    with h5py.File(path) as file:
        tensors: list[h5py.Dataset] = []
        file.visititems(
            lambda _, item: tensors.append(item) if getattr(item, "ndim", 0) == 3 else None
        )
        remedy = "as numbers of a model cannot be; if they are meant, --compression 0"
        for tensor in tensors:
            size, stored = tensor.nbytes, tensor.id.get_storage_size()
            if size > SMALL_TENSOR and size > MOST_COMPRESSED * stored:
                raise Fault(f"{tensor.name}: {size} bytes are compressed to {stored}, {remedy}")
        size = sum(tensor.nbytes for tensor in tensors if not tensor.name.endswith("/wo"))
        stored = path.stat().st_size
        if size > SMALL_DUMP and size > MOST_COMPRESSED * stored:
            raise Fault(f"{size} bytes are compressed to {stored}, {remedy}")


def prove(path: Path, tolerance: float) -> None:
    found = differences(path)
    for place, difference in found.items():
        if not difference <= tolerance:
            raise Fault(
                f"{place}: attention with these q, k, v, scale, window and soft-cap "
                f"differs by {difference:.2g} from out (--tolerance {tolerance:g}); check "
                "--scale, --sliding-window, --logit-softcap, --order and the order of heads"
            )
    if not found:
        note(
            "import_arrays.py",
            "no array out, so nothing proves the scale, the mask and the order of heads",
        )


def parser() -> argparse.ArgumentParser:
    return options(__doc__)


def import_arrays(args: argparse.Namespace) -> None:
    if args.out.exists() and not args.fresh:
        raise Fault(f"{args.out} exists; --fresh replaces it")
    if args.out.is_file() and args.out.stat().st_size > 0 and not h5py.is_hdf5(args.out):
        raise Fault(f"{args.out} is not an HDF5 file and would be replaced; choose another --out")
    absent = [str(path) for path in args.files if not path.is_file()]
    if absent:
        raise Fault(f"no such file: {', '.join(absent)}")
    if not args.out.parent.is_dir():
        raise Fault(f"--out {args.out}: there is no folder {args.out.parent}; make it first")
    if args.out.is_dir():
        raise Fault(f"--out {args.out} is a folder; name a file in it")
    sequences, inv_freq = sort_arrays({path: open_arrays(path) for path in args.files}, args.layer)
    if not any(found.layers for found in sequences.values()):
        raise Fault("no arrays q, k, v")
    check_layers(sequences, args)
    unfinished = args.out.with_suffix(".unfinished")
    try:
        write_dump(unfinished, sequences, rope_of(args, inv_freq), args)
        refuse_inflated(unfinished)
        prove(unfinished, args.tolerance)
        unfinished.replace(args.out)
    finally:
        unfinished.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)

    def work() -> None:
        try:
            import_arrays(args)
        except (OSError, UnicodeError) as error:  # of files and of what is written into the dump
            raise Fault(f"cannot write {args.out}: {error}") from error
        except MemoryError as error:
            raise Fault("out of memory; import fewer layers at once") from error

    return exit_code("import_arrays.py", work)


if __name__ == "__main__":
    sys.exit(main())
