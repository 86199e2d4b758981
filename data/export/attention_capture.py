"""Listens to a transformers model's attention, through its AttentionInterface.

Every attention layer hands its post-rotation queries, keys and values to `attend`, which passes
them to whoever listens and lets the model's own eager code answer, in at least float32.

All that data/*.py know of transformers beyond its Auto classes is here: its attention, masks and
caches, the names of its modules' parts and configurations' entries; of the two models that ask no
AttentionInterface, in inner_attention.py; of rotations that change with the text's length, in
whole_rotation.py; of further arguments of attention, in known_arguments.py; of calls of models and
of generate(), in model_call.py. `require_fit` tries it on a model of a few hundred weights, so that
an incompatible version is refused with an explanation, and no dump is made by guessing.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from format.dump_file import TOLERANCE, Fault, Rope, Terms, exact_rows, relative_difference

from export.attention_mask import Mask, mask_of
from export.inner_attention import INNER, INNER_TYPES, InnerAttention
from export.known_arguments import refuse_unknown
from export.transformers_version import unfit

try:
    from transformers import (
        AttentionInterface,
        AttentionMaskInterface,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        DynamicCache,
        LlamaConfig,
        LlamaForCausalLM,
        PretrainedConfig,
    )
    from transformers.masking_utils import eager_mask
except ImportError as missing:
    raise unfit(str(missing)) from missing

NAME = "kvbench_capture"
LOADERS = (AutoModelForCausalLM, AutoModelForImageTextToText)
# Elements of a block of logits; attention is computed in blocks of rows.
BLOCK_ELEMENTS = 1 << 26


@dataclass
class Call:
    """One layer's attention over one piece of a sequence; the batch's one row."""

    module: torch.nn.Module
    layer: int
    q: torch.Tensor  # [1, Hq, c, d]
    k: torch.Tensor  # [1, Hkv, tokens so far, d]
    v: torch.Tensor
    mask: torch.Tensor | None
    scaling: float | None
    more: dict
    # [Hq, tokens so far], added to the logits: ALiBi's, by key, whose rows may differ by a number.
    bias: torch.Tensor | None = None
    eager: Callable | None = None  # the model's own attention; None: of its module's file

    def own_answer(self) -> torch.Tensor:
        """[1, c, Hq, dv] from the model's eager attention, in at least float32."""
        eager = self.eager or _eager_of(self.module)
        q, k, v = (
            t.to(torch.promote_types(t.dtype, torch.float32)) for t in (self.q, self.k, self.v)
        )
        rows = max(1, BLOCK_ELEMENTS // (q.shape[1] * k.shape[2]))
        blocks = []
        for first in range(0, q.shape[2], rows):
            some = slice(first, first + rows)
            mask = None if self.mask is None else self.mask[:, :, some].to(q.dtype)
            blocks.append(
                eager(
                    self.module,
                    q[:, :, some],
                    k,
                    v,
                    mask,
                    scaling=self.scaling,
                    dropout=0.0,
                    **self.more,
                )[0]
            )
        return torch.cat(blocks, dim=1)


def _eager_of(module: torch.nn.Module) -> Callable:
    for kind in type(module).__mro__:
        found = getattr(sys.modules[kind.__module__], "eager_attention_forward", None)
        if found:
            return found
    raise Fault(
        f"{type(module).__name__} has no eager attention to answer with; this exporter "
        "does not know the model's attention"
    )


def layer_of(module: torch.nn.Module) -> int | None:
    """The number of the layer whose attention the module is."""
    layer = getattr(module, "layer_idx", None)
    return None if layer is None else int(layer)


_listener: Callable[[Call], torch.Tensor] | None = None


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: object,
) -> tuple[torch.Tensor, None]:
    """The registered attention function, with its arguments in the order of transformers' own."""
    del dropout  # models are run in evaluation mode
    if _listener is None:
        raise RuntimeError("no listener registered")
    layer = layer_of(module)
    if layer is None or layer < 0:
        raise Fault(
            f"{type(module).__name__} has no layer_idx attribute that names its layer, as where "
            "layers share a module; import_arrays.py takes q, k, v and out of code of your own"
        )
    refuse_unknown(f"layer {layer} ({type(module).__name__})", more, key.shape[2])
    if attention_mask is not None and attention_mask.dtype == torch.bool:  # true: seen, as in SDPA
        hidden = torch.zeros_like(attention_mask, dtype=query.dtype)
        attention_mask = hidden.masked_fill(~attention_mask, torch.finfo(query.dtype).min)
    call = Call(module, layer, query, key, value, attention_mask, scaling, more)
    return _listener(call).to(query.dtype), None


def implementation_for(config: PretrainedConfig) -> str:
    """Arguments that load a model of this configuration."""
    return "eager" if config.model_type in INNER_TYPES else NAME


def loader_of(config: PretrainedConfig) -> Any:
    """The Auto class that loads a model: a causal one, or one that reads pictures too and is not
    listed as causal (Qwen2.5-VL, Mistral 3)."""
    known = [type(config) in each._model_mapping for each in LOADERS]
    listed = known[0] or LOADERS[0].__name__ in (getattr(config, "auto_map", None) or {})
    return LOADERS[not listed and known[1]]


def install_hook(model: torch.nn.Module) -> list[InnerAttention]:
    """Once, after loading: has modules recorded that ask no AttentionInterface, until they are
    removed."""
    named = [(module, INNER.get(type(module).__name__)) for module in model.modules()]
    return [InnerAttention(module, parts, _inner_answers) for module, parts in named if parts]


def _inner_answers() -> Callable[..., torch.Tensor] | None:
    listener = _listener
    if listener is None:
        return None

    def answer(module: torch.nn.Module, layer: int, *given: Any) -> torch.Tensor:
        q, k, v, mask, scale, bias, eager = given
        return listener(Call(module, layer, q, k, v, mask, scale, {}, bias, eager))

    return answer


def device_of(model: torch.nn.Module) -> torch.device:
    """Where a model takes its tokens; that of one which accelerate offloads is its hooks'."""
    device: torch.device = model.device
    if device.type != "meta":
        return device
    for module in model.modules():
        hook = getattr(module, "_hf_hook", None)
        for each in getattr(hook, "hooks", [hook]):
            if getattr(each, "execution_device", None) is not None:
                return torch.device(each.execution_device)
    raise Fault("the model's weights are on the device meta, which has no numbers; load them")


def logits_of(answer: Any) -> torch.Tensor:
    """[1, c, vocabulary]; of a model without a head, its last hidden state."""
    logits = getattr(answer, "logits", None)
    return answer.last_hidden_state if logits is None else logits


def position_arguments(model: torch.nn.Module, positions: torch.Tensor) -> dict:
    """Tells a model the positions [c] of its tokens, if it turns or embeds them."""
    if model.config.model_type in INNER_TYPES:
        return {}
    return {"position_ids": positions[None].to(device_of(model))}


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, eager_mask)


def is_heard_by_interface(model: torch.nn.Module) -> bool:
    return bool(model.config._attn_implementation == NAME)


def own_logits(model: torch.nn.Module, ids: torch.Tensor, cache: Any = None) -> torch.Tensor:
    """[c, vocabulary] of `ids` [c] after what `cache` holds, by the model's own eager attention."""
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            answer = model(
                input_ids=ids[None].to(device_of(model)),
                past_key_values=cache,
                use_cache=cache is not None,
            )
            return logits_of(answer)[0]
    finally:
        model.set_attn_implementation(NAME)


def most_heads(config: PretrainedConfig) -> int:
    """Query heads of the layer that has most of them."""
    heads = config.get_text_config().num_attention_heads
    return max(heads) if isinstance(heads, list | tuple) else int(heads)


@contextmanager
def listening(listener: Callable[[Call], torch.Tensor]) -> Iterator[None]:
    """Inside, `listener` gets every layer's call and returns its answer [1, c, Hq, dv]."""
    global _listener
    if _listener is not None:
        raise RuntimeError("a listener is already active")
    _listener = listener
    try:
        yield
    finally:
        _listener = None


def whole_cache() -> DynamicCache:
    """A cache without the model's configuration, which would cut layers to their windows."""
    return DynamicCache()


def cache_of(
    held: Iterable[tuple[int, torch.Tensor, torch.Tensor]], copies: int = 1
) -> DynamicCache:
    """A cache that holds k [Hkv, P, d] and v [Hkv, P, dv] of every layer, from 0 on, for a batch of
    `copies`."""
    cache = whole_cache()
    for layer, k, v in held:
        cache.update(*(each.expand(copies, -1, -1, -1) for each in (k, v)), layer)
    return cache


def held_by(cache: DynamicCache) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    """State from which `cache_of` makes an equal cache, however this one grows."""
    return [(place, each.keys[0], each.values[0]) for place, each in enumerate(cache.layers)]


def decode_after(
    model: torch.nn.Module,
    prompt: Iterable[tuple[int, torch.Tensor, torch.Tensor]],
    ids: torch.Tensor,
    listeners: Sequence[Callable[[Call], torch.Tensor]],
) -> torch.Tensor:
    """Logits [listeners, R, vocabulary] of the tokens `ids` [R], read teacher-forced at once after
    a prompt.

    The prompt is given by its keys and values, (layer, k [Hkv, P, d], v [Hkv, P, dv]) of every
    layer from 0 on; each listener answers every layer's rows, and its logits are those of its own
    answers. Positions follow from the number of tokens in the cache, so that nothing that a method
    drops moves a rotation.
    """

    def listener(call: Call) -> torch.Tensor:
        return torch.cat([own(_of_batch(call, at)) for at, own in enumerate(listeners)])

    with listening(listener), torch.no_grad():
        return model(
            input_ids=ids.expand(len(listeners), -1).to(device_of(model)),
            past_key_values=cache_of(prompt, len(listeners)),
            use_cache=True,
        ).logits


def read_after(
    model: torch.nn.Module,
    prompt: Iterable[tuple[int, torch.Tensor, torch.Tensor]],
    parts: Sequence[torch.Tensor],
    listener: Callable[[Call], torch.Tensor],
) -> torch.Tensor:
    """Logits [R, vocabulary] of the last of several parts [R] of a text, which are read one after
    the other; `prompt` and positions as for decode_after."""
    cache = cache_of(prompt)
    with listening(listener), torch.no_grad():
        for ids in parts:
            answer = model(
                input_ids=ids[None].to(device_of(model)), past_key_values=cache, use_cache=True
            )
    return answer.logits[0]


def _of_batch(call: Call, at: int) -> Call:
    """The call of one sequence of a batch, of a layer without a bias."""
    own = slice(at, at + 1)
    mask = call.mask if call.mask is None or len(call.mask) == 1 else call.mask[own]
    return replace(call, q=call.q[own], k=call.k[own], v=call.v[own], mask=mask)


def refuse_to_decode(model: torch.nn.Module, layers: set[int]) -> None:
    """Refuses models that `decode_after` cannot continue; `layers` are those whose attention is
    recorded."""
    kind, text = model.config.model_type, model.config.get_text_config()
    others = set(range(text.num_hidden_layers)) - layers
    if others:
        raise Fault(
            f"{kind}: layers {', '.join(map(str, sorted(others)))} have no attention "
            "that is recorded, so that their state after the prompt is unknown; use a model whose "
            "layers all attend"
        )
    if not reads_in_pieces(model):
        kinds = sorted(set(getattr(text, "layer_types", None) or []) - _IN_PIECES)
        raise Fault(
            f"{kind}: its layers have state besides keys and values ({', '.join(kinds)}), which is "
            "unknown after the prompt; use a model whose layers cache keys and values alone"
        )


def refuse_model(config: PretrainedConfig) -> None:
    """Refuses, before any work, models whose attention is known to have what a dump cannot hold."""
    kind = config.model_type
    text = config.get_text_config()
    if kind not in INNER_TYPES and getattr(text, "alibi", False):
        raise Fault(
            f"{kind}: its attention, with ALiBi's bias by distance, does not go through "
            "transformers' AttentionInterface, and this exporter records Bloom's and MPT's alone; "
            "import_arrays.py takes q, k, v and alibi_slopes from code of your own"
        )


def refuse_terms(call: Call) -> None:
    """Refuses a layer whose call carries a term that the format cannot hold."""
    place = f"layer {call.layer} ({type(call.module).__name__})"
    if call.q.shape[0] != 1:
        raise Fault(f"{place}: a batch of {call.q.shape[0]}; one sequence is exported at a time")
    last = torch.cat([call.k[0, :, -1], call.v[0, :, -1]], dim=-1)  # per KV head
    equal = (last[:, None] == last).all(dim=-1) & last.any(dim=-1)
    copies = equal.tril(diagonal=-1).nonzero().tolist()
    if copies:
        head, other = copies[0]
        raise Fault(
            f"{place}: KV head {head} is equal to {other}, so that memory would be counted for "
            "copies that a cache need not hold; import_arrays.py takes q, k, v and out with one "
            "KV head of each"
        )


def sinks_of(call: Call) -> torch.Tensor | None:
    """[Hq]: the logit that every row of a query head has besides those of its tokens, if any."""
    sinks = call.more.get("s_aux")
    if sinks is None:
        sinks = getattr(call.module, "sinks", None)
    if sinks is None:
        return None
    if sinks.numel() != call.q.shape[1]:
        raise Fault(
            f"layer {call.layer} ({type(call.module).__name__}) has {sinks.numel()} sink logits "
            f"for {call.q.shape[1]} query heads, which the dump format cannot hold"
        )
    return sinks.detach().reshape(-1)


def scale_of(call: Call) -> float:
    scale = call.scaling
    if scale is None:
        scale = getattr(call.module, "scaling", call.q.shape[-1] ** -0.5)
    if isinstance(scale, torch.Tensor) and scale.numel() > 1:
        raise Fault(
            f"layer {call.layer} ({type(call.module).__name__}) has {scale.numel()} scales, and a "
            "dump holds one per layer; leave the layer out with --layers"
        )
    return float(scale)


def softcap_of(call: Call) -> float:
    """0: none."""
    return float(call.more.get("softcap") or 0.0)


def declared_window(call: Call) -> int | None:
    """The sliding window that the call names, which its mask may not reach."""
    declared = call.more.get("sliding_window")
    return declared if isinstance(declared, int) else None


def declared_chunk(call: Call) -> int:
    """Tokens of the chunks that the layer's configuration speaks of; 0: of none."""
    return getattr(getattr(call.module, "config", None), "attention_chunk_size", None) or 0


_IN_PIECES = {"full_attention", "sliding_attention", "chunked_attention"}


def reads_in_pieces(model: torch.nn.Module) -> bool:
    """Whether the state of all its layers is keys and values."""
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or _IN_PIECES)
    return kinds <= _IN_PIECES and not getattr(model, "_is_stateful", False)


def most_positions(config: PretrainedConfig) -> int | None:
    """Positions that the model is made for; None: it has no such limit."""
    most = getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None)
    parameters = getattr(config, "rope_parameters", None) or {}
    kinds = [parameters, *(each for each in parameters.values() if isinstance(each, dict))]
    # A dynamic rotation is made for texts that are longer by its factor.
    longer = [k["factor"] for k in kinds if "dynamic" in str(k.get("rope_type")) and "factor" in k]
    return int(most * max([1.0, *longer])) if most else None


# Children of an attention module that project the answers of its heads.
PROJECTIONS = ("o_proj", "out_proj", "dense", "c_proj")


def projection_of(module: torch.nn.Module) -> torch.nn.Module | None:
    found = [getattr(module, name, None) for name in PROJECTIONS]
    return next((each for each in found if isinstance(each, torch.nn.Module)), None)


def at_hand(weight: torch.Tensor, what: str) -> torch.Tensor:
    """Refuses a weight that accelerate offloads, because its placeholder has no numbers."""
    if weight.device.type == "meta":
        raise Fault(
            f"{what} of the model is offloaded and read here; load the model without offloading"
        )
    return weight


def projection_weight(module: torch.nn.Module) -> torch.Tensor | None:
    """[Hq dv, hidden] of the output projection; None where there is none of this form."""
    projection = projection_of(module)
    weight = getattr(projection, "weight", None)
    if weight is None or weight.dim() != 2:
        return None
    at_hand(weight, "the output projection (wo_norms)")
    # GPT-2's projection is the transpose of a linear layer.
    return weight.detach() if type(projection).__name__ == "Conv1D" else weight.detach().T


def projection_bias(module: torch.nn.Module) -> torch.Tensor | None:
    return getattr(projection_of(module), "bias", None)


def key_projections(model: torch.nn.Module) -> Iterator[tuple[int, torch.nn.Module]]:
    """Modules that make keys alone and add a bias, behind the number of their layer."""
    for module in model.modules():
        projection, layer = getattr(module, "k_proj", None), layer_of(module)
        if getattr(projection, "bias", None) is not None and layer is not None:
            yield layer, projection


# Attention over latents, as in DeepSeek V2 and V3.
_LATENT = ("kv_a_layernorm", "kv_b_proj", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim")


def has_latents(module: torch.nn.Module) -> bool:
    return all(hasattr(module, name) for name in _LATENT)


def refuse_latents(model: torch.nn.Module) -> None:
    """Refuses models whose caches hold latents, where `decode_after` puts keys and values."""
    if any(map(has_latents, model.modules())):
        raise Fault(
            f"{model.config.model_type}: its layers cache latents, from which each row makes the "
            "heads' keys and values anew; use a model that caches keys and values"
        )


@dataclass(frozen=True)
class LatentParts:
    """Facts of a module with latents."""

    expands: torch.nn.Module  # is given the latents [.., rank]
    expansion: torch.Tensor  # [Hq (nope + dv), rank]: makes each head's key, then its value
    rank: int
    nope: int  # columns of a head's key that are not turned
    dv: int
    repeats: int  # KV heads are repeated this often for its own code


def latent_parts(module: torch.nn.Module) -> LatentParts:
    of: Any = module
    return LatentParts(
        of.kv_b_proj,
        at_hand(of.kv_b_proj.weight, "kv_b_proj"),
        of.kv_lora_rank,
        of.qk_nope_head_dim,
        of.v_head_dim,
        getattr(of, "num_key_value_groups", 1),
    )


def rotary_modules(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, set[str]]]:
    """With the types of their rotations (`rope_type`)."""
    for module in model.modules():
        if any(name.endswith("inv_freq") for name, _ in module.named_buffers(recurse=False)):
            kinds = getattr(module, "rope_type", "default")
            yield module, set(map(str, kinds.values() if isinstance(kinds, dict) else [kinds]))


def rotations_of(model: torch.nn.Module) -> list[Rope]:
    """Frequencies of the model's rotary modules, those in use before those kept for reference."""
    found = []
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if not name.endswith("inv_freq") or buffer.dim() != 1:
                continue
            kind = name.removesuffix("inv_freq").removesuffix("original_").rstrip("_")
            scaling = getattr(
                module, f"{kind}_attention_scaling" if kind else "attention_scaling", 1.0
            )
            at_hand(buffer, name)
            frequencies = tuple(buffer.double().cpu().tolist())
            theta = _theta(getattr(module, "config", None), kind, frequencies)
            found += [
                ("original" in name, Rope(frequencies, theta, layout, float(scaling)))
                for layout in ("half", "interleaved")
            ]
    return [rope for _, rope in sorted(found, key=lambda each: each[0])]


def _theta(config: object, kind: str, frequencies: tuple[float, ...]) -> float:
    parameters = getattr(config, "rope_parameters", None) or {}
    parameters = parameters.get(kind, parameters) if kind else parameters
    if isinstance(parameters, dict) and parameters.get("rope_theta") is not None:
        return float(parameters["rope_theta"])
    # Frequency p is theta ^ (-p / pairs).
    pairs = len(frequencies)
    return float(frequencies[1] ** -pairs) if pairs > 1 and frequencies[1] > 0 else 0.0


@functools.cache
def require_fit() -> None:
    """A trial of all that a dump rests on, on random weights: what is recorded of a piece and of
    the next one over its cache, which mask, whose answers. Raises Fault if this version of
    transformers works otherwise."""
    state = torch.get_rng_state()
    torch.manual_seed(0)
    try:
        with torch.autocast("cpu", enabled=False):  # it may be on around the caller
            _try_out()
    except Fault:
        raise
    except Exception as error:  # whatever a changed interface leads to
        raise unfit(f"a trial ended with {type(error).__name__}: {error}") from error
    finally:
        torch.set_rng_state(state)


def _try_out() -> None:
    heads, kv_heads, d, first, second = 4, 2, 8, 6, 3
    config = LlamaConfig(
        vocab_size=16,
        hidden_size=heads * d,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        initializer_range=0.5,
        attn_implementation=NAME,
    )
    model = LlamaForCausalLM(config).eval()
    ids = torch.arange(first + second)[None] % 16
    heard: list[Call] = []
    answers: list[torch.Tensor] = []

    def listener(call: Call) -> torch.Tensor:
        if call.scaling is None or abs(call.scaling - d**-0.5) > 1e-6:
            raise unfit(f"a layer's scale is {call.scaling}, not 1 / sqrt({d})")
        heard.append(call)
        answers.append(call.own_answer())
        return answers[-1]

    cache = whole_cache()
    with listening(listener), torch.no_grad():
        for some in (ids[:, :first], ids[:, first:]):
            model(input_ids=some, past_key_values=cache, use_cache=True)
    if [call.layer for call in heard] != [0, 1, 0, 1]:
        raise unfit(
            f"two layers read two pieces of a text; {len(heard)} calls were recorded, expected 4"
        )
    for call, answer in zip(heard, answers, strict=True):
        past, rows = (0, first) if call.k.shape[2] == first else (first, second)
        shapes = [tuple(t.shape) for t in (call.q, call.k, answer)]
        expected = [(1, heads, rows, d), (1, kv_heads, past + rows, d), (1, rows, heads, d)]
        if shapes != expected:
            raise unfit(f"queries, keys and answers have the shapes {shapes}, not {expected}")
        try:
            mask = mask_of(call.mask, rows, past + rows)
        except Fault as fault:
            raise unfit(f"its mask has {fault}") from fault
        if mask != Mask():
            raise unfit(f"its mask is not causal: {mask}")
        for head in range(heads):
            q, k, v = (
                t[0, place].detach().numpy()
                for t, place in (
                    (call.q, head),
                    (call.k, head // (heads // kv_heads)),
                    (call.v, head // (heads // kv_heads)),
                )
            )
            exact = exact_rows(q, k, v, Terms(scale_of(call)))
            if relative_difference(exact, answer[0, :, head].detach().numpy()) > TOLERANCE:
                raise unfit(f"layer {call.layer} answers otherwise than its q, k and v do")
    held = held_by(cache)
    if len(held) != 2 or any(
        not torch.equal(k, call.k[0]) for (_, k, _), call in zip(held, heard[2:], strict=True)
    ):
        raise unfit("a cache does not hold the keys that the layers attended to")
