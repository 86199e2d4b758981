"""Sweeps by ordinary options, natural forms of their values, and what the help and plan say."""

import json
import re
import unittest
from types import MappingProxyType

from program import BAD_INPUT, DONE, Folder, kvbench


def by_label(cells):
    return {cell["path"].split("/")[0] for cell in cells}


class Options(Folder):
    def planned(self, *options):
        done = kvbench("plan", *options, "--json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        return json.loads(done.stdout)

    def refused(self, *options):
        done = kvbench("plan", *options)
        self.assertEqual(done.returncode, BAD_INPUT, done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_aliases_are_sets_of_the_sweep(self):
        given = ("--seeds", 3, "--layers", 1, "--prompt-tokens", 48)
        sets = ("--set", "seeds.count=3", "--set", "select.layers=[1]",
                "--set", "replay.prompt_tokens=48")
        sweep = ("--dump", self.made / "tiny.h5", "--algorithm", "uniform", "--T", 1)
        config = self.sweep(seeds={"first": 5})
        for words in (sweep, ("--config", config)):
            by_alias = self.planned(*given, *words)
            self.assertEqual(by_alias["config"], self.planned(*words, *sets)["config"])
            self.assertEqual(by_alias["config"]["select"]["layers"], [1])
            self.assertEqual(by_alias["config"]["replay"]["prompt_tokens"], 48)
            self.assertEqual(by_alias["config"]["seeds"]["count"], 3)
        self.assertEqual(self.planned("--config", config, "--seeds=7")["config"]["seeds"],
                         {"first": 5, "count": 7})

    def test_lists_and_words(self):
        config = self.sweep()
        heads = self.planned("--config", config, "--kv-heads", "1")
        self.assertEqual(heads["config"]["select"]["kv_heads"], [1])
        self.assertEqual({cell["path"].rsplit("/", 1)[1] for cell in heads["cell_list"]}, {"1"})
        dump = ("--dump", self.made / "tiny.h5", "--budget", 8)
        spaced, usual = (self.planned(*dump, "--algorithm", names) for names in ("h2o, window", "h2o,window"))
        self.assertEqual(*([cell["id"] for cell in plan["cell_list"]] for plan in (spaced, usual)))
        for text, advice in (("20%", "; write 0.2"), ("100%", 'got "100%"'), ("many%", 'got "many%"')):
            self.assertTrue(self.refused(*dump[:2], "--algorithm", "window", "--budget", text).strip().endswith(advice))
        self.assertNotIn("write", self.refused(*dump, "--algorithm", "snapkv", "--window", "20%"))
        for words, options in (("it belongs to criticalkv; KV heads are chosen by --kv-heads", ("--heads", 0)),
                               ("it belongs to attention_matching; rows are chosen by --set", ("--rows", 3))):
            self.assertIn(words, self.refused(*dump, "--algorithm", "window", *options))
        given = ("--config", config, "--set", 'evaluate.rows={"last": 64}')  # as that line says
        self.assertEqual(self.planned(*given)["config"]["evaluate"]["rows"], {"last": 64})
        for text, layers in (("0,1", [0, 1]), ("0-1", [0, 1]), ("1-1, 0", [1, 0]), ("all", "all"), ("[1]", [1])):
            plan = self.planned("--config", config, "--layers", text)
            self.assertEqual(plan["config"]["select"]["layers"], layers)
        plan = self.planned("--config", config, "--seeds", "4,9", "--prompt-tokens", "0.5")
        self.assertEqual(plan["config"]["seeds"], [4, 9])
        self.assertEqual(plan["groups"][0]["prompt_tokens"], 48)

    def test_numbers_that_json_does_not_have(self):
        dump = ("--dump", self.made / "tiny.h5", "--algorithm", "window")
        for natural, usual in ((("--memory", ".25,+0.5"), ("--memory", "0.25,0.5")),
                               (("--budget", "8.", "--prompt-tokens", ".5"),
                                ("--budget", "8", "--prompt-tokens", "0.5")),
                               (("--budget", "8", "--set", "algorithms.0.params.budget=.5"),
                                ("--budget", "0.5"))):
            plans = [self.planned(*dump, *options)["cell_list"] for options in (natural, usual)]
            self.assertEqual(*([cell["id"] for cell in plan] for plan in plans))
        for word in ("+inf", ".nan", "+", ".", "1.2.", "+0x1", ".5x"):
            self.assertIn(f'got "{word}"', self.refused(*dump, "--budget", word))

    def test_several_algorithms_and_dumps(self):
        self.synth("other.h5", "--tokens", 96, "--d", 8, "--layers", 1, "--seed", 7)
        dumps = (self.made / "tiny.h5", self.made / "other.h5")
        repeated = self.planned("--dump", dumps[0], "--dump", dumps[1], "--algorithm", "window",
                                "--algorithm", "h2o", "--budget", 32)
        together = self.planned("--algorithm", "window,h2o", "--dump", *dumps, "--budget", 32)
        self.assertEqual([cell["id"] for cell in repeated["cell_list"]],
                         [cell["id"] for cell in together["cell_list"]])
        self.assertEqual(by_label(together["cell_list"]), {"window", "h2o"})
        self.assertEqual(len(together["config"]["dumps"]), 2)

    def test_remedies_of_skipped_budgets_work(self):
        dump = ("--dump", self.made / "tiny.h5", "--prompt-tokens", 20)
        names = {"budget": "--budget", "window": "--window", "sinks": "--sinks"}
        for name, options in (("window", ("--budget", 0.001)), ("snapkv", ("--budget", 4)), ("rkv", ("--budget", 4)),
                              ("lava", ("--budget", 4)), ("streaming_llm", ("--budget", 4)), ("cam", ("--budget", 4)),
                              ("chunkkv", ("--budget", 4))):
            def reasons(*given, name=name):
                cells = self.planned(*dump, "--algorithm", name, *given)["cell_list"]
                return {cell["skip_reason"] for cell in cells if "skip_reason" in cell}
            reason, = reasons(*options)
            remedies = [(names[what], number) for what, number in
                        re.findall(r"(budget|window) of at (?:least|most) (\d+)", reason)]
            remedies += [("--sinks", number) for number in re.findall(r"at most (\d+) sinks", reason)]
            self.assertEqual(len(remedies), 1 if name == "window" else 2, reason)
            for option, number in remedies:
                given = {**dict([options]), option: number}
                self.assertEqual(reasons(*(each for pair in given.items() for each in pair)), set(), reason)

    def test_natural_forms_in_a_file(self):
        tiny = str(self.made / "tiny.h5")
        usual = self.planned("--config", self.sweep(
            select={"layers": [0], "kv_heads": [0], "sequences": ["0"]},
            algorithms=[{"algorithm": "window", "params": {"budget": 8}}]))
        natural = self.planned("--config", self.sweep(
            dumps=tiny, select={"layers": 0.0, "kv_heads": 0, "sequences": "0"},
            algorithms={"algorithm": "window", "params": {"budget": 8.0}}))
        self.assertEqual([cell["id"] for cell in usual["cell_list"]],
                         [cell["id"] for cell in natural["cell_list"]])
        self.assertEqual(usual["hash"], natural["hash"])

    def test_forms_without_a_certain_meaning_name_one_that_works(self):
        window = [{"algorithm": "window", "params": {"budget": "8"}}]
        self.assertIn('got "8"; write it without quotes',
                      self.refused("--config", self.sweep(window)))
        said = self.refused("--config", self.sweep(seeds=5))
        self.assertIn('write {"count": 5} for 5 seeds, or [5] for seed 5', said)
        file = self.folder / "comma.json"
        file.write_text('{"schema_version": 1,\n "name": "x", }')
        self.assertIn("comma.json:2:13: invalid JSON: trailing comma before }; remove it",
                      self.refused("--config", file))

    def test_help_is_short_and_parameters_have_their_own(self):
        for command in ("run", "plan"):
            text = kvbench(command, "--help").stdout
            self.assertLessEqual(len(text.splitlines()), 50, text)
            self.assertLessEqual(max(map(len, text.splitlines())), 105, text)
            self.assertNotIn("--tau1", text)
            for word in ("--seeds", "kvbench list parameters", "Examples"):
                self.assertIn(word, text)
        self.assertIn("--tau1", kvbench("list", "parameters").stdout)
        self.assertIn("--tau1", kvbench("completion", "bash").stdout)
        self.assertEqual(kvbench("help", "h2o").stdout, kvbench("list", "algorithms", "h2o").stdout)
        kivi = kvbench("help", "kivi").stdout
        self.assertEqual(kivi, kvbench("list", "storage", "kivi").stdout)
        self.assertTrue(kivi.startswith("kivi (keys, values): ") and "residual" in kivi, kivi)
        self.assertEqual([each["id"] for each in json.loads(
            kvbench("list", "storage", "kivi", "fp8_e4m3", "--json").stdout)], ["kivi", "fp8_e4m3"])
        self.assertIn("rope ", kivi)
        every = kvbench("list", "storage").stdout
        self.assertTrue(every.startswith("parameters of every codec except oscar, think\n"), every[:80])
        self.assertEqual([len(re.findall(rf"^ +{name} ", every, re.M)) for name in ("rope", "centre")], [1, 1])


class Memory(Folder):
    # 48 of 96 tokens are the prompt, of 32 bytes each; a kept token of the middle stores two
    # weights of 4 bytes: (48 + 48 / 2^T) * 32 + 8 * 48 / 2^T of 3072 bytes.
    FRACTIONS = MappingProxyType({1: 0.8125, 2: 0.65625, 3: 0.578125, 6: 0.5})

    def test_halvings_solved_for_memory(self):
        asked = {0.9: 1, 0.65625: 2, 0.65: 3, 0.5: 6}
        results = self.run_sweep(
            replay={"prompt_tokens": 48}, seeds=[0], algorithms=[
                {"algorithm": "balancekv_prefill",
                 "params": {"T": {"memory": [*asked, 0.49]}, "sinks": 0}}])
        for cell in results["cells"]:
            memory = cell["key"]["params"]["T"]["memory"]
            if memory == 0.49:
                self.assertEqual(cell["status"], "skipped")
                self.assertIn("keeps at least 0.5 of the exact cache", cell["reason"])
                continue
            self.assertEqual(cell["derived"]["T"], asked[memory])
            self.assertEqual(cell["memory"]["fraction"], self.FRACTIONS[asked[memory]])
            self.assertLessEqual(cell["memory"]["fraction"], memory)

    def test_plan_knows_what_a_run_counts(self):
        algorithms = [{"algorithm": "exact"},
                      {"algorithm": "balancekv_prefill", "params": {"T": [1, 3], "sinks": 0}},
                      {"algorithm": "uniform", "params": {"T": [1, 2]}},
                      {"algorithm": "uniform", "params": {"budget": 20, "replacement": True}},
                      {"algorithm": "h2o", "params": {"budget": [16, {"memory": 0.4}]}},
                      {"algorithm": "h2o", "params": {"budget": 16, "semantics": "released"}},
                      {"algorithm": "keyformer", "params": {"budget": 16, "scope": "model"}},
                      {"algorithm": "subgen", "params": {"delta_quantile": 0.5, "t": 2, "s": 4}}]
        storage = ["float", "q8_0"]
        config = self.sweep(algorithms, replay={"prompt_tokens": 48},
                            storage=storage)
        plan = json.loads(kvbench("plan", "--config", config, "--json").stdout)
        known = {cell["id"]: cell.get("memory_fraction") for cell in plan["cell_list"]}
        results = self.run_sweep(algorithms=algorithms, replay={"prompt_tokens": 48},
                                 storage=storage)
        known_cells = [cell for cell in results["cells"] if known[cell["id"]] is not None]
        self.assertEqual({cell["label"].split(" ")[0] for cell in known_cells},
                         {"exact", "balancekv_prefill", "uniform", "h2o"})
        for cell in known_cells:
            self.assertEqual(cell["memory"]["fraction"], known[cell["id"]], cell["label"])

    def test_methods_without_such_a_parameter_say_what_to_change(self):
        sweep = ("run", "--dump", self.made / "tiny.h5", "--memory", "0.3")
        for algorithm, words in (("subgen", "lower t and s"), ("balancekv", "lower t"),
                                 ("softmax_balance", "raise T"), ("quest", "keeps every token"),
                                 ("performer", "lower features")):
            self.assert_refused(kvbench(*sweep, "--algorithm", algorithm),
                                f"kvbench run: --memory: cannot be solved for {algorithm}: ", words)
        for params in ({"memory": 0.3}, {"budget": {"memory": 0.3}}):
            config = self.sweep([{"algorithm": "balancekv_prefill", "params": params}])
            self.assert_refused(kvbench("run", "--config", config),
                                'give T as {"memory": F}')
            config = self.sweep([{"algorithm": "subgen", "params": params}])
            self.assert_refused(kvbench("run", "--config", config), "lower t and s")

    def test_memory_as_an_option_solves_the_method_s_own_parameter(self):
        done = kvbench("plan", "--json", "--dump", self.made / "tiny.h5", "--prompt-tokens", 48,
                       "--memory", "0.7", "--algorithm", "balancekv_prefill,window", "--sinks", 0)
        cells = json.loads(done.stdout)["cell_list"]
        self.assertEqual({str(cell["solved"]) for cell in cells},
                         {"{'T': 2}", "{'budget': 67}"})

    def test_uniform_runs_at_low_memory(self):
        long = self.synth("long.h5", "--tokens", 2048, "--d", 8)
        done = kvbench("plan", "--dump", long, "--algorithm", "uniform", "--memory", "0.1",
                       "--prompt-tokens", 1920, "--json")
        plan = json.loads(done.stdout)
        self.assertEqual(plan["skipped"], 0, plan["skips"])

    def test_sinks_that_do_not_fit_are_named_with_a_value_that_works(self):
        skipped = self.run_sweep(replay={"prompt_tokens": 48}, seeds=[0], algorithms=[
            {"algorithm": "uniform", "params": {"budget": 20, "sinks": 30}}])["cells"][0]
        self.assertEqual(skipped["reason"],
                         "budget of 20 tokens is smaller than sinks (30), which are always kept; "
                         "raise budget to 30, or lower sinks to 20")
        for params in ({"budget": 30, "sinks": 30}, {"budget": 20, "sinks": 20}):
            cell = self.run_sweep(
                "--fresh", replay={"prompt_tokens": 48}, seeds=[0],
                algorithms=[{"algorithm": "uniform", "params": params}])["cells"][0]
            self.assertEqual(cell["status"], "ok")

    def test_values_that_a_skipped_cell_names_work_one_by_one(self):
        short = {"uniform": {"budget": 9, "sinks": 8, "recent": 30},  # recent is cut to the prompt
                 "kcenter": {"budget": 9, "sinks": 8},  # recent grows with the budget
                 "d2o": {"budget": 9, "sinks": 8, "recent_fraction": 0.4}}

        def cell_of(method, params):
            return self.run_sweep("--fresh", replay={"prompt_tokens": 20}, seeds=[0], algorithms=[
                {"algorithm": method, "params": params}])["cells"][0]

        for method, params in short.items():
            reason = cell_of(method, params)["reason"]
            raised, lowered = reason.split("; raise budget to ")[1].split(", or lower ")
            lower = {name: int(value) for name, value in re.findall(r"(\w+) to (\d+)", lowered)}
            for change in ({"budget": int(raised)}, lower):
                self.assertEqual(cell_of(method, params | change)["status"], "ok", (reason, change))
            less = cell_of(method, params | {"budget": int(raised) - 1})
            self.assertEqual(less["status"], "skipped", reason)


if __name__ == "__main__":
    unittest.main()
