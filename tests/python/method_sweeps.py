"""Helpers that the tests of methods in sweeps share."""

import subprocess
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Literal

import numpy as np

import kvbench as kb
from streams import DUMP, PROGRAM

CALLS = []  # calls of methods; a test begins with none


@kb.method
class LargestKeys:
    budget: int = 16
    order: Literal["largest", "smallest"] = "largest"
    note: str = ""
    factor: float = 1.0
    first: bool = False

    def compress(self, prompt):
        CALLS.append((prompt.layer, prompt.head, self.budget, threading.get_ident()))
        norms = self.factor * np.linalg.norm(prompt.k, axis=1)
        order = np.argsort(norms if self.order == "smallest" else -norms, kind="stable")
        return kb.Kept(np.sort(order[: self.budget]))


@kb.method
class RandomTokens:
    uses_seed = True
    budget: int = 16

    def compress(self, prompt):
        return kb.Kept(np.sort(prompt.rng.choice(len(prompt.k), self.budget, replace=False)))


BUILT_IN = [{"algorithm": "h2o", "params": {"budget": [32, 64]}},
            {"algorithm": "keyformer", "params": {"budget": 32, "scope": "model"}},
            {"algorithm": "uniform", "params": {"T": 1}}]
SELECT = {"layers": [0, 1], "tokens": 300}


def sweep(*entries, **others):
    return {"schema_version": 1, "name": "mine", "dumps": [str(DUMP)], "select": SELECT,
            "algorithms": list(entries), **others}


class InAFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        CALLS.clear()

    def run_sweep(self, given, methods, out="out", **options):
        return kb.run(given, out=self.folder / out, quiet=True, methods=methods, **options)

    def program(self, *words):
        return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True,
                              check=False)


def bad(name, returned):
    return kb.method(type(name, (), {"compress": lambda self, prompt: returned(prompt)}))
