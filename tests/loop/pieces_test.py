"""A prompt read in pieces: one piece is the whole prompt, exact caches change nothing, two methods
answer as a separate program does, and an interrupted run writes the same bytes."""

from __future__ import annotations

import unittest
from unittest import mock

import numpy as np
import torch

from loop import loop_pieces
from loop.loop_caches import Unsuitable
from loop.loop_pieces import InPieces
from looped import IDS, PROMPT, TOKENS, Folder, Live, Read, apart, called, loop_run
from read_in_pieces import Program, snapkv, streaming_llm

# Rounding in float32 of two layers' logits; a wrong token moves them by more than 0.01.
ROUNDING, WRONG = 1e-4, 1e-2
STREAMING = {"algorithm": "streaming_llm", "params": {"budget": 24, "sinks": 4}}
SNAPKV = {"algorithm": "snapkv", "params": {"budget": 24, "window": 8}}
OTHERS = [
    {"algorithm": "window", "params": {"budget": 24}},
    {"algorithm": "tova", "params": {"budget": 24, "scope": "head"}},
    {"algorithm": "tova", "params": {"budget": 24, "scope": "head", "semantics": "once"}},
    {"algorithm": "knorm", "params": {"budget": 24}},
    {"algorithm": "keydiff", "params": {"budget": 24}},
    {"algorithm": "lagkv", "params": {"budget": 24, "lag": 8}},
    {"algorithm": "uniform", "params": {"budget": 24, "weights": "none"}},
]


class Pieces(Folder):
    def read(self, *algorithms: dict, model: str = "llama", **changes: object) -> Read:
        return Read(self, self.model(model, **changes), list(algorithms))

    def logits(self, read: Read, piece: int, place: int = 0, layers: object = None) -> torch.Tensor:
        setting = read.settings[place]
        chosen = frozenset(setting.layers if layers is None else layers)
        answers = InPieces(read.text, setting, read.files, chosen, piece=piece)
        return loop_run.decoded_in_pieces(read.model, read.text, torch.from_numpy(IDS), answers)

    def live(self, algorithms: list[dict], *options: object, out: str, model: str = "llama",
             **more: object) -> list[dict]:
        return self.looped(self.model(model), algorithms, "--decisions", "live", *options, out=out, **more)

    def test_one_piece_is_the_whole_prompt(self):
        algorithms = [{"algorithm": "exact"}, STREAMING, SNAPKV, {"algorithm": "h2o", "params": {"budget": 24}},
                      *OTHERS]
        whole = self.live(algorithms, out="whole")
        for piece in (PROMPT, 10 * PROMPT):
            self.assertEqual(self.live(algorithms, "--prompt-pieces", piece, out=f"one-{piece}"), whole)
        pieces = self.live([SNAPKV], "--prompt-pieces", PROMPT - 8, out="two")
        self.assertNotEqual(pieces[0]["kl"], whole[2]["kl"])

    def test_exact_caches_change_nothing(self):
        entries = [{"algorithm": "exact"}, {"algorithm": "quest", "params": {"budget": 16, "page": 4}}]
        for name in ("llama", "qwen3", "gpt2", "gpt_neox"):
            whole = self.live(entries, out=f"{name}-whole", model=name)
            for piece in (1, 7, 32, PROMPT - 1):
                with self.subTest(model=name, piece=piece):
                    record, reads = self.live(entries, "--prompt-pieces", piece, out=f"{name}-{piece}", model=name)
                    self.assertLess(record["kl"]["max"], 1e-9)
                    self.assertEqual(record["same_top1"]["mean"], 1.0)
                    self.assertLess(record["errors_live"]["relative_l2"]["max"], 1e-6)
                    self.assertLess(record["errors_dense"]["relative_l2"]["max"], 1e-4)
                    self.assertEqual(record["pieces"], {"tokens": piece, "count": -(-PROMPT // piece),
                                                        "fraction": PROMPT / TOKENS})
                    self.assertAlmostEqual(reads["kl"]["mean"], whole[1]["kl"]["mean"], delta=1e-5)

    def test_two_methods_answer_as_a_separate_program(self):
        read, program = self.read(STREAMING, SNAPKV), Program(self.model("llama"))
        for piece in (28, 16, 8):
            lengths = [len(range(PROMPT)[first:first + piece]) for first in range(0, PROMPT, piece)]
            for place, choice, rolls in ((0, streaming_llm(24, 4), (24, 4)), (1, snapkv(24, 8, 7), None)):
                with self.subTest(piece=piece, place=place):
                    theirs = torch.from_numpy(program.logits(IDS, [*lengths, TOKENS - PROMPT], choice, rolls))
                    self.assertLess(apart(self.logits(read, piece, place), theirs), ROUNDING)
                    self.assertGreater(apart(read.logits(Live, place), theirs), WRONG)

    def test_a_token_that_stays_by_mistake_is_seen(self):
        """The planted bug: the next piece sees one token that went."""
        read, program, mask_of = self.read(SNAPKV), Program(self.model("llama")), InPieces._mask
        theirs = torch.from_numpy(program.logits(IDS, [28, 28, 8, TOKENS - PROMPT], snapkv(24, 8, 7), None))

        def wrong(answers: InPieces, call: object) -> torch.Tensor:
            mask = mask_of(answers, call)
            gone = np.setdiff1d(np.arange(28), answers._held[call.layer, 0])
            mask[:, :, :, gone[0]] = 0
            return mask

        self.assertLess(apart(self.logits(read, 28), theirs), ROUNDING)
        with mock.patch.object(loop_pieces.InPieces, "_mask", wrong):
            self.assertGreater(apart(self.logits(read, 28), theirs), WRONG)

    def test_memory_is_that_of_the_whole_prompt(self):
        for budget in (24, 0.375, {"memory": 0.6}):
            algorithms = [{**each, "params": {**each["params"], "budget": budget}}
                          for each in (STREAMING, SNAPKV, *OTHERS)]
            records = self.live(algorithms, "--prompt-pieces", 16, out=f"out-{budget}")
            for record in records:
                with self.subTest(record["label"], budget=budget):
                    self.assertEqual(record["status"], "ok", record.get("reason"))
                    self.assertEqual(record["pieces"]["count"], 4)
                    rolls = record["label"] in ("streaming_llm", "window") or (
                        record["params"].get("semantics") == "released")
                    budget_tokens = 24 if not isinstance(budget, dict) else 54 if rolls else 54 - (TOKENS - PROMPT)
                    read = min(budget_tokens + 16, PROMPT)
                    self.assertLessEqual(abs(record["pieces"]["fraction"] * TOKENS - read), 1 + 1e-9)
                    self.assertGreater(record["kl"]["mean"], 1e-4)
                    self.assertGreater(record["errors_live"]["relative_frobenius_error"], 1e-3)

    def test_only_chosen_layers_are_compressed(self):
        read = self.read(SNAPKV)
        both, first = self.logits(read, 16), self.logits(read, 16, layers=[0])
        self.assertGreater(apart(both, first), WRONG)
        self.assertGreater(apart(first, read.whole()), WRONG)
        self.assertLess(apart(self.logits(read, 16, layers=[]), read.whole()), ROUNDING)

    def test_errors_against_the_uncompressed_model(self):
        """In layer 0, whose queries and keys the past does not change, they are those against exact attention of the
        compressed model; all are those of a softmax over the dump."""
        read, rows = self.read(SNAPKV), TOKENS - PROMPT
        setting = read.settings[0]
        for kind, more in ((Live, {}), (InPieces, {"piece": 16})):
            answers, given = kind(read.text, setting, read.files, frozenset(setting.layers), **more), []
            compare = answers.compare

            def noted(place: tuple[int, int], own: np.ndarray, given: list = given, compare: object = compare) -> None:
                given.append((place, own))
                compare(place, own)

            answers.compare = noted
            if more:
                loop_run.decoded_in_pieces(read.model, read.text, torch.from_numpy(IDS), answers)
            else:
                loop_run.decoded(read.model, read.text, torch.from_numpy(IDS[PROMPT:]), answers)
            self.assertEqual(len(given), len(answers.errors))
            for ((number, head), own), live, dense in zip(given, answers.errors, answers.errors_dense, strict=True):
                with self.subTest(kind.__name__, layer=number, head=head):
                    layer = read.text.layers[number]
                    q = layer.q.astype(float).reshape(layer.kv_heads, -1, TOKENS, layer.q.shape[2])[head][:, -rows:]
                    x = layer.scale * q @ layer.k[head].astype(float).T
                    e = np.where(np.arange(TOKENS) <= np.arange(PROMPT, TOKENS)[:, None], np.exp(x), 0.0)
                    exact = (e / e.sum(axis=-1, keepdims=True)) @ layer.v[head].astype(float)
                    expected = np.linalg.norm(own - exact) / np.linalg.norm(exact)
                    self.assertAlmostEqual(dense["relative_frobenius_error"] / expected, 1, places=6)
                    apart_by = abs(dense["relative_frobenius_error"] / live["relative_frobenius_error"] - 1)
                    if number == 0:
                        self.assertLess(apart_by, 1e-4)
                    else:
                        self.assertGreater(apart_by, 1e-3)

    def test_draws_differ_from_piece_to_piece(self):
        read = self.read({"algorithm": "uniform", "params": {"budget": 24, "sinks": 0, "weights": "none"}})
        chosen, replay = [], InPieces.replay

        def watched(answers: InPieces, qkv: object, *arguments: object, **given: object) -> object:
            found = replay(answers, qkv, *arguments, **given)
            if "rows" in given and len(qkv[1]) - TOKENS + PROMPT == 48:
                chosen.append(tuple(found.tokens(48)))
            return found

        with mock.patch.object(InPieces, "replay", watched):
            self.logits(read, 24)
            self.assertEqual(len(set(chosen)), 4)  # by layer and KV head
            once = list(chosen)
            self.logits(read, 24)
        self.assertEqual(chosen, once + once)

    def test_what_cannot_be_read_so_is_skipped_with_its_reason(self):
        alone, more = "queries of a piece alone", "keeps more than tokens"
        entries = [({"algorithm": "h2o", "params": {"budget": 24}}, alone),
                   ({"algorithm": "expected_attention", "params": {"budget": 24}}, alone),
                   ({"algorithm": "streaming_llm", "params": {"budget": 24, "positions": "cache"}}, more),
                   ({"algorithm": "uniform", "params": {"budget": 24}}, more),
                   ({"algorithm": "merge_cosine", "params": {"budget": 40}}, more),
                   ({"algorithm": "performer", "params": {"features": 8, "sinks": 4, "recent": 4}}, more),
                   ({"algorithm": "tova", "params": {"budget": 24}}, "several KV heads together"),
                   ({"algorithm": "snapkv", "params": {"budget": 24, "window": 20}}, alone),
                   ({"algorithm": "pyramidkv", "params": {"budget": 24, "window": 8}}, "after a prompt read whole"),
                   ({"algorithm": "exact", "storage": ["q8_0"]}, "quantised")]
        records = self.looped(self.model("llama", hidden_size=128), [entry for entry, _ in entries],
                              "--decisions", "live", "--prompt-pieces", 16)
        self.assertEqual(len(records), len(entries))
        for record, (_, reason) in zip(records, entries, strict=True):
            with self.subTest(record["label"]):
                self.assertEqual(record["status"], "skipped")
                self.assertIn(reason, record["reason"])
        read = self.read(SNAPKV, model="mistral")
        with self.assertRaisesRegex(Unsuitable, "layer 0 has a sliding window"):
            self.logits(read, 16)

    def test_options(self):
        sweep = self.sweep([SNAPKV])
        options = self.options(self.model("llama"), sweep, "--prompt-pieces")
        self.assert_refused(called(*options, 16), "--prompt-pieces", "--decisions live")
        self.assert_refused(called(*options, 0, "--decisions", "live"), "--prompt-pieces 0: at least 1")

    def test_interrupted_and_resumed_it_writes_the_same_bytes(self):
        algorithms = [STREAMING, SNAPKV, *OTHERS]
        self.live(algorithms, "--prompt-pieces", 16, out="whole")
        whole, journal = ((self.folder / "whole" / name).read_bytes() for name in ("loop.json", "loop.jsonl"))
        self.live(algorithms[:1], "--prompt-pieces", 16, out="cut")
        lines = journal.splitlines(keepends=True)
        (self.folder / "cut/loop.jsonl").write_bytes(b"".join(lines[:4]) + lines[4][:20])
        self.live(algorithms, "--prompt-pieces", 16, out="cut")
        self.assertEqual((self.folder / "cut/loop.json").read_bytes(), whole)
        self.assertTrue((self.folder / "cut/loop.jsonl").read_bytes().startswith(b"".join(lines[:4])))
        refused = called(*self.options(self.model("llama"), self.sweep(algorithms), "--decisions", "live",
                                       "--prompt-pieces", 17, out="cut"))
        self.assert_refused(refused, "prompt_pieces 16, now 17")


if __name__ == "__main__":
    unittest.main()
