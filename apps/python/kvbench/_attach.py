"""A sweep within a model that transformers loads, without a dump."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kvbench._arrays import whole
from kvbench._core import Error
from kvbench._exporter import exporter, faults
from kvbench._live import LiveDump, sequence_name
from kvbench._run import Results, RunOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

_OF = "kvbench.attach"


def _count(name: str, value: Any) -> int | None:
    count = whole(f"{_OF}: {name}", value)
    if count is not None and count < 0:
        raise Error(f"{_OF}: {name}: must be at least 0, got {count}")
    return count


class Live:
    """Replays a sweep over the attention of a model while it reads.

        with kb.attach(model, sweep, out="results/live") as live:
            model(**inputs)  # or model.generate(**inputs)
        live.results

    `model`: a causal language model of transformers, on any device; architectures and refusals are
    those of data/export_transformers.py. `sweep`, `out` and `save` as for kvbench.Recorder. Cells
    are those of a dump that the exporter makes of the same tokens with `--chunk 0`, and of a run
    on it: ids, fingerprint and values.

    A forward pass is a sequence of the name `sequence`, further ones have a number behind it. The
    layers are recorded while the call computes, with the exporter's attention in place of the
    model's. Texts of a batch, and of generate() with its answer, are read once more alone; the
    prompt of generate() is `prompt_tokens`. The exporter's proofs are made with each pass; that of
    the model's own attention by the first 128 tokens.

    `layers`, `queries`, `out_rows`, `dtype`, `round`, `wo_norms` and `materialised` are the
    exporter's options; `description`, `dataset` and `model_name` its attributes. `run`: keywords of
    kvbench.run, `device` to `methods`. Raises kvbench.Error where the exporter refuses a model.
    """

    def __init__(
        self,
        model: Any,
        sweep: str | os.PathLike[str] | dict[str, Any],
        *,
        out: str | os.PathLike[str],
        save: str | os.PathLike[str] | None = None,
        sequence: str = "text",
        description: str = "",
        dataset: str = "",
        model_name: str = "",
        prompt_tokens: int | None = None,
        layers: str = "all",
        queries: str = "all",
        out_rows: int = 64,
        dtype: str | None = None,
        round: bool = False,
        wo_norms: bool = False,
        materialised: bool = False,
        **run: Unpack[RunOptions],
    ) -> None:
        with exporter(_OF):
            from export.attached_model import AttachedModel, Recording
            from format.dump_file import STORED
        examples = {"layers": "all, or 0,1,15 or 0-7", "queries": "all, or last:256"}
        for name, value in (("layers", layers), ("queries", queries)):
            if not isinstance(value, str):
                raise Error(f"{_OF}: {name}: must be a text, {examples[name]}, got {value!r}")
        if dtype is not None and dtype not in STORED:
            raise Error(f"{_OF}: dtype: must be one of {', '.join(STORED)}, got {dtype}")
        prompt_tokens = _count("prompt_tokens", prompt_tokens)
        self._dump = LiveDump(_OF, sweep, out, save=save, **run)
        recording = Recording(
            sequence_name(_OF, sequence),
            description,
            model_name,
            dataset,
            prompt_tokens,
            layers,
            queries,
            _count("out_rows", out_rows) or 0,
            dtype,
            round,
            wo_norms,
            materialised,
        )
        with faults(_OF):
            self._model = AttachedModel(model, self._dump, recording)
        self._results: Results | None = None
        self._entered = False

    def __enter__(self) -> Live:
        if self._entered:
            raise Error(f"{_OF}: the with block was entered before; call kvbench.attach again")
        self._entered = True
        try:
            with faults(_OF):
                self._model.__enter__()
        except BaseException:
            self._dump.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        unfinished = self._model.unfinished
        self._model.__exit__()
        try:
            with faults(_OF):
                if kind is None and unfinished:
                    raise Error(
                        f"{_OF}: a pass of the model ended in an error, and layers of its text are "
                        "missing; repeat it in a new block, which resumes"
                    )
                if kind is None:
                    self._results = self._dump.finish()
                elif error is not None:
                    raise error
        finally:
            self._dump.close()

    @property
    def results(self) -> Results:
        """As kvbench.run gives them; after the `with` block."""
        if self._results is None:
            raise Error(f"{_OF}: the results are not written yet; leave the with block first")
        return self._results


attach = Live
