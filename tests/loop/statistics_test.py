"""Divergences and their standard errors, in worked cases."""

from __future__ import annotations

import math
import unittest

import numpy as np
import torch

from loop.loop_statistics import Rows, compared, standard_error, summary


def logits(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


class Statistics(unittest.TestCase):
    def test_divergence_ranks_and_surprise_of_two_rows(self):
        full = logits([0.5, 0.25, 0.25], [0.2, 0.2, 0.6])
        other = logits([0.25, 0.5, 0.25], [0.2, 0.2, 0.6]) + 3.0  # a shift changes no distribution
        rows = compared(full, other, torch.tensor([7, 0]))
        np.testing.assert_allclose(rows.kl, [0.5 * math.log(2) - 0.25 * math.log(2), 0.0], atol=1e-15)
        self.assertEqual(rows.same_top.tolist(), [0.0, 1.0])
        self.assertEqual(rows.shared_top.tolist(), [1.0, 1.0])  # all three tokens are among five
        np.testing.assert_allclose(rows.surprise_full, [math.log(2), math.nan])
        np.testing.assert_allclose(rows.surprise, [2 * math.log(2), math.nan])

    def test_five_of_many_that_are_shared(self):
        full, other = torch.zeros(1, 12), torch.zeros(1, 12)
        full[0, :5] = torch.tensor([9.0, 8, 7, 6, 5])
        other[0, [0, 1, 7, 8, 9]] = torch.tensor([9.0, 8, 7, 6, 5])
        self.assertEqual(compared(full, other, torch.tensor([0])).shared_top.tolist(), [0.4])

    def test_blocks_of_rows_are_those_of_one_pass(self):
        a, b = torch.randn(2, 40, 700_000, generator=torch.Generator().manual_seed(1))
        ids = torch.arange(40)
        rows = compared(a, b, ids)  # six rows a block
        p, q = a.double().log_softmax(-1), b.double().log_softmax(-1)
        np.testing.assert_allclose(rows.kl, (p.exp() * (p - q)).sum(-1), rtol=1e-12)
        np.testing.assert_allclose(rows.surprise[:-1], -q[torch.arange(39), ids[1:]], rtol=1e-12)
        self.assertTrue(math.isnan(rows.surprise[-1]))

    def test_standard_error_is_that_of_blocks(self):
        values = np.array([1.0, 1, 3, 3])  # two blocks, whose means are 1 and 3
        self.assertAlmostEqual(standard_error(values), math.sqrt(2) / math.sqrt(2))
        self.assertIsNone(standard_error(np.array([1.0, 2.0])))
        rows = np.random.default_rng(0).standard_normal((400, 256)).repeat(16, axis=1)
        found = np.mean([standard_error(row) for row in rows])
        naive = np.mean([row.std(ddof=1) / math.sqrt(len(row)) for row in rows])
        truth = rows.mean(axis=1).std()  # rows come in runs of 16 equal ones
        self.assertLess(abs(found / truth - 1), 0.1)
        self.assertLess(naive / truth, 0.5)

    def test_summary(self):
        nan = math.nan
        rows = Rows(np.array([0.0, 0, 0, 4]), np.array([1.0, 1, 1, 0]), np.array([1.0, 1, 1, 0.2]),
                    np.log([2.0, 2, 2, nan]), np.log([4.0, 2, 2, nan]))
        means = summary(rows)
        self.assertEqual((means["kl"]["mean"], means["kl"]["median"], means["kl"]["max"]), (1, 0, 4))
        self.assertAlmostEqual(means["kl"]["p99"], 4 * 0.97)  # between the third and the last of four
        self.assertEqual(means["same_top1"]["mean"], 0.75)
        self.assertAlmostEqual(means["same_top5"]["mean"], 0.8)
        self.assertAlmostEqual(means["perplexity"]["full"], 2.0)
        self.assertAlmostEqual(means["perplexity"]["ratio"], 2 ** (1 / 3))


if __name__ == "__main__":
    unittest.main()
