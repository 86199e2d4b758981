"""One KV head through one algorithm."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from kvbench import _core
from kvbench._arrays import (
    array_of,
    factor,
    flag,
    in_full_precision,
    json_text,
    number,
    numpy_of,
    one_sequence,
    plain,
    real,
    refuse_mask,
    whole,
)
from kvbench._dumps import Layer
from kvbench._layer_heads import facts_of, layer_prompts, tensors_of
from kvbench._listing import algorithms
from kvbench._method_calls import MethodTable, method_table
from kvbench._methods import decides_for_layer, is_method, parameters
from kvbench._run import (
    MAX_THREADS,
    entry_with_absolute_paths,
    storage_with_absolute_paths,
    with_absolute_paths,
)

_PLACE = "kvbench.replay"


class Replay:
    """The result of one replay.

    `record` is the cell as results.json has it (configs/RESULTS.md), key by key; the attributes
    below are parts of it.
    """

    def __init__(
        self,
        record: dict[str, Any],
        rows: NDArray[np.int64],
        outputs: NDArray[np.float64],
        stays: tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]],
    ) -> None:
        self.record = record
        self.rows = rows
        """[R] the scored rows, ascending."""
        self.outputs = outputs
        """[G, R, dv] the answers at these rows, per query head."""
        self._token, self._begin, self._end = stays

    @property
    def errors(self) -> dict[str, Any]:
        """By metric: errors["relative_frobenius_error"], errors["relative_l2"]["mean"], .."""
        return self.record["errors"]

    @property
    def memory(self) -> dict[str, Any]:
        """Kept tokens, vectors and bytes; `fraction` is the peak over the exact cache."""
        return self.record["memory"]

    @property
    def derived(self) -> dict[str, Any]:
        """Further numbers that the algorithm reports."""
        return self.record["derived"]

    @property
    def trivial(self) -> dict[str, Any] | None:
        """Errors of two answers that need no method: what an error has to beat."""
        return self.record["trivial"]

    def tokens(self, row: int) -> NDArray[np.int32]:
        """The tokens that are kept when `row` is answered, ascending, each once; any decode row,
        scored or not, and where every row sees every token any row from the first scored one on."""
        key = self.record["key"]
        # Where all tokens are the prompt, every row sees them all.
        first = 0 if key["prompt_tokens"] == key["tokens"] else key["prompt_tokens"]
        if not first <= row < key["tokens"]:
            raise IndexError(
                f"row {row} is not a decode row: they are {first} to {key['tokens'] - 1}"
            )
        kept = self._token[(self._begin <= row) & (row < self._end)]
        kept.sort()
        return kept

    def __repr__(self) -> str:
        key, rows = self.record["key"], self.errors["relative_l2"]
        pooled, mean = (
            "undefined" if value is None else f"{value:.4g}"
            for value in (self.errors["relative_frobenius_error"], rows and rows["mean"])
        )
        return (
            f"<{key['algorithm']} {key['params']}: Frobenius error {pooled}, mean error {mean}, "
            f"{self.memory['fraction']:.4g} of the exact memory>"
        )


def _asked(made: Any, source: Layer | None, tokens: int | None) -> MethodTable:
    """A method for the extension: of whole layers, it sees the layer's other heads."""
    if not decides_for_layer(made):
        return method_table(type(made), raises=True)
    if source is None:
        raise _core.Error(
            f"{_PLACE}: {made._kvbench_id} decides for the KV heads of a layer; give a layer of a "
            "dump (data/import_arrays.py makes one of arrays)"
        )
    return method_table(
        type(made),
        raises=True,
        whole_layer=lambda prompt: layer_prompts(made, source, tokens, prompt, _PLACE),
    )


def _arrays(tensors: list[Any], value_in_key: int | None) -> tuple[Any, Any, Any]:
    """q, k and v for the extension; v is columns of k where values lie there."""
    q, k, v = tensors
    if value_in_key is None:
        return _floats("q", q), _floats("k", k), _floats("v", v)
    if v is not None:
        raise _core.Error(f"{_PLACE}: value_in_key says that values are columns of k; v is None")
    keys = _floats("k", k)
    if not 1 <= value_in_key <= keys.shape[-1]:
        raise _core.Error(
            f"{_PLACE}: value_in_key must be from 1 to {keys.shape[-1]}, got {value_in_key}"
        )
    return _floats("q", q), keys, keys[..., :value_in_key]


def _floats(name: str, given: Any) -> Any:
    """An array for the extension; lists are float64."""
    made = array_of(f"{_PLACE}: {name}", given)
    is_list = isinstance(made, np.ndarray) and not isinstance(given, np.ndarray)
    return one_sequence(f"{_PLACE}: {name}", made.astype(np.float64) if is_list else made)


def _numbers(name: str, given: Any) -> list[float]:
    if given is None:
        return []
    return numpy_of(f"{_PLACE}: {name}", given, integers=True).astype(np.float64).ravel().tolist()


def _rows(given: Any) -> Any:
    """As a sweep has them; a mask in place of row numbers is refused."""
    if isinstance(given, dict):
        return {name: _rows(each) for name, each in given.items()}
    if (isinstance(given, (list, tuple)) or hasattr(given, "__array__")) and np.ndim(given) > 0:
        refuse_mask(f"{_PLACE}: rows", np.asarray(given), "rows")
    return number(given)


def _keyword_text(name: str, value: Any) -> str:
    return f"{name}={plain(value) if isinstance(value, (np.generic, np.ndarray)) else value!r}"


# Properties of a layer by names that are parameters of some algorithms, or a dump's.
_OTHER_NAMES = {
    "window": "the sliding window of the layer is sliding_window",
    "logit_softcap": "the soft-cap of the layer is softcap",
}


def _refuse_other_names(algorithm: str, params: dict[str, Any]) -> None:
    for name in _OTHER_NAMES.keys() & params.keys():
        for known in algorithms():
            if algorithm in (known["id"], *known["aliases"]) and all(
                parameter["name"] != name for parameter in known["parameters"]
            ):
                raise _core.Error(
                    f"{_PLACE}: {name} is not a parameter of {algorithm}; {_OTHER_NAMES[name]}"
                )


def _with_algorithm(data: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...]:
    """`data` with an algorithm that was given as a keyword, which leaves `params`."""
    of_layer = bool(data) and isinstance(data[0], Layer)
    data += (params.pop("algorithm"),) if "algorithm" in params else ()
    if len(data) != (2 if of_layer else 4):
        raise TypeError(
            f'{_PLACE} takes (q, k, v, "snapkv", budget=256) or (a layer of a dump, "snapkv", '
            "budget=256): arrays and layers without a name, and one algorithm"
        )
    if "params" in params:
        raise _core.Error(f"{_PLACE}: params: give each parameter as a keyword, such as budget=256")
    return data


def _refuse_heads(q: Any, k: Any, v: Any) -> None:
    """Refuses the keys of several KV heads, and says how to give those of one."""
    heads, queries = (each.shape[0] if len(each.shape) == 3 else 1 for each in (k, q))
    if heads == 1 or v.shape[:-1] != k.shape[:-1] or queries % heads:
        return
    group = queries // heads
    if heads > k.shape[-2] and q.shape[-2] % k.shape[-2] == 0:
        group = q.shape[-2] // k.shape[-2]
        raise _core.Error(
            f"{_PLACE}: k has {heads} KV heads of {k.shape[-2]} tokens, which look exchanged; of "
            f"head h give q[..., {group} * h : {group} * (h + 1), :].swapaxes(-3, -2), "
            "k[..., h, :] and v[..., h, :]"
        )
    raise _core.Error(
        f"{_PLACE}: k has {heads} KV heads, and one is replayed; of head h give "
        f"q[..., {group} * h : {group} * (h + 1), :, :], k[..., h, :, :] and v[..., h, :, :]"
    )


def _warn_of_order(q: Any, k: Any) -> None:
    """As many query heads as tokens are tokens: q came as [rows, query heads, d]."""
    if len(q.shape) == 3 and q.shape[1] != q.shape[0] == k.shape[-2]:
        warnings.warn(
            f"{_PLACE}: q has {q.shape[0]} query heads of {q.shape[1]} rows, and k {q.shape[0]} "
            "tokens; of [rows, query heads, d] give q.swapaxes(-3, -2)",
            stacklevel=3,
        )


def _warn_of_layers(algorithm: str, params: dict[str, Any], n_layers: int) -> None:
    """Budgets of a pyramid are those of a layer among n_layers."""
    if "pyramid" in algorithm or params.get("pyramid"):
        warnings.warn(
            f"{_PLACE}: n_layers is taken as {n_layers}, and {algorithm} divides its budget by it; "
            "give the number of the model's layers",
            stacklevel=3,
        )


def _warn_of_heads(key: dict[str, Any], layer: Layer) -> None:
    """Decisions that several KV heads share are made for one alone here."""
    if "scope_kv_heads" in key and layer.kv_heads > 1:
        warnings.warn(
            f"{_PLACE}: the {layer.kv_heads} KV heads of the layer decide together by "
            f"{key['algorithm']}, and KV head {key['kv_head']} decides alone here; kvbench.run has "
            "the layer's numbers",
            stacklevel=3,
        )


@overload
def replay(
    layer: Layer,
    /,
    algorithm: Any,
    *,
    head: int = 0,
    tokens: int | None = None,
    prompt: int | float | str | None = None,
    rows: Any = "all",
    seed: int = 0,
    element_bytes: int = 2,
    storage: Any = "float",
    then: Any = None,
    threads: int | None = None,
    **params: Any,
) -> Replay: ...


@overload
def replay(
    q: Any,
    k: Any,
    v: Any,
    /,
    algorithm: Any,
    *,
    scale: float | None = None,
    sliding_window: int = 0,
    softcap: float = 0.0,
    sink_logits: Any = None,
    alibi_slopes: Any = None,
    causal: bool = True,
    attention_chunk: int = 0,
    value_in_key: int | None = None,
    rope: tuple[Any, str] | None = None,
    key_bias: Any = None,
    wo_v_l1: Any = None,
    sequence: str = "",
    layer: int = 0,
    head: int = 0,
    n_layers: int | None = None,
    prompt: int | float | None = None,
    rows: Any = "all",
    seed: int = 0,
    element_bytes: int = 2,
    storage: Any = "float",
    then: Any = None,
    threads: int | None = None,
    **params: Any,
) -> Replay: ...


def replay(
    *data: Any,
    head: int = 0,
    tokens: int | None = None,
    scale: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    sink_logits: Any = None,
    alibi_slopes: Any = None,
    causal: bool | None = None,
    attention_chunk: int | None = None,
    value_in_key: int | None = None,
    rope: tuple[Any, str] | None = None,
    key_bias: Any = None,
    wo_v_l1: Any = None,
    sequence: str | None = None,
    layer: int | None = None,
    n_layers: int | None = None,
    prompt: int | float | str | None = None,
    rows: Any = "all",
    seed: int = 0,
    element_bytes: int = 2,
    storage: Any = "float",
    then: Any = None,
    threads: int | None = None,
    **params: Any,
) -> Replay:
    """Replays one KV head through an algorithm, token by token, and compares with exact attention.

        kb.replay(q, k, v, "snapkv", budget=256, prompt=1792, scale=0.125)
        kb.replay(dump["constitution"][15], "snapkv", head=0, budget=256)

    q [G, Nq, d] or [Nq, d]: queries of the last Nq positions, of the G query heads that share the
    KV head. k [n, d], v [n, dv]: keys and values of all n positions. A batch of one is its
    sequence. Queries and keys are those after the rotation to positions. NumPy arrays, or tensors
    on the CPU of any library with DLPack (torch is not imported): float64, float32, float16 or
    bfloat16, computed with as float64. C-contiguous float64 is not copied. Nobody may change the
    arrays meanwhile.

    The algorithm is an id, or an instance of a class made with kvbench.method. An id's parameters
    are keywords (kvbench.algorithms()); budget={"memory": 0.25} asks for the budget that takes a
    quarter of the exact memory. Omitted parameters have their defaults.

    scale: multiplies <q, k>; default d ** -0.5.
    sliding_window: tokens that a row sees, itself included; 0: all before it.
    softcap: c of c tanh(x / c); 0: none.
    sink_logits: a logit per query head that its rows have besides those of their tokens, without a
        value.
    alibi_slopes: a slope per query head; slope (j - i) is added to the logit of row i and token j.
    causal: False: every row sees every token; then all tokens are the prompt, and `rows` are any.
    attention_chunk: tokens of a chunk, beyond which no row sees; 0: none.
    value_in_key: number of columns of k, from the first on, that are the values; v is then None.
    rope: (radians per position of each pair of dimensions [d_rot / 2], "half" or "interleaved"),
        for algorithms that give tokens other positions.
    key_bias: [d], what the model adds to keys before RoPE turns them; for storages with centre
        "bias".
    wo_v_l1: [G, n], per query head and token the 1-norm of what the head's block of the output
        projection makes of the value; for norm="wo_l1" of
        criticalkv, grkv and laprox.
    sequence, layer, head: what random draws are made for, besides the seed; of a Layer, `head` is
        the KV head that is replayed and the others are the dump's.
    n_layers: layers of the model, for methods that give layers different budgets; default
        layer + 1.
    tokens: only the first N of a Layer.
    prompt: P, the tokens before decoding begins: a number, a fraction of n, or, of a Layer, "dump".
        Default: all but the last 256, or half of n if that is more.
    rows: which decode rows [P, n) are scored: "all", {"last": m}, {"every": m}, or a list; of rows
        of the prompt {"prompt": one of these}.
    seed: of a randomised algorithm.
    element_bytes: bytes per number of a key or value in `memory`.
    storage: codecs that what is kept is written by (kvbench.storage()), as a sweep has them:
        "q8_0", or {"keys": {"codec": "kivi", "bits": 4}, "values": "q4_0"}.
    then: a method that reads, for each row, some of what the algorithm kept, as a sweep has it:
        {"algorithm": "quest", "params": {"budget": 64}}.
    threads: default: all that the process may use. Values do not depend on it.

    Raises kvbench.Error (a ValueError) for wrong arrays, parameters or settings, an algorithm that
    cannot run on this stream, and numbers that overflow. The interpreter's lock is free meanwhile,
    Ctrl-C stops it, and calls from several threads run one after the other.
    """
    data = _with_algorithm(data, params)
    params = {name: number(value) for name, value in params.items()}
    seed, element_bytes, prompt = (number(each) for each in (seed, element_bytes, prompt))
    counts = {"tokens": tokens, "threads": threads, "layer": layer, "n_layers": n_layers}
    tokens, threads, layer, n_layers = (
        whole(f"{_PLACE}: {name}", value) for name, value in counts.items()
    )
    sizes = {"sliding_window": sliding_window, "attention_chunk": attention_chunk}
    sliding_window, attention_chunk = (
        whole(f"{_PLACE}: {name}", value) for name, value in sizes.items()
    )
    value_in_key = whole(f"{_PLACE}: value_in_key", value_in_key)
    head = whole(f"{_PLACE}: head", head) or 0
    scale, softcap = factor(f"{_PLACE}: scale", scale), real(f"{_PLACE}: softcap", softcap)
    causal = flag(f"{_PLACE}: causal", causal)
    if threads is not None and not 0 <= threads <= MAX_THREADS:
        raise _core.Error(f"{_PLACE}: threads: must be in [1, {MAX_THREADS}], got {threads}")
    if not isinstance(sequence, (str, type(None))):
        raise _core.Error(f"{_PLACE}: sequence: must be a text, got {sequence!r}")
    rows = _rows(rows)
    given = {
        "scale": scale,
        "sliding_window": sliding_window,
        "softcap": softcap,
        "sink_logits": sink_logits,
        "alibi_slopes": alibi_slopes,
        "causal": causal,
        "attention_chunk": attention_chunk,
        "value_in_key": value_in_key,
        "rope": rope,
        "key_bias": key_bias,
        "sequence": sequence,
        "layer": layer,
        "n_layers": n_layers,
    }
    if isinstance(data[0], Layer):
        source, algorithm = data
        fixed = [name for name, value in given.items() if value is not None]
        fixed += ["wo_v_l1"] if wo_v_l1 is not None else []
        if fixed:
            raise _core.Error(f"{_PLACE}: {', '.join(fixed)}: the layer says it; leave it out")
        arrays = tensors_of(source, head, tokens, _PLACE)
        stream: dict[str, Any] = facts_of(source, head, tokens)
        if prompt == "dump":
            if source.prompt_tokens is None:
                raise _core.Error(f"{_PLACE}: the dump has no prompt_tokens; give prompt a number")
            prompt = source.prompt_tokens
        place = f"kb.open_dump({source.dump.path!r})[{source.sequence!r}][{source.index}]"
    else:
        *tensors, algorithm = data
        if tokens is not None:
            raise _core.Error(f"{_PLACE}: tokens is for a layer of a dump; cut the arrays")
        arrays = _arrays(tensors, value_in_key)
        _refuse_heads(*arrays)
        _warn_of_order(arrays[0], arrays[1])
        stream = {
            "sequence": "" if sequence is None else sequence,
            "layer": 0 if layer is None else layer,
            "n_layers": (0 if layer is None else layer) + 1 if n_layers is None else n_layers,
            "scale": arrays[1].shape[-1] ** -0.5 if scale is None else scale,
            "window": sliding_window or 0,
            "softcap": softcap or 0.0,
            "sinks": _numbers("sink_logits", sink_logits),
            "alibi_slopes": _numbers("alibi_slopes", alibi_slopes),
            "causal": causal is None or causal,
            "chunk": attention_chunk or 0,
            "value_in_key": value_in_key is not None,
            "rope": rope,
            "key_bias": _numbers("key_bias", key_bias),
            "fingerprint": "",
            "wo_v_l1": None if wo_v_l1 is None else _floats("wo_v_l1", wo_v_l1),
        }
        place = "q, k, v" if wo_v_l1 is None else "q, k, v, wo_v_l1=.."
    words = [place, repr(algorithm), *(_keyword_text(*each) for each in params.items())]
    methods = []
    if is_method(algorithm):
        if params:
            raise _core.Error(f"{_PLACE}: {', '.join(params)}: parameters are the method's fields")
        if isinstance(algorithm, type):
            raise _core.Error(f"{_PLACE}: {algorithm.__name__} is a class; give an instance of it")
        layer_of_dump = data[0] if isinstance(data[0], Layer) else None
        methods = [_asked(algorithm, layer_of_dump, tokens)]
        algorithm, params = algorithm._kvbench_id, parameters(algorithm)
    elif not isinstance(algorithm, str):
        raise _core.Error(
            f"{_PLACE}: algorithm: must be an id (kb.algorithms()) or an instance of a class made "
            f"with kvbench.method, got {algorithm!r}"
        )
    else:
        _refuse_other_names(algorithm, params)
        if len(data) == 4 and n_layers is None:
            _warn_of_layers(algorithm, params, stream["n_layers"])
        params = with_absolute_paths(algorithm, params)
    entry: dict[str, Any] = {"algorithm": algorithm, "params": params}
    if then is not None:
        words.append(_keyword_text("then", then))
        entry["then"] = entry_with_absolute_paths(then)
    sweep: dict[str, Any] = {
        "algorithms": [entry],
        "evaluate": {"rows": rows},
        "seeds": [seed],
        "memory": {"element_bytes": element_bytes},
    }
    if storage != "float":
        sweep["storage"] = [storage_with_absolute_paths(storage)]
        words.append(_keyword_text("storage", storage))
    if prompt is not None:
        sweep["replay"] = {"prompt_tokens": prompt}
    words += [
        _keyword_text(name, value)
        for name, value in (*given.items(), ("head", head), ("tokens", tokens), ("prompt", prompt))
        if value is not None
    ]
    words += [_keyword_text("rows", rows), _keyword_text("seed", seed)]
    replayed = _replayed(
        arrays, stream, head, sweep, f"kb.replay({', '.join(words)})", threads, methods
    )
    if isinstance(data[0], Layer) and not methods:
        _warn_of_heads(replayed.record["key"], data[0])
    return replayed


# Where a sweep says what a keyword does.
_KEYWORDS = {
    r"/algorithms/0/params/(\w+)": r"\1",
    r"/algorithms/0/(then[\w/]*)": r"\1",
    r"/algorithms/0/algorithm|/algorithms/0": "algorithm",
    r"/replay/prompt_tokens": "prompt",
    r"/evaluate/rows|evaluate\.rows": "rows",
    r'"evaluate": \{"rows": (.*)\}': r"rows=\1",
    r"/seeds/0": "seed",
    r"/memory/element_bytes": "element_bytes",
    r"/storage/0": "storage",
    r",? of sequence +of arrays": "",
}


def _by_keyword(text: str) -> str:
    """A message of a sweep with this function's keywords in place of the sweep's members."""
    for member, keyword in _KEYWORDS.items():
        text = re.sub(member, keyword, text)
    return text


def _replayed(
    arrays: tuple[Any, Any, Any],
    stream: dict[str, Any],
    head: int,
    sweep: dict[str, Any],
    repro: str,
    threads: int | None,
    methods: list[MethodTable],
) -> Replay:
    """Asks the extension; a cell without a result is an error."""
    rope = stream.pop("rope")
    if rope is not None:
        if not isinstance(rope, (tuple, list)) or len(rope) != 2:
            raise _core.Error(f'{_PLACE}: rope: must be (frequencies, "half" or "interleaved")')
        frequencies, layout = rope
        frequencies = in_full_precision(f"{_PLACE}: rope", frequencies)
        if layout not in ("half", "interleaved"):
            raise _core.Error(f"{_PLACE}: rope: must be half or interleaved, got {layout!r}")
        rope = (frequencies, layout == "interleaved")
    try:
        text, scored, outputs, token, begin, end = _core.replay(
            *arrays,
            **stream,
            rope=rope,
            head=head,
            sweep=json_text(sweep),
            place=_PLACE,
            repro=repro,
            threads=threads or 0,
            methods=methods,
        )
    except _core.Error as error:
        raise _core.Error(_by_keyword(str(error))) from None
    record = json.loads(text)
    if record["status"] != "ok":
        reason = _by_keyword(record["reason"])
        raise _core.Error(f"{_PLACE}: {record['key']['algorithm']}: {reason}")
    return Replay(record, scored, outputs, (token, begin, end))
