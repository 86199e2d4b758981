#!/usr/bin/env python3
"""A language model's divergence over a compressed cache, with attention error and memory.

    closed_loop.py MODEL --text book.txt --config sweep.json --out results/loop

The model reads each text once; kvbench compresses the cache of every layer after the prompt,
setting by setting of the sweep; and the model decodes the last tokens over it, teacher-forced.
Next-token distributions are compared with those of the full cache. MODEL is a folder, a .gguf file,
or a name on the Hugging Face hub. The folder OUT gets loop.json, which LOOP.md next to
this file explains. The same command resumes after an interruption.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from command import INTERRUPTED, MODEL_PACKAGES, exit_code, needed, note, refuse
from export.model_options import add_model_options, option_faults


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_model_options(p, compute_dtype="float32")
    p.add_argument(
        "--config", type=Path, required=True, help="a sweep file; its dumps are not read"
    )
    p.add_argument("--out", type=Path, required=True, help="folder for loop.json and its files")
    p.add_argument("--tokens", type=int, default=2048, help="tokens of each text (default 2048)")
    p.add_argument(
        "--decisions",
        choices=["replayed", "live"],
        default="replayed",
        help="replayed (default): made on the uncompressed model's queries; live: the method sees "
        "those of the compressed model",
    )
    p.add_argument(
        "--prompt-pieces",
        type=int,
        metavar="N",
        help="with --decisions live: the model reads the prompt in pieces of N tokens, and after "
        "each the cache is compressed to the setting's budget (default: the prompt is read whole)",
    )
    p.add_argument(
        "--layers",
        help="compressed layers: all (default: those of the sweep's select), 0,1,15, 0-7, or "
        "one-at-a-time: each alone, for its sensitivity",
    )
    p.add_argument("--fresh", action="store_true", help="discard the closed loop that OUT holds")
    return p


def has_empty_prompt(config: Path) -> bool:
    """Whether the sweep says so itself; its other faults are kvbench's to tell."""
    try:
        replay = json.loads(config.read_text(encoding="utf-8"))["replay"]
        return isinstance(replay["prompt_tokens"], (int, float)) and replay["prompt_tokens"] == 0
    except (OSError, ValueError, LookupError, TypeError):
        return False


def check_options(args: argparse.Namespace) -> None:
    faults = option_faults(args, {"prompt_pieces": 1}, files=(args.config,))
    if args.prompt_pieces is not None and args.decisions != "live":
        faults.append("--prompt-pieces: needs --decisions live, which decides as the model reads")
    if has_empty_prompt(args.config):
        faults.append(
            f"--config {args.config}: /replay/prompt_tokens: must be 1 or more in a closed loop, "
            "got 0"
        )
    if args.out.exists() and not args.out.is_dir():
        faults.append(f"--out {args.out}: is not a folder; choose another")
    refuse(faults)


def run(args: argparse.Namespace) -> None:
    check_options(args)
    with needed(
        f"a closed loop needs the Python package kvbench (pip install .) and {MODEL_PACKAGES}"
    ):
        from loop import loop_run  # with torch and kvbench, which options and --help do without
    loop_run.run(args)


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        return exit_code("closed_loop.py", lambda: run(args))
    except KeyboardInterrupt:
        note("closed_loop.py", "interrupted; run the same command again to go on")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
