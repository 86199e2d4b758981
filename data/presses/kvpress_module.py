"""Parts of a model that kvpress's presses read, made from a dump: an attention layer's prompt as
tensors, and the smallest object that replaces the layer's module."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import torch
from format.dump_file import Fault, Rope, Terms, decode, element_type


class Lacking(Fault, AttributeError):
    """Something of a model that a dump lacks: an AttributeError, so that hasattr() says no."""


WEIGHTS = "weights of the model, for which nothing stands in"
ROTATION = (
    "keys and queries before rotation, and the dump has no RoPE data of whole heads by halves"
)
REASONS = {"o_proj": WEIGHTS, "v_proj": WEIGHTS, "rotary_emb": ROTATION}


class Module:
    """Replaces a layer's attention module. A missing attribute raises Lacking with the reason."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)
        self.masked_key_indices: Any = None  # set by presses that keep different numbers per head

    def __getattr__(self, name: str) -> Any:
        raise Lacking(f"it reads module.{name}: {REASONS.get(name, 'nothing of a dump is that')}")


class Keywords(dict):
    """The keyword arguments of a layer's call, as far as a dump has them."""

    def __missing__(self, name: str) -> Any:
        raise Lacking(f"it reads {name} of the layer's call: a dump does not have that")


def turned_half(rows: torch.Tensor) -> torch.Tensor:
    """Rows [.., d] with halves exchanged and one sign turned, as "half" rotations pair them."""
    half = rows.shape[-1] // 2
    return torch.cat((-rows[..., half:], rows[..., :half]), dim=-1)


class Rotation:
    """cos and sin [1, n, d] of positions, times the attention scaling, as transformers has them."""

    def __init__(self, rope: Rope) -> None:
        self.scaling = rope.attention_scaling
        self.inv_freq = torch.tensor(rope.inv_freq, dtype=torch.float64)

    def __call__(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        angle = positions[..., None].double() * self.inv_freq
        angle = torch.cat((angle, angle), dim=-1)
        return tuple((f(angle) * self.scaling).to(x.dtype) for f in (torch.cos, torch.sin))

    def undo(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows [1, H, n, d] of positions 0 .. n - 1 before they were rotated."""
        cos, sin = self(rows, torch.arange(rows.shape[2])[None])
        return (rows * cos[:, None] - turned_half(rows) * sin[:, None]) / self.scaling**2


@dataclass(frozen=True)
class Layer:
    """The prompt of one layer in float64: q [1, Hq, P, d], rows that the dump lacks being NaN;
    k and v [1, Hkv, P, d]."""

    number: int
    n_layers: int
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    terms: Terms
    rotation: Rotation | None

    @property
    def prompt(self) -> int:
        return self.k.shape[2]

    def attentions(self, rows: int) -> torch.Tensor:
        """Causal attention weights [1, Hq, rows, P] of the last rows of the prompt."""
        group = self.q.shape[1] // self.k.shape[1]
        needed = 8 * 3 * self.q.shape[1] * rows * self.prompt
        if needed > available_bytes():
            raise Fault(
                f"it reads the attention of {rows} prompt rows, which takes "
                f"{needed / 1e9:.1f} GB of memory; replay fewer tokens (--tokens)"
            )
        x = self.terms.scale * self.q[:, :, -rows:] @ self.k.repeat_interleave(group, 1).mT
        if self.terms.softcap > 0:
            x = self.terms.softcap * (x / self.terms.softcap).tanh()
        row = torch.arange(self.prompt - rows, self.prompt)[:, None]
        return x.masked_fill_(torch.arange(self.prompt)[None] > row, -torch.inf).softmax(-1)

    def module(self) -> Module:
        """q_proj and k_proj take their parts of `hidden_states`."""
        query_columns = self.q.shape[1] * self.q.shape[3]
        heads, kv_heads = self.q.shape[1], self.k.shape[1]
        config = SimpleNamespace(
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            num_hidden_layers=self.n_layers,
            head_dim=self.q.shape[3],
            _attn_implementation="sdpa",
        )
        attributes = {
            "layer_idx": self.number,
            "head_dim": self.q.shape[3],
            "num_key_value_heads": kv_heads,
            "num_key_value_groups": heads // kv_heads,
            "scaling": self.terms.scale,
            "is_sliding": False,
            "config": config,
            "q_proj": lambda states: states[..., :query_columns],
        }
        if self.rotation is not None:
            attributes["rotary_emb"] = self.rotation

        def k_proj(states: torch.Tensor) -> torch.Tensor:
            if self.rotation is None:
                raise Lacking(f"it reads module.k_proj: {ROTATION}")
            return states[..., query_columns:]

        return Module(**attributes, k_proj=k_proj)

    def hidden_states(self) -> torch.Tensor:
        """[1, P, (Hq + Hkv) d]: what q_proj and k_proj would give, before rotation if the dump
        has RoPE data, else as the dump stores it."""
        q, k = self.q, self.k
        if self.rotation is not None:
            q, k = self.rotation.undo(q), self.rotation.undo(k)
        return torch.cat([t.transpose(1, 2).flatten(2) for t in (q, k)], dim=-1)

    def keywords(self, hidden_states: torch.Tensor) -> Keywords:
        """position_embeddings turn `hidden_states` into the queries of the dump."""
        if self.rotation is not None:
            turns = self.rotation(self.q, torch.arange(self.prompt)[None])
        else:
            shape = (1, self.prompt, self.q.shape[3])
            turns = torch.ones(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
        return Keywords(hidden_states=hidden_states, position_embeddings=turns)


def available_bytes() -> float:
    info = Path("/proc/meminfo")
    match = re.search(r"MemAvailable: +(\d+) kB", info.read_text() if info.is_file() else "")
    return 1024.0 * int(match[1]) if match else float("inf")


def rope_of(layer: h5py.Group) -> Rope | None:
    group = layer.get("rope", layer.file.get("rope"))
    if group is None:
        return None
    return Rope(
        tuple(group["inv_freq"][:].tolist()),
        float(group.attrs["theta"]),
        str(group.attrs["layout"]),
        float(group.attrs["attention_scaling"]),
    )


def rotation_of(layer: h5py.Group) -> Rotation | None:
    """kvpress rotates whole heads, halves paired; any other rotation is as good as none."""
    rope = rope_of(layer)
    if rope is None or rope.layout != "half" or 2 * len(rope.inv_freq) != layer["k"].shape[2]:
        return None
    return Rotation(rope)


def read_layer(layer: h5py.Group, prompt: int) -> Layer:
    """The first `prompt` tokens of a layer's group in a dump."""
    if layer["v"].shape[2] != layer["k"].shape[2]:
        raise Fault(
            f"{layer.name}: values have {layer['v'].shape[2]} columns and keys "
            f"{layer['k'].shape[2]}; kvpress needs equal numbers"
        )

    def rows(name: str, first: int, last: int) -> torch.Tensor:
        numbers = decode(layer[name][:, first:last], element_type(layer[name]))
        return torch.from_numpy(np.ascontiguousarray(numbers))[None]

    lacking = layer["k"].shape[1] - layer["q"].shape[1]  # rows before the first that is stored
    stored = rows("q", 0, max(0, prompt - lacking))
    q = torch.full((1, stored.shape[1], prompt, stored.shape[3]), torch.nan, dtype=torch.float64)
    q[:, :, prompt - stored.shape[2] :] = stored
    return Layer(
        int(layer.name.rsplit("/", 1)[1]),
        int(layer.file.attrs["n_layers"]),
        q,
        rows("k", 0, prompt),
        rows("v", 0, prompt),
        Terms(
            float(layer.attrs["scale"]),
            int(layer.attrs["sliding_window"]),
            float(layer.attrs["logit_softcap"]),
        ),
        rotation_of(layer),
    )
