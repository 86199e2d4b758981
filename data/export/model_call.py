"""Calls of a model and of its generate(), as kvbench.attach reads them: the texts that they have,
and which of their arguments are understood. All others are refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from format.dump_file import Fault
from transformers import DynamicCache, GenerationConfig

from export.known_arguments import IDLE
from export.transformers_version import unfit

# Arguments of a pass that are read here, or change nothing that attention is given.
READ = ("input_ids", "attention_mask", "position_ids", "cache_position", "past_key_values")
UNHEARD = (*IDLE, "labels", "shift_labels")
# Arguments [batch, tokens] whose part a pass over one text takes.
BY_TOKEN = ("token_type_ids",)
ALONE = "give the texts one by one, without padding"


@dataclass
class Text:
    """The tokens of a sequence, and how a pass reads them."""

    ids: torch.Tensor  # [n]
    prompt: int | None
    more: dict[str, torch.Tensor] = field(default_factory=dict)  # arguments [1, n] of the pass


def bound(function: Callable, given: tuple, named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, without those that are None."""
    signature = inspect.signature(function)
    arguments = {**signature.bind_partial(*given).arguments, **named}
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL and arguments.pop(parameter.name, ()):
            raise Fault("arguments without names are not understood here; give them by name")
    return {name: value for name, value in arguments.items() if value is not None}


def texts_of_pass(arguments: Mapping[str, Any]) -> tuple[list[Text], bool]:
    """The texts that a pass of the model reads, and whether it is one over the whole of one text,
    which can be recorded itself."""
    ids = _ids(arguments.get("input_ids"), "the model is given no input_ids")
    cache = arguments.get("past_key_values")
    if cache is not None and not (isinstance(cache, DynamicCache) and not cache.get_seq_length()):
        raise Fault(
            f"the model is given past_key_values ({type(cache).__name__}), and a pass is recorded "
            "from the beginning, with a key per token; give the text whole in one call without "
            "them, or call generate()"
        )
    kept = _kept(ids, arguments.get("attention_mask"))
    starts = _starts(ids, kept, arguments)
    if len(ids) == 1 and kept[0] == slice(0, ids.shape[1]):
        return [Text(ids[0].detach().cpu(), None, _positions(starts[0], ids[0]))], True
    _refuse_dropped("a batch or padding", arguments, ())
    return _each(ids, kept, starts, arguments), False


def texts_of_generation(
    heard: Generation, given: tuple, named: Mapping[str, Any], answer: Any
) -> list[Text]:
    """The texts that a call of generate() gave back, without padding."""
    arguments = bound(heard.function, given, named)
    recorded = "generate() is recorded of input_ids, and with answers that begin with them"
    prompts = _ids(arguments.get("input_ids", arguments.get("inputs")), recorded)
    made = getattr(answer, "sequences", answer)
    count, mask = prompts.shape[1], arguments.get("attention_mask", heard.mask)
    answers = len(made) // len(prompts)  # num_return_sequences, the answers to a prompt together
    prompts = prompts.repeat_interleave(answers, dim=0)
    if answers > 1 and mask is not None and len(mask) < len(prompts):
        mask = mask.repeat_interleave(answers, dim=0)
    if len(prompts) != len(made) or not torch.equal(made[:, :count].cpu(), prompts.cpu()):
        raise Fault(f"{recorded}; call it so")
    if heard.config is None:
        raise unfit("generate() does not prepare its special tokens")
    cache = arguments.get("past_key_values")
    if cache is not None and (not hasattr(cache, "get_seq_length") or cache.get_seq_length()):
        raise Fault("generate() is given past_key_values that hold tokens; leave them out")
    stops = arguments.get("stopping_criteria") or getattr(heard.config, "stop_strings", None)
    if stops and len(prompts) > 1:
        raise Fault(
            "generate() ends some texts of a batch by stopping_criteria or stop_strings, and where "
            "is unknown here; generate one by one, or end by eos_token_id"
        )
    settings = [name for name in arguments if hasattr(heard.config, name)]
    own = inspect.signature(heard.function).parameters
    _refuse_dropped("generate()", arguments, {*own, *settings})
    kept = _kept(prompts, mask)
    if any(name in arguments for name in BY_TOKEN):
        raise Fault(f"generate() is given {', '.join(BY_TOKEN)}; leave them out")
    starts = _starts(prompts, kept, arguments)
    ends, texts = heard.config._eos_token_tensor, []
    for prompt, some, start, row in zip(prompts.cpu(), kept, starts, made.cpu(), strict=True):
        ids = torch.cat([prompt[some], _to_end(row[count:], ends)])
        texts.append(Text(ids, len(prompt[some]), _positions(start, ids)))
    return texts


def _ids(given: Any, otherwise: str) -> torch.Tensor:
    if not isinstance(given, torch.Tensor) or given.dim() != 2:
        raise Fault(f"{otherwise}; give them as a tensor [batch, tokens], which a dump names")
    return given


def _kept(ids: torch.Tensor, mask: Any) -> list[slice]:
    """By text of a batch [batch, tokens], the tokens that its mask does not call padding."""
    count = ids.shape[1]
    if mask is None:
        return [slice(0, count)] * len(ids)
    if not isinstance(mask, torch.Tensor) or mask.dim() != 2:
        if len(ids) == 1:
            return [slice(0, count)]  # the pass itself shows it, layer by layer
        shape = f" of the shape {tuple(mask.shape)}" if isinstance(mask, torch.Tensor) else ""
        raise Fault(
            f"attention_mask is a {type(mask).__name__}{shape}, and that of a batch is "
            f"[batch, tokens]; {ALONE}"
        )
    if mask.shape != ids.shape or not bool(((mask == 0) | (mask == 1)).all()):
        raise Fault(
            f"attention_mask has the shape {tuple(mask.shape)}; give {tuple(ids.shape)} of 0 and 1"
        )
    return [_run(row.nonzero()[:, 0].tolist(), count) for row in mask.detach().cpu()]


def _run(tokens: list[int], count: int) -> slice:
    """The tokens of a text, which are all but padding at one end."""
    if not tokens:
        raise Fault("attention_mask hides a whole text; leave it out of the batch")
    first, end = tokens[0], tokens[-1] + 1
    if end - first != len(tokens) or (first > 0 and end < count):
        raise Fault(
            f"attention_mask has holes: a text keeps {len(tokens)} of {count} tokens, {first} to "
            f"{end - 1}, and padding is at one end; leave out what it hides"
        )
    return slice(first, end)


def _starts(ids: torch.Tensor, kept: list[slice], arguments: Mapping[str, Any]) -> list[int]:
    """By text the position of its first token, from which the others count on."""
    if "cache_position" in arguments:
        _consecutive("cache_position", arguments["cache_position"], 0)
    given = arguments.get("position_ids")
    if given is None:
        return [0] * len(kept)
    shape = tuple(getattr(given, "shape", ()))
    if shape not in ((ids.shape[1],), (1, ids.shape[1]), tuple(ids.shape)):
        raise Fault(f"position_ids has the shape {shape}; give {tuple(ids.shape)}")
    rows = given.reshape(-1, ids.shape[1]).expand(len(ids), -1)
    return [_consecutive("position_ids", row[some]) for row, some in zip(rows, kept, strict=True)]


def _consecutive(name: str, positions: torch.Tensor, first: int | None = None) -> int:
    """The first of positions [n] that count up by 1."""
    row = positions.detach().cpu().long()
    start = int(row[0]) if first is None else first
    if not torch.equal(row, torch.arange(start, start + len(row))):
        shown = ", ".join(map(str, row[:4].tolist()))
        raise Fault(
            f"{name} is {shown}, .., and token j of a dump is at position j; give one text, with "
            f"positions that count up by 1{' from 0' if first == 0 else ''}"
        )
    return start


def _positions(start: int, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Arguments of a pass that begins at a position."""
    return {"position_ids": torch.arange(start, start + len(ids))[None]} if start else {}


def _each(
    ids: torch.Tensor, kept: list[slice], starts: list[int], arguments: Mapping[str, Any]
) -> list[Text]:
    texts = []
    for row, (some, start) in enumerate(zip(kept, starts, strict=True)):
        text = Text(ids[row, some].detach().cpu(), None)
        text.more = _positions(start, text.ids)
        for name in BY_TOKEN:
            if name in arguments:
                text.more[name] = arguments[name].expand(*ids.shape)[row : row + 1, some]
        texts.append(text)
    return texts


def _refuse_dropped(of: str, arguments: Mapping[str, Any], own: Collection[str]) -> None:
    """Refuses arguments that passes over single texts would lack."""
    known = {*READ, *UNHEARD, *BY_TOKEN, *own}
    dropped = [
        name for name, value in arguments.items() if name not in known and value is not False
    ]
    if dropped:
        raise Fault(
            f"the texts of {of} are read once more, one by one, and the part that each has of "
            f"{', '.join(dropped)} is unknown here; call the model on each text alone, whole and "
            "without padding"
        )


@dataclass
class Generation:
    """A call of generate(), with what it decides by itself from its arguments, its
    generation_config and the model's."""

    function: Callable  # the model's own
    config: GenerationConfig | None = None
    mask: torch.Tensor | None = None  # that it takes from padding tokens


@contextmanager
def heard_generation(model: torch.nn.Module) -> Iterator[Generation]:
    """Inside, what generate() of the model decides by itself is noted."""
    names = ("_prepare_special_tokens", "_prepare_attention_mask_for_generation")
    of: Any = model
    if not all(hasattr(of, name) for name in names):
        raise unfit("generate() has no " + " or ".join(names))
    tokens, mask = (getattr(of, name) for name in names)
    owner = tokens.__self__  # a model within the model, where that is wrapped
    found = Generation(type(owner).generate.__get__(owner))

    def note_tokens(config: GenerationConfig, *given: Any, **named: Any) -> Any:
        answer = tokens(config, *given, **named)
        found.config = config
        return answer

    def note_mask(*given: Any, **named: Any) -> Any:
        found.mask = mask(*given, **named)
        return found.mask

    for name, noting in zip(names, (note_tokens, note_mask), strict=True):
        setattr(owner, name, noting)
    try:
        yield found
    finally:
        for name in names:
            delattr(owner, name)


def _to_end(made: torch.Tensor, ends: torch.Tensor | None) -> torch.Tensor:
    """Tokens [m] that generate() made, up to the first of those that end a text."""
    if ends is None:
        return made
    ended = torch.isin(made, ends.cpu()).nonzero()
    return made[: int(ended[0]) + 1] if len(ended) else made
