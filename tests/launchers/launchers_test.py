"""configs/launchers: its commands, as they stand on the page, on a small sweep; killed and run again."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from program import DONE, PROGRAM, SOURCE, Folder, deterministic, kvbench

LAUNCHERS = SOURCE / "configs/launchers"
PAGE = (LAUNCHERS / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)


def command(word):
    """The only fence with the word."""
    found, = (fence for fence in COMMANDS if word in fence)
    return found


class Launchers(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.synth("wide.h5", "--tokens", 384, "--d", 32, "--layers", 2, "--kv-heads", 4)

    def setUp(self):
        super().setUp()
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "kvbench").symlink_to(PROGRAM)
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}",
                            "XDG_CACHE_HOME": str(self.folder / "cache")}
        config = self.sweep([{"algorithm": "uniform", "params": {"T": [1, 2], "sinks": 4}},
                             {"algorithm": "subgen", "params": {"delta_quantile": 0.1, "t": 4, "s": 64}}],
                            dumps=[str(self.made / "wide.h5")], seeds={"first": 0, "count": 12})
        shutil.copy(config, self.folder / "mine.json")
        # In the launchers' folder, since results name their dumps from the current one.
        done = kvbench("run", "--config", config, "--out", "whole", cwd=self.folder)
        self.assertEqual(done.returncode, DONE, done.stderr)

    def bash(self, text):
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", text], cwd=self.folder, text=True,
                              capture_output=True, check=False, env=self.environment, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def killed(self, text):
        """Begun, and after a while everything it started is gone."""
        process = subprocess.Popen(["bash", "-c", text], cwd=self.folder, env=self.environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        journals = self.folder / "mine/shards"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(list(journals.glob("*/journal.jsonl"))) < 2:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.kill_what_is_left()
        self.assertGreaterEqual(len(list(journals.glob("*/journal.jsonl"))), 1)

    def kill_what_is_left(self):
        """Parts in process groups of their own: they work on the folder's sweep."""
        for each in Path("/proc").glob("[0-9]*"):
            try:
                is_part = (each / "cwd").readlink() == self.folder.resolve()
                if is_part and b"--shard" in (each / "cmdline").read_bytes():
                    os.kill(int(each.name), signal.SIGKILL)
            except OSError:  # it ended, or is another user's
                continue

    def assert_equals_one_run(self):
        merged = json.loads((self.folder / "mine/results.json").read_text())
        self.assertEqual(merged["status"], "complete")
        self.assertEqual(deterministic(merged), deterministic(self.results("whole")))

    def run_twice(self, text):
        self.killed(text)
        self.bash(text)
        self.assert_equals_one_run()

    def test_a_loop_of_the_shell(self):
        self.run_twice(command("xargs"))

    def test_gnu_parallel(self):
        if shutil.which("parallel") is None:
            self.skipTest("GNU parallel is not installed")
        text = command("parallel -j4")
        self.assertIn("CUDA_VISIBLE_DEVICES=$(({%}-1)) ", text)
        self.run_twice(text)

    def test_snakemake(self):
        if shutil.which("snakemake") is None:
            self.skipTest("Snakemake is not installed")
        first, _ = command("snakemake").splitlines()
        text = first.replace("configs/launchers", str(LAUNCHERS)).replace("--cores 8", "--cores 4")
        self.assertNotEqual(text, first)
        self.killed(text)
        self.bash(text.replace("snakemake ", "snakemake --unlock ", 1))
        self.bash(text)
        self.assert_equals_one_run()
        before = (self.folder / "mine/results.json").stat().st_mtime_ns
        self.bash(text)
        self.assertEqual((self.folder / "mine/results.json").stat().st_mtime_ns, before)

    def test_srun_in_one_allocation(self):
        """With a stand-in for srun that starts the tasks one after another; Slurm itself is tests/slurm's."""
        srun = self.folder / "bin/srun"
        srun.write_text("#!/bin/bash\nfor i in 0 1 2; do SLURM_NTASKS=3 SLURM_PROCID=$i \"$@\" || exit; done\n")
        srun.chmod(0o755)
        self.bash(command("srun"))
        self.assert_equals_one_run()


if __name__ == "__main__":
    unittest.main()
