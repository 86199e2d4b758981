"""The program under test, small dumps, small sweeps."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = str(Path(os.environ["KVBENCH_PROGRAM"]).absolute())
SOURCE = Path(os.environ["KVBENCH_SOURCE"]).absolute()
SHIPPED_DUMP = SOURCE / "data/smollm2-constitution.h5"

# Results name files from the current folder: from the root by absolute paths, wherever this checkout is.
os.chdir("/")

THREE = [{"algorithm": "exact"},
         {"algorithm": "window", "params": {"budget": [8, 32]}},
         {"algorithm": "uniform", "params": {"T": [1, 2], "sinks": 4}}]

DONE, BUG, BAD_INPUT, FAILED_CELLS, VIOLATION, INCOMPLETE = range(6)


def kvbench(*arguments, cwd=None, **options):
    """Runs the program to its end; stdout and stderr as text."""
    return subprocess.run([PROGRAM, *map(str, arguments)], cwd=cwd, capture_output=True, text=True,
                          timeout=300, check=False, **options)


def commands():
    """The names of the program's commands."""
    text = kvbench("--help").stdout
    return re.findall(r"^  ([a-z]+) ", text[text.index("Subcommands:"):text.index("Exit codes")], re.MULTILINE)


def strict_json(text):
    """JSON without NaN and Infinity, which Python would accept."""
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")
    return json.loads(text, parse_constant=refuse)


def deterministic(results):
    """A results document without what may vary from run to run."""
    document = {name: value for name, value in results.items()
                if name not in ("provenance", "groups")}
    document["cells"] = [{name: value for name, value in cell.items()
                          if name not in ("timing", "repro")} for cell in results["cells"]]
    return json.dumps(document)


class Folder(unittest.TestCase):
    """A test with a folder of its own, where `tiny.h5` and sweeps over it lie."""

    @classmethod
    def setUpClass(cls):
        cls.made = Path(tempfile.mkdtemp(prefix="kvbench-cli-"))
        cls.addClassCleanup(shutil.rmtree, cls.made)
        cls.synth("tiny.h5", "--tokens", 96, "--d", 8, "--layers", 2)

    @classmethod
    def synth(cls, name, *options, kind="gaussian"):
        done = kvbench("synth", kind, "--out", cls.made / name, *options)
        assert done.returncode == DONE, done.stderr
        return cls.made / name

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="run-", dir=self.made))

    def sweep(self, algorithms=None, name="small", file=None, **more):
        """Writes a sweep file; returns its path."""
        document = {"schema_version": 1, "name": name, "dumps": [str(self.made / "tiny.h5")],
                    "seeds": [0, 1], "algorithms": THREE if algorithms is None else algorithms}
        document.update(more)
        path = self.folder / (file or f"{name}.json")
        path.write_text(json.dumps(document))
        return path

    def run_sweep(self, *options, expect=DONE, **sweep):
        """Runs a sweep into self.folder/out; returns its results document."""
        config = self.sweep(**sweep)
        done = kvbench("run", "--config", config, "--out", self.folder / "out", *options)
        self.assertEqual(done.returncode, expect, done.stderr)
        self.assertEqual(done.stdout, "")
        return self.results()

    def results(self, out="out"):
        return strict_json((self.folder / out / "results.json").read_text())

    def journal(self, out="out"):
        return (self.folder / out / "journal.jsonl").read_text().splitlines()

    def assert_refused(self, done, *words):
        """Exit 2, nothing on stdout, and every word on stderr."""
        self.assertEqual(done.returncode, BAD_INPUT, done.stderr)
        self.assertEqual(done.stdout, "")
        for word in words:
            self.assertIn(word, done.stderr)
