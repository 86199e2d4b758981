"""Layers that read another layer's keys and values, and have no cache of their own (Gemma 3n)."""

from __future__ import annotations

import torch
from format.dump_file import Fault

from export.attention_capture import Call, device_of, listening


class KeyOwners:
    """Tells of each call which earlier layer made its keys and values, by their last token's."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def begin(self) -> None:
        """The next calls are about other tokens."""
        self._made.clear()

    def of(self, call: Call) -> int | None:
        """None: the layer itself."""
        k, v = call.k[:, :, -1], call.v[:, :, -1]
        for layer, (other_k, other_v) in self._made.items():
            if layer != call.layer and torch.equal(k, other_k) and torch.equal(v, other_v):
                return layer
        self._made[call.layer] = (k.clone(), v.clone())
        return None


def shared_layers(model: torch.nn.Module, ids: torch.Tensor) -> dict[int, int]:
    """By layer that reads another one's keys, that one."""
    owners, found = KeyOwners(), {}

    def listener(call: Call) -> torch.Tensor:
        owner = owners.of(call)
        if owner is not None:
            found[call.layer] = owner
        return call.own_answer()

    with listening(listener), torch.no_grad():
        model(input_ids=ids[None, :4].to(device_of(model)), use_cache=False)
    return found


def refuse_shared(model: torch.nn.Module, shared: dict[int, int]) -> None:
    """Refuses models whose layers a closed loop would compress more than once."""
    if shared:
        readers = ", ".join(f"{layer} those of layer {owner}" for layer, owner in shared.items())
        raise Fault(
            f"{model.config.model_type}: layers read other layers' keys and values ({readers}), "
            "and the closed loop compresses each layer by itself; use a model whose layers have "
            "caches of their own"
        )


def refuse_apart(shared: dict[int, int], chosen: frozenset[int]) -> None:
    """Refuses layers that are chosen without the layer whose keys they read."""
    for layer in sorted(chosen & set(shared)):
        if shared[layer] not in chosen:
            raise Fault(
                f"--layers: layer {layer} reads the keys and values of layer {shared[layer]}; "
                f"choose layer {shared[layer]} too"
            )
