"""Folders as IBM's vLLM-Hook writes them, made by hand here: padded, with growing keys and compact; of
one device and of several. Right tensors are those that the folder was made of."""

import json
import unittest

import h5py
import numpy as np

from import_arrays_test import Importer, safetensors
from layouts_test import attention, bfloat16, number

HQ, HKV, D, DV = 4, 2, 8, 6


def sequence(tokens, seed):
    """q, k [heads, tokens, D] and v of one request, in bfloat16's numbers."""
    rng = np.random.default_rng(seed)
    shapes = {"q": (HQ, tokens, D), "k": (HKV, tokens, D), "v": (HKV, tokens, DV)}
    return {name: number(bfloat16(rng.standard_normal(shape))) for name, shape in shapes.items()}


def side_by_side(array):
    """[tokens, heads * columns]"""
    return array.transpose(1, 0, 2).reshape(array.shape[1], -1)


def padded(pieces):
    out = np.zeros((len(pieces), max(map(len, pieces)), pieces[0].shape[1]), np.float32)
    for place, piece in enumerate(pieces):
        out[place, : len(piece)] = piece
    return out


class Folders(Importer):
    """`self.run`: sequences by layer, and the passes that each was read in."""

    def setUp(self):
        super().setUp()
        self.layers = {3: [sequence(20, 1), sequence(12, 2)], 5: [sequence(20, 3), sequence(12, 4)]}
        self.passes = [[9, 20], [12]]  # ends of each sequence's passes
        self.config = {"num_attention_heads": HQ, "num_key_value_heads": HKV, "hidden_size": HQ * D,
                       "head_dim": D, "attention_multiplier": 0.25}

    def columns(self, held, rank=0, ranks=1, values=True):
        """q, and keys with values, of a device of `ranks`: [tokens, columns]."""
        q = held["q"][rank * HQ // ranks : (rank + 1) * HQ // ranks]
        first = rank * HKV // ranks
        heads = slice(first, first + max(1, HKV // ranks))
        keys = [side_by_side(held["k"][heads])]
        if values:
            keys.append(side_by_side(held["v"][heads]))
        return side_by_side(q), np.concatenate(keys, 1)

    def write(self, layout, ranks=1, meta=None, **how):
        run = self.folder / "run"
        for rank in range(ranks):
            tensors, order, lengths = {}, [], {}
            for layer, sequences in self.layers.items():
                q, k = zip(*(self.columns(each, rank, ranks, **how) for each in sequences))
                lengths, arrays = getattr(self, layout)(q, k)
                name = f"model.layers.{layer}.self_attn.attn"
                keys = {f"key_{which}": f"{name.replace('.', '__')}__{which}" for which in "qk"}
                for which, array in zip("qk", arrays):
                    tensors[keys[f"key_{which}"]] = ("BF16", bfloat16(array))
                order.append({**keys, "module_name": name, "layer_num": layer})
            folder = run / f"tp_rank_{rank}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "qk.safetensors").write_bytes(safetensors(tensors))
            (folder / "qk.json").write_text(json.dumps({
                "config": self.config, "layer_order": order, "hookq_mode": "all_tokens",
                "tp_rank": rank, **lengths, **(meta or {})}))
        return run

    def whole(self, q, k):
        return {"seq_lens": [len(each) for each in q]}, (padded(q), padded(k))

    def pieces(self, arrays, growing):
        """In the order of the model's passes: each has a piece of every sequence that is left."""
        out = []
        for step in range(max(map(len, self.passes))):
            for array, ends in zip(arrays, self.passes):
                if step < len(ends):
                    first = 0 if growing or step == 0 else ends[step - 1]
                    out.append(array[first : ends[step]])
        return out

    def growing(self, q, k):
        q, k = self.pieces(q, False), self.pieces(k, True)
        return ({"q_seq_lens": [len(each) for each in q], "k_seq_lens": [len(each) for each in k]},
                (padded(q), padded(k)))

    def compact(self, q, k):
        steps = [end - before for ends in self.passes for before, end in zip([0, *ends], ends)]
        facts = {"compact_all_tokens": True, "q_seq_lens": steps,
                "k_full_lens": [len(each) for each in k], "k_prefix_ends": self.passes}
        return facts, (np.concatenate(q), np.concatenate(k))

    def assert_the_run(self, path):
        with h5py.File(path) as dump:
            self.assertEqual(sorted(dump["sequences"]), ["0", "1"])
            for layer, sequences in self.layers.items():
                for place, held in enumerate(sequences):
                    found = dump[f"sequences/{place}/layers/{layer}"]
                    self.assertEqual(found.attrs["scale"], 0.25)
                    for name, array in held.items():
                        self.assertEqual(found[name].attrs["dtype"], "bfloat16")
                        np.testing.assert_array_equal(number(found[name][()]), array)

    def imported(self, run, *more, options=("--fresh", "--n-layers", 6)):
        code, said = self.call(run, *more, options=options, scale="0.25")
        self.assertEqual(code, 0, said)
        return self.out


class Layouts(Folders):
    def test_every_layout_is_the_tensors_it_was_made_of(self):
        for layout in ("whole", "growing", "compact"):
            with self.subTest(layout=layout):
                self.assert_the_run(self.imported(self.write(layout)))

    def test_heads_of_several_devices_are_joined(self):
        for ranks in (2, 4):  # with four, two devices have the same KV head
            with self.subTest(ranks=ranks):
                self.assert_the_run(self.imported(self.write("whole", ranks)))

    def test_the_models_own_answers_prove_it_and_the_program_reads_it(self):
        out = {f"{place}/{layer}/out": attention(held).astype(np.float32)
               for layer, sequences in self.layers.items() for place, held in enumerate(sequences)}
        path = self.taken(self.write("whole"), self.npz(**out), options=("--fresh",))
        self.assertTrue(path.is_file())
        out["0/3/out"] = out["0/3/out"][::-1]
        code, said = self.call(self.write("whole"), self.npz(**out), options=("--fresh",))
        self.assertEqual(code, 2, said)
        self.assertIn("/sequences/0/layers/3", said)

    def test_a_head_size_of_its_own_needs_the_scale(self):
        self.config.update(head_dim=4)
        code, said = self.call(self.write("whole"), scale="0.5")
        self.assertEqual(code, 0, said)
        with h5py.File(self.out) as dump:
            self.assertEqual(dump["sequences/0/layers/3"].attrs["scale"], 0.5)


    def test_a_layer_of_other_kv_heads_than_the_config_has_is_told(self):
        rng = np.random.default_rng(1)
        for columns, noted in ((2 * D, 1), (D, 0)):  # 4 KV heads of D numbers, and the 2 that qk.json has
            shapes = {"q": (HQ, 12, D), "k": (HKV, 12, columns), "v": (HKV, 12, columns)}
            self.layers = {3: [{name: number(bfloat16(rng.standard_normal(shape))) for name, shape in shapes.items()}]}
            code, said = self.call(self.write("whole"), options=("--fresh",))
            self.assertEqual((code, said.count("keys have 8 numbers and values 24")), (0, noted), said)


class Refusals(Folders):
    def refusal(self, run, *words):
        self.refused(run, words=words)

    def test_keys_without_values(self):
        self.refusal(self.write("whole", values=False), "layer 3", "queries and keys alone", "ATTACH.md")

    def test_other_modes_folders_and_lengths(self):
        last = self.write("whole", meta={"hookq_mode": "last_token"})
        self.refusal(last, "last_token", "VLLM_HOOKQ_MODE=all_tokens")
        self.refusal(last.parent, "tp_rank_<r>/qk.safetensors", "VLLM_HOOK_USE_SAFETENSORS=1")
        self.refusal(self.write("whole", meta={"seq_lens": [20, 1]}), "entry 1 has one token",
                     "max_tokens=1")
        self.refusal(self.write("growing", meta={"k_seq_lens": [9, 12, 21]}), "entry 2 continues 10",
                     "enable_prefix_caching=False")
        self.refusal(self.write("compact", meta={"q_seq_lens": [8, 12, 12]}), "ends at token 9")
        self.refusal(self.write("whole", meta={"seq_lens": "many"}), "seq_lens", "list of counts")
        self.refusal(self.write("whole", meta={"seq_lens": [90, 90]}), "rows of q, and qk.json says 90")
        run = self.write("whole")
        (run / "tp_rank_0/qk.json").write_text("{")
        self.refusal(run, "qk.json", "expected the description")
        run = self.write("whole")
        (run / "tp_rank_0").rename(run / "tp_rank_1")
        self.refusal(run, "expected tp_rank_0 to tp_rank_1, got [1]")


if __name__ == "__main__":
    unittest.main()
