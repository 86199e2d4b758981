"""Who answers a layer's decoded rows over its compressed cache: the model, with weights of the
tokens in its mask, or kvbench, from the compressed model's own queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import kvbench as kb
import numpy as np
import torch
from export.attention_capture import Call
from export.layer_output import wo_norms
from format.dump_file import TOLERANCE, Fault

from loop.loop_caches import CacheFiles, HeadReads, Span, Unsuitable


@dataclass(frozen=True)
class Setting:
    """A method with its parameters and seed, on one text.

    cells: the records of results.json, by layer and KV head; outputs: those of whole layers, where
    the dump has their output projections.
    """

    sequence: str
    label: str
    algorithm: str
    params: dict[str, Any]
    storage: Any  # None: unquantised
    seed: int | None
    cells: Mapping[tuple[int, int], dict[str, Any]]
    outputs: Mapping[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def layers(self) -> list[int]:
        return sorted({layer for layer, _ in self.cells})


@dataclass(frozen=True)
class Text:
    """A text that the model has read: its layers as in the dump, and where decoding begins.

    answers: the uncompressed model's of decoded rows, by layer and KV head, once they are known.
    """

    name: str
    layers: Mapping[int, kb.Layer]
    n_layers: int
    prompt: int
    tokens: int
    answers: dict[tuple[int, int], np.ndarray] = field(default_factory=dict, compare=False)

    def span(self, layer: int) -> Span:
        return Span(self.prompt, self.tokens, self.layers[layer].window)


@dataclass
class Whole:
    """Answers with the full cache, and proves that decoding after the prompt continues the reading
    that the dump holds."""

    text: Text

    def __call__(self, call: Call) -> torch.Tensor:
        layer = self.text.layers[call.layer]
        eps = torch.finfo(call.k.dtype).eps
        for name, ours, theirs in (("queries", call.q[0], layer.q), ("keys", call.k[0], layer.k),
                                   ("values", call.v[0], layer.v)):  # fmt: skip
            decoded = theirs[:, self.text.prompt :]
            apart = ours[:, -decoded.shape[1] :].double().cpu().numpy() - decoded
            if np.linalg.norm(apart) > max(TOLERANCE, 16 * eps) * np.linalg.norm(decoded):
                raise Fault(
                    f"{self.text.name}, layer {call.layer}: after the prompt the model has other "
                    f"{name} than when it reads the whole text; its attention depends on more than "
                    "cached keys and values, and the closed loop cannot run it"
                )
        return call.own_answer()


def scores_all(rows: Any, span: Span) -> bool:
    """Whether a sweep's evaluate.rows has every decoded row."""
    return rows == "all" or (isinstance(rows, dict) and rows.get("last", 0) >= span.rows)


@dataclass
class Replayed:
    """The model answers over what the uncompressed model's decisions left: tokens weigh in by the
    logarithm of their weights, added to the logits; entries besides the tokens are appended."""

    text: Text
    setting: Setting
    files: CacheFiles
    layers: frozenset[int]  # that are compressed

    def __call__(self, call: Call) -> torch.Tensor:
        if call.layer not in self.layers:
            return call.own_answer()
        heads = self.reads(call.layer)
        most = max(len(head.key) for head in heads)
        weight = np.concatenate([_widened(head.weight, most, self.text.tokens) for head in heads])
        with np.errstate(divide="ignore"):
            mask = torch.from_numpy(np.log(weight)).to(call.q.device, torch.float32)
        # As transformers masks: the least number, for a softmax of -inf alone is undefined.
        mask = mask.clamp_min(torch.finfo(torch.float32).min)[None]
        k, v = (
            torch.cat((tensor, _stacked(entries, most, tensor)), dim=2)
            for tensor, entries in (
                (call.k, [head.key for head in heads]),
                (call.v, [head.value for head in heads]),
            )
        )
        return replace(call, k=k, v=v, mask=mask).own_answer()

    def reads(self, number: int) -> list[HeadReads]:
        """Values of each KV head of a layer."""
        layer, prompt = self.text.layers[number], self.text.prompt
        group = layer.query_heads // layer.kv_heads
        found = []
        for head in range(layer.kv_heads):
            cell = self.setting.cells[number, head]["id"]
            if cell not in self.files:
                raise Unsuitable(
                    "what it keeps, or how it answers, cannot be written as rows of a cache file; "
                    "--decisions live answers it"
                )
            k, v = layer.k[head, :prompt], layer.v[head, :prompt]
            span, rows = self.text.span(number), self.setting.cells[number, head]["key"]["rows"]
            found.append(self.files.reads(cell, span, group, k, v, scores_all(rows, span)))
        return found


def _by_path(storage: Any, paths: dict[str, str]) -> Any:
    """A storage whose files are named by their paths in place of their fingerprints."""
    if isinstance(storage, dict):
        return {name: _by_path(each, paths) for name, each in storage.items()}
    if isinstance(storage, list):
        return [_by_path(each, paths) for each in storage]
    return paths.get(storage, storage)


def _keywords(setting: Setting, files: CacheFiles) -> dict[str, Any]:
    """The parameters as kb.replay takes them: files by their paths. Its own keyword `rows` hides a
    parameter."""
    params = dict(setting.params)
    if "calibration" in params:
        params["calibration"] = files.calibrations[params["calibration"]]
    hidden = params.pop("rows", None)
    usual = next(
        (
            parameter.get("default")
            for known in kb.algorithms()
            if known["id"] == setting.algorithm
            for parameter in known["parameters"]
            if parameter["name"] == "rows"
        ),
        None,
    )
    if hidden != usual:
        raise Unsuitable(
            f"its parameter rows is {hidden}, and live answers have {usual}, the default; "
            "--decisions replayed answers it"
        )
    return params


def _widened(weight: np.ndarray, most: int, tokens: int) -> np.ndarray:
    """Weights [G, R, tokens + e] with zeros for the entries that other KV heads have besides."""
    return np.pad(weight, ((0, 0), (0, 0), (0, tokens + most - weight.shape[2])))


def _stacked(entries: list[np.ndarray], most: int, like: torch.Tensor) -> torch.Tensor:
    """Vectors [e, columns] of each KV head as [1, Hkv, most, columns], zeros where e < most."""
    table = np.stack([np.pad(each, ((0, most - len(each)), (0, 0))) for each in entries])
    return torch.from_numpy(table)[None].to(like.device, like.dtype)


def as_answer(heads: list[np.ndarray], call: Call) -> torch.Tensor:
    """Answers [G, rows, dv] of each KV head as a layer's, at least in float32."""
    answer = torch.from_numpy(np.concatenate(heads)).transpose(0, 1)[None]
    return answer.to(call.q.device, torch.promote_types(call.q.dtype, torch.float32))


def errors_of(answers: np.ndarray, exact: np.ndarray) -> dict[str, Any]:
    """Errors of answers [G, rows, dv], as configs/RESULTS.md defines them."""
    a, z = (each.reshape(-1, each.shape[-1]) for each in (exact, answers))
    rows = np.linalg.norm(z - a, axis=1) / np.linalg.norm(a, axis=1)
    return {
        "relative_frobenius_error": float(np.linalg.norm(z - a) / np.linalg.norm(a)),
        "relative_spectral_error": float(np.linalg.norm(z - a, 2) / np.linalg.norm(a, 2)),
        "relative_l2": {"mean": float(rows.mean()), "max": float(rows.max())},
    }


@dataclass
class Live:
    """kvbench answers: the method sees queries, keys and values of the compressed model, prompt and
    decoded rows, and gives its own answers, rounded to the model's type.

    Joint decisions for several KV heads, and cache files, are replayed if all of them were made on
    the prompt, which both models share. Each answered cell has `errors`, against exact attention of
    the same queries, and `errors_dense`, against the uncompressed model's answers.
    """

    text: Text
    setting: Setting
    files: CacheFiles
    layers: frozenset[int]
    errors: list[dict[str, Any]] = field(default_factory=list)
    errors_dense: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, call: Call) -> torch.Tensor:
        if call.layer not in self.layers:
            return call.own_answer()
        if self.setting.algorithm == "given" or any(
            "scope_layers" in self.setting.cells[place]["key"]
            for place in self.setting.cells
            if place[0] == call.layer
        ):
            self._require_decided_once(call.layer)
            return Replayed(self.text, self.setting, self.files, self.layers)(call)
        layer, prompt = self.text.layers[call.layer], self.text.prompt
        decoded = call.q[0].double().cpu().numpy()
        past = layer.q[:, : layer.query_rows - decoded.shape[1]]
        q = np.concatenate((past, decoded), axis=1)
        k, v = (each[0].double().cpu().numpy() for each in (call.k, call.v))
        group = layer.query_heads // layer.kv_heads
        answers, norms = [], self._norms(call)
        for head in range(layer.kv_heads):
            own = slice(head * group, (head + 1) * group)
            replay = self.replay(
                (q[own], k[head], v[head]),
                (call.layer, head),
                prompt=prompt,
                rope=layer.rope,
                key_bias=None if layer.key_bias is None else layer.key_bias[head],
                wo_v_l1=None if norms is None else norms[own],
                **self.keywords,
            )
            answers.append(replay.outputs)
            self.errors.append(replay.errors)
            self.compare((call.layer, head), replay.outputs)
        return as_answer(answers, call)

    def compare(self, place: tuple[int, int], answers: np.ndarray) -> None:
        """Adds the errors of a KV head's answers [G, R, dv] against the uncompressed model's."""
        known = self.text.answers
        if place not in known:
            layer = self.text.layers[place[0]]
            group = layer.query_heads // layer.kv_heads
            q = layer.q[place[1] * group : (place[1] + 1) * group, -answers.shape[1] :]
            qkv = q, layer.k[place[1]], layer.v[place[1]]
            exact = self.replay(qkv, place, "exact", prompt=self.text.prompt, storage="float")
            known[place] = exact.outputs
        self.errors_dense.append(errors_of(answers, known[place]))

    @cached_property
    def keywords(self) -> dict[str, Any]:
        return _keywords(self.setting, self.files)

    def replay(
        self,
        qkv: Sequence[np.ndarray],
        place: tuple[int, int],
        algorithm: str | None = None,
        **given: Any,
    ) -> kb.Replay:
        """The setting's method, or another one, over q [G, rows, d], k [n, d] and v [n, dv] of a
        layer's KV head."""
        layer, (q, k, v) = self.text.layers[place[0]], qkv
        keywords: dict[str, Any] = {
            "scale": layer.scale,
            "sliding_window": layer.window,
            "softcap": layer.softcap,
            "sequence": self.text.name,
            "n_layers": self.text.n_layers,
            "seed": self.setting.seed or 0,
            "element_bytes": self.setting.cells[place]["key"]["element_bytes"],
            "storage": _by_path(self.setting.storage or "float", self.files.calibrations),
            **given,
        }
        algorithm = algorithm or self.setting.algorithm
        try:
            return kb.replay(q, k, v, algorithm, layer=place[0], head=place[1], **keywords)
        except kb.Error as error:
            raise Unsuitable(f"layer {place[0]}, KV head {place[1]}: {error}") from None

    def _norms(self, call: Call) -> np.ndarray | None:
        """wo_v_l1 [Hq, n] where the dump has it: its own of the prompt, of the decoded tokens those
        of the compressed model's values."""
        stored = self.text.layers[call.layer].wo_v_l1
        if stored is None:
            return None
        prompt = self.text.prompt
        decoded = wo_norms(call, slice(prompt, None))[:, :, 0].double().cpu().numpy()
        return np.concatenate((stored[:, :prompt], decoded), axis=1)

    def _require_decided_once(self, layer: int) -> None:
        span = self.text.span(layer)
        for place, cell in self.setting.cells.items():
            if place[0] != layer:
                continue
            if cell["id"] not in self.files or not self.files.decided_once(cell["id"], span):
                raise Unsuitable(
                    "it decides for several KV heads together, or from a cache file, and not on "
                    "the prompt alone; --decisions replayed answers it"
                )
