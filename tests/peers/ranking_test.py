"""kvpress's presses that rank the tokens of a prompt by keys, values and statistics of queries, next to
kvbench's algorithms: the sets of tokens are equal, and the errors to DIGITS of kvpress_test.py."""

from __future__ import annotations

import unittest

import kvpress_test
from compared import Folder


class Ranking(Folder):
    same_tokens = kvpress_test.Kvpress.same_tokens
    same_errors = kvpress_test.Kvpress.same_errors
    tokens_of = kvpress_test.Kvpress.tokens_of

    def test_knorm(self):
        for budget in (100, 256, 1000):
            with self.subTest(budget=budget):
                self.same_tokens("KnormPress", budget, "knorm", {"budget": budget})

    def test_keydiff(self):
        for budget in (100, 1000):
            for block in (0, 128, 300):
                press = "KeyDiffPress"
                if block:
                    press = f"BlockPress(KeyDiffPress, block_size={block})"
                with self.subTest(budget=budget, block=block):
                    self.same_tokens(press, budget, "keydiff", {"budget": budget, "block": block})

    def test_lagkv(self):
        """Budgets that keep the same number of every partition: torch's topk takes any of equal ranks."""
        for budget, lag, sinks, cross in ((4 + 252 + 21 * 12, 128, 4, False),
                                          (16 + 176 + 50 * 16, 100, 16, False),
                                          (600, 64, 0, True), (1000, 1024, 4, False)):
            with self.subTest(budget=budget, lag=lag):
                self.same_tokens(
                    f"LagKVPress(n_sink={sinks}, lag_size={lag}, cross_scoring={cross})", budget,
                    "lagkv", {"budget": budget, "lag": lag, "sinks": sinks, "cross": cross})

    def test_expected_attention(self):
        for budget, theirs, ours in (
                (256, "", {}),
                (1000, "epsilon=0.01", {"epsilon": 0.01}),
                (100, "use_covariance=False, use_vnorm=False",
                 {"covariance": False, "value_norm": False}),
                (600, "n_sink=20, n_future_positions=100", {"sinks": 20, "future": 100})):
            with self.subTest(budget=budget):
                self.same_tokens(f"ExpectedAttentionPress({theirs})", budget,
                                 "expected_attention", {"budget": budget, **ours})

    def test_curdkv(self):
        for budget, theirs, ours in (
                (256, "", {}),
                (1000, "num_sinks=30, local_window_size=50", {"sinks": 30, "window": 50}),
                (600, "leverage_type='kv_avg'", {"leverage": "kv_avg"}),
                (600, "leverage_type='key'", {"leverage": "key"}),
                (600, "leverage_type='value'", {"leverage": "value"})):
            with self.subTest(budget=budget, theirs=theirs):
                self.same_tokens(f"CURPress({theirs})", budget, "curdkv",
                                 {"budget": budget, **ours})

    def test_capkv(self):
        for budget, theirs, ours in (
                (256, "", {}),
                (1000, "tau=1, n_sink=20, n_future_positions=100",
                 {"tau": 1, "sinks": 20, "future": 100})):
            with self.subTest(budget=budget):
                self.same_tokens(f"own_press:DoubleCapPress({theirs})", budget, "capkv",
                                 {"budget": budget, **ours})


if __name__ == "__main__":
    unittest.main()
