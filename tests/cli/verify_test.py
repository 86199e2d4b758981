"""verify: cells of results computed again; an honest file, a changed one, dumps elsewhere."""

import json
import shutil
import unittest

from program import DONE, VIOLATION, Folder, kvbench, strict_json


class Verify(Folder):
    def setUp(self):
        super().setUp()
        self.document = self.run_sweep()
        self.path = self.folder / "out/results.json"
        self.count = len(self.document["cells"])

    def written(self, change, name="theirs.json"):
        document = json.loads(json.dumps(self.document))
        change(document)
        path = self.folder / name
        path.write_text(json.dumps(document))
        return path

    def verify(self, path, *options, expect=DONE):
        done = kvbench("verify", path, "--sample", 1000, "--seed", 1, "--json", *options)
        self.assertEqual(done.returncode, expect, done.stderr + done.stdout)
        return strict_json(done.stdout)

    def test_an_honest_file_repeats_bit_by_bit(self):
        report = self.verify(self.path)
        self.assertEqual((report["sampled"], report["equal"]), (self.count, self.count))
        self.assertEqual((report["relative_tolerance"], report["differences"]), (0, []))
        table = kvbench("verify", self.path, "--sample", 3)
        self.assertEqual(table.returncode, DONE, table.stderr)
        entries = len(self.document["summary"])
        self.assertRegex(table.stdout, rf"^3 of 3 cells computed again are equal, bit by bit "
                         rf"\(drawn with --seed \d+ from {self.count} of {self.count} cells\)\n"
                         rf"{entries} of {entries} entries of the summary follow from the records of "
                         r"the file, bit by bit\n$")

    def test_a_summary_that_was_changed_is_found(self):
        def halved(document):
            document["summary"][3]["errors"]["relative_l2.mean"]["mean"] /= 2
        report = self.verify(self.written(halved), expect=VIOLATION)
        self.assertEqual(report["equal"], self.count)
        self.assertEqual(report["summary"]["equal"], report["summary"]["entries"] - 1)
        (difference,) = report["summary"]["differences"]
        self.assertEqual(difference["path"], "summary.errors.relative_l2.mean.mean")
        entry = self.document["summary"][3]
        self.assertEqual(difference["recomputed"], entry["errors"]["relative_l2.mean"]["mean"])
        self.assertEqual(difference["entry"]["params"], entry["params"])
        table = kvbench("verify", self.folder / "theirs.json", "--sample", 3)
        self.assertEqual(table.returncode, VIOLATION)
        self.assertIn("relative_l2.mean", table.stdout)

        for change in (lambda document: document["summary"].pop(2),
                       lambda document: document["summary"][2].update(units=1),
                       lambda document: document["summary"][2].update(label="mine"),
                       lambda document: document["summary"][2]["memory"].update(fraction=0.01)):
            report = self.verify(self.written(change), expect=VIOLATION)
            self.assertNotEqual(report["summary"]["differences"], [])

    def test_a_number_that_was_changed_is_found(self):
        def change(document):
            document["cells"][4]["errors"]["relative_l2"]["mean"] *= 1 + 1e-8
        path = self.written(change)
        report = self.verify(path, expect=VIOLATION)
        self.assertEqual(report["equal"], self.count - 1)
        (difference,) = report["differences"]
        self.assertEqual(difference["path"], "errors.relative_l2.mean")
        self.assertEqual(difference["cell"]["id"], self.document["cells"][4]["id"])
        self.assertEqual(difference["recomputed"],
                         self.document["cells"][4]["errors"]["relative_l2"]["mean"])
        table = kvbench("verify", path, "--sample", 1000)
        self.assertEqual(table.returncode, VIOLATION)
        self.assertIn("errors.relative_l2.mean", table.stdout)

    def test_another_instruction_set_may_differ_in_the_last_digits_alone(self):
        def elsewhere(document, factor):
            document["provenance"][0]["isa"] = "another"
            document["cells"][4]["errors"]["relative_l2"]["mean"] *= factor
        near = self.written(lambda document: elsewhere(document, 1 + 1e-11))
        report = self.verify(near)
        self.assertEqual((report["relative_tolerance"], report["equal"]), (1e-9, self.count))
        far = self.written(lambda document: elsewhere(document, 1 + 1e-8))
        self.assertEqual(self.verify(far, expect=VIOLATION)["equal"], self.count - 1)

    def test_a_cell_that_the_sweep_does_not_make_is_found(self):
        def change(document):
            document["cells"][2]["id"] = "0" * 32
        report = self.verify(self.written(change), expect=VIOLATION)
        self.assertEqual([each["path"] for each in report["differences"]], ["id"])

    def test_numbers_under_another_name_are_found(self):
        def other_setting(document):
            cells = [cell for cell in document["cells"] if cell["key"]["algorithm"] == "window"]
            cells[0]["key"]["params"]["budget"] = 31
        report = self.verify(self.written(other_setting), expect=VIOLATION)
        (difference,) = report["differences"]
        self.assertEqual((difference["path"], difference["recorded"]["params"]["budget"],
                          difference["recomputed"]["params"]["budget"]), ("key", 31, 8))

        def other_label(document):
            document["cells"][0]["label"] = "mine"
        self.assertEqual(self.verify(self.written(other_label), expect=VIOLATION)["equal"],
                         self.count - 1)

    def test_two_records_of_one_cell_are_refused(self):
        def twice(document):
            document["cells"].append(document["cells"][0])
        self.assert_refused(kvbench("verify", self.written(twice)), "are of the same cell")

    def test_the_dump_may_lie_elsewhere_and_must_be_the_same(self):
        moved = self.folder / "moved.json"
        document = json.loads(json.dumps(self.document))
        document["config"]["dumps"] = ["/nowhere/tiny.h5"]
        moved.write_text(json.dumps(document))
        self.assert_refused(kvbench("verify", moved), "kvbench: /nowhere/tiny.h5: no such file", "name it by --dump")
        copy = self.folder / "copy.h5"
        shutil.copy(self.made / "tiny.h5", copy)
        self.assertEqual(self.verify(moved, "--dump", copy)["equal"], self.count)
        other = self.synth("other.h5", "--tokens", 96, "--d", 8, "--layers", 2, "--seed", 9)
        self.assert_refused(kvbench("verify", moved, "--dump", other), "other.h5",
                            "fingerprint", "name the dump that it was made from")

    def test_several_dumps_follow_one_option(self):
        second = self.synth("second.h5", "--tokens", 96, "--d", 8, "--seed", 5)
        dumps = [self.made / "tiny.h5", second]
        document = self.run_sweep("--fresh", dumps=list(map(str, dumps)))
        count = len(document["cells"])
        for arguments in ([self.path, "--dump", *dumps], ["--dump", *dumps, self.path],
                          [self.path, "--dump", dumps[0], "--dump", dumps[1]],
                          [self.path, "--dump", second, self.made / "tiny.h[5-6]"]):
            done = kvbench("verify", *arguments, "--sample", 1000, "--json")
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.assertEqual(strict_json(done.stdout)["equal"], count)
        self.assert_refused(kvbench("verify", self.path, "--dump", "/nowhere/*.h5"), "--dump: no file matches /nowhere/*.h5")

    def test_a_draw_repeats_and_reaches_every_cell(self):
        drawn = set()
        for seed in range(40):
            arguments = ("verify", self.path, "--sample", 12, "--seed", seed, "--json")
            report = strict_json(kvbench(*arguments).stdout)
            self.assertEqual(report["sampled"], 12)
            self.assertEqual(report, strict_json(kvbench(*arguments).stdout))
            path = self.written(lambda document: [
                cell["errors"].update(relative_max_error=-1.0) for cell in document["cells"]])
            report = strict_json(kvbench("verify", path, *arguments[2:]).stdout)
            drawn |= {each["cell"]["id"] for each in report["differences"]}
            if len(drawn) == self.count:
                break
        self.assertEqual(len(drawn), self.count)

    def test_nothing_is_left_behind(self):
        before = sorted(self.folder.rglob("*"))
        temporary = self.folder / "tmp"
        temporary.mkdir()
        done = kvbench("verify", self.path, env={"TMPDIR": str(temporary)})
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(list(temporary.iterdir()), [])
        temporary.rmdir()
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_bad_input(self):
        self.assert_refused(kvbench("verify", self.folder / "none.json"), "none.json")
        self.assert_refused(kvbench("verify", self.sweep()), "is a sweep file; name a results.json")
        self.assert_refused(kvbench("verify", self.path, "--sample", 0), "--sample")
        no_config = self.written(lambda document: document.pop("config"))
        self.assert_refused(kvbench("verify", no_config), "/config: must be the sweep of the results")

        for dumps in (None, 5, "tiny.h5", {}, [5], ["tiny.h5", None]):
            changed = self.written(lambda document, value=dumps: document["config"].update(dumps=value))
            self.assert_refused(kvbench("verify", changed), "/config: /dumps: must be a list of files, got ")

        def skipped(document):
            for cell in document["cells"]:
                cell["status"] = "skipped"
        self.assert_refused(kvbench("verify", self.written(skipped)), "has no cell that is ok")


if __name__ == "__main__":
    unittest.main()
