"""kvbench.attach: which texts a call of the model and of its generate() has, which arguments are refused, and that the
model is afterwards what it was."""

from __future__ import annotations

import unittest
from pathlib import Path

import h5py
import kvbench as kb
import numpy as np
import torch
from accelerate import cpu_offload
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    DynamicCache,
    GenerationConfig,
    StaticCache,
    StoppingCriteria,
)

from attach_test import Attached
from tiny_models import VOCABULARY

SWEEP = {"replay": {"prompt_tokens": "default"}, "seeds": [0], "algorithms": [
    {"algorithm": "window", "params": {"budget": 4}},
    {"algorithm": "streaming_llm", "params": {"budget": 8, "sinks": 2, "positions": "cache"}}]}
N = 24


class Ends(StoppingCriteria):
    def __call__(self, ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
        return torch.zeros(len(ids), dtype=torch.bool)


class Called(Attached):
    def recorded(self, model: torch.nn.Module, *given: object, call: str = "__call__", options: dict | None = None,
                 **named: object) -> tuple[kb.Results, Path]:
        """The results of one call, and the dump."""
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        with kb.attach(model, SWEEP, out=folder / "live", save=folder / "dump.h5", quiet=True, **options or {}) as live:
            self.answer = getattr(model, call)(*given, **named)
        return live.results, folder / "dump.h5"

    def refused(self, words: str, *given: object, model: torch.nn.Module | None = None, **named: object) -> None:
        model = self.load("llama") if model is None else model
        with self.assertRaisesRegex(kb.Error, f"^kvbench.attach: .*{words}") as raised:
            self.recorded(model, *given, **named)
        self.assertNotIn("\n", str(raised.exception))
        self.assert_free(model)

    def assert_free(self, model: torch.nn.Module) -> None:
        hooked = [module for module in model.modules() if module._forward_hooks or module._forward_pre_hooks]
        self.assertEqual(hooked, [])
        self.assertNotIn("generate", vars(model))
        model(input_ids=self.text())

    def text(self) -> torch.Tensor:
        return self.ids()[:, :N]

    def texts(self, dump: Path) -> list[list[int]]:
        with h5py.File(dump) as file:
            return [file[f"sequences/{name}/token_ids"][:].tolist() for name in sorted(file["sequences"])]

    def batch(self, left: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
        """Two texts of 24 and 16 tokens, and the mask."""
        ids = torch.cat([self.text(), self.text().flip(1)])
        mask = torch.ones_like(ids)
        hidden = slice(0, 8) if left else slice(16, N)
        mask[1, hidden] = 0
        return ids.masked_fill(mask == 0, 0), mask

    def errors(self, results: kb.Results) -> list[float]:
        return [cell["errors"]["relative_l2"]["mean"] for cell in results.cells]


class Passes(Called):
    def test_arguments_by_their_places_are_those_by_their_names(self):
        model = self.load("llama")
        for left in (True, False):
            ids, mask = self.batch(left)
            named, dump = self.recorded(model, input_ids=ids, attention_mask=mask)
            self.assertEqual(self.texts(dump), [ids[0].tolist(), ids[1, 8:].tolist() if left else ids[1, :16].tolist()])
            positions = (mask.cumsum(1) - 1).clamp_min(0)
            for more in ((), (positions,), (positions, DynamicCache())):
                placed, _ = self.recorded(model, ids, mask, *more)
                self.assert_same(placed, named)
        whole, _ = self.recorded(model, self.text(), torch.ones(1, N))
        self.assert_same(whole, self.recorded(model, input_ids=self.text())[0])

    def test_positions_that_count_up_may_begin_anywhere(self):
        model = self.load("llama")
        ids, mask = self.batch()
        plain, _ = self.recorded(model, self.text())
        later, _ = self.recorded(model, self.text(), position_ids=torch.arange(N)[None] + 9)
        np.testing.assert_allclose(self.errors(later), self.errors(plain), rtol=1e-4)
        plain, _ = self.recorded(model, ids, mask)
        later, _ = self.recorded(model, ids, mask, torch.arange(N)[None] + 9)
        np.testing.assert_allclose(self.errors(later), self.errors(plain), rtol=1e-4)
        self.assertNotEqual(self.errors(later), self.errors(plain))  # they were passed on
        self.refused("depends on the last position", self.text(), position_ids=torch.arange(N)[None] + 9,
                     model=self.load("dynamic"))

    def test_positions_that_do_not_count_up(self):
        for batch in (1, 2):
            ids = self.text().expand(batch, -1)
            for positions in (torch.arange(N) * 3, torch.arange(N) % 12, torch.zeros(N, dtype=torch.long)):
                self.refused("count up by 1", ids, position_ids=positions[None].expand(batch, -1), use_cache=False)
        self.refused("position_ids has the shape", self.text(), position_ids=torch.arange(N - 1)[None])

    def test_masks_that_are_not_padding(self):
        ids, mask = self.batch()
        hole, ends, none = (torch.ones(1, N) for _ in range(3))
        hole[0, 9:12] = 0
        ends[0, [0, -1]] = 0
        none[:] = 0
        for wrong in (hole, ends):
            self.refused("attention_mask has holes", self.text(), attention_mask=wrong)
        self.refused("hides a whole text", self.text(), none)
        self.refused("of 0 and 1", self.text(), torch.full((1, N), 0.5))
        self.refused("of 0 and 1", self.text(), torch.ones(1, N + 1))
        causal = torch.zeros(2, 1, N, N).masked_fill(~torch.tril(torch.ones(N, N, dtype=torch.bool)), -torch.inf)
        self.refused("that of a batch is", ids, causal)
        self.refused("attention_mask is a dict", ids, {"full_attention": causal})
        self.refused("token_type|foo", ids, mask, foo=ids)

    def test_masks_of_four_dimensions(self):
        plain, _ = self.recorded(self.load("llama"), self.text())
        seen = torch.tril(torch.ones(N, N, dtype=torch.bool))[None, None]
        for mask in (seen, *(torch.zeros(1, 1, N, N).masked_fill(~seen, hidden) for hidden in (-torch.inf, -1e9))):
            self.assert_same(self.recorded(self.load("llama"), self.text(), attention_mask=mask)[0], plain)
        hole = seen.clone()
        hole[..., 9:, 4] = False
        self.refused("a mask with holes", self.text(), attention_mask=hole)

    def test_caches(self):
        model = self.load("llama")
        given, _ = self.recorded(model, self.text(), past_key_values=DynamicCache(config=model.config))
        self.assert_same(given, self.recorded(model, self.text())[0])
        static = StaticCache(config=model.config, max_cache_len=64)
        self.refused("past_key_values \\(StaticCache\\).*without them", self.text(), past_key_values=static)
        full = DynamicCache()
        model(self.text(), past_key_values=full)
        self.refused("past_key_values \\(DynamicCache\\)", self.text(), None, None, full)

    def test_a_prompt_without_tokens(self):
        for count in (0, 7):
            _, dump = self.recorded(self.load("llama"), self.text(), options={"prompt_tokens": count})
            with h5py.File(dump) as file:
                self.assertEqual(file["sequences/text"].attrs["prompt_tokens"], count)


class Generated(Called):
    def setUp(self) -> None:
        super().setUp()
        self.loaded = self.load("llama")
        self.loaded.generation_config.eos_token_id = None
        self.asked = torch.cat([self.text(), self.text().flip(1)])[:, :12]
        self.named = {"max_new_tokens": 10, "do_sample": False, "pad_token_id": 1}
        free = self.loaded.generate(input_ids=self.asked, **self.named)[:, 12:].tolist()
        # A token that the first text has within it, and the second one not.
        self.end = next(token for token in free[0][:8] if token not in free[1])
        self.expected = [[*self.asked[0].tolist(), *free[0][:free[0].index(self.end) + 1]],
                         [*self.asked[1].tolist(), *free[1]]]
        self.free = free

    def generated(self, *given: object, **named: object) -> list[list[int]]:
        return self.texts(self.recorded(self.loaded, *given, call="generate", **{**self.named, **named})[1])

    def test_texts_end_as_the_call_says(self):
        config = GenerationConfig(eos_token_id=self.end, **self.named)
        self.assertEqual(self.generated(input_ids=self.asked, eos_token_id=self.end), self.expected)
        self.assertEqual(self.generated(self.asked, eos_token_id=[self.end, VOCABULARY]), self.expected)
        self.assertEqual(self.texts(self.recorded(self.loaded, self.asked, config, call="generate")[1]), self.expected)
        self.loaded.generation_config.eos_token_id = self.end
        self.assertEqual(self.generated(self.asked), self.expected)
        whole = [*self.asked[0].tolist(), *self.free[0]]
        self.assertEqual(self.generated(self.asked[:1], eos_token_id=VOCABULARY), [whole])
        self.assert_free(self.loaded)

    def test_padding_without_a_mask_is_transformers_own(self):
        ids = self.asked.clone()
        ids[1, :5] = 1  # the padding token of these calls
        given = self.generated(input_ids=ids, attention_mask=(ids != 1).long())
        self.assertEqual(given[1][:7], ids[1, 5:].tolist())
        self.assertEqual(self.generated(input_ids=ids), given)
        self.assertEqual(self.generated(ids, pad_token_id=2)[1][:12], ids[1].tolist())  # no padding then
        ids[1, 8] = 1
        self.refused("attention_mask has holes", ids, model=self.loaded, call="generate", **self.named)

    def test_several_answers_to_each_prompt(self):
        ids = self.asked.clone()
        ids[1, :5] = 1  # padding
        torch.manual_seed(0)
        found = self.generated(ids, num_return_sequences=2, do_sample=True)
        torch.manual_seed(0)
        answers = self.loaded.generate(ids, num_return_sequences=2, **{**self.named, "do_sample": True})
        self.assertEqual(found, [row[5 * (index > 1):] for index, row in enumerate(answers.tolist())])
        self.assertEqual(len({tuple(text) for text in found}), 4)

    def test_ends_and_arguments_that_are_unknown(self):
        def refused(words: str, *given: object, **named: object) -> None:
            self.refused(words, *given, model=self.loaded, call="generate", **{**self.named, **named})
        refused("stopping_criteria or stop_strings", self.asked, stopping_criteria=[Ends()])
        refused("no input_ids|of input_ids", inputs_embeds=self.loaded.get_input_embeddings()(self.asked))
        cache = DynamicCache()
        self.loaded(self.asked[:, :4], past_key_values=cache)
        refused("past_key_values that hold tokens", self.asked, past_key_values=cache)
        self.assertEqual(len(self.generated(self.asked[:1], stopping_criteria=[Ends()])), 1)


class Models(Called):
    def test_models_without_generate_or_a_head(self):
        plain, _ = self.recorded(self.load("llama"), self.text())
        headless = AutoModel.from_pretrained(self.model("llama")).eval()
        self.assert_same(self.recorded(headless, self.text())[0], plain)
        self.assert_free(headless)
        bert = AutoModelForMaskedLM.from_pretrained(self.model("bert")).eval()
        with kb.attach(bert, {**SWEEP, "algorithms": [{"algorithm": "exact"}]}, out=self.folder / "bert", quiet=True):
            bert(self.text())
        self.assert_free(bert)

    def test_twice_and_at_once(self):
        for name in ("llama", "bloom", "mpt"):
            model = self.load(name)
            sweep = {**SWEEP, "algorithms": SWEEP["algorithms"][:1]}
            both = []
            for out in ("first", "second"):
                with kb.attach(model, sweep, out=self.folder / name / out, quiet=True) as live:
                    if out == "second":
                        for part in (model, model.base_model):
                            with (self.assertRaisesRegex(kb.Error, "attached already; leave"),
                                  kb.attach(part, sweep, out=self.folder / "third", quiet=True)):
                                self.fail("attached")
                    model(self.text())
                both.append(live.results)
            self.assert_same(*both)
            self.assert_free(model)
        with self.assertRaisesRegex(kb.Error, "entered before"), live:
            self.fail("entered")

    def test_compiled_models(self):
        plain, _ = self.recorded(self.load("llama"), self.text())

        def compiled(model: torch.nn.Module) -> torch.nn.Module:
            model.compile(backend="eager")
            return model

        def compiled_forward(model: torch.nn.Module) -> torch.nn.Module:
            model.forward = torch.compile(model.forward, backend="eager")
            return model

        for make in (lambda model: torch.compile(model, backend="eager"), compiled, compiled_forward):
            model = make(self.load("llama"))
            model(self.text())
            self.assert_same(self.recorded(model, self.text())[0], plain)
            model(self.text())
        torch.compiler.reset()

    def test_weights_that_accelerate_keeps_on_the_cpu(self):
        plain, _ = self.recorded(self.load("llama"), self.text())
        model = cpu_offload(self.load("llama"), execution_device=torch.device("cpu"))
        self.assertEqual(model.device.type, "meta")
        self.assert_same(self.recorded(model, self.text())[0], plain)
        for name, words, options in (("llama", "output projection .* is offloaded", {"wo_norms": True}),
                                     ("deepseek_v2", "kv_b_proj of the model is offloaded", {})):
            model = cpu_offload(self.load(name), execution_device=torch.device("cpu"))
            with self.assertRaisesRegex(kb.Error, words):
                self.recorded(model, self.text(), options=options)

    def test_a_module_of_another_kind(self):
        with self.assertRaisesRegex(kb.Error, "^kvbench.attach: Linear is not a model of transformers"):
            kb.attach(torch.nn.Linear(2, 2), SWEEP, out=self.folder / "live")

    def test_modes_of_modules(self):
        model = self.load("llama").train()
        model.model.layers[1].eval()
        before = [module.training for module in model.modules()]
        self.recorded(model, self.text(), output_attentions=True)
        self.assertEqual([module.training for module in model.modules()], before)
        # As the page says.
        self.assertFalse(self.answer.logits.requires_grad)
        self.assertFalse(self.answer.attentions and self.answer.attentions[0] is not None)

    def test_autocast(self):
        model = self.load("llama")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.refused("torch.autocast rounds attention to torch.bfloat16", self.text(), model=model)


class Options(Called):
    def test_values_that_are_not_understood(self):
        for words, options in (("layers: must be a text", {"layers": [1]}),
                               ("queries: must be a text", {"queries": 9}),
                               ("queries=9: all, or last:N", {"queries": "9"}), ("layers=x: all, or", {"layers": "x"}),
                               ("layers=9: the model has", {"layers": "9"}),
                               ("dtype: must be one of", {"dtype": "int8"}),
                               ("prompt_tokens: must be at least 0", {"prompt_tokens": -1}),
                               ("out_rows: must be an integer", {"out_rows": "a"}),
                               ("sequence: must be a name", {"sequence": "a/b"}),
                               ("sequence: must be a name", {"sequence": ".."})):
            self.refused(words, self.text(), options=options)
        with self.assertRaisesRegex(kb.Error, "^kvbench.attach: sweep: "):
            kb.attach(self.load("llama"), {**SWEEP, "seeds": "x"}, out=self.folder / "x")


if __name__ == "__main__":
    unittest.main()
