"""A model whose cache kvpress pruned, and the closed loop of kvbench's own algorithm, say the same:
logits of the decoded tokens, with the positions that the kept keys were rotated to."""

from __future__ import annotations

import unittest
from unittest import mock

import torch
import transformers

import kvpress_caches
from presses import kvpress_presses
from loop import loop_caches
from answers_test import ROUNDING, WRONG, shifted
from looped import IDS, PROMPT, TOKENS, Folder, Live, Read, Replayed, apart, tiny_models

kvpress = kvpress_presses.load_kvpress()
BUDGET = 24
# A press, kvbench's algorithm, its parameters, and the decoded rows in which they are the same:
# kvbench's streaming_llm goes on evicting while it decodes, kvpress's stops after the prompt.
SAME = [
    ("SnapKVPress(window_size=8, kernel_size=5)", BUDGET, "snapkv",
     {"budget": BUDGET, "window": 8, "kernel": 5, "pool": "avg"}, TOKENS - PROMPT),
    ("KnormPress", BUDGET, "knorm", {"budget": BUDGET}, TOKENS - PROMPT),
    ("KeyDiffPress", BUDGET, "keydiff", {"budget": BUDGET}, TOKENS - PROMPT),
    ("StreamingLLMPress(n_sink=4)", BUDGET - 1, "streaming_llm", {"budget": BUDGET, "sinks": 4}, 1),
]


class Kvpress(Folder):
    def setUp(self) -> None:
        super().setUp()
        patch = mock.patch.object(kvpress.BasePress, "forward_hook",
                                  tiny_models.pass_cache_position(kvpress.BasePress.forward_hook))
        patch.start()
        self.addCleanup(patch.stop)

    def theirs(self, path: object, spec: str, budget: int) -> torch.Tensor:
        """Logits after a prompt that the press has pruned; positions go on from the prompt's."""
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, attn_implementation="eager", dtype=torch.float32)
        press = kvpress_presses.press_of(spec)
        kvpress_caches.Cut(budget=budget).set(press, PROMPT)
        ids, cache = torch.from_numpy(IDS[None]), transformers.DynamicCache()
        with torch.no_grad():
            with press(model):
                model(ids[:, :PROMPT], past_key_values=cache)
            self.assertEqual(cache.layers[0].keys.shape[2], budget)
            return model(ids[:, PROMPT:], past_key_values=cache,
                         position_ids=torch.arange(PROMPT, TOKENS)[None]).logits[0]

    def test_both_say_the_same(self):
        for name in ("llama", "qwen3"):
            path = self.model(name)
            read = Read(self, path, [{"algorithm": algorithm, "params": params}
                                     for _, _, algorithm, params, _ in SAME])
            for place, (spec, budget, algorithm, _, rows) in enumerate(SAME):
                theirs = self.theirs(path, spec, budget)[:rows]
                with self.subTest(model=name, algorithm=algorithm):
                    for kind in (Replayed, Live):
                        self.assertLess(apart(read.logits(kind, place)[:rows], theirs), ROUNDING)
                    self.assertGreater(apart(read.whole()[:rows], theirs), WRONG)
                    with shifted(loop_caches.head_reads):
                        self.assertGreater(apart(read.logits(Replayed, place)[:rows], theirs), WRONG)

    def test_positions_that_are_not_those_of_the_prompt_are_seen(self):
        """Were the cache pruned without its positions, queries would be turned too little."""
        path = self.model("llama")
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, attn_implementation="eager", dtype=torch.float32)
        ids, logits = torch.from_numpy(IDS[None]), []
        for first in (PROMPT, BUDGET):
            cache = transformers.DynamicCache()
            press = kvpress_presses.press_of("KnormPress")
            kvpress_caches.Cut(budget=BUDGET).set(press, PROMPT)
            with torch.no_grad():
                with press(model):
                    model(ids[:, :PROMPT], past_key_values=cache)
                at = torch.arange(first, first + TOKENS - PROMPT)[None]
                logits.append(model(ids[:, PROMPT:], past_key_values=cache, position_ids=at).logits)
        self.assertGreater(apart(*logits), WRONG)


if __name__ == "__main__":
    unittest.main()
