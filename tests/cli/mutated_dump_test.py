"""Dumps and cache files with bytes changed at random: refused or read, by exit code, in seconds. HDF5 crashes, loops or
asks for memory without end on some of them; the program says so and goes on.

KVBENCH_MUTATIONS=5000 changes that many files, KVBENCH_MUTATION_SEED=s begins elsewhere,
KVBENCH_MUTATIONS_KEPT=folder keeps those on which it fails."""

import json
import os
import random
import resource
import subprocess
import unittest
from collections import Counter
from pathlib import Path

from program import BAD_INPUT, DONE, FAILED_CELLS, PROGRAM, SOURCE, VIOLATION, Folder

MUTATIONS = int(os.environ.get("KVBENCH_MUTATIONS", "60"))
SEED = int(os.environ.get("KVBENCH_MUTATION_SEED", "1"))
SECONDS = 20  # for one command on a machine that has other work


def changed(data, chance):
    """1 to 16 bytes, half of the time near one another: where a structure is."""
    data = bytearray(data)
    near = chance.randrange(len(data)) if chance.random() < 0.5 else None
    for _ in range(chance.randint(1, 16)):
        at = (chance.randrange(len(data)) if near is None
              else min(len(data) - 1, near + chance.randrange(64)))
        data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return bytes(data)


class Mutated(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        small = ("--tokens", 16, "--d", 4)
        dumps = [cls.synth("plain.h5", *small), cls.synth("packed.h5", *small, "--gzip", 4),
                 *sorted((SOURCE / "tests/cli/dumps").glob("*.h5"))]
        cls.sound = [path.read_bytes() for path in dumps + cls.caches()]

    @classmethod
    def caches(cls):
        """Cache files, one with values of its own."""
        out = cls.made / "kept"
        sweep = {"schema_version": 1, "name": "kept", "dumps": [str(cls.made / "plain.h5")],
                 "output": {"caches": True},
                 "algorithms": [{"algorithm": "kcenter", "params": {"budget": 4, "recent": 1, "sinks": 1,
                                                                    "value": "mean"}},
                                {"algorithm": "uniform", "params": {"T": 1, "sinks": 1, "recent": 1}}]}
        (cls.made / "kept.json").write_text(json.dumps(sweep))
        subprocess.run([PROGRAM, "run", "--config", cls.made / "kept.json", "--out", out, "--quiet"],
                       check=True)
        return sorted((out / "caches").glob("*.h5"))

    def ended(self, *arguments):
        """Exit code and stderr; None for the code where the program does not come to an end."""
        def limits():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True,
                                  timeout=SECONDS, check=False, preexec_fn=limits)
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stderr.decode(errors="replace")

    def test_changed_bytes_end_in_an_exit_code(self):
        chance = random.Random(SEED)
        path = self.folder / "mutated.h5"
        sweep = self.sweep(dumps=[str(path)], algorithms=[{"algorithm": "exact"}])
        codes = Counter()
        died = 0
        for k in range(MUTATIONS):
            data = changed(chance.choice(self.sound), chance)
            path.write_bytes(data)
            further = chance.choice((
                ("plan", "--config", sweep), ("validate", "--config", sweep),
                ("run", "--config", sweep, "--out", self.folder / "out", "--fresh", "--quiet"),
                ("verify", self.made / "kept/results.json", "--quiet", "--dump", path)))
            for command in (("inspect", "--quiet", path), ("validate", path), further):
                code, said = self.ended(*command)
                codes[code] += 1
                died += "reading its structure" in said
                with self.subTest(mutation=k, command=command[0], said=said):
                    # Cells of a dump whose numbers changed may fail.
                    if code not in (DONE, BAD_INPUT, VIOLATION, FAILED_CELLS):
                        kept = os.environ.get("KVBENCH_MUTATIONS_KEPT")
                        if kept:
                            name = f"{SEED}_{k}_{command[0]}_{code}.h5"
                            (Path(kept) / name).write_bytes(data)
                        self.fail(f"exit code {code}")
                    if code == BAD_INPUT:
                        self.assertIn("mutated.h5", said)
        print(f"{MUTATIONS} files, exit codes {dict(codes)}; HDF5 died in a child {died} times")


if __name__ == "__main__":
    unittest.main()
