"""The model's output over a compressed cache is the expected one: unchanged for `exact`, the same
as with transformers' own sliding window for `window`, and the same whether the model answers with a
mask or kvbench itself does. Each comparison is red with a wrong mask."""

from __future__ import annotations

import dataclasses
import unittest
from unittest import mock

import kvbench as kb
import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from loop import loop_answers
from loop import loop_caches
from export.attention_capture import Call
from looped import IDS, PROMPT, Folder, Live, Read, Replayed, apart
from loop.loop_caches import Unsuitable
from loop.loop_settings import obstacle

# Rounding in float32 of two layers' logits; a wrong token moves them by more than 0.01.
ROUNDING, WRONG = 1e-4, 1e-2
ENDS = {"sinks": 4, "recent": 8}
# Algorithms whose rows a mask can express.
WEIGHTED = [
    ("window", {"budget": 24}), ("dilated_window", {"budget": 16, "dilation": 2}),
    ("streaming_llm", {"budget": 24, "sinks": 4}), ("key_attention", {"budget": 24}),
    ("h2o", {"budget": 24}), ("keyformer", {"budget": 24}), ("tova", {"budget": 24, "scope": "head"}),
    ("roco", {"budget": 24}), ("caote", {"budget": 24}), ("rkv", {"budget": 24, "window": 8}),
    ("snapkv", {"budget": 24, "window": 8}), ("pyramidkv", {"budget": 24, "window": 8}),
    ("knorm", {"budget": 24}), ("keydiff", {"budget": 24}), ("lagkv", {"budget": 48, "lag": 16}),
    ("expected_attention", {"budget": 24}), ("uniform", {"budget": 24, **ENDS}),
    ("uniform", {"budget": 24, "replacement": True, **ENDS}), ("kcenter", {"budget": 24}),
    ("merge_cosine", {"budget": 40}), ("attention_matching", {"budget": 24}),
    ("oracle_topk", {"budget": 8}), ("quest", {"budget": 16, "page": 4}),
    ("loki", {"budget": 16, "rank": 8}),
]


def entry(algorithm: str, params: dict) -> dict:
    return {"algorithm": algorithm, "params": params}


def shifted(reads):
    """The planted bug: every token of the prompt stands one place too far left."""
    def wrong(*arguments):
        read = reads(*arguments)
        weight = read.weight.copy()
        weight[:, :, :PROMPT] = np.roll(weight[:, :, :PROMPT], -1, axis=2)
        return dataclasses.replace(read, weight=weight)
    return mock.patch.object(loop_caches, "head_reads", wrong)


class Exact(Folder):
    def test_exact_changes_nothing(self):
        for name in ("llama", "mistral", "gemma2", "gemma3_text", "gpt2", "gpt_neox"):
            for decisions in ("replayed", "live"):
                with self.subTest(model=name, decisions=decisions):
                    record, = self.looped(self.model(name), [entry("exact", {})], "--decisions",
                                          decisions, out=f"{name}-{decisions}")
                    self.assertEqual(record["status"], "ok", record.get("reason"))
                    self.assertLess(record["kl"]["max"], 1e-9)
                    self.assertEqual(record["same_top1"]["mean"], 1.0)
                    self.assertAlmostEqual(record["perplexity"]["ratio"], 1.0, places=5)
                    self.assertEqual(record["memory"]["fraction"], 1.0)

    def test_a_wrong_mask_is_seen(self):
        read = Read(self, self.model("llama"), [entry("window", {"budget": 24})])
        self.assertGreater(apart(read.logits(Replayed), read.whole()), WRONG)
        right = read.logits(Replayed)
        with shifted(loop_caches.head_reads):
            self.assertGreater(apart(read.logits(Replayed), right), WRONG)

    def test_decoding_after_the_prompt_is_reading_on(self):
        path = self.model("llama")
        read = Read(self, path, [entry("exact", {})])
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32,
                                                     attn_implementation="eager")
        with torch.no_grad():
            whole = model(torch.from_numpy(IDS[None])).logits[0, PROMPT:]
        self.assertLess(apart(read.whole(), whole), ROUNDING)


class Window(Folder):
    WIDTH = 24

    def sliding(self, width: int) -> torch.Tensor:
        """Logits of transformers' own mask of that width over the prompt's whole cache."""
        full, sliding = (AutoModelForCausalLM.from_pretrained(
            self.model("mistral", sliding_window=each), dtype=torch.float32,
            attn_implementation="eager") for each in (None, width))
        ids, cache = torch.from_numpy(IDS[None]), DynamicCache()
        with torch.no_grad():
            full(ids[:, :PROMPT], past_key_values=cache)
            return sliding(ids[:, PROMPT:], past_key_values=cache).logits[0]

    def test_window_is_transformers_own_sliding_window(self):
        read = Read(self, self.model("mistral", sliding_window=None),
                    [entry("window", {"budget": self.WIDTH})])
        theirs = self.sliding(self.WIDTH)
        for kind in (Replayed, Live):
            ours = read.logits(kind)
            self.assertLess(apart(ours, theirs), ROUNDING)
            self.assertGreater(apart(ours, self.sliding(self.WIDTH + 1)), WRONG)
        with shifted(loop_caches.head_reads):
            self.assertGreater(apart(read.logits(Replayed), theirs), WRONG)


class MaskOrProgram(Folder):
    def test_a_mask_says_what_kvbench_answers(self):
        """In one layer alone, whose queries are then those of the uncompressed model."""
        for name in ("llama", "gemma2"):
            read = Read(self, self.model(name), [entry(*each) for each in WEIGHTED])
            self.assertEqual(len(read.settings), len(WEIGHTED))
            whole = read.whole()
            for place, setting in enumerate(read.settings):
                for layer in (0, 1):
                    found = obstacle(setting, read.text, [layer])
                    if found:  # methods that some layers with a sliding window do not have
                        self.assertEqual((name, layer, found[0]), ("gemma2", 0, "skipped"))
                        continue
                    with self.subTest(model=name, algorithm=setting.algorithm, layer=layer):
                        ours = read.logits(Replayed, place, [layer])
                        self.assertLess(apart(ours, read.logits(Live, place, [layer])), ROUNDING)
                        if name == "llama":  # windows of gemma2 hide what is dropped
                            self.assertGreater(apart(ours, whole), WRONG)

    def test_a_wrong_mask_is_seen(self):
        names = ("snapkv", "h2o", "uniform", "quest")
        read = Read(self, self.model("llama"), [entry(*each) for each in WEIGHTED
                                                if each[0] in names])
        for place, setting in enumerate(read.settings):
            live = read.logits(Live, place, [1])
            with self.subTest(setting.algorithm), shifted(loop_caches.head_reads):
                self.assertGreater(apart(read.logits(Replayed, place, [1]), live), WRONG)

    def test_what_is_decided_on_the_prompt_is_the_same_live(self):
        read = Read(self, self.model("llama"), [
            entry("snapkv", {"budget": 24, "window": 8}), entry("uniform", {"budget": 24, **ENDS}),
            entry("adakv", {"budget": 24, "window": 8}),
            entry("tova", {"budget": 8, "scope": "head"}), entry("tova", {"budget": 24})])
        for place in range(3):
            self.assertLess(apart(read.logits(Replayed, place), read.logits(Live, place)), ROUNDING)
        self.assertGreater(apart(read.logits(Replayed, 3), read.logits(Live, 3)), WRONG)
        read.logits(Replayed, 4)
        with self.assertRaisesRegex(Unsuitable, "several KV heads together"):
            read.logits(Live, 4)

    def test_weights_of_rows_that_are_not_scored_are_unknown(self):
        algorithms = [entry("vattention", {"sinks": 4, "recent": 4, "top": 8}), entry("uniform", {"T": 1, **ENDS})]
        rows = len(IDS) - PROMPT
        every, as_many, last = (Read(self, self.model("llama"), algorithms, evaluate={"rows": scored})
                                for scored in ("all", {"last": rows}, {"last": 8}))
        for place in (0, 1):
            self.assertEqual(apart(every.logits(Replayed, place), as_many.logits(Replayed, place)), 0.0)
        self.assertEqual(apart(every.logits(Replayed, 1), last.logits(Replayed, 1)), 0.0)
        with self.assertRaisesRegex(Unsuitable, "at scored rows alone; leave evaluate.rows out"):
            last.logits(Replayed, 0)

    def test_a_calibration_of_a_file_is_read_live_too(self):
        model, file = self.model("llama"), self.folder / "m.cal.h5"
        self.looped(model, [entry("exact", {})])
        kb.calibrate("qfilters", [self.folder / "out/model.h5"], out=file, tokens=PROMPT // 2)
        replayed, live, own = (
            self.looped(model, [entry("qfilters", {"budget": 24, "calibration": calibration})], "--decisions",
                        decisions, out=f"{decisions}-{len(calibration)}")[0]
            for decisions, calibration in (("replayed", str(file)), ("live", str(file)), ("live", "prompt")))
        self.assertEqual((replayed["status"], live["status"]), ("ok", "ok"), live.get("reason"))
        self.assertAlmostEqual(replayed["kl"]["mean"], live["kl"]["mean"], delta=1e-5)
        self.assertGreater(abs(own["kl"]["mean"] - live["kl"]["mean"]), 1e-4)

    def test_live_it_ranks_by_what_the_models_own_projection_makes_of_values(self):
        read = Read(self, self.model("llama"), [
            entry("criticalkv", {"budget": 24, "window": 8, "norm": norm})
            for norm in ("wo_l1", "value_l1")], "--wo-norms")
        for place in (0, 1):
            self.assertLess(apart(read.logits(Replayed, place), read.logits(Live, place)), ROUNDING)
        self.assertGreater(apart(read.logits(Live, 0), read.logits(Live, 1)), WRONG)

        with mock.patch.object(loop_answers, "wo_norms", wraps=loop_answers.wo_norms) as watched:
            read.logits(Live, 0)
        call, tokens = watched.call_args.args
        self.assertEqual(tokens, slice(PROMPT, None))
        with torch.no_grad():
            norms = loop_answers.wo_norms(call, slice(None))
        self.assertEqual(tuple(norms.shape), (4, len(IDS), 1))
        stored = torch.from_numpy(read.text.layers[call.layer].wo_v_l1)
        self.assertLess(apart(norms[:, :PROMPT, 0], stored[:, :PROMPT]), 1e-5)
        self.assertGreater(apart(norms[:, PROMPT:, 0], stored[:, PROMPT:]), 1e-4)

    def test_live_the_method_sees_what_the_compressed_model_asks(self):
        """The program's own replay of the streams that the layers were called with."""
        read = Read(self, self.model("llama"), [entry("h2o", {"budget": 24})])
        seen, call_of = {}, loop_answers.Live.__call__

        def watched(answers: Live, call: Call) -> torch.Tensor:
            seen[call.layer] = call.q[0].clone()
            return call_of(answers, call)

        with mock.patch.object(loop_answers.Live, "__call__", watched):
            read.logits(Live)
        own = [torch.from_numpy(read.text.layers[layer].q[:, PROMPT:]) for layer in (0, 1)]
        self.assertLess(apart(seen[0], own[0]), 1e-5)
        self.assertGreater(apart(seen[1], own[1]), 1e-3)

    def test_what_no_mask_says_is_skipped_with_its_reason_and_answered_live(self):
        entries = [entry("performer", {"features": 64, "sinks": 4, "recent": 4}),
                   entry("subgen", {"delta_quantile": 0.2, "t": 4, "s": 32}),
                   entry("d2o", {"budget": 24}), entry("cam", {"budget": 24}),
                   entry("balancekv_prefill", {"T": 1, "block": 16, **ENDS}),
                   entry("streaming_llm", {"budget": 24, "positions": "cache"}),
                   {**entry("exact", {}), "storage": ["q8_0", "q4_0"]}]
        model = self.model("llama", hidden_size=128)
        for record in self.looped(model, entries):
            self.assertEqual(record["status"], "skipped", record["label"])
            self.assertIn("--decisions live", record["reason"])
            self.assertNotIn("kl", record)
        records = self.looped(model, entries, "--decisions", "live", out="live")
        for record in records:
            with self.subTest(record["label"]):
                self.assertEqual(record["status"], "ok", record.get("reason"))
                self.assertGreater(record["kl"]["mean"], 0)
                self.assertIsNotNone(record["errors_live"]["relative_l2"]["mean"])
        eight, four = (record["kl"]["mean"] for record in records[-2:])
        self.assertLess(100 * eight, four * 10)
        self.assertLess(eight, four)


if __name__ == "__main__":
    unittest.main()
