"""data/key_offset.py: the offset of keys is found, and planted, by the definition of RoPE in complex numbers."""

import contextlib
import csv
import io
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

import key_offset

TOKENS, D, HEADS = 96, 8, 2
FREQUENCIES = 0.5 ** np.arange(D // 2)


def rotated(vectors, layout):
    """Pairs as complex numbers times exp(i position frequency)."""
    pairs = (vectors[..., :D // 2], vectors[..., D // 2:]) if layout == "half" else (vectors[..., ::2], vectors[..., 1::2])
    turned = (pairs[0] + 1j * pairs[1]) * np.exp(1j * np.arange(TOKENS)[:, None] * FREQUENCIES)
    out = np.empty(np.broadcast_shapes(vectors.shape, (TOKENS, D)))
    if layout == "half":
        out[..., :D // 2], out[..., D // 2:] = turned.real, turned.imag
    else:
        out[..., ::2], out[..., 1::2] = turned.real, turned.imag
    return out


class KeyOffset(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.rng = np.random.default_rng(3)

    def dump(self, name, offset, layout="half"):
        """Centred noise, so that the mean before RoPE is the offset itself."""
        noise = self.rng.normal(size=(HEADS, TOKENS, D))
        noise -= noise.mean(axis=1, keepdims=True)
        keys = rotated(noise + offset[:, None], layout)
        with h5py.File(self.folder / name, "w") as dump:
            dump["rope/inv_freq"] = FREQUENCIES
            dump["rope"].attrs["layout"] = layout
            layer = dump.create_group("sequences/text/layers/3")
            layer["k"], layer["out"] = keys, np.zeros(4)
        return noise

    def test_the_offset_and_what_is_left_are_measured(self):
        for layout in ("half", "interleaved"):
            offset = 50 * self.rng.normal(size=(HEADS, D))
            noise = self.dump("a.h5", offset, layout)
            out = self.folder / "offsets.csv"
            self.assertEqual(key_offset.main(["measure", str(self.folder / "a.h5"), "--prompt", str(TOKENS),
                                              "--out", str(out)]), 0)
            with out.open() as file:
                rows = list(csv.DictReader(file))
            self.assertEqual([(row["layer"], row["kv_head"]) for row in rows], [("3", "0"), ("3", "1")])
            for row, of_head, rest in zip(rows, offset, noise):
                self.assertAlmostEqual(float(row["offset"]) / np.linalg.norm(of_head), 1, places=5)
                self.assertAlmostEqual(float(row["rest"]) / np.sqrt((rest**2).sum(axis=1).mean()), 1, places=5)
                # A block of 8 channels: a step is the largest size over 8, its error that over the root of 12.
                alone = rotated(of_head[None], layout)
                step = np.sqrt((np.abs(alone).max(axis=1) ** 2).mean()) / 8
                self.assertAlmostEqual(float(row["q4_0"]) * float(row["key"]) / (step * np.sqrt(D / 12)), 1, places=4)

    def test_bfloat16_is_read_in_either_byte_order(self):
        offset = 50 * self.rng.normal(size=(HEADS, D))
        self.dump("a.h5", offset)
        for order in "<>":
            with h5py.File(self.folder / "a.h5", "r+") as dump:
                layer = dump["sequences/text/layers/3"]
                if order == "<":
                    bits = (layer["k"][:].astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
                del layer["k"]
                layer["k"] = bits.astype(f"{order}u2")
                layer["k"].attrs["dtype"] = "bfloat16"
            out = self.folder / "offsets.csv"
            self.assertEqual(key_offset.main(["measure", str(self.folder / "a.h5"), "--prompt", str(TOKENS),
                                              "--out", str(out)]), 0)
            with out.open() as file:
                for row, of_head in zip(csv.DictReader(file), offset):
                    self.assertAlmostEqual(float(row["offset"]) / np.linalg.norm(of_head), 1, delta=0.01)

    def test_an_offset_is_planted_before_and_after_rope(self):
        offset = 50 * self.rng.normal(size=(HEADS, D))
        self.dump("a.h5", offset)
        self.dump("b.h5", np.zeros((HEADS, D)))
        with h5py.File(self.folder / "b.h5") as dump:
            keys = dump["sequences/text/layers/3/k"][:]
        for rope, added in (("before", rotated(offset[:, None], "half")), ("after", offset[:, None])):
            out = self.folder / f"{rope}.h5"
            self.assertEqual(key_offset.main(["plant", str(self.folder / "b.h5"), "--from", str(self.folder / "a.h5"),
                                              "--layer", "3", "--prompt", str(TOKENS), "--rope", rope,
                                              "--out", str(out)]), 0)
            with h5py.File(out) as dump:
                layer = dump["sequences/text/layers/3"]
                self.assertNotIn("out", layer)
                np.testing.assert_allclose(layer["k"][:], keys + added, rtol=1e-6, atol=1e-5)

    def called(self, *arguments):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            code = key_offset.main(list(map(str, arguments)))
        return code, said.getvalue()

    def test_what_cannot_be_measured_or_planted_is_refused_and_leaves_no_file(self):
        self.dump("a.h5", self.rng.normal(size=(HEADS, D)))
        with h5py.File(self.folder / "a.h5", "a") as dump:
            dump["sequences/text/layers"].create_group("4").attrs["kv_layer"] = 3
        a, out = self.folder / "a.h5", self.folder / "out"
        plant = ("plant", a, "--prompt", 9, "--from", a)
        for words, arguments in (
                ("expected 1 to 96", ("measure", a, "--prompt", 97)),
                ("expected 1 to 96", ("measure", a, "--prompt", 0)),
                ("No such file", ("measure", self.folder / "none.h5")),
                ("has keys in layers 3", (*plant, "--layer", 4)),
                ("has keys in layers 3", (*plant, "--layer", 9))):
            code, said = self.called(*arguments, "--out", out)
            self.assertEqual((code, out.exists()), (2, False), said)
            self.assertIn(words, said)
        code, said = self.called(*plant, "--layer", 3, "--out", a)
        self.assertEqual(code, 2)
        self.assertIn("choose another", said)
        self.assertEqual(self.called(*plant, "--layer", 3, "--out", out), (0, ""))
        with h5py.File(a, "a") as dump:
            dump["sequences/text/layers/3"].attrs["value_in_key"] = 4
        out.unlink()
        code, said = self.called(*plant, "--layer", 3, "--out", out)
        self.assertEqual((code, sorted(path.name for path in self.folder.iterdir())), (2, ["a.h5"]))

    def test_widths_without_whole_blocks_have_no_error_of_them(self):
        with h5py.File(self.folder / "80.h5", "w") as dump:
            dump["rope/inv_freq"], dump["rope"].attrs["layout"] = np.ones(40), "half"
            dump["sequences/text/layers/0/k"] = self.rng.normal(size=(1, 20, 80))
        out = self.folder / "80.csv"
        self.assertEqual(self.called("measure", self.folder / "80.h5", "--prompt", 9, "--out", out)[0], 0)
        row, = csv.DictReader(out.read_text().splitlines())
        self.assertEqual((row["q4_0"], row["q8_0"]), ("", ""))
        self.assertGreater(float(row["token"]), 0)

    def test_a_dump_without_rope_is_refused(self):
        self.dump("a.h5", np.zeros((HEADS, D)))
        with h5py.File(self.folder / "a.h5", "r+") as dump:
            del dump["rope"]
        self.assertEqual(key_offset.main(["measure", str(self.folder / "a.h5"), "--out", str(self.folder / "o")]), 2)


if __name__ == "__main__":
    unittest.main()
