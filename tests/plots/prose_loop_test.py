"""Numbers in prose about what a model says over a compressed cache (FINDINGS.md, METRICS.md, README.md) that follow from
a table of FINDINGS.md, as prose_test.py holds the others."""

import re
import unittest

from prose import Prose, ROOT, by, plain, table

MEAN, FROBENIUS, P99 = "errors.relative_l2.mean", "errors.relative_frobenius_error", "errors.relative_l2.p99"
RESIDUAL, MEMORY = "outputs.residual_ratio.mean", "memory.fraction"


def ranks(folder, *where):
    return by(table(f"results/loop/{folder}rank_agreement.csv", *where), "metric")


def rho(row):
    return f"{row['rho']:.2f} ({row['rho_low']:.2f} to {row['rho_high']:.2f})"


class Loop(Prose):
    def setUp(self):
        self.every, self.one = (ranks("", f"over={over}") for over in ("all", "budget"))

    def test_the_mean_error(self):
        self.stands(f"rho of the mean relative error is {rho(self.every[MEAN])}, and {rho(self.one[MEAN])} among the "
                    "settings of one budget")
        page = plain((ROOT / "README.md").read_text(encoding="utf-8"))
        self.assertIn(f"rank correlation of {rho(self.every[FROBENIUS])} with the Frobenius error, and "
                      f"{rho(self.every[MEAN])} with the mean", page)

    def test_metrics_ahead_and_behind(self):
        self.stands(f"all rows together by {self.every[FROBENIUS]['gain']:.2f}, and by {self.one[FROBENIUS]['gain']:.2f} "
                    "at one budget; the 99th percentile and the spectral norm follow within 0.03.")
        for rows in (self.every, self.one):
            for name in (P99, "errors.relative_spectral_error"):
                self.assertTrue(0 <= rows[FROBENIUS]["rho"] - rows[name]["rho"] <= 0.03)
                self.assertGreater(rows[name]["gain_low"], 0)
            for name in ("mass.kept.mean", "errors.kl_divergence.mean"):
                self.assertLess(rows[name]["gain_high"], 0)

    def test_what_the_layer_makes_of_it(self):
        after, norm = self.every[RESIDUAL], self.every[FROBENIUS]
        self.stands(f"the error's rho is {after['rho']:.3f} ({after['rho_low']:.3f} to {after['rho_high']:.3f}), as that "
                    f"of the Frobenius norm over all settings ({norm['rho']:.3f}), and below it at one budget "
                    f"({self.one[RESIDUAL]['rho']:.3f} and {self.one[FROBENIUS]['rho']:.3f})")
        self.assertTrue(after["rho_low"] < norm["rho"] < after["rho_high"])

    def test_families(self):
        keys, queries = ranks("keys/"), ranks("queries/")
        self.stands(f"the mean error says little: {keys[MEAN]['all']:.2f} over all their settings, where memory alone has "
                    f"{keys[MEMORY]['all']:.2f}, and {keys[MEAN]['budget']:.2f} among those of one budget; the Frobenius "
                    f"norm has {keys[FROBENIUS]['all']:.2f} and {keys[FROBENIUS]['budget']:.2f} there. Of methods that do "
                    f"look, {queries[MEAN]['all']:.2f} and {queries[MEAN]['budget']:.2f}.")

    def test_without_the_methods_that_fail(self):
        others = ranks("others/")
        self.stands(f"the mean error has {rho(others[MEAN])} and memory alone {rho(others[MEMORY])}: there the mean error "
                    f"says no more than the budget. The Frobenius norm has {rho(others[FROBENIUS])}, the 99th percentile "
                    f"{rho(others[P99])}, the error after W_O over the stream {rho(others[RESIDUAL])}.")
        self.assertTrue(others[MEMORY]["gain_low"] < 0 < others[MEMORY]["gain_high"])

    def test_on_a_second_model(self):
        def gemma(folder, *where):
            return by(table(f"results/loop_gemma/{folder}rank_agreement.csv", *where), "metric")
        every, one = gemma("", "over=all"), gemma("", "over=budget")
        keys, others = gemma("keys/"), gemma("others/")
        three = ranks("three/")
        self.stands(f"On Gemma it is {rho(every[MEAN])} and {rho(one[MEAN])}.")
        self.stands(f"On Gemma by {every[FROBENIUS]['gain']:.2f} and {one[FROBENIUS]['gain']:.2f}, in the mean over texts.")
        after = every[RESIDUAL]
        self.stands(f"On Gemma it is the highest of all, {after['rho']:.3f} ({after['rho_low']:.3f} to {after['rho_high']:.3f}), "
                    f"and {one[RESIDUAL]['rho']:.3f} at one budget.")
        self.assertEqual(after["rho"], max(row["rho"] for row in every.values()))
        self.stands(f"there methods that look at no query have {keys[MEAN]['all']:.2f} and {keys[MEAN]['budget']:.2f}.")
        self.stands(f"without the two the mean error has {rho(others[MEAN])} and memory {rho(others[MEMORY])}, where SmolLM2 at "
                    f"the same memories has {three[MEAN]['all']:.2f} and {three[MEMORY]['all']:.2f}.")
        self.assertGreater(others[MEAN]["rho_low"], others[MEMORY]["rho_high"])

    def test_quantised_caches(self):
        def kl(row):
            return float(row["kl.mean"].split()[0])

        def memory(row):
            return float(row["memory.fraction"].split()[0])

        def error(row):
            return row["errors.relative_l2.mean"].split()[0]

        stored = by(table("results/loop_storage/loop.json", "algorithm=exact"), "label")
        rows = {label.split(" | ")[0]: row for label, row in stored.items()}
        snapkv = list(table("results/loop_storage/loop.json", "label=snapkv"))
        keys, values = rows["kivi, keys 4, values 2"], rows["kivi, keys 2, values 4"]
        self.assertEqual(memory(keys), memory(values))
        self.stands(f"at one memory, {memory(keys):.2f}, 4 bits of keys and 2 of values (kivi) have a KL of {kl(keys):.3f}, "
                    f"2 of keys and 4 of values {kl(values):.3f}, which")
        self.stands(f"Their mean errors are {error(keys)} and {error(values)}:")
        self.stands(f"q8_0 costs {kl(rows['q8_0']):.4f} nats at {memory(rows['q8_0']):.2f}, kivi in 4 bits "
                    f"{kl(rows['kivi, 4 bits']):.3f} at {memory(rows['kivi, 4 bits']):.2f}, q4_0 {kl(rows['q4_0']):.3f} at "
                    f"{memory(rows['q4_0']):.2f} and {kl(rows['q4_0, rotated']):.3f} behind a rotation; snapkv in 16 bits "
                    f"{kl(snapkv[1]):.3f} at {memory(snapkv[1]):g} and {kl(snapkv[0]):.3f} at {memory(snapkv[0]):g}. 2 bits of "
                    f"everything have {kl(rows['kivi, 2 bits']):.3f} at {memory(rows['kivi, 2 bits']):.2f}.")
        self.assertLess(kl(rows["kivi, 4 bits"]), kl(snapkv[1]))
        self.assertLess(kl(rows["q4_0, rotated"]), kl(snapkv[0]))


class Metrics(Prose):
    """plots/METRICS.md, whose numbers are those of FINDINGS.md."""

    PAGE = (ROOT / "plots/METRICS.md").read_text(encoding="utf-8")

    def test_its_table(self):
        rows = re.findall(r"^\| `([\w.]+)`[^|]* \| (\S+ \(.*\)) \|$", self.PAGE, re.MULTILINE)
        self.assertEqual(len(rows), 9)
        tables = [by(table(f"results/{folder}/rank_agreement.csv", f"over={over}"), "metric")
                  for folder in ("loop", "loop_gemma") for over in ("all", "budget")]
        for name, told in rows:
            found = [each[name.replace("errors.residual", "outputs.residual")] for each in tables]
            self.assertEqual(told, " | ".join(f"{row['rho']:.3f} ({row['rho_low']:.3f} to {row['rho_high']:.3f})"
                                              for row in found), name)

    def test_its_reasons(self):
        keys, others = ranks("keys/"), ranks("others/")
        gemma = by(table("results/loop_gemma/keys/rank_agreement.csv"), "metric")
        self.stands(f"at one memory the mean error has a correlation of {keys[MEAN]['budget']:.2f}, the Frobenius error "
                    f"{keys[FROBENIUS]['budget']:.2f}. On Gemma these are {gemma[MEAN]['budget']:.2f} and "
                    f"{gemma[FROBENIUS]['budget']:.2f}.", self.PAGE)
        self.stands(f"the mean error has {rho(others[MEAN])} and memory alone {rho(others[MEMORY])}. The Frobenius error has "
                    f"{rho(others[FROBENIUS])}.", self.PAGE)


class LlamaCpp(Prose):
    def test_its_own_caches(self):
        page = (ROOT / "data/LOOP.md").read_text(encoding="utf-8")
        rows = {cells[0]: [float(cell.split()[0]) for cell in cells[1:]]
                for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()
                              if line.startswith(("| q8_0", "| q4_0")))}
        self.assertEqual(len(rows), 4)
        self.stands(f"says {rows['q8_0'][2]} for q8_0, {rows['q4_0'][2]} for q4_0 and {rows['q4_0, rotated'][2]} behind its")
        self.assertLess(max(abs(same / theirs - 1) for _, same, theirs in rows.values()), 0.06)
        parts = [ours / theirs for ours, _, theirs in rows.values()]
        self.stands(f"Without the changes they are {min(parts):.2f} to {max(parts):.2f} times llama.cpp's", page)


if __name__ == "__main__":
    unittest.main()
