"""--repeat: the pass in which the model repeats its prompt, against the model's own attention over
the same tokens; what it asks for; and what it is refused for."""

from __future__ import annotations

import unittest
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from export import repeat_pass
import tiny_models
from exported import TOKENS, Folder

PROMPT, PART, FIRST = 50, 20, 4


def readings(ids: np.ndarray, tokenizer, parts) -> list[list[int]]:
    """The tokens that the model read for each part, as the test expects them."""
    out = []
    for place, (first, end, _) in enumerate(parts):
        request = tokenizer("\n\nRepeat the previous context exactly.")["input_ids"]
        if place:
            words = "\n\nRepeat the part of the previous context exactly, starting with "
            request = [*tokenizer(words)["input_ids"], *ids[first - 8:first]]
        out.append([*request, *tokenizer("<bot>")["input_ids"], *ids[first:end]])
    return out


class Passes(Folder):
    def repeating(self, name: str = "llama", template=("user:", "<bot>"), **changes: object) -> Path:
        path = tiny_models.make(name, self.folder, max_position_embeddings=512, **changes)
        tiny_models.save_tokenizer(path, template)
        return path

    def dump(self, path: Path, *options: object, **more: str) -> Path:
        return self.exported(path, "--repeat", "--prompt-tokens", PROMPT, "--repeat-part", PART,
                             "--repeat-from", FIRST, *options, **more)

    def test_it_is_what_the_model_attends_with_while_it_repeats(self):
        path = self.repeating()
        for options in ((), ("--chunk", 7)):
            dump = self.dump(path, *options, out=f"{len(options)}.h5")
            self.assert_valid(dump)
            tokenizer = AutoTokenizer.from_pretrained(path)
            model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager")
            with h5py.File(dump) as file:
                sequence = file["sequences/text"]
                parts = sequence["repeat"][:].tolist()
                self.assertEqual([part[:2] for part in parts], [[4, 24], [24, 44], [44, 50]])
                self.assertEqual(file.attrs["format_version"], 1)
                row = 0
                text = sequence["token_ids"][:]
                for (_, _, rows), read in zip(parts, readings(text, tokenizer, parts)):
                    self.assertEqual(len(read), rows)
                    ids = np.concatenate([text[:PROMPT], read])
                    with torch.no_grad():
                        own = model(torch.tensor(ids[None]), output_attentions=True)
                    for number in range(2):
                        self.compare(sequence[f"layers/{number}"], own.attentions[number][0].numpy(),
                                     own.past_key_values.layers[number].keys[0].numpy(),
                                     slice(row, row + rows))
                    row += rows
                self.assertEqual(sequence["layers/0/q_repeat"].shape, (4, row, 8))

    def compare(self, group: h5py.Group, attention: np.ndarray, keys: np.ndarray, own: slice) -> None:
        """Softmax over the prompt and the pass's own keys, from the dump, and the model's."""
        rows = own.stop - own.start
        np.testing.assert_allclose(group["k_repeat"][:, own], keys[:, PROMPT:], rtol=1e-4, atol=1e-5)
        for head in range(4):
            q = group["q_repeat"][head, own].astype(float)
            k = np.concatenate([group["k"][head // 2, :PROMPT], group["k_repeat"][head // 2, own]])
            x = group.attrs["scale"] * q @ k.T
            x[:, PROMPT:][np.triu(np.ones((rows, rows), bool), 1)] = -np.inf
            p = np.exp(x - x.max(axis=1, keepdims=True))
            np.testing.assert_allclose(p / p.sum(axis=1, keepdims=True), attention[head, PROMPT:],
                                       rtol=1e-3, atol=1e-5)

    def test_kvzip_ranks_by_it(self):
        dump = self.dump(self.repeating())
        self.assert_runs(dump, [{"algorithm": "kvzip", "params": {
            "budget": 20, "scope": ["head", "layer", "model"]}}],
            replay={"prompt_tokens": PROMPT})

    def test_a_tokenizer_without_a_template_ends_requests_with_a_line(self):
        path = self.repeating(template=None)
        with h5py.File(self.dump(path)) as file:
            rows = file["sequences/text/repeat"][0, 2]
        self.assertEqual(rows, len("\n\nRepeat the previous context exactly.\n") + PART)

    def test_rounded_the_pass_is_rounded_as_well(self):
        path = self.repeating()
        dump = self.dump(path, "--dtype", "float16", "--round")
        with h5py.File(dump) as file:
            self.assertEqual(file["sequences/text/layers/1/q_repeat"].dtype, np.float16)
        self.assert_valid(dump)

    def test_of_alibi_models(self):
        for name in ("bloom", "mpt"):
            path = tiny_models.make(name, self.folder)
            tiny_models.save_tokenizer(path)
            with h5py.File(self.dump(path, out=f"{name}.h5")) as file:
                self.assertEqual(file["sequences/text/layers/1/k_repeat"].shape[0], 12)

    def test_keys_of_another_prompt_are_found(self):
        """The pass is over the dump's own prompt, or there is none."""
        own = repeat_pass.repeat_prompt

        def of_another_text(model, prompt, *others):
            own(model, prompt[::-1].copy(), *others)

        with mock.patch("export.model_export.repeat_prompt", of_another_text):
            self.assert_refused(
                self.export(self.repeating(), "--repeat", "--prompt-tokens", PROMPT),
                "repeating the prompt", "keys of the prompt that differ")
        self.assertFalse((self.folder / "dump.h5").exists())

    def test_what_cannot_be_repeated_is_refused(self):
        path = self.repeating()
        self.assert_refused(self.export(path, "--repeat"), "--repeat needs the prompt",
                            "--prompt-tokens")
        self.assert_refused(self.export(path, "--repeat", "--prompt-tokens", PROMPT,
                                        "--repeat-from", PROMPT), f"--repeat-from {PROMPT}")
        self.assert_refused(self.export(path, "--repeat", "--prompt-tokens", PROMPT,
                                        "--repeat-part", 0), "--repeat-part 0")
        self.assert_refused(self.export(self.model("llama"), "--repeat", "--prompt-tokens", PROMPT),
                            "no tokenizer", "leave --repeat out")
        short = tiny_models.make("gpt2", self.folder, n_positions=TOKENS + 20)
        tiny_models.save_tokenizer(short)
        self.assert_refused(self.export(short, "--repeat", "--prompt-tokens", PROMPT),
                            "made for 84", "--repeat-part")
        for name, said in (("deepseek_v2", "--materialised"), ("bert", "later tokens"),
                           ("longrope", "changes after 32 tokens"),
                           ("qwen3_next", "more than keys and values")):
            self.assert_refused(self.export(self.repeating(name), "--repeat", "--prompt-tokens",
                                            PROMPT, out=f"{name}.h5"), said)


if __name__ == "__main__":
    unittest.main()
