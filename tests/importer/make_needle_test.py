"""data/make_needle.py without a tokenizer of a model: where the needle lies, which rows ask, what it
refuses, and that the program reads what it marks."""

import contextlib
import io
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import h5py

import make_needle
from format.dump_file import Fault

PROGRAM = os.environ["KVBENCH_PROGRAM"]
# A token is a character.
TEXT = "One is first. Two is next. Three is last. " * 4


def ids(text):
    return [ord(letter) for letter in text]


def decode(tokens):
    return "".join(map(chr, tokens))


def parts(answer="7", start=(1,)):
    return make_needle.Parts(list(start), ids(TEXT), ids(" It is 7."), ids(" What?"), ids(answer))


class MakeNeedle(unittest.TestCase):
    def test_the_spans_are_the_needle_and_the_rows_ask_for_the_answer(self):
        for answer in ("", "7", "seven"):
            for depth in (0.0, 0.3, 0.5, 1.0):
                needle = make_needle.made(parts(answer), 100, depth, decode)
                text = decode(needle.ids)
                self.assertEqual(len(text), 100)
                (first, last), = needle.evidence
                self.assertEqual(text[first:last + 1], " It is 7.")
                self.assertEqual(text.replace(" It is 7.", "", 1), "\x01" + TEXT[:100 - 1 - 9 - 6 -
                                 len(answer)] + " What?" + answer)
                self.assertEqual(text[needle.prompt_tokens:], " What?" + answer)
                if answer:
                    # Row i predicts token i + 1.
                    self.assertEqual("".join(text[row + 1] for row in needle.rows), answer)
                else:
                    self.assertEqual(needle.rows, [99])
                # Behind a sentence, or first, and not deeper than was asked.
                self.assertTrue(first == 1 or text[first - 1] == ".")
                self.assertLessEqual(first - 1, depth * (100 - 16 - len(answer)))

    def test_what_does_not_fit_is_refused(self):
        for tokens, words in ((17, "take 17"), (1000, "text has")):
            with self.assertRaisesRegex(Fault, words):
                make_needle.made(parts(), tokens, 0.5, decode)

    def test_outputs_have_the_whole_name(self):
        """Names with depths 0.25 and 0.5 work as well: a dot does not begin an ending."""
        made = [path for depth in ("0.25", "0.5") for path in make_needle.outputs(Path(f"n/at-{depth}"))]
        self.assertEqual([str(path) for path in made],
                         ["n/at-0.25.npy", "n/at-0.25.json", "n/at-0.5.npy", "n/at-0.5.json"])

    def test_options_that_cannot_be_are_refused_together(self):
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(said):
            code = make_needle.main([
                "make", "model", "--text", f"{name}/none.txt", "--needle", " ", "--question", " What?", "--depth",
                "2", "--tokens", "9", "--out", f"{name}/none/needle"])
        self.assertEqual(code, 2)
        for words in ("none.txt: no such file", "--depth 2.0: from 0 to 1", "--needle: is empty", "none: no such folder"):
            self.assertIn(words, said.getvalue())

    def test_a_marked_dump_is_read_by_the_program(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            dump, facts = folder / "a.h5", folder / "needle.json"
            subprocess.run([PROGRAM, "synth", "gaussian", "--tokens", "100", "--d", "4", "--out", dump],
                           check=True, capture_output=True)
            needle = make_needle.made(parts(), 100, 0.5, decode)
            facts.write_text(json.dumps({"evidence": needle.evidence, "rows": needle.rows,
                                         "prompt_tokens": needle.prompt_tokens, "tokens": 100}))
            self.assertEqual(make_needle.main(["mark", str(dump), "--evidence", str(facts)]), 0)
            with h5py.File(dump) as file:
                evidence = file["sequences/0/evidence"]
                self.assertEqual(evidence[:].tolist(), needle.evidence)
                self.assertEqual(evidence.attrs["rows"].tolist(), needle.rows)
            subprocess.run([PROGRAM, "run", "--dump", dump, "--algorithm", "exact", "--out",
                            folder / "out", "--quiet"], check=True, capture_output=True)
            results = json.loads((folder / "out/results.json").read_text())
            for cell in results["cells"]:
                self.assertEqual(cell["evidence"]["tokens"], 9)
                self.assertEqual(cell["evidence"]["held"], 1.0)
            facts.write_text(facts.read_text().replace('"tokens": 100', '"tokens": 99'))
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                self.assertEqual(make_needle.main(["mark", str(dump), "--evidence", str(facts)]), 2)
            self.assertIn("100 tokens", said.getvalue())


if __name__ == "__main__":
    unittest.main()
