"""The exporter's modules, `export` and `format` (data/export, data/format), which have these names
in its scripts too."""

from __future__ import annotations

import re
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


# Options of the exporter's scripts in messages, and what they are here.
_KEYWORDS = {
    r"give --tokens (\d+)": r"give a text of at most \1 tokens",
    r"--compute-dtype (\w+) keeps": r"a model that is loaded in \1 keeps",
    r"--(layers|queries|dtype) (?=\w[\w,:-]*:)": r"\1=",
    r"--(layers|queries|dtype)": r"\1=",
    r"--(round|materialised)": r"\1=True",
}


def _by_keyword(message: str) -> str:
    for option, keyword in _KEYWORDS.items():
        message = re.sub(option, keyword, message)
    return message


@contextmanager
def faults(of: str) -> Iterator[None]:
    """The exporter's refusals as kvbench.Error, whose messages begin with `of`."""
    with exporter(of):
        from fault import Fault
    try:
        yield
    except Fault as fault:
        raise Error(f"{of}: {_by_keyword(str(fault))}") from fault
