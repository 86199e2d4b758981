"""The peak memory that `kvbench plan` tells: no run takes more, and none is refused for what it would
never take. Not under sanitizers, which take memory of their own."""

import json
import os
import subprocess
import unittest

from program import DONE, PROGRAM, SHIPPED_DUMP, Folder, kvbench

# A run may take 5 % more than it was planned to: what the allocator keeps of what was given back.
OVER = 1.05
# And a plan may tell four times what a run takes: bounds where the stream decides how much is held.
UNDER = 4.0
THREADS = 2

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
        cls.synth("long.h5", "--tokens", 32768, "--d", 64, "--query-rows", 64)

    def peak(self, config):
        """Most bytes that a run of the sweep held at one time, by the system's account."""
        process = subprocess.Popen([PROGRAM, "run", "--config", config, "--out",
                                    self.folder / "out", "--threads", str(THREADS), "--quiet"],
                                   stderr=subprocess.PIPE)
        talk = process.stderr.read()
        process.stderr.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, DONE, talk)
        return used.ru_maxrss * 1024

    def check(self, algorithms, dump, **more):
        config = self.sweep(algorithms, dumps=[str(dump)], **more)
        done = kvbench("plan", "--config", config, "--threads", THREADS, "--json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        planned = json.loads(done.stdout)["memory_bytes"]
        taken = self.peak(config)
        said = f"planned {planned / 2**20:.0f} MiB, took {taken / 2**20:.0f} MiB"
        print(f"{self.id().rsplit('.', 1)[-1]}: {said}")
        self.assertLessEqual(taken, OVER * planned, said)
        self.assertLessEqual(planned, UNDER * taken, said)

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


if __name__ == "__main__":
    unittest.main()
