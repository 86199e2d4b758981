"""The token sequences that an export reads: cut from texts, or given as ids."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from format.dump_file import Fault
from transformers import AutoTokenizer, PretrainedConfig

from export.attention_capture import most_positions


@dataclass(frozen=True)
class Sequence:
    name: str
    ids: np.ndarray  # int32 [n]
    description: str


def source(model: str, revision: str | None, trust_remote_code: bool) -> tuple[str, dict]:
    """Arguments of transformers' from_pretrained."""
    options: dict = {"trust_remote_code": trust_remote_code}
    if revision:
        options["revision"] = revision
    path = Path(model)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise Fault(f"{path}: no such file")
        return str(path.parent), {**options, "gguf_file": path.name}
    return model, options


def tokenizer_of(
    model: str, revision: str | None = None, trust_remote_code: bool = False, remedy: str = ""
) -> Any:
    """The model's tokenizer; a Fault, which ends with the remedy, if it has none."""
    where, options = source(model, revision, trust_remote_code)
    try:
        return AutoTokenizer.from_pretrained(where, **options)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise Fault(f"{model}: no tokenizer that transformers loads ({error}){remedy}") from error


def cut(name: str, ids: np.ndarray, args: argparse.Namespace, what: str) -> list[Sequence]:
    count = args.tokens or len(ids) - args.start
    needed = args.start + count * args.sequences
    if needed > len(ids) or count < 4:
        raise Fault(
            f"{what}: {len(ids)} tokens, and {max(needed, args.start + 4)} are asked for "
            "(--start, --tokens, --sequences)"
        )
    starts = [args.start + place * count for place in range(args.sequences)]
    return [
        Sequence(
            name if len(starts) == 1 else f"{name}-{place}",
            ids[first : first + count].astype(np.int32),
            f"{what} tokens {first}..{first + count}",
        )
        for place, first in enumerate(starts)
    ]


def given_ids(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".npy":
        rows = np.load(path)
        if rows.ndim not in (1, 2) or rows.dtype.kind not in "iu":
            raise Fault(
                f"{path}: {rows.dtype} {list(rows.shape)}; token ids are integers [n] or [m, n]"
            )
        return (
            {path.stem: rows}
            if rows.ndim == 1
            else {f"{path.stem}-{place}": row for place, row in enumerate(rows)}
        )
    try:
        with h5py.File(path) as dump:
            ids = {
                name: group["token_ids"][:]
                for name, group in dump["sequences"].items()
                if "token_ids" in group
            }
    except (OSError, KeyError) as error:
        raise Fault(f"{path}: neither .npy nor a dump: {error}") from error
    if not ids:
        raise Fault(f"{path}: no sequence holds token_ids")
    return ids


def read_sequences(args: argparse.Namespace, config: PretrainedConfig) -> list[Sequence]:
    """The token sequences that the options name, checked for a model of this configuration."""
    found: list[Sequence] = []
    if args.token_ids:
        for name, ids in given_ids(args.token_ids).items():
            found += cut(name, ids, args, args.token_ids.name)
    else:
        tokenizer = tokenizer_of(
            args.model,
            args.revision,
            args.trust_remote_code,
            remedy="; give --token-ids instead of --text",
        )
        for path in args.text:
            ids = tokenizer(path.read_text(encoding="utf-8"), verbose=False)["input_ids"]
            found += cut(path.stem, np.asarray(ids), args, path.name)
    check_sequences(found, args, config)
    return found


def check_sequences(
    found: list[Sequence], args: argparse.Namespace, config: PretrainedConfig
) -> None:
    vocabulary, positions = config.vocab_size, most_positions(config)
    for sequence in found:
        if positions and len(sequence.ids) > positions:
            raise Fault(
                f"{sequence.name}: {len(sequence.ids)} tokens, and the model is made for "
                f"{positions} (--tokens)"
            )
        if sequence.ids.min() < 0 or sequence.ids.max() >= vocabulary:
            raise Fault(
                f"{sequence.description}: token ids from {sequence.ids.min()} to "
                f"{sequence.ids.max()}; the model knows 0 to {vocabulary - 1}"
            )
        if args.prompt_tokens and args.prompt_tokens >= len(sequence.ids):
            raise Fault(
                f"--prompt-tokens {args.prompt_tokens}: {sequence.name} has "
                f"{len(sequence.ids)} tokens, and one at least comes after the prompt"
            )
    if len({sequence.name for sequence in found}) < len(found):
        raise Fault("two texts have the same name; sequences are named for their files")
