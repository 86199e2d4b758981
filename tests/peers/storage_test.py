"""Codecs next to other people's code: torch's and ml_dtypes' casts, the gguf package, transformers',
hqq's and optimum-quanto's quantisers, on made-up and on real tensors, through kvbench-encode."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import unittest
from pathlib import Path
from unittest import mock

import gguf
import ml_dtypes
import numpy as np
import torch
from hqq.core.quantize import Quantizer
from optimum.quanto import AbsmaxOptimizer, MaxOptimizer, qint2, qint4, qint8, quantize_weight
from transformers.cache_utils import Fp8QuantizedLayer, HQQQuantizedLayer

from compared import KV_HEADS, LAYERS, tensors

ENCODE = Path(os.environ["KVBENCH_PROGRAM"]).with_name("kvbench-encode")


def run(codec: str, x: np.ndarray, parameters: dict, options: tuple) -> subprocess.CompletedProcess:
    x = np.ascontiguousarray(x, np.float64)
    return subprocess.run([ENCODE, codec, json.dumps(parameters), str(x.shape[-1]), *options],
                          input=x.tobytes(), capture_output=True, check=False)


def encoded(codec: str, x: np.ndarray, *options: str, **parameters: object) -> np.ndarray:
    """The bytes of vectors x [n, d], a row per vector."""
    done = run(codec, x, parameters, options)
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode())
    return np.frombuffer(done.stdout, np.uint8).reshape(len(x), -1)


def decoded(codec: str, x: np.ndarray, *options: str, **parameters: object) -> np.ndarray:
    done = run(codec, x, parameters, (*options, "--decode"))
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode())
    return np.frombuffer(done.stdout, np.float64).reshape(x.shape)


def real_vectors() -> np.ndarray:
    """Keys and values of the shipped dump, all layers and KV heads, [n, 64]."""
    return np.concatenate([part for layer in LAYERS for head in range(KV_HEADS)
                           for part in tensors(layer, head)[2:]])


def made_up_vectors() -> np.ndarray:
    """Vectors that are likely to go wrong, [n, 64], as float32 numbers."""
    random = np.random.default_rng(5)
    x = [random.standard_normal((2000, 64)),
         random.standard_normal((600, 64)) * 2.0 ** random.integers(-18, 15, (600, 1)),
         random.standard_t(1, (300, 64)).clip(-6e4, 6e4),
         random.integers(-8, 9, (300, 64)),
         random.integers(-3, 4, (300, 64)) * 0.25,
         np.repeat(random.standard_normal((50, 1)), 64, axis=1),
         np.eye(64), -3 * np.eye(64), np.zeros((2, 64)),
         random.standard_normal((50, 64)) + 1000]
    return np.concatenate(x).astype(np.float32).astype(np.float64)


def all_vectors() -> np.ndarray:
    return np.concatenate([real_vectors(), made_up_vectors()])


class Casts(unittest.TestCase):
    """torch's casts from float32, all numbers of a format and all that lie in the middle of two."""

    FORMATS = (("bf16", torch.bfloat16, torch.int16), ("fp16", torch.float16, torch.int16),
               ("fp8_e4m3", torch.float8_e4m3fn, torch.int8),
               ("fp8_e5m2", torch.float8_e5m2, torch.int8))

    def same(self, codec: str, x: np.ndarray, dtype: torch.dtype) -> None:
        cast = torch.from_numpy(x.astype(np.float32)).to(dtype)
        bits = cast.view(torch.uint8).numpy().reshape(len(x), -1)
        ours = encoded(codec, x[:, None])
        np.testing.assert_array_equal(ours, bits, codec)
        np.testing.assert_array_equal(decoded(codec, x[:, None])[:, 0],
                                      cast.to(torch.float64).numpy(), codec)

    def finite(self, dtype: torch.dtype, integer: torch.dtype) -> np.ndarray:
        info = torch.iinfo(integer)
        every = torch.arange(info.min, info.max + 1).to(integer).view(dtype).to(torch.float64)
        return np.unique(every[torch.isfinite(every)].numpy())

    def test_every_number_is_itself(self):
        for codec, dtype, integer in self.FORMATS:
            x = self.finite(dtype, integer)
            self.assertGreater(len(x), 240 if integer == torch.int8 else 63000)
            self.same(codec, x, dtype)
            np.testing.assert_array_equal(decoded(codec, x[:, None])[:, 0], x)

    def test_rounding_between_two_numbers(self):
        for codec, dtype, integer in self.FORMATS:
            x = self.finite(dtype, integer)
            middle = ((x[:-1] + x[1:]) / 2).astype(np.float32)
            np.testing.assert_array_equal(middle.astype(np.float64), (x[:-1] + x[1:]) / 2)
            for near in (middle, np.nextafter(middle, np.float32(np.inf)),
                         np.nextafter(middle, np.float32(-np.inf))):
                near = near[np.isfinite(near)].astype(np.float64)
                self.same(codec, near, dtype)

    def test_any_float32(self):
        random = np.random.default_rng(1)
        x = random.integers(0, 2**32, 200000, dtype=np.uint32).view(np.float32)
        for codec, dtype, _ in self.FORMATS:
            cast = torch.from_numpy(x).to(dtype).to(torch.float64).numpy()
            self.same(codec, x[np.isfinite(cast) & np.isfinite(x)].astype(np.float64), dtype)

    def test_what_torch_makes_infinite_is_refused(self):
        for codec, number in (("bf16", 3.4e38), ("fp16", 65520.0), ("fp8_e5m2", 61440.0)):
            dtype = next(each[1] for each in self.FORMATS if each[0] == codec)
            self.assertTrue(torch.tensor(number).to(dtype).to(torch.float64).isinf())
            done = run(codec, np.array([[1.0, -number]]), {}, ())
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"is beyond", done.stderr)

    def test_ml_dtypes_agrees(self):
        x = np.random.default_rng(2).standard_normal(100000)
        for codec, dtype in (("bf16", ml_dtypes.bfloat16), ("fp8_e4m3", ml_dtypes.float8_e4m3fn),
                             ("fp8_e5m2", ml_dtypes.float8_e5m2)):
            near = x.astype(np.float32)
            np.testing.assert_array_equal(decoded(codec, near.astype(np.float64)[:, None])[:, 0],
                                          near.astype(dtype).astype(np.float64))


class Fp8Scales(unittest.TestCase):
    """transformers' Fp8QuantizedLayer: a float32 scale of the first tokens, frozen."""

    def test_of_the_prompt(self):
        layer = Fp8QuantizedLayer()
        for vectors in (real_vectors()[:2048], made_up_vectors()):
            prompt = len(vectors) // 2
            x = torch.from_numpy(vectors.astype(np.float32))
            first, scale = layer._quantize(x[:prompt])
            later, _ = layer._quantize(x[prompt:], scale=scale)
            codes = torch.cat([first, later])
            options = (f"--prompt={prompt}",)
            np.testing.assert_array_equal(encoded("fp8_e4m3", vectors, *options, scale="tensor"),
                                          codes.view(torch.uint8).numpy())
            np.testing.assert_array_equal(decoded("fp8_e4m3", vectors, *options, scale="tensor"),
                                          (codes.float() * scale).double().numpy())

    def test_of_a_token(self):
        layer = Fp8QuantizedLayer()
        vectors = all_vectors()[::17]
        ours = encoded("fp8_e4m3", vectors, scale="token")
        for row, x in zip(ours, torch.from_numpy(vectors.astype(np.float32)), strict=True):
            codes, scale = layer._quantize(x)
            self.assertEqual(row[:4].tobytes(), scale.numpy().tobytes())
            np.testing.assert_array_equal(row[4:], codes.view(torch.uint8).numpy())


class Ggml(unittest.TestCase):
    """The gguf package: bytes and what it reads from them."""

    FORMATS = ("q8_0", "q5_0", "q5_1", "q4_0", "q4_1")

    def same(self, x: np.ndarray) -> None:
        for codec in self.FORMATS:
            kind = gguf.GGMLQuantizationType[codec.upper()]
            theirs = gguf.quants.quantize(x.astype(np.float32), kind)
            np.testing.assert_array_equal(encoded(codec, x), theirs, codec)
            np.testing.assert_array_equal(
                decoded(codec, x), gguf.quants.dequantize(theirs, kind).astype(np.float64), codec)

    def test_real_vectors(self):
        self.same(real_vectors())

    def test_made_up_vectors(self):
        self.same(made_up_vectors())

    def test_numbers_that_float32_does_not_hold(self):
        self.same(np.random.default_rng(3).standard_normal((3000, 64)))

    def test_one_vector_of_many_blocks(self):
        self.same(made_up_vectors()[:64].reshape(2, -1))


TIES = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]


def cast(x: np.ndarray, dtype: type) -> np.ndarray:
    """ml_dtypes' cast. It rounds to float32 first, so that numbers next to a tie would become one;
    here they keep their side: rounded to odd."""
    near = x.astype(np.float32)
    below = np.where(np.abs(near) > np.abs(x), np.nextafter(near, np.float32(0)), near)
    odd = (below.view(np.uint32) | 1).view(np.float32)
    return np.where(near == x, near, odd).astype(dtype)


def e2m1(x: np.ndarray) -> np.ndarray:
    return cast(x, ml_dtypes.float4_e2m1fn).view(np.uint8)


def halves(codes: np.ndarray, block: int) -> np.ndarray:
    """Codes [.., d] two a byte: i and i + half of a block."""
    parts = codes.reshape(*codes.shape[:-1], -1, 2, block // 2)
    return parts[..., 0, :] | parts[..., 1, :] << 4


class Micro(unittest.TestCase):
    def test_mxfp4_is_ml_dtypes_cast_of_scaled_numbers(self):
        x = all_vectors()
        blocks = x.reshape(-1, 32)
        size = np.abs(blocks).max(axis=1, keepdims=True)
        exponent = np.where(size > 0, np.frexp(np.where(size > 0, size, 1))[1] - 1 - 2, -127)
        scale = np.exp2(exponent.astype(np.float64)).astype(ml_dtypes.float8_e8m0fnu)
        codes = e2m1((blocks / scale.astype(np.float64)).clip(-6, 6))
        theirs = np.concatenate([scale.view(np.uint8), halves(codes, 32)[:, 0]], axis=1)
        np.testing.assert_array_equal(encoded("mxfp4", x).reshape(-1, 17), theirs)
        values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64) * scale.astype(np.float64)
        np.testing.assert_array_equal(decoded("mxfp4", x).reshape(-1, 32), values)

    def test_mxfp4_is_ggmls_but_for_ties(self):
        x = all_vectors()
        kind = gguf.GGMLQuantizationType.MXFP4
        theirs = gguf.quants.quantize(x.astype(np.float32), kind)
        ours = encoded("mxfp4", x)
        scales = ours.reshape(-1, 17)[:, :1]
        np.testing.assert_array_equal(scales, theirs.reshape(-1, 17)[:, :1])
        relative = np.abs(x.reshape(-1, 32)) / np.exp2(scales - 127.0)
        ties = np.isin(relative, TIES).reshape(x.shape)
        self.assertGreater(ties.sum(), 100)
        a = decoded("mxfp4", x)
        b = gguf.quants.dequantize(theirs, kind).astype(np.float64)
        np.testing.assert_array_equal(a[~ties], b[~ties])
        self.assertFalse((a[ties] == b[ties]).all())
        # The numbers that gguf reads from our bytes are those that we read.
        np.testing.assert_array_equal(gguf.quants.dequantize(ours, kind).astype(np.float64), a)

    def test_mxfp4_has_ggmls_scale_but_just_below_powers_of_two(self):
        kind = gguf.GGMLQuantizationType.MXFP4
        for number, bytes_differ in ((np.nextafter(np.float32(8), np.float32(0)), True),
                                     (np.float32(7.99), False), (np.float32(8), False)):
            x = np.zeros((1, 32), np.float32)
            x[0, 3] = number
            theirs = gguf.quants.quantize(x, kind)
            self.assertEqual((encoded("mxfp4", x) != theirs).any(), bytes_differ)

    def test_nvfp4_is_ml_dtypes_casts(self):
        e4m3 = ml_dtypes.float8_e4m3fn
        x = all_vectors()
        blocks = x.reshape(len(x), -1, 16)
        size = np.abs(blocks).max(axis=2)
        for mode in ("none", "tensor", "token"):
            largest = {"none": np.array([[2688]]), "tensor": size.max(keepdims=True),
                       "token": size.max(axis=1, keepdims=True)}[mode].astype(np.float32)
            common = np.maximum(largest / np.float32(2688), np.finfo(np.float32).tiny)
            scale = cast(np.minimum(size / (6 * common.astype(np.float64)), 448), e4m3)
            step = scale.astype(np.float64)[..., None] * common.astype(np.float64)[..., None]
            with np.errstate(divide="ignore", invalid="ignore"):
                relative = np.where(step > 0, blocks / step, 0).clip(-6, 6)
            codes = e2m1(relative)
            rows = np.concatenate([scale.view(np.uint8)[..., None], halves(codes, 16)[:, :, 0]],
                                  axis=2).reshape(len(x), -1)
            if mode == "token":
                rows = np.concatenate([common.view(np.uint8), rows], axis=1)
            np.testing.assert_array_equal(encoded("nvfp4", x, scale=mode), rows, mode)
            values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64) * step
            np.testing.assert_array_equal(decoded("nvfp4", x, scale=mode), values.reshape(x.shape))

    def test_nvfp4_blocks_are_read_by_gguf(self):
        """Without a tensor's scale: four blocks are one of ggml's."""
        x = real_vectors()
        ours = encoded("nvfp4", x, scale="none").reshape(len(x), 4, 9)
        theirs = np.concatenate([ours[:, :, 0], ours[:, :, 1:].reshape(len(x), -1)], axis=1)
        kind = gguf.GGMLQuantizationType.NVFP4
        np.testing.assert_array_equal(gguf.quants.dequantize(theirs, kind).astype(np.float64),
                                      decoded("nvfp4", x, scale="none"))


class Quanto(unittest.TestCase):
    """optimum-quanto in double precision, where scales are not rounded."""

    def test_asymmetric_groups_of_a_token(self):
        x = all_vectors()
        for bits, kind in ((2, qint2), (4, qint4)):
            base = torch.from_numpy(x)
            scale, shift = MaxOptimizer()(base, kind, 0, 32)
            # quanto divides by 0 where a group is constant.
            spread = (scale != 0).flatten()
            theirs = quantize_weight(base, kind, 0, scale, shift, 32).dequantize().numpy()
            ours = decoded("int", x, bits=bits, form="asymmetric", group=32, scales="exact")
            a, b = (each.reshape(-1, 32)[spread] for each in (ours, theirs))
            self.assertGreater(len(a), 15000)
            self.same(a, b, x.reshape(-1, 32)[spread])

    def test_asymmetric_groups_of_a_channel(self):
        x = real_vectors()[:2048]
        base = torch.from_numpy(x)
        for bits, kind in ((2, qint2), (4, qint4)):
            scale, shift = MaxOptimizer()(base, kind, -1, 32)
            theirs = quantize_weight(base, kind, -1, scale, shift, 32).dequantize().numpy()
            ours = decoded("int", x, bits=bits, per="channel", group=32, scales="exact")
            self.same(ours, theirs, x)

    def test_symmetric_tokens(self):
        x = all_vectors()
        base = torch.from_numpy(x)
        scale = AbsmaxOptimizer()(base, qint8, 0)
        some = (scale != 0).flatten().numpy()
        theirs = quantize_weight(base, qint8, 0, scale).dequantize().numpy()
        ours = decoded("int", x, bits=8, form="symmetric", group="all", scales="exact")
        self.same(ours[some], theirs[some], x[some])

    def same(self, ours: np.ndarray, theirs: np.ndarray, x: np.ndarray) -> None:
        """quanto adds the shift where we take the minimum away: the last digits may differ, and at
        a tie the code."""
        near = np.abs(ours - theirs) <= 1e-12 * np.abs(x).max(axis=-1, keepdims=True)
        tied = np.abs(np.abs(ours - x) - np.abs(theirs - x)) <= 1e-12 * np.abs(x).max()
        self.assertTrue((near | tied).all())
        self.assertGreater(near.mean(), 0.999)


@contextlib.contextmanager
def sums_in_double():
    """torch.mean over double precision, rounded to float32."""
    mean = torch.Tensor.mean

    def exact(x: torch.Tensor, *arguments: object, **options: object) -> torch.Tensor:
        return mean(x.double(), *arguments, **options).float()

    with mock.patch.object(torch.Tensor, "mean", exact), mock.patch.object(torch, "mean", exact):
        yield


class Hqq(unittest.TestCase):
    """hqq's Quantizer, one vector a tensor, as transformers calls it with axis 1."""

    SETTINGS = ((1, 64), (2, 64), (2, 16), (3, 32), (4, 64), (8, 32))

    def test_codes_scales_and_zeros(self):
        with sums_in_double():
            for setting in self.SETTINGS:
                self.assertEqual(self.share(*setting), 1.0, setting)

    def test_sums_in_float32_stop_some_fits_at_another_step(self):
        """The mean error is flat where as many numbers lie above as below: its last digit
        decides."""
        for setting in self.SETTINGS:
            share = self.share(*setting)
            self.assertGreater(share, 0.9, setting)

    def test_transformers_layer_calls_it_so(self):
        """A token at a time, of four groups: it packs 2-bit codes of four groups into a byte."""
        x = real_vectors()[::501]
        with sums_in_double():
            for bits in (2, 4):
                ours = decoded("hqq", x, bits=bits, group=16, scales="fp32")
                for vector, read in zip(torch.from_numpy(x).float(), ours, strict=True):
                    layer = HQQQuantizedLayer(nbits=bits, axis_key=1, axis_value=1,
                                              q_group_size=16)
                    layer.update(vector[None, None, None], vector[None, None, None])
                    theirs = layer._dequantize(layer._quantized_keys).numpy().ravel()
                    np.testing.assert_allclose(read, theirs, rtol=1e-5, atol=1e-5)

    def share(self, bits: int, group: int) -> float:
        """The share of vectors with equal codes and zeros."""
        x = all_vectors()[::101]
        count = 64 // group
        ours = encoded("hqq", x, bits=bits, group=group, scales="fp32")
        scales = ours[:, :8 * count].copy().view(np.float32).reshape(len(x), count, 2)
        codes = unpacked(ours[:, 8 * count:], bits)
        values = decoded("hqq", x, bits=bits, group=group, scales="fp32")
        return float(np.mean([self.same(vector, bits, group, *each) for vector, *each in
                              zip(x, scales, codes, values, strict=True)]))

    def same(self, x: np.ndarray, bits: int, group: int, scales: np.ndarray, codes: np.ndarray,
             values: np.ndarray) -> bool:
        vector = torch.from_numpy(x.astype(np.float32))[None]
        theirs, meta = Quantizer.quantize(vector, nbits=bits, group_size=group, axis=1,
                                          device="cpu", compute_dtype=torch.float32, bitpack=False)
        step, zero = (meta[name].numpy()[:, 0] for name in ("scale", "zero"))
        np.testing.assert_array_equal(scales[:, 0], step)
        if not np.allclose(scales[:, 1], zero, rtol=1e-6, atol=1e-6):
            return False
        if not np.array_equal(codes, theirs.numpy().ravel()):
            return False
        meta["compute_dtype"] = torch.float32
        read = Quantizer.dequantize(theirs, meta).numpy().reshape(-1, group).astype(np.float64)
        off = np.abs(values.reshape(-1, group) - read).max(axis=1)
        self.assertTrue((off <= step * (1 + np.abs(zero)) * 1e-6).all())
        return True


def unpacked(rows: np.ndarray, bits: int) -> np.ndarray:
    """Codes of a few bits, the first in the lowest bits."""
    each = np.unpackbits(rows, axis=1, bitorder="little")
    each = each[:, :each.shape[1] // bits * bits].reshape(len(rows), -1, bits)
    return each @ (1 << np.arange(bits))


if __name__ == "__main__":
    unittest.main()
