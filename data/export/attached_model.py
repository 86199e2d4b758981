"""A model whose own forward passes are recorded, each as a sequence, for kvbench.attach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import h5py
import torch
from format.dump_file import Fault, Rope

from export import attention_capture
from export.attention_capture import listening
from export.model_export import (
    bypasses,
    element_name,
    layer_numbers,
    provenance,
    query_rows,
    shared_rope,
)
from export.own_attention import prove_first_tokens
from export.rope_probe import find_ropes
from export.sequence_recorder import Plan, Recorder
from export.shared_keys import refuse_apart, shared_layers
from export.whole_rotation import whole_rotation

MIN_TOKENS = 4


class Layers(Protocol):
    """The parent of the layers' groups of a sequence."""

    def create_group(self, layer: str) -> h5py.Group: ...
    def whole(self, layer: int) -> None: ...


class Sink(Protocol):
    """Takes the dump that is recorded."""

    @property
    def is_open(self) -> bool: ...
    def open(self, facts: Mapping[str, Any], rope: Rope | None) -> None: ...
    def sequence(
        self, name: str, attrs: Mapping[str, Any], ids: Any, owners: dict[int, int]
    ) -> Layers: ...


@dataclass(frozen=True)
class Recording:
    """Options of the exporter, as its script has them."""

    sequence: str
    description: str
    model: str
    dataset: str
    prompt_tokens: int | None
    layers: str
    queries: str
    out_rows: int
    dtype: str | None
    rounds: bool
    wo_norms: bool
    materialised: bool


@dataclass
class _Text:
    """The tokens of a sequence that the next pass reads."""

    ids: torch.Tensor  # [n]
    prompt: int | None


class AttachedModel:
    """Inside, each forward pass of the model is a sequence: its own call where that is of one text
    without a cache. Texts of a batch, without their padding, and those that generate() made are
    read once more, one by one."""

    def __init__(self, model: torch.nn.Module, sink: Sink, recording: Recording) -> None:
        attention_capture.require_fit()
        attention_capture.refuse_model(model.config)
        self._model, self._sink, self._recording = model, sink, recording
        self._plan: Plan | None = None
        self._root: Rope | None = None
        self._read = 0  # sequences so far
        self._free = False  # the model's passes are its own
        self._given: _Text | None = None  # the text of the pass that was begun here
        self._pass: tuple[ExitStack, Recorder, torch.Tensor] | None = None
        self._hooks: list[Any] = []

    def __enter__(self) -> AttachedModel:
        attention_capture.install_hook(self._model)
        model: Any = self._model
        self._hooks = [
            model.register_forward_pre_hook(self._before, with_kwargs=True),
            model.register_forward_hook(self._after),
        ]
        self._generate = model.generate
        model.generate = self._generated
        return self

    def __exit__(self, *_: object) -> None:
        if self._pass:
            self._pass[0].close()
        for hook in self._hooks:
            hook.remove()
        del self._model.generate

    @contextmanager
    def _own(self) -> Iterator[None]:
        """Inside, passes of the model are not recorded."""
        before, self._free = self._free, True
        try:
            yield
        finally:
            self._free = before

    def _before(self, _: torch.nn.Module, given: tuple, named: dict) -> None:
        if self._free:
            return
        if self._pass:
            raise Fault("an earlier pass of the model did not end; attach to it anew")
        ids = given[0] if given else named.get("input_ids")
        if not isinstance(ids, torch.Tensor) or ids.dim() != 2:
            raise Fault("the model is given no input_ids [batch, tokens], which a dump names")
        cache = named.get("past_key_values")
        if cache is not None and cache.get_seq_length() > 0:
            raise Fault(
                "the model reads on after a cache; give the text whole in one call, or call "
                "generate()"
            )
        texts = _texts(ids, named.get("attention_mask"))
        if self._given:
            self._begin(self._given)
        elif len(texts) == 1 and len(texts[0]) == ids.shape[1]:
            self._begin(_Text(texts[0], self._recording.prompt_tokens))
        else:
            for text in texts:
                self._read_alone(_Text(text, self._recording.prompt_tokens))

    def _read_alone(self, text: _Text) -> None:
        """A pass over it alone."""
        self._given, before = text, self._given
        try:
            self._model(input_ids=text.ids[None].to(self._model.device), use_cache=False)
        finally:
            self._given = before

    def _generated(self, *given: Any, **named: Any) -> Any:
        """In place of the model's generate()."""
        with self._own():
            answer = self._generate(*given, **named)
        made = getattr(answer, "sequences", answer)
        prompts = next(
            (
                each
                for each in (*given, *map(named.get, ("inputs", "input_ids")))
                if isinstance(each, torch.Tensor)
            ),
            None,
        )
        if prompts is None or len(prompts) != len(made):
            raise Fault(
                "generate() is recorded of input_ids, and with one answer to each; call it so"
            )
        count = prompts.shape[1]
        for prompt, row in zip(_texts(prompts, named.get("attention_mask")), made):
            text = torch.cat([prompt, _to_end(row[count:].cpu(), self._model)])
            self._read_alone(_Text(text, len(prompt)))
        return answer

    def _begin(self, text: _Text) -> None:
        if len(text.ids) < MIN_TOKENS:
            raise Fault(
                f"the text has {len(text.ids)} tokens; give at least {MIN_TOKENS}, by which the "
                "rotation is found"
            )
        ids = text.ids.cpu()
        stack = ExitStack()
        try:
            stack.enter_context(_hooked(self._model))
            stack.enter_context(torch.no_grad())
            with self._own():
                ropes = find_ropes(self._model, ids)
                shared = shared_layers(self._model, ids)
            if not ropes:
                raise bypasses(self._model.config.model_type)
            plan = self._planned(ropes)
            refuse_apart(shared, plan.layers)
            rope = shared_rope([ropes], plan)
            if not self._sink.is_open:
                self._root = rope
                recording = self._recording
                name = recording.model or self._model.config._name_or_path
                self._sink.open(provenance(self._model, plan, name, recording.dataset, None), rope)
            layers = self._sink.sequence(
                *self._sequence(text),
                ids.int().numpy(),
                {reader: owner for reader, owner in shared.items() if reader in plan.layers},
            )
            recorder = Recorder(
                layers, len(ids), plan, {} if rope and rope == self._root else ropes, layers.whole
            )
            recorder.expect(0, len(ids))
            stack.enter_context(whole_rotation(self._model, len(ids)))
            stack.enter_context(listening(recorder))
            stack.enter_context(recorder.latents.listening(self._model))
        except BaseException:
            stack.close()
            raise
        self._pass = (stack, recorder, ids)

    def _planned(self, ropes: dict[int, Rope | None]) -> Plan:
        recording = self._recording
        text = self._model.config.get_text_config()
        plan = Plan(
            layer_numbers(recording.layers, text.num_hidden_layers, set(ropes)),
            recording.dtype or element_name(self._model.dtype),
            recording.rounds,
            query_rows(recording.queries),
            recording.out_rows,
            0,
            0,
            recording.wo_norms,
            not recording.materialised,
        )
        self._plan = self._plan or plan
        return replace(self._plan, layers=plan.layers)

    def _sequence(self, text: _Text) -> tuple[str, dict[str, Any]]:
        recording = self._recording
        name = recording.sequence + (f"-{self._read}" if self._read else "")
        self._read += 1
        prompt = {"prompt_tokens": text.prompt} if text.prompt else {}
        return name, {"description": recording.description, **prompt}

    def _after(self, *_: object) -> None:
        if self._free or not self._pass:
            return
        stack, recorder, ids = self._pass
        self._pass = None
        with stack:
            recorder.finish()
        with _hooked(self._model), self._own(), torch.no_grad():
            prove_first_tokens(self._model, ids, None, recorder.rounds)


@contextmanager
def _hooked(model: torch.nn.Module) -> Iterator[None]:
    """Inside, the model's attention asks the exporter's."""
    of: Any = model
    before = of.config._attn_implementation
    of.set_attn_implementation(attention_capture.implementation_for(of.config))
    was_training = of.training
    of.eval()
    try:
        yield
    finally:
        of.train(was_training)
        of.set_attn_implementation(before)


def _texts(ids: torch.Tensor, mask: Any) -> list[torch.Tensor]:
    """The texts [n] of a batch [batch, tokens], without what its mask calls padding."""
    if not isinstance(mask, torch.Tensor) or mask.dim() != 2:
        return [row.detach().cpu() for row in ids]
    return [row[kept.bool()].detach().cpu() for row, kept in zip(ids, mask)]


def _to_end(made: torch.Tensor, model: Any) -> torch.Tensor:
    """Tokens [m] that generate() made, up to the first that ends a text."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    if ends is None:
        return made
    ended = torch.isin(made, torch.as_tensor(ends)).nonzero()
    return made[: int(ended[0]) + 1] if len(ended) else made
