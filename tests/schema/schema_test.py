"""The schemas that are built and installed are the printed ones; shipped files and fresh results keep
them."""

import copy
import json
import os
import unittest
from pathlib import Path

from jsonschema import Draft202012Validator

from program import BAD_INPUT, DONE, FAILED_CELLS, SOURCE, Folder, kvbench, strict_json
from schemas import NAMES, algorithms, choices, faults, printed, validator, without_comments

CONFIGS = SOURCE / "configs"
BUILT = Path(os.environ["KVBENCH_BUILD"]) / "schema"


def sizes_of_values(algorithm):
    """The parameter by which a method takes sizes of values themselves, not behind W_O."""
    of = next(each for each in algorithms() if each["id"] == algorithm)
    return {parameter["name"]: word for parameter in of["parameters"] for word in parameter.get("words") or ()
            if word == "value_l2"}


class Schemas(Folder):
    def assert_valid(self, name, document, what=""):
        found = faults(validator(name), document)
        self.assertEqual(found, [], what)

    def test_the_built_files_are_what_the_program_prints(self):
        for name in NAMES:
            self.assertEqual((BUILT / f"{name}.schema.json").read_text(), printed(name))
        self.assertEqual({path.name for path in BUILT.iterdir()},
                         {f"{name}.schema.json" for name in NAMES})

    def test_they_are_schemas(self):
        for name in NAMES:
            Draft202012Validator.check_schema(json.loads(printed(name)))

    def test_every_shipped_sweep_is_valid(self):
        paths = [*CONFIGS.glob("*.json"), *CONFIGS.glob("figures/*.json"), *CONFIGS.glob("papers/*.json")]
        self.assertGreater(len(paths), 2)
        for path in paths:
            self.assert_valid("sweep", json.loads(without_comments(path.read_text())), path)

    def test_every_shipped_bounds_file_is_valid(self):
        paths = list(CONFIGS.glob("bounds/*.json"))
        self.assertGreater(len(paths), 0)
        for path in paths:
            self.assert_valid("bounds", json.loads(without_comments(path.read_text())), path)

    def test_results_of_every_algorithm_are_valid(self):
        entries = [{"algorithm": algorithm["id"], "params": point,
                    "label": f"{algorithm['id']} {place}"}
                   for algorithm in algorithms()
                   for place, point in enumerate(choices(algorithm))]
        for entry in entries:
            if entry["algorithm"] == "lagkv" and "budget" not in entry["params"]:
                entry["params"] = {"semantics": "released"}
            # Norms of values behind W_O are in no dump that is made here.
            entry["params"] |= sizes_of_values(entry["algorithm"])
        self.synth("rope.h5", "--tokens", 64, "--d", 8, kind="rope")
        self.synth("repeated.h5", "--tokens", 64, "--d", 8, "--prompt-tokens", 32, "--repeat", 20,
                   kind="gaussian")
        # Alternatives may resolve to nothing that this dump could be replayed with: skipped then.
        sweep = self.sweep(entries, evaluate={"rows": {"every": 7}}, output={"rows": True},
                           dumps=[str(self.made / "tiny.h5"), str(self.made / "rope.h5"),
                                  str(self.made / "repeated.h5")])
        done = kvbench("run", "--config", sweep, "--out", self.folder / "out")
        self.assertIn(done.returncode, (DONE, FAILED_CELLS), done.stderr)
        results = self.results()
        self.assert_valid("results", results)
        self.assert_valid("sweep", results["config"])
        computed = {cell["key"]["algorithm"] for cell in results["cells"]
                    if cell["status"] == "ok"}
        known = {algorithm["id"] for algorithm in algorithms()}
        masks = self.sweep([entry for entry in entries if entry["algorithm"] in known - computed],
                           evaluate={"rows": {"prompt": {"every": 7}}}, file="masks.json")
        done = kvbench("run", "--config", masks, "--out", self.folder / "masks")
        self.assertEqual(done.returncode, DONE, done.stderr)
        results = self.results("masks")
        self.assert_valid("results", results)
        self.assertEqual({cell["key"]["algorithm"] for cell in results["cells"] if cell["status"] == "ok"},
                         known - computed)

    def test_results_of_pairs_are_valid_and_other_parameters_are_not(self):
        readers = [algorithm for algorithm in algorithms() if algorithm["reads"]]
        self.assertGreater(len(readers), 8)
        entries = [{"algorithm": "snapkv", "params": {"budget": 24, "window": 8},
                    "then": {"algorithm": reader["id"], "params": choices(reader)[0]}} for reader in readers]
        results = self.run_sweep(algorithms=entries, evaluate={"rows": {"every": 7}})
        self.assert_valid("results", results)
        self.assert_valid("sweep", results["config"])
        self.assertEqual({cell["key"]["algorithm"] for cell in results["cells"]},
                         {f"snapkv+{reader['id']}" for reader in readers})
        for change in ({"algorithm": "quest+snapkv"}, {"algorithm": "snapkv+h2o"}, {"params": {"budget": 24}},
                       {"params": {**results["cells"][0]["key"]["params"], "then.budget": "x"}},
                       {"params": {**results["cells"][0]["key"]["params"], "kernel": "x"}}):
            other = copy.deepcopy(results)
            other["cells"][0]["key"].update(change)
            with self.assertRaises(AssertionError):
                self.assert_valid("results", other)

    def test_results_with_skipped_and_failed_cells_are_valid(self):
        self.synth("huge.h5", "--tokens", 64, "--d", 8, kind="adversarial")
        results = self.run_sweep(
            algorithms=[{"algorithm": "window", "params": {"budget": [0.0001, 8]}}],
            dumps=[str(self.made / "tiny.h5"), str(self.made / "huge.h5")],
            evaluate={"rows": {"last": 4}}, select={"layers": [0]}, seeds={"first": 3, "count": 2})
        self.assertEqual({cell["status"] for cell in results["cells"]}, {"ok", "skipped"})
        self.assert_valid("results", results)
        failed = copy.deepcopy(results)
        failed["cells"][-1].update(status="failed", reason="why", errors=None, trivial=None,
                                   mass=None, clusters=None, memory=None, traffic=None,
                                   counters=None)
        self.assert_valid("results", failed)

    def test_storages_by_layer_are_valid_and_wrong_ones_are_not(self):
        def sweep(*elements):
            return json.loads(self.sweep(storage=[{"by_layer": list(elements)}]).read_text())
        named = {"layers": [0], "storage": {"keys": {"codec": "token", "centre": "mean", "rope": "before"}}}
        self.assert_valid("sweep", sweep(named, {"storage": "float"}))
        for wrong in ({"layers": [0]}, {**named, "keys": "q8_0"}, {"layers": "0-1", "storage": "q8_0"},
                      {"storage": {"by_layer": [named]}}):
            with self.assertRaises(AssertionError):
                self.assert_valid("sweep", sweep(wrong))
        results = self.run_sweep(storage=[{"by_layer": [{"layers": [1], "storage": "bf16"}, {"storage": "float"}]}])
        self.assert_valid("results", results)

    def test_the_results_of_a_run_that_was_stopped_are_valid(self):
        self.run_sweep()
        results = self.results()
        results["status"] = "incomplete"
        del results["cells"][0]
        self.assert_valid("results", results)

    def test_what_is_no_results_file_is_found_out(self):
        results = self.run_sweep()
        check = validator("results")
        self.assertEqual(faults(check, results), [])
        cell = results["cells"][0]
        self.assertEqual(cell["status"], "ok")

        def breaks(change):
            document = copy.deepcopy(results)
            change(document, document["cells"][0])
            return faults(check, document)

        # Cells of an earlier build have no `trivial` and no `traffic`.
        for name in (*results, *(f"cells.{name}" for name in cell.keys() - {"trivial", "traffic"}),
                     *(f"key.{name}" for name in cell["key"])):
            part, _, last = name.rpartition(".")
            self.assertTrue(breaks(lambda document, first, part=part, last=last: (
                document if not part else first if part == "cells" else first["key"]).pop(last)),
                name)
        for name, change in {
                "unknown key": lambda document, first: document.update(more=1),
                "unknown key of a cell": lambda document, first: first.update(more=1),
                "unknown error": lambda document, first: first["errors"].update(more=1.0),
                "a number as text": lambda document, first: first["memory"].update(bytes="8"),
                "a key without its parameter": lambda document, first: document["cells"][1]["key"]
                ["params"].pop("budget"),
                "an unknown algorithm": lambda document, first: first["key"].update(
                    algorithm="exactly"),
                "ok with a reason": lambda document, first: first.update(reason="none"),
                "ok without errors": lambda document, first: first.update(errors=None),
                "failed with errors": lambda document, first: first.update(
                    status="failed", reason="why"),
                "failed without a reason": lambda document, first: first.update(
                    status="failed", errors=None, mass=None, clusters=None, memory=None,
                    counters=None),
                "another version": lambda document, first: document.update(
                    schema_version="9.0.0")}.items():
            self.assertTrue(breaks(change), name)

    def test_help_teaches_and_other_words_are_refused(self):
        text = kvbench("schema", "--help").stdout
        self.assertIn("kvbench schema ", text[text.index("Examples:"):])
        self.assert_refused(kvbench("schema", "sweeps"), "sweeps")
        self.assertEqual(kvbench("schema").returncode, BAD_INPUT)

    def test_a_schema_is_strict_json(self):
        for name in NAMES:
            strict_json(printed(name))


if __name__ == "__main__":
    unittest.main()
