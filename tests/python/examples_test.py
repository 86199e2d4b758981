"""The ```py blocks of the pages run, and so do the examples of docstrings. A page's blocks are one
session, in a folder with the repository's data and configs."""

import ast
import inspect
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import kvbench as kb
from streams import SOURCE

PAGES = ("README.md", "apps/python/README.md")
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


class Examples(unittest.TestCase):
    def run_in_a_copy(self, script):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("data", "configs"):
                Path(folder, name).symlink_to(SOURCE / name)
            done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True,
                                  text=True, check=False, timeout=300,
                                  env={**os.environ, "PYTHONWARNINGS": "error"})
            return done.returncode, done.stderr[-2000:]

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
