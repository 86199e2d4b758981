"""The run: killed and resumed it writes the same bytes, layers go one at a time, and what cannot be
run is refused with a remedy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import numpy as np

from looped import PROMPT, SOURCE, TOKENS, Folder, Read, Replayed, apart, called

# Enough settings that a signal, sent after the third at the latest, finds the run at work.
BUDGETS = [{"algorithm": "window", "params": {"budget": list(range(8, 56))}},
           {"algorithm": "uniform", "params": {"budget": [16, 32], "sinks": 4, "recent": 8}}]
TWO = [{"algorithm": "exact"}, {"algorithm": "window", "params": {"budget": 16}}]


class Resume(Folder):
    def started(self, sweep: Path, out: str) -> subprocess.Popen:
        command = [sys.executable, SOURCE / "data/closed_loop.py",
                   *self.options(self.model("llama"), sweep, out=out)]
        return subprocess.Popen([str(each) for each in command], stderr=subprocess.PIPE, text=True,
                                start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "2"},
                                # A shell's background jobs ignore Ctrl-C, and so would their children.
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    def finished(self, sweep: Path, out: str) -> str:
        run = self.started(sweep, out)
        said = run.communicate(timeout=300)[1]
        self.assertEqual(run.returncode, 0, said)
        return said

    def ended(self, sweep: Path, out: str, how: int, lines: int) -> tuple[int, str]:
        """A run that gets a signal once its journal has that many lines."""
        journal, run = self.folder / out / "loop.jsonl", self.started(sweep, out)
        while run.poll() is None and not (
                journal.exists() and journal.read_bytes().count(b"\n") >= lines):
            time.sleep(0.002)
        run.send_signal(how)
        return run.wait(timeout=300), run.communicate()[1]

    def test_killed_and_resumed_it_writes_the_same_bytes(self):
        sweep = self.sweep(BUDGETS)
        self.finished(sweep, "whole")
        code, _ = self.ended(sweep, "killed", signal.SIGKILL, 3)
        self.assertEqual(code, -signal.SIGKILL)
        self.assertFalse((self.folder / "killed/loop.json").exists())
        done = (self.folder / "killed/loop.jsonl").read_bytes()
        with (self.folder / "killed/loop.jsonl").open("ab") as journal:
            journal.write(b'{"id": "cut sho')  # as a kill within a write leaves it
        self.finished(sweep, "killed")
        whole, killed = ((self.folder / out / "loop.json").read_bytes() for out in ("whole", "killed"))
        self.assertEqual(whole, killed)
        self.assertTrue((self.folder / "killed/loop.jsonl").read_bytes().startswith(done))
        self.assertEqual(len(json.loads(whole)["records"]), 50)

    def test_ctrl_c_ends_with_a_word_and_goes_on(self):
        sweep = self.sweep(BUDGETS)
        code, said = self.ended(sweep, "out", signal.SIGINT, 2)
        self.assertEqual(code, 5, said)
        self.assertIn("run the same command again", said)
        self.assertNotIn("Traceback", said)
        self.finished(sweep, "out")
        self.assertTrue((self.folder / "out/loop.json").exists())

    def test_nothing_is_computed_twice_and_other_settings_join(self):
        model, journal = self.model("llama"), self.folder / "out/loop.jsonl"
        first = self.looped(model, TWO[:1])
        before = journal.read_bytes()
        self.assertEqual(self.looped(model, TWO[:1]), first)
        self.assertEqual(journal.read_bytes(), before)
        both = self.looped(model, TWO)  # a sweep with a setting more goes on where that one ended
        joined = journal.read_bytes()
        self.assertTrue(joined.startswith(before))
        self.assertEqual(joined.count(b"\n"), before.count(b"\n") + 1)
        self.assertEqual([each["label"] for each in both], ["exact", "window"])
        self.assertEqual(both, self.looped(model, TWO, out="at-once"))
        self.assertEqual(self.looped(model, TWO[1:]), both[1:])  # loop.json has the sweep's alone
        self.assertEqual(journal.read_bytes(), joined)

    def test_fresh_starts_over(self):
        model = self.model("llama")
        self.looped(model, TWO)
        refused = called(*self.options(model, self.sweep(TWO), "--decisions", "live"))
        self.assert_refused(refused, "loop.jsonl", "decisions replayed, now live", "--fresh")
        records = self.looped(model, TWO, "--decisions", "live", "--fresh")
        self.assertEqual([each["status"] for each in records], ["ok", "ok"])
        refused = called(*self.options(self.model("qwen3"), self.sweep(TWO)))
        self.assert_refused(refused, "model.h5", "--fresh")

    def test_a_journal_of_something_else_is_refused(self):
        model = self.model("llama")
        self.looped(model, TWO)
        for text in ("[]\n", "{\n", '{"kind": "other"}\n'):
            (self.folder / "out/loop.jsonl").write_text(text)
            self.assert_refused(called(*self.options(model, self.sweep(TWO))), "loop.jsonl", "--fresh")


class Layers(Folder):
    def test_one_at_a_time_compresses_each_layer_alone(self):
        model = self.model("llama")
        records = self.looped(model, TWO, "--layers", "one-at-a-time")
        self.assertEqual([(each["label"], each["layers"]) for each in records],
                         [("exact", [0]), ("exact", [1]), ("window", [0]), ("window", [1])])
        for record in records[:2]:
            self.assertLess(record["kl"]["max"], 1e-9)
        read = Read(self, model, TWO)
        whole = read.whole()
        for record in records[2:]:
            alone = self.looped(model, TWO[1:], "--layers", record["layers"][0],
                                out=f"alone-{record['layers'][0]}")
            self.assertEqual(alone[0]["kl"], record["kl"])
            self.assertGreater(record["kl"]["mean"], 1e-4)
            self.assertGreater(apart(read.logits(Replayed, 1, record["layers"]), whole), 0.01)
        self.assertNotEqual(records[2]["kl"], records[3]["kl"])
        self.assertNotEqual(records[2]["errors"], records[3]["errors"])

    def test_layers_of_the_sweep_are_those_that_are_compressed(self):
        record, = self.looped(self.model("llama"), TWO[1:], select={"layers": [1]})
        self.assertEqual(record["layers"], [1])

    def test_part_of_a_layer_is_skipped(self):
        record, = self.looped(self.model("llama"), TWO[1:], select={"kv_heads": [1]})
        self.assertEqual(record["status"], "skipped")
        self.assertIn("KV head 0", record["reason"])

    def test_measured_numbers_are_means_of_the_cells(self):
        record, = self.looped(self.model("llama"), TWO[1:])
        cells = json.loads((self.folder / "out/attention/results.json").read_text())["cells"]
        self.assertEqual(len(cells), 4)
        for name, leaf in (("errors", "relative_l2"), ("mass", "kept")):
            self.assertAlmostEqual(record[name][leaf]["mean"],
                                   np.mean([cell[name][leaf]["mean"] for cell in cells]), places=12)
        self.assertEqual(record["memory"]["fraction"], cells[0]["memory"]["fraction"])
        self.assertEqual(record["rows"], TOKENS - PROMPT)
        self.assertNotIn("outputs", record)

    def test_memory_of_layers_of_unlike_size_is_bytes_over_bytes(self):
        record, = self.looped(self.model("gemma3_text"), TWO[1:])
        memory = [cell["memory"] for cell in json.loads(
            (self.folder / "out/attention/results.json").read_text())["cells"]]
        share = sum(each["peak_bytes"] for each in memory) / sum(each["exact_bytes"] for each in memory)
        self.assertAlmostEqual(record["memory"]["fraction"], share, places=12)
        self.assertGreater(np.mean([each["fraction"] for each in memory]), 1.2 * share)

    def test_outputs_are_means_of_the_layers_records(self):
        record, = self.looped(self.model("llama"), TWO[1:], "--wo")
        layers = json.loads((self.folder / "out/attention/results.json").read_text())["layers"]
        self.assertEqual(len(layers), 2)
        for name in ("relative_output_l2", "residual_ratio"):
            values = [each["errors"][name]["mean"] for each in layers]
            self.assertGreater(min(values), 0.0)
            self.assertAlmostEqual(record["outputs"][name]["mean"], np.mean(values), places=12)
        single = self.looped(self.model("llama"), TWO[1:], "--wo", "--layers", "one-at-a-time", out="single")
        for each, layer in zip(single, layers, strict=True):
            self.assertEqual(each["outputs"]["residual_ratio"], layer["errors"]["residual_ratio"])

    def test_several_texts_and_seeds(self):
        np.save(self.folder / "texts.npy", np.random.default_rng(1).integers(3, 96, (2, TOKENS)))
        code, said = called(self.model("llama"), "--token-ids", self.folder / "texts.npy", "--tokens",
                            TOKENS, "--out", self.folder / "out", "--config", self.sweep(
                                [{"algorithm": "uniform", "params": {
                                    "budget": 16, "sinks": 4, "recent": 8}}], seeds=[0, 1]))
        self.assertEqual(code, 0, said)
        loop = json.loads((self.folder / "out/loop.json").read_text())
        self.assertEqual([text["sequence"] for text in loop["texts"]], ["texts-0", "texts-1"])
        self.assertEqual(len({str(each["kl"]) for each in loop["records"]}), 4)


class Refusals(Folder):
    def refused(self, model: object, *words: str, sweep: list[dict] | None = None,
                options: tuple = (), **more: object) -> None:
        path = self.sweep(TWO if sweep is None else sweep, **more)
        out = f"out-{len(list(self.folder.iterdir()))}"
        self.assert_refused(called(*self.options(model, path, *options, out=out)), *words)

    def test_options(self):
        self.assert_refused(
            called("m", "--text", "none.txt", "--config", "none.json", "--out", self.folder,
                   "--tokens", 1), "none.txt: no such file", "none.json: no such file", "--tokens 1")

    def test_texts_and_models(self):
        self.refused(self.folder, "does not load it")
        self.refused(self.model("llama"), "are asked for", options=("--tokens", 200))
        self.refused(self.model("gptj"), "AttentionInterface")
        self.refused(self.model("gpt_oss"), "sink logits")
        for name in ("deepseek_v2", "deepseek_v3"):
            self.refused(self.model(name), name, "its layers cache latents")
        self.refused(self.model("llama4_text"), "layer 0 has chunks")
        self.refused(self.model("bloom"), "ALiBi's bias by distance")
        self.refused(self.model("qwen3_next"), "layers 0 have no attention", "after the prompt")
        self.refused(self.model("falcon_h1"), "falcon_h1: its layers have state besides", "(hybrid)")
        long = self.model("llama", rope_parameters={
            "rope_type": "longrope", "rope_theta": 5000.0, "short_factor": [1.0] * 4,
            "long_factor": [2.0] * 4, "factor": 4.0, "original_max_position_embeddings": 64})
        self.refused(long, "longrope", "after 64 tokens", "--tokens 64")
        self.refused(self.model("dynamic"), "dynamic", "after 24 tokens", "--tokens 24")
        self.refused(self.model("gemma3n_text"), "3 those of layer 1, 4 those of layer 2", "closed loop")
        self.refused(self.model("llama"), "layers 0 to 1", options=("--layers", "0,7"))

    def test_sweeps(self):
        model = self.model("llama")
        self.refused(model, "snapvk", sweep=[{"algorithm": "snapvk"}])
        self.refused(model, "/select/tokens", "--tokens", select={"tokens": 80})
        self.refused(Path("/no/model"), "/replay/prompt_tokens: must be 1 or more", replay={"prompt_tokens": 0})
        self.refused(model, "/replay/prompt_tokens", "prompts of 0 tokens", replay={"prompt_tokens": 0.001})

    def test_a_model_whose_state_is_more_than_keys_and_values_is_found(self):
        from unittest import mock

        from transformers.models.llama import modeling_llama
        own = modeling_llama.LlamaAttention.forward

        def forgetful(module, hidden_states, *arguments, **more):
            shift = 0.5 if hidden_states.shape[1] == TOKENS - PROMPT else 0.0
            return own(module, hidden_states + shift, *arguments, **more)

        with mock.patch.object(modeling_llama.LlamaAttention, "forward", forgetful):
            self.refused(self.model("llama"), "depends on more than cached keys and values")


if __name__ == "__main__":
    unittest.main()
