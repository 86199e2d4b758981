"""Attention over latents (DeepSeek V2 and V3) in its absorbed form.

Such a layer caches one latent c and one turned key per token, and expands them to keys and values
of every head: k_h = [W_UK,h c; k_rot], v_h = W_UV,h c. Absorbed, all query heads share one KV head
with k = [c; k_rot], v = c and q_h = [W_UK,h^T q_nope; q_rot]. The logits are the same, and what
head h answers over values is W_UV,h times what it answers over latents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from export.attention_capture import Call, has_latents, latent_parts


class Latents:
    """Hears the latents of a model's layers, of all tokens that it has read, as they are expanded:
    normalised and scaled."""

    def __init__(self) -> None:
        self._of: dict[torch.nn.Module, list[torch.Tensor]] = {}  # each [1, c or all, rank]

    @contextmanager
    def listening(self, model: torch.nn.Module) -> Iterator[None]:
        """Inside, the model's layers are recorded."""
        hooks = []
        for module in model.modules():
            if has_latents(module):
                self._of.setdefault(module, [])
                hear = self._hear(module)
                hooks.append(latent_parts(module).expands.register_forward_pre_hook(hear))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _hear(self, module: torch.nn.Module) -> Callable[[torch.nn.Module, tuple], None]:
        def hear(_: torch.nn.Module, given: tuple) -> None:
            rank = latent_parts(module).rank
            self._of[module].append(given[0].detach().reshape(1, -1, rank))

        return hear

    def absorbed(self, call: Call) -> Call:
        """The same attention over latents: q [1, Hq, c, rank + rotated], one KV head of latents,
        and as values their first `rank` columns. Computed in at least float32."""
        module = call.module
        kept = torch.promote_types(call.q.dtype, torch.float32)
        latents = self._of[module][-1]
        if latents.shape[1] < call.k.shape[2]:  # those of this piece alone
            latents = torch.cat(self._of[module], dim=1)
        self._of[module] = [latents]
        latents = latents[:, None].to(kept)  # [1, 1, tokens, rank]
        nope = latent_parts(module).nope
        turned = call.k[:, :1, :, nope:].to(kept)
        q_nope = call.q[..., :nope].to(kept)
        q_turned = call.q[..., nope:].to(kept)
        q = torch.cat([q_nope @ _up(module, kept)[0], q_turned], dim=-1)
        return replace(call, q=q, k=torch.cat([latents, turned], dim=-1), v=latents)


def _up(module: torch.nn.Module, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """W_UK [1, Hq, nope, rank] and W_UV [1, Hq, dv, rank]."""
    parts = latent_parts(module)
    sizes = [parts.nope, parts.dv]
    heads = parts.expansion.to(dtype).reshape(1, -1, sum(sizes), parts.rank)
    up_k, up_v = torch.split(heads, sizes, dim=2)
    return up_k, up_v


def value_maps(module: torch.nn.Module, dtype: torch.dtype) -> torch.Tensor:
    """W_UV [Hq, dv, rank]: makes a head's value of a latent."""
    return _up(module, dtype)[1][0]


def answer_over(call: Call) -> torch.Tensor:
    """[1, c, Hq, rank]: the answer of an absorbed call, whose one KV head all query heads read."""
    heads = call.q.shape[1]
    # The model's own code repeats KV heads for the groups that its configuration has, here of one.
    spread = (1, heads // latent_parts(call.module).repeats, 1, 1)
    return replace(
        call, k=call.k.expand(-1, spread[1], -1, -1), v=call.v.expand(-1, spread[1], -1, -1)
    ).own_answer()


def expanded(module: torch.nn.Module, answer: torch.Tensor) -> torch.Tensor:
    """[1, c, Hq, dv] of an answer over latents."""
    up_v = _up(module, answer.dtype)[1]
    return (answer.transpose(1, 2) @ up_v.transpose(2, 3)).transpose(1, 2)
