"""Dumps with sinks, ALiBi, chunks, values in keys and rows that see every token: numbers of cells and
of whole layers, and evidence, against numpy."""

import unittest

import h5py
import numpy as np

from program import Folder

TOKENS, HIDDEN, DV = 96, 20, 6
EVIDENCE = np.arange(60, 67)
MEMBERS = {
    "sinks": ("--sinks", 1),
    "alibi": ("--alibi",),
    "both": ("--sinks", 0, "--alibi", "--softcap", 4),
    "chunk": ("--chunk", 50),
    "every": ("--every-token", "--sinks", 1),
    "latent": ("--value-in-key",),
}


class Layer:
    """A layer of a dump in float64, and attention in it by the format's own words."""

    def __init__(self, group):
        self.tensors = {name: group[name][:].astype(np.float64) for name in group}
        self.attrs = dict(group.attrs)
        if "value_in_key" in self.attrs:
            self.tensors["v"] = self.tensors["k"][:, :, :self.attrs["value_in_key"]]

    def seen(self, row):
        if not self.attrs.get("causal", 1):
            return np.arange(TOKENS)
        chunk = self.attrs.get("chunk", 0)
        return np.arange(row // chunk * chunk if chunk else 0, row + 1)

    def answer(self, head, row, tokens):
        """a [dv] and p of `tokens`."""
        t = self.tensors
        x = self.attrs["scale"] * t["k"][head // 2, tokens] @ t["q"][head, row]
        cap = self.attrs["logit_softcap"]
        x = cap * np.tanh(x / cap) if cap else x
        if "alibi_slopes" in t:
            x = x - t["alibi_slopes"][head] * (row - tokens)
        sink = t["sinks"][head] if "sinks" in t else -np.inf
        most = max(x.max(), sink)
        e = np.exp(x - most)
        p = e / (e.sum() + np.exp(sink - most))
        return p @ t["v"][head // 2, tokens], p

    def smallest(self, kv_head, count):
        """The tokens of smallest key norm."""
        norms = (self.tensors["k"][kv_head] ** 2).sum(axis=1)
        return np.sort(np.argsort(norms, kind="stable")[:count])


class Members(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, options in MEMBERS.items():
            cls.synth(f"{name}.h5", "--tokens", TOKENS, "--d", 8, "--dv", DV, "--layers", 2,
                      "--dtype", "float64", "--hidden", HIDDEN, "--evidence", "60,66", *options)

    def check(self, name):
        whole = name == "every"
        method = {"algorithm": "knorm", "params": {"budget": 30}} if whole else {
            "algorithm": "window", "params": {"budget": 33}}
        results = self.run_sweep(dumps=[str(self.made / f"{name}.h5")], algorithms=[method],
                                 evaluate={"rows": [3, 50, 95] if whole else {"last": 9}},
                                 seeds=[0])
        rows = [3, 50, 95] if whole else range(87, 96)
        with h5py.File(self.made / f"{name}.h5") as file:
            layers = {number: Layer(group)
                      for number, group in file["sequences/0/layers"].items()}

        def kept(layer, kv_head, row):
            if whole:
                return layer.smallest(kv_head, 30)
            seen = layer.seen(row)
            return seen[seen > row - 33]

        for cell in results["cells"]:
            key = cell["key"]
            layer = layers[str(key["layer"])]
            errors, exact_mass, mass, held = [], [], [], []
            for row in rows:
                tokens = kept(layer, key["kv_head"], row)
                for head in (2 * key["kv_head"], 2 * key["kv_head"] + 1):
                    a, p = layer.answer(head, row, layer.seen(row))
                    z, q = layer.answer(head, row, tokens)
                    errors.append(np.linalg.norm(z - a) / np.linalg.norm(a))
                    if row == TOKENS - 1:
                        exact_mass.append(p[np.isin(layer.seen(row), EVIDENCE)].sum())
                        mass.append(q[np.isin(tokens, EVIDENCE)].sum())
                        held.append(np.isin(EVIDENCE, tokens).mean())
            found = cell["errors"]["relative_l2"]
            np.testing.assert_allclose([found["mean"], found["max"]],
                                       [np.mean(errors), max(errors)], rtol=1e-9)
            self.assertAlmostEqual(cell["evidence"]["mass"]["exact"], np.mean(exact_mass), 11)
            self.assertAlmostEqual(cell["evidence"]["mass"]["approximate"], np.mean(mass), 11)
            self.assertAlmostEqual(cell["evidence"]["held"], np.mean(held), 13)
        self.assertEqual(len(results["layers"]), 2)
        for record in results["layers"]:
            layer = layers[str(record["key"]["layer"])]
            output, residual = [], []
            for row in rows:
                error, exact = np.zeros(HIDDEN), np.zeros(HIDDEN)
                for head in range(4):
                    a, _ = layer.answer(head, row, layer.seen(row))
                    z, _ = layer.answer(head, row, kept(layer, head // 2, row))
                    error += (z - a) @ layer.tensors["wo"][head]
                    exact += a @ layer.tensors["wo"][head]
                output.append(np.linalg.norm(error) / np.linalg.norm(exact))
                residual.append(np.linalg.norm(error) / layer.tensors["residual_norm"][row])
            for metric, values in (("relative_output_l2", output), ("residual_ratio", residual)):
                found = record["errors"][metric]
                np.testing.assert_allclose([found["mean"], found["max"]],
                                           [np.mean(values), max(values)], rtol=1e-9)

    def test_sinks(self):
        self.check("sinks")

    def test_a_bias_by_distance(self):
        self.check("alibi")

    def test_sinks_a_bias_and_a_soft_cap(self):
        self.check("both")

    def test_chunks(self):
        self.check("chunk")

    def test_rows_that_see_every_token(self):
        self.check("every")

    def test_values_in_keys(self):
        self.check("latent")
        with h5py.File(self.made / "latent.h5") as file:
            self.assertNotIn("v", file["sequences/0/layers/0"])
        exact = self.run_sweep("--fresh", dumps=[str(self.made / "latent.h5")], seeds=[0],
                               algorithms=[{"algorithm": "exact"}], name="whole")["cells"][0]
        self.assertEqual(exact["memory"]["exact_bytes"], TOKENS * 8 * 2)

    def test_no_memory_is_solved_where_a_value_is_kept_beside_a_key_that_holds_one(self):
        """A method's own value takes room next to the token's key, which holds the token's value."""
        asked = {"budget": {"memory": 0.6}}
        entries = [{"algorithm": "cam", "params": {**asked, "draw": draw}} for draw in ("none", "bernoulli")]
        entries += [{"algorithm": "attention_matching", "params": {**asked, "values": values}}
                    for values in ("own", "lsq")]
        cells = self.run_sweep("--fresh", dumps=[str(self.made / "latent.h5")], seeds=[0], algorithms=entries,
                               name="solved")["cells"]
        for cell in cells:
            makes_values = "bernoulli" in cell["key"]["params"].values() or "lsq" in cell["key"]["params"].values()
            self.assertEqual(cell["status"], "skipped" if makes_values else "ok", cell)
            if makes_values:
                self.assertIn("values are columns of the keys", cell["reason"])
            else:
                self.assertLessEqual(cell["memory"]["fraction"], 0.6)


if __name__ == "__main__":
    unittest.main()
