"""What a JSON document takes as Python's objects, told from its bytes before they are made."""

import numpy

# Bytes of Python 3.11, its collector's included: an object of up to five members, an array of up to
# four values, and a number or a short text with its place in what holds it.
OBJECT, ARRAY, VALUE = 256, 104, 40
ALWAYS = 2**26  # bytes that any document may take
PER_BYTE = 4  # that each byte of a larger one may take; a byte of kvbench's results takes 2 to 3
SMALLEST = 3  # bytes of the heaviest element: an empty object and its comma
MIB = 2**20
BLOCK = 2**20


class Crowded(ValueError):
    """A document that takes far more memory than its bytes are worth."""


def _signs(content: bytes) -> list[int]:
    return [content.count(sign) for sign in (b"{", b"[", b",")]


def _signs_outside_texts(content: bytes) -> list[int]:
    plain = content.replace(rb"\\", b"__").replace(rb"\"", b"__")
    signs = [0, 0, 0]
    within = 0  # whether the block begins in a text
    for start in range(0, len(plain), BLOCK):
        block = numpy.frombuffer(plain, numpy.uint8, min(BLOCK, len(plain) - start), start)
        in_text = (numpy.cumsum(block == ord('"'), dtype=numpy.uint8) + within) & 1
        within = int(in_text[-1])
        outside = block[in_text == 0].tobytes()
        signs = [sum(both) for both in zip(signs, _signs(outside))]
    return signs


def _weight(signs: list[int]) -> int:
    return sum(count * size for count, size in zip(signs, (OBJECT, ARRAY, VALUE)))


def refuse_crowded(content: bytes) -> None:
    """Raises Crowded. Signs within texts do not count."""
    most = max(ALWAYS, PER_BYTE * len(content))
    if len(content) * (OBJECT + VALUE) <= SMALLEST * most or _weight(_signs(content)) <= most:
        return
    signs = _signs_outside_texts(content)
    if _weight(signs) > most:
        raise Crowded(
            f"its {sum(signs)} objects, arrays and values take about "
            f"{_weight(signs) // MIB} MiB of memory, more than the {most // MIB} MiB that a file "
            "of its size may"
        )
