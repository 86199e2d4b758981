"""A folder with tiny models, the exporter called within this process, and kvbench on its dumps."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np
import transformers

import export_transformers
import import_arrays
import tiny_models
from format.dump_file import layer_differences

SOURCE = Path(__file__).resolve().parents[2]
PROGRAM = os.environ["KVBENCH_PROGRAM"]

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
TOKENS = 64
ROPE_SWEEP = [{"algorithm": "streaming_llm",
               "params": {"budget": 16, "positions": ["original", "cache"]}},
              {"algorithm": "h2o", "params": {"budget": 16, "positions": "cache"}}]
PLAIN_SWEEP = [{"algorithm": "exact"}, {"algorithm": "window", "params": {"budget": 16}},
               {"algorithm": "uniform", "params": {"T": 1}}]


def called(main, *arguments: object) -> tuple[int, str]:
    """A program's exit code and what it said on stderr."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as left:
            code = left.code
    return code, said.getvalue()


def kvbench(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                          timeout=120, check=False)


class Folder(unittest.TestCase):
    """Each test has a folder of its own; models are made once per class."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.made = Path(tempfile.mkdtemp(prefix="kvbench-exporter-"))
        cls.addClassCleanup(shutil.rmtree, cls.made)
        ids = np.random.default_rng(5).integers(3, tiny_models.VOCABULARY, TOKENS)
        np.save(cls.made / "text.npy", ids)

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="test-", dir=self.made))

    @classmethod
    def model(cls, name: str, **changes: object) -> Path:
        folder = cls.made / "models" / ("-".join(map(str, changes.values())) or "plain")
        place = folder / name
        return place if place.exists() else tiny_models.make(name, folder, **changes)

    def export(self, model: Path, *options: object, out: str = "dump.h5") -> tuple[int, str]:
        given = [] if "--text" in options or "--token-ids" in options else [
            "--token-ids", self.made / "text.npy"]
        return called(export_transformers.main, model, *given, *options, "--out",
                      self.folder / out)

    def exported(self, model: Path, *options: object, out: str = "dump.h5") -> Path:
        code, said = self.export(model, *options, out=out)
        self.assertEqual(code, 0, said)
        return self.folder / out

    def imported(self, *arguments: object) -> Path:
        code, said = called(import_arrays.main, *arguments, "--out", self.folder / "imported.h5")
        self.assertEqual(code, 0, said)
        return self.folder / "imported.h5"

    def assert_refused(self, answer: tuple[int, str], *words: str) -> None:
        code, said = answer
        self.assertEqual(code, 2, said)
        for word in words:
            self.assertIn(word, said)
        self.assertNotIn("Traceback", said)

    def assert_valid(self, dump: Path) -> None:
        done = kvbench("validate", dump)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def assert_runs(self, dump: Path, algorithms: list[dict], **more: object) -> list[dict]:
        sweep = self.folder / "sweep.json"
        sweep.write_text(json.dumps({"schema_version": 1, "name": "small", "dumps": [str(dump)],
                                     "seeds": [0], "algorithms": algorithms, **more}))
        out = self.folder / "results"
        done = kvbench("run", "--config", sweep, "--out", out, "--fresh")
        self.assertEqual(done.returncode, 0, done.stderr)
        cells = json.loads((out / "results.json").read_text())["cells"]
        self.assertEqual({(cell["status"], cell.get("reason")) for cell in cells}, {("ok", None)})
        return cells


def differences(dump: Path) -> dict[str, float]:
    return {place: each.relative for place, each in layer_differences(dump).items()}


def layer(dump: Path, number: int, sequence: str = "text") -> tuple[dict, dict, dict | None]:
    """Attributes, tensors as stored, and RoPE data of a layer (its own or the dump's)."""
    with h5py.File(dump) as file:
        group = file[f"sequences/{sequence}/layers/{number}"]
        rope = group.get("rope", file.get("rope"))
        rotation = None if rope is None else {**rope.attrs, "inv_freq": rope["inv_freq"][:],
                                          "own": "rope" in group}
        tensors = {name: group[name][:] for name in ("q", "k", "v", "out", "sinks")
                   if name in group}
        return dict(group.attrs), tensors, rotation
