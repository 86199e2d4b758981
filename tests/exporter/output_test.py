"""Output projections, norms of the residual stream and evidence in dumps: against the model's own
hidden states, and as records of whole layers that kvbench makes of them."""

from __future__ import annotations

import json
import unittest

import h5py
import numpy as np
import torch
from transformers import AutoModelForCausalLM

from exported import TOKENS, Folder, kvbench

# Attention modules and their blocks, by model.
PLACES = {
    "llama": lambda model, number: (model.model.layers[number].self_attn, model.model.layers[number]),
    "gemma2": lambda model, number: (model.model.layers[number].self_attn, model.model.layers[number]),
    "gpt2": lambda model, number: (model.transformer.h[number].attn, model.transformer.h[number]),
    "phi": lambda model, number: (model.model.layers[number].self_attn, model.model.layers[number]),
    "gpt_neox": lambda model, number: (model.gpt_neox.layers[number].attention,
                                       model.gpt_neox.layers[number]),
    "cohere": lambda model, number: (model.model.layers[number].self_attn, model.model.layers[number]),
    "granite": lambda model, number: (model.model.layers[number].self_attn, model.model.layers[number]),
    "gpt_oss": lambda model, number: (model.model.layers[number].self_attn, model.model.layers[number]),
    "llama4_text": lambda model, number: (model.model.layers[number].self_attn, model.model.layers[number]),
    "deepseek_v3": lambda model, number: (model.model.layers[number].self_attn, model.model.layers[number]),
}


def captured_layers(model: torch.nn.Module, place, ids: torch.Tensor) -> dict[int, tuple]:
    """Per layer: what the attention module gives, and the stream that its block is given."""
    found: dict[int, list] = {0: [None, None], 1: [None, None]}
    for number, captured in found.items():
        module, block = place(model, number)
        module.register_forward_hook(
            lambda _, __, out, captured=captured: captured.__setitem__(0, out[0] if isinstance(out, tuple) else out))
        block.register_forward_pre_hook(
            lambda _, given, named, captured=captured: captured.__setitem__(
                1, given[0] if given else named["hidden_states"]), with_kwargs=True)
    with torch.no_grad():
        model(ids[None])
    return {number: (captured[0][0].double().numpy(), captured[1][0].double().numpy())
            for number, captured in found.items()}


class Outputs(Folder):
    def test_heads_answers_through_wo_are_the_modules_output(self):
        ids = torch.from_numpy(np.load(self.made / "text.npy"))
        for name, place in PLACES.items():
            path = self.model(name)
            model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()
            captured = captured_layers(model, place, ids)
            for options in ((), ("--chunk", 10, "--queries", "last:20", "--out-rows", 8)):
                with self.subTest(name, options=options):
                    dump = self.exported(path, "--wo", *options, "--fresh", out=f"{name}.h5")
                    self.assert_valid(dump)
                    for number, (output, stream) in captured.items():
                        with h5py.File(dump) as file:
                            group = file[f"sequences/text/layers/{number}"]
                            wo, out, norms = (group[each][:].astype(float)
                                              for each in ("wo", "out", "residual_norm"))
                        rows = 8 if options else TOKENS
                        self.assertEqual((wo.shape[:2], wo.shape[2], len(norms)),
                                         ((out.shape[0], out.shape[2]), stream.shape[1],
                                          20 if options else TOKENS))
                        projection = next(getattr(place(model, number)[0], each) for each in
                                          ("o_proj", "dense", "c_proj")
                                          if hasattr(place(model, number)[0], each))
                        bias = projection.bias.detach().double().numpy() if projection.bias is not None else 0
                        computed = np.einsum("hrv,hvc->rc", out, wo) + bias
                        difference = np.abs(computed - output[-rows:]).max() / np.abs(output).max()
                        self.assertLess(difference, 1e-5)
                        np.testing.assert_allclose(
                            norms, np.linalg.norm(stream, axis=1)[-len(norms):], rtol=1e-5)

    def test_absorbed_and_materialised_projections_give_the_same(self):
        outputs = []
        for number, options in enumerate(((), ("--materialised",))):
            dump = self.exported(self.model("deepseek_v3"), "--wo", *options, out=f"{number}.h5")
            with h5py.File(dump) as file:
                group = file["sequences/text/layers/1"]
                outputs.append(np.einsum("hrv,hvc->rc", group["out"][:].astype(float),
                                         group["wo"][:].astype(float)))
                self.assertEqual(group["wo"].shape, (4, (8, 6)[number], 32))
        np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-4, atol=1e-5)

    def test_weights_of_sixteen_bits_are_stored_as_they_are(self):
        path = self.model("llama")
        dump = self.exported(path, "--wo", "--compute-dtype", "bfloat16")
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
        weight = model.model.layers[1].self_attn.o_proj.weight.detach()
        with h5py.File(dump) as file:
            stored = file["sequences/text/layers/1/wo"]
            self.assertEqual(stored.attrs["dtype"], "bfloat16")
            bits = weight.T.contiguous().view(torch.int16).numpy().view(np.uint16)
            np.testing.assert_array_equal(stored[:].reshape(bits.shape), bits)
        self.assert_valid(dump)

    def test_what_is_not_a_projection_of_the_answers_is_refused(self):
        # Qwen3-Next gates the answers before it projects them; BERT's module projects nothing.
        self.assert_refused(self.export(self.model("qwen3_next"), "--wo"),
                            "layer 1 (Qwen3NextAttention)", "leave --wo out")
        self.assert_refused(self.export(self.model("bert"), "--wo", out="b.h5"),
                            "layer 0 (BertSelfAttention)", "no output projection", "leave --wo out")

    def test_evidence_and_projections_make_records_of_layers(self):
        needle = self.folder / "needle.json"
        needle.write_text(json.dumps({"evidence": [[20, 24]], "rows": [61, 62], "prompt_tokens": 56,
                                    "tokens": TOKENS}))
        dump = self.exported(self.model("llama"), "--wo", "--evidence", needle)
        with h5py.File(dump) as file:
            sequence = file["sequences/text"]
            np.testing.assert_array_equal(sequence["evidence"][:], [[20, 24]])
            np.testing.assert_array_equal(sequence["evidence"].attrs["rows"], [61, 62])
            self.assertEqual(sequence.attrs["prompt_tokens"], 56)
        out = self.folder / "results"
        done = kvbench("run", "--dump", dump, "--algorithm", "window", "--budget", 12, "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        results = json.loads((out / "results.json").read_text())
        self.assertEqual({cell["evidence"]["held"] for cell in results["cells"]}, {0.0})
        self.assertEqual(len(results["layers"]), 2)
        for record in results["layers"]:
            for name in ("relative_output_l2", "residual_ratio"):
                self.assertGreater(record["errors"][name]["mean"], 0.0)
            self.assertEqual(record["evidence"]["lost"], [20, 21, 22, 23, 24])

    def test_evidence_of_other_tokens_is_refused(self):
        needle = self.folder / "needle.json"
        needle.write_text(json.dumps({"evidence": [[2, 3]], "rows": [8], "prompt_tokens": 5, "tokens": 9}))
        self.assert_refused(self.export(self.model("llama"), "--evidence", needle),
                            "of one sequence of 9 tokens", f"gives {TOKENS}")
        needle.write_text("{}")
        self.assert_refused(self.export(self.model("llama"), "--evidence", needle),
                            "is not what `make_needle.py make` wrote")
        text = self.folder / "text.txt"
        text.write_text("a b c d e f")
        self.assert_refused(self.export(self.model("llama"), "--text", text, "--evidence",
                                        self.folder / "none.json"),
                            "no such file", "--evidence needs --token-ids")


if __name__ == "__main__":
    unittest.main()
