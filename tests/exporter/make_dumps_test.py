"""Dumps of known texts and models: inputs are those of the hashes or refused, work is resumed, and
what is announced is what is made. Nothing here reaches the network."""

import contextlib
import gzip
import io
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import h5py
import numpy

import dump_sources
import make_dumps
from dump_file import Fault

TEXT = dump_sources.Text(name="t", package="p", path="./t.gz", begin="BEGIN", sha256="", kind="k",
                         licence="l")


def dump(path, shift=0.0):
    with h5py.File(path, "w") as file:
        for name in ("q", "k", "v", "out"):
            file[f"sequences/a/layers/0/{name}"] = numpy.full((1, 2, 3), shift)


class Sources(unittest.TestCase):
    def test_every_input_has_a_hash_and_a_licence(self):
        for source in (*dump_sources.MODELS, *dump_sources.TEXTS):
            self.assertRegex(source.sha256, "^[0-9a-f]{64}$", source.name)
            self.assertTrue(source.licence, source.name)
        self.assertEqual(len({text.name for text in dump_sources.TEXTS}), 10)

    def test_a_text_begins_where_it_is_said_to(self):
        packed = gzip.compress(b"licence BEGIN and on")
        self.assertEqual(make_dumps.text_of(TEXT, packed), b"BEGIN and on")
        with self.assertRaisesRegex(Fault, "does not contain 'BEGIN'"):
            make_dumps.text_of(TEXT, gzip.compress(b"another edition"))

    def test_another_file_than_the_one_hashed_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "t.txt")
            path.write_bytes(b"one")
            make_dumps.check(path, make_dumps.sha256_of(b"one"), "p")
            with self.assertRaisesRegex(Fault, "expected sha256 .*, got .*remove it"):
                make_dumps.check(path, make_dumps.sha256_of(b"two"), "p")


class Dumps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def make(self, *only):
        """Exit code, what was printed, and the dumps that were exported."""
        made = []

        def export(model, text, layers, out):
            made.append(out.name)
            dump(out, len(made))

        with mock.patch.object(make_dumps, "export", export), \
                mock.patch.object(make_dumps, "fetch_model", lambda model, inputs: Path("m")), \
                mock.patch.object(make_dumps, "fetch_text", lambda text, inputs: Path("t")), \
                mock.patch("sys.argv", ["make_dumps.py", str(self.folder), "--only", *only]), \
                contextlib.redirect_stdout(io.StringIO()) as out, \
                contextlib.redirect_stderr(io.StringIO()) as err:
            code = make_dumps.main()
        return code, out.getvalue() + err.getvalue(), made

    def test_what_is_there_stays(self):
        code, said, made = self.make("smollm2-135m-*")
        self.assertEqual((code, len(made)), (0, 10), said)
        self.assertIn("10 dumps into", said)
        entries = json.loads((self.folder / "dumps.json").read_text())
        self.assertEqual(len({entry["tensors_sha256"] for entry in entries.values()}), 10)
        self.assertEqual(self.make("smollm2-135m-*")[2], [])
        (self.folder / "smollm2-135m-opticks.h5").unlink()
        self.assertEqual(self.make("smollm2-135m-*")[2], ["smollm2-135m-opticks.h5"])

    def test_a_name_that_no_dump_has_is_refused(self):
        code, said, made = self.make("llama-*")
        self.assertEqual((code, made), (2, []))
        self.assertIn("llama-*: no dump has such a name", said)

    def test_the_hash_is_of_the_tensors_alone(self):
        dump(self.folder / "a.h5")
        dump(self.folder / "b.h5")
        with h5py.File(self.folder / "b.h5", "a") as file:
            file.attrs["created"] = "another day"
        dump(self.folder / "c.h5", 1.0)
        one, same, other = (make_dumps.tensors_sha256(self.folder / f"{name}.h5") for name in "abc")
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)


if __name__ == "__main__":
    unittest.main()
