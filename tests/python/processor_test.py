"""A processor that lacks what the package was compiled for is refused when it is imported."""

import subprocess
import sys
import unittest
from pathlib import Path

import kvbench
from kvbench import _processor

HERE = Path("/proc/cpuinfo")
OLD = "processor\t: 0\nflags\t\t: fpu sse sse2 avx bmi1 abm\n"

IMPORT = """
import importlib.util, pathlib, sys, types
folder = pathlib.Path(sys.argv[1])
read_text = pathlib.Path.read_text
pathlib.Path.read_text = lambda path, **options: (
    sys.argv[2] if str(path) == "/proc/cpuinfo" else read_text(path, **options))
built = types.ModuleType("kvbench._built")
built.ARCH = sys.argv[3]
sys.modules["kvbench._built"] = built
try:
    import kvbench
finally:
    print("kvbench._core" in sys.modules)
"""


def imported(cpuinfo, arch):
    return subprocess.run([sys.executable, "-c", IMPORT, str(Path(kvbench.__file__).parent), cpuinfo,
                           arch], capture_output=True, text=True, check=False)


class Processor(unittest.TestCase):
    def test_missing_features_are_named(self):
        self.assertEqual(_processor.missing_features(OLD, "x86-64-v3"),
                         ["avx2", "bmi2", "f16c", "fma", "movbe", "xsave"])
        whole = "flags : " + " ".join(_processor.X86_64_V3)
        self.assertEqual(_processor.missing_features(whole, "x86-64-v3"), [])
        for text, arch in ((OLD, "native"), ("Features : fp asimd\n", "x86-64-v3"), ("", "x86-64-v3")):
            self.assertEqual(_processor.missing_features(text, arch), [])

    def test_an_old_processor_is_an_import_error_before_anything_is_loaded(self):
        refused = imported(OLD, "x86-64-v3")
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr, r"ImportError: kvbench: this processor lacks avx2, .*pip install \.")
        self.assertEqual(refused.stdout, "False\n")

    def test_the_same_import_works_on_this_processor(self):
        self.assertEqual(imported(HERE.read_text(), "x86-64-v3").stdout, "True\n")


if __name__ == "__main__":
    unittest.main()
