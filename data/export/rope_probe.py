"""Finds out how a model turns queries and keys with their positions, and proves it.

A model is run twice on a few tokens, the second time at later positions, with the first run's
attention outputs played back: all layers then see the same hidden states, and keys and queries
differ by the rotation alone. Only RoPE data that explains the difference is believed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import torch
from format.dump_file import Fault, Rope

from export.attention_capture import (
    Call,
    device_of,
    key_projections,
    listening,
    position_arguments,
    rotary_modules,
    rotations_of,
)
from export.whole_rotation import whole_rotation

PROBED = 16


def find_ropes(model: torch.nn.Module, ids: torch.Tensor) -> dict[int, Rope | None]:
    """Per layer whose attention is recorded, the rotation at this length; None if there is none
    or the format cannot express it (learned positions, other dimensions than the first). `ids`
    [n], n >= 4."""
    probed = _probed(ids)
    later = len(ids) - 1 - probed
    # The last position is the same in both runs: frequencies that depend on the length are then
    # those of the whole sequence.
    last = torch.tensor([len(ids) - 1])
    tokens = ids[: probed + 1]
    start = torch.arange(probed)
    with whole_rotation(model, len(ids)):
        try:
            before, outputs = _run(model, tokens, torch.cat([start, last]), None)
            after, _ = _run(model, tokens, torch.cat([start + later, last]), outputs)
        except (IndexError, RuntimeError) as error:
            if "out of bounds" not in str(error):
                raise
            raise Fault(
                f"{model.config.model_type}: it does not read tokens that are apart "
                f"({str(error).splitlines()[0]}), by which its rotation is found; "
                "import_arrays.py takes q, k, v and out of code of your own"
            ) from error
        candidates = rotations_of(model)
    limit = 1e-3 + 2 * torch.finfo(model.dtype).eps + later * 2.0**-23
    return {
        layer: _explain(before[layer], after[layer], later, candidates, limit)
        for layer in before
        if layer in after
    }


def find_key_biases(
    model: torch.nn.Module, ids: torch.Tensor, ropes: dict[int, Rope | None], start: int = 0
) -> dict[int, np.ndarray]:
    """[Hkv, d] per layer: the bias of k_proj, as the key of token 0 has it; the rotation turns it
    further for later ones. Only for layers whose keys are proved to be k_proj's answers, turned: a
    norm between them would change the bias with them. `start`: position of token 0; `ropes`: as
    found; `ids` [n], n >= 4."""
    given: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # answers of k_proj, and its bias

    def hear(layer: int) -> Callable[..., None]:
        def keep(module: torch.nn.Module, _: object, out: torch.Tensor) -> None:
            given.setdefault(layer, (out[0, :-1], module.bias))

        return keep

    hooks = [each.register_forward_hook(hear(layer)) for layer, each in key_projections(model)]
    if not hooks:
        return {}
    probed = _probed(ids)
    positions = torch.cat([torch.arange(probed), torch.tensor([len(ids) - 1])]) + start
    try:
        with whole_rotation(model, len(ids)):
            seen, _ = _run(model, ids[: probed + 1], positions, None)
    finally:
        for hook in hooks:
            hook.remove()
    found = {}
    for layer, (out, bias) in given.items():
        keys = seen[layer][1] if layer in seen else np.empty((0, 0, 0))
        heads, _, d = keys.shape
        if bias.device.type == "meta" or out.shape[-1] != heads * d:
            continue
        rope = ropes.get(layer) or Rope((), 0.0, "half")
        rows = rope.attention_scaling * np.concatenate(
            [each.detach().double().cpu().numpy() for each in (bias[None], out)]
        ).reshape(-1, heads, d)
        turned = np.stack([rope.turn(row, start + j) for j, row in enumerate(rows[1:])], axis=1)
        limit = 1e-3 + 2 * torch.finfo(model.dtype).eps + start * 2.0**-23
        if np.linalg.norm(turned - keys) <= limit * np.linalg.norm(keys):
            found[layer] = rope.turn(rows[0], start)
    return found


def refuse_pieces(model: torch.nn.Module, ids: torch.Tensor) -> None:
    """Refuses to read a text `ids` [n] in pieces if first tokens are turned otherwise then."""
    with whole_rotation(model, len(ids)):
        same = _same_start(model, ids, [_probed(ids) + 1, len(ids)])
    if not same:
        raise Fault(
            f"{model.config.model_type}: its rotation depends on how much of the text was read, so "
            "that pieces differ from the whole; --chunk 0 reads all tokens at once"
        )


def refuse_changing_rotation(model: torch.nn.Module, ids: torch.Tensor, tokens: int) -> None:
    """Refuses to go on after keys that are cached, where `tokens` tokens are turned otherwise than
    the first few; `ids` [n] are some of them."""
    least = _probed(ids) + 1
    same, other = least, tokens
    if _agree(model, ids, least, tokens):
        return
    while other - same > 1:
        middle = (same + other) // 2
        if _agree(model, ids, least, middle):
            same = middle
        else:
            other = middle
    kinds = sorted({kind for _, some in rotary_modules(model) for kind in some})
    raise Fault(
        f"{model.config.model_type}: its rotation (rope_type {', '.join(kinds)}) changes after "
        f"{same} tokens, which turns keys that are cached already otherwise, and {tokens} are "
        f"read; give --tokens {same}"
    )


def _agree(model: torch.nn.Module, ids: torch.Tensor, one: int, other: int) -> bool:
    """Whether texts of so many tokens turn the first ones alike."""
    return _same_start(model, ids, [one, other], fresh=True)


def _same_start(
    model: torch.nn.Module, ids: torch.Tensor, lengths: list[int], fresh: bool = False
) -> bool:
    """Whether first tokens have the same queries and keys before a last token at the end of texts
    of such lengths. `fresh`: each text is turned as if nothing had been read before."""
    probed = _probed(ids)
    seen: list[dict[int, Turned]] = []
    outputs: list[torch.Tensor] | None = None
    for length in lengths:
        positions = torch.cat([torch.arange(probed), torch.tensor([length - 1])])
        with whole_rotation(model, length) if fresh else nullcontext():
            turned, outputs = _run(model, ids[: probed + 1], positions, outputs)
        seen.append(turned)
    return all(
        np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(a)
        for layer, one in seen[0].items()
        for a, b in zip(one, seen[1][layer], strict=True)
    )


def _probed(ids: torch.Tensor) -> int:
    return min(PROBED, len(ids) // 2 - 1)


Turned = tuple[np.ndarray, np.ndarray]


def _run(
    model: torch.nn.Module,
    ids: torch.Tensor,
    positions: torch.Tensor,
    outputs: list[torch.Tensor] | None,
) -> tuple[dict[int, Turned], list[torch.Tensor]]:
    """q and k per layer except the last token's, and what each call of attention was answered;
    of a layer that attends more than once, q and k of its first call."""
    seen: dict[int, Turned] = {}
    answers: list[torch.Tensor] = []

    def listener(call: Call) -> torch.Tensor:
        q_and_k = tuple(t[0, :, :-1].double().cpu().numpy() for t in (call.q, call.k))
        seen.setdefault(call.layer, q_and_k)
        answers.append(outputs[len(answers)] if outputs else call.own_answer())
        return answers[-1]

    with listening(listener), torch.no_grad():
        model(
            input_ids=ids[None].to(device_of(model)),
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
