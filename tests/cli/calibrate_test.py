"""Calibration files: a prompt's own is the method without one, numbers against numpy, refusals, resumed runs."""

import json
import unittest

import h5py
import numpy as np

from program import DONE, FAILED_CELLS, Folder, deterministic, kvbench

P = 64
MEMBERS = {"replay": {"prompt_tokens": P}, "seeds": [0]}
METHODS = {"qfilters": {"budget": 24}, "triattention": {"budget": 24, "interval": 4},
           "expected_attention": {"budget": 24},
           "loki": {"budget": 24, "rank": 2}}
VARIANTS = [("qfilters", {}), ("triattention", {}), ("expected_attention", {}), ("expected_attention", {"sinks": 9}),
            *(("loki", {"basis": basis, "centre": centre}) for basis in ("pca", "pca_pre") for centre in (True, False)),
            ("loki", {"basis": "channels"})]


def queries(dump, layer, kv_head, tokens):
    """Per query head of the KV head: the queries of all texts of a dump, one below the other."""
    with h5py.File(dump) as file:
        texts = [each[f"layers/{layer}"] for each in file["sequences"].values()]
        group = texts[0]["q"].shape[0] // texts[0]["k"].shape[0]
        return [np.concatenate([text["q"][kv_head * group + g, :tokens].astype(float) for text in texts])
                for g in range(group)]


class Calibrate(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        of_model = ("--tokens", 96, "--d", 8, "--layers", 2, "--kv-heads", 2, "--group", 2)
        cls.mine = cls.synth("mine.h5", *of_model, "--seed", 1, kind="rope")
        cls.train = cls.synth("train.h5", *of_model, "--seed", 2, "--sequences", 2, kind="rope")
        cls.wide = cls.synth("wide.h5", *of_model[:3], 16, *of_model[4:], kind="rope")
        cls.turned = cls.synth("turned.h5", *of_model, "--theta", 77, kind="rope")
        cls.other = cls.synth("other.h5", *of_model)
        cls.short = cls.synth("short.h5", *of_model, "--query-rows", 40, kind="rope")

    def calibrate(self, *dumps, method="qfilters", out="m.cal.h5", options=(), **params):
        done = kvbench("calibrate", "--method", method, "--dump", *dumps, "--out", self.folder / out,
                       "--params", json.dumps(params), *options)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertIn("fingerprint", done.stderr)
        return self.folder / out

    def cells(self, method="qfilters", out="out", dump=None, options=(), expect=DONE, **params):
        """Cells of one setting, by layer and KV head; and the results."""
        config = self.sweep([{"algorithm": method, "params": {**METHODS[method], **params}}], file=f"{out}.json",
                            dumps=[str(dump or self.mine)], name="same", **MEMBERS)
        done = kvbench("run", "--config", config, "--out", self.folder / out, "--quiet", *options)
        self.assertEqual(done.returncode, expect, done.stderr)
        results = self.results(out)
        return {(cell["key"]["layer"], cell["key"]["kv_head"]): cell for cell in results["cells"]}, results

    def refused(self, *words, method="qfilters", dump=None, **params):
        config = self.sweep([{"algorithm": method, "params": {**METHODS[method], **params}}],
                            dumps=[str(dump or self.mine)], **MEMBERS)
        done = kvbench("plan", "--config", config)
        self.assert_refused(done, "/algorithms/0/params/calibration", "m.cal.h5", *words)

    def test_on_the_prompt_that_is_scored_it_is_the_method_without_a_file(self):
        for method, params in VARIANTS:
            with self.subTest(method=method, **params):
                self.calibrate(self.mine, method=method, options=("--tokens", P), **params)
                own, without = self.cells(method, "own", options=["--fresh"], **params)
                given, results = self.cells(method, "given", options=["--fresh"], calibration="m.cal.h5", **params)
                (listed,) = results["calibrations"]
                self.assertEqual(listed["method"], method)
                self.assertNotIn("calibrations", without)
                self.assertEqual(len(given), 4)
                for head, cell in given.items():
                    self.assertEqual(cell["errors"], own[head]["errors"])
                    self.assertEqual(cell["memory"], own[head]["memory"])
                    self.assertEqual(cell["key"]["params"]["calibration"], listed["fingerprint"])
                    self.assertNotIn("calibration", own[head]["key"]["params"])
                    self.assertIs(cell["derived"].pop("calibrated_on_text"), True)
                    self.assertEqual(cell["derived"], own[head]["derived"])

    def test_on_other_texts_values_differ_and_the_cell_says_so(self):
        for method, params in VARIANTS:
            with self.subTest(method=method, **params):
                self.calibrate(self.train, method=method, **params)
                own, _ = self.cells(method, "own", options=["--fresh"], **params)
                given, _ = self.cells(method, "given", options=["--fresh"], calibration="m.cal.h5", **params)
                self.assertNotEqual([cell["errors"] for cell in own.values()],
                                    [cell["errors"] for cell in given.values()])
                self.assertEqual({cell["derived"]["calibrated_on_text"] for cell in given.values()}, {False})
        # One of three texts is the scored one, whole or cut.
        for tokens in (96, 70, 20):
            self.calibrate(self.train, self.mine, options=("--tokens", tokens))
            given, _ = self.cells(options=["--fresh"], calibration="m.cal.h5")
            self.assertEqual({cell["derived"]["calibrated_on_text"] for cell in given.values()}, {True})

    def test_a_scope_of_layers_takes_the_file_of_its_kv_heads(self):
        self.calibrate(self.mine, method="triattention", options=("--tokens", P))
        own, _ = self.cells("triattention", "own", scope="model")
        given, _ = self.cells("triattention", "given", scope="model", calibration="m.cal.h5")
        alone, _ = self.cells("triattention", "alone")
        self.assertEqual([cell["errors"] for cell in given.values()], [cell["errors"] for cell in own.values()])
        self.assertNotEqual([cell["errors"] for cell in alone.values()], [cell["errors"] for cell in own.values()])

    def test_mean_queries_and_lengths_of_pairs_are_those_of_numpy(self):
        with h5py.File(self.calibrate(self.train, method="triattention")) as file, h5py.File(self.train) as dump:
            turns = np.exp(-1j * np.outer(np.arange(96), dump["rope/inv_freq"][()]))
            for layer in range(2):
                for head in range(2):
                    found = file[f"layers/{layer}/heads/{head}"]
                    for g, rows in enumerate(queries(self.train, layer, head, None)):
                        pairs = ((rows[:, :4] + 1j * rows[:, 4:]).reshape(2, 96, 4) * turns).reshape(-1, 4)
                        mean = pairs.mean(axis=0)
                        np.testing.assert_allclose(found["mean"][g], np.concatenate([mean.real, mean.imag]),
                                                   atol=1e-12)
                        np.testing.assert_allclose(found["length"][g], abs(pairs).mean(axis=0), atol=1e-12)

    def test_filters_are_the_singular_vectors_of_numpy(self):
        tokens = 80
        glob = str(self.train).replace("train.h5", "trai?.h5")
        with h5py.File(self.calibrate(glob, options=("--tokens", tokens))) as file:
            self.assertEqual({name: file.attrs[name] for name in ("method", "params", "n_layers")},
                             {"method": "qfilters", "params": "{}", "n_layers": 2})
            self.assertEqual([(text.attrs["sequence"], text.attrs["tokens"]) for text in file["texts"].values()],
                             [("0", tokens), ("1", tokens)])
            for layer in range(2):
                for head in range(2):
                    expected = 0.0
                    for rows in queries(self.train, layer, head, tokens):
                        first = np.linalg.svd(rows)[2][0]
                        expected = expected + (first if (rows @ first > 0).sum() * 2 >= len(rows) else -first) / 2
                    found = file[f"layers/{layer}/heads/{head}/filter"][()]
                    np.testing.assert_allclose(found, expected, atol=1e-9)

    def test_moments_are_those_of_numpy(self):
        with h5py.File(self.calibrate(self.train, method="expected_attention")) as file, h5py.File(self.train) as dump:
            frequencies = dump["rope/inv_freq"][()]
            turns = np.exp(-1j * np.outer(np.arange(96), frequencies))
            for layer in range(2):
                for head in range(2):
                    for g, rows in enumerate(queries(self.train, layer, head, None)):
                        pairs = (rows[:, :4] + 1j * rows[:, 4:]).reshape(2, 96, 4) * turns
                        unrotated = np.concatenate([pairs.real, pairs.imag], axis=2)[:, 4:].reshape(-1, 8)
                        arrays = file[f"layers/{layer}/heads/{head}"]
                        np.testing.assert_allclose(arrays["mean"][g], unrotated.mean(0), atol=1e-9)
                        np.testing.assert_allclose(arrays["covariance"][g], np.cov(unrotated.T, bias=True), atol=1e-9)

    def test_what_does_not_fit_is_refused_by_name(self):
        self.calibrate(self.wide)
        self.refused("was calibrated for d = 16, but it is 8 here", calibration="m.cal.h5")
        self.calibrate(self.turned)
        self.refused("was calibrated with another rotation", calibration="m.cal.h5")
        self.calibrate(self.other)
        self.refused("was calibrated on model synthetic gaussian", "rope", calibration="m.cal.h5")
        self.calibrate(self.train)
        self.refused("is a calibration of qfilters, and the method is loki", method="loki", calibration="m.cal.h5")
        self.calibrate(self.train, method="loki", basis="channels")
        self.refused('was calibrated with {"basis":"channels","centre":true}', '"basis":"pca"', method="loki",
                     calibration="m.cal.h5")
        (self.folder / "m.cal.h5").unlink()
        self.refused("there is no file", calibration="m.cal.h5")

    def test_a_layer_that_was_left_out_is_skipped(self):
        self.calibrate(self.train, options=("--layers", "1"))
        given, _ = self.cells(calibration="m.cal.h5")
        self.assertEqual({head: cell["status"] for head, cell in given.items()},
                         {(0, 0): "skipped", (0, 1): "skipped", (1, 0): "ok", (1, 1): "ok"})
        self.assertIn("does not have this layer", given[0, 0]["reason"])

    def test_a_prompt_without_queries_needs_a_file(self):
        own, _ = self.cells(dump=self.short)
        self.assertEqual({cell["status"] for cell in own.values()}, {"skipped"})
        self.calibrate(self.train)
        given, _ = self.cells(out="given", dump=self.short, calibration="m.cal.h5")
        self.assertEqual({cell["status"] for cell in given.values()}, {"ok"})

    def test_a_file_without_the_arrays_of_its_method_fails_its_cells(self):
        for name, values, words in (("filter", None, "filter: is missing"), ("filter", np.zeros(3), "expected [8]")):
            with h5py.File(self.calibrate(self.train), "r+") as file:
                del file[f"layers/0/heads/1/{name}"]
                if values is not None:
                    file[f"layers/0/heads/1/{name}"] = values
            given, _ = self.cells(options=["--fresh"], calibration="m.cal.h5", expect=FAILED_CELLS)
            self.assertEqual([head for head, cell in given.items() if cell["status"] == "failed"], [(0, 1)])
            self.assertIn(words, given[0, 1]["reason"])

    def test_cells_of_a_changed_file_are_computed_again(self):
        self.calibrate(self.train)
        first, before = self.cells(calibration="m.cal.h5")
        _, after = self.cells(calibration="m.cal.h5")
        self.assertEqual(deterministic(after), deterministic(before))
        self.calibrate(self.train, options=("--sequences", "1"))
        resumed = kvbench("run", "--config", self.folder / "out.json", "--out", self.folder / "out")
        self.assert_refused(resumed, "4 finished cells of another sweep", "--add")
        changed, _ = self.cells(calibration="m.cal.h5", options=["--add"])
        fresh, _ = self.cells(out="fresh", calibration="m.cal.h5")
        for head, cell in changed.items():
            self.assertNotEqual(cell["id"], first[head]["id"])
            self.assertEqual(cell["errors"], fresh[head]["errors"])
        self.assertNotEqual([cell["errors"] for cell in changed.values()],
                            [cell["errors"] for cell in first.values()])

    def test_equal_texts_make_equal_files_and_shards_merge_without_them(self):
        file = self.calibrate(self.train)
        content = file.read_bytes()
        self.calibrate(self.train)
        self.assertEqual(file.read_bytes(), content)
        _, whole = self.cells(calibration="m.cal.h5")
        for shard in (1, 2):
            self.cells(out=f"s{shard}", calibration="m.cal.h5", options=("--shard", f"{shard}/2"))
        verified = kvbench("verify", self.folder / "out/results.json", cwd=self.folder)
        self.assertEqual(verified.returncode, DONE, verified.stderr)
        file.unlink()
        done = kvbench("merge", self.folder / "s1", self.folder / "s2", "--out", self.folder / "joined/results.json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(deterministic(self.results("joined")), deterministic(whole))

    def test_texts_that_cannot_be_calibrated_on(self):
        def refused(*arguments, words):
            self.assert_refused(kvbench("calibrate", "--out", self.folder / "m.cal.h5", *arguments), *words)
            self.assertEqual(list(self.folder.glob("*cal*")), [])
        refused("--method", "qfilters", "--dump", self.short, words=["short.h5: sequence 0", "layer 0", "only rows from 56"])
        refused("--method", "qfilters", "--dump", self.train, self.wide, words=["wide.h5", "d = 8, but it is 16"])
        before = self.other.read_bytes()
        done = kvbench("calibrate", "--method", "qfilters", "--dump", self.other, "--out", self.other)
        self.assert_refused(done, "--out", "other.h5 is there and is not a calibration file")
        self.assertEqual(self.other.read_bytes(), before)
        refused("--method", "expected_attention", "--dump", self.train, "--params", '{"sinks": 96}',
                words=["no token is behind the sinks"])


if __name__ == "__main__":
    unittest.main()
