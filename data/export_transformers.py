#!/usr/bin/env python3
"""Dumps the queries, keys and values of a causal language model that transformers loads.

    export_transformers.py MODEL --text book.txt --tokens 4096 --out book.h5

MODEL is a folder, a .gguf file, or a name on the Hugging Face hub. The model reads the text once;
every chosen layer's post-rotation q, k and v are written as it attends with them, with the outputs
of the last rows. Each layer's outputs are recomputed from q, k and v before the dump gets its name;
a model whose attention has a term that the format cannot hold is refused by name. The
format is in FORMAT.md, and the supported models are in README.md, next to this file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from command import MODEL_PACKAGES, exit_code, needed, packages, refuse

with packages("export_transformers.py", ".venv-model"):
    from export.model_options import add_model_options, option_faults
    from format.dump_file import STORED


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=__doc__, add_help=True, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_model_options(p, compute_dtype="auto")
    p.add_argument("--out", type=Path, required=True, help="the dump to write (.h5)")
    p.add_argument("--tokens", type=int, help="tokens per sequence (default: all there are)")
    p.add_argument(
        "--sequences",
        type=int,
        default=1,
        help="consecutive sequences of --tokens tokens from each text (default 1)",
    )
    p.add_argument("--prompt-tokens", type=int, help="the attribute prompt_tokens")
    p.add_argument(
        "--evidence",
        type=Path,
        help="the .json that make_needle.py wrote with these --token-ids: the tokens that an "
        "answer needs, the rows that use them, and the prompt's length without --prompt-tokens",
    )
    p.add_argument("--layers", default="all", help="all, or 0-based: 0,1,15 or 0-7,31")
    p.add_argument("--queries", default="all", help="all, or last:N (default all)")
    p.add_argument(
        "--out-rows",
        type=int,
        default=64,
        help="last rows whose outputs are stored as proof (default 64)",
    )
    p.add_argument(
        "--materialised",
        action="store_true",
        help="store every head's keys and values, not the latents that the model caches (DeepSeek)",
    )
    p.add_argument(
        "--dtype",
        choices=list(STORED),
        help="stored elements (default: those that the model computes with)",
    )
    p.add_argument(
        "--round",
        action="store_true",
        help="round q, k, v to --dtype before attention, so that what is stored is "
        "exactly what the model attended with",
    )
    p.add_argument(
        "--repeat",
        action="store_true",
        help="store queries and keys of a pass in which the model repeats the prompt, by which "
        "kvzip ranks (q_repeat, k_repeat); reads about three times as many tokens",
    )
    p.add_argument(
        "--repeat-part",
        type=int,
        default=2000,
        help="tokens of the prompt that are repeated at a time (default 2000)",
    )
    p.add_argument(
        "--repeat-from",
        type=int,
        default=0,
        help="first token that is repeated; those before it, a system prompt, kvzip keeps "
        "(default 0)",
    )
    p.add_argument("--compression", type=int, default=4, help="gzip level, 0 for none (default 4)")
    p.add_argument("--fresh", action="store_true", help="replace an existing dump and its parts")
    return p


def check_options(args: argparse.Namespace) -> None:
    faults = option_faults(
        args,
        {"sequences": 1, "out_rows": 1, "prompt_tokens": 1, "repeat_part": 1, "repeat_from": 0},
    )
    if args.sequences > 1 and args.tokens is None:
        faults.append("--sequences needs --tokens")
    if args.evidence and not args.evidence.is_file():
        faults.append(f"{args.evidence}: no such file")
    if args.evidence and (args.token_ids is None or args.sequences > 1):
        faults.append("--evidence needs --token-ids, the tokens of its one sequence")
    if args.round and args.dtype is None:
        faults.append("--round needs --dtype, the type to round to")
    if not 0 <= args.compression <= 9:
        faults.append(f"--compression {args.compression}: 0 to 9")
    if args.out.suffix not in (".h5", ".hdf5"):
        faults.append(f"--out {args.out}: name it .h5")
    if args.out.exists() and not args.fresh:
        faults.append(f"{args.out} exists; --fresh replaces it")
    if not args.out.parent.is_dir():
        faults.append(f"{args.out.parent}: no such folder")
    refuse(faults)


def export(args: argparse.Namespace) -> None:
    check_options(args)
    with needed(MODEL_PACKAGES):
        from export import model_export  # with torch, which options and --help do without
    model_export.export(args)


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    return exit_code("export_transformers.py", lambda: export(args))


if __name__ == "__main__":
    sys.exit(main())
