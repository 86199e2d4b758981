"""Budgets given as memory and an axis of tokens, from the sweep to results, resumed, sharded and
compared."""

import json
import unittest

from program import DONE, Folder, deterministic, kvbench

METHODS = [
    {"algorithm": "window", "params": {"budget": {"memory": [0.3, 0.6]}}},
    {"algorithm": "h2o", "params": {"budget": {"memory": 0.6}}},
    {"algorithm": "uniform", "params": {"budget": {"memory": 0.6}, "sinks": 2}},
    {"algorithm": "snapkv", "params": {"budget": {"memory": 0.3}, "window": 4}}]


class MemoryForm(Folder):
    def test_counted_memory_is_what_was_asked_for(self):
        results = self.run_sweep(algorithms=METHODS, replay={"prompt_tokens": 48})
        token = 1.5 / 96  # with two scores next to the 32 bytes of a key and a value, and some more
        solved = {}
        for cell in results["cells"]:
            asked = cell["key"]["params"]["budget"]["memory"]
            if cell["label"] == "snapkv":  # 48 of 96 tokens are decoded; besides the window of 4 it needs one
                self.assertEqual(cell["status"], "skipped")
                self.assertIn(f"at least {53 / 96:.4f} of", cell["reason"])
                continue
            fraction = cell["memory"]["fraction"]
            self.assertLessEqual(fraction, asked)
            self.assertGreater(fraction, asked - token)
            solved[cell["label"], asked] = cell["derived"]["budget"]
        self.assertEqual(solved["window", 0.3], 28)
        self.assertEqual(solved["window", 0.6], 57)
        self.assertLess(solved["h2o", 0.6], 57)
        self.assertLess(solved["uniform", 0.6], 10)
        self.assertIn({"memory": 0.6}, [line["params"]["budget"] for line in results["summary"]])

    def test_plan_shows_what_is_solved(self):
        config = self.sweep(METHODS[:2])
        plan = json.loads(kvbench("plan", "--config", config, "--json").stdout)
        self.assertEqual({cell["solved"]["budget"] for cell in plan["cell_list"]
                          if cell["path"].startswith("window/")}, {28, 57})
        self.assertIn('window: budget={"memory":0.3}', kvbench("plan", "--config", config).stdout)

    def test_a_bound_may_be_the_solved_budget(self):
        self.run_sweep(algorithms=METHODS[:1])
        bounds = self.folder / "bounds.json"
        bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
            {"name": "kept", "metric": "memory.tokens_peak", "limit": {"param": "budget"}}]}))
        done = kvbench("check", "--results", self.folder / "out/results.json", "--bounds", bounds)
        self.assertEqual(done.returncode, DONE, done.stdout + done.stderr)

    def test_one_line(self):
        done = kvbench("run", "--dump", self.made / "tiny.h5", "--algorithm", "window", "--budget",
                       '{"memory": 0.5}', "-o", "out", cwd=self.folder)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual({cell["derived"]["budget"] for cell in self.results()["cells"]}, {48})


# 48 prompt and 48 decoded tokens with two query heads per KV head: what `list algorithms` says of
# the memory with a budget of 20, tokens at the peak, and further numbers of 4 bytes.
COUNTED = {
    "h2o": ("at most budget + 1 tokens, and 4 bytes per kept token and query head", 21, 21 * 2),
    "roco": ("at most budget + 1 tokens, and 8 bytes per kept token", 21, 21 * 2),
    "tova": ("at most budget + 1 tokens", 21, 0),
    "window": ("at most budget tokens", 20, 0),
    "knorm": ("budget tokens of the prompt and every decoded token", 20 + 48, 0),
    "attention_matching": ("budget tokens of the prompt and every decoded token, and 4 bytes per kept "
                           "token of the prompt", 20 + 48, 20),
    "d2o": ("at most budget + 1 tokens, and 4 bytes per kept token and query head and 4 bytes more",
            21, 21 * 2 + 1),
    "exact": ("every token", 96, 0)}


class Counted(Folder):
    def test_the_listed_rule_is_what_a_run_counts(self):
        listed = {each["id"]: each["memory"] for each in
                  json.loads(kvbench("list", "algorithms", "--json").stdout)}
        results = self.run_sweep(
            replay={"prompt_tokens": 48}, seeds=[0], algorithms=[
                {"algorithm": name, "params": {} if name == "exact" else {"budget": 20}}
                for name in COUNTED])
        for cell in results["cells"]:
            name = cell["key"]["algorithm"]
            with self.subTest(name):
                rule, tokens, numbers = COUNTED[name]
                self.assertEqual(listed[name], rule)
                self.assertEqual(cell["memory"]["tokens_peak"], tokens)
                self.assertEqual(cell["memory"]["peak_bytes"], tokens * 2 * 8 * 2 + numbers * 4)
                self.assertIn(f"  memory: {rule}\n", kvbench("help", name).stdout)

    def test_where_no_rule_follows_the_line_says_what_decides(self):
        for name, words in (("quest", "keeps every token"), ("subgen", "the keys decide"),
                            ("adakv", "a mean over the KV heads")):
            self.assertIn(words, kvbench("help", name).stdout.split("memory: ")[1].split("\n")[0])


# With an algorithm that decides for all layers at once.
TWO_LENGTHS = {"algorithms": [METHODS[0], {"algorithm": "uniform", "params": {"T": 1, "sinks": 2}},
                              {"algorithm": "keyformer", "params": {"budget": 8, "scope": "model"}}],
               "select": {"tokens": [96, 40]}}


class TokenAxis(Folder):
    def cells(self, results, **key):
        return {cell["id"]: (cell["status"], cell["errors"]) for cell in results["cells"]
                if all(cell["key"][name] == value for name, value in key.items())}

    def test_each_number_of_tokens_is_as_it_would_be_alone(self):
        together = self.run_sweep(**TWO_LENGTHS)
        for tokens in (96, 40):
            alone = self.run_sweep("--fresh", **{**TWO_LENGTHS, "select": {"tokens": tokens}},
                                   name=f"alone-{tokens}")
            self.assertEqual(self.cells(together, tokens=tokens), self.cells(alone))
            self.assertEqual(
                [{name: value for name, value in line.items() if name != "tokens"}
                 for line in together["summary"] if line["tokens"] == tokens], alone["summary"])
            self.assertNotIn("tokens", alone["groups"][0])
        self.assertEqual({group["tokens"] for group in together["groups"]}, {96, 40})

    def test_shards_merge_and_runs_resume_to_the_same(self):
        together = deterministic(self.run_sweep(**TWO_LENGTHS))
        config = self.sweep(**TWO_LENGTHS)
        for shard in (1, 2):
            done = kvbench("run", "--config", config, "--out", self.folder / f"part{shard}",
                           "--shard", f"{shard}/2")
            self.assertEqual(done.returncode, DONE, done.stderr)
        (self.folder / "merged").mkdir()
        done = kvbench("merge", self.folder / "part1", self.folder / "part2", "--out",
                       self.folder / "merged/results.json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(deterministic(self.results("merged")), together)
        journal = self.folder / "out/journal.jsonl"
        lines = journal.read_text().splitlines()
        journal.write_text("\n".join(lines[:len(lines) // 2]) + "\n")
        again = kvbench("run", "--config", config, "--out", self.folder / "out")
        self.assertEqual(again.returncode, DONE, again.stderr)
        self.assertEqual(deterministic(self.results()), together)

    def test_compare_takes_each_number_of_tokens_for_itself(self):
        self.run_sweep(**TWO_LENGTHS)
        path = self.folder / "out/results.json"
        done = kvbench("compare", path, path, "--json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        settings = json.loads(done.stdout)["settings"]
        self.assertEqual([setting["tokens"] for setting in settings
                          if setting["label"] == "uniform"], [40, 96])
        self.assertIn("tokens=40", kvbench("compare", path, path).stdout)


if __name__ == "__main__":
    unittest.main()
