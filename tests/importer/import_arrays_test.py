"""data/import_arrays.py without torch: what it writes the program reads, and what it cannot write it
refuses with a sentence and exit code 2. tests/exporter has the rest, with torch."""

import contextlib
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

import h5py
import numpy as np

import import_arrays

PROGRAM = os.environ["KVBENCH_PROGRAM"]
DATA = Path(import_arrays.__file__).resolve().parent
N, D, DV = 64, 16, 6


def tensors(seed=3):
    rng = np.random.default_rng(seed)
    return {"q": rng.standard_normal((4, N, D)).astype(np.float32),
            "k": rng.standard_normal((2, N, D)).astype(np.float32),
            "v": rng.standard_normal((2, N, DV)).astype(np.float32)}


def npy_header(shape, dtype="<f4"):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        out, {"descr": dtype, "fortran_order": False, "shape": shape})
    return out.getvalue()


def safetensors(arrays, header_changes=None):
    """Bytes of a .safetensors; arrays are (name of type, array)."""
    header, at, bodies = {"__metadata__": {"by": "a test"}}, 0, []
    for name, (dtype, array) in arrays.items():
        body = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [at, at + len(body)]}
        at += len(body)
        bodies.append(body)
    for name, change in (header_changes or {}).items():
        header[name].update(change)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(bodies)


def of_floats(header_changes=None, dtype="F32"):
    return safetensors({name: (dtype, array) for name, array in tensors().items()}, header_changes)


class Importer(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)
        self.out = self.folder / "out.h5"

    def npz(self, **arrays):
        np.savez(self.folder / "in.npz", **arrays)
        return self.folder / "in.npz"

    def given(self, name, data):
        (self.folder / name).write_bytes(data)
        return self.folder / name

    def call(self, *files, options=(), scale=0.25):
        said = io.StringIO()
        arguments = [*files, "--model", "mine", f"--scale={scale}", "--out", self.out, *options]
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                code = import_arrays.main(list(map(str, arguments)))
            except SystemExit as left:
                code = left.code
        return code, said.getvalue()

    def refused(self, *files, words, **how):
        code, said = self.call(*files, **how)
        self.assertEqual(code, 2, said)
        for word in words:
            self.assertIn(word, said)
        self.assertNotIn("Traceback", said)
        self.assertFalse(self.out.exists())

    def taken(self, *files, **how):
        """The dump, which the program reads."""
        code, said = self.call(*files, **how)
        self.assertEqual(code, 0, said)
        done = subprocess.run([PROGRAM, "inspect", "--quiet", self.out], capture_output=True,
                              text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.out


class Options(Importer):
    def test_what_the_program_would_refuse_is_refused(self):
        file = self.npz(**tensors())
        for scale in ("nan", "inf", "-inf", "0", "-1", "1e999", "much"):
            self.refused(file, scale=scale, words=["--scale", "expected", "above 0", scale])
        rope = ("--rope-layout", "half")
        theta = ("--rope-theta", 100)
        for options, words in (
                (("--logit-softcap", "nan"), ["--logit-softcap", "finite", "got nan"]),
                (("--logit-softcap", "-1"), ["--logit-softcap", "at least 0"]),
                (("--layer", "-1"), ["--layer", "got -1"]),
                (("--layer", "3", "--n-layers", "2"), ["--n-layers 2", "layer 3", "at least 4"]),
                (("--n-layers", "0"), ["--n-layers", "from 1", "got 0"]),
                (("--n-layers", "0", "--layer", "-1"), ["expected"]),
                (("--n-layers", 2 ** 31), ["--n-layers"]),
                (("--rope-theta", "0", "--rope-dims", 4, *rope), ["--rope-theta", "above 0"]),
                ((*theta, "--rope-dims", 200, *rope), ["200 dimensions", "d = 16"]),
                ((*theta, "--rope-dims", 15, *rope), ["--rope-dims", "even", "got 15"]),
                ((*theta, "--rope-dims", 0, *rope), ["--rope-dims", "got 0"]),
                ((*theta, "--rope-dims", 4, *rope, "--rope-attention-scaling", "nan"),
                 ["--rope-attention-scaling"]),
                (("--prompt-tokens", 640), ["--prompt-tokens 640", "64 tokens"]),
                (("--prompt-tokens", -1), ["--prompt-tokens", "got -1"]),
                (("--sliding-window", "0=5,7=1"), ["--sliding-window", "no layer 7"]),
                (("--sliding-window", "1=5"), ["no layer 1"]),
                (("--sliding-window", "0=5,0=6"), ["layer 0 is given twice"]),
                (("--sliding-window", str(2 ** 63)), ["--sliding-window", "from 0 to"]),
                (("--sliding-window", "²"), ["--sliding-window", "expected an integer"]),
                (("--compression", "99"), ["--compression", "from 0 to 9", "got 99"]),
                (("--tolerance", "nan"), ["--tolerance"])):
            with self.subTest(options=options):
                self.refused(file, options=options, words=words)

    def test_a_layer_of_a_name_that_the_options_contradict(self):
        file = self.npz(**{f"7/{name}": array for name, array in tensors().items()})
        self.refused(file, options=("--n-layers", 7), words=["layer 7", "at least 8"])
        self.refused(file, options=("--sliding-window", "0=5"), words=["no layer 0", "have layer 7"])
        file = self.npz(**{f"99999999999/{name}": array for name, array in tensors().items()})
        self.refused(file, words=["99999999999/q", "at most"])

    def test_the_edges_are_taken(self):
        file = self.npz(**tensors())
        dump = self.taken(file, options=(
            "--layer", 3, "--n-layers", 4, "--rope-theta", 100, "--rope-dims", D, "--rope-layout",
            "half", "--prompt-tokens", N, "--sliding-window", "3=1", "--compression", 9))
        with h5py.File(dump) as held:
            self.assertEqual(held["sequences/0"].attrs["prompt_tokens"], N)
            self.assertEqual(held["sequences/0/layers/3"].attrs["sliding_window"], 1)
        self.out.unlink()
        with h5py.File(self.taken(file, options=("--prompt-tokens", 0))) as held:
            self.assertEqual(held["sequences/0"].attrs["prompt_tokens"], 0)

    def test_places_that_cannot_be_written(self):
        file = self.npz(**tensors())
        self.out = self.folder / "none" / "x.h5"
        self.refused(file, words=["--out", "no folder", "none"])
        self.out = self.folder / "folder.h5"
        self.out.mkdir()
        code, said = self.call(file, options=("--fresh",))
        self.assertEqual(code, 2)
        self.assertIn("is a folder", said)
        self.out = Path("/proc/x.h5")
        self.refused(file, words=["cannot write /proc/x.h5"])
        self.out = self.folder / "full.h5"
        with mock.patch("shutil.disk_usage", lambda _: mock.Mock(free=2**20)):  # HDF5 would crash there
            self.refused(file, words=["full.unfinished: 1 MiB are free on its disk", "choose another place"])

    def test_a_file_of_another_kind_is_not_replaced(self):
        file = self.npz(**tensors())
        self.out = self.folder / "results.json"
        self.out.write_text("{}")
        code, said = self.call(file, options=("--fresh",))
        self.assertEqual(code, 2)
        self.assertIn("is not an HDF5 file and would be replaced", said)
        self.assertEqual(self.out.read_text(), "{}")
        self.out.write_text("")
        self.taken(file, options=("--fresh",))

    def test_what_kvbench_would_not_read_for_its_compression(self):
        zeros = {name: np.zeros((1, 2**15, 64), np.float32) for name in ("q", "k", "v")}
        file = self.npz(**zeros)
        self.refused(file, words=["/sequences/0/layers/0/", "8388608 bytes are compressed to",
                                  "--compression 0"])
        self.taken(file, options=("--compression", 0))


class Files(Importer):
    def test_one_array_per_npy(self):
        given = tensors()
        files = []
        for name, array in given.items():
            np.save(self.folder / f"{name}.npy", array)
            files.append(self.folder / f"{name}.npy")
        with h5py.File(self.taken(*files)) as dump:
            for name, array in given.items():
                np.testing.assert_array_equal(dump[f"sequences/0/layers/0/{name}"], array)

    def test_safetensors_without_torch(self):
        # bfloat16 by its bits: 1.5 is 0x3FC0, -2 is 0xC000.
        given = tensors()
        bits = np.where(given["v"] > 0, np.uint16(0x3FC0), np.uint16(0xC000))
        file = self.given("in.safetensors", safetensors({
            "q": ("F32", given["q"]), "k": ("F32", given["k"]), "v": ("BF16", bits)}))
        before = set(sys.modules)
        with h5py.File(self.taken(file)) as dump:
            layer = dump["sequences/0/layers/0"]
            np.testing.assert_array_equal(layer["k"], given["k"])
            np.testing.assert_array_equal(layer["v"], np.where(given["v"] > 0, 1.5, -2.0))
        self.assertEqual({"torch", "safetensors"} & (set(sys.modules) - before), set())
        self.out.unlink()
        all_bits = {name: ("BF16", np.where(array > 0, np.uint16(0x3FC0), np.uint16(0xC000)))
                    for name, array in given.items()}
        file = self.given("in.safetensors", safetensors(all_bits))
        with h5py.File(self.taken(file)) as dump:
            stored = dump["sequences/0/layers/0/v"]
            self.assertEqual(stored.attrs["dtype"], "bfloat16")
            np.testing.assert_array_equal(stored, bits)

    def test_more_heads_than_a_dump_has(self):
        many = {name: np.ones((8193, 2, 1), np.float32) for name in "qkv"}
        self.refused(self.npz(**many), words=["layers/0: q", "8193 heads", "at most 8192"])

    def test_arrays_that_are_not_numbers(self):
        objects = np.empty((4, N, D), object)
        self.refused(self.npz(**{**tensors(), "q": objects}), words=["in.npz: q", "Python objects"])
        self.refused(self.npz(**{**tensors(), "q": np.zeros((4, N, D), "U3")}),
                     words=["floating-point"])
        np.save(self.folder / "q.npy", objects)
        self.refused(self.folder / "q.npy", words=["q.npy", "Python objects"])

    def test_sizes_that_a_file_cannot_have_are_found_before_memory_is_asked_for(self):
        giant = npy_header((4, 2 ** 31, 2 ** 10))  # 32 TiB
        with zipfile.ZipFile(self.folder / "in.npz", "w") as file:
            file.writestr("q.npy", giant + bytes(64))
            for name in ("k", "v"):
                file.writestr(f"{name}.npy", npy_header((1, 1, 1)) + bytes(4))
        self.refused(self.folder / "in.npz", words=["in.npz: q", "64 bytes follow", "damaged"])
        self.refused(self.given("q.npy", giant), words=["q.npy", "0 bytes follow", "damaged"])
        whole = of_floats({"q": {"shape": [4, 2 ** 31, 2 ** 10]}})
        self.refused(self.given("in.safetensors", whole), words=["in.safetensors: q", "damaged"])

    def test_a_zip_that_says_more_than_its_bytes_can_hold(self):
        path = self.npz(**tensors())
        data = bytearray(path.read_bytes())
        at = data.index(b"PK\x01\x02")  # the directory's entry of the first array
        data[at + 24:at + 28] = struct.pack("<I", 2 ** 31)
        self.refused(self.given("in.npz", bytes(data)), words=["in.npz: q", "cannot hold"])

    def test_damaged_files_have_sentences(self):
        made = of_floats()
        for name, data in (
                ("a.safetensors", made[:100]), ("b.safetensors", made[:-4]), ("c.safetensors", b""),
                ("d.safetensors", struct.pack("<Q", 2 ** 62) + made[8:]),
                ("e.safetensors", struct.pack("<Q", 2) + b"[]"),
                ("f.safetensors", of_floats(dtype="F8_E4M3")),
                ("g.safetensors", of_floats({"q": {"data_offsets": [-8, 16376]}})),
                ("h.safetensors", of_floats({"q": {"shape": 5}})),
                ("i.npz", b""), ("j.npy", b"nothing"), ("q.npy", npy_header((4, 2, 2))[:20]),
                ("k.npz", self.npz(**tensors()).read_bytes()[:-30]), ("l.txt", b"")):
            with self.subTest(name=name):
                self.refused(self.given(name, data), words=[name])

    def test_token_ids_are_integers_of_32_bits(self):
        for ids in (np.full(N, 2 ** 40), np.full(N, 0.5)):
            self.refused(self.npz(**tensors(), token_ids=ids), words=["token_ids", "32 bits"])

    def test_inv_freq_is_a_row_of_finite_numbers(self):
        options = ("--rope-theta", 100, "--rope-layout", "half")
        for array in (np.ones((2, 2)), np.array([1.0, np.nan]), np.arange(3), np.ones(0)):
            self.refused(self.npz(**tensors(), inv_freq=array), options=options,
                         words=["inv_freq", "expected"])
        self.refused(self.npz(**tensors(), inv_freq=np.ones(D)), options=options,
                     words=["32 dimensions", "d = 16"])


class Members(Importer):
    """Members that dumps of format 2 add, and members that may be in either format."""

    def attention(self, arrays, sinks=None, slopes=None, causal=True, chunk=0):
        """The model's outputs by the format's own words, query by query."""
        q, k, v = (arrays[name].astype(np.float64) for name in ("q", "k", "v"))
        out = np.empty((4, N, v.shape[2]))
        for head in range(4):
            for i in range(N):
                seen = [j for j in range(N) if (j <= i or not causal)
                        and (chunk == 0 or j // chunk == i // chunk)]
                x = 0.25 * k[head // 2, seen] @ q[head, i]
                if slopes is not None:
                    x -= slopes[head] * (i - np.array(seen))
                e = np.exp(x)
                total = e.sum() + (0 if sinks is None else np.exp(sinks[head]))
                out[head, i] = e @ v[head // 2, seen] / total
        return out

    def check(self, arrays, out, *, options=(), version=2, **further):
        file = self.npz(**arrays, out=out.astype(np.float32), **further)
        dump = self.taken(file, options=(*options, "--fresh"))
        done = subprocess.run([PROGRAM, "validate", dump], capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(dump) as written:
            self.assertEqual(written.attrs["format_version"], version)
        return dump

    def test_each_member_is_proved_by_the_outputs(self):
        arrays = tensors()
        sinks = np.array([-1.0, 0.5, 2.0, 3.0], np.float32)
        slopes = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
        self.check(arrays, self.attention(arrays), version=1)
        self.check(arrays, self.attention(arrays, sinks=sinks), sinks=sinks)
        self.check(arrays, self.attention(arrays, slopes=slopes), alibi_slopes=slopes)
        self.check(arrays, self.attention(arrays, causal=False), options=["--every-token"])
        self.check(arrays, self.attention(arrays, chunk=20), options=["--chunk", 20])
        latent = {"q": arrays["q"], "k": arrays["k"], "v": arrays["k"][:, :, :DV]}
        out = self.attention(latent)
        del latent["v"]
        self.check(latent, out, options=["--value-in-key", DV])

    def test_outputs_of_another_mask_are_refused(self):
        arrays = tensors()
        wrong = self.npz(**arrays, out=self.attention(arrays).astype(np.float32),
                         sinks=np.ones(4, np.float32))
        self.refused(wrong, words=["differs", "from out"])
        self.refused(wrong, options=["--chunk", 20], words=["differs", "from out"])

    def test_what_is_measured_besides_is_of_either_format(self):
        bias = np.arange(2 * D, dtype=np.float32).reshape(2, D)
        dump = self.taken(self.npz(**tensors(), wo=np.ones((4, DV, 9), np.float32),
                                   residual_norm=np.ones(7, np.float32), key_bias=bias))
        with h5py.File(dump) as written:
            self.assertEqual(written.attrs["format_version"], 1)
            layer = written["sequences/0/layers/0"]
            self.assertEqual(layer["wo"].shape, (4, DV, 9))
            self.assertEqual(layer["residual_norm"].shape, (7,))
            np.testing.assert_array_equal(layer["key_bias"], bias)

    def test_wrong_members_are_refused(self):
        ones = np.ones(4, np.float32)
        for further, options, words in (
                ({"sinks": ones[:3]}, (), ["sinks [3]", "[4]"]),
                ({"sinks": np.ones((2, 2), np.float32)}, (), ["sinks", "[Hq]"]),
                ({"wo": np.ones((8, 4 * DV), np.float32)}, (), ["W.T.reshape(Hq, dv, hidden)"]),
                ({"sinks": np.array([1, np.nan, 1, 1], np.float32)}, (), ["sinks", "finite"]),
                ({"alibi_slopes": -ones}, (), ["alibi_slopes", "at least 0"]),
                ({"wo": np.ones((4, DV + 1, 2), np.float32)}, (), ["wo", f"[4, {DV}]"]),
                ({"residual_norm": np.ones(N + 1, np.float32)}, (), ["residual_norm", "64 tokens"]),
                ({"key_bias": np.ones((4, D), np.float32)}, (), ["key_bias", f"[2, {D}]"]),
                ({"alibi_slopes": ones}, ("--every-token",), ["--every-token", "alibi_slopes"]),
                ({}, ("--every-token", "--chunk", 8), ["--every-token", "--chunk"]),
                ({}, ("--chunk", 8, "--sliding-window", 8), ["--chunk", "--sliding-window"]),
                ({}, ("--chunk", "3=8"), ["--chunk", "no layer 3"]),
                ({}, ("--value-in-key", 4), ["--value-in-key", "array v"])):
            with self.subTest(words=words):
                self.refused(self.npz(**tensors(), **further), options=options, words=words)
        keys = {name: array for name, array in tensors().items() if name != "v"}
        self.refused(self.npz(**keys), options=("--value-in-key", D + 1), words=["--value-in-key"])


if __name__ == "__main__":
    unittest.main()
