"""kvbench.attach: a sweep within a model gives the cells of a dump that is exported and run, byte for byte, in
every architecture that the exporter is tried on."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
import textwrap
import unittest
from pathlib import Path

import h5py
import kvbench as kb
import numpy as np
import torch
from transformers import AutoModelForCausalLM

from exported import SOURCE, TOKENS, Folder
from tiny_models import VOCABULARY

SWEEP = {
    "replay": {"prompt_tokens": 48}, "seeds": [0, 1],
    "algorithms": [{"algorithm": "exact"}, {"algorithm": "window", "params": {"budget": 16}},
                   {"algorithm": "uniform", "params": {"T": 1}}],
}
MORE = {**SWEEP, "algorithms": [
    *SWEEP["algorithms"], {"algorithm": "h2o", "params": {"budget": [8, 16]}},
    {"algorithm": "snapkv", "params": {"budget": 16, "window": 4}, "where": {"layers": [1]}},
    {"algorithm": "pyramidkv", "params": {"budget": 16, "window": 4}},
    {"algorithm": "adakv", "params": {"budget": 16, "window": 4}}]}


def lasting(cell: dict) -> dict:
    """A cell without what differs between runs."""
    return {name: value for name, value in cell.items() if name not in ("timing", "repro")}


class Attached(Folder):
    def load(self, name: str) -> torch.nn.Module:
        return AutoModelForCausalLM.from_pretrained(self.model(name)).eval()

    def ids(self, text: str = "text.npy") -> torch.Tensor:
        return torch.from_numpy(np.load(self.made / text).astype(np.int64))[None]

    def options(self, **more: object) -> dict:
        return {"dataset": "text.npy", "description": f"text.npy tokens 0..{TOKENS}", "quiet": True, **more}

    def from_dump(self, dump: Path, sweep: dict) -> kb.Results:
        return kb.run({**sweep, "dumps": [str(dump)]}, out=self.folder / f"run-{dump.stem}", quiet=True, fresh=True)

    def assert_same(self, live: kb.Results, dumped: kb.Results) -> None:
        self.assertEqual(live.document["dumps"][0]["fingerprint"], dumped.document["dumps"][0]["fingerprint"])
        self.assertEqual(len(live.cells), len(dumped.cells))
        for one, other in zip(live.cells, dumped.cells):
            self.assertEqual(json.dumps(lasting(one)), json.dumps(lasting(other)))
        self.assertEqual(live.document["plan"], dumped.document["plan"])
        self.assertEqual(live.document.get("layers"), dumped.document.get("layers"))
        self.assertTrue(any(cell["status"] == "ok" for cell in live.cells))

    def check(self, name: str, sweep: dict, *options: object, **more: object) -> kb.Results:
        dump = self.exported(self.model(name), "--chunk", 0, *options)
        with h5py.File(dump) as file:
            description = file["sequences/text"].attrs["description"]
        model = self.load(name)
        before = model.config._attn_implementation
        with kb.attach(model, sweep, out=self.folder / "live", **self.options(description=description, **more)) as live:
            model(input_ids=self.ids())
        self.assertEqual(model.config._attn_implementation, before)
        self.assert_same(live.results, self.from_dump(dump, sweep))
        return live.results


ARCHITECTURES = [
    "llama", "llama3_scaled", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "gpt2", "phi", "gpt_neox", "cohere", "cohere2",
    "granite", "deepseek_v2", "deepseek_v3", "qwen3_next", "gpt_oss", "llama4_text", "longrope", "phi3", "dynamic",
    "gemma3n_text", "bert", "bloom", "mpt"]


class Architectures(Attached):
    """A test per architecture, made below."""


def of_architecture(name: str):
    def test(self: Architectures) -> None:
        self.check(name, {**SWEEP, "algorithms": SWEEP["algorithms"][:1]} if name == "bert" else SWEEP)
    return test


for each in ARCHITECTURES:
    setattr(Architectures, f"test_{each}", of_architecture(each))


class Options(Attached):
    def test_methods_that_decide_for_a_layer_or_read_its_place(self):
        results = self.check("llama", MORE)
        self.assertEqual(results.failed, [])
        self.assertIn("adakv", {cell["key"]["algorithm"] for cell in results.cells if cell["status"] == "ok"})

    def test_last_queries_rounding_and_norms(self):
        self.check("llama", MORE, "--queries", "last:20", "--dtype", "bfloat16", "--round", "--wo-norms",
                   queries="last:20", dtype="bfloat16", round=True, wo_norms=True)
        self.check_layers()

    def check_layers(self) -> None:
        self.check("gemma3_text", SWEEP, "--layers", "0,2", "--fresh", layers="0,2", fresh=True)

    def test_select_leaves_layers_out(self):
        results = self.check("gemma3_text", {**SWEEP, "select": {"layers": [1], "kv_heads": [0]}})
        self.assertEqual({cell["key"]["layer"] for cell in results.cells}, {1})

    def test_the_saved_dump_is_the_exporters(self):
        saved = self.folder / "saved.h5"
        live = self.check("gemma3n_text", SWEEP, save=saved)
        self.assert_valid(saved)
        self.assert_same(live, self.from_dump(saved, SWEEP))
        kb.run(self.folder / "live/sweep.json", out=self.folder / "again", quiet=True)  # as `repro` says

    def test_a_model_that_accelerate_spreads_and_offloads(self):
        path = self.model("llama", num_hidden_layers=4)
        places = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": "disk", "lm_head": "cpu",
                  **{f"model.layers.{layer}": "disk" if layer % 2 else "cpu" for layer in range(4)}}
        results = []
        for name, more in (("plain", {}), ("spread", {"device_map": places, "offload_folder": self.folder / "offload"})):
            model = AutoModelForCausalLM.from_pretrained(path, **more).eval()
            with kb.attach(model, SWEEP, out=self.folder / name, **self.options()) as live:
                model(input_ids=self.ids())
            results.append(live.results)
        self.assertEqual(next(model.model.layers[1].parameters()).device.type, "meta")  # on disk
        self.assert_same(*results)

    def test_generate_and_batches_with_padding(self):
        model = self.load("llama")
        ids = self.ids()[:, :24]
        batch = torch.cat([ids, torch.cat([torch.zeros(1, 8, dtype=torch.long), ids[:, 3:19]], 1)])
        mask = torch.ones_like(batch)
        mask[1, :8] = 0
        sweep = {**SWEEP, "replay": {"prompt_tokens": 10}}
        with kb.attach(model, sweep, out=self.folder / "batch", save=self.folder / "batch.h5", quiet=True) as live:
            model(input_ids=batch, attention_mask=mask)
        self.assertEqual({cell["key"]["sequence"]: cell["key"]["tokens"] for cell in live.results.cells},
                         {"text": 24, "text-1": 16})
        for name, tokens in (("text", ids[0]), ("text-1", ids[0, 3:19])):
            np.save(self.made / f"{name}-alone.npy", tokens.numpy())
            alone = self.exported(self.model("llama"), "--token-ids", self.made / f"{name}-alone.npy", out=f"{name}.h5")
            with h5py.File(alone) as one, h5py.File(self.folder / "batch.h5") as other:
                for tensor in "qkv":
                    np.testing.assert_array_equal(one[f"sequences/{name}-alone/layers/1/{tensor}"][:],
                                                  other[f"sequences/{name}/layers/1/{tensor}"][:])
        sweep = {**SWEEP, "replay": {"prompt_tokens": "dump"}}
        with kb.attach(model, sweep, out=self.folder / "made", quiet=True) as live:
            answer = model.generate(input_ids=ids, max_new_tokens=6, do_sample=False, eos_token_id=VOCABULARY)
        self.assertEqual(answer.shape, (1, 30))
        keys = [cell["key"] for cell in live.results.cells]
        self.assertEqual({(key["tokens"], key["prompt_tokens"]) for key in keys}, {(30, 24)})
        self.assertNotIn("generate", vars(model))


class Refusals(Attached):
    def refused(self, *words: str, sweep: dict = SWEEP, model: str = "llama", ids: torch.Tensor | None = None,
                **more: object) -> None:
        loaded = self.load(model)
        with (self.assertRaises(kb.Error) as refused,
              kb.attach(loaded, sweep, out=self.folder / "live", **self.options(**more))):
            loaded(input_ids=self.ids() if ids is None else ids)
        for word in words:
            self.assertIn(word, str(refused.exception))
        self.assertFalse((self.folder / "live/results.json").exists())
        loaded(input_ids=self.ids())  # is as it was

    def test_what_needs_more_than_a_layer_names_the_dump(self):
        for algorithm, words in (({"algorithm": "cake", "params": {"budget": 16}}, "cake decides for all layers"),
                                 ({"algorithm": "given", "params": {"file": "a.h5"}}, "replays a cache file")):
            self.refused(words, "save=", sweep={**SWEEP, "algorithms": [algorithm]})
        self.refused("/output", "save=", sweep={**SWEEP, "output": {"rows": True}})
        self.refused("leave dumps out", sweep={**SWEEP, "dumps": ["a.h5"]})
        self.refused("unknown algorithm h20", sweep={**SWEEP, "algorithms": [{"algorithm": "h20"}]})

    def test_what_the_exporter_refuses(self):
        self.refused("AttentionInterface", model="gptj")
        self.refused("at least 4", ids=self.ids()[:, :3])
        self.refused("the model has layers 0 to 1", layers="9")

    def test_another_text_in_the_folder_of_one(self):
        model = self.load("llama")
        for text in (self.ids(), self.ids().flip(1)):
            try:
                with kb.attach(model, SWEEP, out=self.folder / "live", quiet=True):
                    model(input_ids=text)
            except kb.Error as refused:
                self.assertIn("has changed", str(refused))
                return
        self.fail("cells of two texts in one folder")


class Page(Attached):
    def test_the_examples_of_the_page_run(self):
        page = (SOURCE / "apps/python/ATTACH.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(blocks), 4)
        names = {"model": self.load("llama"), "inputs": {"input_ids": self.ids()}}
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(io.StringIO()) as said:
            for block in blocks:
                exec(block, names)
        self.assertEqual(len(said.getvalue().split()), 2)


class Interrupted(Attached):
    def test_an_error_that_the_caller_catches_leaves_no_part_as_the_whole(self):
        model = self.load("llama")

        def fail(_: object, given: tuple) -> None:
            if given[0].shape[1] == TOKENS:  # in the pass itself
                raise MemoryError("too little")

        with (self.assertRaisesRegex(kb.Error, "a pass of the model ended in an error.*new block"),
              kb.attach(model, SWEEP, out=self.folder / "live", **self.options())):
            hook = model.model.layers[1].register_forward_pre_hook(fail)
            with contextlib.suppress(MemoryError):  # layer 0 is whole
                model(input_ids=self.ids())
            hook.remove()
        self.assertFalse((self.folder / "live/results.json").exists())
        with kb.attach(model, SWEEP, out=self.folder / "live", **self.options()) as live:
            model(input_ids=self.ids())
        self.assert_same(live.results, self.check("llama", SWEEP, fresh=True))

    def test_a_killed_pass_is_repeated_and_finished_cells_are_kept(self):
        whole = self.check("llama", MORE)
        program = textwrap.dedent(f"""
            import os, sys
            sys.path[:0] = {sys.path!r}
            import kvbench as kb, torch, numpy as np
            from kvbench import _live
            from transformers import AutoModelForCausalLM
            model = AutoModelForCausalLM.from_pretrained({str(self.model("llama"))!r})
            ids = torch.from_numpy(np.load({str(self.made / "text.npy")!r}).astype(np.int64))[None]
            wait = _live.LiveDump.wait
            def dying(self):
                wait(self)
                if self._journals: os._exit(9)
            _live.LiveDump.wait = dying
            with kb.attach(model, {MORE!r}, out={str(self.folder / "killed")!r}, **{self.options()!r}):
                model(input_ids=ids)
        """)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 9, done.stderr)
        journals = list((self.folder / "killed/layers").rglob("journal.jsonl"))
        self.assertEqual(len(journals), 1)
        lines = journals[0].read_text().splitlines()
        model = self.load("llama")
        with kb.attach(model, MORE, out=self.folder / "killed", **self.options()) as live:
            model(input_ids=self.ids())
        self.assertEqual(journals[0].read_text().splitlines()[1:], lines[1:])  # nothing was computed again
        self.assert_same(live.results, whole)


if __name__ == "__main__":
    unittest.main()
