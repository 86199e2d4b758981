"""What a JSON document takes as Python's objects, told from its bytes before they are made."""

import numpy

# Bytes of Python 3.11, its collector's included: an object of up to five members, an array of up to
# four values, a number with its place in what holds it, what a short text takes more, and a name
# with its place in an object of many.
OBJECT, ARRAY, VALUE, TEXT, NAME = 256, 104, 40, 40, 200
MEMBERS = 8  # names of an object that are taken for those of many others
ALWAYS = 2**27  # bytes that any document may take
PER_BYTE = 8  # that each byte of a larger one may take; a results file's takes 4, compact 7
HEAVIEST = 99  # bytes that a byte takes: an empty object and its comma
MIB = 2**20
BLOCK = 2**20


class Crowded(ValueError):
    """A document that takes far more memory than its bytes are worth."""


def _signs(content: bytes) -> list[int]:
    return [content.count(sign) for sign in (b"{", b"[", b",", b":")]


def _signs_outside_texts(content: bytes) -> tuple[list[int], int]:
    """Those, and the number of texts."""
    plain = content.replace(rb"\\", b"__").replace(rb"\"", b"__")
    signs = [0, 0, 0, 0]
    within = 0  # whether the block begins in a text
    for start in range(0, len(plain), BLOCK):
        block = numpy.frombuffer(plain, numpy.uint8, min(BLOCK, len(plain) - start), start)
        in_text = (numpy.cumsum(block == ord('"'), dtype=numpy.uint8) + within) & 1
        within = int(in_text[-1])
        outside = block[in_text == 0].tobytes()
        signs = [sum(both) for both in zip(signs, _signs(outside))]
    return signs, plain.count(b'"') // 2


def refuse_crowded(content: bytes) -> None:
    """Raises Crowded. Signs within texts do not count."""
    most = max(ALWAYS, PER_BYTE * len(content))
    if len(content) * HEAVIEST <= most:
        return
    (objects, arrays, values, names), texts = _signs_outside_texts(content)
    memory = OBJECT * objects + ARRAY * arrays + VALUE * values
    memory += TEXT * max(0, texts - names) + NAME * max(0, names - MEMBERS * objects)
    if memory > most:
        raise Crowded(
            f"its {objects + arrays + values} objects, arrays and values take about "
            f"{memory // MIB} MiB of memory, more than the {most // MIB} MiB that a file of its "
            "size may"
        )
