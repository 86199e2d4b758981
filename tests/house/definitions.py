"""Types of one name: what a program that links them both may take one for the other."""

import re
from collections import defaultdict
from pathlib import Path

from sources import files, text

FOLDERS = ("lib", "apps", "cuda")  # linked into one program
_NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)\"|\"(?:\\.|[^\"\\\n])*\""
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.S | re.M)
_TYPE = re.compile(
    r"(?:^|[;{}>\s])(?:enum\s+(?:class\s+|struct\s+)?|struct\s+|class\s+|union\s+)"
    r"(?:alignas\s*\([^)]*\)\s*)?(?P<name>\w+(?:::\w+)*)\s*(?:final\s*)?(?::[^;{}]*)?$")
_ALIAS = re.compile(r"(?:^|[;{}>\s])using\s+(?P<name>\w+)\s*=[^;{}]*$")
_NAMESPACE = re.compile(r"(?:^|[;{}\s])(?:inline\s+)?namespace(?:\s+(?P<name>[\w:]+))?\s*$")


def types_of(code):
    """Full names of the types and aliases that `code` defines in named namespaces or none; what an
    unnamed namespace, a type or a function holds is its own."""
    code = _NOISE.sub(" ", code)
    found = []
    scopes = []  # names of namespaces; None: of anything else
    since = 0
    for mark in re.finditer(r"[;{}]", code):
        said = code[since:mark.start()]
        since = mark.end()
        inside = None not in scopes
        if mark.group() == "}":
            if scopes:
                scopes.pop()
        elif mark.group() == ";":
            alias = _ALIAS.search(said)
            if inside and alias:
                found.append("::".join([*scopes, alias.group("name")]))
        else:
            namespace = _NAMESPACE.search(said)
            kind = _TYPE.search(said)
            if inside and kind:
                found.append("::".join([*scopes, kind.group("name")]))
            scopes.append(namespace.group("name") if namespace else None)
    return found


def defined_twice(root):
    """Full names that two files define, each with the files."""
    places = defaultdict(set)
    for path in files(root):
        if path.parts[0] in FOLDERS and path.suffix in {".hpp", ".cuh", ".cpp", ".cu"}:
            for name in types_of(text(Path(root) / path)):
                places[name].add(path.as_posix())
    return sorted(f"{name}: {', '.join(sorted(found))}" for name, found in places.items()
                  if len(found) > 1)
