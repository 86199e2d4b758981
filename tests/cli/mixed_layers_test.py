"""Methods whose budgets go across layers, on a model that mixes sliding windows and full attention."""

import re
import unittest

import h5py
import numpy as np

from program import DONE, Folder, kvbench

N, PROMPT, WINDOW = 256, 192, 32
# Query heads, KV heads, d and sliding window of each layer; 1 and 3 slide.
LAYERS = {0: (4, 2, 16, 0), 1: (4, 2, 16, WINDOW), 2: (8, 1, 32, 0), 3: (4, 4, 16, WINDOW)}


def write(path, layers):
    with h5py.File(path, "w") as file:
        file.attrs.update({"format": "kvbench-dump", "format_version": 1, "model": "mixed",
                           "producer": "test", "n_layers": len(LAYERS)})
        for index in layers:
            query_heads, kv_heads, d, window = LAYERS[index]
            draw = np.random.default_rng(index)
            layer = file.create_group(f"sequences/s/layers/{index}")
            layer.attrs.update({"scale": d**-0.5, "sliding_window": window, "logit_softcap": 0.0})
            for name, heads in (("q", query_heads), ("k", kv_heads), ("v", kv_heads)):
                layer[name] = draw.standard_normal((heads, N, d), np.float32)
    return path


class MixedLayers(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mixed = write(cls.made / "mixed.h5", LAYERS)
        cls.full = write(cls.made / "full.h5", [0, 2])
        cls.sliding = write(cls.made / "sliding.h5", [1, 3])

    def run_on(self, dump, *words, out="out"):
        done = kvbench("run", "--dump", dump, *words, "--prompt-tokens", PROMPT, "--out",
                       self.folder / out)
        self.assertEqual(done.returncode, DONE, done.stderr)
        return self.results(out)["cells"], done.stderr

    def test_the_reason_names_an_option_that_works(self):
        for method in (["cake", "--budget", 64], ["keyformer", "--scope", "model", "--budget", 64]):
            with self.subTest(method[0]):
                words = ["--algorithm", *method]
                cells, said = self.run_on(self.mixed, *words, out=f"{method[0]}-all")
                self.assertEqual({cell["status"] for cell in cells}, {"skipped"})
                self.assertIn("layer 1: ", cells[0]["reason"])
                remedy = re.search(r"--layers \S*\d", said)[0].split()
                self.assertEqual(remedy, ["--layers", "0,2"])
                chosen, _ = self.run_on(self.mixed, *words, *remedy, out=f"{method[0]}-chosen")
                # As on a dump that has these layers alone.
                alone, _ = self.run_on(self.full, *words, out=f"{method[0]}-alone")
                self.assertEqual([cell["status"] for cell in chosen], ["ok"] * 3)
                for a, b in zip(chosen, alone, strict=True):
                    self.assertEqual((a["errors"], a["memory"], a["derived"]),
                                     (b["errors"], b["memory"], b["derived"]))
                if method[0] == "cake":  # L (budget - window) = 2 (64 - 32), the same in all heads
                    selected = {cell["key"]["layer"]: cell["derived"]["selected"] for cell in chosen}
                    self.assertEqual(sum(selected.values()), 64)

    def test_where_of_the_entry_works_too_and_leaves_the_others_all_layers(self):
        results = self.run_sweep(
            dumps=[str(self.mixed)], replay={"prompt_tokens": PROMPT}, algorithms=[
                {"algorithm": "cake", "params": {"budget": 64}, "where": {"layers": [0, 2]}},
                {"algorithm": "window", "params": {"budget": 64}}])
        layers = {}
        for cell in results["cells"]:
            self.assertEqual(cell["status"], "ok")
            layers.setdefault(cell["label"], set()).add(cell["key"]["layer"])
        self.assertEqual(layers, {"cake": {0, 2}, "window": {0, 1, 2, 3}})

    def test_no_remedy_is_promised_where_no_layer_can(self):
        cells, _ = self.run_on(self.sliding, "--algorithm", "cake", "--budget", 64)
        self.assertEqual({cell["status"] for cell in cells}, {"skipped"})
        self.assertNotIn("--layers", cells[0]["reason"])

    def test_pyramidkv_and_adakv_run_on_all_layers(self):
        decoded = N - PROMPT
        cells, _ = self.run_on(self.mixed, "--algorithm", "pyramidkv", "--budget", 64, out="pyramid")
        # B = 64 - 8; min = 56 // 20, max = 112 - 2, step = 108 // 3: layers 0 and 2 select 110 and 38.
        tokens = {0: 110 + 8 + decoded, 2: 38 + 8 + decoded, 1: WINDOW, 3: WINDOW}
        for cell in cells:
            self.assertEqual(cell["memory"]["tokens_peak"], tokens[cell["key"]["layer"]])
        cells, _ = self.run_on(self.mixed, "--algorithm", "adakv", "--budget", 64, out="ada")
        for cell in cells:
            layer = cell["key"]["layer"]
            if LAYERS[layer][3]:
                self.assertEqual(cell["memory"]["tokens_peak"], WINDOW)
            else:  # the mean budget of the layer's KV heads, to the rounding of each
                heads = LAYERS[layer][1]
                self.assertLessEqual(abs(cell["derived"]["layer_tokens"] - 64 * heads), heads)


if __name__ == "__main__":
    unittest.main()
