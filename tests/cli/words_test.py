"""A sweep on the command line, short options, help, standard input, a terminal that goes away."""

import json
import shlex
import signal
import subprocess
import time
import unittest
from pathlib import Path

from program import DONE, INCOMPLETE, PROGRAM, Folder, deterministic, kvbench


def but_for_folders(results):
    """A results document without what may vary and without how its sweep writes the dumps' folders."""
    config = {**results["config"], "dumps": [Path(dump).name for dump in results["config"]["dumps"]]}
    dumps = [{**dump, "path": Path(dump["path"]).name} for dump in results["dumps"]]
    return deterministic({**results, "config": config, "dumps": dumps})


class Words(Folder):
    def words(self, command, *more, **options):
        return kvbench(command, "--dump", self.made / "tiny.h5", *more, cwd=self.folder, **options)

    def test_a_run_in_one_line_is_that_of_the_file_which_says_the_same(self):
        done = self.words("run", "--algorithm", "h2o", "--algorithm", "window", "--budget", "8,16",
                          "--recent_fraction", "0.25", "-o", "words")
        self.assertEqual(done.returncode, DONE, done.stderr)
        by_words = self.results("words")
        by_file = self.run_sweep(name=by_words["name"], seeds={"first": 0, "count": 1}, algorithms=[
            {"algorithm": "h2o", "params": {"budget": [8, 16], "recent_fraction": 0.25}},
            {"algorithm": "window", "params": {"budget": [8, 16]}}])
        self.assertEqual(but_for_folders(by_words), but_for_folders(by_file))

    def test_the_sweep_stands_beside_the_results_and_repro_works(self):
        done = self.words("run", "--algorithm", "uniform", "--T", "1", "--sinks", "4",
                          "--set", "/seeds/count=2", "-o", "out")
        self.assertEqual(done.returncode, DONE, done.stderr)
        cell = self.results()["cells"][1]
        self.assertEqual(cell["key"]["seed"], 1)
        words = shlex.split(cell["repro"])
        self.assertIn("out/sweep.json", words)
        done = kvbench(*words[1:], cwd=self.folder)
        self.assertEqual(done.returncode, DONE, done.stderr)
        again = self.results(f"repro/{cell['id'][:8]}")["cells"]
        self.assertEqual([again[0]["id"], again[0]["errors"]], [cell["id"], cell["errors"]])
        done = kvbench("run", "--config", self.folder / "out/sweep.json", "--out", self.folder / "file")
        self.assertEqual(but_for_folders(self.results("file")), but_for_folders(self.results()))

    def test_values_are_lists_axes_and_words(self):
        done = self.words("plan", "--algorithm", "snapkv", "--budget", '{"pow2": [3, 5]}', "--pool",
                          "max,avg", "--window", "4", "--json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        params = json.loads(done.stdout)["config"]["algorithms"][0]["params"]
        self.assertEqual((params["budget"], params["pool"], params["window"]),
                         ([8, 16, 32], ["max", "avg"], 4))

    def test_storages_and_memory_in_one_line_are_those_of_a_file(self):
        done = self.words("plan", "--algorithm", "h2o", "--algorithm", "window", "--memory", "0.25,0.5",
                          "--storage", "float,fp16", "--json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        config = json.loads(done.stdout)["config"]
        self.assertEqual([entry["params"]["budget"] for entry in config["algorithms"]],
                         [[{"memory": 0.25}, {"memory": 0.5}]] * 2)
        cells = json.loads(done.stdout)["cell_list"]
        self.assertEqual({cell["path"].split("/")[1] for cell in cells},
                         {"h2o", "h2o | K fp16 V fp16", "window", "window | K fp16 V fp16"})
        done = self.words("plan", "--algorithm", "exact", "--storage", '{"keys": {"codec": "int", "bits": [4, 8]}}',
                          "--json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(len({cell["path"].split("/")[1] for cell in json.loads(done.stdout)["cell_list"]}), 2)
        for words, arguments in (
                ("--memory: --budget is given as well", ("--algorithm", "h2o", "--memory", "0.5", "--budget", "4")),
                ("--memory: cannot be solved for exact", ("--algorithm", "exact", "--memory", "0.5")),
                ("budget/memory: must be a number > 0", ("--algorithm", "h2o", "--memory", "half")),
                ("/storage: unknown codec q8_00; did you mean q8_0?",
                 ("--algorithm", "h2o", "--budget", "4", "--storage", "q8_00"))):
            self.assert_refused(self.words("plan", *arguments), words)
        self.assert_refused(kvbench("plan", "--config", self.sweep(), "--storage", "fp16"), "given as well")

    def test_a_run_that_computes_nothing_says_why(self):
        done = self.words("run", "--algorithm", "h2o", "--budget", "8", "--storage",
                          '{"keys": {"codec": "kivi", "group": 4, "residual": 4}}', "-o", "none", "--quiet")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertIn("nothing was computed, every cell was skipped", done.stderr)
        self.assertIn("skipped: kivi writes keys of 4 tokens together, and h2o drops tokens", done.stderr)

    def test_slips_are_told_by_what_was_written(self):
        self.assert_refused(self.words("run"), "--algorithm: is required")
        self.assert_refused(kvbench("run", "--algorithm", "h2o"), "--dump: is required")
        self.assert_refused(kvbench("run"), "--config: is required")
        self.assert_refused(self.words("run", "--algorithm", "h2o", "--config", self.sweep()), "given as well")
        self.assert_refused(self.words("run", "--algorithm", "h2o", "--budget", "8", "--block", "64"),
                            "--block: h2o has no such parameter", "balancekv_prefill")
        self.assert_refused(self.words("run", "--algorithm", "h2p", "--budget", "8"),
                            "unknown algorithm h2p", "did you mean h2o")
        self.assert_refused(self.words("run", "--algorithm", "h2o", "--budget", "-8"), "budget")

    def test_short_options(self):
        config = self.sweep()
        for words in (["-c", config, "-o", "a"], [f"-c{config}", "-ob"]):
            done = kvbench("run", *words, cwd=self.folder)
            self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(deterministic(self.results("a")), deterministic(self.results("b")))
        self.assert_refused(kvbench("run", "-c", config, "-x"), "unknown option -x")
        self.assert_refused(kvbench("run", "-c", ""), "--config: is empty")

    def test_help_is_a_command_too(self):
        for command in ([], ["run"], ["plan"]):
            done = kvbench("help", *command)
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.assertEqual(done.stdout, kvbench(*command, "--help").stdout)
        self.assert_refused(kvbench("help", "rum"), "rum", "did you mean run")

    def test_standard_input_is_a_sweep_whose_cells_can_be_repeated(self):
        config = self.sweep()
        done = kvbench("run", "-c", "-", "-o", "out", input=config.read_text(), cwd=self.folder)
        self.assertEqual(done.returncode, DONE, done.stderr)
        words = shlex.split(self.results()["cells"][0]["repro"])
        done = kvbench(*words[1:], cwd=self.folder)
        self.assertEqual(done.returncode, DONE, done.stderr)

    def test_one_algorithm_can_be_listed(self):
        done = kvbench("list", "algorithms", "h2o", "clustergen", "--json")
        self.assertEqual([entry["id"] for entry in json.loads(done.stdout)], ["h2o", "subgen"])
        self.assertIn("h2o: ", kvbench("list", "algorithms", "h2o").stdout)
        self.assert_refused(kvbench("list", "algorithms", "h2p"), "did you mean h2o")
        self.assert_refused(kvbench("list", "metrics", "h2o"), "names are of algorithms")

    def test_many_faults_are_not_all_listed(self):
        config = self.sweep([{"algorithm": "window", "params": {"budget": -i}} for i in range(1, 200)])
        done = kvbench("plan", "--config", config)
        self.assert_refused(done, "and at least 149 more")
        self.assertEqual(done.stderr.count("\n"), 51)

    def test_a_shard_with_nothing_to_do_says_so(self):
        done = kvbench("run", "--config", self.sweep(), "--out", self.folder / "out", "--shard", "8/8")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertIn("nothing to do", done.stderr)

    def test_a_terminal_that_goes_away_stops_a_run_cleanly_and_nohup_does_not(self):
        long = self.synth("long.h5", "--tokens", 512, "--d", 32, "--layers", 2)
        config = self.sweep([{"algorithm": "uniform", "params": {"T": 1}}], dumps=[str(long)],
                            seeds={"first": 0, "count": 400})
        for ignored, expected in ((False, INCOMPLETE), (True, DONE)):
            out = self.folder / f"out-{ignored}"
            process = subprocess.Popen(
                [PROGRAM, "run", "--config", config, "--out", out, "--quiet"], stderr=subprocess.PIPE,
                preexec_fn=(lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) if ignored else None)
            journal = out / "journal.jsonl"
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not (
                    journal.exists() and journal.read_bytes().count(b"\n") > 3):
                time.sleep(0.005)
            process.send_signal(signal.SIGHUP)
            printed = process.communicate()[1]
            self.assertEqual(process.returncode, expected, printed)
            self.assertTrue((out / "results.json").exists())


if __name__ == "__main__":
    unittest.main()
