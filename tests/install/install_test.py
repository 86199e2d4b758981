"""`cmake --install` into a folder that is then moved: program, sweeps, dump, kvplot, completion
and library work from there, with nothing of the repository at hand."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["KVBENCH_BUILD"])
CMAKE = os.environ["KVBENCH_CMAKE"]
SCORED = ["--set", "/select/layers=[0]", "--set", "/select/kv_heads=[0]",
          "--set", '/evaluate={"rows":{"last":16}}']
WINDOW = '/algorithms=[{"algorithm":"window","params":{"budget":256}}]'


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="kvbench-install-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.run_in(cls.folder, CMAKE, "--install", BUILD, "--prefix", cls.folder / "first")
        cls.prefix = (cls.folder / "first").rename(cls.folder / "prefix")
        cls.share = cls.prefix / "share/kvbench"
        cls.work = cls.folder / "work"
        cls.work.mkdir()
        cls.installed("kvbench", "run", "--config", cls.share / "configs/quick.json", "--quiet",
                      "--set", WINDOW, *SCORED)

    @staticmethod
    def run_in(folder, *command, **environment):
        done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True,
                              text=True, check=False, env={**os.environ, **environment})
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    @classmethod
    def installed(cls, program, *arguments):
        return cls.run_in(cls.work, cls.prefix / "bin" / program, *arguments)

    def test_nothing_names_where_it_was_built_or_installed(self):
        for path in self.prefix.rglob("*"):
            if path.is_file() and path.suffix not in (".h5", ".a") and path.name != "kvbench":
                for place in (BUILD, self.folder / "first"):
                    self.assertNotIn(str(place), path.read_text(encoding="utf-8"), path)

    def test_the_shipped_dump_is_there_and_right(self):
        self.installed("kvbench", "validate", self.share / "data/smollm2-constitution.h5")

    def test_every_shipped_sweep_plans(self):
        sweeps = [*self.share.glob("configs/*.json"), *self.share.glob("configs/figures/*.json"),
                  *self.share.glob("configs/papers/*.json")]
        self.assertGreater(len(sweeps), 60)
        for sweep in sweeps:
            self.installed("kvbench", "validate", "--config", sweep)

    @unittest.skipUnless(subprocess.run(
        ["/usr/bin/python3", "-c", "import numpy, pandas, matplotlib, h5py, scipy"],
        capture_output=True, check=False).returncode == 0, "kvplot's packages are not installed")
    def test_kvplot_draws_what_the_program_wrote(self):
        self.installed("kvplot", "error_vs_memory", "--results", "results/quick/results.json",
                       "--out", "figures")
        self.assertTrue((self.work / "figures/error_vs_memory.pdf").stat().st_size > 1000)
        self.run_in(self.work, "/usr/bin/python3", "-c",
                    "import kvplot; assert len(kvplot.load_results('results/quick/results.json')) == 1",
                    PYTHONPATH=str(self.prefix / "lib/python3/dist-packages"))

    def test_schemas_are_what_the_program_prints(self):
        for name in ("sweep", "bounds", "results"):
            self.assertEqual((self.share / f"schema/{name}.schema.json").read_text(),
                             self.installed("kvbench", "schema", name))

    def test_completion_is_where_bash_looks_for_it(self):
        self.run_in(self.work, "bash", "-c", 'source "$0"; cd /; complete -p kvbench',
                    self.prefix / "share/bash-completion/completions/kvbench")

    def test_another_project_builds_against_the_library_and_gets_the_programs_number(self):
        source = Path(__file__).parent / "consumer"
        built = self.folder / "consumer"
        self.run_in(self.work, CMAKE, "-S", source, "-B", built, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                    "-DCMAKE_BUILD_TYPE=Release")
        self.run_in(self.work, CMAKE, "--build", built)
        said = self.run_in(self.work, built / "window_error",
                           self.share / "data/smollm2-constitution.h5")
        cell, = json.loads((self.work / "results/quick/results.json").read_text())["cells"]
        self.assertEqual(float(said), cell["errors"]["relative_l2"]["mean"])


if __name__ == "__main__":
    unittest.main()
