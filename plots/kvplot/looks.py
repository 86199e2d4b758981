"""The look of every method: a colour, a marker and a line of its own, the same in every figure."""

import zlib
from collections.abc import Iterable

import pandas

Dashes = str | tuple[int, tuple[int, ...]]

LINES: tuple[Dashes, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))

# Colour, marker, and which of LINES the first label has. No two methods have the same colour and
# marker, nor the same colour and line; methods of one colour have markers of other shapes. No two
# colours are alike, with common colour vision or without: found by a search for the largest
# smallest distance, which tests/plots/style_test.py computes.
LOOK = {
    "exact": ("#000000", "*", 0),
    "subgen": ("#DF2579", "o", 0),
    "kcenter": ("#F1B961", "s", 0),
    "uniform": ("#5300FF", "D", 0),
    "balancekv": ("#1F513B", "P", 0),
    "balancekv_prefill": ("#27D9CC", "X", 0),
    "softmax_balance": ("#95D299", "d", 0),
    "h2o": ("#C554B5", "^", 0),
    "key_attention": ("#770599", "v", 0),
    "keyformer": ("#88026F", ">", 0),
    "snapkv": ("#B7A5FF", "<", 0),
    "pyramidkv": ("#9850E8", "p", 0),
    "streaming_llm": ("#CACC02", "h", 0),
    "window": ("#CB6900", "8", 0),
    "dilated_window": ("#504A04", "d", 0),
    "oracle_topk": ("#9F834E", "P", 0),
    "tova": ("#1F513B", "o", 1),
    "roco": ("#9850E8", "s", 1),
    "caote": ("#5300FF", "^", 1),
    "rkv": ("#B7A5FF", "D", 1),
    "adakv": ("#F1B961", "v", 1),
    "criticalkv": ("#88026F", "P", 1),
    "cake": ("#DF2579", "X", 1),
    "chunkkv": ("#770599", "<", 1),
    "kvzip": ("#5300FF", "s", 3),
    "knorm": ("#9F834E", ">", 1),
    "keydiff": ("#C554B5", "o", 1),
    "lagkv": ("#504A04", "s", 1),
    "expected_attention": ("#95D299", "s", 1),
    "curdkv": ("#CB6900", "D", 1),
    "capkv": ("#27D9CC", "v", 1),
    "qfilters": ("#CACC02", "P", 1),
    "compactor": ("#1F513B", "<", 2),
    "thinformer": ("#9850E8", "X", 2),
    "cam": ("#5300FF", ">", 2),
    "d2o": ("#B7A5FF", "o", 2),
    "merge_cosine": ("#F1B961", "^", 2),
    "kf_merge": ("#27D9CC", "s", 3),
    "attention_matching": ("#88026F", "s", 2),
    "wildcat": ("#DF2579", "D", 2),
    "performer": ("#770599", "P", 2),
    "quest": ("#9F834E", "v", 2),
    "sparq": ("#C554B5", "X", 2),
    "loki": ("#504A04", "<", 2),
    "magicpig": ("#95D299", ">", 2),
    "vattention": ("#CB6900", "s", 2),
    "hyperattention": ("#27D9CC", "o", 2),
    "kdeformer": ("#CACC02", "^", 2),
    "given": ("#1F513B", "D", 3),
}
# The remaining pairs of colours and markers that can be told apart, in a fixed order.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_FREE = [
    (colour, marker)
    for marker in _MARKERS
    for colour in dict.fromkeys(colour for colour, *_ in LOOK.values())
    if colour != "#000000"
    and not any(colour == other and marker == taken for other, taken, _ in LOOK.values())
]


def look(algorithm: str, shown: Iterable[str] = ()) -> tuple[str, str]:
    """Colour and marker of an algorithm.

    One that kvbench does not have (a method written in Python or of a cache file) gets a free pair
    by a hash of its name, so that it looks alike in all figures; of two among `shown` that would
    look the same, the later by name takes the next free pair.
    """
    if algorithm in LOOK:
        return LOOK[algorithm][:2]
    taken: dict[int, str] = {}
    for name in sorted({name for name in shown if name not in LOOK} | {algorithm}):
        place = zlib.crc32(name.encode()) % len(_FREE)
        while place in taken and len(taken) < len(_FREE):
            place = (place + 1) % len(_FREE)
        taken.setdefault(place, name)
        if name == algorithm:
            return _FREE[place]
    raise AssertionError


def variants(table: pandas.DataFrame) -> dict[str, tuple[Dashes, bool]]:
    """Line style and filled (or hollow) marker of every label: an algorithm that stands under
    several labels keeps its colour and marker, and its labels differ in these."""
    found: dict[str, tuple[Dashes, bool]] = {}
    for algorithm, labels in table.groupby("algorithm")["label"]:
        first = LOOK[str(algorithm)][2] if algorithm in LOOK else 0
        for place, label in enumerate(dict.fromkeys(labels)):
            found[label] = (LINES[(first + place) % len(LINES)], place == 0)
    return found
