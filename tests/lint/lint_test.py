"""The decisions of `./bootstrap.sh lint`: subjects that are too long, units of a change."""

import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import prose
from history import base, changed, git
from subjects import LONGEST, too_long
from units import all_units, units_of_change

AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


class Checkout(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.run_git("init", "--quiet", "--initial-branch", "main")
        removed = mock.patch.dict(os.environ)
        removed.start()
        self.addCleanup(removed.stop)
        os.environ.pop("KVBENCH_LINT_BASE", None)

    def run_git(self, *arguments: str) -> list[str]:
        lines = git(self.root, *AUTHOR, *arguments)
        if lines is None:
            self.fail(f"git {' '.join(arguments)}")
        return lines

    def add(self, name: str, text: str = "") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self, subject: str) -> str:
        self.run_git("add", "--all")
        self.run_git("commit", "--quiet", "--allow-empty", "--message", subject)
        return self.run_git("rev-parse", "HEAD")[0]


class Subjects(Checkout):
    def test_a_long_subject_is_found_since_the_rule_and_not_before(self) -> None:
        before = self.commit("x" * 200)
        self.commit("y" * LONGEST)
        self.assertEqual(too_long(self.root, before), [])
        self.commit("z" * (LONGEST + 1) + "\n\nbody")
        found = too_long(self.root, before)
        self.assertEqual(len(found), 1)
        self.assertIn(f": {LONGEST + 1} characters", found[0])

    def test_a_clone_that_does_not_reach_back_is_looked_at_whole(self) -> None:
        self.commit("x" * 200)
        self.assertEqual(len(too_long(self.root, "0" * 40)), 1)

    def test_no_checkout_is_an_error(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(SystemExit):
            too_long(Path(folder), "0" * 40)


class Base(Checkout):
    def test_a_branch_is_compared_with_where_it_left_main(self) -> None:
        left = self.commit("one")
        self.run_git("checkout", "--quiet", "-b", "branch")
        self.commit("two")
        self.commit("three")
        self.assertEqual(base(self.root), left)

    def test_main_is_compared_with_the_commit_before(self) -> None:
        self.assertIsNone(base(self.root))
        first = self.commit("one")
        self.assertIsNone(base(self.root))
        self.commit("two")
        self.assertEqual(base(self.root), first)

    def test_a_base_that_is_given_is_taken_or_refused(self) -> None:
        first = self.commit("one")
        self.commit("two")
        self.commit("three")
        os.environ["KVBENCH_LINT_BASE"] = first
        self.assertEqual(base(self.root), first)
        os.environ["KVBENCH_LINT_BASE"] = "nowhere"
        with self.assertRaises(SystemExit):
            base(self.root)


class Units(Checkout):
    def setUp(self) -> None:
        super().setUp()
        self.add("lib/a/one.cpp", '#include "a/one.hpp"\n')
        self.add("lib/a/one.hpp")
        self.add("tests/a/one_test.cpp", '#include "support/made.hpp"\n')
        self.add("tests/support/made.hpp")
        self.add("tests/support/unused.hpp")
        self.add("tests/cuda/device_test.cpp")
        alone = "build/tests/house/alone/lib_a_one.hpp.cpp"
        compiled = ["lib/a/one.cpp", "tests/a/one_test.cpp", alone]
        self.add(alone)
        self.add(".gitignore", "/build/\n")
        self.add(
            "build/compile_commands.json",
            json.dumps(
                [{"directory": str(self.root), "file": str(self.root / name)} for name in compiled]
            ),
        )
        self.build = self.root / "build"
        self.first = self.commit("one")

    def chosen(self, *files: str) -> tuple[list[str], list[str]]:
        units, unseen = units_of_change(self.root, self.build, list(files))
        return [str(unit.relative_to(self.root)) for unit in units], unseen

    def test_a_source_is_its_own_unit(self) -> None:
        self.assertEqual(self.chosen("lib/a/one.cpp", "README.md", "x.py"), (["lib/a/one.cpp"], []))

    def test_a_header_is_seen_alone_or_through_a_test(self) -> None:
        self.assertEqual(
            self.chosen("lib/a/one.hpp"), (["build/tests/house/alone/lib_a_one.hpp.cpp"], [])
        )
        self.assertEqual(self.chosen("tests/support/made.hpp"), (["tests/a/one_test.cpp"], []))

    def test_what_no_unit_shows_is_said(self) -> None:
        unseen = ["tests/cuda/device_test.cpp", "tests/support/unused.hpp"]
        self.assertEqual(self.chosen(*unseen), ([], unseen))

    def test_everything_is_what_the_build_compiles_of_the_repository(self) -> None:
        found = [str(path.relative_to(self.root)) for path in all_units(self.root, self.build)]
        self.assertEqual(found, ["lib/a/one.cpp", "tests/a/one_test.cpp"])

    def test_a_change_has_commits_edits_and_new_files(self) -> None:
        self.add("lib/a/one.cpp", "int x;\n")
        self.commit("two")
        self.add("tests/a/one_test.cpp", "int y;\n")
        self.add("lib/a/new.cpp")
        (self.root / "tests/support/unused.hpp").unlink()
        self.assertEqual(
            changed(self.root, self.first),
            ["lib/a/new.cpp", "lib/a/one.cpp", "tests/a/one_test.cpp"],
        )


class Sentences(unittest.TestCase):
    def test_kinds_that_the_rules_forbid(self) -> None:
        page = (
            "# Of a heading\n\nOf the rows two are kept. The rows are kept, but for two.\nWhat is it? "
            "`h2o` keeps numbers as they came.\n\n* What a row sees\n* " + "word " * 36 + "end.\n\n"
            "```sh\nOf code nothing.\n```\n| Of | a table |\n"
        )
        found = [prose.kinds(each) for each in prose.sentences(page)]
        self.assertEqual(
            found, [["opening"], ["but for"], [], ["replaced word"], ["opening"], ["long"]]
        )

    def test_cells_of_tables_are_read(self) -> None:
        page = "| a | Of a row |\n|---|---|\n| one, but for two | fine |\n\n```text\n| Of code |\n```\n"
        found = [kind for each in prose.cells(page) for kind in prose.kinds(each)]
        self.assertEqual(found, ["opening", "but for"])

    def test_comments_and_wide_lines_are_read(self) -> None:
        cpp = "// Of a row.\n// The rest.\nint x;  // one, but for two\nint y;\n// Fine.\n"
        self.assertEqual(
            [kind for each in prose.comments(cpp, ".cpp") for kind in prose.kinds(each)],
            ["opening", "but for"],
        )
        python = '"""What it is.\n\nFine."""\nx = 1  # kept as it came\n# Fine.\n'
        self.assertEqual(
            sorted(kind for each in prose.comments(python, ".py") for kind in prose.kinds(each)),
            ["opening", "replaced word"],
        )
        marks = {"txt": "#", "supp": "#", "js": "//", "yml": "#", "yaml": "#"}
        for suffix, mark in (*((f".{name}", mark) for name, mark in marks.items()), ("", "#")):
            (line,) = prose.comments(f"{mark} What it is.\n", suffix)
            self.assertEqual(prose.kinds(line), ["opening"])
        after_code = "int x;  // of two rows\nint y;  // what is left\nint z;  // a row\n"
        after_list = "// A method.\n//   paper's a -> b,\n//   c -> d\n// Of a row, e is one.\n"
        for source, wanted in ((after_code, ["opening"] * 2), (after_list, ["opening"])):
            found = prose.comments(source, ".cpp")
            self.assertEqual([kind for each in found for kind in prose.kinds(each)], wanted)
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "a.md"
            page.write_text(
                "a " * 61 + f"\n\nIt is [b]({'c' * 120}) beside it.\n\n| {'d' * 180} |\n"
            )
            self.assertEqual(
                [kind for _, kind, _ in prose.found_in(page, "a.md")],
                ["long", "replaced word", "wide line"],
            )
            page.write_text("a\n" * 501)
            self.assertIn(("a.md", "long page", "501 lines"), prose.found_in(page, "a.md"))

    def test_counts_may_only_fall(self) -> None:
        self.assertEqual(prose.faults({"a.md": {"long": 2}}, {"a.md": {"long": 2}}), [])
        (more,) = prose.faults({"a.md": {"long": 3}}, {"a.md": {"long": 2}})
        self.assertIn("a.md: 3 of the kind 'long', 2 are allowed", more)
        (fewer,) = prose.faults({}, {"a.md": {"long": 2}})
        self.assertIn("--record", fewer)


if __name__ == "__main__":
    unittest.main()
