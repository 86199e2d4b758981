"""The exporter's options: pieces, element types, rounding, texts, resuming, faults."""

from __future__ import annotations

import json
import shutil
import unittest
from unittest import mock

import h5py
import numpy as np
import tokenizers
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from export import model_export
from exported import PLAIN_SWEEP, TOKENS, Folder, kvbench, layer
from tiny_models import VOCABULARY


class Pieces(Folder):
    def test_a_text_read_in_pieces_gives_the_same_dump(self):
        for name in ("llama", "gemma3_text", "gpt2", "deepseek_v3"):
            whole = self.exported(self.model(name), "--chunk", 0, out=f"{name}-whole.h5")
            for chunk in (10, 63):
                pieces = self.exported(self.model(name), "--chunk", chunk,
                                       out=f"{name}-{chunk}.h5")
                self.assert_valid(pieces)
                attributes, tensors, rope = layer(whole, 1)
                again, others, other_rope = layer(pieces, 1)
                self.assertEqual(attributes, again)
                self.assertEqual(str(rope), str(other_rope))
                for each, tensor in tensors.items():
                    np.testing.assert_allclose(others[each], tensor, rtol=1e-3, atol=1e-4)

    def test_attention_is_computed_in_blocks_of_rows(self):
        whole = self.exported(self.model("gemma2"), out="whole.h5")
        with mock.patch("export.attention_capture.BLOCK_ELEMENTS", 4 * TOKENS * 7):
            blocks = self.exported(self.model("gemma2"), out="blocks.h5")
        np.testing.assert_allclose(layer(blocks, 1)[1]["out"], layer(whole, 1)[1]["out"],
                                   rtol=1e-3, atol=1e-4)

    def test_last_queries_and_few_outputs(self):
        every = layer(self.exported(self.model("llama"), out="every.h5"), 1)[1]
        dump = self.exported(self.model("llama"), "--queries", "last:20", "--out-rows", 8,
                             "--chunk", 14, out="last.h5")
        self.assert_valid(dump)
        some = layer(dump, 1)[1]
        self.assertEqual(some["out"].shape[1], 8)
        np.testing.assert_allclose(some["q"], every["q"][:, -20:], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(some["out"], every["out"][:, -8:], rtol=1e-3, atol=1e-4)

    def test_chosen_layers(self):
        dump = self.exported(self.model("gemma3_text"), "--layers", "0,2-2")
        with h5py.File(dump) as file:
            self.assertEqual(set(file["sequences/text/layers"]), {"0", "2"})
            self.assertEqual(file.attrs["n_layers"], 3)


class Norms(Folder):
    def test_norms_of_the_output_projection_over_each_heads_values(self):
        for name in ("llama", "gemma3_text", "gpt2"):
            dump = self.exported(self.model(name), "--wo-norms", "--chunk", 10, out=f"{name}.h5")
            self.assert_valid(dump)
            model = AutoModelForCausalLM.from_pretrained(self.model(name))
            weight = (model.transformer.h[1].attn.c_proj.weight.T if name == "gpt2" else
                      model.model.layers[1].self_attn.o_proj.weight).detach().numpy().astype(float)
            with h5py.File(dump) as file:
                group = file["sequences/text/layers/1"]
                v, norms = group["v"][:].astype(float), group["wo_v_l1"][:]
            heads, dv = norms.shape[0], v.shape[2]
            self.assertEqual(norms.shape, (heads, TOKENS, 1))
            for g in range(heads):
                of_head = weight[:, g * dv:(g + 1) * dv]  # head g's part of the residual stream
                for j in (0, 17, TOKENS - 1):
                    expected = np.abs(of_head @ v[g // (heads // v.shape[0]), j]).sum()
                    np.testing.assert_allclose(norms[g, j, 0], expected, rtol=1e-5)
            sweep = self.folder / "sweep.json"
            sweep.write_text(json.dumps({
                "schema_version": 1, "name": "norms", "dumps": [str(dump)], "algorithms": [
                    {"algorithm": "criticalkv", "params": {"budget": 16, "window": 4}}]}))
            done = kvbench("run", "--config", sweep, "--out", self.folder / name)
            self.assertEqual(done.returncode, 0, done.stderr)
            cells = json.loads((self.folder / name / "results.json").read_text())["cells"]
            self.assertTrue(any(cell["status"] == "ok" for cell in cells))

    def test_a_model_without_such_a_projection_is_refused(self):
        self.assert_refused(self.export(self.model("bert"), "--wo-norms"),
                            "BertSelfAttention", "no output projection that --wo-norms knows", "o_proj",
                            "leave --wo-norms out")


class Elements(Folder):
    def test_stored_as_the_model_computes(self):
        for name in ("bfloat16", "float16", "float64"):
            dump = self.exported(self.model("llama"), "--compute-dtype", name, out=f"{name}.h5")
            self.assert_valid(dump)
            with h5py.File(dump) as file:
                k = file["sequences/text/layers/0/k"]
                self.assertEqual(k.attrs.get("dtype", k.dtype.name), name)
                self.assertEqual(file.attrs["compute_dtype"], name)

    def test_rounded_the_model_attends_with_what_is_stored(self):
        exact = self.exported(self.model("llama"), out="exact.h5")
        for name in ("float16", "bfloat16"):
            dump = self.exported(self.model("llama"), "--dtype", name, "--round",
                                 out=f"{name}.h5")
            self.assert_valid(dump)
            with h5py.File(dump) as file:
                self.assertEqual(file.attrs["compute_dtype"], f"float32, q k v rounded to {name}")
            # It is another run than the exact one, and not only written differently.
            self.assertGreater(float(abs(layer(dump, 1)[1]["out"] -
                                         layer(exact, 1)[1]["out"]).max()), 1e-4)

    def test_unrounded_it_says_what_the_stored_tensors_lost(self):
        code, said = self.export(self.model("llama"), "--dtype", "bfloat16")
        self.assertEqual(code, 0, said)
        self.assertIn("recompute to", said)
        self.assertIn("--round", said)
        dump = self.folder / "dump.h5"
        self.assert_valid(dump)  # within the rounding of its types
        self.assertEqual(kvbench("validate", dump, "--tolerance", "1e-4").returncode, 4)

    def test_what_does_not_fit_is_named(self):
        path = self.made / "huge"
        model = AutoModelForCausalLM.from_pretrained(self.model("llama"))
        with torch.no_grad():
            model.model.layers[1].self_attn.k_proj.weight.mul_(1e6)
        model.save_pretrained(path)
        self.assert_refused(self.export(path, "--dtype", "float16"), "layers/1/k", "head",
                            "token", "does not fit into float16", "bfloat16")
        self.assert_refused(self.export(path, "--dtype", "float16", "--round", "--fresh"),
                            "layer 1: k reaches", "float16")

    def test_infinite_numbers_are_refused(self):
        path = self.made / "infinite"
        model = AutoModelForCausalLM.from_pretrained(self.model("llama"))
        with torch.no_grad():
            model.model.layers[0].self_attn.v_proj.weight[0, 0] = float("nan")
        model.save_pretrained(path)
        self.assert_refused(self.export(path), "layers/0/v", "token 0", "finite")


class Texts(Folder):
    def with_tokenizer(self):
        path = self.folder / "model"
        shutil.copytree(self.model("llama"), path)
        letters = {chr(32 + place): place for place in range(VOCABULARY)}
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token=" "))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=" ").save_pretrained(path)
        return path

    def test_texts_in_several_sequences(self):
        path = self.with_tokenizer()
        words = "We the People of the United States, in Order to form a more perfect Union " * 2
        for name in ("one", "two"):
            (self.folder / f"{name}.txt").write_text(name + words)
        dump = self.exported(path, "--text", self.folder / "one.txt", self.folder / "two.txt",
                             "--tokens", 40, "--start", 5, "--sequences", 2,
                             "--prompt-tokens", 30, "--layers", "1")
        self.assert_valid(dump)
        self.assertEqual({cell["key"]["sequence"] for cell in self.assert_runs(dump, PLAIN_SWEEP)},
                         {"one-0", "one-1", "two-0", "two-1"})
        with h5py.File(dump) as file:
            self.assertEqual(file.attrs["dataset"], "one.txt, two.txt")
            second = file["sequences/two-1"]
            self.assertEqual(second.attrs["description"], "two.txt tokens 45..85")
            self.assertEqual(second.attrs["prompt_tokens"], 30)
            self.assertEqual(second["token_ids"][:].tolist(),
                             [ord(letter) - 32 for letter in ("two" + words)[45:85]])
        # The same tokens from the dump itself give the same dump.
        again = self.exported(path, "--token-ids", dump, "--layers", "1", out="again.h5")
        for name in ("q", "k", "v", "out"):
            np.testing.assert_allclose(layer(again, 1, "two-1")[1][name],
                                       layer(dump, 1, "two-1")[1][name], rtol=1e-4, atol=1e-5)

    def test_short_texts_and_foreign_ids_are_refused(self):
        model = self.model("llama")
        self.assert_refused(self.export(model, "--tokens", 65), "64 tokens", "65")
        self.assert_refused(self.export(model, "--tokens", 30, "--sequences", 3), "90")
        np.save(self.folder / "big.npy", np.full(20, VOCABULARY))
        self.assert_refused(self.export(model, "--token-ids", self.folder / "big.npy"),
                            f"0 to {VOCABULARY - 1}")
        self.assert_refused(self.export(model, "--text", __file__), "tokenizer", "--token-ids")
        (self.folder / "bad.h5").write_text("no dump")
        self.assert_refused(self.export(model, "--token-ids", self.folder / "bad.h5"), "bad.h5")

    def test_longer_than_the_models_positions(self):
        np.save(self.folder / "long.npy", np.full(300, 5))
        self.assert_refused(self.export(self.model("gpt2"), "--token-ids",
                                        self.folder / "long.npy"), "300 tokens", "256")


class Runs(Folder):
    def setUp(self):
        super().setUp()
        np.save(self.folder / "three.npy", np.random.default_rng(1).integers(3, 90, (3, 32)))
        self.options = ("--token-ids", self.folder / "three.npy")

    def interrupted(self) -> None:
        """An export that dies in its third sequence."""
        own = model_export.export_sequence
        done = []

        def dying(*arguments):
            if len(done) == 2:
                raise KeyboardInterrupt
            done.append(own(*arguments))

        with mock.patch.object(model_export, "export_sequence", dying), \
                self.assertRaises(KeyboardInterrupt):
            self.export(self.model("llama"), *self.options)

    def test_an_interrupted_export_goes_on(self):
        whole = self.exported(self.model("llama"), *self.options, out="whole.h5")
        self.interrupted()
        self.assertFalse((self.folder / "dump.h5").exists())
        code, said = self.export(self.model("llama"), *self.options)
        self.assertEqual((code, said.count("done before")), (0, 2), said)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["dump.h5", "three.npy", "whole.h5"])
        for sequence in ("three-0", "three-2"):
            for name, tensor in layer(whole, 1, sequence)[1].items():
                np.testing.assert_array_equal(layer(self.folder / "dump.h5", 1, sequence)[1][name],
                                              tensor)

    def test_parts_of_other_settings_are_not_mixed_in(self):
        self.interrupted()
        other = (*self.options, "--dtype", "float16", "--round")
        self.assert_refused(self.export(self.model("llama"), *other), "other settings", "--fresh")
        self.exported(self.model("llama"), *other, "--fresh")

    def test_an_existing_dump_is_not_replaced(self):
        dump = self.exported(self.model("llama"))
        before = dump.read_bytes()
        self.assert_refused(self.export(self.model("llama")), "exists", "--fresh")
        self.assertEqual(dump.read_bytes(), before)
        self.exported(self.model("llama"), "--fresh", "--layers", "0")

    def test_faults_of_the_command_line_are_told_together(self):
        self.assert_refused(
            self.export("none", "--tokens", 2, "--round", "--sequences", 2, "--out-rows", 0,
                        "--compression", 12, "--text", "absent.txt", out="none/dump.dat"),
            "--tokens 2", "--round needs --dtype", "--out-rows 0", "--compression 12",
            "absent.txt", "dump.dat", "no such folder")
        for option, value in (("--layers", "0,x"), ("--layers", "5"), ("--queries", "first:3"),
                              ("--prompt-tokens", TOKENS)):
            self.assert_refused(self.export(self.model("llama"), option, value),
                                f"{option} {value}")


if __name__ == "__main__":
    unittest.main()
