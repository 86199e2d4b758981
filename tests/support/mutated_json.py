"""A JSON document with something changed: a leaf replaced, a member removed, an array emptied or
doubled, or bytes of its text. The readers' tests state what they promise for such files."""

import json
import random

VALUES = (None, True, 5, -1, 0, 0.5, 1e308, -1e308, 1e-320, 10 ** 400, 2 ** 53, "x", "",
          "<script>alert(1)</script>", "$\\x_{", "=1+1", "\ud800", "a\x00b\x1b[31m", [], {}, [[]],
          {"x": 1}, [1, "x", None])


def places(document, path=()):
    """Paths of all values below the root, inner ones too."""
    pairs = document.items() if isinstance(document, dict) else enumerate(document)
    for name, value in pairs:
        yield (*path, name)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, name))


def copied(document):
    return json.loads(json.dumps(document))


def pointer(path):
    return "".join(f"/{name}" for name in path)


def parent_of(document, path):
    for name in path[:-1]:
        document = document[name]
    return document


def replaced(document, path, value):
    out = copied(document)
    parent_of(out, path)[path[-1]] = value
    return out


def without(document, path):
    out = copied(document)
    del parent_of(out, path)[path[-1]]
    return out


def random_mutation(document, rng: random.Random):
    """(what was done, bytes): one to three changes of values, or of bytes."""
    if rng.random() < 0.25:
        return "bytes", random_bytes(json.dumps(document).encode(), rng)
    changed, changes = document, []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        paths = list(places(changed))
        if not paths:
            break
        path = rng.choice(paths)
        kind = rng.random()
        if kind < 0.2:
            changed = without(changed, path)
            changes.append(f"{pointer(path)} removed")
            continue
        if kind < 0.35:  # another value of the same document
            value = parent_of(changed, other := rng.choice(paths))[other[-1]]
            what = f"the value of {pointer(other)}"
        else:
            value, what = rng.choice(VALUES), "a value"
        if kind > 0.9 and isinstance(held := parent_of(changed, path)[path[-1]], list):
            value, what = held + held, "itself twice"
        changed = replaced(changed, path, value)
        changes.append(f"{pointer(path)} = {what} {str(value)[:30]!r}")
    return "; ".join(changes), json.dumps(changed).encode()


def random_bytes(text: bytes, rng: random.Random) -> bytes:
    out = bytearray(text)
    for _ in range(rng.choice((1, 2, 8))):
        at = rng.randrange(len(out)) if out else 0
        kind = rng.randrange(4)
        if kind == 0:
            out[at:at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            del out[at:at + rng.choice((1, 5, 100, len(out)))]
        elif kind == 2:
            out[at:at] = rng.choice((b"\0", b"[" * 3000, b"{\"a\":" * 3000, b"1e999", b"NaN", b"-",
                                     b"\xff", b"\"", b",", b"9" * 400, b"\\ud800"))
        else:
            out[at:at] = out[at:at + rng.choice((1, 20, 500))]
    return bytes(out)
