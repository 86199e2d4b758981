"""SubGen and h2o token by token in numpy, each step vectorised."""

import numpy as np

from head import ROWS
from numpy_dense import attention_rows
from peer import peer

T, S = 8, 256
BUDGET = 512


class Net:
    """SubGen's clusters so far."""

    def __init__(self, keys, delta):
        self.keys, self.delta2 = keys, delta * delta
        self.representatives = np.empty_like(keys)
        self.squares = np.empty(len(keys))
        self.size = 0

    def enter(self, j):
        """The cluster of token j, which is self.size - 1 if it opened one."""
        x, m = self.keys[j], self.size
        square = x @ x
        if m > 0:
            distance = self.squares[:m] - 2.0 * (self.representatives[:m] @ x)
            nearest = int(distance.argmin())
            if distance[nearest] + square <= self.delta2:
                return nearest
        self.representatives[m] = x
        self.squares[m] = square
        self.size = m + 1
        return m


def clusters(head):
    net = Net(head.k, head.delta)
    return np.array([net.enter(j) for j in range(head.tokens)])


@peer("clustering", "numpy, token-wise", lambda assigned: {"clusters": float(assigned.max() + 1)})
def clustering(head):
    return lambda: clusters(head)


def subgen(head, rng, assigned=None):
    """Algorithm 1, and the last rows' relative errors. Exponentials of those rows are computed once
    and gathered from."""
    n, first = head.tokens, head.tokens - ROWS
    exact = attention_rows(head, first, n)
    x = head.q[first:] @ head.k.T
    x *= head.scale
    visible = np.tri(ROWS, n, first, dtype=bool)
    e = np.exp(x - np.where(visible, x, -np.inf).max(axis=1, keepdims=True))
    weight = np.einsum("ij,ij->i", head.v, head.v)
    net = Net(head.k, head.delta)
    samples = np.empty((n, T), dtype=np.int64)
    count = np.zeros(n)
    opened = 0
    slots = np.zeros(S, dtype=np.int64)
    mu = 0.0
    errors = np.empty(ROWS)
    for j in range(n):
        c = net.enter(j) if assigned is None else assigned[j]
        count[c] += 1.0
        if c == opened:
            samples[c] = j
            opened += 1
        else:
            samples[c, rng.random(T) < 1.0 / count[c]] = j
        mu += weight[j]
        slots[rng.random(S) < weight[j] / mu] = j
        if j >= first:
            row = e[j - first]
            z = (row[slots] * (mu / (S * weight[slots]))) @ head.v[slots]
            tau = (count[:opened] / T) @ row[samples[:opened]].sum(axis=1)
            a = exact[j - first]
            errors[j - first] = np.linalg.norm(z / tau - a) / np.linalg.norm(a)
    return {"clusters": float(opened), "~error": float(errors.mean())}


@peer("subgen_first", "numpy, token-wise", lambda result: result)
@peer("subgen_further", "numpy, all again", lambda result: result)
def subgen_all(head):
    rng = np.random.default_rng(1)
    return lambda: subgen(head, rng)


@peer("subgen_further", "numpy, clusters kept", lambda result: result)
def subgen_kept(head):
    rng = np.random.default_rng(1)
    assigned = clusters(head)
    return lambda: subgen(head, rng, assigned)


def h2o(head):
    """Attention over at most BUDGET + 1 tokens at every row; the error of the last rows."""
    n, recent = head.tokens, BUDGET // 2
    q = head.q * head.scale
    keys = np.empty((BUDGET + 1, head.k.shape[1]))
    values = np.empty((BUDGET + 1, head.v.shape[1]))
    tokens = np.empty(BUDGET + 1, dtype=np.int64)
    scores = np.zeros(BUDGET + 1)
    answers = np.empty((ROWS, head.v.shape[1]))
    held = 0
    free = 0
    for i in range(n):
        place = held if held <= BUDGET else free
        held = min(held + 1, BUDGET + 1)
        keys[place], values[place], tokens[place], scores[place] = head.k[i], head.v[i], i, 0.0
        p = keys[:held] @ q[i]
        p -= p.max()
        np.exp(p, out=p)
        p /= p.sum()
        if i >= n - ROWS:
            answers[i - n + ROWS] = p @ values[:held]
        scores[:held] += p
        if held > BUDGET:
            free = int(np.where(tokens <= i - recent, scores, np.inf).argmin())
    exact = attention_rows(head, n - ROWS, n)
    error = np.linalg.norm(answers - exact, axis=1) / np.linalg.norm(exact, axis=1)
    return {"error": float(error.mean()), "tokens": float(held)}


@peer("h2o_first", "numpy, token-wise", lambda result: result)
@peer("h2o_further", "numpy, token-wise", lambda result: result)
def h2o_stream(head):
    return lambda: h2o(head)
