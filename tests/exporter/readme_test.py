"""Claims of pages of data on the exporter: its commands parse, its options exist (the
program's are written after its name: `kvbench run --x`), its tables of sizes are the formula's."""

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
OPTIONS = README + "".join((SOURCE / f"data/{page}.md").read_text(encoding="utf-8") for page in ("LOOP", "KVPRESS", "EXPORTER"))


class Readme(unittest.TestCase):
    def test_commands_parse(self):
        pages = {"README": ["export_transformers", "import_arrays", "export_transformers"],
                 "LARGE_MODEL": ["export_transformers"], "KVPRESS": ["kvpress_caches"]}
        module = {"export_transformers": export_transformers, "import_arrays": import_arrays,
                  "kvpress_caches": kvpress_caches}
        for page, names in pages.items():
            text = (SOURCE / f"data/{page}.md").read_text(encoding="utf-8")
            commands = re.findall(r"data/(\w+)\.py ((?:[^\n]*\\\n)*[^\n`]*)\n", text)
            self.assertEqual([name for name, _ in commands], names, page)
            for name, arguments in commands:
                module[name].parser().parse_args(shlex.split(arguments.replace("\\\n", " ")))

    def test_options_exist(self):
        known = set(export_transformers.parser().format_help().split()) | set(
            import_arrays.parser().format_help().split()) | set(
            kvpress_caches.parser().format_help().split()) | set(
            closed_loop.parser().format_help().split())
        known = {re.sub(r"[^\w-]", "", word) for word in known}
        named = set(re.findall(r"`(--[a-z-]+)", OPTIONS)) - {"--help"}
        self.assertGreater(len(named), 8)
        self.assertEqual(named - known, set())

    def test_sizes_are_the_formulas(self):
        rows = re.findall(r"^\| ([\w .-]+) \| (\d+) \| (\d+) / (\d+) \| (\d+) \| (.*) \|$", README,
                          re.MULTILINE)
        self.assertGreater(len(rows), 5)
        for _, layers, query_heads, kv_heads, d, printed in rows:
            def size(layers: int, tokens: int, queries: int, heads=(query_heads, kv_heads), d=d):
                return layers * 2 * int(d) * (int(heads[0]) * queries + 2 * int(heads[1]) * tokens)
            sizes = (size(1, 8192, 8192), size(int(layers), 8192, 8192),
                     size(int(layers), 32768, 256))
            for text, wanted in zip(printed.split(" | "), sizes, strict=True):
                number, unit = text.split()
                self.assertAlmostEqual(float(number) * {"MiB": 2**20, "GiB": 2**30}[unit] / wanted,
                                       1.0, delta=0.006)

    def test_sizes_of_a_large_model(self):
        text = (SOURCE / "data/LARGE_MODEL.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| `(all|last:\d+)` \| (\d+) MiB \| (\d+) MiB \| (\S+) (\w+) \| (\S+) GiB \|$",
                          text, re.MULTILINE)
        self.assertEqual([row[0] for row in rows], ["last:256", "last:512", "all"])
        n, d, query_heads, kv_heads = 32768, 128, 32, 8
        for queries, q, kv, three, unit, whole in rows:
            stored = n if queries == "all" else int(queries.removeprefix("last:"))
            self.assertEqual(int(q) * 2**20, 2 * query_heads * d * stored)
            self.assertEqual(int(kv) * 2**20, 2 * kv_heads * (d + d) * n)
            layer = (int(q) + int(kv)) * 2**20
            self.assertAlmostEqual(float(three) * {"MiB": 2**20, "GiB": 2**30}[unit] / (3 * layer), 1, delta=0.005)
            self.assertAlmostEqual(float(whole) * 2**30 / (32 * layer), 1, delta=0.002)

    def test_ratios_of_kvpress(self):
        text = (SOURCE / "data/KVPRESS.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| (0\.\d+) \| ([\d,]+) \| (\S+) \| ([\d,]+) \| (\S+) \|$", text, re.MULTILINE)
        self.assertEqual(len(rows), 4)
        for ratio, *printed in rows:
            wanted = []
            for prompt, n in ((1792, 2048), (32512, 32768)):
                kept = int(prompt * (1 - float(ratio)))
                wanted += [kept, (kept + n - prompt) / n]
            for text_of, number in zip(printed, wanted, strict=True):
                self.assertAlmostEqual(float(text_of.replace(",", "")), number, delta=0.0006)


if __name__ == "__main__":
    unittest.main()
