"""Mean relative_l2 of the algorithms on the shipped dump against an independent program.

methods/<algorithm>.json is a list of settings. `relative_l2` has a number per layer (0, 1, 15), the mean
over the 64 decoded rows and 3 query heads of a KV head (0 unless `kv_head` says another) of the first
1024 tokens, 960 of them the prompt; an object has such a list per KV head. `derived` has integers in the
same form. The numbers are those of one float64 numpy program that was written
from the methods' released code and shares nothing with kvbench; they were handed over with six decimals
(`decimals` where fewer or more). Those of a setting with a `source` are of the tokens that this code, the authors', kept
in double precision, with numpy's attention over them. `storage` is how keys and values are stored; of q8_0 and q4_0, which compute in
float32, the numbers are those of numpy's attention over what the gguf package 0.19.0 decodes. For
randomised methods they are means over six seeds of numpy's generator and `deviation` their standard
deviations: such a mean is compared with one over SEEDS seeds of ours.
"""

import json
import os
import subprocess
import tempfile
import unittest
from collections import defaultdict
from pathlib import Path

PROGRAM = os.environ["KVBENCH_PROGRAM"]
SOURCE = Path(os.environ["KVBENCH_SOURCE"])
LAYERS = (0, 1, 15)
SEEDS = 12
THEIR_SEEDS = 6
# Standard errors of a difference of means that sound code may show. The error is estimated from their
# deviation alone, for a fault of ours that spreads our numbers would widen one that has ours in it: 5
# degrees of freedom, where |t| > 5 has a probability of 0.004 (51 means are compared). Seeds are fixed,
# so that chance is taken once, with the draws. The largest at present is 4.6.
STANDARD_ERRORS = 5.0
# Our variance over theirs, F with 11 and 5 degrees of freedom: outside with a probability of 2e-4.
VARIANCES = (0.0624, 68.5)


def settings():
    for path in sorted((SOURCE / "tests/golden/methods").glob("*.json")):
        for i, setting in enumerate(json.loads(path.read_text())):
            yield f"{path.stem} {i}", path.stem, setting


def by_head(setting, numbers):
    """(KV head, layer, number) of those handed over."""
    heads = numbers if isinstance(numbers, dict) else {setting.get("kv_head", 0): numbers}
    for head, of_layers in heads.items():
        for layer, number in zip(LAYERS, of_layers, strict=True):
            if number is not None:
                yield int(head), layer, number


def replayed():
    """Cells of every seed, by (setting, layer, KV head)."""
    entries = [
        {
            "algorithm": algorithm,
            "label": label,
            "params": setting["params"],
            "storage": setting.get("storage", "float"),
        }
        for label, algorithm, setting in settings()
    ]
    sweep = {
        "schema_version": 1,
        "name": "methods",
        "dumps": [str(SOURCE / "data/smollm2-constitution.h5")],
        "select": {"tokens": 1024},
        "replay": {"prompt_tokens": 960},
        "evaluate": {"rows": "all"},
        "seeds": list(range(SEEDS)),
        "algorithms": entries,
    }
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "methods.json"
        config.write_text(json.dumps(sweep))
        subprocess.run(
            [PROGRAM, "run", "--config", config, "--out", Path(folder) / "out", "--quiet"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        cells = json.loads((Path(folder) / "out/results.json").read_text())["cells"]
    found = defaultdict(list)
    for cell in cells:
        key = cell["key"]
        if cell["status"] != "ok":
            raise AssertionError(f"{cell['label']}: {cell['reason']}")
        found[cell["label"].split(" | ")[0], key["layer"], key["kv_head"]].append(cell)
    return found


class Methods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cells = replayed()

    def test_every_setting(self):
        for label, _, setting in settings():
            for head, layer, theirs in by_head(setting, setting["relative_l2"]):
                ours = [cell["errors"]["relative_l2"]["mean"]
                        for cell in self.cells[label, layer, head]]  # fmt: skip
                with self.subTest(setting=label, layer=layer, head=head, ours=ours, theirs=theirs):
                    if "deviation" in setting:
                        deviation = setting["deviation"][LAYERS.index(layer)]
                        self.same_mean(ours, theirs, deviation)
                    else:
                        rounding = 0.51 * 10.0 ** -setting.get("decimals", 6)
                        self.assertLessEqual(abs(ours[0] - theirs), rounding)

    def test_derived_numbers(self):
        for label, _, setting in settings():
            for name, numbers in setting.get("derived", {}).items():
                for head, layer, theirs in by_head(setting, numbers):
                    with self.subTest(setting=label, layer=layer, head=head, name=name):
                        cell = self.cells[label, layer, head][0]
                        self.assertEqual(cell["derived"][name], theirs)

    def same_mean(self, ours, theirs, deviation):
        self.assertEqual(len(ours), SEEDS)
        mean = sum(ours) / SEEDS
        error = deviation * (1 / THEIR_SEEDS + 1 / SEEDS) ** 0.5
        self.assertLessEqual(abs(mean - theirs), STANDARD_ERRORS * error)
        ratio = sum((value - mean) ** 2 for value in ours) / (SEEDS - 1) / deviation**2
        self.assertGreater(ratio, VARIANCES[0])
        self.assertLess(ratio, VARIANCES[1])

    def test_a_shift_and_another_spread_are_found(self):
        ours = [0.5 + 0.01 * (-1) ** i for i in range(SEEDS)]
        self.same_mean(ours, 0.5, 0.01)
        for theirs, deviation in ((0.5 + 0.03, 0.01), (0.5, 0.001), (0.5, 0.1)):
            with self.assertRaises(AssertionError):
                self.same_mean(ours, theirs, deviation)


if __name__ == "__main__":
    unittest.main()
