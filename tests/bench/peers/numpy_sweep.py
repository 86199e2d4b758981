"""A whole sweep in numpy, as a researcher would write it: single precision, the decoded rows'
exponentials computed once per KV head and gathered from, prompts in blocks of rows, every loop over
tokens vectorised as far as the method allows, and work shared between budgets, seeds and settings.

    numpy_sweep.py DUMP CELLS.json OUT.json [--apart] [--double]

--apart is what most scripts do: a function of one method and setting, called for each, so that only
the exact answers and exponentials of a KV head are shared. Prints the seconds from reading the dump
to writing OUT.json."""

import time
from collections import defaultdict

import h5py
import numpy as np

import sweep_cells
from numpy_streams import Net
from sweep_cells import operator_norms

BLOCK_ROWS = 512


class Head:
    """A KV head: q [G, n, d] times the logit scale, k, v [n, d]; and of its decoded rows e [G, R, n],
    exponentials less the row's largest logit, 0 where a token is not visible."""

    def __init__(self, q, k, v, scale, prompt, place):
        self.q, self.k, self.v, self.scale, self.prompt = q * q.dtype.type(scale), k, v, scale, prompt
        self.place = place  # (layer, KV head), of draws
        self.n, self.rows = len(k), len(k) - prompt
        x = self.q[:, prompt:] @ k.T
        hidden = np.triu(np.ones((self.rows, self.rows), dtype=bool), 1)
        x[:, :, prompt:][:, hidden] = -np.inf
        x -= x.max(axis=2, keepdims=True)
        self.x = x
        self.e = np.exp(x)
        self.z = self.e.sum(axis=2)
        self.exact = (self.e @ v) / self.z[..., None]
        self.length = np.linalg.norm(self.exact, axis=2)
        weights = np.sqrt(np.einsum("grn,grn->gr", self.e, self.e)) / self.z
        self.unit = weights * operator_norms(v, prompt)

    def draws(self, *purpose):
        return np.random.default_rng([*self.place, *purpose])

    def record(self, answers, kept=None):
        """The record for answers [G, R, dv] and kept exponentials [G, R]."""
        wrong = np.linalg.norm(answers - self.exact, axis=2)
        found = {"relative_l2": float((wrong / self.length).mean()),
                 "epsilon_spectral": float((wrong / self.unit).mean())}
        if kept is not None:
            found["kept"] = float((kept / self.z).mean())
        return found

    def subset(self, tokens, numerator=None, denominator=None):
        """Prompt tokens with weights, and every decoded token."""
        e, later = self.e[:, :, tokens], self.e[:, :, self.prompt:]
        plain = e.sum(axis=2)
        late = later.sum(axis=2)
        total = plain if denominator is None else e @ denominator
        sums = (e if numerator is None else e * numerator) @ self.v[tokens]
        sums += later @ self.v[self.prompt:]
        return self.record(sums / (total + late)[..., None], plain + late)

    def rolling(self, budget, sinks):
        """The first tokens and the last budget - sinks of every row, the row's own among them."""
        recent = budget - sinks
        first = self.prompt + 1 - recent
        band = np.tri(self.rows, self.n - first, -1, dtype=bool)
        e = np.where(band, 0.0, self.e[:, :, first:])
        kept = e.sum(axis=2) + self.e[:, :, :sinks].sum(axis=2)
        sums = e @ self.v[first:] + self.e[:, :, :sinks] @ self.v[:sinks]
        return self.record(sums / kept[..., None], kept)


def exact(head, cells):
    return {cell["id"]: head.record(head.exact, head.z) for cell in cells}


def window(head, cells):
    return {cell["id"]: head.rolling(cell["key"]["params"]["budget"],
                                     cell["key"]["params"].get("sinks", 0)) for cell in cells}


def prompt_scores(head, noise):
    """Sums over the prompt's rows of softmax(x + noise): [1 + seeds, G, P], the first without noise.
    Noise is per token, so that a row's exponentials serve all seeds."""
    groups, prompt = len(head.q), head.prompt
    scores = np.zeros((1 + len(noise), groups, prompt), head.k.dtype)
    for g in range(groups):
        scales = np.exp(np.concatenate([np.zeros((1, prompt), noise.dtype), noise[:, g, :prompt]]))
        for first in range(0, prompt, BLOCK_ROWS):
            last = min(first + BLOCK_ROWS, prompt)
            x = head.q[g, first:last] @ head.k[:last].T
            corner = x[:, first:]
            corner[np.triu_indices(last - first, 1)] = -np.inf
            x -= x.max(axis=1, keepdims=True)
            np.exp(x, out=x)
            totals = x @ scales[:, :last].T
            scores[:, g, :last] += (1.0 / totals).T @ x
        scores[:, g] *= scales
    return scores


def eviction(head, scores, budget, recent, noise=None, tau=(1.0, 1.0)):
    """One kept set per KV head: mean scores of the query heads rank tokens. `scores` [G, P]."""
    prompt, recent = head.prompt, min(recent, budget)
    old = prompt - recent
    ranked = np.argsort(-scores[:, :old].mean(axis=0), kind="stable")[:budget - recent]
    tokens = np.concatenate([np.sort(ranked), np.arange(old, prompt), [0]])
    f = np.concatenate([scores[:, tokens[:budget]], np.zeros((len(scores), 1), scores.dtype)], axis=1)
    values = head.v[tokens]
    answers = np.empty_like(head.exact)
    kept = np.empty_like(head.z)
    free = budget
    for row in range(head.rows):
        now = prompt + row
        tokens[free], f[:, free], values[free] = now, 0.0, head.v[now]
        e = head.e[:, row][:, tokens]
        total = e.sum(axis=1)
        answers[:, row] = (e @ values) / total[:, None]
        kept[:, row] = total
        if noise is not None:
            x = head.x[:, row][:, tokens] + noise[:, tokens]
            x /= tau[0] + (row + 1) * (tau[1] - tau[0]) / head.rows
            x -= x.max(axis=1, keepdims=True)
            e = np.exp(x, out=x)
            total = e.sum(axis=1)
        f += e / total[:, None]
        free = int(np.where(tokens <= now - recent, f.mean(axis=0), np.inf).argmin())
    return head.record(answers, kept)


def accumulated(head, cells):
    """h2o, key_attention and keyformer, which share the prompt's exponentials."""
    seeds = sorted({cell["key"]["seed"] for cell in cells if cell["key"]["algorithm"] == "keyformer"})
    noise = np.zeros((len(seeds), len(head.q), head.n), head.k.dtype)
    for seed, of_seed in zip(seeds, noise):
        of_seed[:] = head.draws(1, seed).gumbel(size=of_seed.shape)
    scores = prompt_scores(head, noise)
    found = {}
    for cell in cells:
        key = cell["key"]
        params = key["params"]
        budget = params["budget"]
        recent = int(budget * params.get("recent_fraction", 0.0))
        if key["algorithm"] == "keyformer":
            seed = seeds.index(key["seed"])
            found[cell["id"]] = eviction(head, scores[1 + seed], budget, recent, noise[seed],
                                         (params["tau_init"], params["tau_end"]))
        else:
            found[cell["id"]] = eviction(head, scores[0], budget, recent)
    return found


def uniform(head, cells):
    found = {}
    for cell in cells:
        params = cell["key"]["params"]
        rng = head.draws(2, cell["key"]["seed"], params["T"])
        sinks, middle = params["sinks"], head.prompt - params["sinks"]
        count = middle >> params["T"]
        drawn = sinks + np.sort(rng.choice(middle, count, replace=False))
        weights = np.concatenate([np.ones(sinks), np.full(count, middle / count)]).astype(head.k.dtype)
        tokens = np.concatenate([np.arange(sinks), drawn])
        found[cell["id"]] = head.subset(tokens, weights, weights)
    return found


def walks(k, v, scale, params, rng):
    """Signs [S, m] of every walk of S streams k, v [S, m, d], blocks of all streams in step."""
    streams, m, block = len(k), k.shape[1], params["block"]
    padded = -(-m // block) * block
    k, v = (np.pad(t, ((0, 0), (0, padded - m), (0, 0))).reshape(-1, block, t.shape[2])
            for t in (k, v))
    k = k - k.mean(axis=1, keepdims=True)
    kernel = np.exp(k @ k.transpose(0, 2, 1) * k.dtype.type(params["temperature"] * scale))
    kernel *= v @ v.transpose(0, 2, 1) + v.dtype.type(params["value_offset"])
    signs = np.zeros((len(k), block), k.dtype)
    signs[:, 0] = 1.0
    coins = rng.random(signs.shape, dtype=np.float32)
    for i in range(1, block):
        y = np.einsum("bj,bj->b", kernel[:, i, :i], signs[:, :i])
        signs[:, i] = np.where(coins[:, i] < 0.5 - params["gamma"] * y, 1.0, -1.0)
    return signs.reshape(streams, padded)[:, :m]


def chosen(signs):
    """Places of the half that stays and their weights, as BalanceKV's released code has them."""
    half = len(signs) // 2
    plus, minus = np.cumsum(signs > 0), np.cumsum(signs < 0)
    reached = [int((run == half).argmax()) if run[-1] >= half else 0 for run in (plus, minus)]
    last = max(reached)
    weight = np.where(signs == signs[last], 0, 2)
    weight[last + 1:] = 1
    stay = np.sort(np.argsort(-weight, kind="stable")[:half])
    return stay, weight[stay]


def balance(head, cells):
    """Rounds are shared by T, and the walks of all seeds go in step."""
    params = cells[0]["key"]["params"]
    seeds = sorted({cell["key"]["seed"] for cell in cells})
    sinks = params["sinks"]
    rng = head.draws(3, *seeds)
    tokens = np.tile(np.arange(sinks, head.prompt), (len(seeds), 1))
    weight = np.ones(tokens.shape, head.k.dtype)
    found = {}
    for done in range(1, max(cell["key"]["params"]["T"] for cell in cells) + 1):
        signs = walks(head.k[tokens], head.v[tokens] * weight[..., None], head.scale, params,
                      rng)
        kept = [chosen(one) for one in signs]
        weight = np.stack([weight[s, stay] * factor for s, (stay, factor) in enumerate(kept)])
        tokens = np.stack([tokens[s, stay] for s, (stay, _) in enumerate(kept)])
        for cell in cells:
            if cell["key"]["params"]["T"] == done:
                s = seeds.index(cell["key"]["seed"])
                held = np.concatenate([np.arange(sinks), tokens[s]])
                ones = np.ones(sinks, head.k.dtype)
                found[cell["id"]] = head.subset(
                    held, np.concatenate([ones, weight[s]]),
                    np.concatenate([ones, np.full(len(tokens[s]), 2.0 ** done, head.k.dtype)]))
    return found


def farthest(points, count):
    """Greedy farthest-first places, the first point first."""
    squares = np.einsum("ij,ij->i", points, points)
    nearest = np.full(len(points), np.inf, points.dtype)
    places = [0]
    for _ in range(count - 1):
        center = places[-1]
        distance = points @ (-2.0 * points[center])
        distance += squares
        distance += squares[center]
        np.minimum(nearest, distance, out=nearest)
        nearest[center] = -np.inf
        places.append(int(nearest.argmax()))
    return np.array(places)


def kcenter(head, cells):
    found = {}
    for cell in cells:
        budget = cell["key"]["params"]["budget"]
        middle = head.prompt - budget // 2
        centers = farthest(head.k[:middle], budget - budget // 2)
        found[cell["id"]] = head.subset(
            np.concatenate([np.sort(centers), np.arange(middle, head.prompt)]))
    return found


def key_distance(k, quantile):
    """The quantile of distances between 128 keys spread over the stream."""
    sample = k[np.arange(128) * len(k) // 128].astype(np.float64)
    distance = np.sqrt(np.square(sample[:, None] - sample[None]).sum(axis=2))
    return float(np.quantile(distance[np.triu_indices(128, 1)], quantile))


def clusters(head, delta):
    net = Net(head.k, delta)
    return np.array([net.enter(j) for j in range(head.n)])


def counts_of(assigned):
    """How many tokens a token's cluster has, itself among them."""
    order = np.argsort(assigned, kind="stable")
    sizes = np.bincount(assigned)
    begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
    counts = np.empty(len(assigned), np.int64)
    counts[order] = np.arange(len(assigned)) - begins + 1
    return counts


def slots_of(head, count, rng):
    """Tokens in `count` slots of the value reservoir at every decoded row [R, count], and mu [n]."""
    weight = np.einsum("ij,ij->i", head.v, head.v).astype(np.float64)
    mu = np.cumsum(weight)
    taken = rng.random((head.n, count), dtype=np.float32) < (weight / mu)[:, None]
    last = np.where(taken[head.prompt:], np.arange(head.prompt, head.n)[:, None], -1)
    before = head.prompt - 1 - taken[:head.prompt][::-1].argmax(axis=0)
    last[0] = np.maximum(last[0], before)
    return np.maximum.accumulate(last, axis=0), mu, weight


def numerators(head, slots, mu, weight):
    """[G, R, dv] of so many slots [R, s]."""
    e = np.take_along_axis(head.e, slots[None], axis=2)
    e *= (mu[head.prompt:, None] / (slots.shape[1] * weight[slots])).astype(e.dtype)
    return (e.transpose(1, 0, 2) @ head.v[slots]).transpose(1, 0, 2)


def denominators(head, assigned, counts, t, rng):
    """[G, R]: samples of clusters, weighted, brought up to date at every decoded row."""
    accepted = rng.random((head.n, t), dtype=np.float32) * counts[:, None] < 1.0
    accepted[counts == 1] = True
    sizes = np.zeros(assigned.max() + 1)
    samples = np.zeros((len(sizes), t), np.int64)
    at, slot = np.nonzero(accepted[:head.prompt])
    samples[assigned[at], slot] = at  # numpy keeps the last of equal places
    filled = np.bincount(assigned[:head.prompt], minlength=len(sizes))
    sizes[:] = filled
    weights = np.bincount(samples[filled > 0].ravel(),
                          np.repeat(sizes[filled > 0] / t, t), head.n)
    found = np.empty_like(head.z)
    for row in range(head.rows):
        j = head.prompt + row
        c = assigned[j]
        if sizes[c] > 0:
            np.subtract.at(weights, samples[c], sizes[c] / t)
        sizes[c] += 1
        samples[c, accepted[j]] = j
        np.add.at(weights, samples[c], sizes[c] / t)
        found[:, row] = head.e[:, row] @ weights.astype(head.e.dtype)
    return found


def subgen(head, cells):
    settings = [(cell["key"]["params"], cell["key"]["seed"], cell["id"]) for cell in cells]
    nets = {}
    for quantile in sorted({params["delta_quantile"] for params, _, _ in settings}):
        assigned = clusters(head, key_distance(head.k, quantile))
        nets[quantile] = assigned, counts_of(assigned)
    found = {}
    for seed in sorted({seed for _, seed, _ in settings}):
        most = max(params["s"] for params, _, _ in settings)
        rng = head.draws(4, seed)
        slots, mu, weight = slots_of(head, most, rng)
        over, under = {}, {}
        for params, its_seed, name in settings:
            if its_seed != seed:
                continue
            s, below = params["s"], (params["delta_quantile"], params["t"])
            if s not in over:
                over[s] = numerators(head, slots[:, :s], mu, weight)
            if below not in under:
                under[below] = denominators(head, *nets[below[0]], below[1], rng)
            found[name] = head.record(over[s] / under[below][..., None])
    return found


METHODS = {"exact": exact, "window": window, "streaming_llm": window, "h2o": accumulated,
           "key_attention": accumulated, "keyformer": accumulated, "uniform": uniform,
           "balancekv_prefill": balance, "kcenter": kcenter, "subgen": subgen}


def run(head, cells, apart):
    of_method = defaultdict(list)
    for cell in cells:
        of_method[METHODS[cell["key"]["algorithm"]]].append(cell)
    found = {}
    for method, own in of_method.items():
        for part in [[cell] for cell in own] if apart else [own]:
            found |= method(head, part)
    return found


def main():
    parser = sweep_cells.arguments(__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--apart", action="store_true", help="a call per cell")
    options = parser.parse_args()
    layers = sweep_cells.by_layer(options.cells)
    real = np.float64 if options.double else np.float32
    start = time.perf_counter()
    records = {}
    with h5py.File(options.dump) as dump:
        for place, heads in layers.items():
            layer = sweep_cells.layer_group(dump, *place)
            first = next(iter(heads.values()))[0]["key"]
            q, k, v = sweep_cells.tensors(layer, first["tokens"], real)
            group = len(q) // len(k)
            for number, cells in heads.items():
                head = Head(q[number * group:(number + 1) * group], k[number], v[number],
                            float(layer.attrs["scale"]), first["prompt_tokens"], (place[1], number))
                records |= run(head, cells, options.apart)
    sweep_cells.write(options.out, records)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main()
