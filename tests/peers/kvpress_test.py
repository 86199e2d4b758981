"""The tokens that kvpress's own classes keep of the shipped dump's prompts, compared with those of
kvbench's algorithms: the sets of tokens are equal, kvpress's tokens replayed by `given` have the
record of our own algorithm, and the program's errors are those of kvpress's tokens, computed in
numpy alone."""

from __future__ import annotations

import unittest

import numpy as np

from compared import KV_HEADS, LAYERS, TOKENS, Folder, answers, digits, errors, kept_tokens

PROMPT = TOKENS - 256
# Digits to which errors of numpy must agree; what differs is the order of sums in double precision.
DIGITS = 9


def heads():
    return [(layer, head) for layer in LAYERS for head in range(KV_HEADS)]


class Kvpress(Folder):
    def same_tokens(self, spec: str, budget: int, algorithm: str, params: dict,
                    rows: object = "all") -> None:
        """`rows` [PROMPT]: the first decoded row alone, of methods that decide at every row."""
        cache = self.caches(spec, "--budget", budget, "--prompt-tokens", PROMPT)
        records = self.run_sweep(
            [{"algorithm": algorithm, "label": "ours", "params": params},
             {"algorithm": "given", "label": "theirs", "params": {"file": str(cache)}}],
            PROMPT, evaluate={"rows": rows})
        self.assertEqual(len(records), 2 * len(heads()))
        for layer, head in heads():
            kept = kept_tokens(cache, layer, head)
            self.assertEqual(len(kept), budget)
            self.assertEqual(self.tokens_of("ours", layer, head), kept)
            self.assertEqual(self.tokens_of("theirs", layer, head), kept)
            ours, theirs = (records[label, layer, head, None] for label in ("ours", "theirs"))
            for name in ("errors", "mass"):
                self.assertEqual(ours.cell[name], theirs.cell[name])
            if rows == "all":
                self.assertEqual(ours.cell["memory"], theirs.cell["memory"])
            expected = errors(layer, head, kept, PROMPT)
            self.same_errors(ours.values, {name: values[:, :ours.values[name].shape[1]]
                                           for name, values in expected.items()}, f"{layer}/{head}")

    def tokens_of(self, label: str, layer: int, head: int) -> set[int]:
        """The tokens in the cache file that the program wrote for a label's one setting."""
        path, = (self.folder / "results/caches").glob(f"{label}-*.h5")
        return kept_tokens(path, layer, head)

    def same_errors(self, got: dict, expected: dict, place: str) -> None:
        for name, values in expected.items():
            self.assertGreater(digits(got[name], values), DIGITS, f"{place}: {name}")

    def test_one_other_token_is_seen(self):
        for layer, head in heads():
            kept = set(range(0, PROMPT, 7))
            other = kept - {700} | {701}
            a, b = (errors(layer, head, each, PROMPT) for each in (kept, other))
            for name in a:
                self.assertLess(digits(a[name], b[name]), DIGITS - 2, name)

    def test_snapkv(self):
        for budget, window, kernel in ((256, 64, 5), (512, 32, 7), (100, 16, 1)):
            with self.subTest(budget=budget):
                self.same_tokens(
                    f"SnapKVPress(window_size={window}, kernel_size={kernel})", budget, "snapkv",
                    {"budget": budget, "window": window, "kernel": kernel, "pool": "avg"})

    def test_finch_is_snapkv_with_rows_weighed_by_what_they_see(self):
        for budget, window in ((256, 64), (100, 16)):
            with self.subTest(budget=budget):
                self.same_tokens(
                    f"own_press:FinchScorePress(window_size={window})", budget, "snapkv",
                    {"budget": budget, "window": window, "kernel": 1, "row_weight": "visible"})

    def test_streaming_llm_at_the_first_decoded_token(self):
        """kvbench's window rolls: at the first decoded row it holds one prompt token less."""
        for sinks in (4, 16):
            self.same_tokens(f"StreamingLLMPress(n_sink={sinks})", 255, "streaming_llm",
                             {"budget": 256, "sinks": sinks}, [PROMPT])

    def test_streaming_llm_without_sinks_is_window(self):
        self.same_tokens("StreamingLLMPress(n_sink=0)", 255, "window", {"budget": 256}, [PROMPT])

    def test_observed_attention_times_its_rows_is_key_attention_and_h2o(self):
        """kvpress divides a token's sum by the rows that see it; with that taken back, its scores
        rank as kvbench's."""
        self.same_tokens("own_press:SummedAttentionPress", 256, "key_attention", {"budget": 256},
                         [PROMPT])
        self.same_tokens("own_press:SummedAttentionPress(recent=64)", 256, "h2o",
                         {"budget": 256, "recent_fraction": 0.25}, [PROMPT])

    def test_observed_attention_itself_is_another_method(self):
        plain = self.caches("ObservedAttentionPress", "--budget", 256, "--layers", 15)
        summed = self.caches("own_press:SummedAttentionPress", "--budget", 256, "--layers", 15)
        for head in range(KV_HEADS):
            self.assertLess(len(kept_tokens(plain, 15, head) & kept_tokens(summed, 15, head)), 200)

    def test_pyramidkv_is_snapkv_with_another_number_per_layer(self):
        """kvpress counts the window inside a layer's number, in real numbers; kvbench, as
        KVCache-Factory, adds the window to an integer."""
        window, budget, beta, n_layers = 8, 256, 20, 30
        cache = self.caches(f"PyramidKVPress(window_size={window}, beta={beta})", "--budget", budget)
        ratio = (budget + 0.5) / PROMPT  # the ratio that --budget hands to kvpress
        least = ratio * PROMPT / beta
        most = 2 * ratio * PROMPT - least
        ours = self.run_sweep([{"algorithm": "pyramidkv", "params": {
            "budget": budget + window, "window": window, "kernel": 5, "pool": "avg", "beta": beta}}],
            PROMPT)
        for layer in LAYERS:
            number = round(most - layer * (most - least) / (n_layers - 1))
            snapkv = self.run_sweep([{"algorithm": "snapkv", "params": {
                "budget": number, "window": window, "kernel": 5, "pool": "avg"},
                "where": {"layers": [layer]}}], PROMPT)
            for head in range(KV_HEADS):
                kept = kept_tokens(cache, layer, head)
                self.assertEqual(len(kept), number)
                self.assertEqual(self.tokens_of("snapkv", layer, head), kept)
                self.same_errors(snapkv["snapkv", layer, head, None].values,
                                 errors(layer, head, kept, PROMPT), f"{layer}/{head}")
                step = (2 * budget - 2 * (budget // beta)) // (n_layers - 1)
                selected = 2 * budget - budget // beta - layer * step
                self.assertEqual(ours["pyramidkv", layer, head, None].cell["derived"]["selected"],
                                 selected)
                self.assertNotEqual(selected + window, number)

    def test_given_replays_rows_of_every_kind(self):
        """Tokens, values of their own, keys and values of their own, budgets of their own."""
        for spec, options in (("KeyDiffPress", ["--budget", 200]),
                              ("MergingPress(SnapKVPress)", ["--budget", 200]),
                              ("ThinKPress(key_channel_compression_ratio=0.5)", []),
                              ("AdaKVPress(SnapKVPress)", ["--budget", 200])):
            cache = self.caches(spec, *options)
            records = self.run_sweep([{"algorithm": "given", "params": {"file": str(cache)}}], PROMPT)
            for layer, head in heads():
                got = next(record for key, record in records.items() if key[1:3] == (layer, head))
                self.assertEqual(got.cell["derived"]["method"], spec)
                z, exact = answers(cache, layer, head, PROMPT)
                expected = np.linalg.norm(z - exact, axis=-1) / np.linalg.norm(exact, axis=-1)
                self.same_errors(got.values, {"relative_l2": expected}, f"{spec} {layer}/{head}")

    def test_random_press_has_the_law_of_uniform(self):
        """Errors over seeds, by Kolmogorov and Smirnov; with sinks kept their law is another."""
        draws, budget, layer = 80, 256, 15
        entries = [{"algorithm": "uniform", "label": f"{sinks} sinks", "where": {"layers": [layer]},
                    "params": {"budget": budget, "sinks": sinks, "weights": "none"}}
                   for sinks in (0, 4)]
        records = self.run_sweep(entries, PROMPT, seeds={"first": 0, "count": draws})
        theirs = [[] for _ in range(KV_HEADS)]
        for seed in range(draws):
            cache = self.caches("RandomPress", "--budget", budget, "--layers", layer, "--seed", seed)
            for head in range(KV_HEADS):
                kept = kept_tokens(cache, layer, head)
                theirs[head].append(errors(layer, head, kept, PROMPT)["relative_l2"].mean())
        limit = np.sqrt(-np.log(1e-6 / 2) / 2 * 2 / draws)  # limit of the distance, false alarm 1e-6
        for head in range(KV_HEADS):
            distances = [distance(theirs[head], [
                records[f"{sinks} sinks", layer, head, seed].cell["errors"]["relative_l2"]["mean"]
                for seed in range(draws)]) for sinks in (0, 4)]
            self.assertLess(distances[0], limit)
            self.assertGreater(distances[1], limit)


def distance(a: list, b: list) -> float:
    """The largest distance of two empirical distributions."""
    at = np.sort(np.concatenate([a, b]))
    return float(np.abs(np.searchsorted(np.sort(a), at, "right") / len(a)
                        - np.searchsorted(np.sort(b), at, "right") / len(b)).max())


if __name__ == "__main__":
    unittest.main()
