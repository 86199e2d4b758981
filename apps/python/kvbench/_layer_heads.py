"""One KV head of a layer of a dump, as a replay takes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvbench import _core
from kvbench._dumps import Layer
from kvbench._method_calls import prompt_of
from kvbench._methods import Prompt


def tensors_of(layer: Layer, head: int, tokens: int | None, place: str) -> tuple[Any, Any, Any]:
    """q [G, Nq, d], k [n, d] and v [n, dv] of a KV head, of the first `tokens` tokens.
    `place`: the function that errors name."""
    if not 0 <= head < layer.kv_heads:
        raise _core.Error(
            f"{place}: there is no KV head {head}; heads are 0 to {layer.kv_heads - 1}"
        )
    if layer.kv_layer is not None:
        raise _core.Error(
            f"{place}: layer {layer.index} reads the keys of layer {layer.kv_layer}, whose cache "
            f"is compressed for both; give layer {layer.kv_layer}"
        )
    q = _by_query_head(layer, head, [each.q for each in (layer, *layer.readers)])
    k, v = layer.k[head], layer.v[head]
    if tokens is None:
        return q, k, v
    if not 1 <= tokens <= layer.tokens:
        raise _core.Error(
            f"{place}: tokens must be from 1 to {layer.tokens}, all of the sequence, got {tokens}"
        )
    return q[:, : layer.query_rows - (layer.tokens - tokens)], k[:tokens], v[:tokens]


def facts_of(layer: Layer, head: int, tokens: int | None) -> dict[str, Any]:
    """The further arguments of the extension's replay that a KV head of the layer decides."""
    return {
        "sequence": layer.sequence,
        "layer": layer.index,
        "n_layers": layer.dump.n_layers,
        "scale": layer.scale,
        "window": layer.window,
        "softcap": layer.softcap,
        "sinks": _of_group("sinks", layer, head),
        "alibi_slopes": _of_group("alibi_slopes", layer, head),
        "causal": layer.causal,
        "chunk": layer.chunk,
        "value_in_key": layer.value_in_key is not None,
        "rope": layer.rope,
        "key_bias": [] if layer.key_bias is None else layer.key_bias[head].tolist(),
        "fingerprint": layer.dump.fingerprint,
        "wo_v_l1": _norms(layer, head, tokens),
    }


def layer_prompts(
    made: Any, source: Layer, tokens: int | None, prompt: Prompt, place: str
) -> list[Prompt]:
    """Tensors of all KV heads of the layer, cut as `prompt`."""
    p, rows = len(prompt.k), prompt.q.shape[1]
    prompts = []
    for head in range(source.kv_heads):
        q, k, v = tensors_of(source, head, tokens, place)
        copies = (q[:, :rows].copy(), k[:p].copy(), v[:p].copy())
        rest = (
            *(prompt.scale, prompt.window, prompt.softcap, prompt.sequence, prompt.layer, head),
            _of_group("sinks", source, head),
            _of_group("alibi_slopes", source, head),
            prompt.chunk,
        )
        prompts.append(prompt_of(made, (*copies, *rest), prompt.seed or 0))
    return prompts


def _norms(layer: Layer, head: int, tokens: int | None) -> Any:
    """wo_v_l1 [G, n] of a KV head, of the first `tokens` tokens; None if the dump has none."""
    norms = [each.wo_v_l1 for each in (layer, *layer.readers)]
    if any(each is None for each in norms):
        return None
    return _by_query_head(layer, head, norms)[:, :tokens]


def _by_query_head(layer: Layer, head: int, by_layer: list[Any]) -> Any:
    """The values of the query heads that share a KV head: the layer's, then its readers'."""
    parts = []
    for each, values in zip((layer, *layer.readers), by_layer, strict=True):
        group = each.query_heads // each.kv_heads
        parts.append(values[head * group : (head + 1) * group])
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _of_group(name: str, layer: Layer, head: int) -> list[float]:
    """The values of the query heads that share a KV head."""
    by_layer = [getattr(each, name) for each in (layer, *layer.readers)]
    if by_layer[0] is None:
        return []
    return list(map(float, _by_query_head(layer, head, by_layer)))
