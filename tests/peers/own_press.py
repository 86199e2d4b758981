"""Presses of this folder's own: kvpress's classes with one documented difference taken back."""

import math
from dataclasses import dataclass
from unittest import mock

import torch
from kvpress import CapPress, CompactorPress, FinchPress, ObservedAttentionPress, SnapKVPress


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


@dataclass
class DoubleCapPress(CapPress):
    """CapPress whose linear systems are solved in double precision: it names torch.float32."""

    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        with mock.patch.object(torch, "float32", torch.float64):
            return super().score(module, hidden_states, keys, values, attentions, kwargs)


@dataclass
class FinchScorePress(SnapKVPress):
    """FinchPress's score over a window of a given length: its own is that of a question, and it turns
    the kept keys to other positions."""

    normalize_scores = True

    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        return FinchPress.score(self, module, hidden_states, keys, values, attentions, kwargs)


@dataclass
class PlainCompactorPress(CompactorPress):
    """CompactorPress in double precision, with the keys themselves in place of their random sketch:
    sketch_dimension must be that of a key."""

    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        def identity(*shape, **options):
            return torch.eye(shape[-1], **options).expand(shape) * math.sqrt(shape[-1])

        with mock.patch.object(torch, "float32", torch.float64), \
                mock.patch.object(torch, "randn", identity):
            return super().score(module, hidden_states, keys, values, attentions, kwargs)
