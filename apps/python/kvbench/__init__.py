"""kvbench: how far from exact attention a compressed KV cache is.

    import kvbench as kb

    r = kb.replay(q, k, v, "snapkv", budget=256, prompt=1792, scale=0.125)
    r.errors["relative_frobenius_error"], r.memory["fraction"]

q, k and v are the queries, keys and values of one KV head; `replay` feeds them to an algorithm
token by token and compares every answer with exact attention. `open_dump` reads them from a file,
`run` computes a whole sweep. Records and values are those of the program kvbench, to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench import _built, _processor

_processor.require(_built.ARCH)

from kvbench._caches import Cache  # noqa: E402
from kvbench._core import Error, version  # noqa: E402
from kvbench._dumps import Dump, Layer, Sequence, open_dump  # noqa: E402
from kvbench._listing import algorithms, metrics, storage  # noqa: E402
from kvbench._methods import Kept, Prompt, Row, method  # noqa: E402
from kvbench._replay import Replay, replay  # noqa: E402
from kvbench._run import Results, RunError, calibrate, merge, run  # noqa: E402

if TYPE_CHECKING:
    from kvbench._attach import attach
    from kvbench._recorder import Recorder


def __getattr__(name: str) -> Any:
    """Recorder needs h5py, attach torch and transformers too: imported on first use."""
    if name == "Recorder":
        from kvbench._recorder import Recorder

        return Recorder
    if name == "attach":
        from kvbench._attach import attach

        return attach
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = version()
__all__ = [
    "Cache",
    "Dump",
    "Error",
    "Kept",
    "Layer",
    "Prompt",
    "Recorder",
    "Replay",
    "Results",
    "Row",
    "RunError",
    "Sequence",
    "algorithms",
    "attach",
    "calibrate",
    "merge",
    "method",
    "metrics",
    "open_dump",
    "replay",
    "run",
    "storage",
]
