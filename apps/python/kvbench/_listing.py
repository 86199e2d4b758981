"""The program's algorithms, metrics and codecs, as data."""

from __future__ import annotations

import json
from typing import Any

from kvbench import _core


def algorithms() -> list[dict[str, Any]]:
    """One dict per algorithm: id, aliases, title, source, parameters (name, type, range, default,
    description), exclusive alternatives, and what it reports under `derived`.

    The document of `kvbench list algorithms --json`.
    """
    return json.loads(_core.algorithms())


def metrics() -> list[dict[str, Any]]:
    """One dict per metric: its path in a record ("errors.relative_l2"), definition and source.

    The document of `kvbench list metrics --json`.
    """
    return json.loads(_core.metrics())


def storage() -> list[dict[str, Any]]:
    """One dict per codec that `storage` may name: id, title, source, bits per number, whether it
    writes keys and values, and parameters as those of algorithms.

    The document of `kvbench list storage --json`.
    """
    return json.loads(_core.storage())
