"""plots/FINDINGS.md against the shipped tables of plots/tables, and those against the sweeps.

Each card of the page is whole; every table on the page is what the command above it prints; every decimal number of a
section is in a table that the section links to. Every shipped table has the command that makes it, which runs on small
runs of the shipped sweeps; where a command's source is here, the table is what it gives. KVBENCH_UPDATE_FINDINGS=1
writes the shipped tables anew from the sources that are here. Usage: findings_test.py KVBENCH. Exits 77 where a Python
package is missing."""

import contextlib
import csv
import io
import itertools
import json
import math
import os
import re
import shlex
import subprocess
import sys
import unittest
from datetime import datetime, timezone
from operator import lt
from pathlib import Path
from statistics import mean, stdev

sys.path.insert(0, str(Path(__file__).parent))
import figures_test  # ends with 77 where a package is missing
from kvplot.__main__ import main
from tables import INDEX, NUMBERS, ROOT, TABLES, by, command, table

PAGE = ROOT / "plots/FINDINGS.md"
TEXT = PAGE.read_text(encoding="utf-8")
# A command in a fence, and the table that follows it.
PAIR = re.compile(r"(?<=```sh\n)(kvplot table .*?)\n```\n\n((?:\|[^\n]*\n)+)", re.DOTALL)
PARTS = ("Number", "Data", "Table", "Command", "Limit")
DECIMAL = re.compile(r"(?<![\w.-])-?\d+\.\d+(?![\w.]*\d)")
MODEL = r"\d\.\dB\b"  # a part of its name
INTERVAL = re.compile(r"(-?\d[\d.]*) \((-?\d[\d.]*) to (-?\d[\d.]*)\)")
LINK = re.compile(r"\]\(tables/([\w./-]+)\.csv\)")
# Where plots/figures.sh and texts put what they draw: the same figures.
DRAWN = ("results/figures/", "results/texts/")


def said(arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        code = main(arguments)
    return code, out.getvalue()


def made(name):
    """Rows of a shipped table, head first, as its command makes them from a source that is here."""
    source, *options = command(name)
    code, text = said(["table", str(ROOT / source), *options, "--format", "csv"])
    assert code == 0, (name, text)
    return [[rounded(cell, 6) for cell in row] for row in csv.reader(io.StringIO(text))]


def rounded(cell, digits):
    try:
        return f"{float(cell):.{digits}g}"
    except ValueError:
        return cell


def sections(page=TEXT):
    """By heading the text up to the next heading of any level."""
    parts = re.split(r"^#+ (.+)\n", page, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2]))


def cards(page=TEXT):
    """By claim the parts of every card: a heading that begins with a number."""
    found = {}
    for title, text in sections(page).items():
        if re.match(r"\d+\. ", title):
            found[title] = dict(re.findall(r"^\* \*\*(\w+):\*\* (.*(?:\n  .*)*)", text, re.MULTILINE))
    return found


def loose_numbers(text, *more):
    """Decimals of a section's prose that no table has to which the section links, or of `more`, to the digits that they
    have."""
    prose = re.sub(r"^```.*?^```$|^\|.*$|^    .*$", "", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->|" + MODEL, "", prose, flags=re.DOTALL)
    known = [cell for name in (*LINK.findall(text), *more) for row in table(name) for cell in row.values()
             if isinstance(cell, float)]
    return [number for number in DECIMAL.findall(prose)
            if not any(f"{cell:.{len(number.partition('.')[2])}f}" == number for cell in known)]


def loose_intervals(text):
    """Ratios with intervals of a section's prose and tables that no row has of a table to which the section links."""
    known = [[row[name + end] for end in ("", "_low", "_high")] for link in LINK.findall(text) for row in table(link)
             for name in row if isinstance(row.get(f"{name}_low"), float)]
    return [said for said in INTERVAL.findall(" ".join(text.split()))
            if not any(all(f"{cell:.{len(number.partition('.')[2])}f}" == number for cell, number in zip(row, said))
                       for row in known)]


class Findings(unittest.TestCase):
    def test_every_card_is_whole(self):
        found = cards()
        self.assertGreaterEqual(len(found), 10)
        for title, parts in found.items():
            with self.subTest(title):
                self.assertEqual([part for part in PARTS if not parts.get(part)], [])
                self.assertRegex(title, r"^\d+\. [A-Z].*[A-Za-z0-9]$")
                self.assertTrue(LINK.findall(sections()[title]))
                self.assertRegex(parts["Number"], r"\d to -?\d|no interval")
                pictures = re.findall(r"!\[[^]]+\]\((gallery/[^)]+)\)", sections()[title])
                self.assertTrue(pictures)
                for picture in pictures:
                    self.assertTrue((ROOT / "plots" / picture).is_file(), picture)

    def test_numbers_in_prose_are_in_the_tables_that_the_section_links_to(self):
        for title, text in sections().items():
            with self.subTest(title):
                self.assertEqual(loose_numbers(text), [])

    def test_numbers_of_the_first_page(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        answers = sections(readme)["First answers"]
        self.assertEqual(loose_numbers(answers, "smollm2/field_modes", "smollm2/bits", "loop/metrics_by_memory"), [])
        self.assertIn("9 to 190 times the exact cache", answers)

    def test_a_number_that_no_table_has_is_found(self):
        title = next(iter(cards()))
        wrong = sections()[title] + "\nand 0.12345 (0.5 to 12.345)\n"
        self.assertEqual(loose_numbers(wrong)[0], "0.12345")
        self.assertEqual(loose_numbers("0.938, and [other](tables/loop/metrics.csv) 0.938 `0.7` 1.2.3"), [])
        self.assertEqual(loose_numbers("0.939 [other](tables/loop/metrics.csv)"), ["0.939"])

    def test_tables_on_the_page_are_what_the_commands_print(self):
        pairs = PAIR.findall(TEXT)
        self.assertTrue(pairs)
        by_hand = re.sub(MODEL, "", "\n".join(re.findall(r"^\|.*", PAIR.sub("", TEXT), re.MULTILINE)))
        self.assertEqual(DECIMAL.findall(by_hand), [])
        for words, lines in pairs:
            _, verb, path, *options = shlex.split(words.replace("\\\n", " "))
            with self.subTest(path):
                self.assertEqual(said([verb, str(ROOT / path), *options]), (0, lines))

    def test_claims_that_are_orders_and_counts(self):
        """Words of the cards that are no numbers of one row."""
        for model, decided in (("smollm2", 16), ("gemma", 9)):
            rows = table(f"{model}/field")
            self.assertEqual((len(rows), sum(row["ratio_high"] < 1 for row in rows)), (36, decided))
        self.check_the_field()
        metrics = {row["metric"]: row for row in table("loop/metrics")}
        frobenius = metrics["errors.relative_frobenius_error"]
        self.assertGreater(frobenius["gain_low"], 0)
        self.assertEqual(max(metrics, key=lambda name: metrics[name]["rho"]), "outputs.residual_ratio.mean")
        for rows in (table("smollm2/scaling_slopes"), table("genesis/scaling_slopes"), table("gemma/scaling_slopes")):
            self.assertGreater(min(row["slope_low"] for row in rows), -0.5)
        made = {name: {row["label"]: row for row in table(f"theorems/control_{name}_slopes")}
                for name in ("bounded", "usual", "four")}
        one = "balancekv_prefill, one block"
        for name, faster in (("bounded", True), ("four", True), ("usual", False)):
            self.assertEqual(made[name][one]["slope_high"] < -0.3, faster)
            self.assertGreater(made[name]["balancekv_prefill"]["slope_low"], -0.1)
        loop = table("loop/constitution")
        for memory in (0.28, 0.35, 0.5, 0.7, 0.9):
            for metric in ("errors.relative_frobenius_error", "errors.relative_spectral_error", "errors.relative_l2.mean"):
                own = [row for row in loop if row["params.budget.memory"] == memory]
                self.assertLess(spearman([row[metric] for row in own], [row["perplexity.ratio"] for row in own]), 2 / 3)
        self.check_the_tail()
        tight = [row["vectors_proved"] / row["vectors_exact"] for row in table("theorems/tightness")
                 if not row["model"].startswith("synthetic")]
        self.assertEqual((round(min(tight)), round(max(tight), -1)), (9, 190))
        evicted = {n: {row["label"]: row["errors.relative_frobenius_error"] for row in table(f"choices/decoded_{n}")
                       if row["params.budget.memory"] == 0.2} for n in (64, 128, 256)}
        for label in ("streaming_llm", "h2o, published", "tova, published", "caote"):
            own = [evicted[n][label] for n in evicted]
            self.assertLess(max(own) / min(own), 1.12, label)
        self.assertGreater(evicted[256]["uniform"] / evicted[64]["uniform"], 2)
        for n, least in ((64, True), (256, False)):
            self.assertEqual(evicted[n]["uniform"] < evicted[n]["streaming_llm"], least)


    def test_the_field_of_the_third_model(self):
        page = sections((ROOT / "plots/KEY_OFFSET.md").read_text(encoding="utf-8"))
        self.assertEqual(loose_numbers(page["The field on Qwen2.5-Coder"]), [])
        self.assertEqual(loose_intervals(page["The field on Qwen2.5-Coder"]), [])

    def test_heads_with_large_biases_are_those_that_lose(self):
        rows = {(row["layer"], row["kv_head"]): row for row in table("qwen2.5-coder-0.5b/storages")}
        bias = {(row["layer"], row["kv_head"]): row["norm"] for row in table("qwen2.5-coder-0.5b/key_bias")}
        self.assertEqual((len(rows), set(rows)), (48, set(bias)))
        large = {head for head, norm in bias.items() if norm > 30}
        both, keys, kivi = "exact | K q8_0 V q8_0", "exact | K q8_0 V float", "exact | K kivi bits=4 V kivi bits=4"
        for name in (both, keys):
            self.assertEqual(set(sorted(rows, key=lambda head: rows[head][name])[-8:]), large)
        better = {head for head, row in rows.items() if row[kivi] < row[both]}
        self.assertEqual((len(large), len(better), large <= better), (8, 11, True))
        others = [row["exact | K q4_0 V q4_0"] for head, row in rows.items() if head not in large]
        self.assertEqual((round(min(others), 4), round(max(others), 3)), (0.0872, 0.382))
        self.assertEqual(sorted(rows, key=lambda head: rows[head]["exact | K kivi V kivi"])[-2:], [(9, 1), (11, 1)])
        self.assertLess(max(bias[9, 1], bias[11, 1]), 6)

    def test_keys_less_the_bias(self):
        heads = by(table("qwen/key_bias_heads"), "label", "layer", "kv_head")
        shipped = {(row["layer"], row["kv_head"]): row for row in table("qwen/key_errors")}

        def ratios(name, over, under, layers):
            return sorted(row[name] / heads[label.replace(over, under), layer, head][name] for (label, layer, head), row
                          in heads.items() if label == f"exact | K q4_0 centre={over} V float" and layer in layers)

        for (label, *head), row in heads.items():
            if "mean" in label:  # another export of the same text
                self.assertAlmostEqual(row["errors.key_error"] / shipped[tuple(head)][label], 1, 4)
        every, keys, before = (0, 1, 12, 23), "errors.key_error", " rope=before"
        found = (ratios(keys, f"bias{before}", f"mean{before}", every),
                 ratios("errors.relative_frobenius_error", f"bias{before}", f"mean{before}", every),
                 ratios(keys, "bias", "mean", (0, 1)), ratios(keys, "bias", "mean", (12, 23)))
        self.assertEqual([(len(each), f"{each[0]:.2f} to {each[-1]:.2f}") for each in found], [
            (8, "1.06 to 2.09"), (8, "1.03 to 1.45"), (4, "0.08 to 0.84"), (4, "1.19 to 1.50")])
        self.assertLess(max(abs(each - 1) for each in ratios(keys, "bias", f"bias{before}", every)), 0.04)

    def test_heads_with_large_biases_of_the_larger_model(self):
        rows = {(row["layer"], row["kv_head"]): row for row in table("qwen2.5-coder-1.5b/storages")}
        bias = {(row["layer"], row["kv_head"]): row["norm"] for row in table("qwen2.5-coder-1.5b/key_bias")}
        self.assertEqual((len(rows), set(rows)), (56, set(bias)))
        large = {head for head, norm in bias.items() if norm > 26}
        self.assertEqual(large, {(0, 0), (0, 1), (1, 0), (7, 1), (15, 1)})
        for codec in ("q8_0", "q4_0"):
            of = {head: row[f"exact | K {codec} V {codec}"] for head, row in rows.items()}
            self.assertEqual(set(sorted(of, key=of.get)[-5:]), large)
        self.assertEqual(max(rows, key=lambda head: rows[head]["exact | K kivi V kivi"]), (14, 0))
        self.assertLess(bias[14, 0], 26)

    def test_what_the_larger_model_loses(self):
        kl = {}
        for row in table("qwen2.5-coder-1.5b/key_offset_kl"):
            kl.setdefault(row["label"].removeprefix("exact | K ").removesuffix(" V float"), []).append(row["kl.mean"])
        page = (ROOT / "plots/KEY_OFFSET.md").read_text(encoding="utf-8")
        for over, under, words, falls in (
                ("q4_0 centre=mean rope=before", "q4_0", "0.00435 (0.00263 to 0.00718)", 5),
                ("q8_0 centre=mean rope=before", "q8_0", "0.0356 (0.0137 to 0.0923)", 5),
                ("q4_0 rotate=hadamard", "q4_0", "1.89 (1.55 to 2.31)", 0),
                ("kivi bits=4 residual=32", "q4_0 centre=mean rope=before", "0.124 (0.0885 to 0.173)", 5),
                ("kivi bits=4 residual=32", "q8_0", "1.34 (0.749 to 2.38)", 1)):
            self.assertEqual("{} ({} to {})".format(*ratio_of_five(kl[over], kl[under])), words)
            self.assertIn(words, page.replace("\n  ", " "))
            self.assertEqual(sum(map(lt, kl[over], kl[under])), falls, over)

    def test_keys_of_llama_cpp(self):
        """The page's table next to llama.cpp's caches, from the tables of both programs."""
        text = sections((ROOT / "plots/KEY_OFFSET.md").read_text(encoding="utf-8"))["Next to llama.cpp's own caches"]
        ours = {(row["label"], row["sequence"]): row["kl.mean"] for row in table("qwen/key_offset_kl")}
        theirs = {(row["way"], row["cache"], row["text"]): row["kl"] for row in table("qwen/llama_cpp")}
        places = {"constitution": "us-constitution", "novel": "tom-sawyer", "science": "opticks", "tutorial": "perl-intro",
                  "source code": "python-source"}
        columns = [column for codec, turned in (("q8_0", False), ("q4_0", False), ("q4_0", True)) for column in (
            [ours[f"exact | K {codec}{' rotate=hadamard' if turned else ''} V float", place] for place in places.values()],
            [theirs["file's weights", f"{codec} keys{', rotated' if turned else ''}", place] for place in places.values()])]
        said = {line.split(" | ")[0][2:]: re.findall(r"[\d.]+", line.split(" | ", 1)[1]) for line in text.splitlines()
                if re.match(r"\| (mean|ratio|" + "|".join(places) + r") \|", line)}
        for index, name in enumerate(places):
            self.assertEqual([float(each) for each in said[name]], [float(f"{column[index]:.3g}") for column in columns])
        self.assertEqual([float(each) for each in said["mean"]], [float(f"{mean(column):.3g}") for column in columns])
        self.assertEqual(said["ratio"], [each for i in (0, 2, 4) for each in ratio_of_five(columns[i + 1], columns[i])])
        reading = [theirs["reading", "q4_0 keys", place] for place in places.values()]
        turned_8 = [theirs["file's weights", "q8_0 keys, rotated", place] for place in places.values()]
        for over, under in ((columns[5], columns[3]), (turned_8, columns[1]), (reading, columns[3])):
            middle, low, high = ratio_of_five(over, under)
            self.assertIn(f"{middle} ({low} to {high})", text.replace("\n  ", " "))
        steps = [theirs[way, "q4_0 keys", "python-source"] for way in ("as llama.cpp", "llama.cpp", "file's weights")]
        self.assertEqual([f"{each:.3g}" for each in steps], ["1.01", "0.978", "1"])

    def test_the_page_of_questions(self):
        page = (ROOT / "plots/QUESTIONS.md").read_text(encoding="utf-8")
        self.assertEqual([len(parts) for parts in cards(page).values()], [len(PARTS)] * 4)
        for title, text in sections(page).items():
            with self.subTest(title):
                self.assertEqual(loose_numbers(text), [])
                self.assertEqual(loose_intervals(text), [])
        self.check_protocols("questions/protocols", (0.2, "snapkv"), (0.2, "tova"), (0.5, "snapkv"))
        self.check_protocols("questions/seven_tenths/protocols", (0.2, "snapkv"))
        rho = {tuple(row[name] for name in ("depth", "protocol", "asked", "metric")): row
               for row in table("questions/ranks")}
        for depth in ("all", 0.1, 0.5):
            self.assertLess(rho[depth, "unseen", 0.2, "error"]["rho_high"], rho[depth, "seen", 0.2, "error"]["rho_low"])
        for at in (0.2, 0.5):
            self.assertGreater(rho[0.9, "unseen", at, "error"]["rho_low"], 0)
        later = {(row["protocol"], row["asked"]): row for row in table("questions/seven_tenths/ranks")
                 if row["metric"] == "error"}
        self.assertLess(later["unseen", 0.2]["rho_low"], 0)
        self.assertGreater(later["seen", 0.2]["rho_low"], 0)
        pairs = {tuple(row[name] for name in ("depth", "protocol", "asked", "one")): row
                 for row in table("questions/pairs") if row["other"] in ("h2o", "tova")}
        self.assertLess(pairs[0.9, "unseen", 0.2, "h2o with decay"]["kl_high"], 0)
        for at in (0.2, 0.5):
            self.assertGreater(pairs[0.1, "unseen", at, "h2o with decay"]["kl_low"], 0)
        self.assertEqual([pairs[depth, "unseen", 0.2, "quest"]["kl_high"] < 0 for depth in ("all", 0.1, 0.3, 0.5, 0.9)],
                         [True, True, True, True, False])
        self.assertGreater(pairs["all", "seen", 0.2, "quest"]["ratio_low"], 1)
        later = {(row["protocol"], row["asked"], row["one"]): row for row in table("questions/seven_tenths/pairs")
                 if row["other"] in ("h2o", "tova")}
        self.assertLess(later["unseen", 0.2, "quest"]["kl_high"], 0)
        self.assertLess(later["unseen", 0.5, "h2o with decay"]["kl_high"], 0)
        self.assertLess(later["unseen", 0.2, "h2o with decay"]["kl_holds"], later["unseen", 0.2, "h2o with decay"]["texts"])
        for one, depths in (("snapkv", ()), ("tova", (0.9,))):
            own = {row["depth"]: row for row in table("questions/pairs") if (row["protocol"], row["asked"], row["one"],
                   row["other"]) == ("unseen", 0.2, one, "uniform")}
            self.assertEqual(tuple(depth for depth, row in own.items() if row["kl_high"] < 0 or row["kl_low"] > 0), depths)
        self.check_questions_of_gemma(sections(page)["On Gemma 3 270M"])

    def check_questions_of_gemma(self, section):
        """Verdicts and counts of its prose."""
        text, folder = " ".join(section.split()), "questions/gemma"
        asked = by(table(f"{folder}/asked"), "depth")
        count = asked["all"]["asked"]
        self.assertEqual((asked["all"]["answered"], {*asked}), (count, {0.1, 0.5, "all"}))
        self.assertEqual([asked[depth]["texts"] for depth in (0.1, 0.5, "all")], [10, 9, 10])
        self.assertGreater(asked[0.5]["nearest"], 512)
        self.assertIn(f"at {asked[0.1]['distance']:.0f} and {asked[0.5]['distance']:.0f} tokens, {count:.0f} questions", text)
        right = {key: f"{row['right'] * row['questions']:.0f}"
                 for key, row in by(table(f"{folder}/methods"), "protocol", "asked", "label").items()}
        self.assertEqual(right["unseen", 1, "without the sentence"], "0")
        snapkv, tova, half, quest = ([right[protocol, at, label] for protocol in ("seen", "unseen")] for at, label in (
            (0.2, "snapkv"), (0.2, "tova"), (0.5, "snapkv"), (0.2, "quest")))
        self.assertIn(f"SnapKV is right in {snapkv[0]} of {count:.0f} questions that it sees and in {snapkv[1]} that come "
                      f"later, TOVA in {tova[0]} and {tova[1]}.", text)
        self.assertIn(f"At 0.5 SnapKV is right in {half[0]} and {half[1]}.", text)
        self.assertIn(f"It is right in {quest[0]} questions seen and {quest[1]} unseen.", text)
        self.check_protocols(f"{folder}/protocols", (0.2, "snapkv"), (0.2, "tova"))
        rho = {(row["protocol"], row["asked"], row["metric"]): (*zero(row, "rho"), row["holds"])
               for row in table(f"{folder}/ranks") if row["depth"] == "all"}
        self.assertEqual([rho[protocol, at, "error"] for protocol, at in (
            ("seen", 0.2), ("unseen", 0.2), ("unseen - seen", 0.2), ("unseen", 0.5))], [(1, 10), (1, 4), (-1, 10), (1, 10)])
        self.assertEqual([rho[protocol, 0.2, "mass"] for protocol in ("seen", "unseen")], [(1, 10)] * 2)
        pairs = {tuple(row[name] for name in ("depth", "protocol", "asked", "one", "other")):
                 (side(row, "ratio"), row["ratio_holds"], *zero(row, "kl"), row["kl_holds"]) for row in table(f"{folder}/pairs")}
        up, down, open_ = (1, 10), (-1, 10), (0, 0)
        for key, verdict in (
                (("all", "unseen", 0.2, "expected_attention", "uniform"), down + open_),
                (("all", "unseen", 0.2, "h2o", "uniform"), down + open_),
                (("all", "unseen", 0.2, "snapkv", "uniform"), open_ + open_),
                (("all", "unseen", 0.2, "tova", "uniform"), (-1, 7, *open_)),
                ((0.1, "unseen", 0.5, "h2o with decay", "h2o"), up + up),
                ((0.1, "unseen", 0.2, "h2o with decay", "h2o"), up + open_),
                ((0.5, "unseen", 0.2, "h2o with decay", "h2o"), open_ + open_),
                ((0.5, "unseen", 0.5, "h2o with decay", "h2o"), (*open_, -1, 5)),
                (("all", "unseen", 0.2, "quest", "tova"), open_ + down),
                (("all", "seen", 0.2, "quest", "tova"), up + up)):
            self.assertEqual(pairs[key], verdict, key)

    def check_protocols(self, name, *settings):
        """Their KL rises, whichever text is left out."""
        change = {(row["asked"], row["label"]): row for row in table(name)}
        for setting in settings:
            self.assertGreater(change[setting]["kl_low"], 0)
            self.assertEqual(change[setting]["kl_holds"], change[setting]["texts"])

    def test_pages_of_studies(self):
        for name in ("ANCHORS", "CALIBRATION", "LONG", "PAGING", "PREFILL", "READING"):
            for title, text in sections((ROOT / f"plots/{name}.md").read_text(encoding="utf-8")).items():
                with self.subTest(name=name, title=title):
                    self.assertEqual(loose_numbers(text), [])
                    self.assertEqual(loose_intervals(text), [])

    def test_claims_of_paging(self):
        """Verdicts and counts of its prose."""
        rows = {tuple(row[name] for name in ("method", "budget", "pages", "page_score", "same_in")): row
                for row in table("smollm2/paging")}
        decided = [row for row in rows.values() if side(row)]
        page = " ".join((ROOT / "plots/PAGING.md").read_text(encoding="utf-8").split())
        whole = sum(row["holds"] == 10 for row in decided)
        self.assertIn(f"{len(decided)} of {len(rows)} Frobenius ratios are decided, and {whole} of these", page)
        pages = {key[:2]: row for key, row in rows.items() if key[2:] == (16, "mean", "head")}
        shared = {key[:2]: row for key, row in rows.items() if key[2:] == (1, "mean", "layer")}
        by_attention = ("snapkv", "tova", "expected_attention")
        rises = [round(100 * pages[name, 352]["frobenius"] - 100) for name in by_attention]
        self.assertIn(f"errors of attention rankings by {min(rises)} to {max(rises)} %", page)
        for name in by_attention:
            self.assertEqual([side(pages[name, 352], metric) for metric in ("frobenius", "spectral", "mean")], [1, 1, 1])
            self.assertEqual(side(shared[name, 352]), int(name == "snapkv"))
            self.assertEqual([side(shared[name, 352], metric) for metric in ("mean", "later")], [1, 1])
        self.assertEqual([round(100 * shared[name, 352][metric] - 100) for name, metric in zip(
            by_attention, ("frobenius", "later", "later"))], [7, 10, 7])
        for budget, every, later, spectral in ((144, 1, 1, 0), (352, -1, 0, -1), (656, -1, -1, -1)):
            own = pages["keydiff", budget]
            self.assertEqual([side(own), side(own, "later"), side(own, "spectral")], [every, later, spectral])
        self.assertEqual([side(pages["knorm", budget], "spectral") for budget in (352, 656)], [0, -1])
        uniform = [side(row) for key, row in rows.items() if key[0] == "uniform"]
        self.assertEqual((len(uniform), max(uniform), uniform.count(-1)), (15, 0, 1))
        decoded = {tuple(row[name] for name in ("method", "pages", "same_in")): side(row)
                   for row in table("smollm2/paging_256") if (row["budget"], row["page_score"]) == (352, "mean")}
        for name, of_pages, of_layer in (("snapkv", 1, 1), ("tova", 1, 0), ("expected_attention", 1, 1), ("knorm", 1, 0),
                                         ("keydiff", -1, 0)):
            self.assertEqual((decoded[name, 16, "head"], decoded[name, 1, "layer"]), (of_pages, of_layer), name)
        self.assertEqual(decoded["uniform", 16, "model"], 0)
        self.check_paging_of_qwen(page)
        self.check_paging_of_gemma(page)

    def check_paging_of_qwen(self, page):
        rows = {tuple(row[name] for name in ("method", "budget", "pages", "page_score", "same_in")): row
                for row in table("qwen2.5-coder-0.5b/paging")}
        pages = {key[:2]: row for key, row in rows.items() if key[2:] == (16, "mean", "head") and "," not in key[0]}
        shared = {key[:2]: row for key, row in rows.items() if key[2:] == (1, "mean", "layer") and "," not in key[0]}
        decided = [row for row in rows.values() if side(row)]
        whole = sum(row["holds"] == 10 for row in decided)
        self.assertIn(f"{len(decided)} of {len(rows)} Frobenius ratios are decided, and {whole} of these", page)
        self.assertIn(f"among the {NUMBERS[len(decided) - whole]} that do not", page)
        by_attention = ("snapkv", "tova", "expected_attention")
        rises = [round(100 * pages[name, 352]["frobenius"] - 100) for name in by_attention]
        self.assertIn(f"by {min(rises)} to {max(rises)} %, each undecided as it is or without some text", page)
        self.assertEqual([round(100 * shared[name, 352]["frobenius"] - 100) for name in by_attention], [4, 7, 4])
        self.assertEqual([side(pages[name, 352]) for name in (*by_attention, "knorm", "keydiff")], [0, 1, 0, 0, -1])
        self.assertIn(f"that do not: without any one of {NUMBERS[10 - int(pages['tova', 352]['holds'])]} texts", page)
        self.assertEqual([side(pages[name, 656]) for name in by_attention], [1, 1, 1])
        for own, metric, sides in ((pages, "spectral", (0, 0, 0)), (pages, "mean", (0, 1, 0)), (shared, "frobenius", (1, 1, 1)),
                                   (shared, "spectral", (1, 1, 1)), (shared, "mean", (1, 1, 1)), (shared, "later", (0, 1, 1))):
            self.assertEqual(tuple(side(own[name, 352], metric) for name in by_attention), sides, metric)
        for budget in (144, 352, 656):
            self.assertEqual([side(pages["keydiff", budget], metric) for metric in ("frobenius", "later")], [-1, -1])
        uniform = [row for key, row in rows.items() if key[0] == "uniform" and side(row)]
        self.assertEqual([(side(row), row["holds"]) for row in uniform], [(1, 10)] * 2)
        # Student's t of nine degrees of freedom for an error of 5 % over that for an eighteenth of it.
        one_of_18 = {name: {key for key, row in own.items() if side(row)
                            and abs(math.log(row["frobenius"])) > math.log(row["frobenius_high"] / row["frobenius"])
                            * 4.075233 / 2.262157}
                     for name, own in (("pages", pages), ("layer", shared))}
        self.assertEqual(one_of_18["pages"], {("keydiff", 352), ("keydiff", 656), ("snapkv", 656)})
        self.assertEqual(one_of_18["layer"], {(name, budget) for name in ("snapkv", "keydiff", "tova")
                                              for budget in (144, 352, 656)} - {("snapkv", 144), ("keydiff", 144)})
        for model, lines in zip(("smollm2", "qwen2.5-coder-0.5b"), (slice(18), slice(18, None))):
            rows = {tuple(row[name] for name in ("method", "budget", "pages", "page_score", "same_in")): row
                    for row in table(f"{model}/paging")}
            found = re.findall(r"\| `(\w+)`(?:, once)? \| ([\d.]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", page)
            self.assertEqual(len(found), 36)
            for name, memory, *said in found[lines]:
                budget = {"0.102": 144, "0.203": 352, "0.352": 656}[memory]
                kinds = [rows[(name, budget, *kind)] for kind in ((16, "mean", "head"), (1, "mean", "layer"), (16, "mean", "layer"))]
                self.assertEqual(said, [*map(interval, kinds), interval(kinds[-1], "later")], (model, name, memory))

    def check_paging_of_gemma(self, page):
        rows = {tuple(row[name] for name in ("method", "budget", "pages", "page_score", "same_in")): row
                for row in table("gemma/paging")}
        self.assertEqual({(row["units"], row["groups"], row["memory"] < 0.36) for row in rows.values()}, {(30, 10, True)})
        pages = {key[:2]: row for key, row in rows.items() if key[2:] == (16, "mean", "head") and "," not in key[0]}
        decided = [row for row in rows.values() if side(row)]
        shaky = {key for key, row in rows.items() if side(row) and row["holds"] < 10}
        self.assertIn(f"{len(decided)} of {len(rows)} Frobenius ratios are decided, and {len(decided) - len(shaky)} of these", page)
        self.assertEqual(shaky, {("knorm", 352, 1, "mean", "model"), ("tova", 352, 1, "mean", "model"),
                                 ("tova", 352, 32, "mean", "head")})
        by_attention = ("snapkv", "tova", "expected_attention")
        rises = [round(100 * pages[name, 352]["frobenius"] - 100) for name in by_attention]
        self.assertIn(f"yes, by {min(rises)} to {max(rises)} %; without layer 17", page)
        self.assertEqual({side(pages[name, budget], "mean") for name in by_attention for budget in (144, 352, 656)}, {1})
        self.assertEqual({side(pages["keydiff", budget], metric) for budget in (144, 352, 656)
                          for metric in ("frobenius", "spectral", "mean")}, {-1})
        self.assertEqual([side(pages["knorm", 352], metric) for metric in ("frobenius", "spectral", "mean")], [1, 0, 1])
        self.assertEqual({side(row) for key, row in rows.items() if key[0] == "uniform"}, {0})
        # Student's t as on Qwen.
        one_of_18 = {key for key, row in pages.items() if side(row) and abs(math.log(row["frobenius"]))
                     > math.log(row["frobenius_high"] / row["frobenius"]) * 4.075233 / 2.262157}
        self.assertEqual(one_of_18, {(name, budget) for name in ("expected_attention", "keydiff") for budget in (144, 352, 656)}
                         | {("snapkv", 352)})
        layers = {(row["method"], row["layer"]): side(row) for row in table("gemma/paging_layers")
                  if [row[name] for name in ("budget", "pages", "page_score", "same_in")] == [352, 16, "mean", "head"]}
        self.assertEqual([[layers[name, layer] for name in (*by_attention, "knorm")] for layer in (5, 11, 17)],
                         [[0, 0, 0, -1], [1, 1, 1, -1], [1, 1, 1, 1]])
        found = re.findall(r"\| `(\w+)`(?:, once)? \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|(?= [|*])", page)
        self.assertEqual(len(found), 6)
        for name, *said in found:
            own = [*(pages[name, budget] for budget in (144, 352, 656)), rows[name, 352, 1, "mean", "model"]]
            self.assertEqual(said, list(map(interval, own)), name)

    def test_claims_of_calibration(self):
        """Verdicts and tables of its prose."""
        page = " ".join((ROOT / "plots/CALIBRATION.md").read_text(encoding="utf-8").split())
        found = re.findall(r"\| (?:`(\w+)`|Double Sparsity) \| ([\d.]+)(?: tokens)? \|" + " ([^|]+) \\|" * 5, page)
        self.assertEqual(len(found), 24)
        for model, lines in (("smollm2", found[:12]), ("qwen2.5-coder-0.5b", found[12:])):
            rows = {(row["method"], row["at"], row["kind"]): row for row in table(f"{model}/calibration")}
            for name, at, *said in lines:
                one, others = (rows[name or "double sparsity", float(at), kind] for kind in ("one", "others"))
                own = [(one, "frobenius"), (others, "frobenius"), (others, "spectral"), (others, "mean")]
                self.assertEqual(said, ["{:.3f} ({:.3f} to {:.3f})".format(*(row[error + end] for end in ("", "_low", "_high")))
                                        for row, error in own] + [f"{others['rise']:.0f} of {others['units']:.0f}"], (model, name, at))
            for name in ("qfilters", "expected_attention"):
                own = [row for key, row in rows.items() if key[0] == name]
                self.assertEqual(len(own), 6)
                self.assertLessEqual(max(abs(row["frobenius"] - 1) for row in own), 0.045)
                self.assertEqual({side(row) for row in own}, {0} | ({1} if (model, name) == ("smollm2", "qfilters") else set()))
            ranks = {(row["method"], row["other"], row["at"], row["kind"]): side(row)
                     for row in table(f"{model}/calibration_ranks")}
            for name in ("qfilters", "expected_attention"):
                for at in (0.1, 0.2, 0.35):
                    self.assertEqual({ranks[name, "uniform", at, kind] for kind in ("prompt", "one", "others")}, {-1})
        for kind, sides in (("one", [1, 1, 1]), ("others", [int(at != 410) for at in (205, 410, 717)])):
            self.assertEqual([side(rows["double sparsity", at, kind]) for at in (205, 410, 717)], sides, kind)
        self.assertEqual([side(rows["loki", at, "one"]) for at in (205, 410, 717)], [1, 1, 0])
        self.assertEqual({key[:2] for key, row in rows.items() if row["holds"] == 10},
                         {("double sparsity", 410), ("double sparsity", 717), ("loki", 205)})
        # Student's t of nine degrees of freedom for an error of 5 % over that for a twenty-fourth of it.
        self.assertEqual([key for key, row in rows.items() if abs(math.log(row["frobenius"]))
                          > math.log(row["frobenius_high"] / row["frobenius"]) * 4.26 / 2.262157], [])
        self.assertEqual([side(rows["loki", at, "others"]) for at in (205, 410, 717)], [0] * 3)
        layers = {(row["method"], row["at"], row["kind"], row["layer"]): side(row)
                  for row in table("qwen2.5-coder-0.5b/calibration_layers")}
        self.assertEqual({layers["loki", at, kind, 23] for at in (205, 410, 717) for kind in ("one", "others")}, {1})
        self.assertEqual({layer for (name, at, _, layer), of in layers.items() if (name, at) == ("qfilters", 0.2) and of}, {6})
        self.assertEqual({of for (name, at, *_), of in layers.items() if (name, at) == ("expected_attention", 0.2)}, {0})

    def test_claims_of_allocation(self):
        """The page's table of ratios, every ratio of its prose, and the verdicts."""
        text = (ROOT / "plots/ALLOCATE.md").read_text(encoding="utf-8")
        models, found, known, alike, gains = ("smollm2", "qwen2.5-coder-0.5b"), {}, set(), {}, {}
        for model in models:
            halves, rows = [table(f"allocate/{model}_{half}") for half in (0, 1)], {}
            for row in itertools.chain(*halves):
                rows.setdefault(row["label"].partition(" | ")[0], {})[row["sequence"]] = row
            for (over, one), (under, other) in itertools.permutations(rows.items(), 2):
                texts = sorted(set(one) & set(other))
                if len(texts) < 4:
                    continue
                for metric, name in (("KL", "kl.mean"), ("error", "errors.relative_frobenius_error")):
                    logs = [[one[text][name] for text in texts], [other[text][name] for text in texts]]
                    row = dict(zip(("frobenius", "frobenius_low", "frobenius_high"), ratio_of(*logs)))
                    without = [ratio_of(*([*each[:i], *each[i + 1:]] for each in logs)) for i in range(len(texts))]
                    same = sum((low > 1) - (high < 1) == side(row) for _, low, high in without)
                    known.add(interval(row))
                    found[model, f"{over} over {under}", metric] = (
                        interval(row), f"{sum(map(lt, *logs))} of {len(texts)}", side(row), same if side(row) else 0)
            gains[model] = [(one, rows["3 bits"][text]) for text, one in rows["by layer, bytes of 3 bits"].items()]
            for label in {row["label"].partition(" | ")[0] for row in halves[0] if row["label"].startswith("by layer")}:
                one, other = (next(layers_of(row["label"]) for row in half if row["label"].startswith(f"{label} | "))
                              for half in halves)
                alike[model, label] = f"{sum(one[layer] == other[layer] for layer in one)} of {len(one)}"
        lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
        lines = [line for line in lines if line[1:2] in (["KL"], ["error"])]
        self.assertEqual(len(lines), 12)
        for name, metric, *said in lines:
            for model, own in zip(models, (said[:2], said[2:])):
                self.assertEqual(tuple(own), found[model, name, metric][:2], (model, name, metric))
        page = " ".join(text.split())
        self.assertLessEqual({"{} ({} to {})".format(*said) for said in INTERVAL.findall(page)}, known)
        whole = {key: (decided, same) for key, (*_, decided, same) in found.items()}
        for over, under, verdict in (
                ("by layer, bytes of 3 bits", "3 bits", (-1, 10)), ("by layer, bytes of 4 bits", "4 bits", (0, 0)),
                ("by layer, bits alone, bytes of 3 bits", "3 bits", (0, 0)),
                ("by layer, bytes of 3 bits", "outer half in 4 bits, others in 2", (-1, 10))):
            for model in models:
                self.assertEqual(whole[model, f"{over} over {under}", "KL"], verdict, (model, over))
        self.assertEqual(sum(metric == "KL" for _, metric, *_ in lines), 6)
        for model, holds_one in zip(models, (True, False)):  # Student's t by Bonferroni for twelve, nine degrees
            logs = [math.log(one["kl.mean"] / other["kl.mean"]) for one, other in gains[model]]
            end = math.exp(mean(logs) + 3.807878 * stdev(logs) / 10**0.5)
            self.assertEqual(end > 1, holds_one, model)
            self.assertTrue(holds_one or f"ends at {end:.3f}" in page)
        for bits, said in ((3, ("25 of 30", "20 of 24")), (4, ("23 of 30", "20 of 24"))):
            for model, own in zip(models, said):
                self.assertEqual(alike[model, f"by layer, bytes of {bits} bits"], own)
            self.assertIn(f"{bits} bits: {said[0]}", page)

    def test_claims_of_anchors(self):
        """Verdicts, ranges and the table of its prose."""
        page = " ".join((ROOT / "plots/ANCHORS.md").read_text(encoding="utf-8").split())
        models, ratios, ends = ("smollm2", "qwen2.5-coder-0.5b"), {}, {}
        for model in models:
            best = {(row["method"], row["at"], row["every"], row["match"]): row for row in table(f"{model}/anchors")}
            over = {(row["other"], row["at"], row["every"], row["match"]): row for row in table(f"{model}/anchors_over")
                    if row["method"] == "kascade"}
            self.assertEqual({(side(row), row["holds"]) for row in best.values()}, {(1, 10)})
            ratios[model] = {("own best tokens", *key): row for key, row in best.items() if key[1] == 0.1}
            ratios[model] |= {({"sparq": "SparQ", "snapkv": "SnapKV"}[other], "kascade", *key): row
                              for (other, *key), row in over.items()}
            pairs = {(row["anchor"], row["layer"]): row["overlap"] for row in table(f"{model}/anchors_distance")}
            ends[model] = [f"{min(own):.2f} to {max(own):.2f}" for own in (
                [x for (a, b), x in pairs.items() if b == a + 1], [x for (a, _), x in pairs.items() if a == 0])]
        of_smollm2, of_qwen = (ratios[model] for model in models)
        self.assertIn("layers have {1:.1f} to {0:.1f} times the error".format(
            *(own["own best tokens", "kascade", 0.1, 4, "closest"]["frobenius"] for own in ratios.values())), page)
        self.assertEqual({(side(row), row["holds"]) for key, row in of_smollm2.items() if key[0] == "SparQ"}, {(1, 10)})
        for at in (0.1, 0.2):
            sides = [[(side(row), row["holds"]) for row in (own[other, "kascade", at, every, "closest"] for every in
                      (2, 4, 8))] for own in (of_smollm2, of_qwen) for other in ("SnapKV", "SparQ")]
            self.assertEqual(sides, [[(-1, 10), (-1, 10), (1, 10)], [(1, 10)] * 3,
                                     [(-1, 10), (-1, 10), (0, 0)], [(-1, 10), (0, 0), (1, 10)]])
        same = of_smollm2["SnapKV", "kascade", 0.1, 4, "same"]
        self.assertEqual((side(same), side(same, "spectral"), 10 - same["holds"]), (1, 0, 6))
        shaky = {model: {key[0]: key[4] for key, row in own.items() if side(row) and row["holds"] < 10}
                 for model, own in ratios.items()}
        self.assertEqual(shaky, {models[0]: {"SnapKV": "same"}, models[1]: {"SparQ": "same"}})
        four = of_qwen["SparQ", "kascade", 0.1, 4, "closest"]
        self.assertEqual([side(four, error) for error in ("frobenius", "spectral", "mean", "followers")], [0, 0, 1, 1])
        self.assertEqual(side(of_qwen["SparQ", "kascade", 0.1, 2, "closest"], "followers"), 1)
        first, second = ends.values()
        self.assertIn(f"the layer after an anchor finds {first[0]} of its own best tokens among the anchor's on SmolLM2 "
                      f"and {second[0]} on", page)
        self.assertIn(f"Layer 0 finds {first[1]} and {second[1]} of", page)
        words = {"layer 0 alone": ("kascade", 100, "closest"), "SparQ, 16 channels": ("sparq", 0, "none"),
                 "SnapKV (evicts)": ("snapkv", 0, "none"), "every 4 layers, head of one number": ("kascade", 4, "same"),
                 "every 4 layers, one choice a layer": ("kascade", 4, "pooled")}
        words |= {f"anchors every {every} layers": ("kascade", every, "closest") for every in (2, 4, 8)}
        lines = re.findall(r"\| ([^|]+) \| (own best tokens|SparQ|SnapKV) \| ([^|]+) \| ([^|]+) \|", page)
        self.assertEqual(len(lines), 18)
        for label, other, *said in lines:
            method, *key = words[label]
            self.assertEqual(said, [interval(own[(other, method, 0.1, *key)]) for own in ratios.values()], (label, other))

        over = {(row["other"], row["at"], row["every"]): row for row in table("gemma/anchors_over") if row["method"] == "kascade"}
        best = {(row["method"], row["at"], row["every"]): row for row in table("gemma/anchors")}
        self.assertEqual({(side(row), row["holds"]) for row in best.values()}, {(1, 10)})
        pairs = {(row["anchor"], row["layer"]): row for row in table("gemma/anchors_distance")}
        self.assertEqual((len(pairs), {side(row) for row in pairs.values()}), (3, {1}))
        self.assertEqual([(side(over[other, at, 100]), over[other, at, 100]["holds"], side(over[other, at, 100], "mean"))
                          for at in (0.1, 0.2) for other in ("sparq", "snapkv")], [(1, 10, 1), (0, 0, 1)] * 2)
        self.assertEqual([(side(row, other), row[f"{other}_holds"]) for row in pairs.values() for other in ("sparq", "snapkv")],
                         [(0, 0), (-1, 4), (1, 10), (1, 10), (1, 10), (-1, 2)])
        said = [[interval(best["kascade", 0.1, 100]), *(interval(over[other, 0.1, 100]) for other in ("sparq", "snapkv"))]]
        said += [[interval(row, name) for name in ("frobenius", "sparq", "snapkv")] for row in pairs.values()]
        for label, ratios in zip(("11 and 17, those of 5", "11, those of 5", "17, those of 5", "17, those of 11"), said):
            self.assertIn(" | ".join([f"| {label}", *ratios]) + " |", page)

    def test_claims_of_prefill(self):
        """Verdicts and counts of its prose."""
        page = " ".join((ROOT / "plots/PREFILL.md").read_text(encoding="utf-8").split())
        wider, above, middle = 4.210023 / 2.262157, [], []  # Student's t of nine degrees for 5 % of 22, and for 5 %
        gain = {("streaming_llm", "flexprefill", 0.45)}
        lines = {("minference", "flexprefill", at) for at in (0.45, 0.6)}, {("minference", "xattention", at) for at in (0.45, 0.6)}
        of_qwen = lines[0], set()
        for model, lower, layer_0, (below, open_) in (("smollm2", (0, 15), -1, lines),
                                                      ("qwen2.5-coder-0.5b", (0, 6, 12), 1, of_qwen)):
            rows = {(row["method"], row["other"], row["at"]): row for row in table(f"{model}/prefill")
                    if (row["equal"], row["block"]) == ("head", 128)}
            decided = {key: side(row) for key, row in rows.items() if side(row)}
            self.assertEqual((len(rows), {rows[key]["groups"] - rows[key]["holds"] for key in decided}), (22, {0}))
            self.assertEqual({key for key, side in decided.items() if side < 0}, gain | below)
            self.assertEqual({key for key in rows if key not in decided} - {("xattention", "exact masses", 0.6)},
                             {("streaming_llm", "flexprefill", 0.6), ("xattention", "exact masses", 0.45)} | open_)
            for key in decided:
                if rows[key]["groups"] == 10 and (model, *key) != ("qwen2.5-coder-0.5b", "minference", "flexprefill", 0.6):
                    ratio, high = (math.log(rows[key][name]) for name in ("frobenius", "frobenius_high"))
                    self.assertGreater(abs(ratio), (high - ratio) * wider)
            layers = {(row["method"], row["other"], row["at"], row["layer"]): row for row in table(f"{model}/prefill_layers")}
            rises = {key: side(row) for key, row in layers.items() if key[:2] == ("flexprefill", "xattention")}
            self.assertEqual((len(rises), set(rises.values())), (8, {1}))
            own = [layers[key]["frobenius"] for key in rises if key[2] == 0.45]
            self.assertIn(f"{min(own):.2f} to {max(own):.2f} in", page.replace("those of Qwen", "in"))
            gains = [key[3] for key, row in layers.items() if key[:3] == ("streaming_llm", "flexprefill", 0.45) and side(row) < 0]
            self.assertEqual(tuple(sorted(gains)), lower)
            self.assertEqual({side(row) for key, row in layers.items() if key[:2] == ("streaming_llm", "xattention")
                              and key[3] > 0}, {1})
            self.assertEqual(side(layers["streaming_llm", "xattention", 0.45, 0]), layer_0)
            for metric in ("spectral", "mean"):
                self.assertEqual({side(rows["flexprefill", "xattention", at], metric) for at in (0.45, 0.6)}, {1})
            both = rows["flexprefill", "xattention", 0.45]
            above.append(f"{both['rise']:g} of {both['units']:g}")
            middle += [rows["xattention", "exact masses", at]["frobenius"] for at in (0.45, 0.6)]
        self.assertIn(f"above 1 in {above[0]} heads and in {above[1]} at 0.45", page)
        self.assertIn(f"at most {100 * max(middle) - 100:.0f} % above that of exact masses", page)
        texts = {(row["method"], row["other"], row["at"]): row for row in table("smollm2/prefill")
                 if (row["equal"], row["block"]) == ("text", 128)}
        over = [texts["minference", "xattention", at] for at in (0.45, 0.6)]
        self.assertEqual([(side(row), row["holds"] == row["groups"]) for row in over], [(-1, True), (-1, False)])
        for model, of_500 in (("smollm2", [-1, -1, -1]), ("qwen2.5-coder-0.5b", [0, 1, 1])):
            columns = {(row["method"], row["setting"]): row for row in table(f"{model}/prefill_settings") if row["block"] == 128}
            self.assertEqual([[side(columns[f"minference, {name} columns", diagonals]) for diagonals in (200, 300, 400)]
                              for name in (30, 500)], [[1, 1, 1], of_500])
        same = next(row for row in table("qwen2.5-coder-0.5b/prefill") if (row["equal"], row["block"], row["method"],
                    row["other"], row["at"]) == ("head", 128, "minference", "flexprefill", 0.6))
        self.assertEqual([side(same, metric) for metric in ("frobenius", "spectral", "mean")], [-1, 0, 1])

    def test_claims_of_long(self):
        """Sides of 1, orders and counts of its prose."""
        rows = by(table("qwen2.5-coder-0.5b/long"), "at", "method")
        first = [f"published_{tokens}_64" for tokens in (2048, 4096, 8192, 12288, 16384)]
        last, half = (by(table(f"qwen2.5-coder-0.5b/long_{part}"), "at", "method") for part in ("last", "half"))
        whole = {(row["at"], row["method"]): row for row in table("qwen2.5-coder-0.5b/long_whole")
                 if row["mode"] == "published_32768_64"}
        below = {"snapkv", "tova", "caote", "pyramidkv", "h2o", "expected_attention", "kcenter", "streaming_llm",
                 "streaming_llm, original positions"}
        above = {"knorm", "keydiff", "curdkv", "compactor"}
        for at in (0.1, 0.2, 0.35):
            for names, side in ((below, True), (above, False)):
                for name in names:
                    ratios = [*(rows[at, name][length] for length in first),
                              *(of[at, name]["frobenius"] for of in (last, half, whole))]
                    self.assertEqual({ratio < 1 for ratio in ratios}, {side}, (at, name))
        for tokens in (8192, 16384):
            for names, side in ((below, True), (above, False)):
                self.assertEqual({rows[0.2, name][f"published_{tokens}_256"] < 1 for name in names}, {side}, tokens)
        for name in ("lagkv", "window", "qfilters"):
            ratios = [*(rows[0.2, name][length] for length in first), whole[0.2, name]["frobenius"]]
            self.assertEqual(len({ratio < 1 for ratio in ratios}), 2, name)
        # Ratios of the first part, the last one and the whole, where all are.
        parts = [{key: (rows[key]["published_8192_64"], row["frobenius"], rows[key]["published_16384_64"])
                  for key, row in last.items() if rows[key]["published_16384_64"]},
                 {key: (rows[key]["published_16384_64"], half[key]["frobenius"], row["frobenius"])
                  for key, row in whole.items() if key in half and rows[key]["published_16384_64"]}]
        for of, counts, others in zip(parts, ((16, 16, 16), (16, 17, 16)), (({"qfilters"},) * 3, (
                {"qfilters"}, {"qfilters", "balancekv_prefill"}, set()))):
            for at, count, other in zip((0.1, 0.2, 0.35), counts, others):
                own = {name: ratios for (when, name), ratios in of.items() if when == at}
                less = {name for name, (one, end, all_of) in own.items()
                        if abs(math.log(one / end)) < abs(math.log(all_of / end))}
                self.assertEqual((len(own), less), (count, other), at)
        turned = [{name for (at, name), (_, end, all_of) in of.items() if at == 0.2 and (end < 1) != (all_of < 1)}
                  for of in parts]
        self.assertEqual(turned, [set(), {"window"}])

    def test_claims_of_reading(self):
        """Verdicts, counts and ranks of its prose."""
        page = " ".join((ROOT / "plots/READING.md").read_text(encoding="utf-8").split())
        rows = {row["method"]: row for row in table("smollm2/pieces")}
        pairs, ranks = table("smollm2/pieces_pairs"), by(table("smollm2/pieces_ranks"), "of")
        texts, = {row["texts"] for row in (*rows.values(), *pairs, *ranks.values())}
        number = NUMBERS[int(texts)]
        falls = [name for name, row in rows.items() if side(row, "kl") < 0]
        self.assertEqual((len(rows), [name for name in rows if side(rows[name], "kl") > 0]), (8, []))
        self.assertIn(f"fifth of the memory {number} texts show no method whose KL rises in pieces, and {NUMBERS[len(falls)]} whose", page)
        # Student's t of nine degrees of freedom for an error of 5 % over that for an eighth of it.
        wider = [math.log(rows[name]["kl"]) + math.log(rows[name]["kl_high"] / rows[name]["kl"]) * 3.546508 / 2.262157 for name in falls]
        self.assertGreater(min(wider), 0)
        third = {row["method"]: row for row in table("smollm2/pieces_third")}
        self.assertEqual({name: (side(row, "kl"), row["texts"] - row["holds"]) for name, row in third.items() if side(row, "kl")},
                         {"lagkv": (-1, 0), "uniform": (-1, 0), "streaming_llm": (-1, 1)})
        self.assertEqual({row["texts"] for row in third.values()}, {texts})
        for name in ("lagkv", "uniform"):
            row = third[name]
            self.assertGreater(math.log(row["kl"]) + math.log(row["kl_high"] / row["kl"]) * 3.546508 / 2.262157, 0)
        self.assertIn(f"95 % intervals over {number} texts", page)
        turned, = (row for row in pairs if row["turns"])
        self.assertEqual((turned["one"], turned["other"], side(turned, "whole"), side(turned, "in_pieces")),
                         ("kcenter", "lagkv", -1, 1))
        self.assertLess(max(turned["whole_holds"], turned["in_pieces_holds"]), texts)
        for name, zero in (("uniform", -1), ("lagkv", -1), ("snapkv", -1)):
            self.assertEqual((rows[name]["more_low"] > 0) - (rows[name]["more_high"] < 0), zero)
        decided = {way: [side(row, way) for row in pairs] for way in ("whole", "in_pieces")}
        both = [row for row, *sides in zip(pairs, *decided.values()) if all(sides)]
        self.assertIn(f"{sum(map(abs, decided['whole']))} of 28 pairs are decided, in pieces "
                      f"{sum(map(abs, decided['in_pieces']))}; {len(both)} are decided in both", page)
        stay = sum(row["whole_holds"] == row["in_pieces_holds"] == texts for row in both)
        self.assertIn(f"Among the pairs that are decided in both ways {stay} of {len(both)} remain so", page)
        moves = {name: (int(row["rank_whole"]), int(row["rank_pieces"])) for name, row in rows.items()}
        self.assertEqual((moves["tova"], moves["streaming_llm"]), ((1, 1), (2, 2)))
        self.assertIn("Uniform sampling goes from rank {} to {} and LagKV from {} to {};".format(
            *moves["uniform"], *moves["lagkv"]), page)
        # A token stays with each of the chances that the sizes of its draws give: 40 of what is neither a sink nor recent.
        middle = [held - 36 for held in (256, 76 + 256, 76 + 256, 76 + 128)]
        self.assertIn(f"1 in {math.prod([size / 40 for size in middle]):.0f}, and one of the last piece with 40 in {middle[-1]}."
                      f" Read whole, each has 40 in {896 - 36}.", page)

    def test_methods_that_no_choice_turns(self):
        sides = {}
        for n in (64, 128, 256):
            rows = table(f"choices/decoded_{n}")
            for uniform in (row for row in rows if row["label"] == "uniform"):
                for row in rows:
                    if row["params.budget.memory"] == uniform["params.budget.memory"] and row is not uniform:
                        sides.setdefault(row["label"], []).extend(
                            row[name] > uniform[name] for name in row if name.startswith("errors."))
        self.assertEqual({len(own) for own in sides.values()}, {18})
        self.assertFalse([label for label, own in sides.items() if not any(own)])
        self.assertEqual({label for label, own in sides.items() if all(own)}, {
            "knorm", "knorm, published", "kcenter", "expected_attention, published", "window",
            "attention_matching, published", "uniform, nothing always kept"})

    def check_the_tail(self):
        """The tail ranks best of fourteen metrics at each memory, and each half of the texts chooses it."""
        tail = "outputs.residual_ratio.p99"
        for name in ("metrics_by_memory", "perplexity_by_memory"):
            rows = [row for row in table(f"loop/{name}") if row["over"].startswith("budget {")]
            self.assertEqual((len(rows), {row["texts"] for row in rows}), (28, {10}))
            for over in {row["over"] for row in rows}:
                own = [row for row in rows if row["over"] == over]
                self.assertEqual(max(own, key=lambda row: row["rho"])["metric"], tail)
        rows = [row for row in table("loop/held_out") if row["over"].startswith("budget {") and row["which"] == "chosen"]
        self.assertEqual({row["metric"] for row in rows if row["chosen_on"] != "both"}, {tail})
        self.assertGreater(min(row["gain_low"] for row in rows if row["chosen_on"] == "both"), 0)
        turned = {row["metric"]: row["turned"] for row in table("loop/pairs_turned")}
        self.assertEqual(min(turned, key=turned.get), tail)

    def check_the_field(self):
        rows = [row for row in table("smollm2/field_modes") if row["at"] == 0.2]
        modes = {mode: {row["method"]: row for row in rows if row["mode"] == mode} for mode in ("published", "equalised")}
        for mode, counts in (("published", (36, 20, 18, 13)), ("equalised", (36, 23, 19, 10))):
            own = [row for name, row in modes[mode].items() if "," not in name]
            self.assertEqual((len(own), *(sum(map(holds, own)) for holds in (
                lambda row: row["frobenius"] < 1, lambda row: row["frobenius_high"] < 1,
                lambda row: row["frobenius_low"] > 1))), counts, mode)
            for row in own:
                if row["family"] in ("attention of the last rows", "a model of future queries"):
                    self.assertLess(row["frobenius_high"], 1, row["method"])
        first, second = modes.values()
        self.assertEqual(sum(first[name]["frobenius"] == second[name]["frobenius"] for name in first if name in second), 11)
        self.assertEqual(next(iter(second)), "attention_matching, own references")
        self.assertEqual(list(first)[:4], ["roco", "caote", "expected_attention", "tova"])
        turned = {(row["choice"], row["at"], row["other_at"], row["other_metric"]): set(row["names"].split())
                  for row in table("smollm2/field_orders") if (row["mode"], row["metric"]) == ("published", "frobenius")}
        self.assertEqual(turned["mode", 0.2, 0.2, "frobenius"], {"compactor", "keydiff", "attention_matching"})
        self.assertEqual(turned["metric", 0.2, 0.2, "mean"], {"streaming_llm"})
        self.assertEqual(turned["metric", 0.2, 0.2, "spectral"], {"streaming_llm"})
        self.assertEqual(turned["memory", 0.1, 0.2, "frobenius"], {"kcenter", "performer", "wildcat"})
        self.assertEqual(turned["memory", 0.2, 0.35, "frobenius"], {"streaming_llm"})
        below = {row.pop("method"): sum(ratio < 1 for ratio in row.values()) for row in table("smollm2/field_layers")}
        self.assertEqual([below[name] for name in ("h2o", "caote", "expected_attention", "roco", "snapkv")],
                         [28, 28, 28, 27, 26])
        self.check_the_second_model()
        self.check_the_third_model()
        self.check_the_fourth_model()
        old = {row["method"]: row["ratio"] for row in table("smollm2/field")}
        new = second | {"attention_matching": second["attention_matching, own references"]}
        self.assertEqual({name for name in old if (old[name] < 1) != (new[name]["mean"] < 1)},
                         {"streaming_llm", "cam", "knorm"})

    def check_the_second_model(self):
        rows = [row for row in table("gemma/field_modes") if row["at"] == 0.2]
        self.assertEqual({(row["units"], row["groups"]) for row in rows}, {(30, 10)})
        own = [row for row in rows if row["mode"] == "published" and "," not in row["method"]]
        self.assertEqual((len(own), sum(side(row) < 0 for row in own), sum(side(row) > 0 for row in own)), (36, 15, 14))
        self.assertEqual([sum(side(row) == of and row["holds"] == 10 for row in own) for of in (-1, 1)], [11, 13])
        holds = {row["method"]: row["holds"] for row in own}
        self.assertEqual((holds["kf_merge"], holds["attention_matching"]), (10, 5))
        kept = {"attention of the last rows": -1, "a model of future queries": -1, "attention summed over rows": -1,
                "keys or values alone": 1}
        by_spectral = {"attention of the last rows": 0, "a model of future queries": 1, "attention summed over rows": 1}
        for row in table("gemma/field_families"):
            if row["at"] == 0.2:
                if row["family"] in kept:
                    self.assertEqual((side(row), row["holds"]), (kept[row["family"]], 10))
                if row["mode"] == "published" and row["family"] in by_spectral:
                    self.assertEqual(side(row, "spectral"), by_spectral[row["family"]], row["family"])
                self.assertGreaterEqual(side(row, "spectral"), 0, row["family"])
                if row["family"] == "attention of the last rows":
                    self.assertEqual(row["better"], 21)
        both = {(row["mode"], row["at"], row["metric"]): row for row in table("gemma/field_models")}
        for mode, third, opposed in (("published", "attention_matching", "attention_matching kf_merge"),
                                     ("equalised", "keydiff", "kf_merge")):
            found = both[mode, 0.2, "frobenius"]
            self.assertEqual(set(found["names"].split()), {"kf_merge", "merge_cosine", third})
            self.assertEqual(found["opposed"], opposed)
        self.assertEqual(len(both["published", 0.2, "spectral"]["opposed"].split()), 7)
        turned = {(row["choice"], row["at"], row["other_at"], row["other_metric"]):
                  set(row["names"].replace("streaming_llm, original positions", "").split())
                  for row in table("gemma/field_orders") if (row["mode"], row["metric"]) == ("published", "frobenius")}
        self.assertEqual(turned["mode", 0.2, 0.2, "frobenius"], {"compactor"})
        self.assertEqual(turned["memory", 0.1, 0.2, "frobenius"], {"kcenter", "performer", "wildcat", "compactor"})
        self.assertEqual(turned["memory", 0.2, 0.35, "frobenius"], {"merge_cosine"})
        self.assertEqual([len(turned["metric", 0.2, 0.2, metric]) for metric in ("spectral", "mean")], [15, 2])
        by_model = [{row["method"]: row["frobenius"] for row in table(f"{model}/field_modes")
                     if (row["mode"], row["at"]) == ("published", 0.2)} for model in ("smollm2", "gemma")]
        self.assertEqual([each["h2o"] < each["snapkv"] for each in by_model], [False, True])

    def check_the_third_model(self):
        rows = [row for row in table("qwen2.5-coder-0.5b/field_modes") if row["at"] == 0.2 and "," not in row["method"]]
        self.assertEqual({(row["units"], row["groups"]) for row in rows}, {(48, 10)})
        own = [row for row in rows if row["mode"] == "published"]
        self.assertEqual((len(own), sum(side(row) < 0 for row in own), sum(side(row) > 0 for row in own)), (36, 15, 12))
        last = [row for row in rows if row["family"] == "attention of the last rows"]
        self.assertEqual([(side(row), row["holds"]) for row in last], [(-1, 10)] * 18)
        families = {(row["mode"], row["family"]): row for row in table("qwen2.5-coder-0.5b/field_families")
                    if row["at"] == 0.2}
        decided = {"attention of the last rows": (-1, -1, -1), "keys or values alone": (1, 1, 1),
                   "weighted samples, features": (1, 1, 1)}
        for name in ("a model of future queries", "attention summed over rows", "merged or fitted"):
            decided[name] = (0, 0, 0)
        for name, sides in decided.items():
            row = families["published", name]
            self.assertEqual(tuple(side(row, metric) for metric in ("frobenius", "spectral", "mean")), sides, name)
            self.assertEqual(row["holds"], 10 * abs(sides[0]), name)
        self.assertEqual(side(families["published", "positions alone"]), 0)
        self.assertEqual(families["published", "attention of the last rows"]["better"], 39)
        future = families["equalised", "a model of future queries"]
        self.assertEqual((side(future), future["holds"], side(future, "spectral")), (-1, 9, 0))
        both = {(row["mode"], row["at"], row["metric"]): row for row in table("qwen2.5-coder-0.5b/field_models")}
        self.assertEqual({row["opposed"] for key, row in both.items() if key[2] == "frobenius"}, {"none"})
        self.assertEqual(both["published", 0.2, "spectral"]["opposed"], "qfilters")
        self.assertEqual(set(both["published", 0.2, "frobenius"]["names"].split()),
                         {"lagkv", "kcenter", "wildcat", "balancekv_prefill", "qfilters"})
        turned = {(row["choice"], row["at"], row["other_at"], row["other_metric"]): set(row["names"].split())
                  for row in table("qwen2.5-coder-0.5b/field_orders")
                  if (row["mode"], row["metric"]) == ("published", "frobenius")}
        self.assertEqual(turned["mode", 0.2, 0.2, "frobenius"],
                         {"kcenter", "attention_matching", "compactor", "qfilters", "balancekv_prefill"})
        self.assertEqual(turned["memory", 0.1, 0.2, "frobenius"], {"performer", "kf_merge"})
        self.assertEqual(turned["memory", 0.2, 0.35, "frobenius"], {"balancekv_prefill"})
        self.assertEqual(turned["metric", 0.2, 0.2, "spectral"], {"kf_merge", "balancekv_prefill"})
        self.assertEqual(turned["metric", 0.2, 0.2, "mean"], {"kf_merge"})
        by_layer = {row["method"]: row for row in table("qwen2.5-coder-0.5b/field_layers") if "," not in row["method"]}
        self.assertEqual([sum(row[layer] < 1 for row in by_layer.values()) for layer in ("0", "11", "15")], [23, 4, 4])
        for name in ("subgen", "balancekv"):
            ratios = {layer: ratio for layer, ratio in by_layer[name].items() if layer != "method"}
            self.assertEqual(sorted(ratios, key=ratios.get)[-2:], ["0", "8"], name)
            self.assertGreater(ratios["0"], 100_000)


    def check_the_fourth_model(self):
        rows = [row for row in table("qwen2.5-coder-1.5b/field_modes") if row["at"] == 0.2 and "," not in row["method"]]
        self.assertEqual({(row["units"], row["groups"]) for row in rows}, {(56, 10)})
        own = [row for row in rows if row["mode"] == "published"]
        self.assertEqual((len(own), sum(side(row) < 0 for row in own), sum(side(row) > 0 for row in own)), (36, 18, 11))
        last = [row for row in rows if row["family"] == "attention of the last rows"]
        self.assertEqual([(side(row), row["holds"]) for row in last], [(-1, 10)] * 18)
        families = {row["family"]: row for row in table("qwen2.5-coder-1.5b/field_families")
                    if (row["mode"], row["at"]) == ("published", 0.2)}
        self.assertEqual(families["attention of the last rows"]["better"], 49)
        both = table("qwen2.5-coder-1.5b/field_models")
        self.assertEqual({row["opposed"] for row in both}, {"none"})
        turned = {model: {(row["choice"], row["at"], row["other_at"], row["other_metric"]): set(row["names"].split())
                          for row in table(f"{model}/field_orders")
                          if (row["mode"], row["metric"]) == ("published", "frobenius")}
                  for model in ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")}
        for key, names in turned["qwen2.5-coder-1.5b"].items():
            if key[0] in ("mode", "memory") and (key[1] == 0.2 or key[2] == 0.2):
                self.assertEqual(names, turned["qwen2.5-coder-0.5b"][key], key)
            elif key[0] == "metric" and key[1] == 0.2:
                self.assertEqual(names, {"none"}, key)


def ratio_of_five(over, under):
    """A geometric mean over five texts with its interval, to three digits."""
    return [f"{each:.3g}" for each in ratio_of(over, under)]


def ratio_of(over, under):
    """A geometric mean over texts with its interval."""
    logs = [math.log(one / other) for one, other in zip(over, under, strict=True)]
    quantile = (4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157)[len(logs) - 3]  # Student's t
    reach = quantile * stdev(logs) / len(logs) ** 0.5
    return [math.exp(mean(logs) + side * reach) for side in (0, -1, 1)]


def layers_of(label):
    """By layer the storage that a label has."""
    found = {}
    for layers, storage in re.findall(r"layers ([\d,-]+) (K .+?)(?=, layers|$)", label):
        for part in layers.split(","):
            first, _, last = part.partition("-")
            found |= dict.fromkeys(range(int(first), int(last or first) + 1), storage)
    return found


def side(row, name="frobenius"):
    """Whether the interval of a ratio is above 1 (1), below it (-1), or contains it (0)."""
    return (row[f"{name}_low"] > 1) - (row[f"{name}_high"] < 1)


def zero(row, name):
    """The same of a difference and 0, as a tuple."""
    return ((row[f"{name}_low"] > 0) - (row[f"{name}_high"] < 0),)


def interval(row, name="frobenius"):
    """A ratio as pages have it, to three digits: 2.63 (2.51 to 2.76)."""
    middle, *ends = (f"{row[name + end]:#.3g}" for end in ("", "_low", "_high"))
    return f"{middle} ({' to '.join(ends)})"


def spearman(one, other):
    """Rank correlation of two lists without ties."""
    ranks = [[sorted(each).index(value) for value in each] for each in (one, other)]
    n = len(one)
    return 1 - 6 * sum((a - b) ** 2 for a, b in zip(*ranks)) / (n * (n * n - 1))


class Tables(unittest.TestCase):
    def test_every_table_is_in_the_index_and_the_other_way_round(self):
        self.assertEqual({path.relative_to(TABLES).with_suffix("").as_posix() for path in TABLES.rglob("*.csv")}, set(INDEX))
        for name, entry in INDEX.items():
            self.assertRegex(entry["commit"], "^[0-9a-f]{10}$", name)
            self.assertRegex(entry["date"], r"^\d{4}-\d\d-\d\d$", name)

    def test_commands_run_on_small_runs(self):
        class Small(figures_test.Real):
            pass
        figures_test.PROGRAM = PROGRAM
        Small.setUpClass()
        self.addCleanup(Small.doClassCleanups)
        drawn = {name: command(name) for name in INDEX if INDEX[name]["from"].startswith(DRAWN)}
        with contextlib.redirect_stdout(io.StringIO()):
            Small().papers("--only", *{Path(words[0]).stem for words in drawn.values() if words[0].endswith(".csv")})
        for name, (source, *options) in drawn.items():
            with self.subTest(name):
                named = Path(source)  # a figure's table, or a sweep's results
                path = Small.folder / ("out" if named.name != "results.json" else named.parent.name) / named.name
                code, text = said(["table", str(path), *options, "--format", "csv"])
                self.assertEqual(code, 0)
                head = next(csv.reader(io.StringIO(text)))
                if "--columns" not in options:
                    self.assertEqual(head, list(table(name)[0]))
                self.assertEqual(head[0], next(iter(table(name)[0])))

    def test_tables_are_what_the_commands_make_where_their_sources_are_here(self):
        here = [name for name in INDEX if (ROOT / INDEX[name]["from"]).is_file()]
        if os.environ.get("KVBENCH_UPDATE_FINDINGS") == "1":
            update(here)
            self.skipTest("plots/tables was written; review the diff, and the prose of plots/FINDINGS.md")
        self.assertTrue(here)  # two sources are shipped
        for name in here:
            with self.subTest(name), (TABLES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
                shipped = list(csv.reader(file))
                self.assertEqual([[rounded(cell, 3) for cell in row] for row in shipped],
                                 [[rounded(cell, 3) for cell in row] for row in made(name)])


def update(names):
    """Writes tables and their commit and date where their numbers changed."""
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout.strip()
    for name in names:
        path, text = TABLES / f"{name}.csv", io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(made(name))
        if not path.is_file() or path.read_text(encoding="utf-8") != text.getvalue():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.getvalue(), encoding="utf-8")
            INDEX[name] |= {"commit": commit, "date": datetime.now(timezone.utc).date().isoformat()}
    lines = (f" {json.dumps(entry)}" for entry in INDEX.values())
    (TABLES / "index.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
