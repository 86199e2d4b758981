"""The bias of keys in exported dumps: of models that add one before the rotation, and of no others."""

from __future__ import annotations

import unittest
from pathlib import Path

import h5py
import kvbench as kb
import numpy as np
import torch
from transformers import AutoModelForCausalLM

from exported import TOKENS, Folder, kvbench
from rotations_test import dynamic, turned

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
D = 8


def biases(path: Path) -> list[np.ndarray]:
    """The model's own parameters, by layer: [Hkv, d]."""
    model = AutoModelForCausalLM.from_pretrained(path)
    layers = (model.model.decoder if hasattr(model.model, "decoder") else model.model).layers
    return [each.self_attn.k_proj.bias.detach().double().numpy().reshape(-1, D) for each in layers]


def without_bias(path: Path, to: Path) -> Path:
    """The same model, whose keys have a bias of 0."""
    model = AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("k_proj.bias"):
                parameter.zero_()
    model.save_pretrained(to)
    return to


class KeyBias(Folder):
    def stored(self, dump: Path, name: str = "key_bias") -> list[np.ndarray | None]:
        with h5py.File(dump) as file:
            layers = file["sequences/text/layers"]
            return [layers[str(number)][name][:] if name in layers[str(number)] else None
                    for number in range(len(layers))]

    def test_it_is_the_parameter_and_all_that_the_bias_adds_to_keys(self):
        for name, changes, inv_freq, scaling in (
                ("qwen2", {}, 1e4 ** (-np.arange(0, D, 2) / D), 1.0),
                ("dynamic", {"attention_bias": True}, dynamic(TOKENS), 1.0)):
            path = self.model(name, **changes)
            other = without_bias(path, self.folder / f"{name}-none")
            dump, plain = (self.exported(each, out=f"{each.name}.h5") for each in (path, other))
            self.assert_valid(dump)
            for found, own in zip(self.stored(dump), biases(path), strict=True):
                np.testing.assert_array_equal(found, own)
                self.assertGreater(np.abs(own).min(), 0)
            for found in self.stored(plain):
                np.testing.assert_array_equal(found, np.zeros((2, D)))
            # Layer 0 sees the same hidden states in both; those of later ones differ.
            keys, others = (self.stored(each, "k")[0] for each in (dump, plain))
            moved = turned(np.repeat(self.stored(dump)[0][None], TOKENS, 0), inv_freq, scaling)
            np.testing.assert_allclose(keys - moved, others, atol=2e-5)
            self.assertGreater(np.abs(moved).max(), 0.1)

    def test_a_scaled_rotation_scales_it(self):
        path = self.model("llama", attention_bias=True, rope_parameters=YARN)
        dump = self.exported(path)
        with h5py.File(dump) as file:
            scaling = file["rope"].attrs["attention_scaling"]
        self.assertGreater(scaling, 1.1)
        for found, own in zip(self.stored(dump), biases(path), strict=True):
            np.testing.assert_allclose(found, scaling * own, rtol=1e-12)

    def test_in_sixteen_bits(self):
        path = self.model("qwen2")
        dump = self.exported(path, "--compute-dtype", "bfloat16")
        for found, own in zip(self.stored(dump), biases(path), strict=True):
            np.testing.assert_array_equal(found, torch.from_numpy(own).bfloat16().double().numpy())

    def test_only_the_first_dimensions_turn_or_none(self):
        for name in ("phi", "opt"):
            dump = self.exported(self.model(name), out=f"{name}.h5")
            for found, own in zip(self.stored(dump), biases(self.model(name)), strict=True):
                np.testing.assert_array_equal(found, own)

    def test_a_norm_behind_the_bias_and_models_without_one_have_none(self):
        """Qwen3 norms keys before the rotation, HunYuan after it."""
        for name, changes in (("qwen3", {"attention_bias": True}), ("hunyuan_v1_dense", {"attention_bias": True}),
                              ("llama", {}), ("gpt2", {})):
            path = self.model(name, **changes)
            if changes:
                self.assertIsNotNone(AutoModelForCausalLM.from_pretrained(path).model.layers[0].self_attn.k_proj.bias)
            self.assertEqual(self.stored(self.exported(path, out=f"{name}.h5")), [None, None])

    def test_positions_that_begin_later_turn_it(self):
        path, save = self.model("qwen2"), self.folder / "later.h5"
        model = AutoModelForCausalLM.from_pretrained(path).eval()
        ids = torch.from_numpy(np.load(self.made / "text.npy").astype(np.int64))[None]
        with kb.attach(model, {"algorithms": [{"algorithm": "exact"}]}, out=self.folder / "live", save=save, quiet=True):
            model(input_ids=ids, position_ids=torch.arange(TOKENS)[None] + 9)
        for found, own in zip(self.stored(save), biases(path), strict=True):
            moved = turned(np.repeat(own[None], 10, 0), 1e4 ** (-np.arange(0, D, 2) / D))[:, 9]
            np.testing.assert_allclose(found, moved, atol=1e-6)

    def test_cells_less_the_bias_have_the_errors_of_the_model_without(self):
        """Differences of decoded and original keys of layer 0, whose hidden states are the same."""
        path = self.model("qwen2")
        norms = []
        for each, centre in ((path, {"centre": "bias"}), (without_bias(path, self.folder / "none"), {})):
            dump = self.exported(each, out=f"{each.name}.h5")
            keys = np.linalg.norm(self.stored(dump, "k")[0], axis=(1, 2))
            cells = self.assert_runs(dump, [{"algorithm": "exact"}], select={"layers": [0]}, storage=[
                {"keys": {"codec": "token", **centre, **rope}} for rope in ({}, {"rope": "before"})])
            norms.append([cell["errors"]["key_error"] * keys[cell["key"]["kv_head"]] for cell in cells])
            self.assertEqual(len(cells), 4)
        np.testing.assert_allclose(*norms, rtol=1e-3)
        self.assertGreater(np.ptp(norms[0]), 0.01 * np.max(norms[0]))
        self.assertIn("key_bias_norms", kvbench("inspect", self.folder / f"{path.name}.h5").stdout)


if __name__ == "__main__":
    unittest.main()
