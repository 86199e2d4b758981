"""Rotations that depend on the text's length: a text read in pieces is turned as it is in one
piece, by frequencies that are worked out here."""

from __future__ import annotations

import math
import unittest
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.models.llama import modeling_llama

from exported import TOKENS, Folder, layer

D, THETA, CONTEXT = 8, 1e4, 32
PLAIN = THETA ** (-np.arange(0, D, 2) / D)


def turned(keys: np.ndarray, inv_freq: np.ndarray, scaling: float = 1.0) -> np.ndarray:
    """[n, Hkv, d] from position 0 on, by halves, as [Hkv, n, d]."""
    angle = np.arange(len(keys))[:, None, None] * inv_freq
    a, b = keys[..., :D // 2], keys[..., D // 2:]
    pair = (a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle))
    return scaling * np.concatenate(pair, -1).transpose(1, 0, 2)


def dynamic(tokens: int, context: int = 24, factor: float = 4.0) -> np.ndarray:
    """By the rule that its authors gave: the base grows with the text beyond the context."""
    base = THETA * (factor * tokens / context - factor + 1) ** (D / (D - 2))
    return base ** (-np.arange(0, D, 2) / D)


class Pieces(Folder):
    def first_keys(self, path: Path, ids: np.ndarray) -> np.ndarray:
        """[n, Hkv, d] of layer 0 before they are turned."""
        model = AutoModelForCausalLM.from_pretrained(path)
        attention = model.model.layers[0].self_attn
        fused = getattr(attention, "qkv_proj", None)
        keys = []
        (fused or attention.k_proj).register_forward_hook(lambda _, __, out: keys.append(out[0]))
        with torch.no_grad():
            model(torch.from_numpy(ids)[None])
        rows = keys[0].double().numpy()
        return (rows[:, 4 * D:6 * D] if fused is not None else rows).reshape(len(ids), 2, D)

    def check(self, name: str, inv_freq: np.ndarray, scaling: float = 1.0) -> None:
        path = self.model(name)
        expected = turned(self.first_keys(path, np.load(self.made / "text.npy")), inv_freq, scaling)
        for chunk in (0, 10, 32, 63):
            with self.subTest(name, chunk=chunk):
                dump = self.exported(path, "--chunk", chunk, out=f"{name}-{chunk}.h5")
                self.assert_valid(dump)
                _, tensors, rope = layer(dump, 0)
                np.testing.assert_allclose(tensors["k"], expected, rtol=1e-4, atol=1e-4)
                np.testing.assert_allclose(rope["inv_freq"], inv_freq, rtol=1e-6)
                self.assertAlmostEqual(rope["attention_scaling"], scaling, places=6)

    def test_longrope(self):
        scaling = math.sqrt(1 + math.log(256 / CONTEXT) / math.log(CONTEXT))
        for name in ("longrope", "phi3"):
            self.check(name, PLAIN / [1.5, 2.0, 4.0, 8.0], scaling)

    def test_dynamic_frequencies(self):
        self.check("dynamic", dynamic(TOKENS))

    def test_a_text_is_turned_as_if_it_were_the_first(self):
        texts = np.random.default_rng(1).integers(3, 90, (2, 80))
        np.save(self.folder / "long.npy", texts[0])
        with h5py.File(self.folder / "ids.h5", "w") as file:
            file["sequences/a/token_ids"], file["sequences/b/token_ids"] = texts[0], texts[1, :40]
        path = self.model("dynamic")
        dump = self.exported(path, "--token-ids", self.folder / "ids.h5", "--chunk", 16)
        for name, ids in (("a", texts[0]), ("b", texts[1, :40])):
            expected = turned(self.first_keys(path, ids), dynamic(len(ids)))
            np.testing.assert_allclose(layer(dump, 0, name)[1]["k"], expected, rtol=1e-4, atol=1e-4)

    def test_an_unknown_rotation_that_changes_is_refused(self):
        own = modeling_llama.LlamaRotaryEmbedding.forward

        def stretched(module, x, position_ids):
            cos, sin = own(module, x, position_ids * (1.0 if int(position_ids.max()) < 40 else 0.5))
            return cos, sin

        with mock.patch.object(modeling_llama.LlamaRotaryEmbedding, "forward", stretched):
            self.assert_refused(self.export(self.model("llama"), "--chunk", 16),
                                "llama: its rotation depends on how much of the text was read",
                                "--chunk 0")
            self.exported(self.model("llama"), "--chunk", 0)


if __name__ == "__main__":
    unittest.main()
