"""The compile units that clang-tidy looks at: those of a change, or all of them.
Usage: units.py BUILD [all], with the compile_commands.json of BUILD.

A header is seen through a unit: of lib, apps and cuda through the one that compiles it alone, others
through the .cpp of their name or else the first that includes them.
"""

import json
import sys
from pathlib import Path

from history import base, changed

ROOT = Path(__file__).resolve().parents[2]


def known_units(build: Path) -> set[Path]:
    """Files that the build compiles."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    return {Path(entry["directory"], entry["file"]).resolve() for entry in commands}


def unit_of_header(root: Path, build: Path, header: str, known: set[Path]) -> Path | None:
    alone = build / "tests/house/alone" / (header.replace("/", "_") + ".cpp")
    if alone.resolve() in known:
        return alone.resolve()
    own = (root / header).with_suffix(".cpp")
    if own in known:
        return own
    path_of = Path(header)
    in_tests = path_of.is_relative_to("tests")
    included = [path_of.relative_to("tests") if in_tests else path_of, path_of.name]
    names = [f'#include "{name}"' for name in included]
    folder = root / ("tests" if in_tests else path_of.parent)
    for path in sorted(path for path in known if path.is_relative_to(folder)):
        if any(name in path.read_text(encoding="utf-8") for name in names):
            return path
    return None


def units_of_change(root: Path, build: Path, files: list[str]) -> tuple[list[Path], list[str]]:
    """The units to look at for these files, and C++ files that no unit of the build shows."""
    known = known_units(build)
    units: set[Path] = set()
    unseen: list[str] = []
    for name in files:
        if name.endswith(".cpp"):
            unit = root / name if root / name in known else None
        elif name.endswith(".hpp"):
            unit = unit_of_header(root, build, name, known)
        else:
            continue
        if unit is None:
            unseen.append(name)
        else:
            units.add(unit)
    return sorted(units), unseen


def all_units(root: Path, build: Path) -> list[Path]:
    """Every file of the repository that the build compiles; headers come with who includes them."""
    build = build.resolve()
    return sorted(
        path
        for path in known_units(build)
        if path.is_relative_to(root) and not path.is_relative_to(build)
    )


def main(arguments: list[str]) -> int:
    build = Path(arguments[0]).resolve()
    since = base(ROOT)
    if arguments[1:] == ["all"] or since is None:
        why = "" if since else " (this clone has no earlier commit to compare with)"
        print(f"clang-tidy: everything{why}", file=sys.stderr)
        units, unseen = all_units(ROOT, build), list[str]()
    else:
        units, unseen = units_of_change(ROOT, build, changed(ROOT, since))
        print(f"clang-tidy: {len(units)} units changed since {since[:12]}", file=sys.stderr)
    for name in unseen:
        print(f"clang-tidy: {name} is not compiled here, not looked at", file=sys.stderr)
    print("".join(f"{unit}\n" for unit in units), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
