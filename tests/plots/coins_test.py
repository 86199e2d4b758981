"""Why the walk as proved is behind uniform sampling: errors in plots/tables/constitution against the exact variances
of one halving of the shipped dump. Exits 77 where a Python package is missing."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
try:
    import h5py
    import numpy
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from tables import ROOT, by, table

# Numbers of configs/figures/balancekv_walk.json: 256 first tokens are kept, the rest of the prompt
# is halved.
SINKS, PROMPT, EVERY = 256, 1792, 4


def rms_errors():
    """Relative error of one halving by fair coins, root mean square to first order, averaged over rows, heads and
    units: with one coin per token, and with one each for numerator and denominator.

    A kept token weighs 2, so that token j moves the numerator by +-p_j v_j and the denominator by +-p_j. With the
    same sign the answer a moves by sum +-p_j (v_j - a); with others the two variances add up."""
    together, apart = [], []
    with h5py.File(ROOT / "data/smollm2-constitution.h5") as file:
        for layer in file["sequences/constitution/layers"].values():
            q, k, v = (layer[name][:].astype(float) for name in "qkv")
            tokens, heads = k.shape[1], len(q) // len(k)
            for head, keys in enumerate(k):
                values = v[head]
                for query in q[head * heads:(head + 1) * heads]:
                    rows = numpy.arange(PROMPT, tokens, EVERY)
                    logits = layer.attrs["scale"] * query[rows - tokens + len(query)] @ keys.T
                    logits[numpy.arange(tokens) > rows[:, None]] = -numpy.inf
                    p = numpy.exp(logits - logits.max(axis=1, keepdims=True))
                    p /= p.sum(axis=1, keepdims=True)
                    answer = p @ values
                    p, halved = p[:, SINKS:PROMPT] ** 2, values[SINKS:PROMPT]
                    size, squares = (answer ** 2).sum(axis=1), (halved ** 2).sum(axis=1)
                    of_values, of_ones = p @ squares, p.sum(axis=1)
                    cross = ((p @ halved) * answer).sum(axis=1)
                    together.append(numpy.sqrt((of_values - 2 * cross + size * of_ones) / size))
                    apart.append(numpy.sqrt((of_values + size * of_ones) / size))
    return numpy.mean(together), numpy.mean(apart)


class Coins(unittest.TestCase):
    def test_separate_coins_cost_what_variances_say(self):
        together, apart = rms_errors()
        rows = by(table("constitution/walk_theory"), "params.side", "params.T")
        random = rows["random", 1.0]["errors.relative_l2.mean"]
        uniform = by(table("constitution/walk_uniform"), "params.T")[1.0]["errors.relative_l2.mean"]
        for measured, predicted in ((random, apart), (uniform, together)):
            self.assertLess(abs(measured / predicted - 1), 0.05)
        self.assertGreater(abs(random / together - 1), 0.3)  # so that 5 % tells the two apart


if __name__ == "__main__":
    unittest.main()
