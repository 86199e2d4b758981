"""`--shard` and `merge`: however a sweep is cut, the merged result is that of one run."""

import json
import os
import random
import shutil
import subprocess
import unittest

from program import (BAD_INPUT, DONE, FAILED_CELLS, INCOMPLETE, PROGRAM, Folder, deterministic,
                     kvbench, strict_json)

# Deterministic and randomised cells, and some that are skipped.
FOUR = [{"algorithm": "exact"},
        {"algorithm": "window", "params": {"budget": [8, 32]}, "label": "recent"},
        {"algorithm": "uniform", "params": {"T": [1, 2], "sinks": 4}},
        {"algorithm": "streaming_llm", "params": {"budget": [3, 16], "sinks": 4}}]


class Shards(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.synth("deep.h5", "--tokens", 128, "--d", 8, "--layers", 5, "--seed", 1)

    def many(self, **more):
        """A sweep of seven groups in two dumps."""
        return self.sweep(**{"algorithms": FOUR, **more,
                             "dumps": [str(self.made / "tiny.h5"), str(self.made / "deep.h5")]})

    def run_shard(self, config, shard, out, *options, expect=DONE):
        done = kvbench("run", "--config", config, "--shard", shard, "--out", self.folder / out,
                       *options)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done

    def merge(self, *folders, out="merged/results.json", expect=DONE):
        done = kvbench("merge", *(self.folder / folder for folder in folders), "--out",
                       self.folder / out)
        self.assertEqual(done.returncode, expect, done.stderr)
        self.assertEqual(done.stdout, "")
        return done

    def whole(self, config):
        done = kvbench("run", "--config", config, "--out", self.folder / "whole")
        self.assertEqual(done.returncode, DONE, done.stderr)
        return self.results("whole")

    def test_merged_shards_equal_the_unsharded_run_byte_for_byte(self):
        config = self.many(output={"rows": True})
        expected = deterministic(self.whole(config))
        rows = (self.folder / "whole/results.rows.h5").read_bytes()
        for count in (2, 3, 9):
            folders = [f"{count}-{index}" for index in range(1, count + 1)]
            for index, folder in enumerate(folders, 1):
                self.run_shard(config, f"{index}/{count}", folder, "--threads", 1 + index % 3)
            random.Random(count).shuffle(folders)
            self.merge(*folders, out=f"merged-{count}/results.json")
            merged = self.results(f"merged-{count}")
            self.assertEqual(deterministic(merged), expected)
            self.assertEqual(merged["status"], "complete")
            self.assertEqual(len(merged["provenance"]), count)
            self.assertEqual((self.folder / f"merged-{count}/results.rows.h5").read_bytes(), rows)
            for group in merged["groups"]:
                self.assertIsNotNone(group["timing"]["read_seconds"])

    def test_every_cell_falls_to_one_shard_and_plan_says_to_which(self):
        config = self.many()
        whole = strict_json(kvbench("plan", "--config", config, "--json").stdout)
        dealt = []
        for index in (1, 2, 3):
            done = kvbench("plan", "--config", config, "--json", "--shard", f"{index}/3")
            plan = strict_json(done.stdout)
            self.assertEqual((plan["hash"], plan["shard"]), (whole["hash"], f"{index}/3"))
            ids = [cell["id"] for cell in plan["cell_list"]]
            self.assertEqual(len(ids), plan["cells"])
            self.run_shard(config, f"{index}/3", f"s{index}")
            results = self.results(f"s{index}")
            self.assertEqual([cell["id"] for cell in results["cells"]], ids)
            self.assertEqual(results["status"], "incomplete")
            self.assertEqual(results["plan"]["cells"], whole["cells"])
            self.assertEqual(results["config"], whole["config"])
            dealt += ids
            self.assertIn(f"shard {index}/3",
                          kvbench("plan", "--config", config, "--shard", f"{index}/3").stdout)
        self.assertEqual(sorted(dealt), sorted(cell["id"] for cell in whole["cell_list"]))

    def test_shards_of_one_folder_add_up(self):
        config = self.many()
        for index in (1, 2, 3):
            self.run_shard(config, f"{index}/3", "one")
        self.assertEqual(self.results("one")["status"], "complete")
        self.assertEqual(deterministic(self.results("one")), deterministic(self.whole(config)))

    def test_the_environment_names_the_part_that_no_option_does(self):
        config = self.many()
        plans = [kvbench("plan", "--config", config, "--json", *options, cwd=self.folder,
                        env={**os.environ, **env}).stdout
                for options, env in ((["--shard", "2/2"], {}), ([], {"KVBENCH_SHARD": "2/2"}),
                                     (["--shard", "2/2"], {"KVBENCH_SHARD": "1/2"}),
                                     ([], {"KVBENCH_SHARD": "1/2"}))]
        given, named, over, other = (
            [cell["id"] for cell in json.loads(each)["cell_list"]] for each in plans)
        self.assertEqual(given, named)
        self.assertEqual(given, over)
        self.assertNotEqual(given, other)

    def test_a_shard_without_cells_is_done_at_once(self):
        config = self.sweep()  # two layers of two KV heads
        done = self.run_shard(config, "5/5", "s5")
        self.assertIn("this shard has nothing to do", done.stderr)
        self.assertEqual(self.results("s5")["cells"], [])
        for index in range(1, 5):
            self.run_shard(config, f"{index}/5", f"s{index}")
            self.assertTrue(self.results(f"s{index}")["cells"])
        self.merge("s1", "s2", "s3", "s4", "s5")

    def test_one_layer_fills_as_many_shards_as_it_has_kv_heads(self):
        dump = self.synth("wide.h5", "--tokens", 128, "--d", 8, "--layers", 1, "--kv-heads", 6)
        config = self.sweep(FOUR, dumps=[str(dump)], output={"rows": True, "caches": True})
        whole = deterministic(self.whole(config))
        for index in range(1, 4):
            self.run_shard(config, f"{index}/3", f"s{index}")
            heads = {cell["key"]["kv_head"] for cell in self.results(f"s{index}")["cells"]}
            self.assertEqual(len(heads), 2)
        self.merge("s1", "s2", "s3")
        self.assertEqual(deterministic(self.results("merged")), whole)
        for name in ["results.rows.h5", *(f"caches/{each.name}" for each in
                                          sorted((self.folder / "whole/caches").iterdir()))]:
            self.assertEqual((self.folder / "merged" / name).read_bytes(),
                             (self.folder / "whole" / name).read_bytes(), name)
        parts = [self.results(f"s{index}")["groups"][0]["timing"] for index in range(1, 4)]
        self.assertAlmostEqual(self.results("merged")["groups"][0]["timing"]["read_seconds"],
                               sum(part["read_seconds"] for part in parts), delta=1e-12)

    def test_missing_shards_are_named_and_exit_5(self):
        config = self.many()
        self.run_shard(config, "1/3", "s1")
        self.run_shard(config, "3/3", "s3")
        second = strict_json(kvbench("plan", "--config", config, "--json", "--shard", "2/3").stdout)
        # With and without the folder of the shard that never ran.
        for folders in (("s1", "s3"), ("s1", "s2", "s3")):
            done = self.merge(*folders, expect=INCOMPLETE)
            self.assertIn(f"{second['cells']} of ", done.stderr)
            self.assertIn("shard 2/3", done.stderr)
            self.assertNotIn("shard 1/3", done.stderr)
            self.assertIn(second["cell_list"][0]["id"], done.stderr)
            for group in second["groups"]:
                self.assertIn(f"{group['dump']}, sequence {group['sequence']}, "
                              f"layer {group['layer']}", done.stderr)
            merged = self.results("merged")
            self.assertEqual(merged["status"], "incomplete")
        self.assertIn("s2: has no journal", done.stderr)
        self.run_shard(config, "2/3", "s2")
        self.merge("s1", "s2", "s3")
        self.assertEqual(deterministic(self.results("merged")), deterministic(self.whole(config)))

    def test_the_dumps_are_not_needed_to_merge(self):
        for name in ("tiny.h5", "deep.h5"):
            shutil.copy(self.made / name, self.folder / name)
        config = self.sweep(algorithms=FOUR, dumps=["tiny.h5", "deep.h5"])
        self.run_shard(config, "1/2", "s1")
        self.run_shard(config, "2/2", "s2")
        expected = deterministic(self.whole(config))
        for name in ("tiny.h5", "deep.h5", "small.json"):
            (self.folder / name).unlink()
        self.merge("s1", "s2")
        self.assertEqual(deterministic(self.results("merged")), expected)

    def test_only_and_set_narrow_what_is_merged(self):
        config = self.many()
        narrowed = ("--only", "uniform/*/*/*/*", "--only", "window/*/*/*/0", "--set", "/seeds=[4]")
        for index in (1, 2):
            self.run_shard(config, f"{index}/2", f"s{index}", *narrowed)
        self.merge("s1", "s2")
        done = kvbench("run", "--config", config, "--out", self.folder / "whole", *narrowed)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(deterministic(self.results("merged")),
                         deterministic(self.results("whole")))

    def test_folders_that_are_none_and_places_that_cannot_be_written(self):
        self.run_shard(self.many(), "1/2", "s1")
        self.assert_refused(self.merge("none", expect=BAD_INPUT), "none", "journal.jsonl")
        self.assert_refused(self.merge("s1", out="s1", expect=BAD_INPUT), "s1", "--out")
        self.assert_refused(self.merge("s1", out="s1/journal.jsonl/x.json", expect=BAD_INPUT),
                            "--out")
        self.assert_refused(kvbench("merge", self.folder / "s1"), "--out")
        self.assert_refused(kvbench("merge", "--out", self.folder / "x.json"), "DIR")
        (self.folder / "diary").mkdir()
        (self.folder / "diary/journal.jsonl").write_text("dear diary\n")
        done = self.merge("s1", "diary", expect=BAD_INPUT)
        self.assert_refused(done, "is not a kvbench journal; name the output folders")
        self.assertNotIn("--fresh", done.stderr)

    def test_words_that_are_no_shard(self):
        config = self.many()
        for words in ("0/2", "3/2", "1", "1/", "/2", "a/b", "1/0", "-1/2"):
            for command in ("run", "plan"):
                done = kvbench(command, "--config", config, f"--shard={words}", cwd=self.folder)
                self.assert_refused(done, "--shard")
        self.assertFalse((self.folder / "results").exists())

    def test_a_killed_shard_goes_on_from_its_own_journal(self):
        config = self.many(seeds={"first": 0, "count": 40}, output={"rows": True})
        expected = deterministic(self.whole(config))
        for index in (1, 2):
            for attempt in range(4):
                process = subprocess.Popen(
                    [PROGRAM, "run", "--config", config, "--shard", f"{index}/2", "--out",
                     self.folder / f"s{index}", "--quiet"])
                try:
                    process.wait(timeout=0.05 * (1 + attempt))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            self.run_shard(config, f"{index}/2", f"s{index}")
        self.merge("s1", "s2")
        self.assertEqual(deterministic(self.results("merged")), expected)
        self.assertEqual((self.folder / "merged/results.rows.h5").read_bytes(),
                         (self.folder / "whole/results.rows.h5").read_bytes())

    def test_rows_that_are_lost_are_named_and_exit_5(self):
        config = self.many(output={"rows": True})
        self.run_shard(config, "1/2", "s1")
        self.run_shard(config, "2/2", "s2")
        (self.folder / "s2/results.rows.h5").unlink()
        done = self.merge("s1", "s2", expect=INCOMPLETE)
        self.assertIn("no per-row values", done.stderr)
        self.assertIn("s2: ", done.stderr)
        self.run_shard(config, "2/2", "s2")
        self.merge("s1", "s2")

    def test_failed_cells_are_merged_and_exit_3(self):
        self.synth("big.h5", "--tokens", 64, "--d", 8, "--scale", 5e307, "--out-rows", 0)
        config = self.sweep(dumps=[str(self.made / "tiny.h5"), str(self.made / "big.h5")])
        codes = set()
        for index in (1, 2, 3):
            done = kvbench("run", "--config", config, "--shard", f"{index}/3", "--out",
                           self.folder / f"s{index}")
            codes.add(done.returncode)
        self.assertEqual(codes, {DONE, FAILED_CELLS})
        self.merge("s1", "s2", "s3", expect=FAILED_CELLS)
        done = kvbench("run", "--config", config, "--out", self.folder / "whole")
        self.assertEqual(done.returncode, FAILED_CELLS)
        self.assertEqual(deterministic(self.results("merged")),
                         deterministic(self.results("whole")))

    def test_layers_that_are_decided_by_themselves_are_dealt_by_themselves(self):
        config = self.many(algorithms=[
            {"algorithm": "tova", "params": {"budget": 16}},
            {"algorithm": "adakv", "params": {"budget": 24, "window": 8}}])
        for index in (1, 2, 3):
            self.run_shard(config, f"{index}/3", f"s{index}")
        self.merge("s1", "s2", "s3")
        whole = self.whole(config)
        self.assertEqual(deterministic(self.results("merged")), deterministic(whole))
        dealt = [{(cell["key"]["dump"], cell["key"]["sequence"], cell["key"]["layer"])
                  for cell in self.results(f"s{index}")["cells"]} for index in (1, 2, 3)]
        self.assertEqual(sum(map(len, dealt)), 7)
        self.assertTrue(all(dealt))
        # One KV head alone is decided with the others of its layer.
        done = kvbench("run", "--config", config, "--only", "*/*/*/*/1", "--out",
                       self.folder / "one")
        self.assertEqual(done.returncode, DONE, done.stderr)
        one = {cell["id"]: cell["errors"] for cell in self.results("one")["cells"]}
        all_of_them = {cell["id"]: cell["errors"] for cell in whole["cells"]}
        self.assertEqual(one, {each: all_of_them[each] for each in one})
        self.assertTrue(one)


if __name__ == "__main__":
    unittest.main()
