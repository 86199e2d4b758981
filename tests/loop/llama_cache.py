"""The answers of llama.cpp over its own quantised caches, for a GGUF model, by PyPI's cyllama, and
those of the closed loop once it rounds as llama.cpp does.

llama.cpp reads a prompt over the cache that it fills; to have the prompt read exactly, as closed_loop.py reads it, the state of a
float32 cache is quantised by gguf's Python code, block for block, and put into a quantised cache."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import gguf
import numpy as np
from cyllama.llama import llama_cpp

from loop import loop_answers

TYPES = {"float": gguf.GGMLQuantizationType.F32, "q8_0": gguf.GGMLQuantizationType.Q8_0,
         "q4_0": gguf.GGMLQuantizationType.Q4_0}
PIECE = 128


class Cache(NamedTuple):
    """The types of keys and values; `rotated`: those that are quantised, by llama.cpp's Hadamard matrix."""

    keys: str = "float"
    values: str = "float"
    rotated: bool = False

    @property
    def label(self) -> str:
        alone = "" if self.values == self.keys else " keys"
        return self.keys + alone + (", rotated" if self.rotated else "")

    @property
    def setting(self) -> dict[str, Any]:
        """The same in a sweep."""
        specs = {"keys": self.keys, "values": self.values}
        storage = {name: {"codec": codec, **({"rotate": "hadamard"} if self.rotated else {})}
                   for name, codec in specs.items() if codec != "float"}
        return {"algorithm": "exact", "storage": [storage], "label": self.label}


FULL = Cache()
CASES = [Cache(codec, values, rotated)
         for codec in ("q8_0", "q4_0") for values in (codec, "float") for rotated in (False, True)]


def order_of_channels(architecture: str, head_dim: int) -> np.ndarray:
    """Where each of llama.cpp's key channels lies in a head of transformers' keys. In the GGUF of a
    Llama the two channels of a rotation are side by side, so blocks of 32 have other channels here
    and there."""
    halves = np.arange(head_dim).reshape(2, -1)
    return (halves.T if architecture == "llama" else halves).ravel()


def as_llama_cpp(order: np.ndarray) -> Any:
    """While patched, quantised settings of the loop have keys and queries in that order, and queries in blocks of 8 bits, as
    llama.cpp's products with keys of 8 and 4 bits have them, behind the rotation where there is one."""
    plain = loop_answers.kb.replay

    def replay(q: np.ndarray, k: np.ndarray, v: np.ndarray, *names: str, storage: Any, **more: Any) -> Any:
        if storage == "float":
            return plain(q, k, v, *names, storage=storage, **more)
        q, k = q[..., order], k[..., order]
        turn = hadamard(q.shape[-1]) if "hadamard" in str(storage["keys"]) else np.eye(q.shape[-1])
        blocks = gguf.quants.quantize((q @ turn).astype(np.float32), TYPES["q8_0"])
        q = gguf.quants.dequantize(blocks, TYPES["q8_0"]).astype(np.float64) @ turn
        return plain(q, k, v, *names, storage=storage, **more)

    return mock.patch.object(loop_answers.kb, "replay", replay)


def hadamard(size: int) -> np.ndarray:
    """[size, size], of length 1; size is a power of two."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return (matrix / np.sqrt(size)).astype(np.float32)


class LlamaCpp:
    """A model of vocabulary `vocabulary`. If its weights are float32, no product rounds its activations to 8 bits."""

    def __init__(self, path: Path, vocabulary: int, head_dim: int) -> None:
        class Model(llama_cpp.LlamaModel):
            n_vocab = vocabulary  # which its own code asks for and does not have

        llama_cpp.disable_logging()
        llama_cpp.ggml_backend_load_all()
        params = llama_cpp.LlamaModelParams()
        params.n_gpu_layers = 0
        self.model = Model(path_model=str(path), params=params, verbose=False)
        self.rotation = hadamard(head_dim)
        self._exact: tuple[bytes, bytes] = b"", b""  # a prompt's tokens, and the state of a float32 cache that has read it

    def logits(self, ids: np.ndarray, prompt: int, cache: Cache = FULL, reading: bool = False) -> np.ndarray:
        """[n - prompt, vocabulary], float64, of the tokens after the prompt. The prompt is read exactly and then quantised;
        `reading`: it is read over the quantised cache, as llama.cpp itself does."""
        context = self._context(len(ids), cache)
        if reading:
            self._read(context, ids[:prompt], 0, False)
        else:
            state = self._state(ids[:prompt], len(ids))
            context.set_state_seq_data(state if cache == FULL else self._quantised(state, prompt, cache), 0)
        return self._read(context, ids[prompt:], prompt, True)

    def _state(self, ids: np.ndarray, tokens: int) -> bytes:
        if self._exact[0] != ids.tobytes():
            whole = self._context(tokens, FULL)
            self._read(whole, ids, 0, False)
            self._exact = ids.tobytes(), whole.get_state_seq_data(0)
        return self._exact[1]

    def _context(self, tokens: int, cache: Cache) -> llama_cpp.LlamaContext:
        os.environ["LLAMA_ATTN_ROT_DISABLE"] = "0" if cache.rotated else "1"  # read when a cache is made
        params = llama_cpp.LlamaContextParams()
        params.n_ctx = -(-tokens // 256) * 256
        params.n_batch = params.n_ubatch = PIECE
        params.n_threads = params.n_threads_batch = 1
        params.type_k, params.type_v = int(TYPES[cache.keys]), int(TYPES[cache.values])
        # Without flash attention values cannot be quantised; with it float32 is rounded to float16.
        params.flash_attn_type = int(cache.values != "float")
        return llama_cpp.LlamaContext(model=self.model, params=params, verbose=False)

    def _read(self, context: llama_cpp.LlamaContext, ids: np.ndarray, past: int, wanted: bool) -> np.ndarray:
        rows = []
        for first in range(0, len(ids), PIECE):
            piece = ids[first : first + PIECE]
            batch = llama_cpp.LlamaBatch(n_tokens=len(piece), embd=0, n_seq_max=1)
            for place, token in enumerate(piece):
                batch.add(int(token), past + first + place, [0], wanted)
            context.decode(batch)
            if wanted:
                rows += [context.get_logits_ith(place) for place in range(len(piece))]
        return np.array(rows, np.float64)

    def _quantised(self, state: bytes, tokens: int, cache: Cache) -> bytes:
        """The state of a float32 cache as that of a quantised one. As llama.cpp b9190 writes it: two words; streams; cells;
        per cell its position and sequences; whether values lie channel by channel; layers; of keys, then of values, per
        layer the type, the bytes of a token (else the bytes of a number and the channels), and the numbers."""
        place, parts = 0, []

        def take(count: int) -> bytes:
            nonlocal place
            place += count
            return state[place - count : place]

        parts.append(take(16))
        streams, cells = struct.unpack("<II", parts[-1][8:])
        for _ in range(cells):
            parts.append(take(8))
            parts.append(take(4 * struct.unpack("<iI", parts[-1])[1]))
        parts.append(take(8))
        transposed, layers = struct.unpack("<II", parts[-1])
        if (streams, cells, transposed) != (1, tokens, 1):
            raise ValueError(f"expected 1 stream, {tokens} cells and values by channel, got {(streams, cells, transposed)}")
        parts[-1] = struct.pack("<II", int(cache.values == "float"), layers)
        for tensor in range(2 * layers):
            codec, begin = cache.keys if tensor < layers else cache.values, place
            if tensor < layers:
                kind, size = struct.unpack("<iQ", take(12))
                width = size // 4
            else:
                kind, _, width = struct.unpack("<iII", take(12))
            if kind != TYPES["float"]:
                raise ValueError(f"expected a float32 cache, got type {kind}")
            numbers = np.frombuffer(take(4 * width * cells), np.float32)
            if codec == "float":
                parts.append(state[begin:place])
                continue
            numbers = numbers.reshape(cells, width) if tensor < layers else numbers.reshape(width, cells).T
            if cache.rotated:
                numbers = (numbers.reshape(-1, len(self.rotation)) @ self.rotation).reshape(cells, width)
            blocks = gguf.quants.quantize(np.ascontiguousarray(numbers), TYPES[codec])
            parts += [struct.pack("<iQ", TYPES[codec], blocks.shape[1]), blocks.tobytes()]
        if place != len(state):
            raise ValueError(f"{len(state) - place} bytes of the state were not understood")
        return b"".join(parts)
