"""Cache files: what another program kept is a cell; what cells kept survives kills and shards."""

import json
import shutil
import signal
import subprocess
import time
import unittest

import h5py
import numpy as np

from program import BAD_INPUT, DONE, INCOMPLETE, PROGRAM, Folder, deterministic, kvbench

P = 64
METHODS = [{"algorithm": "h2o", "params": {"budget": [24, 32]}},
           {"algorithm": "uniform", "params": {"T": 1, "sinks": 4}},
           {"algorithm": "snapkv", "params": {"budget": 24, "window": 8}},
           {"algorithm": "subgen", "params": {"delta_quantile": 0.1, "t": 2, "s": 16,
                                              "numerator": ["sampled", "exact"]}}]


def write_cache(path, heads, method="mine", prompt=P, **datasets):
    """`heads`: (sequence, layer, KV head)."""
    with h5py.File(path, "w") as cache:
        cache.attrs.update({"format": "kvbench-cache", "format_version": 1, "method": method})
        for sequence, layer, head in heads:
            group = cache.create_group(f"sequences/{sequence}/layers/{layer}/heads/{head}")
            group.attrs["prompt_tokens"] = prompt
            for name, values in datasets.items():
                group[name] = values
    return path


def content(path):
    """Every dataset and attribute of the heads."""
    found = {}
    with h5py.File(path) as file:
        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                found[name] = item[()].tolist()
            found[name, "attributes"] = {key: str(value) for key, value in item.attrs.items()}
        file.visititems(visit)
    return found


class Caches(Folder):
    def run_named(self, name, algorithms, *options, expected=DONE, **members):
        config = self.sweep(algorithms, name="same", file=f"{name}.json", replay={"prompt_tokens": P}, **members)
        done = kvbench("run", "--config", config, "--out", self.folder / name, "--quiet", *options)
        self.assertEqual(done.returncode, expected, done.stderr)
        path = self.folder / name / "results.json"
        return (json.loads(path.read_text()) if path.exists() else None), done.stderr

    def heads(self):
        return [("0", layer, head) for layer in range(2) for head in range(2)]

    def test_a_kept_set_is_the_cell_of_the_method_that_keeps_it(self):
        sinks_and_window = list(range(4)) + list(range(P - 28, P))
        file = write_cache(self.folder / "mine.h5", self.heads(), token=sinks_and_window)
        given, _ = self.run_named("given", [
            {"algorithm": "given", "params": {"file": "mine.h5"}},
            {"algorithm": "uniform", "params": {"T": 6, "sinks": 4, "recent": 28}}], seeds=[0])
        self.assertEqual({cell["label"] for cell in given["cells"]}, {"mine", "uniform"})
        pairs = {}
        for cell in given["cells"]:
            key = cell["key"]
            pairs.setdefault((key["layer"], key["kv_head"]), []).append(cell)
        self.assertEqual(len(pairs), 4)
        self.assertEqual(given["caches"][0]["path"], str(file))
        for mine, theirs in pairs.values():
            self.assertEqual(mine["key"]["params"]["file"], given["caches"][0]["fingerprint"])
            self.assertEqual(mine["errors"], theirs["errors"])
            self.assertEqual(mine["memory"], theirs["memory"])

    def test_ids_have_the_content_and_not_the_path(self):
        first = write_cache(self.folder / "a.h5", self.heads(), token=[1, 2])
        (self.folder / "sub").mkdir()
        shutil.copy(first, self.folder / "sub/b.h5")
        ids = []
        for name, path in (("one", "a.h5"), ("two", "sub/b.h5")):
            results, _ = self.run_named(name, [{"algorithm": "given", "params": {"file": path}}])
            ids.append([cell["id"] for cell in results["cells"]])
        self.assertEqual(ids[0], ids[1])
        both = [{"algorithm": "given", "params": {"file": ["a.h5", "sub/b.h5"]}}]
        _, said = self.run_named("both", both, expected=BAD_INPUT)
        self.assertIn("have the same content", said)

    def test_whole_numbers_of_floats_are_those_of_integers(self):
        ids = []
        for kind in (np.int32, np.float64, np.float32):
            write_cache(self.folder / "a.h5", self.heads(), token=np.array([1, 9, 40], kind),
                        end=np.array([96, 70, 80], kind), bookkeeping=np.full(96 - P, 3, kind))
            document, _ = self.run_named(np.dtype(kind).name, [{"algorithm": "given", "params": {"file": "a.h5"}}])
            ids.append([(cell["id"], cell["errors"], cell["memory"]) for cell in document["cells"]])
        self.assertEqual(ids[0], ids[1])
        self.assertEqual(ids[0], ids[2])

    def test_what_a_file_lacks_is_skipped_and_what_does_not_fit_is_refused(self):
        write_cache(self.folder / "half.h5", [("0", 1, 0)], token=[1, 2])
        results, _ = self.run_named("half", [{"algorithm": "given", "params": {"file": "half.h5"}}])
        states = [cell["status"] for cell in results["cells"]]
        self.assertEqual(sorted(states), ["ok", "skipped", "skipped", "skipped"])
        self.assertIn("has no rows of this head", results["cells"][0]["reason"])
        for prompt, datasets, words in (
                (P - 1, {"token": [1]}, "made for P = 63, but P is 64 here"),
                (P, {"token": [1], "key": np.zeros((1, 3))}, "made for d = 3, but d is 8 here"),
                (P, {"token": [1], "head": [7]}, "query head 7 of the group")):
            write_cache(self.folder / "bad.h5", self.heads(), prompt=prompt, **datasets)
            _, said = self.run_named("bad", [{"algorithm": "given", "params": {"file": "bad.h5"}}],
                                     expected=BAD_INPUT)
            self.assertIn(words, said)
            self.assertIn("bad.json: /algorithms/0/params/file: ", said)
        _, said = self.run_named("none", [{"algorithm": "given", "params": {"file": "no.h5"}}],
                                 expected=BAD_INPUT)
        self.assertIn("none.json: /algorithms/0/params/file: there is no file no.h5; relative paths", said)
        _, said = self.run_named("none", [{"algorithm": "given",
                                           "params": {"file": ["half.h5", "x*.h5"]}}],
                                 expected=BAD_INPUT)
        self.assertIn("/algorithms/0/params/file/1: no file matches x*.h5", said)
        for bad in (3, True, ""):
            _, said = self.run_named("none", [{"algorithm": "given", "params": {"file": bad}}],
                                     expected=BAD_INPUT)
            self.assertIn("must be the path of a file", said)

    def test_heads_that_do_not_fit_for_one_reason_are_one_line(self):
        write_cache(self.folder / "mine.h5", self.heads(), token=[1, 2])
        done = kvbench("plan", "--dump", self.made / "tiny.h5", "--set", f"/replay/prompt_tokens={P + 1}",
                       "--algorithm", "given", "--file", "mine.h5", cwd=self.folder)
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertEqual(done.stderr.count("was made for P"), 1, done.stderr)
        self.assertIn(f"KV head 0 (and {len(self.heads()) - 1} more heads): was made for P = {P}, but P is {P + 1} here",
                      done.stderr)

    def test_one_line_takes_a_file(self):
        write_cache(self.folder / "mine.h5", self.heads(), token=[1, 2])
        done = kvbench("run", "--dump", self.made / "tiny.h5", "--set", f"/replay/prompt_tokens={P}",
                       "--algorithm", "given", "--file", "mine.h5", "--out", "line", "--quiet",
                       cwd=self.folder)
        self.assertEqual(done.returncode, DONE, done.stderr)
        again = kvbench("run", "--config", "line/sweep.json", "--out", "line", "--quiet",
                        cwd=self.folder)
        self.assertEqual(again.returncode, DONE, again.stderr)

    def test_inspect_and_validate(self):
        file = write_cache(self.folder / "mine.h5", self.heads(), token=[1, 2, 2], weight=[1, 2, 3])
        shown = kvbench("inspect", file)
        self.assertEqual(shown.returncode, DONE, shown.stderr)
        self.assertIn("a cache file of mine", shown.stdout)
        document = json.loads(kvbench("inspect", file, "--json").stdout)
        self.assertEqual(document["heads"][0]["rows"], 3)
        self.assertEqual(document["heads"][0]["distinct_tokens"], 2)
        self.assertEqual(document["heads"][0]["weights"], [1.0, 3.0])
        for options in ((), ("--dump", self.made / "tiny.h5")):
            self.assertEqual(kvbench("validate", file, *options).returncode, DONE)
        write_cache(file, [("0", 5, 0), ("0", 1, 9)], token=[1])
        done = kvbench("validate", file, "--dump", self.made / "tiny.h5")
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertEqual(done.stderr.count("has no such head"), 2)

    def caches_of(self, name):
        return {path.name: content(path) for path in sorted((self.folder / name / "caches").glob("*"))}

    def test_written_caches_give_their_cells_again(self):
        first, said = self.run_named("first", METHODS, output={"caches": True},
                                     seeds={"first": 0, "count": 2})
        self.assertEqual(said.count("an exact sum is of all tokens"), 0)  # --quiet
        files = sorted((self.folder / "first/caches").iterdir())
        self.assertEqual([path.name for path in files],
                         ["h2o-budget=24.h5", "h2o-budget=32.h5", "snapkv-budget=24,window=8.h5",
                          "subgen-delta_quantile=0.1,t=2,s=16-0.h5",
                          "subgen-delta_quantile=0.1,t=2,s=16-1.h5",
                          "uniform-T=1-0.h5", "uniform-T=1-1.h5"])
        again, _ = self.run_named("again", [{"algorithm": "given",
                                             "params": {"file": "first/caches/*.h5"}}])
        path_of = {cache["fingerprint"]: cache["path"] for cache in again["caches"]}
        cells = {cell["id"]: cell for cell in first["cells"]}
        compared = 0
        for cell in again["cells"]:
            key = cell["key"]
            with h5py.File(path_of[key["params"]["file"]]) as cache:
                head = f"sequences/0/layers/{key['layer']}/heads/{key['kv_head']}"
                kept_by = cells[cache[head].attrs["cell"]]
            self.assertEqual(cell["memory"], kept_by["memory"])
            self.assertEqual(cell["label"], kept_by["label"])
            for name, value in kept_by["errors"]["relative_l2"].items():
                self.assertAlmostEqual(cell["errors"]["relative_l2"][name], value, delta=1e-12)
            compared += 1
        self.assertEqual(compared, 7 * 4)

    def test_shards_merge_to_the_same_caches_and_seeds_can_be_added(self):
        self.run_named("whole", METHODS, output={"caches": True}, seeds={"first": 0, "count": 2})
        for shard in (1, 2):
            self.run_named(f"s{shard}", METHODS, "--shard", f"{shard}/2", output={"caches": True},
                           seeds={"first": 0, "count": 2})
        done = kvbench("merge", self.folder / "s1", self.folder / "s2", "--out",
                       self.folder / "joined/results.json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(self.caches_of("joined"), self.caches_of("whole"))
        self.run_named("grows", METHODS, output={"caches": True})
        self.run_named("grows", METHODS, output={"caches": True}, seeds={"first": 0, "count": 2})
        self.assertEqual(self.caches_of("grows"), self.caches_of("whole"))
        # One that went away is computed again, and only its cells.
        (self.folder / "grows/caches/h2o-budget=24.h5").unlink()
        results, _ = self.run_named("grows", METHODS, output={"caches": True},
                                    seeds={"first": 0, "count": 2})
        self.assertEqual(results["status"], "complete")
        self.assertEqual(self.caches_of("grows"), self.caches_of("whole"))
        (self.folder / "grows/caches/notes.txt").write_text("mine")
        self.run_named("grows", METHODS, "--fresh", seeds={"first": 0, "count": 2})
        self.assertEqual(list(self.caches_of_names("grows")), ["notes.txt"])

    def test_settings_of_one_name_have_files_of_their_own(self):
        sinks = {"algorithm": "streaming_llm", "label": "x", "params": {"budget": 24}}
        window = {"algorithm": "window", "label": "x", "params": {"budget": 24}}
        self.run_named("r", [sinks], output={"caches": True}, select={"kv_heads": [0]})
        for algorithms in ([window, sinks], [sinks, window]):
            self.run_named("r", algorithms, output={"caches": True})
            again, _ = self.run_named("again", [{"algorithm": "given",
                                                 "params": {"file": "r/caches/*.h5"}}])
            first = json.loads((self.folder / "r/results.json").read_text())
            wanted = {}
            for cell in first["cells"]:
                wanted.setdefault((cell["key"]["layer"], cell["key"]["kv_head"]), set()).add(
                    round(cell["errors"]["relative_l2"]["mean"], 10))
            found = {}
            for cell in again["cells"]:
                if cell["status"] == "ok":
                    found.setdefault((cell["key"]["layer"], cell["key"]["kv_head"]), set()).add(
                        round(cell["errors"]["relative_l2"]["mean"], 10))
            self.assertEqual(found, wanted)

    def test_parts_of_a_sweep_come_together_in_one_file(self):
        algorithms = [{"algorithm": "window", "params": {"budget": 24}}]
        for layer in (0, 1):
            self.run_named("parts", algorithms, "--only", f"*/*/*/{layer}/*", "--add",
                           output={"caches": True})
        self.run_named("whole", algorithms, output={"caches": True})
        self.assertEqual(self.caches_of("parts"), self.caches_of("whole"))

    def test_a_sweep_of_caches_merges(self):
        write_cache(self.folder / "mine.h5", self.heads(), token=[1, 2])
        algorithms = [{"algorithm": "given", "params": {"file": "mine.h5"}}]
        whole, _ = self.run_named("whole", algorithms)
        for shard in (1, 2):
            self.run_named(f"s{shard}", algorithms, "--shard", f"{shard}/2")
        (self.folder / "mine.h5").unlink()  # its heads are in the journals
        done = kvbench("merge", self.folder / "s1", self.folder / "s2", "--out",
                       self.folder / "joined/results.json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        joined = json.loads((self.folder / "joined/results.json").read_text())
        self.assertEqual(deterministic(joined), deterministic(whole))

    def test_declared_bytes_go_out_again(self):
        file = write_cache(self.folder / "mine.h5", self.heads(), token=[1, 2])
        with h5py.File(file, "a") as cache:
            for sequence, layer, head in self.heads():
                group = cache[f"sequences/{sequence}/layers/{layer}/heads/{head}"]
                group.attrs.update({"key_bytes": 7, "value_bytes": 11})
        first, _ = self.run_named("first", [{"algorithm": "given", "params": {"file": "mine.h5"}}],
                                  output={"caches": True})
        again, _ = self.run_named("again", [{"algorithm": "given",
                                             "params": {"file": "first/caches/*.h5"}}])
        for one, two in zip(first["cells"], again["cells"]):
            self.assertTrue(one["memory"]["declared"])
            self.assertEqual(one["memory"]["bytes"], 7 + 11 + 2 * (96 - P) * 2 * 8)
            self.assertEqual(one["memory"], two["memory"])

    def test_caches_of_another_dump_are_skipped(self):
        self.synth("other.h5", "--tokens", 96, "--d", 8, "--layers", 2, "--seed", 5)
        self.run_named("first", [{"algorithm": "window", "params": {"budget": 24}}],
                       output={"caches": True})
        both = [str(self.made / name) for name in ("tiny.h5", "other.h5")]
        again, _ = self.run_named("again", [{"algorithm": "given",
                                             "params": {"file": "first/caches/*.h5"}}], dumps=both)
        states = [(cell["status"], cell.get("reason", "")[:32]) for cell in again["cells"]]
        self.assertEqual(states.count(("ok", "")), 4)
        self.assertEqual(states.count(("skipped", "the cache file is of another dum")), 4)

    def test_fresh_keeps_what_the_sweep_replays(self):
        self.run_named("r", [{"algorithm": "window", "params": {"budget": 24}}], output={"caches": True})
        _, said = self.run_named("r", [{"algorithm": "given", "params": {"file": "r/caches/*.h5"}}],
                                 "--fresh", expected=BAD_INPUT)
        self.assertIn("--fresh would remove it", said)
        self.assertEqual(list(self.caches_of_names("r")), ["window-budget=24.h5"])

    def caches_of_names(self, name):
        return (path.name for path in (self.folder / name / "caches").iterdir())

    def test_a_killed_run_loses_nothing(self):
        self.synth("long.h5", "--tokens", 256, "--d", 16, "--layers", 3)
        algorithms = [{"algorithm": "uniform", "params": {"T": [1, 2, 3], "sinks": 4}},
                      {"algorithm": "subgen", "params": {"delta_quantile": [0.05, 0.2], "t": 4, "s": 64}}]
        members = {"dumps": [str(self.made / "long.h5")], "seeds": {"first": 0, "count": 6},
                   "output": {"caches": True}}
        whole, _ = self.run_named("whole", algorithms, **members)
        config = self.folder / "whole.json"
        killed = 0
        for attempt in range(20):
            process = subprocess.Popen([PROGRAM, "run", "--config", config, "--out",
                                        self.folder / "killed", "--quiet"], stderr=subprocess.PIPE)
            try:
                process.wait(0.15 + 0.1 * attempt)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL if attempt % 2 == 0 else signal.SIGTERM)
                killed += 1
            process.communicate()
            self.assertIn(process.returncode, (DONE, INCOMPLETE, -signal.SIGKILL, -signal.SIGTERM))
            if process.returncode == DONE:
                break
            time.sleep(0.01)
        self.assertGreater(killed, 0)
        results, _ = self.run_named("killed", algorithms, **members)
        self.assertEqual(deterministic({**results, "name": ""}), deterministic({**whole, "name": ""}))
        self.assertEqual(self.caches_of("killed"), self.caches_of("whole"))
        self.assertNotIn("journal", set(self.caches_of_names("killed")))


if __name__ == "__main__":
    unittest.main()
