#!/usr/bin/env python3
"""Makes a dump of arrays q, k and v in .npz, .npy, .safetensors or .pt files, or in the folder of a
run of vLLM-Hook.

    import_arrays.py layer0.npz --scale 0.125 --model my-model --out mine.h5

Arrays are named q, k, v, optionally out (the model's own attention outputs of the last rows),
sinks and alibi_slopes [Hq], wo [Hq, dv, hidden], residual_norm [Nr] and key_bias [Hkv, d],
after `<layer>/` or `<sequence>/<layer>/` if there are several ("." serves as well as "/", and
`layers/` may stand before the number); an .npy has its file's name. token_ids and inv_freq are
read too, inv_freq and other facts of a layer also as `<layer>/inv_freq`.
q [Hq, Nq, d], k [Hkv, n, d], v [Hkv, n, dv]; --order tokens for [n, H, d]. A batch [B, H, n, d]
becomes B sequences; attention_mask [B, n] of 0 and 1 marks padding tokens, which are cut
off. q and k are post-rotation. The format is in FORMAT.md next to this file.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import sys
from datetime import datetime, timezone
from pathlib import Path

from command import exit_code, note, packages

with packages("import_arrays.py"):
    import h5py
    import numpy as np
    from fault import Fault
    from format.dump_file import (
        CHUNK_ROWS,
        FORMAT,
        Difference,
        LayerShape,
        LayerWriter,
        equal_ends,
        fitting_scale,
        is_of_second_format,
        layer_differences,
    )
    from importer.array_files import open_arrays
    from importer.array_layouts import (
        SIDE_BY_SIDE,
        Found,
        Held,
        Tensors,
        check_order,
        cut,
        one_of_equal_heads,
        read_tensors,
        refuse_padding,
        sort_arrays,
        stored_type,
        tokens_of,
    )
    from importer.hook_folder import open_hook_folder
    from importer.import_options import parser as options
    from importer.layer_facts import Facts, Said, check_layers

PROGRAM = "import_arrays.py"
# Tensors above these sizes, in bytes, may not be compressed further, as the program has it.
MAX_COMPRESSED = 100
SMALL_TENSOR, SMALL_DUMP = 2**22, 2**28


def missing_arrays(place: str, held: dict[str, Held], facts: Facts) -> None:
    wanted = ["q"] if facts.kv_layer is not None else ["q", "k", "v"]
    if facts.value_in_key and facts.kv_layer is None:
        wanted.remove("v")
        if "v" in held:
            raise Fault(
                f"{place}: an array v and --value-in-key, which says that values are columns of k; "
                "leave one of them out"
            )
    missing = [name for name in wanted if name not in held]
    if missing:
        shared = "k" in missing and "v" in missing
        raise Fault(
            f"{place}: no array {', '.join(missing)}"
            + ("; --kv-layer L=M if the layer reads those of another layer M" if shared else "")
        )


class Writer:
    """The sequences of one Found; layers that read other layers' keys after all others."""

    def __init__(
        self, name: str, found: Found, said: Said, args: argparse.Namespace, own_ropes: bool
    ) -> None:
        self._name, self._found, self._said, self._args = name, found, said, args
        self._own_ropes = own_ropes  # written per layer, not once for the file
        self.notes: list[str] = []  # for a dump that is proved
        self._keys: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}  # for their readers
        self._digests: dict[tuple[int, bytes], int] = {}
        self.tokens: dict[int, dict[int, int]] = {}  # by sequence of the batch and layer
        self._batch = 1
        self._padded: dict[int, int] = {}
        self._rows: dict[tuple[int, int], int] = {}  # counts of queries, by layer and sequence
        self._mask = None
        if found.attention_mask:
            self._mask = np.asarray(found.attention_mask[0][found.attention_mask[1]][0])

    def write(self, file: h5py.File, facts: dict[int, Facts], names: list[str]) -> None:
        readers = {each.kv_layer for each in facts.values()}
        sizes = {}
        self._batch = len(names)
        for layer in sorted(facts, key=lambda layer: (facts[layer].kv_layer is not None, layer)):
            place = f"/sequences/{self._name}/layers/{layer}"
            held = self._found.layers[layer]
            missing_arrays(place, held, facts[layer])
            source = facts[layer].kv_layer
            dv = facts[layer].value_in_key or None
            dv = dv if source is None else self._keys[source, 0][1].shape[2]
            tensors = read_tensors(place, held, self._args.order, dv)
            if tensors.batch != len(names):
                raise Fault(
                    f"{place}: a batch of {tensors.batch}, and another layer has one of "
                    f"{len(names)}; give all the same sequences"
                )
            for index, name in enumerate(names):
                parent = file[f"sequences/{name}/layers"]
                sizes[layer] = self._write_layer(
                    parent, layer, tensors, facts[layer], index, layer in readers
                )
        self._said.check_head_sizes(sizes)

    def _cut(
        self, place: str, rows: dict[str, np.ndarray], n: int, index: int
    ) -> tuple[dict[str, np.ndarray], int]:
        """Without the places behind --tokens and those that the mask says are padding."""
        tokens = self._args.tokens
        if tokens is not None:
            if tokens > n:
                raise Fault(f"--tokens {tokens}: {place} has {n} tokens")
            if "k" in rows and rows["k"][:, tokens:].any():
                self._refuse_other_rows(f"{place}: --tokens {tokens} cuts keys", rows, n, tokens)
            rows = {
                name: cut(array, n, 0, tokens) if _length(array) == n else array
                for name, array in rows.items()
            }
            n = tokens
        if self._mask is None:
            return rows, n
        mask = self._mask if tokens is None else self._mask[..., :tokens]
        first, end = tokens_of("attention_mask", mask, index, self._batch, n)
        if first > 0 and self._args.chunk:
            raise Fault(
                f"{place}: attention_mask cuts the first {first} tokens, from which chunks "
                "are counted; give each sequence without its padding"
            )
        if end < n:
            self._refuse_other_rows(f"{place}: attention_mask ends at {end}", rows, n)
        cut_rows = {name: cut(array, n, first, end) for name, array in rows.items()}
        empty = [name for name, array in cut_rows.items() if 0 in array.shape]
        if empty:
            raise Fault(f"{place}: {empty[0]} has rows of padding alone; give those of tokens")
        return cut_rows, end - first

    @staticmethod
    def _refuse_other_rows(
        why: str, rows: dict[str, np.ndarray], n: int, end: int | None = None
    ) -> None:
        """Fault where the last of `n` tokens are cut, and an array has some rows, which may be
        those of the tokens before them. `end`: a number of rows that are."""
        for name, array in rows.items():
            if _length(array) not in (n, end):
                raise Fault(
                    f"{why} of {n} tokens, and the {_length(array)} rows of {name} may end there "
                    f"or at {n}; give {name} for all {n} tokens, or cut all arrays yourself"
                )

    def _write_layer(
        self,
        parent: h5py.Group,
        layer: int,
        tensors: Tensors,
        facts: Facts,
        index: int,
        is_read: bool,
    ) -> int:
        """Writes one layer of one sequence; returns the size of its heads."""
        place = f"{parent.name}/{layer}"
        rows = {name: array[index] for name, array in tensors.rows.items()}
        if facts.value_in_key and facts.kv_layer is None:
            if facts.value_in_key > rows["k"].shape[2]:
                raise Fault(
                    f"--value-in-key {facts.value_in_key}: {place} has keys of "
                    f"{rows['k'].shape[2]} numbers"
                )
            rows["v"] = rows["k"][:, :, : facts.value_in_key]
        source = facts.kv_layer
        if source is not None:
            self._check_copies(place, rows, source, index)
            n = self._padded[source]
            rows = {name: array for name, array in rows.items() if name in ("q", "out")}
        else:
            if "k" in rows and self._args.order is None:
                check_order(place, rows["q"], rows["k"], "out" in rows)
            check_shapes(place, rows)
            n = self._padded[layer] = rows["k"].shape[1]
            if index == 0:
                self._note_equal_layers(place, layer, rows, index)
        whole = dict(rows)
        further = dict(tensors.further)
        if "residual_norm" in further:
            norms = further["residual_norm"]
            whole["residual_norm"] = norms[index] if norms.ndim > 1 else norms
        whole, tokens = self._cut(place, whole, n, index)
        if "residual_norm" in whole:
            further["residual_norm"] = whole.pop("residual_norm")
        rows = whole
        if source is None:
            if self._args.tokens is None:
                refuse_padding(place, rows["k"], rows["v"])
                self.notes += [
                    f"{place}: the {end} {count} of {rows['v'].shape[1]} tokens have the same "
                    "values, as padding has; an array attention_mask with 0 there leaves them out"
                    for end, count in equal_ends(rows["v"]).items()
                ]
            rows["k"], rows["v"] = one_of_equal_heads(place, rows["k"], rows["v"], facts.kv_heads)
            if is_read:
                self._keys[layer, index] = (rows["k"], rows["v"])
        k, v = (rows["k"], rows["v"]) if source is None else self._keys[source, index]
        check_shapes(place, {**rows, "k": k, "v": v})
        if source is not None and rows["q"].shape[1] != self._rows[source, index]:
            raise Fault(
                f"{place}: has {rows['q'].shape[1]} rows of queries, and layer {source}, whose "
                f"keys it reads, {self._rows[source, index]}; give both the same last rows"
            )
        self._rows[layer, index] = rows["q"].shape[1]
        self.tokens.setdefault(index, {})[layer] = tokens
        self._write_tensors(parent, layer, {**rows, "k": k, "v": v}, tensors, facts, further)
        return k.shape[2]

    def _write_tensors(
        self,
        parent: h5py.Group,
        layer: int,
        rows: dict[str, np.ndarray],
        tensors: Tensors,
        facts: Facts,
        further: dict[str, np.ndarray],
    ) -> None:
        place, q, k, v = f"{parent.name}/{layer}", rows["q"], rows["k"], rows["v"]
        if facts.rope and 2 * len(facts.rope.inv_freq) > k.shape[2]:
            raise Fault(
                f"RoPE data turns {2 * len(facts.rope.inv_freq)} dimensions, and {place} has "
                f"d = {k.shape[2]}; see --rope-dims or inv_freq"
            )
        out_type = stored_type({tensors.types["out"]}) if "out" in rows else "float32"
        shape = LayerShape(
            *(q.shape[0], k.shape[0], k.shape[1], q.shape[1], q.shape[2], v.shape[2]),
            rows["out"].shape[1] if "out" in rows else 0,
            value_in_key=bool(facts.value_in_key),
            out_dtype=out_type if out_type != "float64" else "float32",
            kv_layer=facts.kv_layer,
        )
        source = facts.kv_layer
        theirs = None if source is None else self._found.layers[source]
        check_further(place, shape, further, facts, self._args.every_token, theirs)
        types = {dtype for name, dtype in tensors.types.items() if name != "out"}
        dtype = self._args.dtype or stored_type(types)
        writer = LayerWriter(parent, layer, shape, dtype, self._args.compression)
        for name, array in rows.items():
            if name not in writer.group:
                continue
            before = shape.tokens - array.shape[1]
            for first in range(0, array.shape[1], CHUNK_ROWS):
                writer.write(name, before + first, array[:, first : first + CHUNK_ROWS])
        writer.finish(facts.terms, facts.rope if self._own_ropes else None)
        for name, array in further.items():
            writer.group[name] = array

    def _check_copies(
        self, place: str, rows: dict[str, np.ndarray], source: int, index: int
    ) -> None:
        """Keys and values besides --kv-layer are those of the layer that is read."""
        for name, theirs in zip("kv", self._keys[source, index]):
            if name in rows and not np.array_equal(rows[name], theirs):
                raise Fault(
                    f"{place}: --kv-layer says that it reads the {name} of layer {source}, and "
                    f"its own array {name} is another; leave one of them out"
                )

    def _note_equal_layers(
        self, place: str, layer: int, rows: dict[str, np.ndarray], index: int
    ) -> None:
        held = rows["k"].tobytes() + rows["v"].tobytes()
        other = self._digests.setdefault((index, hashlib.blake2b(held).digest()), layer)
        if other != layer:
            self.notes.append(
                f"{place}: has the keys and values of layer {other}; if it reads that layer's "
                f"cache, --kv-layer {layer}={other} counts it once"
            )


def _length(array: np.ndarray) -> int:
    return array.shape[1] if array.ndim == 3 else len(array)


Shape = tuple[int, ...]


def fits(q: Shape, k: Shape, v: Shape) -> bool:
    return q[2] == k[2] and k[:2] == v[:2] and q[1] <= k[1] and q[0] % k[0] == 0


def remedy_of_shapes(q: Shape, k: Shape, v: Shape) -> str:
    """How arrays whose dimensions are in another order would fit."""

    def turned(shape: Shape, axes: Shape) -> Shape:
        return tuple(shape[axis] for axis in axes)

    if fits((*q[:1], 1, *q[2:]), k, v):
        return (
            f"; of cross attention give at most as many queries as tokens, q[:, :{k[1]}] and out "
            "likewise, with --every-token"
        )
    if fits(*(turned(shape, (1, 0, 2)) for shape in (q, k, v))):
        return "; they are [tokens, heads, columns]: say --order tokens"
    turns = list(itertools.permutations(range(3)))
    for of_k, of_v in sorted(
        itertools.product(turns, turns), key=lambda axes: axes.count(turns[0])
    ):
        if fits(q, turned(k, of_k), turned(v, of_v)):
            named = {"k": of_k, "v": of_v}
            return "; they fit with " + " and ".join(
                f"{name}.transpose{axes}" for name, axes in named.items() if axes != turns[0]
            )
    return SIDE_BY_SIDE if q[:2] == k[:2] == v[:2] and q[2] % k[2] == 0 else ""


def check_shapes(place: str, rows: dict[str, np.ndarray]) -> None:
    q, k, v = (rows[name].shape for name in ("q", "k", "v"))
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in rows.items())
    if not fits(q, k, v):
        raise Fault(
            f"{place}: {shapes}: q and k share their columns, k and v their heads and "
            f"tokens; q has a multiple of k's heads and no more rows{remedy_of_shapes(q, k, v)}"
        )
    if "out" in rows:
        out = rows["out"].shape
        if out[0] != q[0] or out[2] != v[2] or out[1] > k[1]:
            raise Fault(
                f"{place}: {shapes}: out has q's heads and v's columns, before the output "
                "projection"
            )


def check_further(
    place: str,
    shape: LayerShape,
    further: dict[str, np.ndarray],
    facts: Facts,
    every_token: bool,
    theirs: dict[str, Held] | None,
) -> None:
    """`theirs`: the arrays of the layer whose keys are read."""
    expected = {
        "sinks": (shape.query_heads,),
        "alibi_slopes": (shape.query_heads,),
        "wo": (shape.query_heads, shape.dv),
        "key_bias": (shape.kv_heads, shape.d),
    }
    if theirs is not None and "key_bias" in further:
        raise Fault(f"{place}: key_bias belongs to layer {facts.kv_layer}, whose keys it reads")
    for name, array in further.items():
        if name in expected and array.shape[: len(expected[name])] != expected[name]:
            raise Fault(
                f"{place}: {name} {list(array.shape)}; it begins with {list(expected[name])}"
            )
        if name in ("alibi_slopes", "residual_norm") and array.min() < 0:
            raise Fault(f"{place}: {name}: expected numbers of at least 0, got {array.min():.6g}")
    if "residual_norm" in further and len(further["residual_norm"]) > shape.tokens:
        raise Fault(
            f"{place}: residual_norm of {len(further['residual_norm'])} rows, and there are "
            f"{shape.tokens} tokens"
        )
    for name in ("sinks", "alibi_slopes"):
        if theirs is not None and (name in theirs) != (name in further):
            raise Fault(
                f"{place}: it and layer {facts.kv_layer}, whose keys it reads, have both an array "
                f"{name} or neither"
            )
    masks = {
        "--every-token": every_token,
        "--chunk": facts.terms.chunk > 0,
        "--sliding-window": facts.terms.window > 0,
        "alibi_slopes": every_token and "alibi_slopes" in further,
    }
    given = [name for name, is_given in masks.items() if is_given]
    if len(given) > 1:
        raise Fault(f"{place}: {' and '.join(given)} exclude each other")


def batch_of(found: Found) -> int:
    """Sequences that the arrays hold: the first q says how many."""
    held = next((held["q"] for held in found.layers.values() if "q" in held), None)
    array = held[0][held[1]][0] if held else None
    return len(array) if array is not None and array.ndim == 4 else 1


def names_of(sequences: dict[str, Found]) -> dict[str, list[str]]:
    """The dump's sequences by the name that the arrays have; a batch becomes several."""
    names = {}
    for name, found in sequences.items():
        batch = batch_of(found)
        of_batch = [str(index) if name == "0" else f"{name}-{index}" for index in range(batch)]
        names[name] = of_batch if batch > 1 else [name]
    every = [each for of_batch in names.values() for each in of_batch]
    twice = next((each for each in every if every.count(each) > 1), None)
    if twice is not None:
        raise Fault(f"two sequences would be named {twice}; name the sequence of the batch anew")
    return names


def token_ids_of(
    sequence: str, found: Found, index: int, batch: int, tokens: int, args: argparse.Namespace
) -> np.ndarray:
    assert found.token_ids is not None
    array = np.asarray(found.token_ids[0][found.token_ids[1]][0])
    if array.shape[:-1] != (batch,) and (array.ndim, batch) != (1, 1):
        wanted = f"[{batch}, {tokens}]" if batch > 1 else f"[{tokens}]"
        raise Fault(f"sequence {sequence}: token_ids {list(array.shape)}; expected {wanted}")
    numbers = array[index] if array.ndim == 2 else array
    if args.tokens is not None:
        numbers = numbers[: args.tokens]
    if found.attention_mask and len(numbers) != tokens:
        mask = np.asarray(found.attention_mask[0][found.attention_mask[1]][0])
        first, end = tokens_of("attention_mask", mask, index, batch, len(numbers))
        numbers = numbers[first:end]
    if len(numbers) != tokens:
        raise Fault(f"sequence {sequence}: {len(numbers)} token_ids for {tokens} tokens")
    if numbers.dtype.kind not in "iu" or not -(2**31) <= numbers.min() <= numbers.max() < 2**31:
        raise Fault(
            f"sequence {sequence}: token_ids: expected integers of 32 bits, got {numbers.dtype}"
        )
    if len(numbers) > 8 and np.isin(numbers, (0, 1)).all():
        note(PROGRAM, f"sequence {sequence}: token_ids are 0 and 1 alone, as those of a mask are")
    return numbers.astype(np.int32)


def write_dump(
    path: Path, sequences: dict[str, Found], inv_freq: Held | None, args: argparse.Namespace
) -> tuple[str, list[str]]:
    """Writes the dump; returns what it holds, in words, and notes on likely mistakes."""
    notes: list[str] = []
    highest = max(layer for found in sequences.values() for layer in found.layers)
    said = {name: Said(name, found, args, inv_freq) for name, found in sequences.items()}
    facts = {
        name: {layer: said[name].facts(layer) for layer in found.layers}
        for name, found in sequences.items()
    }
    every = [each for by_layer in facts.values() for each in by_layer.values()]
    shared = every[0].rope if all(each.rope == every[0].rope for each in every) else None
    names = names_of(sequences)
    with h5py.File(path, "w") as file:
        file.attrs.update(
            {
                **FORMAT,
                "model": args.model,
                "producer": PROGRAM,
                "n_layers": args.n_layers or highest + 1,
                "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            }
        )
        if shared:
            shared.write(file)
        for name, found in sequences.items():
            for each in names[name]:
                file.create_group(f"sequences/{each}/layers")
            writer = Writer(name, found, said[name], args, own_ropes=shared is None)
            writer.write(file, facts[name], names[name])
            notes += writer.notes
            for index, each in enumerate(names[name]):
                tokens = one_length(each, writer.tokens[index], args)
                group = file[f"sequences/{each}"]
                if args.prompt_tokens is not None:
                    group.attrs["prompt_tokens"] = args.prompt_tokens
                if found.token_ids:
                    group["token_ids"] = token_ids_of(
                        each, found, index, len(names[name]), tokens, args
                    )
                if any(is_of_second_format(layer) for layer in group["layers"].values()):
                    file.attrs["format_version"] = 2
        batch = max(len(of_batch) for of_batch in names.values())
        of_batch = f" of a batch of {batch} (layers are named <layer>/q, not stacked)"
        return described(file, of_batch if batch > 1 else ""), notes


def one_length(sequence: str, tokens: dict[int, int], args: argparse.Namespace) -> int:
    if len(set(tokens.values())) != 1:
        raise Fault(
            f"sequence {sequence}: expected layers of one number of tokens, got {tokens} "
            "(tokens by layer)"
        )
    count = next(iter(tokens.values()))
    if args.prompt_tokens is not None and args.prompt_tokens > count:
        raise Fault(f"--prompt-tokens {args.prompt_tokens}: sequence {sequence} has {count} tokens")
    return count


def described(file: h5py.File, of_batch: str) -> str:
    """Sequences, layers and shapes of a dump in a line."""
    layers = [
        layer for sequence in file["sequences"].values() for layer in sequence["layers"].values()
    ]
    first = next(layer for layer in layers if "k" in layer)
    heads, tokens, d = first["k"].shape
    count = len(file["sequences"])
    return (
        f"{count} sequence{'s' if count > 1 else ''}{of_batch}, {len(layers)} layer"
        f"{'s' if len(layers) > 1 else ''}; {first.name}: {first['q'].shape[0]} query heads, "
        f"{heads} KV heads, {tokens} tokens, d = {d}"
    )


def refuse_inflated(path: Path) -> None:
    """Fault where kvbench would not read the dump: a large tensor, or all but `wo` together, takes
    less than a hundredth of its size in the file."""
    with h5py.File(path) as file:
        tensors: list[h5py.Dataset] = []
        file.visititems(
            lambda _, item: tensors.append(item) if getattr(item, "ndim", 0) == 3 else None
        )
        remedy = "as numbers of a model cannot be; if they are meant, --compression 0"
        for tensor in tensors:
            size, stored = tensor.nbytes, tensor.id.get_storage_size()
            if size > SMALL_TENSOR and size > MAX_COMPRESSED * stored:
                raise Fault(f"{tensor.name}: {size} bytes are compressed to {stored}, {remedy}")
        size = sum(tensor.nbytes for tensor in tensors if not tensor.name.endswith("/wo"))
        stored = path.stat().st_size
        if size > SMALL_DUMP and size > MAX_COMPRESSED * stored:
            raise Fault(f"{size} bytes are compressed to {stored}, {remedy}")


def refuse_difference(place: str, found: Difference, tolerance: float, layer: h5py.Group) -> None:
    heads, rows, _ = layer["out"].shape
    is_square = heads == rows  # so that shapes do not tell them apart
    message = (
        f"{place}: attention with these q, k, v, scale, window and soft-cap differs by "
        f"{found.relative:.2g} from out (--tolerance {tolerance:g}), beyond the rounding of its "
        "elements"
    )
    scale = fitting_scale(layer, found)
    if scale is not None:
        is_one = abs(scale - 1) < 0.01
        raise Fault(
            f"{message}; check the scale: out fits --scale {scale:.4g}"
            f"{', as q is scaled already' if is_one else ''}"
        )
    if found.relative < 4 * found.half:
        raise Fault(
            f"{message}; no other scale explains it, and arithmetic in 16 bits may: give q, k and "
            f"v as attention used them, or --tolerance {2 * found.relative:.1g}"
        )
    raise Fault(
        f"{message}; check --scale, --sliding-window, --logit-softcap, --order, the order of "
        "heads, padding, and that out is before the output projection"
        + ("; out.transpose(1, 0, 2) if its rows come before its heads" if is_square else "")
    )


def prove(path: Path, tolerance: float) -> str:
    """Recomputes `out`; returns what that shows."""
    found = layer_differences(path)
    for place, difference in found.items():
        if not difference.agrees(tolerance):
            with h5py.File(path) as file:
                refuse_difference(place, difference, tolerance, file[place])
    if not found:
        note(PROGRAM, "no array out, so nothing proves the scale, the mask and the order of heads")
        return "nothing is proved"
    most = max(each.relative for each in found.values())
    layers = f"{len(found)} layer{'s' if len(found) > 1 else ''}"
    return f"out of {layers} agrees to {most:.2g} beyond its rounding"


def parser() -> argparse.ArgumentParser:
    return options(__doc__)


def import_arrays(args: argparse.Namespace) -> None:
    if args.out.is_dir():
        raise Fault(f"--out {args.out} is a folder; name a file in it")
    if args.out.exists() and not args.fresh:
        raise Fault(f"{args.out} exists; --fresh replaces it")
    if args.out.is_file() and args.out.stat().st_size > 0 and not h5py.is_hdf5(args.out):
        raise Fault(f"{args.out} is not an HDF5 file and would be replaced; choose another --out")
    absent = [str(path) for path in args.files if not path.exists()]
    if absent:
        raise Fault(f"no such file: {', '.join(absent)}")
    if not args.out.parent.is_dir():
        raise Fault(f"--out {args.out}: there is no folder {args.out.parent}; make it first")
    sequences, inv_freq = sort_arrays(
        {
            path: open_hook_folder(path) if path.is_dir() else open_arrays(path, args.bits)
            for path in args.files
        },
        args.layer,
    )
    if not any(found.layers for found in sequences.values()):
        raise Fault("no arrays q, k, v")
    bare = [name for name, found in sequences.items() if not found.layers]
    if bare:
        raise Fault(
            f"sequence {bare[0]}: has token_ids or attention_mask, and no q, k, v; name both alike"
        )
    check_layers(sequences, args)
    unfinished = args.out.with_suffix(".unfinished")
    try:
        holds, notes = write_dump(unfinished, sequences, inv_freq, args)
        refuse_inflated(unfinished)
        proved = prove(unfinished, args.tolerance)
        unfinished.replace(args.out)
    finally:
        unfinished.unlink(missing_ok=True)
    for each in notes:
        note(PROGRAM, each)
    if args.n_layers is None:
        highest = max(layer for found in sequences.values() for layer in found.layers)
        note(
            PROGRAM,
            f"n_layers is taken as {highest + 1}, the highest layer + 1; --n-layers says how many "
            "the model has, by which some methods divide their budget",
        )
    note(PROGRAM, f"wrote {args.out}: {holds}; {proved}")


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)

    def work() -> None:
        try:
            import_arrays(args)
        except (OSError, UnicodeError) as error:  # errors of files and of texts for the dump
            raise Fault(f"cannot write {args.out}: {error}") from error
        except MemoryError as error:
            raise Fault("out of memory; import fewer layers at once") from error

    return exit_code(PROGRAM, work)


if __name__ == "__main__":
    sys.exit(main())
