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
