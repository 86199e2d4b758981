"""Files that are not what they should be: devices and pipes, other kinds of files where one is to be
written, journals and results that say what no run writes, file systems that cannot lock."""

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import unittest

from program import BUG, DONE, PROGRAM, Folder, deterministic, kvbench

# flock() of a journal or an HDF5 file and read() of broken.json fail, with an error that the environment says.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int wanted(const char *name) {
  const char *text = getenv(name);
  return text ? atoi(text) : 0;
}

static int is_of(int fd, const char *name) {
  char link[64], path[4096] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return readlink(link, path, sizeof path - 1) > 0 && strstr(path, name) != NULL;
}

int flock(int fd, int operation) {
  const int fault = wanted("SHIM_FLOCK");
  if (fault && (is_of(fd, "journal.lock") || is_of(fd, ".h5"))) { errno = fault; return -1; }
  return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(fd, operation);
}

ssize_t read(int fd, void *data, size_t size) {
  const int fault = wanted("SHIM_READ");
  if (fault && is_of(fd, "broken.json")) { errno = fault; return -1; }
  return ((ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read"))(fd, data, size);
}
"""


class InputFiles(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        compiler = shutil.which("cc") or shutil.which("gcc")
        cls.shim = None
        if compiler:
            (cls.made / "shim.c").write_text(SHIM)
            subprocess.run([compiler, "-shared", "-fPIC", "-o", cls.made / "shim.so",
                            cls.made / "shim.c", "-ldl"], check=True)
            cls.shim = cls.made / "shim.so"

    def with_shim(self, *arguments, **faults):
        if not self.shim:
            self.skipTest("no C compiler")
        environment = {**os.environ, "LD_PRELOAD": str(self.shim),
                       **{f"SHIM_{name.upper()}": str(value) for name, value in faults.items()}}
        return kvbench(*arguments, env=environment)

    # File systems without locks.

    def test_where_nothing_can_be_locked_a_run_says_so_and_goes_on_if_told_to(self):
        config = self.sweep(output={"rows": True})
        out = self.folder / "out"
        for fault in (37, 38, 95):  # ENOLCK, ENOSYS, EOPNOTSUPP
            with self.subTest(errno=fault):
                done = self.with_shim("run", "--config", config, "--out", out,
                                      flock=fault)
                self.assert_refused(done, "journal.lock: cannot lock", os.strerror(fault), "--no-lock")
                done = self.with_shim("run", "--config", config, "--out", out, "--no-lock", flock=fault)
                self.assertEqual(done.returncode, DONE, done.stderr)
                self.assertTrue((out / "results.rows.h5").exists())
                for command in (["merge", out, "--out", out / "all.json", "--no-lock"],
                                ["synth", "gaussian", "--tokens", 16, "--out", out / "made.h5"]):
                    done = self.with_shim(*command, flock=fault)
                    self.assertEqual(done.returncode, DONE, done.stderr)
                shutil.rmtree(out)

    def test_no_lock_does_not_let_two_runs_into_a_folder_that_can_be_locked(self):
        config = self.sweep()
        out = self.folder / "out"
        out.mkdir()
        with (out / "journal.lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            done = kvbench("run", "--config", config, "--out", out, "--no-lock")
        self.assert_refused(done, "another kvbench run is writing")

    # A file of another kind is not replaced.

    def test_nothing_is_written_over_a_file_of_another_kind(self):
        self.run_sweep()
        out = self.folder / "out"
        results, journal = out / "results.json", out / "journal.jsonl"
        dump = self.folder / "dump.h5"
        shutil.copy(self.made / "tiny.h5", dump)
        note = self.folder / "note.txt"
        note.write_text("my note\n")
        bounds = self.folder / "bounds.json"
        bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
            {"name": "n", "metric": "memory.bytes", "baseline": str(note), "relative_tolerance": 0}]}))
        commands = [["merge", out, "--out", place] for place in (journal, dump, note, "/dev/null")]
        commands += [["synth", "gaussian", "--out", place] for place in (results, journal, note)]
        commands += [["check", "--results", results, "--bounds", bounds, "--write-baselines"]]
        for command in commands:
            with self.subTest(command=command):
                before = {path: path.read_bytes() for path in (results, journal, dump, note)}
                self.assert_refused(kvbench(*command), "is there and is not")
                for path, content in before.items():
                    self.assertEqual(path.read_bytes(), content, path)
        bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
            {"name": "n", "metric": "memory.bytes", "baseline": str(out / "../out/results.json"),
             "relative_tolerance": 0}]}))
        before = results.read_bytes()
        self.assert_refused(kvbench(*commands[-1]), "/bounds/0/baseline",
                            "holds the results themselves")
        self.assertEqual(results.read_bytes(), before)
        results.write_text("my note\n")
        self.assert_refused(kvbench("run", "--config", self.folder / "small.json", "--out", out,
                                    "--fresh"), "results.json", "is there and is not")
        self.assertEqual(results.read_text(), "my note\n")

    def test_a_file_of_the_same_kind_or_an_empty_one_is_replaced(self):
        self.run_sweep()
        empty = self.folder / "empty.json"
        empty.write_text("")
        for _ in range(2):  # over the empty one, then over the results
            done = kvbench("merge", self.folder / "out", "--out", empty)
            self.assertEqual(done.returncode, DONE, done.stderr)
        dump = self.folder / "dump.h5"
        for _ in range(2):
            self.assertEqual(kvbench("synth", "gaussian", "--tokens", 8, "--out", dump).returncode, DONE)

    # Journals and results that no run writes.

    def test_journal_lines_that_are_no_records_of_their_cells_are_computed_again(self):
        whole = deterministic(self.run_sweep())
        path = self.folder / "out/journal.jsonl"
        lines = path.read_text().splitlines()

        def changed(place, value):
            record = json.loads(lines[2])
            at = record
            for name in place[:-1]:
                at = at[name]
            at[place[-1]] = value
            return json.dumps(record)

        cases = {"no key": changed(["key"], None), "key is a word": changed(["key"], "x"),
                 "another layer": changed(["key", "layer"], 99),
                 "another device": changed(["key", "device"], "x"),
                 "an error that is a word": changed(["errors", "relative_l2", "mean"], "x"),
                 "an error below 0": changed(["errors", "relative_l2", "mean"], -1),
                 "errors that are a number": changed(["errors"], 5),
                 "memory that is a number": changed(["memory"], 5),
                 "memory below 0": changed(["memory", "bytes"], -5),
                 "counters that are a list": changed(["counters"], [1]),
                 "an unknown status": changed(["status"], "fine"),
                 "a reason that is a number": changed(["reason"], 7),
                 "text behind a byte of value 0": lines[2] + "\0 garbage"}
        for what, line in cases.items():
            with self.subTest(what=what):
                path.write_text("\n".join([*lines[:2], line, *lines[3:]]) + "\n")
                done = kvbench("merge", self.folder / "out", "--out", self.folder / "all.json")
                self.assertNotEqual(done.returncode, BUG, done.stderr)
                self.assertIn("1 damaged", done.stderr)
                self.assertIn("1 missing", done.stderr)
                done = kvbench("run", "--config", self.folder / "small.json", "--out",
                               self.folder / "out")
                self.assertEqual(done.returncode, DONE, done.stderr)
                self.assertIn("1 damaged", done.stderr)
                self.assertEqual(deterministic(self.results()), whole)

    def test_results_with_a_cell_twice_are_refused(self):
        results = self.run_sweep()
        results["cells"].append(dict(results["cells"][3], id="0" * 32))
        path = self.folder / "twice.json"
        path.write_text(json.dumps(results))
        bounds = self.folder / "bounds.json"
        bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
            {"name": "n", "metric": "memory.bytes", "at_most": 1e9}]}))
        for word, command in (("same cell", ["export", "--results", path, "--format", "csv"]),
                              ("same cell", ["check", "--results", path, "--bounds", bounds]),
                              ("keys that differ only in `device`", ["compare", path, path])):
            self.assert_refused(kvbench(*command), "twice.json", word)

    def test_what_follows_a_byte_of_value_0_is_not_overlooked(self):
        self.run_sweep()
        results = self.folder / "out/results.json"
        config = self.folder / "small.json"
        for tail in (b"\0", b"\0 {}", b"\0garbage\n"):
            with self.subTest(tail=tail):
                bad = self.folder / "bad.json"
                bad.write_bytes(config.read_bytes() + tail)
                self.assert_refused(kvbench("plan", "--config", bad), "bad.json:1:", "value 0")
                bad.write_bytes(results.read_bytes() + tail)
                self.assert_refused(kvbench("export", "--results", bad, "--format", "md"), "value 0")
                self.assert_refused(kvbench("compare", bad, results), "value 0")

    # Devices, pipes and disks that fail.

    def test_devices_are_refused_at_once(self):
        config = self.sweep()
        zero = self.folder / "zero.json"
        zero.symlink_to("/dev/zero")
        out = self.folder / "out"
        out.mkdir()
        journal = out / "journal.jsonl"
        commands = [["plan", "--config", zero], ["export", "--results", zero, "--format", "csv"],
                    ["check", "--results", zero, "--bounds", zero], ["compare", zero, zero]]
        for command in commands:
            with self.subTest(command=command):
                self.assert_refused(kvbench(*command), "zero.json: is not a regular file")
        for make in (lambda: journal.symlink_to("/dev/zero"), lambda: os.mkfifo(journal)):
            make()
            self.assert_refused(kvbench("merge", out, "--out", self.folder / "all.json"),
                                "journal.jsonl: is not a regular file")
            self.assert_refused(kvbench("run", "--config", config, "--out", out),
                                "journal.jsonl: is not a regular file")
            journal.unlink()

    def test_a_named_pipe_is_not_waited_for(self):
        results = self.folder / "out/results.json"
        self.run_sweep()
        pipe = self.folder / "pipe.json"
        os.mkfifo(pipe)
        for command in (["plan", "--config", pipe], ["validate", "--config", pipe], ["compare", results, pipe],
                        ["export", "--results", pipe, "--format", "csv"], ["verify", pipe],
                        ["check", "--results", results, "--bounds", pipe]):
            with self.subTest(command=command):
                self.assert_refused(kvbench(*command), "pipe.json: is not a regular file")

    # Sizes.

    def test_sweeps_of_values_without_end(self):
        path = self.folder / "bad.json"
        for axis in ({"range": [1, 3_000_000, 1]}, {"logspace": [1, 2, 3_000_000]}):
            path.write_text(json.dumps({"schema_version": 1, "name": "n", "dumps": ["d.h5"], "algorithms": [
                {"algorithm": "keyformer", "params": {"budget": 8, "tau_init": axis}}]}))
            self.assert_refused(kvbench("plan", "--config", path), "gives 3000000 values, more than the 1000000")
        path.write_text(json.dumps({"schema_version": 1, "name": "n", "dumps": ["d.h5"], "algorithms": [
            {"algorithm": "keyformer", "params": {"budget": 8, "gen_len": i + 1, "tau_init": {"range": [1, 600_000, 1]}}}
            for i in range(2)]}))
        self.assert_refused(kvbench("plan", "--config", path), "more than 1000000 values on its axes")
        os.truncate(path, 1 << 36)
        self.assert_refused(kvbench("plan", "--config", path), "larger than 128 MiB")

    def test_a_sweep_can_come_through_a_pipe(self):
        config = self.sweep()
        for argument in ("-", "/dev/stdin"):
            done = kvbench("plan", "--config", argument, "--json", input=config.read_text())
            self.assertEqual(done.returncode, DONE, done.stderr)

    def test_a_sweep_that_cannot_be_read_to_its_end_is_bad_input(self):
        config = self.sweep(file="broken.json")
        done = self.with_shim("plan", "--config", config, read=5)
        self.assert_refused(done, "broken.json: cannot read: Input/output error")

    def test_a_sweep_whose_path_is_not_utf8_is_named_so_that_repro_runs(self):
        for name in (b"a\xffb $'\\%.json", b"plain.json"):
            path = self.folder / os.fsdecode(name)
            shutil.copy(self.sweep(), path)
            done = subprocess.run([PROGRAM, "run", "--config", path, "--out", self.folder / "out",
                                   "--fresh"], capture_output=True, check=False, cwd=self.folder)
            self.assertEqual(done.returncode, DONE, done.stderr)
            cell = self.results()["cells"][0]
            self.assertEqual(cell["repro"].split()[0], "kvbench")
            again = cell["repro"].replace("kvbench", shlex.quote(PROGRAM), 1) + " --fresh"
            done = subprocess.run(["sh", "-c", again], cwd=self.folder, capture_output=True, check=False)
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.assertEqual([c["id"] for c in self.results(f"repro/{cell['id'][:8]}")["cells"]], [cell["id"]])


if __name__ == "__main__":
    unittest.main()
