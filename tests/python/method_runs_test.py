"""Methods written in Python in kb.run: planned, journaled, resumed and merged like algorithms."""

import json
import os
import threading
import unittest

import numpy as np

import kvbench as kb
from method_sweeps import BUILT_IN, CALLS, SELECT, InAFolder, LargestKeys, RandomTokens, sweep
from streams import DUMP, without

@kb.method
class AcrossHeads:
    """The budget goes to the keys that are largest in their layer."""

    budget: int = 32

    def compress_layer(self, prompts):
        CALLS.append([(prompt.layer, prompt.head) for prompt in prompts])
        norms = np.concatenate([np.linalg.norm(prompt.k, axis=1) for prompt in prompts])
        chosen = np.argsort(-norms, kind="stable")[: self.budget]
        p = len(prompts[0].k)
        return [kb.Kept(np.sort(chosen[chosen // p == i] % p)) for i in range(len(prompts))]


@kb.method
class FailsInOneLayer:
    def compress_layer(self, prompts):
        if prompts[0].layer == 1:
            raise KeyError("layer one")
        return [kb.Kept([0])] * len(prompts)


class Runs(InAFolder):
    def test_what_the_program_computes_keeps_its_bits(self):
        got = self.run_sweep(
            sweep({"algorithm": "largest_keys", "params": {"budget": [8, 16]}},
                  {"algorithm": "across_heads"}, *BUILT_IN, {"algorithm": "random_tokens"}),
            [LargestKeys, RandomTokens, AcrossHeads], threads=2)
        alone = self.folder / "alone.json"
        alone.write_text(json.dumps(sweep(*BUILT_IN)))
        self.program("run", "--config", alone, "--out", self.folder / "program", "--quiet")
        expected = json.loads((self.folder / "program/results.json").read_text())["cells"]
        ids = {each["id"] for each in expected}
        self.assertEqual([without(each) for each in got.cells if each["id"] in ids],
                         [without(each) for each in expected])
        self.assertEqual({each["status"] for each in got.cells}, {"ok"})
        self.assertEqual(len(got.cells), len(expected) + 6 * 4)

    def test_a_cell_is_that_of_replay(self):
        got = self.run_sweep(
            sweep({"algorithm": "largest_keys", "params": {"budget": [8, 16], "order": "smallest"}},
                  {"algorithm": "random_tokens"}, seeds=[0, 3]), [LargestKeys, RandomTokens])
        dump = kb.open_dump(DUMP)
        for cell in got.cells:
            key = cell["key"]
            params = {name: value for name, value in key["params"].items() if name != "source"}
            cls = LargestKeys if key["algorithm"] == "largest_keys" else RandomTokens
            direct = kb.replay(dump[key["sequence"]][key["layer"]], cls(**params),
                               head=key["kv_head"], tokens=300, seed=key["seed"] or 0)
            self.assertEqual(without(direct.record), without(cell))
        self.assertEqual({each["key"]["seed"] for each in got.cells
                          if each["key"]["algorithm"] == "random_tokens"}, {0, 3})
        self.assertEqual({each["key"]["seed"] for each in got.cells
                          if each["key"]["algorithm"] == "largest_keys"}, {None})

    def test_tokens_that_an_algorithm_keeps_have_its_errors(self):
        layer = kb.open_dump(DUMP)["constitution"][0]
        kept = {head: kb.replay(layer, "snapkv", head=head, budget=32, window=8, tokens=300)
                for head in range(layer.kv_heads)}

        @kb.method
        class Told:
            def compress(self, prompt):
                return kb.Kept(kept[prompt.head].tokens(len(prompt.k))[:-1])

        got = self.run_sweep(sweep({"algorithm": "told"}, select={**SELECT, "layers": [0]}), [Told])
        self.assertEqual(len(got.cells), layer.kv_heads)
        for cell in got.cells:
            expected = kept[cell["key"]["kv_head"]]
            self.assertEqual(cell["errors"], expected.errors)
            self.assertEqual(cell["memory"], expected.memory)

    def test_methods_run_on_the_calling_thread(self):
        self.run_sweep(sweep({"algorithm": "largest_keys", "params": {"budget": [4, 8, 16]}}),
                       [LargestKeys], threads=4)
        self.assertEqual({call[-1] for call in CALLS}, {threading.get_ident()})
        CALLS.clear()
        one = sweep({"algorithm": "largest_keys"})
        other = threading.Thread(target=self.run_sweep, args=(one, [LargestKeys], "other"))
        other.start()
        other.join(60)
        self.assertEqual({call[-1] for call in CALLS}, {other.ident})

    def test_parameters_are_axes_with_defaults_and_labels(self):
        got = self.run_sweep(
            sweep({"algorithm": "largest_keys", "label": "keys",
                   "params": {"budget": {"pow2": [3, 4]}, "order": ["largest", "smallest"],
                              "note": "any text", "factor": 2, "first": True}},
                  select={**SELECT, "layers": [0], "kv_heads": [0]}), [LargestKeys])
        self.assertEqual([(c["key"]["params"]["budget"], c["key"]["params"]["order"])
                          for c in got.cells],
                         [(8, "largest"), (8, "smallest"), (16, "largest"), (16, "smallest")])
        params = got.cells[0]["key"]["params"]
        self.assertEqual((params["note"], params["factor"], params["first"]), ("any text", 2.0, True))
        self.assertRegex(params["source"], "^[0-9a-f]{16}$")
        self.assertEqual({each["label"] for each in got.cells}, {"keys"})
        self.assertEqual(len({json.dumps(each["params"]) for each in got.summary}), 4)
        self.assertIn("methods=[LargestKeys]", got.cells[0]["repro"])

    def test_what_is_done_is_not_asked_again(self):
        given = sweep({"algorithm": "largest_keys", "params": {"budget": [8, 16]}})
        first = self.run_sweep(given, [LargestKeys], only=["*/*/*/0/*"])
        asked = len(CALLS)
        self.assertEqual(asked, len(first.cells))
        whole = self.run_sweep(given, [LargestKeys])
        self.assertEqual(len(CALLS), 2 * asked)
        again = self.run_sweep(given, [LargestKeys])
        self.assertEqual(len(CALLS), 2 * asked)
        self.assertEqual(again.cells, whole.cells)
        self.assertEqual(len(whole.cells), 2 * asked)

    def test_another_source_text_has_other_cells(self):
        def cells(keep):
            class Mine:
                KEEP = keep

                def compress(self, prompt):
                    return kb.Kept(np.arange(self.KEEP))

            return {each["id"] for each in self.run_sweep(sweep({"algorithm": "mine"}),
                                                          [kb.method(Mine)], add=True).cells}

        self.assertEqual(cells(3), cells(3))
        self.assertFalse(cells(3) & cells(4))

    def test_caches_of_methods_are_written_and_replayed(self):
        got = self.run_sweep(sweep({"algorithm": "largest_keys"}, output={"caches": True}),
                             [LargestKeys])
        files = sorted((self.folder / "out/caches").glob("*.h5"))
        self.assertEqual(len(files), 1)
        back = self.run_sweep(sweep({"algorithm": "given", "params": {"file": os.path.relpath(files[0])}}),
                              [], out="back")
        for a, b in zip(got.cells, back.cells, strict=True):
            self.assertEqual((a["errors"], a["memory"]), (b["errors"], b["memory"]))


class Layers(InAFolder):
    def test_a_layer_is_decided_at_once(self):
        got = self.run_sweep(sweep({"algorithm": "across_heads", "params": {"budget": [24, 48]}}),
                             [AcrossHeads], threads=2)
        layer = kb.open_dump(DUMP)["constitution"][0]
        heads = layer.kv_heads
        self.assertEqual(sorted(map(str, CALLS)),
                         sorted(str([(at, h) for h in range(heads)]) for at in (0, 0, 1, 1)))
        decoded = 300 - got.cells[0]["key"]["prompt_tokens"]
        for budget in (24, 48):
            for at in (0, 1):
                kept = [c["memory"]["tokens"] - decoded for c in got.cells
                        if c["key"]["layer"] == at and c["key"]["params"]["budget"] == budget]
                self.assertEqual(sum(kept), budget)
        for cell in got.cells:
            key = cell["key"]
            if key["layer"] != 0:
                continue
            direct = kb.replay(layer, AcrossHeads(budget=key["params"]["budget"]),
                               head=key["kv_head"], tokens=300)
            self.assertEqual(direct.errors, cell["errors"])
            self.assertEqual(direct.memory, cell["memory"])
        with self.assertRaisesRegex(kb.Error, "layer of a dump"):
            kb.replay(layer.q[:3], layer.k[0], layer.v[0], AcrossHeads())

    def test_a_layer_fails_alone(self):
        got = self.run_sweep(sweep({"algorithm": "fails_in_one_layer"}), [FailsInOneLayer])
        self.assertEqual({(c["key"]["layer"], c["status"]) for c in got.cells},
                         {(0, "ok"), (1, "failed")})

    def test_what_is_not_one_per_prompt_is_named(self):
        for words, returned in (("a list", kb.Kept([0])), ("one kvbench.Kept per prompt", []),
                                ("got int", [3] * 3)):
            cls = kb.method(type("Bad", (), {"compress_layer": lambda self, p, r=returned: r}))
            got = self.run_sweep(sweep({"algorithm": "bad"}), [cls], out=words, only="*/*/*/0/*")
            self.assertEqual({c["status"] for c in got.cells}, {"failed"})
            self.assertIn(words, got.cells[0]["reason"])


@kb.method
class Newest:
    """`window`, row by row."""

    budget: int = 32

    def compress(self, prompt):
        return kb.Kept(np.arange(len(prompt.k) - self.budget + 1, len(prompt.k)))

    def step(self, row):
        return kb.Kept(np.sort(row.tokens)[-self.budget + 1:])


@kb.method
class Heaviest:
    """Keeps what was attended to most since the prompt, in state of its own."""

    budget: int = 32

    def compress(self, prompt):
        self.seen = []
        return kb.Kept(np.arange(len(prompt.k) - self.budget, len(prompt.k)), weight=[2.0] * self.budget)

    def step(self, row):
        weights = np.exp(row.logits - row.logits.max(axis=1, keepdims=True))
        self.seen.append(weights.sum(axis=0))
        best = np.argsort(-self.seen[-1], kind="stable")[: self.budget]
        return None if row.i % 2 else kb.Kept(row.tokens[np.sort(best)])


class Steps(InAFolder):
    def test_a_window_is_the_algorithm_window(self):
        budgets = {"budget": [16, 48]}
        got = self.run_sweep(sweep({"algorithm": "newest", "params": budgets},
                                   {"algorithm": "window", "params": budgets},
                                   replay={"prompt_tokens": 100}, evaluate={"rows": {"every": 3}}),
                             [Newest], threads=2)
        cells = {}
        for cell in got.cells:
            key = cell["key"]
            cells[key["algorithm"], key["layer"], key["kv_head"], key["params"]["budget"]] = cell
        self.assertEqual(len(cells), 24)
        for (algorithm, *place), cell in cells.items():
            if algorithm != "newest":
                continue
            self.assertEqual(cell["status"], "ok", cell)
            window = cells[("window", *place)]
            self.assertEqual(cell["memory"], window["memory"])
            for name in ("mean", "max"):
                self.assertAlmostEqual(cell["errors"]["relative_l2"][name],
                                       window["errors"]["relative_l2"][name], delta=1e-12)

    def test_rows_are_what_answered(self):
        rng = np.random.default_rng(0)
        q, k, v = rng.standard_normal((2, 64, 8)), rng.standard_normal((64, 8)), rng.standard_normal((64, 4))
        rows = []

        @kb.method
        class Watch:
            def step(self, row):
                rows.append(row)
                return kb.Kept(row.tokens[row.tokens % 3 != 0]) if row.i == 50 else None

        got = kb.replay(q, k, v, Watch(), prompt=48, scale=0.3, rows={"every": 5})
        self.assertEqual([row.i for row in rows], list(range(48, 64)))
        for row in rows:
            self.assertEqual(sorted(row.tokens), got.tokens(row.i).tolist())
            self.assertLess(np.abs(row.logits - 0.3 * q[:, row.i] @ k[row.tokens].T).max(), 1e-12)
            with self.assertRaises(ValueError):
                row.logits[0, 0] = 0.0
        kept = [t for t in range(51) if t % 3] + [51]
        self.assertEqual(got.tokens(51).tolist(), kept)

    def test_state_and_weights_are_the_cells_own(self):
        got = self.run_sweep(sweep({"algorithm": "heaviest", "params": {"budget": [8, 16]}}), [Heaviest])
        layer = kb.open_dump(DUMP)["constitution"][1]
        for cell in got.cells:
            self.assertEqual(cell["status"], "ok", cell)
            key = cell["key"]
            if key["layer"] == 1:
                direct = kb.replay(layer, Heaviest(budget=key["params"]["budget"]),
                                   head=key["kv_head"], tokens=300)
                self.assertEqual(without(direct.record), without(cell))

    def test_what_is_wrong_fails_the_cell(self):
        def stepping(step, **more):
            return kb.method(type("Bad", (), {"step": step, **more}))

        for at, (words, cls) in enumerate((
                ("not held then", stepping(lambda self, row: kb.Kept([0]),
                                           compress=lambda self, prompt: kb.Kept([5]))),
                ("each token once", stepping(lambda self, row: kb.Kept([3, 3]))),
                ("gives key too", stepping(lambda self, row: kb.Kept([3], key=np.ones((1, 64))))),
                ("gives begin too", stepping(lambda self, row: None,
                                             compress=lambda self, p: kb.Kept([3], begin=[len(p.k)]))),
                ("got int", stepping(lambda self, row: 3)),
                ("ZeroDivisionError", stepping(lambda self, row: 1 // 0)))):
            with self.subTest(words):
                got = self.run_sweep(sweep({"algorithm": "bad"}), [cls], out=str(at), only="*/*/*/0/0")
                self.assertEqual([c["status"] for c in got.cells], ["failed"])
                self.assertIn(words, got.cells[0]["reason"])


class Afterwards(InAFolder):
    """The program and kvplot read results with methods that they do not know."""

    def setUp(self):
        super().setUp()
        self.sweep = sweep({"algorithm": "largest_keys", "params": {"budget": [8, 16]}}, *BUILT_IN)

    def test_shards_are_merged(self):
        for i in (1, 2):
            self.run_sweep(self.sweep, [LargestKeys], out=f"{i}", shard=f"{i}/2")
        whole = self.run_sweep(self.sweep, [LargestKeys])
        folders = [self.folder / "1", self.folder / "2"]
        merged = kb.merge(folders, out=self.folder / "merged.json", methods=[LargestKeys])
        self.assertTrue(merged.complete)
        self.assertEqual([without(c) for c in merged.cells], [without(c) for c in whole.cells])
        refused = self.program("merge", *folders, "--out", self.folder / "program.json")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("largest_keys is a method written in Python", refused.stderr)
        self.assertIn("kb.merge", refused.stderr)

    def test_the_program_reads_the_results(self):
        results = self.run_sweep(self.sweep, [LargestKeys]).path
        for words in (("export", "--results", results, "--format", "csv"),
                      ("export", "--results", results, "--format", "md"),
                      ("compare", results, results, "--json")):
            done = self.program(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
            self.assertIn("largest_keys", done.stdout)
        bounds = self.folder / "bounds.json"
        for most, code in ((1e-9, 4), (100, 0)):
            bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
                {"name": "small", "where": {"algorithm": "largest_keys", "params.budget": 8},
                 "metric": "errors.relative_l2.mean", "at_most": most}]}))
            done = self.program("check", "--results", results, "--bounds", bounds)
            self.assertEqual(done.returncode, code, done.stderr)

    def test_verify_computes_the_other_cells_again(self):
        then = {"algorithm": "quest", "params": {"budget": 8}}
        got = self.run_sweep(sweep({"algorithm": "largest_keys"},
                                   {"algorithm": "largest_keys", "then": then}, *BUILT_IN),
                             [LargestKeys])
        mine = sum("largest_keys" in cell["key"]["algorithm"] for cell in got.cells)
        path = self.folder / "out/results.json"
        done = self.program("verify", path, "--sample", 1000, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual((report["methods_in_python"], report["cells_in_python"]), (["largest_keys"], mine))
        self.assertEqual((report["computed"], report["equal"]), (len(got.cells) - mine,) * 2)
        self.assertEqual(report["summary"]["entries"], report["summary"]["equal"])
        said = self.program("verify", path, "--seed", 1).stdout
        self.assertIn(f"{mine} cells of largest_keys, written in Python, were not computed again", said)
        self.run_sweep(sweep({"algorithm": "largest_keys"}), [LargestKeys], "alone")
        alone = self.folder / "alone/results.json"
        refused = self.program("verify", alone)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("all its methods are written in Python (largest_keys)", refused.stderr)
        # The remedy that both name.
        self.run_sweep(sweep({"algorithm": "largest_keys"}), [LargestKeys], "again")
        done = self.program("compare", alone, self.folder / "again/results.json")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_kvplot_reads_the_results(self):
        results = self.run_sweep(self.sweep, [LargestKeys])
        try:
            frame = results.frame()
        except ImportError as missing:
            raise unittest.SkipTest(f"SKIPPED: frame: {missing}") from missing
        self.assertEqual(len(frame), len(results.cells))
        self.assertIn("largest_keys", set(frame["algorithm"]))


if __name__ == "__main__":
    unittest.main()
