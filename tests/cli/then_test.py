""""then" of an entry: a reading method over what another one kept, from the sweep to every file that says so."""

import csv
import io
import json
import shlex
import subprocess
import unittest

from program import DONE, PROGRAM, Folder, deterministic, kvbench, strict_json

P = 64
FIRST = {"algorithm": "snapkv", "params": {"budget": 24, "window": 8}}
READ = {"algorithm": "quest", "params": {"budget": 12, "page": 4, "semantics": "kernel"}}
PAIR = {**FIRST, "then": READ}
MEMBERS = {"replay": {"prompt_tokens": P}}


class Then(Folder):
    def of_pair(self, results):
        return [cell for cell in results["cells"] if cell["key"]["algorithm"] == "snapkv+quest"]

    def test_memory_is_that_of_the_kept_tokens_and_the_index_over_them(self):
        results = self.run_sweep(algorithms=[FIRST, READ, PAIR], **MEMBERS)
        cells = {}
        for cell in results["cells"]:
            self.assertEqual(cell["status"], "ok", cell)
            key = cell["key"]
            cells.setdefault((key["layer"], key["kv_head"]), {})[key["algorithm"]] = cell
        for each in cells.values():
            first, read, both = (each[name] for name in ("snapkv", "quest", "snapkv+quest"))
            kept = 24 + 96 - P
            pages = -(-kept // 4)
            self.assertEqual(both["memory"]["lookup_bytes"], pages * 2 * 8 * 2)
            self.assertEqual(both["memory"]["bytes"], first["memory"]["bytes"] + both["memory"]["lookup_bytes"])
            self.assertLess(both["memory"]["bytes"], read["memory"]["bytes"])
            self.assertLess(both["traffic"]["bytes_read"]["mean"], read["traffic"]["bytes_read"]["mean"])
            self.assertLess(both["traffic"]["tokens_read"]["max"], first["traffic"]["tokens_read"]["max"])
            self.assertEqual(both["derived"]["selected"], 16)
        labels = {entry["label"]: entry for entry in results["summary"]}
        self.assertEqual(labels["snapkv+quest"]["params"]["then.budget"], 12)

    def test_what_a_pair_kept_is_replayed_from_its_cache_file(self):
        first = self.run_sweep(algorithms=[PAIR], output={"caches": True}, **MEMBERS)
        file, = (self.folder / "out/caches").glob("*.h5")
        self.assertIn("snapkv+quest", file.name)
        config = self.sweep([{"algorithm": "given", "params": {"file": str(file)}}], name="again", **MEMBERS)
        done = kvbench("run", "--config", config, "--out", self.folder / "again", "--quiet")
        self.assertEqual(done.returncode, DONE, done.stderr)
        for a, b in zip(self.of_pair(first), self.results("again")["cells"], strict=True):
            self.assertAlmostEqual(a["errors"]["relative_frobenius_error"], b["errors"]["relative_frobenius_error"],
                                   delta=1e-12)
            self.assertEqual(a["memory"]["bytes"], b["memory"]["bytes"])
            self.assertEqual(b["label"], "snapkv+quest")

    def test_shards_merge_to_the_whole_run_and_it_verifies(self):
        whole = self.run_sweep(algorithms=[FIRST, PAIR], **MEMBERS)
        for i in (1, 2):
            done = kvbench("run", "--config", self.folder / "small.json", "--out", self.folder / f"shard{i}",
                           "--shard", f"{i}/2", "--quiet")
            self.assertIn(done.returncode, (DONE, 5), done.stderr)
        done = kvbench("merge", self.folder / "shard1", self.folder / "shard2", "--out", self.folder / "merged.json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        merged = strict_json((self.folder / "merged.json").read_text())
        self.assertEqual(deterministic(merged), deterministic(whole))
        done = kvbench("verify", self.folder / "out/results.json", "--sample", 8, "--quiet")
        self.assertEqual(done.returncode, DONE, done.stderr)

    def test_the_repro_command_computes_the_cell(self):
        cell = self.of_pair(self.run_sweep(algorithms=[PAIR], **MEMBERS))[0]
        self.assertTrue(cell["repro"].startswith("kvbench run"), cell["repro"])
        words = [PROGRAM, *shlex.split(cell["repro"])[1:]]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, DONE, done.stderr)
        again = self.results(f"repro/{cell['id'][:8]}")
        self.assertEqual([other["errors"] for other in again["cells"]], [cell["errors"]])

    def test_exports_bounds_and_only_know_the_pair(self):
        self.run_sweep(algorithms=[FIRST, PAIR], **MEMBERS)
        results = self.folder / "out/results.json"
        rows = list(csv.DictReader(io.StringIO(kvbench("export", "--format", "csv", "--results", results).stdout)))
        pairs = [row for row in rows if row["algorithm"] == "snapkv+quest"]
        self.assertEqual({row["params.then.budget"] for row in pairs}, {"12"})
        self.assertEqual({row["params.then.budget"] for row in rows if row not in pairs}, {""})
        bounds = self.folder / "bounds.json"
        bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
            {"name": "reads few", "where": {"algorithm": "snapkv+quest", "params.then.budget": 12},
             "metric": "traffic.tokens_read.max", "at_most": 24}]}))  # by two query heads
        done = kvbench("check", "--results", results, "--bounds", bounds)
        self.assertEqual(done.returncode, DONE, done.stdout + done.stderr)
        plan = kvbench("plan", "--config", self.folder / "small.json", "--only", "snapkv+quest/*/*/0/*", "--json")
        self.assertEqual(strict_json(plan.stdout)["cells"], len(pairs) // 2)

    def test_a_method_that_decides_for_a_layer_or_model_may_come_first(self):
        first = [{"algorithm": "lava", "params": {"budget": 24, "window": 8}},
                 {"algorithm": "snapkv", "params": {"budget": 24, "window": 8, "pages": 4, "same_in": "layer"}}]
        all_read = {"algorithm": "oracle_topk", "params": {"budget": 96}}
        entries = [*first, *({**entry, "then": all_read} for entry in first)]
        results = self.run_sweep(algorithms=entries, **MEMBERS)
        errors = {}
        for cell in results["cells"]:
            self.assertEqual(cell["status"], "ok", cell)
            name = cell["key"]["algorithm"].split("+")
            errors.setdefault((name[0], cell["key"]["layer"], cell["key"]["kv_head"]), {})[len(name)] = cell
        for each in errors.values():
            self.assertEqual(each[1]["errors"], each[2]["errors"])
            self.assertEqual(each[1]["memory"]["bytes"], each[2]["memory"]["bytes"])
            self.assertEqual(each[1]["key"]["scope_layers"], each[2]["key"]["scope_layers"])

    def test_either_may_take_a_calibration_file(self):
        dump = self.synth("rope.h5", "--tokens", 96, "--d", 8, "--layers", 2, kind="rope")
        for method, params in (("qfilters", "{}"), ("loki", "{}")):
            done = kvbench("calibrate", "--method", method, "--dump", dump, "--params", params,
                           "--out", self.folder / f"{method}.cal.h5")
            self.assertEqual(done.returncode, DONE, done.stderr)
        first = {"algorithm": "qfilters", "params": {"budget": 24, "calibration": "qfilters.cal.h5"}}
        read = {"algorithm": "loki", "params": {"budget": 12, "rank": 2, "calibration": "loki.cal.h5"}}
        results = self.run_sweep(algorithms=[{**first, "then": read}], dumps=[str(dump)], **MEMBERS)
        self.assertEqual({cell["status"] for cell in results["cells"]}, {"ok"})
        self.assertTrue(all(cell["derived"]["calibrated_on_text"] for cell in results["cells"]))
        self.assertEqual(len(results["calibrations"]), 2)
        read["params"]["calibration"] = "qfilters.cal.h5"
        first["params"].pop("calibration")
        done = kvbench("run", "--config", self.sweep([{**first, "then": read}], dumps=[str(dump)], **MEMBERS),
                       "--out", self.folder / "refused")
        self.assert_refused(done, "/algorithms/0/then/params/calibration", "is a calibration of qfilters")

    def test_cells_that_cannot_be_are_skipped_with_the_reason(self):
        self.synth("window.h5", "--tokens", 96, "--d", 8, "--sliding-window", 40)
        results = self.run_sweep(algorithms=[{**FIRST, "then": {"algorithm": "oracle_topk", "params": {"budget": 4}}}],
                                 dumps=[str(self.made / "window.h5")], **MEMBERS)
        self.assertEqual({cell["status"] for cell in results["cells"]}, {"skipped"})
        self.assertIn("40 of 96 tokens", results["cells"][0]["reason"])


if __name__ == "__main__":
    unittest.main()
