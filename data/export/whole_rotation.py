"""Rotations that depend on a text's length (longrope, dynamic NTK): read in pieces, a text is
turned as it is in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from export.attention_capture import rotary_modules


def changes_with_length(kinds: set[str]) -> bool:
    """Whether rotations of such types depend on a text's last position."""
    return any("dynamic" in kind or kind == "longrope" for kind in kinds)


@contextmanager
def whole_rotation(model: torch.nn.Module, tokens: int) -> Iterator[None]:
    """Inside, rotations are those of a text of `tokens` tokens, whatever was read before."""
    hooks = []
    for module, kinds in rotary_modules(model):
        _forget(module)
        if changes_with_length(kinds):
            turned = _Turned(tokens)
            hooks.append(module.register_forward_pre_hook(turned.lengthen, with_kwargs=True))
            hooks.append(module.register_forward_hook(turned.shorten))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _forget(module: torch.nn.Module) -> None:
    """The longest text that a dynamic rotation has seen so far."""
    for name, original in list(module.named_buffers(recurse=False)):
        prefix, found, _ = name.partition("original_inv_freq")
        if found:
            module.register_buffer(f"{prefix}inv_freq", original.clone(), persistent=False)
            for seen in (f"{prefix}max_seq_len_cached", "max_seq_len_cached"):
                if hasattr(module, seen):
                    setattr(module, seen, module.original_max_seq_len)


class _Turned:
    """Hands a rotary module the text's last position behind those that it is asked for."""

    def __init__(self, tokens: int) -> None:
        self._last, self._added = tokens - 1, 0

    def lengthen(self, _: torch.nn.Module, given: tuple, named: dict) -> tuple[tuple, dict]:
        positions = named["position_ids"] if "position_ids" in named else given[1]
        self._added = int(int(positions.max()) < self._last)
        if self._added:
            last = torch.full_like(positions[..., :1], self._last)
            positions = torch.cat([positions, last], dim=-1)
            if "position_ids" in named:
                named = {**named, "position_ids": positions}
            else:
                given = (given[0], positions, *given[2:])
        return given, named

    def shorten(self, _: torch.nn.Module, __: tuple, turned: Any) -> Any:
        if not self._added:
            return turned
        if isinstance(turned, torch.Tensor):
            return turned[..., :-1, :]
        return tuple(each[..., :-1, :] for each in turned)
