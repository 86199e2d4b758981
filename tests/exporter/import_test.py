"""Arrays in .npz, .safetensors and .pt become dumps that kvbench validates; faults are named."""

from __future__ import annotations

import unittest

import h5py
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

import import_arrays
from exported import PLAIN_SWEEP, ROPE_SWEEP, Folder, called, differences, layer

N, D, DV, SCALE, WINDOW, SOFTCAP = 40, 8, 6, 0.4, 12, 3.0


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int = 0,
              softcap: float = 0.0) -> torch.Tensor:
    """torch's own, in float64, so that it shares nothing with what is tested."""
    group, rows = q.shape[0] // k.shape[0], q.shape[1]
    k, v = (t.double().repeat_interleave(group, 0) for t in (k, v))
    logits = SCALE * q.double() @ k.transpose(1, 2)
    if softcap:
        logits = softcap * (logits / softcap).tanh()
    seen = torch.ones(rows, N, dtype=torch.bool).tril(N - rows)
    if window:
        seen &= ~torch.ones(rows, N, dtype=torch.bool).tril(N - rows - window)
    return logits.masked_fill(~seen, -torch.inf).softmax(-1) @ v


def tensors(dtype: torch.dtype = torch.float32, window: int = 0, softcap: float = 0.0,
            rows: int = N) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(h, r, c, generator=g).to(dtype)
               for h, r, c in ((4, rows, D), (2, N, D), (2, N, DV)))
    out = attention(q, k, v, window, softcap)[:, -10:].float().contiguous()
    return {"q": q, "k": k, "v": v, "out": out}


class Import(Folder):
    def test_tensors_of_torch_that_are_not_numbers_in_memory(self):
        held = tensors()
        marked = torch.complex(held["q"], -held["q"]).conj().imag  # negative by a mark alone
        self.assertTrue(marked.is_neg())
        torch.save({**held, "q": marked}, self.folder / "in.pt")
        with h5py.File(self.dump_of(self.folder / "in.pt", options=("--fresh",))) as file:
            np.testing.assert_array_equal(file["sequences/0/layers/0/q"][:], held["q"].numpy())
        for wrong in (held["q"].to_sparse(), torch.quantize_per_tensor(held["q"], 0.1, 0, torch.qint8)):
            torch.save({**held, "q": wrong}, self.folder / "in.pt")
            self.assert_refused(self.call(self.folder / "in.pt", options=("--fresh",)), "in.pt: q", "to_dense()")

    def npz(self, name: str = "in.npz", **arrays: object):
        np.savez(self.folder / name, **{key: np.asarray(value) for key, value in arrays.items()})
        return self.folder / name

    def call(self, *files: object, options: tuple = ()) -> tuple[int, str]:
        return called(import_arrays.main, *files, "--model", "mine", "--scale", SCALE, "--out",
                      self.folder / "imported.h5", *options)

    def dump_of(self, *files: object, options: tuple = ()):
        code, said = self.call(*files, options=options)
        self.assertEqual(code, 0, said)
        return self.folder / "imported.h5"

    def refused(self, *words: str, options: tuple = (), **arrays: object) -> None:
        self.assert_refused(self.call(self.npz(**arrays), options=options), *words)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["in.npz"])

    def test_npz(self):
        given = tensors()
        ids = np.arange(N)
        dump = self.dump_of(self.npz(**given, token_ids=ids), options=(
            "--rope-theta", 100, "--rope-dims", 4, "--rope-layout", "half", "--n-layers", 12,
            "--layer", 3, "--prompt-tokens", 30))
        self.assert_valid(dump)
        self.assert_runs(dump, ROPE_SWEEP)
        attributes, stored, rope = layer(dump, 3, "0")
        self.assertEqual((attributes["scale"], attributes["sliding_window"], attributes["logit_softcap"]),
                         (SCALE, 0, 0.0))
        np.testing.assert_allclose(rope["inv_freq"], [1.0, 0.1])
        for name, tensor in given.items():
            np.testing.assert_array_equal(stored[name], tensor)
        with h5py.File(dump) as file:
            self.assertEqual((file.attrs["n_layers"], file.attrs["model"]), (12, "mine"))
            self.assertEqual(file["sequences/0/token_ids"][:].tolist(), ids.tolist())
            self.assertEqual(file["sequences/0"].attrs["prompt_tokens"], 30)

    def test_safetensors_with_layers_and_bfloat16(self):
        given = {f"layers.{number}.{name}": tensor for number, window in ((0, WINDOW), (5, 0))
                 for name, tensor in tensors(torch.bfloat16, window, SOFTCAP, rows=20).items()}
        save_file(given, self.folder / "in.safetensors")
        dump = self.dump_of(self.folder / "in.safetensors", options=(
            "--logit-softcap", SOFTCAP, "--sliding-window", f"0={WINDOW},5=0"))
        self.assert_valid(dump)
        self.assert_runs(dump, PLAIN_SWEEP)
        stored = layer(dump, 5, "0")[1]["k"]
        np.testing.assert_array_equal(
            stored, given["layers.5.k"].view(torch.uint16).numpy())
        self.assertEqual(layer(dump, 0, "0")[0]["sliding_window"], WINDOW)

    def test_pt_with_sequences_and_tokens_first(self):
        given = {name: tensor.transpose(0, 1)[None] for name, tensor in tensors().items()}
        torch.save({"a": {"0": given}, "b": {"0": given}}, self.folder / "in.pt")
        self.assert_refused(self.call(self.folder / "in.pt"), "[40, 4, 8]", "--order tokens")
        dump = self.dump_of(self.folder / "in.pt", options=("--order", "tokens"))
        self.assert_valid(dump)
        with h5py.File(dump) as file:
            self.assertEqual(set(file["sequences"]), {"a", "b"})

    def test_arrays_of_several_files_and_a_batch_of_one(self):
        given = tensors()
        files = [self.npz(f"{name}.npz", **{name: tensor[None]}) for name, tensor in given.items()]
        self.assert_valid(self.dump_of(*files))

    def test_rounded_where_a_type_is_asked_for(self):
        given = tensors(torch.bfloat16)
        dump = self.dump_of(self.npz(**{name: tensor.float() for name, tensor in given.items()}),
                         options=("--dtype", "bfloat16"))
        self.assert_valid(dump)
        np.testing.assert_array_equal(layer(dump, 0, "0")[1]["v"],
                                      given["v"].view(torch.uint16).numpy())

    def test_outputs_of_another_attention_are_refused(self):
        self.refused("differs by", "--sliding-window", **tensors(window=WINDOW))
        self.refused("differs by", "--logit-softcap", **tensors(softcap=SOFTCAP))
        given = tensors()
        given["k"] = given["k"].flip(0)
        self.refused("differs by", "order of heads", **given)

    def test_without_outputs_it_says_that_nothing_is_proven(self):
        given = tensors()
        del given["out"]
        code, said = self.call(self.npz(**given))
        self.assertEqual(code, 0)
        self.assertIn("nothing proves", said)

    def test_terms_that_the_format_cannot_hold_are_named(self):
        given = tensors()
        self.refused("alibi", "ALiBi", **given, alibi=np.zeros(4))
        self.refused("position_bias", "relative bias", **given, position_bias=np.zeros((4, N, N)))
        self.refused("attention_mask", "mask of its own", **given, attention_mask=np.zeros((N, N)))

    def test_faults_are_named(self):
        given = tensors()
        self.refused("no array v", q=given["q"], k=given["k"])
        self.refused("weights", "no name", **given, weights=np.zeros(3))
        self.refused("q [3, 40, 8]", **{**given, "q": given["q"][:3]})
        self.refused("out [4, 10, 5]", **{**given, "out": given["out"][..., :5]})
        self.refused("token_ids", "3", **given, token_ids=np.arange(3))
        self.refused("--rope-dims", options=("--rope-theta", 10), **given)
        self.refused("--rope-layout", options=("--rope-dims", 4), **given)
        self.refused("layer 0", options=("--sliding-window", "1=5"), **given)
        self.refused("floating-point", **{**given, "k": np.zeros((2, N, D), int)})
        broken = {**given, "v": given["v"].clone()}
        broken["v"][1, 7, 2] = torch.inf
        self.refused("layers/0/v, head 1, token 7", "finite", **broken)
        self.refused("does not fit into float16", options=("--dtype", "float16"),
                     **{**given, "k": given["k"] * 1e6})

    def test_files_that_cannot_be_read_are_named(self):
        for name in ("bad.npz", "bad.safetensors", "bad.pt", "bad.txt"):
            (self.folder / name).write_bytes(b"nothing of the kind")
            self.assert_refused(self.call(self.folder / name), name)
        self.assert_refused(self.call(self.folder / "none.npz"), "no such file")


class Alibi(Folder):
    def test_blooms_attention_as_its_modules_show_it(self):
        model = AutoModelForCausalLM.from_pretrained(self.model("bloom")).eval()
        heads_of_model = model.config.n_head
        width = model.config.hidden_size // heads_of_model
        arrays: dict[str, np.ndarray] = {}

        def hear(number: int, block: torch.nn.Module) -> None:
            def heads(_, __, fused):  # [1, n, heads x (q, k, v) x d]
                parts = fused[0].view(fused.shape[1], heads_of_model, 3, width).permute(2, 1, 0, 3)
                arrays.update({f"{number}/{name}": part.numpy() for name, part in zip("qkv", parts)})

            def answers(_, given):
                out = given[0][0].view(-1, heads_of_model, width).transpose(0, 1)
                arrays[f"{number}/out"] = out.numpy()

            def bias(_, given, named):  # [heads, 1, n]: slope j
                alibi = named["alibi"]
                arrays[f"{number}/alibi_slopes"] = (alibi[:, 0, 1] - alibi[:, 0, 0]).numpy()

            block.query_key_value.register_forward_hook(heads)
            block.dense.register_forward_pre_hook(answers)
            block.register_forward_pre_hook(bias, with_kwargs=True)

        for number, each in enumerate(model.transformer.h):
            hear(number, each.self_attention)
        ids = torch.from_numpy(np.load(self.made / "text.npy"))
        with torch.no_grad():
            model(ids[None])
        np.savez(self.folder / "bloom.npz", **arrays)
        dump = self.imported(self.folder / "bloom.npz", "--model", "bloom", "--scale", width**-0.5)
        self.assert_valid(dump)
        found = differences(dump)
        self.assertEqual(len(found), 2)
        self.assertLess(max(found.values()), 1e-5)
        # Without the bias the outputs are others'.
        for number in (0, 1):
            arrays[f"{number}/alibi_slopes"] *= 0.5
        np.savez(self.folder / "bloom.npz", **arrays)
        self.assert_refused(called(import_arrays.main, self.folder / "bloom.npz", "--model", "bloom",
                                   "--scale", width**-0.5, "--out", self.folder / "half.h5"), "out")
        self.assert_runs(dump, [{"algorithm": "exact"}, {"algorithm": "window", "params": {"budget": 16}},
                                {"algorithm": "h2o", "params": {"budget": 16}}])


if __name__ == "__main__":
    unittest.main()
