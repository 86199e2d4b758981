"""Questions to a tiny model over compressed caches: where the sentence is, what the model answers
without it, and what the journal says of methods that hold all of it or nothing."""

from __future__ import annotations

import json
import unittest
from argparse import Namespace
from collections import Counter
from pathlib import Path
from unittest import mock

import torch

import ask_questions
from looped import IDS, PROMPT, TOKENS, Folder, Read, Replayed, Whole, apart, loop_run
from loop import loop_settings
from loop.loop_caches import CacheFiles, Unsuitable

NEEDLES = json.loads(ask_questions.NEEDLES.read_text())
SPAN = [0, 4]  # a window may hold exactly what is left without it


class Letters:
    """A tokenizer whose tokens are characters, and which puts nothing before a text."""

    bos_token_id = None

    def __call__(self, words: str, **_: object) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in words]}

    @staticmethod
    def decode(ids: list[int]) -> str:
        return "".join(map(chr, ids))


class Made(Folder):
    def questions(self, passes: int = 1,
                  depths: tuple[float, ...] = ask_questions.DEPTHS) -> list[ask_questions.Question]:
        texts = [self.folder / f"text{place}.txt" for place in range(10)]
        for path in texts:
            path.write_text("A line of words. " * 100)
        args = Namespace(needles=ask_questions.NEEDLES, text=texts, tokens=1000, passes=passes,
                         depths=depths)
        return list(ask_questions.questions(args, Letters()))

    def test_ten_texts_have_every_sentence_at_every_depth_once(self):
        found = self.questions()
        self.assertEqual(len(found), 50)
        pairs = Counter((each.facts["depth"], each.facts["needle"]) for each in found)
        self.assertEqual((len(pairs), set(pairs.values())), (50, {1}))
        twice = self.questions(passes=2)
        self.assertEqual([each.name for each in twice[:50]], [each.name for each in found])
        own = {each.facts["needle"] for each in twice if each.facts["text"] == "text3"}
        self.assertEqual((len({each.name for each in twice}), own), (100, set(range(10))))

    def test_some_depths_have_the_same_questions_as_all(self):
        some = [each for each in self.questions() if each.facts["depth"] in (0.3, 0.7)]
        self.assertEqual(self.questions(depths=(0.7, 0.3)), some)
        self.assertEqual(len(some), 20)

    def test_spans_distances_and_ends_are_those_of_the_words(self):
        for question in self.questions():
            needle, words = NEEDLES[question.facts["needle"]], Letters.decode(question.ids)
            first, last = question.span
            self.assertEqual(words[first : last + 1], needle["needle"])
            self.assertEqual(words[question.context :] + needle["answer"][-1],
                             needle["question"] + needle["answer"])
            asking = question.context + len(needle["question"]) - 1
            self.assertEqual(question.facts["distance"], asking - last)
            self.assertLess(abs(first - question.facts["depth"] * 900), 100)


class Asked(Folder):
    """A question whose answer is what the tiny model says."""

    def asked(self, answer: list[int], sweep: Path, *options: object,
              model: str = "llama") -> tuple[ask_questions.Asked, Namespace]:
        given = self.options(self.model(model), sweep, *options)
        del given[3:5]  # --tokens, which means the context there
        args = ask_questions.parser().parse_args([str(each) for each in given])
        loaded = loop_run.load_model(args)
        question = ask_questions.Question("q", {}, [*map(int, IDS)], SPAN, answer, PROMPT)
        self.out = self.folder / "asked"
        return ask_questions.Asked(loaded, question, args, self.out), args

    def test_without_the_sentence_is_a_cache_that_lacks_it(self):
        left = TOKENS - SPAN[1] - 1
        sweep = self.sweep([{"algorithm": "window", "params": {"budget": left}}])
        asked, args = self.asked([7], sweep)
        results = loop_run.kb.run(args.config, out=self.out / "attention", quiet=True, sets=[
            f"/dumps={json.dumps([str(asked.dump.path)])}", "/output/caches=true",
            f"/replay/prompt_tokens={TOKENS - 1}"])
        setting, = loop_settings.settings_of(results.cells)
        text = asked.text(TOKENS - 1)
        replayed = Replayed(text, setting, CacheFiles(self.out / "attention/caches"),
                            frozenset(setting.layers))
        window, = asked.logits(TOKENS - 1, replayed)
        for logits, alone in zip(asked.logits(TOKENS - 1, replayed, Whole(text), replayed),
                                 (window, asked.full(TOKENS - 1), window), strict=True):
            self.assertLess(apart(logits, alone), 1e-5)
        self.assertLess(apart(asked.without(TOKENS - 1), window), 1e-5)
        self.assertGreater(apart(asked.full(TOKENS - 1), window), 1e-3)

    def test_records_of_all_and_of_nothing(self):
        sweep = self.sweep([{"algorithm": "exact"}, {"algorithm": "window", "params": {"budget": 24}},
                            {"algorithm": "oracle_topk", "params": {"budget": 96}},
                            {"algorithm": "balancekv_prefill",
                             "params": {"T": 2, "sinks": 4, "recent": 8}}])
        first, args = self.asked([7, 8], sweep)
        answer = first.full(PROMPT).argmax(dim=1).tolist()
        asked, _ = self.asked(answer, sweep)
        line = ask_questions.answered(asked.model, asked.question, args, self.out)
        self.assertTrue(line["answers"])
        self.assertEqual(line["full"]["rank"], [1, 1])
        self.assertLess(max(line["full"]["kl"]), 1e-12)
        self.assertGreater(min(line["without"]["kl"]), 1e-3)
        self.assertEqual([(each["protocol"], each["label"]) for each in line["records"]],
                         [(protocol, label) for protocol in ("seen", "unseen")
                          for label in ("exact", "window", "oracle_topk", "balancekv_prefill")])
        for exact, window, top, live in (line["records"][:4], line["records"][4:]):
            for whole in (exact, top):
                self.assertEqual((whole["rank"], whole["held"]), ([1, 1], 1.0))
                self.assertLess(max(*whole["kl"], whole["error"]), 1e-6)
                self.assertAlmostEqual(whole["mass"], whole["mass_exact"], places=9)
            self.assertEqual((window["held"], window["mass"]), (0.0, 0.0))
            self.assertGreater(min(*window["kl"], window["error"]), 1e-3)
            self.assertEqual((live["decisions"], "decisions" in window), ("live", False))

    def test_a_setting_that_one_layer_cannot_replay_is_answered_live(self):
        asked, _ = self.asked([7, 8], self.sweep([{"algorithm": "window", "params": {"budget": 24}}]))
        replayed, = asked.records("unseen")
        whole = Replayed.reads

        def without_the_last(answers, layer):
            if layer == max(answers.layers):
                raise Unsuitable("no softmax has these weights")
            return whole(answers, layer)

        with mock.patch.object(Replayed, "reads", without_the_last):
            live, = asked.records("unseen")
        self.assertEqual((live["decisions"], live["status"], "decisions" in replayed), ("live", "ok", False))
        self.assertLess(max(abs(one - other) for one, other in zip(live["kl"], replayed["kl"], strict=True)), 1e-5)

    def test_a_setting_that_is_answered_in_no_way_is_skipped_with_its_reason(self):
        sweep = self.sweep([{"algorithm": "tova", "params": {"budget": 24}, "storage": "bf16"},
                            {"algorithm": "window", "params": {"budget": 24}}])
        asked, _ = self.asked([7, 8], sweep)
        tova, window = asked.records("unseen")
        self.assertEqual((tova["status"], window["status"]), ("skipped", "ok"))
        self.assertIn("several KV heads together", tova["reason"])

    def test_layers_with_windows_stay_whole(self):
        """A model of layers with windows, as Gemma 3: its layer of full attention is compressed."""
        sweep = self.sweep([{"algorithm": "exact"}, {"algorithm": "window", "params": {"budget": 24}}])
        first, _ = self.asked([7, 8], sweep, model="gemma3_text")
        answer = first.full(PROMPT).argmax(dim=1).tolist()
        found = {}
        for layers in (("--layers", "2"), ()):
            asked, args = self.asked(answer, sweep, *layers, model="gemma3_text")
            found[layers] = ask_questions.answered(asked.model, asked.question, args, self.out)
        some, every = ([each["kl"][0] for each in line["records"]] for line in found.values())
        for exact in (some[0], some[2], every[0], every[2]):
            self.assertLess(exact, 1e-6)
        for window in (some[1], some[3], every[1], every[3]):
            self.assertGreater(window, 1e-6)
        self.assertEqual([len(each) for each in (some, every)], [4, 4])
        held = [each["held"] for each in found["--layers", "2"]["records"]]
        self.assertEqual(held, [1.0, 0.0, 1.0, 0.0])

    def test_rows_that_are_not_scored_read_the_same(self):
        """Cache files have weights at scored rows; the question's rows are not scored."""
        algorithms = [{"algorithm": "uniform", "params": {"budget": 20, "sinks": 4, "recent": 8}},
                      {"algorithm": "h2o", "params": {"budget": 20}},
                      {"algorithm": "quest", "params": {"budget": 32, "page": 4}}]
        model = self.model("llama")
        every, last = (Read(self, model, algorithms, evaluate={"rows": rows})
                       for rows in ("all", {"last": 2}))
        for place in range(len(algorithms)):
            whole = every.logits(Replayed, place)
            self.assertEqual(apart(whole, last.logits(Replayed, place)), 0.0)
            self.assertGreater(apart(whole, every.whole()), 1e-3)

    def test_a_question_that_is_not_answered_goes_no_further(self):
        sweep = self.sweep([{"algorithm": "exact"}])
        asked, args = self.asked([7], sweep)
        worst = int(asked.full(PROMPT).argmin())
        asked, _ = self.asked([worst], sweep)
        line = ask_questions.answered(asked.model, asked.question, args, self.out)
        self.assertEqual((line["answers"], "records" in line), (False, False))
        self.assertEqual(line["full"]["rank"], [len(asked.full(PROMPT)[0])])

    def test_ranks_count_the_larger_logits(self):
        asked, _ = self.asked([2, 0], self.sweep([{"algorithm": "exact"}]))
        logits = torch.tensor([[3.0, 1.0, 2.0], [5.0, 1.0, 2.0]])
        decoded = asked.answer_record(logits, logits)
        self.assertEqual((decoded["rank"], decoded["kl"]), ([2, 1], [0.0, 0.0]))
        self.assertAlmostEqual(decoded["surprise"][0],
                               float(-torch.log_softmax(logits[0].double(), 0)[2]), places=12)

    def test_options_are_refused(self):
        code = ask_questions.main(["m", "--text", "none.txt", "--config", "none.json", "--out",
                                   str(self.folder), "--part", "3/2"])
        self.assertEqual(code, 2)


if __name__ == "__main__":
    unittest.main()
