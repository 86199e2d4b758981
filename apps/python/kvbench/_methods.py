"""Methods written in Python: what to keep of a prompt."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
import typing
from functools import cached_property
from types import CodeType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kvbench._arrays import number
from kvbench._caches import Cache
from kvbench._core import Error
from kvbench._listing import algorithms

_Class = TypeVar("_Class", bound=type)

_RESERVED = ("source", "uses_seed")
_PLAIN = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None))


# Names that dataclasses put into a class.
_DATACLASS = (
    *("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__replace__"),
    *("__lt__", "__le__", "__gt__", "__ge__", "__match_args__", "__dataclass_fields__"),
    "__dataclass_params__",
)


_MADE: dict[str, str] = {}  # classes by id


class Kept(Cache):
    """Rows that a method keeps of a prompt, as in a Cache, of tokens below P. Every decoded token
    is kept besides, from its own row on."""


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A method's input for one KV head; arrays are float64 and read-only."""

    q: NDArray[np.float64]
    """[G, rows, d]: queries of the prompt's last positions, of all if the stream has them."""
    k: NDArray[np.float64]
    """[P, d]"""
    v: NDArray[np.float64]
    """[P, dv]"""
    scale: float
    """Multiplies <q, k>."""
    window: int
    """Sliding window in tokens, 0: none."""
    softcap: float
    sequence: str
    layer: int
    head: int
    """The KV head."""
    seed: int | None
    """None unless the method says `uses_seed = True`."""
    sinks: tuple[float, ...] = ()
    """A logit per query head, in every row's softmax and of no token; empty: none."""
    alibi_slopes: tuple[float, ...] = ()
    """A slope per query head: slope (j - i) is added to the logit of row i and token j."""
    chunk: int = 0
    """Tokens of a chunk, beyond which no row sees, 0: none."""

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random numbers that depend on seed, sequence, layer and head alone; for methods that say
        `uses_seed = True`."""
        if self.seed is None:
            raise Error(
                "prompt.rng: the method draws random numbers and does not say so; "
                "write uses_seed = True in its class"
            )
        place = f"{self.sequence}\n{self.layer}\n{self.head}".encode()
        stream = int.from_bytes(hashlib.sha256(place).digest()[:8], "little")
        return np.random.default_rng([self.seed, stream])


@dataclasses.dataclass(frozen=True)
class Row:
    """A method's input after a decode row was answered; arrays are read-only."""

    i: int
    """The row."""
    tokens: NDArray[np.int64]
    """[m] the tokens that answered it, its own among them."""
    logits: NDArray[np.float64]
    """[G, m] their logits, of the group's query heads."""


def method(cls: _Class) -> _Class:
    """Makes a class a method, for `kvbench.replay` and `kvbench.run`: a dataclass whose fields are
    the parameters.

        @kb.method
        class LargestKeys:
            budget: int = 256

            def compress(self, prompt: kb.Prompt) -> kb.Kept:
                norm = np.linalg.norm(prompt.k, axis=1)
                return kb.Kept(np.argsort(-norm, kind="stable")[: self.budget])

    Its id is the class's name in snake_case. Fields are int, float, bool, str or a Literal of
    texts; one without a default has to be given. `compress` decides for one KV head; in its place
    `compress_layer(self, prompts: list[kb.Prompt]) -> list[kb.Kept]` decides for all KV heads of a
    layer at once. `step(self, row: kb.Row) -> kb.Kept | None` is called after every decode row and
    says which of `row.tokens` stay, with weights if wanted; None: all. The class is then one object
    per cell that may keep what it likes in itself, and `compress` may be missing: the whole prompt
    is kept.

    `uses_seed = True` in the class (without a type, so that it is not a field) says that it draws
    random numbers, from `prompt.rng`: then a sweep runs it once per seed.

    A cell's key has a hash of the source text of the class's functions and of its constants,
    inherited ones too: a method that was changed has other cells. Functions that these call, and
    docstrings of the class, are not in it.

    Raises kvbench.Error for a class without one of the three, one that is named like an algorithm,
    and fields named `source` or `uses_seed`.
    """
    names = ("compress", "compress_layer", "step")
    decides = [name for name in names if callable(getattr(cls, name, None))]
    if not decides:
        raise Error(
            f"{cls.__name__}: a method needs compress(self, prompt), compress_layer(self, prompts) "
            "or step(self, row); add it"
        )
    if len(decides) > 1 and "compress_layer" in decides:
        raise Error(f"{cls.__name__}: has {' and '.join(decides)}; leave out all but one")
    words = r"(?<=[a-z0-9])(?=[A-Z])|(?<!^)(?=[A-Z][a-z])"
    name = re.sub(words, "_", cls.__name__).lower()
    known = algorithms()
    if any(name in (each["id"], *each["aliases"]) for each in known):
        raise Error(f"{cls.__name__}: {name} is an algorithm of kvbench; rename the class")
    source = _source_hash(cls)  # before there are generated functions
    made: Any = cls
    if not _is_dataclass_itself(cls):  # a second one would find the methods of the first in place
        made = dataclasses.dataclass(frozen="step" not in decides)(cls)
    for field in dataclasses.fields(made):
        if field.name in _RESERVED:
            remedy = "write it without a type" if field.name == "uses_seed" else "rename it"
            raise Error(f"{cls.__name__}.{field.name}: cannot be a field; {remedy}")
    made._kvbench_id = name
    made._kvbench_source = source
    _MADE[name] = cls.__name__
    return made


def classes_called(name: str) -> str:
    """The class that was made the method `name`; empty for none."""
    return _MADE.get(name, "")


def _is_dataclass_itself(cls: type) -> bool:
    """Not only derived from one."""
    return "__dataclass_fields__" in vars(cls)


def is_method(given: Any) -> bool:
    """Not of a class that is only derived from one."""
    return "_kvbench_id" in vars(given if isinstance(given, type) else type(given))


def decides_for_layer(made: Any) -> bool:
    return hasattr(made, "compress_layer")


def _code_text(code: CodeType) -> str:
    constants = [
        _code_text(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts
    ]
    return repr((code.co_name, code.co_code, code.co_names, constants))


def _is_generated(member: Any) -> bool:
    """Whether a function is one that dataclasses made: no file has its text."""
    code = getattr(inspect.unwrap(member), "__code__", None) if callable(member) else None
    return (code is not None and code.co_filename == "<string>") or not callable(member)


def _source_hash(cls: type) -> str:
    """The hash of its functions' text (or compiled code) and its constants, with inherited ones."""
    texts = []
    for each in cls.__mro__[:-1]:
        fields = inspect.get_annotations(each)
        made = _DATACLASS if each is cls and _is_dataclass_itself(each) else ()
        for name, member in sorted(vars(each).items()):
            if name in made and _is_generated(member):
                continue
            function: Any = member.fget if isinstance(member, property) else member
            function = inspect.unwrap(getattr(function, "__func__", function))
            if inspect.isfunction(function):
                try:
                    texts.append(inspect.getsource(function))
                except OSError:
                    texts.append(_code_text(function.__code__))
            elif isinstance(member, _PLAIN) and name not in fields and not name.startswith("__"):
                texts.append(f"{name} = {member!r}")
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _parameter(cls: type, field: dataclasses.Field[Any], types: dict[str, Any]) -> dict[str, Any]:
    """A row of the method's table of parameters."""
    wanted = types.get(field.name)
    row: dict[str, Any] = {"name": field.name}
    kinds: dict[Any, str] = {int: "integer", float: "real", bool: "flag", str: "text"}
    words = typing.get_args(wanted) if typing.get_origin(wanted) is typing.Literal else ()
    if words and all(isinstance(word, str) for word in words):
        row |= {"kind": "choice", "choices": list(words)}
    elif wanted in kinds:
        row["kind"] = kinds[wanted]
    else:
        raise Error(
            f"{cls.__name__}.{field.name}: must be an int, a float, a bool, a str or a Literal of "
            f"texts, got the type {field.type}"
        )
    if field.default_factory is not dataclasses.MISSING:
        row["default"] = field.default_factory()
    elif field.default is not dataclasses.MISSING:
        row["default"] = field.default
    if "default" in row:
        row["default"] = _checked(cls, field.name, row, row["default"])
    return row


def _checked(cls: type, name: str, row: dict[str, Any], value: Any) -> Any:
    """A field's value as JSON has it."""
    value = number(value)
    kind = row["kind"]
    if kind == "real" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    expected = {"integer": int, "real": float, "flag": bool}.get(kind, str)
    fits = isinstance(value, expected) and (kind == "flag" or not isinstance(value, bool))
    fits = fits and value in row.get("choices", [value])
    if not fits or (kind == "real" and not np.isfinite(value)):
        words = ", ".join(row.get("choices", []))
        kinds = {"integer": "an integer", "real": "a finite real", "flag": "true or false"}
        what = f"one of {words}" if words else kinds.get(kind, "text")
        raise Error(f"{cls.__name__}.{name}: must be {what}, got {value!r}")
    return value


def parameter_table(cls: Any) -> list[dict[str, Any]]:
    """Its parameters, and `source`, a hash of its text, which has one value."""
    try:
        types = typing.get_type_hints(cls)
    except (NameError, TypeError):  # names that only its function knew
        plain = {each.__name__: each for each in (int, float, bool, str)}
        types = {
            field.name: plain.get(field.type, field.type)
            if isinstance(field.type, str)
            else field.type
            for field in dataclasses.fields(cls)
        }
    rows = [_parameter(cls, field, types) for field in dataclasses.fields(cls)]
    source = cls._kvbench_source
    return [*rows, {"name": "source", "kind": "choice", "choices": [source], "default": source}]


def parameters(made: Any) -> dict[str, Any]:
    """The fields of an instance as a sweep's params."""
    cls = type(made)
    return {
        row["name"]: _checked(cls, row["name"], row, getattr(made, row["name"]))
        for row in parameter_table(cls)
        if row["name"] != "source"
    }
