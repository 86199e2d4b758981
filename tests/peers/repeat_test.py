"""kvzip against kvpress's KVzipPress in a model that runs: the press has the model repeat its prompt
and masks tokens; kvbench ranks by the dump of the same model that --repeat wrote. Both in double
precision, so that the tokens are the same, and not most of them."""

from __future__ import annotations

import logging
import unittest
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
import torch
import transformers

import export_transformers
from presses import kvpress_presses
from export import repeat_pass
import tiny_models
from compared import Folder

kvpress = kvpress_presses.load_kvpress()
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
TOKENS, PROMPT, LAYERS, KV_HEADS = 90, 80, 3, 2
# The release's words for the parts behind the first end with a space, kvpress's without.
NEXT_REQUEST = repeat_pass.NEXT_REQUEST.rstrip()


class Repeating(Folder):
    def setUp(self) -> None:
        super().setUp()
        before = kvpress.BasePress.forward_hook
        kvpress.BasePress.forward_hook = tiny_models.pass_cache_position(before)
        self.addCleanup(setattr, kvpress.BasePress, "forward_hook", before)
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        ids = np.random.default_rng(5).integers(3, tiny_models.VOCABULARY, TOKENS)
        np.save(self.folder / "text.npy", ids)
        self.ids = torch.tensor(ids[None, :PROMPT])
        logging.getLogger("kvpress").setLevel(logging.ERROR)  # every press says how long it takes

    def model(self, prefix: str, suffix: str) -> Path:
        """A tiny model with a tokenizer of letters; a user's words stand between prefix and suffix."""
        path = tiny_models.make("llama", self.folder, num_hidden_layers=LAYERS,
                                max_position_embeddings=512)
        tiny_models.save_tokenizer(path, (prefix, suffix) if prefix else None)
        return path

    def kept_by_press(self, path: Path, budget: int, layerwise: bool, part: int, sinks: int) -> dict:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, attn_implementation="sdpa", dtype=torch.float64)
        press = kvpress.KVzipPress(compression_ratio=1 - budget / PROMPT, layerwise=layerwise,
                                   n_sink=sinks, chunk_size=part)
        torch.set_default_dtype(torch.float64)  # the press makes masks of it
        with torch.no_grad(), press(model):
            model(self.ids, past_key_values=transformers.DynamicCache())
        torch.set_default_dtype(torch.float32)
        kept = {}
        for number, layer in enumerate(model.model.layers):
            _, heads, tokens = (each.tolist() for each in layer.self_attn.masked_key_indices)
            for head in range(KV_HEADS):
                masked = {t for h, t in zip(heads, tokens) if h == head}
                kept[number, head] = set(range(PROMPT)) - masked
        return kept

    def kept_by_kvbench(self, dump: Path, budget: int, scope: str) -> dict:
        records = self.run_sweep([{"algorithm": "kvzip", "params": {"budget": budget, "scope": scope}}],
                                 PROMPT, dump)
        self.assertEqual(len(records), LAYERS * KV_HEADS)
        (cache,) = (self.folder / "results/caches").glob("*.h5")
        kept = {}
        with h5py.File(cache) as file:
            for number in range(LAYERS):
                for head in range(KV_HEADS):
                    token = file[f"sequences/text/layers/{number}/heads/{head}/token"][:]
                    kept[number, head] = {int(t) for t in token if t < PROMPT}
        return kept

    def exported(self, path: Path, part: int, first: int) -> Path:
        dump = self.folder / "repeated.h5"
        with mock.patch.object(repeat_pass, "NEXT_REQUEST", NEXT_REQUEST):
            code = export_transformers.main([str(argument) for argument in (
                path, "--token-ids", self.folder / "text.npy", "--compute-dtype", "float64",
                "--prompt-tokens", PROMPT, "--repeat", "--repeat-part", part, "--repeat-from", first,
                "--out", dump, "--fresh")])
        self.assertEqual(code, 0)
        return dump

    def compare(self, part: int, first: int, sinks: int) -> None:
        path = self.model("user" if first else "", "<bot>")
        dump = self.exported(path, part, first)
        for layerwise in (False, True):
            for budget in (20, 40, 60):
                ours = self.kept_by_kvbench(dump, budget, "layer" if layerwise else "model")
                theirs = self.kept_by_press(path, budget, layerwise, part, sinks)
                self.assertEqual(ours, theirs, (layerwise, budget))
                sizes = {len(tokens) for tokens in ours.values()}
                self.assertGreater(len(sizes), 1)  # heads have budgets of their own

    def test_a_prompt_in_one_part(self):
        self.compare(part=2048, first=0, sinks=0)

    def test_parts_behind_four_tokens_of_a_template(self):
        self.compare(part=30, first=4, sinks=4)

    def test_parts_without_tokens_before_them(self):
        self.compare(part=30, first=0, sinks=0)

    def test_what_differs_from_the_press_is_seen(self):
        """kvpress's four sinks next to parts of a prompt that begins with the first of them."""
        path = self.model("", "")
        dump = self.exported(path, 30, 0)
        self.assertNotEqual(self.kept_by_kvbench(dump, 40, "model"),
                            self.kept_by_press(path, 40, False, 30, 4))


if __name__ == "__main__":
    unittest.main()
