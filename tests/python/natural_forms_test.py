"""Forms in which people have numbers: NumPy's scalars, masked arrays, bfloat16, masks, paths; and
what errors name."""

import dataclasses
import json
import os
import re
import tempfile
import unittest
import warnings
from pathlib import Path

import numpy as np

import kvbench as kb

N, D, P = 64, 16, 32


def arrays():
    rng = np.random.default_rng(4)
    return (rng.standard_normal((2, N, D)), rng.standard_normal((N, D)),
            rng.standard_normal((N, D)))


def bfloat16_bits(array):
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class Forms(unittest.TestCase):
    def refused(self, *words, what=kb.Error, call=kb.replay, given=None, **keywords):
        with self.assertRaises(what) as caught:
            call(*(given if given is not None else (*arrays(), "window")), **keywords)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_numpys_numbers_are_numbers(self):
        plain = kb.replay(*arrays(), "window", budget=16, prompt=P, scale=0.25, layer=3, n_layers=8,
                          sliding_window=40, seed=3, rows={"last": 4}, threads=1)
        numpys = kb.replay(*arrays(), "window", budget=np.int64(16), prompt=np.int32(P),
                           scale=np.float32(0.25), layer=np.int64(3), n_layers=np.array(8),
                           sliding_window=np.int64(40), seed=np.uint8(3), causal=np.bool_(True),
                           head=np.int16(0), softcap=np.float64(0), attention_chunk=np.int64(0),
                           rows={"last": np.int64(4)}, threads=np.int64(1))
        np.testing.assert_array_equal(plain.outputs, numpys.outputs)
        self.assertEqual(plain.record["key"], numpys.record["key"])

    def test_short_floats_are_the_decimals_that_are_printed(self):
        dump = Path(__file__).resolve().parents[2] / "data/clusterable.h5"
        for three in (np.float32(0.3), np.float16(0.3), np.array(0.3, np.float32)):
            found = kb.replay(*arrays(), "h2o", budget=16, recent_fraction=three, prompt=P, scale=0.25)
            self.assertEqual(found.record["key"]["params"]["recent_fraction"], 0.3)
        scaled = [kb.replay(*arrays(), "window", budget=16, prompt=P, scale=scale).errors
                  for scale in (np.float32(0.3), 0.30000001192092896, 0.3)]
        self.assertEqual(scaled[0], scaled[1])  # a measured number is exact
        self.assertNotEqual(scaled[0], scaled[2])
        self.refused("scale: expected float32 or float64, got 0.3", "in float16", "may be rounded",
                     budget=16, prompt=P, scale=np.float16(0.3))
        kb.replay(*arrays(), "window", budget=16, prompt=P, scale=np.float16(0.125))
        with tempfile.TemporaryDirectory() as folder:
            found = kb.run({"dumps": os.path.relpath(dump), "algorithms": [
                {"algorithm": "window", "params": {"budget": np.array([0.3, 0.7], np.float32)}}]},
                out=Path(folder) / "a", quiet=True)
            self.assertEqual({cell["key"]["params"]["budget"] for cell in found.cells}, {0.3, 0.7})

    def test_a_sweep_of_numpys_numbers_and_paths(self):
        dump = Path(__file__).resolve().parents[2] / "data/clusterable.h5"
        with tempfile.TemporaryDirectory() as folder:
            found = kb.run({"dumps": [dump], "algorithms": [
                {"algorithm": "window", "params": {"budget": list(np.array([16, 32]))}}],
                "replay": {"prompt_tokens": np.int64(256)}}, out=Path(folder) / "a",
                threads=np.int64(1), quiet=np.bool_(True))
            self.assertEqual(len(found.cells), 2)

    def test_a_number_that_is_missing_in_a_table_is_named(self):
        self.refused("/algorithms/0/params/budget/1: must be finite, got nan", "leave a parameter out", call=kb.run,
                     given=({"algorithms": [{"algorithm": "window", "params": {"budget": np.array([16, np.nan])}}]},),
                     out="none")
        self.refused("budget: must be finite, got inf", budget=np.float32(np.inf), prompt=P)
        loop = {}
        loop["algorithms"] = loop
        self.refused("contains itself", call=kb.run, given=(loop,), out="none")

    def test_forms_of_rows(self):
        class Column:  # as a pandas Series
            def __init__(self, values):
                self.values = np.asarray(values)

            def __array__(self, dtype=None, copy=None):
                return self.values.astype(dtype or self.values.dtype)

            def tolist(self):
                return self.values.tolist()

        plain = kb.replay(*arrays(), "window", budget=16, prompt=P, rows=[40, 50])
        column = kb.replay(*arrays(), "window", budget=16, prompt=P, rows=Column([40, 50]))
        np.testing.assert_array_equal(plain.outputs, column.outputs)
        self.refused("mask", budget=16, prompt=P, rows=Column(np.arange(N) > 40))
        self.refused("a parameter cannot be of type slice; give", budget=16, prompt=P, rows=slice(40, 50))

    def test_queries_whose_axes_were_exchanged_are_told(self):
        q, k, v = arrays()
        with self.assertWarnsRegex(UserWarning, r"64 query heads of 2 rows, .*q.swapaxes\(-3, -2\)"):
            kb.replay(q.transpose(1, 0, 2), k, v, "window", budget=16, prompt=P)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kb.replay(q, k, v, "window", budget=16, prompt=P)

    def test_a_batch_of_one_and_objects_that_have_dlpack_alone(self):
        class Capsule:
            def __init__(self, array):
                self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

        class Apart:  # on a device that NumPy does not read
            def __dlpack__(self, **_):
                raise BufferError("unsupported device")

            def __dlpack_device__(self):
                return 2, 0

        q, k, v = arrays()
        whole = kb.replay(q, k, v, "window", budget=16, prompt=P).errors
        for given in ((q[None], k[None, None], v[None, None]), map(Capsule, (q, k, v))):
            self.assertEqual(kb.replay(*given, "window", budget=16, prompt=P).errors, whole)
        self.refused("q: has the shape [2, 2, 64, 16]; give q of one sequence", budget=16,
                     given=(np.stack([q, q]), k, v, "window"))
        self.refused("k: NumPy cannot read this Apart (unsupported device); give torch.from_dlpack(k).cpu()",
                     budget=16, given=(q, Apart(), v, "window"))

    def test_one_of_several_kv_heads_is_taken_as_the_message_says(self):
        q, k, v = (np.stack([each, each + 1]).reshape(-1, N, D) for each in arrays())
        for lead in ((), (None,)):
            with self.assertRaises(kb.Error) as caught:
                kb.replay(q[lead], k[lead], v[lead], "window", budget=16, prompt=P)
            said = re.search(r"k has 2 KV heads, .*; of head h give (q.*), (k.*) and (v.*)$", str(caught.exception))
            names = {"q": q[lead], "k": k[lead], "v": v[lead], "h": 1}
            given = [eval(words, names) for words in said.groups()]
            self.assertEqual(kb.replay(*given, "window", budget=16, prompt=P).errors,
                             kb.replay(q[2:], k[1], v[1], "window", budget=16, prompt=P).errors)
            turned = [each[lead].swapaxes(-3, -2) for each in (q, k, v)]
            with self.assertRaises(kb.Error) as caught:
                kb.replay(*turned, "window", budget=16, prompt=P)
            said = re.search(r"64 KV heads of 2 tokens, .*; of head h give (q.*), (k.*) and (v.*)$", str(caught.exception))
            given = [eval(words, {**dict(zip("qkv", turned)), "h": 1}) for words in said.groups()]
            self.assertEqual(kb.replay(*given, "window", budget=16, prompt=P).errors,
                             kb.replay(q[2:], k[1], v[1], "window", budget=16, prompt=P).errors)

    def test_frequencies_are_not_those_of_16_bits(self):
        turned = {"budget": 16, "positions": "cache", "prompt": P}
        for short in (np.ones(8, np.float16), bfloat16_bits(np.ones(8)).view("V2")):
            self.refused("rope: expected float32 or float64", given=(*arrays(), "streaming_llm"),
                         rope=(short, "half"), **turned)
        kb.replay(*arrays(), "streaming_llm", rope=(np.ones(8, np.float32), "half"), **turned)

    def test_a_reason_names_the_keywords_of_the_call(self):
        with self.assertRaises(kb.Error) as caught:
            kb.replay(*arrays(), "xattention", block=16, prompt=P)
        rows = re.search(r"score these with rows=(.*)$", str(caught.exception)).group(1)
        kb.replay(*arrays(), "xattention", block=16, prompt=P, rows=json.loads(rows))
        self.refused("kvbench.replay: h2o: rows asks for rows of the prompt", given=(*arrays(), "h2o"), budget=8, prompt=P,
                     rows={"prompt": "all"})

    def test_masked_elements_are_not_used(self):
        q, k, v = arrays()
        masked = np.ma.masked_array(k, mask=np.broadcast_to(np.arange(N)[:, None] < 5, k.shape))
        self.refused("80 of its 1024 elements are masked", given=(q, masked, v, "window"), budget=16)
        self.refused("sink_logits", "masked", budget=16,
                     sink_logits=np.ma.masked_array([0.0, 1.0], mask=[True, False]))
        whole = kb.replay(q, np.ma.masked_array(k, mask=False), v, "window", budget=16, prompt=P)
        np.testing.assert_array_equal(
            whole.outputs, kb.replay(q, k, v, "window", budget=16, prompt=P).outputs)
        self.refused("weight", "masked", call=kb.Kept, given=([0, 1, 2],),
                     weight=np.ma.masked_array(np.ones(3), mask=[True, False, False]))

    def test_an_array_that_jax_traces_has_no_numbers(self):
        class DynamicJaxprTracer:
            shape, dtype = (N, 16), np.dtype("float32")

            def __dlpack__(self):
                raise AssertionError("a tracer has no numbers")

        q, _, v = arrays()
        self.refused("k: has no numbers while JAX traces", "jax.debug.callback", given=(q, DynamicJaxprTracer(), v, "window"),
                     budget=16)

    def test_bfloat16_of_two_bytes_without_a_type(self):
        q, k, v = arrays()
        bits = bfloat16_bits(k)
        numbers = (bits.astype(np.uint32) << 16).view(np.float32)
        made = kb.replay(q, bits.view("V2"), v, "window", budget=16, prompt=P)
        np.testing.assert_array_equal(
            made.outputs, kb.replay(q, numbers, v, "window", budget=16, prompt=P).outputs)
        self.refused("k: has elements of uint16", "k.view(np.uint16)", given=(q, bits, v, "window"))

    def test_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not installed")
        q, k, v = arrays()
        for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
            with self.subTest(dtype=dtype):
                short, sinks = k.astype(dtype), np.array([0.5, -1]).astype(dtype)
                made = kb.replay(q, short, v, "window", budget=16, sink_logits=sinks)
                wide = kb.replay(q, short.astype(np.float64), v, "window", budget=16,
                                 sink_logits=[0.5, -1.0])
                np.testing.assert_array_equal(made.outputs, wide.outputs)

    def test_masks_are_not_numbers_of_tokens(self):
        for mask in (np.array([True, False, True]), np.array([0, 1, 1, 0]), [0, 0, 1]):
            self.refused("mask", "np.flatnonzero(token)", call=kb.Kept, given=(mask,))
        self.assertEqual(len(kb.Kept([0, 1])), 2)
        self.assertEqual(len(kb.Kept([0, 1, 0, 1], head=[0, 0, 1, 1])), 4)
        self.refused("rows", "np.flatnonzero(rows)", budget=16, rows=np.arange(N) > 40)

    def test_numbers_that_are_whole_or_single(self):
        q, k, v = arrays()
        plain = kb.replay(q, k, v, "window", budget=16, prompt=P, sliding_window=40, scale=0.25)
        made = kb.replay(q.astype(np.longdouble), k, v, "window", budget=16, prompt=P, threads=1.0,
                         sliding_window=np.array([40.0]), scale=np.array([0.25]), head=0.0)
        np.testing.assert_array_equal(plain.outputs, made.outputs)
        for name, value in (("sliding_window", 8.5), ("sliding_window", "8"), ("softcap", "5"),
                            ("scale", np.ones(2)), ("head", "0"), ("threads", -1), ("threads", 100_000),
                            ("causal", "no"), ("sequence", 3), ("n_layers", 0),
                            ("rope", {"inv_freq": np.ones(8)}), ("budget", float("nan"))):
            self.refused("finite" if name == "budget" else name, **{"budget": 16, name: value})
        self.refused("algorithm", given=(q, k, v, None))
        self.refused("k: has elements of object", "k.astype(np.float64)", budget=16,
                     given=(q, k.astype(object), v, "window"))

    def test_folders_of_any_name_and_one_method(self):
        @kb.method
        class KeepsFour:
            def compress(self, prompt):
                return kb.Kept(np.arange(4))

        dump = Path(__file__).resolve().parents[2] / "data/clusterable.h5"
        sweep = {"dumps": [dump], "algorithms": [{"algorithm": "keeps_four"}]}
        with tempfile.TemporaryDirectory() as folder:
            for name in ("r\u00e9sultats", "-x", "\u7d50\u679c", ".hidden"):
                found = kb.run(sweep, out=Path(folder) / name, methods=KeepsFour, quiet=True)
                self.assertEqual(len(found.cells), 1)
            for merged in (Path(folder) / "-x", str(Path(folder) / "-x")):
                found = kb.merge(merged, out=Path(folder) / "all.json", methods=KeepsFour)
                self.assertEqual(len(found.cells), 1)
            for name, value in (("threads", "1"), ("memory_limit", "1GiB")):
                self.refused(name, "must be an integer", call=kb.run, given=(sweep,),
                             out=Path(folder) / "a", **{name: value})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.assertEqual(list(found.means("memory.fraction", by="layer")["layer"]), [0])

    def test_a_guessed_number_of_layers_is_said(self):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            kb.replay(*arrays(), "pyramidkv", budget=16, prompt=P, n_layers=4)
            kb.replay(*arrays(), "window", budget=16, prompt=P)
            self.assertEqual(said, [])
            kb.replay(*arrays(), "pyramidkv", budget=16, prompt=P)
        self.assertIn("n_layers is taken as 1", str(said[0].message))


class Named(unittest.TestCase):
    refused = Forms.refused

    def test_errors_name_the_keyword(self):
        for words, keywords in ((["prompt", "from 0 to 63"], {"budget": 16, "prompt": 700}),
                                (["budjet"], {"budjet": 16})):
            with self.assertRaises(kb.Error) as caught:
                kb.replay(*arrays(), "window", **keywords)
            for word in words:
                self.assertIn(word, str(caught.exception))
            self.assertNotIn("/", str(caught.exception).replace("kvbench list", ""))
            self.assertNotIn("sequence  ", str(caught.exception))

    def test_other_names_and_rows_before_the_prompt_s_end(self):
        with self.assertRaisesRegex(kb.Error, "logit_softcap is not a parameter of window; .* is softcap"):
            kb.replay(*arrays(), "window", budget=6, logit_softcap=30.0)
        with self.assertRaisesRegex(kb.Error, r"rows/0: must be a decode row, from 30 \(.*\) to 63, got 29$"):
            kb.replay(*arrays(), "window", budget=6, prompt=30, rows=[29])

    def test_what_a_dump_has_is_listed(self):
        dump = kb.open_dump(Path(__file__).resolve().parents[2] / "data/smollm2-constitution.h5")
        name = next(iter(dump))
        with self.assertRaisesRegex(KeyError, f"'nosuch'; it has '{name}'"):
            dump["nosuch"]
        with self.assertRaisesRegex(KeyError, "no layer 7; it has 0, 1, 15"):
            dump[name][7]

    def test_a_method_that_is_not_given_is_named(self):
        @kb.method
        class KeepsFirst:
            budget: int = 4

            def compress(self, prompt):
                return kb.Kept(np.arange(self.budget))

        dump = Path(__file__).resolve().parents[2] / "data/clusterable.h5"
        with tempfile.TemporaryDirectory() as folder, \
                self.assertRaisesRegex(kb.Error, r"give methods=\[KeepsFirst\]"):
            kb.run({"dumps": [dump], "algorithms": [{"algorithm": "keeps_first"}]},
                   out=Path(folder) / "a", quiet=True)

    def test_a_dataclass_is_a_method(self):
        @kb.method
        @dataclasses.dataclass
        class KeepsFew:
            budget: int = 4

            def compress(self, prompt):
                return kb.Kept(np.arange(self.budget))

        made = kb.replay(*arrays(), KeepsFew(budget=3), prompt=P)
        self.assertEqual(made.tokens(P).tolist(), [0, 1, 2, P])


if __name__ == "__main__":
    unittest.main()
