"""configs/papers and configs/field.json: sweeps of published settings, and of the methods at equal bytes.
Each plans and runs on the shipped dump without a skipped cell."""

import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path

from known_methods import KNOWN, THINGS, having, in_sweeps, missing, without
from sweeps import CONFIGS, kvbench, plan

PAPERS = CONFIGS / "papers"
FIELD = CONFIGS / "field.json"
SWEEPS = sorted(PAPERS.glob("*.json"))


def small(path):
    """One unit and two rows of a sweep, the layer that quest's and magicpig's releases do not spare."""
    rows = plan(path)["config"]["evaluate"]["rows"]
    two = {"prompt": {"last": 2}} if "prompt" in rows else {"last": 2}
    return ("/select/kv_heads=[1]", "/select/layers=[15]", f"/evaluate={json.dumps({'rows': two})}", "/seeds=[1]")


def known(what):
    """Ids that `kvbench list` prints."""
    done = kvbench("list", what, "--json")
    assert done.returncode == 0, done.stderr
    return {entry["id"] for entry in json.loads(done.stdout)}


class Papers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = Path(tempfile.mkdtemp(prefix="kvbench-papers-"))
        cls.addClassCleanup(shutil.rmtree, cls.made)

    def test_every_sweep_is_named_as_its_file_and_skips_nothing(self):
        for path in (*SWEEPS, FIELD):
            with self.subTest(path.name):
                planned = plan(path)
                self.assertEqual((planned["name"], planned["skips"]), (path.stem, []))

    def test_a_reason_for_having_no_sweep_is_given_where_there_is_none(self):
        have, figures = having(), in_sweeps(*(CONFIGS / "figures").glob("*.json"))
        for thing, reasons in ((thing, without(thing)) for thing in THINGS):
            self.assertEqual(have[thing] & set(reasons), set(), thing)
        self.assertEqual({name for name, why in without("paper").items() if why == "configs/figures"} - figures, set())

    def test_what_is_known_is_known_of_methods_of_the_program(self):
        self.assertEqual(set(KNOWN) - known("algorithms"), set())
        self.assertEqual({member for each in KNOWN.values() for member in each},
                         {"look", "arxiv", "compared", "settings", "without"})

    def test_what_a_new_method_lacks_is_told_and_no_failure(self):
        self.assertEqual([line.split(":")[0] for line in missing(["sparse_history"])],
                         ["sparse_history"] * len(THINGS))
        self.assertEqual(missing(["snapkv", "given", "kvzip"]), [])

    def test_every_sweep_runs_on_the_shipped_dump(self):
        for path in (*SWEEPS, FIELD):
            with self.subTest(path.name):
                out = self.made / path.stem
                done = kvbench("run", "--config", path, "--out", out, "--quiet",
                               *(word for setting in small(path) for word in ("--set", setting)))
                self.assertEqual(done.returncode, 0, done.stderr)
                results = json.loads((out / "results.json").read_text())
                self.assertEqual((results["plan"]["failed"], results["plan"]["skipped"]), (0, 0))
                for cell in results["cells"]:
                    self.assertGreaterEqual(cell["errors"]["relative_l2"]["mean"], 0.0)

    def test_every_sweep_says_its_source_and_what_it_gives(self):
        for path in SWEEPS:
            with self.subTest(path.name):
                head = path.read_text().split("{")[0]
                self.assertIn("Source:", head)
                self.assertIn("A replay gives:", head)

    def test_the_table_has_a_row_for_every_sweep(self):
        rows = re.findall(r"^\| `(\w+\.json)` \|", (PAPERS / "README.md").read_text(),
                          re.MULTILINE)
        self.assertEqual(sorted(rows), [path.name for path in SWEEPS])


class Codecs(unittest.TestCase):
    def test_methods_that_store_fewer_bits_have_a_paper(self):
        text = "".join(path.read_text() for path in SWEEPS)
        swept = {codec for codec in known("storage") if f'"{codec}"' in text}
        self.assertLessEqual({"kivi", "turboquant", "qjl", "polarquant", "think", "q4_0"}, swept)


if __name__ == "__main__":
    unittest.main()
