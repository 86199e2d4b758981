"""Tiny models read a text, kvbench compresses their caches, and they decode: the closed loop called
within this process, whole or one setting at a time."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
import unittest
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import closed_loop
from loop import loop_run
from loop import loop_settings
import tiny_models
from loop.loop_answers import Live, Replayed, Whole
from loop.loop_caches import CacheFiles

SOURCE = Path(__file__).resolve().parents[2]
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
TOKENS, PROMPT = 90, 64
# No token twice: in layer 0 their keys would be equally long, and methods would toss.
IDS = np.random.default_rng(5).permutation(np.arange(3, tiny_models.VOCABULARY))[:TOKENS]


def called(*arguments: object) -> tuple[int, str]:
    """closed_loop.py's exit code and what it said on stderr."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = closed_loop.main([str(argument) for argument in arguments])
        except SystemExit as left:
            code = left.code
    return code, said.getvalue()


class Folder(unittest.TestCase):
    """Models are made once per class; each test has a folder of its own."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.made = Path(tempfile.mkdtemp(prefix="kvbench-loop-"))
        cls.addClassCleanup(shutil.rmtree, cls.made)
        np.save(cls.made / "text.npy", IDS)

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="test-", dir=self.made))

    @classmethod
    def model(cls, name: str, **changes: object) -> Path:
        folder = cls.made / "models" / ("-".join(map(str, changes.values())) or "plain")
        place = folder / name
        return place if place.exists() else tiny_models.make(name, folder, **changes)

    def sweep(self, algorithms: list[dict], **more: object) -> Path:
        path = self.folder / "sweep.json"
        path.write_text(json.dumps({
            "schema_version": 1, "name": "loop", "dumps": ["none.h5"], "seeds": [0],
            "replay": {"prompt_tokens": PROMPT}, "algorithms": algorithms, **more}))
        return path

    def options(self, model: Path, sweep: Path, *more: object, out: str = "out") -> list[object]:
        return [model, "--token-ids", self.made / "text.npy", "--tokens", TOKENS, "--config", sweep,
                "--out", self.folder / out, *more]

    def looped(self, model: Path, algorithms: list[dict], *options: object, out: str = "out",
               **more: object) -> list[dict]:
        """The records of a closed loop."""
        code, said = called(*self.options(model, self.sweep(algorithms, **more), *options, out=out))
        self.assertEqual(code, 0, said)
        return json.loads((self.folder / out / "loop.json").read_text())["records"]

    def assert_refused(self, answer: tuple[int, str], *words: str) -> None:
        code, said = answer
        self.assertEqual(code, 2, said)
        for word in words:
            self.assertIn(word, said)
        self.assertNotIn("Traceback", said)


class Read:
    """A model that has read the text, and kvbench's results of settings; logits of any of them."""

    def __init__(self, test: Folder, model: Path, algorithms: list[dict], *options: object,
                 **more: object) -> None:
        out = test.folder / f"read-{len(list(test.folder.iterdir()))}"
        given = test.options(model, test.sweep(algorithms, **more), *options, out=out.name)
        self.args: Namespace = closed_loop.parser().parse_args([str(each) for each in given])
        out.mkdir()
        with contextlib.redirect_stderr(io.StringIO()):
            self.model = loop_run.load_model(self.args)
            dump, _ = loop_run.read_texts(self.model, self.args)
        cells = loop_run.compress(self.args, dump).cells
        self.text, = loop_run.texts_of(dump, dict.fromkeys(dump, PROMPT)).values()
        self.settings = loop_settings.settings_of(cells)
        self.files = CacheFiles(out / "attention/caches")

    def _decode(self, answers: Any) -> torch.Tensor:
        return loop_run.decoded(self.model, self.text, torch.from_numpy(IDS[PROMPT:]), answers)

    def whole(self) -> torch.Tensor:
        return self._decode(Whole(self.text))

    def logits(self, kind: type, place: int = 0, layers: Any = None) -> torch.Tensor:
        """[R, vocabulary] of a setting, Replayed or Live."""
        setting = self.settings[place]
        chosen = frozenset(setting.layers if layers is None else layers)
        return self._decode(kind(self.text, setting, self.files, chosen))


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max())


__all__ = ["IDS", "PROMPT", "SOURCE", "TOKENS", "Folder", "Live", "Read", "Replayed", "apart",
           "called", "loop_run", "tiny_models"]
