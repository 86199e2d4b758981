"""Commands whose time must grow as the sweep does: processor time of a sweep and of one four times as
large. Linear is 4, quadratic 16; 8 leaves room for a machine that is busy."""

import json
import resource
import subprocess
import unittest

from program import DONE, PROGRAM, Folder

MAX_RATIO = 8.0


class Scale(Folder):
    def seconds(self, *arguments):
        """Processor time of a command, the least of three."""
        spent = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run([PROGRAM, *map(str, arguments)], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.assertEqual(done.returncode, DONE, done.stderr)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(spent)

    def assert_linear(self, small, large):
        a, b = self.seconds(*small), self.seconds(*large)
        said = f"{a:.2f} s, four times as much {b:.2f} s"
        print(f"{self.id().rsplit('.', 1)[-1]}: {said}")
        self.assertLess(b, MAX_RATIO * a, said)

    def entries(self, count):
        return self.sweep([{"algorithm": "window", "params": {"budget": i + 1}, "label": f"w{i}"}
                           for i in range(count)], file=f"{count}.json",
                          select={"layers": [0], "kv_heads": [0]})

    def results(self, count):
        """Results of `count` settings with one cell each, as a run writes them."""
        if not hasattr(self, "record"):
            config = self.sweep([{"algorithm": "window", "params": {"budget": 8}}], seeds=[0],
                                select={"layers": [0], "kv_heads": [0]})
            subprocess.run([PROGRAM, "run", "--config", config, "--out", self.folder / "out",
                            "--quiet"], check=True)
            self.record = json.loads((self.folder / "out/results.json").read_text())
        document = {**self.record, "summary": [], "cells": []}
        text = json.dumps(self.record["cells"][0])
        for i in range(count):
            cell = json.loads(text)
            cell["key"]["params"]["budget"] = i + 1
            document["cells"].append(cell)
        path = self.folder / f"results-{count}.json"
        path.write_text(json.dumps(document))
        return path

    def test_entries_of_a_sweep(self):
        self.assert_linear(["validate", "--config", self.entries(5000)],
                           ["validate", "--config", self.entries(20000)])

    def test_settings_that_are_compared(self):
        small, large = self.results(2000), self.results(8000)
        self.assert_linear(["compare", small, small], ["compare", large, large])


if __name__ == "__main__":
    unittest.main()
