"""Files made to stop kvplot: HDF5 that crashes or never ends, pipes without a writer, texts without end,
names that are no formulas. Each ends within limits, with 0 or with 2 and one sentence.

Exits 77 where a Python package is missing.
"""

import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
try:
    import h5py
    import numpy
    from called import called
    from kvplot import ResultsError, child, terminal
    from kvplot.dump import Dump
    from kvplot.results import Results
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from made_results import cell, document

PROCESSOR = 10  # seconds, on a machine that has other work


def dump_file(path, **tensors):
    """A dump of one head, with other tensors where they are given."""
    numbers = numpy.random.default_rng(1)
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs.update({"format": "kvbench-dump", "format_version": 1, "model": "made",
                           "producer": "a test", "n_layers": 1})
        layer = file.create_group("sequences/0/layers/0")
        layer.attrs.update({"scale": 0.5, "sliding_window": 0, "logit_softcap": 0.0})
        for name in "qkv":
            if name in tensors:
                tensors[name](layer)
            else:
                layer[name] = numbers.standard_normal((1, 24, 4)).astype("f4")
    return path


class Hostile(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)

    def written(self, content, name="results.json"):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    def refused(self, file, *words, command=("report",)):
        before = time.process_time()
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        code, said = called(*command, file, "--out", self.folder / "out.html")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = (time.process_time() - before + after.ru_utime - children.ru_utime
                 + after.ru_stime - children.ru_stime)
        self.assertEqual(code, 2, said)
        self.assertEqual(said.count("\n"), 1, said)
        for word in (file.name, *words):
            self.assertIn(word, said)
        self.assertLess(spent, PROCESSOR)


class InChild(Hostile):
    """HDF5 runs in a child process."""

    BARS = ("score_bars", "--decoded", "8", "--png-only", "--dump")

    def test_a_sound_dump_is_read(self):
        code, said = called(*self.BARS, dump_file(self.folder / "d.h5"), "--out", self.folder / "out")
        self.assertEqual(code, 0, said)

    def test_a_heap_that_is_read_for_ever(self):
        path = dump_file(self.folder / "d.h5")
        data = bytearray(path.read_bytes())
        data[data.index(b"GCOL") + 24] = 255  # the size of its first text, which has fewer bytes
        path.write_bytes(data)
        self.refused(path, "reading it did not come to an end", "HDF5", command=self.BARS)

    def test_a_shape_that_takes_far_more_than_the_file(self):
        def keys(layer):
            zeros = zlib.compress(bytes(4 * 2**22))
            made = layer.create_dataset("k", (1, 24, 2**24), "f4", chunks=(1, 1, 2**22),
                                        compression="gzip")
            for row in range(24):
                for column in range(0, 2**24, 2**22):
                    made.id.write_direct_chunk((0, row, column), zeros)

        path = dump_file(self.folder / "d.h5", k=keys)
        self.refused(path, "takes far more memory than the file has bytes", command=self.BARS)

    def test_a_tensor_that_was_never_written(self):
        path = dump_file(self.folder / "d.h5", k=lambda layer: layer.create_dataset(
            "k", (1, 24, 4), "f4"))
        self.refused(path, "layer 0: k was never written", command=self.BARS)
        path = dump_file(self.folder / "part.h5", k=lambda layer: layer.create_dataset(
            "k", (1, 24, 4), "f4", chunks=(1, 5, 4)).__setitem__((0, 3), 1))
        self.refused(path, "layer 0: k was never written, or in part", command=self.BARS)

    def test_more_heads_than_a_dump_has(self):
        path = dump_file(self.folder / "d.h5", k=lambda layer: layer.create_dataset(
            "k", (8193, 24, 4), "f4", chunks=(1, 24, 4)))
        self.refused(path, "layer 0: k has 8193 heads", command=self.BARS)

    def test_a_layer_whose_name_is_not_utf8(self):
        path = dump_file(self.folder / "d.h5")
        with h5py.File(path, "r+") as file:
            layers = file["sequences/0/layers"]
            layers[b"\xff"] = layers["0"]
        self.refused(path, "a layer of 0 has a name that is not UTF-8", command=self.BARS)

    def test_what_ends_the_process_ends_the_child(self):
        path = self.written(b"")
        for work, words in ((os.abort, "crashed"), (lambda: os._exit(7), "exit code 7"),
                            (lambda: bytearray(2**30), "more memory")):
            with self.assertRaisesRegex(child.ChildError, words):
                child.in_child(path, work)
        self.assertEqual(child.in_child(path, lambda: [1]), [1])
        with self.assertRaises(ZeroDivisionError):
            child.in_child(path, lambda: 1 / 0)

    def test_rotation_that_lies_in_another_file_is_not_followed(self):
        other = self.folder / "other.h5"
        with h5py.File(other, "w") as file:
            file["rope/inv_freq"] = numpy.ones(2)
            file["rope"].attrs["layout"] = "half"
        path = dump_file(self.folder / "d.h5")
        with h5py.File(path, "r+") as file:
            file["rope"] = h5py.ExternalLink("other.h5", "/rope")
        with self.assertRaisesRegex(ResultsError, "leads to another file"):
            Dump(path).rope(0)

    def test_rows_that_lie_in_another_file_are_not_followed(self):
        results = Results(self.written(document([cell("window", {"budget": 8}, 0.1, 0.5, id="c")])))
        with h5py.File(self.folder / "other.h5", "w") as file:
            file["c/rows"], file["c/relative_l2"] = numpy.arange(3), numpy.ones((1, 3))
        with h5py.File(self.folder / "results.rows.h5", "w") as file:
            file["c"] = h5py.ExternalLink("other.h5", "/c")
        with self.assertRaisesRegex(ResultsError, "leads to another file"):
            results.rows("relative_l2")
        (self.folder / "other.h5").replace(self.folder / "results.rows.h5")
        self.assertEqual(results.rows("relative_l2")["row"].tolist(), [0, 1, 2])


class Json(Hostile):
    def test_a_pipe_in_a_folder_is_not_waited_for_and_one_of_a_shell_is_read(self):
        path = self.folder / "pipe.json"
        os.mkfifo(path)
        self.refused(path, "not a regular file")
        text = json.dumps(document([cell("window", {"budget": 8}, 0.1, 0.5)])).encode()
        out, into = os.pipe()
        writer = threading.Thread(target=lambda: (os.write(into, text), os.close(into)))
        writer.start()
        self.assertEqual(len(Results(f"/dev/fd/{out}").frame), 1)
        writer.join()
        os.close(out)

    def test_sizes(self):
        """In a process of its own with 1 GiB of addresses: a sparse file of 64 GiB, texts of 50 MB."""
        made = json.dumps(document([cell("window", {"budget": 8}, 0.1, 0.5)]))
        long = "x" * 50_000_000
        sparse = self.folder / "sparse.json"
        with sparse.open("wb") as file:
            file.truncate(2**36)
        begun = self.folder / "begun.json"
        with begun.open("wb") as file:
            file.write(b'{"a": "')
            file.truncate(2**36)
        files = ((sparse, "expected a JSON object"), (begun, "more than 256 MiB"),
                 (self.written(f'"{long}"'.encode(), "text.json"), "expected a JSON object"),
                 (self.written(made.replace('"made"', f'"{long}"', 1).encode(), "name.json"),
                  "/name: expected text"),
                 (self.written(b"[" + b"1," * 20_000_000 + b"1]", "list.json"), "JSON object"))
        for path, words in files:
            with self.subTest(file=path.name):
                done = subprocess.run(
                    [sys.executable, "-m", "kvplot", "report", path, "--out", self.folder / "o.html"],
                    capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1",
                                                                      "OPENBLAS_NUM_THREADS": "1"},
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30)))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(words, done.stderr)

    def test_sound_results_are_drawn_whatever_their_layout(self):
        """A file of 8 MB, laid out as kvbench does and compactly."""
        cells = [cell("window", {"budget": 1 + number % 50}, 0.1 + number / 1e6, 0.5, seed=number,
                      label=f"w{number % 50}") for number in range(16_000)]
        whole = document([])
        compact = self.written(json.dumps({**whole, "cells": cells}, separators=(",", ":")).encode())
        self.assertGreater(compact.stat().st_size, 7_000_000)
        frame = Results(compact).frame
        self.assertEqual(len(frame), len(cells))
        lines = ",\n".join("    " + json.dumps(each) for each in cells)
        text = json.dumps(whole, indent=2).replace('"cells": []', f'"cells": [\n{lines}\n  ]')
        self.assertEqual(len(Results(self.written(text.encode(), "lines.json")).frame), len(cells))

    def test_results_that_lack_a_column_of_a_figure(self):
        errors = {"epsilon_spectral": {"last": 0.1, "mean": 0.1}}
        path = self.written(document([cell("window", {"budget": 8}, 0.1, 0.5, derived={"vacuous": False},
                                           errors=errors)]))
        self.refused(path, "no finished cell has params.s; the gallery", command=("failure_rate", "--results"))

    def test_a_message_quotes_no_long_text(self):
        made = document([cell("window", {"budget": 8}, 0.1, 0.5)])
        for name in ("kind", "schema_version", "name"):
            path = self.written({**made, name: "x" * 5_000_000})
            code, said = called("report", path, "--out", self.folder / "out.html")
            self.assertEqual(code, 2)
            self.assertLess(len(said), 5000)
            self.assertIn(str(path), said)
        long = terminal.one_line("kvplot: " + "x" * 100_000 + "; do Y")
        self.assertEqual(long, "kvplot: " + "x" * 3064 + " ... 95918 characters ... " + "x" * 1018 + "; do Y")

    def test_many_dumps_take_no_longer_than_few(self):
        made = document([cell("window", {"budget": 8}, 0.1, 0.5)])
        dump = {"path": "p", "fingerprint": "d", "model": "m", "n_layers": 16}
        others = [{**dump, "fingerprint": f"e{number}"} for number in range(20_000)]
        path = self.written({**made, "dumps": [*others, dump]})
        before = time.process_time()
        code, said = called("report", "--no-figures", path, "--out", self.folder / "out.html")
        self.assertEqual(code, 0, said)
        self.assertLess(time.process_time() - before, PROCESSOR)

    def test_nothing_steers_a_terminal(self):
        evil = "\x1b[41mE\x07\x9b31m\u202e\r"
        shown = r"\u001b[41mE\u0007\u009b31m\u202e\u000d"
        self.assertEqual(terminal.printable(evil + "\n"), shown + "\n")
        self.assertEqual(terminal.one_line(evil + "\n"), shown + r"\u000a")
        said = io.StringIO()
        terminal.show_warning(UserWarning(f"Glyph {evil}"), UserWarning, "figure.py", 1, said, "")
        self.assertIn(f"Glyph {shown}", said.getvalue())
        made = document([cell("window", {"budget": 8}, 0.1, 0.5, label=evil)])
        path = self.written(made)
        command = [sys.executable, "-m", "kvplot", "table", path, "--rows", "label", "--value",
                   "errors.relative_l2.mean", "--format", "csv"]
        self.assertIn(evil.encode(), subprocess.run(command, capture_output=True, check=True).stdout)
        mine, of_table = os.openpty()
        subprocess.run(command, stdout=of_table, stderr=subprocess.PIPE, check=True)
        os.close(of_table)
        seen = os.read(mine, 10_000).decode()
        os.close(mine)
        self.assertIn(shown, seen)
        self.assertNotIn("\x1b", seen)

    def test_names_with_dollar_signs_are_drawn_as_they_stand(self):
        for name in (r"$\input{/etc/passwd}$", "$^^$", "$" + "{" * 3000 + "$", "$x$"):
            cells = [cell("window", {"budget": budget}, 8 / budget, budget / 64, label=name)
                     for budget in (8, 16, 32)]
            path = self.written(document(cells))
            for command, out in ((("error_vs_memory", "--png-only", "--results"), "out"),
                                 (("report",), "out.html")):
                with self.subTest(name=name[:20], command=command[0]):
                    code, said = called(*command, path, "--out", self.folder / out)
                    self.assertEqual(code, 0, said)


if __name__ == "__main__":
    unittest.main()
