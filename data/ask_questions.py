#!/usr/bin/env python3
"""Asks a model for a sentence of its prompt, over compressed caches, for plots/QUESTIONS.md.

    ask_questions.py MODEL --text *.txt --config configs/questions.json --out results/questions

Each text gets sentences of texts/needles.json at five depths, one at a time, and a question after
it; the answer is teacher-forced. A question that the model does not answer over its full cache is
counted and goes no further. The others are asked twice over every setting of the sweep: "seen", the
prompt that is compressed has the question without its last token; "unseen", it ends before the
question. OUT/PART.jsonl gets a line per question, and the same command resumes. Text r, by name,
has at depth d in pass p the sentence r + 2 d + p, modulo their number, so that ten texts have each
at every depth once.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from command import MODEL_PACKAGES, exit_code, interrupts, needed, note, refuse
from export.model_options import add_model_options, option_faults

NEEDLES = Path(__file__).with_name("texts") / "needles.json"
DEPTHS = (0.1, 0.9, 0.5, 0.3, 0.7)  # ends first, for a run that is not finished


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_model_options(p, compute_dtype="float32")
    p.add_argument("--config", type=Path, required=True, help="a sweep; its dumps are not read")
    p.add_argument("--out", type=Path, required=True, help="folder for the journal")
    p.add_argument("--needles", type=Path, default=NEEDLES, help="default: texts/needles.json")
    p.add_argument("--tokens", type=int, default=1000, help="tokens before the question")
    p.add_argument("--passes", type=int, default=1, help="sentences per text and depth (default 1)")
    p.add_argument("--depths", type=float, nargs="+", choices=DEPTHS, default=DEPTHS,
                   help="where sentences are in their texts (default: all)")  # fmt: skip
    p.add_argument("--layers", help="compressed layers (default: all)")
    p.add_argument("--part", default="1/1", help="K/N: question K of every N, to run N at a time")
    return p


@dataclass(frozen=True)
class Question:
    """`ids` end before the answer's last token, whose row is never read."""

    name: str
    facts: dict[str, Any]
    ids: list[int]
    span: list[int]  # first and last token of the sentence
    answer: list[int]
    context: int


def questions(args: argparse.Namespace, tokenizer: Any) -> Iterator[Question]:
    from make_needle import made, parts_of

    needles = json.loads(args.needles.read_text(encoding="utf-8"))
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(args.text)}
    for turn, (step, depth) in product(range(args.passes), enumerate(DEPTHS)):
        if depth not in args.depths:
            continue
        for place, (text, words) in enumerate(texts.items()):
            number = (place + 2 * step + turn) % len(needles)
            parts = parts_of(tokenizer, words, **needles[number])
            tokens = args.tokens + len(parts.question) + len(parts.answer)
            needle = made(parts, tokens, depth, tokenizer.decode)
            (span,) = needle.evidence
            facts = {"text": text, "needle": number, "depth": depth,
                     "distance": needle.rows[0] - span[1]}  # fmt: skip
            yield Question(f"{text}-{depth}-{number}", facts, needle.ids[:-1], span,
                           parts.answer, args.tokens)  # fmt: skip


class Asked:
    """A question that the model has read: its dump, and answers over any cache."""

    def __init__(self, model: Any, question: Question, args: argparse.Namespace, out: Path) -> None:
        import numpy as np
        from loop import loop_run

        self.model, self.question, self.args, self.out = model, question, args, out
        self.rows = len(question.answer)  # evidence rows
        loop_run.discard(out)
        out.mkdir(exist_ok=True)
        tokens = len(question.ids)
        np.save(out / "question.npy", np.array(question.ids, np.int32))
        evidence = {"evidence": [question.span], "rows": list(range(tokens - self.rows, tokens)),
                    "tokens": tokens, "prompt_tokens": question.context}  # fmt: skip
        (out / "question.json").write_text(json.dumps(evidence))
        given = {"text": None, "token_ids": out / "question.npy", "tokens": None, "out": out,
                 "evidence": out / "question.json", "chunk": 256}  # fmt: skip
        self._texts: dict[int, Any] = {}  # by prompt
        self.dump, _ = loop_run.read_texts(model, argparse.Namespace(**{**vars(args), **given}))

    def text(self, prompt: int) -> Any:
        from loop import loop_run

        if prompt not in self._texts:
            (self._texts[prompt],) = loop_run.texts_of(
                self.dump, dict.fromkeys(self.dump, prompt)
            ).values()
        return self._texts[prompt]

    def logits(self, prompt: int, *answers: Any) -> Any:
        """[answers, rows, vocabulary] of the evidence rows."""
        import torch
        from loop import loop_run

        ids = torch.tensor(self.question.ids[prompt:])
        return loop_run.decoded_by_each(self.model, self.text(prompt), ids, answers)[
            :, -self.rows :
        ]

    def full(self, prompt: int) -> Any:
        from loop.loop_answers import Whole

        return self.logits(prompt, Whole(self.text(prompt)))[0]

    def without(self, prompt: int) -> Any:
        """Over the full cache less the sentence's tokens: how well the answer is guessed."""
        import torch

        first, last = self.question.span

        def answer(call: Any) -> Any:
            mask = call.mask.clone()  # columns are the layer's last tokens
            gone = max(0, call.k.shape[2] - len(self.question.ids) + first)
            mask[..., gone : call.k.shape[2] - len(self.question.ids) + last + 1] = torch.finfo(
                mask.dtype
            ).min
            call.mask = mask
            return call.own_answer()

        return self.logits(prompt, answer)[0]

    def answer_record(self, logits: Any, full: Any) -> dict[str, Any]:
        """Per token of the answer: its rank, -ln q of it, and KL from the full cache's."""
        import torch
        from loop.loop_statistics import compared

        right = torch.tensor(self.question.answer)
        rows = compared(full, logits, torch.tensor([0, *self.question.answer]))
        own = logits.gather(1, right[:, None])
        return {"rank": (1 + (logits > own).sum(dim=1)).tolist(),
                "surprise": rows.surprise.tolist(), "kl": rows.kl.tolist()}  # fmt: skip

    def measured(self, setting: Any, logits: Any, full: Any) -> dict[str, Any]:
        """The numbers of an answered setting for its record."""
        from loop import loop_settings

        cells = list(setting.cells.values())
        return {"status": "ok", **self.answer_record(logits, full),
                **loop_settings.means([_measured(cell) for cell in cells]),
                "memory": loop_settings.memory_fraction(cells)}  # fmt: skip

    def records(self, protocol: str) -> list[dict[str, Any]]:
        import kvbench as kb
        import torch
        from loop import loop_settings
        from loop.loop_answers import Live, Replayed, Whole
        from loop.loop_caches import CacheFiles, Unsuitable

        tokens = len(self.question.ids)
        prompt = tokens - self.rows if protocol == "seen" else self.question.context
        out = self.out / "attention"
        shutil.rmtree(out, ignore_errors=True)
        sets = [f"/dumps={json.dumps([str(Path(self.dump.path).absolute())])}",
                "/output/caches=true", f"/replay/prompt_tokens={prompt}",
                f'/evaluate/rows={{"last": {self.rows}}}']  # fmt: skip
        if self.args.layers:
            sets.append(f"/select/layers=[{self.args.layers}]")
        results = kb.run(self.args.config, out=out, sets=sets, quiet=True,
                         threads=torch.get_num_threads())  # fmt: skip
        text, files = self.text(prompt), CacheFiles(out / "caches", results.document)
        records: list[dict[str, Any]] = []
        replayed: list[tuple[dict[str, Any], Any, Replayed]] = []
        live: list[tuple[dict[str, Any], Any, Live]] = []
        for setting in loop_settings.settings_of(results.cells):
            record: dict[str, Any] = {"protocol": protocol, "label": setting.label,
                                      "params": setting.params}  # fmt: skip
            records.append(record)
            bad = loop_settings.obstacle(setting, text, setting.layers)
            if bad:
                record["status"], record["reason"] = bad
                continue
            chosen = frozenset(setting.layers)
            answers = Replayed(text, setting, files, chosen)
            try:
                for layer in chosen:
                    answers.reads(layer)
                replayed.append((record, setting, answers))
            except Unsuitable:  # in some layer, its weights are not those of a softmax
                record["decisions"] = "live"
                live.append((record, setting, Live(text, setting, files, chosen)))
        full, *each = self.logits(prompt, Whole(text), *(answers for *_, answers in replayed))
        for (record, setting, _), logits in zip(replayed, each, strict=True):
            record |= self.measured(setting, logits, full)
        for record, setting, decided in live:  # one by one, as one may refuse
            try:
                record |= self.measured(setting, self.logits(prompt, decided)[0], full)
            except Unsuitable as reason:
                record["status"], record["reason"] = "skipped", str(reason)
        return records


def _measured(cell: dict[str, Any]) -> dict[str, Any]:
    return {"error": cell["errors"]["relative_frobenius_error"],
            "mean_error": cell["errors"]["relative_l2"]["mean"],
            "held": cell["evidence"]["held"],
            "mass": cell["evidence"]["mass"]["approximate"],
            "mass_exact": cell["evidence"]["mass"]["exact"],
            "memory": cell["memory"]["fraction"],
            "reads": cell["traffic"]["fraction"]}  # fmt: skip


def answered(model: Any, question: Question, args: argparse.Namespace, out: Path) -> dict[str, Any]:
    """The journal's line of a question."""
    asked = Asked(model, question, args, out)
    full, prompt = asked.full(question.context), question.context
    line = {**question.facts, "tokens": len(question.ids), "full": asked.answer_record(full, full)}
    line["answers"] = max(line["full"]["rank"]) == 1
    if line["answers"]:
        line["without"] = asked.answer_record(asked.without(prompt), full)
        line["records"] = [*asked.records("seen"), *asked.records("unseen")]
    return line


def run(args: argparse.Namespace) -> None:
    faults = option_faults(args, {"passes": 1}, (args.config, args.needles))
    part, _, parts = args.part.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        faults.append(f"--part {args.part}: K/N, with K from 1 to N")
    if not args.text:
        faults.append("--text: give texts; questions are put into them")
    refuse(faults)
    with needed(f"questions need the Python package kvbench and {MODEL_PACKAGES}"):
        from export.model_export import load_model, say
        from export.token_sequences import tokenizer_of
        from loop.loop_journal import Journal
    args.out.mkdir(parents=True, exist_ok=True)
    model = load_model(args)
    header = {"kind": "kvbench.questions", "model": Path(args.model).name,
              "context": args.tokens, "sweep": args.config.read_text(encoding="utf-8"),
              "needles": args.needles.read_text(encoding="utf-8")}  # fmt: skip
    every = list(questions(args, tokenizer_of(args.model)))[int(part) - 1 :: int(parts)]
    folder = args.out / f"part-{part}"
    with (
        Journal(args.out / f"{part}.jsonl", header) as journal,
        interrupts("ask_questions.py") as check,
    ):
        for count, question in enumerate(every, 1):
            if question.name in journal:
                continue
            check()
            began = time.monotonic()
            line = answered(model, question, args, folder)
            shutil.rmtree(folder)
            seconds = round(time.monotonic() - began, 1)
            journal.add(question.name, {"seconds": seconds, **line})
            say(f"{count}/{len(every)} {question.name}: rank {line['full']['rank']}, {seconds} s")


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        return exit_code("ask_questions.py", lambda: run(args))
    except KeyboardInterrupt:
        note("ask_questions.py", "interrupted; run the same command again to go on")
        return 5


if __name__ == "__main__":
    sys.exit(main())
