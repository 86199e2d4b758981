"""A dump that is measured while it is made, and never whole in memory: kvbench.Recorder and
kvbench.attach fill it.

Each layer is a dump of its own in memory, which is replayed by a thread as soon as it is whole, in
a folder of its own with a journal. Its tensors are gone after that; an outline keeps attributes,
shapes and hashes. Once all layers are there, the outline has the fingerprint of the dump, and the
records of the layers become those of the dump. Nothing is computed then."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kvbench import _core
from kvbench._arrays import json_text, whole
from kvbench._exporter import exporter
from kvbench._method_calls import method_tables
from kvbench._run import (
    Results,
    _checked,
    _named_keywords,
    _results,
    results_folder,
    sweep_name,
    sweep_with_absolute_paths,
)

with exporter("kvbench.Recorder"):
    import h5py
    from format.dump_file import Rope, equal_ends, is_of_second_format

_names = itertools.count()


def sequence_name(of: str, name: Any) -> str:
    """A name that a dump's groups and a folder can have."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise _core.Error(f"{of}: sequence: must be a name without /, not . or .., got {name!r}")
    return name


def _file_in_memory() -> h5py.File:
    name = f"kvbench-{os.getpid()}-{next(_names)}"  # HDF5 takes files of one name for one
    return h5py.File(name, "w", driver="core", backing_store=False, block_size=1 << 20)


def _image(file: h5py.File) -> bytes:
    """The bytes of a file in memory, which ends."""
    file.flush()
    image = file.id.get_file_image()
    file.close()
    return image


class LiveSequence:
    """The layers of a sequence: the parent of their groups, as LayerWriter takes one."""

    def __init__(
        self, dump: LiveDump, name: str, attrs: Mapping[str, Any], ids: Any, owners: dict[int, int]
    ) -> None:
        self._dump, self._name, self._attrs, self._ids = dump, name, dict(attrs), ids
        self._owners = owners  # whose keys layers read, by those that have none of their own
        self._files: dict[int, h5py.File] = {}  # by the layer that has the keys
        self._whole: set[int] = set()

    def begin(self, file: h5py.File) -> h5py.Group:
        """Its group in a file, with all but the layers."""
        group = file.create_group(f"sequences/{self._name}")
        group.attrs.update(self._attrs)
        if self._ids is not None:
            group["token_ids"] = self._ids
        return group.create_group("layers")

    def create_group(self, layer: str) -> h5py.Group:
        owner = self._owners.get(int(layer), int(layer))
        if int(layer) in self._whole:
            raise _core.Error(f"sequence {self._name}: layer {layer} is given twice; leave one out")
        if owner not in self._files:
            self._files[owner] = self._dump.begin(_file_in_memory())
            self.begin(self._files[owner])
        return self._files[owner][f"sequences/{self._name}/layers"].create_group(layer)

    def drop(self, layer: int) -> None:
        """Forgets a layer that was begun in vain."""
        owner = self._owners.get(layer, layer)
        place = f"sequences/{self._name}/layers/{layer}"
        if layer not in self._whole and owner in self._files and place in self._files[owner]:
            del self._files[owner][place]
            if owner == layer:
                self._files.pop(owner).close()

    def whole(self, layer: int) -> None:
        """Measures a layer whose group is whole, with those that read its keys."""
        owner = self._owners.get(layer, layer)
        self._whole.add(layer)
        members = {owner} | {reader for reader, of in self._owners.items() if of == owner}
        if members <= self._whole:
            self._dump.measure(self._name, owner, self._files.pop(owner))

    def unfinished(self) -> list[int]:
        return sorted(self._files)

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()


class _Stopped(Exception):
    """The run of a layer is given up."""


class LiveDump:
    """One thread fills it, another one replays the layer that is whole."""

    def __init__(
        self,
        of: str,
        sweep: Any,
        out: str | os.PathLike[str],
        *,
        save: str | os.PathLike[str] | None,
        device: str = "auto",
        threads: int | None = None,
        memory_limit: int | None = None,
        fresh: bool = False,
        add: bool = False,
        anonymous: bool = False,
        retry_failed: bool = False,
        quiet: bool = False,
        methods: Iterable[Any] = (),
    ) -> None:
        self._of, self._out = of, results_folder(of, out)
        self._save = None if save is None else Path(save).absolute()
        if self._save and not self._save.parent.is_dir():
            raise _core.Error(f"{of}: save: the folder {self._save.parent} is missing; make it")
        if self._save and self._save.is_dir():
            raise _core.Error(f"{of}: save: {self._save} is a folder; give a file")
        threads = whole(f"{of}: threads", threads)
        memory_limit = whole(f"{of}: memory_limit", memory_limit)
        _checked(device, threads, memory_limit, fresh and add)
        self._options: dict[str, Any] = {
            "device": device,
            "memory_limit": memory_limit or 0,
            "fresh": bool(fresh),
            "add": bool(add),
        }
        self._threads, self._retry_failed = threads or 0, bool(retry_failed)
        self._anonymous, self._quiet = bool(anonymous), bool(quiet)
        self._methods = method_tables(of, methods)
        if self._save and self._save.exists() and not fresh:
            raise _core.Error(f"{of}: save: {self._save} exists; fresh=True replaces it")
        self._path = str(self._save or (self._out / "not-saved.h5").absolute())
        self._sweep = json_text(self._document(sweep))
        with self._named():
            _core.check_layers(self._sweep, self._methods)
        self._outline: h5py.File | None = None
        self._saved: h5py.File | None = None
        self._rope: Rope | None = None
        self._facts: dict[str, Any] = {}
        self._sequences: dict[str, LiveSequence] = {}
        self._surveyed: dict[tuple[Any, ...], int] = {}  # first layers, by sequence and heads
        self._texts: dict[str, dict[int, list[bytes]]] = {}  # heads by sequence and layer
        self._hashes: list[tuple[str, str]] = []
        self._journals: list[tuple[str, str]] = []
        self._thread = ThreadPoolExecutor(1, "kvbench-layer")
        self._running: Future[None] | None = None
        self._stopping = False

    def _document(self, sweep: Any) -> dict[str, Any]:
        folder = Path()
        if not isinstance(sweep, dict):
            path = Path(sweep)
            folder = path.parent
            try:
                text = path.read_text(encoding="utf-8")
            except OSError as error:
                raise _core.Error(
                    f"{path}: cannot read: {error.strerror}; name a sweep file"
                ) from None
            sweep = json.loads(_core.plain_json(text, str(path)))
        if "dumps" in sweep:
            raise _core.Error(
                f"{self._of}: sweep: /dumps: the layers are measured as they come; leave dumps out"
            )
        sweep = sweep_with_absolute_paths(sweep, folder)
        return {"schema_version": 1, "name": sweep_name(self._out), **sweep, "dumps": [self._path]}

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Has errors of the library begin with who asks, and name keywords in place of a file."""
        try:
            with _named_keywords():
                yield
        except _core.Error as error:
            said = str(error).replace("kvbench.Recorder: ", f"{self._of}: ")
            place = re.escape(self._path) + r": /sequences/([^/\n]+)/layers/(\d+)(?:: |/)"
            said = re.sub(place, rf"{self._of}: sequence \1, layer \2: ", said)
            said = said.replace(f"{self._path}: /rope: ", f"{self._of}: rope: ")
            raise _core.Error(said.replace(f" of {self._path}", "")) from None

    def open(self, facts: Mapping[str, Any], rope: Rope | None) -> None:
        """Attributes of the dump, and the rotation of layers that carry none themselves."""
        self._facts, self._rope = dict(facts), rope
        self._outline = self.begin(_file_in_memory())
        if self._save:
            self._saved = self.begin(h5py.File(self._save.with_suffix(".unfinished"), "w"))

    def begin(self, file: h5py.File) -> h5py.File:
        file.attrs.update(self._facts)
        if self._rope:
            self._rope.write(file)
        return file

    @property
    def is_open(self) -> bool:
        return self._outline is not None

    def sequence(
        self, name: str, attrs: Mapping[str, Any], ids: Any, owners: dict[int, int]
    ) -> LiveSequence:
        """`ids` [n] or None; `owners`: whose keys layers read, by those that have none."""
        self._sequences[name] = sequence = LiveSequence(self, name, attrs, ids, owners)
        for file in filter(None, (self._outline, self._saved)):
            sequence.begin(file)
        return sequence

    def measure(self, sequence: str, layer: int, file: h5py.File) -> None:
        """Has the thread replay a layer, once it has done the earlier one."""
        layers = file[f"sequences/{sequence}/layers"]
        second = any(is_of_second_format(each) for each in layers.values())
        for each in filter(None, (file, self._outline, self._saved)):
            if second:
                each.attrs["format_version"] = 2
        for name in layers:
            if "k" in layers[name]:
                self._survey(sequence, int(name), layers[name])
            for target in filter(None, (self._outline, self._saved)):
                parent = target[f"sequences/{sequence}/layers"]
                _copy_layer(layers[name], parent, has_elements=target is self._saved)
        self.wait()
        image = _image(file)
        self._running = self._thread.submit(self._replay, sequence, layer, image)

    def _survey(self, sequence: str, layer: int, held: h5py.Group) -> None:
        """Warns of what is likely a mistake of who took the tensors."""
        tensors = [held[name] for name in "kv" if name in held]
        heads = [
            hashlib.blake2b(b"".join(each[head].tobytes() for each in tensors)).digest()
            for head in range(len(tensors[0]))
        ]
        used = np.array([np.any(each, axis=1) for each in tensors[0]])
        tokens, is_used = used.shape[1], bool(used.any())
        begins = np.where(used.any(axis=1), used.argmax(axis=1), tokens)
        end, found = tokens - int(np.flip(used.any(axis=0)).argmax()), []
        if begins.max() > 0:
            late = np.flatnonzero(begins == begins.max())
            found.append(
                f"the keys of tokens 0 to {begins.max() - 1} are zero in KV head {late[0]}"
                + (f" and {len(late) - 1} more" if len(late) > 1 else "")
                + "; "
                + (
                    "leave padding before a text out of q, k and v"
                    if begins.max() < tokens
                    else "give keys as attention reads them"
                )
            )
        if len(heads) > tokens:
            found.append(
                f"{len(heads)} KV heads of {tokens} tokens look exchanged; q, k and v are [heads, "
                "tokens, columns]"
            )
        if is_used and len(set(heads)) < len(heads):
            found.append(
                f"{len(heads)} KV heads are copies of {len(set(heads))}: memory is "
                f"{len(heads) / len(set(heads)):.3g} times the model's; give k and v from before "
                "they are repeated for query heads"
            )
        if end < tokens:
            found.append(
                f"the keys of the last {tokens - end} of {tokens} tokens are zero in every KV "
                f"head, as in a static cache that is not full; give the first {end} tokens alone"
            )
        for name, count in equal_ends(held["v"][()]).items() if "v" in held else ():
            found.append(
                f"the {name} {count} of {tokens} tokens have the same values, as padding has; "
                "leave padding out of q, k and v"
            )
        if is_used:
            self._texts.setdefault(sequence, {})[layer] = heads
        first = self._surveyed.setdefault((sequence, *heads), layer)
        if is_used and first != layer:
            found.append(
                f"the keys and values are those of layer {first}, compressed and counted once "
                "more; if the model shares them, make a dump by data/import_arrays.py --kv-layer"
            )
        for what in found:
            warnings.warn(f"{self._of}: sequence {sequence}, layer {layer}: {what}", stacklevel=4)

    def _warn_of_repeated_texts(self) -> None:
        named: list[str] = []
        for sequence, layers in self._texts.items():
            same = next((each for each in named if self._texts[each] == layers), None)
            if same is None:
                named.append(sequence)
                continue
            warnings.warn(
                f"{self._of}: sequence {sequence}: the keys and values are those of sequence "
                f"{same}; it counts as one more text, and intervals over texts are too narrow; "
                "read each text once",
                stacklevel=4,
            )

    def wait(self) -> None:
        """For the layer that is replayed; raises what its run raised."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def _replay(self, sequence: str, layer: int, image: bytes) -> None:
        folder = self._out / "layers" / sequence / str(layer)
        start, cells = time.monotonic(), 0

        def progress(_: int, total: int) -> None:
            nonlocal cells
            cells = total
            if self._stopping:
                raise _Stopped

        with self._named():
            state, fingerprint, hashes = _core.run_layer(
                self._sweep,
                name=self._path,
                image=image,
                sequence=sequence,
                layer=layer,
                out=str(folder),
                source=str(self._out / "sweep.json"),
                threads=self._threads,
                retry_failed=self._retry_failed,
                progress=progress,
                methods=self._methods,
                **self._options,
            )
        if state == "incomplete":
            raise _core.Error(f"{self._of}: {folder}: its run was stopped; repeat the pass")
        self._hashes += hashes
        if (folder / "journal.jsonl").exists():
            self._journals.append((str(folder / "journal.jsonl"), fingerprint))
        (folder / "results.json").unlink(missing_ok=True)
        if not self._quiet:
            seconds = time.monotonic() - start
            said = f"{sequence}, layer {layer}: {cells} cells, {seconds:.1f} s"
            print(said, file=sys.stderr, flush=True)

    def finish(self) -> Results:
        """The results of all layers; call it once."""
        for name, sequence in self._sequences.items():
            for layer in sequence.unfinished():
                raise _core.Error(
                    f"{self._of}: sequence {name}: layer {layer} is not whole; give the rest of "
                    "its tokens, or of the layers that read its keys"
                )
        self.wait()
        if self._outline is None or not self._sequences:
            raise _core.Error(f"{self._of}: no layer was given; nothing was measured")
        self._warn_of_repeated_texts()
        image, self._outline = _image(self._outline), None
        with self._named():
            state = _core.finish_layers(
                self._sweep,
                name=self._path,
                image=image,
                hashes=self._hashes,
                layers=self._journals,
                out=str(self._out),
                anonymous=self._anonymous,
                quiet=self._quiet,
                argv=[self._of],
                methods=self._methods,
                **self._options,
            )
        if self._saved and self._save:
            self._saved.close()
            self._save.with_suffix(".unfinished").replace(self._save)
        self.close()
        return _results(self._out / "results.json", state, "repeat the pass to resume")

    def close(self) -> None:
        """Gives up what is not finished; journals stay."""
        self._stopping = True
        self._thread.shutdown(wait=True)
        for sequence in self._sequences.values():
            sequence.close()
        for file in filter(None, (self._outline, self._saved)):
            file.close()
        self._outline = self._saved = None
        if self._save:
            self._save.with_suffix(".unfinished").unlink(missing_ok=True)


def _copy_layer(layer: h5py.Group, parent: h5py.Group, has_elements: bool) -> None:
    """A layer of a dump, or its outline: tensors [heads, rows, columns] without elements."""
    group = parent.create_group(layer.name.rpartition("/")[2])
    group.attrs.update(layer.attrs)
    for name, item in layer.items():
        if not isinstance(item, h5py.Dataset) or item.ndim != 3:
            layer.copy(item, group)
            continue
        packed = {"compression": "gzip", "shuffle": True} if has_elements else {}
        tensor = group.create_dataset(name, item.shape, item.dtype, chunks=item.chunks, **packed)
        tensor.attrs.update(item.attrs)
        for head in range(item.shape[0] if has_elements else 0):
            tensor[head] = np.asarray(item[head])
