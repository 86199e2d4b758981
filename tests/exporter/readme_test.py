"""What data/README.md says of the exporter: its commands parse, its options exist (the program's are
written after its name: `kvbench run --x`), its table of sizes is the formula's."""

from __future__ import annotations

import re
import shlex
import unittest

import closed_loop
import export_transformers
import import_arrays
import kvpress_caches
from exported import SOURCE

README = (SOURCE / "data/README.md").read_text(encoding="utf-8")


class Readme(unittest.TestCase):
    def test_commands_parse(self):
        commands = re.findall(r"data/(\w+)\.py ((?:[^\n]*\\\n)*[^\n`]*)\n", README)
        self.assertEqual([name for name, _ in commands],
                         ["export_transformers", "import_arrays", "kvpress_caches",
                          "export_transformers"])
        for name, arguments in commands:
            module = {"export_transformers": export_transformers, "import_arrays": import_arrays,
                      "kvpress_caches": kvpress_caches}
            words = shlex.split(arguments.replace("\\\n", " "))
            module[name].parser().parse_args(words)

    def test_options_exist(self):
        known = set(export_transformers.parser().format_help().split()) | set(
            import_arrays.parser().format_help().split()) | set(
            kvpress_caches.parser().format_help().split()) | set(
            closed_loop.parser().format_help().split())
        known = {re.sub(r"[^\w-]", "", word) for word in known}
        named = set(re.findall(r"`(--[a-z-]+)", README)) - {"--help"}
        self.assertGreater(len(named), 8)
        self.assertEqual(named - known, set())

    def test_sizes_are_the_formulas(self):
        rows = re.findall(r"^\| ([\w .-]+) \| (\d+) \| (\d+) / (\d+) \| (\d+) \| (.*) \|$", README,
                          re.MULTILINE)
        self.assertGreater(len(rows), 5)
        for _, layers, query_heads, kv_heads, d, told in rows:
            def size(layers: int, tokens: int, queries: int, heads=(query_heads, kv_heads), d=d):
                return layers * 2 * int(d) * (int(heads[0]) * queries + 2 * int(heads[1]) * tokens)
            sizes = (size(1, 8192, 8192), size(int(layers), 8192, 8192),
                     size(int(layers), 32768, 256))
            for text, wanted in zip(told.split(" | "), sizes, strict=True):
                number, unit = text.split()
                self.assertAlmostEqual(float(number) * {"MiB": 2**20, "GiB": 2**30}[unit] / wanted,
                                       1.0, delta=0.006)


if __name__ == "__main__":
    unittest.main()
