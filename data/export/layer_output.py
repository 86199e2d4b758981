"""Outputs of a model's layers from their heads' answers: the output projection W_O, the residual
stream that it is added to, and the proof that both belong to the answers of a dump."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from format.dump_file import TOLERANCE, Fault, relative_difference

from export.attention_capture import (
    PROJECTIONS,
    Call,
    layer_of,
    projection_bias,
    projection_of,
    projection_weight,
)
from export.latent_attention import value_maps


def projection_by_head(
    of_heads: Call, absorbed: bool = False, option: str = "--wo"
) -> torch.Tensor:
    """[Hq, dv, hidden]: what a layer's output projection makes of each query head's answer, in the
    type of its weights. `of_heads`: a call with the values that the projection is made for;
    `absorbed`: of answers over latents (latent_attention.py), in at least float32. A Fault speaks
    of `option`, which asked for it."""
    place = f"layer {of_heads.layer} ({type(of_heads.module).__name__})"
    weight = projection_weight(of_heads.module)
    if weight is None:
        raise Fault(
            f"{place} has no output projection that {option} knows ({', '.join(PROJECTIONS)}); "
            f"leave {option} out"
        )
    heads, dv = of_heads.q.shape[1], of_heads.v.shape[3]
    if weight.shape[0] != heads * dv:
        raise Fault(
            f"{place} projects {weight.shape[0]} inputs where its {heads} heads answer with "
            f"{dv} numbers each; leave {option} out"
        )
    by_head = weight.reshape(heads, dv, -1)
    if not absorbed:
        return by_head
    kept = torch.promote_types(weight.dtype, torch.float32)
    return value_maps(of_heads.module, kept).transpose(1, 2) @ by_head.to(kept)


def wo_norms(call: Call, tokens: slice) -> torch.Tensor:
    """[Hq, R, 1]: |W_O,g^T v_j|_1 of each query head g and token j, W_O,g being the part of the
    output projection that reads the head's answer; in float32."""
    blocks = projection_by_head(call, option="--wo-norms").to(torch.float32)
    group = len(blocks) // call.k.shape[1]
    v = call.v[0, :, tokens].to(torch.float32)
    norms = [
        (v[g // group] @ block).abs().sum(dim=-1, keepdim=True) for g, block in enumerate(blocks)
    ]
    return torch.stack(norms)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """In at least float32, exactly."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32)).cpu().numpy()


@dataclass
class LayerOutputs:
    """Hears what the attention modules of some layers give, and the streams it is added to.

    norms: per layer, 2-norms of the residual stream before the block's attention output is added,
    of all positions read so far, piece by piece. outputs: of the piece being read, [c, hidden].
    proofs: what is to be shown of it.
    """

    layers: frozenset[int]
    norms: dict[int, list[np.ndarray]] = field(default_factory=dict)
    outputs: dict[int, torch.Tensor] = field(default_factory=dict)
    proofs: list[Callable[[], None]] = field(default_factory=list)

    @contextmanager
    def listening(self, model: torch.nn.Module) -> Iterator[None]:
        """Inside, the model's layers are recorded."""
        modules = dict(model.named_modules())
        hooks = []
        for name, module in modules.items():
            layer = layer_of(module)
            if layer is None or layer not in self.layers or projection_of(module) is None:
                continue
            block = modules[name.rpartition(".")[0]]
            hooks.append(
                block.register_forward_pre_hook(self._hear_stream(layer), with_kwargs=True)
            )
            hooks.append(module.register_forward_hook(self._hear_output(layer)))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _hear_stream(self, layer: int) -> Callable[[torch.nn.Module, tuple, dict], None]:
        def hear(_: torch.nn.Module, given: tuple, named: dict) -> None:
            stream = given[0] if given else named["hidden_states"]
            if stream.dim() != 3 or stream.shape[0] != 1:
                raise Fault(
                    f"layer {layer}: its block is given a residual stream of the shape "
                    f"{tuple(stream.shape)}, not one vector per token; several streams have no "
                    "norm that a dump holds: leave --wo out"
                )
            norms = torch.linalg.vector_norm(stream.detach()[0].double(), dim=-1)
            self.norms.setdefault(layer, []).append(norms.cpu().numpy())

        return hear

    def _hear_output(self, layer: int) -> Callable[[torch.nn.Module, tuple, Any], None]:
        def hear(_: torch.nn.Module, __: tuple, output: Any) -> None:
            own = output[0] if isinstance(output, tuple) else output
            self.outputs[layer] = own.detach()[0]

        return hear

    def expect(self, of_heads: Call, wo: torch.Tensor, out: np.ndarray) -> None:
        """The module that is answering now will give sum_h W_h a_h in the piece's last rows, with
        wo [Hq, dv, hidden] and answers out [Hq, R, dv]."""
        module, layer = of_heads.module, of_heads.layer
        self.proofs.append(lambda: self._prove(module, layer, wo, out))

    def prove(self) -> None:
        """Checks the piece that was read. Raises Fault."""
        while self.proofs:
            self.proofs.pop()()
        self.outputs.clear()

    def _prove(
        self, module: torch.nn.Module, layer: int, wo: torch.Tensor, out: np.ndarray
    ) -> None:
        place = f"layer {layer} ({type(module).__name__})"
        given = self.outputs[layer][-out.shape[1] :]
        bias = projection_bias(module)
        computed = np.einsum("hrv,hvc->rc", out.astype(np.float64), as_numpy(wo.double()))
        if bias is not None:
            computed += bias.detach().double().cpu().numpy()
        # A projection in 16 bits rounds answers, products and sums.
        limit = TOLERANCE
        if given.dtype in (torch.float16, torch.bfloat16):
            limit = 8 * torch.finfo(given.dtype).eps
        difference = relative_difference(computed, given.double().cpu().numpy())
        if not difference <= limit:
            raise Fault(
                f"{place}: its output differs by {difference:.2g} from the sum of its heads' "
                "answers through its output projection: it does something else with them, which "
                "--wo cannot store; leave --wo out"
            )

    def residual_norms(self, layer: int) -> np.ndarray:
        """[positions read so far]"""
        if layer not in self.norms:
            raise Fault(
                f"layer {layer}: its block has several attentions, and the residual stream of each "
                "is not known here; leave --wo out"
            )
        return np.concatenate(self.norms[layer])
