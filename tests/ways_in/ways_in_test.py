"""The cost of a method, a codec, a metric, a figure and a command: the files and lines that their pages count. Shown on
a copy of the tree to which exactly these are added: nothing else of it changes, and the tests of the tiers quick and
full that could notice pass on it as they are."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from dataclasses import dataclass, field
from pathlib import Path

import jsonschema
from known_methods import THINGS
from planted_tree import PlantedTree, run

HERE = Path(__file__).parent
SOURCE, BUILD, TREE = (Path(os.environ[f"KVBENCH_{name}"]) for name in ("SOURCE", "BUILD", "TREE"))
CMAKE = os.environ["KVBENCH_CMAKE"]
BIN = TREE / "build/bin"
PROGRAM = BIN / "kvbench"
CONFORMANCE = BIN / "test-conformance"
MEAN = "errors.relative_linf.mean"
MESSAGES = "tests/cli/bad_inputs/messages.txt"
# Tests that compile the copy again, commands of pages, which install what the copy does not build, and laws over seeds
# of the methods that have one, of which no new one is part.
LEFT_OUT = ("install", "headers_alone", "pages", "statistical")


@dataclass
class Way:
    """Files (name here: folder) and lines (file, what they follow, text) of one `name`, as the page's heading counts
    them; `generated` are the pages that tests/generate.sh changes then."""

    name: str
    page: str
    heading: str
    files: dict
    lines: list = field(default_factory=list)
    generated: set = field(default_factory=set)

    def by_hand(self):
        return {f"{folder}/{name}" for name, folder in self.files.items()} | {line[0] for line in self.lines}

    def counted(self):
        """The places of the page's numbered list."""
        text = (SOURCE / self.page).read_text(encoding="utf-8").split(self.heading)[1]
        listed = re.match(r".*?\n\n((?:\d+\. .*\n(?:   .*\n)*)+)", text, re.DOTALL)[1]
        return {place.replace("<id>", self.name) for place in re.findall(r"^\d+\. `([^`]+)`", listed, re.MULTILINE)}


METHOD = Way(
    "sparse_history", "lib/algorithms/README.md", "## Adding an algorithm",
    {"sparse_history.cpp": "lib/algorithms/methods", "sparse_history_test.cpp": "tests/algorithms"},
    [("lib/algorithms/registry.cpp", r"(?m)^  ALGORITHM\(window\).*\n", "  ALGORITHM(sparse_history) \\\n")],
    {"lib/algorithms/ALGORITHMS.md"})
CODEC = Way(
    "single", "lib/storage/README.md", "## Adding a codec",
    {"single.cpp": "lib/storage", "single_test.cpp": "tests/storage"},
    [("lib/storage/codec_registry.cpp", r"(?m)^  CODEC\(fp16\).*\n", "  CODEC(single) \\\n")],
    {"lib/storage/README.md"})
METRIC = Way(  # in the middle of the table: nothing may depend on the place of a metric
    "relative_linf", "lib/metrics/README.md", "## Adding a metric",
    {"relative_linf_test.cpp": "tests/metrics"},
    [("lib/metrics/metric_table.cpp", r'(?m)^       \.column = "relative_l2"\},\n',
      (HERE / "metric_table_row.txt").read_text())],
    {"configs/RESULTS.md", MESSAGES})
FIGURE = Way(
    "kept_mass", "plots/README.md", "**A new figure**",
    {"kept_mass.py": "plots/kvplot/figures"},
    [("plots/kvplot/figures/__init__.py", r'(?m)^    "budget",\n', '    "kept_mass",\n'),
     ("plots/kvplot/papers.py", r'(?m)^    \("budget", .*\n', '    ("kept_mass", "kept_mass", "keyformer_fig7", {}),\n')])
COMMAND = Way(
    "sequences", "apps/README.md", "## Adding a command",
    {"sequences.cpp": "apps/kvbench/commands", "sequences_test.py": "tests/cli"},
    [("apps/kvbench/commands.hpp", r"(?m)^  COMMAND\(inspect\).*\n", "  COMMAND(sequences) \\\n")],
    {MESSAGES})
WAYS = (METHOD, CODEC, METRIC, FIGURE, COMMAND)


def ctest(*words):
    return [Path(CMAKE).with_name("ctest"), "--test-dir", TREE / "build", "--label-regex", "^(quick|full)$", *words]


def unable():
    """Names of tests whose program is not linked with anything that was added: the copy has none, and ctest then
    lists the test without a command."""
    return [test["name"] for test in json.loads(run(*ctest("--show-only=json-v1")))["tests"] if "command" not in test]


class WaysIn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = PlantedTree(SOURCE, TREE)
        for way in WAYS:
            for name, folder in way.files.items():
                shutil.copy(HERE / name, TREE / folder)
            for line in way.lines:
                cls.tree.insert(*line)
        run(CMAKE, "-S", TREE, "-B", TREE / "build", "-G", "Ninja", "-DKVBENCH_CUDA=OFF", "-DKVBENCH_BENCHMARKS=OFF",
            "-DKVBENCH_PYTHON_MODULE=OFF", "-DCMAKE_BUILD_TYPE=Release")
        run(CMAKE, "--build", BUILD, "--target", *os.environ["KVBENCH_TARGETS"].split())
        for name in ("sweep", "bounds", "results"):  # the copy's build is not built, so its program writes none
            (TREE / f"build/schema/{name}.schema.json").write_text(run(PROGRAM, "schema", name))
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.made = Path(made.name)
        cls.before = cls.tree.changed()
        run(TREE / "tests/generate.sh", PROGRAM, env={**os.environ, "KVBENCH_SKIP_DEPS": "1"})
        cls.after = cls.tree.changed()

    def test_what_is_added_by_hand_and_generated_is_all_that_changes(self):
        self.assertEqual(self.before, set().union(*(way.by_hand() for way in WAYS)))
        self.assertEqual(self.after - self.before, set().union(*(way.generated for way in WAYS)))

    def test_pages_count_just_these_files(self):
        for way in WAYS:
            with self.subTest(way.page):
                self.assertEqual(way.counted(), way.by_hand())

    def test_cmake_finds_the_files(self):
        commands = json.loads((TREE / "build/compile_commands.json").read_text())
        compiled = {Path(each["file"]).resolve().relative_to(TREE.resolve()).as_posix() for each in commands}
        for each in (TREE / "build").rglob("together/*.cpp"):  # several files compiled as one
            names = re.findall(r'#include "(.*)"', each.read_text())
            compiled |= {f"{folder}/{name}" for folder in ("tests", "lib", "apps/kvbench") for name in names}
        added = {name for way in WAYS for name in way.by_hand() if name.endswith(".cpp")}
        self.assertEqual(added - compiled, set())

    def test_the_tiers_pass(self):
        left_out = "|".join((*LEFT_OUT, *unable()))
        # The installed Python package is not that of the copy.
        words = ctest("--parallel", os.cpu_count(), "--output-on-failure", "--exclude-regex", f"^({left_out})$",
                      "--label-exclude", "^python$")
        done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False,
                              env={**os.environ, "KVBENCH_SOURCE": str(TREE)})
        self.assertEqual(done.returncode, 0, done.stdout)
        ran = set(re.findall(r"Test +#\d+: (\S+) \.+ +Passed", done.stdout))
        self.assertLessEqual({"algorithms", "storage", "metrics", "conformance", "papers", "readme", "schema_agreement",
                              "bench_check", "cli_bad_input", "cli_sequences", "plots-legends"}, ran, done.stdout)

    def test_examples_of_help_run_and_pages_name_commands_that_exist(self):
        run(sys.executable, "-m", "unittest", "discover", "-s", TREE / "tests/pages", "-p", "pages_test.py",
            "-k", "help", "-k", "sentences", env={**os.environ, "KVBENCH_SOURCE": str(TREE),
                                                  "KVBENCH_BUILD": str(TREE / "build")})

    def test_conformance_tries_the_method_and_can_fail(self):
        cases = "--test-case=every registered*,budgets*"
        self.assertRegex(run(CONFORMANCE, cases), r"test cases: +2 \| +2 passed")
        failed = run(CONFORMANCE, cases, expected=1, env={**os.environ, "KVBENCH_PLANTED": METHOD.name})
        self.assertIn(f"{METHOD.name} ", failed)

    def test_what_the_program_lists_follows(self):
        listed = {each["id"]: each for each in json.loads(run(PROGRAM, "list", "algorithms", "--json"))}
        self.assertEqual({each["name"]: each["default"] for each in listed[METHOD.name]["parameters"]},
                         {"step": 4, "recent": 3, "start": "first"})
        self.assertIn(f'"{METHOD.name}"', run(PROGRAM, "schema", "sweep"))
        self.assertIn(CODEC.name, {each["id"] for each in json.loads(run(PROGRAM, "list", "storage", "--json"))})
        self.assertIn(f"  {COMMAND.name} ", run(PROGRAM, "--help"))

    def test_what_the_method_lacks_beside_its_code_is_reported(self):
        said = run("python3", TREE / "tests/support/known_methods.py", "missing", PROGRAM).splitlines()
        self.assertEqual(len([line for line in said if line.startswith(f"methods: {METHOD.name}: no ")]), len(THINGS))

    def test_a_metric_without_a_test_turns_the_suite_red(self):
        printed = run(BIN / "test-metrics", "--test-case=*every metric has a test*", expected=1,
                      env={**os.environ, "KVBENCH_SOURCE": str(SOURCE)})
        self.assertIn("errors.relative_linf", printed)

    def test_all_that_reads_results_takes_the_metric_the_method_and_the_codec(self):
        run(PROGRAM, "synth", "gaussian", "--tokens", 64, "--out", self.made / "a.h5")
        sweep = {"schema_version": 1, "name": "new", "dumps": [str(self.made / "a.h5")], "evaluate": {"rows": "all"},
                 "output": {"rows": True}, "storage": ["float", CODEC.name],
                 "algorithms": [{"algorithm": METHOD.name, "params": {"step": [2, 4]}}]}
        (self.made / "sweep.json").write_text(json.dumps(sweep))
        run(PROGRAM, "run", "--config", self.made / "sweep.json", "--out", self.made / "out")
        path = self.made / "out/results.json"
        results = json.loads(path.read_text())
        for cell in results["cells"]:
            self.assertEqual(cell["status"], "ok")
            self.assertEqual(set(cell["errors"]["relative_linf"]), {"mean", "median", "p90", "p99", "max"})
        names = list(results["cells"][0]["errors"])
        self.assertEqual(names.index("relative_linf"), names.index("relative_l2") + 1)
        for entry in results["summary"]:
            self.assertGreater(entry["errors"]["relative_linf.mean"]["mean"], 0.0)
        schema = json.loads(run(PROGRAM, "schema", "results"))
        self.assertEqual(list(jsonschema.Draft202012Validator(schema).iter_errors(results)), [])
        listed = {each["path"]: each for each in json.loads(run(PROGRAM, "list", "metrics", "--json"))}
        self.assertIn("max |z - a|", listed["errors.relative_linf"]["definition"])
        bounds = {"schema_version": 1, "bounds": [{"name": "b", "metric": MEAN, "at_most": 1e-3}]}
        (self.made / "bounds.json").write_text(json.dumps(bounds))
        run(PROGRAM, "check", "--results", path, "--bounds", self.made / "bounds.json", expected=4)
        for options in (("--metric", MEAN), ("--json",)):  # also among those that are compared where none is named
            self.assertIn(MEAN, run(PROGRAM, "compare", path, path, *options))
        read = ("import kvplot, sys; results = kvplot.Results(sys.argv[1]); cell = results.ok.head(1); "
                "rows = results.rows('relative_linf', cell['id']); "
                f"print(abs(rows['relative_linf'].mean() - cell['{MEAN}'].iloc[0]) < 1e-12, "
                f"(kvplot.mean_over_units(results.ok, ['{MEAN}'])['{MEAN}'] > 0).all())")
        self.assertEqual(run("/usr/bin/python3", "-c", read, path, env={**os.environ, "PYTHONPATH": str(TREE / "plots")}),
                         "True True\n")


if __name__ == "__main__":
    unittest.main()
