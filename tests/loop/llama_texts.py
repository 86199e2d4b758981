"""Quantised caches of llama.cpp and of the closed loop on texts, side by side: KL divergence of next tokens from those over the full
cache, mean over rows, and over texts with its standard error.

    llama_texts.py MODEL.gguf --text *.txt --out results/llama_cpp

Run as tests/loop is (README.md of tests/peers). MODEL's weights are brought to float32 first, for both: llama.cpp's products with
quantised weights round activations to 8 bits. `ours` is the closed loop as it is; `as llama.cpp` has its order of key channels and
its rounding of queries (llama_cache.py)."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import gguf
import h5py
import numpy as np
import torch

import closed_loop
from llama_cache import LlamaCpp, as_llama_cpp, order_of_channels
from llama_test import CASES, stored
from loop.loop_statistics import compared, mean_of

PROMPT = 0.75


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


def looped(arguments: argparse.Namespace, model: Path, out: str) -> dict[tuple[str, str], float]:
    """Mean KL of each text and label."""
    sweep = arguments.out / "sweep.json"
    sweep.write_text(json.dumps({
        "schema_version": 1, "name": "llama_cpp", "dumps": ["none.h5"], "seeds": [0], "replay": {"prompt_tokens": PROMPT},
        "algorithms": [{**stored(*case), "label": label(case)} for case in CASES]}))
    folder = arguments.out / out
    code = closed_loop.main([str(each) for each in (
        model, "--text", *arguments.text, "--tokens", arguments.tokens, "--decisions", "live", "--config", sweep,
        "--out", folder)])
    if code:
        sys.exit(code)
    records = json.loads((folder / "loop.json").read_text())["records"]
    return {(each["sequence"], each["label"].split(" |")[0]): each["kl"]["mean"] for each in records}


def label(case: tuple[str, bool]) -> str:
    return case[0] + (", rotated" if case[1] else "")


def theirs(arguments: argparse.Namespace, model: Path) -> dict[tuple[str, str], float]:
    found = {}
    reader = gguf.GGUFReader(model)
    architecture = reader.fields["general.architecture"].contents()
    vocabulary = next(int(each.shape[1]) for each in reader.tensors if each.name == "token_embd.weight")
    with h5py.File(arguments.out / "ours/model.h5") as dump:
        texts = {name: each["token_ids"][:] for name, each in dump["sequences"].items()}
    head = int(reader.fields[f"{architecture}.rope.dimension_count"].contents())
    llama = LlamaCpp(model, vocabulary, head)
    for name, ids in texts.items():
        prompt = round(PROMPT * len(ids))
        full = torch.from_numpy(llama.logits(ids, prompt))
        for case in CASES:
            rows = compared(full, torch.from_numpy(llama.logits(ids, prompt, *case)), torch.from_numpy(ids[prompt:].astype(np.int64)))
            found[name, label(case)] = mean_of(rows.kl)["mean"]
            print(json.dumps({"text": name, "label": label(case), "kl": found[name, label(case)]}), file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, nargs="+", required=True)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    model = arguments.out / "float32.gguf"
    to_float32(arguments.model, model)
    reader = gguf.GGUFReader(model)
    architecture = reader.fields["general.architecture"].contents()
    head = int(reader.fields[f"{architecture}.rope.dimension_count"].contents())
    columns = {"ours": looped(arguments, model, "ours")}
    with as_llama_cpp(order_of_channels(architecture, head)):
        columns["as llama.cpp"] = looped(arguments, model, "as_llama_cpp")
    columns["llama.cpp"] = theirs(arguments, model)
    print(f"| cache | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for case in CASES:
        cells = []
        for values in columns.values():
            texts = np.array([value for (_, name), value in values.items() if name == label(case)])
            cells.append(f"{texts.mean():.3g} ± {texts.std(ddof=1) / len(texts) ** 0.5:.2g}")
        print(f"| {label(case)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
