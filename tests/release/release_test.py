"""A release has one version and one commit: its files agree on the version, the source archive knows its commit, and the
dataset card agrees with the shipped dumps."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KVBENCH_SOURCE"])
PROGRAM = Path(os.environ["KVBENCH_PROGRAM"])
CMAKE = os.environ["KVBENCH_CMAKE"]
VERSION = (SOURCE / "version.txt").read_text().strip()


def git(folder, *words):
    return subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b.invalid", *words],
                          capture_output=True, text=True, check=True).stdout.strip()


class Commit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.root = self.folder / "checkout"
        for name in (".commit", ".gitattributes", "version.txt", "lib/results/git_info.cmake"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / name, self.root / name)
        git(self.root, "init", "--quiet")
        git(self.root, "add", "--all")
        git(self.root, "commit", "--quiet", "--message", "x")
        self.own = git(self.root, "rev-parse", "HEAD")

    def recorded(self, source):
        """(commit, dirty) that a build of this source records."""
        header = self.folder / "git_info.hpp"
        subprocess.run([CMAKE, f"-DSOURCE={source}", f"-DOUTPUT={header}", "-P", source / "lib/results/git_info.cmake"],
                       check=True, capture_output=True)
        return re.search(r'kCommit = "(.*)";\n.*kDirty = (\w+);', header.read_text()).groups()

    def test_an_archive_knows_its_commit(self):
        archive = self.folder / "a.tar"
        git(self.root, "archive", "--prefix=a/", f"--output={archive}", "HEAD")
        subprocess.run(["tar", "-xf", archive, "-C", self.folder], check=True)
        self.assertEqual(self.recorded(self.folder / "a"), (self.own, "false"))

    def test_a_build_records_its_own_checkout_alone(self):
        self.assertEqual(self.recorded(self.root), (self.own, "false"))
        (self.root / "version.txt").write_text("7.8.10\n")
        self.assertEqual(self.recorded(self.root), (self.own, "true"))
        inner = self.root / "inner"  # as a package manager unpacks sources inside another checkout
        shutil.copytree(self.root / "lib", inner / "lib")
        self.assertEqual(self.recorded(inner), ("", "false"))
        shutil.copy(SOURCE / ".commit", inner)  # not filled in
        self.assertEqual(self.recorded(inner), ("", "false"))


class Versions(unittest.TestCase):
    def test_changelog_and_citation_are_of_this_version(self):
        first = re.search(r"^## (.*)$", (SOURCE / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
        if first != f"{VERSION} (unreleased)":
            date = re.fullmatch(rf"{re.escape(VERSION)} \((\d{{4}}-\d\d-\d\d)\)", first)[1]
            citation = (SOURCE / "CITATION.cff").read_text(encoding="utf-8")
            self.assertEqual(re.findall(r"^(?:version|date-released): (.*)$", citation, re.MULTILINE), [VERSION, date])

    def test_the_wheel_takes_it_from_version_txt(self):
        text = (SOURCE / "pyproject.toml").read_text()
        self.assertIn('dynamic = ["version"]', text)
        self.assertIn('metadata.version.input = "version.txt"', text)
        self.assertNotIn(f'"{VERSION}"', text)
        pattern = re.search(r"metadata.version.regex = '(.*)'", text)[1]
        self.assertEqual(re.search(pattern, (SOURCE / "version.txt").read_text())["value"], VERSION)


class Card(unittest.TestCase):
    def test_it_says_of_the_shipped_dumps_what_they_are(self):
        text = (SOURCE / "data/CARD.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| `([\w.-]+\.h5)` \| ([\d,]+) \| `(\w{64})` \| `(\w+)` \|", text, re.MULTILINE)
        self.assertEqual({name for name, *_ in rows},
                         {path.name for path in (SOURCE / "data").glob("*.h5")})
        for name, size, digest, fingerprint in rows:
            with self.subTest(name):
                path = SOURCE / "data" / name
                self.assertEqual(int(size.replace(",", "")), path.stat().st_size)
                self.assertEqual(digest, hashlib.sha256(path.read_bytes()).hexdigest())
                said = json.loads(subprocess.run([PROGRAM, "inspect", path, "--json"], capture_output=True, text=True,
                                                 check=True).stdout)
                self.assertEqual(fingerprint, said["fingerprint"])

    def test_its_head_is_what_hubs_read(self):
        head = re.match(r"---\n(.*?)\n---\n", (SOURCE / "data/CARD.md").read_text(encoding="utf-8"), re.DOTALL)[1]
        self.assertEqual(re.findall(r"^license: (.*)$", head, re.MULTILINE), ["apache-2.0"])
        for key in ("pretty_name", "language", "size_categories", "tags"):
            self.assertRegex(head, rf"(?m)^{key}:")


if __name__ == "__main__":
    unittest.main()
