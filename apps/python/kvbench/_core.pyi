"""The compiled module: see kvbench.replay, kvbench.open_dump and kvbench.run for what it does."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

class Error(ValueError):
    """Errors of the input, in the program's words, one per line."""

    @property
    def reasons(self) -> list[str]:
        """The errors, one line each."""

class Dump:
    def __init__(self, path: str) -> None: ...
    def document(self) -> str: ...
    def fingerprint(self) -> str: ...
    def read_layer(
        self, sequence: str, layer: int
    ) -> tuple[
        NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None
    ]: ...
    def read_out(self, sequence: str, layer: int) -> NDArray[np.float64]: ...

def version() -> str: ...
def instruction_set() -> str: ...
def algorithms() -> str: ...
def metrics() -> str: ...
def storage() -> str: ...
def replay(
    q: Any,
    k: Any,
    v: Any,
    *,
    wo_v_l1: Any,
    sequence: str,
    layer: int,
    head: int,
    n_layers: int,
    scale: float,
    window: int,
    softcap: float,
    rope: tuple[list[float], bool] | None,
    chunk: int,
    causal: bool,
    value_in_key: bool,
    sinks: list[float],
    alibi_slopes: list[float],
    key_bias: list[float],
    fingerprint: str,
    sweep: str,
    place: str,
    repro: str,
    threads: int,
    methods: list[tuple[str, str, str, bool, str, Callable[[str, int, list[Any]], Any]]],
) -> tuple[
    str,
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.int32],
    NDArray[np.int64],
    NDArray[np.int64],
]: ...
def run(
    config: str,
    *,
    out: str,
    sets: list[str],
    only: list[str],
    shard: str,
    device: str,
    threads: int,
    memory_limit: int,
    fresh: bool,
    add: bool,
    anonymous: bool,
    retry_failed: bool,
    quiet: bool,
    argv: list[str],
    progress: Callable[[int, int], object] | None,
    methods: list[tuple[str, str, str, bool, str, Callable[[str, int, list[Any]], Any]]],
) -> str: ...
def calibrate(
    method: str,
    *,
    params: str,
    dumps: list[str],
    out: str,
    sequences: list[str],
    layers: list[int],
    tokens: int,
) -> str: ...
def plain_json(text: str, file: str) -> str: ...
def check_layers(sweep: str, methods: list[Any]) -> None: ...
def run_layer(
    sweep: str,
    *,
    name: str,
    image: bytes,
    sequence: str,
    layer: int,
    out: str,
    source: str,
    device: str,
    threads: int,
    memory_limit: int,
    fresh: bool,
    add: bool,
    retry_failed: bool,
    progress: Callable[[int, int], object] | None,
    methods: list[Any],
) -> tuple[str, str, list[tuple[str, str]]]: ...
def finish_layers(
    sweep: str,
    *,
    name: str,
    image: bytes,
    hashes: list[tuple[str, str]],
    layers: list[tuple[str, str]],
    out: str,
    device: str,
    memory_limit: int,
    fresh: bool,
    add: bool,
    anonymous: bool,
    quiet: bool,
    argv: list[str],
    methods: list[Any],
) -> str: ...
def merge(
    folders: list[str],
    *,
    out: str,
    methods: list[tuple[str, str, str, bool, str, Callable[[str, int, list[Any]], Any]]],
) -> str: ...
def shares_memory(array: Any) -> bool: ...
