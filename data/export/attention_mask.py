"""Parts of a model's additive masks and biases that the dump format can hold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from format.dump_file import Fault

HIDDEN = -1e8  # added to a logit, leaves nothing of it


@dataclass(frozen=True)
class Mask:
    """Which tokens rows see, as far as some of them show it."""

    window: int = 0  # 0: none has been reached
    chunk: int = 0  # likewise
    causal: bool = True


def mask_of(mask: torch.Tensor | None, rows: int, tokens: int, chunk: int = 0) -> Mask:
    """Tokens that an additive mask [1, 1 or Hq, rows, tokens] leaves; the rows are the last of
    `tokens`. `chunk`: the length of chunks in the model's configuration, 0: none. Refuses, by name,
    every mask that is neither causal, whole or within a window or chunks, nor hides nothing."""
    if mask is None:
        return Mask(causal=rows == 1)
    if tuple(mask.shape[-2:]) != (rows, tokens):
        raise Fault(
            f"a mask for {mask.shape[-2]} rows and {mask.shape[-1]} tokens where "
            f"{rows} and {tokens} are attended to"
        )
    masks = mask[0] if mask.shape[1] == 1 else mask[0].unbind()
    kinds = {_head_mask(each, tokens - rows, chunk) for each in masks}
    if len(kinds) > 1:
        raise Fault("heads with different masks, which the dump format cannot hold")
    return kinds.pop()


def _head_mask(mask: torch.Tensor, past: int, chunk: int) -> Mask:
    seen = mask == 0
    if not (seen | (mask <= max(torch.finfo(mask.dtype).min / 2, HIDDEN))).all():
        raise Fault(
            "a bias in its mask (ALiBi or another relative bias), which the dump format cannot hold"
        )
    if mask.shape[0] > 1 and bool(seen.all()):
        return Mask(causal=False)
    position = past + torch.arange(mask.shape[0], device=mask.device)
    first = seen.to(torch.uint8).argmax(dim=1)
    if bool(seen.flip(1).to(torch.uint8).argmax(dim=1).ne(mask.shape[1] - 1 - position).any()):
        raise Fault("a mask that is not causal: rows see later tokens, or not themselves")
    if bool((seen.sum(dim=1) != position - first + 1).any()):
        raise Fault(
            "a mask with holes (padding, packed sequences or sparse attention), which the "
            "dump format cannot hold"
        )
    cut = first > 0
    if not cut.any():
        return Mask()
    if chunk > 0 and bool((first == position // chunk * chunk).all()):
        return Mask(chunk=chunk)
    span = position - first + 1
    window = int(span.max())
    if bool((span[cut] == window).all()):
        return Mask(window=window)
    raise Fault(
        "a mask that is neither causal nor a sliding window nor made of the model's chunks, which "
        "the dump format cannot hold"
    )


def slopes_of(bias: torch.Tensor | None, where: str) -> torch.Tensor | None:
    """[Hq]: ALiBi's slopes, in double precision, of a bias [Hq, tokens] by key that layer `where`
    adds; None without one, or of one token, which does not show them."""
    if bias is None or bias.shape[1] < 2:
        return None
    exact = bias.detach().double().cpu()
    token = torch.arange(exact.shape[1])
    # A step next to a token whose bias is 0, the first or the last, is the slope itself, unrounded.
    if bool((exact[:, -1] == 0).all()):
        slopes = exact[:, -1] - exact[:, -2]
        expected = slopes[:, None] * (token - token[-1])
    else:
        slopes = exact[:, 1] - exact[:, 0]
        expected = slopes[:, None] * token + exact[:, :1]
    difference = float((exact - expected).abs().max())
    if difference > 1e-6 * float(exact.abs().max()):
        raise Fault(
            f"{where} has a bias by key that is not a slope times the position (off by "
            f"{difference:.2g}), as {bias.dtype} rounds it; --compute-dtype float32 keeps it whole"
        )
    return slopes
