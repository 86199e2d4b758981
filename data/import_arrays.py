#!/usr/bin/env python3
"""Makes a dump of arrays q, k and v in .npz, .safetensors or .pt files.

    import_arrays.py layer0.npz --scale 0.125 --model my-model --out mine.h5

Arrays are named q, k, v, optionally out (the model's own attention outputs of the last rows),
after `<layer>/` or `<sequence>/<layer>/` if there are several ("." serves as well as "/", and
`layers/` may stand before the number); token_ids and inv_freq are read too. q [Hq, Nq, d],
k [Hkv, n, d], v [Hkv, n, dv]; --order tokens for [n, H, d]; a leading batch of one is dropped. q
and k are post-rotation. The format is in README.md next to this file.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import h5py
import numpy as np
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


class NumpyArrays(Mapping):
    """The arrays of an .npz, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._file = np.load(path)

    def __getitem__(self, name: str) -> tuple[np.ndarray, str]:
        array = self._file[name]
        return array, array.dtype.name

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.files)

    def __len__(self) -> int:
        return len(self._file.files)


class TorchTensors(Mapping):
    """The tensors of a .safetensors or .pt; bfloat16 becomes the float32 of the same value."""

    def __init__(self, path: Path) -> None:
        try:
            import safetensors
            import torch
        except ImportError as error:
            raise Fault(
                f"{path}: reading it needs torch and safetensors: "
                "pip install -r data/requirements.txt"
            ) from error
        if path.suffix == ".safetensors":
            self._file = safetensors.safe_open(path, framework="pt")
            self._names = list(self._file.keys())
            self._get = self._file.get_tensor
        else:
            held = dict(_flat(torch.load(path, map_location="cpu", weights_only=True, mmap=True)))
            self._names, self._get = list(held), held.__getitem__

    def __getitem__(self, name: str) -> tuple[np.ndarray, str]:
        tensor = self._get(name).detach()
        dtype = str(tensor.dtype).removeprefix("torch.")
        return (tensor.float() if dtype == "bfloat16" else tensor).numpy(), dtype

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _flat(held: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(held, dict):
        for name, value in held.items():
            yield from _flat(value, f"{prefix}/{name}" if prefix else str(name))
    elif isinstance(held, (list, tuple)):
        for place, value in enumerate(held):
            yield from _flat(value, f"{prefix}/{place}" if prefix else str(place))
    else:
        yield prefix, held


@dataclass
class Found:
    """Where the arrays of one sequence are: file and name within it."""

    layers: dict[int, dict[str, tuple[Mapping, str]]] = field(default_factory=dict)
    token_ids: tuple[Mapping, str] | None = None


def open_arrays(path: Path) -> Mapping:
    try:
        if path.suffix == ".npz":
            return NumpyArrays(path)
        if path.suffix in (".safetensors", ".pt", ".pth"):
            return TorchTensors(path)
    except Fault:
        raise
    except Exception as error:  # each library has exceptions of its own
        raise Fault(f"{path}: cannot be read: {error}") from error
    raise Fault(f"{path}: .npz, .safetensors or .pt")


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
    parent: h5py.Group, layer: int, arrays: dict[str, tuple[Mapping, str]], args: argparse.Namespace
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
    out_rows = rows["out"].shape[1] if "out" in rows else 0
    shape = Shape(q.shape[0], k.shape[0], k.shape[1], q.shape[1], q.shape[2], v.shape[2], out_rows)
    writer = LayerWriter(parent, layer, shape, args.dtype or widest(types), args.compression)
    for name, array in rows.items():
        before = shape.tokens - array.shape[1]
        for first in range(0, array.shape[1], CHUNK_ROWS):
            writer.write(name, before + first, array[:, first : first + CHUNK_ROWS])
    writer.finish(Terms(args.scale, window_of(args.sliding_window, layer), args.logit_softcap))
    return shape.tokens


def window_of(told: str, layer: int) -> int:
    """The window of a layer: told is a number, or numbers by layer such as 0=512,5=0."""
    if told.isdigit():
        return int(told)
    if not re.fullmatch(r"\d+=\d+(,\d+=\d+)*", told):
        raise Fault(f"--sliding-window {told}: a number, or numbers by layer such as 0=512,5=0")
    pairs = (part.split("=") for part in told.split(","))
    by_layer = {int(number): int(window) for number, window in pairs}
    if layer not in by_layer:
        raise Fault(f"--sliding-window {told}: layer {layer} is missing")
    return by_layer[layer]


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
        frequencies = inv_freq[0][inv_freq[1]][0].astype(np.float64)
    else:
        frequencies = args.rope_theta ** (-np.arange(0, args.rope_dims, 2) / args.rope_dims)
    return Rope(
        tuple(frequencies.tolist()), args.rope_theta, args.rope_layout, args.rope_attention_scaling
    )


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
            if args.prompt_tokens:
                group.attrs["prompt_tokens"] = args.prompt_tokens
            layers = group.create_group("layers")
            tokens = {
                layer: write_layer(layers, layer, arrays, args)
                for layer, arrays in sorted(found.layers.items())
            }
            if len(set(tokens.values())) != 1:
                raise Fault(
                    f"sequence {name}: its layers have {tokens} tokens; one number, and at "
                    "least one layer, is wanted"
                )
            if found.token_ids:
                ids = np.asarray(found.token_ids[0][found.token_ids[1]][0]).reshape(-1)
                if len(ids) != next(iter(tokens.values())):
                    raise Fault(
                        f"sequence {name}: {len(ids)} token_ids for "
                        f"{next(iter(tokens.values()))} tokens"
                    )
                group["token_ids"] = ids.astype(np.int32)


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
        print(
            "import_arrays.py: no array out, so nothing proves the scale, the mask and the "
            "order of heads",
            file=sys.stderr,
        )


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("files", type=Path, nargs="+", help=".npz, .safetensors or .pt")
    p.add_argument("--out", type=Path, required=True, help="the dump to write (.h5)")
    p.add_argument("--model", required=True, help="the model's name")
    p.add_argument(
        "--scale",
        type=float,
        required=True,
        help="what multiplies <q, k> as stored, usually 1 / sqrt(d)",
    )
    p.add_argument(
        "--sliding-window", default="0", help="tokens a row sees, 0 for all; or by layer: 0=512,5=0"
    )
    p.add_argument("--logit-softcap", type=float, default=0.0, help="0 for none (default)")
    p.add_argument("--layer", type=int, default=0, help="layer of arrays without one (default 0)")
    p.add_argument("--n-layers", type=int, help="layers of the model (default: the highest + 1)")
    p.add_argument(
        "--order",
        choices=["heads", "tokens"],
        default="heads",
        help="arrays are [heads, tokens, d] (default) or [tokens, heads, d]",
    )
    p.add_argument("--dtype", choices=list(STORED), help="stored elements (default: the arrays')")
    p.add_argument("--prompt-tokens", type=int, help="the attribute prompt_tokens")
    p.add_argument("--rope-theta", type=float)
    p.add_argument("--rope-dims", type=int, help="dimensions turned, if there is no inv_freq")
    p.add_argument("--rope-layout", choices=["half", "interleaved"])
    p.add_argument("--rope-attention-scaling", type=float, default=1.0)
    p.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        help=f"largest relative difference from out (default {TOLERANCE:g})",
    )
    p.add_argument("--compression", type=int, default=4, help="gzip level, 0 for none (default 4)")
    p.add_argument("--fresh", action="store_true", help="replace an existing dump")
    return p


def import_arrays(args: argparse.Namespace) -> None:
    if args.out.exists() and not args.fresh:
        raise Fault(f"{args.out} exists; --fresh replaces it")
    absent = [str(path) for path in args.files if not path.is_file()]
    if absent:
        raise Fault(f"no such file: {', '.join(absent)}")
    sequences, inv_freq = sort_arrays({path: open_arrays(path) for path in args.files}, args.layer)
    if not any(found.layers for found in sequences.values()):
        raise Fault("no arrays q, k, v")
    unfinished = args.out.with_suffix(".unfinished")
    try:
        write_dump(unfinished, sequences, rope_of(args, inv_freq), args)
        prove(unfinished, args.tolerance)
        unfinished.replace(args.out)
    finally:
        unfinished.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        import_arrays(args)
    except Fault as fault:
        print(f"import_arrays.py: {fault}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
