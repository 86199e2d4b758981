"""Bad input: the exit code and the words of every row of bad_inputs/, nothing on stdout, nothing
written. Rows without "exit" are refused with 2; "faults" is how many lines say so. The full text
of all messages is in bad_inputs/messages.txt; `tests/generate.sh` rewrites it, for review
as a diff. No other test compares sentences: they look for places, names and exit codes."""

import difflib
import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from damaged_dump import damaged
from program import (
    BAD_INPUT,
    BUG,
    DONE,
    INCOMPLETE,
    PROGRAM,
    SOURCE,
    VIOLATION,
    Folder,
    kvbench,
)

TABLES = SOURCE / "tests/cli/bad_inputs"
NAMES = ("sweeps", "commands", "bounds", "dumps", "caches", "calibrations")
MESSAGES = TABLES / "messages.txt"
UPDATE = "KVBENCH_UPDATE_MESSAGES"
WINDOW = {"algorithm": "window", "params": {"budget": 8}}


def table(name):
    return json.loads((TABLES / f"{name}.json").read_text())


def filled(value, places):
    """`value` with {name} replaced in every text of it; nothing else in braces is touched."""
    if isinstance(value, dict):
        return {key: filled(below, places) for key, below in value.items()}
    if isinstance(value, list):
        return [filled(below, places) for below in value]
    if isinstance(value, str):
        for name, place in places.items():
            value = value.replace("{" + name + "}", str(place))
    return value


def recorded_messages():
    """The blocks of messages.txt by table, in its order."""
    blocks = {name: [] for name in (*NAMES, "runs")}
    if MESSAGES.exists():
        for block in re.split(r"^(?=# )", MESSAGES.read_text(), flags=re.MULTILINE)[1:]:
            blocks[block[2:].split(":")[0]].append(block)
    return blocks


class BadInput(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.synth("no_out.h5", "--tokens", 32, "--d", 8, "--out-rows", 0)
        cls.synth("two.h5", "--tokens", 40, "--d", 8, "--sequences", 2, "--kv-heads", 1)

    def setUp(self):
        super().setUp()
        self.done = []  # (arguments, exit code, text) of what was refused

    def without_places(self, text):
        """`text` as it reads on every machine: without the test's folders, sizes of memory, and the
        reason why there is no device."""
        for place, name in ((self.folder, "FOLDER"), (self.made, "MADE")):
            text = text.replace(str(place), name)
        text = re.sub(r"cuda cannot be used: .*?; use", "cuda cannot be used: REASON; use", text)
        return re.sub(r"there are [0-9.]+ [KMGT]iB", "there are SOME GiB", text)

    def block(self, title, done):
        """The text that a row's commands print, as messages.txt records it; once if all print the
        same."""
        texts = {}
        for (command, *arguments), code, text in done:
            words = self.without_places(" ".join(map(str, arguments)))
            commands = texts.setdefault((code, self.without_places(text)), {})
            commands.setdefault(words, {})[str(command)] = True
        lines = [f"# {title}"]
        for (code, text), commands in texts.items():
            lines += [f"$ kvbench {'|'.join(names)} {words}".rstrip()
                      for words, names in commands.items()]
            lines += [text.rstrip("\n"), f"exit code {code}"]
        return "\n".join(lines) + "\n\n"

    def refuse(self, row, *arguments):
        """The command ends as the row says, and leaves the folder as it was."""
        before = {path: path.stat().st_mtime_ns for path in self.folder.rglob("*")}
        done = kvbench(*arguments, cwd=self.folder)
        code = row.get("exit", BAD_INPUT)
        text = done.stderr if code == BAD_INPUT else done.stderr + done.stdout
        self.done.append((arguments or ("",), done.returncode, text))
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertNotEqual(code, BUG)
        if code == BAD_INPUT:
            self.assertEqual(done.stdout, "")
        for word in row["words"]:
            self.assertIn(word, text)
        if "faults" in row:
            self.assertEqual(done.stderr.count("\n"), row["faults"], done.stderr)
        self.assertEqual({path: path.stat().st_mtime_ns for path in self.folder.rglob("*")}, before,
                         "something was written")

    def each(self, name, check):
        """Every row of a table is checked, and what it prints compared with messages.txt."""
        blocks = []
        for row in table(name):
            self.done = []
            with self.subTest(table=name, what=row["what"]):
                check(row)
            blocks.append(self.block(f"{name}: {row['what']}", self.done))
        self.compare(name, blocks)

    def compare(self, name, blocks):
        """Compares the printed text with messages.txt, or writes it there."""
        recorded = recorded_messages()
        if UPDATE in os.environ:
            recorded[name] = blocks
            MESSAGES.write_text("".join(block for part in recorded.values() for block in part))
        self.assertEqual(
            blocks, recorded[name], "\n" + "\n".join(difflib.unified_diff(
                "".join(recorded[name]).splitlines(), "".join(blocks).splitlines(),
                "recorded", "printed", n=2, lineterm=""))
            + f"\n{MESSAGES} differs; `tests/generate.sh` and review its diff")

    def written(self, row):
        """The sweep of a row, as a file."""
        if "sweep" in row:
            given = filled(row["sweep"], {"dump": self.made / "tiny.h5", "made": self.made})
            path = self.sweep(**{"algorithms": [WINDOW], **given}, file="bad.json")
            document = json.loads(path.read_text())
            for key in [key for key, value in given.items() if value is None]:
                del document[key]
            path.write_text(json.dumps(document))
            return path
        path = self.folder / "bad.json"
        path.write_text('{"a":' * row["deep"] if "deep" in row else
                        row["text"].replace("{dump}", str(self.made / "tiny.h5")))
        return path

    def test_the_tables_are_whole(self):
        rows = [row for name in NAMES for row in table(name)]
        self.assertGreaterEqual(len(rows), 100)
        for row in rows:
            self.assertTrue(row["what"] and row["words"] and all(row["words"]), row)
        for name in NAMES:
            named = [row["what"] for row in table(name)]
            self.assertEqual(len(named), len(set(named)))

    def test_sweeps(self):
        def check(row):
            config = self.written(row)
            for command in ("run", "plan", "validate"):
                self.refuse(row, command, "--config", config)
        self.each("sweeps", check)

    def test_commands(self):
        results = self.run_sweep(algorithms=[WINDOW])
        taken = self.folder / "taken"
        taken.write_text("")
        def results_file(name, **given):
            whole = {"schema_version": "1.0.0", "kind": "kvbench.results", "name": "n",
                     "status": "complete", "cells": [], **given}
            path = self.folder / f"{name}.json"
            path.write_text(json.dumps(whole))
            return path
        bounds = self.folder / "bounds.json"
        bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
            {"name": "n", "metric": "memory.bytes", "at_most": 1e9}]}))
        baselines = self.folder / "baselines.json"
        baselines.write_text(json.dumps({"schema_version": 1, "bounds": [
            {"name": name, "metric": "memory.bytes", "baseline": name, "relative_tolerance": 0}
            for name in ("gone.json", "lost.json")]}))
        diary = self.folder / "diary"
        diary.mkdir()
        (diary / "journal.jsonl").write_text("my diary\n")
        cut_short = self.folder / "cut_short.json"
        cut_short.write_bytes((self.folder / "out/results.json").read_bytes()[:700])
        places = {"sweep": self.sweep(), "folder": self.folder, "file": taken,
                  "out_folder": self.folder / "out", "other_journal": diary,
                  "cut_short": cut_short,
                  "bounds_of_missing_baselines": baselines,
                  "dump": self.made / "tiny.h5", "dump_without_out": self.made / "no_out.h5",
                  "results": self.folder / "out/results.json", "bounds": bounds,
                  "beginning_of_id": results["cells"][0]["id"][:8],
                  "odd_cells": results_file("odd_cells", cells=[7]),
                  "empty_cells": results_file("empty_cells", cells=[{}]),
                  "other_dump": results_file("other_dump", cells=[
                      {**cell, "key": {**cell["key"], "dump": "0123"}}
                      for cell in results["cells"]]),
                  "odd_layers": results_file("odd_layers", cells=results["cells"], layers={"a": {}}),
                  "bad_layers": results_file("bad_layers", cells=results["cells"], layers=[{}]),
                  "later": results_file("later", schema_version="2.0.0")}
        def check(row):
            row = filled(row, places)
            self.refuse(row, *row["arguments"])
        self.each("commands", check)

    def test_bounds(self):
        self.run_sweep(algorithms=[WINDOW])
        results = self.folder / "out/results.json"
        path = self.folder / "bounds.json"
        def check(row):
            whole = row.get("bounds", {"schema_version": 1, "bounds": [row.get("bound")]})
            path.write_text(row["text"] if "text" in row else json.dumps(whole))
            self.refuse(row, "check", "--results", results, "--bounds", path)
        self.each("bounds", check)

    def test_dumps(self):
        try:
            import h5py  # noqa: F401
        except ImportError:
            self.skipTest("no h5py")
        good = self.synth("good.h5", "--tokens", 96, "--d", 8)
        def check(row):
            path = damaged(good, self.made / "damaged.h5", row)
            row = dict(row, words=[*row["words"], "damaged.h5"])
            # In a sweep next to a good dump, and by itself.
            config = self.sweep(algorithms=[WINDOW], dumps=[str(self.made / "tiny.h5"), str(path)])
            self.refuse(row, "run", "--config", config)
            for command in ("inspect", "validate"):
                self.refuse(row, command, path)
        self.each("dumps", check)

    def test_caches(self):
        """A cache file by itself, in a sweep, and against its dump. One that does not fit is sound by
        itself."""
        try:
            import h5py
        except ImportError:
            self.skipTest("no h5py")
        good = self.made / "good_cache.h5"
        head = "/sequences/0/layers/0/heads/0"
        with h5py.File(good, "w") as cache:
            cache.attrs.update({"format": "kvbench-cache", "format_version": 1, "method": "mine"})
            group = cache.create_group(head)
            group.attrs["prompt_tokens"] = 64
            group["token"] = [0, 1, 2]
        path = self.made / "damaged_cache.h5"
        config = self.sweep(algorithms=[{"algorithm": "given", "params": {"file": str(path)}}],
                            replay={"prompt_tokens": 64})
        by_itself = (("inspect", path), ("validate", path))
        with_a_dump = (("run", "--config", config), ("validate", path, "--dump", self.made / "tiny.h5"))
        def check(row):
            row = filled(row, {"head": head})
            damaged(good, path, row)
            row = dict(row, words=[*row["words"], "damaged_cache.h5"])
            for arguments in by_itself:
                if row.get("fits", True):
                    self.refuse(row, *arguments)
                else:
                    self.assertEqual(kvbench(*arguments).returncode, DONE)
            for arguments in with_a_dump:
                if arguments[0] == row.get("command", arguments[0]):
                    self.refuse(row, *arguments)
        shutil.copy(good, path)
        for arguments in (*by_itself, *with_a_dump):
            done = kvbench(*arguments, cwd=self.made)
            self.assertEqual(done.returncode, DONE, done.stderr)
        self.each("caches", check)

    def test_calibrations(self):
        try:
            import h5py  # noqa: F401
        except ImportError:
            self.skipTest("no h5py")
        good = self.made / "good.cal.h5"
        made = kvbench("calibrate", "--method", "qfilters", "--dump", self.made / "tiny.h5", "--out", good)
        self.assertEqual(made.returncode, DONE, made.stderr)
        path = self.made / "damaged.cal.h5"
        config = self.sweep(algorithms=[{"algorithm": "qfilters",
                                         "params": {"budget": 8, "calibration": str(path)}}])
        def check(row):
            row = filled(row, {"head": "/layers/0/heads/0"})
            damaged(good, path, row)
            self.refuse(dict(row, words=[*row["words"], "damaged.cal.h5"]), "run", "--config", config)
        shutil.copy(good, path)
        done = kvbench("plan", "--config", config)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.each("calibrations", check)

    def test_runs(self):
        """The messages of commands that succeed, or half: no refusals, so their exit codes
        differ."""
        small = self.sweep()
        other = self.sweep(name="other", seeds=[1, 5])
        rows = self.sweep(name="rows", output={"rows": True})
        results = "out/results.json"
        baseline = self.folder / "bounds.json"
        baseline.write_text(json.dumps({"schema_version": 1, "bounds": [
            {"name": "small", "where": {"algorithm": "window", "layer": 0},
             "metric": "memory.bytes", "at_most": 600},
            {"name": "better", "where": {"algorithm": "window"}, "metric": "memory.bytes",
             "than": {"algorithm": "uniform"}, "paired_by": ["layer", "kv_head"]}]}))
        self.folder.joinpath("empty").mkdir()
        steps = (
            ("a run", DONE, "run", "--config", small, "--out", "out"),
            ("the same run again", DONE, "run", "--config", small, "--out", "out"),
            ("a run of another sweep", BAD_INPUT, "run", "--config", other, "--out", "out"),
            ("two sweeps in one folder", DONE, "run", "--config", other, "--out", "out", "--add", "--quiet"),
            ("the first sweep again", DONE, "run", "--config", small, "--out", "out", "--add", "--quiet"),
            ("rows are asked for later", DONE, "run", "--config", rows, "--out", "out"),
            ("a shard", DONE, "run", "--config", small, "--shard", "1/2", "--out", "s1"),
            ("a merge without the other shard", INCOMPLETE, "merge", "s1", "empty", "--out", "m.json"),
            ("a check", VIOLATION, "check", "--results", results, "--bounds", baseline),
            ("a check of what is incomplete", VIOLATION, "check", "--results", "m.json", "--bounds", baseline),
            ("a comparison with what is incomplete", DONE, "compare", results, "m.json"),
            ("a plan", DONE, "plan", "--config", small, "--shard", "2/2"))
        blocks = []
        for what, code, *arguments in steps:
            done = kvbench(*arguments, cwd=self.folder)
            text = re.sub(r"\b[0-9a-f]{32}\b|\d+\.\d+(e[-+]\d+)?|\d+e[-+]\d+"
                          r"|\d+(?= (s|min|h|[KMGT]?i?B|threads|timed cells)\b)",
                          "#", done.stderr + done.stdout)
            text = re.sub(r" {2,}(?=\S)", "  ", re.sub(r" +(?=#)", " ", text))
            blocks.append(self.block(f"runs: {what}", [(arguments, done.returncode, text)]))
            with self.subTest(what=what):
                self.assertEqual(done.returncode, code, done.stderr)
        self.compare("runs", blocks)

    def test_a_tensor_that_stores_less_than_its_shape_wants(self):
        try:
            import h5py
        except ImportError:
            self.skipTest("no h5py")
        path = self.made / "compact.h5"
        path.write_bytes((self.made / "tiny.h5").read_bytes())
        name = "/sequences/0/layers/0/v"
        with h5py.File(path, "r+") as dump:  # inside its header, as HDF5 keeps small datasets
            v = dump[name][...]
            attributes = dict(dump[name].attrs)
            del dump[name]
            layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            layout.set_layout(h5py.h5d.COMPACT)
            dataset = h5py.h5d.create(dump.id, name.encode(), h5py.h5t.py_create(v.dtype),
                                      h5py.h5s.create_simple(v.shape), layout)
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, v)
            dump[name].attrs.update(attributes)
        done = kvbench("validate", path)
        self.assertEqual(done.returncode, DONE, done.stderr)
        sound = path.read_bytes()
        # Version 3 of the layout message, class compact, its size.
        message = b"\x03\x00" + v.nbytes.to_bytes(2, "little")
        self.assertEqual(sound.count(message), 1)
        path.write_bytes(sound.replace(message, b"\x03\x00" + (8).to_bytes(2, "little")))
        for command in ("inspect", "validate"):
            self.refuse({"words": ["compact.h5", name]}, command, path)  # HDF5 1.14 refuses it in words of its own

    def test_two_dumps_of_the_same_content(self):
        copy = self.made / "copy.h5"
        copy.write_bytes((self.made / "tiny.h5").read_bytes())
        config = self.sweep(dumps=[str(self.made / "tiny.h5"), str(copy)])
        for command in ("run", "plan", "validate"):
            self.refuse({"words": ["tiny.h5", "copy.h5"]}, command, "--config", config)

    def test_a_folder_whose_journal_is_something_else(self):
        out = self.folder / "out"
        out.mkdir()
        config = self.sweep()
        for text in ("my diary\n", '{"kind": 7}\n', '{"kind": "kvbench.journal"}\n'):
            (out / "journal.jsonl").write_text(text)
            done = kvbench("run", "--config", config, "--out", out)
            self.assert_refused(done, "journal.jsonl", "--fresh")
            self.assertEqual((out / "journal.jsonl").read_text(), text)

    def test_stdout_that_cannot_be_written(self):
        for arguments in (["list", "algorithms"], ["list", "metrics", "--json"],
                          ["plan", "--config", str(self.sweep()), "--json"]):
            with Path("/dev/full").open("w", encoding="utf-8") as full:
                done = subprocess.run([PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE,
                                      text=True, check=False, timeout=300)
            self.assertEqual(done.returncode, BAD_INPUT, done.stderr)
            self.assertIn("standard output", done.stderr)

    def test_the_good_inputs_of_these_tests_are_good(self):
        """The inputs that the rows change pass unchanged: no row is refused for another reason."""
        config = self.sweep(algorithms=[WINDOW])
        done = kvbench("validate", "--config", config)
        self.assertEqual(done.returncode, DONE, done.stderr)
        for dump in ("tiny.h5", "no_out.h5"):
            done = kvbench("inspect", self.made / dump)
            self.assertEqual(done.returncode, DONE, done.stderr)
        self.run_sweep(algorithms=[WINDOW])
        bounds = self.folder / "bounds.json"
        bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
            {"name": "n", "metric": "memory.bytes", "at_most": 1e9}]}))
        done = kvbench("check", "--results", self.folder / "out/results.json", "--bounds", bounds)
        self.assertEqual(done.returncode, DONE, done.stderr)


if __name__ == "__main__":
    unittest.main()
