"""The program on a terminal (a pty): nothing it prints is wider, and nothing in a dump steers it."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import unicodedata
import unittest

from program import DONE, PROGRAM, Folder, kvbench

HOSTILE = "\x1b[41m序列\x9b1m\nEVIL\x1b]0;pwned\x07"
# Settings with long names, as a real sweep has them.
LONG = [{"algorithm": "exact"}, {"algorithm": "balancekv_prefill", "params": {"T": [1, 2], "block": 32}},
        {"algorithm": "subgen", "params": {"delta_quantile": [0.05, 0.2], "t": 4, "s": [16, 32]}}]


def width(text):
    """Columns that a terminal gives to a text."""
    return sum(0 if unicodedata.combining(c) else
               2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


class Terminal(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import h5py
        for name, sequence in (("wide.h5", "序" * 40), ("hostile.h5", HOSTILE)):
            path = cls.synth(name, "--tokens", 96, "--d", 8, "--layers", 2, "--out-rows", 8)
            with h5py.File(path, "r+") as dump:
                dump["sequences"].move("0", sequence)
                dump.attrs["model"] = sequence
                dump[f"sequences/{sequence}"].attrs["description"] = sequence

    def on_terminal(self, *arguments, columns=80, expect=DONE, **environment):
        """All that the program writes to a terminal, stdout and stderr alike."""
        master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=terminal, stdout=terminal,
                              stderr=terminal, env={**os.environ, **environment}) as process:
            os.close(terminal)
            written = b""
            while select.select([master], [], [], 300)[0]:
                try:
                    got = os.read(master, 65536)
                except OSError:  # the other end is closed
                    break
                if not got:
                    break
                written += got
        os.close(master)
        text = written.decode()
        self.assertEqual(process.returncode, expect, text)
        return text.replace("\r\n", "\n")  # as the terminal's driver has it

    def assert_harmless(self, text):
        left = re.sub("[\n\r]", "", text)
        bad = [c for c in left if unicodedata.category(c) == "Cc"]
        self.assertEqual(bad, [], repr(text))

    def table(self, text):
        """The lines of the table that ends a run."""
        lines = text.split("\r")[-1].split("\n")
        return lines[:next(i for i, line in enumerate(lines) if "results.json:" in line)]

    def run_here(self, dump, columns, **environment):
        config = self.sweep(LONG, dumps=[str(dump)])
        return self.on_terminal("run", "--config", config, "--out", self.folder / "out", "--fresh",
                                "--threads", 1, columns=columns, **environment)

    def test_the_bar_fits_every_width(self):
        for name, widths in (("tiny", (120, 80, 60, 40, 24, 12)), ("wide", (80, 24)), ("hostile", (80, 24))):
            for columns in widths:
                with self.subTest(dump=name, columns=columns):
                    text = self.run_here(self.made / f"{name}.h5", columns)
                    refreshes = text.split("\r")[1:]
                    self.assertGreater(len(refreshes), 1)
                    for refresh in refreshes[:-1]:
                        self.assertNotIn("\n", refresh)
                        self.assertLess(width(refresh), columns)
                    self.assertNotIn("\x1b", text)

    def test_the_final_table_fits_80_columns_and_less(self):
        full = "spectral  row mean  memory  setting"
        for columns in (80, 60, 40, 30):
            with self.subTest(columns=columns):
                table = self.table(self.run_here(self.made / "tiny.h5", columns))
                self.assertIn("balancekv_prefill", "\n".join(table))
                for line in table:
                    self.assertLessEqual(width(line), columns, table)
        self.assertIn("delta_quantile", "\n".join(self.table(self.run_here(self.made / "tiny.h5", 80))))
        piped = kvbench("run", "--config", self.sweep(LONG), "--out", self.folder / "piped")
        self.assertEqual(piped.returncode, DONE, piped.stderr)
        self.assertIn(re.sub(" +", " ", full), re.sub(" +", " ", piped.stderr))

    def test_a_dumb_terminal_gets_no_escape_sequence_and_columns_is_believed(self):
        self.assertNotIn("\x1b", self.run_here(self.made / "tiny.h5", 80, TERM="dumb"))
        # A terminal that does not know its width.
        text = self.run_here(self.made / "tiny.h5", 0, COLUMNS="40", TERM="dumb")
        for refresh in text.split("\r")[1:-1]:
            self.assertEqual(width(refresh), 39 if refresh else 0)

    def test_the_tables_of_every_command_fit(self):
        config = self.sweep(LONG, dumps=[str(self.made / "wide.h5")])
        out = self.folder / "out"
        self.on_terminal("run", "--config", config, "--out", out, "--quiet")
        results = out / "results.json"
        for columns in (80, 60):
            for command in (["plan", "--config", config], ["compare", results, results],
                            ["inspect", self.made / "tiny.h5"], ["list", "algorithms"]):
                with self.subTest(command=command[0], columns=columns):
                    text = self.on_terminal(*command, columns=columns).split("\r")[-1]
                    tables = [line for line in text.split("\n") if re.search(r"\S  +\S", line)]
                    self.assertGreater(len(tables), 3)
                    for line in tables:
                        self.assertLessEqual(width(line), columns, text)

    def test_names_in_a_dump_reach_the_terminal_escaped_in_every_command(self):
        dump = self.made / "hostile.h5"
        config = self.sweep([{"algorithm": "exact"}, {"algorithm": "window", "params": {"budget": [8, 16]}},
                             {"algorithm": "streaming_llm", "params": {"budget": 0.0001}}], dumps=[str(dump)])
        out = self.folder / "out"
        commands = [["plan", "--config", config], ["plan", "--config", config, "--json"],
                    ["run", "--config", config, "--out", out],
                    ["merge", out, "--out", self.folder / "merged.json"],
                    ["inspect", dump], ["inspect", dump, "--json"], ["validate", dump],
                    ["validate", "--config", config],
                    ["export", "--results", out / "results.json", "--format", "csv"],
                    ["export", "--results", out / "results.json", "--format", "md"],
                    ["compare", out / "results.json", out / "results.json"],
                    ["compare", out / "results.json", out / "results.json", "--json"]]
        for command in commands:
            with self.subTest(command=command):
                text = self.on_terminal(*command)
                self.assert_harmless(text)

    def test_a_faulty_place_is_named_escaped(self):
        for command in (["inspect", "\x1b[41m.h5"], ["plan", "--config", "\x9b1m"], ["\x1b[41m"],
                        ["run", "--config", "x.json", "--\x1b]0;pwned\x07"]):
            with self.subTest(command=command):
                self.assert_harmless(self.on_terminal(*command, expect=2))

    def test_a_pipe_gets_the_values_of_an_export_as_they_are(self):
        config = self.sweep([{"algorithm": "exact"}], dumps=[str(self.made / "hostile.h5")])
        self.on_terminal("run", "--config", config, "--out", self.folder / "out", "--quiet")
        done = kvbench("export", "--results", self.folder / "out/results.json", "--format", "csv")
        self.assertIn(HOSTILE, done.stdout)


if __name__ == "__main__":
    unittest.main()
