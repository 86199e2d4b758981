"""Methods written in Python, replayed by kb.replay; and cache files through `given`."""

import dataclasses
import tempfile
import unittest
import warnings
from pathlib import Path

import numpy as np

import kvbench as kb
from streams import stream, without


@kb.method
class LastTokens:
    """The tokens of a prompt that `streaming_llm` keeps, except that none of them leaves."""

    budget: int = 16
    sinks: int = 0

    def compress(self, prompt):
        last = np.arange(len(prompt.k) - self.budget, len(prompt.k))
        return kb.Kept(np.concatenate([np.arange(self.sinks), last]))


@kb.method
class RandomTokens:
    uses_seed = True
    budget: int = 16

    def compress(self, prompt):
        tokens = prompt.rng.choice(len(prompt.k), self.budget, replace=False)
        return kb.Kept(np.sort(tokens), weight=np.full(self.budget, len(prompt.k) / self.budget))


def given(tokens, weights, q, k, v, p, scale):
    """Answers of decode rows from these prompt tokens and all decoded ones."""
    out = []
    for row in range(p, len(k)):
        rows = np.concatenate([tokens, np.arange(p, row + 1)])
        w = np.concatenate([weights, np.ones(row + 1 - p)])
        x = scale * q[:, row] @ k[rows].T
        e = w * np.exp(x - x.max(axis=1, keepdims=True))
        out.append(e @ v[rows] / e.sum(axis=1, keepdims=True))
    return np.stack(out, axis=1)


class Methods(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = stream()

    def replay(self, method, **options):
        return kb.replay(self.q, self.k, self.v, method, **{"prompt": 200, "scale": 0.3, **options})

    def test_what_it_keeps_is_what_answers(self):
        got = self.replay(LastTokens(budget=8, sinks=2))
        kept = np.concatenate([[0, 1], np.arange(192, 200)])
        expected = given(kept, np.ones(10), self.q, self.k, self.v, 200, 0.3)
        self.assertLess(np.abs(got.outputs - expected).max(), 1e-12)
        self.assertEqual(got.tokens(210).tolist(), [*kept, *range(200, 211)])
        self.assertEqual(got.memory["tokens"], 10 + 56)
        self.assertEqual(got.memory["bookkeeping"], 0)

    def test_a_token_that_is_named_twice_is_told(self):
        with self.assertWarnsRegex(UserWarning, r"last_tokens: compress names a token more than once, .*np.unique"):
            got = self.replay(LastTokens(budget=199, sinks=3))
        twice = np.concatenate([[0, 1, 2], np.arange(1, 200)])
        expected = given(twice, np.ones(202), self.q, self.k, self.v, 200, 0.3)
        self.assertLess(np.abs(got.outputs - expected).max(), 1e-12)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.replay(LastTokens(budget=197, sinks=3))

    def test_weights_count_and_are_stored(self):
        got = self.replay(RandomTokens(budget=10), seed=3)
        tokens = got.tokens(200)[:-1]
        expected = given(tokens, np.full(10, 20.0), self.q, self.k, self.v, 200, 0.3)
        self.assertLess(np.abs(got.outputs - expected).max(), 1e-12)
        self.assertEqual(got.memory["bookkeeping"], 10)

    def test_vectors_of_its_own_and_rows_for_one_head(self):
        @kb.method
        class Mean:
            def compress(self, prompt):
                return kb.Kept([-1, -1], key=np.stack([prompt.k.mean(0), prompt.k[3]]),
                               value=np.stack([prompt.v.mean(0), prompt.v[4]]), head=[-1, 1])

        got = self.replay(Mean(), prompt=255)
        k = np.concatenate([[self.k[:255].mean(0)], [self.k[3]], [self.k[255]]])
        v = np.concatenate([[self.v[:255].mean(0)], [self.v[4]], [self.v[255]]])
        for g, rows in ((0, [0, 2]), (1, [0, 1, 2])):
            x = 0.3 * self.q[g, 255] @ k[rows].T
            p = np.exp(x - x.max())
            self.assertLess(np.abs(got.outputs[g, 0] - p @ v[rows] / p.sum()).max(), 1e-12)

    def test_an_algorithm_of_kvbench_written_in_python_has_its_errors(self):
        """A method that keeps the tokens that `snapkv` kept has its errors and memory."""
        first = self.replay("snapkv", budget=64, window=16)
        tokens = first.tokens(200)[:-1]

        @kb.method
        class Told:
            def compress(self, prompt):
                return kb.Kept(tokens)

        got = self.replay(Told())
        self.assertEqual(got.errors, first.errors)
        self.assertEqual(got.memory, first.memory)

    def test_the_key_names_method_source_parameters_and_seed(self):
        key = self.replay(LastTokens(sinks=4)).record["key"]
        self.assertEqual(key["algorithm"], "last_tokens")
        self.assertEqual({**key["params"], "source": ""}, {"budget": 16, "sinks": 4, "source": ""})
        self.assertRegex(key["params"]["source"], "^[0-9a-f]{16}$")
        self.assertIsNone(key["seed"])
        self.assertEqual(self.replay(RandomTokens(), seed=7).record["key"]["seed"], 7)
        other = type("LastTokens", (), {"compress": lambda self, prompt: kb.Kept([0])})
        self.assertNotEqual(self.replay(kb.method(other)()).record["key"]["params"].get("source"),
                            key["params"]["source"])

    def test_random_numbers_depend_on_seed_and_place_alone(self):
        first = self.replay(RandomTokens(), seed=1)
        self.assertEqual(without(self.replay(RandomTokens(), seed=1).record), without(first.record))
        for change in ({"seed": 2}, {"seed": 1, "head": 1}, {"seed": 1, "layer": 2}, {"seed": 1, "sequence": "t"}):
            self.assertNotEqual(self.replay(RandomTokens(), **change).tokens(200).tolist(),
                                first.tokens(200).tolist())

    def test_a_prompt_has_what_a_stream_has(self):
        seen = []

        @kb.method
        class Look:
            def compress(self, prompt):
                seen.append(prompt)
                return kb.Kept([0])

        kb.replay(self.q[:, 56:].astype(np.float32), self.k, self.v, Look(), layer=3, head=1,
                  sequence="s", softcap=2.0, sliding_window=999)
        prompt = seen[0]
        self.assertEqual((prompt.q.shape, prompt.k.shape, prompt.v.shape),
                         ((2, 72, 16), (128, 16), (128, 8)))
        self.assertTrue(np.array_equal(prompt.k, self.k[:128]))
        self.assertEqual((prompt.scale, prompt.softcap, prompt.window, prompt.sequence, prompt.layer,
                          prompt.head), (0.25, 2.0, 999, "s", 3, 1))
        with self.assertRaises(ValueError):
            prompt.k[0, 0] = 1.0
        with self.assertRaises(dataclasses.FrozenInstanceError):
            prompt.scale = 2.0

    def test_what_is_wrong_is_named(self):
        def keeping(kept):
            return kb.method(type("Bad", (), {"compress": lambda self, prompt: kept}))()

        for words, method, options in (
                ("kvbench.Kept, got list", keeping([1, 2]), {}),
                ("token 200", keeping(kb.Kept([200])), {}),
                ("begin", keeping(kb.Kept([1], begin=[150])), {}),
                ("query head 2", keeping(kb.Kept([1], head=[2])), {}),
                ("d = 3", keeping(kb.Kept([1], key=np.ones((1, 3)))), {}),
                ("fields", LastTokens(), {"budget": 3}),
                ("prompt", LastTokens(), {"prompt": 256})):
            with self.subTest(words), self.assertRaisesRegex(kb.Error, words):
                self.replay(method, **options)
        for words, body, name in (
                ("compress", {}, "Empty"),
                ("leave out", {"compress_layer": len, "step": len}, "Stream"),
                ("h2o", {"compress": len}, "h2o")):
            with self.subTest(words), self.assertRaisesRegex(kb.Error, words):
                kb.method(type(name, (), body))

    def test_what_it_raises_passes_through(self):
        @kb.method
        class Fails:
            def compress(self, prompt):
                raise ZeroDivisionError("mine")

        with self.assertRaisesRegex(ZeroDivisionError, "mine"):
            self.replay(Fails())


class Files(unittest.TestCase):
    def test_a_saved_cache_is_replayed_by_given(self):
        q, k, v = stream()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "mine.h5")
            tokens = RandomTokens().compress(kb.Prompt(q[:, :200], k[:200], v[:200], 0.3, 0, 0.0, "s",
                                                       2, 1, 5))
            tokens.save(path, sequence="s", layer=2, head=1, prompt_tokens=200, method="mine",
                        params={"budget": 16})
            place = {"sequence": "s", "layer": 2, "head": 1, "prompt": 200, "scale": 0.3}
            got = kb.replay(q, k, v, "given", file=path, **place)
            direct = kb.replay(q, k, v, RandomTokens(), seed=5, **place)
            self.assertEqual(got.errors, direct.errors)
            self.assertEqual(got.memory, direct.memory)
            self.assertEqual((got.record["label"], got.derived["method"]), ("mine", "mine"))
            with self.assertRaisesRegex(kb.Error, "no rows of this head"):
                kb.replay(q, k, v, "given", file=path, **{**place, "head": 0})
            with self.assertRaisesRegex(kb.Error, "none.h5"):
                kb.replay(q, k, v, "given", file=str(Path(folder, "none.h5")), **place)


if __name__ == "__main__":
    unittest.main()
