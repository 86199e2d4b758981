"""plan, list, export, validate, synth, --help, --version: data on stdout, exit codes."""

import csv
import io
import json
import re
import unittest

from program import BAD_INPUT, DONE, SHIPPED_DUMP, VIOLATION, Folder, commands, kvbench, strict_json


class Commands(Folder):
    def data(self, *arguments):
        """stdout of a command that succeeds and says nothing."""
        done = kvbench(*arguments)
        self.assertEqual((done.returncode, done.stderr), (DONE, ""))
        return done.stdout

    def test_help_teaches_and_ends_with_an_example(self):
        self.assertGreater(len(commands()), 10)
        for command in commands():
            text = self.data(command, "--help")
            self.assertIn("Examples:", text)
            self.assertIn(f"kvbench {command} ", text[text.index("Examples:"):])
            self.assertNotRegex(text, r"(?m)^ +--[\w-]+\{")  # a flag's value
        self.data("--help")

    def test_version_names_version_and_build(self):
        self.assertRegex(self.data("--version"), r"^kvbench \d+\.\d+\.\d+")

    def test_no_command_is_a_command_line_fault(self):
        self.assertEqual(kvbench().returncode, BAD_INPUT)

    def test_every_way_to_write_an_option_is_taken(self):
        sweep = self.sweep()
        whole = self.data("plan", "--config", sweep, "--json")
        for words in ([f"--config={sweep}", "--json"], ["--json", "--config=", sweep],
                      ["--json", "--config", sweep, "--set", "/name=\"small\"", "--set=/seeds=[0,1]"]):
            self.assertEqual(len(strict_json(self.data("plan", *words))["cell_list"]),
                             len(strict_json(whole)["cell_list"]), words)
        self.assertIn("Examples:", self.data("run", sweep, "--confg", "--help"))
        self.assertEqual(self.data("--version", "run"), self.data("--version"))

    def test_incomplete_results_are_called_so(self):
        self.run_sweep()
        results = self.folder / "out/results.json"
        part = self.folder / "part.json"
        part.write_text(json.dumps(strict_json(results.read_text()) | {"status": "incomplete"}))
        for arguments in (["export", "--format", "md", "--results"], ["compare", results]):
            self.assertEqual(kvbench(*arguments, results).stderr.count("incomplete"), 0)
            self.assertIn("part.json is incomplete", kvbench(*arguments, part).stderr)

    def test_a_folder_is_its_results(self):
        self.run_sweep()
        out = self.folder / "out"
        for words in (["export", "--format", "csv", "--results"], ["compare", out / "results.json"]):
            self.assertEqual(self.data(*words, out), self.data(*words, out / "results.json"))
        for words in ((out, "--dump", self.made / "tiny.h5"), ("--dump", self.made / "tiny.h5", out)):
            done = kvbench("verify", *words, "--sample", "1")
            self.assertEqual(done.returncode, DONE, done.stderr)
        done = kvbench("export", "--format", "csv", "--results", self.folder)
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertIn("is a folder without results.json", done.stderr)

    def test_a_sweep_of_skipped_cells_says_where_the_reasons_are(self):
        config = self.sweep(algorithms=[{"algorithm": "streaming_llm",
                                         "params": {"budget": 4, "sinks": 10}}])
        done = kvbench("run", "--config", config, "--out", self.folder / "none", "--quiet")
        self.assertEqual(done.returncode, DONE)
        self.assertIn("nothing was computed", done.stderr)

    def test_a_place_that_cannot_be_looked_at_is_no_bug(self):
        # As a folder that may not be read, which root may: a link to itself.
        loop = self.folder / "loop.json"
        loop.symlink_to(loop)
        self.run_sweep()
        for arguments in (["export", "--format", "csv", "--results", loop], ["compare", loop, loop]):
            done = kvbench(*arguments)
            self.assertEqual(done.returncode, BAD_INPUT, done.stderr)
            self.assertIn("loop.json", done.stderr)

    def test_plan_agrees_with_the_run(self):
        plan = strict_json(self.data("plan", "--config", self.sweep(), "--json"))
        results = self.run_sweep()
        self.assertEqual(plan["cells"], results["plan"]["cells"])
        self.assertEqual(plan["hash"], results["plan"]["hash"])
        self.assertEqual([cell["id"] for cell in plan["cell_list"]],
                         [cell["id"] for cell in results["cells"]])
        self.assertEqual(plan["config"], results["config"])
        self.assertEqual(sum(group["cells"] for group in plan["groups"]), plan["cells"])
        self.assertGreater(plan["memory_bytes"], 0)
        self.assertGreater(plan["cost"]["multiply_adds"], 0)

    def test_a_dry_run_is_the_plan_and_writes_nothing(self):
        config = self.sweep()
        planned = self.data("plan", "--config", config, "--set", "select.layers=[0]")
        dry = self.data("run", "--config", config, "--set", "/select/layers=[0]", "--dry-run")
        words = [re.sub(r"[0-9.]+ (ms|s|min|h)\b|time.*", "", text).split() for text in (planned, dry)]
        self.assertEqual(*words)
        self.assertFalse((self.folder / "results").exists())

    def test_plan_counts_skips_by_reason(self):
        algorithms = [{"algorithm": "window", "params": {"budget": 8}},
                      {"algorithm": "streaming_llm", "params": {"budget": [3, 4, 9], "sinks": 4}}]
        plan = strict_json(self.data("plan", "--config", self.sweep(algorithms), "--json"))
        self.assertEqual(plan["skipped"], 8)
        self.assertEqual(sum(skip["cells"] for skip in plan["skips"]), 8)
        text = self.data("plan", "--config", self.sweep(algorithms))
        self.assertIn(plan["skips"][0]["reason"], text)
        self.assertEqual(plan["skips"][0]["labels"], ["streaming_llm"])
        self.assertIn(" streaming_llm: " + plan["skips"][0]["reason"], text)
        self.assertFalse((self.folder / "results").exists())

    def test_plan_names_methods_and_storages_that_are_skipped(self):
        config = self.sweep([{"algorithm": name, "params": {"budget": 16}} for name in ("h2o", "window", "snapkv")],
                            storage=["float", "kivi"])
        plan = strict_json(self.data("plan", "--config", config, "--json"))
        labels = {label for skip in plan["skips"] for label in skip["labels"]}
        self.assertIn("h2o | K kivi V kivi", labels)
        self.assertNotIn("h2o", labels)
        text = " ".join(self.data("plan", "--config", config).split())
        for skip in plan["skips"]:
            self.assertIn(f"{skip['cells']} {', '.join(skip['labels'])}: {skip['reason']}", text)

    def test_a_mask_of_prompt_rows_is_skipped_elsewhere_and_says_how_to_score_them(self):
        masks = [{"algorithm": "xattention"}, {"algorithm": "flexprefill"}, {"algorithm": "minference"}]
        plan = strict_json(self.data("plan", "--config", self.sweep(masks), "--json"))
        self.assertEqual(plan["skipped"], plan["cells"])
        for skip in plan["skips"]:
            members = json.loads("{" + skip["reason"].partition("score these with ")[2] + "}")
            plan = strict_json(self.data("plan", "--config", self.sweep(masks, **members), "--json"))
            self.assertEqual((plan["skipped"], plan["cells"] > 0), (0, True))
        plan = strict_json(self.data("plan", "--config", self.sweep(masks, storage=["kivi"], **members), "--json"))
        self.assertEqual(plan["skipped"], plan["cells"])
        for skip in plan["skips"]:
            of_entry = json.loads("{" + skip["reason"].partition("give it ")[2] + "}")
            config = self.sweep([mask | of_entry for mask in masks], storage=["kivi"], **members)
            self.assertEqual(strict_json(self.data("plan", "--config", config, "--json"))["skipped"], 0)

    def test_rows_that_the_prompt_does_not_have_are_told_of(self):
        config = self.sweep([{"algorithm": "window", "params": {"budget": 8}}],
                            evaluate={"rows": {"prompt": {"last": 60}}})
        for command in (("plan",), ("run", "--out", self.folder / "out")):
            done = kvbench(*command, "--config", config)
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.assertIn("kvbench: note: /evaluate/rows/prompt/last: 60 rows are asked for, and 2 of 2 groups have "
                          "fewer", done.stderr)
            self.assertIn("of which 48 are scored: its prompt has 48", done.stderr)
        for rows in ({"last": 48}, "all", {"every": 40}, [3]):
            done = kvbench("plan", "--config", config, "--set", f"/evaluate/rows/prompt={json.dumps(rows)}")
            self.assertEqual((done.returncode, done.stderr), (DONE, ""))

    def test_list_algorithms_has_every_parameter(self):
        algorithms = strict_json(self.data("list", "algorithms", "--json"))
        by_id = {algorithm["id"]: algorithm for algorithm in algorithms}
        self.assertLessEqual({"exact", "window", "dilated_window", "streaming_llm", "h2o",
                              "key_attention", "uniform", "kcenter", "oracle_topk", "subgen"},
                             set(by_id))
        self.assertEqual(by_id["subgen"]["aliases"], ["clustergen"])
        names = [parameter["name"] for parameter in by_id["subgen"]["parameters"]]
        self.assertLessEqual({"delta", "delta_quantile", "t", "s", "sampling"}, set(names))
        for algorithm in algorithms:
            for parameter in algorithm["parameters"]:
                for name in ("type", "range", "default", "description"):
                    self.assertIn(name, parameter)
                self.assertTrue(parameter["description"], (algorithm["id"], parameter["name"]))
        text = self.data("list", "algorithms")
        for name in by_id:
            self.assertIn(name, text)

    def test_list_metrics_names_what_results_hold(self):
        listed = {metric["path"] for metric in strict_json(self.data("list", "metrics", "--json"))}
        cell = self.run_sweep()["cells"][0]
        for name in cell["errors"]:
            path = f"errors.{name}"
            self.assertTrue(any(metric == path or metric.startswith(path + ".")
                                for metric in listed), path)
        self.assertTrue(self.data("list", "metrics"))

    def test_list_devices_tells_isa_and_threads(self):
        devices = strict_json(self.data("list", "devices", "--json"))
        self.assertEqual(devices[0]["device"], "cpu")
        self.assertTrue(devices[0]["isa"])
        self.assertGreaterEqual(devices[0]["threads"], 1)
        self.assertEqual(devices[1]["device"], "cuda")
        self.assertTrue(devices[1]["available"] or devices[1]["reason"])
        self.assertIn("cpu", self.data("list", "devices"))

    def test_export_jsonl_has_what_csv_has_with_types(self):
        results = self.run_sweep()
        path = self.folder / "out/results.json"
        lines = self.data("export", "--results", path, "--format", "jsonl").splitlines()
        rows = list(csv.DictReader(io.StringIO(self.data("export", "--results", path, "--format", "csv"))))
        self.assertEqual(len(lines), len(results["cells"]))
        for line, row, cell in zip(lines, rows, results["cells"]):
            flat = strict_json(line)
            self.assertEqual(flat["errors.relative_l2.mean"], cell["errors"]["relative_l2"]["mean"])
            self.assertEqual(flat["seed"], cell["key"]["seed"])
            for name, text in row.items():
                value = flat.get(name)
                if isinstance(value, float):
                    self.assertEqual(float(text), value, name)
                else:
                    self.assertEqual(text, "" if value is None else str(value).lower() if isinstance(value, bool)
                                     else str(value), name)

    def test_export_csv_has_every_cell_and_number(self):
        results = self.run_sweep()
        text = self.data("export", "--results", self.folder / "out/results.json", "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual([row["id"] for row in rows], [cell["id"] for cell in results["cells"]])
        for row, cell in zip(rows, results["cells"]):
            self.assertEqual(float(row["errors.relative_l2.mean"]),
                             cell["errors"]["relative_l2"]["mean"])
            self.assertEqual(float(row["memory.fraction"]), cell["memory"]["fraction"])
            self.assertEqual(float(row["memory.compression_ratio"]), 1 - cell["memory"]["fraction"])
            self.assertEqual(row["seed"], "" if cell["key"]["seed"] is None
                             else str(cell["key"]["seed"]))

    def test_export_md_is_a_table(self):
        results = self.run_sweep()
        text = self.data("export", "--results", self.folder / "out/results.json", "--format", "md")
        lines = text.splitlines()
        self.assertEqual(len(lines), 2 + len(results["cells"]))
        self.assertEqual({line.count("|") for line in lines}, {lines[0].count("|")})

    def test_validate_exits_0_4_or_2(self):
        done = kvbench("validate", SHIPPED_DUMP)
        self.assertEqual(done.returncode, DONE, done.stderr)
        done = kvbench("validate", SHIPPED_DUMP, "--tolerance", "1e-12")
        self.assertEqual(done.returncode, VIOLATION, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        path = self.synth("no-out.h5", "--tokens", 32, "--d", 8, "--out-rows", 0)
        self.assert_refused(kvbench("validate", path), "out")

    def test_validate_names_layers_that_it_does_not_compare(self):
        try:
            import h5py
        except ImportError:
            self.skipTest("no h5py")
        path = self.synth("some-out.h5", "--tokens", 32, "--d", 8, "--layers", 4, "--sequences", 2)
        with h5py.File(path, "r+") as dump:
            for place in ("0/layers/1", "0/layers/3", "1/layers/0"):
                del dump[f"sequences/{place}/out"]
        done = kvbench("validate", path)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertIn("3 of 8 layers have no out and were not compared (sequence/layer): 0/1, 0/3, "
                      "1/0\n", done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 1 + 5)

    def test_synth_is_seeded(self):
        first = self.synth("a.h5", "--tokens", 32, "--seed", 3).read_bytes()
        self.assertEqual(self.synth("b.h5", "--tokens", 32, "--seed", 3).read_bytes(), first)
        self.assertNotEqual(self.synth("c.h5", "--tokens", 32, "--seed", 4).read_bytes(), first)


if __name__ == "__main__":
    unittest.main()
