"""Answers of a model that reads its prompt in pieces, and whose caches are compressed after each.

A method's stream after a piece is what its cache holds: the tokens that it kept, then the piece,
numbered anew and with the keys and values that the compressed model made. It sees the queries of
the piece alone, as a program does that reads in pieces. The tokens that it would still hold when
the next token is answered are kept. Rows of the next piece attend to these and, causally, to
their own piece. The model's cache holds every token, and a mask hides those that went, so that
positions stay those of the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import kvbench as kb
import numpy as np
import torch
from export.attention_capture import Call

from loop.loop_answers import Live, as_answer, errors_of
from loop.loop_caches import Unsuitable

PIECE = "the queries of a piece alone, and no positions"


@dataclass
class InPieces(Live):
    """Live answers after a prompt that was read in pieces of `piece` tokens, fewer than it has.

    `errors`: of each answered cell, against exact attention of its queries over all tokens.
    """

    piece: int = 0
    # By layer and KV head: tokens of the text that the cache holds, and the most while it reads.
    _held: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    _most: dict[tuple[int, int], int] = field(default_factory=dict)
    _queries: dict[int, np.ndarray] = field(default_factory=dict)  # the last piece's, by layer

    def __post_init__(self) -> None:
        cells = {place: self.setting.cells[place] for place in self._places()}
        if self.setting.storage:
            raise Unsuitable("a quantised cache is not read in pieces; leave --prompt-pieces out")
        self._evicts = any(cell["memory"]["fraction"] < 1 for cell in cells.values())
        windows = [layer for layer in sorted(self.layers) if self.text.layers[layer].window]
        if windows:
            raise Unsuitable(
                f"layer {windows[0]} has a sliding window, whose tokens are not numbered anew; "
                "leave --prompt-pieces out"
            )
        if not self._evicts:
            return
        for cell in cells.values():
            if "scope_layers" in cell["key"] or self.setting.algorithm == "given":
                raise Unsuitable(
                    "it decides for several KV heads together, or from a cache file, and in "
                    "pieces each KV head decides for itself; leave --prompt-pieces out"
                )
            if cell["id"] not in self.files or not self.files.keeps_tokens_alone(cell["id"]):
                raise Unsuitable(
                    "it keeps more than tokens (weights, keys or values of its own), which the "
                    "next piece would have to start from; leave --prompt-pieces out"
                )

    def _places(self) -> Iterator[tuple[int, int]]:
        for layer in sorted(self.layers):
            for head in range(self.text.layers[layer].kv_heads):
                yield layer, head

    def pieces(self) -> list[slice]:
        """Tokens of the prompt, a piece each; the last one may be shorter."""
        prompt = self.text.prompt
        return [
            slice(first, min(first + self.piece, prompt)) for first in range(0, prompt, self.piece)
        ]

    def begin(self) -> None:
        """Compresses the first piece, which the dump has: no token before it is compressed."""
        tokens = self.pieces()[0]
        for number in sorted(self.layers) if self._evicts else ():
            layer = self.text.layers[number]
            self._take(number, *(each[:, tokens] for each in (layer.q, layer.k, layer.v)))

    def __call__(self, call: Call) -> torch.Tensor:
        if call.layer not in self.layers:
            return call.own_answer()
        decodes = call.k.shape[2] > self.text.prompt
        if not self._evicts:
            return super().__call__(call) if decodes else call.own_answer()
        q, k, v = (each[0].double().cpu().numpy() for each in (call.q, call.k, call.v))
        if decodes:
            return self._decoded(call, q, k, v)
        answer = replace(call, mask=self._mask(call)).own_answer()
        self._take(call.layer, q, k, v)
        return answer

    def _mask(self, call: Call) -> torch.Tensor:
        """[1, Hq, rows, tokens]: a row of the piece sees what its KV head holds, and the piece up
        to itself."""
        rows, tokens = call.q.shape[2], call.k.shape[2]
        heads = self.text.layers[call.layer].kv_heads
        seen = torch.zeros(heads, rows, tokens, dtype=torch.bool)
        for head in range(heads):
            seen[head, :, torch.from_numpy(self._held[call.layer, head])] = True
        seen[:, :, tokens - rows :] = torch.ones(rows, rows, dtype=torch.bool).tril()
        mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        return mask.repeat_interleave(call.q.shape[1] // heads, dim=0)[None].to(call.q.device)

    def _take(self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
        """A piece of the prompt has been read: its queries q [Hq, rows, d], and all keys and values
        so far. All but the last one are compressed."""
        tokens, group = k.shape[1], len(q) // len(k)
        for head in range(len(k)):
            place = layer, head
            held = np.concatenate(
                (self._held.get(place, np.zeros(0, np.int64)), np.arange(tokens)[-q.shape[1] :])
            )
            self._most[place] = max(self._most.get(place, 0), len(held))
            if tokens < self.text.prompt:
                # Rows yet to decode, for budgets that include them; the first one is answered.
                later = ((0, self.text.tokens - self.text.prompt), (0, 0))
                own = np.pad(q[head * group : (head + 1) * group], ((0, 0), *later))
                replay = self._asked(
                    (own, np.pad(k[head, held], later), np.pad(v[head, held], later)),
                    place,
                    held,
                    rows=[len(held)],
                )
                kept = replay.tokens(len(held))
                held = held[kept[kept < len(held)]]
            self._held[place] = held
        self._queries[layer] = q

    def _decoded(self, call: Call, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> torch.Tensor:
        """The method compresses the last piece and answers the decoded rows."""
        prompt, group = self.text.prompt, len(q) // len(k)
        queries = np.concatenate((self._queries[call.layer], q), axis=1)
        answers = []
        for head in range(len(k)):
            own, place = slice(head * group, (head + 1) * group), (call.layer, head)
            held = self._held[place]
            rows = np.concatenate((held, np.arange(prompt, k.shape[1])))
            replay = self._asked((queries[own], k[head, rows], v[head, rows]), place, held)
            exact = self.replay((q[own], k[head], v[head]), place, "exact", prompt=prompt)
            holds, whole = (
                each["peak_bytes"] for each in (replay.memory, self.setting.cells[place]["memory"])
            )
            if holds != whole:
                raise Unsuitable(
                    f"layer {place[0]}, KV head {head}: after pieces it holds {holds} bytes, and "
                    f"{whole} after a prompt read whole; leave --prompt-pieces out"
                )
            answers.append(replay.outputs)
            self.errors.append(errors_of(replay.outputs, exact.outputs))
            self.compare(place, replay.outputs)
        return as_answer(answers, call)

    def _asked(self, qkv: Any, place: tuple[int, int], held: np.ndarray, **given: Any) -> kb.Replay:
        """The method over what a KV head holds of the prompt, and tokens after it."""
        tokens, params = len(qkv[1]), dict(self.keywords)
        for name, value in params.items():
            if isinstance(value, dict) and "memory" in value:  # bytes of the whole text
                share = (value["memory"] * self.text.tokens + 1e-6) / tokens
                if share >= 1:
                    return self.replay(qkv, place, "exact", prompt=len(held), **given)
                params[name] = {"memory": share}
            elif isinstance(value, float) and value < 1 and name in self._counts:
                params[name] = int(value * self.text.prompt)
        sequence = f"{self.text.name}, {held[-1] + 1} tokens"  # each piece has its own draws
        try:
            return self.replay(qkv, place, prompt=len(held), sequence=sequence, **params, **given)
        except Unsuitable as reason:
            raise Unsuitable(f"{reason}; in pieces it has {PIECE}") from None

    @cached_property
    def _counts(self) -> set[str]:
        """Parameters that are numbers of tokens, or fractions of the prompt."""
        return {
            parameter["name"]
            for known in kb.algorithms()
            if known["id"] == self.setting.algorithm
            for parameter in known["parameters"]
            if parameter["type"] == "tokens"
        }

    def facts(self) -> dict[str, Any]:
        """How the prompt was read, and the fraction of the whole text's tokens that is held at most
        meanwhile."""
        most = list(self._most.values()) or [self.text.prompt]
        fraction = sum(most) / (len(most) * self.text.tokens)
        return {"tokens": self.piece, "count": len(self.pieces()), "fraction": fraction}
