"""Evidence: which tokens of a sequence an answer needs, and which rows ask for them; what
make_needle.py writes next to token ids, and dumps hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from fault import Fault


@dataclass(frozen=True)
class Evidence:
    """spans [e, 2]: first and last token, inclusive; rows [r] ask for them; of a sequence of
    `tokens` tokens, whose first `prompt_tokens` are its prompt."""

    spans: np.ndarray
    rows: np.ndarray
    tokens: int
    prompt_tokens: int

    def write(self, sequence: h5py.Group) -> None:
        """In place of what the sequence has."""
        sequence.pop("evidence", None)
        sequence["evidence"] = self.spans
        sequence["evidence"].attrs["rows"] = self.rows


def read_evidence(path: Path) -> Evidence:
    """The .json of `make_needle.py make`. Raises Fault."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        numbers = {
            name: np.array(facts[name]) for name in ("evidence", "rows", "tokens", "prompt_tokens")
        }
        for name, array in numbers.items():
            if array.size and array.dtype.kind != "i":
                raise TypeError(f"{name}: expected integers, got {array.dtype}")
        return Evidence(
            numbers["evidence"].astype(np.int32).reshape(-1, 2),
            numbers["rows"].astype(np.int64),
            int(numbers["tokens"]),
            int(numbers["prompt_tokens"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Fault(f"{path}: is not what `make_needle.py make` wrote: {error}") from error
