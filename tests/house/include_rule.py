"""The dependency rule, as the table of lib/README.md states it, against every #include."""

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from sources import files, includes

# Third-party headers and the folders that may include them; `.cpp` where only such files may.
HOMES = {
    r"H5\w*\.h|hdf5\w*\.h": ("HDF5", ["lib/hdf5"], None),
    r"CLI/.*": ("CLI11", ["apps"], None),
    r"(nanobind/.*|Python\.h)": ("nanobind", ["apps/python"], None),
    r"nlohmann/.*": ("nlohmann-json", ["lib/json"], None),
    r"Eigen/.*": ("Eigen", ["lib/kernels", "lib/metrics"], ".cpp"),
    r"Random123/.*": ("Random123", ["lib/numerics"], None),
    r"zlib\.h": ("zlib", ["lib/hdf5"], ".cpp"),
    r"xxhash\.h": ("xxHash", ["lib/system"], ".cpp"),
    r"omp\.h": ("OpenMP", ["lib/system"], None),
    r"(cuda|cublas|cub|thrust)[\w/]*\.(h|hpp|cuh)|(cub|thrust|cuda)/.*": ("CUDA", ["cuda"], None),
    r"doctest/.*": ("doctest", [], None),
    r"benchmark/.*": ("Google Benchmark", [], None),
}


def allowed(readme):
    """{folder of lib: what it may include} from the table of lib/README.md."""
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", readme, re.MULTILINE)
    return {folder: {name.strip() for name in names.split(",") if name.strip()}
            for folder, names in rows}


def violations(root):
    """One line per include that the rule forbids."""
    root = Path(root)
    table = allowed((root / "lib/README.md").read_text(encoding="utf-8"))
    found = []
    for path in files(root):
        if path.suffix not in (".hpp", ".cpp", ".cu", ".cuh") or path.parts[0] == "tests":
            continue
        for quoted, name in includes(root / path):
            reason = (_own if quoted else _third_party)(root, path, name, table)
            if reason:
                found.append(f"{path}: #include {name}: {reason}")
    return found


def _own(root, path, name, table):
    top, folder = path.parts[0], path.parts[1] if len(path.parts) > 2 else ""
    if top == "apps":
        if not any((root / base / name).is_file() for base in ("lib", "", "apps", "apps/kvbench")):
            return "names no file"
        return None
    if top == "cuda":
        if name.startswith("cuda/") and (root / name).is_file():
            return None
        if name.split("/")[0] in ("system", "numerics", "core") or name == "kernels/kernels.hpp":
            return None
        return "cuda may include system, numerics, core and kernels/kernels.hpp"
    target = name.split("/")[0]
    # A header that the build writes is listed as <name>.in or <stem>.cmake.
    written = root / "lib" / name
    if not any(each.is_file() for each in (written, written.with_name(written.name + ".in"),
                                           written.with_suffix(".cmake"))):
        return "names no file of lib"
    if folder not in table:
        return f"lib/README.md's table has no row for {folder}"
    if target == folder or target in table[folder] or name in table[folder]:
        return None
    return f"{folder} may include {', '.join(sorted(table[folder])) or 'nothing else of lib'}"


def _third_party(_, path, name, __):
    for pattern, (library, homes, suffix) in HOMES.items():
        if re.fullmatch(pattern, name):
            if not any(path.is_relative_to(home) for home in homes):
                return f"{library} belongs to {', '.join(homes) or 'tests'}"
            if suffix and path.suffix != suffix:
                return f"{library} only in {suffix} files"
    return None


def circle(root):
    """Files that include each other in a circle, without suffixes: a header and its source are one. [] if none do."""
    root = Path(root)
    code = {path for path in files(root) if path.suffix in (".hpp", ".cpp", ".cu", ".cuh")
            and path.parts[0] in ("lib", "apps", "cuda")}
    needs = {}
    for path in code:
        named = [Path(base, name) for quoted, name in includes(root / path) if quoted
                 for base in ("lib", ".", "apps", "apps/kvbench")]
        needs.setdefault(path.with_suffix(""), set()).update(
            each.with_suffix("") for each in named if each in code and each.with_suffix("") != path.with_suffix(""))
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return [str(path) for path in error.args[1]]
    return []
