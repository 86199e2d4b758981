"""The time left that the exporter prints, where tokens take longer the more there are before them."""

from __future__ import annotations

import contextlib
import io
import re
import unittest
from unittest import mock

from export.sequence_recorder import Progress

PIECE, TOTAL = 1024, 32 * 1024


def said(seconds_of: list[float]) -> list[tuple[float, float]]:
    """After each piece but the last, the seconds that are printed as left, and those that are."""
    clock = [0.0]
    with mock.patch("time.monotonic", lambda: clock[0]), contextlib.redirect_stderr(io.StringIO()) as lines:
        progress = Progress("text", TOTAL)
        for count, seconds in enumerate(seconds_of, 1):
            clock[0] += seconds
            progress.reached(count * PIECE)
    printed = [float(left) for left in re.findall(r"about (\d+) s left", lines.getvalue())]
    return list(zip(printed, [sum(seconds_of[count:]) for count in range(1, len(seconds_of))], strict=True))


class TimeLeft(unittest.TestCase):
    def test_of_attention_that_grows_with_the_text(self) -> None:
        pieces = [20.0 + 10.0 * count for count in range(32)]
        for printed, left in said(pieces)[1:]:
            self.assertLess(abs(printed - left), 1.0)

    def test_of_pieces_that_take_equally_long(self) -> None:
        for printed, left in said([20.0] * 32):
            self.assertLess(abs(printed - left), 1.0)

    def test_of_pieces_that_get_faster(self) -> None:
        for printed, left in said([40.0] * 4 + [20.0] * 28):
            self.assertGreaterEqual(printed, left)


if __name__ == "__main__":
    unittest.main()
