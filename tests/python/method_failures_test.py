"""Methods written in Python that fail, do not return, or cannot be methods."""

import os
import signal
import subprocess
import threading
import time
import unittest

import numpy as np

import kvbench as kb
from method_sweeps import BUILT_IN, InAFolder, LargestKeys, RandomTokens, bad, sweep
from streams import DUMP, without

# A shell that begins a test in the background has it ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@kb.method
class FailsInOneHead:
    budget: int = 8

    def compress(self, prompt):
        if prompt.head == 1:
            return self.helper(prompt)
        return kb.Kept(np.arange(self.budget))

    def helper(self, prompt):
        raise ZeroDivisionError(f"of head {prompt.head}\nand a second line")


class Failures(InAFolder):
    def test_an_exception_fails_its_cell_and_no_other(self):
        got = self.run_sweep(sweep({"algorithm": "fails_in_one_head"}, *BUILT_IN[:1]),
                             [FailsInOneHead])
        for cell in got.cells:
            fails = cell["key"]["algorithm"] == "fails_in_one_head" and cell["key"]["kv_head"] == 1
            self.assertEqual(cell["status"], "failed" if fails else "ok")
        reason = next(c["reason"] for c in got.cells if c["status"] == "failed")
        self.assertTrue(reason.startswith("ZeroDivisionError: of head 1 | and a second line"), reason)
        for words in ("method_failures_test.py:", "in helper", "in compress", "raise ZeroDivisionError"):
            self.assertIn(words, reason)
        self.assertNotIn("\n", reason)

    def test_nonsense_fails_with_what_is_wrong(self):
        def mutate(prompt):
            prompt.k[0, 0] = 1.0

        def recurse(prompt):
            return recurse(prompt)

        small = sweep({"algorithm": "uniform", "params": {"T": 1}}, select={"layers": [0],
                                                                          "tokens": 64})
        for at, (words, returned) in enumerate((
                ("got NoneType", lambda prompt: None),
                ("got ndarray", lambda prompt: np.arange(3)),
                ("token: must be a position or -1", lambda prompt: kb.Kept([-2])),
                ("is not of the prompt", lambda prompt: kb.Kept([len(prompt.k)])),
                ("token: must be integers", lambda prompt: kb.Kept([0.5])),
                ("token: must have one dimension", lambda prompt: kb.Kept([[1, 2]])),
                ("weight: must have shape", lambda prompt: kb.Kept([1], weight=[1.0, 2.0])),
                ("weight: every element must be finite", lambda p: kb.Kept([1], weight=[np.nan])),
                ("weight: must not be negative", lambda prompt: kb.Kept([1], weight=[-1.0])),
                ("key: every element must be finite",
                 lambda p: kb.Kept([1], key=np.full((1, p.k.shape[1]), np.nan))),
                ("d = 3", lambda prompt: kb.Kept([1], key=np.ones((1, 3)))),
                ("query head 900", lambda prompt: kb.Kept([1], head=[900])),
                ("begins at 2", lambda prompt: kb.Kept([1], begin=[2])),
                ("read-only", mutate),
                ("RecursionError", recurse),
                ("Unable to allocate", lambda prompt: np.empty(2**50)),
                ("uses_seed = True", lambda prompt: prompt.rng),
                ("called by what it is computing", lambda p: kb.run(small, out=self.folder / "in")),
                ("called by what it is computing", lambda p: kb.replay(p.q, p.k, p.v, "exact")))):
            with self.subTest(words):
                got = self.run_sweep(sweep({"algorithm": "bad"}, *BUILT_IN[:1]),
                                     [bad("Bad", returned)], out=f"bad-{at}",
                                     sets=['/select/layers=[0]', "/select/kv_heads=[0]"])
                states = {c["key"]["algorithm"]: c for c in got.cells}
                self.assertEqual(states["h2o"]["status"], "ok")
                self.assertEqual(states["bad"]["status"], "failed")
                self.assertIn(words, states["bad"]["reason"])

    def test_what_a_method_does_to_its_arrays_reaches_no_other_cell(self):
        def overwrite(prompt):
            for array in (prompt.q, prompt.k, prompt.v):
                array.flags.writeable = True
                array[:] = np.nan
            return kb.Kept([0, 1])

        got = self.run_sweep(sweep({"algorithm": "bad"}, *BUILT_IN), [bad("Bad", overwrite)])
        plain = self.run_sweep(sweep(*BUILT_IN), [], out="plain")
        self.assertEqual([without(c) for c in got.cells if c["key"]["algorithm"] != "bad"],
                         [without(c) for c in plain.cells])

    def test_a_method_may_fork_and_start_processes(self):
        def forks(prompt):
            child = os.fork()
            if child == 0:
                os._exit(7)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said = subprocess.run(["echo", str(code)], capture_output=True, text=True, check=True)
            return kb.Kept(np.arange(int(said.stdout)))

        got = self.run_sweep(sweep({"algorithm": "bad"}, *BUILT_IN[:1]), [bad("Bad", forks)],
                             sets=["/select/layers=[0]"])
        for cell in got.cells:
            self.assertEqual(cell["status"], "ok", cell.get("reason"))
            if cell["key"]["algorithm"] == "bad":
                self.assertEqual(cell["memory"]["tokens"] - 7, cell["key"]["tokens"] - cell["key"]["prompt_tokens"])

    def test_arrays_outlive_the_run(self):
        seen = []

        def keep(prompt):
            seen.append(prompt)
            return kb.Kept([0])

        self.run_sweep(sweep({"algorithm": "bad"}), [bad("Bad", keep)])
        layer = kb.open_dump(DUMP)["constitution"][seen[0].layer]
        self.assertTrue(np.array_equal(seen[0].k, layer.k[seen[0].head][: len(seen[0].k)]))
        self.assertEqual(seen[0].q.shape[0], layer.query_heads // layer.kv_heads)

    def test_sweeps_that_are_wrong_say_so(self):
        for words, given, methods in (
                ("give methods=[LargestKeys]", {"algorithm": "largest_keys"}, []),
                ("did you mean largest_keys", {"algorithm": "largest_key"}, [LargestKeys]),
                ("it has budget", {"algorithm": "random_tokens", "params": {"size": 3}},
                 [RandomTokens]),
                ("must be an integer, got \"x\"", {"algorithm": "random_tokens",
                                                 "params": {"budget": "x"}}, [RandomTokens]),
                ("one of largest, smallest", {"algorithm": "largest_keys",
                                              "params": {"order": "up"}}, [LargestKeys]),
                ("is an instance", {"algorithm": "random_tokens"}, [RandomTokens()]),
                ("is not made by kvbench.method", {"algorithm": "random_tokens"}, [int]),
                ("two are called", {"algorithm": "random_tokens"}, [RandomTokens, RandomTokens])):
            with self.subTest(words), self.assertRaises(kb.Error) as raised:
                self.run_sweep(sweep(given), methods)
            self.assertIn(words, str(raised.exception))

    def test_classes_that_cannot_be_methods(self):
        def compress(self, prompt):
            return kb.Kept([0])

        for words, body in (
                ("must be an int", {"__annotations__": {"x": list}}),
                ("write it without a type", {"__annotations__": {"uses_seed": bool},
                                             "uses_seed": True}),
                ("rename it", {"__annotations__": {"source": str}, "source": ""}),
                ("must be a finite real", {"__annotations__": {"x": float}, "x": float("nan")}),
                ("must be an integer", {"__annotations__": {"x": int}, "x": 0.5}),
                ("leave out all but one", {"compress_layer": compress})):
            with self.subTest(words), self.assertRaisesRegex(kb.Error, words):
                cls = kb.method(type("Mine", (), {"compress": compress, **body}))
                self.run_sweep(sweep({"algorithm": "mine"}), [cls])

    def test_a_parameter_without_a_default_has_to_be_given(self):
        cls = kb.method(type("Mine", (), {"__annotations__": {"x": int},
                                          "compress": lambda self, prompt: kb.Kept([self.x])}))
        with self.assertRaisesRegex(kb.Error, "needs a value for x"):
            self.run_sweep(sweep({"algorithm": "mine"}), [cls])
        got = self.run_sweep(sweep({"algorithm": "mine", "params": {"x": 3}}), [cls])
        self.assertEqual({c["status"] for c in got.cells}, {"ok"})


class Interrupts(InAFolder):
    def test_ctrl_c_ends_a_method_that_does_not_return(self):
        def spin(prompt):
            while True:
                pass

        def sleep(prompt):
            time.sleep(1000)

        for name, returned in (("Spins", spin), ("Sleeps", sleep)):
            with self.subTest(name):
                given = sweep(*BUILT_IN, {"algorithm": name.lower()})
                threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
                start = time.monotonic()
                with self.assertRaises(KeyboardInterrupt):
                    self.run_sweep(given, [bad(name, returned)], out=name, threads=3)
                self.assertLess(time.monotonic() - start, 10.0)
                resumed = self.run_sweep(given, [bad(name, lambda prompt: kb.Kept([0]))], out=name)
                self.assertEqual({c["status"] for c in resumed.cells}, {"ok"})

    def test_ctrl_c_ends_a_replay_too(self):
        layer = kb.open_dump(DUMP)["constitution"][0]
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            kb.replay(layer, bad("Sleeps", lambda prompt: time.sleep(1000))())


if __name__ == "__main__":
    unittest.main()
