"""Sweeps of the papers' tables and figures: each is valid, each of its entries has something to run
on the shipped dump, each runs on a dump of one's own, and its README tells of it."""

import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path

from sweeps import CONFIGS, entries_with_nothing_to_run, kvbench, plan

FIGURES = CONFIGS / "figures"
SWEEPS = sorted(FIGURES.glob("*.json"))
# Every one of these has at least one sweep.
PAPERS = ("subgen", "clustergen", "balancekv", "keyformer")

# Options that shorten sweeps over numbers of tokens, for a dump that has fewer than the shipped
# one.
SHORTER = dict.fromkeys(("scaling", "bytes_per_token"), ("--set", "/select/tokens=[256, 512]"))


class Figures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = Path(tempfile.mkdtemp(prefix="kvbench-configs-"))
        cls.addClassCleanup(shutil.rmtree, cls.made)
        cls.own = cls.made / "own.h5"
        done = kvbench("synth", "rope", "--out", cls.own, "--tokens", 640, "--d", 8,
                       "--kv-heads", 1)
        assert done.returncode == 0, done.stderr

    def test_every_paper_has_sweeps(self):
        for paper in PAPERS:
            self.assertTrue([path for path in SWEEPS if path.stem.startswith(paper)], paper)

    def test_every_sweep_is_valid_and_named_as_its_file(self):
        for path in SWEEPS:
            with self.subTest(path.name):
                checked = kvbench("validate", "--config", path)
                self.assertEqual(checked.returncode, 0, checked.stderr)
                self.assertEqual(plan(path)["name"], path.stem)

    def test_every_entry_has_something_to_run(self):
        for path in SWEEPS:
            with self.subTest(path.name):
                self.assertEqual(entries_with_nothing_to_run(path), [])

    def test_an_entry_that_only_skips_is_found(self):
        path = self.made / "planted.json"
        path.write_text(json.dumps({
            "schema_version": 1, "name": "planted", "dumps": [str(self.own)],
            "algorithms": [{"algorithm": "window", "params": {"budget": 16}},
                           {"algorithm": "streaming_llm", "params": {"budget": 4, "sinks": 8}}]}))
        self.assertEqual(entries_with_nothing_to_run(path), [1])

    def test_every_sweep_runs_on_a_dump_of_ones_own(self):
        for path in SWEEPS:
            with self.subTest(path.name):
                out = self.made / path.stem
                done = kvbench("run", "--config", path, "--out", out, "--quiet",
                               "--set", f'/dumps=["{self.own}"]', "--set", "/seeds=[1]",
                               *SHORTER.get(path.stem, ()))
                self.assertEqual(done.returncode, 0, done.stderr)
                results = json.loads((out / "results.json").read_text())
                self.assertEqual(results["plan"]["failed"], 0)
                self.assertGreater(results["plan"]["ok"], 0)
                self.assertEqual(
                    {cell["key"]["dump"] for cell in results["cells"]},
                    {results["dumps"][0]["fingerprint"]})
                self.assertEqual(Path(results["dumps"][0]["path"]).name, "own.h5")

    def test_every_sweep_says_what_it_gives(self):
        for path in SWEEPS:
            with self.subTest(path.name):
                head = path.read_text().split("{")[0]
                self.assertIn("A replay gives:", head)
                self.assertTrue("Not reproduced:" in head or "gives: everything" in head)
                self.assertIn('"../../data/smollm2-constitution.h5"', path.read_text())

    def test_the_table_has_a_row_for_every_sweep(self):
        rows = re.findall(r"^\| `(\w+\.json)` \|(.*)\|$", (FIGURES / "README.md").read_text(),
                          re.MULTILINE)
        self.assertEqual(sorted(name for name, _ in rows), [path.name for path in SWEEPS])
        for name, row in rows:
            self.assertRegex(row.split("|")[-1], r"\d+ s", name)


if __name__ == "__main__":
    unittest.main()
