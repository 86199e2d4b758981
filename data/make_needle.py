#!/usr/bin/env python3
"""Puts a sentence into a text at a depth, and asks for it at the end: token ids, and evidence.

    make_needle.py make MODEL --text book.txt --needle " The password is 7481." --depth 0.5 \\
        --question " What is the password? It is" --answer " 7481" --tokens 2048 --out needle
    export_transformers.py MODEL --token-ids needle.npy --evidence needle.json --out needle.h5

`make` writes needle.npy, the token ids, and needle.json: the needle's tokens, the rows that ask
for them (those that predict the answer's tokens, or without one the last row of the question), and
the prompt's length, that of the text before the question. The needle follows the last
sentence that ends before the depth. `make_needle.py mark DUMP --evidence needle.json` writes the
evidence into a dump of these tokens that is there already. MODEL
is a folder, a .gguf file, or a name on the Hugging Face hub; only its tokenizer is needed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from command import MODEL_PACKAGES, exit_code, needed, packages, refuse

with packages("make_needle.py"):
    import h5py
    import numpy as np
    from fault import Fault
    from format.dump_file import kv_group
    from format.evidence import read_evidence

SENTENCE_ENDS = (".", "!", "?", "\n")


@dataclass
class Needle:
    """A text with a sentence in it, in tokens. Spans are of first and last token, inclusive."""

    ids: list[int]
    evidence: list[list[int]]
    rows: list[int]  # that ask
    prompt_tokens: int


@dataclass
class Parts:
    """Token ids of what the text is made of; `start` stands before all else."""

    start: list[int]
    text: list[int]
    needle: list[int]
    question: list[int]
    answer: list[int]


def place_of(text: list[int], depth: float, decode: Callable[[list[int]], str]) -> int:
    """Tokens of `text` before the needle: up to the last end of a sentence at most at `depth`."""
    for place in range(int(depth * len(text)), 0, -1):
        if decode([text[place - 1]]).rstrip(" ").endswith(SENTENCE_ENDS):
            return place
    return 0


def made(parts: Parts, tokens: int, depth: float, decode: Callable[[list[int]], str]) -> Needle:
    """A sequence of `tokens` tokens: the text is cut to the length that the others leave."""
    others = len(parts.start) + len(parts.needle) + len(parts.question) + len(parts.answer)
    left = tokens - others
    if left < 1:
        raise Fault(f"--tokens {tokens}: needle, question and answer take {others}; give more")
    if left > len(parts.text):
        raise Fault(
            f"--tokens {tokens}: the text has {len(parts.text)} tokens and {left} are needed; "
            "give a longer one"
        )
    text = parts.text[:left]
    place = place_of(text, depth, decode)
    before = parts.start + text[:place]
    ids = before + parts.needle + text[place:] + parts.question + parts.answer
    first = len(before)
    asked = tokens - len(parts.answer)  # the answer's first token
    rows = list(range(asked - 1, tokens - 1)) if parts.answer else [tokens - 1]
    return Needle(
        ids=ids,
        evidence=[[first, first + len(parts.needle) - 1]],
        rows=rows,
        prompt_tokens=asked - len(parts.question),
    )


def parts_of(tokenizer: Any, text: str, needle: str, question: str, answer: str) -> Parts:
    def ids_of(words: str) -> list[int]:
        return list(tokenizer(words, add_special_tokens=False, verbose=False)["input_ids"])

    start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    return Parts(
        start=start if list(tokenizer("")["input_ids"])[:1] == start else [],
        text=ids_of(text),
        needle=ids_of(needle),
        question=ids_of(question),
        answer=ids_of(answer),
    )


def tokenized(args: argparse.Namespace) -> tuple[Parts, Callable[[list[int]], str]]:
    with needed(MODEL_PACKAGES):
        from export.token_sequences import tokenizer_of
    tokenizer = tokenizer_of(args.model)
    text = args.text.read_text(encoding="utf-8")
    return parts_of(tokenizer, text, args.needle, args.question, args.answer), tokenizer.decode


def outputs(name: Path) -> tuple[Path, Path]:
    """NAME.npy and NAME.json, whatever dots NAME has."""
    ids, facts_path = (name.with_name(name.name + ending) for ending in (".npy", ".json"))
    return ids, facts_path


def make(args: argparse.Namespace) -> None:
    faults = []
    if not args.text.is_file():
        faults.append(f"{args.text}: no such file")
    if not 0.0 <= args.depth <= 1.0:
        faults.append(f"--depth {args.depth}: from 0 to 1")
    for name in ("needle", "question"):
        if not getattr(args, name).strip():
            faults.append(f"--{name}: is empty")
    if not args.out.parent.is_dir():
        faults.append(f"{args.out.parent}: no such folder")
    refuse(faults)
    parts, decode = tokenized(args)
    needle = made(parts, args.tokens, args.depth, decode)
    ids, facts_path = outputs(args.out)
    np.save(ids, np.array(needle.ids, np.int32))
    facts = asdict(needle)
    del facts["ids"]
    facts["tokens"] = len(needle.ids)
    facts_path.write_text(json.dumps(facts) + "\n", encoding="utf-8")
    print(
        f"{ids}, {facts_path}: prompt_tokens {needle.prompt_tokens}, evidence {needle.evidence}, "
        f"rows {needle.rows}"
    )


def mark(args: argparse.Namespace) -> None:
    evidence = read_evidence(args.evidence)
    try:
        with h5py.File(args.dump, "r+") as dump:
            sequences = list(dump["sequences"])
            name = args.sequence or (sequences[0] if len(sequences) == 1 else "")
            if name not in sequences:
                raise Fault(f"{args.dump}: --sequence: one of {', '.join(sequences)}")
            sequence = dump["sequences"][name]
            layer = kv_group(next(iter(sequence["layers"].values())))
            if layer["k"].shape[1] != evidence.tokens:
                raise Fault(
                    f"{args.dump}: sequence {name} has {layer['k'].shape[1]} tokens and "
                    f"{args.evidence} is of {evidence.tokens}; mark the dump of its own tokens"
                )
            evidence.write(sequence)
    except (OSError, KeyError, StopIteration) as error:
        raise Fault(f"{args.dump}: is not a dump that can be written: {error}") from error


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = p.add_subparsers(required=True, metavar="COMMAND")
    m = commands.add_parser("make", help="token ids of a text with a needle, and its evidence")
    m.add_argument("model", help="folder, .gguf file, or name on the hub, for its tokenizer")
    m.add_argument("--text", type=Path, required=True, help="UTF-8 text to put the needle into")
    m.add_argument("--needle", required=True, help="the sentence, with a space before it")
    m.add_argument("--question", required=True, help="question after the text")
    m.add_argument("--answer", default="", help="text after the question (default: none)")
    m.add_argument("--depth", type=float, default=0.5, help="0: first, 1: last (default 0.5)")
    m.add_argument("--tokens", type=int, required=True, help="tokens in all")
    m.add_argument("--out", type=Path, required=True, help="NAME of NAME.npy and NAME.json")
    m.set_defaults(run=make)
    k = commands.add_parser("mark", help="write the evidence into the dump of these tokens")
    k.add_argument("dump", type=Path)
    k.add_argument("--evidence", type=Path, required=True, help="the .json of make")
    k.add_argument("--sequence", help="sequence of the dump (default: its only one)")
    k.set_defaults(run=mark)
    return p


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    return exit_code("make_needle.py", lambda: args.run(args))


if __name__ == "__main__":
    sys.exit(main())
