"""kb.Cache writes files of the format kvbench-cache, version 1."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

import kvbench as kb

HEAD = {"sequence": "s", "layer": 3, "head": 1, "prompt_tokens": 100, "method": "mine"}


class Caches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name, "mine.h5")

    def test_the_file_is_what_the_format_says(self):
        key, value = np.ones((3, 4), np.float16), np.zeros((3, 2))
        kb.Cache([5, 7, -1], weight_numerator=[1, 2, -3.5], weight_denominator=[1, 2, 0], key=key,
                 value=value, begin=[100, 101, 102], end=[101, 120, 120], head=[-1, 0, 1]).save(
            self.path, **HEAD, params={"b": 1, "a": 2}, decode="given", key_bytes=10, extra_bytes=3,
            reads_future=True)
        kb.Cache(np.arange(4), weight=[1, 1, 2, 2]).save(self.path, **{**HEAD, "head": 0})
        with h5py.File(self.path) as file:
            self.assertEqual((file.attrs["format"], file.attrs["format_version"], file.attrs["method"]),
                             ("kvbench-cache", 1, "mine"))
            self.assertEqual(file.attrs["params"], '{"a": 2, "b": 1}')
            group = file["sequences/s/layers/3/heads/1"]
            self.assertEqual(group.attrs["prompt_tokens"], 100)
            self.assertEqual((group.attrs["decode"], group.attrs["key_bytes"],
                              group.attrs["extra_bytes"], group.attrs["reads_future"]),
                             ("given", 10, 3, 1))
            self.assertNotIn("value_bytes", group.attrs)
            for name, expected in (("token", [5, 7, -1]), ("begin", [100, 101, 102]),
                                   ("end", [101, 120, 120]), ("head", [-1, 0, 1])):
                self.assertEqual((group[name].dtype, group[name][...].tolist()), (np.int32, expected))
            self.assertEqual(group["weight_numerator"][...].tolist(), [1.0, 2.0, -3.5])
            self.assertEqual(group["weight_denominator"][...].tolist(), [1.0, 2.0, 0.0])
            self.assertEqual((group["key"].dtype, group["key"].shape), (np.float16, (3, 4)))
            self.assertEqual((group["value"].dtype, group["value"].shape), (np.float64, (3, 2)))
            self.assertEqual(sorted(file["sequences/s/layers/3/heads/0"]), ["token", "weight"])

    def test_whole_numbers_may_be_floats(self):
        kb.Cache(np.array([5.0, 7.0]), end=[110.0, 120.0]).save(self.path, **HEAD)
        with h5py.File(self.path) as file:
            self.assertEqual(file["sequences/s/layers/3/heads/1/token"][:].tolist(), [5, 7])
            self.assertEqual(file["sequences/s/layers/3/heads/1/token"].dtype.kind, "i")

    def test_a_head_is_written_once_unless_it_is_replaced(self):
        cache = kb.Cache([1, 2])
        cache.save(self.path, **HEAD)
        with self.assertRaisesRegex(kb.Error, "heads/1.*replace"):
            cache.save(self.path, **HEAD)
        kb.Cache([1, 2, 3]).save(self.path, **HEAD, replace=True)
        with h5py.File(self.path) as file:
            self.assertEqual(len(file["sequences/s/layers/3/heads/1/token"]), 3)
        with self.assertRaisesRegex(kb.Error, "method"):
            cache.save(self.path, **{**HEAD, "method": "another"})

    def test_no_file_of_another_kind_is_changed(self):
        with h5py.File(self.path, "w") as file:
            file.attrs["format"] = "kvbench-dump"
        before = self.path.read_bytes()
        with self.assertRaisesRegex(kb.Error, "kvbench-dump"):
            kb.Cache([1]).save(self.path, **HEAD)
        with h5py.File(self.path) as file:
            self.assertEqual(list(file), [])
        self.assertEqual(len(before), self.path.stat().st_size)

    def test_what_cannot_be_a_cache_is_refused(self):
        vectors = np.ones((2, 4))
        for words, token, columns in (
                ("weight: .*\\[2\\]", [1, 2], {"weight": [1.0]}),
                ("weight_denominator: must", [1, 2], {"weight_numerator": [1.0, 1.0],
                                                       "weight_denominator": [1.0, -1.0]}),
                ("weight: must not", [1, 2], {"weight": [1.0, -1.0]}),
                ("weight.*finite", [1, 2], {"weight": [1.0, np.nan]}),
                ("weight", [1, 2], {"weight": [1.0, 1.0], "weight_numerator": [1.0, 1.0]}),
                ("alone", [1, 2], {"weight_numerator": [1.0, 1.0]}),
                ("key: is missing", [1, -1], {"value": vectors}),
                ("value: is missing", [1, -1], {"key": vectors}),
                ("key.*finite", [1, 2], {"key": vectors * np.inf}),
                ("key.*columns", [1, 2], {"key": vectors[0]}),
                ("key.*float", [1, 2], {"key": vectors.astype(int)}),
                ("end.*row 1", [1, 2], {"begin": [5, 6], "end": [6, 5]}),
                ("token.*integers", [1.5, 2], {}),
                ("token.*-1", [1, -2], {}),
                ("token.*32 bits", [2**31], {}),
                ("head", [1], {"head": [-2]})):
            with self.subTest(words=words), self.assertRaisesRegex(kb.Error, words):
                kb.Cache(token, **columns)
        for words, change in (("decode", {"decode": "none"}), ("layer", {"layer": -1}),
                              ("sequence", {"sequence": "a/b"}),
                              ("prompt_tokens", {"prompt_tokens": None}),
                              ("head", {"head": "0"}), ("key_bytes", {"key_bytes": 10.5}),
                              ("extra_bytes", {"extra_bytes": -1}),
                              ("already", {"prompt_tokens": 1})):
            with self.subTest(words=words), self.assertRaisesRegex(kb.Error, words):
                kb.Cache([1]).save(self.path, **{**HEAD, **change})
        self.assertFalse(self.path.exists())

    def test_without_h5py_saving_says_so(self):
        script = ("import sys; sys.modules['h5py'] = None\nimport kvbench as kb\n"
                  f"kb.Cache([1]).save({str(self.path)!r}, **{HEAD!r})")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                              check=False)
        self.assertIn("ImportError: Cache.save needs h5py", done.stderr)


if __name__ == "__main__":
    unittest.main()
