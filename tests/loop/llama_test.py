"""llama.cpp's quantised caches and the closed loop's, of one GGUF model: logits of the decoded tokens. llama.cpp multiplies keys of
8 and 4 bits with queries that it has brought to blocks of 8 bits, which here is done to ours as well."""

from __future__ import annotations

import contextlib
import io
import unittest
from argparse import Namespace
from pathlib import Path
from unittest import mock

import gguf
import numpy as np
import torch

import llama_texts
from llama_cache import CASES, Cache, LlamaCpp, as_llama_cpp, order_of_channels
from loop.loop_statistics import compared, summary
from looped import IDS, PROMPT, TOKENS, Folder, Live, Read

HEAD, HEADS, KV_HEADS, LAYERS, VOCABULARY = 64, 2, 1, 2, 256
WIDTH, HIDDEN = HEAD * HEADS, 64
BIASES = (("attn_q", WIDTH), ("attn_k", KV_HEADS * HEAD), ("attn_v", KV_HEADS * HEAD))


def random_gguf(path: Path, architecture: str) -> None:
    """Random weights in float32."""
    random = np.random.default_rng(3)
    file = gguf.GGUFWriter(str(path), architecture)
    file.add_context_length(512)
    file.add_embedding_length(WIDTH)
    file.add_block_count(LAYERS)
    file.add_feed_forward_length(HIDDEN)
    file.add_head_count(HEADS)
    file.add_head_count_kv(KV_HEADS)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_freq_base(10000.0)
    file.add_rope_dimension_count(HEAD)
    file.add_vocab_size(VOCABULARY)
    file.add_file_type(0)
    file.add_tokenizer_model("no_vocab")

    def tensor(name: str, *shape: int) -> None:
        numbers = random.standard_normal(shape) if len(shape) == 2 else np.ones(shape)
        file.add_tensor(f"{name}.weight", (numbers / shape[-1] ** (len(shape) // 2 / 2)).astype(np.float32))

    tensor("token_embd", VOCABULARY, WIDTH)
    tensor("output", VOCABULARY, WIDTH)
    tensor("output_norm", WIDTH)
    for layer in range(LAYERS):
        for name, *shape in (("attn_norm", WIDTH), ("ffn_norm", WIDTH), ("attn_q", WIDTH, WIDTH),
                             ("attn_k", KV_HEADS * HEAD, WIDTH), ("attn_v", KV_HEADS * HEAD, WIDTH),
                             ("attn_output", WIDTH, WIDTH), ("ffn_gate", HIDDEN, WIDTH),
                             ("ffn_up", HIDDEN, WIDTH), ("ffn_down", WIDTH, HIDDEN)):
            tensor(f"blk.{layer}.{name}", *shape)
        for name, *shape in BIASES if architecture == "qwen2" else ():
            file.add_tensor(f"blk.{layer}.{name}.bias", random.standard_normal(shape).astype(np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


class LlamaCppsCaches(Folder):
    def read(self, architecture: str, algorithms: list[dict]) -> tuple[Read, LlamaCpp]:
        path = self.made / f"{architecture}.gguf"
        if not path.exists():
            random_gguf(path, architecture)
        return Read(self, path, algorithms, "--decisions", "live"), LlamaCpp(path, VOCABULARY, HEAD)

    def test_the_models_say_the_same_over_the_full_cache(self):
        for architecture in ("qwen2", "llama"):
            read, llama = self.read(architecture, [{"algorithm": "exact"}])
            theirs = llama.logits(IDS, PROMPT)
            self.assertLess(np.abs(read.whole().double().numpy() - theirs).max(), 1e-4 * theirs.std())

    def test_over_quantised_caches_they_say_the_same(self):
        """But where float32 rounds a number to the next code, which moves few logits by little; not without llama.cpp's
        rounding of queries and order of channels."""
        for architecture in ("qwen2", "llama"):
            read, llama = self.read(architecture, [case.setting for case in CASES])
            full, order = llama.logits(IDS, PROMPT), order_of_channels(architecture, HEAD)
            for place, case in enumerate(CASES):
                theirs, plain = llama.logits(IDS, PROMPT, case), read.logits(Live, place)
                with as_llama_cpp(order):
                    ours = read.logits(Live, place)
                error, apart, before = (np.abs(theirs - each).mean() for each in (full, ours.numpy(), plain.numpy()))
                with self.subTest(architecture, cache=case.label):
                    self.assertLess(apart, 0.02 * error)
                    self.assertGreater(before, 20 * apart)

    def test_rows_of_texts(self):
        """Over float32 weights two ways are one, and reading over the quantised cache is another; a finished row is not
        computed again."""
        read, llama = self.read("qwen2", [{"algorithm": "exact"}])
        out = self.folder / "out"
        out.mkdir()
        (out / "ours").symlink_to(read.args.out)
        given = Namespace(model=Path(read.args.model), text=[Path("text.txt")], prompt=PROMPT / TOKENS, out=out, caches=["q4_0 keys"])
        cache = Cache("q4_0")
        with contextlib.redirect_stderr(io.StringIO()):
            ways = {way: llama_texts.theirs(given, way) for way in llama_texts.LLAMA}
            with mock.patch.object(LlamaCpp, "logits", side_effect=AssertionError):
                self.assertEqual(llama_texts.theirs(given, "reading"), ways["reading"])
        exact, again, reading = (each["kl"] for rows in ways.values() for each in rows)
        full, quantised = (torch.from_numpy(llama.logits(IDS, PROMPT, *each)) for each in ((), (cache,)))
        self.assertAlmostEqual(exact, summary(compared(full, quantised, torch.from_numpy(IDS[PROMPT:])))["kl"]["mean"], 6)
        self.assertEqual(exact, again)
        self.assertGreater(abs(reading - exact), 1e-3 * exact)
        np.save(out / "text.ours.npy", read.whole().numpy())
        self.assertLess(max(each["kl"] for each in llama_texts.apart(given)), 1e-6 * exact)

    def test_ratios_by_hand(self):
        """Ratios 2 and 8 to `ours`: mean 4, and Student's t of one degree of freedom."""
        rows = [{"way": way, "cache": "q4_0", "text": text, "kl": kl} for way, kls in
                (("ours", (1, 2)), ("as llama.cpp", (2, 16))) for text, kl in zip("ab", kls)]
        ours, other = llama_texts.ratios(rows)
        self.assertEqual((ours["kl"], other["kl"], "to_ours" in ours), (1.5, 9, False))
        reach = np.exp(12.7062 * np.log(4) / 2)
        for name, value in (("to_ours", 4), ("to_before", 4), ("to_ours_low", 4 / reach), ("to_ours_high", 4 * reach)):
            self.assertAlmostEqual(other[name] / value, 1, 3)


if __name__ == "__main__":
    unittest.main()
