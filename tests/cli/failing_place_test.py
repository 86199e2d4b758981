"""Places that fail: full disks, folders and journals that cannot be written, dumps and folders that
go away or change in mid-run, a log that cannot be written. A clear error, the exit code of the
contract, an intact journal, and the bytes of an undisturbed run when the cause is gone.

Mounts are made in a namespace of the test's own, in which it starts itself again."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from program import (BAD_INPUT, DONE, FAILED_CELLS, INCOMPLETE, PROGRAM, THREE, Folder,
                     deterministic, kvbench)

UNSHARE = ["unshare", "--mount", "--propagation", "private"]
if os.geteuid() != 0:
    UNSHARE.insert(1, "--map-root-user")
MAY_MOUNT = "KVBENCH_UNSHARED" in os.environ


def mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True)


class FailingPlace(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.synth("long.h5", "--tokens", 512, "--d", 32, "--layers", 3)

    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def run_it(self, config, *options, **more):
        return kvbench("run", "--config", config, "--out", self.out, *options, **more)

    def assert_journal_is_whole(self):
        text = (self.out / "journal.jsonl").read_text()
        self.assertTrue(text.endswith("\n"))
        for line in text.splitlines():
            json.loads(line)

    def expected(self, config):
        done = kvbench("run", "--config", config, "--out", self.folder / "undisturbed")
        self.assertEqual(done.returncode, DONE, done.stderr)
        return deterministic(self.results("undisturbed"))

    def small_disk(self, size):
        """A file system of `size` bytes at self.out."""
        if not MAY_MOUNT:
            self.skipTest("no mounts here")
        self.out.mkdir(exist_ok=True)
        mount("-t", "tmpfs", "-o", f"size={size}", "none", self.out)
        self.addCleanup(subprocess.run, ["umount", "--lazy", str(self.out)], check=False)

    # Full disks

    def test_a_full_disk_at_every_moment(self):
        """From a disk that holds nothing to one that only lacks room for the last file."""
        config = self.sweep(seeds={"first": 0, "count": 8}, output={"rows": True})
        expected = self.expected(config)
        sizes = {path.name: path.stat().st_size
                 for path in (self.folder / "undisturbed").iterdir()}
        page = os.sysconf("SC_PAGE_SIZE")
        journal, rows = sizes["journal.jsonl"], sizes["results.rows.h5"]
        codes = {}
        for room in (page, journal // 3, journal // 2 + rows // 2, journal + rows // 2,
                     journal + rows + 4 * page):
            with self.subTest(room=room):
                self.small_disk(max(1, room // page) * page)
                done = self.run_it(config)
                codes[room] = done.returncode
                self.assertIn(done.returncode, (BAD_INPUT, INCOMPLETE), done.stderr)
                self.assertIn(str(self.out), done.stderr)
                if done.returncode == INCOMPLETE:
                    self.assertIn("rerun the same command", done.stderr)
                    self.assertIn("No space left", done.stderr)
                    self.assert_journal_is_whole()
                mount("-o", "remount,size=256m", self.out)
                done = self.run_it(config)
                self.assertEqual(done.returncode, DONE, done.stderr)
                self.assertEqual(deterministic(self.results()), expected)
                subprocess.run(["umount", str(self.out)], check=True)
        self.assertIn(INCOMPLETE, codes.values())

    # Places that cannot be written

    def test_a_folder_that_cannot_be_written(self):
        config = self.sweep()
        self.small_disk("1m")
        mount("-o", "remount,ro", self.out)
        self.assert_refused(self.run_it(config), str(self.out), "Read-only file system", "--out")
        self.assertEqual(list(self.out.iterdir()), [])
        mount("-o", "remount,rw", self.out)
        self.assertEqual(self.run_it(config).returncode, DONE)

    def test_a_journal_that_cannot_be_written(self):
        config = self.sweep()
        self.small_disk("1m")
        self.assertEqual(self.run_it(config, "--only", "window/*/*/*/*").returncode, DONE)
        journal = self.out / "journal.jsonl"
        before = journal.read_bytes()
        mount("--bind", journal, journal)
        mount("-o", "remount,ro,bind", journal)
        self.assert_refused(self.run_it(config), str(journal), "Read-only file system", "--out")
        self.assertEqual(journal.read_bytes(), before)
        subprocess.run(["umount", str(journal)], check=True)
        self.assertEqual(self.run_it(config).returncode, DONE)

    def test_places_without_permission(self):
        if os.geteuid() == 0:
            self.skipTest("nothing is forbidden to root")
        config = self.sweep()
        self.out.mkdir(mode=0o500)
        self.assert_refused(self.run_it(config), str(self.out), "Permission denied", "--out")
        self.out.chmod(0o700)
        self.assertEqual(self.run_it(config).returncode, DONE)
        (self.out / "journal.jsonl").chmod(0o400)
        self.assert_refused(self.run_it(config), "journal.jsonl", "Permission denied", "--out")

    # Places that go away or change in mid-run

    def interrupted(self, config, change):
        """Starts a run, calls `change` when some cells are done; returns exit code and printed."""
        process = subprocess.Popen([PROGRAM, "run", "--config", str(config), "--out",
                                    str(self.out)], stderr=subprocess.PIPE, text=True)
        journal = self.out / "journal.jsonl"
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if journal.exists() and journal.read_bytes().count(b"\n") > 4:
                break
            time.sleep(0.002)
        process.send_signal(signal.SIGSTOP)  # so that the change meets a run in its middle
        change()
        process.send_signal(signal.SIGCONT)
        printed = process.communicate(timeout=300)[1]
        return process.returncode, printed

    def long_sweep(self):
        dump = self.folder / "dump.h5"
        shutil.copy(self.made / "long.h5", dump)
        return dump, self.sweep([*THREE, {"algorithm": "h2o", "params": {"budget": [32, 64]}}],
                                dumps=[str(dump)], seeds={"first": 0, "count": 20})

    def test_a_dump_that_is_deleted(self):
        dump, config = self.long_sweep()
        expected = self.expected(config)
        code, printed = self.interrupted(config, dump.unlink)
        # An open file stays whole on a local file system.
        self.assertEqual(code, DONE, printed)
        self.assertEqual(deterministic(self.results()), expected)
        before = (self.out / "journal.jsonl").read_bytes()
        self.assert_refused(self.run_it(config), "dump.h5", "/dumps/0")
        self.assertEqual((self.out / "journal.jsonl").read_bytes(), before)

    def test_a_dump_that_is_cut(self):
        """Behind the end of a file that was cut HDF5 reads zeros, which would be false numbers."""
        dump, config = self.long_sweep()
        expected = self.expected(config)
        whole = dump.read_bytes()
        code, printed = self.interrupted(config, lambda: os.truncate(dump, len(whole) // 4))
        self.assertEqual(code, FAILED_CELLS, printed)
        self.assertIn("dump.h5: was modified while open", printed)
        self.assert_journal_is_whole()
        undisturbed = {cell["id"]: cell for cell in self.results("undisturbed")["cells"]}
        for cell in self.results()["cells"]:
            if cell["status"] == "ok":
                self.assertEqual(cell["errors"], undisturbed[cell["id"]]["errors"])
        before = (self.out / "journal.jsonl").read_bytes()
        self.assert_refused(self.run_it(config), "dump.h5", "truncated")
        self.assertEqual((self.out / "journal.jsonl").read_bytes(), before)
        dump.write_bytes(whole)
        done = self.run_it(config, "--retry-failed")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(deterministic(self.results()), expected)

    def test_an_output_folder_that_is_deleted(self):
        _, config = self.long_sweep()
        code, printed = self.interrupted(config, lambda: shutil.rmtree(self.out))
        self.assertEqual(code, INCOMPLETE, printed)
        self.assertIn(str(self.out / "results.json"), printed)
        self.assertEqual(self.run_it(config).returncode, DONE)

    # Talk

    def test_a_log_that_cannot_be_written_ends_nothing(self):
        config = self.sweep()
        expected = self.expected(config)
        for name, stderr in (("full", "2>/dev/full"), ("closed", "2>&-")):
            self.out = self.folder / name
            command = f'exec "$0" run --config "$1" --out "$2" {stderr}'
            done = subprocess.run(["sh", "-c", command, PROGRAM, str(config), str(self.out)],
                                  check=False, timeout=300)
            self.assertEqual(done.returncode, DONE)
            self.assertEqual(deterministic(self.results(name)), expected)
            done = subprocess.run(["sh", "-c", command, PROGRAM, "none.json", "x"], check=False,
                                  timeout=300)
            self.assertEqual(done.returncode, BAD_INPUT)


if __name__ == "__main__":
    if not MAY_MOUNT and subprocess.run([*UNSHARE, "true"], capture_output=True,
                                        check=False).returncode == 0:
        os.execvpe(UNSHARE[0], [*UNSHARE, sys.executable, *sys.argv],
                   {**os.environ, "KVBENCH_UNSHARED": "1"})
    unittest.main()
