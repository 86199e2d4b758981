"""Dumps of tiny models of many architectures: kvbench validates and replays each; scale, window,
soft-cap, shapes and RoPE data are what the architecture says."""

from __future__ import annotations

import unittest
from pathlib import Path

import h5py
import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.models.llama import modeling_llama

from format.dump_file import TOLERANCE
from exported import PLAIN_SWEEP, ROPE_SWEEP, TOKENS, Folder, differences, layer


def frequencies(theta: float, dims: int) -> np.ndarray:
    return theta ** (-np.arange(0, dims, 2) / dims)


class Architectures(Folder):
    def check(self, name: str, *options: object, layers: int = 2, heads: tuple[int, int] = (4, 2), d: int = 8,
              dv: int | None = None, rope: bool, **expected: list) -> None:
        """`expected`: lists by layer of scale, window, softcap (default none)."""
        dump = self.exported(self.model(name), *options)
        self.assert_valid(dump)
        self.assert_runs(dump, ROPE_SWEEP if rope else PLAIN_SWEEP)
        for number in range(layers):
            attributes, tensors, _ = layer(dump, number)
            self.assertAlmostEqual(attributes["scale"], expected.get("scale", [d ** -0.5] * 9)[number])
            self.assertEqual(attributes["sliding_window"], expected.get("window", [0] * 9)[number])
            self.assertEqual(attributes["logit_softcap"], expected.get("softcap", [0.0] * 9)[number])
            shapes = {each: tensor.shape for each, tensor in tensors.items()}
            self.assertEqual(shapes, {"q": (heads[0], TOKENS, d), "k": (heads[1], TOKENS, d),
                                      "v": (heads[1], TOKENS, dv or d),
                                      "out": (heads[0], TOKENS, dv or d)})
            # Attention that is far from a plain mean: faults would show.
            spread = tensors["q"][0] @ tensors["k"][0].T * attributes["scale"]
            self.assertGreater(float(spread.std()), 0.3)
        self.dump = dump

    def check_rope(self, number: int, theta: float, dims: int, layout: str = "half",
                   own: bool = False, inv_freq: np.ndarray | None = None) -> None:
        _, _, rope = layer(self.dump, number)
        self.assertIsNotNone(rope)
        self.assertEqual((rope["theta"], rope["layout"], rope["attention_scaling"], rope["own"]),
                         (theta, layout, 1.0, own))
        wanted = frequencies(theta, dims) if inv_freq is None else inv_freq
        np.testing.assert_allclose(rope["inv_freq"], wanted, rtol=1e-6)

    def no_rope(self, number: int) -> None:
        self.assertIsNone(layer(self.dump, number)[2])

    def test_llama(self):
        self.check("llama", rope=True)
        self.check_rope(1, 5000.0, 8)

    def test_llama_with_scaled_frequencies(self):
        self.check("llama3_scaled", rope=True)
        scaled = frequencies(5000.0, 8)
        long = 2 * np.pi / scaled > 64  # slower than the original context by its low factor, 1
        self.assertTrue(long.any() and not long.all())
        np.testing.assert_allclose(layer(self.dump, 0)[2]["inv_freq"][long], scaled[long] / 8,
                                   rtol=1e-6)

    def test_logits_in_the_thousands_are_rounded_and_not_refused(self):
        """Biases of keys such as Qwen2.5-Coder 1.5B has: float32 rounds logits of 12,000 to 0.001."""
        path = self.folder / "biased"
        model = AutoModelForCausalLM.from_pretrained(self.model("llama", attention_bias=True))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith(("q_proj.bias", "k_proj.bias")):
                    parameter.view(-1, 8)[:, 3] += 60.0 if "q_proj" in name else 500.0
        model.save_pretrained(path)
        dump = self.exported(path)
        _, tensors, _ = layer(dump, 0)
        self.assertGreater(float((tensors["q"][0] @ tensors["k"][0].T).max()) * 8 ** -0.5, 10000)
        self.assertGreater(max(differences(dump).values()), TOLERANCE)
        self.assert_valid(dump)
        q, k, v, out = (tensors[name] for name in ("q", "k", "v", "out"))
        np.savez(self.folder / "arrays.npz", q=q, k=k, v=v, out=out)
        self.assert_valid(self.imported(self.folder / "arrays.npz", "--model", "tiny", "--scale", 8 ** -0.5))

    def test_qwen3(self):
        self.check("qwen3", d=16, rope=True)
        self.check_rope(0, 10000.0, 16)

    def test_mistral(self):
        self.check("mistral", window=[24, 24], rope=True)

    def test_gemma2(self):
        self.check("gemma2", d=16, scale=[24 ** -0.5] * 2, window=[24, 0], softcap=[5.0, 5.0],
                   rope=True)

    def test_gemma3(self):
        self.check("gemma3_text", layers=3, d=16, scale=[24 ** -0.5] * 3, window=[24, 24, 0],
                   rope=True)
        self.check_rope(1, 100.0, 16, own=True)
        self.check_rope(2, 10000.0, 16, own=True, inv_freq=frequencies(10000.0, 16) / 8)

    def test_gpt2(self):
        self.check("gpt2", heads=(4, 4), scale=[8 ** -0.5, 8 ** -0.5 / 2], rope=False)
        self.no_rope(0)

    def test_phi(self):
        self.check("phi", rope=True)
        self.check_rope(1, 10000.0, 4)

    def test_gpt_neox(self):
        self.check("gpt_neox", heads=(4, 4), rope=True)
        self.check_rope(1, 10000.0, 2)

    def test_cohere(self):
        self.check("cohere", rope=True)
        self.check_rope(1, 10000.0, 8, layout="interleaved")

    def test_cohere2_turns_its_windowed_layers_only(self):
        self.check("cohere2", window=[24, 0], rope=False)
        self.check_rope(0, 10000.0, 8, layout="interleaved", own=True)
        self.no_rope(1)

    def test_granite(self):
        self.check("granite", scale=[0.17, 0.17], rope=True)

    def test_models_without_a_rotation(self):
        self.check("opt", heads=(4, 4), scale=[1.0] * 2, rope=False)  # its queries are scaled
        self.no_rope(0)
        self.check("gpt_bigcode", "--fresh", heads=(4, 1), rope=False)
        self.no_rope(0)
        self.check("hunyuan_v1_dense", "--fresh", rope=False)
        self.no_rope(0)

    def test_parts_and_pairs_of_a_rotation(self):
        self.check("stablelm", rope=True)
        self.check_rope(1, 10000.0, 2)
        self.check("glm4", "--fresh", rope=True)
        self.check_rope(1, 10000.0, 4, layout="interleaved")
        self.check("ernie4_5", "--fresh", rope=True)
        self.check_rope(1, 500000.0, 8, layout="interleaved")

    def test_layers_that_take_turns(self):
        self.check("olmo3", window=[24, 0], rope=True)
        self.check_rope(1, 500000.0, 8)
        self.check("exaone4", "--fresh", window=[24, 0], rope=False)
        self.check_rope(0, 10000.0, 8, own=True)
        self.no_rope(1)
        self.check("smollm3", "--fresh", rope=False)
        self.check_rope(0, 2000000.0, 8, own=True)
        self.no_rope(1)

    def test_gemma4_has_layers_of_two_sizes(self):
        path = self.model("gemma4_text")
        for options in ((), ("--chunk", 10)):
            dump = self.exported(path, *options, "--fresh")
            self.assert_valid(dump)
            for number, (heads, d, window) in enumerate([(2, 8, 24), (1, 16, 0)] * 2):
                attributes, tensors, rope = layer(dump, number)
                self.assertEqual((attributes["scale"], attributes["sliding_window"]), (1.0, window))
                self.assertEqual((tensors["q"].shape, tensors["k"].shape, tensors["v"].shape),
                                 ((4, TOKENS, d), (heads, TOKENS, d), (heads, TOKENS, d)))
                self.assertTrue(rope["own"])
            self.assert_runs(dump, ROPE_SWEEP)

    def test_a_recurrent_state_next_to_attention(self):
        self.check("falcon_h1", rope=True)

    def test_a_model_that_reads_pictures_too(self):
        self.check("mistral3", rope=True)
        self.exported(self.model("mistral3"), "--chunk", 10, out="pieces.h5")

    def test_deepseek_materialised_is_dumped_without_its_rope(self):
        self.check("deepseek_v3", "--materialised", heads=(4, 4), d=12, dv=6, rope=False)
        self.no_rope(0)

    def test_of_a_hybrid_the_attention_layers_are_dumped(self):
        dump = self.exported(self.model("qwen3_next"), "--chunk", 16)
        self.assert_valid(dump)
        self.assertEqual(set(layer(dump, 1)[1]), {"q", "k", "v", "out"})
        with self.assertRaises(KeyError):
            layer(dump, 0)
        self.assert_refused(self.export(self.model("qwen3_next"), "--layers", "0,1", out="b.h5"),
                            "no attention in 0", "there is some in 1")


class SecondFormat(Folder):
    """Layers whose logits, masks or values have what format 2 is for."""

    def second(self, name: str, *options: object) -> Path:
        dump = self.exported(self.model(name), *options, "--fresh")
        with h5py.File(dump) as file:
            self.assertEqual(file.attrs["format_version"], 2)
        self.assert_valid(dump)
        self.assertLess(max(differences(dump).values()), 1e-5)
        return dump

    def test_sinks_of_gpt_oss(self):
        path = self.model("gpt_oss")
        model = AutoModelForCausalLM.from_pretrained(path)
        for options in ((), ("--chunk", 10)):
            dump = self.second("gpt_oss", *options)
            for number, window in ((0, 24), (1, 0)):
                attributes, tensors, _ = layer(dump, number)
                self.assertEqual(attributes["sliding_window"], window)
                sinks = model.model.layers[number].self_attn.sinks.detach().numpy()
                np.testing.assert_array_equal(tensors["sinks"], sinks)
                self.assertGreater(np.abs(sinks).max(), 0.1)
            self.assert_runs(dump, PLAIN_SWEEP + ROPE_SWEEP)

    def test_sinks_of_other_models(self):
        for name, windows, sinks in (("mimo_v2_flash", [0, 24], [False, True]),
                                     ("granite_swa", [0, 24], [True, True])):
            path = self.model(name)
            model = AutoModelForCausalLM.from_pretrained(path)
            dump = self.second(name)
            for number in range(2):
                attributes, tensors, _ = layer(dump, number)
                self.assertEqual(attributes["sliding_window"], windows[number])
                self.assertEqual("sinks" in tensors, sinks[number])
                if sinks[number]:
                    np.testing.assert_array_equal(
                        tensors["sinks"], model.model.layers[number].self_attn.sinks.detach().numpy())
            self.assert_runs(dump, PLAIN_SWEEP + ROPE_SWEEP)

    def test_chunks_of_llama4(self):
        for options in ((), ("--chunk", 10), ("--chunk", 3)):
            dump = self.second("llama4_text", *options)
            self.assertEqual([layer(dump, number)[0].get("chunk", 0) for number in (0, 1)],
                             [20, 0])
            self.assertEqual([layer(dump, number)[0]["sliding_window"] for number in (0, 1)],
                             [0, 0])
        self.assert_runs(dump, PLAIN_SWEEP)

    def test_an_encoder_sees_every_token(self):
        dump = self.second("bert")
        self.assertEqual([layer(dump, number)[0]["causal"] for number in (0, 1)], [0, 0])
        self.assert_runs(dump, [{"algorithm": "exact"},
                                {"algorithm": "uniform", "params": {"T": 1}}])
        for chunk in (10, 1):
            self.assert_refused(self.export(self.model("bert"), "--chunk", chunk, out="b.h5"),
                                "layer 0 (BertSelfAttention)", "later tokens", "--chunk 0")
        self.exported(self.model("bert"), "--chunk", 0, out="b.h5")  # where the refused ones began

    def test_latents(self):
        for name in ("deepseek_v2", "deepseek_v3", "longcat_flash"):
            heads = self.exported(self.model(name), "--materialised", "--fresh",
                                  out="heads.h5")
            for options in ((), ("--chunk", 10), ("--round", "--dtype", "float16")):
                dump = self.second(name, *options)
                for number in (0, 1):
                    attributes, tensors, _ = layer(dump, number)
                    self.assertEqual(attributes["value_in_key"], 8)
                    shapes = {each: tensor.shape for each, tensor in tensors.items()}
                    self.assertEqual(shapes, {"q": (4, TOKENS, 12), "k": (1, TOKENS, 12),
                                              "out": (4, TOKENS, 8)})
                    if "--round" in options:
                        continue
                    # The same logits as those of every head's keys.
                    _, own, _ = layer(heads, number)
                    for head in range(4):
                        np.testing.assert_allclose(
                            tensors["q"][head] @ tensors["k"][0].T,
                            own["q"][head] @ own["k"][head].T, rtol=1e-3, atol=1e-4)
            # Heads' keys are rounded as they are made of latents; a model may attend over the latents.
            narrow = ("--compute-dtype", "bfloat16")
            self.assert_refused(self.export(self.model(name), *narrow, "--fresh"), "bfloat16 rounds",
                                "--round, with --dtype,", "--materialised")
            self.second(name, *narrow, "--round", "--dtype", "bfloat16")
            cells = self.assert_runs(dump, PLAIN_SWEEP)
            # A token is its latent and its turned key, once.
            exact = next(cell for cell in cells if cell["key"]["algorithm"] == "exact")
            self.assertEqual(exact["memory"]["exact_bytes"], TOKENS * 12 * 2)


class Tensors(Folder):
    def test_q_k_and_v_are_the_projections_after_rotation(self):
        path = self.model("llama")
        dump = self.exported(path)
        model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()
        seen = {}
        for number, block in enumerate(model.model.layers):
            for name in ("q", "k", "v"):
                getattr(block.self_attn, f"{name}_proj").register_forward_hook(
                    lambda _, __, out, key=(number, name): seen.__setitem__(key, out))
        ids = torch.from_numpy(np.load(self.made / "text.npy"))[None]
        with torch.no_grad():
            model(ids)
            cos, sin = model.model.rotary_emb(seen[0, "q"], torch.arange(TOKENS)[None])
            for number in range(2):
                q, k, v = (seen[number, name].view(1, TOKENS, -1, 8).transpose(1, 2)
                           for name in ("q", "k", "v"))
                q, k = modeling_llama.apply_rotary_pos_emb(q, k, cos, sin)
                stored = layer(dump, number)[1]
                for name, tensor in (("q", q), ("k", k), ("v", v)):
                    np.testing.assert_allclose(stored[name], tensor[0], rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
