"""Reading in a child process. HDF5 1.10 crashes, loops or asks for memory without end on some
damaged files, and would take this process with it."""

import os
import pickle
import resource
import selectors
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

Found = TypeVar("Found")

MEMORY = 160 * 2**20  # bytes beyond those of this process that a small file may take
PER_BYTE = 16  # bytes of memory per byte of the file: packed float16 that becomes float64
SECONDS = 1  # seconds of processor time
PER_SECOND = 20 * 2**20  # bytes of the file that one more second reads
SILENT = 60  # seconds without an answer
NO_MEMORY = 3  # exit code of the child


class ChildError(Exception):
    """Why there was no answer: "crashed (Segmentation fault)"."""


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, hard))


def _addresses() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def _answer(pipe: int, size: int, work: Callable[[], Found]) -> NoReturn:
    """In the child: what the work gives or raises, for the parent."""
    code = 1
    try:
        for number in (
            signal.SIGSEGV,
            signal.SIGBUS,
            signal.SIGABRT,
            signal.SIGFPE,
            signal.SIGXCPU,
        ):
            signal.signal(number, signal.SIG_DFL)
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_AS, _addresses() + MEMORY + PER_BYTE * size)
        spent = resource.getrusage(resource.RUSAGE_SELF)
        used = spent.ru_utime + spent.ru_stime
        _limit(resource.RLIMIT_CPU, int(used) + 1 + SECONDS + size // PER_SECOND)
        try:
            answer: tuple[bool, Any] = (True, work())
        except MemoryError:
            os._exit(NO_MEMORY)
        except Exception as error:
            error.__traceback__ = error.__cause__ = error.__context__ = None
            answer = (False, error)
        with os.fdopen(pipe, "wb") as out:
            pickle.dump(answer, out)
        code = 0
    finally:
        os._exit(code)


def _received(pipe: int) -> bytes:
    parts: list[bytes] = []
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        end = time.monotonic() + SILENT
        while ready.select(max(0.0, end - time.monotonic())):
            part = os.read(pipe, 2**20)
            if not part:
                return b"".join(parts)
            parts.append(part)
            end = time.monotonic() + SILENT
    raise ChildError(f"did not answer for {SILENT} s")


def in_child(path: Path | str, work: Callable[[], Found]) -> Found:
    """Returns or raises as `work`, which reads the file at `path`; ChildError where it ends its
    process or takes far more time or memory than a file of that size can need."""
    size = Path(path).stat().st_blocks * 512 if Path(path).exists() else 0
    ends = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ends[0])
        _answer(ends[1], size, work)
    os.close(ends[1])
    try:
        said = _received(ends[0])
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(ends[0])
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGXCPU:
        raise ChildError("did not come to an end")
    if code == NO_MEMORY:
        raise ChildError("takes far more memory than the file has bytes")
    if code < 0:
        raise ChildError(f"crashed ({signal.strsignal(-code)})")
    if code != 0:
        raise ChildError(f"ended with exit code {code}")
    right, answer = pickle.loads(said)  # the text is this program's own child's
    if not right:
        raise answer
    return answer
