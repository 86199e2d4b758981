"""Calibrated codecs: matrices and errors against numpy, a prompt's own file, refusals, shards, allocation."""

import json
import os
import unittest

import h5py
import numpy as np

from program import DONE, Folder, deterministic, kvbench

P, N, D = 64, 96, 8
FEW = {"sinks": 3, "recent": 9}
CLIPS = {"keys": 0.96, "values": 0.92}


def texts(dump, tokens):
    """Per layer and text of a dump: queries, keys and values of the first tokens, [heads, n, 8]."""
    with h5py.File(dump) as file:
        return {layer: [[sequence[f"layers/{layer}/{name}"][:, :tokens].astype(float) for name in "qkv"]
                        for sequence in file["sequences"].values()] for layer in (0, 1)}


def hadamard(d):
    matrix = np.ones((1, 1))
    while len(matrix) < d:
        matrix = np.kron([[1, 1], [1, -1]], matrix)
    return matrix / np.sqrt(d)


def matrix_of(target):
    _, vectors = np.linalg.eigh(target)
    vectors = vectors * np.sign(vectors[np.argmax(abs(vectors), axis=0), np.arange(D)])
    return (vectors @ hadamard(D))[:, [D - 1 - int(f"{j:03b}"[::-1], 2) for j in range(D)]]


def matrices(of_layer, heads):
    """The matrices of keys and values: the mean of the KV heads' targets, over all texts."""
    keys, values = [], []
    for h in heads:
        group = len(of_layer[0][0]) // len(of_layer[0][1])
        rows = np.concatenate([q[g] for q, _, _ in of_layer for g in range(group * h, group * (h + 1))])
        of_queries = rows.T @ rows / len(rows)
        key, value = (np.concatenate([text[i][h] for text in of_layer]) for i in (1, 2))
        weights = ((key @ of_queries) * key).sum(axis=1)
        keys.append(of_queries)
        values.append((value.T * weights) @ value / weights.sum())
    return {"keys": matrix_of(np.mean(keys, axis=0)), "values": matrix_of(np.mean(values, axis=0))}


def written(x, matrix, tensor, bits=2, group=D, clip=None, scales="fp32", **_):
    turned = x @ matrix
    clip = CLIPS[tensor] if clip is None else clip
    if clip > 0:
        most = np.sort(abs(turned), axis=1)[:, [min(int(clip * D), D - 1)]]
        turned = np.minimum(np.maximum(turned, -most), most)
    parts = turned.reshape(len(x), -1, group)
    least = parts.min(axis=2, keepdims=True)
    scale = (parts.max(axis=2, keepdims=True) - least) / (2**bits - 1)
    zero = -least / scale
    codes = np.clip(np.floor(parts / scale + zero + 0.5), 0, 2**bits - 1)
    if scales != "exact":
        scale, zero = (each.astype({"fp32": np.float32, "fp16": np.float16}[scales]).astype(float) for each in (scale, zero))
    return ((codes - zero) * scale).reshape(turned.shape) @ matrix.T


def errors(dump, layer, head, turns, settings):
    """Mean relative_l2 of the decoded rows of the first text."""
    with h5py.File(dump) as file:
        of_layer = next(iter(file["sequences"].values()))[f"layers/{layer}"]
        scale = of_layer.attrs.get("scale", D**-0.5)
    q, k, v = texts(dump, None)[layer][0]
    group, found = len(q) // len(k), []
    stored = {name: written(x[head], turns[name], name, **settings[name]) for name, x in (("keys", k), ("values", v))}
    for row in range(P, N):
        of_row = {}
        for name, x in (("keys", k[head]), ("values", v[head])):
            token, setting = np.arange(row + 1), settings[name]
            is_written = (token >= setting["sinks"]) & (token <= row - setting["recent"])
            of_row[name] = np.where(is_written[:, None], stored[name][: row + 1], x[: row + 1])
        for query in q[group * head : group * (head + 1), row]:
            exact, answer = (np.exp((logits := keys @ query * scale) - logits.max()) @ values / np.exp(logits - logits.max()).sum()
                             for keys, values in ((k[head, : row + 1], v[head, : row + 1]), (of_row["keys"], of_row["values"])))
            found.append(np.linalg.norm(answer - exact) / np.linalg.norm(exact))
    return np.mean(found)


class CalibratedStorage(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        of_model = ("--tokens", N, "--d", D, "--layers", 2, "--kv-heads", 2, "--group", 2)
        cls.mine = cls.synth("mine.h5", *of_model, "--seed", 1, kind="rope")
        cls.train = cls.synth("train.h5", *of_model, "--seed", 2, "--sequences", 2, kind="rope")
        cls.wide = cls.synth("wide.h5", *of_model[:3], 16, *of_model[4:], kind="rope")
        cls.short = cls.synth("short.h5", *of_model, "--query-rows", 40, kind="rope")

    def calibrate(self, *dumps, method="oscar", out="m.cal.h5", options=(), **params):
        done = kvbench("calibrate", "--method", method, "--dump", *dumps, "--out", self.folder / out,
                       "--params", json.dumps(params), *options)
        self.assertEqual(done.returncode, DONE, done.stderr)
        return self.folder / out

    def config(self, keys, values=None, file="c.json", dump=None, **members):
        storage = {"keys": {"codec": "oscar", **FEW, **keys}, "values": {"codec": "oscar", **FEW, **(keys if values is None else values)}}
        return self.sweep([{"algorithm": "exact"}], file=file, dumps=[str(dump or self.mine)], name="same",
                          **{"replay": {"prompt_tokens": P}, "seeds": [0], "storage": [storage], **members})

    def cells(self, keys, values=None, out="out", dump=None, options=("--fresh",), **members):
        config = self.config(keys, values, f"{out}.json", dump, **members)
        done = kvbench("run", "--config", config, "--out", self.folder / out, "--quiet", *options)
        self.assertEqual(done.returncode, DONE, done.stderr)
        results = self.results(out)
        return {(cell["key"]["layer"], cell["key"]["kv_head"]): cell for cell in results["cells"]}, results

    def refused(self, *words, dump=None, place="/storage", **keys):
        done = kvbench("plan", "--config", self.config({"calibration": "m.cal.h5", **keys}, dump=dump))
        self.assert_refused(done, place, "m.cal.h5", *words)

    def test_matrices_are_those_of_numpy(self):
        tokens = 80
        for share, heads in (("head", None), ("layer", (0, 1))):
            file = self.calibrate(self.train, options=("--tokens", tokens), share=share)
            of_layers = texts(self.train, tokens)
            with h5py.File(file) as found:
                self.assertEqual((found.attrs["method"], found.attrs["params"]), ("oscar", f'{{"share":"{share}"}}'))
                for layer in (0, 1):
                    for head in (0, 1):
                        expected = matrices(of_layers[layer], heads or (head,))
                        arrays = found[f"layers/{layer}/heads/{head}"]
                        for tensor in ("keys", "values"):
                            np.testing.assert_allclose(arrays[f"{tensor[:-1]}_rotation"][()], expected[tensor], atol=1e-9)
                    marks = [found[f"layers/{layer}/heads/{head}/marks"][()] for head in (0, 1)]
                    self.assertEqual(marks[0].shape, (2, 7))
                    self.assertFalse(np.array_equal(*marks))

    def test_errors_are_those_of_numpy(self):
        settings = [{}, {"bits": 4}, {"bits": 3, "group": 4}, {"clip": 0.0}, {"clip": 0.5, "scales": "exact"},
                    {"scales": "fp16", "group": 2}, {"sinks": 0, "recent": 0}]
        own = {layer: [[each[:, :P] for each in text] for text in of_layer]
               for layer, of_layer in texts(self.mine, P).items()}
        shared = self.calibrate(self.train, out="layer.cal.h5", share="layer")
        for values in (*settings, {"share": "layer", "calibration": str(shared)}):
            keys = {**values, "recent": 20} if "recent" not in values else values
            of_texts = texts(self.train, None) if "share" in values else own
            found, _ = self.cells(keys, values)
            for (layer, head), cell in found.items():
                turns = matrices(of_texts[layer], (0, 1) if "share" in values else (head,))
                expected = errors(self.mine, layer, head, turns, {"keys": {**FEW, **keys}, "values": {**FEW, **values}})
                with self.subTest(layer=layer, head=head, **values):
                    self.assertEqual(cell["status"], "ok")
                    self.assertAlmostEqual(cell["errors"]["relative_l2"]["mean"] / expected, 1.0, delta=1e-9)
                    self.assertEqual(cell["memory"]["shared_bytes"], 2 * 4 * D * D)

    def test_on_the_prompt_that_is_scored_it_is_the_codec_without_a_file(self):
        self.calibrate(self.mine, options=("--tokens", P))
        own, without = self.cells({}, out="own")
        given, results = self.cells({"calibration": "m.cal.h5"}, out="given")
        (listed,) = results["calibrations"]
        self.assertEqual(listed["method"], "oscar")
        self.assertNotIn("calibrations", without)
        for head, cell in given.items():
            self.assertEqual(cell["errors"], own[head]["errors"])
            self.assertEqual(cell["memory"], own[head]["memory"])
            for tensor in ("keys", "values"):
                self.assertEqual(cell["key"]["storage"][tensor]["calibration"], listed["fingerprint"])
                self.assertNotIn("calibration", own[head]["key"]["storage"][tensor])
            self.assertIs(cell["derived"]["calibrated_on_text"], True)
            self.assertNotIn("calibrated_on_text", own[head]["derived"])
            self.assertIn(f"calibration={listed['fingerprint'][:8]}", cell["label"])
        both, _ = self.cells({"calibration": ["prompt", "m.cal.h5"]}, {"calibration": "m.cal.h5"}, out="both")
        self.assertEqual({head: cell["errors"] for head, cell in both.items()},
                         {head: cell["errors"] for head, cell in own.items()})

    def test_on_other_texts_values_differ_and_the_cell_says_so(self):
        own, _ = self.cells({})
        self.calibrate(self.train)
        given, _ = self.cells({"calibration": "m.cal.h5"})
        for head, cell in given.items():
            self.assertNotEqual(cell["errors"], own[head]["errors"])
            self.assertIs(cell["derived"]["calibrated_on_text"], False)
        self.calibrate(self.train, self.mine, options=("--tokens", 70))
        given, _ = self.cells({"calibration": "m.cal.h5"})
        self.assertEqual({cell["derived"]["calibrated_on_text"] for cell in given.values()}, {True})

    def test_what_does_not_fit_is_refused_by_name(self):
        self.calibrate(self.wide)
        self.refused("was calibrated for d = 16, but it is 8 here")
        self.calibrate(self.train, method="qfilters")
        self.refused("is a calibration of qfilters, and the codec is oscar; calibrate oscar")
        self.calibrate(self.train)
        self.refused('was calibrated with {"share":"head"}, and the cell has {"share":"layer"}', share="layer")
        (self.folder / "m.cal.h5").unlink()
        self.refused("there is no file", place="/storage/0/keys/calibration")
        done = kvbench("plan", "--config", self.config({"share": "layer"}))
        self.assert_refused(done, "/storage/0/keys/share", "needs a calibration file")
        self.assert_refused(kvbench("calibrate", "--method", "kivi", "--dump", self.train, "--out", self.folder / "x.h5"),
                            "--method: kivi is not a method or codec that is calibrated", "oscar")

    def test_a_layer_that_was_left_out_is_skipped_and_a_prompt_without_queries_needs_a_file(self):
        self.calibrate(self.train, options=("--layers", "1"))
        given, _ = self.cells({"calibration": "m.cal.h5"})
        self.assertEqual([cell["status"] for cell in given.values()], ["skipped", "skipped", "ok", "ok"])
        self.assertIn("does not have this layer", given[0, 0]["reason"])
        by_layer = [{"layers": [1], "storage": {"keys": {"codec": "oscar", **FEW, "calibration": "m.cal.h5"}}},
                    {"storage": "float"}]
        mixed, _ = self.cells({}, storage=[{"by_layer": by_layer}])
        self.assertEqual([cell["status"] for cell in mixed.values()], ["ok"] * 4)
        self.assertEqual([cell["derived"] for cell in mixed.values()], [{}, {}, *[{"calibrated_on_text": False}] * 2])
        own, _ = self.cells({}, dump=self.short)
        self.assertEqual({cell["status"] for cell in own.values()}, {"skipped"})
        self.assertIn("only rows from 56 on; name a calibration file", own[0, 0]["reason"])
        self.calibrate(self.train)
        given, _ = self.cells({"calibration": "m.cal.h5"}, dump=self.short)
        self.assertEqual({cell["status"] for cell in given.values()}, {"ok"})

    def test_a_file_without_the_arrays_of_its_codec_fails_its_cells(self):
        with h5py.File(self.calibrate(self.train), "r+") as file:
            del file["layers/0/heads/1/value_rotation"]
        config = self.config({"calibration": "m.cal.h5"})
        kvbench("run", "--config", config, "--out", self.folder / "out", "--quiet")
        cells = self.results("out")["cells"]
        self.assertEqual([cell["status"] for cell in cells], ["ok", "failed", "ok", "ok"])
        self.assertIn("value_rotation: is missing", cells[1]["reason"])

    def test_shards_merge_without_the_file_and_a_resumed_run_has_the_same_bytes(self):
        file = self.calibrate(self.train)
        content = file.read_bytes()
        self.calibrate(self.train)
        self.assertEqual(file.read_bytes(), content)
        given = {"calibration": "m.cal.h5"}
        _, whole = self.cells(given)
        for shard in (1, 2):
            self.cells(given, out=f"s{shard}", options=("--shard", f"{shard}/2"))
        self.cells(given, out="resumed", options=("--fresh", "--shard", "1/2"))
        _, resumed = self.cells(given, out="resumed", options=())
        self.assertEqual(deterministic(resumed), deterministic(whole))
        verified = kvbench("verify", self.folder / "out/results.json", cwd=self.folder)
        self.assertEqual(verified.returncode, DONE, verified.stderr)
        file.unlink()
        done = kvbench("merge", self.folder / "s1", self.folder / "s2", "--out", self.folder / "joined/results.json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(deterministic(self.results("joined")), deterministic(whole))

    def test_an_allocated_sweep_names_the_file(self):
        path = str(self.calibrate(self.train))
        keys = {"codec": "oscar", **FEW, "calibration": path}
        before, _ = self.cells({}, storage=[{"keys": keys}])
        done = kvbench("allocate", self.folder / "out/results.json", "--bytes", "1MB")
        self.assertEqual(done.returncode, DONE, done.stderr)
        sweep = json.loads(done.stdout)
        (element,) = sweep["algorithms"][0]["storage"]["by_layer"]
        self.assertEqual(element["storage"]["keys"]["calibration"], path)
        (self.folder / "allocated.json").write_text(done.stdout)
        done = kvbench("run", "--config", self.folder / "allocated.json", "--out", self.folder / "allocated", "--quiet")
        self.assertEqual(done.returncode, DONE, done.stderr)
        after = {(cell["key"]["layer"], cell["key"]["kv_head"]): cell for cell in self.results("allocated")["cells"]}
        self.assertEqual({head: cell["errors"] for head, cell in after.items()},
                         {head: cell["errors"] for head, cell in before.items()})

    def test_files_of_a_sweep_start_at_its_folder_and_the_schema_takes_them(self):
        (self.folder / "sub").mkdir()
        self.calibrate(self.train, out="sub/m.cal.h5")
        config = self.config({"calibration": "m.cal.*"}, file="sub/c.json")
        done = kvbench("plan", "--config", os.path.relpath(config, "/tmp"), cwd="/tmp")
        self.assertEqual(done.returncode, DONE, done.stderr)
        schema = json.loads(kvbench("schema", "sweep").stdout)
        self.assertEqual(schema["$defs"]["codec-oscar"]["properties"]["calibration"]["default"], "prompt")


if __name__ == "__main__":
    unittest.main()
