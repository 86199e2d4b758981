"""An export as a whole: the model, its rotations, the sequences one by one, and the dump of them
all."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
import transformers
from format.dump_file import FORMAT, Fault, Rope, is_of_second_format, layer_differences
from format.evidence import Evidence, read_evidence
from transformers import AutoConfig

from export import attention_capture
from export.repeat_pass import parts_of, refuse_to_repeat, repeat_prompt
from export.rope_probe import find_key_biases, find_ropes, refuse_pieces
from export.sequence_recorder import Plan, Recorder, pieces_of, read_through
from export.shared_keys import refuse_apart, shared_layers
from export.token_sequences import Sequence, read_sequences, source, tokenizer_of


def query_rows(text: str) -> int | None:
    if text == "all":
        return None
    kind, _, number = text.partition(":")
    if kind != "last" or not number.isdigit() or int(number) < 1:
        raise Fault(f"--queries {text}: all, or last:N")
    return int(number)


def layer_numbers(text: str, count: int, attending: set[int]) -> frozenset[int]:
    """The chosen layers; `attending` are those of `count` whose attention is recorded."""
    if text == "all":
        return frozenset(attending)
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or int(last or first) < int(first):
            raise Fault(f"--layers {text}: all, or numbers and ranges such as 0,1,15 or 0-7")
        chosen |= set(range(int(first), int(last or first) + 1))
    if not chosen or max(chosen) >= count:
        raise Fault(f"--layers {text}: the model has layers 0 to {count - 1}")
    if not chosen <= attending:
        raise Fault(
            f"--layers {text}: no attention in {', '.join(map(str, chosen - attending))}; "
            f"there is some in {', '.join(map(str, sorted(attending)))}"
        )
    return frozenset(chosen)


def bypasses(kind: str) -> Fault:
    return Fault(
        f"{kind}: its attention does not go through transformers' AttentionInterface, so "
        "that none can be recorded; import_arrays.py takes q, k, v and out of code of your own"
    )


def load_model(args: argparse.Namespace) -> torch.nn.Module:
    if not sys.stderr.isatty():
        transformers.logging.disable_progress_bar()
    attention_capture.require_fit()
    where, options = source(args.model, args.revision, args.trust_remote_code)
    try:
        config = AutoConfig.from_pretrained(where, **options)
        attention_capture.refuse_model(config)
        dtype = (
            args.compute_dtype
            if args.compute_dtype == "auto"
            else getattr(torch, args.compute_dtype)
        )
        model = attention_capture.loader_of(config).from_pretrained(
            where,
            dtype=dtype,
            attn_implementation=attention_capture.implementation_for(config),
            **options,
        )
    except (OSError, ValueError, ImportError, KeyError) as error:
        if error.args == (attention_capture.NAME,):  # a table of the model's own has no such entry
            raise bypasses(config.model_type) from None
        reason, another_kind, _ = str(error).partition(".\nModel type should be")
        remedy = "; give a causal language model" if another_kind else ""
        raise Fault(
            f"{args.model}: transformers {transformers.__version__} does not load it: "
            f"{reason}{remedy}"
        ) from error
    attention_capture.install_hook(model)
    return model.eval().to(args.device)


def element_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def provenance(
    model: torch.nn.Module, plan: Plan, name: str, dataset: str, revision: str | None
) -> dict:
    """Attributes of a dump; `name`: of the model, or its folder."""
    computed = element_name(model.dtype)
    facts = {
        **FORMAT,
        "model": Path(name).name if Path(name).exists() else name,
        "producer": f"export_transformers.py, transformers {transformers.__version__}, "
        f"torch {torch.__version__}",
        "n_layers": model.config.get_text_config().num_hidden_layers,
        "compute_dtype": f"{computed}, q k v rounded to {plan.dtype}" if plan.rounds else computed,
        "dataset": dataset,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    facts["tokenizer"] = facts["model"]
    revision = getattr(model.config, "_commit_hash", None) or revision
    return {**facts, "model_revision": revision} if revision else facts


def shared_rope(ropes: list[dict[int, Rope | None]], plan: Plan) -> Rope | None:
    """The rotation that every recorded layer of every sequence has; None if they differ."""
    kinds = {each.get(layer) for each in ropes for layer in plan.layers}
    return kinds.pop() if len(kinds) == 1 else None


def export_sequence(
    model: torch.nn.Module,
    sequence: Sequence,
    plan: Plan,
    facts: dict,
    ropes: dict[int, Rope | None],
    root: Rope | None,
    prompt: int | None,
    evidence: Evidence | None,
    tokenizer: Any,
    path: Path,
) -> None:
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
        if evidence:
            evidence.write(group)
        ids = torch.from_numpy(sequence.ids.astype(np.int64))
        recorder = Recorder(
            group.create_group("layers"),
            len(ids),
            plan,
            {} if root else ropes,
            find_key_biases(model, ids, ropes),
        )
        perplexity = read_through(model, ids, sequence.name, recorder, pieces_of(model, plan.piece))
        recorder.finish()
        exact = holds(plan.dtype, model.dtype) or plan.rounds
        if plan.repeat_part and prompt:
            repeated = sequence.ids[:prompt]
            parts = parts_of(repeated, plan.repeat_from, plan.repeat_part, tokenizer)
            heard, tokens = set(ropes), len(sequence.ids)
            refuse_to_repeat(model, heard, recorder.is_causal, prompt, parts, tokens)
            repeat_prompt(model, repeated, parts, recorder, plan, exact, group)
        if any(is_of_second_format(layer) for layer in group["layers"].values()):
            file.attrs["format_version"] = 2
    proven(unfinished, exact=exact)
    unfinished.rename(path)
    if recorder.is_causal:  # a model that sees what comes predicts nothing
        say(f"{sequence.name}: perplexity {perplexity:.4g}")


def holds(stored: str, computed: torch.dtype) -> bool:
    """Whether the stored type holds every number of the computed one."""
    return torch.promote_types(getattr(torch, stored), computed) == getattr(torch, stored)


def proven(path: Path, exact: bool) -> None:
    """Recomputes the outputs from what the file holds."""
    for place, found in layer_differences(path).items():
        if found.relative <= found.single:
            continue
        if exact:
            raise Fault(
                f"{path}, {place}: the stored q, k and v give outputs that differ by "
                f"{found.relative:.2g} from the model's; the file is not used"
            )
        say(
            f"{place}: stored rounded, so that its outputs recompute to {found.relative:.2g} only; "
            "--round has the model attend with what is stored"
        )


def settings(args: argparse.Namespace, sequences: list[Sequence], plan: Plan) -> str:
    """Facts in which the parts of an interrupted export must agree."""
    facts = {
        **asdict(plan),
        "layers": sorted(plan.layers),
        "model": args.model,
        "revision": args.revision,
        "compute_dtype": args.compute_dtype,
        "prompt_tokens": args.prompt_tokens,
        "evidence": args.evidence.read_text(encoding="utf-8") if args.evidence else None,
        "sequences": {s.name: hashlib.sha256(s.ids.tobytes()).hexdigest() for s in sequences},
    }
    return json.dumps(facts, indent=1, sort_keys=True)


def parts_folder(args: argparse.Namespace, facts: str) -> Path:
    """The folder of finished sequences, of this export alone."""
    folder = args.out.with_suffix(".parts")
    if args.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    note = folder / "settings.json"
    finished = any(folder.glob("*.h5"))
    if finished and note.is_file() and note.read_text() != facts:
        raise Fault(
            f"{folder} holds parts of an export with other settings; finish that one, or "
            "pass --fresh to start over"
        )
    folder.mkdir(exist_ok=True)
    note.write_text(facts)
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
                if file.attrs["format_version"] > whole.attrs["format_version"]:
                    whole.attrs["format_version"] = file.attrs["format_version"]
                for name, group in file["sequences"].items():
                    file.copy(group, whole["sequences"], name)
    unfinished.replace(out)


def evidence_of(args: argparse.Namespace, sequences: list[Sequence]) -> Evidence | None:
    if not args.evidence:
        return None
    evidence = read_evidence(args.evidence)
    found = [len(sequence.ids) for sequence in sequences]
    if found != [evidence.tokens]:
        raise Fault(
            f"{args.evidence}: is of one sequence of {evidence.tokens} tokens, and "
            f"{args.token_ids} gives {', '.join(map(str, found))}; give the .npy that was written "
            "with it, whole"
        )
    return evidence


def repeating_tokenizer(args: argparse.Namespace, prompt: int | None) -> Any:
    """The tokenizer of the requests; refuses a prompt that leaves nothing to repeat."""
    if not prompt:
        raise Fault("--repeat needs the prompt that is repeated; give --prompt-tokens")
    if args.repeat_from >= prompt:
        raise Fault(f"--repeat-from {args.repeat_from}: the prompt has {prompt} tokens")
    return tokenizer_of(
        args.model,
        args.revision,
        args.trust_remote_code,
        remedy="; leave --repeat out, whose requests are words",
    )


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def export(args: argparse.Namespace) -> None:
    """Writes args.out; `args` are checked options of export_transformers.py. Raises Fault."""
    query_rows(args.queries)
    export_of(load_model(args), args)


def export_of(model: torch.nn.Module, args: argparse.Namespace) -> None:
    """The same of a model that load_model gave for `args`."""
    rows = query_rows(args.queries)
    text = model.config.get_text_config()
    sequences = read_sequences(args, text)
    evidence = evidence_of(args, sequences)
    prompt = args.prompt_tokens or (evidence.prompt_tokens if evidence else None)
    texts = [torch.from_numpy(sequence.ids.astype(np.int64)) for sequence in sequences]
    ropes = [find_ropes(model, ids) for ids in texts]
    if not ropes[0]:
        raise bypasses(model.config.model_type)
    plan = Plan(
        layer_numbers(args.layers, text.num_hidden_layers, set(ropes[0])),
        args.dtype or element_name(model.dtype),
        args.round,
        rows,
        args.out_rows,
        args.chunk,
        args.compression,
        args.wo_norms,
        not args.materialised,
        args.wo,
        args.repeat_part if args.repeat else 0,
        args.repeat_from if args.repeat else 0,
    )
    shared = shared_layers(model, texts[0])
    refuse_apart(shared, plan.layers)
    if shared and args.repeat:
        raise Fault(
            f"layers {', '.join(map(str, shared))} read other layers' keys, which a pass that "
            "repeats the prompt cannot hold; leave --repeat out"
        )
    for ids in texts:
        if 0 < pieces_of(model, plan.piece) < len(ids):
            refuse_pieces(model, ids)
    tokenizer = repeating_tokenizer(args, prompt) if args.repeat else None
    folder = parts_folder(args, settings(args, sequences, plan))
    root = shared_rope(ropes, plan)
    dataset = ", ".join(path.name for path in args.text or [args.token_ids])
    facts = provenance(model, plan, args.model, dataset, args.revision)
    parts = [folder / f"{sequence.name}.h5" for sequence in sequences]
    for sequence, rope, part in zip(sequences, ropes, parts, strict=True):
        if part.exists():
            say(f"{sequence.name}: done before")
            continue
        export_sequence(model, sequence, plan, facts, rope, root, prompt, evidence, tokenizer, part)
    assemble(parts, args.out)
    shutil.rmtree(folder)
    say(
        f"{args.out}: {len(sequences)} sequences, {len(plan.layers)} layers, "
        f"{args.out.stat().st_size / 1e6:.1f} MB"
    )
