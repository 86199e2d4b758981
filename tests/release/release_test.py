"""A release has one version and one commit: the files of another are refused, the source archive is the
same bytes each time and knows its commit, and the dataset card agrees with the shipped dumps."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

from release import SUMS, ReleaseError, release, text_faults

SOURCE = Path(os.environ["KVBENCH_SOURCE"])
PROGRAM = Path(os.environ["KVBENCH_PROGRAM"])
CMAKE = os.environ["KVBENCH_CMAKE"]
VERSION = (SOURCE / "version.txt").read_text().strip()


def git(folder, *words):
    return subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b.invalid", *words],
                          capture_output=True, text=True, check=True).stdout.strip()


class Made(unittest.TestCase):
    """A small checkout with what a release reads, and a file that is named as a wheel is."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.root = self.folder / "checkout"
        for name in ("version.txt", "CITATION.cff", ".commit", ".gitattributes", "lib/results/git_info.cmake"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / name, self.root / name)
        (self.root / "version.txt").write_text("7.8.9\n")
        (self.root / "CHANGELOG.md").write_text("# Changelog\n\n## 7.8.9 (2031-02-03)\n\n* x\n")
        (self.root / "CITATION.cff").write_text("version: 7.8.9\ndate-released: 2031-02-03\n")
        git(self.root, "init", "--quiet")
        self.commit()
        self.files = [self.wheel("7.8.9")]

    def commit(self):
        git(self.root, "add", "--all")
        git(self.root, "commit", "--quiet", "--message", "x")

    def wheel(self, version, named=None):
        path = self.folder / f"kvbench-{named or version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(f"kvbench-{version}.dist-info/METADATA", f"Name: kvbench\nVersion: {version}\n\nx\n")
        return path

    def refused(self, *words):
        with self.assertRaises(ReleaseError) as caught:
            release(self.root, self.files, self.folder / "out")
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertFalse((self.folder / "out").exists())
        return str(caught.exception)

    def test_it_has_all_files_and_their_sums(self):
        out = self.folder / "out"
        shipped = release(self.root, self.files, out)
        self.assertEqual([path.relative_to(out).as_posix() for path in shipped],
                         ["kvbench-7.8.9-py3-none-any.whl", "kvbench-7.8.9.tar.gz"])
        sums = dict(reversed(line.split("  ")) for line in (out / SUMS).read_text().splitlines())
        self.assertEqual(sums, {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in shipped})
        self.assertEqual({path.name for path in out.iterdir()}, {SUMS, *sums})

    def test_the_archive_is_the_same_bytes_and_knows_its_commit(self):
        one, two = (release(self.root, [], self.folder / name)[0] for name in ("a", "b"))
        self.assertEqual(one.read_bytes(), two.read_bytes())
        with tarfile.open(one) as archive:
            names = archive.getnames()
        (self.folder / "unpacked").mkdir()
        subprocess.run(["tar", "-xf", one, "-C", self.folder / "unpacked"], check=True)
        self.assertTrue(all(name == "kvbench-7.8.9" or name.startswith("kvbench-7.8.9/") for name in names))
        self.assertEqual(self.recorded(self.folder / "unpacked/kvbench-7.8.9"),
                         (git(self.root, "rev-parse", "HEAD"), "false"))

    def recorded(self, source):
        """(commit, dirty) that a build of this source records."""
        header = self.folder / "git_info.hpp"
        subprocess.run([CMAKE, f"-DSOURCE={source}", f"-DOUTPUT={header}", "-P", source / "lib/results/git_info.cmake"],
                       check=True, capture_output=True)
        return re.search(r'kCommit = "(.*)";\n.*kDirty = (\w+);', header.read_text()).groups()

    def test_a_build_records_its_own_checkout_alone(self):
        own = git(self.root, "rev-parse", "HEAD")
        self.assertEqual(self.recorded(self.root), (own, "false"))
        (self.root / "version.txt").write_text("7.8.10\n")
        self.assertEqual(self.recorded(self.root), (own, "true"))
        inner = self.root / "inner"  # as a package manager unpacks sources inside another checkout
        shutil.copytree(self.root / "lib", inner / "lib")
        self.assertEqual(self.recorded(inner), ("", "false"))
        shutil.copy(SOURCE / ".commit", inner)  # not filled in
        self.assertEqual(self.recorded(inner), ("", "false"))

    def test_files_of_another_version_are_refused(self):
        self.files = [self.wheel("7.8.8"), self.wheel("7.8.8", named="7.8.9"), self.root / "version.txt"]
        said = self.refused("kvbench-7.8.8-py3-none-any.whl: it is 7.8.8, version.txt is 7.8.9",
                            "kvbench-7.8.9-py3-none-any.whl: it is 7.8.8", "version.txt: expected a wheel")
        self.assertEqual(len(said.splitlines()), 4)

    def test_changes_that_are_not_committed_are_refused(self):
        (self.root / "version.txt").touch()
        (self.root / "new.txt").write_text("x")
        self.refused("new.txt")

    def test_a_changelog_without_a_date_is_refused_and_so_is_a_citation_of_another(self):
        for text in ("# Changelog\n\n## 7.8.9 (unreleased)\n", "# Changelog\n\n## 7.8.8 (2031-02-03)\n", "# Changelog\n"):
            (self.root / "CHANGELOG.md").write_text(text)
            self.commit()
            self.refused("CHANGELOG.md: its first part is")
        (self.root / "CHANGELOG.md").write_text("## 7.8.9 (2031-02-04)\n")
        (self.root / "CITATION.cff").write_text("version: 7.8.8\n")
        self.commit()
        self.refused("CITATION.cff: version is 7.8.8; expected 7.8.9",
                     "CITATION.cff: date-released is missing; expected 2031-02-04")

    def test_a_folder_with_files_is_refused(self):
        (self.folder / "out").mkdir()
        (self.folder / "out/x").touch()
        with self.assertRaisesRegex(ReleaseError, "not empty"):
            release(self.root, [], self.folder / "out")


class Versions(unittest.TestCase):
    def test_changelog_and_citation_are_of_this_version(self):
        first = re.search(r"^## (.*)$", (SOURCE / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
        if first != f"{VERSION} (unreleased)":
            self.assertEqual(text_faults(SOURCE, VERSION), [])

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
