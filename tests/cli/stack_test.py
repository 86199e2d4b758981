"""Commands with little stack: they work, or say what they need."""

import resource
import unittest

from program import DONE, Folder, deterministic, kvbench

MIN_STACK = 128  # KiB

METHODS = [{"algorithm": name, "params": {"budget": 24}}
           for name in ("window", "h2o", "snapkv", "compactor", "curdkv", "capkv", "attention_matching",
                        "kcenter", "expected_attention", "d2o")]
METHODS += [{"algorithm": "loki", "params": {"budget": 24, "rank": 4}},
            {"algorithm": "subgen", "params": {"delta_quantile": 0.1, "t": 4, "s": 8}}]


def limited(kibibytes):
    def limit():
        most = resource.getrlimit(resource.RLIMIT_STACK)[1]
        resource.setrlimit(resource.RLIMIT_STACK, (kibibytes << 10, most))
    return limit


class Stack(Folder):
    def test_the_least_stack_is_enough(self):
        dump = self.synth("wide.h5", "--tokens", 512, "--d", 128, "--group", 4)
        config = self.sweep(METHODS, dumps=[str(dump)], storage=["float", "q8_0"])
        expected = deterministic(self.run_sweep(
            algorithms=METHODS, dumps=[str(dump)], storage=["float", "q8_0"]))
        for command in (["run", "--config", config, "--out", self.folder / "few", "--threads", 2],
                        ["plan", "--config", config], ["inspect", dump], ["validate", dump],
                        ["verify", self.folder / "few/results.json"], ["list", "algorithms"]):
            with self.subTest(command[0]):
                done = kvbench(*command, preexec_fn=limited(MIN_STACK))
                self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(deterministic(self.results("few")), expected)

    def test_less_is_refused_with_a_remedy(self):
        for kibibytes in (MIN_STACK - 8, 64):
            done = kvbench("list", "algorithms", preexec_fn=limited(kibibytes))
            self.assert_refused(done, f"limited to {kibibytes} KiB", "ulimit -s 8192")
        self.assertEqual(kvbench("list", "algorithms", preexec_fn=limited(8192)).returncode, DONE)


if __name__ == "__main__":
    unittest.main()
