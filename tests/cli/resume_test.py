"""Interruptions: kill -9, signals, torn journals, two processes at once, a full disk."""

import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import time
import unittest

from program import DONE, INCOMPLETE, PROGRAM, Folder, deterministic, kvbench

# Slow enough to be interrupted in the middle, on any machine.
LONG = {"algorithms": [
    {"algorithm": "subgen", "params": {"delta_quantile": [0.05, 0.2], "t": [4, 16],
                                       "s": {"pow2": [6, 9]}}},
    {"algorithm": "h2o", "params": {"budget": [64, 128]}}], "seeds": {"first": 0, "count": 20}}


class Resume(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.synth("long.h5", "--tokens", 768, "--d", 32, "--layers", 3)

    def long_sweep(self, **more):
        return self.sweep(dumps=[str(self.made / "long.h5")], **LONG, **more)

    def start(self, config, out="out", *options):
        return subprocess.Popen(
            [PROGRAM, "run", "--config", str(config), "--out", str(self.folder / out), *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_lines(self, process, lines, out="out"):
        """Until the journal has `lines` lines, or the process has ended."""
        path = self.folder / out / "journal.jsonl"
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if path.exists() and path.read_bytes().count(b"\n") >= lines:
                return
            time.sleep(0.002)

    def undisturbed(self, config):
        done = kvbench("run", "--config", config, "--out", self.folder / "undisturbed")
        self.assertEqual(done.returncode, DONE, done.stderr)
        return deterministic(self.results("undisturbed"))

    def test_a_run_that_waits_for_its_sweep_ends_at_once(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            process = subprocess.Popen([PROGRAM, "run", "--config", "-"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(0.3)
            process.send_signal(number)
            process.wait(timeout=10)
            self.assertEqual(process.returncode, -number)
            for stream in (process.stdin, process.stdout, process.stderr):
                stream.close()

    def test_killed_at_any_moment_and_run_again_equals_an_undisturbed_run(self):
        config = self.long_sweep()
        expected = self.undisturbed(config)
        for lines in (1, 2, 40, 41, 150, 300):
            process = self.start(config)
            self.wait_for_lines(process, lines)
            process.kill()
            process.communicate()
            journal = self.folder / "out/journal.jsonl"
            before = journal.read_bytes() if journal.exists() else b""
            whole = before[:before.rfind(b"\n") + 1]
            again = self.start(config)
            self.wait_for_lines(again, whole.count(b"\n") + 3)
            again.kill()
            again.communicate()
            if whole:
                self.assertEqual(journal.read_bytes()[:len(whole)], whole)
        done = kvbench("run", "--config", config, "--out", self.folder / "out")
        self.assertEqual(done.returncode, DONE, done.stderr)
        results = self.results()
        self.assertEqual(deterministic(results), expected)
        ids = [json.loads(line)["id"] for line in self.journal()[1:]]
        self.assertEqual(len(ids), len(set(ids)), "a finished cell was computed twice")
        self.assertGreater(len(results["provenance"]), 1)

    def test_signals_end_with_5_and_an_incomplete_result_that_can_be_resumed(self):
        config = self.long_sweep()
        expected = self.undisturbed(config)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            out = f"out-{number}"
            process = self.start(config, out)
            self.wait_for_lines(process, 20, out)
            process.send_signal(number)
            _, printed = process.communicate(timeout=120)
            self.assertEqual(process.returncode, INCOMPLETE, printed)
            self.assertIn("rerun the same command", printed)
            results = self.results(out)
            self.assertEqual(results["status"], "incomplete")
            self.assertEqual(len(results["cells"]), len(self.journal(out)) - 1)
            self.assertLess(len(results["cells"]), results["plan"]["cells"])
            done = kvbench("run", "--config", config, "--out", self.folder / out)
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.assertEqual(deterministic(self.results(out)), expected)
            self.assertEqual(self.results(out)["status"], "complete")

    def test_signals_end_work_that_is_done_before_any_cell(self):
        # Keyformer's shared score is decided for all layers and heads, here for 400 seeds, before the
        # first cell: minutes of work that no line of the journal tells of.
        dump = self.synth("wide.h5", "--tokens", 1024, "--d", 32, "--layers", 6)
        config = self.sweep([{"algorithm": "keyformer", "params": {"budget": 256, "scope": "model"}}],
                            dumps=[str(dump)], seeds={"first": 0, "count": 400})
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            process = self.start(config)
            self.wait_for_lines(process, 1)
            time.sleep(1)
            process.send_signal(number)
            _, printed = process.communicate(timeout=20)
            self.assertEqual(process.returncode, INCOMPLETE, printed)
            self.assertEqual(len(self.journal()), 1)
            self.assertEqual(self.results()["cells"], [])
        one = ("--config", config, "--set", "/seeds=[7]")
        for out in ("out", "undisturbed"):
            done = kvbench("run", *one, "--out", self.folder / out)
            self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(deterministic(self.results()), deterministic(self.results("undisturbed")))

    def test_a_second_sigint_kills_at_once(self):
        process = self.start(self.long_sweep())
        self.wait_for_lines(process, 5)
        os.kill(process.pid, signal.SIGSTOP)  # both arrive before it can finish by itself
        process.send_signal(signal.SIGINT)
        os.kill(process.pid, signal.SIGCONT)
        for _ in range(100):
            if process.poll() is not None:
                break
            process.send_signal(signal.SIGINT)
            time.sleep(0.001)
        process.communicate(timeout=120)
        self.assertIn(process.returncode, (-signal.SIGINT, INCOMPLETE))

    def test_two_processes_on_one_folder_are_refused(self):
        config = self.long_sweep()
        first = self.start(config)
        self.wait_for_lines(first, 2)
        done = kvbench("run", "--config", config, "--out", self.folder / "out")
        self.assert_refused(done, "another kvbench run", "--out")
        first.terminate()
        first.communicate()
        self.assertEqual(first.returncode, INCOMPLETE)

    def test_a_full_disk_ends_with_a_clear_error_and_an_intact_journal(self):
        config = self.sweep()
        expected = deterministic(self.run_sweep())
        limit = (self.folder / "out/journal.jsonl").stat().st_size // 2

        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        done = kvbench("run", "--config", config, "--out", self.folder / "full",
                       preexec_fn=small_files)
        self.assertEqual(done.returncode, INCOMPLETE, done.stderr)
        self.assertIn("journal.jsonl", done.stderr)
        text = (self.folder / "full/journal.jsonl").read_text()
        self.assertTrue(text.endswith("\n"))
        for line in text.splitlines():
            json.loads(line)
        done = kvbench("run", "--config", config, "--out", self.folder / "full")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(deterministic(self.results("full")), expected)

    def test_a_changed_sweep_keeps_the_cells_that_stay(self):
        self.run_sweep()
        lines = self.journal()
        results = self.run_sweep("--set", "/seeds=[0,1,2]")
        self.assertEqual(results["status"], "complete")
        self.assertEqual(self.journal()[1:len(lines)], lines[1:])
        self.assertEqual(len(self.journal()) - len(lines), 2 * 2 * 2)
        done = kvbench("run", "--config", self.sweep(seeds=[0, 1, 2]), "--out",
                       self.folder / "other")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(deterministic(results), deterministic(self.results("other")))

    def test_another_sweep_is_refused_and_changes_nothing(self):
        self.run_sweep()
        before = {path: path.read_bytes() for path in (self.folder / "out").iterdir()}
        others = {"other seeds": self.sweep(seeds=[1, 5]), "fewer cells": self.sweep(seeds=[1]),
                  "another method": self.sweep([{"algorithm": "window", "params": {"budget": 9}}])}
        for what, config in others.items():
            with self.subTest(what):
                for options in ((), ("--quiet",), ("--shard", "1/2")):
                    done = kvbench("run", "--config", config, "--out", self.folder / "out", *options)
                    self.assert_refused(done, "finished cells of another sweep", '"small"', "--out",
                                        "--fresh", "--add")
        part = ("--config", self.sweep(), "--only", "window/*/*/*/*")
        done = kvbench("run", *part, "--out", self.folder / "out")
        self.assert_refused(done, "has 20 finished cells of another sweep")  # exact and uniform
        self.assertEqual({path: path.read_bytes() for path in (self.folder / "out").iterdir()}, before)
        # Its three remedies work.
        self.assertEqual(kvbench("run", *part, "--out", self.folder / "part").returncode, DONE)
        self.assertEqual(kvbench("run", *part, "--out", self.folder / "out", "--add").returncode, DONE)
        self.assertEqual(kvbench("run", *part, "--out", self.folder / "out", "--fresh").returncode,
                         DONE)
        self.assertEqual(deterministic(self.results()), deterministic(self.results("part")))

    def test_a_sweep_without_a_file_leaves_the_other_one_s_file(self):
        words = ("run", "--dump", self.made / "tiny.h5", "--algorithm", "window", "--out",
                 self.folder / "out", "--budget")
        self.assertEqual(kvbench(*words, 8).returncode, DONE)
        before = (self.folder / "out/sweep.json").read_bytes()
        self.assert_refused(kvbench(*words, 16), "--add")
        self.assertEqual((self.folder / "out/sweep.json").read_bytes(), before)

    def test_sweeps_of_one_folder_keep_their_results(self):
        first = self.run_sweep()
        lines = self.journal()
        narrow = ("--config", self.sweep(seeds=[1, 5]), "--out", self.folder / "out", "--add")
        done = kvbench("run", *narrow)
        self.assertEqual(done.returncode, DONE, done.stderr)
        kept = self.folder / f"out/results-{first['plan']['hash'][:8]}.json"
        self.assertIn("20 cells already done", done.stderr)
        self.assertIn("8 cells of other sweeps", done.stderr)
        self.assertIn(f"are kept as {kept}", done.stderr)
        self.assertEqual(json.loads(kept.read_text()), first)
        self.assertEqual(self.journal()[1:len(lines)], lines[1:])
        # The same sweep again needs no option.
        second = self.results()
        done = kvbench("run", *narrow[:-1])
        self.assertEqual(done.returncode, DONE, done.stderr)
        done = kvbench("run", "--config", self.sweep(), "--out", self.folder / "out", "--add")
        self.assertIn("28 cells already done", done.stderr)
        self.assertEqual(deterministic(self.results()), deterministic(first))
        kept = self.folder / f"out/results-{second['plan']['hash'][:8]}.json"
        self.assertEqual(deterministic(json.loads(kept.read_text())), deterministic(second))

    def test_a_journal_that_is_emptied_ends_a_run_and_not_the_program(self):
        config = self.long_sweep()
        process = self.start(config)
        self.wait_for_lines(process, 20)
        os.truncate(self.folder / "out/journal.jsonl", 0)
        _, printed = process.communicate(timeout=120)
        self.assertEqual(process.returncode, INCOMPLETE, printed)
        self.assertIn("another program", printed)
        done = kvbench("run", "--config", config, "--out", self.folder / "out")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(deterministic(self.results()), self.undisturbed(config))

    def test_a_number_changed_in_the_rows_is_computed_again(self):
        self.run_sweep(output={"rows": True})
        rows = self.folder / "out/results.rows.h5"
        before = rows.read_bytes()
        damaged = bytearray(before)
        at = before.index(struct.pack("<d", 0.0) * 2)  # errors of `exact`
        damaged[at + 6] ^= 0x40
        rows.write_bytes(damaged)
        done = kvbench("run", "--config", self.folder / "small.json", "--out", self.folder / "out")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(rows.read_bytes(), before)

    def test_the_table_of_an_unfinished_run_is_over_the_heads_that_are_whole(self):
        whole = self.run_sweep()
        lines = self.journal()
        lost = next(cell for cell in whole["cells"] if cell["key"]["layer"] == 1)
        (self.folder / "out/journal.jsonl").write_text(
            "".join(line + "\n" for line in lines if lost["id"] not in line))
        done = kvbench("run", "--config", self.sweep(), "--out", self.folder / "out", "--shard", "2/2")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertIn("3 of 4 KV heads", done.stderr)
        errors = [cell["errors"]["relative_frobenius_error"] for cell in whole["cells"]
                  if cell["key"]["params"] == {"budget": 32}
                  and (cell["key"]["layer"], cell["key"]["kv_head"]) != (1, lost["key"]["kv_head"])]
        self.assertEqual(len(errors), 3)
        row = next(line for line in done.stderr.splitlines() if line.startswith("window "))
        self.assertIn(f"{sum(errors) / 3:.4g}", row.split())
        # Without a whole head there is nothing to compare.
        (self.folder / "out/journal.jsonl").write_text(
            "".join(line + "\n" for line in lines if '"exact"' not in line or "kind" in line))
        done = kvbench("run", "--config", self.sweep(), "--out", self.folder / "out", "--shard", "5/5")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertIn("no KV head is complete", done.stderr)
        self.assertNotIn("best setting", done.stderr)

    def test_a_dump_that_changed_is_refused_with_a_remedy(self):
        dump = self.folder / "changing.h5"
        shutil.copy(self.made / "tiny.h5", dump)
        results = self.run_sweep(dumps=[str(dump)])
        journal = self.journal()
        dump.unlink()
        done = kvbench("synth", "gaussian", "--out", dump, "--tokens", 96, "--d", 8, "--seed", 9)
        self.assertEqual(done.returncode, DONE, done.stderr)
        config = self.sweep(dumps=[str(dump)])
        refused = ("changing.h5", "has changed", results["dumps"][0]["fingerprint"], "--fresh")
        done = kvbench("run", "--config", config, "--out", self.folder / "out")
        self.assert_refused(done, *refused)
        self.assertEqual(self.journal(), journal)
        # Also after a sweep on another dump stood in that folder.
        other = self.sweep(name="other")
        done = kvbench("run", "--config", other, "--out", self.folder / "two")
        done = kvbench("run", "--config", config, "--out", self.folder / "two", "--add")
        self.assertEqual(done.returncode, DONE, done.stderr)
        done = kvbench("run", "--config", other, "--out", self.folder / "two", "--add")
        self.assertEqual(done.returncode, DONE, done.stderr)
        dump.unlink()
        kvbench("synth", "gaussian", "--out", dump, "--tokens", 96, "--d", 8, "--seed", 10)
        done = kvbench("run", "--config", config, "--out", self.folder / "two")
        self.assert_refused(done, "changing.h5", "has changed", "--fresh")
        # --fresh begins anew; a dump that only moved is the same dump.
        done = kvbench("run", "--config", config, "--out", self.folder / "two", "--fresh")
        self.assertEqual(done.returncode, DONE, done.stderr)
        dump.rename(self.folder / "moved.h5")
        done = kvbench("run", "--config", self.sweep(dumps=[str(self.folder / "moved.h5")]),
                       "--out", self.folder / "two")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertIn("14 cells already done", done.stderr)

    def test_a_finished_run_is_read_again_only_if_a_file_has_changed(self):
        config = self.sweep(output={"rows": True, "caches": True})
        out = self.folder / "out"
        first = kvbench("run", "--config", config, "--out", out)
        self.assertEqual(first.returncode, DONE, first.stderr)
        table = first.stderr[first.stderr.index("\n\n"):]
        expected = deterministic(self.results())
        results, rows, journal = (out / name for name in
                                  ("results.json", "results.rows.h5", "journal.jsonl"))
        values = rows.read_bytes()

        def again(*options, already=28):
            """Whether results.json was written anew; all that is written and printed is as it was."""
            held = self.folder / "held"  # a second name, so that its inode is not used again
            held.unlink(missing_ok=True)
            if results.exists():
                held.hardlink_to(results)
            done = kvbench("run", "--config", config, "--out", out, *options)
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.assertIn(f"{already} cells already done\n", done.stderr)
            self.assertTrue(done.stderr.endswith(table), done.stderr)
            self.assertTrue(deterministic(self.results()) == expected)
            self.assertTrue(rows.read_bytes() == values)
            return not held.exists() or not held.samefile(results)

        self.assertFalse(again())
        self.assertFalse(again("--add"))
        damages = {
            results: lambda text: text.replace(b'"errors"', b'"Errors"', 1),
            rows: lambda text: text[:-8] + b"damaged!",
            out / "finished.jsonl": lambda text: text.replace(b'"mean":', b'"mean":1', 1),
            journal: lambda text: text.replace(b"relative_l2", b"Relative_l2", 1),
        }
        for path, damage in damages.items():
            with self.subTest(path.name):
                whole = path.read_bytes()
                path.write_bytes(damage(whole))
                self.assertNotEqual(path.read_bytes(), whole)
                self.assertTrue(again())
                (out / "results.rows.h5.damaged").unlink(missing_ok=True)
                self.assertFalse(again())
                if path != journal:
                    path.unlink()
                    self.assertTrue(again())
                    self.assertFalse(again())
        lines = journal.read_bytes().splitlines(keepends=True)
        lost = json.loads(lines[-1])["id"].encode()
        for now, already in ((lines + lines[-1:], 28), ([*lines, lines[-1][:40]], 28),
                             ([line for line in lines if lost not in line], 27)):
            with self.subTest(journal=len(now), already=already):
                journal.write_bytes(b"".join(now))
                self.assertTrue(again(already=already))
                self.assertFalse(again())
        # A cache that is gone is computed again, and the others are read from the journal.
        cache = next((out / "caches").glob("*.h5"))
        content = cache.read_bytes()
        cache.unlink()
        self.assertTrue(again())
        self.assertEqual(cache.read_bytes(), content)
        self.assertFalse(again())
        # Paths in results.json depend on the working folder.
        elsewhere = kvbench("run", "--config", config, "--out", out, cwd=self.folder)
        self.assertEqual(elsewhere.returncode, DONE, elsewhere.stderr)
        self.assertEqual(self.results()["dumps"][0]["path"], "../tiny.h5")
        self.assertTrue(again())

    def test_a_number_of_a_finished_run_is_printed(self):
        config = self.sweep([{"algorithm": "window", "params": {"budget": 8}}])
        words = ("run", "--config", config, "--out", self.folder / "out", "--print",
                 "errors.relative_frobenius_error")
        first, second = kvbench(*words), kvbench(*words)
        self.assertEqual(second.returncode, DONE, second.stderr)
        self.assertEqual(second.stdout, first.stdout)

    def test_a_damaged_file_of_rows_is_told_of_and_its_cells_are_computed_again(self):
        self.run_sweep(output={"rows": True})
        rows = self.folder / "out/results.rows.h5"
        before = rows.read_bytes()
        for options in ((), ("--quiet",)):
            rows.write_bytes(b"torn")
            done = kvbench("run", "--config", self.folder / "small.json", "--out",
                           self.folder / "out", *options)
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.assertIn(f"kvbench: warning: {rows}: is damaged and was renamed to {rows}.damaged",
                          done.stderr)
            self.assertEqual((self.folder / "out/results.rows.h5.damaged").read_bytes(), b"torn")
            self.assertEqual(rows.read_bytes(), before)
        done = kvbench("run", "--config", self.folder / "small.json", "--out", self.folder / "out")
        self.assertNotIn("damaged", done.stderr)

    def test_rows_that_a_kill_left_half_written_are_put_together_again(self):
        config = self.sweep(output={"rows": True})
        self.run_sweep(output={"rows": True})
        expected = (self.folder / "out/results.rows.h5").read_bytes()
        process = self.start(self.long_sweep(name="long", output={"rows": True}), "torn")
        self.wait_for_lines(process, 60, "torn")
        process.kill()
        process.communicate()
        rows = self.folder / "torn/results.rows.h5"
        journal = self.folder / "torn/results.rows.h5.journal"
        self.assertFalse(rows.exists())
        # As if the kill had come in the middle of a write.
        with journal.open("ab") as file:
            file.write(journal.read_bytes()[:50])
        lines = self.journal("torn")
        done = kvbench("run", "--config", self.folder / "long.json", "--out", self.folder / "torn")
        self.assertEqual(done.returncode, DONE, done.stderr)
        ids = [json.loads(line)["id"] for line in self.journal("torn")[1:]]
        self.assertGreater(len(ids), len(lines))
        self.assertEqual(len(ids), len(set(ids)), "a finished cell was computed twice")
        done = kvbench("run", "--config", self.folder / "long.json", "--out", self.folder / "whole")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(rows.read_bytes(), (self.folder / "whole/results.rows.h5").read_bytes())
        self.assertEqual({path.name for path in rows.parent.iterdir()},
                         {"finished.jsonl", "journal.jsonl", "journal.lock", "results.json",
                          "results.rows.h5"})
        # Rows that are gone altogether are computed again.
        (self.folder / "out/results.rows.h5").unlink()
        done = kvbench("run", "--config", config, "--out", self.folder / "out")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertIn("28 cells already done\n28 of them are computed again", done.stderr)
        self.assertEqual((self.folder / "out/results.rows.h5").read_bytes(), expected)


if __name__ == "__main__":
    unittest.main()
