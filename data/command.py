"""Common parts of the programs of this folder: refusals of options, messages where a
package is missing, and how they end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fault import Fault

# Exit codes, as kvbench has them.
DONE, REFUSED, INTERRUPTED = 0, 2, 5


def refuse(faults: Iterable[str]) -> None:
    """Fault with all of them, a line each; nothing if there are none."""
    text = "\n".join(faults)
    if text:
        raise Fault(text)


@contextmanager
def needed(remedy: str) -> Iterator[None]:
    """Imports inside that fail are a Fault: what is missing, and the remedy."""
    try:
        yield
    except ImportError as missing:
        raise Fault(f"{missing}; {remedy}") from missing


# The remedy of a script that lacks torch or transformers.
MODEL_PACKAGES = (
    "pip install torch transformers accelerate safetensors gguf h5py, or ./bootstrap.sh deps "
    "model, which makes .venv-model with the tested versions"
)


@contextmanager
def packages(program: str, environment: str = ".venv") -> Iterator[None]:
    """Imports inside need h5py and NumPy; where one is missing the program ends in one line."""
    try:
        yield
    except ImportError as missing:
        if missing.name not in ("h5py", "numpy"):
            raise
        python = Path(__file__).resolve().parents[1] / environment / "bin/python"
        remedy = (
            f"run it with {python}"
            if python.is_file()
            else "pip install h5py numpy, or apt install python3-h5py"
        )
        note(program, f"{missing}; {remedy}")
        sys.exit(REFUSED)


@contextmanager
def interrupts(program: str) -> Iterator[Callable[[], None]]:
    """A function that raises KeyboardInterrupt if Ctrl-C was pressed; a second one ends at once.

    The handler only notes the first one: Python drops an exception that it raises inside the
    callback of a weak reference, and the work would go on."""
    pressed = False

    def press(*_: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        note(program, "ends after this setting; Ctrl-C again ends at once")

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def note(program: str, text: str) -> None:
    print(f"{program}: {text}", file=sys.stderr)


def exit_code(program: str, work: Callable[[], object]) -> int:
    """DONE once `work` is, or nobody reads on; REFUSED where it raises Fault, which is printed."""
    try:
        work()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `| head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Fault as fault:
        note(program, str(fault))
        return REFUSED
    return DONE
