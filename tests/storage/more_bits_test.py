"""More bits, less error: every family of codecs with a number of bits, on every layer and KV head of
the shipped dump.

Rounding to steps of r leaves an error of about r / sqrt(12), so one more bit divides the error of
keys and of values by the ratio of the steps: (2^(b+1) - 1) / (2^b - 1) where 2^b codes reach from
the least number to the largest (int, kivi, q4_1 and q5_1), by the steps on either side of 0 where
codes are about it (8, 16 and 127 of q4_0, q5_0 and q8_0), and by sqrt(D_b / D_(b+1)) with the
distortions D_b of the best points for normal numbers (turboquant). That holds where numbers fall
evenly within a step. With the few wide steps of two and three bits, or where a head's values are
mostly small, they do not: a tensor may be off by a sixth. A bit that made no difference would be
off by three quarters or more.

Answers follow: to first order their error is linear in those of keys, or of values. One bit about
halves its mean over rows and query heads, which no law makes fall for every head. It has to for at
least 90 % of the pairs of layer and head: for all nine of the dump, which with their seed are
always the same.
"""

import itertools
import json
import math
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ["KVBENCH_PROGRAM"]
SOURCE = Path(os.environ["KVBENCH_SOURCE"])
MIN_SHARE = 0.9
OFF = 1 / 6

# The distortion of normal numbers, by bits: Max, Quantizing for minimum distortion, 1960.
DISTORTION = {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009497}


def of_levels(few, more):
    return (2**few - 1) / (2**more - 1)


def of_signs(few, more):
    steps = {4: 8, 5: 16, 8: 127}  # on either side of 0
    return steps[few] / steps[more]


def of_points(few, more):
    return math.sqrt(DISTORTION[more] / DISTORTION[few])


# By family: the codec of a number of bits, the numbers, the ratio of errors.
FAMILIES = {
    "int": (lambda b: {"codec": "int", "bits": b}, (2, 3, 4, 5, 6, 7, 8), of_levels),
    "kivi": (lambda b: {"codec": "kivi", "bits": b}, (2, 3, 4, 8), of_levels),
    "turboquant": (lambda b: {"codec": "turboquant", "bits": b}, (1, 2, 3, 4), of_points),
    "ggml about 0": (lambda b: f"q{b}_0", (4, 5, 8), of_signs),
    "ggml from the least": (lambda b: f"q{b}_1", (4, 5), of_levels),
}
ERRORS = {"keys": "key_error", "values": "value_error"}


class MoreBits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory(prefix="kvbench-bits-") as folder:
            config = Path(folder) / "bits.json"
            config.write_text(json.dumps({
                "schema_version": 1,
                "name": "bits",
                "dumps": [str(SOURCE / "data/smollm2-constitution.h5")],
                "evaluate": {"rows": {"every": 8}},
                "seeds": {"first": 0, "count": 1},
                "algorithms": [{"algorithm": "exact"}],
                "storage": [{tensor: codec(bits)} for codec, numbers, _ in FAMILIES.values()
                            for bits in numbers for tensor in ERRORS],
            }))
            done = subprocess.run(
                [PROGRAM, "run", "--config", config, "--out", Path(folder) / "out"],
                capture_output=True, text=True, timeout=600, check=False)
            assert done.returncode == 0, done.stderr
            cls.cells = json.loads((Path(folder) / "out/results.json").read_text())["cells"]

    def errors(self, tensor, codec):
        """By layer and head: the error of the tensor, and the mean one of answers."""
        id_, bits = (codec, None) if isinstance(codec, str) else (codec["codec"], codec["bits"])
        found = {}
        for cell in self.cells:
            stored = cell["key"]["storage"][tensor]
            if stored == "float" or (stored["codec"], stored.get("bits")) != (id_, bits):
                continue
            self.assertEqual(cell["status"], "ok")
            found[cell["key"]["layer"], cell["key"]["kv_head"]] = (
                cell["errors"][ERRORS[tensor]], cell["errors"]["relative_l2"]["mean"])
        self.assertEqual(len(found), 9)
        return found

    def steps(self):
        """Every family's neighbours: name, ratio to expect, errors with few and with more bits."""
        for family, (codec, numbers, ratio) in FAMILIES.items():
            for few, more in itertools.pairwise(numbers):
                for tensor in ERRORS:
                    yield (f"{family}, {tensor}, {few} and {more} bits", ratio(few, more),
                           self.errors(tensor, codec(few)), self.errors(tensor, codec(more)))

    @staticmethod
    def share_falling(few, more):
        return sum(more[unit][1] <= few[unit][1] for unit in few) / len(few)

    def test_answers_have_less_error_in_all_nine_heads(self):
        for name, _, few, more in self.steps():
            with self.subTest(name):
                self.assertGreaterEqual(self.share_falling(few, more), MIN_SHARE)
                # Bits that are taken for fewer ones.
                self.assertLess(self.share_falling(more, few), MIN_SHARE)

    def test_each_bit_divides_the_error_of_a_tensor_as_its_steps(self):
        for name, ratio, few, more in self.steps():
            for unit, (error, _) in few.items():
                with self.subTest(name, unit=unit):
                    found = more[unit][0] / error
                    self.assertLess(abs(found / ratio - 1), OFF)
                    # As if a bit made no difference.
                    self.assertGreater(abs(1 / ratio - 1), OFF)


if __name__ == "__main__":
    unittest.main()
