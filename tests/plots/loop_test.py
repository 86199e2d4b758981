"""The figures of a closed loop, from a made loop.json: means over seeds and rank correlations of a
worked case, both widths, and files that are something else. Exits 77 where a Python package is
missing."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import pandas
    from kvplot import style
    from kvplot.__main__ import main
    from kvplot.figures import error_vs_kld, held_out, kld_by_layer, pairs, quality, rank_agreement
    from kvplot.loop import Loop, setting_names
    from kvplot.results import HEADLINE, ResultsError
    from matplotlib.text import Text
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
from argparse import Namespace

METRIC = "errors.relative_l2.mean"


def record(algorithm, budget, error, kl, sequence="law", layers=(0, 1, 2), seed=None, **more):
    return {"sequence": sequence, "label": algorithm, "algorithm": algorithm,
            "params": {"budget": budget, "sinks": 4}, "storage": None, "seed": seed,
            "layers": list(layers), "status": "ok", "rows": 256,
            "kl": {"mean": kl, "se": kl / 5, "median": kl / 2, "p99": 4 * kl, "max": 9 * kl},
            "same_top1": {"mean": 0.9, "se": 0.01}, "same_top5": {"mean": 0.8, "se": None},
            "perplexity": {"full": 8.0, "compressed": 9.0, "ratio": 1.125, "ratio_se": None},
            "errors": {"relative_l2": {"mean": error}, "relative_frobenius_error": error}, "mass": {"kept": {"mean": 1 - error}},
            "memory": {"fraction": budget / 1024 if isinstance(budget, int) else budget["memory"]}, **more}


def document(records):
    return {"kind": "kvbench.closed_loop", "schema_version": "1.0.0", "model": "tiny", "decisions":
            "live", "texts": [{"sequence": name, "tokens": 1024, "prompt_tokens": 768}
                              for name in dict.fromkeys(each["sequence"] for each in records)],
            "records": records}


def sweep(sequence="law", **more):
    records = [record("exact", 1024, 0.0, 1e-13, sequence, **more)]
    for place, name in enumerate(("window", "h2o", "snapkv", "knorm")):
        records += [record(name, budget, 0.1 * (place + 1) * 256 / budget,
                           0.01 * (place + 1) ** 2 * 256 / budget, sequence, **more)
                    for budget in (128, 256, 512)]
    records += [record("uniform", 256, 0.2 + 0.1 * seed, 0.02 + 0.02 * seed, sequence, seed=seed,
                       **more) for seed in (0, 1)]
    return records


class Figures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def loop(self, records):
        path = self.folder / "loop.json"
        path.write_text(json.dumps(document(records)))
        return Loop(path)

    def test_means_over_seeds_of_each_text(self):
        table = error_vs_kld.means(self.loop(sweep() + sweep("novel")), METRIC)
        self.assertEqual(len(table), 2 * 14)
        uniform = table[table["algorithm"] == "uniform"]
        self.assertEqual(list(uniform["sequence"]), ["law", "novel"])
        for name, value in ((METRIC, 0.25), ("kl.mean", 0.03), ("kl.se", 0.006)):
            self.assertTrue(((uniform[name] - value).abs() < 1e-12).all(), name)

    def test_ranks_of_a_worked_case(self):
        # Ranks 1 2 3 4 against 1 2 4 3: rho = 1 - 6 (0 + 0 + 1 + 1) / (4 (16 - 1)) = 0.8.
        records = [record("window", budget, error, kl) for budget, error, kl in
                   ((1, 0.1, 0.01), (2, 0.2, 0.02), (3, 0.3, 0.04), (4, 0.4, 0.03))]
        drawn = error_vs_kld.draw(Namespace(only=None, loop=self.loop(records), metric=METRIC, texts=None))
        self.assertIn("over 4 settings: 0.80 (law)", drawn.caption)
        style.pyplot.close(drawn.plot)

    def test_agreement_of_a_worked_case(self):
        # law: the 1-norm has rho 0.8 as above, the mean error 1; novel: the other way round. At budget 1
        # the orders agree, or not; a budget of two settings is too few.
        right, wrong = (0.1, 0.2, 0.3, 0.4), (0.1, 0.2, 0.4, 0.3)
        records = []
        for text, mean, norm in (("law", right, wrong), ("novel", wrong, right)):
            for place, kl in enumerate((0.01, 0.02, 0.03, 0.04)):
                each = record(f"method {place}", 2 if place == 0 else 1, mean[place], kl, text)
                each["errors"]["relative_l1"] = {"mean": norm[place]}
                each["mass"] = {"kept": {"mean": 1 - mean[place]}}
                del each["errors"]["relative_frobenius_error"]
                records.append(each)
        texts = rank_agreement.by_text(self.loop(records)).set_index(["over", "metric", "sequence"])
        norm = "errors.relative_l1.mean"
        for over, metric, text, rho, gain in (
                ("all", METRIC, "law", 1.0, 0.0), ("all", METRIC, "novel", 0.8, 0.0),
                ("all", norm, "law", 0.8, -0.2), ("all", norm, "novel", 1.0, 0.2),
                ("all", "mass.kept.mean", "novel", 0.8, 0.0),
                ("budget", METRIC, "law", 1.0, 0.0), ("budget", norm, "law", 0.5, -0.5)):
            row = texts.loc[over, metric, text]
            self.assertAlmostEqual(row["rho"], rho, msg=(over, metric, text))
            self.assertAlmostEqual(row["gain"], gain, msg=(over, metric, text))
        self.assertNotIn("errors.relative_frobenius_error", texts.index.get_level_values("metric"))
        # Student's t of 1 and 0.8: 0.9 -+ 12.706 x 0.1; of gains -0.2 and 0.2: 0 -+ 12.706 x 0.2.
        table = rank_agreement.intervals(texts.reset_index()).set_index(["over", "metric"])
        row = table.loc["all", norm]
        for name, value in (("rho", 0.9), ("rho_low", 0.9 - 1.27062), ("rho_high", 0.9 + 1.27062),
                            ("gain", 0.0), ("gain_high", 2.54124), ("texts_ahead", 1)):
            self.assertAlmostEqual(row[name], value, places=4, msg=name)

    def test_agreement_of_some_methods(self):
        # Among all five the error's order is the divergence's; of two that are given it is the other way round.
        records = [record(f"method {place}", budget, error, kl)
                   for budget in (1, 2, 3) for place, (error, kl) in enumerate(((0.1, 0.01), (0.2, 0.02)))]
        records += [record("odd", budget, budget, 1 / budget) for budget in (1, 2, 3)]
        loop = self.loop(records)
        rho = rank_agreement.by_text(loop, ["odd"]).set_index(["over", "metric"])["rho"]
        self.assertAlmostEqual(rho["all", METRIC], -1)
        self.assertGreater(rank_agreement.by_text(loop).set_index(["over", "metric"])["rho"]["all", METRIC], -1)
        drawn = rank_agreement.draw(Namespace(loop=loop, only=["odd"], memories=None, target="kl.mean"))
        self.assertIn("over all settings of a text among odd,", drawn.caption)
        style.pyplot.close(drawn.plot)
        with self.assertRaisesRegex(ResultsError, "--only: no method od; did you mean odd.; there are method 0, "):
            rank_agreement.by_text(loop, ["od"])

    def test_agreement_at_some_memories(self):
        # At a half and less the error's order is the divergence's, at nine tenths it is the other way round.
        records = [record(f"method {place}", {"memory": memory}, error, kl if memory < 0.6 else 1 - kl)
                   for memory in (0.25, 0.5, 0.9)
                   for place, (error, kl) in enumerate(((0.1, 0.01), (0.2, 0.02), (0.3, 0.03)))]
        loop = self.loop(records)

        def rho(memories):
            return rank_agreement.by_text(loop, None, memories).set_index(["over", "metric"])["rho"]["budget", METRIC]
        self.assertAlmostEqual(rho([0.25, 0.5]), 1)
        self.assertAlmostEqual(rho([0.9]), -1)
        self.assertAlmostEqual(rho(None), 1 / 3)
        with self.assertRaisesRegex(ResultsError, "--memories: no budget of memory 0.3; there are 0.25, 0.5, 0.9"):
            rho([0.3])

    def test_agreement_with_perplexity(self):
        # Perplexity has the errors' order where KL has the opposite one.
        records = [record("h2o", budget, budget, 1 / budget) for budget in (1, 2, 3)]
        for each in records:
            each["perplexity"]["ratio"] = 1 + each["params"]["budget"]
        loop = self.loop(records)
        for target, rho in (("kl.mean", -1), ("perplexity.ratio", 1)):
            found = rank_agreement.by_text(loop, target=target).set_index(["over", "metric"])["rho"]
            self.assertAlmostEqual(found["all", METRIC], rho)

    def test_quality_of_a_worked_case(self):
        # KL 0.01 and 0.03: 0.02; ratios 1.1 and 1.21: the root of their product. `h2o` lacks a text.
        records = [record("h2o", {"memory": 0.25}, 0.1, 0.01)]
        for text, kl, ratio in (("law", 0.01, 1.1), ("novel", 0.03, 1.21)):
            records.append(record("knorm", {"memory": 0.5}, 0.1, kl, text))
            records[-1]["perplexity"]["ratio"] = ratio
        row, = quality.settings(self.loop(records)).to_dict("records")
        self.assertEqual((row["label"], row["asked"], row["memory.fraction"], row["texts"]), ("knorm", 0.5, 0.5, 2))
        self.assertAlmostEqual(row["kl.mean"], 0.02)
        self.assertAlmostEqual(row["perplexity.ratio"], (1.1 * 1.21) ** 0.5)
        # Student's t with one degree of freedom; the standard error of the logarithms is half of ln 1.1.
        self.assertAlmostEqual(row["perplexity.ratio_high"] / row["perplexity.ratio"], 1.1 ** (12.706204736 / 2), places=5)

    def test_a_metric_is_chosen_on_one_half_and_tried_on_the_other(self):
        # The 1-norm is best on the first two texts alone; the Frobenius error on the last two.
        frobenius, norm = HEADLINE, "errors.relative_l1.mean"
        rho = {frobenius: (0.5, 0.5, 0.8, 0.9), norm: (0.9, 0.9, 0.3, 0.2), METRIC: (0.1, 0.1, 0.1, 0.1)}
        texts = pandas.DataFrame([{"over": "all", "metric": metric, "sequence": name, "rho": value}
                                  for metric, own in rho.items() for name, value in zip("abcd", own)])
        table = held_out.held_out(texts).set_index(["chosen_on", "which"])
        first, second = table.loc["first", "chosen"], table.loc["second", "chosen"]
        self.assertEqual((first["metric"], second["metric"]), (norm, frobenius))
        self.assertAlmostEqual(first["rho"], 0.25)
        self.assertAlmostEqual(first["gain"], 0.25 - 0.85)
        self.assertAlmostEqual(second["gain"], 0.0)
        self.assertAlmostEqual(table.loc["first", METRIC]["rho"], 0.1)
        # Both tests: 0.3, 0.2 of the first choice and 0.5, 0.5 of the second.
        self.assertAlmostEqual(table.loc["both", "chosen"]["rho"], 0.375)
        # Six halves of four texts: ab chooses the norm; ac, ad, bc, bd have 0.6, 0.55 against 0.65, 0.7; cd.
        self.assertAlmostEqual(first["same"], 1 / 6)
        self.assertAlmostEqual(second["same"], 5 / 6)

    def test_pairs_that_a_metric_turns(self):
        # KL of h2o over knorm is 4 and 1: 2, and between 2 / 2 ** 12.7 and 2 * 2 ** 12.7, not decided; its errors are
        # half of knorm's in both texts. KL of tova over knorm is 2 in both.
        records = [record(name, {"memory": 0.5}, error, kl, text) for text, own in (("law", 0.04), ("novel", 0.01))
                   for name, error, kl in (("knorm", 0.2, 0.01), ("h2o", 0.1, own), ("tova", 0.1, 0.02))]
        records.append(record("window", 128, 0.1, 0.5))
        table = pairs.pairs(self.loop(records), None, None)
        table = table[table["metric"] == METRIC].set_index(["one", "other"])
        self.assertEqual(len(table), 3)
        wide, sure = table.loc[("h2o", "knorm")], table.loc[("tova", "knorm")]
        for row in (wide, sure):
            self.assertAlmostEqual(row["kl"], 2.0)
            self.assertAlmostEqual(row["ratio_high"], 0.5)
        self.assertAlmostEqual(wide["kl_high"] / 2 ** 13.706204736, 1.0, places=5)
        self.assertEqual([(row["decided"], row["turned"], row["firmly"]) for row in (wide, sure)], [(0, 1, 1), (1, 1, 1)])
        self.assertEqual(set(pairs.pairs(self.loop(records), ["h2o", "knorm"], [0.5])["one"]), {"h2o"})

    def test_files_of_several_texts_are_one_loop(self):
        paths = []
        for name in ("law", "novel"):
            paths.append(self.folder / f"{name}.json")
            paths[-1].write_text(json.dumps(document(sweep(name))))
        whole = Loop(*paths)
        self.assertEqual(list(dict.fromkeys(whole.ok["sequence"])), ["law", "novel"])
        self.assertIn("(law, novel)", whole.facts())
        with self.assertRaisesRegex(ResultsError, "law.json: another file has law too; give one of them"):
            Loop(paths[0], paths[0])
        paths[1].write_text(json.dumps({**document(sweep("novel")), "model": "huge"}))
        with self.assertRaisesRegex(ResultsError, "novel.json: model is huge, and that of .*law.json is tiny; draw them apart"):
            Loop(*paths)

    def test_texts_are_chosen_where_there_are_many(self):
        names = [f"text{number}" for number in range(7)]
        loop = self.loop([each for name in names for each in sweep(name)])
        with self.assertRaisesRegex(ResultsError, "7 texts.* at most 6 panels.*--texts"):
            error_vs_kld.draw(Namespace(only=None, loop=loop, metric=METRIC, texts=None))
        with self.assertRaisesRegex(ResultsError, "no text other; there are text0"):
            error_vs_kld.draw(Namespace(only=None, loop=loop, metric=METRIC, texts=["text1", "other"]))
        drawn = error_vs_kld.draw(Namespace(only=None, loop=loop, metric=METRIC, texts=["text5", "text1"]))
        self.assertEqual([axis.get_title() for axis in drawn.plot.axes], ["text5", "text1"])
        self.assertEqual(set(drawn.table["sequence"]), {"text5", "text1"})
        self.assertNotIn("text0)", drawn.caption.split("Spearman")[1].split(".")[0])
        style.pyplot.close(drawn.plot)
        table = rank_agreement.draw(Namespace(loop=loop, only=None, memories=None, target="kl.mean"))
        self.assertEqual(table.table["texts"].min(), 7)
        style.pyplot.close(table.plot)

    def test_a_table_of_records_means_over_texts(self):
        records = [record("h2o", 256, 0.1, kl, text) for text, kl in (("law", 0.01), ("novel", 0.03))]
        records.append({**record("window", 256, 0.1, 0.5, "law"), "status": "failed", "reason": "why"})
        loop, said = self.loop(records), io.StringIO()
        with contextlib.redirect_stdout(said):
            self.assertEqual(main(["table", str(loop.path), "--rows", "label", "--value", "kl.mean", "--pm", "se"]), 0)
        self.assertEqual(said.getvalue().splitlines()[2:], ["| h2o | 0.02 ± 0.01 |"])

    def test_names_say_what_differs(self):
        names = setting_names(self.loop(sweep()).ok)
        self.assertEqual(list(dict.fromkeys(names))[:3],
                         ["exact", "window budget 128", "window budget 256"])

    def legible(self, figure):
        with style.width("column"):
            drawn = figure()
        drawn.save(self.folder, endings=(".png",))
        self.assertEqual(drawn.plot.get_figwidth(), style.COLUMN)
        self.assertLess(drawn.plot.get_figheight(), 9.5)
        sizes = [text.get_fontsize() for text in drawn.plot.findobj(Text) if text.get_text()]
        self.assertGreaterEqual(min(sizes), 6)

    def test_both_are_drawn_at_both_widths_with_numbers_and_caption(self):
        whole = sweep() + sweep("novel")
        single = [each for layer in range(4) for each in sweep(layers=[layer])]
        shared = [record(name, {"memory": memory}, 0.1 * (place + 1), 0.01 * memory * (place + 1) ** 2, text, seed=seed)
                  for text in ("law", "novel") for memory in (0.2, 0.5) for seed in (0, 1)
                  for place, name in enumerate(("window", "h2o", "snapkv", "knorm"))]
        four = [each for name in ("law", "novel", "code", "poem") for each in sweep(name)]
        for name, records in (("error_vs_kld", whole), ("rank_agreement", whole), ("kld_by_layer", single),
                              ("quality", whole), ("held_out", four), ("pairs", shared)):
            loop = self.loop(records)
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(main([name, "--loop", str(loop.path), "-o", str(self.folder)]), 0)
            self.assertGreater(len(pandas.read_csv(self.folder / f"{name}.csv")), 10)
            caption = (self.folder / f"{name}.txt").read_text()
            self.assertRegex(caption, "tiny: 1024 tokens, the last 256 decoded")
            self.assertIn("2 seeds", caption)
            self.assertNotIn("nan", caption)
            module = {"error_vs_kld": error_vs_kld, "rank_agreement": rank_agreement,
                      "kld_by_layer": kld_by_layer, "quality": quality, "held_out": held_out, "pairs": pairs}[name]
            self.legible(lambda module=module, loop=loop: module.draw(Namespace(
                loop=loop, metric=METRIC, texts=None, only=None, memories=None, target="kl.mean")))

    def test_labels_that_are_shortened_alike_stand_apart(self):
        long = "a method whose name is longer than forty letters, "
        whole = [record("h2o", budget, 0.1, 0.01, label=long + end) for end in ("one", "two") for budget in (8, 16)]
        single = [record("h2o", 8, 0.1, 0.01, layers=[layer], label=long + end)
                  for end in ("one", "two") for layer in (0, 1)]
        for module, records in ((error_vs_kld, whole), (kld_by_layer, single)):
            drawn = module.draw(Namespace(only=None, loop=self.loop(records), metric=METRIC, texts=None))
            legend = (drawn.plot.legends or [drawn.plot.axes[0].get_legend()])[0]
            self.assertEqual([text.get_text() for text in legend.get_texts()], [f"{long[:37]}..."] * 2)
            style.pyplot.close(drawn.plot)

    def test_a_bar_that_is_cut_is_said_to_be(self):
        for se, words in ((0.001, False), (0.0095, True)):
            whole = sweep()
            whole[1]["kl"] |= {"mean": 0.01, "se": se}
            single = [{**each, "layers": [0]} for each in whole]
            for module, records in ((error_vs_kld, whole), (kld_by_layer, single)):
                drawn = module.draw(Namespace(only=None, loop=self.loop(records), metric=METRIC, texts=None))
                self.assertEqual("cut at a tenth of the mean" in drawn.caption, words)
                style.pyplot.close(drawn.plot)

    def test_files_of_something_else_are_named(self):
        failed = [{**each, "status": "skipped", "reason": "why"} for each in sweep()]
        for figure, records, words in (
                ("error_vs_kld", [], "no record"), ("error_vs_kld", failed, "no finished record"),
                ("rank_agreement", sweep(layers=[0]), "kld_by_layer"),
                ("error_vs_kld", sweep(layers=[0]), "kld_by_layer"),
                ("kld_by_layer", sweep(), "one-at-a-time")):
            with self.subTest(words):
                said, loop = io.StringIO(), self.folder / "loop.json"
                loop.write_text(json.dumps(document(records)))
                with contextlib.redirect_stderr(said):
                    code = main([figure, "--loop", str(loop), "-o", str(self.folder / "out")])
                self.assertEqual(code, 2)
                self.assertIn(words, said.getvalue())

    def test_a_metric_that_is_not_there(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(main(["error_vs_kld", "--loop", str(self.loop(sweep()).path), "-o",
                                   str(self.folder), "--metric", "errors.relative_l3.mean"]), 2)
        self.assertIn("did you mean errors.relative_l2.mean", said.getvalue())

    def test_the_error_is_the_frobenius_norm_unless_another_is_asked_for(self):
        records = sweep()
        for each in records:
            each["errors"]["relative_frobenius_error"] *= 3
        for options, factor, words in (((), 3, "relative Frobenius error"),
                                       (("--metric", METRIC), 1, "mean over scored rows")):
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(main(["error_vs_kld", "--loop", str(self.loop(records).path), "-o", str(self.folder),
                                       *options]), 0)
            table = pandas.read_csv(self.folder / "error_vs_kld.csv")
            column = METRIC if options else "errors.relative_frobenius_error"
            (error,) = table[(table["label"] == "h2o") & (table["point"].str.contains("256"))][column]
            self.assertAlmostEqual(error, 0.2 * factor)
            self.assertIn(words, (self.folder / "error_vs_kld.txt").read_text().replace("\n", " "))


if __name__ == "__main__":
    unittest.main()
