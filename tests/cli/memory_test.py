"""The peak memory that `kvbench plan` tells: no run takes more, and none is refused for what it would
never take. Not under sanitizers, which take memory of their own."""

import json
import os
import subprocess
import sys
import unittest

from program import DONE, PROGRAM, SHIPPED_DUMP, Folder, kvbench

# A run may take 5 % more than it was planned to: what the allocator keeps of what was given back.
OVER = 1.05
# And a plan may tell four times what a run takes: bounds where the stream decides how much is held.
UNDER = 4.0
THREADS = 2

# Prints the peak of a command in KiB. In a process of its own: a child's peak begins at that of the
# process that starts it, and this one reads large results.
MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""

WALKS = [{"algorithm": "balancekv_prefill", "params": {"T": 2, "block": [256, 1024]}},
         {"algorithm": "softmax_balance", "params": {"T": [1, 2], "r": 8.0}},
         {"algorithm": "balancekv", "params": {"t": 512, "T": 2, "r": 8.0}}]
SCORES = [{"algorithm": "h2o", "params": {"budget": [256, 512]}},
          {"algorithm": "keyformer", "params": {"budget": [256, 512]}},
          {"algorithm": "snapkv", "params": {"budget": 256}},
          {"algorithm": "kcenter", "params": {"budget": 256}},
          {"algorithm": "subgen", "params": {"delta_quantile": [0.05, 0.2], "t": 16, "s": 128}}]


class Memory(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.synth("wide.h5", "--tokens", 2048, "--d", 64, "--layers", 4)
        cls.synth("rows.h5", "--tokens", 4096, "--d", 64)
        cls.synth("output.h5", "--tokens", 1024, "--d", 64, "--group", 4, "--hidden", 2048)
        cls.synth("queries.h5", "--tokens", 8192, "--d", 64, "--kv-heads", 1)
        cls.synth("long.h5", "--tokens", 32768, "--d", 64, "--query-rows", 64)

    def taken_by(self, *arguments, threads=None):
        """Most bytes that a command had in memory at one time, by the system's account."""
        of_threads = {"OMP_NUM_THREADS": str(threads)} if threads else {}
        done = subprocess.run([sys.executable, "-c", MEASURE, PROGRAM, *map(str, arguments)],
                              capture_output=True, text=True, check=False, env=os.environ | of_threads)
        self.assertEqual(done.returncode, DONE, done.stderr)
        return int(done.stdout) * 1024

    def check(self, algorithms, dump, **more):
        config = self.sweep(algorithms, dumps=[str(dump)], **more)
        done = kvbench("plan", "--config", config, "--threads", THREADS, "--json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        planned = json.loads(done.stdout)["memory_bytes"]
        taken = self.taken_by("run", "--config", config, "--out", self.folder / "out",
                              "--threads", THREADS, "--quiet", "--fresh")
        said = f"planned {planned / 2**20:.0f} MiB, took {taken / 2**20:.0f} MiB"
        print(f"{self.id().rsplit('.', 1)[-1]}: {said}")
        self.assertLessEqual(taken, OVER * planned, said)
        self.assertLessEqual(planned, UNDER * taken, said)

    def test_records_of_whole_layers_and_what_a_limit_makes_of_them(self):
        algorithms = [{"algorithm": "window", "params": {"budget": {"range": [16, 512, 16]}}}]
        rows = {"rows": {"last": 512}}
        self.check(algorithms, self.made / "output.h5", evaluate=rows)
        config = self.folder / "small.json"
        done = kvbench("plan", "--config", config, "--threads", THREADS, "--json")
        limit = json.loads(done.stdout)["memory_bytes"] // 2
        taken = self.taken_by("run", "--config", config, "--out", self.folder / "limited",
                              "--threads", THREADS, "--quiet", "--memory-limit", limit)
        print(f"limit {limit / 2**20:.0f} MiB, took {taken / 2**20:.0f} MiB")
        self.assertLess(taken, OVER * limit)
        self.assertEqual(self.results("limited")["layers"][5]["errors"],
                         self.results()["layers"][5]["errors"])

    def test_walks_whose_matrices_are_shared(self):
        self.check(WALKS, SHIPPED_DUMP, select={"layers": [1]}, evaluate={"rows": {"last": 64}})

    def test_scores_of_every_row(self):
        self.check(SCORES, SHIPPED_DUMP, select={"layers": [1]})

    def test_scores_of_a_whole_model(self):
        self.check([{"algorithm": "keyformer", "params": {"budget": 512, "scope": "model"}}],
                   self.made / "wide.h5", evaluate={"rows": {"last": 64}}, seeds=[0])

    def test_blocks_of_rows_that_see_ever_more(self):
        self.check([{"algorithm": "window", "params": {"budget": 64}}], self.made / "rows.h5",
                   replay={"prompt_tokens": 0}, seeds=[0])

    def test_a_long_stream(self):
        self.check([*WALKS[:1], *SCORES[3:4], {"algorithm": "window", "params": {"budget": 1024}},
                    {"algorithm": "uniform", "params": {"T": 4}}],
                   self.made / "long.h5", replay={"prompt_tokens": 32704}, seeds=[0])

    def test_what_methods_take_beside_their_rows(self):
        """Each runs alone, so that no other one hides it."""
        for algorithm, params in (("attention_matching", {"budget": 3000}),
                                  ("attention_matching", {"budget": 1000, "select": "omp"}),
                                  ("magicpig", {}), ("loki", {"budget": 64, "rank": 64}),
                                  ("performer", {"features": 20000}), ("roco", {"budget": 64}),
                                  ("quest", {"budget": 64, "page": 1}), ("kdeformer", {}),
                                  ("wildcat", {"budget": 400, "rank": 300}),
                                  ("rkv", {"budget": 64}), ("tova", {"budget": 64})):
            with self.subTest(algorithm=algorithm, params=params):
                self.check([{"algorithm": algorithm, "params": params}], self.made / "queries.h5",
                           replay={"prompt_tokens": 8000}, seeds=[0],
                           select={"kv_heads": [0]}, evaluate={"rows": {"last": 4}})

    def test_many_seeds_of_one_head(self):
        self.synth("small.h5", "--tokens", 64, "--d", 8, "--layers", 1, "--kv-heads", 1)
        self.check([{"algorithm": "uniform", "params": {"T": 1, "sinks": 4}}],
                   self.made / "small.h5", seeds={"first": 0, "count": 60000},
                   evaluate={"rows": {"last": 1}})

    def test_many_groups_of_few_heads(self):
        dump = self.synth("groups.h5", "--tokens", 8, "--d", 4, "--layers", 2, "--kv-heads", 1,
                          "--sequences", 1500)
        self.check([{"algorithm": "window", "params": {"budget": [1, 2]}}], dump,
                   evaluate={"rows": {"last": 1}})

    def test_ten_million_cells_are_planned_in_little_more_than_their_ids(self):
        dump = self.synth("many.h5", "--tokens", 64, "--d", 8, "--layers", 5, "--kv-heads", 2)
        config = self.sweep([{"algorithm": "uniform", "params": {"T": 1, "sinks": 4}}],
                            dumps=[str(dump)], seeds={"first": 0, "count": 1000000},
                            evaluate={"rows": {"last": 1}})
        taken = self.taken_by("plan", "--config", config, "--threads", THREADS)
        print(f"took {taken / 2**20:.0f} MiB")
        self.assertLess(taken, 300 * 2**20)

    # Many settings: what is written at the end takes most.

    def settings(self, count):
        """A sweep of `count` settings with one cell each."""
        return self.sweep([{"algorithm": "subgen", "params": {
            "delta": [0.001 * (i + 1) for i in range(count // 20)], "t": [1, 2, 3, 4],
            "s": [1, 2, 3, 4, 5]}}], select={"layers": [0], "kv_heads": [0]}, seeds=[0],
            evaluate={"rows": {"last": 4}})

    def test_many_settings_from_plan_to_merge(self):
        config = self.settings(8000)
        done = kvbench("plan", "--config", config, "--threads", 1, "--json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        planned = json.loads(done.stdout)["memory_bytes"]
        out = self.folder / "out"
        run = ["run", "--config", config, "--out", out, "--threads", 1, "--quiet",
               "--memory-limit", planned + 1]
        for what, arguments in (("run", run), ("resumed", run),
                                ("merge", ["merge", out, "--out", self.folder / "all.json",
                                           "--memory-limit", planned + 1])):
            taken = self.taken_by(*arguments, threads=1)  # merge has no option for them
            said = f"planned {planned / 2**20:.0f} MiB, {what} took {taken / 2**20:.0f} MiB"
            print(said)
            self.assertLessEqual(taken, OVER * planned, said)
            self.assertLessEqual(planned, UNDER * taken, said)
        journal = (out / "journal.jsonl").read_bytes()
        for refused in (run[:-1], ["merge", out, "--out", self.folder / "no.json",
                                   "--memory-limit"]):
            done = kvbench(*refused, int(0.9 * planned))
            self.assert_refused(done, "needs about", "--memory-limit")
        self.assertEqual((out / "journal.jsonl").read_bytes(), journal)
        self.assertFalse((self.folder / "no.json").exists())

    def test_a_plan_that_is_too_large_is_refused_before_it_is_made(self):
        config = self.sweep([{"algorithm": "uniform", "params": {"T": 1}}],
                            seeds={"first": 0, "count": 1000000}, select={"layers": [0], "kv_heads": [0]})
        process = subprocess.Popen([PROGRAM, "run", "--config", config, "--memory-limit", "100MiB"],
                                   stderr=subprocess.PIPE)
        printed = process.stderr.read().decode()
        process.stderr.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 2, printed)
        self.assertIn("/algorithms", printed)
        self.assertLess(used.ru_maxrss * 1024, 100 * 2**20)

    def test_results_are_exported_without_their_summary(self):
        results = self.folder / "out/results.json"
        self.taken_by("run", "--config", self.settings(4000), "--out", self.folder / "out", "--quiet")
        taken = self.taken_by("export", "--results", results, "--format", "csv")
        self.assertLess(taken, 3 * results.stat().st_size)


if __name__ == "__main__":
    unittest.main()
