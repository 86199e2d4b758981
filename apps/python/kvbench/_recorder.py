"""Layers of attention, measured as they come."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench._arrays import numpy_of
from kvbench._core import Error
from kvbench._exporter import exporter, faults
from kvbench._live import LiveDump, LiveSequence
from kvbench._run import Results, RunOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

_OF = "kvbench.Recorder"

with exporter(_OF):
    from format.dump_file import (
        FORMAT,
        STORED,
        LayerShape,
        LayerWriter,
        Rope,
        Terms,
        layer_difference,
    )


def _rope(given: Mapping[str, Any] | None) -> Rope | None:
    if given is None:
        return None
    return Rope(
        tuple(float(each) for each in np.asarray(given["inv_freq"])),
        float(given.get("theta", 10000.0)),
        str(given.get("layout", "half")),
        float(given.get("attention_scaling", 1.0)),
    )


def _array(name: str, given: Any) -> tuple[np.ndarray, str]:
    """[heads, rows, columns] in NumPy, and the type of its elements as a dump names it."""
    tensor = given.detach().cpu() if hasattr(given, "detach") else given
    dtype = str(getattr(tensor, "dtype", "float64")).removeprefix("torch.")
    array = numpy_of(f"{_OF}: {name}", tensor)
    if array.ndim != 3:
        raise Error(
            f"{_OF}: {name}: has {array.ndim} dimensions; give [heads, tokens, columns] of one "
            "sequence"
        )
    wider = array.dtype.name if array.dtype.name in STORED else "float64"
    return array, dtype if dtype in STORED else wider


class Recorder:
    """Replays a sweep over the attention layers of a model of any framework, as they come.

        with kb.Recorder(sweep, out="results/live", layers=30, model="mine") as recorder:
            for layer in range(30):
                recorder.layer("text", layer, q, k, v, scale=0.125)
        recorder.results

    `sweep`: a sweep file or its content as a dict, without `dumps`. `layers`: of the model.
    `out`: as for kvbench.run; the folder `layers` in it has a journal for each layer, so that a
    pass that was interrupted can be repeated, and computes what is missing. `save`: also writes the
    dump, on which kvbench.run gives the same cells. `rope`: the rotation that q and k have behind
    them, as {"inv_freq": [..], "theta": .., "layout": "half" or "interleaved",
    "attention_scaling": 1.0}. `queries`: rows of q that are kept, the last so many; None: all.
    `dtype`: of the elements that are kept; None: q's own.

    A layer is replayed by a thread once it is whole, and the next one waits for it to end: two
    layers are in memory. `results` are there after the `with` block. `run`: keywords of
    kvbench.run, `device` to `methods`. Raises kvbench.Error for errors of the sweep and of arrays.
    """

    def __init__(
        self,
        sweep: str | os.PathLike[str] | dict[str, Any],
        *,
        out: str | os.PathLike[str],
        layers: int,
        model: str = "",
        save: str | os.PathLike[str] | None = None,
        rope: Mapping[str, Any] | None = None,
        queries: int | None = None,
        dtype: str | None = None,
        **run: Unpack[RunOptions],
    ) -> None:
        if dtype is not None and dtype not in STORED:
            raise Error(f"{_OF}: dtype: must be one of {', '.join(STORED)}, got {dtype}")
        self._queries, self._dtype = queries, dtype
        self._dump = LiveDump(_OF, sweep, out, save=save, **run)
        created = datetime.now(timezone.utc).isoformat(timespec="seconds")
        facts = {"model": model, "producer": _OF, "n_layers": int(layers), "created": created}
        self._dump.open({**FORMAT, **facts}, _rope(rope))
        self._sequences: dict[str, LiveSequence] = {}
        self._writers: dict[tuple[str, int], tuple[LayerWriter, int]] = {}  # with tokens so far
        self._results: Results | None = None

    def sequence(
        self,
        name: str,
        *,
        prompt_tokens: int | None = None,
        token_ids: Any = None,
        description: str = "",
    ) -> None:
        """Facts about a sequence, before its first layer."""
        if name in self._sequences:
            raise Error(f"{_OF}: sequence {name}: has begun; say it before its first layer")
        attrs = {"description": description} if description else {}
        prompt = {} if prompt_tokens is None else {"prompt_tokens": int(prompt_tokens)}
        ids = None if token_ids is None else np.asarray(token_ids, np.int32)
        self._sequences[name] = self._dump.sequence(name, {**attrs, **prompt}, ids, {})

    def layer(
        self,
        sequence: str,
        layer: int,
        q: Any,
        k: Any,
        v: Any,
        *,
        scale: float,
        tokens: int | None = None,
        out: Any = None,
        sliding_window: int = 0,
        logit_softcap: float = 0.0,
        chunk: int = 0,
        causal: bool = True,
        sinks: Any = None,
        alibi_slopes: Any = None,
        rope: Mapping[str, Any] | None = None,
    ) -> None:
        """A layer of a sequence, whole or the next piece of it.

        q [query heads, rows, d], k [KV heads, rows, d], v [KV heads, rows, dv], as attention uses
        them (after the rotation): arrays of NumPy or JAX, or tensors of torch on any device, also
        of bfloat16. `scale` multiplies <q, k>. `tokens`: of the whole sequence, where the layer is
        given in pieces; it is whole with the last of them. `out` [query heads, R, dv]: the model's
        own answers in the last R rows of a layer that is given whole, by which q, k, v and scale
        are proved.
        """
        with faults(_OF):
            place, layer = f"sequence {sequence}, layer {layer}", int(layer)
            if sequence not in self._sequences:
                self.sequence(sequence)
            arrays = {
                name: _array(f"{place}: {name}", each) for name, each in zip("qkv", (q, k, v))
            }
            rows = arrays["k"][0].shape[1]
            answers = None if out is None else _array(f"{place}: out", out)[0]
            writer, before = self._writers.pop((sequence, layer), (None, 0))
            if writer is None:
                total = rows if tokens is None else int(tokens)
                shape = LayerShape(
                    arrays["q"][0].shape[0],
                    arrays["k"][0].shape[0],
                    total,
                    min(total, self._queries or total),
                    arrays["k"][0].shape[2],
                    arrays["v"][0].shape[2],
                    0 if answers is None else answers.shape[1],
                    out_dtype="float64",
                )
                dtype = self._dtype or arrays["q"][1]
                writer = LayerWriter(self._sequences[sequence], layer, shape, dtype, 0)
                for name, values in (("sinks", sinks), ("alibi_slopes", alibi_slopes)):
                    if values is not None:
                        writer.group[name] = np.asarray(values, np.float64)
            self._check(place, arrays, writer.shape, before)
            for name, (array, _) in arrays.items():
                writer.write(name, before, array)
            if answers is not None:
                writer.write("out", writer.shape.tokens - answers.shape[1], answers)
            if before + rows < writer.shape.tokens:
                self._writers[sequence, layer] = (writer, before + rows)
                return
            window, chunk, cap = int(sliding_window), int(chunk), float(logit_softcap)
            writer.finish(Terms(float(scale), window, cap, chunk, bool(causal)), _rope(rope))
            if answers is not None and not layer_difference(writer.group).agrees(1e-4):
                apart = layer_difference(writer.group).relative
                raise Error(
                    f"{_OF}: {place}: attention with these q, k, v differs by {apart:.2g} from "
                    "out; check scale, window and the order of heads"
                )
            self._sequences[sequence].whole(layer)

    def _check(
        self, place: str, arrays: dict[str, tuple[np.ndarray, str]], shape: LayerShape, before: int
    ) -> None:
        rows = arrays["k"][0].shape[1]
        expected = {
            "q": (shape.query_heads, rows, shape.d),
            "k": (shape.kv_heads, rows, shape.d),
            "v": (shape.kv_heads, rows, shape.dv),
        }
        for name, wanted in expected.items():
            if arrays[name][0].shape != wanted:
                raise Error(
                    f"{_OF}: {place}: {name} has the shape {arrays[name][0].shape}; expected "
                    f"{wanted}"
                )
        if before + rows > shape.tokens:
            raise Error(
                f"{_OF}: {place}: {before + rows} tokens were given of {shape.tokens}; check tokens"
            )

    @property
    def results(self) -> Results:
        """As kvbench.run gives them; after the `with` block, or close()."""
        if self._results is None:
            raise Error(f"{_OF}: the results are not written yet; leave the with block first")
        return self._results

    def close(self) -> Results:
        """Waits for the last layer and writes results.json."""
        if self._results is None:
            for (sequence, layer), (writer, tokens) in self._writers.items():
                raise Error(
                    f"{_OF}: sequence {sequence}, layer {layer}: {tokens} of "
                    f"{writer.shape.tokens} tokens were given; give the rest"
                )
            self._results = self._dump.finish()
        return self._results

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self._dump.close()
