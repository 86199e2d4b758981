"""kvpress's presses that decide over all KV heads of a layer, and those in two stages, next to tova,
adakv, criticalkv and chunkkv: the sets of tokens are equal, and so are the errors, computed in numpy."""

from __future__ import annotations

import unittest
from unittest import mock

import numpy as np
import torch
from compared import KV_HEADS, LAYERS, TOKENS, Folder, digits, errors, kept_tokens
from presses.kvpress_presses import REFUSED, load_kvpress

PROMPT = TOKENS - 256
DIGITS = 9  # as in kvpress_test.py


def value_l1(values, module):
    return values.abs().sum(dim=-1)


class Layers(Folder):
    def same_tokens(self, spec: str, budget: int, algorithm: str, params: dict) -> list[int]:
        """How many tokens each head keeps of the prompt."""
        cache = self.caches(spec, "--budget", budget, "--prompt-tokens", PROMPT)
        records = self.run_sweep([{"algorithm": algorithm, "label": "ours", "params": params}], PROMPT)
        path, = (self.folder / "results/caches").glob("ours-*.h5")
        numbers = []
        for layer in LAYERS:
            for head in range(KV_HEADS):
                kept = kept_tokens(cache, layer, head)
                self.assertEqual(kept_tokens(path, layer, head), kept, f"{layer}/{head}")
                ours = records["ours", layer, head, None]
                for name, values in errors(layer, head, kept, PROMPT).items():
                    got = ours.values[name]
                    self.assertGreater(digits(got, values[:, :got.shape[1]]), DIGITS)
                numbers.append(len(kept))
        return numbers

    def test_tova_once(self):
        for budget in (256, 40):
            numbers = self.same_tokens("TOVAPress", budget, "tova",
                                       {"budget": budget, "semantics": "once"})
            self.assertEqual(set(numbers), {budget})

    def test_tova_of_each_head_by_itself_is_another_method(self):
        cache = self.caches("TOVAPress", "--budget", 256, "--prompt-tokens", PROMPT)
        self.run_sweep([{"algorithm": "tova", "label": "ours", "params": {
            "budget": 256, "semantics": "once", "scope": "head"}}], PROMPT)
        path, = (self.folder / "results/caches").glob("ours-*.h5")
        self.assertNotEqual(kept_tokens(path, 0, 0), kept_tokens(cache, 0, 0))

    def test_adakv(self):
        for budget, window, kernel, floor in ((256, 64, 5, 0.2), (512, 32, 7, 0.6), (100, 16, 1, 0.0)):
            with self.subTest(budget=budget):
                numbers = self.same_tokens(
                    f"AdaKVPress(SnapKVPress(window_size={window}, kernel_size={kernel}), "
                    f"alpha_safeguard={floor})", budget, "adakv",
                    {"budget": budget, "window": window, "kernel": kernel, "pool": "avg",
                     "floor": floor, "semantics": "kvpress"})
                for layer in np.reshape(numbers, (len(LAYERS), KV_HEADS)):
                    self.assertEqual(layer.sum(), KV_HEADS * budget)
                    self.assertGreater(len(set(layer)), 1)

    def test_adakv_by_other_scores(self):
        for press, score, budget, floor in (
                ("KnormPress()", "knorm", 256, 0.2), ("KnormPress()", "knorm", 700, 0.0),
                ("KeyDiffPress()", "keydiff", 256, 0.2),
                ("ExpectedAttentionPress()", "expected_attention", 256, 0.2),
                ("ExpectedAttentionPress()", "expected_attention", 600, 0.5)):
            with self.subTest(press=press, budget=budget):
                self.same_tokens(f"AdaKVPress({press}, alpha_safeguard={floor})", budget, "adakv",
                                 {"budget": budget, "window": 0, "floor": floor, "score": score,
                                  "semantics": "kvpress"})

    def test_compactor(self):
        """The random sketch is replaced by the keys themselves."""
        for budget, theirs, ours in (
                (256, "blending=0.8", {"blend": 0.8}),
                (700, "blending=0.35, chunk_size=100", {"blend": 0.35, "chunk": 100}),
                (300, "blending=2, sink_size_start=20, sink_size_end=50, chunk_size=1000",
                 {"blend": 2, "sinks": 20, "recent": 50, "chunk": 1000})):
            with self.subTest(budget=budget):
                self.same_tokens(f"own_press:PlainCompactorPress(sketch_dimension=64, {theirs})",
                                 budget, "compactor", {"budget": budget, "sketch": 0, **ours})

    def test_chunkkv(self):
        for budget, chunk in ((256, 20), (300, 7), (1000, 64)):
            with self.subTest(budget=budget):
                self.same_tokens(
                    f"ChunkKVPress(SnapKVPress(window_size=32, kernel_size=5), chunk_length={chunk})",
                    budget, "chunkkv",
                    {"budget": budget, "window": 32, "kernel": 5, "pool": "avg", "chunk": chunk})

    def test_criticalkv_with_the_values_own_norm(self):
        """The shipped dump has no W_O: kvpress's norm is replaced by that of the values."""
        press = load_kvpress().CriticalKVPress
        self.enterContext(mock.patch.object(press, "vwl1norm", staticmethod(value_l1)))
        self.enterContext(mock.patch.dict(REFUSED))
        del REFUSED["CriticalKVPress"], REFUSED["CriticalAdaKVPress"]
        self.assertEqual(value_l1(torch.tensor([[3.0, -4.0]]), None).item(), 7.0)
        for score, share, budget in (("KnormPress", 0.5, 256), ("KeyDiffPress", 0.3, 500)):
            with self.subTest(press=score):
                self.same_tokens(
                    f"CriticalKVPress({score}(), first_stage_ratio={share})", budget, "criticalkv",
                    {"budget": budget, "share": share, "window": 0, "norm": "value_l1",
                     "score": score[:-5].lower()})
        self.same_tokens(
            "CriticalKVPress(ExpectedAttentionPress(use_vnorm=False))", 256, "criticalkv",
            {"budget": 256, "window": 0, "norm": "value_l1", "score": "expected_attention"})
        for budget, share, press, heads in ((256, 0.5, "CriticalKVPress", "uniform"),
                                            (400, 0.7, "CriticalKVPress", "uniform"),
                                            (256, 0.5, "CriticalAdaKVPress", "adaptive"),
                                            (600, 0.9, "CriticalAdaKVPress", "adaptive")):
            with self.subTest(press=press, budget=budget):
                self.same_tokens(
                    f"{press}(SnapKVPress(window_size=64, kernel_size=5), first_stage_ratio={share})",
                    budget, "criticalkv",
                    {"budget": budget, "share": share, "window": 64, "kernel": 5, "pool": "avg",
                     "norm": "value_l1", "heads": heads})


if __name__ == "__main__":
    unittest.main()
