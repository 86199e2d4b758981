"""kvbench sequences: a line per sequence; both exit codes."""

import unittest

from program import BAD_INPUT, DONE, SHIPPED_DUMP, Folder, kvbench


class Sequences(Folder):
    def test_every_sequence_has_a_line(self):
        done = kvbench("sequences", SHIPPED_DUMP)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (DONE, "constitution 3\n", ""))

    def test_what_is_no_dump_is_refused_by_name(self):
        done = kvbench("sequences", self.made / "none.h5")
        self.assertEqual((done.returncode, done.stdout), (BAD_INPUT, ""))
        self.assertIn("none.h5", done.stderr)


if __name__ == "__main__":
    unittest.main()
