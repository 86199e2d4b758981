"""kvpress's presses: which of them a dump suffices for, and how a command line writes one."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import re
import sys
import types
from typing import Any

from command import needed
from format.dump_file import Fault

MODEL = "it runs the model again on the text, and a dump has no model"
DECODING = "it acts while the model decodes; a cache file holds what a prompt leaves behind"
REROTATES = "it rotates keys to other positions, and a dump's queries stay at theirs"
LEARNED = "it reads numbers that were trained or measured for one model, from the network"
WEIGHTS = "it reads the model's weights W_O, which this program does not take from a dump"
HIDDEN = "it reads hidden states of the model, which a dump does not have"
REFUSED = {
    "CAMPress": DECODING,
    "CompressionRatioDecodingPress": DECODING,
    "CriticalAdaKVPress": WEIGHTS,
    "CriticalKVPress": WEIGHTS,
    "DMSPress": DECODING,
    "DecodingPress": DECODING,
    "DuoAttentionPress": LEARNED,
    "ExpectedAttentionStatsPress": LEARNED,
    "FastKVzipPress": HIDDEN,
    "FinchPress": REROTATES,
    "KVComposePress": MODEL,
    "KVgradPress": MODEL,
    "KVzapPress": HIDDEN,
    "KVzipPress": MODEL,
    "KeyRerotationPress": REROTATES,
    "LUKVPress": LEARNED,
    "PrefillDecodingPress": DECODING,
    "QFilterPress": LEARNED,
    "RestoreKVPress": MODEL,
}
HOOKS = "it acts through hooks of a running model; give the presses that it calls"
# Imports of kvpress for presses that are refused here, which a small environment lacks.
UNUSED = {"datasets": "load_dataset", "fire": "Fire"}


def load_kvpress() -> types.ModuleType:
    """kvpress; what it imports for presses that are refused here need not be installed."""
    for name, attribute in UNUSED.items():
        if importlib.util.find_spec(name) is None:
            empty = types.ModuleType(name)
            setattr(empty, attribute, None)
            sys.modules[name] = empty
    try:
        with needed("tests/peers/run.sh puts kvpress into .venv-model"):
            return importlib.import_module("kvpress")
    finally:
        for name in UNUSED:
            if getattr(sys.modules.get(name), "__file__", None) is None:
                sys.modules.pop(name, None)


# Presses: their classes, and what is written of them on the command line.


def press_classes() -> dict[str, type]:
    kvpress = load_kvpress()
    return {
        name: value
        for name, value in sorted(vars(kvpress).items())
        if isinstance(value, type)
        and issubclass(value, kvpress.BasePress)
        and value not in (kvpress.BasePress, kvpress.ScorerPress)
    }


def refusal(press: type) -> str | None:
    """Why a press cannot be used on a dump."""
    for ancestor in press.__mro__:
        if ancestor.__name__ in REFUSED:
            return REFUSED[ancestor.__name__]
    base = importlib.import_module("kvpress").BasePress
    return HOOKS if press.compress is base.compress else None  # type: ignore[attr-defined]


def wraps(press: type) -> bool:
    """Whether it takes another press."""
    return "press" in getattr(press, "__dataclass_fields__", {})


def press_of(spec: str) -> Any:
    """The press that a command line names, such as AdaKVPress(SnapKVPress(window_size=32))."""
    home, text = None, spec
    if outside := re.fullmatch(r"([A-Za-z_][\w.]*):(.*)", spec, re.DOTALL):
        home, text = outside[1], outside[2]
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise Fault(f"{spec}: expected CLASS or CLASS(ARGUMENTS): {error.msg}") from error
    return built(spec, tree, home, outer=True)


def built(spec: str, tree: ast.expr, home: str | None, outer: bool = False) -> Any:
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        name = tree.func.id
        arguments = [built(spec, value, home) for value in tree.args]
        named = {key.arg: built(spec, key.value, home) for key in tree.keywords if key.arg}
    elif isinstance(tree, ast.Name):
        name, arguments, named = tree.id, [], {}
    elif outer:
        raise Fault(f"{spec}: expected CLASS or CLASS(ARGUMENTS)")
    else:
        try:
            return ast.literal_eval(tree)
        except ValueError as error:
            raise Fault(f"{spec}: expected numbers, text and presses as arguments") from error
    made = class_named(spec, name, home)
    if reason := refusal(made):
        raise Fault(f"{name}: {reason}")
    try:
        return made(*arguments, **named)
    except (AssertionError, TypeError, ValueError) as error:
        raise Fault(f"{spec}: {name} refuses its arguments: {error}") from error


def class_named(spec: str, name: str, home: str | None) -> type:
    known = press_classes()
    if home is not None:
        try:
            own = getattr(importlib.import_module(home), name, None)
        except ImportError as error:
            raise Fault(f"{spec}: {error}") from error
        if isinstance(own, type) and issubclass(own, load_kvpress().BasePress):
            return own
        if name not in known:
            raise Fault(
                f"{spec}: {home} has no press {name}; expected a class of kvpress.BasePress"
            )
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, [*known, *(f"{name}Press",) * (f"{name}Press" in known)])
    hint = f"did you mean {near[0]}?" if near else "--list names them"
    raise Fault(f"{spec}: unknown press {name}; {hint}")


def chain(press: Any) -> list[Any]:
    """A press, and those that it wraps."""
    found = [press]
    while (inner := getattr(found[-1], "press", None)) is not None:
        found.append(inner)
    return found
