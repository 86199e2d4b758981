"""Programs that a user of torch would run: its fused attention, whole softmax matrices, and the
walk of BalanceKV as its authors formulate it, all blocks in step."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from head import ROWS
from peer import peer

BLOCK, GAMMA, TEMPERATURE, VALUE_OFFSET = 256, 4.0, 0.1, 0.025


def outputs(result):
    return {"outputs": float(result.abs().sum())}


def batched(head, dtype=torch.float64):
    return (torch.from_numpy(x).to(dtype)[None, None] for x in (head.q, head.k, head.v))


@peer("exact", "torch fused, double", outputs)
@peer("exact_wide", "torch fused, double", outputs)
def exact(head):
    q, k, v = batched(head)
    return lambda: scaled_dot_product_attention(q, k, v, is_causal=True, scale=head.scale)


@peer("exact_last", "torch fused, double", outputs)
def exact_last(head):
    q, k, v = batched(head)
    n = head.tokens
    hidden = torch.ones(ROWS, n, dtype=torch.bool).triu(n - ROWS + 1)
    mask = torch.zeros(ROWS, n, dtype=torch.float64).masked_fill(hidden, -torch.inf)
    rows = q[:, :, n - ROWS:].contiguous()
    return lambda: scaled_dot_product_attention(rows, k, v, attn_mask=mask, scale=head.scale)


def sums(result):
    return {"total": float(result.sum()), "largest": float(result.max())}


def total(result):
    return {"total": float(result.sum())}


def whole_scores(head, noise):
    q, k = (torch.from_numpy(x).float() for x in (head.q, head.k))
    hidden = torch.ones(head.tokens, head.tokens, dtype=torch.bool).triu(1)

    def run():
        x = (q @ k.T) * head.scale
        if noise is not None:
            x += noise
        return torch.softmax(x.masked_fill_(hidden, -torch.inf), dim=-1).sum(0)
    return run


def blocked_scores(head, noise, block=512):
    q, k = (torch.from_numpy(x).float() for x in (head.q, head.k))
    n = head.tokens
    hidden = torch.ones(block, block, dtype=torch.bool).triu(1)

    def run():
        scores = torch.zeros(n)
        for first in range(0, n, block):
            last = min(first + block, n)
            x = (q[first:last] @ k[:last].T).mul_(head.scale)
            if noise is not None:
                x += noise[:last]
            x[:, first:].masked_fill_(hidden[:last - first, :last - first], -torch.inf)
            scores[:last] += torch.softmax(x, dim=-1).sum(0)
        return scores
    return run


def gumbel(head):
    u = torch.rand(head.tokens, generator=torch.Generator().manual_seed(1))
    return -torch.log(-torch.log(u))


@peer("scores", "torch softmax, float", sums)
def scores_whole(head):
    return whole_scores(head, None)


@peer("scores", "torch row blocks, float", sums)
def scores_blocked(head):
    return blocked_scores(head, None)


@peer("scores_noisy", "torch softmax, float", total)
def noisy_whole(head):
    return whole_scores(head, gumbel(head))


@peer("scores_noisy", "torch row blocks, float", total)
def noisy_blocked(head):
    return blocked_scores(head, gumbel(head))


def halve(k, v, scale):
    """Indices of the half that a walk in blocks keeps; the first of each block is plus."""
    n = len(k)
    k = k[:n // BLOCK * BLOCK].view(-1, BLOCK, k.shape[1])
    v = v[:n // BLOCK * BLOCK].view(-1, BLOCK, v.shape[1])
    k = k - k.mean(1, keepdim=True)
    kernel = torch.exp(k @ k.transpose(1, 2) * (TEMPERATURE * scale))
    kernel *= v @ v.transpose(1, 2) + VALUE_OFFSET
    signs = torch.zeros(kernel.shape[:2])
    signs[:, 0] = 1.0
    coins = torch.rand(signs.shape)
    for i in range(1, BLOCK):
        y = (kernel[:, i, :i] * signs[:, :i]).sum(-1)
        signs[:, i] = torch.where(coins[:, i] < 0.5 - GAMMA * y, 1.0, -1.0)
    return select(signs.flatten())


def select(signs):
    half = len(signs) // 2
    plus, minus = (signs > 0).cumsum(0), (signs < 0).cumsum(0)
    reached = [int((run == half).to(torch.int8).argmax()) for run in (plus, minus)]
    last = max(reached)
    weight = torch.where(signs == signs[last], 0, 2)
    weight[last + 1:] = 1
    return torch.argsort(-weight, stable=True)[:half].sort().values


@peer("walk", "torch, the authors' form", lambda kept: {"kept": float(len(kept))})
def walk(head):
    k, v = (torch.from_numpy(x).float() for x in (head.k, head.v))

    def run():
        with torch.no_grad():
            return halve(k, v, head.scale)
    return run
