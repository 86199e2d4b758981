"""The meaning of a cache file's rows when decoded rows read them, in worked cases: two query heads,
a prompt of 4 tokens, 3 decoded rows."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from loop.loop_caches import HeadReads, Span, Unsuitable, head_reads

P, N = 4, 7
K, V = np.arange(8.0).reshape(4, 2), 10 + np.arange(12.0).reshape(4, 3)


class Reads(unittest.TestCase):
    def reads(self, window: int = 0, heads: int = 2, decode: str = "append",
              **columns: object) -> HeadReads:
        with tempfile.TemporaryDirectory() as folder, h5py.File(Path(folder) / "c.h5", "w") as file:
            group = file.create_group("head")
            group.attrs["decode"] = decode
            for name, column in columns.items():
                group[name] = np.asarray(column)
            return head_reads(group, Span(P, N, window), heads, K, V)

    def table(self, **more: object) -> list:
        return self.reads(**more).weight[0].tolist()

    def test_tokens_and_the_decoded_ones(self):
        self.assertEqual(self.table(token=[2, 0]), [[1, 0, 1, 0, 1, 0, 0],
                                                    [1, 0, 1, 0, 1, 1, 0],
                                                    [1, 0, 1, 0, 1, 1, 1]])

    def test_weights_add_up(self):
        rows = self.table(token=[1, 1, 3], weight=[0.5, 1.25, 3.0])
        self.assertEqual(rows[0], [0, 1.75, 0, 3, 1, 0, 0])

    def test_lifetimes_and_given_decoding(self):
        rows = self.table(decode="given", token=[1, 4, 5, 6], begin=[4, 4, 5, 6], end=[6, 5, 7, 7])
        self.assertEqual(rows, [[0, 1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1, 1]])

    def test_a_token_of_the_future_counts_from_its_own_row(self):
        rows = self.table(decode="given", token=[0, 6])
        self.assertEqual([row[6] for row in rows], [0, 0, 1])

    def test_a_query_head_of_its_own(self):
        read = self.reads(token=[0, 1, 2], head=[0, 1, -1])
        self.assertEqual(read.weight[:, 0].tolist(), [[1, 0, 1, 0, 1, 0, 0], [0, 1, 1, 0, 1, 0, 0]])

    def test_tokens_leave_the_sliding_window(self):
        rows = self.table(window=3, token=[0, 2, 3])
        self.assertEqual(rows, [[0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1]])

    def test_vectors_of_its_own_are_entries_besides_the_tokens(self):
        read = self.reads(token=[3, -1], value=[[1.0, 2, 3], [4, 5, 6]], key=[[7.0, 8], [9, 10]],
                          weight=[1.0, 2.0])
        self.assertEqual(read.weight[1].tolist()[1], [0, 0, 0, 0, 1, 1, 0, 1, 2])
        self.assertEqual(read.key.tolist(), [[7, 8], [9, 10]])
        only_values = self.reads(token=[3, 1], value=[[1.0, 2, 3], [4, 5, 6]])
        self.assertEqual(only_values.key.tolist(), K[[3, 1]].tolist())
        self.assertEqual(only_values.value.tolist(), [[1, 2, 3], [4, 5, 6]])

    def test_rows_of_their_own_stay_in_the_window_unless_they_are_tokens(self):
        read = self.reads(window=2, token=[3, -1], key=np.ones((2, 2)), value=np.ones((2, 3)))
        self.assertEqual(read.weight[0, :, 7:].tolist(), [[1, 1], [0, 1], [0, 1]])

    def test_what_a_mask_cannot_say_is_refused(self):
        for columns, words in (
            ({"token": [0], "weight_numerator": [1.0], "weight_denominator": [2.0]}, "numerator"),
            ({"token": [5], "begin": [5], "value": np.ones((1, 3))}, "while it decodes"),
            ({"token": [0], "begin": [5], "value": np.ones((1, 3))}, "while it decodes"),
            ({"token": [0], "end": [5], "decode": "given"}, "reads nothing"),
        ):
            with self.subTest(words), self.assertRaisesRegex(Unsuitable, words):
                self.reads(**columns)

    def test_equal_weights_by_two_names_are_weights(self):
        self.assertEqual(self.table(token=[1], weight_numerator=[2.0], weight_denominator=[2.0])[0],
                         [0, 2, 0, 0, 1, 0, 0])


if __name__ == "__main__":
    unittest.main()
