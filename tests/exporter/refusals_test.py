"""Models that the dump format cannot hold are refused by name, and nothing is left behind."""

from __future__ import annotations

import unittest
from unittest import mock

import numpy as np
import torch
from transformers import AutoModelForCausalLM, T5Config, T5ForConditionalGeneration
from transformers.models.bloom import modeling_bloom
from transformers.models.llama import modeling_llama

from export import attention_capture
from export.attention_capture import Mask, mask_of
from format.dump_file import Fault
from exported import Folder


class Models(Folder):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        attention_capture.require_fit()  # before a test changes what it would try

    def refused(self, name: str, *words: str, options: tuple = ()) -> None:
        self.assert_refused(self.export(self.model(name), *options), *words)
        self.assertFalse((self.folder / "dump.h5").exists())

    def test_alibi_of_models_that_are_not_heard(self):
        self.refused("falcon", "falcon", "ALiBi", "Bloom's and MPT's", "import_arrays.py")

    def test_what_bypasses_the_interface(self):
        for name, changes in (("gptj", {}), ("codegen", {}), ("gpt_neo", {}), ("falcon", {"alibi": False})):
            self.assert_refused(self.export(self.model(name, **changes)),
                                f"{name}: its attention does not go through", "AttentionInterface",
                                "import_arrays.py takes q, k, v and out")

    def test_layers_that_share_a_module(self):
        self.refused("zamba2", "Zamba2Attention has no layer_idx", "import_arrays.py")

    def test_kv_heads_that_are_copies(self):
        self.refused("jetmoe", "layer 0 (JetMoeAttention): KV head 2 is equal to 0", "one KV head of each")

    def test_layers_that_attend_twice(self):
        self.refused("diffllama", "layer 0 (DiffLlamaAttention) attends more than once", "--layers")

    def test_keys_that_are_chosen_by_blocks_of_positions(self):
        self.refused("minimax_m3_vl_text", "does not read tokens that are apart", "import_arrays.py")
        self.assert_refused(self.export(self.model("minimax_m3_vl_text", index_block_size=128)),
                            "layer 1", "hands block_indices to its attention", "import_arrays.py")

    def test_a_bias_in_the_mask(self):
        self.refused("doge", "layer 0 (DogeAttention) has a bias in its mask", "--layers")

    def test_an_unknown_term_is_found_by_recomputing(self):
        own = modeling_llama.eager_attention_forward

        def with_a_term(module, query, key, value, mask, **more):
            return own(module, query, key, value, mask + 0.1 * (mask == 0).cumsum(-1), **more)

        with mock.patch.object(modeling_llama, "eager_attention_forward", with_a_term):
            self.refused("llama", "layer 0 (LlamaAttention), head 0", "a term that the dump format")

    def test_a_scale_that_is_not_the_models_is_found(self):
        own = modeling_llama.eager_attention_forward

        def sharper(module, query, key, value, mask, scaling, **more):
            return own(module, query, key, value, mask, scaling=1.01 * scaling, **more)

        with mock.patch.object(modeling_llama, "eager_attention_forward", sharper):
            self.refused("llama", "differs by")

    def test_keys_that_are_chosen_per_row(self):
        for name in ("deepseek_v32", "glm_moe_dsa"):
            for options in ((), ("--materialised",), ("--chunk", 0), ("--chunk", 20)):
                self.refused(name, "layer 0", "chooses 16 keys per row (indices)", "--tokens 16",
                             options=options)
        path = self.model("deepseek_v32")
        code, said = self.export(path, "--tokens", 16)  # where each row chooses every key
        self.assertEqual(code, 0, said)
        model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()
        ids = torch.from_numpy(np.load(self.made / "text.npy"))[None, :16]
        with torch.no_grad():
            own = model(ids, labels=ids).loss.exp()
        self.assertIn(f"perplexity {float(own):.4g}", said)

    def test_an_argument_of_unknown_meaning(self):
        own = attention_capture.attend

        def handed(value):
            def function(*given, **named):
                return own(*given, **named, tree=value)
            return mock.patch.dict(attention_capture.AttentionInterface._global_mapping,
                                   {attention_capture.NAME: function})

        for value in (torch.ones(2), 3, True):
            with handed(value):
                self.refused("llama", "layer 0 (LlamaAttention) hands tree to its attention")
        for value in (None, False):
            with handed(value):
                self.exported(self.model("llama"), "--fresh")

    def test_an_argument_of_unknown_meaning_within_a_module(self):
        attention, block = modeling_bloom.BloomAttention.forward, modeling_bloom.BloomBlock.forward

        def takes(module, *given, tree=None, **named):
            return attention(module, *given, **named)

        def hands(module, *given, **named):
            module.self_attention.register_forward_pre_hook(
                lambda _, some, more: (some, {**more, "tree": 3}), with_kwargs=True, prepend=True)
            return block(module, *given, **named)

        with mock.patch.object(modeling_bloom.BloomAttention, "forward", takes), \
                mock.patch.object(modeling_bloom.BloomBlock, "forward", hands):
            self.refused("bloom", "layer 0 (BloomAttention) hands tree to its attention")

    def test_attention_that_differs_where_nobody_listens_is_found(self):
        own = modeling_llama.LlamaAttention.forward

        def forward(module, hidden_states, *given, attention_mask, **named):
            if module.config._attn_implementation in ("eager", "sdpa"):
                attention_mask = attention_mask.clone()
                attention_mask[..., 5:20] = torch.finfo(torch.float32).min
            return own(module, hidden_states, *given, attention_mask=attention_mask, **named)

        with mock.patch.object(modeling_llama.LlamaAttention, "forward", forward):
            for options in (("--chunk", 0), ("--chunk", 10), ("--chunk", 63)):
                self.refused("llama", "own eager attention", "not all of its attention is recorded",
                             options=(*options, "--fresh"))

    def test_several_residual_streams_have_no_norms(self):
        self.refused("gemma3n_text", "residual stream of the shape (2, 1, 64, 32)", "leave --wo out",
                     options=("--wo",))

    def test_blocks_of_two_attentions_have_no_norms(self):
        self.refused("longcat_flash", "layer 0: its block has several attentions", "leave --wo out",
                     options=("--wo",))

    def test_other_kinds_of_models_are_refused_in_one_line(self):
        T5ForConditionalGeneration(T5Config(vocab_size=96, d_model=8, d_ff=8, num_layers=1, num_heads=2,
                                            d_kv=4)).save_pretrained(self.folder)
        code, said = self.export(self.folder)
        self.assert_refused((code, said), "T5Config", "give a causal language model")
        self.assertEqual(said.count("\n"), 1, said)

    def test_files_that_are_no_models(self):
        (self.folder / "empty.gguf").write_bytes(b"nothing")
        self.assert_refused(self.export(self.folder), "does not load it")
        self.assert_refused(self.export(self.folder / "none.gguf"), "no such file")
        self.assert_refused(self.export(self.folder / "empty.gguf"), "does not load it")


class Masks(unittest.TestCase):
    HIDDEN = torch.finfo(torch.float32).min

    def mask(self, seen: torch.Tensor, heads: int = 1, chunk: int = 0) -> Mask:
        mask = torch.where(seen, 0.0, self.HIDDEN)
        return mask_of(mask.expand(1, heads, *seen.shape), *seen.shape, chunk)

    def window(self, seen: torch.Tensor, heads: int = 1) -> int:
        mask_terms = self.mask(seen, heads)
        self.assertEqual((mask_terms.chunk, mask_terms.causal), (0, True))
        return mask_terms.window

    def setUp(self):
        self.row, self.token = torch.arange(4, 12)[:, None], torch.arange(12)[None, :]
        self.causal = self.token <= self.row

    def refused(self, seen: torch.Tensor, words: str) -> None:
        with self.assertRaisesRegex(Fault, words):
            self.window(seen)

    def test_causal_and_windows_are_told(self):
        self.assertEqual(self.window(self.causal), 0)
        self.assertEqual(self.window(self.causal, heads=3), 0)
        for window in (1, 3, 5, 11):
            self.assertEqual(self.window(self.causal & (self.token > self.row - window)), window)
        self.assertEqual(self.window(self.causal & (self.token > self.row - 12)), 0)

    def test_other_masks_are_named(self):
        self.refused(self.causal | (self.token < 8), "not causal")
        self.refused(self.token < self.row, "not causal")
        self.refused(self.causal & (self.token != 2), "holes")
        self.refused(self.causal & (self.token >= self.row // 5 * 5), "nor made of")
        self.refused(self.causal & (self.token >= self.row // 2), "neither causal")

    def test_chunks_are_those_that_the_model_speaks_of(self):
        chunked = self.causal & (self.token >= self.row // 5 * 5)
        self.assertEqual(self.mask(chunked, chunk=5), Mask(chunk=5))
        self.assertEqual(self.mask(chunked[6:], chunk=5), Mask(chunk=5))  # all in one chunk
        self.assertEqual(self.mask(self.causal, chunk=12), Mask())
        with self.assertRaisesRegex(Fault, "nor made of"):
            self.mask(chunked, chunk=6)

    def test_a_mask_that_hides_nothing(self):
        self.assertEqual(mask_of(None, 8, 12), Mask(causal=False))
        self.assertEqual(self.mask(self.causal | (self.token >= 0)), Mask(causal=False))
        self.assertEqual(mask_of(None, 1, 12), Mask())  # one row, the last

    def test_biases_are_named(self):
        mask = torch.where(self.causal, 0.0, self.HIDDEN)
        with self.assertRaisesRegex(Fault, "ALiBi or another relative bias"):
            mask_of((mask - 0.1 * (self.row - self.token))[None, None], 8, 12)

    def test_heads_with_masks_of_their_own_are_named(self):
        windowed = torch.where(self.causal & (self.token > self.row - 3), 0.0, self.HIDDEN)
        causal = torch.where(self.causal, 0.0, self.HIDDEN)
        with self.assertRaisesRegex(Fault, "different masks"):
            mask_of(torch.stack([causal, windowed])[None], 8, 12)


if __name__ == "__main__":
    unittest.main()
