"""A model whose own forward passes are recorded, each as a sequence, for kvbench.attach."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakSet

import h5py
import torch
from format.dump_file import Fault, Rope

from export import attention_capture
from export.attention_capture import listening
from export.model_call import Text, bound, heard_generation, texts_of_generation, texts_of_pass
from export.model_export import (
    bypasses,
    element_name,
    layer_numbers,
    provenance,
    query_rows,
    shared_rope,
)
from export.own_attention import prove_first_tokens
from export.rope_probe import find_key_biases, find_ropes
from export.sequence_recorder import Plan, Recorder
from export.shared_keys import refuse_apart, shared_layers
from export.whole_rotation import changes_with_length, whole_rotation

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


_modules: WeakSet[torch.nn.Module] = WeakSet()  # all modules of models that are attached


class AttachedModel:
    """Inside, each forward pass of the model is a sequence: its own call where that is of one text
    without a cache. Texts of a batch, without their padding, and those that generate() made are
    read once more, one by one."""

    def __init__(self, model: torch.nn.Module, sink: Sink, recording: Recording) -> None:
        model = getattr(model, "_orig_mod", model)  # within torch.compile(model)
        if not all(hasattr(model, name) for name in ("config", "set_attn_implementation")):
            raise Fault(
                f"{type(model).__name__} is not a model of transformers; give the one in it, or "
                "take q, k and v out of it by kvbench.Recorder"
            )
        attention_capture.require_fit()
        attention_capture.refuse_model(model.config)
        query_rows(recording.queries)
        self._model, self._sink, self._recording = model, sink, recording
        self._plan: Plan | None = None
        self._root: Rope | None = None
        self._read = 0  # sequences so far
        self._free = False  # the model's passes are its own
        self._given: Text | None = None  # the text of the pass that was begun here
        self._pass: tuple[ExitStack, Recorder, torch.Tensor] | None = None
        self._attached = ExitStack()

    def __enter__(self) -> AttachedModel:
        model: Any = self._model
        if not _modules.isdisjoint(model.modules()):
            raise Fault("the model is attached already; leave that with block first")
        with ExitStack() as stack:
            _modules.update(model.modules())
            stack.callback(_modules.difference_update, list(model.modules()))
            if "torch._dynamo" in sys.modules:  # compiled code is not recorded
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            hooks = [
                *attention_capture.install_hook(model),
                model.register_forward_pre_hook(self._before, with_kwargs=True),
                model.register_forward_hook(self._after),
            ]
            for hook in hooks:
                stack.callback(hook.remove)
            if hasattr(model, "generate"):
                self._generate = model.generate
                model.generate = self._generated
                stack.callback(delattr, model, "generate")
            self._attached = stack.pop_all()
        return self

    @property
    def unfinished(self) -> bool:
        """Whether a pass was begun, and ended in an error."""
        return self._pass is not None

    def __exit__(self, *_: object) -> None:
        with self._attached:
            if self._pass:
                self._pass[0].close()

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
        if self._given:
            self._begin(self._given)
            return
        texts, is_whole = texts_of_pass(bound(self._model.forward, given, named))
        for text in texts:
            text.prompt = self._recording.prompt_tokens
            if is_whole:
                self._begin(text)
            else:
                self._read_alone(text)

    def _read_alone(self, text: Text) -> None:
        """A pass over it alone."""
        device = attention_capture.device_of(self._model)
        more = {name: each.to(device) for name, each in text.more.items()}
        self._given, before = text, self._given
        try:
            self._model(input_ids=text.ids[None].to(device), use_cache=False, **more)
        finally:
            self._given = before

    def _generated(self, *given: Any, **named: Any) -> Any:
        """In place of the model's generate()."""
        with self._own(), heard_generation(self._model) as heard:
            answer = self._generate(*given, **named)
        for text in texts_of_generation(heard, given, named, answer):
            self._read_alone(text)
        return answer

    def _refuse_place(self, text: Text) -> None:
        """Refuses what a pass has around it that its text does not show."""
        device = attention_capture.device_of(self._model).type
        if torch.is_autocast_enabled(device):
            raise Fault(
                f"torch.autocast rounds attention to {torch.get_autocast_dtype(device)} as it "
                "computes, which a dump does not show; leave autocast, or load the model in that "
                "type"
            )
        if "position_ids" in text.more:
            for _, kinds in attention_capture.rotary_modules(self._model):
                if changes_with_length(kinds):
                    raise Fault(
                        f"position_ids begin at {int(text.more['position_ids'][0, 0])}, and the "
                        "model's rotation depends on the last position; let them begin at 0"
                    )

    def _begin(self, text: Text) -> None:
        if len(text.ids) < MIN_TOKENS:
            raise Fault(
                f"the text has {len(text.ids)} tokens; give at least {MIN_TOKENS}, by which the "
                "rotation is found"
            )
        self._refuse_place(text)
        ids = text.ids.cpu()
        stack = ExitStack()
        try:
            stack.enter_context(_hooked(self._model))
            stack.enter_context(torch.no_grad())
            with self._own():
                ropes = find_ropes(self._model, ids)
                start = int(text.more["position_ids"][0, 0]) if "position_ids" in text.more else 0
                biases = find_key_biases(self._model, ids, ropes, start)
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
                layers,
                len(ids),
                plan,
                {} if rope and rope == self._root else ropes,
                biases,
                layers.whole,
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

    def _sequence(self, text: Text) -> tuple[str, dict[str, Any]]:
        recording = self._recording
        name = recording.sequence + (f"-{self._read}" if self._read else "")
        self._read += 1
        prompt = {} if text.prompt is None else {"prompt_tokens": text.prompt}
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
    training = [module for module in of.modules() if module.training]
    of.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
        of.set_attn_implementation(before)
