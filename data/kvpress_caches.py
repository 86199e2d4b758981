#!/usr/bin/env python3
"""Makes cache files of the tokens that kvpress's presses keep, for `kvbench` to replay.

    kvpress_caches.py dump.h5 SnapKVPress 'AdaKVPress(SnapKVPress(window_size=32))' \\
        --budget 256 512 --out caches

A press is a class of kvpress with its arguments, other presses among them, or MODULE:CLASS(..) for
one of your own. Each press and budget (or ratio) gives a file OUT/<press>-<budget>.h5 with the rows
that `press.compress` keeps of every sequence, layer and KV head. Presses that read more of a
model than a dump holds are refused with the reason; --list names them. It needs kvpress:
`tests/peers/run.sh` puts kvpress into .venv-model.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from command import exit_code, note, packages

with packages("kvpress_caches.py", ".venv-model"):
    import h5py
    import numpy as np
    from format.cache_file import Head, KeptRows, Origin, write_caches
    from format.dump_file import SECOND_FORMAT, Fault, kv_group
    from presses.kvpress_presses import chain, load_kvpress, press_classes, press_of, refusal, wraps

if TYPE_CHECKING:
    import torch
    from presses.kvpress_module import Layer

PROGRAM = "kvpress_caches.py"

# Input and output of a press.


def attention_rows(press: Any, prompt: int) -> int:
    """Rows of attention weights that the press reads, the last ones of the prompt. Wrappers that
    refuse attention weights let the inner press compute them, as in models with fast attention."""
    names = {type(each).__name__ for each in chain(press)}
    if names & {"BlockPress", "ChunkPress", "ChunkKVPress", "EntropyGatedChunkKVPress"}:
        return 0
    inner = chain(press)[-1]
    kvpress = load_kvpress()
    if isinstance(inner, kvpress.SnapKVPress):
        return min(inner.window_size, prompt)
    if isinstance(inner, kvpress.TOVAPress):
        return 1
    own = not type(inner).__module__.startswith("kvpress.")
    return prompt if own or isinstance(inner, kvpress.ObservedAttentionPress) else 0


def watch_scores(press: Any) -> None:
    """Scores that are not finite, as those of queries that a dump lacks, are a fault."""
    inner = chain(press)[-1]
    score = getattr(inner, "score", None)
    if score is None:
        return

    def checked(*arguments: Any, **named: Any) -> torch.Tensor:
        scores = score(*arguments, **named)
        if not scores.isfinite().all():
            raise Fault(
                "its scores are not finite; it reads queries of prompt rows that the dump does not "
                "hold, or that this combination of presses takes apart"
            )
        return scores

    inner.score = checked


def kept(press: Any, layer: Layer) -> list[KeptRows]:
    """Tokens that the press keeps of each KV head's prompt."""
    import torch

    watched = attention_rows(press, layer.prompt)
    hidden = layer.hidden_states()
    names = {type(each).__name__ for each in chain(press)}
    if "BlockPress" in names or ("ChunkPress" in names and layer.rotation is None):
        hidden = torch.full_like(hidden, torch.nan)  # these cut hidden states at other places
    module = layer.module()
    with torch.no_grad():
        keys, values = press.compress(
            module,
            hidden,
            layer.k.clone(),
            layer.v.clone(),
            layer.attentions(watched) if watched else None,
            layer.keywords(hidden),
        )
    masked: list[set[int]] = [set() for _ in range(layer.k.shape[1])]
    if module.masked_key_indices is not None:
        for _, head, token in zip(*(t.tolist() for t in module.masked_key_indices)):
            masked[head].add(token)
    rows = []
    for head, of_head in enumerate(masked):
        k, v, kept_k, kept_v = (t[0, head].numpy() for t in (layer.k, layer.v, keys, values))
        rows.append(named_rows(k, v, kept_k, kept_v, of_head))
    return rows


def named_rows(
    k: np.ndarray, v: np.ndarray, keys: np.ndarray, values: np.ndarray, masked: set[int]
) -> KeptRows:
    """The tokens whose key and value [P, d] the kept rows [m, d] are, ascending. Where a row is
    none of them, all rows have their own keys and values, named by the token whose key they have,
    or value if no key is one's."""
    of_pair = places(k, v)
    tokens = [taken(of_pair, key.tobytes() + value.tobytes()) for key, value in zip(keys, values)]
    own = None in tokens
    if own:
        tokens = named_by(k, keys)
        if not any(token is not None for token in tokens):
            tokens = named_by(v, values)
    named = np.array([-1 if token is None else token for token in tokens], np.int64)
    order = np.argsort(named, kind="stable")
    order = order[[int(token) not in masked for token in named[order]]]
    return KeptRows(named[order], keys[order] if own else None, values[order] if own else None)


def places(*tensors: np.ndarray) -> dict[bytes, list[int]]:
    """Tokens by the bytes of their rows, the first one last."""
    found: dict[bytes, list[int]] = {}
    for token in reversed(range(len(tensors[0]))):
        found.setdefault(b"".join(t[token].tobytes() for t in tensors), []).append(token)
    return found


def taken(tokens: dict[bytes, list[int]], row: bytes) -> int | None:
    """The next token of equal rows."""
    left = tokens.get(row)
    return left.pop() if left else None


def named_by(tensor: np.ndarray, rows: np.ndarray) -> list[int | None]:
    found = places(tensor)
    return [taken(found, row.tobytes()) for row in rows]


# Whole dumps.


@dataclass(frozen=True)
class Cut:
    """How much of a press's input is kept: a number of tokens, a ratio removed, or as it says."""

    budget: int | None = None
    ratio: float | None = None

    def name(self) -> str:
        if self.budget is not None:
            return f"-budget={self.budget}"
        return "" if self.ratio is None else f"-ratio={self.ratio:g}"

    def set(self, press: Any, prompt: int) -> None:
        """kvpress keeps int(P (1 - ratio)) tokens: the ratio of a budget aims between integers."""
        if self.budget is None and self.ratio is None:
            if vars(chain(press)[-1]).get("compression_ratio") == 0:
                raise Fault(f"{type(press).__name__} would keep all: add --budget or --ratio")
            return
        ratio = (
            self.ratio if self.ratio is not None else 1 - (self.budget_of(prompt) + 0.5) / prompt
        )
        try:
            press.compression_ratio = max(0.0, ratio)
        except AttributeError as error:
            raise Fault(
                f"{error}; write its own parameters, without --budget and --ratio"
            ) from error

    def budget_of(self, prompt: int) -> int:
        assert self.budget is not None
        if self.budget >= prompt:
            raise Fault(
                f"--budget {self.budget}: expected fewer tokens than the prompt has ({prompt})"
            )
        return self.budget


def prompt_of(text: str, sequence: h5py.Group, tokens: int) -> int:
    """As `prompt_tokens` of a sweep file."""
    if text == "default":
        stored = min(layer["q"].shape[1] for layer in sequence["layers"].values())
        whole = min(kv_group(layer)["k"].shape[1] for layer in sequence["layers"].values())
        queries = max(1, stored - (whole - tokens))
        return tokens - min(256, max(1, tokens // 2), queries)
    if text == "dump":
        if "prompt_tokens" not in sequence.attrs:
            raise Fault(f"--prompt-tokens dump: {sequence.name} has no attribute prompt_tokens")
        prompt = int(sequence.attrs["prompt_tokens"])
    elif "." in text:
        prompt = math.floor(float(text) * tokens)
    else:
        prompt = int(text)
    if not 0 < prompt < tokens:
        raise Fault(
            f"--prompt-tokens {text}: {prompt} tokens of {tokens} in {sequence.name}; "
            f"expected 1 to {tokens - 1}"
        )
    return prompt


def chosen(group: h5py.Group, wanted: list[str] | None, option: str) -> list[str]:
    names = sorted(group, key=lambda name: (len(name), name))
    if wanted is None:
        return names
    absent = [name for name in wanted if name not in names]
    if absent:
        raise Fault(f"{option} {absent[0]}: the dump has {', '.join(names)}")
    return wanted


def heads_of(
    dump: h5py.File, spec: str, cut: Cut, args: argparse.Namespace
) -> Iterator[tuple[Head, KeptRows]]:
    """Tokens that the press keeps of the dump, KV head by KV head."""
    import torch
    from presses.kvpress_module import read_layer

    torch.manual_seed(args.seed)
    for name in chosen(dump["sequences"], args.sequences, "--sequences"):
        sequence = dump["sequences"][name]
        for number in chosen(sequence["layers"], args.layers, "--layers"):
            group = sequence["layers"][number]
            whole = kv_group(group)["k"].shape[1]
            tokens = min(args.tokens or whole, whole)
            prompt = prompt_of(args.prompt_tokens, sequence, tokens)
            window = int(group.attrs["sliding_window"])
            if 0 < window < tokens:
                note(
                    PROGRAM,
                    f"{group.name} is left out: its rows see the last {window} tokens alone",
                )
                continue
            further = [name for name in SECOND_FORMAT if name in group or name in group.attrs]
            if further:
                raise Fault(
                    f"{group.name} has {', '.join(further)}, of which presses know nothing; leave "
                    "the layer out (--layers)"
                )
            press = press_of(spec)
            cut.set(press, prompt)
            watch_scores(press)
            layer = read_layer(group, prompt)
            try:
                heads = kept(press, layer)
            except Fault as fault:
                raise Fault(f"{spec}: {group.name}: {fault}") from fault
            except (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError,
                    ValueError) as error:  # fmt: skip
                raise Fault(f"{spec}: {group.name}: kvpress says {error!r}") from error
            for head, rows in enumerate(heads):
                yield Head(name, int(number), head, prompt), rows


def make_caches(args: argparse.Namespace) -> None:
    if not args.dump.is_file():
        raise Fault(f"{args.dump} is not a file")
    if not args.presses:
        raise Fault("no press is named; --list names them")
    load_kvpress()
    version = importlib.metadata.version("kvpress")
    cuts = [Cut(budget=budget) for budget in args.budget or []]
    cuts += [Cut(ratio=ratio) for ratio in args.ratio or []]
    work = [(spec, cut) for spec in args.presses for cut in cuts or [Cut()]]
    files = [args.out / (file_name(spec) + cut.name() + ".h5") for spec, cut in work]
    for spec in args.presses:
        press_of(spec)  # faults of a command line come before any work
    for path in files:
        if path.exists() and not args.fresh:
            raise Fault(f"{path} exists; --fresh replaces it")
        if files.count(path) > 1:
            raise Fault(f"{path} would be written twice; name each press and budget once")
    args.out.mkdir(parents=True, exist_ok=True)
    with h5py.File(args.dump) as dump:
        if dump.attrs.get("format") != "kvbench-dump":
            raise Fault(f"{args.dump} is not a kvbench dump")
        for (spec, cut), path in zip(work, files):
            settings = {"press": spec, "seed": args.seed, "budget": cut.budget, "ratio": cut.ratio}
            params = {name: value for name, value in settings.items() if value is not None}
            origin = Origin(spec, f"kvpress_caches.py, kvpress {version}", params)
            count = write_caches(path, origin, heads_of(dump, spec, cut, args))
            print(f"{path}: {count} heads")


def file_name(spec: str) -> str:
    return re.sub(r"[^\w.=,]+", "-", spec).strip("-")


def list_presses() -> None:
    for name, press in press_classes().items():
        reason = refusal(press)
        works = "works, around another press" if wraps(press) else "works"
        print(f"{name:32}{works if reason is None else f'refused: {reason}'}")


def ratio(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a number between 0 and 1, got {text}")
    return value


def count(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, got {text}")
    return int(text)


def prompt_tokens(text: str) -> str:
    if not re.fullmatch(r"default|dump|[0-9]+|0?\.[0-9]+", text):
        raise argparse.ArgumentTypeError(
            f"expected a number of tokens, a fraction such as 0.5, dump or default, got {text}"
        )
    return text


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("dump", type=Path, nargs="?", help="a dump (.h5)")
    p.add_argument("presses", nargs="*", metavar="press", help="CLASS, CLASS(..), MODULE:CLASS(..)")
    p.add_argument("--out", type=Path, help="the folder of the cache files")
    p.add_argument("--list", action="store_true", help="list kvpress's presses, and stop")
    cut = p.add_mutually_exclusive_group()
    cut.add_argument("--budget", type=count, nargs="+", help="tokens that are kept of each prompt")
    cut.add_argument(
        "--ratio",
        type=ratio,
        nargs="+",
        help="fractions of the prompt that are removed, as in kvpress",
    )
    p.add_argument(
        "--prompt-tokens",
        type=prompt_tokens,
        default="default",
        help="as in a sweep file: a number, a fraction, dump or default (the last 256 are decoded)",
    )
    p.add_argument(
        "--tokens", type=count, help="the first N tokens of each sequence, as in a sweep"
    )
    p.add_argument("--sequences", nargs="+", help="sequences of the dump (default: all)")
    p.add_argument("--layers", nargs="+", help="layers of the dump (default: all)")
    p.add_argument("--seed", type=int, default=0, help="seed of presses that draw (default 0)")
    p.add_argument("--fresh", action="store_true", help="replace existing files")
    return p


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)

    def work() -> None:
        if args.list:
            list_presses()
            return
        if args.dump is None or args.out is None:
            raise Fault("expected a dump, presses and --out FOLDER; see --help")
        try:
            make_caches(args)
        except OSError as error:
            raise Fault(f"cannot read {args.dump} or write {args.out}: {error}") from error

    return exit_code(PROGRAM, work)


if __name__ == "__main__":
    sys.exit(main())
