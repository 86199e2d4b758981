"""Dumps and cache files that went wrong, as a row of bad_inputs/dumps.json or caches.json describes."""

import os
import shutil


def damaged(good, path, row):
    """Writes `path`: the row's bytes, or `good` after what the row does to it."""
    if "bytes" in row:
        path.write_bytes(row["bytes"].encode("latin-1"))
        return path
    shutil.copy(good, path)
    if "keep" in row:  # a part of the bytes, or all but N
        size = path.stat().st_size
        os.truncate(path, size + row["keep"] if row["keep"] < 0 else int(size * row["keep"]))
        return path
    import h5py
    for action, *arguments in row["change"]:
        if action == "empty":
            h5py.File(path, "w").close()
            continue
        with h5py.File(path, "r+") as dump:
            _ACTIONS[action](dump, *arguments)
    return path


def _remove(dump, name):
    del dump[name]


def _attribute(dump, name, attribute, value):
    dump[name].attrs[attribute] = float("nan") if value == "NaN" else value


def _tensor(dump, name, shape, dtype, **options):
    if name in dump:
        del dump[name]
    made = dump.create_dataset(name, tuple(shape), dtype, **options)
    if made.size:
        made[...] = 0


def _chunked(dump, name, shape, dtype):
    """Sizes without the storage: chunks that were never written."""
    del dump[name]
    dump.create_dataset(name, tuple(shape), dtype, chunks=(1, 16, 8))


def _lzf(dump, name, shape, dtype):
    _tensor(dump, name, shape, dtype, compression="lzf")


def _external(dump, name, shape, dtype, file):
    del dump[name]
    dump.create_dataset(name, tuple(shape), dtype, external=[(file, 0, 1 << 20)])


def _link(dump, name, file):
    import h5py
    del dump[name]
    dump[name] = h5py.ExternalLink(file, name)


def _virtual(dump, name, shape, dtype, file):
    """Makes the dataset `name` of `dump` a virtual one of the same name in `file`; "." is this
    file."""
    import h5py
    del dump[name]
    layout = h5py.VirtualLayout(tuple(shape), dtype)
    layout[...] = h5py.VirtualSource(file, name, tuple(shape))
    dump.create_virtual_dataset(name, layout)


def _data(dump, name, values, dtype):
    """A dataset of these values; "NaN" is one."""
    import numpy as np
    if name in dump:
        del dump[name]
    dump[name] = np.array([float("nan") if value == "NaN" else value for value in values], dtype)


def _element(dump, name, place, value):
    dump[name][tuple(place)] = float(value)


_ACTIONS = {
    "remove": _remove,
    "remove_attribute": lambda dump, name, attribute: dump[name].attrs.pop(attribute),
    "attribute": _attribute,
    "copy": lambda dump, name, new: dump.copy(name, new),
    "move": lambda dump, name, new: dump.move(name, new),
    "data": _data,
    "group": lambda dump, name: dump.create_group(name),
    "tensor": _tensor,
    "chunked": _chunked,
    "external": _external,
    "link": _link,
    "lzf": _lzf,
    "virtual": _virtual,
    "element": _element,
}
