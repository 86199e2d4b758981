"""The images of Containerfile, built and run: the program alone, and with kvplot. Usage: container_test.py BASE,
an image of Debian 12, or `debootstrap` for one that is made here, where no registry can be reached.

By buildah, as root and without namespaces, all in a folder of its own that is removed at the end. Prints minutes and
sizes. Skipped, and the reason printed, without it."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from clean_root import clean_root

ROOT = Path(__file__).resolve().parents[2]
BASE = None
SHARE = "/usr/share/kvbench"


class Buildah:
    """Builds images and runs commands in them, without a daemon, namespaces or an overlay."""

    def __init__(self, folder):
        self._words = ["buildah", "--storage-driver", "vfs", "--root", f"{folder}/images",
                       "--runroot", f"{folder}/run"]

    def __call__(self, *words):
        for _ in range(3):
            done = subprocess.run([*self._words, *map(str, words)], capture_output=True, text=True, check=False)
            # Buildah runs a sealed copy of itself, and a busy machine can refuse the seal before any command runs.
            if "sealing memfd copy" not in done.stderr:
                break
        if done.returncode != 0:
            raise AssertionError(f"buildah {' '.join(map(str, words))}\n{(done.stdout + done.stderr)[-4000:]}")
        return done.stdout

    def imported(self, root, name):
        """An image of a folder."""
        with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
            subprocess.run(["tar", "-C", root, "--one-file-system", "-cf", archive.name, "."], check=True)
            container = self("from", "scratch").strip()
            self("add", "--quiet", container, archive.name, "/")
            self("commit", "--quiet", container, name)
            self("rm", container)

    def build(self, name, *words):
        self("build", "--isolation", "chroot", "--layers", "--tag", name, *words, ROOT)

    def megabytes(self, name):
        return json.loads(self("images", "--json", name))[0]["size"]

    def run(self, name, *words):
        container = self("from", name).strip()
        try:
            return self("run", "--isolation", "chroot", container, "--", *words)
        finally:
            self("rm", container)


class Container(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("buildah"):
            raise unittest.SkipTest("SKIPPED: buildah is not installed")
        cls.folder = Path(tempfile.mkdtemp(prefix="kvbench-container-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.tool = Buildah(cls.folder)
        try:
            cls.tool("rm", cls.tool("from", "scratch").strip())
        except AssertionError as error:
            raise unittest.SkipTest(f"SKIPPED: buildah cannot run here: {error}") from error
        base = BASE
        if base == "debootstrap":
            clean_root(cls.folder / "root")
            base = "localhost/kvbench-base"
            cls.tool.imported(cls.folder / "root", base)
        commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True,
                                check=False).stdout.strip()
        cls.commit = commit
        given = ("--build-arg", f"BASE={base}", "--build-arg", f"COMMIT={commit}")
        for name, target in (("kvbench:program", ("--target", "program")), ("kvbench", ())):
            began = time.monotonic()
            cls.tool.build(name, *given, *target)
            minutes = (time.monotonic() - began) / 60
            print(f"{name}: {minutes:.1f} min, {cls.tool.megabytes(name)}", file=sys.stderr)

    def test_the_program_runs_in_either(self):
        for name in ("kvbench:program", "kvbench"):
            self.tool.run(name, "kvbench", "validate", f"{SHARE}/data/smollm2-constitution.h5")

    def test_the_program_s_image_has_no_compiler_and_no_python(self):
        for missing in ("g++", "cc1plus", "cmake", "python3"):
            self.assertEqual(self.tool.run("kvbench:program", "sh", "-c", f"command -v {missing} || true"), "")

    def test_a_sweep_is_run_and_drawn_and_names_its_commit(self):
        run = (f"kvbench run --config {SHARE}/configs/quick.json --out quick --quiet --set select.layers=[0] "
               "--set seeds=[0] && kvplot error_vs_memory --results quick/results.json --out quick >&2 && "
               "kvplot report quick/results.json --out quick/report.html >&2 && test -s quick/report.html && "
               "test -s quick/error_vs_memory.png && cat quick/results.json")
        document = json.loads(self.tool.run("kvbench", "sh", "-c", run))
        self.assertEqual(document["status"], "complete")
        self.assertEqual(document["provenance"][0]["git"]["commit"], self.commit or None)

    def test_it_begins_with_the_program(self):
        config = json.loads(self.tool("inspect", "--type", "image", "kvbench"))["OCIv1"]["config"]
        self.assertEqual((config["Entrypoint"], config["WorkingDir"]), (["kvbench"], "/here"))


if __name__ == "__main__":
    BASE = sys.argv.pop()
    unittest.main(verbosity=2)
