"""The tables of questions, of a case worked by hand. Exits 77 where a Python package is missing."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import pandas
    from kvplot.__main__ import main
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

T2 = 4.302652729911275  # Student's t, two degrees of freedom, 97.5 %


def record(protocol, label, kl, rank, error, memory=0.2):
    return {"protocol": protocol, "label": label, "status": "ok", "rank": rank, "kl": [kl - 1, kl + 1],
            "error": error, "held": 0.5, "mass": 0.01, "mass_exact": 0.04, "memory": memory, "reads": memory,
            "params": {"budget": {"memory": memory}}}


def line(text, *records, depth=0.1):
    return {"id": f"{text}-{depth}", "text": text, "needle": 0, "depth": depth, "distance": 1000 * (1 - depth),
            "answers": bool(records), "full": {"rank": [1, 1]}, "without": {"rank": [100, 9], "kl": [6.0, 8.0]},
            "records": list(records)}


class Questions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def tables(self, *lines, kind="kvbench.questions"):
        path = self.folder / "1.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in ({"kind": kind}, *lines)))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            code = main(["questions", str(self.folder), "--out", str(self.folder / "out")])
        if code:
            return code, said.getvalue()
        return {path.stem: pandas.read_csv(path) for path in (self.folder / "out").glob("*.csv")}

    def test_a_worked_case(self):
        """KL of snapkv less uniform's: -1, -2 and -3; its error is a half of it, everywhere."""
        lines = [line(text, record("unseen", "uniform", 5.0, [8, 1], 0.4),
                      record("unseen", "snapkv", 5.0 - gain, [2, 1 if gain < 3 else 2], 0.2),
                      record("seen", "snapkv", 1.0, [1, 1], 0.1),
                      record("unseen", "quest", 1.0, [1, 1], 0.1, 1.0) | {"reads": 0.44, "params": {"budget": 0.2}})
                 for text, gain in (("a", 1), ("b", 2), ("c", 3))]
        found = self.tables(*lines, line("d"))
        asked = found["asked"].set_index("depth").loc["all"]
        self.assertEqual((asked["asked"], asked["answered"], asked["texts"]), (4, 3, 4))
        methods = found["methods"].set_index(["protocol", "label"])
        row = methods.loc["unseen", "snapkv"]
        self.assertEqual((row["right"], row["rank"], row["texts"], row["asked"]), (0.0, 2.0, 3, 0.2))
        self.assertEqual((row["mass"], row["held"], row["kl"]), (0.25, 0.5, 3.0))
        self.assertAlmostEqual(row["kl_high"], 3.0 + T2 / 3 ** 0.5)
        self.assertAlmostEqual(row["kl_low"], 3.0 - T2 / 3 ** 0.5)
        other = methods.loc["seen", "snapkv"]
        self.assertEqual((other["rank_low"], other["held_high"], other["kl_low"]), (1, 0.5, 1.0))
        self.assertEqual((methods.loc["seen", "snapkv"]["right"], methods.loc["unseen", "quest"]["asked"]), (1.0, 0.2))
        lost = methods.loc["unseen", "without the sentence"]
        self.assertEqual((round(lost["rank"], 9), lost["kl"], lost["asked"]), (100, 7.0, 1.0))
        pair, again = found["pairs"].to_dict("records")
        self.assertEqual((pair["depth"], again["depth"], again["kl"]), ("all", "0.1", -2.0))
        self.assertEqual((pair["one"], pair["other"], round(pair["ratio"], 9), pair["ratio_holds"]),
                         ("snapkv", "uniform", 0.5, 3))
        self.assertAlmostEqual(pair["kl_low"], -2 - T2 / 3 ** 0.5)
        self.assertEqual((pair["kl"], pair["kl_holds"]), (-2.0, 0))  # -2 - 2.5 to -2 + 2.5
        change, lost = found["protocols"].sort_values("asked").to_dict("records")
        self.assertEqual((lost["label"], lost["kl"]), ("without the sentence", 0.0))
        self.assertEqual((change["label"], change["kl"], round(change["ratio"], 9), change["right"]),
                         ("snapkv", 2.0, 2.0, -1.0))
        ranks = found["ranks"].query("depth == 'all'").set_index(["protocol", "metric"])
        self.assertEqual((ranks.loc["unseen", "error"]["rho"], ranks.loc["unseen", "error"]["methods"]), (1.0, 2))
        self.assertEqual(set(found["distances"]["depth"]), {0.1})

    def test_an_interval_that_no_text_turns(self):
        lines = [line(text, record("seen", "h2o", 3.0, [3, 1], 0.3),
                      record("seen", "h2o with decay", 2.0 + shift, [3, 1], 0.3 + shift))
                 for text, shift in zip("abcd", (0.0, 0.01, 0.02, 0.01))]
        pair, _ = self.tables(*lines)["pairs"].to_dict("records")
        self.assertEqual((pair["kl_holds"], pair["ratio_holds"]), (4, 0))

    def test_intervals_end_where_values_do(self):
        lines = [line(text, record("seen", "snapkv", 1.0, [1, 1], 0.1),
                      record("seen", "h2o", kl, [rank, 1], 0.1) | {"held": held})
                 for text, kl, rank, held in (("a", 1, 1, 1.0), ("b", 1, 1, 1.0), ("c", 7, 4, 0.1))]
        row = self.tables(*lines)["methods"].set_index("label").loc["h2o"]
        self.assertEqual((row["rank_low"], row["kl_low"], row["held_high"], row["right_low"]), (1, 0, 1, 0))
        self.assertGreater(row["held_low"] + row["rank_high"], 4)
        self.assertAlmostEqual(row["error_low"], 0.1)

    def test_methods_without_a_budget_are_with_those_that_hold_as_much(self):
        kinds = {"T3": ({"T": 3}, 0.17), "T1": ({"T": 1}, 0.57), "half": ({"budget": {"memory": 0.5}}, 0.4988),
                 "reads": ({"budget": 0.5}, 1.06), "snapkv": ({"budget": {"memory": 0.5}}, 0.5),
                 "h2o": ({"budget": {"memory": 0.5}}, 0.5)}
        found = self.tables(*(line(text, *(record("seen", name, 1.0, [1, 1], 0.1, memory) | {"params": params}
                                           for name, (params, memory) in kinds.items())) for text in "ab"))
        asked = found["methods"].set_index("label")["asked"].to_dict()
        self.assertEqual([asked[name] for name in kinds], [0.2, 0.5, 0.5, 0.5, 0.5, 0.5])

    def test_differences_of_rank_correlations(self):
        """Seen, three methods have one order by error and KL; unseen, the other way round, except in text d."""
        lines = [line(text, *(record(protocol, name, kl, [1, 1], error) for protocol, kls in (
                     ("seen", (1.0, 2.0, 3.0)), ("unseen", (1.0, 2.0, 3.0) if text == "d" else (3.0, 2.0, 1.0)))
                     for name, kl, error in zip(("snapkv", "h2o", "uniform"), kls, (0.1, 0.2, 0.3))))
                 for text in "abcd"]
        rows = self.tables(*lines)["ranks"].query("depth == 'all' and metric == 'error'").set_index("protocol")
        self.assertEqual([rows.loc[name, "rho"] for name in ("seen", "unseen", "unseen - seen")], [1.0, -0.5, -1.5])
        self.assertEqual((rows.loc["seen", "holds"], rows.loc["unseen", "holds"]), (4, 0))
        self.assertEqual(rows.loc["unseen - seen", "texts"], 4)

    def test_other_files_are_refused(self):
        code, said = self.tables(line("a"), kind="kvbench.closed_loop.journal")
        self.assertEqual(code, 2)
        self.assertIn("is not a journal of data/ask_questions.py", said)
        code, said = self.tables(line("a"))
        self.assertEqual(code, 2)
        self.assertIn("has no answered question", said)


if __name__ == "__main__":
    unittest.main()
