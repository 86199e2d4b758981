"""The exporter's modules, `export` and `format` (data/export, data/format), which have these names
in its scripts too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvbench._core import Error


@contextmanager
def exporter(needs: str) -> Iterator[None]:
    """Inside, they are imported; `needs` begins the message where a package is missing."""
    folder = str(Path(__file__).resolve().parent / "exporter")
    sys.path.insert(0, folder)
    try:
        yield
    except ImportError as missing:
        packages = "h5py" if missing.name == "h5py" else "torch transformers h5py"
        raise ImportError(f"{needs}: {missing}; pip install {packages}") from missing
    finally:
        sys.path.remove(folder)


@contextmanager
def faults(of: str) -> Iterator[None]:
    """The exporter's refusals as kvbench.Error, whose messages begin with `of`."""
    with exporter(of):
        from fault import Fault
    try:
        yield
    except Fault as fault:
        raise Error(f"{of}: {fault}".replace("(--dtype)", "(dtype=)")) from fault
