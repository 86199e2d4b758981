"""Bloom and MPT, whose modules add ALiBi's bias themselves: dumps with slopes and logits that are
the model's."""

from __future__ import annotations

import unittest
from unittest import mock

import h5py
import numpy as np
import torch
from transformers import AutoModelForCausalLM

from export import attention_capture
from export import attention_mask
from export import sequence_recorder
from format.dump_file import decode, element_type
from exported import PLAIN_SWEEP, TOKENS, Folder, differences

HEADS = 12
# Press, Smith and Lewis: 2^-1 .. 2^-8 for eight heads, then every other slope of sixteen.
SLOPES = {"bloom": [2.0 ** -(h + 1) for h in range(8)] + [2.0 ** -(h + 0.5) for h in range(4)],
          # MPT takes sixteen slopes, first every other one.
          "mpt": [2.0 ** -(h + 1) for h in range(8)] + [2.0 ** -(h + 0.5) for h in range(4)]}


class Biased(Folder):
    def own(self, name: str):
        """Attention weights [layer][head] and logits of the model alone, nobody listening."""
        model = AutoModelForCausalLM.from_pretrained(self.model(name), attn_implementation="eager")
        ids = torch.from_numpy(np.load(self.made / "text.npy"))[None]
        with torch.no_grad():
            output = model(ids, output_attentions=True, labels=ids)
        return [each[0].numpy() for each in output.attentions], float(output.loss.exp())

    def test_slopes_and_logits_are_the_models(self):
        for name in ("bloom", "mpt"):
            attentions, perplexity = self.own(name)
            for options in ((), ("--chunk", 10), ("--chunk", 1)):
                with self.subTest(model=name, options=options):
                    code, said = self.export(self.model(name), *options, "--fresh")
                    self.assertEqual(code, 0, said)
                    dump = self.folder / "dump.h5"
                    self.assertIn(f"perplexity {perplexity:.4g}", said)
                    self.assertEqual(set(differences(dump)), {f"/sequences/text/layers/{number}"
                                                              for number in range(2)})
                    self.assertLess(max(differences(dump).values()), 1e-5)
                    with h5py.File(dump) as file:
                        self.assertEqual(file.attrs["format_version"], 2)
                        self.assertNotIn("rope", file)
                        for number in range(2):
                            self.compare(file[f"sequences/text/layers/{number}"],
                                         attentions[number], SLOPES[name])
            self.assert_valid(dump)
            self.assert_runs(dump, PLAIN_SWEEP)

    def compare(self, group: h5py.Group, attention: np.ndarray, slopes: list[float]) -> None:
        # Bloom raises a slope to powers in single precision.
        np.testing.assert_allclose(group["alibi_slopes"][:], slopes, rtol=4 * 2.0 ** -24)
        row, token = np.arange(TOKENS)[:, None], np.arange(TOKENS)[None, :]
        for head in range(HEADS):
            q, k = (decode(group[each][head], element_type(group[each])) for each in "qk")
            x = group.attrs["scale"] * q @ k.T - group["alibi_slopes"][head] * (row - token)
            x[token > row] = -np.inf
            p = np.exp(x - x.max(axis=1, keepdims=True))
            np.testing.assert_allclose(p / p.sum(axis=1, keepdims=True), attention[head], rtol=1e-4,
                                       atol=1e-6)

    def test_clipped_queries_and_keys_are_stored_clipped(self):
        path = self.model("mpt", attn_config={"clip_qkv": 0.9})
        dump = self.exported(path)
        with h5py.File(dump) as file:
            most = np.abs(file["sequences/text/layers/0/k"][:]).max()
        self.assertAlmostEqual(float(most), 0.9, places=6)
        self.assertLess(max(differences(dump).values()), 1e-5)

    def test_rounded_the_model_attends_with_what_is_stored(self):
        for name in ("bloom", "mpt"):
            dump = self.exported(self.model(name), "--dtype", "float16", "--round",
                                 out=f"{name}.h5")
            self.assertLess(max(differences(dump).values()), 1e-5)
            self.assert_valid(dump)

    def test_another_slope_is_found_by_recomputing(self):
        own = attention_mask.slopes_of

        def steeper(bias, where):
            slopes = own(bias, where)
            return None if slopes is None else slopes * 1.01

        with mock.patch.object(sequence_recorder, "slopes_of", steeper):
            for name in ("bloom", "mpt"):
                self.assert_refused(self.export(self.model(name), out=f"{name}.h5"), "layer 0", "differs by",
                                    "a term that the dump format")

    def test_a_bias_that_16_bits_round_is_named(self):
        self.assert_refused(self.export(self.model("bloom"), "--compute-dtype", "bfloat16"),
                            "layer 0 (BloomAttention)", "not a slope times the position",
                            "--compute-dtype float32")

    def test_output_projections_of_mpt_and_not_of_bloom(self):
        dump = self.exported(self.model("mpt"), "--wo", "--wo-norms")
        with h5py.File(dump) as file:
            self.assertEqual(file["sequences/text/layers/1/wo"].shape, (HEADS, 8, 96))
        # Bloom's module adds the residual stream itself.
        self.assert_refused(self.export(self.model("bloom"), "--wo", out="bloom.h5"),
                            "BloomAttention", "leave --wo out")

    def test_without_a_listener_the_model_is_itself(self):
        for name in ("bloom", "mpt"):
            model = AutoModelForCausalLM.from_pretrained(self.model(name),
                                                         attn_implementation="eager")
            ids = torch.arange(3, 20)[None]
            with torch.no_grad():
                before = model(ids).logits
                attention_capture.install_hook(model)
                self.assertTrue(torch.equal(model(ids).logits, before))


if __name__ == "__main__":
    unittest.main()
