"""Records of whole layers and evidence: the real program against numpy, killed, sharded, compared."""

import csv
import io
import json
import os
import random
import signal
import subprocess
import time
import unittest

import h5py
import numpy as np

from program import (BAD_INPUT, DONE, INCOMPLETE, PROGRAM, VIOLATION, Folder, deterministic, kvbench,
                     strict_json)

KILLS = int(os.environ.get("KVBENCH_KILLS", "10"))
SEED = int(os.environ.get("KVBENCH_KILL_SEED", str(time.time_ns() % 2**32)))

WINDOWS = [{"algorithm": "exact"}, {"algorithm": "window", "params": {"budget": [8, 32]}},
           {"algorithm": "uniform", "params": {"T": 1, "sinks": 4}}]
EVIDENCE = range(60, 67)


def without_volatile(results):
    document = json.loads(deterministic(results))
    document["layers"] = [{name: value for name, value in layer.items()
                           if name not in ("timing", "repro")} for layer in results["layers"]]
    return document


def attention(layer, head, row, visible):
    """Answer of query head `head` at `row` over the tokens of `visible`, in float64."""
    group = layer["q"].shape[0] // layer["k"].shape[0]
    tokens = layer["k"].shape[1]
    query = layer["q"][head, row - (tokens - layer["q"].shape[1])].astype(np.float64)
    keys = layer["k"][head // group, visible].astype(np.float64)
    x = layer.attrs["scale"] * keys @ query
    p = np.exp(x - x.max())
    return p @ layer["v"][head // group, visible].astype(np.float64) / p.sum(), p / p.sum()


class Layers(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.synth("wo.h5", "--tokens", 96, "--d", 8, "--layers", 3, "--hidden", 40,
                  "--evidence", "60,66", "--query-rows", 48)
        cls.synth("plain.h5", "--tokens", 96, "--d", 8, "--layers", 3, "--query-rows", 48)

    def run_layers(self, *options, expect=DONE, dump="wo.h5", **sweep):
        sweep.setdefault("algorithms", WINDOWS)
        return self.run_sweep(*options, expect=expect, dumps=[str(self.made / dump)],
                              evaluate={"rows": {"last": 12}}, **sweep)

    def test_numbers_are_those_of_numpy(self):
        results = self.run_layers()
        self.assertEqual(len(results["layers"]), 3 * (1 + 2 + 2))
        rows = range(84, 96)
        with h5py.File(self.made / "wo.h5") as dump:
            for record in results["layers"]:
                key = record["key"]
                if key["algorithm"] == "exact":  # rounding has no proportions
                    errors = record["errors"]
                    self.assertLess(errors["relative_output_l2"]["max"], 1e-14)
                    self.assertEqual([errors[name]["max"] for name in ("cancellation", "half_heads")], [0, 0])
                if key["algorithm"] != "window":
                    continue
                layer = dump[f"sequences/0/layers/{key['layer']}"]
                wo = layer["wo"][:].astype(np.float64)
                norms = layer["residual_norm"][:]
                l2, l1, cancel, residual, half = [], [], [], [], []
                for row in rows:
                    first = row + 1 - key["params"]["budget"]
                    parts, exact = [], np.zeros(40)
                    for head in range(4):
                        a, _ = attention(layer, head, row, np.arange(row + 1))
                        z, _ = attention(layer, head, row, np.arange(first, row + 1))
                        parts.append((z - a) @ wo[head])
                        exact += a @ wo[head]
                    error = sum(parts)
                    own = np.array([np.linalg.norm(part) for part in parts])
                    l2.append(np.linalg.norm(error) / np.linalg.norm(exact))
                    l1.append(abs(error).sum() / abs(exact).sum())
                    cancel.append(np.linalg.norm(error) / own.sum())
                    residual.append(np.linalg.norm(error) / norms[row - 48])
                    squares = np.sort(own**2)[::-1].cumsum()
                    half.append((np.argmax(squares >= squares[-1] / 2) + 1) / 4)
                for name, values in (("relative_output_l2", l2), ("relative_output_l1", l1),
                                     ("cancellation", cancel), ("residual_ratio", residual),
                                     ("half_heads", half)):
                    found = record["errors"][name]
                    np.testing.assert_allclose(
                        [found["mean"], found["median"], found["p90"], found["max"]],
                        [np.mean(values), np.median(values), np.quantile(values, 0.9), max(values)],
                        rtol=1e-9, err_msg=name)
                self.assertEqual(record["counters"], {"undefined_rows": 0})

    def test_evidence_is_that_of_a_direct_count(self):
        results = self.run_layers(output={"caches": True})
        asked = 95  # the last row
        with h5py.File(self.made / "wo.h5") as dump:
            for cell in results["cells"]:
                key = cell["key"]
                layer = dump[f"sequences/0/layers/{key['layer']}"]
                p = [attention(layer, 2 * key["kv_head"] + g, asked, np.arange(asked + 1))[1]
                     for g in range(2)]
                exact = np.mean([each[list(EVIDENCE)].sum() for each in p])
                self.assertAlmostEqual(cell["evidence"]["mass"]["exact"], exact, places=12)
                if key["algorithm"] != "window":
                    continue
                read = np.arange(asked + 1 - key["params"]["budget"], asked + 1)
                share = [attention(layer, 2 * key["kv_head"] + g, asked, read)[1][
                    np.isin(read, EVIDENCE)].sum() for g in range(2)]
                self.assertAlmostEqual(cell["evidence"]["mass"]["approximate"], np.mean(share),
                                       places=12)
        # Held: by the rows of the cache files that the run wrote, kept at the row that asks.
        cells = {cell["id"]: cell for cell in results["cells"]}
        for path in sorted((self.folder / "out/caches").glob("*.h5")):
            with h5py.File(path) as cache:
                for layer in cache["sequences/0/layers"].values():
                    for head in layer["heads"].values():
                        cell = cells.pop(str(head.attrs["cell"]))
                        tokens = head["token"][:]
                        begin = head["begin"][:] if "begin" in head else np.zeros(len(tokens))
                        end = head["end"][:] if "end" in head else np.full(len(tokens), 96)
                        kept = set(tokens[(begin <= asked) & (asked < end)].tolist())
                        if head.attrs.get("decode", "append") == "append":
                            kept |= set(range(int(head.attrs["prompt_tokens"]), asked + 1))
                        held = len(kept & set(EVIDENCE)) / len(EVIDENCE)
                        self.assertAlmostEqual(cell["evidence"]["held"], held, places=14)
        self.assertEqual(cells, {})

    def test_a_dump_without_projection_and_evidence_says_nothing_of_them(self):
        results = self.run_layers(dump="plain.h5")
        self.assertNotIn("layers", results)
        self.assertNotIn("layers", results["plan"])
        for cell in results["cells"]:
            self.assertNotIn("evidence", cell)
        for entry in results["summary"]:
            self.assertFalse({"layers", "evidence"} & set(entry))

    def test_cells_have_the_numbers_that_they_have_without_the_projection(self):
        with_wo = self.run_layers()
        without = self.run_layers("--fresh", dump="plain.h5")
        for a, b in zip(with_wo["cells"], without["cells"], strict=True):
            for part in ("errors", "memory", "traffic", "mass", "trivial", "derived"):
                self.assertEqual(a[part], b[part])

    def test_kills_lose_nothing_and_change_nothing(self):
        choose = random.Random(SEED)
        algorithms = [*WINDOWS, {"algorithm": "h2o", "params": {"budget": [8, 16, 32]}},
                      {"algorithm": "subgen", "params": {"delta_quantile": [0.05, 0.2], "t": [4, 8],
                                                         "s": [64, 128]}}]
        start = time.monotonic()
        whole = without_volatile(self.run_layers(algorithms=algorithms))
        longest = time.monotonic() - start
        config = self.folder / "small.json"
        ended = False
        for _ in range(KILLS):
            process = subprocess.Popen([PROGRAM, "run", "--config", str(config), "--out",
                                        str(self.folder / "killed"), "--quiet"],
                                       stderr=subprocess.DEVNULL)
            try:
                process.wait(choose.uniform(0.0, longest))
                ended = True
            except subprocess.TimeoutExpired:
                process.send_signal(choose.choice([signal.SIGKILL, signal.SIGTERM]))
                process.wait()
            # A record of a layer comes after all of its cells.
            path = self.folder / "killed/journal.jsonl"
            seen = set()
            for line in path.read_bytes().split(b"\n")[1:-1] if path.exists() else []:
                record = json.loads(line)
                key = {name: value for name, value in record["key"].items() if name != "kv_head"}
                key = json.dumps(key, sort_keys=True)
                if "kv_head" in record["key"]:
                    seen.add((key, record["key"]["kv_head"]))
                else:
                    self.assertTrue({(key, 0), (key, 1)} <= seen, f"seed {SEED}")
            if ended:
                break
        done = kvbench("run", "--config", config, "--out", self.folder / "killed")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(without_volatile(self.results("killed")), whole, f"seed {SEED}")

    def test_shards_merge_to_the_whole(self):
        whole = self.run_layers()
        for shard in (1, 2):
            done = kvbench("run", "--config", self.folder / "small.json", "--shard", f"{shard}/2",
                           "--out", self.folder / f"part-{shard}")
            self.assertEqual(done.returncode, DONE, done.stderr)
        part = self.results("part-1")
        self.assertEqual(part["status"], "incomplete")
        merged = kvbench("merge", self.folder / "part-1", self.folder / "part-2", "--out",
                         self.folder / "merged/results.json")
        self.assertEqual(merged.returncode, DONE, merged.stderr)
        self.assertEqual(without_volatile(self.results("merged")), without_volatile(whole))
        self.assertEqual(whole["plan"]["layers"], {"records": 15, "ok": 15, "failed": 0, "skipped": 0})
        # A journal without the line of one layer: its cells are all there, and merge says what lacks.
        path = self.folder / "part-2/journal.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        layers = [i for i, line in enumerate(lines[1:], 1)
                  if "kv_head" not in json.loads(line)["key"]]
        path.write_text("".join(line for i, line in enumerate(lines) if i != layers[0]))
        merged = kvbench("merge", self.folder / "part-1", self.folder / "part-2", "--out",
                         self.folder / "merged/results.json")
        self.assertEqual(merged.returncode, INCOMPLETE)
        self.assertIn("1 of 15 records of whole layers are missing", merged.stderr)

    def test_threads_and_memory_change_no_bit(self):
        whole = without_volatile(self.run_layers())
        self.assertEqual(without_volatile(self.run_layers("--fresh", "--threads", 1)), whole)
        plan = strict_json(kvbench("plan", "--config", self.folder / "small.json", "--json").stdout)
        self.assertEqual(plan["layer_records"], 15)
        least = max(group["memory_bytes"] for group in plan["groups"])
        limited = self.run_layers("--fresh", "--memory-limit", f"{int(least) - 20000}")
        self.assertEqual(without_volatile(limited), whole)

    def test_export_check_and_compare_know_them(self):
        results = self.run_layers()
        path = self.folder / "out/results.json"
        exported = kvbench("export", "--results", path, "--format", "csv", "--layers")
        rows = list(csv.DictReader(io.StringIO(exported.stdout)))
        self.assertEqual(len(rows), 15)
        for row, record in zip(rows, results["layers"], strict=True):
            self.assertEqual(row["id"], record["id"])
            self.assertEqual(float(row["errors.relative_output_l2.mean"]),
                             record["errors"]["relative_output_l2"]["mean"])
            self.assertNotIn("kv_head", row)
        self.assertIn("relative_output_l2.mean", kvbench(
            "export", "--results", path, "--format", "md", "--layers").stdout.splitlines()[0])
        bounds = self.folder / "bounds.json"
        largest = max(each["errors"]["relative_output_l2"]["mean"] for each in results["layers"])
        for limit, code in ((largest, DONE), (0.9 * largest, VIOLATION)):
            bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
                {"name": "output", "metric": "errors.relative_output_l2.mean", "limit": limit},
                {"name": "frozen", "metric": "errors.cancellation.mean", "relative_tolerance": 0,
                 "baseline": "frozen.json"}]}))
            kvbench("check", "--results", path, "--bounds", bounds, "--write-baselines")
            self.assertEqual(kvbench("check", "--results", path, "--bounds", bounds).returncode, code)
        worse = json.loads(path.read_text())
        for record in worse["layers"]:
            record["errors"]["relative_output_l2"]["mean"] *= 1.5
        other = self.folder / "worse.json"
        other.write_text(json.dumps(worse))
        same = kvbench("compare", path, path, "--json")
        self.assertEqual(same.returncode, DONE, same.stderr)
        self.assertEqual(strict_json(same.stdout)["layers"]["pairs"], 15)
        red = kvbench("compare", path, other)
        self.assertEqual(red.returncode, VIOLATION, red.stderr)
        self.assertIn("records of whole layers in both", red.stdout)
        alone = kvbench("compare", path, other, "--metric", "errors.relative_l2.mean")
        self.assertEqual(alone.returncode, DONE, alone.stdout)
        only = kvbench("compare", path, other, "--metric", "errors.relative_output_l2.mean")
        self.assertEqual(only.returncode, VIOLATION)
        del worse["layers"]
        other.write_text(json.dumps(worse))
        refused = kvbench("compare", path, other, "--metric", "errors.relative_output_l2.mean")
        self.assertEqual(refused.returncode, BAD_INPUT)
        self.assertIn("worse.json", refused.stderr)

    def test_the_command_of_a_record_repeats_it(self):
        results = self.run_layers()
        record = results["layers"][7]
        words = record["repro"].split()[1:]
        words[words.index("--out") + 1] = str(self.folder / "again")
        done = kvbench(*words)
        self.assertEqual(done.returncode, DONE, done.stderr)
        again = self.results("again")
        self.assertEqual(len(again["cells"]), 2)
        self.assertEqual([each["id"] for each in again["layers"]], [record["id"]])
        self.assertEqual(again["layers"][0]["errors"], record["errors"])

    def test_the_summary_has_their_means(self):
        results = self.run_layers()
        for entry in results["summary"]:
            records = [each for each in results["layers"]
                       if each["label"] == entry["label"] and each["key"]["params"] == entry["params"]
                       and entry["layer"] in (None, each["key"]["layer"])]
            layers = {}
            for each in records:
                layers.setdefault(each["key"]["layer"], []).append(
                    each["errors"]["relative_output_l2"]["mean"])
            mean = np.mean([np.mean(values) for values in layers.values()])
            found = entry["layers"]["errors"]["relative_output_l2.mean"]
            self.assertAlmostEqual(found["mean"], mean, places=14)
            self.assertEqual(found["ci95"] is None, entry["layer"] is not None)


if __name__ == "__main__":
    unittest.main()
