"""Options of programs that read texts with a model: which model, which texts, how it computes."""

import argparse
from pathlib import Path

DTYPES = ["auto", "float32", "bfloat16", "float16", "float64"]


def add_model_options(p: argparse.ArgumentParser, compute_dtype: str) -> None:
    """`compute_dtype`: the default; auto is the model's own."""
    p.add_argument("model", help="folder, .gguf file, or name on the Hugging Face hub")
    text = p.add_mutually_exclusive_group(required=True)
    text.add_argument("--text", type=Path, nargs="+", help="UTF-8 text files, a sequence each")
    text.add_argument(
        "--token-ids",
        type=Path,
        help="instead of text: a dump, for its sequences' ids, or .npy [n] or [m, n]",
    )
    p.add_argument("--start", type=int, default=0, help="first token of each text (default 0)")
    p.add_argument(
        "--compute-dtype",
        choices=DTYPES,
        default=compute_dtype,
        help=f"type that the model computes in (default {compute_dtype}); auto: its own",
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
        help="store the 1-norms of each value after the output projection (wo_v_l1), by "
        "which criticalkv ranks with norm wo_l1",
    )
    p.add_argument(
        "--wo",
        action="store_true",
        help="store each layer's output projection and the norms of the residual stream that its "
        "output is added to, for records of whole layers",
    )
    p.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    p.add_argument("--revision", help="branch, tag or commit on the hub")
    p.add_argument("--trust-remote-code", action="store_true", help="run the model folder's code")


def option_faults(
    args: argparse.Namespace, least: dict[str, int], files: tuple[Path, ...] = ()
) -> list[str]:
    """Numbers below what they may be, by option with underscores, and files that are not there:
    the texts' and `files`."""
    faults = []
    for name, smallest in {"tokens": 4, "start": 0, "chunk": 0, **least}.items():
        value = getattr(args, name)
        if value is not None and value < smallest:
            faults.append(f"--{name.replace('_', '-')} {value}: at least {smallest}")
    for path in [*files, *(args.text or []), *([args.token_ids] if args.token_ids else [])]:
        if not path.is_file():
            faults.append(f"{path}: no such file")
    return faults
