"""`kvbench run`: what it writes, where, and what does not change it."""

import json
import re
import os
import pty
import shlex
import shutil
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

from program import (DONE, FAILED_CELLS, PROGRAM, SHIPPED_DUMP, Folder, deterministic, kvbench,
                     strict_json)


class Run(Folder):
    def test_results_have_the_names_of_the_contract(self):
        results = self.run_sweep()
        self.assertEqual(list(results), [
            "schema_version", "kind", "name", "status", "config", "provenance", "plan", "dumps",
            "cells", "groups", "summary"])
        self.assertEqual((results["kind"], results["status"]), ("kvbench.results", "complete"))
        # 2 layers x 2 heads x (exact + 2 windows + 2 uniform x 2 seeds)
        self.assertEqual(results["plan"]["cells"], 28)
        self.assertEqual(len(results["cells"]), 28)
        self.assertEqual(results["plan"]["ok"], 28)
        cell = results["cells"][0]
        self.assertEqual(list(cell), ["id", "status", "key", "label", "derived", "errors", "trivial", "mass",
                                      "clusters", "memory", "traffic", "counters", "timing", "repro"])
        self.assertEqual(set(cell["key"]), {
            "dump", "sequence", "layer", "kv_head", "tokens", "prompt_tokens", "rows", "algorithm",
            "params", "seed", "element_bytes", "device"})
        self.assertEqual(cell["key"]["dump"], results["dumps"][0]["fingerprint"])
        self.assertLess(cell["errors"]["relative_l2"]["max"], 1e-10)
        self.assertEqual(len(results["groups"]), 2)
        self.assertEqual(set(results["groups"][0]["timing"]),
                         {"read_seconds", "reference_seconds", "metrics_seconds"})

    def test_the_journal_has_a_header_and_one_line_per_cell(self):
        results = self.run_sweep()
        header, *lines = map(json.loads, self.journal())
        self.assertEqual(header["kind"], "kvbench.journal")
        self.assertEqual(header["plan"]["hash"], results["plan"]["hash"])
        self.assertEqual(sorted(line["id"] for line in lines),
                         sorted(cell["id"] for cell in results["cells"]))
        left = {path.name for path in (self.folder / "out").iterdir()}
        self.assertEqual(left, {"finished.jsonl", "journal.jsonl", "journal.lock", "results.json"})

    def test_the_default_folder_is_results_and_the_sweeps_name(self):
        config = self.sweep(name="by-name")
        done = kvbench("run", "--config", config, cwd=self.folder)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertTrue((self.folder / "results/by-name/results.json").is_file())

    def test_a_second_run_computes_nothing_and_says_the_same(self):
        first = self.run_sweep()
        journal = self.journal()
        self.assertEqual(json.dumps(self.run_sweep()), json.dumps(first))
        self.assertEqual(self.journal(), journal)

    def test_fresh_computes_everything_again(self):
        first = self.run_sweep()
        again = self.run_sweep("--fresh")
        self.assertEqual(len(again["provenance"]), 1)
        self.assertNotEqual(json.dumps(first), json.dumps(again))
        self.assertEqual(deterministic(first), deterministic(again))

    def test_only_narrows_the_plan_and_changes_no_cell(self):
        whole = self.run_sweep()
        config = self.sweep()
        done = kvbench("run", "--config", config, "--out", self.folder / "part", "--only",
                       "window/*/*/1/*", "--only", whole["cells"][0]["id"])
        self.assertEqual(done.returncode, DONE, done.stderr)
        part = self.results("part")
        self.assertEqual(part["status"], "complete")
        self.assertEqual(part["plan"]["cells"], 5)
        self.assertNotEqual(part["plan"]["hash"], whole["plan"]["hash"])
        by_id = {cell["id"]: cell for cell in whole["cells"]}
        for cell in part["cells"]:
            for name in ("key", "errors", "memory", "mass", "derived", "counters"):
                self.assertEqual(cell[name], by_id[cell["id"]][name])

    def test_set_replaces_a_value_of_the_sweep(self):
        results = self.run_sweep("--set", "/seeds=[5]", "--set", "/algorithms/2/params/T=1")
        seeds = {cell["key"]["seed"] for cell in results["cells"]}
        self.assertEqual(seeds, {5, None})
        self.assertEqual(results["plan"]["cells"], 4 * (1 + 2 + 1))

    def test_repro_runs_as_printed_where_the_run_was_started(self):
        config = self.sweep(name="here")
        sets = ("--set", "/name=\"again\"", "--set", "/algorithms/1/params/budget=[8, 24]")
        (self.folder / "deep").mkdir()
        for folder, out in ((self.folder, "results/again"), (self.folder / "deep", "there")):
            with self.subTest(out):
                into = () if out == "results/again" else ("--out", out)
                done = kvbench("run", "--config", config, *sets, *into, cwd=folder)
                self.assertEqual(done.returncode, DONE, done.stderr)
                whole = (folder / out / "results.json").read_bytes()
                cell = strict_json(whole)["cells"][-1]
                words = shlex.split(cell["repro"])
                relative = os.path.relpath(config, folder)
                self.assertEqual(words[:4], ["kvbench", "run", "--config", relative])
                self.assertIn("/algorithms/1/params/budget=[8, 24]", words)
                done = subprocess.run([PROGRAM, *words[1:]], cwd=folder, capture_output=True,
                                      text=True, check=False)
                self.assertEqual(done.returncode, DONE, done.stderr)
                again = strict_json((folder / f"repro/{cell['id'][:8]}/results.json").read_text())
                self.assertEqual(len(again["cells"]), 1)
                self.assertEqual(again["cells"][0]["id"], cell["id"])
                self.assertEqual(again["cells"][0]["errors"], cell["errors"])
                self.assertEqual((folder / out / "results.json").read_bytes(), whole)

    def test_results_name_files_from_the_working_folder(self):
        config = self.sweep(dumps=["../tiny.h5"])
        outside = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, outside)
        home = str(self.folder.resolve())
        for anonymous in (False, True):
            with self.subTest(anonymous=anonymous):
                words = ["--anonymous"] if anonymous else []
                done = kvbench("run", "--config", config, f"--out={self.folder}/out", "--fresh",
                               *words, cwd=self.folder)
                self.assertEqual(done.returncode, DONE, done.stderr)
                results = self.results()
                up = "" if anonymous else "../"
                self.assertEqual(results["dumps"][0]["path"], f"{up}tiny.h5")
                self.assertEqual(results["config"]["dumps"], [f"{up}tiny.h5"])
                run = results["provenance"][0]
                self.assertEqual(run["argv"][:5],
                                 ["kvbench", "run", "--config", "small.json", "--out=out"])
                self.assertEqual(run["host"], "" if anonymous else socket.gethostname())
                self.assertNotIn(home, json.dumps(results))
        # From elsewhere paths stay absolute, and an anonymous run names no folder at all.
        environment = {**os.environ, "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "node"}
        done = kvbench("run", "--config", config, "--out", self.folder / "out", "--fresh",
                       "--anonymous", cwd="/", env=environment)
        self.assertEqual(done.returncode, DONE, done.stderr)
        text = (self.folder / "out/results.json").read_text()
        for name in (*self.folder.resolve().parts[1:-1], socket.gethostname(), "node"):
            self.assertNotIn(f"/{name}/", text)
            self.assertNotIn(f'"{name}"', text)
        # The files that shards and merges write are as anonymous as they are.
        done = kvbench("merge", self.folder / "out", "--out", outside / "all.json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(strict_json((outside / "all.json").read_text())["provenance"][0]["host"], "")

    def test_a_sweep_without_a_file_has_a_folder_named_by_what_it_runs(self):
        words = ["run", "--dump", self.made / "tiny.h5", "--algorithm", "window"]
        names = {"window-budget-8-tiny": ["--budget", 8],
                 "window-budget-8_16-tiny": ["--budget", "8,16"],
                 "window-budget-memory_0.2-tiny": ["--memory", 0.2],
                 "window-budget-8-storage-q8_0-tiny": ["--budget", 8, "--storage", "q8_0"],
                 "window-budget-8-select.layers_0-tiny": ["--budget", 8, "--set", "select.layers=[0]"]}
        for name, options in names.items():
            with self.subTest(name):
                done = kvbench(*words, *options, "--quiet", cwd=self.folder)
                self.assertEqual(done.returncode, DONE, done.stderr)
                self.assertTrue((self.folder / "results" / name / "results.json").is_file(),
                                list((self.folder / "results").iterdir()))
        done = kvbench(*words, "--budget", ",".join(map(str, range(1, 60))), "--dry-run",
                       cwd=self.folder)
        self.assertEqual(done.returncode, DONE, done.stderr)

    def test_a_run_ends_with_a_table_best_first_on_stderr(self):
        config = self.sweep(algorithms=[
            {"algorithm": "exact"}, {"algorithm": "window", "params": {"budget": [8, 16, 32]}},
            {"algorithm": "uniform", "params": {"T": [1, 2], "sinks": 4}},
            {"algorithm": "h2o", "params": {"budget": [8, 16]}}])
        done = kvbench("run", "--config", config, "--out", self.folder / "out")
        self.assertEqual(done.returncode, DONE, done.stderr)
        settings = {}
        for cell in self.results()["cells"]:
            key = cell["key"]
            setting = settings.setdefault((key["algorithm"], json.dumps(key["params"])), [])
            setting.append((cell["memory"]["fraction"],
                            cell["errors"]["relative_frobenius_error"]))
        # Each KV head has as many seeds, so that a mean over cells is one over KV heads.
        means = [(name, *(sum(numbers) / len(numbers) for numbers in zip(*cells)))
                 for (name, _), cells in settings.items()]
        names = list(dict.fromkeys(name for name, *_ in means))

        def best(name, low, high):
            within = [error for each, memory, error in means
                      if each == name and low < memory <= high * (1 + 1e-9)]
            return min(within, default=None)

        middle = {name: best(name, 0, 0.25) for name in names}
        order = sorted(names, key=lambda name: (middle[name] is None, middle[name] or 0.0))
        # Else the order of the sweep would pass, and one method alone.
        self.assertNotEqual(order, names)
        self.assertGreater(sum(error is not None for error in middle.values()), 1)

        lines = done.stderr.splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith("method "))
        header, *rows = [re.split(r" {2,}", line.strip()) for line in lines[start:start + 5]]
        self.assertEqual([row[0] for row in rows], order)
        for row in rows:
            for column, low, high in (("12.5%", 0, 0.125), ("25%", 0, 0.25), ("50%", 0, 0.5)):
                shown = row[header.index(column)]
                error = best(row[0], low, high)
                if error is None:
                    self.assertEqual(shown, "-", (row, column))
                else:  # four digits
                    self.assertAlmostEqual(float(shown) / error, 1.0, delta=5.01e-4)
            # Methods of which every setting takes more than the memories of the table.
            shown = row[header.index("> 50%")]
            if best(row[0], 0, 0.5) is None:
                self.assertAlmostEqual(float(shown) / best(row[0], 0.5, 2), 1.0, delta=5.01e-4)
            else:
                self.assertEqual(shown, "-", row)

    def test_quiet_says_nothing(self):
        done = kvbench("run", "--config", self.sweep(), "--out", self.folder / "out", "--quiet")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (DONE, "", ""))

    def test_nothing_on_stderr_moves_the_cursor_in_a_pipe(self):
        done = kvbench("run", "--config", self.sweep(), "--out", self.folder / "out")
        self.assertNotIn("\r", done.stderr)
        self.assertNotIn("\033", done.stderr)

    def test_a_terminal_gets_a_bar_with_cells_rate_and_time_left(self):
        terminal, other_end = pty.openpty()
        process = subprocess.Popen(
            [PROGRAM, "run", "--config", self.sweep(seeds={"first": 0, "count": 200}), "--out",
             self.folder / "out"], stdout=subprocess.PIPE, stderr=other_end)
        os.close(other_end)
        seen = b""
        while True:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
        os.close(terminal)
        self.assertEqual(process.communicate()[0], b"")
        self.assertEqual(process.returncode, DONE)
        self.assertRegex(seen.decode(), r"\r\[#*-*\] \d+/1612 cells, [0-9.e+]+/s, .* left")

    def test_skipped_cells_are_results_with_a_reason(self):
        results = self.run_sweep(algorithms=[
            {"algorithm": "window", "params": {"budget": 8}},
            {"algorithm": "streaming_llm", "params": {"budget": 4, "sinks": 4}}])
        self.assertEqual((results["plan"]["ok"], results["plan"]["skipped"]), (4, 4))
        skipped = [cell for cell in results["cells"] if cell["status"] == "skipped"]
        self.assertEqual(len(skipped), 4)
        for cell in skipped:
            self.assertTrue(cell["reason"])
            self.assertIsNone(cell["errors"])
        self.assertEqual({entry["algorithm"] for entry in results["summary"]}, {"window"})

    def test_a_failing_cell_stops_nobody_and_exits_3(self):
        # The scale makes finite queries and keys overflow to infinite logits.
        self.synth("big.h5", "--tokens", 64, "--d", 8, "--scale", 2.5e307, "--out-rows", 0)
        results = self.run_sweep(expect=FAILED_CELLS,
                                 dumps=[str(self.made / "tiny.h5"), str(self.made / "big.h5")])
        self.assertEqual(results["status"], "complete")
        failed = [cell for cell in results["cells"] if cell["status"] == "failed"]
        self.assertEqual(results["plan"]["failed"], len(failed))
        self.assertEqual(results["plan"]["ok"], 28)
        for cell in failed:
            self.assertIn("logits overflow", cell["reason"])
        big = [dump["fingerprint"] for dump in results["dumps"] if "big" in dump["path"]]
        self.assertEqual({cell["key"]["dump"] for cell in failed}, set(big))
        # Failed cells stay failed without --retry-failed, and are computed again with it.
        lines = len(self.journal())
        both = [str(self.made / "tiny.h5"), str(self.made / "big.h5")]
        self.run_sweep(expect=FAILED_CELLS, dumps=both)
        self.assertEqual(len(self.journal()), lines)
        self.run_sweep("--retry-failed", expect=FAILED_CELLS, dumps=both)
        self.assertEqual(len(self.journal()), lines + len(failed))
        # They failed at several rows of one cause, which is said once.
        self.assertGreater(len({cell["reason"] for cell in failed}), 1)
        done = kvbench("run", "--config", self.sweep(dumps=both), "--out", self.folder / "out",
                       "--quiet")
        causes = re.findall(r"^  (\d+) failed: .* at row \d+, query head \d+ of the group \(and "
                            r"similar\) \(first: \S+\)$", done.stderr, re.MULTILINE)
        self.assertEqual(len(causes), len(done.stderr.splitlines()))
        self.assertEqual(sum(map(int, causes)), len(failed))
        bounds = self.folder / "bounds.json"
        bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
            {"name": "n", "metric": "memory.bytes", "at_most": 1e9}]}))
        done = kvbench("check", "--results", self.folder / "out/results.json", "--bounds", bounds)
        listed = re.findall(r"^  n +- +- +(\d+) cells: the cell failed: .* \(and similar\) +the first: "
                            r".+$", done.stdout, re.MULTILINE)
        self.assertEqual(sum(map(int, listed)), len(failed), done.stdout)
        self.assertTrue(done.stdout.endswith("\n\n0 of 1 bounds held\n"), done.stdout)

    def test_what_is_found_only_when_a_stream_is_read_fails_its_cells(self):
        try:
            import h5py
            import numpy
        except ImportError:
            self.skipTest("no h5py")
        # More than 1 GiB, of which the fingerprint reads samples; nearly all of it is a hole in the file.
        with h5py.File(self.made / "huge.h5", "w") as dump:
            dump.attrs.update({"format": "kvbench-dump", "format_version": 1, "model": "made up",
                               "producer": "test", "n_layers": 1})
            layer = dump.create_group("sequences/0/layers/0")
            layer.attrs.update({"scale": 0.1, "sliding_window": 0, "logit_softcap": 0.0})
            draw = numpy.random.default_rng(0)
            for name in "qkv":
                tensor = layer.create_dataset(name, (2, 1 << 20, 256), "f2")
                tensor[:, :1024] = draw.standard_normal((2, 1024, 256))
            layer["k"][1, 777, 5] = numpy.nan
        results = self.run_sweep(expect=FAILED_CELLS, dumps=[str(self.made / "huge.h5")],
                                 select={"tokens": 1024})
        self.assertEqual(results["plan"]["ok"], results["plan"]["failed"])
        for cell in results["cells"]:
            if cell["status"] == "ok":
                continue
            self.assertEqual(cell["key"]["kv_head"], 1)
            for word in ("huge.h5", "/sequences/0/layers/0/k", "head 1", "token 777"):
                self.assertIn(word, cell["reason"])

    def test_rows_are_kept_where_the_sweep_asks_for_them(self):
        results = self.run_sweep(output={"rows": True})
        self.assertTrue((self.folder / "out/results.rows.h5").is_file())
        try:
            import h5py
        except ImportError:
            self.skipTest("no h5py")
        with h5py.File(self.folder / "out/results.rows.h5") as rows:
            self.assertEqual(set(rows), {cell["id"] for cell in results["cells"]})
            for cell in results["cells"]:
                values = rows[cell["id"]]["relative_l2"]
                self.assertEqual(values.shape[1], rows[cell["id"]]["rows"].shape[0])
                self.assertAlmostEqual(values[:].mean(), cell["errors"]["relative_l2"]["mean"],
                                       delta=1e-12)
        # Cells that were computed without rows are computed again when rows are asked for.
        (self.folder / "out/results.rows.h5").unlink()
        again = self.run_sweep(output={"rows": True})
        self.assertEqual(deterministic(again), deterministic(results))
        with h5py.File(self.folder / "out/results.rows.h5") as rows:
            self.assertEqual(len(rows), len(results["cells"]))

    def test_the_shipped_dump_runs(self):
        results = self.run_sweep(dumps=[str(SHIPPED_DUMP)], select={"layers": [1], "tokens": 512},
                                 seeds=[0], evaluate={"rows": {"last": 64}})
        self.assertEqual(results["plan"]["ok"], results["plan"]["cells"])
        by_label = {entry["label"]: entry for entry in results["summary"]
                    if entry["layer"] is None and entry["params"].get("budget") in (None, 32)
                    and entry["params"].get("T") in (None, 1)}
        self.assertLess(by_label["exact"]["errors"]["relative_l2.mean"]["mean"], 1e-12)
        self.assertGreater(by_label["window"]["errors"]["relative_l2.mean"]["mean"], 0.05)


if __name__ == "__main__":
    unittest.main()
