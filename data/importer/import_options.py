"""The command line of import_arrays.py."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from format.dump_file import STORED, TOLERANCE

from importer.array_files import BITS, SUFFIXES

MAX_LAYERS = 1024  # layers of a sequence, as the program has it
LARGEST_LAYER = 2**31 - 2
LARGEST_WINDOW = 2**63 - 1


T = TypeVar("T")


@dataclass(frozen=True)
class ByLayer(Generic[T]):
    """An option's values by layer number, and `rest` for the other layers (None: none)."""

    layers: dict[int, T]
    rest: T | None = None

    def of(self, layer: int) -> T | None:
        return self.layers.get(layer, self.rest)


def by_layer(read: Callable[[str], T]) -> Callable[[str], ByLayer[T]]:
    """VALUE for every layer, or LAYER=VALUE and FIRST-LAST=VALUE, separated by commas; a VALUE
    among them is that of the other layers."""

    def read_all(text: str) -> ByLayer[T]:
        layers: dict[int, T] = {}
        rest = []
        for part in text.split(","):
            place, is_by_layer, value = part.rpartition("=")
            if not is_by_layer:
                rest.append(read(value))
                continue
            match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", place)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if not first <= last <= LARGEST_LAYER or last - first >= MAX_LAYERS:
                raise argparse.ArgumentTypeError(
                    f"expected a layer or a range of layers before =, as in 0=1,2-5=0, got '{part}'"
                )
            for layer in range(first, last + 1):
                if layer in layers:
                    raise argparse.ArgumentTypeError(f"layer {layer} is given twice in '{text}'")
                layers[layer] = read(value)
        if len(rest) > 1:
            raise argparse.ArgumentTypeError(
                f"expected one value, or values by layer such as 0=1,5=0, got '{text}'"
            )
        return ByLayer(layers, rest[0] if rest else None)

    return read_all


def choice(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"expected {' or '.join(words)}, got '{text}'")
        return text

    return read


def integer(least: int, most: int = LARGEST_WINDOW, even: bool = False) -> Callable[[str], int]:
    def read(text: str) -> int:
        kind = "an even integer" if even else "an integer"
        is_whole = re.fullmatch(r"-?[0-9]+", text)
        above = is_whole and int(text) > most
        is_bounded = above or most < LARGEST_WINDOW
        bounds = f"from {least} to {most}" if is_bounded else f"at least {least}"
        if not is_whole or not least <= int(text) <= most or (even and int(text) % 2):
            raise argparse.ArgumentTypeError(f"expected {kind} {bounds}, got {text}")
        return int(text)

    return read


def number(above_zero: bool) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0 or (above_zero and value == 0):
            bounds = "above 0" if above_zero else "of at least 0"
            raise argparse.ArgumentTypeError(f"expected a finite number {bounds}, got {text}")
        return value

    return read


BY_LAYER = """\
VALUE of --scale, --sliding-window, --logit-softcap, --chunk, --value-in-key, --kv-layer, --kv-heads
and of the options --rope-.. may be given by layer: 0=512,5=0 or 0-4=512,5=0, or 512,5=0, where 512
is for the other layers."""


def parser(described: str | None) -> argparse.ArgumentParser:
    """The command line of import_arrays.py, which `described` says what it does."""
    p = argparse.ArgumentParser(
        description=described, epilog=BY_LAYER, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "files", type=Path, nargs="+", help=f"{SUFFIXES}, or the folder of a run of vLLM-Hook"
    )
    p.add_argument("--out", type=Path, required=True, help="the dump to write (.h5)")
    p.add_argument("--model", required=True, help="the model's name")
    window = by_layer(integer(0))
    p.add_argument(
        "--scale",
        type=by_layer(number(above_zero=True)),
        help="factor of <q, k>, usually 1 / sqrt(d); needed unless arrays have it",
    )
    p.add_argument("--sliding-window", type=window, help="tokens a row sees, 0 for all (default)")
    p.add_argument(
        "--logit-softcap", type=by_layer(number(above_zero=False)), help="0 for none (default)"
    )
    p.add_argument(
        "--chunk",
        type=window,
        help="tokens of a chunk beyond which no row sees, 0 for none (default)",
    )
    p.add_argument(
        "--every-token", action="store_true", help="every row sees every token, later ones too"
    )
    p.add_argument(
        "--value-in-key",
        type=by_layer(integer(0)),
        metavar="N",
        help="values are the first N columns of k, and the array v is left out; 0: v is stored",
    )
    p.add_argument(
        "--kv-layer",
        type=by_layer(integer(0, LARGEST_LAYER)),
        metavar="L=M",
        help="layer L has queries alone and reads keys and values of layer M",
    )
    p.add_argument(
        "--kv-heads",
        type=by_layer(integer(1)),
        metavar="N",
        help="KV heads of the model, where keys and values were repeated for each query head: one "
        "of each group of equal heads is kept",
    )
    p.add_argument(
        "--tokens",
        type=integer(1),
        help="tokens that k and v hold; unused places after them (static cache) are cut",
    )
    p.add_argument(
        "--layer",
        type=integer(0, LARGEST_LAYER),
        default=0,
        help="layer of arrays whose names have none (default 0)",
    )
    p.add_argument(
        "--n-layers",
        type=integer(1, LARGEST_LAYER + 1),
        help="layers of the model (default: the highest + 1)",
    )
    p.add_argument(
        "--order",
        choices=["heads", "tokens"],
        help="arrays are [heads, tokens, d] (default) or [tokens, heads, d]",
    )
    p.add_argument("--dtype", choices=list(STORED), help="stored elements (default: the arrays')")
    p.add_argument(
        "--bits",
        choices=list(BITS),
        help="the float type whose bits arrays of uint16 or uint8 contain",
    )
    p.add_argument("--prompt-tokens", type=integer(0), help="the attribute prompt_tokens")
    p.add_argument("--rope-theta", type=by_layer(number(above_zero=True)))
    p.add_argument(
        "--rope-dims",
        type=by_layer(integer(0, 2 * 65536, even=True)),
        help="dimensions turned, an even number, 0 for none; for layers without inv_freq",
    )
    p.add_argument(
        "--rope-layout", type=by_layer(choice("half", "interleaved")), help="half or interleaved"
    )
    p.add_argument("--rope-attention-scaling", type=by_layer(number(above_zero=True)))
    p.add_argument(
        "--tolerance",
        type=number(above_zero=False),
        default=TOLERANCE,
        help=f"largest relative difference from out beyond the rounding of its elements (default "
        f"{TOLERANCE:g})",
    )
    p.add_argument(
        "--compression", type=integer(0, 9), default=4, help="gzip level, 0 for none (default 4)"
    )
    p.add_argument("--fresh", action="store_true", help="replace an existing dump")
    return p
