"""GGUF files: a tiny one, against the same weights as a model folder; and, where the weights behind
the shipped dump are at hand, that dump again."""

from __future__ import annotations

import os
import unittest

import gguf
import h5py
import numpy as np
from transformers import AutoModelForCausalLM

from exported import SOURCE, Folder, layer

HEADS, KV_HEADS, WIDTH = 4, 2, 64
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "post_attention_layernorm": "ffn_norm",
         "input_layernorm": "attn_norm", "model.layers": "blk"}


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows as llama.cpp keeps those of q and k: a pair that is turned together side by side."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(model, path) -> None:
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(config.hidden_size // HEADS)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    for name, tensor in model.state_dict().items():
        weight = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:
            weight = interleaved(weight, HEADS if "q_proj" in name else KV_HEADS)
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        writer.add_tensor(name, np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Gguf(Folder):
    def test_a_gguf_file_gives_the_dump_of_the_same_weights(self):
        path = self.model("llama", hidden_size=WIDTH)
        file = self.folder / "tiny.gguf"
        write_gguf(AutoModelForCausalLM.from_pretrained(path), file)
        dump = self.exported(file, "--compute-dtype", "float32", out="file.h5")
        self.assert_valid(dump)
        with h5py.File(dump) as file:
            self.assertEqual(file.attrs["model"], "tiny.gguf")
        for name, tensor in layer(self.exported(path), 1)[1].items():
            np.testing.assert_allclose(layer(dump, 1)[1][name], tensor, rtol=1e-4, atol=1e-4)


WEIGHTS = os.environ.get("KVBENCH_SMOLLM2_GGUF")


@unittest.skipUnless(WEIGHTS, "KVBENCH_SMOLLM2_GGUF does not name SmolLM2-135M-Instruct.Q4_1.gguf")
class ShippedDump(Folder):
    def test_it_comes_again_from_its_token_ids(self):
        shipped = SOURCE / "data/smollm2-constitution.h5"
        dump = self.exported(WEIGHTS, "--token-ids", shipped, "--layers", "0,1,15", "--dtype",
                             "float16", "--compute-dtype", "float32", "--round", "--chunk", 0)
        self.assert_valid(dump)
        # float32 sums in another order turn some float16 roundings by a step, and every layer
        # hands them on: far apart from a wrong rotation, scale or order of heads.
        for number, most in ((0, 1e-4), (1, 2e-4), (15, 4e-3)):
            attributes, tensors, rope = layer(shipped, number, "constitution")
            again, others, other_rope = layer(dump, number, "constitution")
            self.assertEqual((attributes, str(rope)), (again, str(other_rope)))
            for name in ("q", "k", "v"):
                ours, theirs = (t[name].astype(np.float64) for t in (others, tensors))
                self.assertLess(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs), most)


if __name__ == "__main__":
    unittest.main()
