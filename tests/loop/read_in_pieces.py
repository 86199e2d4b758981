"""A small Llama in numpy that reads its prompt in pieces and evicts after each: written apart from
the closed loop, and with none of its code, for tests/loop/pieces_test.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

# (attention [G, rows, held] of the piece's rows, held tokens) -> places among them that stay.
Choice = Callable[[np.ndarray], np.ndarray]


def streaming_llm(budget: int, sinks: int) -> Choice:
    """Makes room for the next token: budget - 1 stay."""
    def choose(attention: np.ndarray) -> np.ndarray:
        held = np.arange(attention.shape[2])
        return held if len(held) < budget else np.concatenate(
            (held[:sinks], held[len(held) - (budget - 1 - sinks):]))
    return choose


def snapkv(budget: int, window: int, kernel: int) -> Choice:
    def choose(attention: np.ndarray) -> np.ndarray:
        count = attention.shape[2]
        if count <= budget:
            return np.arange(count)
        score = attention[:, -window:].sum(axis=1).mean(axis=0)[:count - window]
        pooled = np.array([score[max(0, at - kernel // 2):at + kernel // 2 + 1].max()
                           for at in range(len(score))])
        best = sorted(range(len(pooled)), key=lambda at: (-pooled[at], at))[:budget - window]
        return np.array([*sorted(best), *range(count - window, count)])
    return choose


def _normed(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    return weight * x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon)


class Program:
    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {name: each.astype(np.float64)
                        for name, each in load_file(folder / "model.safetensors").items()}

    def _turned(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        half = x.shape[-1] // 2
        theta = self.config["rope_parameters"]["rope_theta"]
        angle = positions[:, None] * theta ** (-np.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate((a * np.cos(angle) - b * np.sin(angle),
                               b * np.cos(angle) + a * np.sin(angle)), axis=-1)

    def logits(self, ids: np.ndarray, pieces: list[int], choice: Choice,
               rolls: tuple[int, int] | None) -> np.ndarray:
        """Logits of the last piece's tokens, which are decoded: all of them are kept, or, with `rolls` (budget,
        sinks), a row sees the first `sinks` and the last others of a cache of `budget` tokens."""
        c, w = self.config, self.weights
        heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
        d, group = c["hidden_size"] // heads, heads // kv_heads
        cache = [[(np.zeros((0, d)), np.zeros((0, d)))] * kv_heads for _ in range(c["num_hidden_layers"])]
        first, logits = 0, np.zeros(0)
        for number, rows in enumerate(pieces):
            positions = np.arange(first, first + rows)
            x = w["model.embed_tokens.weight"][ids[positions]]
            for layer in range(c["num_hidden_layers"]):
                at = f"model.layers.{layer}."
                y = _normed(x, w[at + "input_layernorm.weight"], c["rms_norm_eps"])
                q, k, v = ((y @ w[f"{at}self_attn.{name}_proj.weight"].T).reshape(rows, -1, d).transpose(1, 0, 2)
                           for name in "qkv")
                q, k = self._turned(q, positions), self._turned(k, positions)
                answers = []
                for head in range(kv_heads):
                    keys, values = (np.concatenate((old, new[head])) for old, new in
                                    zip(cache[layer][head], (k, v), strict=True))
                    past = len(keys) - rows
                    place, row = np.arange(len(keys)), past + np.arange(rows)[:, None]
                    seen = place <= row
                    if number == len(pieces) - 1 and rolls:
                        seen &= (place < rolls[1]) | (place > row - (rolls[0] - rolls[1]))
                    x_ = q[head * group:(head + 1) * group] @ keys.T / np.sqrt(d)
                    e = np.where(seen, np.exp(x_ - x_.max(axis=-1, keepdims=True)), 0.0)
                    attention = e / e.sum(axis=-1, keepdims=True)
                    answers.append(attention @ values)
                    stay = choice(attention) if number < len(pieces) - 1 else place
                    cache[layer][head] = (keys[stay], values[stay])
                out = np.concatenate(answers).transpose(1, 0, 2).reshape(rows, -1)
                x = x + out @ w[at + "self_attn.o_proj.weight"].T
                y = _normed(x, w[at + "post_attention_layernorm.weight"], c["rms_norm_eps"])
                gate = y @ w[at + "mlp.gate_proj.weight"].T
                x = x + (gate / (1 + np.exp(-gate)) * (y @ w[at + "mlp.up_proj.weight"].T)) @ w[
                    at + "mlp.down_proj.weight"].T
            x = _normed(x, w["model.norm.weight"], c["rms_norm_eps"])
            logits = x @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T
            first += rows
        return logits
