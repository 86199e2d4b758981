"""Same sweep, same bytes: over the whole registry, whatever the threads, the order of the entries,
the interruptions and the shards."""

import json
import random
import signal
import subprocess
import time
import unittest

import h5py
import numpy as np

from program import DONE, INCOMPLETE, PROGRAM, Folder, deterministic, kvbench

FALLBACK = {"tokens": 40, "integer": 4, "real": 0.5}  # for parameters without a default


def entries_of(algorithm):
    """One entry of every algorithm as it comes, and one per word of each choice and flag."""
    parameters = {each["name"]: each for each in algorithm["parameters"]}
    alternatives = algorithm.get("exclusive") or []
    excluded = {name for group in alternatives for names in group[1:] for name in names}
    excluded -= {name for group in alternatives for name in group[0]}
    base = {}
    for name, each in parameters.items():
        if name in excluded:
            continue
        if each["default"] is None:
            base[name] = FALLBACK[each["type"]]
        elif name in ("sinks", "window") and each["default"] not in ("auto", *range(25)):
            base[name] = 4
    yield {"algorithm": algorithm["id"], "params": base}
    for name, each in parameters.items():
        words = {"choice": each.get("words", []), "flag": [True, False]}.get(each["type"], [])
        for word in words:
            if word != each["default"]:
                if (algorithm["id"], word) == ("lagkv", "released"):  # it has no budget
                    yield {"algorithm": "lagkv", "params": {"semantics": word}, "label": "released"}
                    continue
                more = {"pages": 4} if name == "page_score" else {}
                yield {"algorithm": algorithm["id"], "params": {**base, name: word, **more},
                       "label": f"{algorithm['id']} {name} {word}"}


def by_cell(results):
    """The content of a results file by cell and by setting, in no order."""
    cells = {cell["id"]: json.dumps({name: value for name, value in cell.items()
                                     if name not in ("timing", "repro")})
             for cell in results["cells"]}
    return cells, sorted(json.dumps(entry) for entry in results["summary"])


class Determinism(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.synth("rope.h5", "--tokens", 128, "--d", 8, "--layers", 2, "--query-rows", 128,
                  "--prompt-tokens", 96, "--repeat", 40, kind="rope")
        with h5py.File(cls.made / "rope.h5", "r+") as dump:
            for layer in dump["sequences/0/layers"].values():
                heads, rows = layer["q"].shape[0], layer["v"].shape[1]
                norms = 1.0 + np.arange(heads * rows).reshape(heads, rows, 1) * 7 % 11
                layer.create_dataset("wo_v_l1", data=norms)
        FALLBACK["file"] = str(cls.write_cache(cls.made / "kept.h5"))
        listed = json.loads(kvbench("list", "algorithms", "--json").stdout)
        cls.known = {each["id"] for each in listed}
        # Which methods rank for all heads of a layer or of the model is for the program to say.
        cls.entries = [entry for each in listed for entry in entries_of(each)
                       if not {"same_in", "page_score"} & set(entry["params"]) or cls.takes(entry)]
        cls.shared = {entry["params"].get("same_in") for entry in cls.entries}
        cls.first = None

    @classmethod
    def takes(cls, entry):
        path = cls.made / "entry.json"
        path.write_text(json.dumps({"schema_version": 1, "name": "entry", "dumps": ["rope.h5"], "algorithms": [entry]}))
        return kvbench("validate", "--config", path).returncode == DONE

    @staticmethod
    def write_cache(path):
        """Writes a cache of all heads of rope.h5, for `given`."""
        with h5py.File(path, "w") as cache:
            cache.attrs.update({"format": "kvbench-cache", "format_version": 1, "method": "mine"})
            for layer in range(2):
                for kv_head in range(2):
                    head = cache.create_group(f"sequences/0/layers/{layer}/heads/{kv_head}")
                    head.attrs["prompt_tokens"] = 96
                    head["token"] = [3, 5, 60]
                    head["weight"] = [1.0, 2.5, 0.5]
        return path

    def setUp(self):
        super().setUp()
        self.config = self.whole_sweep("whole")
        if self.first is None:
            done = self.finish(self.config, "first", "--threads", 1)
            self.assertEqual(done.returncode, DONE, done.stderr)
            type(self).first = self.results("first")

    def whole_sweep(self, name, entries=None):
        return self.sweep(entries or self.entries, name="whole", file=f"{name}.json",
                          dumps=[str(self.made / "rope.h5")],
                          replay={"prompt_tokens": 96}, output={"rows": True})

    def finish(self, config, out, *options):
        return kvbench("run", "--config", config, "--out", self.folder / out, *options)

    def same(self, out):
        self.assertEqual(self.results(out)["status"], "complete")
        self.assertEqual(deterministic(self.results(out)), deterministic(self.first), out)

    def masks(self, results):
        """Methods that were skipped because they leave tokens out in rows of the prompt alone."""
        return {cell["key"]["algorithm"] for cell in results["cells"] if "rows of the prompt alone" in
                (cell.get("reason") or "")}

    def test_every_algorithm_takes_part(self):
        ok = {cell["key"]["algorithm"] for cell in self.first["cells"] if cell["status"] == "ok"}
        masks = self.masks(self.first)
        self.assertEqual((ok | masks, ok & masks), (self.known, set()))
        seeded = {cell["key"]["seed"] for cell in self.first["cells"]}
        self.assertEqual(seeded, {None, 0, 1})
        self.assertLessEqual({"layer", "model"}, self.shared)

    def test_masks_of_the_prompt_depend_on_no_thread(self):
        masks = self.masks(self.first)
        config = self.sweep([entry for entry in self.entries if entry["algorithm"] in masks], name="masks",
                            file="masks.json", dumps=[str(self.made / "rope.h5")], replay={"prompt_tokens": 96},
                            evaluate={"rows": {"prompt": {"every": 5}}})
        for threads in (1, 3):
            self.assertEqual(self.finish(config, f"masks-{threads}", "--threads", threads).returncode, DONE)
        one, more = self.results("masks-1"), self.results("masks-3")
        self.assertEqual(deterministic(one), deterministic(more))
        self.assertEqual({cell["key"]["algorithm"] for cell in one["cells"] if cell["status"] == "ok"}, masks)

    def test_another_seed_is_another_result(self):
        """The comparison of these tests sees a difference where there is one."""
        done = self.finish(self.config, "other", "--set", "/seeds=[0,2]")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertNotEqual(deterministic(self.results("other")), deterministic(self.first))
        errors = {seed: [cell["errors"] for cell in results["cells"]
                         if cell["key"]["seed"] == seed and cell["status"] == "ok"]
                  for seed, results in ((1, self.first), (2, self.results("other")))}
        self.assertEqual(len(errors[1]), len(errors[2]))
        self.assertNotEqual(errors[1], errors[2])

    def test_threads(self):
        for threads in (2, 4):
            done = self.finish(self.config, f"threads-{threads}", "--threads", threads)
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.same(f"threads-{threads}")

    def test_order_of_the_entries(self):
        shuffled = list(self.entries)
        random.Random(0).shuffle(shuffled)
        for name, entries in (("reversed", self.entries[::-1]), ("shuffled", shuffled)):
            done = self.finish(self.whole_sweep(name, entries), name)
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.assertEqual(by_cell(self.results(name)), by_cell(self.first), name)

    def test_restarts(self):
        """Stopped again and again, by turns kindly and by force, each time with other threads."""
        for turn in range(12):
            process = subprocess.Popen(
                [PROGRAM, "run", "--config", str(self.config), "--out", str(self.folder / "often"),
                 "--threads", str(1 + turn % 3)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            lines = self.lines("often")
            while process.poll() is None and self.lines("often") < lines + 20:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL if turn % 2 else signal.SIGTERM)
            process.communicate()
            self.assertIn(process.returncode, (DONE, INCOMPLETE, -signal.SIGKILL, -signal.SIGTERM))
        self.assertEqual(self.finish(self.config, "often").returncode, DONE)
        self.assertGreater(len(self.results("often")["provenance"]), 3)
        self.same("often")

    def test_shards(self):
        for count in (2, 5):
            folders = [self.folder / f"shard-{i}-of-{count}" for i in range(1, count + 1)]
            for i, out in enumerate(folders, 1):
                done = self.finish(self.config, out, "--shard", f"{i}/{count}")
                self.assertEqual(done.returncode, DONE, done.stderr)
            merged = self.folder / f"merged-{count}" / "results.json"
            merged.parent.mkdir()
            done = kvbench("merge", *folders[::-1], "--out", merged)
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.same(f"merged-{count}")

    def lines(self, out):
        path = self.folder / out / "journal.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0


if __name__ == "__main__":
    unittest.main()
