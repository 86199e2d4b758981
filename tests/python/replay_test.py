"""kb.replay: the program's records to the bit, from a dump and from arrays; what it takes and refuses."""

import gc
import inspect
import json
import subprocess
import tempfile
import tracemalloc
import unittest
import warnings
import weakref
from pathlib import Path

import h5py
import numpy as np

import kvbench as kb
from streams import DUMP, PROGRAM, SETTINGS, stream, without


def settings():
    """Those of SETTINGS, and of every other algorithm its required parameters at 64, or 0.5 of a real number, and
    sizes of values themselves where they can be those behind W_O, which the dump lacks."""
    listed = {algorithm for algorithm, _ in SETTINGS}
    others = [(each["id"], {parameter["name"]: 0.5 if parameter["type"] == "real" else 64
                             for parameter in each["parameters"] if parameter["default"] is None} |
               {parameter["name"]: word for parameter in each["parameters"] for word in parameter.get("words") or ()
                if word == "value_l2"})
              for each in kb.algorithms() if each["id"] not in listed | {"given", "kvzip"}]
    return (*SETTINGS, *others)


TRIED = settings()


class LikeTheProgram(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        entries = [{"algorithm": algorithm, "params": params, "label": f"setting {i}"}
                   for i, (algorithm, params) in enumerate(TRIED)]
        cls.sweep = {
            "schema_version": 1, "name": "all", "dumps": [str(DUMP)],
            "select": {"layers": [15], "kv_heads": [1], "tokens": 600},
            "replay": {"prompt_tokens": 500}, "evaluate": {"rows": {"every": 3}},
            "seeds": [0, 5], "algorithms": entries}
        cls.cells = cls.ran(Path(folder.name, "all"), cls.sweep)
        masks = [cell for cell in cls.cells if "rows of the prompt alone" in cell.get("reason", "")]
        labels = {cell["label"] for cell in masks}
        of_prompt = {**cls.sweep, "evaluate": {"rows": {"prompt": {"every": 3}}},
                     "algorithms": [entry for entry in entries if entry["label"] in labels]}
        cls.cells = [cell for cell in cls.cells if cell not in masks] + cls.ran(Path(folder.name, "prompt"), of_prompt)
        cls.layer = kb.open_dump(DUMP)["constitution"][15]

    @staticmethod
    def ran(out, sweep):
        """Cells of the program's run of the sweep."""
        out.mkdir()
        config = out / "sweep.json"
        config.write_text(json.dumps(sweep))
        ran = subprocess.run([PROGRAM, "run", "--config", config, "--out", out / "results", "--quiet"],
                             capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return json.loads((out / "results/results.json").read_text())["cells"]

    def of(self, cell):
        return TRIED[int(cell["label"].split()[1])]

    def test_every_algorithm_is_tried(self):
        """But `given`, which needs a file (methods_test.py), and `kvzip`, whose pass this dump lacks."""
        self.assertEqual({algorithm for algorithm, _ in TRIED},
                         {each["id"] for each in kb.algorithms()} - {"given", "kvzip"})
        self.assertGreater(len(self.cells), len(TRIED))

    def test_a_layer_gives_the_program_s_record_with_the_same_id(self):
        for cell in self.cells:
            algorithm, params = self.of(cell)
            with self.subTest(algorithm, **params):
                self.assertEqual(cell["status"], "ok")
                got = kb.replay(self.layer, algorithm, head=1, tokens=600, prompt=500,
                                rows=cell["key"]["rows"], seed=cell["key"]["seed"] or 0, **params)
                self.assertEqual(list(got.record), list(cell))  # the order of keys too
                self.assertEqual(without(got.record, "label"), without(cell, "label"))

    def test_heads_that_decide_together_are_told(self):
        how = {"head": 1, "tokens": 600, "prompt": 500, "budget": 64}
        for algorithm, more in (("tova", {}), ("adakv", {"window": 16}), ("keyformer", {"scope": "model"})):
            with self.assertWarnsRegex(UserWarning, f"3 KV heads .* together by {algorithm}, .* kvbench.run"):
                kb.replay(self.layer, algorithm, **how, **more)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kb.replay(self.layer, "tova", scope="head", **how)
            kb.replay(self.layer, "h2o", **how)

    def test_arrays_give_the_same_values(self):
        q, k, v = self.layer.q[3:6, :600], self.layer.k[1, :600], self.layer.v[1, :600]
        for cell in self.cells:
            algorithm, params = self.of(cell)
            with self.subTest(algorithm, **params):
                got = kb.replay(q, k, v, algorithm, scale=self.layer.scale, rope=self.layer.rope,
                                sequence="constitution", layer=15, head=1, n_layers=30, prompt=500,
                                rows=cell["key"]["rows"], seed=cell["key"]["seed"] or 0, **params)
                expected = without(cell, "label", "id", "key")
                self.assertEqual(without(got.record, "label", "id", "key"), expected)
                key = {**cell["key"], "dump": got.record["key"]["dump"]}
                self.assertEqual(got.record["key"], key)

    def test_norms_of_the_output_projection_come_with_a_layer_or_with_arrays(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        path = folder / "norms.h5"
        subprocess.run([PROGRAM, "synth", "gaussian", "--tokens", "96", "--kv-heads", "2", "--group", "2",
                        "--d", "8", "--out", path], check=True, capture_output=True)
        norms = np.random.default_rng(0).gamma(0.3, size=(4, 96, 1)).astype(np.float32)
        with h5py.File(path, "a") as dump:
            dump["sequences/0/layers/0/wo_v_l1"] = norms
        params = {"budget": 24, "window": 8, "norm": "wo_l1"}
        config = folder / "sweep.json"
        config.write_text(json.dumps({
            "schema_version": 1, "name": "norms", "dumps": [str(path)], "seeds": [0],
            "select": {"kv_heads": [1], "tokens": 80}, "replay": {"prompt_tokens": 64},
            "algorithms": [{"algorithm": "criticalkv", "params": params}]}))
        subprocess.run([PROGRAM, "run", "--config", config, "--out", folder / "out", "--quiet"], check=True)
        cell, = json.loads((folder / "out/results.json").read_text())["cells"]
        self.assertEqual(cell["status"], "ok")
        layer = kb.open_dump(path)["0"][0]
        np.testing.assert_array_equal(layer.wo_v_l1, norms[:, :, 0])
        got = kb.replay(layer, "criticalkv", head=1, tokens=80, prompt=64, **params)
        self.assertEqual(without(got.record, "label"), without(cell, "label"))
        q, k, v = layer.q[2:, :80], layer.k[1, :80], layer.v[1, :80]
        setting = {"sequence": "0", "head": 1, "prompt": 64, "scale": layer.scale, **params}
        arrays = kb.replay(q, k, v, "criticalkv", wo_v_l1=norms[2:, :80, 0], **setting)
        self.assertEqual(arrays.errors, got.errors)
        np.testing.assert_array_equal(arrays.tokens(79), got.tokens(79))
        # Other norms keep other tokens, and make other ids.
        other = kb.replay(q, k, v, "criticalkv", wo_v_l1=norms[:2, :80, 0], **setting)
        self.assertNotEqual(other.tokens(79).tolist(), got.tokens(79).tolist())
        self.assertNotEqual(other.record["id"], arrays.record["id"])
        self.assertIsNone(self.layer.wo_v_l1)
        for bad, words in ((None, "wo_v_l1"), (norms[2:, :79, 0], r"\[2, 80\], got \[2, 79\]"),
                           (norms[2:, :80], r"got \[2, 80, 1\]"), (np.full((2, 80), np.nan), "wo_v_l1")):
            with self.assertRaisesRegex(kb.Error, words):
                kb.replay(q, k, v, "criticalkv", wo_v_l1=bad, **setting)
        with self.assertRaisesRegex(kb.Error, "wo_v_l1: the layer says it"):
            kb.replay(layer, "criticalkv", wo_v_l1=norms[2:, :, 0], **params)

    def test_a_storage_writes_what_is_kept(self):
        setting = {"head": 1, "tokens": 600, "prompt": 500, "budget": 64, "rows": {"every": 3}}
        plain = kb.replay(self.layer, "snapkv", **setting)
        stored = kb.replay(self.layer, "snapkv", **setting,
                           storage={"keys": "q8_0", "values": {"codec": "kivi", "bits": 4}})
        self.assertEqual(stored.record["key"]["storage"]["values"]["bits"], 4)
        self.assertEqual(stored.memory["tokens"], plain.memory["tokens"])
        self.assertLess(stored.memory["bytes"], plain.memory["bytes"])
        self.assertGreater(stored.errors["key_error"], 0.0)
        self.assertIsNone(plain.errors["key_error"])
        with self.assertRaisesRegex(kb.Error, "unknown codec q80; did you mean q8_0"):
            kb.replay(self.layer, "snapkv", **setting, storage="q80")

    def test_a_reading_method_reads_what_another_one_kept(self):
        setting = {"head": 1, "tokens": 600, "prompt": 500, "budget": 64, "rows": {"every": 3}}
        alone = kb.replay(self.layer, "snapkv", **setting)
        quest = {"algorithm": "quest", "params": {"budget": 32, "semantics": "kernel", "share": "group"}}
        both = kb.replay(self.layer, "snapkv", **setting, then=quest)
        self.assertEqual(both.record["key"]["algorithm"], "snapkv+quest")
        self.assertEqual(both.record["key"]["params"]["then.budget"], 32)
        lookup = both.memory["lookup_bytes"]
        self.assertGreater(lookup, 0)
        self.assertEqual(both.memory["bytes"], alone.memory["bytes"] + lookup)
        self.assertLessEqual(set(both.tokens(599)), set(alone.tokens(599)))
        # 64 and 100 decoded tokens are ten pages of 16 and four tokens: the best page and the newest are read.
        self.assertEqual((len(alone.tokens(599)), len(both.tokens(599))), (164, 16 + 4))
        self.assertIn("then={'algorithm': 'quest'", both.record["repro"])
        every = kb.replay(self.layer, "snapkv", **setting,
                          then={"algorithm": "oracle_topk", "params": {"budget": 600}})
        self.assertEqual(every.errors, alone.errors)
        kept = [token for token in alone.tokens(500) if token < 500]
        for mine in (kb.method(type("Mine", (), {"compress": lambda self, prompt: kb.Kept(kept)})),
                     kb.method(type("Layered", (), {
                         "compress_layer": lambda self, prompts: [kb.Kept(kept) for _ in prompts]}))):
            own = kb.replay(self.layer, mine(), head=1, tokens=600, prompt=500, rows={"every": 3}, then=quest)
            self.assertEqual((own.errors, own.memory["bytes"], own.tokens(599).tolist()),
                             (both.errors, both.memory["bytes"], both.tokens(599).tolist()))
        for rows, words in (({"end": [505] * len(kept)}, "adds or drops tokens after the prompt"),
                            ({"begin": [505] * len(kept)}, "adds or drops tokens after the prompt"),
                            ({"head": [0] * len(kept)}, "tokens of weight 1 for all query heads")):
            later = kb.method(type("Later", (), {"compress": lambda self, prompt, rows=rows: kb.Kept(kept, **rows)}))
            with self.assertRaisesRegex(kb.Error, words):
                kb.replay(self.layer, later(), head=1, tokens=600, prompt=500, then=quest)
        for then, words in (({"algorithm": "h2o"}, "then/algorithm: must be a method"),
                            ({**quest, "params": {}}, "then/params/budget: this key is missing"),
                            ("quest", "then: must be an object")):
            with self.assertRaisesRegex(kb.Error, words):
                kb.replay(self.layer, "snapkv", **setting, then=then)
        with self.assertRaisesRegex(kb.Error, "then: h2o may drop tokens"):
            kb.replay(self.layer, "h2o", **setting, then=quest)

    def test_the_comparison_sees_another_seed_and_another_head(self):
        cell = next(each for each in self.cells if each["key"]["seed"] == 5)
        algorithm, params = self.of(cell)
        for change in ({"seed": 0}, {"seed": 5, "head": 0}):
            got = kb.replay(self.layer, algorithm, **{"head": 1, "tokens": 600, "prompt": 500,
                                                      "rows": {"every": 3}, **params, **change})
            self.assertNotEqual(got.errors, cell["errors"])

    def test_it_prints_the_frobenius_error_first_and_the_mean_next_to_it(self):
        got = kb.replay(self.layer, "window", head=1, tokens=600, prompt=500, budget=64)
        error, mean = got.errors["relative_frobenius_error"], got.errors["relative_l2"]["mean"]
        self.assertNotAlmostEqual(error, mean, places=3)
        self.assertTrue(repr(got).endswith(f": Frobenius error {error:.4g}, mean error {mean:.4g}, "
                                           f"{got.memory['fraction']:.4g} of the exact memory>"), repr(got))
        got.record["errors"].update(relative_frobenius_error=None, relative_l2=None)
        self.assertIn("Frobenius error undefined, mean error undefined, ", repr(got))

    def test_outputs_have_the_errors_of_the_record(self):
        layer = self.layer
        for algorithm, params in (("exact", {}), ("h2o", {"budget": 64})):
            got = kb.replay(layer, algorithm, head=1, tokens=600, prompt=500, rows=[500, 580, 599],
                            **params)
            self.assertEqual(got.rows.tolist(), [500, 580, 599])
            self.assertEqual(got.outputs.shape, (3, 3, 64))
            errors = []
            for g in range(3):
                for r, row in enumerate(got.rows):
                    x = layer.scale * layer.k[1, :row + 1] @ layer.q[3 + g, row]
                    p = np.exp(x - x.max())
                    exact = p @ layer.v[1, :row + 1] / p.sum()
                    errors.append(np.linalg.norm(got.outputs[g, r] - exact) / np.linalg.norm(exact))
            self.assertAlmostEqual(np.mean(errors), got.errors["relative_l2"]["mean"], delta=1e-12)

    def test_tokens_are_what_memory_counts_and_what_answers(self):
        for algorithm, params in SETTINGS:
            with self.subTest(algorithm, **params):
                got = kb.replay(self.layer, algorithm, head=1, tokens=600, prompt=500, **params)
                self.assertEqual(len(got.tokens(599)), got.memory["distinct_tokens"])
                for row in (500, 550, 599):
                    tokens = got.tokens(row)
                    self.assertTrue(np.all(np.diff(tokens) > 0))
                    self.assertLessEqual(tokens[-1], row)

    def test_tokens_of_a_window_are_the_last_ones_at_every_row(self):
        q, k, v = stream(n=64)
        got = kb.replay(q, k, v, "window", budget=8, prompt=20, rows=[30, 63])
        for row in range(20, 64):
            self.assertEqual(got.tokens(row).tolist(), list(range(row - 7, row + 1)))
        for row in (19, 64):
            with self.assertRaises(IndexError):
                got.tokens(row)


class Arrays(unittest.TestCase):
    def values(self, q, k, v, **options):
        got = kb.replay(q, k, v, "h2o", budget=32, **options)
        return got.errors, got.outputs.tolist()

    def test_smaller_types_are_computed_with_as_doubles(self):
        for dtype in (np.float32, np.float16):
            arrays = [each.astype(dtype) for each in stream()]
            self.assertEqual(self.values(*arrays),
                             self.values(*(each.astype(np.float64) for each in arrays)))

    def test_layouts_and_byte_orders_are_the_same_numbers(self):
        q, k, v = stream()
        expected = self.values(q, k, v)
        self.assertEqual(self.values(np.asfortranarray(q), k.T.copy().T, v), expected)
        self.assertEqual(self.values(q.astype(">f8"), np.repeat(k, 2, axis=0)[::2], v), expected)
        self.assertEqual(self.values(q.tolist(), k.tolist(), v.tolist()), expected)
        self.assertEqual(self.values(q[::-1][::-1], k, v), expected)
        single = q[0]
        self.assertEqual(self.values(single, k, v), self.values(single[None], k, v))
        for each in (q, k, v):
            each.flags.writeable = False
        self.assertEqual(self.values(q, k, v), expected)

    def test_contiguous_doubles_are_not_copied(self):
        q, k, v = stream()
        k.flags.writeable = False
        for array in (q, k, v, q[1:], k[10:20]):
            self.assertTrue(kb._core.shares_memory(array))
        for array in (q[:, 1:], k.T, k.astype(np.float32), k[::2]):
            self.assertFalse(kb._core.shares_memory(array))

    def test_a_replay_allocates_no_second_stream(self):
        """The peak of the process's memory while a replay runs, against the size of the arrays."""
        q, k, v = stream(n=1 << 16, d=128, dv=128, heads=4)

        def growth(*arrays):
            Path("/proc/self/clear_refs").write_text("5")
            before = status("VmRSS")
            kb.replay(*arrays, "window", budget=8, prompt=(1 << 16) - 2, rows={"last": 1}, threads=1)
            return status("VmHWM") - before

        def status(name):
            text = Path("/proc/self/status").read_text()
            return int(text.split(name + ":")[1].split()[0]) * 1024

        growth(q, k, v)
        size = q.nbytes + k.nbytes + v.nbytes
        self.assertLess(growth(q, k, v), 0.4 * size)
        strided = np.asfortranarray(q)
        self.assertGreater(growth(strided, k, v), 0.6 * size)  # a copy is seen

    def test_defaults_of_scale_and_prompt(self):
        q, k, v = stream()
        got = kb.replay(q, k, v, "h2o", budget=32)
        self.assertEqual(got.errors, kb.replay(q, k, v, "h2o", budget=32, scale=0.25,
                                               prompt=128).errors)
        self.assertNotEqual(got.errors, kb.replay(q, k, v, "h2o", budget=32, scale=0.5).errors)
        self.assertNotEqual(got.errors, kb.replay(q, k, v, "h2o", budget=32, softcap=1.0).errors)
        windowed = kb.replay(q, k, v, "exact", sliding_window=16)
        self.assertEqual(len(windowed.tokens(255)), 16)

    def test_the_id_is_of_the_content(self):
        q, k, v = stream()
        ids = {kb.replay(q, k, v, "exact", **options).record["id"]
               for options in ({}, {"scale": 1.0}, {"softcap": 2.0}, {"layer": 1}, {"prompt": 5})}
        self.assertEqual(len(ids), 5)
        self.assertEqual(kb.replay(q.copy(), k, v, "exact").record["id"],
                         kb.replay(q, k, v, "exact").record["id"])

    def test_threads_change_no_value(self):
        q, k, v = stream(n=512)
        records = [without(kb.replay(q, k, v, "keyformer", budget=64, seed=2, threads=t).record)
                   for t in (1, 2, None)]
        self.assertEqual(records[0], records[1])
        self.assertEqual(records[0], records[2])

    def test_python_keeps_no_array_afterwards(self):
        arrays = stream(n=1024, d=64)
        kept = [weakref.ref(each) for each in arrays]
        kb.replay(*arrays, "exact")
        del arrays
        gc.collect()
        self.assertEqual([each() for each in kept], [None] * 3)

    def test_python_keeps_no_copy_afterwards(self):
        """Arrays that are not float64 already are copied for the call alone."""
        q, k, v = (each.astype(np.float32) for each in stream(n=1024, d=64))
        kb.replay(q, k, v, "exact")
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(3):
            kb.replay(q, k, v, "exact")
        after, _ = tracemalloc.get_traced_memory()
        self.assertLess(after - before, k.nbytes)


class Refused(unittest.TestCase):
    def refuses(self, words, *arguments, **options):
        with self.assertRaises(kb.Error) as raised:
            kb.replay(*arguments, **options)
        self.assertIsInstance(raised.exception, ValueError)
        for word in words:
            self.assertIn(word, str(raised.exception))

    def test_what_is_wrong_is_named(self):
        q, k, v = stream()
        nan = k.copy()
        nan[7, 3] = np.nan
        for words, arrays, options in (
                ((": budgt: ", "did you mean budget?"), (q, k, v, "h2o"), {"budgt": 64}),
                (("budget", "0"), (q, k, v, "h2o"), {"budget": 0}),
                (("2 cells",), (q, k, v, "h2o"), {"budget": [64, 128]}),
                (("algorithm", "h2o"), (q, k, v, "h20"), {"budget": 64}),
                (("window", "sliding_window"), (q, k, v, "h2o"), {"budget": 64, "window": 32}),
                ((": prompt: ", "256"), (q, k, v, "exact"), {"prompt": 256}),
                (("rows/0",), (q, k, v, "exact"), {"rows": [3]}),
                ((": seed: ", "-1"), (q, k, v, "exact"), {"seed": -1}),
                (("element_bytes",), (q, k, v, "exact"), {"element_bytes": 3}),
                (("k: ", "[0, 7, 3]", "NaN"), (q, nan, v, "exact"), {}),
                (("v: ", "256", "200"), (q, k, v[:200], "exact"), {}),
                (("q: ", "200"), (q, k[:200], v[:200], "exact"), {}),
                (("q: ", "16"), (q[..., :8], k, v, "exact"), {}),
                (("k: ",), (q, q, v, "exact"), {}),
                (("q: ", "dimensions"), (q[0, 0], k, v, "exact"), {}),
                (("v: ", "float64"), (q, k, v.astype(int), "exact"), {}),
                (("v: ", "shape"), (q, k, v[:, :0], "exact"), {}),
                (("scale", "-1"), (q, k, v, "exact"), {"scale": -1.0}),
                (("softcap",), (q, k, v, "exact"), {"softcap": float("inf")}),
                (("sliding_window",), (q, k, v, "exact"), {"sliding_window": -1}),
                (("n_layers",), (q, k, v, "exact"), {"layer": 3, "n_layers": 3}),
                (("rope",), (q, k, v, "exact"), {"rope": ([1.0], "both")}),
                (("rope",), (q, k, v, "exact"), {"rope": ([1.0] * 9, "half")}),
                (("tokens",), (q, k, v, "exact"), {"tokens": 9}),
                (("cannot be of type",), (q, k, v, "h2o"), {"budget": object()}),
                # Algorithms that cannot run on this stream, and numbers that overflow:
                (("snapkv", "quer"), (q[:, 200:], k, v, "snapkv"), {"budget": 64}),
                (("exact",), (q * 1e160, k * 1e160, v, "exact"), {})):
            with self.subTest(words=words):
                self.refuses(words, *arrays, **options)

    def test_all_errors_of_the_arrays_are_reported_together(self):
        q, k, v = stream()
        self.refuses(("v: ", "\nq: "), q[..., :8], k, v[:200], "exact")

    def test_what_a_layer_says_is_not_said_again(self):
        layer = kb.open_dump(DUMP)["constitution"][0]
        self.refuses(("scale",), layer, "exact", scale=1.0)
        self.refuses(("KV head 3",), layer, "exact", head=3)
        self.refuses(("tokens", "2048"), layer, "exact", tokens=2049)
        self.refuses(("prompt_tokens",), layer, "exact", prompt="dump")

    def test_wrong_numbers_of_arguments_are_type_errors(self):
        q, k, v = stream()
        for arguments in ((), (q, k, v), (q, "exact"), (q, k, v, "exact", 1)):
            with self.assertRaises(TypeError):
                kb.replay(*arguments)
        with self.assertRaises(TypeError):
            kb.replay(q, k, v, "exact", algorithm="exact")

    def test_the_algorithm_may_be_a_keyword(self):
        q, k, v = stream()
        layer = kb.open_dump(DUMP)["constitution"][15]
        for given in ((q, k, v), (layer,)):
            np.testing.assert_array_equal(kb.replay(*given, algorithm="window", budget=16).outputs,
                                          kb.replay(*given, "window", budget=16).outputs)
        with self.assertRaisesRegex(kb.Error, "params: give each parameter as a keyword"):
            kb.replay(q, k, v, "window", params={"budget": 16})

    def test_no_parameter_of_an_algorithm_is_hidden_by_an_option(self):
        options = {name for name, each in inspect.signature(kb.replay).parameters.items()
                   if each.kind is each.KEYWORD_ONLY}
        options |= {"algorithm", "params"}
        self.assertIn("seed", options)
        for algorithm in kb.algorithms():
            names = {each["name"] for each in algorithm["parameters"]}
            if algorithm["id"] == "attention_matching":  # README: its `rows` is for kb.run
                names.remove("rows")
            self.assertEqual(names & options, set(), algorithm["id"])


class Listed(unittest.TestCase):
    def test_algorithms_metrics_and_codecs_are_those_of_the_program(self):
        for what, listed in (("algorithms", kb.algorithms()), ("metrics", kb.metrics()),
                             ("storage", kb.storage())):
            said = subprocess.run([PROGRAM, "list", what, "--json"], capture_output=True, check=True)
            self.assertEqual(listed, json.loads(said.stdout))

    def test_every_codec_listed_for_keys_and_values_stores_both(self):
        q, k, v = stream()
        for codec in kb.storage():
            if not (codec["keys"] and codec["values"]):
                continue
            with self.subTest(codec["id"]):
                try:
                    stored = kb.replay(q, k, v, "exact", prompt=8, storage=codec["id"])
                except kb.Error as error:  # a width or prompt that the codec does not fit
                    self.assertIn(codec["id"], str(error))
                else:
                    self.assertEqual(stored.record["key"]["storage"]["keys"]["codec"], codec["id"])

    def test_the_stub_of_the_module_names_what_it_has(self):
        stub = Path(kb.__file__).with_name("_core.pyi").read_text()
        for name in dir(kb._core):
            if not name.startswith("_"):
                self.assertRegex(stub, rf"(?m)^(def|class) {name}\b")


if __name__ == "__main__":
    unittest.main()
