"""Quantised caches of llama.cpp and of the closed loop on texts, side by side: KL divergence of next tokens from those over the full
cache of the same program and weights.

    llama_texts.py MODEL.gguf --text *.txt --out results/llama_cpp

Run as tests/loop is (README.md of tests/peers). The ways, each with one difference more than the way before it:

* `ours`: the closed loop as it is, over float32 numbers of MODEL's weights.
* `as llama.cpp`: with llama.cpp's rounding of queries and its order of key channels (llama_cache.py).
* `llama.cpp`: over the same float32 numbers. The prompt is read exactly and its cache is then quantised.
* `file's weights`: products with MODEL's own weights, in which llama.cpp rounds activations to 8 bits.
* `reading`: the prompt is read over the quantised cache, as llama.cpp does by itself.

OUT/kl.csv gets a row per way, cache and text, and llama.jsonl is the journal from which the same command resumes. Rows of the
cache `full` compare the way's full cache with that of the way before, where both are there. OUT/ratios.csv has means over texts,
and geometric means of the ratios to `ours` and to the way before, with 95 % intervals over texts."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import gguf
import h5py
import numpy as np
import torch

import closed_loop
from llama_cache import CASES, Cache, LlamaCpp, as_llama_cpp, order_of_channels
from loop import loop_run
from loop.loop_statistics import compared, summary

LOOPED = ("ours", "as llama.cpp")
# Where logits over the full cache are, and whether the prompt is read over the quantised cache.
LLAMA = {"llama.cpp": ("float32", False), "file's weights": ("file", False), "reading": ("file", True)}
WAYS = (*LOOPED, *LLAMA)


def to_float32(source: Path, target: Path) -> None:
    """The same model, every tensor in float32."""
    reader = gguf.GGUFReader(source)
    file = gguf.GGUFWriter(str(target), reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        more = {"sub_type": field.types[-1]} if field.types[0] == gguf.GGUFValueType.ARRAY else {}
        file.add_key_value(name, field.contents(), field.types[0], **more)
    file.add_file_type(0)
    for tensor in reader.tensors:
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        file.add_tensor(tensor.name, numbers.reshape([int(size) for size in reversed(tensor.shape)]))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


class Facts:
    """Architecture and sizes of a GGUF file."""

    def __init__(self, model: Path) -> None:
        reader = gguf.GGUFReader(model)
        self.architecture = reader.fields["general.architecture"].contents()
        self.vocabulary, width = (int(size) for each in reader.tensors if each.name == "token_embd.weight"
                                  for size in reversed(each.shape))
        self.head_dim = width // int(reader.fields[f"{self.architecture}.attention.head_count"].contents())


def chosen(arguments: argparse.Namespace) -> list[Cache]:
    return [case for case in CASES if case.label in arguments.caches]


def row(way: str, cache: str, text: str, numbers: dict[str, Any]) -> dict[str, Any]:
    return {"way": way, "cache": cache, "text": text, "kl": numbers["kl"]["mean"], "kl_se": numbers["kl"]["se"],
            "same_top1": numbers["same_top1"]["mean"], "perplexity_full": numbers["perplexity"]["full"],
            "perplexity": numbers["perplexity"]["compressed"]}


def looped(arguments: argparse.Namespace, way: str) -> list[dict[str, Any]]:
    """The closed loop's rows. Logits over the full cache go to OUT/TEXT.ours.npy."""
    sweep = arguments.out / "sweep.json"
    sweep.write_text(json.dumps({
        "schema_version": 1, "name": "llama_cpp", "dumps": ["none.h5"], "seeds": [0],
        "replay": {"prompt_tokens": arguments.prompt}, "algorithms": [case.setting for case in chosen(arguments)]}))
    folder, full = arguments.out / way.replace(" ", "_"), loop_run.Loop._full_logits

    def kept(self: loop_run.Loop, text: Any) -> torch.Tensor:
        logits = full(self, text)
        np.save(arguments.out / f"{text.name}.ours.npy", logits.numpy())
        return logits

    facts, rounded = Facts(arguments.model), contextlib.nullcontext()
    if way != "ours":
        rounded = as_llama_cpp(order_of_channels(facts.architecture, facts.head_dim))
    with mock.patch.object(loop_run.Loop, "_full_logits", kept), rounded:
        code = closed_loop.main([str(each) for each in (
            arguments.model, "--text", *arguments.text, "--tokens", arguments.tokens, "--decisions", "live", "--config",
            sweep, "--out", folder)])
    if code:
        sys.exit(code)
    records = json.loads((folder / "loop.json").read_text())["records"]
    return [row(way, each["label"].split(" |")[0], each["sequence"], each) for each in records]


def theirs(arguments: argparse.Namespace, way: str) -> list[dict[str, Any]]:
    """llama.cpp's rows; what the journal has is not computed again."""
    weights, reading = LLAMA[way]
    model = arguments.out / "float32.gguf" if weights == "float32" else arguments.model
    if not model.exists():
        to_float32(arguments.model, model)
    facts, journal = Facts(model), arguments.out / "llama.jsonl"
    llama = LlamaCpp(model, facts.vocabulary, facts.head_dim)
    rows = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    with h5py.File(arguments.out / "ours/model.h5") as dump, journal.open("a") as lines:
        for name, ids in ((text.stem, dump["sequences"][text.stem]["token_ids"][:]) for text in arguments.text):
            prompt, place = round(arguments.prompt * len(ids)), arguments.out / f"{name}.{weights}.npy"
            following, full = torch.from_numpy(ids[prompt:].astype(np.int64)), None
            for case in chosen(arguments):
                if any((each["way"], each["cache"], each["text"]) == (way, case.label, name) for each in rows):
                    continue
                if full is None and not place.exists():
                    np.save(place, llama.logits(ids, prompt).astype(np.float32))
                full = torch.from_numpy(np.load(place))
                rows.append(row(way, case.label, name, summary(compared(
                    full, torch.from_numpy(llama.logits(ids, prompt, case, reading)), following))))
                print(json.dumps(rows[-1]), file=lines, flush=True)
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return [each for each in rows if each["way"] == way]


def apart(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the full caches, each compared with that of the way before."""
    rows = []
    for way, weights, before in (("llama.cpp", "float32", "ours"), ("file's weights", "file", "float32")):
        for text in arguments.text:
            files = [arguments.out / f"{text.stem}.{each}.npy" for each in (before, weights)]
            if not all(file.exists() for file in files):
                continue
            p, q = (torch.from_numpy(np.load(file)) for file in files)
            with h5py.File(arguments.out / "ours/model.h5") as dump:
                ids = dump["sequences"][text.stem]["token_ids"][-len(p):].astype(np.int64)
            rows.append(row(way, "full", text.stem, summary(compared(p, q, torch.from_numpy(ids)))))
    return rows


def quantile(freedom: int) -> float:
    """Student's t, 97.5 %: the angle of t over the root of the degrees of freedom has the density cos^(freedom - 1)."""
    angle = np.linspace(0, np.pi / 2, 100001)
    below = np.cumsum(np.cos(angle) ** (freedom - 1))
    return float(np.sqrt(freedom) * np.tan(np.interp(0.95, below / below[-1], angle)))


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By way and cache the mean over texts, and geometric means of the ratios to `ours` and to the way before."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for each in rows:
        found.setdefault((each["way"], each["cache"]), {})[each["text"]] = each["kl"]
    lines = []
    for (way, cache), kl in found.items():
        line = {"way": way, "cache": cache, "texts": len(kl), "kl": np.mean(list(kl.values()))}
        for name, other in (("ours", "ours"), ("before", WAYS[max(0, WAYS.index(way) - 1)])):
            base = found.get((other, cache), {})
            logs = np.log([kl[text] / base[text] for text in kl if text in base])
            if other != way and len(logs) > 1:
                reach = quantile(len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5
                ends = np.exp([logs.mean(), logs.mean() - reach, logs.mean() + reach])
                line.update(zip((f"to_{name}", f"to_{name}_low", f"to_{name}_high"), ends))
        lines.append(line)
    return lines


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for each in rows for name in each))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{cell:.6g}" if isinstance(cell, float) else cell for name, cell in each.items()}
                         for each in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, nargs="+", required=True)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--prompt", type=float, default=0.75, help="fraction of the tokens that is not decoded")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ways", choices=WAYS, nargs="+", default=WAYS)
    labels = [case.label for case in CASES]
    parser.add_argument("--caches", choices=labels, nargs="+", default=labels)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = [each for way in arguments.ways for each in (looped if way in LOOPED else theirs)(arguments, way)]
    write(arguments.out / "kl.csv", rows + apart(arguments))
    write(arguments.out / "ratios.csv", ratios(rows))


if __name__ == "__main__":
    main()
