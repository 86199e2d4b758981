"""A closed loop as a whole: the texts are read, kvbench compresses, the model decodes setting by
setting, and loop.json says what came of it."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import kvbench as kb
import numpy as np
import torch
import transformers
from command import interrupts
from export.attention_capture import decode_after, read_after, refuse_latents, refuse_to_decode
from export.model_export import export_of, layer_numbers, load_model, say
from export.rope_probe import find_ropes, refuse_changing_rotation
from export.shared_keys import refuse_shared, shared_layers
from export.token_sequences import read_sequences
from format.dump_file import Fault

from loop import loop_settings
from loop.loop_answers import Live, Replayed, Setting, Text, Whole
from loop.loop_caches import CacheFiles, Unsuitable
from loop.loop_journal import Journal
from loop.loop_pieces import InPieces
from loop.loop_statistics import compared, summary

KIND, SCHEMA_VERSION = "kvbench.closed_loop", "1.3.0"
ONE_AT_A_TIME = "one-at-a-time"


def run(args: argparse.Namespace) -> None:
    """Writes args.out/loop.json; `args` are checked options of closed_loop.py. Raises Fault."""
    args.out.mkdir(parents=True, exist_ok=True)
    if args.fresh:
        discard(args.out)
    model = load_model(args)
    dump, prompts = read_texts(model, args)
    results = compress(args, dump)
    cells = results.cells
    prompt_tokens = loop_settings.prompts_of(cells, args.config)
    texts = texts_of(dump, prompt_tokens)
    settings = loop_settings.settings_of(cells, results.document.get("layers", []))
    loop_settings.require_whole(settings, texts, args.config)
    header = {
        "kind": f"{KIND}.journal",
        "schema_version": SCHEMA_VERSION,
        "decisions": args.decisions,
        "prompt_pieces": args.prompt_pieces,
        "one_at_a_time": args.layers == ONE_AT_A_TIME,
        "kvbench": kb.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
        "device": args.device,
        "compute_dtype": str(model.dtype).removeprefix("torch."),
        "dump": dump.fingerprint,
    }
    with Journal(args.out / "loop.jsonl", header) as journal:
        files = CacheFiles(args.out / "attention/caches", results.document)
        loop = Loop(model, texts, prompts, settings, files, args)
        records = loop.records(journal)
    document = {
        **header,
        "kind": KIND,
        "model": dump.model,
        "texts": [
            {
                "sequence": text.name,
                "tokens": text.tokens,
                "prompt_tokens": text.prompt,
                "rows": text.tokens - text.prompt,
                "ids_sha256": ids_hash(prompts[text.name]),
            }
            for text in texts.values()
        ],
        "records": records,
    }
    write(args.out / "loop.json", json.dumps(document, indent=1) + "\n")
    left = sum(record["status"] != "ok" for record in records)
    say(
        f"{args.out / 'loop.json'}: {len(records)} records"
        + (f", {left} of them skipped or failed, each with its reason" if left else "")
    )


def ids_hash(ids: np.ndarray) -> str:
    """SHA-256 of a text's token ids as 64-bit little-endian numbers: who reads the same text with
    the same tokenizer has the same one."""
    return hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest()


def texts_of(dump: kb.Dump, prompt_tokens: Mapping[str, int]) -> dict[str, Text]:
    """The sequences that have a prompt."""
    return {
        name: Text(
            name,
            {layer: sequence[layer] for layer in sequence},
            dump.n_layers,
            prompt_tokens[name],
            sequence[next(iter(sequence))].tokens,
        )
        for name, sequence in dump.items()
        if name in prompt_tokens
    }


def decoded(
    model: torch.nn.Module, text: Text, ids: torch.Tensor, answers: Live | Replayed | Whole
) -> torch.Tensor:
    """Logits [R, vocabulary] of the tokens `ids` [R] after the text's prompt, over `answers`."""
    return decoded_by_each(model, text, ids, [answers])[0]


def decoded_by_each(
    model: torch.nn.Module,
    text: Text,
    ids: torch.Tensor,
    answers: Sequence[Live | Replayed | Whole],
) -> torch.Tensor:
    """The same over each of `answers`, [answers, R, vocabulary]: the model computes them together,
    which takes less time than one by one."""
    return decode_after(model, read_of(model, text, text.prompt), ids, answers)


def decoded_in_pieces(
    model: torch.nn.Module, text: Text, ids: torch.Tensor, answers: InPieces
) -> torch.Tensor:
    """Logits [R, vocabulary] after a prompt that is read in pieces; `ids` [n] of the whole text."""
    first, *others = answers.pieces()
    answers.begin()
    parts = [*(ids[piece] for piece in others), ids[text.prompt :]]
    return read_after(model, read_of(model, text, first.stop), parts, answers)


def read_of(
    model: torch.nn.Module, text: Text, tokens: int
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """The uncompressed model's keys and values of a text's first tokens, by layer."""
    for number in range(text.n_layers):
        k, v = (
            torch.from_numpy(tensor[:, :tokens]).to(model.device, model.dtype)
            for tensor in (text.layers[number].k, text.layers[number].v)
        )
        yield number, k, v


def write(path: Path, text: str) -> None:
    """The file appears whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def discard(out: Path) -> None:
    for name in ("loop.json", "loop.jsonl", "model.h5", "model.json", "model.unfinished"):
        (out / name).unlink(missing_ok=True)
    for name in ("attention", "model.parts"):
        shutil.rmtree(out / name, ignore_errors=True)


def read_texts(
    model: torch.nn.Module, args: argparse.Namespace
) -> tuple[kb.Dump, dict[str, np.ndarray]]:
    """The dump OUT/model.h5 of all layers, made if it is not there, and each text's token ids."""
    given = argparse.Namespace(
        **{
            "evidence": None,
            **vars(args),
            "out": args.out / "model.h5",
            "sequences": 1,
            "prompt_tokens": None,
            "layers": "all",
            "queries": "all",
            "out_rows": 64,
            "dtype": None,
            "round": False,
            "materialised": True,
            "repeat": False,
            "compression": 0,
            "fresh": False,
        }
    )
    refuse_latents(model)
    sequences = read_sequences(given, model.config.get_text_config())
    ids = torch.from_numpy(sequences[0].ids.astype(np.int64))
    refuse_to_decode(model, set(find_ropes(model, ids)))
    refuse_shared(model, shared_layers(model, ids))
    refuse_changing_rotation(model, ids, max(len(each.ids) for each in sequences))
    note = given.out.with_suffix(".json")
    facts = json.dumps(
        {
            "model": args.model,
            "revision": args.revision,
            "compute_dtype": args.compute_dtype,
            "chunk": args.chunk,
            "wo_norms": args.wo_norms,
            **({"wo": True} if args.wo else {}),
            "texts": {each.name: each.ids.tolist() for each in sequences},
        }
    )
    if given.out.exists() and (not note.exists() or note.read_text() != facts):
        raise Fault(
            f"{given.out}: was read by another model or from other texts; choose another --out, or "
            "pass --fresh to start over"
        )
    if not given.out.exists():
        write(note, facts)  # before the dump, which appears whole: none is without its note
        export_of(model, given)
    dump = kb.open_dump(given.out)
    refuse_members(dump)
    return dump, {each.name: each.ids for each in sequences}


def refuse_members(dump: kb.Dump) -> None:
    """Refuses layers that answers over compressed caches are not made for."""
    for sequence in dump.values():
        for layer in sequence.values():
            members = {
                "sink logits": layer.sinks is not None,
                "ALiBi's bias by distance": layer.alibi_slopes is not None,
                "chunks": layer.chunk > 0,
                "rows that see later tokens": not layer.causal,
            }
            has = [name for name, is_there in members.items() if is_there]
            if has:
                raise Fault(
                    f"layer {layer.index} has {' and '.join(has)}, which the closed loop does not "
                    "compute; use a model of causal attention, whole or within a window"
                )


def compress(args: argparse.Namespace, dump: kb.Dump) -> kb.Results:
    """kvbench's own run over the dump, with cache files; resumes."""
    sets = [f"/dumps={json.dumps([str(Path(dump.path).absolute())])}", "/output/caches=true"]
    if args.layers is not None:
        sequence = dump[next(iter(dump))]
        text = "all" if args.layers == ONE_AT_A_TIME else args.layers
        chosen = layer_numbers(text, dump.n_layers, set(sequence))
        sets.append(f"/select/layers={json.dumps(sorted(chosen))}")
    try:
        return kb.run(args.config, out=args.out / "attention", sets=sets, add=True, quiet=True)
    except kb.Error as error:
        raise Fault(str(error)) from None


class Loop:
    """The records of all settings; what is in the journal is not computed again."""

    def __init__(
        self,
        model: torch.nn.Module,
        texts: dict[str, Text],
        ids: dict[str, np.ndarray],
        settings: list[Setting],
        files: CacheFiles,
        args: argparse.Namespace,
    ) -> None:
        self._model, self._texts, self._ids = model, texts, ids
        self._settings, self._files, self._args = settings, files, args
        self._full: dict[str, torch.Tensor] = {}

    @cached_property
    def _jobs(self) -> list[tuple[str, Setting, frozenset[int]]]:
        return [
            (loop_settings.identity(setting, layers), setting, layers)
            for setting in self._settings
            for layers in self._compressed(setting)
        ]

    def _compressed(self, setting: Setting) -> Iterable[frozenset[int]]:
        if self._args.layers == ONE_AT_A_TIME:
            return [frozenset([layer]) for layer in setting.layers]
        return [frozenset(setting.layers)]

    def records(self, journal: Journal) -> list[dict[str, Any]]:
        left = sum(name not in journal for name, _, _ in self._jobs)
        done, began = 0, time.monotonic()
        with interrupts("closed_loop.py") as check:
            for name, setting, layers in self._jobs:
                if name in journal:
                    continue
                check()
                start = time.monotonic()
                record = self._record(setting, layers)
                journal.add(name, {"seconds": round(time.monotonic() - start, 3), "record": record})
                done += 1
                rate = (time.monotonic() - began) / done
                self._say(done, left, setting, layers, record, rate * (left - done))
        return [journal[name]["record"] for name, _, _ in self._jobs]

    def _say(
        self,
        done: int,
        left: int,
        setting: Setting,
        layers: frozenset[int],
        record: dict[str, Any],
        seconds: float,
    ) -> None:
        what = f"{setting.sequence}: {loop_settings.title(setting, self._settings)}"
        if self._args.layers == ONE_AT_A_TIME:
            what += f", layer {min(layers)}"
        if record["status"] == "ok":
            kl, same = record["kl"]["mean"], record["same_top1"]["mean"]
            said = f"KL {kl:.3g} nats, same top token {100 * same:.1f} %"
        else:
            said = f"{record['status']}, {record['reason']}"
        time_left = f"; about {seconds:.0f} s left" if done < left else ""
        say(f"{done}/{left} {what}: {said}{time_left}")

    def _record(self, setting: Setting, layers: frozenset[int]) -> dict[str, Any]:
        text = self._texts[setting.sequence]
        head: dict[str, Any] = {
            "sequence": setting.sequence,
            "label": setting.label,
            "algorithm": setting.algorithm,
            "params": setting.params,
            "storage": setting.storage,
            "seed": setting.seed,
            "layers": sorted(layers),
        }
        found = loop_settings.obstacle(setting, text, sorted(layers))
        if found:
            return {**head, "status": found[0], "reason": found[1]}
        try:
            answers = self._answers(text, setting, layers)
            logits = self._decode(text, answers)
        except Unsuitable as reason:
            return {**head, "status": "skipped", "reason": str(reason)}
        finite = bool(torch.isfinite(logits).all())
        if not finite:
            return {**head, "status": "failed", "reason": "the model's logits are not finite"}
        record = {
            **head,
            "status": "ok",
            **summary(compared(self._full_logits(text), logits, self._after_prompt(text))),
            **loop_settings.measured(setting, layers),
        }
        if isinstance(answers, Live) and answers.errors:
            record["errors_live"] = loop_settings.means(answers.errors)
            record["errors_dense"] = loop_settings.means(answers.errors_dense)
        if isinstance(answers, InPieces):
            record["pieces"] = answers.facts()
        return record

    def _answers(
        self, text: Text, setting: Setting, layers: frozenset[int]
    ) -> InPieces | Live | Replayed:
        piece = self._args.prompt_pieces
        if piece and piece < text.prompt:
            return InPieces(text, setting, self._files, layers, piece=piece)
        kind = Live if self._args.decisions == "live" else Replayed
        return kind(text, setting, self._files, layers)

    def _full_logits(self, text: Text) -> torch.Tensor:
        if text.name not in self._full:
            self._full.clear()  # one text's logits may take a gigabyte
            self._full[text.name] = self._decode(text, Whole(text))
        return self._full[text.name]

    def _decode(self, text: Text, answers: Live | Replayed | Whole) -> torch.Tensor:
        if isinstance(answers, InPieces):
            ids = torch.from_numpy(self._ids[text.name].astype(np.int64))
            return decoded_in_pieces(self._model, text, ids, answers)
        return decoded(self._model, text, self._after_prompt(text), answers)

    def _after_prompt(self, text: Text) -> torch.Tensor:
        """Ids of the decoded tokens."""
        return torch.from_numpy(self._ids[text.name][text.prompt :].astype(np.int64))
