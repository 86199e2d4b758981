"""Random kills: whatever the moment and the signal, nothing that was written is lost, and the run
ends with the bytes of an undisturbed one. KVBENCH_KILLS: how many (10); KVBENCH_KILL_SEED: which."""

import json
import os
import random
import signal
import subprocess
import time
import unittest

from program import DONE, INCOMPLETE, PROGRAM, Folder, deterministic, kvbench

KILLS = int(os.environ.get("KVBENCH_KILLS", "10"))
SEED = int(os.environ.get("KVBENCH_KILL_SEED", str(time.time_ns() % 2**32)))
SIGNALS = [signal.SIGKILL] * 6 + [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]


def rows_of(path):
    """Every value of a rows file."""
    import h5py
    found = {}
    with h5py.File(path) as rows:
        rows.visititems(lambda name, item: found.update({name: item[()].tobytes()})
                        if isinstance(item, h5py.Dataset) else None)
    return found


class Kill(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.synth("long.h5", "--tokens", 384, "--d", 32, "--layers", 3)

    def setUp(self):
        super().setUp()
        self.choose = random.Random(SEED)
        self.config = self.sweep(
            [{"algorithm": "subgen", "params": {"delta_quantile": [0.05, 0.2], "t": [4, 16],
                                                "s": {"pow2": [6, 8]}}},
             {"algorithm": "h2o", "params": {"budget": [64, 128]}}],
            dumps=[str(self.made / "long.h5")], seeds={"first": 0, "count": 4},
            output={"rows": True})

    def journal_bytes(self, out):
        path = self.folder / out / "journal.jsonl"
        return path.read_bytes() if path.exists() else b""

    def run_and_kill(self, out, longest):
        """True if the run ended by itself before its time came."""
        whole = self.journal_bytes(out)
        whole = whole[:whole.rfind(b"\n") + 1]
        process = subprocess.Popen([PROGRAM, "run", "--config", str(self.config), "--out",
                                    str(self.folder / out)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        number = self.choose.choice(SIGNALS)
        try:
            process.wait(self.choose.uniform(0.0, longest))
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        printed = process.communicate(timeout=300)[1]
        # -number also for the gentle ones: they may come before the program listens.
        self.assertIn(process.returncode, (DONE, INCOMPLETE, -number), printed)
        self.assertEqual(self.journal_bytes(out)[:len(whole)], whole, "a whole line was lost")
        return process.returncode == DONE

    def same(self, out, expected):
        self.assertEqual(deterministic(self.results(out)), expected[0])
        ids = [json.loads(line)["id"] for line in self.journal(out)[1:]]
        self.assertEqual(len(ids), len(set(ids)), "a finished cell was computed twice")
        self.assertEqual(rows_of(self.folder / out / "results.rows.h5"), expected[1])

    def test_random_kills(self):
        try:
            import h5py  # noqa: F401
        except ImportError:
            self.skipTest("no h5py")
        start = time.monotonic()
        done = kvbench("run", "--config", self.config, "--out", self.folder / "undisturbed")
        longest = (time.monotonic() - start) / 2
        self.assertEqual(done.returncode, DONE, done.stderr)
        expected = (deterministic(self.results("undisturbed")),
                    rows_of(self.folder / "undisturbed/results.rows.h5"))
        kills = runs = 0
        out = "out-0"
        while kills < KILLS:
            with self.subTest(seed=SEED, kill=kills):
                if self.run_and_kill(out, longest):
                    self.same(out, expected)
                    runs += 1
                    out = f"out-{runs}"
                else:
                    kills += 1
        done = kvbench("run", "--config", self.config, "--out", self.folder / out)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.same(out, expected)
        print(f"{kills} kills in {runs + 1} runs, seed {SEED}")


if __name__ == "__main__":
    unittest.main()
