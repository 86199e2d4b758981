"""Numbers of plots/GALLERY.md and plots/METRICS.md that follow from the shipped tables: each sentence is written again
with the numbers that the tables give, and one paragraph of its page has these numbers in this order."""

import math
import re
import unittest

from known_methods import in_sweeps
from tables import GALLERY, INDEX, NUMBERS, ROOT, Page, by, plain, span, states, table

METRICS = (ROOT / "plots/METRICS.md").read_text(encoding="utf-8")
MEAN, FROBENIUS = "errors.relative_l2.mean", "errors.relative_frobenius_error"
OF_PAPERS = ("subgen_table1", "clustergen_table2", "balancekv_longbench", "keyformer_fig3", "keyformer_table3")


def heads(*chosen):
    counts = [int(row["better"]) for row in chosen]
    return " to ".join(NUMBERS[count] for count in sorted({min(counts), max(counts)}))


def of(chosen, column="error", digits=3):
    return span((row[column] for row in chosen), digits)


def undecided(rows):
    return all(row["ratio_low"] < 1 < row["ratio_high"] for row in rows)


class Papers(Page):
    def setUp(self):
        self.tables = {name: by(table(f"constitution/{name}"), "setting") for name in OF_PAPERS}

    def starting(self, name, start):
        return [row for setting, row in self.tables[name].items() if setting.startswith(start)]

    def test_ratios_that_are_decided(self):
        every = [row for rows in self.tables.values() for row in rows.values() if row["ratio"] != ""]
        self.assertEqual((len(every), sum(row["ratio_low"] > 1 or row["ratio_high"] < 1 for row in every)), (32, 5))
        self.assertEqual({row["units"] for row in every}, {9})

    def test_what_is_compared_holds_as_much(self):
        """The reference of each ratio is the nearest in memory; only one method cannot hold as little."""
        references = dict(zip(OF_PAPERS, ("h2o", "sink:", "uniform", "h2o", "keyformer: positions original")))
        apart = []
        for name, reference in references.items():
            held = [row["memory"] for row in self.starting(name, reference)]
            for setting, row in self.tables[name].items():
                if not any(1 / 1.02 <= row["memory"] / memory <= 1.02 for memory in held):
                    apart.append(setting)
        self.assertEqual(apart, ["dilated_window"])

    def test_subgens_table(self):
        centers, sinks, h2o = (self.starting("subgen_table1", start) for start in ("subgen", "sink", "h2o"))
        self.stands(f"({of(centers)} against {of(h2o)} for H2O and {of(sinks)} for sinks)")
        self.stands(f"k-center has {of(centers, 'ratio', 2)} times H2O's error, and a smaller error in {heads(*centers)} of "
                    f"nine heads. Sinks have {of(sinks, 'ratio')} times its error, and a smaller one in {heads(*sinks)} heads.")
        self.assertTrue(undecided(centers + sinks))
        rows = table("constitution/cache_size")
        self.stands(f"the table's ratios to three digits ({', '.join(format(row['printed'], '.3f') for row in rows)}; in the "
                    "caption)")
        for row in rows:
            self.assertEqual((row["printed"], row["GiB printed"]), (row["formula"], row["GiB"]))
            self.assertTrue(0 <= row["replay"] - row["formula"] <= 0.0051)

    def test_clustergens_table(self):
        clusters = self.starting("clustergen_table2", "clustergen")
        self.stands(f"At the same memory k-center has {of(clusters, 'ratio', 2)} times their error, and a larger error in all "
                    "nine heads")
        self.assertEqual({row["better"] for row in clusters}, {0})

    def test_balancekvs_table(self):
        bench, walks = self.tables["balancekv_longbench"], self.starting("balancekv_longbench", "balancekv")
        self.stands(f"({of(walks)} against {bench['uniform']['error']:.3f}) and SnapKV ({bench['snapkv']['error']:.3f}) at "
                    f"the same memory, and a little below StreamingLLM's ({bench['streaming_llm']['error']:.3f})")
        self.stands(f"BalanceKV has {of(walks, 'ratio', 2)} of uniform sampling's error, better in {heads(*walks)} heads of "
                    f"nine. SnapKV has {bench['snapkv']['ratio']:.2f} (better in {heads(bench['snapkv'])}), PyramidKV "
                    f"{bench['pyramidkv']['ratio']:.2f} ({heads(bench['pyramidkv'])}) and StreamingLLM "
                    f"{bench['streaming_llm']['ratio']:.2f} ({heads(bench['streaming_llm'])}), but every interval includes 1")
        self.assertTrue(undecided(row for row in bench.values() if row["ratio"] != ""))

    def test_keyformers_tables(self):
        fig3, table3 = self.tables["keyformer_fig3"], self.tables["keyformer_table3"]
        self.stands(f"({fig3['h2o']['error']:.2f} against {fig3['window']['error']:.2f}), almost entirely because of layer 15: "
                    f"in {heads(fig3['window'])} of nine heads")
        self.stands(f"has the larger mean ({fig3['key_attention']['error']:.2f}) and is worse than H2O in all nine heads")
        own = fig3["keyformer"]
        self.stands(f"({own['ratio']:.2f} times its error, {own['ratio_low']:.2f} to {own['ratio_high']:.1f}; smaller in "
                    f"{heads(own)} of nine heads)")
        original, moved, shared, streaming = (table3[name] for name in (
            "keyformer: positions original", "keyformer: positions cache", "keyformer, shared",
            "streaming_llm: positions original"))
        self.stands(f"({original['error']:.3f} against {moved['error']:.3f} and {shared['error']:.3f}), as in the table, in "
                    "nine and in eight of nine heads")
        self.assertEqual((moved["better"], shared["better"]), (0, 1))
        self.assertEqual(streaming["error"], min(row["error"] for row in table3.values()))
        self.stands(f"has the least mean of all ({streaming['error']:.3f}) and in {heads(streaming)} heads a smaller error "
                    f"than Keyformer ({streaming['ratio']:.2f} of it, {streaming['ratio_low']:.2f} to "
                    f"{streaming['ratio_high']:.1f})")


class Figures(Page):
    def test_forest(self):
        rows = by(table("constitution/forest"), "setting")
        walk = {T: rows[f"balancekv_prefill: T {T}"] for T in (1, 2, 3, 4)}
        self.assertEqual(sorted(name for name, row in rows.items() if row["ratio_high"] < 1),
                         ["balancekv_prefill: T 3", "balancekv_prefill: T 4"])
        text = ", ".join(f"T {T} ({walk[T]['ratio_mean']:.2f}, {walk[T]['ratio_low']:.2f} to {walk[T]['ratio_high']:.2f})"
                         for T in (3, 4))
        self.stands("Only balancekv_prefill at " + text.replace("), T", ") and T"))
        self.stands(f"is below 1 throughout ({span(row['ratio_mean'] for row in walk.values())})")
        top = [rows[f"{name}: budget memory 0.9"]["ratio_high"] for name in ("snapkv", "h2o")]
        self.stands(f"their intervals reach {top[0]:.2g} and {top[1]:.0f}")

    def test_theorems(self):
        rows = table("constitution/norms")
        self.stands(f"(r is {span((row['r'] for row in rows), 1)}); but delta r is "
                    f"{span((row['delta_r'] for row in rows), 0)} and BalanceKV's 2 beta r^2 "
                    f"{span((row['balancekv_exponent'] for row in rows), 0)}")
        self.assertGreater(min(row["delta_r"] for row in rows), math.log(2048))
        self.stands(f"delta r is above log n, {math.log(2048):.1f}, in every head")
        self.stands(f"and rho is {span((row['coreset_exponent'] for row in rows), 0)} here")
        failures = table("theorems/failure_rate")
        self.assertEqual({(row["failures"], row["seeds"], row["vacuous"]) for row in failures}, {(0.0, 100.0, 1.0)})
        self.stands(f"none of 100 seeds fails anywhere (upper limit {1 - 0.025 ** 0.01:.3f}, so 100 seeds cannot show 0.01)")
        trivial = [max(row["zero"], row["mean_value"]) for row in failures]
        self.stands(f"miss no epsilon above {math.ceil(100 * max(trivial)) / 100}")
        zero = {(row["model"], row["layer"]): row["zero"] for row in failures}
        over = {stream: row["64"] / zero[stream] for stream, row in
                by(table("theorems/failure_rate_slots"), "model", "layer").items()}
        self.assertGreater(over["synthetic clusterable", 0.0], 2)
        self.assertEqual({round(100 * (factor - 1)) for (_, layer), factor in over.items() if layer}, {7})
        self.stands("With 64 slots the median seed has 7 % more error than the answer 0 in layers 1 and 15, and twice as much "
                    "on the synthetic dump")
        self.assertNotRegex(plain(GALLERY), r"(is|are) not vacuous")

    def test_balancekv(self):
        layers = by(table("constitution/balancekv"), "label")
        sizes = ("1", "2", "3", "4")
        self.stands(f"with {span(layers['balancekv_prefill'][T] / layers['uniform'][T] for T in sizes)} of its error on average")
        clamped = by(table("constitution/balancekv_posclamp"), "label")
        self.assertTrue(all(1.3 <= clamped[label][T] / row[T] <= 1.6 for label, row in layers.items() for T in sizes))
        errors = {at: row[MEAN] for at, row in by(table("constitution/balancekv_layers"), "layer", "params.T", "label").items()}
        gains = {(layer, T): errors[layer, T, "balancekv_prefill"] / errors[layer, T, "uniform"]
                 for layer in (0.0, 1.0, 15.0) for T in (1.0, 2.0, 3.0, 4.0)}
        self.assertLess(max(gains.values()), 1)
        self.stands(f"The gain is largest in layer 0 ({span(gains[0.0, T] for T in (1.0, 2.0, 3.0, 4.0))}) and smallest in "
                    f"layer 15 at T 4 ({gains[15.0, 4.0]:.2f})")
        walk, uniform = table("constitution/walk_evaluated"), table("constitution/walk_uniform")
        self.stands(f"still above uniform sampling's {uniform[0][MEAN]:.3f} and the evaluated walk's {walk[0][MEAN]:.3f}")
        self.stands(f"fitted slopes are {span(row['slope'] for row in table('constitution/discrepancy'))}")

    def test_keyformer(self):
        budget = by(table("constitution/budget"), "label")
        keyformer, h2o = budget["keyformer"], budget["h2o, 0.5 recent"]
        self.assertEqual([size for size in ("0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9")
                          if keyformer[size] < h2o[size]], ["0.6", "0.7", "0.8", "0.9"])
        self.stands(f"only from 60 % of the cache on ({keyformer['0.6']:.3f} against {h2o['0.6']:.3f}; at 20 % "
                    f"{keyformer['0.2']:.3f} against {h2o['0.2']:.3f})")
        noise = table("constitution/noise")

        def mean(kind):
            return sum(row[kind] for row in noise) / len(noise)
        self.assertLess(max(abs(row["constant"] - row["none"]) for row in noise), 1e-9)
        self.stands(f"Gumbel is best on average at 60 % ({mean('gumbel'):.3f} against {mean('none'):.3f})")
        last = by(noise, "layer")[15.0]
        self.stands(f"in layer 15 it is worst ({last['gumbel']:.3f} against {last['none']:.3f}). Gaussian noise, far worse in "
                    f"the table, is as good ({mean('gaussian'):.3f})")
        rows = by(table("genesis/budget"), "label")
        means = [sum(rows[label][layer] for layer in ("0", "4", "10", "29")) / 4 for label in ("keyformer", "h2o, 0.5 recent")]
        self.stands(f"here the mean errors are {means[0]:.3f} for both (H2O with half recent), Keyformer's smaller in layer 0 "
                    "and H2O's in the others")

    def test_the_field(self):
        named = {row["method"].split(",")[0] for row in table("constitution/field_memories") if row["kind"] != "bits"}
        self.assertEqual(in_sweeps(ROOT / "configs/field.json"), (named - {"double sparsity"}) | {"exact", "uniform"})


class Metrics(Page):
    def test_its_table(self):
        rows = re.findall(r"^\| `([\w.]+)`[^|]* \| (\S+ \(.*\)) \|$", METRICS, re.MULTILINE)
        self.assertEqual(len(rows), 9)
        tables = [by(table(f"{loop}/{name}"), "metric") for loop in ("loop", "loop_gemma")
                  for name in ("metrics", "metrics_one_memory")]
        for name, printed in rows:
            found = [each[name.replace("errors.residual", "outputs.residual")] for each in tables]
            self.assertEqual(printed, " | ".join(f"{row['rho']:.3f} ({row['rho_low']:.3f} to {row['rho_high']:.3f})"
                                              for row in found), name)

    def test_its_reasons(self):
        keys, gemma, others = (by(table(name), "metric") for name in ("loop/keys", "loop_gemma/keys", "loop/others"))

        def rho(row):
            return f"{row['rho']:.2f} ({row['rho_low']:.2f} to {row['rho_high']:.2f})"
        self.stands(f"at one memory the mean error has a correlation of {keys[MEAN]['budget']:.2f}, the Frobenius error "
                    f"{keys[FROBENIUS]['budget']:.2f}. On Gemma these are {gemma[MEAN]['budget']:.2f} and "
                    f"{gemma[FROBENIUS]['budget']:.2f}.", METRICS)
        self.stands(f"the mean error has {rho(others[MEAN])} and memory alone {rho(others['memory.fraction'])}. The Frobenius "
                    f"error has {rho(others[FROBENIUS])}.", METRICS)


class Facts(unittest.TestCase):
    def test_other_words_state_the_same_and_other_numbers_do_not(self):
        said = "In three of nine heads `h2o` has 0.52 of the error (0.4 to 0.61)."
        self.assertTrue(states("* An error of 0.5 is large. Three of nine heads: 0.52 [0.4, 0.61].", said))
        for other in ("three of nine: 0.53 (0.4 to 0.61)", "nine of three: 0.52 (0.4 to 0.61)", "three of nine: 0.52"):
            self.assertFalse(states(other, said), other)


class Bounds(Page):
    def test_the_bound_on_the_theorem_lies_below_the_trivial_answers(self):
        bounds = (ROOT / "configs/bounds/ci.json").read_text(encoding="utf-8")
        reached = re.search(r"what the answers 0 and mean value reach, (0\.\d+) and (0\.\d+)\.", bounds).groups()
        sweep = (ROOT / "configs/ci.json").read_text(encoding="utf-8")
        epsilon, = re.findall(r'"label": "theorem 1",\s*"params": \{[^}]*"epsilon": ([\d.]+)', sweep)
        self.assertLess(float(epsilon), min(map(float, reached)))
        self.assertIn('"below_trivial"', bounds)

    def test_llama_cpps_own_caches(self):
        page = (ROOT / "data/LOOP.md").read_text(encoding="utf-8")
        rows = {cells[0]: [float(cell.split()[0]) for cell in cells[1:]]
                for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()
                              if line.startswith(("| q8_0", "| q4_0")))}
        self.assertEqual(len(rows), 4)
        self.assertLess(max(abs(same / theirs - 1) for _, same, theirs in rows.values()), 0.06)
        parts = [ours / theirs for ours, _, theirs in rows.values()]
        self.stands(f"Without the changes they are {min(parts):.2f} to {max(parts):.2f} times llama.cpp's", page)

    def test_methods_that_are_ranked_have_the_same_sinks_and_recent_tokens(self):
        sweep = (ROOT / "configs/figures/pareto.json").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r'"(?:sinks|recent|recent_fraction)": ([\d.]+)', sweep)), {"32", "0.3"})
        self.assertIn("constitution/forest", INDEX)


if __name__ == "__main__":
    unittest.main()
