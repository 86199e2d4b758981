"""Long calls: Ctrl-C, other threads, child processes."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import kvbench as kb
from streams import SOURCE, slow, stream, without

QUICK = str(SOURCE / "configs/quick.json")

# A shell that begins a test in the background has it ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupted_after(seconds):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


class Interrupt(unittest.TestCase):
    def test_ctrl_c_ends_a_replay(self):
        arguments, options = slow(16384)
        start = time.monotonic()
        interrupted_after(0.5)
        with self.assertRaises(KeyboardInterrupt):
            kb.replay(*arguments, **options)
        self.assertLess(time.monotonic() - start, 5.0)
        q, k, v = stream()
        self.assertEqual(kb.replay(q, k, v, "exact").record["status"], "ok")

    def test_ctrl_c_ends_a_run_which_then_resumes(self):
        with tempfile.TemporaryDirectory() as folder:
            options = {"out": folder, "sets": ["/select/tokens=1024"], "quiet": True}
            handler = signal.getsignal(signal.SIGINT)
            interrupted_after(1.0)
            with self.assertRaises(KeyboardInterrupt):
                kb.run(QUICK, **options)
            self.assertEqual(signal.getsignal(signal.SIGINT), handler)
            done = len(kb.Results(folder + "/results.json").cells)
            finished = kb.run(QUICK, only=["window/*/*/*/*"], add=True, **options)
            self.assertEqual({each["status"] for each in finished.cells}, {"ok"})
            self.assertGreater(done, 0)

    def test_a_handler_that_raises_nothing_stops_nothing(self):
        called = []
        before = signal.signal(signal.SIGUSR1, lambda *_: called.append(True))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        arguments, options = slow(8192)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        start = time.monotonic()
        kb.replay(*arguments, **options)
        self.assertGreater(time.monotonic() - start, 0.2, "the replay was too short to show it")
        self.assertEqual(called, [True])


class Threads(unittest.TestCase):
    def test_other_threads_of_python_run_meanwhile(self):
        arguments, options = slow(8192)
        turns, done = [], threading.Event()

        def count():
            while not done.wait(0.001):
                turns.append(time.monotonic())

        counter = threading.Thread(target=count)
        counter.start()
        start = time.monotonic()
        kb.replay(*arguments, **options)
        seconds = time.monotonic() - start
        done.set()
        counter.join()
        self.assertGreater(seconds, 0.2, "the replay was too short to show it")
        self.assertGreater(len(turns), 20 * seconds)

    def test_replays_of_several_threads_do_not_lock_each_other_out(self):
        q, k, v = stream(n=1024)
        expected = without(kb.replay(q, k, v, "keyformer", budget=64).record)
        got = []

        def one(threads):
            got.append(without(kb.replay(q, k, v, "keyformer", budget=64, threads=threads).record))

        workers = [threading.Thread(target=one, args=(1 + i % 2,)) for i in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        self.assertEqual(got, [expected] * 6)

    def test_one_that_waits_for_its_turn_is_interrupted(self):
        arguments, options = slow(8192)
        first = threading.Thread(target=kb.replay, args=arguments, kwargs=options)
        first.start()
        time.sleep(0.3)
        interrupted_after(0.3)
        start = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            kb.replay(*arguments, **options)
        waited = time.monotonic() - start
        self.assertTrue(first.is_alive(), "the first was too short to show it")
        self.assertLess(waited, 2.0)
        first.join()


FORK = """
import os, signal
import kvbench as kb
from streams import stream, without
q, k, v = stream(n=1024)
replay = lambda: without(kb.replay(q, k, v, "keyformer", budget=64, threads=2).record)
expected = replay()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if replay() == expected else 3)
assert os.waitpid(child, 0)[1] == 0
assert replay() == expected
"""


class Children(unittest.TestCase):
    def test_a_forked_child_computes_after_its_parent_did(self):
        done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
