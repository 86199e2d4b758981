"""Facts about methods and codecs that their code lacks. plots/kvplot/methods.json has those of methods by id, and a
method may lack them all:

  look      colour, marker and line in figures; without one kvplot takes a free pair by a hash of the id
  arxiv     the number of its paper
  compared  with what it was compared, in the words of lib/algorithms/VERIFIED.md; `settings`: on which
  without   why it has no sweep of configs/papers (`paper`; "configs/figures" where the sweeps are there), no entry of
            configs/field.json (`field`), no comparison (`compared`)

codecs.json next to this file has family, arxiv, compared and settings of codecs.

  known_methods.py missing KVBENCH      a line for each thing that a method of the program lacks without a reason
  known_methods.py verified             the table of methods of lib/algorithms/VERIFIED.md; verified-codecs: of codecs
  known_methods.py not-in-field         its table of methods that configs/field.json lacks
  known_methods.py algorithms KVBENCH   the table of lib/algorithms/ALGORITHMS.md; families are those of README.md
  known_methods.py codecs KVBENCH       the table of lib/storage/README.md
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KNOWN = json.loads((ROOT / "plots/kvplot/methods.json").read_text(encoding="utf-8"))
CODECS = json.loads(Path(__file__).with_name("codecs.json").read_text(encoding="utf-8"))
# Parameters of many methods, which the head of ALGORITHMS.md names once.
PAGING = ("pages", "page_score", "same_in")
THINGS = {
    "look": "no look in plots/kvplot/methods.json",
    "paper": "no sweep in configs/papers",
    "field": "no entry in configs/field.json",
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
            "compared": {name for name, known in KNOWN.items() if "compared" in known}}


def without(thing):
    """{id: why it lacks the thing}"""
    return {name: known["without"][thing] for name, known in KNOWN.items() if thing in known.get("without", {})}


def missing(methods):
    have = having()
    return [f"{name}: {words}" for name in methods for thing, words in THINGS.items()
            if name not in have[thing] and name not in without(thing)]


def _table(head, *rows):
    lines = [f"| {' | '.join(row)} |\n" for row in (head, *rows)]
    return "".join([lines[0], "|" + "---|" * len(head) + "\n", *lines[1:]])


def verified():
    return _table(["id", "compared by", "settings of the program's values; what is open"],
                  *([f"`{name}`", known["compared"], known["settings"]]
                    for name, known in KNOWN.items() if "compared" in known))


def verified_codecs():
    return _table(["codec", "compared by", "settings of the program's values; what is open"],
                  *([f"`{name}`", known["compared"], known["settings"]] for name, known in CODECS.items()))


def not_in_field():
    whys = without("field")
    named = {why: ", ".join(f"`{name}`" for name in whys if whys[name] == why) for why in whys.values()}
    return _table(["why a method is not in the field", "methods"], *([why, names] for why, names in named.items()))


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
        rows.append([f"`{name}`", family.get(name, ""), entry["title"], memory, compared, source, parameters])
    return _table(["id", "family", "keeps", "memory of a KV head", "compared by", "source", "parameters"], *rows)


def codecs(program):
    """That of `kvbench list storage --markdown`, with what codecs.json adds."""
    said = subprocess.run([program, "list", "storage", "--markdown"], capture_output=True, text=True, check=True)
    _, _, *rows = (line[2:-2].split(" | ") for line in said.stdout.splitlines())
    table = []
    for name, *cells in rows:
        known = CODECS.get(name.strip("`"), {})
        source_texts = cells[4].split("; ")
        for place, number in enumerate(known.get("arxiv", [])):
            source_texts[place] = f"[{source_texts[place]}](https://arxiv.org/abs/{number})"
        table.append([name, known.get("family", ""), *cells[:2], known.get("compared", ""), cells[3], cells[2],
                      "; ".join(source_texts)])
    return _table(["codec", "family", "for", "stored form", "compared by", "bits per number", "parameters", "source"],
                  *table)


if __name__ == "__main__":
    tables = {"verified": verified, "verified-codecs": verified_codecs, "not-in-field": not_in_field,
              "algorithms": algorithms, "codecs": codecs}
    if sys.argv[1] in tables:
        print(tables[sys.argv[1]](*sys.argv[2:]), end="")
    else:
        _, program = sys.argv[1:]
        print("".join(f"methods: {line}\n" for line in missing(ids(program))), end="")
