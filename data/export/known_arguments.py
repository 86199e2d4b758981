"""Which arguments models hand to attention besides queries, keys, values and mask, and what each of
them means for a dump. Another one may change the answer, and ends the reading with its name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from format.dump_file import Fault

# A dump holds these: `sliding_window`, `logit_softcap` and `sinks` of its layers.
HELD = ("sliding_window", "softcap", "s_aux")
# The mask, the queries and the keys show all that these say.
SHOWN = (
    "is_causal",
    "position_ids",
    "cache_position",
    "position_embeddings",
    "past_key_values",
    "past_key_value",
    "layer_past",
)
# These choose what a model returns or how fast it is, and change no answer.
IDLE = (
    "use_cache",
    "return_dict",
    "logits_to_keep",
    "num_items_in_batch",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "deterministic",
)
CHOSEN = "indices"  # [1, rows, chosen]: the keys that each row reads


def refuse_unknown(
    place: str, given: Mapping[str, Any], tokens: int | None = None, also: Collection[str] = ()
) -> None:
    """Refuses an argument of `given` whose meaning is unknown; None and False mean nothing.
    `tokens`: how many keys there are. `also`: further known names."""
    for name, value in given.items():
        if value is None or value is False or name in (*HELD, *SHOWN, *IDLE, *also):
            continue
        if name == CHOSEN and isinstance(value, torch.Tensor) and tokens is not None:
            if value.shape[-1] < tokens:
                raise Fault(
                    f"{place} chooses {value.shape[-1]} keys per row ({CHOSEN}), and a dump holds "
                    f"dense attention alone; give --tokens {value.shape[-1]}, up to which rows "
                    "choose every key"
                )
            continue
        raise Fault(
            f"{place} hands {name} to its attention, whose meaning for the answer is unknown here; "
            "use a model without it, or import_arrays.py with q, k, v and out of code of your own"
        )
