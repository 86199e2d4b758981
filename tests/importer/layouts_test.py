"""Arrays as people have them: facts per layer, batches and padding, repeated heads, 16 and 8 bits,
layers that read another layer's keys. Right values come from attention worked out here."""

import subprocess
import sys
import unittest
import zipfile

import h5py
import numpy as np

from import_arrays_test import DATA, Importer, safetensors


def arrays(hq=4, hkv=2, n=48, d=16, seed=0, rows=None):
    rng = np.random.default_rng(seed)
    return {"q": rng.standard_normal((hq, rows or n, d)), "k": rng.standard_normal((hkv, n, d)),
            "v": rng.standard_normal((hkv, n, d))}


def attention(given, scale=0.25, window=0, softcap=0.0):
    """[Hq, Nq, dv], row by row, in float64."""
    q, k, v = (np.asarray(given[name], np.float64) for name in "qkv")
    n, rows = k.shape[1], q.shape[1]
    out = np.empty((*q.shape[:2], v.shape[2]))
    for h in range(len(q)):
        g = h // (len(q) // len(k))
        for r in range(rows):
            i = n - rows + r
            seen = slice(max(0, i - window + 1) if window else 0, i + 1)
            x = scale * k[g, seen] @ q[h, r]
            x = softcap * np.tanh(x / softcap) if softcap else x
            p = np.exp(x - x.max())
            out[h, r] = p @ v[g, seen] / p.sum()
    return out


def floats(given):
    return {name: np.asarray(array, np.float32) for name, array in given.items()}


def proved(given, **terms):
    """In float32, with out."""
    held = floats(given)
    return {**held, "out": attention(held, **terms).astype(np.float32)}


def bfloat16(array):
    """Bits, rounded to nearest even."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def number(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Layouts(Importer):
    def dump(self, given, *options, scale="0.25"):
        path = self.taken(self.npz(**given), options=("--fresh", *options), scale=scale)
        return h5py.File(path)

    def refusal(self, given, *options, scale="0.25"):
        self.out.unlink(missing_ok=True)
        code, said = self.call(self.npz(**given), options=options, scale=scale)
        self.assertEqual(code, 2, said)
        self.assertEqual(said.count("\n"), 1 + 40 * ("usage:" in said), said)
        return said


class FactsPerLayer(Layouts):
    def two(self, one=None, other=None, **terms):
        one, other = one or proved(arrays()), other or proved(arrays(seed=1))
        return {f"{layer}/{name}": array for layer, held in ((0, one), (1, other))
                for name, array in held.items()}

    def test_each_layer_has_its_rotation(self):
        slow, fast = 1e6 ** (-np.arange(8) / 8), 1e4 ** (-np.arange(8) / 8)
        given = {**self.two(), "0/inv_freq": fast, "1/inv_freq": slow}
        options = ("--rope-theta", 1e4, "--rope-layout", "0=half,1=interleaved",
                   "--rope-attention-scaling", "1,1=1.5")
        with self.dump(given, *options) as file:
            layers = file["sequences/0/layers"]
            np.testing.assert_array_equal(layers["0/rope/inv_freq"], fast)
            np.testing.assert_array_equal(layers["1/rope/inv_freq"], slow)
            self.assertEqual(dict(layers["1/rope"].attrs),
                             {"theta": 1e6, "layout": "interleaved", "attention_scaling": 1.5})
            self.assertEqual(layers["0/rope"].attrs["layout"], "half")
            self.assertNotIn("rope", file)

    def test_a_layer_without_rotation_has_none(self):
        with self.dump(self.two(), "--rope-theta", 100, "--rope-dims", "16,1=0", "--rope-layout",
                       "half") as file:
            self.assertIn("rope", file["sequences/0/layers/0"])
            self.assertNotIn("rope", file["sequences/0/layers/1"])
            self.assertNotIn("rope", file)
        given = {**self.two(), "0/inv_freq": np.ones(8)}
        said = self.refusal(given, "--rope-theta", 100, "--rope-layout", "half")
        self.assertIn("--rope-dims 1=0", said)
        self.taken(self.npz(**given), options=("--rope-theta", 100, "--rope-layout", "half",
                                               "--rope-dims", "1=0"))

    def test_scale_window_and_cap_by_layer(self):
        given = self.two(proved(arrays(), scale=0.5, window=5),
                         proved(arrays(seed=1), scale=0.125, softcap=2.0))
        options = ("--sliding-window", "0=5,1=0", "--logit-softcap", "0,1=2")
        with self.dump(given, *options, scale="0-0=0.5,1=0.125") as file:
            attributes = [dict(layer.attrs) for layer in file["sequences/0/layers"].values()]
        self.assertEqual([each["scale"] for each in attributes], [0.5, 0.125])
        self.assertEqual([each["sliding_window"] for each in attributes], [5, 0])
        self.assertEqual([each["logit_softcap"] for each in attributes], [0.0, 2.0])
        self.assertIn("differs", self.refusal(given, *options, scale="0=0.125,1=0.5"))
        self.assertIn("nothing is said of layer 1", self.refusal(given, scale="0=0.5"))

    def test_facts_in_arrays(self):
        given = self.two(proved(arrays(), window=5), proved(arrays(seed=1)))
        given |= {"0/sliding_window": np.int64(5)}
        with self.dump(given) as file:
            self.assertEqual(file["sequences/0/layers/0"].attrs["sliding_window"], 5)
            self.assertEqual(file["sequences/0/layers/1"].attrs["sliding_window"], 0)
        self.assertIn("leave one of them out", self.refusal(given, "--sliding-window", 4))
        given["0/sliding_window"] = np.float64(5)
        with self.dump(given) as file:
            self.assertEqual(file["sequences/0/layers/0"].attrs["sliding_window"], 5)
        quarter = {f"{layer}/scale": np.float16(0.25) for layer in (0, 1)}  # a power of 2 is exact
        said = self.call(self.npz(**given, **quarter), options=("--scale", "0.25", "--fresh"))
        self.assertEqual(said[0], 0, said)
        for short in (np.float16(0.0884), bfloat16(np.array([0.0884])).view("V2")):
            said = self.refusal({**given, "0/scale": short}, "--fresh")
            self.assertIn("0/scale: expected float32 or float64", said)
        given["0/sliding_window"] = np.float64(5.5)
        self.assertIn("expected an integer, got 5.5", self.refusal(given))

    def test_frequencies_are_not_those_of_16_bits(self):
        given = {**proved(arrays()), "inv_freq": 1e4 ** (-np.arange(8) / 8)}
        rope = ("--rope-theta", "1e4", "--rope-layout", "half")
        self.dump(given, *rope).close()
        for rounded in (given["inv_freq"].astype(np.float16), bfloat16(given["inv_freq"]).view("V2")):
            self.assertIn("frequencies are rounded", self.refusal({**given, "inv_freq": rounded}, *rope))

    def test_layers_of_unlike_heads_share_nothing_in_silence(self):
        given = self.two(proved(arrays()), proved(arrays(d=32, seed=1)))
        said = self.refusal(given)
        self.assertIn("--scale 0=VALUE,1=VALUE", said)
        self.assertIn("16 numbers", said)
        self.dump(given, scale="0=0.25,1=0.25").close()
        said = self.refusal(given, "--rope-theta", 10, "--rope-dims", 16, "--rope-layout", "half",
                            scale="0=0.25,1=0.25")
        self.assertIn("--rope-dims 0=VALUE", said)
        said = self.refusal({**given, "inv_freq": np.ones(8)}, "--rope-theta", 10, "--rope-layout",
                            "half", scale="0=0.25,1=0.25")
        self.assertIn("0/inv_freq", said)


class KeysOfAnotherLayer(Layouts):
    def given(self):
        one = proved(arrays())
        q = arrays(seed=5)["q"].astype(np.float32)
        out = attention({**one, "q": q}).astype(np.float32)
        return {**{f"0/{name}": array for name, array in one.items()}, "1/q": q, "1/out": out}

    def written(self, given, *options):
        """Without the program, which the format is new to."""
        self.out.unlink(missing_ok=True)
        code, said = self.call(self.npz(**given), options=options)
        self.assertEqual(code, 0, said)
        self.assertIn("2 layers agrees", said)
        with h5py.File(self.out) as file:
            layer = file["sequences/0/layers/1"]
            self.assertEqual(set(layer), {"q", "out"})
            self.assertEqual(layer.attrs["kv_layer"], 0)
            self.assertEqual(layer.attrs["scale"], 0.25)
            self.assertEqual(file.attrs["format_version"], 2)

    def test_its_queries_are_stored_alone(self):
        given = self.given()
        self.written(given, "--kv-layer", "1=0")
        self.written({**given, "1/kv_layer": np.int32(0)})
        self.written({**given, "1/k": given["0/k"], "1/v": given["0/v"]}, "--kv-layer", "1=0")

    def test_what_does_not_fit_is_refused(self):
        given = self.given()
        self.assertIn("--kv-layer", self.refusal(given))
        self.assertIn("no layer 7", self.refusal(given, "--kv-layer", "1=7"))
        self.assertIn("no keys of its own", self.refusal(given, "--kv-layer", "1=1"))
        self.assertIn("whose keys it reads",
                      self.refusal(given, "--kv-layer", "1=0", "--sliding-window", "0=5,1=0"))
        said = self.refusal({**given, "1/k": given["0/k"] + 1}, "--kv-layer", "1=0")
        self.assertIn("is another", said)
        sinks = {**given, "1/sinks": np.ones(4, np.float32)}
        self.assertIn("sinks or neither", self.refusal(sinks, "--kv-layer", "1=0"))
        wrong = {**given, "1/out": given["0/out"]}
        self.assertIn("layers/1: attention", self.refusal(wrong, "--kv-layer", "1=0"))

    def test_copies_are_noticed(self):
        given = self.given()
        given |= {"1/k": given["0/k"], "1/v": given["0/v"]}
        code, said = self.call(self.npz(**given))
        self.assertEqual(code, 0)
        self.assertIn("--kv-layer 1=0", said)


class Batches(Layouts):
    def test_each_sequence_of_a_batch_is_its_own(self):
        pair = [proved(arrays(seed=seed)) for seed in (0, 1)]
        given = {name: np.stack([each[name] for each in pair]) for name in pair[0]}
        given["token_ids"] = np.arange(96).reshape(2, 48)
        with self.dump(given) as file:
            self.assertEqual(set(file["sequences"]), {"0", "1"})
            for name, each in zip("01", pair):
                np.testing.assert_array_equal(file[f"sequences/{name}/layers/0/k"], each["k"])
            np.testing.assert_array_equal(file["sequences/1/token_ids"], np.arange(48, 96))
        given["k"] = given["k"][:1]
        self.assertIn("batch of 1", self.refusal(given))

    def test_padding_is_cut_where_a_mask_says_so(self):
        whole, short = proved(arrays()), proved(arrays(n=30, seed=1))
        for side in ("left", "right"):
            pad = ((0, 0), (18, 0) if side == "left" else (0, 18), (0, 0))
            padded = {name: np.pad(array, pad, constant_values=9) for name, array in short.items()}
            given = {name: np.stack([whole[name], padded[name]]) for name in whole}
            mask = np.ones((2, 48), np.int64)
            mask[1] = np.pad(np.ones(30), pad[1])
            ids = np.pad(np.arange(30), pad[1], constant_values=77)
            with self.dump({**given, "attention_mask": mask,
                            "token_ids": np.stack([np.arange(48), ids])}) as file:
                for name, array in short.items():
                    np.testing.assert_array_equal(file[f"sequences/1/layers/0/{name}"], array)
                np.testing.assert_array_equal(file["sequences/1/token_ids"], np.arange(30))
                self.assertEqual(file["sequences/0/layers/0/q"].shape[1], 48)
            if side == "left":  # later tokens attend to the padding
                self.assertIn("differs", self.refusal(given))
        mask[1, 10] = 0
        self.assertIn("side by side", self.refusal({**given, "attention_mask": mask}))
        self.assertIn("mask of its own", self.refusal({**given, "attention_mask": mask[:, None]}))

    def test_rows_that_may_end_before_or_behind_the_padding(self):
        held = floats(arrays())
        mask = np.r_[np.ones(30, int), np.zeros(18, int)]
        for rows in (30, 40):
            given = {**held, "q": held["q"][:, :rows], "attention_mask": mask}
            self.assertIn(f"the {rows} rows of q may end there or at 48", self.refusal(given))
        given = {**held, "q": held["q"][:, -40:]}
        self.assertIn("the 40 rows of q", self.refusal(given, "--tokens", 30))
        self.dump({**held, "q": held["q"][:, :30]}, "--tokens", 30).close()
        given["k"][:, 30:] = given["v"][:, 30:] = 0  # unused places: rows end before them
        given["q"] = given["q"][:, :8]
        with self.dump(given, "--tokens", 30) as file:
            np.testing.assert_array_equal(file["sequences/0/layers/0/q"], given["q"])

    def test_heads_side_by_side_have_a_remedy_that_works(self):
        held = proved(arrays(hq=48, hkv=48))
        flat = {name: array.transpose(1, 0, 2).reshape(1, 48, -1) for name, array in held.items()}
        fewer = {**flat, "k": flat["k"][..., :32], "v": flat["v"][..., :32]}
        for given in (flat, fewer, {name: array.repeat(2, 0) for name, array in fewer.items()}):
            self.assertIn("q.reshape(*q.shape[:-1], heads, d)", self.refusal(given))
        given = {name: array.reshape(1, 48, -1, 16) for name, array in flat.items()}
        with self.dump(given, "--order", "tokens") as file:
            np.testing.assert_array_equal(file["sequences/0/layers/0/k"], held["k"])
        del flat["out"]
        self.dump(flat, "--order", "heads").close()

    def test_outputs_in_the_layouts_of_attention_functions(self):
        held = proved(arrays())
        behind = held["out"].transpose(1, 0, 2)
        for out in (behind, behind[None], behind.reshape(48, -1), behind.reshape(1, 48, -1)):
            given = {**{name: array[None] for name, array in held.items()}, "out": out}
            with self.dump(given) as file:
                np.testing.assert_array_equal(file["sequences/0/layers/0/out"], held["out"])

    def test_outputs_side_by_side_where_no_values_are_given(self):
        held = proved(arrays())
        latent = floats({"q": arrays()["q"], "k": arrays(hkv=1)["k"]})
        out = attention({**latent, "v": latent["k"][..., :8]}).astype(np.float32)
        with self.dump({**latent, "out": out.transpose(1, 0, 2).reshape(48, -1)},
                       "--value-in-key", 8) as file:
            np.testing.assert_array_equal(file["sequences/0/layers/0/out"], out)
        other = floats(arrays(seed=1))["q"]
        out = attention({**held, "q": other}).astype(np.float32)
        given = {f"0/{name}": array for name, array in held.items()}
        given |= {"1/q": other, "1/out": out.transpose(1, 0, 2).reshape(1, 48, -1)}
        with self.dump(given, "--kv-layer", "1=0") as file:
            np.testing.assert_array_equal(file["sequences/0/layers/1/out"], out)

    def test_what_belongs_to_each_sequence_of_a_batch(self):
        two = [proved(arrays(seed=seed)) for seed in (0, 1)]
        given = {name: np.stack([each[name] for each in two]) for name in two[0]}
        norms = np.arange(1, 97, dtype=np.float32).reshape(2, 48)
        ids = np.arange(96).reshape(2, 48)
        with self.dump({**given, "residual_norm": norms, "token_ids": ids}) as file:
            for index in (0, 1):
                np.testing.assert_array_equal(file[f"sequences/{index}/layers/0/residual_norm"],
                                              norms[index])
                np.testing.assert_array_equal(file[f"sequences/{index}/token_ids"], ids[index])
        for wrong in ({"residual_norm": norms[0]}, {"residual_norm": np.ones((3, 48), "f4")}):
            self.assertIn("[2, rows]", self.refusal({**given, **wrong}))
        self.assertIn("[2, 48]", self.refusal({**given, "token_ids": ids[0]}))
        self.assertIn("[48]", self.refusal({**two[0], "token_ids": ids.reshape(4, 24)[:2]}))

    def test_a_number_per_head_in_any_dimension(self):
        given = floats(arrays())
        for sinks in (np.arange(4), np.arange(4.0).reshape(1, 4, 1, 1)):
            with self.dump({**given, "sinks": sinks}) as file:
                np.testing.assert_array_equal(file["sequences/0/layers/0/sinks"], np.arange(4))

    def test_dimensions_in_another_order_have_a_remedy_that_works(self):
        held = proved(arrays())
        for name, axes in (("k", (0, 2, 1)), ("v", (1, 0, 2))):
            said = self.refusal({**held, name: held[name].transpose(axes)})
            self.assertIn(f"{name}.transpose({', '.join(map(str, np.argsort(axes)))})", said)
        self.assertNotIn("transpose", self.refusal(floats(arrays(hq=6, hkv=4))))
        square = proved(arrays(n=4))
        square["out"] = square["out"].transpose(1, 0, 2)
        self.assertIn("out.transpose(1, 0, 2)", self.refusal(square))
        self.assertIn("k[None]", self.refusal({**held, "k": held["k"][0]}))
        self.assertIn(".reshape(B, H * G, tokens, d)",
                      self.refusal({**held, "q": held["q"].reshape(1, 2, 2, 48, 16)}))

    def test_layers_are_named_with_an_underscore_too(self):
        held = floats(arrays())
        given = {**{f"layer_3/{name}": array for name, array in held.items()},
                 **{f"layer4.{name}": array + 1 for name, array in held.items()}}
        with self.dump(given) as file:
            self.assertEqual(set(file["sequences/0/layers"]), {"3", "4"})

    def test_heads_and_tokens_are_not_exchanged_in_silence(self):
        same = arrays(hq=4, hkv=4)
        given = floats({name: array.transpose(1, 0, 2) for name, array in same.items()})
        self.assertIn("--order tokens", self.refusal(given))
        with self.dump(given, "--order", "tokens") as file:
            self.assertEqual(file["sequences/0/layers/0/q"].shape, (4, 48, 16))

    def test_as_many_heads_as_tokens_tell_no_order(self):
        square = floats(arrays(hq=16, hkv=16, n=16, d=8))
        self.assertIn("say --order tokens", self.refusal(square))
        for order, turned in (("heads", square["k"]), ("tokens", square["k"].transpose(1, 0, 2))):
            with self.dump(square, "--order", order) as file:
                np.testing.assert_array_equal(file["sequences/0/layers/0/k"], turned)
        self.dump(proved(arrays(hq=16, hkv=16, n=16, d=8))).close()

    def test_queries_of_cross_attention_have_a_remedy_that_works(self):
        given = {**floats(arrays(n=40)), "q": floats(arrays(n=64))["q"]}
        self.assertIn("q[:, :40] and out likewise, with --every-token", self.refusal(given, "--every-token"))
        self.dump({**given, "q": given["q"][:, :40]}, "--every-token").close()

    def test_texts_in_one_row_are_not_read_as_one(self):
        for name in ("cu_seqlens", "position_ids", "a/0/segment_ids"):
            said = self.refusal({**floats(arrays()), name: np.array([0, 20, 48])})
            self.assertIn("give each its own tensors, <sequence>/<layer>/q", said)
        self.assertIn("save {'q': [q of each layer], 'past_key_values'", self.refusal({"0/0": arrays()["k"], "0/1": arrays()["v"]}))
        self.assertIn("leave it out, or name it q, k, v", self.refusal({**floats(arrays()), "keyz": np.ones(3)}))

    def test_lists_by_layer_and_pairs(self):
        held = floats(arrays())
        names = {"q/0": held["q"], "past_key_values/0/0": held["k"],
                 "past_key_values/0/1": held["v"], "q/3": held["q"], "key_cache/3": held["k"] + 1,
                 "value_cache/3": held["v"]}
        with self.dump(names) as file:
            np.testing.assert_array_equal(file["sequences/0/layers/0/k"], held["k"])
            np.testing.assert_array_equal(file["sequences/0/layers/3/k"], held["k"] + 1)

    def test_pickles_have_a_remedy(self):
        for name in ("cache.pkl", "cache.pickle"):
            self.refused(self.given(name, b"\x80\x04."), words=[name, "np.savez"])


class Misread(Layouts):
    def test_repeated_heads(self):
        once = arrays(hq=8)
        given = proved({**once, "k": np.repeat(once["k"], 4, 0), "v": np.repeat(once["v"], 4, 0)})
        said = self.refusal(given)
        self.assertIn("only 2 of 8 KV heads differ", said)
        self.assertIn("4 times", said)
        with self.dump(given, "--kv-heads", 2) as file:
            np.testing.assert_array_equal(file["sequences/0/layers/0/k"],
                                          once["k"].astype(np.float32))
        with self.dump(given, "--kv-heads", 8) as file:
            self.assertEqual(len(file["sequences/0/layers/0/k"]), 8)
        self.assertIn("not 4 groups", self.refusal(floats(arrays(hq=8, hkv=8)), "--kv-heads", 4))
        tiled = floats({**once, "k": np.tile(once["k"], (4, 1, 1)),
                        "v": np.tile(once["v"], (4, 1, 1))})
        self.assertIn("KV head 2 is equal to 0", self.refusal(tiled))
        only_keys = floats({**arrays(hq=8, hkv=8), "k": np.repeat(once["k"], 4, 0)})
        self.dump(only_keys).close()

    def test_unused_places_of_a_static_cache(self):
        held = proved(arrays(n=30))
        pad = ((0, 0), (0, 18), (0, 0))
        given = {**held, "k": np.pad(held["k"], pad), "v": np.pad(held["v"], pad)}
        said = self.refusal(given)
        self.assertIn("the last 18 of 48 tokens", said)
        self.assertIn("--tokens 30", said)
        with self.dump(given, "--tokens", 30) as file:
            np.testing.assert_array_equal(file["sequences/0/layers/0/k"], held["k"])
        del given["out"]
        self.dump(given, "--tokens", 48).close()
        ahead = floats(arrays())
        ahead["k"][:, :5] = ahead["v"][:, :5] = 0
        self.assertIn("attention_mask", self.refusal(ahead))

    def test_padding_by_one_token_is_noted(self):
        given, token = floats(arrays()), np.arange(48)[:, None]
        for end, padding, mask in (("last 14", token >= 34, token[:, 0] < 34), ("first 8", token < 8, token[:, 0] >= 8)):
            same = given["v"][:, 40:41] if end == "last 14" else given["v"][:, 3:4]
            padded = {**given, "v": np.where(padding, same, given["v"])}
            code, said = self.call(self.npz(**padded), options=("--fresh",), scale="0.25")
            self.assertIn(f"the {end} of 48 tokens have the same values", said)
            code, said = self.call(self.npz(**padded, attention_mask=mask), options=("--fresh",), scale="0.25")
            self.assertEqual((code, "same values" in said), (0, False), said)

    def test_queries_that_were_scaled_are_told(self):
        given = proved(arrays())
        said = self.refusal({**given, "q": given["q"] / 4})
        self.assertIn("out fits --scale 1, as q is scaled already", said)
        self.dump({**given, "q": given["q"] / 4}, scale="1").close()
        for wrong in ("0.3", "1", "2", "0.05"):  # the scale is 0.25
            self.assertIn("out fits --scale 0.25", self.refusal(given, scale=wrong), wrong)

    def test_what_is_guessed_and_what_is_written_is_said(self):
        _, said = self.call(self.npz(**proved(arrays())))
        self.assertIn("n_layers is taken as 1", said)
        self.assertIn("4 query heads, 2 KV heads, 48 tokens, d = 16; out of 1 layer agrees", said)
        self.out.unlink()
        _, said = self.call(self.npz(**proved(arrays())), options=("--n-layers", 9))
        self.assertNotIn("taken", said)


class ShortFloats(Layouts):
    def test_bfloat16_without_a_type(self):
        bits = {name: bfloat16(array) for name, array in arrays().items()}
        out = attention({name: number(each) for name, each in bits.items()}).astype(np.float32)
        void = {name: each.view("V2") for name, each in bits.items()}
        with self.dump({**void, "out": out}) as file:
            np.testing.assert_array_equal(file["sequences/0/layers/0/k"], bits["k"])
            self.assertEqual(file["sequences/0/layers/0/k"].attrs["dtype"], "bfloat16")
        self.assertIn("--bits", self.refusal({**bits, "out": out}))
        for given in (bits, {name: each.astype(">u2") for name, each in bits.items()}):
            with self.dump({**given, "out": out}, "--bits", "bfloat16") as file:
                np.testing.assert_array_equal(file["sequences/0/layers/0/v"], bits["v"])

    def test_eight_bits(self):
        # e4m3fn: 0x38 is 1, 0xB9 is -1.125, 0x01 is 2^-9, 0x7E is 448; e5m2: 0x3C is 1, 0x7B 57344.
        codes = np.array([0x38, 0xB9, 0x01, 0x7E] * 4, np.uint8)
        numbers = np.array([1, -1.125, 2.0**-9, 448] * 4, np.float32)
        held = floats(arrays(hkv=1, n=8))
        k = np.tile(codes, (1, 8, 1))
        file = self.given("in.safetensors", safetensors(
            {"q": ("F32", held["q"]), "k": ("F8_E4M3", k), "v": ("F32", held["v"])}))
        with h5py.File(self.taken(file)) as dump:
            np.testing.assert_array_equal(dump["sequences/0/layers/0/k"], np.tile(numbers, (1, 8, 1)))
        self.assertIn("--bits", self.refusal({**held, "k": k.view("V1")}))
        with self.dump({**held, "k": k.view("V1")}, "--bits", "float8_e4m3fn") as dump:
            np.testing.assert_array_equal(dump["sequences/0/layers/0/k"], np.tile(numbers, (1, 8, 1)))
        wide = np.tile(np.array([0x3C, 0x7B], np.uint8), 8)
        with self.dump({**held, "k": np.tile(wide, (1, 8, 1))}, "--bits", "float8_e5m2") as dump:
            self.assertEqual(set(dump["sequences/0/layers/0/k"][()].ravel()), {1.0, 57344.0})
        for kind, one in (("F8_E4M3FNUZ", 0x40), ("F8_E5M2FNUZ", 0x40)):  # biases 8 and 16
            file = self.given("in.safetensors", safetensors(
                {"q": ("F32", held["q"]), "k": (kind, np.full((1, 8, 16), one, np.uint8)), "v": ("F32", held["v"])}))
            with h5py.File(self.taken(file, options=("--fresh",))) as dump:
                self.assertEqual(set(dump["sequences/0/layers/0/k"][()].ravel()), {1.0})
        path = self.npz(**{**held, "k": k})
        with zipfile.ZipFile(path) as one:  # as NumPy writes float8_e5m2 of ml_dtypes
            members = {name: one.read(name).replace(b"'|u1'", b"'<f1'") for name in one.namelist()}
        with zipfile.ZipFile(path, "w") as other:
            for name, content in members.items():
                other.writestr(name, content)
        self.out.unlink()
        self.refused(path, words=("view(np.uint8)", "--bits float8_e5m2"))
        nan = np.full((1, 8, 16), 0x7F, np.uint8)
        self.assertIn("nan", self.refusal({**held, "k": nan}, "--bits", "float8_e4m3fn"))

    def test_outputs_are_allowed_their_own_rounding_and_no_other_scale(self):
        for dtype in ("float16", "bfloat16"):
            for spread in (1.0, 0.25):
                def to(array, dtype=dtype):
                    return (array.astype(np.float16) if dtype == "float16"
                            else bfloat16(array).view("V2"))

                def back(array, dtype=dtype):
                    return array if dtype == "float16" else number(array.view(np.uint16))
                given = {name: to(spread * array) for name, array in arrays(n=96).items()}
                exact = {name: back(array) for name, array in given.items()}
                for scale in (0.25, 0.2625, 0.2375):
                    out = to(attention(exact, scale=scale))
                    for stored in (out, back(out).astype(np.float32)):
                        with self.subTest(dtype=dtype, scale=scale, spread=spread, stored=stored.dtype):
                            if scale == 0.25:
                                self.dump({**given, "out": stored}).close()
                            else:
                                said = self.refusal({**given, "out": stored})
                                self.assertIn("check the scale", said)

    def test_outputs_in_bfloat16_of_wider_tensors(self):
        given = floats(arrays())
        for scale in (0.25, 0.2625):
            out = bfloat16(attention(given, scale=scale))
            for stored in (out.view("V2"), number(out)):
                if scale == 0.25:
                    self.dump({**given, "out": stored}).close()
                else:
                    self.assertIn("check the scale", self.refusal({**given, "out": stored}))

    def test_a_smaller_type_of_the_dump_is_proved_too(self):
        for dtype in ("float16", "bfloat16"):
            self.dump(proved(arrays()), "--dtype", dtype).close()
            wrong = {**floats(arrays()), "out": attention(floats(arrays()), window=9)}
            self.assertIn("differs", self.refusal(wrong, "--dtype", dtype))

    def test_integers_are_not_bits(self):
        bits = {name: bfloat16(array) for name, array in arrays().items()}
        given = {**bits, "token_ids": np.arange(48, dtype=np.uint16),
                 "sliding_window": np.uint16(7), "attention_mask": np.ones(48, np.int8)}
        with self.dump(given, "--bits", "bfloat16") as file:
            np.testing.assert_array_equal(file["sequences/0/token_ids"], np.arange(48))
            self.assertEqual(file["sequences/0/layers/0"].attrs["sliding_window"], 7)

    def test_float16_that_overflowed(self):
        given = {name: array.astype(np.float16) for name, array in arrays().items()}
        given["k"][1, 3, 5] = np.inf
        self.assertIn("65504", self.refusal(given))

    def test_arithmetic_in_sixteen_bits_is_told_from_a_scale(self):
        rng = np.random.default_rng(7)
        given = {name: array.astype(np.float16) for name, array in arrays(n=96).items()}
        exact = attention(given)
        noisy = (exact * (1 + 2.0**-10 * rng.uniform(-1, 1, exact.shape))).astype(np.float16)
        self.dump({**given, "out": noisy}).close()
        worse = (exact * (1 + 2.0**-6 * rng.uniform(-1, 1, exact.shape))).astype(np.float16)
        self.assertIn("16 bits", self.refusal({**given, "out": worse}))


class Packages(unittest.TestCase):
    def test_without_h5py_programs_end_in_one_line(self):
        for name in ("import_arrays", "make_needle", "make_dumps", "kvpress_caches",
                     "export_transformers"):
            code = ("import runpy, sys; sys.modules['h5py'] = None; sys.argv = ['x', '--help']; "
                    f"sys.path.insert(0, {str(DATA)!r}); "
                    f"runpy.run_path({str(DATA / (name + '.py'))!r}, run_name='__main__')")
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                  timeout=120, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, rf"\A{name}\.py: .*h5py.*; (pip install|run it with).*\n\Z")


if __name__ == "__main__":
    unittest.main()
