"""kb.open_dump against h5py."""

import subprocess
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

import kvbench as kb
from streams import DUMP, PROGRAM


class Dumps(unittest.TestCase):
    def test_arrays_are_those_of_the_file(self):
        dump = kb.open_dump(DUMP)
        with h5py.File(DUMP) as file:
            self.assertEqual(list(dump), list(file["sequences"]))
            self.assertEqual(dump.n_layers, file.attrs["n_layers"])
            layers = file["sequences/constitution/layers"]
            self.assertEqual(list(dump["constitution"]), sorted(map(int, layers)))
            for index in dump["constitution"]:
                layer, stored = dump["constitution"][index], layers[str(index)]
                for name in ("q", "k", "v", "out"):
                    array = getattr(layer, name)
                    self.assertEqual(array.dtype, np.float64)
                    self.assertTrue(np.array_equal(array, stored[name][...].astype(np.float64)))
                self.assertIs(layer.k, layer.k)
                self.assertEqual((layer.scale, layer.window, layer.softcap),
                                 (stored.attrs["scale"], 0, 0.0))
                self.assertEqual((layer.tokens, layer.query_heads, layer.kv_heads, layer.dtype),
                                 (2048, 9, 3, "float16"))
            frequencies, layout = layer.rope
            self.assertEqual(layout, file["rope"].attrs["layout"])
            self.assertEqual(frequencies, file["rope/inv_freq"][...].tolist())

    def test_layers_that_share_keys(self):
        rng = np.random.default_rng(5)
        tensors = {layer: {name: rng.standard_normal((heads, 48, 8)) for name, heads in shapes.items()}
                   for layer, shapes in {0: {"q": 4, "k": 2, "v": 2}, 3: {"q": 2}, 4: {"q": 6}}.items()}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "shared.h5"
            with h5py.File(path, "w") as file:
                file.attrs.update({"format": "kvbench-dump", "format_version": 2, "model": "m",
                                   "producer": "test", "n_layers": 5})
                for layer, held in tensors.items():
                    group = file.create_group(f"sequences/text/layers/{layer}")
                    group.attrs.update({"scale": 0.3, "sliding_window": 0, "logit_softcap": 0.0})
                    if layer:
                        group.attrs["kv_layer"] = 0
                    for name, array in {**held, "wo_v_l1": np.ones((len(held["q"]), 48, 1)) + layer,
                                        "sinks": np.arange(len(held["q"]), dtype=float)}.items():
                        group[name] = array
            layers = kb.open_dump(path)["text"]
            for layer, held in tensors.items():
                np.testing.assert_array_equal(layers[layer].q, held["q"])
                np.testing.assert_array_equal(layers[layer].k, tensors[0]["k"])
                np.testing.assert_array_equal(layers[layer].wo_v_l1, 1.0 + layer)
            self.assertEqual([layers[layer].kv_layer for layer in layers], [None, 0, 0])
            cells = [{"algorithm": "h2o", "params": {"budget": 12}},
                     {"algorithm": "criticalkv", "params": {"budget": 12, "window": 4}}]
            run = kb.run({"dumps": [path], "algorithms": cells}, out=Path(folder) / "run", quiet=True)
            self.assertEqual(len(run.cells), 4)
            for cell in run.cells:
                key = cell["key"]
                made = kb.replay(layers[0], key["algorithm"], head=key["kv_head"], **key["params"])
                self.assertEqual(made.record["errors"], cell["errors"])
                self.assertEqual(len(made.outputs), 6)
            with self.assertRaisesRegex(kb.Error, "give layer 0"):
                kb.replay(layers[4], "h2o", budget=12)

    def test_a_bias_of_keys(self):
        rng = np.random.default_rng(6)
        bias = 30 * rng.standard_normal((2, 32))
        tensors = {name: rng.standard_normal((2, 48, 32)) for name in "qkv"}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "biased.h5"
            with h5py.File(path, "w") as file:
                file.attrs.update({"format": "kvbench-dump", "format_version": 1, "model": "m",
                                   "producer": "test", "n_layers": 1})
                group = file.create_group("sequences/text/layers/0")
                group.attrs.update({"scale": 0.3, "sliding_window": 0, "logit_softcap": 0.0})
                for name, array in {**tensors, "key_bias": bias}.items():
                    group[name] = array
                rope = file.create_group("rope")
                rope.attrs.update({"theta": 10.0, "layout": "half", "attention_scaling": 1.0})
                rope["inv_freq"] = [1.0, 0.1]
            layer = kb.open_dump(path)["text"][0]
            np.testing.assert_array_equal(layer.key_bias, bias)
            storage = {"keys": {"codec": "q4_0", "centre": "bias"}}
            run = kb.run({"dumps": [path], "algorithms": [{"algorithm": "exact"}], "storage": storage},
                         out=Path(folder) / "run", quiet=True)
            self.assertEqual(len(run.cells), 2)
            for head, cell in enumerate(run.cells):
                got = kb.replay(layer, "exact", head=head, storage=storage)
                self.assertEqual(got.record["errors"], cell["errors"])
                arrays = (tensors["q"][head], tensors["k"][head], tensors["v"][head])
                given = {"scale": 0.3, "rope": layer.rope, "storage": storage}
                got = kb.replay(*arrays, "exact", **given, key_bias=bias[head])
                self.assertEqual(got.errors, cell["errors"])
                other = kb.replay(*arrays, "exact", **given, key_bias=bias[1 - head])
                self.assertNotEqual(other.errors, cell["errors"])
                self.assertNotEqual(other.record["id"], got.record["id"])
                for wrong, words in ((None, "the dump has none"), (bias[head, 1:], "one number per dimension"),
                                     (bias[head] * np.inf, "key_bias: must be finite")):
                    with self.assertRaisesRegex(kb.Error, words):
                        kb.replay(*arrays, "exact", **given, key_bias=wrong)
        self.assertIsNone(kb.open_dump(DUMP)["constitution"][15].key_bias)

    def test_a_layer_lives_longer_than_its_dump(self):
        layer = kb.open_dump(DUMP)["constitution"][15]
        self.assertEqual(layer.k.shape, (3, 2048, 64))

    def test_what_a_dump_may_leave_out(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "made.h5")
            subprocess.run([PROGRAM, "synth", "gaussian", "--tokens", "64", "--d", "8", "--out", path],
                           check=True, capture_output=True)
            with h5py.File(path, "r+") as file:
                name = next(iter(file["sequences"]))
                layer = file[f"sequences/{name}/layers/0"]
                if "out" in layer:
                    del layer["out"]
                layer.attrs["sliding_window"] = 16
                layer.attrs["logit_softcap"] = 5.0
                file[f"sequences/{name}"].attrs["prompt_tokens"] = 40
            layer = kb.open_dump(path)[name][0]
            self.assertIsNone(layer.out)
            self.assertIsNone(layer.rope)
            self.assertEqual((layer.window, layer.softcap, layer.prompt_tokens), (16, 5.0, 40))
            got = kb.replay(layer, "exact", prompt="dump")
            self.assertEqual(got.record["key"]["prompt_tokens"], 40)
            self.assertEqual(len(got.tokens(63)), 16)

    def test_unknown_names_are_key_errors_and_bad_files_errors(self):
        dump = kb.open_dump(DUMP)
        with self.assertRaises(KeyError):
            dump["other"]
        with self.assertRaises(KeyError):
            dump["constitution"][2]
        for path in ("none.h5", __file__):
            with self.assertRaises(kb.Error) as raised:
                kb.open_dump(path)
            self.assertIn(path, str(raised.exception))

    def test_a_dump_that_changed_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "made.h5")
            path.write_bytes(DUMP.read_bytes())
            layer = kb.open_dump(path)["constitution"][0]
            with path.open("ab") as file:
                file.write(b"more")
            with self.assertRaises(kb.Error):
                _ = layer.k


if __name__ == "__main__":
    unittest.main()
