"""The wheel, installed by pip into a new virtual environment that finds no compiler, and in a Debian root
that has none: README's Python runs there. Usage: wheel_test.py FILE.whl

The clean root is skipped, and the reason printed, without root, chroot, debootstrap or a Debian mirror."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from pathlib import Path

from clean_root import clean_root

ROOT = Path(__file__).resolve().parents[2]
VERSION = (ROOT / "version.txt").read_text(encoding="utf-8").strip()
WHEEL = None
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cmake", "ninja")
LIBRARIES = """
import re
import kvbench._core
with open("/proc/self/maps") as maps:
    paths = {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")}
print("\\n".join(sorted(path for path in paths if re.search(r"hdf5|gomp|xxhash|fmt|libsz|libaec", path))))
"""


def readme_lines():
    """The Python of README.md, which reads data/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def printed_lines():
    """The lines that README.md says they print."""
    return "".join(f"{line}\n" for line in re.findall(r"^# (\w+ +0\.\d+ 0\.\d+)$", readme_lines(), re.MULTILINE))


class Wheel(unittest.TestCase):
    def test_it_brings_the_module_the_program_kvplot_and_types(self):
        with zipfile.ZipFile(WHEEL) as wheel:
            names = wheel.namelist()
            print(f"{WHEEL}: {Path(WHEEL).stat().st_size / 1e6:.1f} MB", file=sys.stderr)
            metadata = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
        for name in ("kvbench/__init__.py", "kvbench/py.typed", "kvbench/_core.pyi",
                     "kvbench/bin/kvbench", "kvplot/__init__.py"):
            self.assertIn(name, names)
        self.assertTrue(any(re.match(r"kvbench\.libs/libhdf5", name) for name in names), names)
        self.assertFalse([name for name in names if name.startswith(("tests/", "lib/", "include/"))])
        self.assertEqual(re.findall(r"(?m)^Requires-Dist: ([^;\n]*)$", metadata), ["numpy>=1.24"])
        self.assertEqual(re.findall(r"(?m)^Version: (.*)$", metadata), [VERSION])
        self.assertRegex(Path(WHEEL).name, r"-manylinux_\d+_\d+_x86_64\.whl$")

    def run_in(self, folder, *words, **environment):
        done = subprocess.run([str(word) for word in words], cwd=folder, capture_output=True,
                              text=True, check=False, env=environment)
        self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def test_it_runs_in_a_new_environment_without_a_compiler(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            self.run_in(folder, sys.executable, "-m", "venv", folder / "venv", **os.environ)
            binaries = folder / "venv/bin"
            network = {name: value for name, value in os.environ.items()
                       if re.match(r"(?i)(pip_|https?_proxy|no_proxy|ssl_|requests_)", name)}
            environment = {"PATH": str(binaries), "HOME": str(folder), **network}
            for compiler in COMPILERS:
                self.assertIsNone(shutil.which(compiler, path=environment["PATH"]))
            self.run_in(folder, binaries / "python", "-m", "pip", "install", "--quiet",
                        "--only-binary=:all:", WHEEL, **environment)
            (folder / "data").symlink_to(ROOT / "data")
            said = self.run_in(folder, binaries / "python", "-c", readme_lines(), **environment)
            self.assertEqual(said, printed_lines())
            loaded = self.run_in(folder, binaries / "python", "-c", LIBRARIES, **environment).split()
            self.assertGreater(len(loaded), 2)
            self.assertEqual([path for path in loaded if not path.startswith(str(folder))], [])
            self.run_in(folder, binaries / "kvbench", "validate", "data/smollm2-constitution.h5",
                        **environment)
            self.run_in(folder, binaries / "kvbench", "run", "--dump", "data/smollm2-constitution.h5",
                        "--algorithm", "window", "--budget", "64", "--out", "out", "--quiet",
                        **environment)
            self.run_in(folder, binaries / "python", "-m", "kvbench", "demo", **environment)
            self.assertFalse((folder / "results/quick/report.html").exists())  # without kvplot's packages
            self.run_in(folder, binaries / "python", "-m", "pip", "install", "--quiet", "--only-binary=:all:",
                        f"{WHEEL}[plots]", **environment)
            shutil.rmtree(folder / "results")
            began = time.monotonic()
            self.run_in(folder, binaries / "python", "-m", "kvbench", "demo", **environment)
            print(f"python -m kvbench demo: {time.monotonic() - began:.0f} s", file=sys.stderr)
            for name in ("results.json", "error_vs_memory.png", "report.html"):
                self.assertGreater((folder / "results/quick" / name).stat().st_size, 10000)

    def test_it_runs_in_a_clean_root(self):
        root = Path(tempfile.mkdtemp(prefix="kvbench-root-"))
        self.addCleanup(shutil.rmtree, root)
        clean_root(root)
        environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive",
                       "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

        # A program finds libraries relative to itself through /proc.
        mounted = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'

        def inside(*words):
            return self.run_in("/", "unshare", "--mount", "sh", "-c", mounted, root, *words,
                               **environment)

        inside("apt-get", "install", "-q", "-y", "--no-install-recommends", "python3-venv",
               "python3-numpy")
        for compiler in COMPILERS:
            self.assertIsNone(shutil.which(compiler, path=f"{root}/usr/bin"))
        shutil.copy(WHEEL, root)
        (root / "data").mkdir()
        shutil.copy(ROOT / "data/smollm2-constitution.h5", root / "data")
        inside("python3", "-m", "venv", "--system-site-packages", "/venv")
        inside("/venv/bin/pip", "install", "--quiet", "--no-index", "/" + Path(WHEEL).name)
        self.assertEqual(inside("/venv/bin/python", "-c", readme_lines()), printed_lines())
        inside("/venv/bin/kvbench", "validate", "/data/smollm2-constitution.h5")


if __name__ == "__main__":
    WHEEL = str(Path(sys.argv.pop()).resolve())
    unittest.main(verbosity=2)
