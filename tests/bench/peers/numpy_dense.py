"""Exact attention, value norms, score sums and k-center in numpy, vectorised and in blocks."""

import numpy as np

from head import ROWS
from peer import peer


def outputs(result):
    return {"outputs": float(np.abs(result).sum())}


def attention_rows(head, first, last):
    x = head.q[first:last] @ head.k[:last].T
    x *= head.scale
    hidden = np.triu_indices(last - first, 1)
    x[hidden[0], first + hidden[1]] = -np.inf
    x -= x.max(axis=1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(axis=1, keepdims=True)
    return x @ head.v[:last]


@peer("exact", "numpy, row blocks", outputs)
@peer("exact_wide", "numpy, row blocks", outputs)
def exact(head, block=256):
    n = head.tokens
    return lambda: np.concatenate([attention_rows(head, r, min(r + block, n))
                                   for r in range(0, n, block)])


@peer("exact_last", "numpy", outputs)
def exact_last(head):
    return lambda: attention_rows(head, head.tokens - ROWS, head.tokens)


def norms_from(v, first, block=128):
    """||V_i||_op for rows i >= first: running sums of v v^T, then LAPACK's symmetric solver."""
    gram = v[:first].T @ v[:first]
    norms = []
    for r in range(first, len(v), block):
        part = v[r:r + block]
        grams = np.cumsum(part[:, :, None] * part[:, None, :], axis=0)
        grams += gram
        norms.append(np.linalg.eigvalsh(grams)[:, -1])
        gram = grams[-1]
    return np.sqrt(np.concatenate(norms))


def spectral(norms):
    return {"spectral": float(norms.sum())}


@peer("value_norms", "numpy", spectral)
def value_norms(head):
    return lambda: norms_from(head.v, 0)


@peer("value_norms_last", "numpy", spectral)
def value_norms_last(head):
    return lambda: norms_from(head.v, head.tokens - ROWS)


def farthest_first(points, count):
    squares = np.einsum("ij,ij->i", points, points)
    nearest = np.full(len(points), np.inf)
    center = 0
    for _ in range(count):
        distance = points @ (-2.0 * points[center])
        distance += squares
        distance += squares[center]
        np.minimum(nearest, distance, out=nearest)
        center = int(nearest.argmax())
    return np.sqrt(max(nearest[center], 0.0))


@peer("kcenter", "numpy", lambda radius: {"radius": float(radius)})
def kcenter(head):
    return lambda: farthest_first(head.k, 512)
