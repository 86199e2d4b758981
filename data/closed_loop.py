#!/usr/bin/env python3
"""What a language model says over a compressed cache, beside attention error and memory.

    closed_loop.py MODEL --text book.txt --config sweep.json --out results/loop

The model reads each text once; kvbench compresses the cache of every layer after the prompt,
setting by setting of the sweep; and the model decodes the last tokens over it, teacher-forced.
Next-token distributions are compared with those of the full cache. MODEL is a folder, a .gguf file,
or a name on the Hugging Face hub. The folder OUT gets loop.json, whose members README.md next to
this file explains; interrupted, the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dump_file import Fault

INTERRUPTED = 5  # as kvbench run


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("model", help="folder, .gguf file, or name on the Hugging Face hub")
    p.add_argument(
        "--config", type=Path, required=True, help="a sweep file; its dumps are not read"
    )
    p.add_argument("--out", type=Path, required=True, help="folder for loop.json and what it needs")
    text = p.add_mutually_exclusive_group(required=True)
    text.add_argument("--text", type=Path, nargs="+", help="UTF-8 text files, a sequence each")
    text.add_argument(
        "--token-ids",
        type=Path,
        help="instead of text: a dump, for its sequences' ids, or .npy [n] or [m, n]",
    )
    p.add_argument("--tokens", type=int, default=2048, help="of each text (default 2048)")
    p.add_argument("--start", type=int, default=0, help="first token of each text (default 0)")
    p.add_argument(
        "--decisions",
        choices=["replayed", "live"],
        default="replayed",
        help="replayed (default): made on the uncompressed model's queries; live: the method sees "
        "those of the compressed model",
    )
    p.add_argument(
        "--layers",
        help="compressed layers: all (default: those of the sweep's select), 0,1,15, 0-7, or "
        "one-at-a-time: each alone, for its sensitivity",
    )
    p.add_argument(
        "--compute-dtype",
        choices=["auto", "float32", "bfloat16", "float16", "float64"],
        default="float32",
        help="what the model computes in (default float32); auto: its own",
    )
    p.add_argument(
        "--chunk",
        type=int,
        default=1024,
        help="tokens per run of the model while it reads, which bounds memory; 0: all at once",
    )
    p.add_argument(
        "--wo-norms",
        action="store_true",
        help="store what criticalkv ranks by with norm wo_l1 (models with o_proj)",
    )
    p.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    p.add_argument("--revision", help="branch, tag or commit on the hub")
    p.add_argument("--trust-remote-code", action="store_true", help="run the model folder's code")
    p.add_argument("--fresh", action="store_true", help="discard what OUT holds of a closed loop")
    return p


def check_options(args: argparse.Namespace) -> None:
    faults = [
        f"--{name} {getattr(args, name)}: at least {least}"
        for name, least in (("tokens", 4), ("start", 0), ("chunk", 0))
        if getattr(args, name) < least
    ]
    for path in [args.config, *(args.text or []), *([args.token_ids] if args.token_ids else [])]:
        if not path.is_file():
            faults.append(f"{path}: no such file")
    if args.out.exists() and not args.out.is_dir():
        faults.append(f"--out {args.out}: is not a folder; choose another")
    if faults:
        raise Fault("\n".join(faults))


def run(args: argparse.Namespace) -> None:
    try:
        import loop_run  # with torch and kvbench, which options and --help do without
    except ModuleNotFoundError as missing:
        raise Fault(
            f"{missing}; a closed loop needs what requirements.txt next to this file names, and "
            "the Python package kvbench: pip install -r data/requirements.txt ."
        ) from missing
    loop_run.run(args)


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        check_options(args)
        run(args)
    except Fault as fault:
        print(f"closed_loop.py: {fault}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("closed_loop.py: interrupted; run the same command again to go on", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
