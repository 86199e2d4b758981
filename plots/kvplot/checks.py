"""Parts of a results.json or an inspection that kvplot reads, checked once when it is opened.

A check is a function of a value and its JSON pointer that returns the first fault as text, or None.
Members that kvplot does not read are not checked; `kvbench schema results` describes the whole
file, and tests/plots/damaged_results_test.py compares the two.

Libraries that check by the program's schema are too slow for a million cells: fastjsonschema 2.16
takes 81 ms a cell, and 16 ms without the conditions on parameters, jsonschema 4.10 takes 59 ms, and
this file 0.3 ms. Baselines, inspections and loops have no schema, and that of the program refuses
results of the versions before and after it.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

Fault = str | None
Check = Callable[[Any, str], Fault]

LONGEST = 2**20  # characters of a text: more than a command line or a reason has
LARGEST = 2**53  # integers above are not exact in other readers of JSON
DEEPEST = 64  # levels of values that are only shown


def describe(value: Any) -> str:
    """A value in a message."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, str) and len(value) > LONGEST:
        return f"one of {len(value)} characters, {LONGEST} at most"
    text = json.dumps(value[:40] if isinstance(value, str) else value)
    return text if len(text) <= 40 else f"{text[:36]} ..."


def _expected(what: str, value: Any, pointer: str) -> str:
    return f"{pointer or '/'}: expected {what}, got {describe(value)}"


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def leaf(what: str, fits: Callable[[Any], bool]) -> Check:
    return lambda value, pointer: None if fits(value) else _expected(what, value, pointer)


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > LONGEST:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if _is_integer(value):
        return abs(value) <= LARGEST
    return isinstance(value, float) and math.isfinite(value)


TEXT = leaf("text", _is_text)
COUNT = leaf("an integer of at least 0", lambda v: _is_integer(v) and 0 <= v <= LARGEST)
NUMBER = leaf("a finite number", _is_number)
SCALAR = leaf(
    "text, a finite number, true, false or null",
    lambda v: v is None or isinstance(v, bool) or _is_number(v) or _is_text(v),
)


def one_of(*words: str) -> Check:
    return leaf(" or ".join(f'"{word}"' for word in words), lambda v: v in words)


def either(what: str, *checks: Check) -> Check:
    """A value that any of the checks accepts."""

    def checked(value: Any, pointer: str) -> Fault:
        if any(check(value, pointer) is None for check in checks):
            return None
        return _expected(what, value, pointer)

    return checked


def optional(check: Check) -> Check:
    return lambda value, pointer: None if value is None else check(value, pointer)


def array(check: Check, length: int | None = None) -> Check:
    what = "an array" if length is None else f"an array of {length}"

    def checked(value: Any, pointer: str) -> Fault:
        if not isinstance(value, list) or length not in (None, len(value)):
            return _expected(what, value, pointer)
        for place, entry in enumerate(value):
            fault = check(entry, f"{pointer}/{place}")
            if fault:
                return fault
        return None

    return checked


def members(
    required: Mapping[str, Check],
    present: Mapping[str, Check] | None = None,
    others: Check | None = None,
) -> Check:
    """An object with the members `required`; `present` if they are there, `others` of the rest."""
    known = {**(present or {}), **required}

    def checked(value: Any, pointer: str) -> Fault:
        if not isinstance(value, dict):
            return _expected("an object", value, pointer)
        for name in required:
            if name not in value:
                return f'{pointer or "/"}: expected a member "{name}", which is missing'
        for name, entry in value.items():
            if not _is_text(name):
                return _expected("names that are text", name, pointer)
            check = known.get(name, others)
            fault = check(entry, f"{pointer}/{_escaped(name)}") if check else None
            if fault:
                return fault
        return None

    return checked


def shown(value: Any, pointer: str, depth: int = 0) -> Fault:
    """Any value that is only shown: text that can be written, and not nested too deep."""
    if isinstance(value, str):
        return TEXT(value, pointer)
    if depth > DEEPEST:
        return f"{pointer}: nested deeper than {DEEPEST} levels"
    if isinstance(value, list):
        value = dict(enumerate(value))
    for name, entry in value.items() if isinstance(value, dict) else ():
        fault = shown(entry, f"{pointer}/{_escaped(str(name))}", depth + 1)
        if fault:
            return fault
    return None


# Beyond it neither an axis nor a fit can be computed in doubles.
MAX_SHOWN = 1e100
MAGNITUDE = leaf(
    f"a number from 0 to {MAX_SHOWN:g}", lambda v: _is_number(v) and 0 <= v <= MAX_SHOWN
)
NUMERIC = "t s delta delta_quantile epsilon recent_fraction tau_init tau_end damping"
PARAMS = members(
    {},
    {
        **dict.fromkeys(NUMERIC.split(), NUMBER),
        "budget": either(
            'a finite number or {"memory": a finite number}', NUMBER, members({"memory": NUMBER})
        ),
        "T": either('an integer of at least 0 or "auto"', COUNT, one_of("auto")),
    },
    SCALAR,
)
STATISTIC = either(
    "a finite number, null, or an object of these",
    optional(NUMBER),
    members({}, others=optional(NUMBER)),
)
CODEC = either(
    '"float" or an object with a codec', one_of("float"), members({"codec": TEXT}, others=SCALAR)
)
ROWS = (one_of("all"), members({"every": COUNT}), members({"last": COUNT}), array(COUNT))
LAYER_KEY = {
    "dump": TEXT,
    "sequence": TEXT,
    "layer": COUNT,
    "tokens": COUNT,
    "prompt_tokens": COUNT,
    "rows": either(
        '"all", {"every": k}, {"last": k}, an array of rows or one of these as "prompt"',
        *ROWS,
        members({"prompt": either('"all", {"every": k}, {"last": k} or an array of rows', *ROWS)}),
    ),
    "algorithm": TEXT,
    "params": PARAMS,
    "seed": optional(COUNT),
}
TENSORS = members({"keys": CODEC, "values": CODEC})
OF_LAYERS = members(
    {"storage": either('"float" or an object with keys and values', one_of("float"), TENSORS)},
    {"layers": array(COUNT)},
)
BY_LAYER = members({"by_layer": array(OF_LAYERS)})


def _storage(value: Any, pointer: str) -> Fault:
    by_layer = isinstance(value, dict) and "by_layer" in value
    return (BY_LAYER if by_layer else TENSORS)(value, pointer)


STORAGE_KEY = {"storage": _storage}
KEY = members({**LAYER_KEY, "kv_head": COUNT}, STORAGE_KEY)
CELL = members(
    {"id": TEXT, "status": one_of("ok", "failed", "skipped"), "key": KEY, "label": TEXT},
    {
        "reason": TEXT,
        "repro": TEXT,
        "derived": optional(
            members(
                {},
                {
                    "p_histogram": optional(array(NUMBER, 20)),
                    "max_abs_p_minus_half": optional(NUMBER),
                    "predicted_rmse_numerator": optional(NUMBER),
                    "predicted_rmse_normalizer": optional(NUMBER),
                },
                either("text, a number, true, false, null or numbers", SCALAR, array(NUMBER)),
            )
        ),
        **dict.fromkeys(("errors", "mass", "counters"), optional(members({}, others=STATISTIC))),
        "memory": optional(
            members({}, {"declared": leaf("true", lambda v: v is True)}, others=STATISTIC)
        ),
        "trivial": optional(members({}, others=optional(members({}, others=STATISTIC)))),
        "traffic": optional(members({}, others=STATISTIC)),
        "evidence": members({}, others=STATISTIC),
        "clusters": optional(members({}, {"final": optional(COUNT)})),
        "timing": optional(members({}, others=optional(NUMBER))),
    },
)
# A record of a whole layer.
LAYER = members(
    {
        "id": TEXT,
        "status": one_of("ok", "failed", "skipped"),
        "key": members(LAYER_KEY, STORAGE_KEY),
        "label": TEXT,
    },
    {
        "reason": TEXT,
        "repro": TEXT,
        **dict.fromkeys(("errors", "memory", "counters"), optional(members({}, others=STATISTIC))),
        "evidence": members({}, {"lost": array(COUNT)}, others=STATISTIC),
        "timing": optional(members({}, others=optional(NUMBER))),
    },
)
SUMMARISED = members(
    {"mean": NUMBER}, {"std_over_seeds": optional(NUMBER), "ci95": optional(array(NUMBER, 2))}
)
LINE = members(
    {
        "algorithm": TEXT,
        "label": TEXT,
        "params": PARAMS,
        "layer": optional(COUNT),
        "cells": COUNT,
        "errors": members({}, others=optional(SUMMARISED)),
        "memory": members({"fraction": optional(NUMBER)}, others=optional(NUMBER)),
    },
    {"tokens": COUNT},
)
PROVENANCE = members(
    {},
    {
        "git": optional(members({}, {"commit": optional(TEXT)})),
        "threads": COUNT,
        "argv": optional(array(TEXT)),
        **dict.fromkeys(("version", "cpu", "host", "started", "compiler"), TEXT),
        "gpu": shown,
    },
)
RESULTS = members(
    {
        "name": TEXT,
        "status": one_of("complete", "incomplete"),
        "config": members({}, others=shown),
        "provenance": array(PROVENANCE),
        "plan": members(dict.fromkeys(("cells", "ok", "failed", "skipped"), COUNT)),
        "dumps": array(
            members({"path": TEXT, "fingerprint": TEXT, "model": TEXT, "n_layers": COUNT})
        ),
        "cells": array(CELL),
        "summary": array(LINE),
    },
    {"layers": array(LAYER)},
)
# Output of `kvbench check --write-baselines`: only cells.
CELLS = members({"cells": array(CELL)}, {"config": members({}, others=shown)})

NORMS = members({"count": COUNT}, others=MAGNITUDE)
POINTS = members(
    {
        "norms": NORMS,
        "clustering": array(
            members(
                {
                    "delta_quantile": MAGNITUDE,
                    "delta": MAGNITUDE,
                    "clusters": COUNT,
                    "growth": array(array(COUNT, 2)),
                },
                {"delta_r": MAGNITUDE},
            )
        ),
        "covering_radius": array(array(MAGNITUDE, 2)),
    }
)
THRESHOLDS = array(members({"threshold": MAGNITUDE, "fraction": MAGNITUDE}))
ATTENTION = members(
    {
        "rows": COUNT,
        "sparsity": members(
            {
                "zero_in_fp16": MAGNITUDE,
                "probability_at_most": THRESHOLDS,
                "share_of_largest_at_most": THRESHOLDS,
            }
        ),
        "top_mass": array(
            members({"percent": MAGNITUDE, "per_query": MAGNITUDE, "accumulated": MAGNITUDE})
        ),
    }
)
HEAD = members(
    {
        "kv_head": COUNT,
        "clustering_tokens": COUNT,
        "queries": members({"norms": NORMS}),
        "keys": POINTS,
        "values": POINTS,
        "attention": optional(ATTENTION),
    },
    {"r": MAGNITUDE, "balancekv_exponent": MAGNITUDE, "attention_missing": TEXT},
)
INSPECTION = members(
    {
        "model": TEXT,
        "n_layers": COUNT,
        "sequences": array(
            members(
                {
                    "sequence": TEXT,
                    "layers": array(
                        members({"layer": COUNT, "tokens": COUNT, "heads": array(HEAD)})
                    ),
                }
            )
        ),
    }
)

MEAN = members({"mean": NUMBER, "se": optional(NUMBER)})
LOOP_RECORD = members(
    {
        "sequence": TEXT,
        "label": TEXT,
        "algorithm": TEXT,
        "params": PARAMS,
        "seed": optional(COUNT),
        "layers": array(COUNT),
        "status": one_of("ok", "failed", "skipped"),
    },
    {
        "reason": TEXT,
        "storage": shown,
        "rows": COUNT,
        "kl": members(
            {**dict.fromkeys(("mean", "median", "p99", "max"), NUMBER), "se": optional(NUMBER)}
        ),
        **dict.fromkeys(("same_top1", "same_top5"), MEAN),
        "perplexity": optional(members({}, others=optional(NUMBER))),
        **dict.fromkeys(
            ("errors", "mass", "memory", "outputs"), optional(members({}, others=STATISTIC))
        ),
    },
)
CLOSED_LOOP = members(
    {
        "model": TEXT,
        "decisions": one_of("replayed", "live"),
        "texts": array(members({"sequence": TEXT, "tokens": COUNT, "prompt_tokens": COUNT})),
        "records": array(LOOP_RECORD),
    }
)
