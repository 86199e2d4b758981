"""Presses of this folder's own: kvpress's classes with one documented difference taken back."""

from dataclasses import dataclass

import torch
from kvpress import ObservedAttentionPress


@dataclass
class SummedAttentionPress(ObservedAttentionPress):
    """ObservedAttentionPress without its division by the rows that see a token, and with a window
    of recent tokens: h2o's rule."""

    recent: int = 0

    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        scores = super().score(module, hidden_states, keys, values, attentions, kwargs)
        scores = scores * torch.arange(keys.shape[2], 0, -1)
        if self.recent:
            scores[..., -self.recent:] = scores.max() + 1
        return scores
