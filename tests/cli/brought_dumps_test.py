"""Dumps and cache files as people make them: outputs rounded to 16 bits, layers that share a cache,
equal heads, static caches, truth values, masks."""

import re
import unittest

import h5py
import numpy as np

from program import BAD_INPUT, DONE, VIOLATION, Folder, kvbench


def bfloat16(values):
    """Bits of values rounded to nearest, ties to even."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def of_bits(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def attention(q, k, v, scale):
    """Causal attention in float64; q [Hq, n, d]."""
    q, k, v = (np.asarray(t, np.float64) for t in (q, k, v))
    n, group = k.shape[1], q.shape[0] // k.shape[0]
    out = []
    for h in range(len(q)):
        x = scale * q[h] @ k[h // group].T
        x[np.triu_indices(n, 1)] = -np.inf
        p = np.exp(x - x.max(axis=1, keepdims=True))
        out.append(p @ v[h // group] / p.sum(axis=1, keepdims=True))
    return np.array(out)


def tensors(heads=4, kv_heads=2, tokens=64, d=16, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((h, tokens, d)) for h in (heads, kv_heads, kv_heads)]


class Brought(Folder):
    def dump(self, name, layers, prompt=None):
        """layers: {number: (datasets, attributes)}; bits of uint16 are bfloat16."""
        path = self.folder / name
        with h5py.File(path, "w") as file:
            file.attrs.update({"format": "kvbench-dump", "format_version": 2, "model": "m",
                               "producer": "test", "n_layers": 8})
            sequence = file.create_group("sequences/s")
            if prompt is not None:
                sequence.attrs["prompt_tokens"] = prompt
            for number, (arrays, attributes) in layers.items():
                layer = sequence.create_group(f"layers/{number}")
                layer.attrs.update({"scale": 0.25, "sliding_window": 0, "logit_softcap": 0.0,
                                    **attributes})
                for tensor, array in arrays.items():
                    layer[tensor] = array
                    if array.dtype == np.uint16:
                        layer[tensor].attrs["dtype"] = "bfloat16"
        return path

    def validated(self, layers, *options):
        return kvbench("validate", self.dump("d.h5", layers), *options)

    def one(self, q, k, v, **more):
        attributes = more.pop("attributes", {})
        return {0: ({"q": q, "k": k, "v": v, **more}, attributes)}


class Rounding(Brought):
    def stored(self, dtype, tokens, d, scale, rows=32, spread=1.0):
        """The layer whose out is the exact answer at `scale`, everything rounded to dtype."""
        arrays = tensors(tokens=tokens, d=d)
        arrays[0] *= spread
        if dtype == "bfloat16":
            bits = [bfloat16(t) for t in arrays]
            out = attention(*map(of_bits, bits), scale)[:, -rows:]
            return self.one(*bits, out=bfloat16(out), attributes={"scale": d**-0.5})
        arrays = [t.astype(dtype) for t in arrays]
        out = attention(*arrays, scale)[:, -rows:].astype(dtype)
        return self.one(*arrays, out=out, attributes={"scale": d**-0.5})

    def test_a_rounded_answer_passes_and_another_scale_does_not(self):
        for dtype in ("float16", "bfloat16"):
            for tokens, d, spread in ((64, 16, 1), (64, 2, 1), (8, 4, 1), (1024, 64, 1),
                                      (1024, 64, 0.1), (256, 16, 6)):
                with self.subTest(dtype=dtype, tokens=tokens, d=d, spread=spread):
                    def validation(factor, case=(dtype, tokens, d, spread)):
                        dtype, tokens, d, spread = case
                        return self.validated(self.stored(
                            dtype, tokens, d, factor * d**-0.5, min(32, tokens), spread))
                    done = validation(1)
                    self.assertEqual(done.returncode, DONE, done.stderr)
                    self.assertIn(f"rounding of {dtype}", done.stderr)
                    for factor in (0.95, 1.05, 1.1):
                        done = validation(factor)
                        self.assertEqual(done.returncode, VIOLATION, (factor, done.stdout))
                        self.assertIn("the scale is not that of out", done.stderr)

    def test_rounding_after_attention_is_told_from_a_scale(self):
        for offset, seed in ((3, 0), (3, 2), (4, 1)):
            q, k, v = tensors(seed=seed)  # large products cancel in each logit
            q += offset
            k += offset * (-1.0) ** np.arange(16)
            layers = self.one(*map(bfloat16, (q, k, v)), out=attention(q, k, v, 0.25).astype(np.float32))
            done = self.validated(layers)
            self.assertEqual(done.returncode, VIOLATION, done.stdout)
            self.assertNotIn("the scale is not that of out", done.stderr)
            tolerance = re.search(r"rounded after attention used them, --tolerance (\S+) allows it", done.stderr)[1]
            self.assertEqual(self.validated(layers, "--tolerance", tolerance).returncode, DONE)

    def test_an_out_that_was_widened_is_taken_for_what_it_is(self):
        q, k, v = tensors()
        out = of_bits(bfloat16(attention(q, k, v, 0.25))).astype(np.float32)
        done = self.validated(self.one(q, k, v, out=out))
        self.assertEqual(done.returncode, DONE, done.stderr)
        done = self.validated(self.one(q, k, v, out=out), "--tolerance", 1e-4)
        self.assertEqual(done.returncode, VIOLATION)

    def test_subnormal_outputs_are_off_by_their_absolute_rounding(self):
        q, k, v = (t.astype(np.float16) for t in tensors())
        v = (v * np.float16(2**-18)).astype(np.float16)
        out = attention(q, k, v, 0.25).astype(np.float16)
        done = self.validated(self.one(q, k, v, out=out))
        self.assertEqual(done.returncode, DONE, done.stderr)

    def test_heads_in_another_order_are_no_question_of_rounding(self):
        q, k, v = tensors()
        out = attention(q, k, v, 0.25)[::-1].astype(np.float16)
        done = self.validated(self.one(*(t.astype(np.float16) for t in (q, k, v)), out=out))
        self.assertEqual(done.returncode, VIOLATION)
        self.assertIn("head order", done.stderr)
        self.assertNotIn("the scale is not that of out", done.stderr)

    def test_single_precision_is_as_strict_as_before(self):
        q, k, v = (t.astype(np.float32) for t in tensors())
        out = (attention(q, k, v, 0.25) * (1 + 2e-4)).astype(np.float32)
        self.assertEqual(self.validated(self.one(q, k, v, out=out)).returncode, VIOLATION)


class SharedCaches(Brought):
    METHODS = ({"algorithm": "h2o", "params": {"budget": 24}},
               {"algorithm": "snapkv", "params": {"budget": 24}}, {"algorithm": "exact"})

    def setUp(self):
        super().setUp()
        self.q, self.k, self.v = tensors(kv_heads=2)
        self.further = tensors(heads=2, seed=1)[0]

    def layers(self, attributes=None, **more):
        reader = {"q": self.further, "out": attention(self.further, self.k, self.v, 0.25), **more}
        own = {"q": self.q, "k": self.k, "v": self.v,
               "out": attention(self.q, self.k, self.v, 0.25)}
        return {0: (own, {}), 5: (reader, {"kv_layer": 0, **(attributes or {})})}

    def test_its_query_heads_are_further_ones_of_one_cache(self):
        shared = self.dump("shared.h5", self.layers(), prompt=48)
        # The same heads, as a layer of three query heads for each of the two KV heads.
        stacked = np.stack([self.q[0], self.q[1], self.further[0],
                            self.q[2], self.q[3], self.further[1]])
        plain = self.dump("plain.h5", self.one(stacked, self.k, self.v), prompt=48)
        cells = []
        for path in (shared, plain):
            results = self.run_sweep("--fresh", dumps=[str(path)], algorithms=self.METHODS,
                                     seeds=[0])
            cells.append({(c["key"]["algorithm"], c["key"]["layer"], c["key"]["kv_head"]):
                          (c["errors"], c["memory"]) for c in results["cells"]})
        self.assertEqual(len(cells[0]), 6)
        self.assertEqual(cells[0], cells[1])

    def test_its_out_is_proved_by_the_keys_that_it_reads(self):
        done = self.validated(self.layers())
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(done.stdout.count("s   "), 2, done.stdout)
        wrong = attention(self.further, self.k[::-1], self.v, 0.25)
        self.assertEqual(self.validated(self.layers(out=wrong)).returncode, VIOLATION)

    def test_inspect_says_whose_keys_it_reads(self):
        done = kvbench("inspect", self.dump("d.h5", self.layers()))
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertIn("layer 5: reads the keys and values of layer 0", done.stdout)

    def test_what_one_cache_cannot_hold_is_refused(self):
        for attributes, more, word in (
            ({"scale": 0.5}, {}, "scale"), ({"sliding_window": 8}, {}, "sliding_window"),
            ({"kv_layer": 3}, {}, "no such layer"), ({"kv_layer": 5}, {}, "itself"),
            ({}, {"k": self.k}, "/k"), ({}, {"key_bias": self.k[:, 0]}, "/key_bias"),
            ({}, {"q": self.further[:, 1:]}, "query rows"),
            ({}, {"q": self.further[:1]}, "heads"),
        ):
            with self.subTest(word=word):
                done = self.validated(self.layers(attributes, **more))
                self.assertEqual(done.returncode, BAD_INPUT, done.stdout)
                self.assertIn(word, done.stderr)

    def test_the_same_keys_twice_are_told(self):
        layers = self.one(self.q, self.k, self.v)
        layers[3] = ({"q": self.further}, {})
        path = self.folder / "d.h5"
        for link in (h5py.SoftLink, None):
            self.dump("d.h5", {0: layers[0], 3: layers[3]})
            with h5py.File(path, "a") as file:
                of, to = file["sequences/s/layers/0"], file["sequences/s/layers/3"]
                for name in ("k", "v"):
                    to[name] = link(f"{of.name}/{name}") if link else of[name]
            done = kvbench("plan", "--dump", path, "--algorithm", "exact", "--set",
                           "replay.prompt_tokens=48")
            self.assertIn("layers/3: the keys and values are those of layer 0", done.stderr)


class Notes(Brought):
    def notes(self, q, k, v):
        out = attention(q, k, v, 0.25)
        path = self.dump("d.h5", self.one(q, k, v, out=out), prompt=48)
        return [kvbench(*command).stderr for command in (
            ("inspect", path, "--quiet"), ("validate", path),
            ("plan", "--dump", path, "--algorithm", "exact"))]

    def test_equal_heads_and_tokens_of_zeros(self):
        q, k, v = tensors(heads=8)
        for said in self.notes(q, np.repeat(k, 4, 0), np.repeat(v, 4, 0)):
            self.assertIn("8 KV heads are copies of 2: memory is 4 times", said)
        k[:, 50:], v[:, 50:] = 0, 0
        for said in self.notes(q, k, v):
            self.assertIn("last 14 of 64 tokens are zero", said)
        for heads, tokens, words in (
                ((0, 1), 9, "tokens 0 to 8 are zero in KV head 0 and 1 more; leave padding"),
                ((1,), 5, "tokens 0 to 4 are zero in KV head 1; leave padding"),
                ((1,), 64, "tokens 0 to 63 are zero in KV head 1; store keys"),
                ((0, 1), 64, "tokens 0 to 63 are zero in KV head 0 and 1 more; store keys")):
            q, k, v = tensors()
            k[list(heads), :tokens] = -0.0
            for said in self.notes(q, k, v):
                self.assertIn(words, said)
                self.assertEqual(said.count("note:"), 1, said)

    def test_heads_and_tokens_that_were_exchanged(self):
        q, k, v = (t.transpose(1, 0, 2) for t in tensors(kv_heads=4, tokens=52))
        for said in self.notes(q, k, v):
            self.assertIn("52 KV heads of 4 tokens look exchanged", said)

    def test_one_text_twice_is_told(self):
        q, k, v = tensors()
        path = self.dump("d.h5", {0: self.one(q, k, v)[0], 1: self.one(q, v, k)[0]}, prompt=48)
        with h5py.File(path, "a") as file:
            for name in ("t", "u", "of two layers", "of other values"):
                file.copy("sequences/s", f"sequences/{name}")
            del file["sequences/of two layers/layers/1"]
            file["sequences/of other values/layers/1/v"][1, 63, 0] += 1
        said = kvbench("plan", "--dump", path, "--algorithm", "exact").stderr
        self.assertIn("/sequences/t: the keys and values are those of sequence s;", said)
        self.assertIn("select.sequences (and 1 more sequences)", said)
        self.assertEqual(said.count("note:"), 1, said)

    def test_a_head_with_other_values_is_another_one(self):
        q, k, v = tensors()
        k[1] = k[0]
        k[0, 50:] = 0
        for said in self.notes(q, k, v):
            self.assertNotIn("note", said)


class NaturalForms(Brought):
    def test_attributes_as_h5py_writes_them(self):
        q, k, v = tensors()
        for attributes in (
            {"causal": True, "sliding_window": False, "chunk": np.False_},
            {"causal": np.uint8(1), "scale": np.float32(0.25), "sliding_window": np.int16(0)},
            {"causal": np.array([True]), "scale": np.array([0.25], np.float16),
             "logit_softcap": np.int8(0)},
        ):
            out = attention(q, k, v, 0.25)
            done = self.validated(self.one(q, k, v, out=out, attributes=attributes))
            self.assertEqual(done.returncode, DONE, done.stderr)
        done = self.validated(self.one(q, k, v, attributes={"sliding_window": True}))
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertIn("sliding_window is True", done.stderr)

    def cache(self, **datasets):
        path = self.folder / "c.h5"
        with h5py.File(path, "w") as file:
            file.attrs.update({"format": "kvbench-cache", "format_version": 1,
                               "method": np.bytes_("x")})
            head = file.create_group("sequences/s/layers/0/heads/0")
            head.attrs["prompt_tokens"] = np.uint16(32)
            head.attrs["reads_future"] = False
            for name, data in datasets.items():
                head[name] = data
        return kvbench("validate", path)

    def test_a_float16_that_overflowed_is_told_what_holds_it(self):
        q, k, v = tensors()
        k[1, 3, 2] = np.inf
        for dtype, words in ((np.float16, "65504: store bfloat16 or float32"),
                             (np.float32, "make the dump again")):
            done = kvbench("inspect", self.dump("i.h5", self.one(*(t.astype(dtype) for t in (q, k, v)))))
            self.assertEqual(done.returncode, BAD_INPUT)
            self.assertIn(words, done.stderr)

    def test_masks_are_no_positions(self):
        mask = np.arange(32) % 4 == 0
        for token in (mask, mask.astype(np.int32), np.append(mask, mask).astype(np.uint8)):
            done = self.cache(token=token)
            self.assertEqual(done.returncode, BAD_INPUT)
            self.assertIn("np.flatnonzero(mask)", done.stderr)
        done = self.cache(token=np.flatnonzero(mask), keeps_key=np.ones(8, bool))
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(self.cache(token=np.arange(2)).returncode, DONE)


if __name__ == "__main__":
    unittest.main()
