"""kvbench.Recorder with NumPy alone: what its callers are likely to give, right and wrong. Errors
of the method are worked out here."""

import tempfile
import unittest
import warnings
from pathlib import Path

import numpy as np

import kvbench as kb

N, D, P, BUDGET, SCALE = 40, 16, 20, 5, 0.25
SWEEP = {"replay": {"prompt_tokens": P},
         "algorithms": [{"algorithm": "window", "params": {"budget": BUDGET}}]}


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((heads, N, D)).astype(np.float32) for heads in (4, 2, 2))


def attention(q, k, v, window=0, sinks=None):
    """[4, N, D] in float64."""
    q, k, v = (np.asarray(each, np.float64) for each in (q, k, v))
    row, token = np.arange(N)[:, None], np.arange(N)[None]
    seen = (token <= row) & (token > row - (window or N))
    out = []
    for head in range(4):
        weights = np.where(seen, np.exp(SCALE * q[head] @ k[head // 2].T), 0.0)
        sink = 0.0 if sinks is None else np.exp(sinks[head])
        out.append(weights @ v[head // 2] / (weights.sum(1, keepdims=True) + sink))
    return np.array(out)


def errors(q, k, v, window=0, **more):
    """relative_l2.mean of the method `window`, by KV head."""
    exact = attention(q, k, v, window, **more)[:, P:]
    held = attention(q, k, v, min(window or N, BUDGET), **more)[:, P:]
    each = np.linalg.norm(held - exact, axis=-1) / np.linalg.norm(exact, axis=-1)
    return each.reshape(2, -1).mean(axis=1)


def bfloat16_bits(array):
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def number(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Forms(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)
        self.count = 0

    def recorded(self, *layers, sequence=None, **how):
        """relative_l2.mean of the cells; `layers`: arrays and keywords of Recorder.layer."""
        self.count += 1
        with kb.Recorder(SWEEP, out=self.folder / f"é {self.count}", layers=2, quiet=True,
                         **how) as recorder:
            if sequence:
                recorder.sequence("text", **sequence)
            for index, (tensors, keywords) in enumerate(layers):
                keywords = {"scale": SCALE, **keywords}
                recorder.layer("text", keywords.pop("layer", index), *tensors, **keywords)
        return [cell["errors"]["relative_l2"]["mean"] for cell in recorder.results.cells]

    def refused(self, words, *layers, **how):
        with self.assertRaisesRegex(kb.Error, words):
            self.recorded(*layers, **how)

    def test_the_type_that_is_kept_holds_all_tensors(self):
        q, k, v = arrays()
        short = bfloat16_bits(q)
        for tensors, meant in (((q.astype(np.float16), k, v), (q.astype(np.float16), k, v)),
                               ((short.view("V2"), k, v), (number(short), k, v)),
                               ((q, k.astype(np.float64), v), (q, k, v))):
            np.testing.assert_allclose(self.recorded((tensors, {})), errors(*meant), rtol=1e-9)

    def test_bits_of_other_libraries_are_not_taken_for_numbers(self):
        class Tensor:  # as JAX and torch have them
            def __init__(self, array):
                self.array, self.dtype = array, array.dtype
                self.__dlpack__ = array.__dlpack__

            def __array__(self, *given, **named):
                return self.array

        q, k, v = arrays()
        np.testing.assert_array_equal(self.recorded(((Tensor(q), k, v), {})),
                                      self.recorded((arrays(), {})))
        for bits in (bfloat16_bits(q).view(np.int16), q.astype(np.uint8)):
            self.refused(f"q: has elements of {bits.dtype}", ((Tensor(bits), k, v), {}))

    def test_layers_after_the_end_are_refused(self):
        tensors = arrays()
        with kb.Recorder(SWEEP, out=self.folder / "closed", layers=2, quiet=True) as recorder:
            recorder.layer("text", 0, *tensors, scale=SCALE)
        with self.assertRaisesRegex(kb.Error, "sequence text, layer 1: the recorder is closed; give all layers"):
            recorder.layer("text", 1, *tensors, scale=SCALE)
        self.assertEqual(len(recorder.results.cells), 2)

    def test_another_scale_is_named(self):
        for wrong in (1.0, 0.5, 0.06):
            self.refused("out fits scale=0.25$", (arrays(), {"scale": wrong, "out": attention(*arrays())}))

    def test_numbers_of_any_type(self):
        found = self.recorded((arrays(), {"scale": np.array([SCALE]), "sliding_window": 8.0,
                                          "layer": np.int64(0), "causal": np.bool_(True)}))
        np.testing.assert_allclose(found, errors(*arrays(), window=8), rtol=1e-9)
        for name, value in (("sliding_window", 8.5), ("scale", "0.25"), ("scale", None),
                            ("causal", "no"), ("layer", 0.5)):
            self.refused(name, (arrays(), {name: value}))
        self.refused("queries", (arrays(), {}), queries=0)
        for count in (0, None, -1):
            with self.assertRaisesRegex(kb.Error, "layers: must be the number of the model's layers"):
                kb.Recorder(SWEEP, out=self.folder / "none", layers=count)
        self.refused("one of the 9 tokens of sequence text is decoded", (tuple(each[:, :9] for each in arrays()), {}))
        self.refused("scale: expected float32 or float64, got 0.300.* in float16", (arrays(), {"scale": np.float16(0.3)}))
        self.recorded((arrays(), {"scale": np.float16(0.25)}))
        self.refused("^kvbench.Recorder: sequence text, layer 0: attribute scale is nan", (arrays(), {"scale": np.nan}))
        self.refused("^kvbench.Recorder: sequence text, layer 0: sinks: must be .* a number per query head",
                     (arrays(), {"sinks": [1.0, 2.0]}))

    def test_sinks_of_any_type(self):
        sinks = np.array([1.0, 2.0, 3.0, 4.0])
        bits = bfloat16_bits(sinks)
        for given in (sinks, sinks.astype(np.float16), bits.view("V2"), sinks.reshape(4, 1)):
            np.testing.assert_allclose(self.recorded((arrays(), {"sinks": given})),
                                       errors(*arrays(), sinks=sinks), rtol=1e-9)
        self.refused("sinks: has elements of uint16", (arrays(), {"sinks": bits}))
        self.refused("masked", (arrays(), {"sinks": np.ma.masked_array(sinks, sinks > 3)}))

    def test_pieces_say_the_same(self):
        def pieces(one, other):
            return [(tuple(each[:, rows] for each in arrays()), {"layer": 0, "tokens": N, **said})
                    for rows, said in ((slice(30), one), (slice(30, N), other))]
        same = {"sliding_window": 8, "sinks": [1.0, 2.0, 3.0, 4.0]}
        np.testing.assert_allclose(self.recorded(*pieces(same, same)),
                                   errors(*arrays(), window=8, sinks=same["sinks"]), rtol=1e-9)
        for name, value in {**same, "scale": 0.5, "logit_softcap": 3.0}.items():
            self.refused(f"{name} is .* in the first piece", *pieces({name: value}, {}))
            self.refused(f"{name} is .* in the first piece", *pieces({}, {name: value}))
        out = attention(*arrays())[:, -4:]
        self.refused("leave it out", *pieces({}, {"out": out}))
        narrow, wide = pieces({}, {})
        wide = (tuple(each.astype(np.float64) for each in wide[0]), wide[1])
        self.refused("float64.*first piece", narrow, wide)

    def in_pieces(self, *pieces, tokens=N):
        self.count += 1
        with kb.Recorder(SWEEP, out=self.folder / f"pieces {self.count}", layers=1, quiet=True) as recorder:
            for piece in pieces:
                recorder.layer("text", 0, *piece, scale=SCALE, tokens=tokens)
        return [cell["errors"]["relative_l2"]["mean"] for cell in recorder.results.cells]

    def test_pieces_of_a_growing_cache_and_pieces_that_overlap(self):
        q, k, v = arrays()
        first, rest = [each[:, :25] for each in (q, k, v)], [each[:, 25:] for each in (q, k, v)]
        whole = self.in_pieces((q, k, v))
        self.assertEqual(self.in_pieces(first, rest), whole)
        with self.assertRaisesRegex(kb.Error, r"give keys and values of its own tokens, k\[:, -15:\]"):
            self.in_pieces(first, (rest[0], k, v))
        self.assertEqual(self.in_pieces(first, (rest[0], k[:, -15:], v[:, -15:])), whole)
        with self.assertWarnsRegex(UserWarning, "token 30 has the keys of token 24, .* without overlap"):
            self.in_pieces(first, [each[:, 19:34] for each in (q, k, v)])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.in_pieces(first, rest)

    def test_what_was_refused_is_given_again(self):
        q, k, v = arrays()
        for bad, words in (((q, k, v[:, :5]), "v has the shape"), ((q, k, np.where(v == v[0, 0, 0], np.nan, v)), "nan"),
                           ((q[:3], k, v), "not a multiple")):
            self.count += 1
            with kb.Recorder(SWEEP, out=self.folder / f"again {self.count}", layers=1, quiet=True) as recorder:
                with self.assertRaisesRegex(kb.Error, words):
                    recorder.layer("text", 0, *bad, scale=SCALE)
                recorder.layer("text", 0, q, k, v, scale=SCALE)
            found = [cell["errors"]["relative_l2"]["mean"] for cell in recorder.results.cells]
            np.testing.assert_allclose(found, errors(q, k, v), rtol=1e-9)
            with (self.assertRaisesRegex(kb.Error, "layer 1 was refused, and not given again"),
                  kb.Recorder(SWEEP, out=self.folder / f"left {self.count}", layers=2, quiet=True) as recorder):
                recorder.layer("text", 0, q, k, v, scale=SCALE)
                with self.assertRaisesRegex(kb.Error, words):
                    recorder.layer("text", 1, *bad, scale=SCALE)
            self.assertFalse((self.folder / f"left {self.count}/results.json").exists())

    def test_a_batch_of_one_is_its_sequence(self):
        q, k, v = arrays()
        self.assertEqual(self.recorded(((q[None], k[None], v[None]), {"out": attention(q, k, v)[None]})),
                         self.recorded(((q, k, v), {})))
        self.refused(r"q: has the shape \[2, 4, 40, 16\]; give q of one sequence", ((np.stack([q, q]), k, v), {}))

    def test_outputs_of_16_bits(self):
        out = attention(*arrays())
        for given in (out.astype(np.float16), bfloat16_bits(out).view("V2")):
            self.recorded((arrays(), {"out": given}))
        self.refused(r"out fits scale=0\.2[45]", (arrays(), {"out": out.astype(np.float16), "scale": 0.2625}))
        self.refused(r"expected \(4, rows, 16\)", (arrays(), {"out": out.transpose(1, 0, 2)}))

    def test_likely_mistakes_are_told(self):
        q, k, v = arrays()
        for words, *layers in (
                ("4 KV heads are copies of 2", ((q, np.repeat(k, 2, 0), np.repeat(v, 2, 0)), {})),
                ("the last 10 of 40 tokens are zero",
                 ((q, np.where(np.arange(N)[:, None] < 30, k, 0), v), {})),
                ("tokens 0 to 8 are zero in KV head 0 and 1 more; leave padding",
                 ((q, np.where(np.arange(N)[:, None] < 9, -0.0, k), v), {})),
                ("tokens 0 to 4 are zero in KV head 1;",
                 ((q, np.where((np.arange(N) < 5)[:, None] & (np.arange(2) > 0)[:, None, None], 0, k), v), {})),
                ("tokens 0 to 39 are zero in KV head 0 and 1 more; give keys", ((q, k * 0, v), {})),
                ("the last 9 of 40 tokens have the same values, as padding",
                 ((q, k, np.where(np.arange(N)[:, None] < 31, v, 1)), {})),
                ("the first 8 of 40 tokens have the same values, as padding",
                 ((q, k, np.where(np.arange(N)[:, None] < 8, v[:, :1], v)), {})),
                ("as many heads as tokens, 24, .* out proves", ((np.random.default_rng(1).standard_normal((24, 24, D)),) * 3, {})),
                ("are those of layer 0", ((q, k, v), {}), ((arrays(1)[0], k, v), {}))):
            with self.assertWarnsRegex(UserWarning, words):
                self.recorded(*layers)
        with self.assertWarnsRegex(UserWarning, "40 KV heads of 4 tokens look exchanged"):
            self.refused("at least one of the 4 tokens", ((q.transpose(1, 0, 2),) * 3, {}))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.recorded((arrays(), {}), (arrays(1), {}))
        with (self.assertWarnsRegex(UserWarning, "sequence b: the keys and values are those of sequence a"),
              kb.Recorder(SWEEP, out=self.folder / "twice", layers=1, quiet=True) as recorder):
            for sequence in "ab":
                recorder.layer(sequence, 0, q, k, v, scale=0.25)
        self.refused("--kv-layer", ((q, k, v), {}), ((q, None, None), {}))
        with self.assertRaisesRegex(kb.Error, "none.json: cannot read: No such file .*; name a sweep file"):
            kb.Recorder("none.json", out=self.folder / "none", layers=1)
        turned = [each.transpose(1, 0, 2) for each in (q, k, v)]
        self.refused(r"give q.swapaxes\(-3, -2\)", (turned, {}))
        self.refused(r"its own tokens, k\[:, -9:\] and v alike; cross attention", ((q[:, :9], k, v), {}))
        for shorter in ((q[:, :9], k, v), (q, k[:, :9], v[:, :9])):
            self.refused("cross attention is measured in a dump: .* --every-token", (shorter, {}))
        self.assertEqual(self.recorded(([each.transpose(1, 0, 2) for each in turned], {})), self.recorded(((q, k, v), {})))
        with self.assertRaisesRegex(kb.Error, r"expected \(2, 40, 8\)$"):
            self.recorded(((q, k, v[:, :, :8][:1]), {}))

    def test_a_rotation_has_its_members_alone_in_full_precision(self):
        frequencies = 1e4 ** (-np.arange(0, D, 2) / D)
        self.recorded((arrays(), {"rope": {"inv_freq": frequencies, "theta": 1e4, "attention_scaling": 1.2}}))
        for words, more in (("unknown member base", {"base": 5e5}),
                            ("unknown member attention_factor; .* attention_scaling", {"attention_factor": 1.2}),
                            ("expected float32 or float64, got float16", {"inv_freq": frequencies.astype(np.float16)})):
            self.refused(words, (arrays(), {"rope": {"inv_freq": frequencies, **more}}))

    def test_facts_of_a_sequence(self):
        for ids in (np.arange(N) + 0.5, np.ones(N, bool), np.full(N, 2**40)):
            self.refused("token_ids: must be integers", (arrays(), {}), sequence={"token_ids": ids})
        recorder = kb.Recorder(SWEEP, out=self.folder / "names", layers=1, quiet=True)
        for name in ("a/b", "", 3):
            with self.assertRaisesRegex(kb.Error, "sequence: must be a name"):
                recorder.layer(name, 0, *arrays(), scale=SCALE)
        self.refused("rope: must be", (arrays(), {"rope": (np.ones(8), "half")}))


class Wrong(unittest.TestCase):
    """Refusals in one line, before anything is written."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def refused(self, words, name="text", save=None, out="live", pieces=None):
        with (self.assertRaisesRegex(kb.Error, f"^kvbench.Recorder: .*{words}") as raised,
              kb.Recorder(SWEEP, out=self.folder / out, layers=1, save=save, quiet=True) as recorder):
            for piece, tokens in pieces or [(arrays(), None)]:
                recorder.layer(name, 0, *piece, scale=SCALE, tokens=tokens)
        self.assertNotIn("\n", str(raised.exception))

    def test_names_of_sequences(self):
        for name in ("", ".", "..", "a/b", "a\0b"):
            self.refused("sequence: must be a name", name=name)
        self.assertFalse((self.folder / "live/results.json").exists())

    def test_places_of_files(self):
        self.refused("save: the folder .*missing is missing", save=self.folder / "missing/a.h5")
        self.refused("save: .* is a folder", save=self.folder)
        (self.folder / "file").write_text("")
        for out in ("file", "file/live"):
            self.refused("out: .*file is a file; give a folder", out=out)
            with self.assertRaisesRegex(kb.Error, "^kvbench.run: out: .*file is a file; give a folder"):
                kb.run({**SWEEP, "dumps": ["none.h5"]}, out=self.folder / out)

    def test_pieces_that_say_other_tokens(self):
        first, second = ([each[:, some] for each in arrays()] for some in (slice(0, 30), slice(30, N)))
        self.refused("tokens is 50 here and 40 in the first piece", pieces=[(first, N), (second, 50)])

    def test_complex_numbers(self):
        q, k, v = arrays()
        self.refused("k: must be float64", pieces=[((q, k + 1j, v), None)])


if __name__ == "__main__":
    unittest.main()
