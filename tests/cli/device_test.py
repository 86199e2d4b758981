"""--device: what is refused, what falls back, and what results say of it. No device is needed: those
there are hidden from the program."""

import os
import unittest

from program import BAD_INPUT, DONE, Folder, deterministic, kvbench, strict_json

HIDDEN = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}


class Device(Folder):
    def run_on(self, *options):
        sweep = self.sweep()
        out = self.folder / "-".join(("out", *options)).strip("-")
        done = kvbench("run", "--config", sweep, "--out", out, "--quiet", *options, env=HIDDEN)
        return done, out

    def results_on(self, *options):
        done, out = self.run_on(*options)
        self.assertEqual(done.returncode, DONE, done.stderr)
        return strict_json((out / "results.json").read_text())

    def test_cuda_without_a_device_runs_nothing_and_says_why(self):
        done, out = self.run_on("--device", "cuda")
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertRegex(done.stderr, r"^kvbench run: --device: cuda cannot be used: .+; use --device cpu or auto\n$")
        self.assertFalse(out.exists())

    def test_auto_falls_back_to_the_cpu_and_says_why(self):
        results = self.results_on("--device", "auto")
        self.assertEqual({cell["key"]["device"] for cell in results["cells"]}, {"cpu"})
        provenance = results["provenance"][0]
        self.assertEqual(provenance["device"]["asked"], "auto")
        self.assertEqual(provenance["device"]["used"], "cpu")
        self.assertTrue(provenance["device"]["reason"])
        self.assertIsNone(provenance["gpu"])
        self.assertIsNone(provenance["cuda"])

    def test_cpu_was_asked_for_and_needs_no_reason(self):
        results = self.results_on("--device", "cpu")
        self.assertEqual(results["provenance"][0]["device"], {"asked": "cpu", "used": "cpu"})
        self.assertEqual(deterministic(results), deterministic(self.results_on()))

    def test_plan_has_the_cells_of_a_run_on_the_same_device(self):
        sweep = self.sweep()
        for options in ((), ("--device", "cpu")):
            done = kvbench("plan", "--config", sweep, "--json", *options, env=HIDDEN)
            self.assertEqual(done.returncode, DONE, done.stderr)
            plan = strict_json(done.stdout)
            self.assertEqual(plan["device"], "cpu")
            self.assertEqual([cell["id"] for cell in plan["cell_list"]],
                             [cell["id"] for cell in self.results_on(*options)["cells"]])
        done = kvbench("plan", "--config", sweep, "--device", "cuda", env=HIDDEN)
        self.assert_refused(done, "--device: cuda cannot be used: ", "use --device cpu or auto")


if __name__ == "__main__":
    unittest.main()
