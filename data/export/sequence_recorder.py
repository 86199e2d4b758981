"""Runs a model over one sequence and records its attention layers into a dump."""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import h5py
import numpy as np
import torch
from format.dump_file import (
    TOLERANCE,
    Fault,
    LayerShape,
    LayerWriter,
    Rope,
    Terms,
    allowed_difference,
    exact_rows,
    relative_difference,
)

from export.attention_capture import (
    Call,
    Mask,
    declared_chunk,
    declared_window,
    has_latents,
    listening,
    mask_of,
    reads_in_pieces,
    refuse_terms,
    rotations_of,
    scale_of,
    sinks_of,
    softcap_of,
    whole_cache,
)
from export.attention_mask import slopes_of
from export.latent_attention import Latents, answer_over, expanded
from export.layer_output import LayerOutputs, as_numpy, projection_by_head, wo_norms
from export.own_attention import prove_first_tokens, prove_last_rows
from export.shared_keys import KeyOwners
from export.whole_rotation import whole_rotation


@dataclass(frozen=True)
class Plan:
    """Recorded parts of a sequence, and their types."""

    layers: frozenset[int]
    dtype: str  # type of the stored q, k and v
    rounds: bool  # whether the model attends with them as stored
    query_rows: int | None  # None = all
    out_rows: int
    piece: int  # tokens per run of the model; 0 = all at once
    compression: int
    wo_norms: bool = False  # whether the 1-norms of W_O^T v are stored
    latents: bool = True  # whether attention over latents is recorded as such
    wo: bool = False  # whether output projections and norms of residual streams are stored
    repeat_part: int = 0  # tokens of a part in a pass that repeats the prompt; 0 = no such pass
    repeat_from: int = 0  # the first token that it repeats


class Recorder:
    """Hears the attention layers of one sequence of `tokens` tokens, piece after piece."""

    def __init__(
        self,
        layers: h5py.Group,
        tokens: int,
        plan: Plan,
        ropes: dict[int, Rope | None],
        key_biases: dict[int, np.ndarray],
        whole: Callable[[int], None] = lambda layer: None,
    ) -> None:
        """`layers`: the parent of the layers' groups. `ropes` are those that layers carry
        themselves, `key_biases` [Hkv, d] those of their keys. `whole`: called with each layer
        once its group is whole, unless outputs of layers are recorded too: then when all are."""
        self._layers, self._tokens, self._plan = layers, tokens, plan
        self._ropes, self._key_biases, self._whole = ropes, key_biases, whole
        self._query_rows = min(tokens, plan.query_rows or tokens)
        self._out_rows = min(self._query_rows, plan.out_rows)
        self._writers: dict[int, LayerWriter] = {}
        self._terms: dict[int, Terms] = {}
        self.slopes: dict[int, torch.Tensor] = {}  # slopes by layer, of layers with ALiBi's bias
        self._seen: dict[int, int] = {}  # tokens per layer
        self._owners = KeyOwners()
        self._kv_layers: dict[int, int | None] = {}  # whose keys layers read; None: their own
        self._past, self._rows = 0, 0
        self.latents = Latents()  # to be listening while the model reads
        self.outputs = LayerOutputs(plan.layers if plan.wo else frozenset())  # likewise
        self._masks: dict[tuple[int, int], tuple[torch.Tensor | None, Mask]] = {}

    def expect(self, past: int, rows: int) -> None:
        """The next calls are about the `rows` tokens after the first `past`."""
        self._past, self._rows = past, rows
        self._masks.clear()
        self._owners.begin()

    def __call__(self, call: Call) -> torch.Tensor:
        wanted = call.layer in self._plan.layers
        self._hear_owner(call)
        if wanted:
            refuse_terms(call)
        if self._plan.latents and has_latents(call.module):
            return self._hear_latents(call, wanted)
        if self._plan.rounds:
            call.q, call.k, call.v = (self._rounded(call, name) for name in ("q", "k", "v"))
        answer = call.own_answer()
        if wanted:
            self._record(call, answer, call)
        return answer

    def _hear_owner(self, call: Call) -> None:
        owner = self._owners.of(call)
        if self._kv_layers.setdefault(call.layer, owner) != owner:
            raise Fault(
                f"layer {call.layer} ({type(call.module).__name__}) reads the keys of another "
                "layer in a part of the text; --chunk 0 runs all tokens at once"
            )

    def _hear_latents(self, call: Call, wanted: bool) -> torch.Tensor:
        absorbed, own_type = self.latents.absorbed(call), call.q.dtype
        rank = absorbed.v.shape[3]
        if self._plan.rounds:
            absorbed.q, absorbed.k = (self._rounded(absorbed, name) for name in ("q", "k"))
            absorbed.v = absorbed.k[..., :rank]
        elif not wanted:
            return call.own_answer()
        over_latents = answer_over(absorbed)
        answer = expanded(call.module, over_latents)
        if not self._plan.rounds:
            own = call.own_answer()
            difference = float((own - answer).abs().max() / own.abs().max().clamp_min(1e-30))
            if not difference <= TOLERANCE:
                raise Fault(
                    f"layer {call.layer} ({type(call.module).__name__}): attention over its "
                    f"latents differs from its own by {difference:.2g}{_rounding(own_type)}"
                    "--materialised stores the keys and values of its heads"
                )
            answer = own
        if wanted:
            self._record(absorbed, over_latents, call)
        return answer

    def _rounded(self, call: Call, name: str) -> torch.Tensor:
        return rounded(call, name, self._plan.dtype)

    @property
    def rounds(self) -> bool:
        """Whether the model attends with less than it computes."""
        return self._plan.rounds

    @property
    def writers(self) -> dict[int, LayerWriter]:
        """By layer that was recorded."""
        return self._writers

    @property
    def terms(self) -> dict[int, Terms]:
        return self._terms

    def _record(self, call: Call, answer: torch.Tensor, of_heads: Call) -> None:
        """`of_heads`: the call with the values that the output projection is made for."""
        place = f"layer {call.layer} ({type(call.module).__name__})"
        self._check_rows(call, place)
        mask = self._mask(call, place)
        terms = Terms(scale_of(call), mask.window, softcap_of(call), mask.chunk, mask.causal)
        sinks = sinks_of(call)
        writer = self._writer(call)
        if sinks is not None and "sinks" not in writer.group:
            writer.group["sinks"] = sinks.double().cpu().numpy()
        self._hear_slopes(call, writer, place)
        terms = self._merge_terms(call.layer, terms, place)
        fresh = slice(self._past, None)
        writer.write("q", self._past, array_of(call.q))
        if writer.shape.kv_layer is None:
            writer.write("k", self._past, array_of(call.k[:, :, fresh]))
        if writer.shape.kv_layer is None and not writer.shape.value_in_key:
            writer.write("v", self._past, array_of(call.v[:, :, fresh]))
        if self._plan.wo_norms:
            writer.write("wo_v_l1", self._past, wo_norms(of_heads, fresh).cpu().numpy())
        first = max(self._past, self._tokens - self._out_rows)
        if first < self._past + self._rows:
            out = array_of(answer[:, first - self._past :].transpose(1, 2))
            prove(call, out, terms, sinks, place, self.slopes.get(call.layer))
            writer.write("out", first, out)
            if self._plan.wo:
                wo = projection_by_head(of_heads, writer.shape.value_in_key)
                if "wo" not in writer.group:
                    dtype = str(wo.dtype).removeprefix("torch.")
                    writer.write_projection(as_numpy(wo), dtype)
                self.outputs.expect(of_heads, wo, out)
        self._seen[call.layer] = self._past + self._rows
        if self._seen[call.layer] == self._tokens and not self._plan.wo:
            self._finish_layer(call.layer)

    def _hear_slopes(self, call: Call, writer: LayerWriter, place: str) -> None:
        slopes = slopes_of(call.bias, f"layer {call.layer} ({type(call.module).__name__})")
        if slopes is None:
            return
        before = self.slopes.setdefault(call.layer, slopes)
        if not torch.equal(before, slopes):
            raise Fault(f"{place}: the slopes of its bias change along the text")
        if "alibi_slopes" not in writer.group:
            writer.group["alibi_slopes"] = slopes.numpy()

    def _check_rows(self, call: Call, place: str) -> None:
        if self._seen.get(call.layer, 0) != self._past:
            raise Fault(
                f"{place} attends more than once to the same tokens, and the dump format has one "
                "attention per layer; leave the layer out with --layers"
            )
        if call.q.shape[2] != self._rows or call.k.shape[2] != self._past + self._rows:
            remedy = (
                "where that is the cache's doing, --chunk 0 runs all tokens at once"
                if self._rows < self._tokens
                else "a dump holds a key per token; call the model without a cache or a prefix of "
                "keys, or leave the layer out with --layers"
            )
            raise Fault(
                f"{place} attends with {call.q.shape[2]} queries to {call.k.shape[2]} keys "
                f"where the text has {self._rows} and {self._past + self._rows} tokens; {remedy}"
            )

    def _mask(self, call: Call, place: str) -> Mask:
        chunk = declared_chunk(call)
        key = (id(call.mask), chunk)
        if key not in self._masks:
            try:
                mask = mask_of(call.mask, self._rows, self._past + self._rows, chunk)
            except Fault as fault:
                raise Fault(
                    f"{place} has {fault}; choose layers without that (--layers), and a text "
                    "without padding"
                ) from None
            self._masks[key] = (call.mask, mask)  # held, so that its id stays its own
        mask = self._masks[key][1]
        if not mask.causal and self._rows < self._tokens:
            raise Fault(
                f"{place} lets rows see later tokens; --chunk 0 runs all tokens at once, so that "
                "there are none later"
            )
        declared = declared_window(call)
        # A window that no row has reached shows in no mask.
        if not mask.window and declared is not None and declared >= self._tokens:
            return Mask(declared, mask.chunk, mask.causal)
        return mask

    def _merge_terms(self, layer: int, terms: Terms, place: str) -> Terms:
        """The layer's tensors so far, and the new ones."""
        before = self._terms.get(layer)
        if before and (before.scale, before.softcap) != (terms.scale, terms.softcap):
            raise Fault(f"{place}: its scale or soft-cap changes along the text")
        if before and before.window and before.window != terms.window:
            raise Fault(f"{place}: its sliding window changes along the text")
        if before and before.chunk and before.chunk != terms.chunk:
            raise Fault(f"{place}: its chunks change along the text")
        self._terms[layer] = terms
        return terms

    def _writer(self, call: Call) -> LayerWriter:
        if call.layer not in self._writers:
            shape = LayerShape(
                call.q.shape[1],
                call.k.shape[1],
                self._tokens,
                self._query_rows,
                call.q.shape[3],
                call.v.shape[3],
                self._out_rows,
                self._plan.wo_norms,
                self._plan.latents and has_latents(call.module),
                kv_layer=self._kv_layers[call.layer],
            )
            self._writers[call.layer] = LayerWriter(
                self._layers, call.layer, shape, self._plan.dtype, self._plan.compression
            )
            if shape.kv_layer is None and call.layer in self._key_biases:
                self._writers[call.layer].group["key_bias"] = self._key_biases[call.layer]
        return self._writers[call.layer]

    @property
    def is_causal(self) -> bool:
        """Whether no recorded row sees later tokens."""
        return all(terms.causal for terms in self._terms.values())

    def _finish_layer(self, layer: int) -> None:
        """Writes the attributes of a layer of which all tokens were recorded."""
        if self._plan.wo:
            self._writers[layer].write_residual_norms(self.outputs.residual_norms(layer))
        self._check_terms(layer, self._ropes)
        self._writers[layer].finish(self._terms[layer], self._ropes.get(layer))
        self._whole(layer)

    def finish(self) -> None:
        """Once the whole text was recorded."""
        for layer, tokens in self._seen.items():
            if tokens != self._tokens:
                raise Fault(f"layer {layer}: {tokens} of {self._tokens} tokens were recorded")
            if self._plan.wo:
                self._finish_layer(layer)
        if len({terms.causal for terms in self._terms.values()}) > 1:
            raise Fault(
                "some layers see later tokens and others do not, which one sequence of a dump "
                "cannot hold; choose layers of one kind with --layers"
            )
        missing = sorted(self._plan.layers - set(self._seen))
        if missing:
            raise Fault(
                f"layers {', '.join(map(str, missing))} have no attention that goes "
                "through transformers' AttentionInterface; leave them out with --layers"
            )

    def _check_terms(self, layer: int, ropes: dict[int, Rope | None]) -> None:
        """Refuses what a dump's reader refuses."""
        terms, owner = self._terms[layer], self._kv_layers[layer]
        if owner is not None and (
            terms != self._terms[owner]
            or ropes.get(layer) != ropes.get(owner)
            or ("sinks" in self._writers[layer].group) != ("sinks" in self._writers[owner].group)
        ):
            raise Fault(
                f"layer {layer} reads the keys of layer {owner} with another scale, window, chunk, "
                "soft-cap, rotation or sinks, which the dump format cannot hold; leave it out with "
                "--layers"
            )
        if not terms.causal and (terms.window or terms.chunk or layer in self.slopes):
            raise Fault(
                f"layer {layer} sees later tokens within a window, chunk or bias by distance, "
                "which the dump format cannot hold; leave it out with --layers"
            )


def _rounding(dtype: torch.dtype) -> str:
    """Words on a difference of attention over latents, whose heads' keys a model makes in dtype."""
    if dtype not in (torch.float16, torch.bfloat16):
        return "; "
    name = str(dtype).removeprefix("torch.")
    return f", as {name} rounds; --round, with --dtype, has it attend with what is stored, and "


def rounded(call: Call, name: str, dtype: str) -> torch.Tensor:
    """q, k or v of a call as a dump stores it, in the type that the model computes with."""
    exact = getattr(call, name)
    stored = exact.to(getattr(torch, dtype)).to(exact.dtype)
    if bool(torch.isfinite(exact).all()) and not bool(torch.isfinite(stored).all()):
        raise Fault(
            f"layer {call.layer}: {name} reaches {float(exact.abs().max()):.6g}, more "
            f"than {dtype} holds; --dtype bfloat16 or float32 does"
        )
    return stored


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """[1, H, R, columns] as numpy [H, R, columns], exactly."""
    tensor = tensor[0].to(torch.promote_types(tensor.dtype, torch.float32))
    return tensor.cpu().numpy()


def prove(
    call: Call,
    out: np.ndarray,
    terms: Terms,
    sinks: torch.Tensor | None,
    place: str,
    slopes: torch.Tensor | None = None,
) -> None:
    """Recomputes `out` [Hq, R, dv] of the piece's last rows in the format's terms, in float64."""
    group = call.q.shape[1] // call.k.shape[1]
    q = array_of(call.q[:, :, call.q.shape[2] - out.shape[1] :])
    for h in range(call.k.shape[1]):
        k, v = array_of(call.k[:, h : h + 1])[0], array_of(call.v[:, h : h + 1])[0]
        for head in range(h * group, (h + 1) * group):
            sink = -math.inf if sinks is None else float(sinks[head])
            slope = 0.0 if slopes is None else float(slopes[head])
            exact = exact_rows(q[head], k, v, terms, sink, slope)
            difference = relative_difference(exact, out[head])
            if difference > TOLERANCE and difference > allowed_difference(q[head], k, terms, slope):
                raise Fault(
                    f"{place}, head {head}: the model's output differs by {difference:.2g} "
                    "from attention with its q, k, v, scale, window and soft-cap: its "
                    "logits have a term that the dump format does not know"
                )


def pieces_of(model: torch.nn.Module, piece: int) -> int:
    """Tokens per run: `piece`, or 0 for models whose state is more than keys and values."""
    return piece if reads_in_pieces(model) else 0


def read_through(
    model: torch.nn.Module, ids: torch.Tensor, name: str, recorder: Recorder, piece: int
) -> float:
    """Runs the model over `ids` [n], `piece` tokens at a time, and proves that it attends as it
    does by itself; returns the text's perplexity."""
    total = len(ids)
    piece = piece or total
    # A mask of two rows shows whether they see later tokens; one of a single row does not.
    ends = [*range(max(piece, 2), total, piece), total]
    cache = whole_cache() if piece < total else None
    progress = Progress(name, total)
    loss, last, ropes = 0.0, None, None
    with whole_rotation(model, total):
        for past, end in itertools.pairwise([0, *ends]):
            some = ids[past:end]
            recorder.expect(past, len(some))
            with (
                listening(recorder),
                recorder.latents.listening(model),
                recorder.outputs.listening(model),
                torch.no_grad(),
            ):
                logits = model(
                    input_ids=some[None].to(model.device),
                    past_key_values=cache,
                    use_cache=cache is not None,
                ).logits[0]
            recorder.outputs.prove()
            turned = rotations_of(model)
            if ropes not in (None, turned):
                raise Fault(
                    f"{model.config.model_type}: its rotation changes along the text; --chunk 0 "
                    "reads all tokens at once"
                )
            ropes = turned
            if last is not None:
                loss += _cross_entropy(last, some[:1])
            loss += _cross_entropy(logits[:-1], some[1:])
            last = logits[-1:]
            progress.reached(past + len(some))
        if cache is None:
            prove_first_tokens(model, ids, logits, recorder.rounds)
        else:
            prove_last_rows(model, ids, cache, logits, recorder.rounds)
    return math.exp(min(loss / max(1, total - 1), 700.0))


def _cross_entropy(logits: torch.Tensor, ids: torch.Tensor) -> float:
    if len(ids) == 0:
        return 0.0
    return float(
        torch.nn.functional.cross_entropy(
            logits.float(), ids.to(logits.device).long(), reduction="sum"
        )
    )


class Progress:
    """Tokens done and time left on stderr: a line that is rewritten, or one every 10 seconds."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._start = name, total, time.monotonic()
        self._said = self._start
        self._reached: list[tuple[int, float]] = []  # tokens, and seconds since the start

    def reached(self, done: int) -> None:
        now = time.monotonic()
        self._reached.append((done, now - self._start))
        terminal = sys.stderr.isatty()
        if not terminal and done < self._total and now - self._said < 10:
            return
        self._said = now
        line = f"{self._name}: {done}/{self._total} tokens, {now - self._start:.0f} s"
        line += f", about {self._left():.0f} s left" if done < self._total else ""
        end = "\n" if not terminal or done == self._total else ""
        print(("\r\033[K" if terminal else "") + line, end=end, file=sys.stderr, flush=True)

    def _left(self) -> float:
        """Seconds, if n tokens take a n + b n^2, as attention to the tokens before it does."""
        done, seconds = self._reached[-1]
        half, then = next(each for each in self._reached if 2 * each[0] >= done)
        late = (seconds - then) / (done - half) if half < done else 0.0
        growth = max(0.0, late - seconds / done) / half
        return (self._total - done) * (seconds / done + growth * self._total)
