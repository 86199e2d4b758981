"""Keyformer Fig. 4: scores of single tokens with the full cache and with half of it, under H2O.

Within one row every kept score grows by the same factor, so the order of the kept tokens stays;
summed over rows it can change.
"""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy
import pandas
from matplotlib.axes import Axes

from kvplot import style
from kvplot.dump import Array, Dump
from kvplot.figure import Figure
from kvplot.results import ResultsError

NEEDS = ("dump",)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--layers", type=int, nargs="+", metavar="L", help="default: the first and last of the dump"
    )
    parser.add_argument("--kv-head", type=int, default=0)
    parser.add_argument("--query-head", type=int, default=0, help="query head of the group")
    parser.add_argument(
        "--cache", type=float, default=0.5, help="fraction of the prompt; default 0.5"
    )
    parser.add_argument(
        "--recent",
        type=float,
        default=0.5,
        help="recent tokens, as a fraction of the cache; default 0.5",
    )
    parser.add_argument("--decoded", type=int, default=256, help="rows after the prompt")
    parser.add_argument("--shown", type=int, default=20, help="tokens; default 20")
    parser.add_argument(
        "--words",
        type=Path,
        metavar="FILE",
        help="JSON list of the tokens' texts, for labels; default: that next to the dump, "
        "<dump>.words.json, if there is one",
    )


def words_of(dump: Dump, given: Path | None) -> list[str]:
    """The text of every token, one word or less each; "" where no file tells."""
    path = given or dump.path.with_suffix(".words.json")
    if given is None and not path.is_file():
        return [""] * dump.tokens
    try:
        words = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: {error}; give a JSON list of texts with --words") from error
    if not isinstance(words, list) or len(words) != dump.tokens:
        raise ResultsError(
            f"{path}: expected a list of {dump.tokens} texts, one per token of {dump.path}; "
            "give another with --words"
        )
    return [str(word).strip() or repr(word)[1:-1] for word in words]


def scores(dump: Dump, layer: int, kv_head: int, rows: Sequence[int]) -> Array:
    """Softmax rows [G, len(rows), n] of a KV head's query heads, in float64."""
    attributes = dump.attributes(layer)
    group = dump.query_heads(layer) // dump.kv_heads(layer)
    keys = dump.head(layer, "k", kv_head)
    tokens, places = numpy.arange(dump.tokens)[None, :], numpy.asarray(rows)[:, None]
    hidden = tokens > places
    if attributes.get("sliding_window", 0):
        hidden |= places - tokens >= attributes["sliding_window"]
    out = []
    for head in range(kv_head * group, (kv_head + 1) * group):
        queries = dump.head(layer, "q", head)
        first = dump.tokens - len(queries)
        logits = attributes["scale"] * queries[places[:, 0] - first] @ keys.T
        cap = attributes.get("logit_softcap", 0.0)
        if cap:
            logits = cap * numpy.tanh(logits / cap)
        logits[hidden] = -numpy.inf
        weights = numpy.exp(logits - logits.max(axis=1, keepdims=True))
        out.append(weights / weights.sum(axis=1, keepdims=True))
    return numpy.array(out)


def h2o(prompt: Array, decoded: Array, budget: int, recent: int) -> Array:
    """Scores [G, rows, n] of the decoded rows over the tokens that H2O holds then, 0 elsewhere.

    `prompt`: sums of the scores over the prompt rows [G, n]; `decoded`: full scores [G, rows, n].
    After the prompt the last `recent` tokens stay and the best of the rest; after every row the
    least of those that are not recent goes.
    """
    sums, length = prompt.copy(), decoded.shape[2] - decoded.shape[1]
    held = numpy.zeros(decoded.shape[2], dtype=bool)
    held[length - recent : length] = True
    order = sorted(range(length - recent), key=lambda j: (-sums[:, j].mean(), j))
    held[order[: budget - recent]] = True
    out = numpy.zeros_like(decoded)
    for place in range(decoded.shape[1]):
        now = length + place
        held[now] = True
        row = numpy.where(held, decoded[:, place], 0.0)
        out[:, place] = row / row.sum(axis=1, keepdims=True)
        sums += out[:, place]
        if held.sum() > budget:
            among = numpy.flatnonzero(held[: now + 1 - recent])
            mean = sums[:, among].mean(axis=0)
            held[among[mean == mean.min()][-1]] = False
    return out


def check(inputs: Namespace, layer: int) -> None:
    """The options fit each other and the dump."""
    dump = inputs.dump
    dump.check_head(layer, inputs.kv_head)
    attributes, keys_of = dump.attributes(layer), dump.keys_of
    further = [
        *sorted({"sinks", "alibi_slopes"} & dump.members(layer)),
        *(["chunk"] if attributes.get("chunk", 0) else []),
        *(["causal = 0"] if not attributes.get("causal", 1) else []),
        *(["keys of several layers"] if list(keys_of.values()).count(keys_of[layer]) > 1 else []),
    ]
    if further:
        raise ResultsError(
            f"{dump.path}: layer {layer} has {' and '.join(further)}, which these scores lack; "
            "name other layers with --layers"
        )
    group = dump.query_heads(layer) // dump.kv_heads(layer)
    stored = len(dump.head(layer, "q", inputs.kv_head * group))
    if stored < dump.tokens:
        raise ResultsError(
            f"{dump.path}: layer {layer} has queries of the last {stored} of {dump.tokens} tokens; "
            "H2O needs all"
        )
    for wrong, words in (
        (
            not 0 < inputs.decoded < dump.tokens,
            f"--decoded {inputs.decoded}: expected at least 1 "
            f"and less than the {dump.tokens} tokens of the dump",
        ),
        (
            not 0 <= inputs.query_head < group,
            f"--query-head {inputs.query_head}: a KV head has "
            f"{group} query head(s), numbered from 0",
        ),
        (not 0 < inputs.cache <= 1, f"--cache {inputs.cache:g}: expected above 0 and at most 1"),
        (not 0 <= inputs.recent <= 1, f"--recent {inputs.recent:g}: expected 0 to 1"),
        (inputs.shown < 1, f"--shown {inputs.shown}: expected at least 1"),
    ):
        if wrong:
            raise ResultsError(f"{dump.path}: {words}")
    if int((dump.tokens - inputs.decoded) * inputs.cache) < 1:
        raise ResultsError(
            f"{dump.path}: --cache {inputs.cache:g} of the prompt is less than one token"
        )


def draw(inputs: Namespace) -> Figure:
    dump = inputs.dump
    layers = inputs.layers or list(dict.fromkeys((dump.layers[0], dump.layers[-1])))
    for layer in layers:
        check(inputs, layer)
    prompt = dump.tokens - inputs.decoded
    budget = int(prompt * inputs.cache)
    shown = inputs.shown
    figure, axes = style.panels(2, len(layers), 1.4 + 0.26 * shown)
    words = words_of(dump, inputs.words)
    tables, said = [], []
    for place, layer in enumerate(layers):
        full = scores(dump, layer, inputs.kv_head, range(prompt, dump.tokens))
        sums = scores(dump, layer, inputs.kv_head, range(prompt)).sum(axis=1)
        cut = h2o(sums, full, budget, int(budget * inputs.recent))[inputs.query_head]
        full = full[inputs.query_head]
        of = [
            _table(layer, name, *pair, shown)
            for name, pair in (
                ("last row", (full[-1], cut[-1])),
                ("sum of rows", (full.sum(axis=0), cut.sum(axis=0))),
            )
        ]
        for axis, part in zip(axes[:, place], of):
            _dots(axis, part, words)
            axis.set_title(f"layer {layer}, {part['of'].iloc[0]}")
        tables += of
        said.append(f"Layer {layer}: {_changes(*of)}")
    style.outer_labels(axes, "attention score", "token and its position")
    percent = f"{100 * inputs.cache:g} % cache"
    style.legend_above(
        axes[0][0],
        {
            "full cache": _mark("o", style.REFERENCE, style.REFERENCE),
            percent: _mark("^", style.look("h2o")[0], style.look("h2o")[0]),
            f"dropped from the {percent}": _mark("o", style.REFERENCE, "white"),
        },
    )
    return Figure(
        "score_bars",
        figure,
        pandas.concat(tables),
        f"Attention scores of query head {inputs.query_head} of KV head {inputs.kv_head} of "
        f"{dump.model} on {dump.sequence}, in the last row alone and summed over the "
        f"{inputs.decoded} decoded rows: prompt {prompt}, n {dump.tokens}; H2O with "
        f"{inputs.recent:g} of the cache recent. The {shown} tokens with the most attention in the "
        f"full cache, most first. {' '.join(said)} One head, no random numbers.",
    )


def _table(layer: int, of: str, full: Array, cut: Array, shown: int) -> pandas.DataFrame:
    tokens = numpy.argsort(-full, kind="stable")[:shown]
    return pandas.DataFrame(
        {"layer": layer, "of": of, "token": tokens, "full": full[tokens], "cut": cut[tokens]}
    )


def _dots(axis: Axes, part: pandas.DataFrame, words: Sequence[str]) -> None:
    at = numpy.arange(len(part))
    kept = part["cut"].to_numpy() > 0
    full, cut = part["full"].to_numpy(), part["cut"].to_numpy()
    axis.hlines(at[kept], full[kept], cut[kept], color="0.6", linewidth=0.8)
    axis.plot(cut[kept], at[kept], "^", color=style.look("h2o")[0], markersize=3.5)
    axis.plot(full[kept], at[kept], "o", color=style.REFERENCE, markersize=2.6)
    axis.plot(
        full[~kept], at[~kept], "o", color=style.REFERENCE, markersize=2.6, markerfacecolor="white"
    )
    axis.set_xscale("log")
    style.plain_log(axis.xaxis)
    axis.set_yticks(at, [f"{words[token]} {token}".lstrip() for token in part["token"]], fontsize=6)
    axis.set_ylim(len(part) - 0.5, -0.5)


def _mark(marker: str, colour: style.Colour, face: style.Colour) -> style.pyplot.Line2D:
    return style.pyplot.Line2D(
        [], [], marker=marker, color=colour, markerfacecolor=face, linestyle="none"
    )


def _changes(single: pandas.DataFrame, summed: pandas.DataFrame) -> str:
    said = []
    for part, name in ((single, "in the last row"), (summed, "in the sum")):
        kept = part[part["cut"] > 0]["cut"].to_numpy()
        pairs = [(i, j) for i in range(len(kept)) for j in range(i + 1, len(kept))]
        changed = sum(kept[i] < kept[j] for i, j in pairs)
        said.append(
            f"{name} {int((part['cut'] == 0).sum())} are dropped and {changed} of {len(pairs)} "
            "pairs of the others change their order"
        )
    return "; ".join(said) + "."
