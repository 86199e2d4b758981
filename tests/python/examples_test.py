"""The ```py blocks of the pages run, and so do the examples of docstrings. A page's blocks are one
session, in a folder with the repository's data and configs."""

import ast
import base64
import functools
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import kvbench as kb
import notebooks
import numpy as np
from streams import SOURCE

PAGES = ("README.md", "apps/python/README.md", "apps/python/YOUR_METHOD.md")
MY_METHOD = "my_method.ipynb"
FIRST_LOOK = "first_look.ipynb"
ERROR_AND_MODEL = "error_and_model.ipynb"
GIVEN = """
import numpy as np
import kvbench as kb
_rng = np.random.default_rng(0)
q, k, v = (_rng.standard_normal(shape) for shape in ((3, 2048, 64), (2048, 64), (2048, 64)))
dump = kb.open_dump("data/smollm2-constitution.h5")
"""


def blocks(page):
    return re.findall(r"^```py\n(.*?)^```$", (SOURCE / page).read_text(encoding="utf-8"),
                      re.MULTILINE | re.DOTALL)


def examples(text):
    """Lines of a docstring that are indented code which calls kb."""
    found = re.findall(r"^ {4,}(\S.*)$", text, re.MULTILINE)
    return [line for line in found if re.match(r"(import kvbench|(\w+ = )?kb\.|r\.)", line)]


@functools.cache
def drawing_python():
    """A Python of this version that has what kvplot needs; None if there is none."""
    wanted = "import sys, kvbench, kvplot, h5py, matplotlib, pandas; print(sys.version_info[:2])"
    for python in (sys.executable, "/usr/bin/python3"):
        said = subprocess.run([python, "-c", wanted], capture_output=True, text=True, check=False)
        if said.stdout.strip() == str(sys.version_info[:2]):
            return python
    return None


class Notebook(unittest.TestCase):
    def run_notebook(self, notebook, drawn):
        """The text that its cells print, which must be the saved one, and a file that they write."""
        python = drawing_python()
        if python is None:
            self.skipTest("SKIPPED: the notebook's figure needs matplotlib, pandas and h5py")
        with notebooks.executed(notebook, python) as (outputs, folder):
            self.assertEqual(notebooks.differences(notebooks.saved(notebook), outputs), [])
            return "".join(each["text"] for each in outputs), (folder / drawn).read_text(encoding="utf-8")

    def test_my_method_runs_and_draws_the_figure(self):
        said, drawn = self.run_notebook(MY_METHOD, "results/my_method/forest.csv")
        self.assertIn("largest_keys", said)
        self.assertEqual(len(set(re.findall("largest_keys|h2o|snapkv", drawn))), 3)
        self.assertRegex(said, r"(?m)^<largest_keys .*: Frobenius error 0\.\d+, mean error 1\.\d+, ")

    def test_a_first_look_runs_and_draws_the_figure(self):
        said, drawn = self.run_notebook(FIRST_LOOK, "results/first_look/error_vs_memory.csv")
        layer = kb.open_dump(SOURCE / "data/smollm2-constitution.h5")["constitution"][15]
        errors = kb.replay(layer, "snapkv", head=0, budget=256).errors
        self.assertIn(f"Frobenius error {errors['relative_frobenius_error']:.3f}\n"
                      f"mean error {errors['relative_l2']['mean']:.3f}\n", said)
        self.assertEqual(len(re.findall(r"(?m)^(?:streaming_llm|h2o|snapkv|uniform) +memory 0\.\d\d error 0", said)), 12)
        self.assertIn("snapkv", drawn)

    def test_error_and_model_reads_the_record_and_draws_the_figure(self):
        said, drawn = self.run_notebook(ERROR_AND_MODEL, "results/error_and_model/error_vs_kld.csv")
        loop = json.loads((SOURCE / "apps/python/examples/loop_constitution.json").read_text(encoding="utf-8"))
        settings = [each for each in loop["records"] if each["status"] == "ok" and each["label"] != "exact"]
        for metric, error in (("relative_frobenius_error", lambda errors: errors["relative_frobenius_error"]),
                              ("relative_l2.mean", lambda errors: errors["relative_l2"]["mean"])):
            pairs = [(error(each["errors"]), each["kl"]["mean"]) for each in settings]
            ranks = [np.argsort(np.argsort(column)) for column in zip(*pairs, strict=True)]
            rho = np.corrcoef(*ranks)[0, 1]  # no two are equal
            self.assertEqual([len(set(column)) for column in zip(*pairs, strict=True)], [len(pairs)] * 2)
            self.assertRegex(said, rf"(?m)^errors.{metric} +{rho:.2f}$")
        self.assertIn("us-constitution", drawn)
        self.assertIn("errors.relative_frobenius_error", drawn.splitlines()[0])
        self.assertEqual(len(re.findall("(?m)^us-constitution,h2o,", drawn)), 5)

    def test_they_have_outputs_with_small_pictures(self):
        self.assertEqual(set(notebooks.names()), {Path(each).name for each in (MY_METHOD, FIRST_LOOK, ERROR_AND_MODEL)})
        for notebook in notebooks.names():
            cells = notebooks.code_cells(notebook)
            self.assertEqual([each["execution_count"] for each in cells], list(range(1, len(cells) + 1)))
            pictures = [each["picture"] for each in notebooks.saved(notebook) if each["picture"]]
            self.assertEqual(len(pictures), 1, notebook)
            self.assertLess(len(base64.b64decode(pictures[0])), notebooks.LARGEST_PICTURE)

    def test_a_stale_output_is_found(self):
        old = [{"text": "h2o 0.107 [0.1, 2]\n", "picture": None}]
        for text, count in (("h2o 0.107 [0.1, 2]\n", 0), ("h2o 0.108 [0.1, 2]\n", 0), ("h2o 0.111 [0.1, 2]\n", 1),
                            ("h2o 0.107 [0.1, 3]\n", 1), ("snapkv 0.107 [0.1, 2]\n", 1), ("", 1)):
            self.assertEqual(len(notebooks.differences(old, [{"text": text, "picture": None}])), count, text)
        self.assertEqual(len(notebooks.differences(old, [{**old[0], "picture": "x"}])), 1)

    def test_my_method_has_the_page_s_code(self):
        texts = ["".join(each["source"]) for each in notebooks.code_cells(MY_METHOD)]
        self.assertEqual(texts[1:-1], [each.rstrip("\n") for each in blocks("apps/python/YOUR_METHOD.md")])


class Examples(unittest.TestCase):
    def run_in_a_copy(self, script):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("data", "configs"):
                Path(folder, name).symlink_to(SOURCE / name)
            done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True,
                                  text=True, check=False, timeout=300,
                                  env={**os.environ, "PYTHONWARNINGS": "error"})
            said = re.sub(r"(?m)^import_arrays\.py: wrote .*\n", "", done.stderr)
            return done.returncode, said[-2000:]

    def test_pages(self):
        for page in PAGES:
            with self.subTest(page):
                self.assertTrue(blocks(page))
                self.assertEqual(self.run_in_a_copy("\n".join(blocks(page))), (0, ""))

    def test_docstrings(self):
        for text in (kb.__doc__, kb.replay.__doc__):
            lines = examples(inspect.cleandoc(text))
            self.assertTrue(lines)
            self.assertEqual(self.run_in_a_copy(GIVEN + "\n".join(lines)), (0, ""))

    def test_a_stale_example_is_found(self):
        self.assertNotEqual(self.run_in_a_copy(GIVEN + 'kb.replay(q, k, v, "snapkv", budgt=3)')[0], 0)

    def test_everything_public_is_explained_and_typed(self):
        for name in kb.__all__:
            self.assertTrue(inspect.getdoc(getattr(kb, name)), name)
        folder = Path(kb.__file__).parent
        self.assertTrue((folder / "py.typed").is_file())
        for path in folder.glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef):
                    self.assertIsNotNone(node.returns, f"{path.name}: {node.name}")


if __name__ == "__main__":
    unittest.main()
