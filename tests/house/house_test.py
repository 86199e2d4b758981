"""Rules of the house: who may include what, words that may not stand, folders that explain
themselves. Each rule is shown to turn red on a planted breach."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "apps/site"))
sys.path.insert(0, str(Path(__file__).parent))
from definitions import defined_twice, types_of
from include_rule import allowed, circle, violations
from pages import anchor, parts
from sources import files, text

ROOT = Path(__file__).resolve().parents[2]
BUILD = os.environ["KVBENCH_BUILD"]
CTEST = str(Path(os.environ["KVBENCH_CMAKE"]).with_name("ctest"))
# Spelled in parts, so that this file does not break its own rule.
WORDS = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK", "/wo" + "rk/", "/tm" + "p/kv",
         "../sha" + "red"]
NAMES = {"utils", "helpers", "common", "misc", "manager", "util", "helper"}


def word_breaches(root):
    found = []
    for path in files(root):
        content = text(root / path)
        if content is None or path.name == "LICENSE":
            continue
        for number, line in enumerate(content.splitlines(), 1):
            for word in WORDS:
                bounded = rf"\b{re.escape(word)}\b" if word.isalpha() else re.escape(word)
                if re.search(bounded, line):
                    found.append(f"{path}:{number}: {word}")
    return found


def broken_paths(root):
    """Paths of the repository that a README names and that do not exist."""
    found = []
    for path in files(root):
        if path.suffix != ".md":
            continue
        for name in re.findall(
                r"(?<![\w./-])(?:apps|lib|cuda|configs|data|plots|tests)/[\w./<>*-]*[\w>*]",
                text(root / path)):
            if not re.search(r"[<>*]", name) and not (root / name).exists():
                found.append(f"{path}: {name}")
    return found


def none_of(test, found):
    if found:
        test.fail(f"{len(found)} found:\n" + "\n".join(found))


def broken_links(root):
    """Links between pages whose file, or whose heading in it, is missing."""
    def prose(path):
        return "".join(lines for fenced, lines in parts(text(root / path)) if not fenced)

    found = []
    for path in files(root):
        if path.suffix != ".md":
            continue
        for target in re.findall(r"\]\((?![a-z]+:)([^()\s]+)\)", prose(path)):
            name, _, heading = target.partition("#")
            page = os.path.normpath(path.parent / name) if name else path
            titles = re.findall(r"(?m)^#+ (.*)$", prose(page)) if (root / page).suffix == ".md" and heading else []
            if not (root / page).exists() or (heading and heading not in map(anchor, titles)):
                found.append(f"{path}: {target}")
    return found


class OneDefinition(unittest.TestCase):
    def test_no_name_is_defined_in_two_files(self):
        none_of(self, defined_twice(ROOT))

    def test_a_planted_second_definition_is_found(self):
        plants = {
            "lib/a/one.hpp": "namespace n {\nstruct A { int x; };\nenum class B : char { k };\n}",
            "lib/b/two.hpp": "namespace n { namespace m { class C final : public D<int> {\n}; } }\n"
                             "namespace n { class A; using E = int; }",
            "apps/three.cpp": "namespace n {\nnamespace {\nstruct E {};\n}\nstruct B {};\n}\n"
                              "void f() { struct A {}; }\nstruct A {};  // struct B {}\n"
                              "const char* s = \"namespace n { struct E {\";",
            "cuda/four.cuh": "namespace n::m {\ntemplate <class T> struct C { struct A {}; };\n}",
        }
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, content in plants.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content + "\n")
            self.assertEqual(defined_twice(root), ["n::B: apps/three.cpp, lib/a/one.hpp",
                                                   "n::m::C: cuda/four.cuh, lib/b/two.hpp"])

    def test_every_class_that_a_header_opens_is_seen(self):
        """Counted another way: what stands at the beginning of a line outside of a type; a template's
        specialisations do not define a new name."""
        unseen = []
        count = 0
        for path in files(ROOT):
            if path.parts[0] != "lib" or path.suffix != ".hpp":
                continue
            content = text(ROOT / path)
            opened = re.findall(r"^(?:(?:struct|class|enum class|union) (\w+)\b(?!<)[^;]*?\{|using (\w+) =)",
                                content, re.MULTILINE)
            seen = {name.split("::")[-1] for name in types_of(content)}
            unseen += [f"{path}: {a or b}" for a, b in opened if (a or b) not in seen]
            count += len(opened)
        self.assertGreater(count, 150)
        none_of(self, unseen)


class IncludeRule(unittest.TestCase):
    def test_every_include_keeps_the_rule(self):
        none_of(self, violations(ROOT))

    def test_no_files_include_each_other_in_a_circle(self):
        self.assertEqual(circle(ROOT), [])

    def test_a_planted_circle_is_found(self):
        plants = {"lib/a/a.hpp": "", "lib/a/a.cpp": '#include "a/a.hpp"\n#include "a/b.hpp"',
                  "lib/a/b.hpp": '#include "a/c.hpp"', "lib/a/c.hpp": '#include "a/a.hpp"',
                  "apps/kvbench/d.cpp": '#include "a/a.hpp"'}
        with tempfile.TemporaryDirectory() as folder:
            for name, line in plants.items():
                Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, name).write_text(line + "\n")
            self.assertEqual(set(circle(folder)), {"lib/a/a", "lib/a/b", "lib/a/c"})
            Path(folder, "lib/a/c.hpp").write_text("")
            self.assertEqual(circle(folder), [])

    def test_the_table_has_a_row_for_every_folder(self):
        folders = {path.parts[1] for path in files(ROOT) if path.parts[0] == "lib"
                   and len(path.parts) > 2}
        self.assertEqual(set(allowed((ROOT / "lib/README.md").read_text())), folders)

    def test_a_planted_breach_is_found(self):
        plants = {
            "lib/core/a.hpp": ('#include "sketch/b.hpp"', "core may include"),
            "lib/sketch/b.hpp": ("#include <hdf5.h>", "HDF5 belongs to lib/hdf5"),
            "lib/kernels/c.hpp": ("#include <Eigen/Core>", "Eigen only in .cpp"),
            "lib/metrics/d.cpp": ('#include "algorithms/e.hpp"', "metrics may include"),
            "lib/algorithms/e.hpp": ("#  include <nlohmann/json.hpp>", "nlohmann-json belongs"),
            "lib/results/f.cpp": ("#include <CLI/CLI.hpp>", "CLI11 belongs to apps"),
            "lib/dump/g.cpp": ('#include "metrics/d.cpp"', "dump may include"),
            "lib/sweep/h.cpp": ('#include "sweep/none.hpp"', "names no file"),
            "cuda/i.cu": ('#include "sketch/b.hpp"', "cuda may include"),
            "lib/replay/j.cpp": ("#include <cuda_runtime.h>", "CUDA belongs to cuda"),
            "lib/sweep/config.hpp": ("#include <nlohmann/json.hpp>", "belongs to lib/json"),
            "lib/results/k.cpp": ('#include "sweep/config.hpp"', "results may include"),
            "lib/results/l.cpp": ('#include "algorithms/e.hpp"', "results may include"),
            "lib/check/m.hpp": ('#include "sweep/config.hpp"', "check may include"),
            "lib/compare/n.cpp": ('#include "check/m.hpp"', "compare may include"),
            "lib/run/p.cpp": ("#include <CLI/CLI.hpp>", "CLI11 belongs to apps"),
            "lib/run/q.cpp": ('#include "check/m.hpp"', "run may include"),
            "lib/json/o.cpp": ('#include "sweep/config.hpp"', "json may include"),
            "apps/kvbench/r.cpp": ("#include <nanobind/ndarray.h>", "nanobind belongs"),
        }
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, (line, _) in plants.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(line + "\n")
            (root / "lib/README.md").write_text((ROOT / "lib/README.md").read_text())
            found = {line.split(":")[0]: line for line in violations(root)}
        self.assertEqual(set(found), set(plants))
        for name, (_, words) in plants.items():
            self.assertIn(words, found[name])


class Files(unittest.TestCase):
    def test_no_forbidden_word(self):
        none_of(self, word_breaches(ROOT))

    def test_a_planted_word_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            for place, word in enumerate(WORDS):
                Path(folder, f"{place}.cpp").write_text(f"// {word} later\n")
            self.assertEqual(len(word_breaches(Path(folder))), len(WORDS))

    def test_a_file_is_named_for_what_it_defines(self):
        self.assertEqual([str(path) for path in files(ROOT)
                          if NAMES & {part.lower() for part in (*path.parts[:-1], path.stem)}], [])

    def test_headers_are_guarded(self):
        self.assertEqual([str(path) for path in files(ROOT) if path.suffix == ".hpp"
                          and "#pragma once" not in text(ROOT / path)], [])

    def test_every_folder_explains_itself(self):
        tracked = files(ROOT)
        folders = {path.parts[0] for path in tracked if len(path.parts) > 1}
        folders = {folder for folder in folders if not folder.startswith(".")}
        folders |= {"/".join(path.parts[:2]) for path in tracked
                    if path.parts[0] == "lib" and len(path.parts) > 2}
        missing = sorted(folder for folder in folders
                         if not (ROOT / folder / "README.md").is_file())
        none_of(self, missing)

    def test_links_between_pages_lead_to_files_and_headings(self):
        self.assertEqual(broken_links(ROOT), [])

    def test_a_planted_link_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "a.md").write_text("# One `b`, two\n[x](#one-b-two) [y](#one) [z](b.md) [w](a.md#one-b-two)\n"
                                            "```\n[v](c.md)\n```\n")
            self.assertEqual(broken_links(Path(folder)), ["a.md: #one", "a.md: b.md"])

    def test_paths_in_readmes_exist(self):
        none_of(self, broken_paths(ROOT))

    def test_a_planted_path_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "README.md").write_text("see lib/none.hpp and lib/<folder>/x.hpp\n")
            self.assertEqual(broken_paths(Path(folder)), ["README.md: lib/none.hpp"])

    def test_every_test_has_one_tier(self):
        listed = subprocess.run([CTEST, "--test-dir", BUILD, "--show-only=json-v1"],
                                capture_output=True, text=True, check=True)
        tests = json.loads(listed.stdout)["tests"]
        tiers = {test["name"]: [label for each in test["properties"] if each["name"] == "LABELS"
                                for label in each["value"]
                                if label in ("quick", "full", "nightly")] for test in tests}
        self.assertGreater(len(tiers), 80)
        self.assertEqual({name: found for name, found in tiers.items() if len(found) != 1}, {})

    def test_the_tests_that_tiers_name_exist(self):
        text_of_tiers = text(ROOT / "tests/tiers.cmake")
        named = {name for words in re.findall(r"(?s)set\(kvbench_(?:quick|nightly)\n(.*?)\)",
                                              text_of_tiers) for name in words.split()}
        self.assertIn("kernels", named)
        listed = subprocess.run([CTEST, "--test-dir", BUILD, "-N"],
                                capture_output=True, text=True, check=True).stdout
        self.assertEqual(named - set(re.findall(r"(?m)Test +#\d+: (\S+)", listed)), set())

    def test_the_version_stands_in_one_file_and_is_the_same_wherever_it_is_said(self):
        version = (ROOT / "version.txt").read_text().strip()
        self.assertRegex(version, r"^\d+\.\d+\.\d+$")
        minor = version.rpartition(".")[0]
        for name, pattern, expected in (
                ("plots/pyproject.toml", r'(?m)^version = "(.*)"$', version),
                ("CITATION.cff", r"(?m)^version: (.*)$", version),
                ("README.md", r"version = \{(.*?)\}", version),
                ("lib/README.md", r"find_package\(kvbench ([\d.]+) ", minor),
                ("tests/install/consumer/CMakeLists.txt", r"find_package\(kvbench ([\d.]+) ",
                 minor)):
            with self.subTest(name):
                self.assertEqual(re.findall(pattern, (ROOT / name).read_text()), [expected])
        self.assertNotRegex((ROOT / "CMakeLists.txt").read_text(), r"project\(kvbench VERSION \d")

    def test_bootstrap_verbs_of_readmes_exist(self):
        verbs = set(re.findall(r"^  (\w+)\)(?: |$)", (ROOT / "bootstrap.sh").read_text(), re.MULTILINE))
        named = set()
        for path in files(ROOT):
            if path.suffix == ".md" and path.name != "CHANGELOG.md":
                named |= set(re.findall(r"\./bootstrap\.sh (\w+)", text(ROOT / path)))
        self.assertTrue({"demo", "test"} <= verbs)
        self.assertEqual(named - verbs, set())

    def test_scripts_of_readmes_exist(self):
        for path in files(ROOT):
            if path.suffix == ".md" and path.name != "CHANGELOG.md":
                for name in re.findall(r"(?:^|[`\s])((?:apps|cuda|data|plots|tests)/[\w/]*\w\.sh)\b", text(ROOT / path)):
                    self.assertTrue((ROOT / name).is_file(), f"{path}: {name}")


if __name__ == "__main__":
    unittest.main()
