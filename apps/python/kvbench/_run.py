"""A whole sweep, as the program runs it."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

from kvbench import _core
from kvbench._arrays import json_text, whole
from kvbench._listing import algorithms
from kvbench._listing import storage as codecs
from kvbench._method_calls import method_tables
from kvbench._methods import classes_called

_SHOWN = 3  # reasons in a message
MAX_THREADS = 4096
_FLAGS = ("fresh", "add", "anonymous", "retry-failed", "quiet")
_OPTIONS = {
    **{f"--{name}": name.replace("-", "_") + "=True" for name in _FLAGS},
    **{f"--{name}": name for name in ("out", "only", "shard", "device", "threads")},
    "--set": "sets",
    "--memory-limit": "memory_limit",
}
"""Keywords, by the program's options that the library's messages name."""


class Results:
    """A results.json (configs/RESULTS.md), or that of a run's folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path) / "results.json" if Path(path).is_dir() else Path(path)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The parsed file."""
        return json.loads(self.path.read_text(encoding="utf-8"))

    @property
    def cells(self) -> list[dict[str, Any]]:
        """One record per cell, as `Replay.record`."""
        return self.document["cells"]

    @property
    def complete(self) -> bool:
        """Whether no cell is missing; cells that failed are there, with their reason."""
        return self.document["status"] == "complete"

    @property
    def summary(self) -> list[dict[str, Any]]:
        """Means and intervals per setting, each over the units that it has: `units` of
        `units_asked`. `means` compares settings."""
        return self.document["summary"]

    @property
    def reasons(self) -> dict[str, dict[str, int]]:
        """Why cells have no numbers: by status ("failed", "skipped") and reason, how many."""
        found: dict[str, Counter[str]] = {}
        for cell in self.cells:
            if "reason" in cell:
                found.setdefault(cell["status"], Counter())[cell["reason"]] += 1
        return {status: dict(reasons.most_common()) for status, reasons in found.items()}

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The records of the cells that failed, each with its `reason`."""
        return [cell for cell in self.cells if cell["status"] == "failed"]

    def _lines(self, status: str) -> list[str]:
        """How many cells have `status`, and why."""
        reasons = self.reasons.get(status, {})
        planned = self.document["plan"]["cells"]
        lines = [f"{self.path}: {sum(reasons.values())} of {planned} cells {status}"]
        lines += [f"  {count} {status}: {reason}" for reason, count in reasons.items()]
        if len(reasons) > _SHOWN:
            lines[1 + _SHOWN :] = [f"  and {len(reasons) - _SHOWN} more reasons: Results.reasons"]
        return lines if reasons else []

    def frame(self) -> Any:
        """The cells as a pandas DataFrame, by kvplot.load_results: needs kvbench[plots]."""
        return _kvplot("Results.frame").load_results(str(self.path))

    def means(self, *columns: str, by: Iterable[str] = ()) -> Any:
        """Means of `columns` per setting as a pandas DataFrame, by kvplot.mean_over_units, over the
        units that every setting has; warns if that is not all: needs kvbench[plots]."""
        return _kvplot("Results.means").mean_over_units(self.frame(), list(columns), _texts(by))

    def __repr__(self) -> str:
        return f"<results {str(self.path)!r}>"


class RunError(RuntimeError):
    """Cells are missing from results, for all that could be computed of them."""

    def __init__(self, message: str, results: Results) -> None:
        super().__init__(message)
        self.results = results
        """The finished part: `Results.reasons` and `.failed` are those of the cells that failed."""

    @property
    def reasons(self) -> dict[str, dict[str, int]]:
        """`Results.reasons` of what there is."""
        return self.results.reasons

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The records of the cells that failed."""
        return self.results.failed


def _kvplot(needs: str) -> Any:
    try:
        import kvplot
    except ImportError as missing:
        raise ImportError(
            f"{needs} needs {missing.name}; pip install 'kvbench[plots]'"
        ) from missing
    return kvplot


Folder = str | os.PathLike[str]


def _absolute(given: Any, folder: Folder = "", words: Collection[str] = ()) -> Any:
    """A path or glob that starts at a folder, or a list of them; `words` are no paths."""
    if isinstance(given, (list, tuple)):
        return [_absolute(each, folder, words) for each in given]
    if not isinstance(given, (str, os.PathLike)) or given in words:
        return given
    return os.path.abspath(os.path.join(folder, os.path.expanduser(given)))  # noqa: PTH100, PTH111, PTH118


def with_absolute_paths(
    algorithm: Any, params: dict[str, Any], folder: Folder = ""
) -> dict[str, Any]:
    """Parameters of an algorithm; files that they name, starting at a folder, have absolute
    paths."""
    if not {"file", "calibration"} & params.keys():
        return params
    known = [each for each in algorithms() if algorithm in (each["id"], *each["aliases"])]
    return _with_absolute_paths(known, params, folder)


def _with_absolute_paths(
    known: list[dict[str, Any]], params: dict[str, Any], folder: Folder
) -> dict[str, Any]:
    for table in (row for each in known for row in each["parameters"]):
        name = table["name"]
        is_path = table["type"] in ("file", "calibration") and name in params
        if is_path:
            words = table.get("words", [])
            params = {**params, name: _absolute(params[name], folder, words)}
    return params


def storage_with_absolute_paths(storage: Any, folder: Folder = "") -> Any:
    """The storage of a sweep or an entry; files that its codecs name, starting at a folder, have
    absolute paths."""
    if isinstance(storage, (list, tuple)):
        return [storage_with_absolute_paths(each, folder) for each in storage]
    if not isinstance(storage, dict):
        return storage
    if "codec" in storage:
        known = [each for each in codecs() if each["id"] == storage["codec"]]
        return _with_absolute_paths(known, storage, folder)
    return {name: storage_with_absolute_paths(each, folder) for name, each in storage.items()}


def entry_with_absolute_paths(entry: Any, folder: Folder = "") -> Any:
    """An entry of a sweep's algorithms, or its `then`; files that it names, starting at a folder,
    have absolute paths."""
    if not isinstance(entry, dict):
        return entry
    params = entry.get("params")
    if isinstance(params, dict):
        params = with_absolute_paths(entry.get("algorithm"), params, folder)
        entry = {**entry, "params": params}
    if "storage" in entry:
        entry = {**entry, "storage": storage_with_absolute_paths(entry["storage"], folder)}
    if "then" in entry:
        entry = {**entry, "then": entry_with_absolute_paths(entry["then"], folder)}
    return entry


def sweep_with_absolute_paths(sweep: dict[str, Any], folder: Folder = "") -> dict[str, Any]:
    """A sweep; files that its algorithms and codecs name, starting at a folder, have absolute
    paths."""
    entries = sweep.get("algorithms")
    if isinstance(entries, (list, tuple)):
        entries = [entry_with_absolute_paths(entry, folder) for entry in entries]
        sweep = {**sweep, "algorithms": entries}
    if "storage" in sweep:
        sweep = {**sweep, "storage": storage_with_absolute_paths(sweep["storage"], folder)}
    return sweep


def results_folder(of: str, out: Folder) -> Path:
    """The folder `out`, which may be missing."""
    folder = Path(out).expanduser()
    there = next((each for each in (folder, *folder.parents) if each.exists()), None)
    if there is not None and not there.is_dir():
        raise _core.Error(f"{of}: out: {there} is a file; give a folder")
    return folder


def sweep_name(out: Path) -> str:
    """The folder's name, in the letters that a sweep's name may have."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", out.resolve().name)[:199]
    return name if re.match(r"[A-Za-z0-9_]", name) else f"_{name}"


@contextmanager
def _sweep_file(sweep: dict[str, Any], out: Path) -> Iterator[Path]:
    """The sweep as a file next to its results; paths of dumps and cache files start at the working
    folder. If the run is refused, the file is again what it was."""
    document = {"schema_version": 1, "name": sweep_name(out), **sweep}
    if "dumps" in document:
        document["dumps"] = _absolute(document["dumps"])
    text = json_text(sweep_with_absolute_paths(document), indent=1)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "sweep.json"
    before = path.read_bytes() if path.exists() else None
    path.write_text(text + "\n", encoding="utf-8")
    try:
        yield path
    except _core.Error:
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)
        raise


@contextmanager
def _named_keywords(options: Mapping[str, str] = _OPTIONS) -> Iterator[None]:
    """Has errors of the library name keywords in place of the program's options."""
    try:
        yield
    except (_core.Error, OSError) as error:
        named = re.sub(r"--[a-z-]+", lambda found: options.get(found[0], found[0]), str(error))
        raise type(error)(named) from None


def _refuse(what: str) -> _core.Error:
    return _core.Error(f"kvbench.run: {what}")


def _checked(device: str, threads: int | None, memory_limit: int | None, both: bool) -> None:
    if device not in ("cpu", "cuda", "auto"):
        raise _refuse(f"device: must be cpu, cuda or auto, got {device}")
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise _refuse(f"threads: must be in [1, {MAX_THREADS}], got {threads}")
    if memory_limit is not None and memory_limit < 1:
        raise _refuse(f"memory_limit: must be at least 1 byte, got {memory_limit}")
    if both:
        raise _refuse("add: fresh is given as well; give one of them")


def _texts(given: Iterable[str]) -> list[str]:
    return [given] if isinstance(given, str) else [str(each) for each in given]


def _results(path: Path, state: str, resume: str) -> Results:
    """Raises where cells are missing, warns where they have no numbers."""
    results = Results(path)
    failed = results._lines("failed")
    if state == "incomplete":
        planned = results.document["plan"]["cells"]
        missing = planned - len(results.cells)
        what = f"{missing} of {planned} cells" if missing else "parts of the results"
        raise RunError("\n".join([f"{path}: {what} are missing; {resume}", *failed]), results)
    if state == "failed_cells":
        lines = failed or [f"{path}: records of whole layers failed; `layers` says why"]
        warnings.warn("\n".join(lines), RuntimeWarning, stacklevel=3)
    elif results.cells and all(cell["status"] == "skipped" for cell in results.cells):
        warnings.warn("\n".join(results._lines("skipped")), RuntimeWarning, stacklevel=3)
    return results


class RunOptions(TypedDict, total=False):
    """Keywords of run() that kvbench.Recorder and kvbench.attach take too."""

    device: str
    threads: int | None
    memory_limit: int | None
    fresh: bool
    add: bool
    anonymous: bool
    retry_failed: bool
    quiet: bool
    methods: Iterable[Any]


def run(
    sweep: str | os.PathLike[str] | dict[str, Any],
    *,
    out: str | os.PathLike[str],
    sets: Iterable[str] = (),
    only: Iterable[str] = (),
    shard: str | None = None,
    device: str = "auto",
    threads: int | None = None,
    memory_limit: int | None = None,
    fresh: bool = False,
    add: bool = False,
    anonymous: bool = False,
    retry_failed: bool = False,
    quiet: bool = False,
    progress: Callable[[int, int], object] | None = None,
    methods: Iterable[Any] = (),
) -> Results:
    """Runs a sweep into the folder `out`, as `kvbench run --config SWEEP --out OUT` does.

    `sweep`: a sweep file, or its content as a dict (`schema_version` and `name` may be left out;
    dumps, caches and calibrations relative to the working folder), which is then written to
    OUT/sweep.json. The journal in `out` makes it resumable: the same call goes on after an
    interruption (Ctrl-C ends it within seconds, as KeyboardInterrupt) and returns at once if
    nothing is left to do. A folder belongs to one sweep, which may grow: a run that lacks finished
    cells of `out` is refused, unless `fresh` or `add` is set. Progress and the table of results go
    to stderr, unless `quiet`.

    `progress`: called in this thread with the number of finished cells and that of the cells that
    this call computes, first with 0, then after each cell. If it raises, the run ends with that
    exception; the same call resumes it.

    `methods`: classes made with kvbench.method, which the sweep names by id like algorithms; their
    fields are the parameters, and axes. They run in this thread, one at a time, while other cells
    use the other threads; one that raises fails its cell, with the end of the traceback as reason.

    `sets`: "POINTER=VALUE" changes of the sweep. `only`: globs of cells. `shard`: "2/3". `device`:
    "cpu", "cuda" or "auto". `threads`: default all. `memory_limit`: bytes. `fresh`: discards what
    the folder holds. `add`: goes on in the folder of another sweep, whose results are kept as
    results-HASH.json. `anonymous`: leaves host and folders out of the results. `retry_failed`:
    computes failed cells again.

    Raises kvbench.Error for errors of the sweep, its dumps or the folder (nothing was computed) and
    OSError where the folder cannot be written, RunError where cells are missing, with the reasons
    of those that failed. Where cells failed, or all were skipped, a RuntimeWarning has the reasons;
    `Results.reasons` has them all, `Results.failed` the records.
    """
    folder = results_folder("kvbench.run", out)
    threads = whole("kvbench.run: threads", threads)
    memory_limit = whole("kvbench.run: memory_limit", memory_limit)
    device = str(device)
    _checked(device, threads, memory_limit, fresh and add)
    shard = str(shard or os.environ.get("KVBENCH_SHARD", ""))
    sets, only = _texts(sets), _texts(only)
    keywords = {"out": folder, "sets": sets, "only": only, "shard": shard, "device": device}
    given = [f"{name}={value}" for name, value in keywords.items() if value]
    file = _sweep_file(sweep, folder) if isinstance(sweep, dict) else nullcontext(Path(sweep))
    try:
        with file as config:
            tables = method_tables("kvbench.run", methods)
            with _named_keywords():
                state = _core.run(
                    str(config),
                    out=str(folder),
                    sets=sets,
                    only=only,
                    shard=shard,
                    device=device,
                    threads=threads or 0,
                    memory_limit=memory_limit or 0,
                    fresh=bool(fresh),
                    add=bool(add),
                    anonymous=bool(anonymous),
                    retry_failed=bool(retry_failed),
                    quiet=bool(quiet),
                    argv=["kvbench.run", f"sweep={config}", *given],
                    progress=progress,
                    methods=tables,
                )
    except _core.Error as error:
        unknown = re.search(r"unknown algorithm (\w+)", str(error))
        names = classes_called(unknown[1]) if unknown else ""
        if not unknown or not names:
            raise
        raise _core.Error(
            f"kvbench.run: {unknown[1]} is a method of this program; give methods=[{names}]"
        ) from error
    return _results(folder / "results.json", state, "call kvbench.run again to resume")


def calibrate(
    method: str,
    dumps: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    out: str | os.PathLike[str],
    params: Mapping[str, Any] | None = None,
    sequences: Iterable[str] = (),
    layers: Iterable[int] = (),
    tokens: int | None = None,
) -> str:
    """Writes what `method`, a method or a codec, takes from the texts of `dumps` to the file `out`,
    for its parameter `calibration` in sweeps of other texts; returns the file's fingerprint. As
    `kvbench calibrate` does it.

    `params`: parameters that the numbers depend on. `sequences`, `layers`: default all. `tokens`:
    the first of each text, default all.

    Raises kvbench.Error for dumps of several models and for texts that give no numbers.
    """
    names = [dumps] if isinstance(dumps, (str, os.PathLike)) else dumps
    options = {f"--{name}": name for name in ("method", "params", "sequences", "layers", "out")}
    with _named_keywords({**options, "--dump": "dumps"}):
        return _core.calibrate(
            method,
            params=json_text(params or {}),
            dumps=[os.fspath(name) for name in names],
            out=os.fspath(out),
            sequences=_texts(sequences),
            layers=[int(layer) for layer in layers],
            tokens=whole("kvbench.calibrate: tokens", tokens) or 0,
        )


def merge(
    folders: Iterable[str | os.PathLike[str]],
    *,
    out: str | os.PathLike[str],
    methods: Iterable[Any] = (),
) -> Results:
    """Joins the shards of a run into the results file `out`, as `kvbench merge` does; `methods` as
    they were given to kvbench.run, and of the same source text.

    Raises kvbench.Error for folders that are not shards of one run, RunError if cells are missing.
    """
    tables = method_tables("kvbench.merge", methods)
    several = [folders] if isinstance(folders, (str, os.PathLike)) else folders
    names = [os.fspath(folder) for folder in several]
    with _named_keywords():
        state = _core.merge(names, out=os.fspath(out), methods=tables)
    return _results(Path(out), state, "finish their shards, then merge again")
