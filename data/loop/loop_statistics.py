"""How far next-token distributions are from those of the full cache, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

# Elements of a block of log-probabilities in float64.
BLOCK_ELEMENTS = 1 << 22
TOP = 5


@dataclass(frozen=True)
class Rows:
    """Per decoded row r, a token after which the next one is predicted. All arrays [R].

    kl: sum p (ln p - ln q) in nats, p of the full cache and q of the compressed one. same_top:
    whether both have the same most likely token. shared_top: the share of the five most likely
    tokens of the full cache that are among the five of the compressed one. surprise_full,
    surprise: -ln p and -ln q of the token that the text goes on with, NaN in the last row, whose
    next token is not known.
    """

    kl: np.ndarray
    same_top: np.ndarray
    shared_top: np.ndarray
    surprise_full: np.ndarray
    surprise: np.ndarray


def compared(full: torch.Tensor, compressed: torch.Tensor, ids: torch.Tensor) -> Rows:
    """Logits [R, vocabulary] of the tokens `ids` [R], with the full cache and a compressed one."""
    count, vocabulary = full.shape
    step = max(1, BLOCK_ELEMENTS // vocabulary)
    blocks = [
        _block(full[at : at + step], compressed[at : at + step], ids[at + 1 : at + step + 1])
        for at in range(0, count, step)
    ]
    return Rows(*(np.concatenate(column) for column in zip(*blocks, strict=True)))


def _block(full: torch.Tensor, compressed: torch.Tensor, following: torch.Tensor) -> tuple:
    p, q = (torch.log_softmax(logits.double(), dim=-1) for logits in (full, compressed))
    top_p, top_q = (each.topk(min(TOP, each.shape[1]), dim=-1).indices for each in (p, q))
    shared = (top_p[:, :, None] == top_q[:, None, :]).any(dim=-1).double().mean(dim=-1)
    kl = (p.exp() * (p - q)).sum(dim=-1)
    known = torch.arange(len(following))
    surprise = torch.full((2, len(p)), math.nan, dtype=torch.float64)
    for row, each in zip(surprise, (p, q), strict=True):
        row[: len(following)] = -each[known, following.to(each.device)].cpu()
    same = (p.argmax(dim=-1) == q.argmax(dim=-1)).double()
    return (*(each.cpu().numpy() for each in (kl, same, shared)), *surprise.numpy())


def standard_error(values: np.ndarray) -> float | None:
    """Standard error of a mean of consecutive rows, which resemble one another: from the means of
    round(sqrt(R)) blocks of consecutive rows. None if there are fewer than two blocks."""
    blocks = round(math.sqrt(len(values)))
    if blocks < 2:
        return None
    means = np.array([each.mean() for each in np.array_split(values, blocks)])
    return float(means.std(ddof=1) / math.sqrt(blocks))


def mean_of(values: np.ndarray) -> dict[str, float | None]:
    return {"mean": float(values.mean()), "se": standard_error(values)}


def summary(rows: Rows) -> dict:
    """Members of a record of loop.json about the model's answers (LOOP.md)."""
    known = ~np.isnan(rows.surprise)
    result: dict = {
        "rows": len(rows.kl),
        "kl": {
            **mean_of(rows.kl),
            "median": float(np.median(rows.kl)),
            "p99": float(np.quantile(rows.kl, 0.99)),
            "max": float(rows.kl.max()),
        },
        "same_top1": mean_of(rows.same_top),
        "same_top5": mean_of(rows.shared_top),
        "perplexity": None,
    }
    if known.any():
        apart = mean_of((rows.surprise - rows.surprise_full)[known])
        ratio = math.exp(apart["mean"] or 0.0)
        error = apart["se"]
        result["perplexity"] = {
            "full": math.exp(rows.surprise_full[known].mean()),
            "compressed": math.exp(rows.surprise[known].mean()),
            "ratio": ratio,
            "ratio_se": None if error is None else ratio * error,
        }
    return result
