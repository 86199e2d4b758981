"""data/kvpress_caches.py: every press of kvpress is used or refused with a reason, files hold what
`compress` keeps, and what a dump lacks is named."""

from __future__ import annotations

import json
import unittest
from pathlib import Path

import h5py
import numpy as np
import torch

import kvpress_caches
from presses import kvpress_presses
from compared import DUMP, GROUP, KV_HEADS, LAYERS, SEQUENCE, TOKENS, Folder, called, kept_tokens, tensors
from presses.kvpress_module import Layer, read_layer

kvpress = kvpress_presses.load_kvpress()

PROMPT, BUDGET = TOKENS - 256, 256
SHIPPED = Path(kvpress_caches.__file__).parent / "kvpress"
# Arguments without which a press keeps all, and those that take no budget.
SPECS = {"SimLayerKVPress": "SimLayerKVPress(lazy_threshold=0.1)",
         "ThinKPress": "ThinKPress(key_channel_compression_ratio=0.5)"}
INNER = {"BlockPress": "KeyDiffPress"}  # the others have SnapKVPress


def small_dump(path, change=lambda file: None, tokens=96):
    """A dump of one layer with two KV heads of two query heads each, changed before it is closed."""
    rng = np.random.default_rng(7)
    with h5py.File(path, "w") as file:
        file.attrs.update({"format": "kvbench-dump", "format_version": 1, "model": "none",
                           "producer": "a test", "n_layers": 4})
        layer = file.create_group("sequences/a/layers/2")
        layer.attrs.update({"scale": 0.25, "sliding_window": 0, "logit_softcap": 0.0})
        for name, number in (("q", 4), ("k", 2), ("v", 2)):
            layer[name] = rng.standard_normal((number, tokens, 16)).astype(np.float32)
        change(file)
    return path


class Caches(Folder):
    def refused(self, *arguments: object) -> str:
        before = set(self.folder.glob("caches/*"))
        code, _, said = called(*arguments, "--out", self.folder / "caches")
        self.assertEqual(code, 2, said)
        self.assertNotIn("Traceback", said)
        self.assertEqual(set(self.folder.glob("caches/*")), before)
        return said

    def test_shipped_files_have_every_press_that_works_and_what_it_keeps(self):
        make = (SHIPPED / "make.sh").read_text(encoding="utf-8")
        _, printed, _ = called("--list")
        for line in printed.splitlines():
            name, word = line.split()[:2]
            if word.startswith("works"):
                self.assertIn(name, make)
        # Scores that differ in their last bits, on another processor, may exchange a few tokens.
        for spec in ("SnapKVPress", "KnormPress", "StreamingLLMPress", "RandomPress", "AdaKVPress(SnapKVPress)"):
            cache = self.caches(spec, "--budget", 448)
            shipped = SHIPPED / cache.name
            for layer in LAYERS:
                for head in range(KV_HEADS):
                    ours, theirs = (set(kept_tokens(path, layer, head)) for path in (cache, shipped))
                    self.assertGreaterEqual(len(ours & theirs), 0.98 * len(ours | theirs), (spec, layer, head))

    def test_every_press_of_kvpress_is_listed_with_a_reason_where_it_is_refused(self):
        code, printed, _ = called("--list")
        self.assertEqual(code, 0)
        lines = dict(line.split(maxsplit=1) for line in printed.splitlines())
        named = {name for name in kvpress.__all__ if name.endswith("Press")}
        self.assertEqual(set(lines), named - {"BasePress", "ScorerPress"})
        self.assertLessEqual(set(kvpress_presses.REFUSED), set(lines))
        self.assertGreater(sum(line.startswith("works") for line in lines.values()), 20)
        for name, line in lines.items():
            self.assertRegex(line, "^(works|refused: it [a-z].{20})", name)
            if line.startswith("refused"):
                self.assertIn(line.removeprefix("refused: "), self.refused(DUMP, name, "--budget", 9))

    def test_every_press_that_works_does(self):
        for name, press in kvpress_presses.press_classes().items():
            if kvpress_presses.refusal(press):
                continue
            with self.subTest(name):
                if name in SPECS:
                    cache = self.caches(SPECS[name], "--layers", 15)
                else:
                    inner = f"({INNER.get(name, 'SnapKVPress')})" if kvpress_presses.wraps(press) else ""
                    cache = self.caches(name + inner, "--layers", 15, "--budget", BUDGET)
                sizes = [len(kept_tokens(cache, 15, head)) for head in range(KV_HEADS)]
                if name == "AdaKVPress":
                    self.assertEqual(sum(sizes), KV_HEADS * BUDGET)
                    self.assertNotEqual(set(sizes), {BUDGET})
                elif name == "ThinKPress":
                    self.assertEqual(sizes, [PROMPT] * KV_HEADS)
                elif name == "SimLayerKVPress":
                    self.assertEqual(sizes, [4 + 1024 - 1] * KV_HEADS)
                elif "Chunk" in name:  # whole chunks, a part of each
                    self.assertTrue(all(0.9 * BUDGET <= size <= BUDGET for size in sizes), sizes)
                else:
                    self.assertEqual(sizes, [BUDGET] * KV_HEADS)

    def test_a_file_says_who_made_it_and_of_what(self):
        cache = self.caches("SnapKVPress(window_size=32)", "--ratio", 0.75, "--prompt-tokens", 1000)
        self.assertEqual(cache.name, "SnapKVPress-window_size=32-ratio=0.75.h5")
        with h5py.File(cache) as file:
            attributes = dict(file.attrs)
            self.assertEqual((attributes["format"], attributes["format_version"], attributes["method"]),
                             ("kvbench-cache", 1, "SnapKVPress(window_size=32)"))
            self.assertIn("kvpress 0.5.", attributes["producer"])
            self.assertEqual(json.loads(attributes["params"]),
                             {"press": "SnapKVPress(window_size=32)", "ratio": 0.75, "seed": 0})
            for layer in LAYERS:
                heads = file[f"sequences/{SEQUENCE}/layers/{layer}/heads"]
                self.assertEqual(set(heads), {"0", "1", "2"})
                for head in heads.values():
                    self.assertEqual(head.attrs["prompt_tokens"], 1000)
                    self.assertEqual((head["token"].dtype, head["token"].shape), (np.int32, (250,)))
                    self.assertTrue((np.diff(head["token"][:]) > 0).all())

    def test_files_replace_none_unless_asked(self):
        cache = self.caches("KnormPress", "--budget", 9)
        before = cache.read_bytes()
        code, _, said = called(DUMP, "KnormPress", "--budget", 9, "--out", cache.parent)
        self.assertEqual((code, cache.read_bytes()), (2, before))
        self.assertIn("exists; --fresh", said)

    def test_what_is_drawn_follows_the_seed(self):
        sets = [kept_tokens(self.caches("RandomPress", "--budget", 99, "--seed", seed), 0, 0)
                for seed in (1, 1, 2)]
        self.assertEqual(sets[0], sets[1])
        self.assertNotEqual(sets[0], sets[2])

    def test_changed_values_are_the_rows_own(self):
        merged = self.caches("MergingPress(SnapKVPress)", "--budget", BUDGET, "--layers", 15)
        plain = self.caches("SnapKVPress", "--budget", BUDGET, "--layers", 15)
        for head in range(KV_HEADS):
            self.assertEqual(kept_tokens(merged, 15, head), kept_tokens(plain, 15, head))
            with h5py.File(merged) as file:
                rows = file[f"sequences/{SEQUENCE}/layers/15/heads/{head}"]
                token = rows["token"][:]
                _, _, k, v = tensors(15, head)
                np.testing.assert_array_equal(rows["key"][:], k[token])
                self.assertFalse(np.array_equal(rows["value"][:], v[token]))

    def test_equal_rows_are_named_once_each(self):
        k = np.zeros((4, 2))
        rows = kvpress_caches.named_rows(k, k, k[:3], k[:3], set())
        self.assertEqual(rows.token.tolist(), [0, 1, 2])
        masked = kvpress_caches.named_rows(k, k, k, k, {1, 3})
        self.assertEqual(masked.token.tolist(), [0, 2])
        other = kvpress_caches.named_rows(k, k, k[:1] + 1, k[:1] + 1, set())
        self.assertEqual((other.token.tolist(), other.key.tolist()), ([-1], [[1, 1]]))

    def test_the_default_prompt_is_the_programs(self):
        for tokens, rows in ((96, 96), (96, 20), (600, 600), (600, 100)):
            def fewer(file, rows=rows):
                q = file["sequences/a/layers/2/q"][:, -rows:]
                del file["sequences/a/layers/2/q"]
                file["sequences/a/layers/2/q"] = q
            dump = small_dump(self.folder / "small.h5", fewer, tokens)
            cache = self.caches("KnormPress", "--budget", 9, dump=dump)
            ours = self.run_sweep([{"algorithm": "window", "params": {"budget": 9}}], "default", dump)
            with h5py.File(cache) as file:
                self.assertEqual(file["sequences/a/layers/2/heads/0"].attrs["prompt_tokens"],
                                 ours["window", 2, 0, None].cell["key"]["prompt_tokens"])

    def test_a_prefix_is_a_dump_of_its_own(self):
        """--tokens is select.tokens: the same prompt, and nothing of later tokens."""
        for prompt in ("default", "700", ".5"):
            cache = self.caches("SnapKVPress", "--budget", BUDGET, "--tokens", 1024, "--layers", 15,
                                "--prompt-tokens", prompt)
            tokens = {"default": 768, "700": 700, ".5": 512}[prompt]
            whole = self.caches("SnapKVPress", "--budget", BUDGET, "--layers", 15,
                                "--prompt-tokens", tokens)
            self.assertEqual([kept_tokens(cache, 15, head) for head in range(KV_HEADS)],
                             [kept_tokens(whole, 15, head) for head in range(KV_HEADS)])
            records = self.run_sweep([{"algorithm": "given", "params": {"file": str(cache)}}],
                                     0.5 if prompt == ".5" else tokens,
                                     select={"tokens": 1024, "layers": [15]})
            self.assertEqual({record.cell["key"]["prompt_tokens"] for record in records.values()},
                             {tokens})

    def test_elements_are_read_as_a_dump_stores_them(self):
        def as_bfloat16(file):
            for name in "qkv":
                rows = file[f"sequences/a/layers/2/{name}"][:]
                bits = (rows.view(np.uint32) >> 16).astype(np.uint16)
                del file[f"sequences/a/layers/2/{name}"]
                file[f"sequences/a/layers/2/{name}"] = bits
                file[f"sequences/a/layers/2/{name}"].attrs["dtype"] = "bfloat16"

        def cut(file):
            for name in "qkv":
                rows = file[f"sequences/a/layers/2/{name}"][:]
                file[f"sequences/a/layers/2/{name}"][:] = (
                    rows.view(np.uint32) & 0xFFFF0000).view(np.float32)
        tokens = []
        for name, change in (("b.h5", as_bfloat16), ("f.h5", cut)):
            cache = self.caches("SnapKVPress(window_size=4)", "--budget", 9,
                                dump=small_dump(self.folder / name, change))
            with h5py.File(cache) as file:
                tokens.append([file[f"sequences/a/layers/2/heads/{head}/token"][:].tolist()
                             for head in range(2)])
        self.assertEqual(tokens[0], tokens[1])

    def test_what_a_dump_lacks_is_named(self):
        plain = small_dump(self.folder / "plain.h5")
        for spec in ("ExpectedAttentionPress", "LeverageScorePress", "ChunkPress(SnapKVPress(window_size=4))"):
            self.assertRegex(self.refused(plain, spec, "--budget", 20), "RoPE data|not finite")

        def few_queries(file):
            q = file["sequences/a/layers/2/q"][:, -50:]
            del file["sequences/a/layers/2/q"]
            file["sequences/a/layers/2/q"] = q
        few = small_dump(self.folder / "few.h5", few_queries)
        self.assertIn("queries", self.refused(few, "ObservedAttentionPress", "--budget", 20))
        self.assertIn("queries", self.refused(few, "NonCausalAttnPress", "--budget", 20))
        self.caches("SnapKVPress(window_size=2)", "--budget", 20, "--prompt-tokens", 50, dump=few)
        self.assertIn("queries", self.refused(few, "SnapKVPress(window_size=8)", "--budget", 20,
                                              "--prompt-tokens", 50))

        def wide(file):
            del file["sequences/a/layers/2/v"]
            file["sequences/a/layers/2/v"] = np.zeros((2, 96, 8), np.float32)
        self.assertIn("columns", self.refused(small_dump(self.folder / "wide.h5", wide), "KnormPress",
                                              "--budget", 20))

    def test_a_sliding_layer_is_left_out_and_named(self):
        def slide(file):
            file["sequences/a/layers/2"].attrs["sliding_window"] = 30
        dump = small_dump(self.folder / "slides.h5", slide)
        code, printed, said = called(dump, "KnormPress", "--budget", 9, "--out", self.folder / "c")
        self.assertEqual(code, 0)
        self.assertIn("last 30 tokens", said)
        self.assertIn(": 0 heads", printed)

    def test_faults_of_the_command_line_are_named(self):
        for arguments, words in (
                (["SnapKV", "--budget", 9], "did you mean SnapKVPress"),
                (["SnapKVPress(foo=3)", "--budget", 9], "refuses its arguments"),
                (["SnapKVPress(", "--budget", 9], "expected CLASS"),
                (["SnapKVPress(window_size=__import__('os'))", "--budget", 9], "unknown press|expected"),
                (["SnapKVPress"], "--budget or --ratio"),
                (["SnapKVPress", "--budget", 5000], "fewer tokens"),
                (["SnapKVPress", "--budget", 9, "--layers", "7"], "0, 1, 15"),
                (["SnapKVPress", "--budget", 9, "--sequences", "x"], SEQUENCE),
                (["SnapKVPress", "--budget", 9, "--prompt-tokens", "dump"], "prompt_tokens"),
                (["SnapKVPress(window_size=1792)", "--budget", 9], "window size"),
                (["SimLayerKVPress", "--budget", 9], "without --budget"),
                (["nowhere:SnapKVPress", "--budget", 9], "No module named 'nowhere'"),
                (["own_press:NoPress", "--budget", 9], "has no press NoPress"),
                (["KnormPress", "KnormPress", "--budget", 9], "twice"),
                ([], "no press")):
            self.assertRegex(self.refused(DUMP, *arguments), words)
        self.assertIn("is not a kvbench dump", self.refused(small_dump(
            self.folder / "x.h5", lambda file: file.attrs.update({"format": "x"})), "KnormPress",
            "--budget", 9))
        self.assertIn("not a file", self.refused(self.folder / "none.h5", "KnormPress", "--budget", 9))


class Module(unittest.TestCase):
    """The stand-in gives presses what a model would."""

    def layer(self) -> Layer:
        with h5py.File(DUMP) as file:
            return read_layer(file[f"sequences/{SEQUENCE}/layers/15"], 300)

    def test_attentions_are_the_dumps(self):
        layer = self.layer()
        scale, q, k, _ = tensors(15, 1)
        row = np.exp(scale * q[2, 290] @ k[:291].T)
        given = layer.attentions(20)[0, GROUP + 2, 10].numpy()
        np.testing.assert_allclose(given[:291], row / row.sum(), rtol=1e-12)
        self.assertEqual(given[291:].tolist(), [0.0] * 9)

    def test_projected_and_rotated_states_are_the_dumps_queries(self):
        """kvpress's own attention of the window, from hidden states, is that of the dump; it takes
        its softmax in float32."""
        layer = self.layer()
        hidden = layer.hidden_states()
        embeddings = layer.keywords(hidden)["position_embeddings"]
        theirs = kvpress.SnapKVPress.compute_window_attention(
            layer.module(), hidden, layer.k, 20, embeddings)
        torch.testing.assert_close(theirs, layer.attentions(20)[..., :-20], rtol=1e-5, atol=1e-8)
        self.assertGreater((hidden[0, :, :64] - layer.q[0, 0]).abs().max(), 1)

    def test_keys_before_rotation_turn_into_the_dumps(self):
        layer = self.layer()
        before = layer.module().k_proj(layer.hidden_states()).view(1, 300, KV_HEADS, 64).transpose(1, 2)
        cos, sin = layer.rotation(before, torch.arange(300)[None])
        turned = before * cos[:, None] + torch.cat((-before[..., 32:], before[..., :32]), -1) * sin[:, None]
        torch.testing.assert_close(turned, layer.k, rtol=1e-12, atol=1e-12)

    def test_what_it_lacks_says_why(self):
        module = self.layer().module()
        self.assertFalse(hasattr(module, "qkv_proj"))
        with self.assertRaisesRegex(AttributeError, "weights"):
            getattr(module, "o_proj")  # noqa: B009
        with self.assertRaisesRegex(AttributeError, "past_key_values"):
            self.layer().keywords(self.layer().hidden_states())["past_key_values"]


if __name__ == "__main__":
    unittest.main()
