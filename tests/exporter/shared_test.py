"""Layers that read another layer's keys and values: stored once, named, and told where they cannot
be held."""

from __future__ import annotations

import unittest

import h5py
import numpy as np
import torch
from transformers import AutoModelForCausalLM

import tiny_models
from exported import PLAIN_SWEEP, Folder, differences

OWNERS = {3: 1, 4: 2}  # layers of the tiny Gemma 3n, by its configuration


class Shared(Folder):
    def test_such_layers_have_queries_and_name_whose_keys_they_read(self):
        path = self.model("gemma3n_text")
        model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()
        for options in (("--chunk", 0), ("--chunk", 10), ("--dtype", "float16", "--round")):
            dump = self.exported(path, *options, "--fresh")
            with h5py.File(dump) as file:
                self.assertEqual(file.attrs["format_version"], 2)
                layers = file["sequences/text/layers"]
                for number in range(5):
                    group, reads = layers[str(number)], number in OWNERS
                    attention = model.model.layers[number].self_attn
                    self.assertEqual(hasattr(attention, "k_proj"), not reads)
                    self.assertEqual(set(group) - {"rope"},
                                     {"q", "out"} | (set() if reads else {"k", "v"}))
                    self.assertEqual(group.attrs.get("kv_layer"), OWNERS.get(number))
                    if reads:
                        owner = layers[str(OWNERS[number])].attrs
                        for name in ("scale", "sliding_window", "logit_softcap"):
                            self.assertEqual(group.attrs[name], owner[name])
            # Answers of the model, from the keys of the layers that are named.
            self.assertLess(max(differences(dump).values()), 1e-4)
            self.assert_valid(dump)
            # A layer that reads another's keys has no cells of its own.
            cells = self.assert_runs(dump, PLAIN_SWEEP)
            self.assertEqual({cell["key"]["layer"] for cell in cells}, {0, 1, 2})

    def test_the_text_reads_as_the_model_alone_reads_it(self):
        path = self.model("gemma3n_text")
        model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()
        ids = torch.from_numpy(np.load(self.made / "text.npy"))[None]
        with torch.no_grad():
            own = model(ids, labels=ids).loss.exp()
        self.assertIn(f"perplexity {float(own):.4g}", self.export(path, "--chunk", 10)[1])

    def test_without_the_layer_that_has_the_keys_it_is_refused(self):
        path = self.model("gemma3n_text")
        self.assert_refused(self.export(path, "--layers", "0,3"), "layer 3 reads", "choose layer 1")
        self.exported(path, "--layers", "1,3")

    def test_a_pass_that_repeats_is_refused(self):
        path = self.model("gemma3n_text")
        tiny_models.save_tokenizer(path)
        self.assert_refused(self.export(path, "--repeat", "--prompt-tokens", 40),
                            "layers 3, 4 read other layers' keys", "leave --repeat out")


if __name__ == "__main__":
    unittest.main()
