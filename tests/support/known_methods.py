"""Facts about each method that its code lacks. plots/kvplot/methods.json has them by id, and a method may lack them all:

  look      colour, marker and line in figures; without one kvplot takes a free pair by a hash of the id
  arxiv     the number of its paper
  compared  with what it was compared, in the words of lib/algorithms/VERIFIED.md; `settings`: on which
  without   why it has no sweep of configs/papers (`paper`; "configs/figures" where the sweeps are there), no entry of
            configs/field.json (`field`), no floor in tests/bench/method_floors.cpp (`floor`), no comparison (`compared`)

  known_methods.py missing KVBENCH   a line for each thing that a method of the program lacks without a reason
  known_methods.py verified          the table of methods of lib/algorithms/VERIFIED.md
  known_methods.py algorithms KVBENCH   the table of lib/algorithms/ALGORITHMS.md; families are those of README.md
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KNOWN = json.loads((ROOT / "plots/kvplot/methods.json").read_text(encoding="utf-8"))
# Parameters of many methods, which the head of ALGORITHMS.md names once.
PAGING = ("pages", "page_score", "same_in")
THINGS = {
    "look": "no look in plots/kvplot/methods.json",
    "paper": "no sweep in configs/papers",
    "field": "no entry in configs/field.json",
    "floor": "no floor in tests/bench/method_floors.cpp",
    "compared": "no comparison with other code or an oracle in plots/kvplot/methods.json",
}


def listed(program):
    said = subprocess.run([program, "list", "algorithms", "--json"], capture_output=True, text=True, check=True)
    return json.loads(said.stdout)


def ids(program):
    return [entry["id"] for entry in listed(program)]


def _named(pattern, *paths):
    return {name for path in paths for name in re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)}


def in_sweeps(*paths):
    """Ids of the methods that sweep files have."""
    return _named(r'"algorithm": "(\w+)"', *paths)


def having():
    """The ids that have each of THINGS."""
    return {"look": {name for name, known in KNOWN.items() if "look" in known},
            "paper": in_sweeps(*(ROOT / "configs/papers").glob("*.json")),
            "field": in_sweeps(ROOT / "configs/field.json"),
            "floor": _named(r'^ +\{"(\w+)",', ROOT / "tests/bench/method_floors.cpp"),
            "compared": {name for name, known in KNOWN.items() if "compared" in known}}


def without(thing):
    """{id: why it lacks the thing}"""
    return {name: known["without"][thing] for name, known in KNOWN.items() if thing in known.get("without", {})}


def missing(methods):
    have = having()
    return [f"{name}: {words}" for name in methods for thing, words in THINGS.items()
            if name not in have[thing] and name not in without(thing)]


def verified():
    rows = [f"| `{name}` | {known['compared']} | {known['settings']} |\n"
            for name, known in KNOWN.items() if "compared" in known]
    return "".join(["| id | compared by | settings of the program's values; what is open |\n", "|---|---|---|\n", *rows])


def families():
    """{id: its family in README.md}"""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z][^|`]*) \| \d+ \| (`.*) \|$", readme, re.MULTILINE)
    return {name: family for family, names in rows for name in re.findall(r"`(\w+)`", names)}


def algorithms(program):
    family = families()
    rows = []
    for entry in listed(program):
        name, known = entry["id"], KNOWN.get(entry["id"], {})
        source, memory = entry["source"], entry["memory"].split(";")[0]
        if "arxiv" in known:
            source = f"[{source}](https://arxiv.org/abs/{known['arxiv']})"
        compared = known.get("compared", known.get("without", {}).get("compared", ""))
        parameters = ", ".join(f"`{each['name']}`" for each in entry["parameters"] if each["name"] not in PAGING)
        rows.append(f"| `{name}` | {family.get(name, '')} | {entry['title']} | {memory} | {compared} | {source} "
                    f"| {parameters} |\n")
    return "".join(["| id | family | keeps | memory of a KV head | compared by | source | parameters |\n",
                    "|---|---|---|---|---|---|---|\n", *rows])


if __name__ == "__main__":
    if sys.argv[1:] == ["verified"]:
        print(verified(), end="")
    elif sys.argv[1] == "algorithms":
        print(algorithms(sys.argv[2]), end="")
    else:
        _, program = sys.argv[1:]
        print("".join(f"methods: {line}\n" for line in missing(ids(program))), end="")
