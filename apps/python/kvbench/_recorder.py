"""Layers of attention, measured as they come."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench._arrays import (
    factor,
    flag,
    in_full_precision,
    numpy_of,
    one_sequence,
    real,
    tensor_of,
    whole,
)
from kvbench._core import Error
from kvbench._exporter import exporter, faults
from kvbench._live import LiveDump, LiveSequence, sequence_name
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
        common_type,
        element_type,
        encode,
        fitting_scale,
        layer_difference,
    )


_ROPE = ("inv_freq", "theta", "layout", "attention_scaling")


def _rope(given: Mapping[str, Any] | None) -> Rope | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or "inv_freq" not in given:
        raise Error(f'{_OF}: rope: must be {{"inv_freq": [..], "layout": "half"}}, got {given!r}')
    unknown = [str(name) for name in given if name not in _ROPE]
    if unknown:
        raise Error(
            f"{_OF}: rope: unknown member {', '.join(unknown)}; its members are {', '.join(_ROPE)}"
        )
    frequencies = _on_cpu("rope: inv_freq", given["inv_freq"])
    scaling = factor(f"{_OF}: rope: attention_scaling", given.get("attention_scaling", 1.0))
    return Rope(
        tuple(in_full_precision(f"{_OF}: rope: inv_freq", frequencies)),
        float(given.get("theta", 10000.0)),
        str(given.get("layout", "half")),
        1.0 if scaling is None else float(scaling),
    )


def _on_cpu(name: str, given: Any) -> Any:
    return tensor_of(f"{_OF}: {name}", given).cpu() if hasattr(given, "detach") else given


def _array(name: str, given: Any) -> tuple[np.ndarray, str]:
    """[heads, rows, columns] in NumPy, and the type of its elements as a dump names it."""
    if given is None:
        raise Error(
            f"{_OF}: {name}: is missing; a layer that reads another layer's keys, or has its "
            "values in its keys, is measured in a dump: import_arrays.py --kv-layer, --value-in-key"
        )
    tensor = _on_cpu(name, given)
    dtype = str(getattr(tensor, "dtype", "float64")).removeprefix("torch.")
    array = one_sequence(f"{_OF}: {name}", numpy_of(f"{_OF}: {name}", tensor))
    if array.ndim != 3:
        raise Error(
            f"{_OF}: {name}: has {array.ndim} dimensions; give [heads, tokens, columns] of one "
            "sequence"
        )
    wider = array.dtype.name if array.dtype.name in STORED else "float64"
    return array, dtype if dtype in STORED else wider


def _remedy(arrays: dict[str, tuple[np.ndarray, str]]) -> str:
    """Where a whole cache comes with a piece's queries, or tokens come before heads."""
    q, k, v = (arrays[name][0].shape for name in "qkv")
    if k[:2] != v[:2] or q[2] != k[2]:
        return ""
    if q[0] == k[0] and q[1] % k[1] == 0:
        return "; of [tokens, heads, columns] give q.swapaxes(-3, -2), and k and v likewise"
    if q[1] == k[1] or q[0] % k[0]:
        return ""
    own = f"of a piece give keys and values of its own tokens, k[:, -{q[1]}:] and v alike; "
    cross = "cross attention is measured in a dump: data/import_arrays.py --every-token"
    return f"; {own if q[1] < k[1] else ''}{cross}"


def _by_head(name: str, given: Any) -> tuple[float, ...] | None:
    """A number for each query head; or several of each KV head, one head after the other."""
    if given is None:
        return None
    array = numpy_of(f"{_OF}: {name}", _on_cpu(name, given))
    return tuple(array.astype(np.float64).ravel().tolist())


def _token_ids(name: str, given: Any) -> np.ndarray | None:
    if given is None:
        return None
    ids = np.asarray(_on_cpu(f"{name}: token_ids", given))
    if ids.dtype.kind not in "iu" or (ids.size and not -(2**31) <= ids.min() <= ids.max() < 2**31):
        raise Error(f"{_OF}: {name}: token_ids: must be integers of 32 bits, got {ids.dtype}")
    return ids.astype(np.int32)


def _warn_of_overlap(place: str, writer: LayerWriter, keys: np.ndarray, before: int) -> None:
    """Keys [KV heads, rows, d] of a piece behind `before` tokens, whose last one has its own."""
    if before == 0:
        return
    held = writer.group["k"]
    last = held[:, before - 1 : before]
    again = np.all(encode(keys, element_type(held)) == last, axis=(0, 2))
    if np.any(last) and np.any(again):
        warnings.warn(
            f"{_OF}: {place}: token {before + int(again.argmax())} has the keys of token "
            f"{before - 1}, the last one of the piece before; pieces follow without overlap",
            stacklevel=5,
        )


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
    `dtype`: of the elements that are kept; None: the smallest that holds q, k and v exactly.

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
        self._queries, self._dtype = whole(f"{_OF}: queries", queries), dtype
        if self._queries is not None and self._queries < 1:
            raise Error(f"{_OF}: queries: must be at least 1, got {self._queries}")
        count = whole(f"{_OF}: layers", layers)
        if not count or count < 1:
            raise Error(f"{_OF}: layers: must be the number of the model's layers, got {layers!r}")
        self._dump = LiveDump(_OF, sweep, out, save=save, **run)
        created = datetime.now(timezone.utc).isoformat(timespec="seconds")
        facts = {"model": model, "producer": _OF, "n_layers": count, "created": created}
        self._dump.open({**FORMAT, **facts}, _rope(rope))
        self._sequences: dict[str, LiveSequence] = {}
        # With what was said of the layer, and tokens so far.
        self._writers: dict[tuple[str, int], tuple[LayerWriter, dict[str, Any], int]] = {}
        self._refused: set[tuple[str, int]] = set()  # layers whose last call ended in an error
        self._results: Results | None = None
        self._closed = False

    def sequence(
        self,
        name: str,
        *,
        prompt_tokens: int | None = None,
        token_ids: Any = None,
        description: str = "",
    ) -> None:
        """Facts about a sequence, before its first layer."""
        sequence_name(_OF, name)
        if name in self._sequences:
            raise Error(f"{_OF}: sequence {name}: has begun; say it before its first layer")
        attrs = {"description": description} if description else {}
        of = f"sequence {name}"
        count = whole(f"{_OF}: {of}: prompt_tokens", prompt_tokens)
        prompt = {} if count is None else {"prompt_tokens": count}
        ids = _token_ids(of, token_ids)
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
        key_bias: Any = None,
    ) -> None:
        """A layer of a sequence, whole or the next piece of it.

        q [query heads, rows, d], k [KV heads, rows, d], v [KV heads, rows, dv], as attention uses
        them (after the rotation), or a batch of one: arrays of NumPy or JAX, what has __dlpack__,
        or tensors of torch on any device, also of bfloat16. `scale` multiplies <q, k>. `tokens`: of
        the whole sequence, where the layer is given in pieces, each with the same scale, window and
        so on; it is whole with the last of them. `out` [query heads, R, dv]: the model's own
        answers in the last R rows of a layer that is given whole, by which q, k, v and scale are
        proved. `key_bias` [KV heads, d]: what the model adds to k before the rotation.
        """
        with faults(_OF):
            place = f"sequence {sequence}, layer {layer}"

            def said(name: str, value: Any, read: Any = whole) -> Any:
                found = read(f"{_OF}: {place}: {name}", value)
                if found is None:
                    raise Error(f"{_OF}: {place}: {name}: is missing")
                return found

            if self._closed:
                raise Error(
                    f"{_OF}: {place}: the recorder is closed; give all layers before close(), or "
                    "inside the with block"
                )
            layer = said("layer", int(layer) if str(layer).isdigit() else layer)
            if sequence not in self._sequences:
                self.sequence(sequence)
            self._refused.add((sequence, layer))
            facts = {
                "scale": float(said("scale", scale, factor)),
                "sliding_window": said("sliding_window", sliding_window),
                "logit_softcap": float(said("logit_softcap", logit_softcap, real)),
                "chunk": said("chunk", chunk),
                "causal": said("causal", causal, flag),
                "sinks": _by_head(f"{place}: sinks", sinks),
                "alibi_slopes": _by_head(f"{place}: alibi_slopes", alibi_slopes),
                "rope": _rope(rope),
                "key_bias": _by_head(f"{place}: key_bias", key_bias),
            }
            arrays = {
                name: _array(f"{place}: {name}", each) for name, each in zip("qkv", (q, k, v))
            }
            answers = None if out is None else _array(f"{place}: out", out)[0]
            total = None if tokens is None else said("tokens", tokens)
            try:
                is_whole = self._write(place, sequence, layer, arrays, answers, facts, total)
            except BaseException:
                if (sequence, layer) not in self._writers:
                    self._sequences[sequence].drop(layer)
                raise
            self._refused.discard((sequence, layer))
            if is_whole:
                self._sequences[sequence].whole(layer)

    def _write(
        self,
        place: str,
        sequence: str,
        layer: int,
        arrays: dict[str, tuple[np.ndarray, str]],
        answers: np.ndarray | None,
        facts: dict[str, Any],
        tokens: int | None,
    ) -> bool:
        """Writes a piece; returns whether the layer is whole with it."""
        rows = arrays["k"][0].shape[1]
        types = {dtype for _, dtype in arrays.values()}
        writer, first, before = self._writers.get((sequence, layer), (None, facts, 0))
        if writer is None:
            total = rows if tokens is None else tokens
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
            dtype = self._dtype or common_type(types)
            writer = LayerWriter(self._sequences[sequence], layer, shape, dtype, 0)
            for name in ("sinks", "alibi_slopes"):
                if facts[name] is not None:
                    writer.group[name] = np.asarray(facts[name], np.float64)
            if facts["key_bias"] is not None:
                bias = np.asarray(facts["key_bias"], np.float64)
                if bias.size != shape.kv_heads * shape.d:
                    raise Error(
                        f"{_OF}: {place}: key_bias has {bias.size} numbers; expected "
                        f"{(shape.kv_heads, shape.d)}"
                    )
                writer.group["key_bias"] = bias.reshape(shape.kv_heads, shape.d)
        elif tokens is not None and tokens != writer.shape.tokens:
            raise Error(
                f"{_OF}: {place}: tokens is {tokens} here and {writer.shape.tokens} in the "
                "first piece; give all pieces the same"
            )
        self._check(place, arrays, writer.shape, before)
        self._check_pieces(place, facts, first, types, writer, answers)
        _warn_of_overlap(place, writer, arrays["k"][0], before)
        for name, (array, _) in arrays.items():
            writer.write(name, before, array)
        if answers is not None:
            writer.write("out", writer.shape.tokens - answers.shape[1], answers)
        if before + rows < writer.shape.tokens:
            self._writers[sequence, layer] = (writer, facts, before + rows)
            return False
        self._writers.pop((sequence, layer), None)
        shape = writer.shape
        if shape.query_heads == shape.kv_heads == shape.tokens > 1 and answers is None:
            warnings.warn(
                f"{_OF}: {place}: has as many heads as tokens, {shape.tokens}, and nothing "
                "tells one from the other; q, k and v are [heads, tokens, columns], and out proves "
                "the order",
                stacklevel=4,
            )
        terms = ("scale", "sliding_window", "logit_softcap", "chunk", "causal")
        writer.finish(Terms(*(facts[name] for name in terms)), facts["rope"])
        apart = layer_difference(writer.group) if answers is not None else None
        if apart is not None and not apart.agrees(1e-4):
            scale = fitting_scale(writer.group, apart)
            check = (
                "check scale, window and the order of heads"
                if scale is None
                else f"out fits scale={scale:.4g}"
            )
            raise Error(
                f"{_OF}: {place}: attention with these q, k, v differs by {apart.relative:.2g} "
                f"from out; {check}"
            )
        return True

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
                    f"{wanted}{_remedy(arrays)}"
                )
        if before + rows > shape.tokens:
            raise Error(
                f"{_OF}: {place}: {before + rows} tokens were given of {shape.tokens}; check tokens"
            )

    def _check_pieces(
        self,
        place: str,
        facts: dict[str, Any],
        first: dict[str, Any],
        types: set[str],
        writer: LayerWriter,
        answers: np.ndarray | None,
    ) -> None:
        """A piece says what the first one said; `out` belongs to a layer that is given whole."""
        for name, value in facts.items():
            if first is not facts and value != first[name]:
                raise Error(
                    f"{_OF}: {place}: {name} is {value} here and {first[name]} in the first piece; "
                    "give all pieces the same"
                )
        kept = element_type(writer.group["q"])
        if self._dtype is None and common_type({kept, *types}) != kept:
            raise Error(
                f"{_OF}: {place}: has elements of {', '.join(sorted(types))}, and the first piece "
                f"of {kept}; give all pieces the same, or dtype="
            )
        if answers is None:
            return
        shape = writer.shape
        if answers.shape[::2] != (shape.query_heads, shape.dv) or answers.shape[1] > shape.tokens:
            raise Error(
                f"{_OF}: {place}: out has the shape {answers.shape}; expected "
                f"({shape.query_heads}, rows, {shape.dv}), rows of at most {shape.tokens}"
            )
        if "out" not in writer.group or shape.out_rows != answers.shape[1]:
            raise Error(f"{_OF}: {place}: out: goes with a layer that is given whole; leave it out")

    @property
    def results(self) -> Results:
        """As kvbench.run gives them; after the `with` block, or close()."""
        if self._results is None:
            raise Error(f"{_OF}: the results are not written yet; leave the with block first")
        return self._results

    def close(self) -> Results:
        """Waits for the last layer and writes results.json."""
        if self._results is None:
            for (sequence, layer), (writer, _, tokens) in self._writers.items():
                raise Error(
                    f"{_OF}: sequence {sequence}, layer {layer}: {tokens} of "
                    f"{writer.shape.tokens} tokens were given; give the rest"
                )
            for sequence, layer in sorted(self._refused):
                raise Error(
                    f"{_OF}: sequence {sequence}: layer {layer} was refused, and not given again; "
                    "give it right, or repeat the pass without it"
                )
            self._closed = True
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
            self._closed = True
            self._dump.close()
