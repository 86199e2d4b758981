"""A program that runs tasks on request, line by line; kvbench's and the peers' alike."""

import os
import subprocess
from pathlib import Path

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerError(Exception):
    pass


def pairs(words):
    return dict(word.split("=", 1) for word in words)


class Worker:
    """`command` run with so many threads; `about` is what it says of itself."""

    def __init__(self, command, threads):
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        environment.update({variable: str(threads) for variable in VARIABLES})
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment)
        self.name = Path(command[0]).name
        self.about = pairs(self._line().split()[1:])

    def _line(self):
        line = self.process.stdout.readline()
        if not line:
            raise WorkerError(f"{self.name} ended (status {self.process.wait()})")
        return line

    def ask(self, *words, separator=" "):
        """The answer's words after "ok"."""
        self.process.stdin.write(separator.join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self._line()
        if not line.startswith("ok "):
            raise WorkerError(f"{self.name}, {' '.join(map(str, words))}: {line.strip()}")
        return line.split()[1:]

    def close(self):
        self.process.stdin.close()
        self.process.wait()
