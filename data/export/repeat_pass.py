"""The pass in which a model repeats its prompt, part by part, for methods that rank tokens by what
it attends to meanwhile (KVzip).

Each part of the prompt is read once more, behind a request to repeat it, over the cache of the
whole prompt. The queries of that reading and its own keys are stored; the keys of the prompt are
the dump's. Requests and sizes are those of snu-mllab/KVzip, model/wrapper.py at 5d84729.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np
import torch
from format.dump_file import TOLERANCE, Fault, decode, element_type, relative_difference

from export.attention_capture import (
    Call,
    cache_of,
    has_latents,
    held_by,
    listening,
    most_positions,
    reads_in_pieces,
    refuse_to_decode,
    sinks_of,
    whole_cache,
)
from export.rope_probe import refuse_changing_rotation
from export.sequence_recorder import Plan, Progress, Recorder, array_of, prove, rounded

REQUEST = "\n\nRepeat the previous context exactly."
NEXT_REQUEST = "\n\nRepeat the part of the previous context exactly, starting with "
REMINDED = 8  # last tokens of the part before, behind the request for the next one
PLACEHOLDER = "kvbench placeholder"


@dataclass(frozen=True)
class Part:
    first: int  # the prompt's tokens from here ..
    end: int  # .. up to here
    ids: np.ndarray  # input of the model: the request, then these tokens


def answer_begins(tokenizer: Any) -> str:
    """Text between a user's words and the answer, by the tokenizer's chat template."""
    if not tokenizer.chat_template:
        return "\n"
    words = tokenizer.apply_chat_template(
        [{"role": "user", "content": PLACEHOLDER}], add_generation_prompt=True, tokenize=False
    )
    return str(words.partition(PLACEHOLDER)[2])


def parts_of(prompt: np.ndarray, first: int, size: int, tokenizer: Any) -> list[Part]:
    """The parts of `size` tokens of a prompt [P] from token `first` on."""

    def ids(words: str) -> list[int]:
        return list(tokenizer(words, add_special_tokens=False, verbose=False)["input_ids"])

    parts: list[Part] = []
    for start in range(first, len(prompt), size):
        part = prompt[start : start + size]
        request = ids(REQUEST)
        if parts:
            last = prompt[parts[-1].first : start][-REMINDED:]
            request = [*ids(NEXT_REQUEST), *last]
        read = np.array([*request, *ids(answer_begins(tokenizer)), *part], np.int64)
        parts.append(Part(start, start + len(part), read))
    return parts


class PassRecorder:
    """Hears the pass: answers as the model does, and stores what it attends with."""

    def __init__(self, recorder: Recorder, plan: Plan, prompt: int, rows: int, exact: bool) -> None:
        self._recorder, self._plan, self._prompt, self._exact = recorder, plan, prompt, exact
        for writer in recorder.writers.values():
            writer.add_repeat(rows)
        self._row: int | None = None
        self._compared: set[int] = set()

    def expect(self, row: int | None) -> None:
        """The next calls are about the pass's rows from `row` on; None: about the prompt."""
        self._row = row

    def __call__(self, call: Call) -> torch.Tensor:
        if self._plan.latents and has_latents(call.module):
            raise Fault(
                f"layer {call.layer} ({type(call.module).__name__}) attends over latents; --repeat "
                "goes with --materialised there"
            )
        if self._plan.rounds:
            call = replace(
                call, **{name: rounded(call, name, self._plan.dtype) for name in ("q", "k", "v")}
            )
        answer = call.own_answer()
        if self._row is not None and call.layer in self._plan.layers:
            self._record(call, answer, self._row)
        return answer

    def _record(self, call: Call, answer: torch.Tensor, row: int) -> None:
        place = f"layer {call.layer} ({type(call.module).__name__}), repeating the prompt"
        writer = self._recorder.writers[call.layer]
        if call.layer not in self._compared:
            self._compared.add(call.layer)
            self._compare_keys(call, writer.group["k"], place)
        rows = call.q.shape[2]
        writer.write_repeat("q_repeat", row, array_of(call.q))
        writer.write_repeat("k_repeat", row, array_of(call.k[:, :, -rows:]))
        proven = min(rows, self._plan.out_rows)
        out = array_of(answer[:, rows - proven :].transpose(1, 2))
        prove(
            call, out, self._recorder.terms[call.layer], sinks_of(call), place,
            self._recorder.slopes.get(call.layer),
        )  # fmt: skip

    def _compare_keys(self, call: Call, stored: h5py.Dataset, place: str) -> None:
        """The pass attends to the keys that the dump holds of the prompt."""
        if not self._exact:  # stored narrower than the model attends with
            return
        for h in range(call.k.shape[1]):
            keys = decode(stored[h, : self._prompt], element_type(stored))
            difference = relative_difference(
                array_of(call.k[:, h : h + 1, : self._prompt])[0].astype(np.float64), keys
            )
            if not difference <= max(TOLERANCE, 8 * float(torch.finfo(call.k.dtype).eps)):
                raise Fault(
                    f"{place}: KV head {h} attends to keys of the prompt that differ by "
                    f"{difference:.2g} from those of the text as a whole"
                )


def refuse_to_repeat(
    model: torch.nn.Module,
    heard: set[int],
    causal: bool,
    prompt: int,
    parts: list[Part],
    tokens: int,
) -> None:
    """`tokens`: of the text, whose first `prompt` are repeated."""
    config = model.config.get_text_config()
    if not causal:
        raise Fault(f"{config.model_type}: its rows see later tokens, so that nothing is repeated")
    if not reads_in_pieces(model):
        raise Fault(
            f"{config.model_type}: its layers keep more than keys and values of the prompt, so "
            "that --repeat cannot go back to its end"
        )
    most = prompt + max(len(part.ids) for part in parts)
    limit = most_positions(config)
    if limit and most > limit:
        raise Fault(
            f"--repeat reads {most - prompt} tokens behind the {prompt} of the prompt, and the "
            f"model is made for {limit}; choose a smaller --repeat-part or --prompt-tokens"
        )
    refuse_to_decode(model, heard)
    refuse_changing_rotation(model, torch.from_numpy(parts[0].ids), max(most, tokens))


def repeat_prompt(
    model: torch.nn.Module,
    prompt: np.ndarray,
    parts: list[Part],
    recorder: Recorder,
    plan: Plan,
    exact: bool,
    group: h5py.Group,
) -> None:
    """Runs the pass after the text of `recorder` was read, and stores it in its sequence's `group`
    and layers. `exact`: the dump holds what the model attends with."""
    rows = sum(len(part.ids) for part in parts)
    hear = PassRecorder(recorder, plan, len(prompt), rows, exact)

    def read(ids: np.ndarray, cache: Any, row: int | None) -> None:
        piece = plan.piece or len(ids)
        for past in range(0, len(ids), piece):
            hear.expect(None if row is None else row + past)
            some = torch.from_numpy(ids[past : past + piece].astype(np.int64))
            with listening(hear), torch.no_grad():
                model(input_ids=some[None].to(model.device), past_key_values=cache, use_cache=True)

    cache = whole_cache()
    read(prompt, cache, None)
    held = held_by(cache)
    progress = Progress(f"{group.name.rpartition('/')[2]}, repeated", rows)
    row = 0
    for part in parts:
        read(part.ids, cache_of(held), row)
        row += len(part.ids)
        progress.reached(row)
    numbers = [[part.first, part.end, len(part.ids)] for part in parts]
    group["repeat"] = np.array(numbers, np.int32)
    group["repeat"].attrs["request"] = REQUEST
