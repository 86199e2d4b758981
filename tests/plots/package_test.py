"""kvplot as a Python package: it installs, and runs where the repository is not. Usage: package_test.py"""

import shutil
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Package(unittest.TestCase):
    def test_it_installs_and_runs_outside_the_repository(self):
        missing = [name for name in ("pip", "setuptools", "wheel") if not find_spec(name)]
        if missing:
            self.skipTest(f"{', '.join(missing)} missing")
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "plots"), Path(folder, "site")
            shutil.copytree(ROOT / "plots", source,
                            ignore=shutil.ignore_patterns("gallery", "__pycache__"))
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
                 "--no-build-isolation", "--target", str(target), str(source)],
                capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue((target / "kvplot/report/page/page.css").is_file())
            done = subprocess.run([sys.executable, "-m", "kvplot", "report", "--help"],
                                  capture_output=True, text=True, check=False, cwd=folder,
                                  env={"PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"})
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
