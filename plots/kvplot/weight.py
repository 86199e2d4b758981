"""Memory of a JSON document as Python's objects, estimated from its bytes before they are made."""

import re
from dataclasses import dataclass

import numpy

# Bytes of Python 3.11, its collector's included: an object of up to five members, an array of up to
# four values, a number with its place in what holds it, what a short text takes more, and a name
# with its place in an object of many.
OBJECT, ARRAY, VALUE, TEXT, NAME = 256, 104, 40, 40, 200
MEMBERS = 8  # names of an object that are taken for those of many others
SMALL = 2**25  # bytes of a file that may take no more than ALWAYS
ALWAYS = 160 * 2**20  # bytes that any document may take, with its characters
PER_BYTE = 10  # that each byte of a larger one may take; a results file's takes 6, compact 9
HEAVIEST = 107  # bytes that a byte takes: an empty object, its comma, and two characters of 4 bytes
MIB = 2**20
BLOCK = 2**20
QUOTE = ord('"')


class Crowded(ValueError):
    """A document that takes far more memory than its bytes are worth."""


@dataclass
class _Found:
    signs: list[int]  # { [ , : outside of texts
    texts: int
    characters: int
    in_texts: int  # of the characters


def _signs(content: bytes) -> list[int]:
    return [content.count(sign) for sign in (b"{", b"[", b",", b":")]


def _found(content: bytes) -> _Found:
    plain = content.replace(rb"\\", b"__").replace(rb"\"", b"__")
    found = _Found([0, 0, 0, 0], plain.count(b'"') // 2, 0, 0)
    within = 0  # whether the block begins in a text
    for start in range(0, len(plain), BLOCK):
        block = numpy.frombuffer(plain, numpy.uint8, min(BLOCK, len(plain) - start), start)
        in_text = (numpy.cumsum(block == QUOTE, dtype=numpy.uint8) + within) & 1
        within = int(in_text[-1])
        outside = block[in_text == 0].tobytes()
        found.signs = [sum(both) for both in zip(found.signs, _signs(outside))]
        begins = (block & 0xC0) != 0x80  # first bytes of characters in UTF-8
        found.characters += int(numpy.count_nonzero(begins))
        found.in_texts += int(numpy.count_nonzero(begins & (in_text == 1)))
    return found


def _width(content: bytes) -> int:
    """Bytes that Python's text takes per character: its widest decides."""
    if re.search(rb"[\xf0-\xff]", content):
        return 4
    return 2 if re.search(rb"[\xc4-\xff]", content) else 1


def _width_of_texts(content: bytes, width: int) -> int:
    """The same of the texts that it holds, which escapes can make wider."""
    if rb"\u" not in content:
        return width
    return 4 if re.search(rb"\\u[dD][89abAB]", content) else max(width, 2)


def refuse_crowded(content: bytes) -> None:
    """Raises Crowded. Signs within texts do not count."""
    most = ALWAYS if len(content) <= SMALL else max(ALWAYS, PER_BYTE * len(content))
    if len(content) * HEAVIEST <= most:
        return
    found = _found(content)
    objects, arrays, values, names = found.signs
    memory = OBJECT * objects + ARRAY * arrays + VALUE * values
    memory += TEXT * max(0, found.texts - names) + NAME * max(0, names - MEMBERS * objects)
    width = _width(content)
    memory += width * found.characters + _width_of_texts(content, width) * found.in_texts
    if memory > most:
        raise Crowded(
            f"its characters and {objects + arrays + values} objects, arrays and values take about "
            f"{memory // MIB} MiB of memory, more than the {most // MIB} MiB that a file of its "
            "size may"
        )
