"""The stand-ins of data/presses/kvpress_module.py against real modules: what presses leave in the cache of
a model that runs is what kvpress_caches.py writes of that model's dump."""

from __future__ import annotations

import unittest
from pathlib import Path

import h5py
import numpy as np
import torch
import transformers

import kvpress_caches
from presses import kvpress_presses
from compared import Folder

import export_transformers
import re
import tiny_models

kvpress = kvpress_presses.load_kvpress()
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
TOKENS, PROMPT, BUDGET = 90, 80, 24
# Those that read attention weights need eager attention; ChunkKVPress and others refuse it.
EAGER = ["SnapKVPress(window_size=8)", "TOVAPress", "ObservedAttentionPress"]
FAST = ["SnapKVPress(window_size=8)", "PyramidKVPress(window_size=2)", "TOVAPress", "KnormPress",
        "KeyDiffPress", "StreamingLLMPress", "CURPress", "LagKVPress(lag_size=8)", "CapPress",
        "ExpectedAttentionPress", "NonCausalAttnPress(chunk_size=32)",
        "LeverageScorePress(sketch_dimension=4)", "CompactorPress(sketch_dimension=4)",
        "AdaKVPress(SnapKVPress(window_size=8))", "BlockPress(KeyDiffPress, block_size=16)",
        "ChunkPress(SnapKVPress(window_size=4), chunk_length=40)",
        "ChunkKVPress(SnapKVPress(window_size=8), chunk_length=8)",
        "EntropyGatedChunkKVPress(SnapKVPress(window_size=8))",
        "MergingPress(SnapKVPress(window_size=8))"]


def same_normal_numbers(*shape, dtype=torch.float32, device=None):
    """torch draws others in float32 than in float64."""
    draw = np.random.default_rng(shape).standard_normal(shape)
    return torch.tensor(draw, dtype=dtype, device=device)


class Models(Folder):
    def setUp(self) -> None:
        super().setUp()
        before = kvpress.BasePress.forward_hook
        kvpress.BasePress.forward_hook = tiny_models.pass_cache_position(before)
        self.addCleanup(setattr, kvpress.BasePress, "forward_hook", before)
        self.addCleanup(setattr, torch, "randn", torch.randn)
        torch.randn = same_normal_numbers
        # No token twice: in layer 0 their keys would be equally long, and presses would toss.
        ids = np.random.default_rng(5).permutation(np.arange(3, tiny_models.VOCABULARY))[:TOKENS]
        np.save(self.folder / "text.npy", ids)
        self.ids = torch.tensor(ids[None, :PROMPT])

    def left_in(self, path: Path, attention: str, press=None) -> tuple:
        """Keys, values and masked tokens [layer][head] after the prompt."""
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, attn_implementation=attention, dtype=torch.float32)
        cache = transformers.DynamicCache()
        torch.manual_seed(0)
        with torch.no_grad():
            if press is None:
                model(self.ids, past_key_values=cache)
            else:
                with press(model):
                    model(self.ids, past_key_values=cache)
        layers = [layer.self_attn for layer in model.model.layers]
        masked = [[set() for _ in range(2)] for _ in layers]
        for number, layer in enumerate(layers):
            for _, head, token in zip(*(t.tolist() for t in getattr(layer, "masked_key_indices", None)
                                        or ())):
                masked[number][head].add(token)
        return ([layer.keys[0].double().numpy() for layer in cache.layers],
                [layer.values[0].double().numpy() for layer in cache.layers], masked)

    def compare(self, path: Path, spec: str, attention: str) -> None:
        whole_k, whole_v, _ = self.left_in(path, attention)
        press = kvpress_presses.press_of(spec)
        kvpress_caches.Cut(budget=BUDGET).set(press, PROMPT)
        keys, values, masked = self.left_in(path, attention, press)
        cache = self.caches(spec, "--budget", BUDGET, "--prompt-tokens", PROMPT,
                            dump=self.folder / f"{path.name}.h5")
        with h5py.File(cache) as file:
            for layer in range(2):
                for head in range(2):
                    rows = kvpress_caches.named_rows(
                        whole_k[layer][head], whole_v[layer][head], keys[layer][head],
                        values[layer][head], masked[layer][head])
                    written = file[f"sequences/text/layers/{layer}/heads/{head}"]
                    self.assertEqual(written["token"][:].tolist(), rows.token.tolist(), spec)
                    self.assertEqual("value" in written, rows.value is not None)
                    if rows.value is not None:
                        np.testing.assert_allclose(written["value"][:], rows.value, rtol=1e-4,
                                                   atol=1e-5)

    def test_what_presses_leave_in_a_model(self):
        for name in ("llama", "qwen3"):
            path = tiny_models.make(name, self.folder)
            code = export_transformers.main([str(argument) for argument in (
                path, "--token-ids", self.folder / "text.npy", "--compute-dtype", "float32",
                "--chunk", 0, "--out", self.folder / f"{name}.h5")])
            self.assertEqual(code, 0)
            for attention, specs in (("eager", EAGER), ("sdpa", FAST)):
                for spec in specs:
                    with self.subTest(model=name, attention=attention, press=spec):
                        self.compare(path, spec, attention)

    def test_every_press_that_works_is_run_in_a_model_or_named_here(self):
        """ThinKPress and SimLayerKVPress take no budget; RandomPress scores by
        draws alone, and torch's differ between float32 and float64."""
        run = set(re.findall(r"\w+", " ".join(EAGER + FAST)))
        left = {name for name, press in kvpress_presses.press_classes().items()
                if not kvpress_presses.refusal(press) and name not in run}
        self.assertEqual(left, {"ThinKPress", "SimLayerKVPress", "RandomPress"})


if __name__ == "__main__":
    unittest.main()
