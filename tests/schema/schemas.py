"""Schemas as the program prints them, and documents to hold against them."""

import json
import re

from jsonschema import Draft202012Validator

from program import DONE, kvbench

NAMES = ("sweep", "results", "bounds")


def printed(name):
    """The output of `kvbench schema NAME`."""
    done = kvbench("schema", name)
    assert (done.returncode, done.stderr) == (DONE, ""), done.stderr
    return done.stdout


def validator(name):
    return Draft202012Validator(json.loads(printed(name)))


def without_comments(text):
    """JSON without the // comments that kvbench allows; strings stay as they are."""
    return re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*', lambda match: match.group(1) or "", text)


def faults(validator, document):
    """The faults that a schema finds in a document, a line each; empty if it is valid."""
    return [f"/{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"
            for error in validator.iter_errors(document)]


def algorithms():
    """The registry, as `kvbench list` has it, without what takes a file: that must be of the dump too
    (tests/cli/cache_test.py)."""
    return [algorithm for algorithm in json.loads(kvbench("list", "algorithms", "--json").stdout)
            if all(parameter["type"] != "file" for parameter in algorithm["parameters"])]


def some_value(parameter):
    """A value that a parameter takes, small enough for a small dump."""
    if parameter["type"] == "choice":
        return parameter["words"][0]
    if parameter["type"] == "flag":
        return True
    if parameter["type"] == "real":
        low, high = parameter["minimum"], parameter["maximum"]
        return low + (0.5 if high is None else 0.5 * (min(high, low + 1.0) - low))
    return max(int(parameter["minimum"]), 40 if parameter["type"] == "tokens" else 2)


def choices(algorithm):
    """The fewest parameters that an algorithm can be given, once per alternative it offers."""
    tables = {parameter["name"]: parameter for parameter in algorithm["parameters"]}
    in_choice = {name for exclusive in algorithm["exclusive"] for names in exclusive
                 for name in names}
    needed = {name: some_value(table) for name, table in tables.items()
              if table["default"] is None and name not in in_choice}
    # Exact tokens whose default is made for long prompts would leave a small budget nothing.
    needed |= {name: 2 for name, table in tables.items() if table["type"] == "tokens"
               and isinstance(table["default"], int) and table["default"] > 16}
    points = [needed]
    for exclusive in algorithm["exclusive"]:
        points = [{**point, **{name: some_value(tables[name]) for name in names}}
                  for point in points for names in exclusive]
    return points
