"""Listens to a transformers model's attention, through its AttentionInterface.

Every attention layer hands its post-rotation queries, keys and values to `attend`, which passes
them to whoever listens and lets the model's own eager code answer, in at least float32. What
data/*.py know of transformers' attention, masks and caches stands here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from dump_file import Fault
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, PretrainedConfig
from transformers.masking_utils import eager_mask

NAME = "kvbench_capture"
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

    def own_answer(self) -> torch.Tensor:
        """[1, c, Hq, dv] from the model's eager attention, in at least float32."""
        eager = _eager_of(self.module)
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
    layer = getattr(module, "layer_idx", None)
    if layer is None:
        raise Fault(f"{type(module).__name__} has no layer_idx attribute")
    call = Call(module, int(layer), query, key, value, attention_mask, scaling, more)
    return _listener(call).to(query.dtype), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, eager_mask)


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


def decode_after(
    model: torch.nn.Module,
    prompt: Iterable[tuple[int, torch.Tensor, torch.Tensor]],
    ids: torch.Tensor,
    listener: Callable[[Call], torch.Tensor],
) -> torch.Tensor:
    """Logits [R, vocabulary] of the tokens `ids` [R], read teacher-forced at once after a prompt.

    The prompt is given by its keys and values, (layer, k [Hkv, P, d], v [Hkv, P, dv]) of every
    layer from 0 on; `listener` answers each layer's rows. Positions follow from the number of
    tokens in the cache, so that nothing that a method drops moves a rotation.
    """
    cache = whole_cache()
    for layer, k, v in prompt:
        cache.update(k[None], v[None], layer)
    with listening(listener), torch.no_grad():
        return model(
            input_ids=ids[None].to(model.device), past_key_values=cache, use_cache=True
        ).logits[0]


def refuse_to_decode(config: PretrainedConfig, layers: set[int], tokens: int) -> None:
    """Refuses models that `decode_after` cannot continue; `layers` are those whose attention is
    heard, `tokens` those of the text."""
    text = config.get_text_config()
    others = set(range(text.num_hidden_layers)) - layers
    if others:
        raise Fault(
            f"{config.model_type}: layers {', '.join(map(str, sorted(others)))} have no attention "
            "that is heard, so that their state after the prompt is unknown; use a model whose "
            "layers all attend"
        )
    for rope in _rotations(getattr(text, "rope_parameters", None) or {}):
        kind = rope.get("rope_type", "default")
        limit = rope.get("original_max_position_embeddings") or getattr(
            text, "original_max_position_embeddings", None
        )
        if kind == "longrope" and limit and tokens > limit:
            raise Fault(
                f"{config.model_type}: its rotation (rope_type {kind}) changes after {limit} "
                f"tokens, which turns keys that are cached already otherwise, and the text has "
                f"{tokens}; give --tokens {limit}"
            )


def _rotations(parameters: dict) -> list[dict]:
    """RoPE parameters of a model, or of each of its kinds of layers."""
    nested = [each for each in parameters.values() if isinstance(each, dict)]
    return nested or [parameters]


def refuse_model(config: PretrainedConfig) -> None:
    """Refuses, before any work, models whose attention is known to have what a dump cannot hold."""
    kind = config.model_type
    text = config.get_text_config()
    if kind in ("bloom", "mpt") or getattr(text, "alibi", False):
        raise Fault(
            f"{kind}: its attention, with ALiBi's bias by distance, does not go through "
            "transformers' AttentionInterface, so that nothing can be heard of it; "
            "import_arrays.py takes q, k, v and alibi_slopes from code of your own"
        )


def refuse_terms(call: Call) -> None:
    """Refuses a layer whose call carries a term that the format cannot hold."""
    place = f"layer {call.layer} ({type(call.module).__name__})"
    for name in ("position_bias", "alibi", "attention_bias", "bias"):
        if isinstance(call.more.get(name), torch.Tensor):
            raise Fault(
                f"{place} adds a relative bias ({name}) to its logits, which the dump "
                "format cannot hold"
            )
    if call.q.shape[0] != 1:
        raise Fault(f"{place}: a batch of {call.q.shape[0]}; one sequence is exported at a time")


def sinks_of(call: Call) -> torch.Tensor | None:
    """[Hq]: the logit that every row of a query head has beside those of its tokens, if any."""
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


@dataclass(frozen=True)
class Mask:
    """Which tokens rows see, as far as some of them show it."""

    window: int = 0  # 0: none has been reached
    chunk: int = 0  # likewise
    causal: bool = True


def mask_of(mask: torch.Tensor | None, rows: int, tokens: int, chunk: int = 0) -> Mask:
    """What an additive mask [1, 1 or Hq, rows, tokens] leaves; the rows are the last of `tokens`.
    `chunk`: the chunks that the model's configuration speaks of, 0: of none. Refuses, by name,
    every mask that is neither causal, whole or within a window or chunks, nor hides nothing."""
    if mask is None:
        return Mask(causal=rows == 1)
    if tuple(mask.shape[-2:]) != (rows, tokens):
        raise Fault(
            f"a mask for {mask.shape[-2]} rows and {mask.shape[-1]} tokens where "
            f"{rows} and {tokens} are attended to"
        )
    masks = mask[0] if mask.shape[1] == 1 else mask[0].unbind()
    kinds = {_head_mask(each, tokens - rows, chunk) for each in masks}
    if len(kinds) > 1:
        raise Fault("heads with different masks, which the dump format cannot hold")
    return kinds.pop()


def _head_mask(mask: torch.Tensor, past: int, chunk: int) -> Mask:
    seen = mask == 0
    if not (seen | (mask <= torch.finfo(mask.dtype).min / 2)).all():
        raise Fault(
            "a bias in its mask (ALiBi or another relative bias), which the dump format cannot hold"
        )
    if mask.shape[0] > 1 and bool(seen.all()):
        return Mask(causal=False)
    position = past + torch.arange(mask.shape[0], device=mask.device)
    first = seen.to(torch.uint8).argmax(dim=1)
    if bool(seen.flip(1).to(torch.uint8).argmax(dim=1).ne(mask.shape[1] - 1 - position).any()):
        raise Fault("a mask that is not causal: rows see later tokens, or not themselves")
    if bool((seen.sum(dim=1) != position - first + 1).any()):
        raise Fault(
            "a mask with holes (padding, packed sequences or sparse attention), which the "
            "dump format cannot hold"
        )
    cut = first > 0
    if not cut.any():
        return Mask()
    if chunk > 0 and bool((first == position // chunk * chunk).all()):
        return Mask(chunk=chunk)
    span = position - first + 1
    window = int(span.max())
    if bool((span[cut] == window).all()):
        return Mask(window=window)
    raise Fault(
        "a mask that is neither causal nor a sliding window nor made of the model's chunks, which "
        "the dump format cannot hold"
    )
