#!/usr/bin/env python3
"""Makes a dump of arrays q, k and v in .npz, .npy, .safetensors or .pt files.

    import_arrays.py layer0.npz --scale 0.125 --model my-model --out mine.h5

Arrays are named q, k, v, optionally out (the model's own attention outputs of the last rows),
after `<layer>/` or `<sequence>/<layer>/` if there are several ("." serves as well as "/", and
`layers/` may stand before the number); an .npy is named as its file is. token_ids and inv_freq are
read too. q [Hq, Nq, d], k [Hkv, n, d], v [Hkv, n, dv]; --order tokens for [n, H, d]; a leading
batch of one is dropped. q and k are post-rotation. The format is in README.md next to this file.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import h5py
import numpy as np
from array_files import SUFFIXES, open_arrays
from command import exit_code, note
from dump_file import (
    CHUNK_ROWS,
    FORMAT,
    STORED,
    TOLERANCE,
    Fault,
    LayerWriter,
    Rope,
    Shape,
    Terms,
    differences,
)

TENSORS = {"q": "q", "query": "q", "k": "k", "key": "k", "v": "v", "value": "v", "out": "out"}
PATTERN = re.compile(
    r"(?:(?:(?P<sequence>(?!layers?[/.])[^/.]+)[/.])?"
    r"(?:layers?[/.])?(?P<layer>\d+)[/.])?(?P<tensor>[A-Za-z_]+)"
)
LARGEST_LAYER = 2**31 - 2
LARGEST_WINDOW = 2**63 - 1
REFUSED = {
    "sinks": "sink logits",
    "s_aux": "sink logits",
    "alibi": "ALiBi's bias",
    "alibi_slopes": "ALiBi's bias",
    "position_bias": "a relative bias",
    "attention_bias": "a bias of the logits",
    "bias": "a bias of the logits",
    "mask": "a mask of its own (it knows causal attention and sliding windows)",
    "attention_mask": "a mask of its own (it knows causal attention and sliding windows)",
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
    missing = [name for name in ("q", "k", "v") if name not in arrays]
    if missing:
        raise Fault(f"{parent.name}/{layer}: no array {', '.join(missing)}")
    rows, types = {}, {}
    for name, (file, key) in arrays.items():
        array, types[name] = file[key]
        rows[name] = heads_first(key, array, args.order)
    check_shapes(f"{parent.name}/{layer}", {name: array.shape for name, array in rows.items()})
    q, k, v = rows["q"], rows["k"], rows["v"]
    if rope and 2 * len(rope.inv_freq) > k.shape[2]:
        raise Fault(
            f"RoPE data turns {2 * len(rope.inv_freq)} dimensions, and {parent.name}/{layer} has "
            f"d = {k.shape[2]}; see --rope-dims or inv_freq"
        )
    out_rows = rows["out"].shape[1] if "out" in rows else 0
    shape = Shape(q.shape[0], k.shape[0], k.shape[1], q.shape[1], q.shape[2], v.shape[2], out_rows)
    writer = LayerWriter(parent, layer, shape, args.dtype or widest(types), args.compression)
    for name, array in rows.items():
        before = shape.tokens - array.shape[1]
        for first in range(0, array.shape[1], CHUNK_ROWS):
            writer.write(name, before + first, array[:, first : first + CHUNK_ROWS])
    writer.finish(Terms(args.scale, window_of(args.sliding_window, layer), args.logit_softcap))
    return shape.tokens


def windows_of(told: str) -> int | dict[int, int]:
    """What --sliding-window says: the window of every layer, or those of some by layer."""
    by_layer: dict[int, int] = {}
    if re.fullmatch(r"[0-9]+", told):
        by_layer[-1] = int(told)
    elif re.fullmatch(r"[0-9]+=[0-9]+(,[0-9]+=[0-9]+)*", told):
        for layer, window in (part.split("=") for part in told.split(",")):
            if int(layer) in by_layer:
                raise argparse.ArgumentTypeError(f"layer {int(layer)} is given twice in '{told}'")
            by_layer[int(layer)] = int(window)
    else:
        raise argparse.ArgumentTypeError(
            f"expected a number, or numbers by layer such as 0=512,5=0, got '{told}'"
        )
    if max(by_layer.values()) > LARGEST_WINDOW:
        raise argparse.ArgumentTypeError(f"expected at most {LARGEST_WINDOW}, got '{told}'")
    return by_layer.get(-1, by_layer)


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
    if isinstance(args.sliding_window, dict):
        absent = sorted(args.sliding_window.keys() - layers)
        if absent:
            raise Fault(
                f"--sliding-window: there is no layer {absent[0]}; the arrays have "
                f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, sorted(layers)))}"
            )
        unsaid = sorted(layers - args.sliding_window.keys())
        if unsaid:
            raise Fault(
                f"--sliding-window: nothing is said of layer {unsaid[0]}; add {unsaid[0]}=0"
            )


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


def integer(least: int, most: int = LARGEST_WINDOW, even: bool = False) -> Callable[[str], int]:
    def read(told: str) -> int:
        kind = "an even integer" if even else "an integer"
        bounds = f"at least {least}" if most == LARGEST_WINDOW else f"from {least} to {most}"
        if (
            not re.fullmatch(r"-?[0-9]+", told)
            or not least <= int(told) <= most
            or (even and int(told) % 2)
        ):
            raise argparse.ArgumentTypeError(f"expected {kind} {bounds}, got {told}")
        return int(told)

    return read


def number(above_zero: bool) -> Callable[[str], float]:
    def read(told: str) -> float:
        try:
            value = float(told)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0 or (above_zero and value == 0):
            bounds = "above 0" if above_zero else "of at least 0"
            raise argparse.ArgumentTypeError(f"expected a finite number {bounds}, got {told}")
        return value

    return read


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("files", type=Path, nargs="+", help=SUFFIXES)
    p.add_argument("--out", type=Path, required=True, help="the dump to write (.h5)")
    p.add_argument("--model", required=True, help="the model's name")
    p.add_argument(
        "--scale",
        type=number(above_zero=True),
        required=True,
        help="what multiplies <q, k> as stored, usually 1 / sqrt(d)",
    )
    p.add_argument(
        "--sliding-window",
        type=windows_of,
        default=0,
        help="tokens a row sees, 0 for all; or by layer: 0=512,5=0",
    )
    p.add_argument(
        "--logit-softcap", type=number(above_zero=False), default=0.0, help="0 for none (default)"
    )
    p.add_argument(
        "--layer",
        type=integer(0, LARGEST_LAYER),
        default=0,
        help="layer of arrays without one (default 0)",
    )
    p.add_argument(
        "--n-layers",
        type=integer(1, LARGEST_LAYER + 1),
        help="layers of the model (default: the highest + 1)",
    )
    p.add_argument(
        "--order",
        choices=["heads", "tokens"],
        default="heads",
        help="arrays are [heads, tokens, d] (default) or [tokens, heads, d]",
    )
    p.add_argument("--dtype", choices=list(STORED), help="stored elements (default: the arrays')")
    p.add_argument("--prompt-tokens", type=integer(0), help="the attribute prompt_tokens")
    p.add_argument("--rope-theta", type=number(above_zero=True))
    p.add_argument(
        "--rope-dims",
        type=integer(2, 2 * 65536, even=True),
        help="dimensions turned, an even number; for arrays without inv_freq",
    )
    p.add_argument("--rope-layout", choices=["half", "interleaved"])
    p.add_argument("--rope-attention-scaling", type=number(above_zero=True), default=1.0)
    p.add_argument(
        "--tolerance",
        type=number(above_zero=False),
        default=TOLERANCE,
        help=f"largest relative difference from out (default {TOLERANCE:g})",
    )
    p.add_argument(
        "--compression", type=integer(0, 9), default=4, help="gzip level, 0 for none (default 4)"
    )
    p.add_argument("--fresh", action="store_true", help="replace an existing dump")
    return p


def import_arrays(args: argparse.Namespace) -> None:
    if args.out.exists() and not args.fresh:
        raise Fault(f"{args.out} exists; --fresh replaces it")
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
