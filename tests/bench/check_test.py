"""bench --check turns red on a ratio that fell, and a peer whose result differs is refused; on made
figures, nothing is timed."""

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from compare_peers import fallen
from comparison import TASKS, TOLERANCE, disagreement


def rows(**ratios):
    return [{"task": task, "peer": "numpy", "ratio": ratio} for task, ratio in ratios.items()]


class Check(unittest.TestCase):
    def test_a_ratio_that_fell_by_more_than_30_percent_is_found(self):
        before = {"rows": rows(exact=10.0, walk=4.0)}
        self.assertEqual(fallen(rows(exact=7.1, walk=2.9), before), [])
        found = fallen(rows(exact=6.9, walk=4.0), before)
        self.assertEqual([row["task"] for row, _ in found], ["exact"])

    def test_peers_are_not_mixed_up(self):
        before = {"rows": [{"task": "exact", "peer": "torch", "ratio": 10.0}]}
        self.assertEqual(fallen(rows(exact=1.0), before), [])

    def test_a_row_that_was_skipped_is_not_compared(self):
        self.assertEqual(fallen(rows(exact=None), {"rows": rows(exact=10.0)}), [])
        self.assertEqual(fallen(rows(exact=1.0), {"rows": rows(exact=None)}), [])


class Agreement(unittest.TestCase):
    def test_a_result_that_differs_is_named(self):
        self.assertEqual(disagreement("exact", {"outputs": 1.0}, {"outputs": 1.0 + 1e-12}), "")
        self.assertIn("outputs", disagreement("exact", {"outputs": 1.0}, {"outputs": 1.0 + 1e-6}))
        self.assertIn("clusters", disagreement("clustering", {"clusters": 9.0}, {"clusters": 10.0}))

    def test_what_depends_on_draws_is_not_compared(self):
        self.assertEqual(disagreement("subgen_first", {"~error": 1.0}, {"~error": 2.0}), "")

    def test_every_compared_task_with_peers_says_how_well_it_agrees(self):
        self.assertEqual(set(TASKS) - set(TOLERANCE), {"h2o_further"})  # its own result is not one


class Measured(unittest.TestCase):
    def test_bars_are_those_of_the_tasks_and_bold_numbers_meet_them(self):
        page = (Path(__file__).parent / "MEASURED.md").read_text(encoding="utf-8").split("## One more")[0]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
        found = set()
        for name, _, peer, ratio, bar, above, floor_bar in rows[2:]:
            if name:
                task = TASKS[re.findall("`(.*)`", name)[0]]
                self.assertEqual(floor_bar, f"{task.floor_bar:g}" if task.floor_bar and above else "", name)
                if above and floor_bar:
                    self.assertEqual("**" in above, float(above.strip("*")) <= task.floor_bar, name)
            wanted = task.peers[peer]
            self.assertEqual(bar, f"{wanted:g}" if wanted else "", (name, peer))
            if bar:
                self.assertEqual("**" in ratio, float(ratio.strip("*")) >= wanted, (name, peer))
            found.add(peer)
        self.assertGreater(len(found), 5)

    def test_bold_ratios_of_quantised_cells_meet_twice(self):
        page = (Path(__file__).parent / "MEASURED.md").read_text(encoding="utf-8").split("## Quantised caches")[1]
        ratios = re.findall(r"^\| `.* \| ([*\d.]+) \|$", page.split("\n## ")[0], re.MULTILINE)
        self.assertGreater(len(ratios), 5)
        for ratio in ratios:
            self.assertEqual(ratio.startswith("**"), float(ratio.strip("*")) <= 2, ratio)


if __name__ == "__main__":
    unittest.main()
