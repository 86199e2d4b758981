"""Facts of layers, from options and arrays: scale, mask, rotation, and whose
keys a layer reads."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from fault import Fault
from format.dump_file import Rope, Terms

from importer.array_files import INTEGERS
from importer.array_layouts import FACTS, Found, Held
from importer.import_options import ByLayer

# Facts whose value depends on the number of dimensions of a head.
OF_HEAD_SIZE = ("scale", "rope_dims", "value_in_key")


@dataclass(frozen=True)
class Facts:
    """Facts of one layer."""

    terms: Terms
    rope: Rope | None
    value_in_key: int
    kv_layer: int | None
    kv_heads: int | None


def option_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def _number(place: str, name: str, held: Held) -> float | int:
    """The number in an array that belongs to a layer."""
    given, dtype = held[0][held[1]]
    array = np.asarray(given)
    whole = name in INTEGERS
    kind = "an integer" if whole else "a number"
    if array.size != 1 or array.dtype.kind not in "iuf":
        raise Fault(f"{place}: {held[1]}: expected {kind}, got {array.dtype} {list(array.shape)}")
    value = array.reshape(()).item()
    if whole and isinstance(value, float):
        if not value.is_integer():
            raise Fault(f"{place}: {held[1]}: expected {kind}, got {value}")
        value = int(value)
    least_is_open = name in ("scale", "rope_theta", "rope_attention_scaling")
    if not math.isfinite(value) or value < 0 or (least_is_open and value == 0):
        bounds = "above 0" if least_is_open else "of at least 0"
        raise Fault(f"{place}: {held[1]}: expected a finite number {bounds}, got {value}")
    if least_is_open and dtype in ("float16", "bfloat16") and math.frexp(value)[0] != 0.5:
        raise Fault(
            f"{place}: {held[1]}: expected float32 or float64, got {value:g} in {dtype}, in which "
            "it may be rounded; give it as the model multiplies by it"
        )
    return value


class Said:
    """Facts of the layers of one sequence, from options and arrays."""

    def __init__(
        self, name: str, found: Found, args: argparse.Namespace, inv_freq: Held | None
    ) -> None:
        self._place = f"/sequences/{name}/layers"
        self._found, self._args, self._inv_freq = found, args, inv_freq

    def option(self, fact: str) -> ByLayer[Any] | None:
        return getattr(self._args, fact, None)

    def of(self, layer: int, fact: str, default: Any = None, partial: bool = False) -> Any:
        """The value for a layer; `default` where nothing is said. An option that is given by layer
        says something of every layer, unless `partial`."""
        held, option = self._found.layers[layer].get(fact), self.option(fact)
        given = option.of(layer) if option else None
        if held is not None:
            value = _number(self._place, fact, held)
            if given is not None and given != value:
                raise Fault(
                    f"{self._place}/{layer}: the array {held[1]} says {value}, and "
                    f"{option_of(fact)} {given}; leave one of them out"
                )
            return value
        if given is None and option is not None and not partial:
            raise Fault(
                f"{option_of(fact)}: nothing is said of layer {layer}; add {layer}="
                f"{default if default is not None else 'VALUE'}"
            )
        return default if given is None else given

    def is_said_once(self, layer: int, fact: str) -> bool:
        """Whether the value is that of all layers that are not named."""
        option = self.option(fact)
        return (
            option is not None
            and layer not in option.layers
            and option.rest is not None
            and fact not in self._found.layers[layer]
        )

    def kv_layer(self, layer: int) -> int | None:
        return self.of(layer, "kv_layer", partial=True)

    def facts(self, layer: int) -> Facts:
        source = self.kv_layer(layer)
        if source is not None:
            self._check_source(layer, source)
        base = self.facts(source) if source is not None else None
        shared = base is not None
        scale = self.of(layer, "scale", base.terms.scale if base else None, shared)
        if scale is None:
            raise Fault("--scale is missing: what multiplies <q, k> as stored, usually 1 / sqrt(d)")
        terms = Terms(
            float(scale),
            self.of(layer, "sliding_window", base.terms.window if base else 0, shared),
            float(self.of(layer, "logit_softcap", base.terms.softcap if base else 0.0, shared)),
            self.of(layer, "chunk", base.terms.chunk if base else 0, shared),
            not self._args.every_token,
        )
        rope = self._rope(layer)
        if base is not None:
            rope = self._check_shared(layer, source, base, terms, rope)
        return Facts(
            terms,
            rope,
            self.of(layer, "value_in_key", base.value_in_key if base else 0, shared),
            source,
            self.of(layer, "kv_heads", partial=True),
        )

    def _check_source(self, layer: int, source: int) -> None:
        place = f"--kv-layer {layer}={source}"
        if source not in self._found.layers:
            raise Fault(
                f"{place}: there is no layer {source}; the arrays of {self._place} have "
                f"{', '.join(map(str, sorted(self._found.layers)))}"
            )
        if source == layer or self.kv_layer(source) is not None:
            raise Fault(f"{place}: layer {source} has no keys of its own; name one that has")

    def _check_shared(
        self, layer: int, source: int | None, base: Facts, terms: Terms, rope: Rope | None
    ) -> Rope | None:
        """The rotation of a layer that reads the keys of another, whose facts it must share."""
        named = {
            "scale": (terms.scale, base.terms.scale),
            "sliding_window": (terms.window, base.terms.window),
            "logit_softcap": (terms.softcap, base.terms.softcap),
            "chunk": (terms.chunk, base.terms.chunk),
        }
        for fact, (own, theirs) in named.items():
            if own != theirs:
                raise Fault(
                    f"{option_of(fact)}: layer {layer} has {own:g} and layer {source}, whose keys "
                    f"it reads, {theirs:g}; the dump format holds such a layer with the same alone"
                )
        if rope is not None and rope != base.rope:
            raise Fault(
                f"{self._place}/{layer}: its rotation is not that of layer {source}, whose keys "
                "it reads; give both the same inv_freq or --rope-dims"
            )
        return base.rope

    def has_rope(self, layer: int) -> bool:
        dims = self.option("rope_dims")
        held = "inv_freq" in self._found.layers[layer] or self._inv_freq is not None
        return held or (dims is not None and bool(dims.of(layer)))

    def _rope(self, layer: int) -> Rope | None:
        own = self._found.layers[layer].get("inv_freq")
        dims = self.of(layer, "rope_dims", partial=True)
        place = f"{self._place}/{layer}"
        if dims == 0:
            if own is not None:
                raise Fault(f"{place}: has {own[1]} and --rope-dims 0; leave one of them out")
            return None
        held = own or self._inv_freq
        if held is None and dims is None:
            if any(self.has_rope(other) for other in self._found.layers):
                if self.kv_layer(layer) is not None:
                    return None
                raise Fault(
                    f"{place}: no inv_freq and no --rope-dims, which other layers have; "
                    f"--rope-dims {layer}=0 for a layer without rotation"
                )
            if self.option("rope_theta") is not None:
                raise Fault(
                    "--rope-theta needs --rope-dims, the number of dimensions that are turned, "
                    "or an array inv_freq"
                )
            return None
        frequencies = None if held is None else _frequencies(held)
        if frequencies is not None and dims is not None and dims != 2 * len(frequencies):
            raise Fault(
                f"{place}: --rope-dims {dims} and an inv_freq of {len(frequencies)} numbers, which "
                f"turn {2 * len(frequencies)} dimensions; leave --rope-dims out"
            )
        theta = self.of(layer, "rope_theta", partial=True)
        if own is not None and frequencies is not None and self._is_loose(layer, "rope_theta"):
            theta = _base(frequencies) or theta
        layout = self.of(layer, "rope_layout", partial=True)
        if theta is None or layout is None:
            raise Fault(
                f"RoPE data needs --rope-theta and --rope-layout (half or interleaved), of layer "
                f"{layer} too"
            )
        if frequencies is None:
            frequencies = theta ** (-np.arange(0, dims, 2) / dims)
        scaling = self.of(layer, "rope_attention_scaling", 1.0, partial=True)
        return Rope(tuple(frequencies.tolist()), float(theta), layout, float(scaling))

    def _is_loose(self, layer: int, fact: str) -> bool:
        """Whether nothing is said of this layer by its number."""
        option = self.option(fact)
        return fact not in self._found.layers[layer] and (
            option is None or layer not in option.layers
        )

    def check_head_sizes(self, sizes: dict[int, int]) -> None:
        """Fault where layers with heads of other sizes share what is said once for all."""
        for fact in OF_HEAD_SIZE:
            once = {layer: d for layer, d in sizes.items() if self.is_said_once(layer, fact)}
            self._refuse_unlike(option_of(fact), once, f"{option_of(fact)} {{}}=VALUE,{{}}=VALUE")
        if self._inv_freq is not None:
            dims = self.option("rope_dims")
            once = {
                layer: d
                for layer, d in sizes.items()
                if "inv_freq" not in self._found.layers[layer]
                and not (dims and dims.of(layer) is not None)
            }
            self._refuse_unlike("inv_freq", once, "{}/inv_freq and {}/inv_freq")

    def _refuse_unlike(self, fact: str, sizes: dict[int, int], remedy: str) -> None:
        layers = sorted(sizes)
        other = next((layer for layer in layers if sizes[layer] != sizes[layers[0]]), None)
        if other is None:
            return
        one = layers[0]
        raise Fault(
            f"{self._place}: layer {one} has keys of {sizes[one]} numbers and layer {other} of "
            f"{sizes[other]}, and {fact} is said once for both; say it by layer: "
            f"{remedy.format(one, other)}"
        )


def _frequencies(held: Held) -> np.ndarray:
    array, dtype = held[0][held[1]]
    if dtype in ("float16", "bfloat16"):
        raise Fault(
            f"{held[1]}: expected float32 or float64, got {dtype}, in which frequencies are "
            "rounded; give them as the model turns by them, widened if it has them in 16 bits"
        )
    if array.ndim != 1 or not 0 < len(array) <= 65536 or array.dtype.kind != "f":
        raise Fault(
            f"{held[1]}: expected floating-point [d_rot / 2], got {array.dtype} {list(array.shape)}"
        )
    frequencies = array.astype(np.float64)
    if not np.isfinite(frequencies).all():
        raise Fault(f"{held[1]}: expected finite numbers")
    return frequencies


def _base(frequencies: np.ndarray) -> float | None:
    """theta of frequencies theta^(-2 i / d_rot); None of others."""
    pairs = len(frequencies)
    if pairs < 2 or frequencies[0] <= 0 or (frequencies <= 0).any():
        return None
    theta = float(frequencies[-1] ** (-pairs / (pairs - 1)))
    plain = theta ** (-np.arange(pairs) / pairs)
    return float(f"{theta:.6g}") if np.allclose(plain, frequencies, rtol=1e-5) else None


def check_layers(sequences: dict[str, Found], args: argparse.Namespace) -> None:
    """The options that name layers name those that there are."""
    layers = {layer for found in sequences.values() for layer in found.layers}
    if args.n_layers is not None and max(layers) >= args.n_layers:
        raise Fault(
            f"--n-layers {args.n_layers}: there is a layer {max(layers)}; layers are numbered from "
            f"0, so that --n-layers is at least {max(layers) + 1}"
        )
    for fact in (*FACTS, "kv_heads", "rope_dims", "rope_layout"):
        given = getattr(args, fact, None)
        absent = sorted(given.layers.keys() - layers) if given else []
        if absent:
            raise Fault(
                f"{option_of(fact)}: there is no layer {absent[0]}; the arrays have "
                f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, sorted(layers)))}"
            )
    if args.kv_layer and args.kv_layer.rest is not None:
        raise Fault("--kv-layer: expected layers, as 1=0 for layer 1 that reads those of layer 0")
    if args.rope_dims and not args.rope_dims.layers and not args.rope_dims.rest:
        raise Fault("--rope-dims: expected dimensions to turn, got 0; leave it out if none are")
