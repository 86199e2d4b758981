"""Dumps whose tensors are virtual datasets of files next to them: --allow-virtual."""

import json
import shlex
import shutil
import unittest

from program import BAD_INPUT, DONE, THREE, Folder, deterministic, kvbench, strict_json


class VirtualDump(Folder):
    def setUp(self):
        """plain.h5, and mapped.h5 whose keys and values are those of two files."""
        super().setUp()
        try:
            import h5py
        except ImportError:
            self.skipTest("no python3-h5py")
        self.plain = shutil.copy(self.made / "tiny.h5", self.folder / "plain.h5")
        self.mapped = shutil.copy(self.plain, self.folder / "mapped.h5")
        with h5py.File(self.mapped, "r+") as dump:
            parts = [h5py.File(self.folder / f"part-{rank}.h5", "w") for rank in (0, 1)]
            for name, layer in dump["sequences/0/layers"].items():
                for tensor in "kv":
                    elements = layer[tensor][...]
                    layout = h5py.VirtualLayout(elements.shape, elements.dtype)
                    for head, part in enumerate(parts):
                        there = f"{name}/{tensor}"
                        part.create_dataset(there, data=elements[head:head + 1], compression="gzip")
                        layout[head:head + 1] = h5py.VirtualSource(
                            f"part-{head}.h5", there, (1, *elements.shape[1:]))
                    del layer[tensor]
                    layer.create_virtual_dataset(tensor, layout)
            for part in parts:
                part.close()

    def results_of(self, dump, *options):
        sweep = self.sweep(dumps=[str(dump)], algorithms=THREE)
        done = kvbench("run", "--config", sweep, "--out", self.folder / dump.stem, "--quiet", *options)
        self.assertEqual((done.returncode, done.stderr), (DONE, ""))
        return strict_json((self.folder / dump.stem / "results.json").read_text())

    def test_values_and_fingerprint_are_those_of_a_plain_copy(self):
        plain = self.results_of(self.plain)
        mapped = self.results_of(self.mapped, "--allow-virtual")
        self.assertEqual(plain["dumps"][0]["fingerprint"], mapped["dumps"][0]["fingerprint"])
        self.assertEqual(json.loads(deterministic(plain))["cells"],
                         json.loads(deterministic(mapped))["cells"])
        shown = [kvbench("inspect", dump, "--json", "--quiet", *options).stdout
                 for dump, options in ((self.plain, ()), (self.mapped, ["--allow-virtual"]))]
        self.assertEqual(shown[0].replace("plain.h5", "mapped.h5"), shown[1])

    def test_every_command_that_reads_dumps_refuses_without_the_option(self):
        sweep = self.sweep(dumps=[str(self.mapped)])
        for command in (["inspect", self.mapped, "--quiet"], ["validate", self.mapped],
                        ["validate", "--config", sweep], ["plan", "--config", sweep],
                        ["run", "--config", sweep, "--out", self.folder / "out", "--quiet"]):
            refused = kvbench(*command)
            self.assertEqual(refused.returncode, BAD_INPUT, refused.stderr)
            self.assertIn("--allow-virtual", refused.stderr)
            allowed = kvbench(*command, "--allow-virtual")
            self.assertNotIn("virtual", allowed.stderr)
            self.assertEqual(allowed.returncode, DONE, allowed.stderr)

    def test_repro_has_the_option(self):
        cell = self.results_of(self.mapped, "--allow-virtual")["cells"][0]
        words = shlex.split(cell["repro"])
        self.assertIn("--allow-virtual", words)
        done = kvbench(*words[1:], "--quiet", cwd=self.folder)
        self.assertEqual(done.returncode, DONE, done.stderr)

    def test_a_source_that_changed_makes_another_dump_of_it(self):
        import h5py
        before = self.results_of(self.mapped, "--allow-virtual")["dumps"][0]["fingerprint"]
        with h5py.File(self.folder / "part-1.h5", "r+") as part:
            part["0/k"][0, 5, 2] = 0.5
        sweep = self.sweep(dumps=[str(self.mapped)], algorithms=THREE)
        resumed = kvbench("run", "--config", sweep, "--out", self.folder / "mapped", "--quiet",
                          "--allow-virtual")
        self.assertEqual(resumed.returncode, BAD_INPUT, resumed.stderr)
        self.assertIn(before, resumed.stderr)

    def test_a_source_that_is_missing_is_an_error(self):
        (self.folder / "part-1.h5").unlink()
        refused = kvbench("inspect", self.mapped, "--quiet", "--allow-virtual")
        self.assertEqual(refused.returncode, BAD_INPUT)
        self.assertIn("part-1.h5", refused.stderr)


if __name__ == "__main__":
    unittest.main()
