"""The Debian package, installed by apt in a root that has nothing but Debian's base, runs there, and
leaves nothing when it is removed. Usage: package_test.py FILE.deb

Skipped, and the reason printed, without root, chroot, debootstrap or a Debian mirror."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PACKAGE = None
SHARE = "/usr/share/kvbench"


def command(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          check=False, env={**os.environ, "LC_ALL": "C",
                                            "DEBIAN_FRONTEND": "noninteractive"}, **options)


def clean_root(folder):
    """Debian's base in a folder; raises SkipTest where it cannot be had."""
    if os.geteuid() != 0:
        raise unittest.SkipTest("SKIPPED: a clean root wants root")
    if command("chroot", "/", "true").returncode != 0:
        raise unittest.SkipTest("SKIPPED: chroot is not allowed here")
    if not shutil.which("debootstrap"):
        raise unittest.SkipTest("SKIPPED: debootstrap is not installed")
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
    made = command("debootstrap", "--variant=minbase", suite, folder)
    if made.returncode != 0:
        raise unittest.SkipTest("SKIPPED: debootstrap made no root: " + made.stdout[-400:])


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = Path(tempfile.mkdtemp(prefix="kvbench-root-"))
        cls.addClassCleanup(shutil.rmtree, cls.root)

    def inside(self, *words):
        done = command("chroot", self.root, *words)
        self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_it_names_its_version_and_what_it_needs(self):
        version = (Path(__file__).resolve().parents[2] / "version.txt").read_text(encoding="utf-8").strip()
        self.assertEqual(command("dpkg-deb", "--field", PACKAGE, "Version").stdout.strip(), version)
        needs = command("dpkg-deb", "--field", PACKAGE, "Depends").stdout
        for library in ("libc6", "libgomp1", "libhdf5-", "libstdc++6"):
            self.assertIn(library, needs)
        self.assertIn("python3-matplotlib",
                      command("dpkg-deb", "--field", PACKAGE, "Recommends").stdout)

    def test_it_installs_and_runs_in_a_clean_root(self):
        clean_root(self.root)
        shutil.copy(PACKAGE, self.root / "kvbench.deb")
        self.inside("apt-get", "install", "-q", "-y", "--no-install-recommends", "/kvbench.deb")
        self.inside("kvbench", "validate", f"{SHARE}/data/smollm2-constitution.h5")
        self.inside("kvbench", "run", "--config", f"{SHARE}/configs/quick.json", "--out", "/quick",
                    "--set", "/select/layers=[0]", "--set", "/seeds=[0]")
        self.inside("kvbench", "export", "--results", "/quick/results.json", "--format", "csv")
        self.assertIn("Built for x86-64-v3", self.inside("dpkg-query", "-W", "-f", "${Description}", "kvbench"))
        self.inside("apt-get", "purge", "-q", "-y", "kvbench")
        self.assertEqual([str(path) for path in self.root.glob("usr/**/*kvbench*")], [])


if __name__ == "__main__":
    PACKAGE = sys.argv.pop()
    unittest.main(verbosity=2)
