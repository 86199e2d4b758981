"""The command line of import_arrays.py."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from pathlib import Path

from array_files import SUFFIXES
from dump_file import STORED, TOLERANCE

LARGEST_LAYER = 2**31 - 2
LARGEST_WINDOW = 2**63 - 1


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


def parser(described: str | None) -> argparse.ArgumentParser:
    """The command line of import_arrays.py, which `described` says what it does."""
    p = argparse.ArgumentParser(
        description=described, formatter_class=argparse.RawDescriptionHelpFormatter
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
        "--chunk",
        type=windows_of,
        default=0,
        help="tokens of a chunk beyond which no row sees, 0 for none; or by layer: 0=512,5=0",
    )
    p.add_argument(
        "--every-token", action="store_true", help="every row sees every token, later ones too"
    )
    p.add_argument(
        "--value-in-key",
        type=integer(1),
        default=0,
        metavar="N",
        help="values are the first N columns of k, and the array v is left out",
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
