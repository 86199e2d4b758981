"""Schemas and program say the same of a document: what a schema refuses the program refuses, and
what the program refuses by its tables (unknown keys, values out of range, missing or exclusive
parameters) the schema refuses. Only what a schema cannot say is left to the program."""

import copy
import json
import re
import unittest

from program import BAD_INPUT, DONE, Folder, kvbench
from schemas import algorithms, choices, faults, validator

# Messages that follow from the program's tables.
TABLE_FAULT = re.compile(r"must be .*, is |unknown|missing|exclude each other|none of|given twice|"
                         r"empty axis|takes a value|belongs to|says nothing")
# Faults that no schema finds: the values that an axis form computes.
COMPUTED = re.compile(r"/(range|pow2|logspace): ")
OTHERS = re.compile(r"describes the same cells")


def probes(parameter):
    """Values at and beyond the edges of what a parameter takes, and of other types."""
    values = [None, {}, [], "no such word", True, -1e16, 1e16, 0, 1, 0.5, 1.5, 2.0, -1,
              {"range": [1, 4, 1]}, {"pow2": [1, 3]}, {"logspace": [1, 8, 4]},
              {"range": [1, 4]}, {"pow2": ["1", 2]}, {"steps": [1, 2]},
              {"range": [1, 2, 1], "pow2": [1, 2]}, [1, 1], [1, 2], ["x"],
              {"memory": 0.5}, {"memory": 2}, {"memory": [0.5, 0.25]}, {"memory": [0.5, 0]},
              {"memory": {"range": [0.25, 0.75, 0.25]}}, {"memory": "x"}, {"memory": []},
              [{"memory": 0.5}, {"memory": 1}], {"memory": 0.5, "range": [1, 2, 1]}]
    values += parameter.get("words", [])
    if "minimum" in parameter:
        low = parameter["minimum"]
        values += [low, low - 1, low + 1, [low, low + 1]]
        if parameter["maximum"] is not None:
            values += [parameter["maximum"], parameter["maximum"] + 1]
    return values


class Agreement(Folder):
    def program_faults(self, count, done, place):
        """Per element of a list in the document what the program has against it."""
        found = [[] for _ in range(count)]
        for line in done.stderr.splitlines():
            match = re.search(rf"/{place}/(\d+)", line)
            if match and not OTHERS.search(line):
                found[int(match.group(1))].append(line)
        return found

    def assert_agreement(self, documents, schema_says, program_says):
        refused = 0
        for document, schema, program in zip(documents, schema_says, program_says):
            what = f"{json.dumps(document)}\nschema: {schema}\nprogram: {program}"
            if schema:
                self.assertTrue(program, f"only the schema refuses {what}")
            if any(TABLE_FAULT.search(line) and not COMPUTED.search(line) for line in program):
                self.assertTrue(schema, f"only the program refuses {what}")
            refused += bool(schema)
        return refused

    def hold_entries(self, entries):
        """Holds sweep entries against both; returns how many the schema refuses. Some at a time:
        the program lists at most 50 errors of one file."""
        return sum(self.hold_some(entries[first:first + 10])
                   for first in range(0, len(entries), 10))

    def hold_some(self, entries):
        path = self.sweep(entries)
        done = kvbench("validate", "--config", path)
        self.assertIn(done.returncode, (DONE, BAD_INPUT))
        schema = validator("sweep")
        document = json.loads(path.read_text())
        says = [faults(schema, {**document, "algorithms": [entry]}) for entry in entries]
        return self.assert_agreement(entries, says,
                                     self.program_faults(len(entries), done, "algorithms"))

    def test_every_parameter_of_every_algorithm(self):
        for algorithm in algorithms():
            with self.subTest(algorithm["id"]):
                entries = []
                for point in choices(algorithm):
                    entries.append({"algorithm": algorithm["id"], "params": point})
                    for name in point:
                        entries.append({"algorithm": algorithm["id"], "params": {
                            other: value for other, value in point.items() if other != name}})
                point = choices(algorithm)[0]
                entries.append({"algorithm": algorithm["id"]})
                entries.append({"algorithm": algorithm["id"], "params": {**point, "budgt": 1}})
                for parameter in algorithm["parameters"]:
                    # Next to an alternative that has it, or to all others.
                    with_it = next((other for other in choices(algorithm)
                                    if parameter["name"] in other), point)
                    for value in probes(parameter):
                        entries.append({"algorithm": algorithm["id"],
                                        "params": {**with_it, parameter["name"]: value}})
                    entries.append({"algorithm": algorithm["id"],
                                    "params": {**point, parameter["name"]: point.get(
                                        parameter["name"], parameter["default"])}})
                for alias in algorithm["aliases"]:
                    entries.append({"algorithm": alias, "params": point})
                refused = self.hold_entries(entries)
                self.assertLess(refused, len(entries))
                self.assertGreater(refused, 0)

    def test_the_other_keys_of_an_entry(self):
        exact = {"algorithm": "exact"}
        self.assertGreater(self.hold_entries([
            exact, {}, 7, {"algorithm": 7}, {"algorithm": "exactly"}, {**exact, "parms": {}},
            {**exact, "params": []}, {**exact, "label": ""}, {**exact, "label": "a/b"},
            {**exact, "label": "a b"}, {**exact, "label": 3}, {**exact, "where": []},
            {**exact, "where": {"layers": [0]}}, {**exact, "where": {"layers": "all"}},
            {**exact, "where": {"layers": 0}}, {**exact, "where": {"layers": [-1]}},
            {**exact, "where": {"layers": [0.5]}}, {**exact, "where": {"layers": []}},
            {**exact, "where": {"layers": {"range": [0, 1, 1]}}},
            {**exact, "where": {"tokens": 5}}, {**exact, "where": {"sequences": ["0"]}},
            {**exact, "where": {"sequences": [0]}}, {**exact, "where": {"sequences": []}},
            {**exact, "where": {"kv_heads": [0, 0]}}]), 10)

    def test_a_second_method(self):
        first = {"algorithm": "snapkv", "params": {"budget": 48}}
        entries = [{**first, "then": then} for then in (
            3, "quest", [], {}, {"algorithm": 7}, {"algorithm": "quest"}, {"algorithm": "exact"},
            {"algorithm": "oracle_topk", "params": {"budget": 4}}, {"algorithm": "h2o", "params": {"budget": 4}},
            {"algorithm": "quest", "params": {"budget": [4, 8]}}, {"algorithm": "quest", "params": {"budget": 0}},
            {"algorithm": "quest", "params": {"budget": 4, "pge": 1}}, {"algorithm": "quest", "params": []},
            {"algorithm": "quest", "params": {"budget": 4}, "label": "x"}, {"algorithm": "magicpig"})]
        self.assertGreater(self.hold_entries(entries), 8)

    def test_everything_but_the_entries(self):
        schema = validator("sweep")
        base = json.loads(self.sweep([{"algorithm": "exact"}]).read_text())
        parts = {
            "schema_version": [1, 2, "1", 1.0],
            "name": ["a", "A.b_c-1", "_a", "", ".a", "-a", "a/b", "a b", "x" * 200, "x" * 201, 7],
            "dumps": [[], "a.h5", [7], [""]],
            "select": [{}, [], {"layer": 1}, {"tokens": "all"}, {"tokens": 8}, {"tokens": 0},
                       {"tokens": 8.5}, {"tokens": "few"}, {"tokens": [8, 16]}, {"tokens": [8, 8]},
                       {"tokens": []}, {"tokens": [0, 8]}, {"tokens": {"pow2": [3, 4]}}, {"layers": [0, 1]}, {"layers": 3},
                       {"layers": "none"}, {"kv_heads": {"pow2": [0, 0]}}, {"sequences": "0"}],
            "replay": [{}, {"prompt_tokens": "default"}, {"prompt_tokens": "dmup"},
                       {"prompt_tokens": 0}, {"prompt_tokens": 8}, {"prompt_tokens": 0.5},
                       {"prompt_tokens": -1}, {"prompt_tokens": 1.5}, {"prompt_tokens": None},
                       {"prompt_tokens": [8]}, {"prompt": 8}, 8],
            "evaluate": [{}, {"rows": "all"}, {"rows": "last"}, {"rows": {"last": 4}},
                         {"rows": {"last": 0}}, {"rows": {"every": 3}}, {"rows": {"each": 3}},
                         {"rows": {"every": 3, "last": 3}}, {"rows": {}}, {"rows": [90]},
                         {"rows": [90, 90]}, {"rows": [-1]}, {"rows": []}, {"rows": 5},
                         {"rows": {"prompt": "all"}}, {"rows": {"prompt": {"every": 3}}},
                         {"rows": {"prompt": {"last": 0}}}, {"rows": {"prompt": [3, 9]}},
                         {"rows": {"prompt": [3, 3]}}, {"rows": {"prompt": {"prompt": "all"}}},
                         {"rows": {"prompt": "all", "last": 3}}, {"rows": {"prompt": 3}}],
            "seeds": [[0], [], [0, 0], [-1], [2**32], [2**32 - 1], [0.5], {"first": 1, "count": 2},
                      {"count": 2}, {"first": 1}, {}, {"count": 0}, {"first": -1},
                      {"count": 10**6 + 1}, {"last": 3}, 7, "all", {"range": [0, 3, 1]}],
            "memory": [{}, {"element_bytes": 4}, {"element_bytes": 3}, {"element_bytes": "2"},
                       {"bytes": 2}, 2],
            "output": [{}, {"rows": True}, {"rows": 1}, {"row": True}],
            "algorithms": [[], {}, None],
            "colour": ["red"]}
        refused = 0
        for name, values in parts.items():
            documents = [{**base, name: value} for value in values]
            documents.append({key: value for key, value in base.items() if key != name})
            for document in documents:
                path = self.folder / "probe.json"
                path.write_text(json.dumps(document))
                done = kvbench("validate", "--config", path)
                program = [] if done.returncode == DONE else done.stderr.splitlines()
                refused += self.assert_agreement([document], [faults(schema, document)], [program])
        self.assertGreater(refused, 60)

    def test_bounds(self):
        limit = {"metric": "errors.relative_l2.mean", "limit": 1}
        than = {"metric": "memory.bytes", "than": {"algorithm": "uniform"}, "paired_by": ["seed"]}
        baseline = {"metric": "memory.bytes", "baseline": "out/results.json",
                    "relative_tolerance": 0.1}
        between = {"metric": "derived.delta", "at_most": 3}
        bounds = [limit, than, baseline, between, {**limit, "metric": "relative_l2.mean"}, {},
                  {"metric": "memory.bytes"}, {**limit, "at_most": 3}, {**limit, "colour": 1},
                  {**limit, "limit": {"param": "budget"}}, {**limit, "limit": {"params": "budget"}},
                  {**limit, "limit": "1"}, {**limit, "failure_rate": 0.1},
                  {**limit, "failure_rate": 0}, {**limit, "failure_rate": 1},
                  {**limit, "failure_rate": 0.1, "false_alarm": 1e-3},
                  {**limit, "false_alarm": 1e-3}, {**limit, "paired_by": ["seed"]},
                  {**limit, "metric": 7}, {**limit, "metric": "derived."},
                  {**than, "than": {}}, {**than, "than": []}, {**than, "paired_by": []},
                  {**than, "paired_by": ["seeds"]}, {**than, "paired_by": ["params.T", "key.layer"]},
                  {**than, "paired_by": ["key.label"]}, {**than, "test": "sign"},
                  {**than, "test": "t"}, {**than, "false_alarm": 0.5}, {**than, "false_alarm": 2},
                  {**than, "median_ratio_at_most": 0}, {**than, "median_ratio_at_most": 0.5},
                  {**than, "failure_rate": 0.1}, {**baseline, "relative_tolerance": -1},
                  {**baseline, "absolute_tolerance": 0}, {**baseline, "absolute_tolerance": -1},
                  {**baseline, "baseline": 7}, {**baseline, "false_alarm": 0.1},
                  {**between, "at_least": 1}, {**between, "at_most": "3"},
                  {**between, "relative_tolerance": 1}, {**between, "limit": 1},
                  {**limit, "where": []}, {**limit, "where": {"algorithm": "uniform"}},
                  {**limit, "where": {"algorithm": ["uniform", "window"], "layer": [0, 1]}},
                  {**limit, "where": {"algorithm": 3}}, {**limit, "where": {"layer": "0"}},
                  {**limit, "where": {"layer": []}}, {**limit, "where": {"seed": None}},
                  {**limit, "where": {"seed": [None, 1]}}, {**limit, "where": {"layer": None}},
                  {**limit, "where": {"params.T": 1, "params": {"T": [1, 2]}}},
                  {**limit, "where": {"params": {"T": []}}}, {**limit, "where": {"params.T": []}},
                  {**limit, "where": {"key.layer": 0}}, {**limit, "where": {"key.label": "x"}},
                  {**limit, "where": {"rows": [1, 2]}}, {**limit, "where": {"head": 0}}]
        without_relative = copy.deepcopy(baseline)
        del without_relative["relative_tolerance"]
        without_pairs = copy.deepcopy(than)
        del without_pairs["paired_by"]
        bounds += [without_relative, without_pairs]
        bounds = [{"name": f"bound {place}", **bound} for place, bound in enumerate(bounds)]
        bounds += [limit, {**limit, "name": ""}, {**limit, "name": 3}, 7]
        self.run_sweep()
        path = self.folder / "bounds.json"
        document = {"schema_version": 1, "bounds": bounds}
        path.write_text(json.dumps(document))
        done = kvbench("check", "--results", self.folder / "out/results.json", "--bounds", path)
        self.assertEqual(done.returncode, BAD_INPUT)
        schema = validator("bounds")
        says = [faults(schema, {**document, "bounds": [bound]}) for bound in bounds]
        refused = self.assert_agreement(bounds, says,
                                        self.program_faults(len(bounds), done, "bounds"))
        self.assertGreater(refused, 35)
        self.assertLess(refused, len(bounds) - 15)
        for broken in ({}, [], {"schema_version": 2, "bounds": [limit]}, {"schema_version": 1},
                       {"schema_version": 1, "bounds": []},
                       {"schema_version": 1, "bounds": [{"name": "a", **limit}], "more": 1}):
            path.write_text(json.dumps(broken))
            done = kvbench("check", "--results", self.folder / "out/results.json", "--bounds", path)
            self.assertEqual(done.returncode, BAD_INPUT)
            self.assertTrue(faults(schema, broken), broken)


if __name__ == "__main__":
    unittest.main()
