"""The proof that a model answers here as it does by itself: its logits with the attention that is
listened to, against those with its own eager attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from format.dump_file import Fault

from export.attention_capture import (
    Call,
    device_of,
    is_heard_by_interface,
    listening,
    logits_of,
    most_heads,
    own_logits,
)

PROVEN_ROWS = 16
# Logits of one layer's attention, all heads, in the model's own code.
MAX_ELEMENTS = 1 << 27
FEW = 128  # tokens
LIMIT, LIMIT_16_BITS = 1e-3, 0.25


def _answer(call: Call) -> torch.Tensor:
    return call.own_answer()


def prove_last_rows(
    model: torch.nn.Module, ids: torch.Tensor, cache: Any, logits: torch.Tensor, rounded: bool
) -> None:
    """`logits` [c, vocabulary] of the last tokens of `ids` [n], which `cache` holds. The last rows
    are forgotten, and read again."""
    if not is_heard_by_interface(model):
        return
    rows = min(PROVEN_ROWS, len(logits))
    cache.crop(-rows)
    _compare(model, logits[-rows:], own_logits(model, ids[len(ids) - rows :], cache), rounded)


def prove_first_tokens(
    model: torch.nn.Module, ids: torch.Tensor, logits: torch.Tensor | None, rounded: bool
) -> None:
    """`logits` [n, vocabulary] of `ids` [n], read at once: all of them, or as many as memory holds,
    which are read again. None: few are read again."""
    if not is_heard_by_interface(model):
        return
    most = FEW if logits is None else math.isqrt(MAX_ELEMENTS // most_heads(model.config))
    first = ids[:most]
    if logits is None or len(first) < len(ids):
        with listening(_answer), torch.no_grad():
            answer = model(input_ids=first[None].to(device_of(model)), use_cache=False)
        logits = logits_of(answer)[0]
        rounded = False
    _compare(model, logits, own_logits(model, first), rounded)


def _compare(
    model: torch.nn.Module, logits: torch.Tensor, own: torch.Tensor, rounded: bool
) -> None:
    """Half of the rows agree: a single one may choose another expert by a rounding."""
    logits, own = logits.double(), own.double()
    apart = (logits - own).norm(dim=-1) / (own - own.mean(dim=-1, keepdim=True)).norm(dim=-1)
    middle = float(apart.nan_to_num(0.0).median())
    narrow = rounded or model.dtype in (torch.float16, torch.bfloat16)
    if not middle <= (LIMIT_16_BITS if narrow else LIMIT):
        raise Fault(
            f"{model.config.model_type}: with its own eager attention the model's logits differ by "
            f"{middle:.2g} of their size, so that not all of its attention is recorded; "
            "import_arrays.py takes q, k, v and out of code of your own"
        )
