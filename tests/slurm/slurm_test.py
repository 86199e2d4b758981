"""The scripts of configs/slurm on a real Slurm: tasks that are preempted, run out of time or die go
on from their own journals, and the merged result is that of one run. Exit 77: no Slurm here."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from cluster import Cluster, missing_programs

PROGRAM = os.environ["KVBENCH_PROGRAM"]
SOURCE = Path(os.environ["KVBENCH_SOURCE"])
SCRIPTS = SOURCE / "configs/slurm"
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}


def deterministic(path):
    """A results file without what may vary from run to run."""
    results = json.loads(path.read_text())
    document = {name: value for name, value in results.items()
                if name not in ("provenance", "groups")}
    document["cells"] = [{name: value for name, value in cell.items()
                          if name not in ("timing", "repro")} for cell in results["cells"]]
    return json.dumps(document)


def is_pending(process, number):
    """Whether a signal waits for a process that stands still."""
    status = Path(f"/proc/{process}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:"))
    return int(mask, 16) >> (number - 1) & 1 == 1


class OnSlurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="kvbench-slurm-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        (cls.folder / "slurm").mkdir(mode=0o755)
        cls.cluster = Cluster(cls.folder / "slurm")
        cls.addClassCleanup(cls.cluster.stop)
        cls.cluster.environment["KVBENCH"] = PROGRAM
        cls.waiting = {}  # requeued tasks and since when they were seen to wait
        subprocess.run([PROGRAM, "synth", "gaussian", "--out", cls.folder / "deep.h5", "--tokens",
                        "512", "--d", "32", "--layers", "20"], check=True)

    def sweep(self, name, seeds):
        """20 groups, 16 shards."""
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({
            "schema_version": 1, "name": name, "dumps": ["deep.h5"], "output": {"rows": True},
            "seeds": {"first": 0, "count": seeds},
            "algorithms": [{"algorithm": "window", "params": {"budget": [16, 64]}},
                           {"algorithm": "subgen",
                            "params": {"delta_quantile": [0.05, 0.2], "t": [4, 16],
                                       "s": {"pow2": [6, 9]}}}]}))
        return path

    def submit(self, config, out, *options):
        """Through submit.sh, as a user would; the ids of the array job and of the merge job."""
        done = self.cluster.run(SCRIPTS / "submit.sh", config, out, *options, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        words = done.stdout.splitlines()[-1].replace(",", "").split()
        return words[2], words[5]

    def until(self, what, condition, seconds=120):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"not so: {what}\n{self.cluster.run('squeue').stdout}\n"
                          f"{self.cluster.logs()}")
            time.sleep(0.1)

    def states(self, job):
        return {name: values["JobState"] for name, values in self.cluster.jobs(job).items()}

    def wait_for_end(self, *jobs):
        def ended():
            self.release()
            return all(state in ENDED for job in jobs for state in self.states(job).values())
        self.until(f"{jobs} ended", ended)

    def release(self):
        """Slurm lets a requeued task wait for two minutes; a test does not. But not at once: slurmd
        takes a credential of the second in which it revoked the task's last one for that one."""
        for line in self.cluster.run("squeue", "-h", "-r", "-t", "PD", "-o", "%i %r").stdout.splitlines():
            name, reason = line.split(None, 1)
            if reason != "BeginTime":
                self.waiting.pop(name, None)
            elif time.monotonic() > self.waiting.setdefault(name, time.monotonic()) + 3:
                self.cluster.run("scontrol", "update", f"JobId={name}", "StartTime=now")
                del self.waiting[name]

    def lines(self, out, shard):
        path = self.folder / out / "shards" / str(shard) / "journal.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def program_of(self, out, shard):
        """The process id of a shard's run, or None."""
        found = subprocess.run(["pgrep", "-f", f"kvbench run .*--out .*/{out}/shards/{shard} "],
                               capture_output=True, text=True, check=False).stdout.split()
        return int(found[0]) if found else None

    @contextlib.contextmanager
    def held_in_the_middle(self, array, out):
        """A task that has finished some of its cells and has more to do; its program stands still,
        so that it cannot end before the test has done what it is about to do."""
        def at_work():
            for name, state in self.states(array).items():
                shard = name.partition("_")[2]
                if state == "RUNNING" and shard.isdigit() and self.lines(out, shard) > 2:
                    yield name, self.program_of(out, shard)
        held = []
        def hold():
            self.release()  # the only tasks left may be requeued ones
            for name, program in at_work():
                try:
                    os.kill(program, signal.SIGSTOP)
                except (ProcessLookupError, TypeError):
                    continue
                shard = name.partition("_")[2]
                if self.lines(out, shard) <= self.cells_of(shard):
                    held.append((name, program))
                    return True
                os.kill(program, signal.SIGCONT)
            return False
        self.until(f"a task of {array} is at work", hold)
        name, program = held[0]
        try:
            yield name, program
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(program, signal.SIGCONT)

    def cells_of(self, shard):
        if shard not in self.cells:
            plan = subprocess.run([PROGRAM, "plan", "--config", self.config, "--json", "--shard",
                                   f"{shard}/16"], capture_output=True, text=True, check=True)
            self.cells[shard] = json.loads(plan.stdout)["cells"]
        return self.cells[shard]

    def undisturbed(self, config):
        out = self.folder / f"local-{config.stem}"
        subprocess.run([PROGRAM, "run", "--config", config, "--out", out, "--quiet"], check=True, cwd=self.folder)
        return out

    def assert_same(self, out, local):
        self.assertEqual(deterministic(self.folder / out / "results.json"),
                         deterministic(local / "results.json"))
        self.assertEqual((self.folder / out / "results.rows.h5").read_bytes(),
                         (local / "results.rows.h5").read_bytes())

    def restarts(self, name):
        return int(self.cluster.jobs(name)[name]["Restarts"])

    def test_preempted_out_of_time_and_killed_tasks_go_on_and_merge_to_the_local_run(self):
        config = self.config = self.sweep("survives", 12)
        self.cells = {}
        array, merge = self.submit(config, "out")
        # Preempted by a job of a partition that comes first, which takes the whole node.
        with self.held_in_the_middle(array, "out") as (preempted, _):
            done = self.cluster.run("sbatch", "--parsable", "--partition=high", "--cpus-per-task=4",
                                    "--output=/dev/null", "--wrap=sleep 1", check=True)
            self.until("tasks are preempted", lambda: self.restarts(preempted) > 0)
        before = self.lines("out", preempted.partition("_")[2])
        self.until("the other job ended", lambda: self.states(done.stdout.strip()).get(
            done.stdout.strip()) == "COMPLETED")
        self.release()
        # Out of time: less than two minutes are left, so Slurm sends its warning.
        with self.held_in_the_middle(array, "out") as (late, program):
            restarts = self.restarts(late)
            self.cluster.run("scontrol", "update", f"JobId={late}", "TimeLimit=2", check=True)
            self.until("the program is told", lambda: is_pending(program, signal.SIGUSR1))
            self.cluster.run("scontrol", "update", f"JobId={late}", "TimeLimit=60", check=True)
        self.until("the task went back into the queue", lambda: self.restarts(late) > restarts)
        # Requeued by hand, as when a node fails.
        with self.held_in_the_middle(array, "out") as (moved, _):
            restarts = self.restarts(moved)
            self.cluster.run("scontrol", "requeue", moved, check=True)
            self.until("the task is requeued", lambda: self.restarts(moved) > restarts)
        # kill -9 of the program itself: that task fails, and is submitted again below.
        with self.held_in_the_middle(array, "out") as (killed, program):
            os.kill(program, signal.SIGKILL)
        shard = killed.partition("_")[2]
        self.wait_for_end(array, merge)
        self.assertEqual(self.states(array)[killed], "FAILED")
        self.assertEqual({state for name, state in self.states(array).items() if name != killed},
                         {"COMPLETED"}, self.cluster.logs())
        # The merge job ran after all that, refused to call it complete, and says what is missing.
        self.assertEqual(self.states(merge)[merge], "FAILED")
        self.assertEqual(self.cluster.jobs(merge)[merge]["ExitCode"], "5:0")
        log = (self.folder / f"out/logs/kvbench-merge-{merge}.log").read_text()
        self.assertIn(f"shard {shard}/16", log)
        self.assertEqual(json.loads((self.folder / "out/results.json").read_text())["status"],
                         "incomplete")

        journals = {shard: self.lines("out", shard) for shard in range(1, 17)}
        array, merge = self.submit(config, "out")
        self.wait_for_end(array, merge)
        self.assertEqual(set(self.states(array).values()) | set(self.states(merge).values()),
                         {"COMPLETED"})
        self.assert_same("out", self.undisturbed(config))
        # Nothing was computed twice: every line of every journal is of another cell.
        self.assertLessEqual(before, self.lines("out", preempted.partition("_")[2]))
        for number, lines in journals.items():
            path = self.folder / f"out/shards/{number}/journal.jsonl"
            ids = [json.loads(line)["id"] for line in path.read_text().splitlines()[1:]]
            self.assertEqual(len(ids), len(set(ids)), path)
            self.assertTrue(len(ids) + 1 == lines or str(number) == shard, path)
        slurm = [run["slurm"] for run in
                 json.loads((self.folder / "out/results.json").read_text())["provenance"]]
        self.assertTrue(all("SLURM_ARRAY_TASK_ID" in run for run in slurm))
        self.assertTrue(any(int(run.get("SLURM_RESTART_COUNT", 0)) > 0 for run in slurm))

    def test_a_faulty_sweep_takes_no_place_in_the_queue(self):
        path = self.folder / "faulty.json"
        path.write_text(self.sweep("good", 1).read_text().replace("budget", "budgt"))
        done = self.cluster.run(SCRIPTS / "submit.sh", path, "none", cwd=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("did you mean budget", done.stderr)
        self.assertEqual(self.cluster.run("squeue", "-h", "-n", "none").stdout, "")

    def test_scripts_without_arguments_say_how_they_are_used(self):
        for script in ("submit.sh", "sweep.sbatch", "merge.sbatch"):
            done = subprocess.run([SCRIPTS / script], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("usage: ", done.stderr)


if __name__ == "__main__":
    lacking = missing_programs() if os.geteuid() == 0 else ["root"]
    if lacking:
        print(f"SKIPPED: Slurm cannot run here without {', '.join(lacking)}; "
              "tests/slurm/run.sh installs it (Debian, as root)")
        sys.exit(77)
    unittest.main(verbosity=2)
