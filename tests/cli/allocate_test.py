"""allocate: a storage per layer within bytes, against every combination; the sweep it prints; bad input. And what
storages by layer have in results and exports."""

import csv
import io
import itertools
import json
import unittest

from program import DONE, Folder, kvbench

EXACT = [{"algorithm": "exact"}]
STORAGES = ["float", {"keys": {"codec": "token", "bits": [2, 3, 4, 8]}, "values": "bf16"},
            {"keys": {"codec": "turboquant", "bits": 2}}, "q8_0"]  # blocks of 32 do not fit: skipped
METRIC = "relative_frobenius_error"


def text(storage):
    return json.dumps(storage, sort_keys=True)


def means(results):
    """By layer and storage: bytes of all KV heads, and the mean error."""
    found = {}
    for cell in results["cells"]:
        if cell["status"] != "ok":
            continue
        storage = text(cell["key"].get("storage", "float"))
        heads = found.setdefault(cell["key"]["layer"], {}).setdefault(storage, {})
        memory = cell["memory"]
        heads.setdefault(cell["key"]["kv_head"], []).append(
            (memory["peak_bytes"] + (memory.get("shared_bytes") or 0), cell["errors"][METRIC]))
    return {layer: {storage: (sum(sum(each[0] for each in cells) / len(cells) for cells in heads.values()),
                              sum(sum(each[1] for each in cells) / len(cells) for cells in heads.values()) / len(heads))
                    for storage, heads in storages.items()} for layer, storages in found.items()}


class Allocate(Folder):
    def setUp(self):
        super().setUp()
        self.before = self.run_sweep(algorithms=EXACT, storage=STORAGES)
        self.path = self.folder / "out/results.json"

    def allocated(self, size, *options):
        done = kvbench("allocate", self.path, "--bytes", size, *options)
        self.assertEqual(done.returncode, DONE, done.stderr)
        return json.loads(done.stdout), done.stderr

    def test_the_choice_is_the_best_of_all_combinations(self):
        choices = means(self.before)
        layers = sorted(choices)
        self.assertEqual((len(layers), {len(each) for each in choices.values()}), (2, {6}))
        every = [(sum(choices[layer][storage][0] for layer, storage in zip(layers, storages)),
                  sum(choices[layer][storage][1] for layer, storage in zip(layers, storages)), storages)
                 for storages in itertools.product(*(choices[layer] for layer in layers))]
        mixed = 0
        for size in sorted({int(size) for size, *_ in every}):
            _, loss, _ = min((each for each in every if each[0] <= size), key=lambda each: each[1])
            sweep, printed = self.allocated(size)
            chosen = {}
            for element in sweep["algorithms"][0]["storage"]["by_layer"]:
                chosen.update(dict.fromkeys(element["layers"], text(element["storage"])))
            self.assertEqual(sorted(chosen), layers)
            self.assertAlmostEqual(sum(choices[layer][chosen[layer]][1] for layer in layers), loss, places=12)
            self.assertLessEqual(sum(choices[layer][chosen[layer]][0] for layer in layers), size)
            self.assertIn("by layer", printed)
            mixed += len(set(chosen.values())) > 1
        self.assertGreater(mixed, 0)

    def test_the_sweep_runs_and_its_cells_have_the_measured_errors(self):
        choices = means(self.before)
        size = int(sum(each[text_of][0] for layer, each in choices.items()
                       for text_of in [sorted(each, key=lambda one: each[one][0])[1 + layer]]))
        sweep, _ = self.allocated(size)
        path = self.folder / "allocated.json"
        path.write_text(json.dumps(sweep))
        done = kvbench("run", "--config", path, "--out", self.folder / "mixed")
        self.assertEqual(done.returncode, DONE, done.stderr)
        after = self.results("mixed")
        (label,) = {cell["label"] for cell in after["cells"]}
        self.assertTrue(label.startswith("exact | layers "), label)
        chosen = {layer: element["storage"] for element in sweep["algorithms"][0]["storage"]["by_layer"]
                  for layer in element["layers"]}
        before = {(text(cell["key"].get("storage", "float")), cell["key"]["layer"], cell["key"]["kv_head"],
                   cell["key"]["seed"]): cell for cell in self.before["cells"]}
        for cell in after["cells"]:
            key = cell["key"]
            storage = text(chosen[key["layer"]])
            same = before.get((storage, key["layer"], key["kv_head"], key["seed"]),
                              before.get((storage, key["layer"], key["kv_head"], None)))
            self.assertEqual(cell["errors"][METRIC], same["errors"][METRIC])
            self.assertEqual(cell["memory"]["peak_bytes"], same["memory"]["peak_bytes"])
        entries = [each for each in after["summary"] if each["layer"] is None]
        self.assertEqual([each["storage"] for each in entries], [sweep["algorithms"][0]["storage"]])
        table = kvbench("export", "--results", self.folder / "mixed/results.json", "--format", "csv").stdout
        for row in csv.DictReader(io.StringIO(table)):
            storage = chosen[int(row["layer"])]
            expected = storage if isinstance(storage, str) else storage["keys"]["codec"]
            self.assertEqual(row["storage.keys.codec"], expected)

    def test_a_pair_and_calibration_files_come_back_as_the_sweep_had_them(self):
        params = {"qfilters": {"budget": 24}, "loki": {"budget": 9, "rank": 3}}
        for method, own in params.items():
            own["calibration"] = str(self.folder / f"{method}.cal.h5")
            done = kvbench("calibrate", "--method", method, "--dump", self.made / "tiny.h5", "--out", own["calibration"])
            self.assertEqual(done.returncode, DONE, done.stderr)
        first, second = ({"algorithm": method, "params": own} for method, own in params.items())
        before = self.run_sweep("--fresh", algorithms=[{**first, "then": second}], storage=STORAGES[:2])
        sweep, _ = self.allocated("1MB")
        path = self.folder / "allocated.json"
        path.write_text(json.dumps(sweep))
        done = kvbench("run", "--config", path, "--out", self.folder / "after")
        self.assertEqual(done.returncode, DONE, done.stderr)
        settings = ({text([cell["key"][name] for name in ("algorithm", "params")]) for cell in results["cells"]}
                    for results in (before, self.results("after")))
        self.assertEqual(*settings)

    def test_bad_input(self):
        self.assert_refused(kvbench("allocate", self.path, "--bytes", 7), "--bytes", "7", "give")
        self.assert_refused(kvbench("allocate", self.path, "--bytes", "1MB", "--metric", "errors.relative_l2.maen"),
                            "--metric", "did you mean")
        self.assert_refused(kvbench("allocate", self.path, "--bytes", "1MB", "--metric", "mass.kept.mean"),
                            "--metric", "name an error")
        self.assert_refused(kvbench("allocate", self.path, "--bytes", "1MB", "--label", "snapkv"),
                            "--label", "snapkv", "exact")
        two = self.sweep(algorithms=[*EXACT, {"algorithm": "window", "params": {"budget": [8, 16]}}], name="two")
        kvbench("run", "--config", two, "--out", self.folder / "two")
        path = self.folder / "two/results.json"
        self.assert_refused(kvbench("allocate", path, "--bytes", "1MB"), "--label", "exact, window")
        self.assert_refused(kvbench("allocate", path, "--bytes", "1MB", "--label", "window"), "2 settings")
        self.assertEqual(kvbench("allocate", path, "--bytes", "1MB", "--label", "exact").returncode, DONE)

    def test_streams_that_have_no_common_bytes_are_refused(self):
        lengths = self.sweep(algorithms=EXACT, storage=STORAGES, select={"tokens": [24, 32]}, name="lengths")
        kvbench("run", "--config", lengths, "--out", self.folder / "lengths")
        self.assert_refused(kvbench("allocate", self.folder / "lengths/results.json", "--bytes", "1MB"), "24 and of 32")
        unlike = json.loads(self.path.read_text())
        of_layer = [cell for cell in unlike["cells"] if cell["key"]["layer"] == 1]
        for cell in of_layer:
            cell["key"]["sequence"] = "other"
        path = self.folder / "unlike.json"
        path.write_text(json.dumps(unlike))
        self.assert_refused(kvbench("allocate", path, "--bytes", "1MB"), "layers 0 and 1 have other texts")

    def test_a_layer_is_not_passed_over_and_its_bytes_are_those_of_all_heads(self):
        """KV head 1 of layer 1 fails in every storage, or the whole layer is skipped."""
        for status, heads in (("failed", [1]), ("failed", [0, 1]), ("skipped", [0, 1])):
            made = json.loads(self.path.read_text())
            for cell in made["cells"]:
                if cell["key"]["layer"] == 1 and cell["key"]["kv_head"] in heads:
                    cell.update(status=status, reason="made", errors=None, memory=None)
            path = self.folder / "lacking.json"
            path.write_text(json.dumps(made))
            self.assert_refused(kvbench("allocate", path, "--bytes", "1MB"), "every KV head of layer 1;", "float")
            for cell in made["cells"]:  # the remedy: one more storage, which all have
                if "storage" not in cell["key"] and cell["key"]["layer"] == 1:
                    cell.update(next(each for each in self.before["cells"] if each["id"] == cell["id"]))
            path.write_text(json.dumps(made))
            chosen = json.loads(kvbench("allocate", path, "--bytes", "1MB").stdout)
            (of_1,) = [each["storage"] for each in chosen["algorithms"][0]["storage"]["by_layer"] if 1 in each["layers"]]
            self.assertEqual(of_1, "float")

    def test_the_sweep_has_the_heads_of_the_results(self):
        some = self.sweep(algorithms=[{**EXACT[0], "where": {"kv_heads": [1]}}], storage=["float", "bf16"], name="some")
        kvbench("run", "--config", some, "--out", self.folder / "some")
        size = sum(cell["memory"]["peak_bytes"] for cell in self.results("some")["cells"] if "storage" in cell["key"])
        done = kvbench("allocate", self.folder / "some/results.json", "--bytes", size)
        self.assertEqual(done.returncode, DONE, done.stderr)
        path = self.folder / "allocated.json"
        path.write_text(done.stdout)
        self.assertEqual(kvbench("run", "--config", path, "--out", self.folder / "mixed").returncode, DONE)
        held = sum(cell["memory"]["peak_bytes"] for cell in self.results("mixed")["cells"])
        self.assertEqual(held, size)


if __name__ == "__main__":
    unittest.main()
