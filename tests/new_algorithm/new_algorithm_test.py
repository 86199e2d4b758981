"""An algorithm costs its file, its line in the registry and its test; all else is globbed, picked up
or generated. Shown on a copy of the tree to which exactly these three are added."""

import json
import os
import re
import shutil
import unittest
from pathlib import Path

from planted_tree import PlantedTree, run

HERE = Path(__file__).parent
SOURCE, BUILD, TREE = (Path(os.environ[f"KVBENCH_{name}"]) for name in ("SOURCE", "BUILD", "TREE"))
CMAKE = os.environ["KVBENCH_CMAKE"]
ID = "sparse_history"
GENERATED = {"lib/algorithms/ALGORITHMS.md"}


class NewAlgorithm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = PlantedTree(SOURCE, TREE)
        shutil.copy(HERE / f"{ID}.cpp", TREE / "lib/algorithms/methods")
        shutil.copy(HERE / f"{ID}_test.cpp", TREE / "tests/algorithms")
        cls.tree.insert("lib/algorithms/registry.cpp", r"(?m)^  ALGORITHM\(window\).*\n",
                        f"  ALGORITHM({ID}) \\\n")
        run(CMAKE, "--build", BUILD, "--target", "kvbench-with-new", "test-conformance-with-new",
            "test-new-algorithm")
        cls.program = BUILD / "bin/kvbench-with-new"

    def test_cmake_finds_the_files(self):
        # Sources are found when CMake configures, before anything is compiled.
        run(CMAKE, "-S", TREE, "-B", TREE / "build", "-G", "Ninja", "-DKVBENCH_CUDA=OFF",
            "-DKVBENCH_BENCHMARKS=OFF", "-DCMAKE_BUILD_TYPE=Release")
        commands = json.loads((TREE / "build/compile_commands.json").read_text())
        compiled = {Path(each["file"]).relative_to(TREE).as_posix() for each in commands}
        for each in (TREE / "build").rglob("together/*.cpp"):  # several files compiled as one
            compiled |= {f"tests/{name}" for name in re.findall(r'#include "(.*)"', each.read_text())}
        self.assertLessEqual({f"lib/algorithms/methods/{ID}.cpp", f"tests/algorithms/{ID}_test.cpp"},
                             compiled)

    def test_its_own_test_passes(self):
        self.assertIn("1 passed", run(BUILD / "bin/test-new-algorithm"))

    def test_conformance_tries_it_and_can_fail(self):
        # Not every case: that which says that it was tried, and one that a planted bug must fail.
        cases = "--test-case=every registered*,budgets*"
        conformance = BUILD / "bin/test-conformance-with-new"
        self.assertRegex(run(conformance, cases), r"test cases: +2 \| +2 passed")
        failed = run(conformance, cases, expected=1, env={**os.environ, "KVBENCH_PLANTED": ID})
        self.assertIn(f"{ID} ", failed)

    def test_what_the_program_says_of_it_follows(self):
        listed = json.loads(run(self.program, "list", "algorithms", "--json"))
        entry = {each["id"]: each for each in listed}[ID]
        self.assertEqual({each["name"]: each["default"] for each in entry["parameters"]},
                         {"step": 4, "recent": 3, "start": "first"})
        self.assertIn(f'"{ID}"', run(self.program, "schema", "sweep"))

    def test_the_generated_files_are_generated_and_nothing_else_changes(self):
        def out_of_date():
            printed = {"lib/algorithms/ALGORITHMS.md": run(self.program, "list", "algorithms", "--markdown")}
            return {name for name, text in printed.items() if text not in (TREE / name).read_text()}
        self.assertEqual(out_of_date(), GENERATED)
        run(TREE / "tests/generate.sh", self.program)
        self.assertEqual(out_of_date(), set())
        self.assertEqual(self.tree.changed(),
                         {*GENERATED, "lib/algorithms/registry.cpp",
                          f"lib/algorithms/methods/{ID}.cpp", f"tests/algorithms/{ID}_test.cpp"})


if __name__ == "__main__":
    unittest.main()
