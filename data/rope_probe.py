"""Finds out how a model turns queries and keys with their positions, and proves it.

A model is run twice on a few tokens, the second time at later positions, with the first run's
attention outputs played back: all layers then see the same hidden states, and keys and queries
differ by the rotation alone. Only RoPE data that explains the difference is believed.
"""

from __future__ import annotations

import numpy as np
import torch
from attention_capture import Call, listening, position_arguments, rotations_of
from dump_file import Rope

PROBED = 16


def find_ropes(model: torch.nn.Module, ids: torch.Tensor) -> dict[int, Rope | None]:
    """Per layer whose attention is heard, the rotation at this length; None if there is none
    or the format cannot express it (learned positions, other dimensions than the first). `ids`
    [n], n >= 4."""
    probed = min(PROBED, len(ids) // 2 - 1)
    later = len(ids) - 1 - probed
    # The last position stands in both runs: frequencies that depend on the length are then those
    # of the whole sequence.
    last = torch.tensor([len(ids) - 1])
    tokens = ids[: probed + 1]
    start = torch.arange(probed)
    before, outputs = _run(model, tokens, torch.cat([start, last]), None)
    after, _ = _run(model, tokens, torch.cat([start + later, last]), outputs)
    candidates = rotations_of(model)
    limit = 1e-3 + 2 * torch.finfo(model.dtype).eps + later * 2.0**-23
    return {
        layer: _explain(before[layer], after[layer], later, candidates, limit)
        for layer in before
        if layer in after
    }


Turned = tuple[np.ndarray, np.ndarray]


def _run(
    model: torch.nn.Module,
    ids: torch.Tensor,
    positions: torch.Tensor,
    outputs: dict[int, torch.Tensor] | None,
) -> tuple[dict[int, Turned], dict[int, torch.Tensor]]:
    """q and k per layer but for the last token, and what attention answered."""
    seen: dict[int, Turned] = {}
    answers: dict[int, torch.Tensor] = {}

    def listener(call: Call) -> torch.Tensor:
        seen[call.layer] = tuple(t[0, :, :-1].double().cpu().numpy() for t in (call.q, call.k))
        answers[call.layer] = outputs[call.layer] if outputs else call.own_answer()
        return answers[call.layer]

    with listening(listener), torch.no_grad():
        model(
            input_ids=ids[None].to(model.device),
            use_cache=False,
            **position_arguments(model, positions),
        )
    return seen, answers


def _explain(
    before: Turned, after: Turned, later: int, candidates: list[Rope], limit: float
) -> Rope | None:
    def distance(rope: Rope | None) -> float:
        moved = [rope.turn(t, later) if rope else t for t in before]
        return max(
            float(np.linalg.norm(m - t) / np.linalg.norm(t))
            for m, t in zip(moved, after, strict=True)
        )

    if distance(None) <= limit / 10:
        return None
    fitting = [rope for rope in candidates if 2 * len(rope.inv_freq) <= before[1].shape[-1]]
    best = min(fitting, key=distance, default=None)
    return best if best and distance(best) <= limit else None
