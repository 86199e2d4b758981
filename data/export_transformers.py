#!/usr/bin/env python3
"""Dumps the queries, keys and values of a causal language model that transformers loads.

    export_transformers.py MODEL --text book.txt --tokens 4096 --out book.h5

MODEL is a folder, a .gguf file, or a name on the Hugging Face hub. The model reads the text once;
every chosen layer's post-rotation q, k and v are written as it attends with them, with the outputs
of the last rows. Each layer's outputs are recomputed from q, k and v before the dump gets its name;
a model whose attention has a term that the format cannot hold is refused by name. The format, and
what can be exported, is in README.md beside this file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

import h5py
import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

import attention_capture
from dump_file import FORMAT, STORED, TOLERANCE, Fault, Rope, differences
from rope_probe import find_ropes
from sequence_recorder import Plan, Recorder, pieces_of, read_through
from token_sequences import Sequence, read_sequences, source


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, add_help=True,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="folder, .gguf file, or name on the Hugging Face hub")
    p.add_argument("--out", type=Path, required=True, help="the dump to write (.h5)")
    text = p.add_mutually_exclusive_group(required=True)
    text.add_argument("--text", type=Path, nargs="+", help="UTF-8 text files, a sequence each")
    text.add_argument("--token-ids", type=Path,
                      help="instead of text: a dump, for its sequences' ids, or .npy [n] or [m, n]")
    p.add_argument("--tokens", type=int, help="tokens per sequence (default: all there are)")
    p.add_argument("--start", type=int, default=0, help="first token of each text (default 0)")
    p.add_argument("--sequences", type=int, default=1,
                   help="consecutive sequences of --tokens tokens from each text (default 1)")
    p.add_argument("--prompt-tokens", type=int, help="the attribute prompt_tokens")
    p.add_argument("--layers", default="all", help="all, or 0-based: 0,1,15 or 0-7,31")
    p.add_argument("--queries", default="all", help="all, or last:N (default all)")
    p.add_argument("--out-rows", type=int, default=64,
                   help="last rows whose outputs are stored as proof (default 64)")
    p.add_argument("--dtype", choices=list(STORED),
                   help="stored elements (default: those that the model computes with)")
    p.add_argument("--compute-dtype", choices=["auto", "float32", "bfloat16", "float16", "float64"],
                   default="auto", help="what the model computes in (default: its own)")
    p.add_argument("--round", action="store_true",
                   help="round q, k, v to --dtype before attention, so that what is stored is "
                        "exactly what the model attended with")
    p.add_argument("--chunk", type=int, default=1024,
                   help="tokens per run of the model, which bounds memory; 0: all at once")
    p.add_argument("--compression", type=int, default=4, help="gzip level, 0 for none (default 4)")
    p.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    p.add_argument("--revision", help="branch, tag or commit on the hub")
    p.add_argument("--trust-remote-code", action="store_true", help="run the model folder's code")
    p.add_argument("--fresh", action="store_true", help="replace an existing dump and its parts")
    return p


def check_options(args: argparse.Namespace) -> None:
    faults = []
    for name, least in (("tokens", 4), ("start", 0), ("sequences", 1), ("out_rows", 1),
                        ("chunk", 0), ("prompt_tokens", 1)):
        value = getattr(args, name)
        if value is not None and value < least:
            faults.append(f"--{name.replace('_', '-')} {value}: at least {least}")
    if args.sequences > 1 and args.tokens is None:
        faults.append("--sequences needs --tokens")
    if args.round and args.dtype is None:
        faults.append("--round needs --dtype, the type to round to")
    if not 0 <= args.compression <= 9:
        faults.append(f"--compression {args.compression}: 0 to 9")
    if args.out.suffix not in (".h5", ".hdf5"):
        faults.append(f"--out {args.out}: name it .h5")
    for path in [*(args.text or []), *([args.token_ids] if args.token_ids else [])]:
        if not path.is_file():
            faults.append(f"{path}: no such file")
    if args.out.exists() and not args.fresh:
        faults.append(f"{args.out} exists; --fresh replaces it")
    if not args.out.parent.is_dir():
        faults.append(f"{args.out.parent}: no such folder")
    if faults:
        raise Fault("\n".join(faults))


def query_rows(text: str) -> int | None:
    if text == "all":
        return None
    kind, _, number = text.partition(":")
    if kind != "last" or not number.isdigit() or int(number) < 1:
        raise Fault(f"--queries {text}: all, or last:N")
    return int(number)


def layer_numbers(text: str, count: int, attending: set[int]) -> frozenset[int]:
    """The chosen layers; `attending` are those of `count` whose attention is heard."""
    if text == "all":
        return frozenset(attending)
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise Fault(f"--layers {text}: all, or numbers and ranges such as 0,1,15 or 0-7")
        chosen |= set(range(int(first), int(last or first) + 1))
    if not chosen or max(chosen) >= count:
        raise Fault(f"--layers {text}: the model has layers 0 to {count - 1}")
    if not chosen <= attending:
        raise Fault(f"--layers {text}: no attention in {', '.join(map(str, chosen - attending))}; "
                    f"there is some in {', '.join(map(str, sorted(attending)))}")
    return frozenset(chosen)


def bypasses(kind: str) -> Fault:
    return Fault(f"{kind}: its attention does not go through transformers' AttentionInterface, so "
                 "that nothing can be heard of it")


def load_model(args: argparse.Namespace) -> torch.nn.Module:
    where, options = source(args)
    try:
        config = AutoConfig.from_pretrained(where, **options)
        attention_capture.refuse_model(config)
        dtype = args.compute_dtype if args.compute_dtype == "auto" else getattr(
            torch, args.compute_dtype)
        model = AutoModelForCausalLM.from_pretrained(
            where, dtype=dtype, attn_implementation=attention_capture.NAME, **options)
    except (OSError, ValueError, ImportError, KeyError) as error:
        if error.args == (attention_capture.NAME,):  # a table of the model's own has no such entry
            raise bypasses(config.model_type) from None
        raise Fault(f"{args.model}: transformers {transformers.__version__} does not load it: "
                    f"{error}") from error
    return model.eval().to(args.device)


def element_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def provenance(args: argparse.Namespace, model: torch.nn.Module, plan: Plan) -> dict:
    computed = element_name(model.dtype)
    facts = {**FORMAT, "model": Path(args.model).name if Path(args.model).exists() else args.model,
             "producer": f"export_transformers.py, transformers {transformers.__version__}, "
                         f"torch {torch.__version__}",
             "n_layers": model.config.get_text_config().num_hidden_layers,
             "compute_dtype": f"{computed}, q k v rounded to {plan.dtype}" if plan.rounds
             else computed,
             "dataset": ", ".join(path.name for path in args.text or [args.token_ids]),
             "created": datetime.now(timezone.utc).isoformat(timespec="seconds")}
    facts["tokenizer"] = facts["model"]
    revision = getattr(model.config, "_commit_hash", None) or args.revision
    return {**facts, "model_revision": revision} if revision else facts


def shared_rope(ropes: list[dict[int, Rope | None]], plan: Plan) -> Rope | None:
    """The rotation that every recorded layer of every sequence has; None where they differ."""
    kinds = {each.get(layer) for each in ropes for layer in plan.layers}
    return kinds.pop() if len(kinds) == 1 else None


def export_sequence(model: torch.nn.Module, sequence: Sequence, plan: Plan, facts: dict,
                    ropes: dict[int, Rope | None], root: Rope | None, prompt: int | None,
                    path: Path) -> None:
    """Writes a dump of one sequence; it gets its name when it is whole and proven."""
    unfinished = path.with_suffix(".unfinished")
    with h5py.File(unfinished, "w") as file:
        file.attrs.update(facts)
        if root:
            root.write(file)
        group = file.create_group(f"sequences/{sequence.name}")
        group.attrs["description"] = sequence.description
        if prompt:
            group.attrs["prompt_tokens"] = prompt
        group["token_ids"] = sequence.ids
        recorder = Recorder(group.create_group("layers"), len(sequence.ids), plan)
        perplexity = read_through(model, torch.from_numpy(sequence.ids.astype(np.int64)),
                                  sequence.name, recorder, pieces_of(model, plan.piece))
        recorder.finish({} if root else ropes)
    proven(unfinished, exact=holds(plan.dtype, model.dtype) or plan.rounds)
    unfinished.rename(path)
    say(f"{sequence.name}: perplexity {perplexity:.4g}")


def holds(stored: str, computed: torch.dtype) -> bool:
    """Whether the stored type holds every number of the computed one."""
    return torch.promote_types(getattr(torch, stored), computed) == getattr(torch, stored)


def proven(path: Path, exact: bool) -> None:
    """Recomputes the outputs from what the file holds."""
    for place, difference in differences(path).items():
        if difference <= TOLERANCE:
            continue
        if exact:
            raise Fault(f"{path}, {place}: the stored q, k and v give outputs that differ by "
                        f"{difference:.2g} from the model's; the file is not used")
        say(f"{place}: stored rounded, so that its outputs recompute to {difference:.2g} only; "
            "--round has the model attend with what is stored")


def settings(args: argparse.Namespace, sequences: list[Sequence], plan: Plan) -> str:
    """What parts of an interrupted export must agree on."""
    told = {**asdict(plan), "layers": sorted(plan.layers), "model": args.model,
            "revision": args.revision, "compute_dtype": args.compute_dtype,
            "prompt_tokens": args.prompt_tokens,
            "sequences": {s.name: hashlib.sha256(s.ids.tobytes()).hexdigest() for s in sequences}}
    return json.dumps(told, indent=1, sort_keys=True)


def parts_folder(args: argparse.Namespace, told: str) -> Path:
    """The folder of finished sequences, of this export alone."""
    folder = args.out.with_suffix(".parts")
    if args.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    note = folder / "settings.json"
    if note.is_file() and note.read_text() != told:
        raise Fault(f"{folder} holds parts of an export with other settings; finish that one, or "
                    "--fresh begins anew")
    folder.mkdir(exist_ok=True)
    note.write_text(told)
    return folder


def assemble(parts: list[Path], out: Path) -> None:
    """The parts' sequences in one dump, copied as they are stored."""
    if len(parts) == 1:
        parts[0].replace(out)
        return
    unfinished = out.with_suffix(".unfinished")
    shutil.copyfile(parts[0], unfinished)
    with h5py.File(unfinished, "r+") as whole:
        for part in parts[1:]:
            with h5py.File(part) as file:
                for name, group in file["sequences"].items():
                    file.copy(group, whole["sequences"], name)
    unfinished.replace(out)


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def export(args: argparse.Namespace) -> None:
    check_options(args)
    rows = query_rows(args.queries)
    if not sys.stderr.isatty():
        transformers.logging.disable_progress_bar()
    model = load_model(args)
    text = model.config.get_text_config()
    sequences = read_sequences(args, text)
    ropes = [find_ropes(model, torch.from_numpy(s.ids.astype(np.int64))) for s in sequences]
    if not ropes[0]:
        raise bypasses(model.config.model_type)
    plan = Plan(layer_numbers(args.layers, text.num_hidden_layers, set(ropes[0])),
                args.dtype or element_name(model.dtype), args.round, rows, args.out_rows,
                args.chunk, args.compression)
    folder = parts_folder(args, settings(args, sequences, plan))
    root = shared_rope(ropes, plan)
    facts = provenance(args, model, plan)
    parts = [folder / f"{sequence.name}.h5" for sequence in sequences]
    for sequence, rope, part in zip(sequences, ropes, parts, strict=True):
        if part.exists():
            say(f"{sequence.name}: done before")
            continue
        export_sequence(model, sequence, plan, facts, rope, root, args.prompt_tokens, part)
    assemble(parts, args.out)
    shutil.rmtree(folder)
    say(f"{args.out}: {len(sequences)} sequences, {len(plan.layers)} layers, "
        f"{args.out.stat().st_size / 1e6:.1f} MB")


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        export(args)
    except Fault as fault:
        say(f"export_transformers.py: {fault}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
