"""Attention of modules that ask no AttentionInterface: Bloom and MPT add ALiBi's bias to their
logits themselves. They are recorded by their parts, and answer by their own forward, given other
queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from format.dump_file import Fault

from export.known_arguments import refuse_unknown
from export.transformers_version import unfit


class _Heard(Exception):
    """The answers of a module's own code, before the output projection."""

    def __init__(self, answer: torch.Tensor) -> None:
        super().__init__()
        self.answer = answer


class _GivenCache:
    """In place of a cache: these keys and values, whatever comes."""

    def __init__(self, k: torch.Tensor, v: torch.Tensor) -> None:
        self._k, self._v = k, v

    def update(self, *_: object, **__: object) -> tuple[torch.Tensor, torch.Tensor]:
        return self._k, self._v

    def get_seq_length(self, *_: object) -> int:
        return self._k.shape[2]


def _split_by_head(
    module: torch.nn.Module, fused: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = fused.view(1, fused.shape[1], module.num_heads, 3, module.head_dim)
    q, k, v = (rows[..., place, :].transpose(1, 2) for place in range(3))
    return q, k, v


def _join_by_head(*parts: torch.Tensor) -> torch.Tensor:
    return torch.stack([part.transpose(1, 2) for part in parts], dim=3).flatten(2)


def _split_in_thirds(
    module: torch.nn.Module, fused: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if module.clip_qkv:
        fused = fused.clamp(-module.clip_qkv, module.clip_qkv)
    q, k, v = (
        third.view(1, fused.shape[1], module.n_heads, module.head_dim).transpose(1, 2)
        for third in fused.chunk(3, dim=2)
    )
    return q, k, v


def _join_in_thirds(*parts: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.transpose(1, 2).flatten(2) for part in parts], dim=2)


@dataclass(frozen=True)
class _Parts:
    """Names in a module that computes attention with ALiBi's bias itself."""

    fused: str  # the child that makes queries, keys and values, which `split` takes apart
    split: Callable
    join: Callable
    output: str  # the child that reads the answers [1, c, Hq dv]
    scale: str
    cache: tuple[str, ...]  # arguments of forward: the cache, by its names from version to version,
    bias: str  # and the bias [Hq, 1, tokens or more], whose last columns are those of the tokens


INNER = {
    "BloomAttention": _Parts(
        "query_key_value",
        _split_by_head,
        _join_by_head,
        "dense",
        "inv_norm_factor",
        ("layer_past",),
        "alibi",
    ),
    "MptAttention": _Parts(
        "Wqkv",
        _split_in_thirds,
        _join_in_thirds,
        "out_proj",
        "softmax_scale",
        ("past_key_values", "cache"),
        "position_bias",
    ),
}
INNER_TYPES = ("bloom", "mpt")  # model types of configurations


class InnerAttention:
    """Has one such module ask `attention` for its answers, as long as there is one: queries, keys
    and values [1, heads, tokens, d], its layer, mask, scale and bias, and its own code over others;
    gives [1, c, Hq, dv]."""

    def __init__(
        self,
        module: torch.nn.Module,
        parts: _Parts,
        attention: Callable[[], Callable[..., torch.Tensor] | None],
    ) -> None:
        self._module, self._parts, self._attention = module, parts, attention
        self._given: tuple = ()
        self._named: dict = {}
        self._fresh: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
        self._asked: torch.Tensor | None = None  # the target while its own code runs
        self._hooks = [
            module.register_forward_pre_hook(self._begin, with_kwargs=True),
            getattr(module, parts.fused).register_forward_hook(self._project),
            getattr(module, parts.output).register_forward_pre_hook(self._answer),
        ]

    def remove(self) -> None:
        """Leaves the module as it was."""
        for hook in self._hooks:
            hook.remove()

    def _begin(self, _: torch.nn.Module, given: tuple, named: dict) -> None:
        self._given, self._named = given, named

    def _project(self, _: torch.nn.Module, __: tuple, fused: torch.Tensor) -> torch.Tensor | None:
        if self._asked is not None:
            return self._asked
        if self._attention() is not None:
            self._fresh = self._parts.split(self._module, fused)
        return None

    def _answer(self, _: torch.nn.Module, given: tuple) -> tuple | None:
        if self._asked is not None:
            raise _Heard(given[0])
        attention = self._attention()
        if attention is None or self._fresh is None:
            return None
        (q, k, v), self._fresh = self._fresh, None
        layer = int(self._module.layer_idx)
        known = ("hidden_states", "residual", "attention_mask", self._parts.bias)
        place = f"layer {layer} ({type(self._module).__name__})"
        refuse_unknown(place, self._named, also=(*known, *self._parts.cache))
        cache = self._named[self._cache_name()]
        if cache is not None:
            k, v = cache.layers[layer].keys, cache.layers[layer].values
        mask = self._named["attention_mask"]
        if mask is not None and mask.dtype == torch.bool:  # true marks hidden tokens
            hidden = torch.finfo(torch.float32).min
            mask = torch.zeros(mask.shape, device=mask.device).masked_fill(mask, hidden)
        scale = float(getattr(self._module, self._parts.scale))
        bias = self._named[self._parts.bias][:, 0, -k.shape[2] :]
        answer = attention(self._module, layer, q, k, v, mask, scale, bias, self._eager)
        return (answer.flatten(2).to(given[0].dtype), *given[1:])

    def _cache_name(self) -> str:
        for name in self._parts.cache:
            if name in self._named:
                return name
        raise unfit(
            f"{type(self._module).__name__} is called without {' or '.join(self._parts.cache)}"
        )

    def _eager(
        self,
        module: torch.nn.Module,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None,
        **_: object,
    ) -> tuple[torch.Tensor, None]:
        """The module's own forward over these, as far as its answer [1, c, Hq, dv]."""
        rows = q.shape[2]
        hidden_states, *others = self._given
        theirs = self._named["attention_mask"]
        if mask is not None and theirs.dtype == torch.bool:
            mask = mask < 0
        named = {
            **self._named,
            self._cache_name(): _GivenCache(k, v),
            self._parts.bias: self._named[self._parts.bias].to(q.dtype),
            "attention_mask": mask,
        }
        self._asked = self._parts.join(q, k[:, :, -rows:], v[:, :, -rows:])
        try:
            type(module).forward(module, hidden_states[:, :rows], *others, **named)
        except _Heard as heard:
            return heard.answer.reshape(1, rows, q.shape[1], -1), None
        finally:
            self._asked = None
        raise Fault(
            f"{type(module).__name__} answers without its {self._parts.output}; this exporter does "
            "not know the model's attention"
        )
