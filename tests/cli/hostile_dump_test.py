"""Dumps made to do harm, each through every command that takes a dump and through kvplot: refused or
read, in seconds and without much memory. Prints the worst.

Limits are generous, for machines with other work: on an idle one all end within two seconds and 300 MiB. Processor
time hardly depends on other work; what is refused has to be refused within PROCESSOR seconds of it."""

import importlib.util
import os
import re
import resource
import subprocess
import sys
import time
import unittest
import zlib

from program import BAD_INPUT, DONE, PROGRAM, SOURCE, VIOLATION, Folder

SECONDS = 20
PROCESSOR = 5
MEMORY = 600 << 20  # bytes resident
ADDRESSES = 1 << 30  # of the program; kvplot's libraries take more
LAYER = "sequences/0/layers/0/"


def _tensor(name, shape, **how):
    def change(dump):
        del dump[LAYER + name]
        dump.create_dataset(LAYER + name, shape=shape, dtype=how.pop("dtype", "f4"), **how)
    return change


def _replaced(name, value):
    def change(dump):
        import h5py
        del dump[name]
        dump[name] = getattr(h5py, value[0])(*value[1:])
    return change


def _virtual(file, name=LAYER + "k"):
    def change(dump):
        import h5py
        shape = dump[name].shape
        del dump[name]
        layout = h5py.VirtualLayout(shape, "f4")
        layout[...] = h5py.VirtualSource(file, name, shape)
        dump.create_virtual_dataset(name, layout)
    return change


def _many_groups(dump):
    for k in range(3000):
        dump.create_group(f"sequences/empty-{k}")


def _deep(dump):
    dump.create_group("sequences/" + "/".join("d" * 1000))


def _attributes(dump):
    for k in range(3000):
        dump.attrs[f"a{k}"] = k


def _bomb(dump):
    """A sound dump of a few KiB whose k and v are 1 GiB of zeros each: more than ADDRESSES."""
    del dump["sequences/0/layers/1"]
    if "sequences/0/token_ids" in dump:
        del dump["sequences/0/token_ids"]
    for name in "kv":
        del dump[LAYER + name]
        dump.create_dataset(LAYER + name, shape=(2, 1 << 24, 8), dtype="f4", chunks=(1, 1 << 16, 8),
                            compression="gzip", fillvalue=0.0)


def _written_bomb(dump):
    """Few heads, in one chunk that takes 512 MiB once it is decoded."""
    import numpy
    for name in "kv":
        del dump[LAYER + name]
        data = dump.create_dataset(LAYER + name, shape=(2, 96, 8), dtype="f4", maxshape=(None,) * 3,
                                   chunks=(2, 1 << 20, 64), compression="gzip")
        data[:] = numpy.zeros((2, 96, 8), "f4")


def _projection(columns, **how):
    """A sound dump of a few KiB with rows of the output projection that are 512 MiB."""
    def change(dump):
        heads, width = dump[LAYER + "q"].shape[0], dump[LAYER + "v"].shape[2]
        dump.create_dataset(LAYER + "wo", shape=(heads, width, columns), dtype="f4", **how)
    return change


def _written_projection(dump):
    """A projection whose one written chunk takes 384 MiB once it is decoded, and as much twice while it is."""
    import numpy
    _projection(12 << 20, chunks=(1, dump[LAYER + "v"].shape[2], 12 << 20), compression="gzip")(dump)
    data = dump[LAYER + "wo"]
    data[0] = numpy.zeros(data.shape[1:], "f4")


def _endless_chunks(dump):
    """Chunks of 1 MiB that are stored in as much, and decode to a thousand times that."""
    import numpy
    packer, packed, zeros = zlib.compressobj(9), bytearray(), bytes(1 << 24)
    while len(packed) < 1 << 20:
        packed += packer.compress(zeros)
    for name in "kv":
        del dump[LAYER + name]
        data = dump.create_dataset(LAYER + name, shape=(2, 96, 8), dtype="f4", maxshape=(None,) * 3,
                                   chunks=(1, 1 << 15, 8), compression="gzip")
        data[:] = numpy.ones((2, 96, 8), "f4")
        for head in range(2):
            data.id.write_direct_chunk((head, 0, 0), bytes(packed))


def _many_small_bombs(dump):
    """Layers of 3 MiB each that are stored in a few KiB: 3 GiB in all."""
    import numpy
    dump.attrs["n_layers"] = 1024
    if "sequences/0/token_ids" in dump:
        del dump["sequences/0/token_ids"]
    del dump["sequences/0/layers/1"]
    for name in "kv":
        del dump[LAYER + name]
        dump.create_dataset(LAYER + name, data=numpy.zeros((2, 24 << 10, 8), "f4"), compression="gzip",
                            chunks=(2, 24 << 10, 8))
    for layer in range(1, 1024):
        dump.copy("sequences/0/layers/0", f"sequences/0/layers/{layer}")


CHANGES = {
    "external_passwd": _tensor("k", (2, 96, 8), external=[("/etc/passwd", 0, 1 << 20)]),
    "external_zero": _tensor("k", (2, 96, 8), external=[("/dev/zero", 0, 1 << 20)]),
    "external_pipe": _tensor("k", (2, 96, 8), external=[("pipe", 0, 1 << 20)]),
    "link_pipe": _replaced(LAYER + "k", ("ExternalLink", "pipe", "/k")),
    "link_group_pipe": _replaced("sequences", ("ExternalLink", "pipe", "/")),
    "soft_circle": _replaced(LAYER + "k", ("SoftLink", "/" + LAYER + "k")),
    "virtual_self": _virtual("."),
    "virtual_pipe": _virtual("pipe"),
    "virtual_absolute": _virtual("/etc/passwd"),
    "virtual_up": _virtual("../tiny.h5"),
    "many_heads": _tensor("k", (1 << 30, 96, 8)),
    "giant_rows": _tensor("k", (2, 1 << 40, 8)),
    "no_rows": _tensor("k", (2, 0, 8), maxshape=(2, None, 8), chunks=(1, 1, 8)),
    "wrong_rank": _tensor("k", (96, 8)),
    "strings": _tensor("k", (2, 96, 8), dtype="S8"),
    "lzf": _tensor("k", (2, 96, 8), compression="lzf"),
    "chunk_bomb": _tensor("k", (2, 96, 8), maxshape=(None,) * 3, chunks=(1, 1 << 24, 30),
                          compression="gzip"),
    "written_chunk_bomb": _written_bomb,
    "gzip_bomb": _bomb,
    "endless_chunks": _endless_chunks,
    "many_small_bombs": _many_small_bombs,
    "wide_projection": _projection(1 << 27, chunks=(1, 1, 1 << 16), compression="gzip", fillvalue=0.0),
    "written_projection": _written_projection,
    "many_groups": _many_groups,
    "deep": _deep,
    "many_attributes": _attributes,
    "large_attribute": lambda dump: dump.attrs.create("large", "x" * 60000),
    "scale_nan": lambda dump: dump[LAYER].attrs.__setitem__("scale", float("nan")),
    "names": lambda dump: dump.move("sequences/0", "sequences/\x1b[41m<script>$(reboot)"),
}


class Hostile(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            import h5py
        except ImportError as error:
            raise unittest.SkipTest("no python3-h5py") from error
        cls.folder_of_dumps = cls.made / "hostile"
        cls.folder_of_dumps.mkdir()
        sound = (cls.made / "tiny.h5").read_bytes()
        for name, change in CHANGES.items():
            path = cls.folder_of_dumps / f"{name}.h5"
            path.write_bytes(sound)
            with h5py.File(path, "r+") as dump:
                change(dump)
        with h5py.File(cls.folder_of_dumps / "new_style.h5", "w", libver="latest") as dump:
            dump.attrs["format"] = "kvbench-dump"
            _many_groups(dump)
        for name, size in (("empty", 0), ("start", 100), ("half", len(sound) // 2), ("end", len(sound) - 1)):
            (cls.folder_of_dumps / f"cut_{name}.h5").write_bytes(sound[:size])
        (cls.folder_of_dumps / "text.h5").write_text("a text")
        os.mkfifo(cls.folder_of_dumps / "pipe")
        os.mkfifo(cls.folder_of_dumps / "pipe.h5")
        (cls.folder_of_dumps / "zero.h5").symlink_to("/dev/zero")
        (cls.folder_of_dumps / "folder.h5").mkdir()
        (cls.folder_of_dumps / "loop.h5").symlink_to("loop.h5")

    def ended(self, words, program, environment=None):
        """Exit code, stderr, seconds and bytes resident."""
        said = self.folder / "said"

        def limits():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            if program:
                resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
        with said.open("wb") as errors:
            start = time.monotonic()
            child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=limits,
                                     stdin=subprocess.DEVNULL, env=environment, cwd=self.folder_of_dumps)
            while (found := os.wait4(child.pid, os.WNOHANG))[0] == 0:
                if time.monotonic() - start > SECONDS:
                    child.kill()
                time.sleep(0.005)
            child.returncode = os.waitstatus_to_exitcode(found[1])
        return (child.returncode, said.read_text(errors="replace"), time.monotonic() - start,
                found[2].ru_utime + found[2].ru_stime, found[2].ru_maxrss << 10)

    def worst_of(self, commands, program, codes, environment=None):
        slowest, busiest, largest = (0, ""), (0, ""), (0, "")
        for path in sorted(self.folder_of_dumps.glob("*.h5")):
            sweep = self.sweep(name=path.stem, dumps=[str(path)])
            for command in commands:
                words = [str({"DUMP": path, "SWEEP": sweep, "OUT": self.folder / "out"}.get(word, word))
                         for word in command]
                code, said, seconds, processor, memory = self.ended(words, program, environment)
                told = f"{path.stem}: {' '.join(words[1:3])}: exit code {code}, {seconds:.1f} s, " \
                       f"{processor:.1f} s of a processor, {memory >> 20} MiB: {said[-300:]}"
                with self.subTest(dump=path.stem, command=command[1:3]):
                    self.assertIn(code, codes, told)
                    self.assertLess(seconds, SECONDS, told)
                    self.assertLess(memory, MEMORY, told)
                    if code == BAD_INPUT:
                        self.assertLess(processor, PROCESSOR, told)
                        self.assertIn(path.stem, said)
                        self.assertIsNone(re.search(r"Traceback|internal error|\x1b", said), told)
                slowest = max(slowest, (seconds, told[:120]))
                if code == BAD_INPUT:
                    busiest = max(busiest, (processor, told[:120]))
                largest = max(largest, (memory, told[:120]))
        print(f"slowest: {slowest[1]}\nbusiest of the refused: {busiest[1]}\nlargest: {largest[1]}")

    def test_the_program_refuses_or_reads_them(self):
        commands = [[PROGRAM, *words] for words in (
            ["inspect", "DUMP", "--quiet"],
            ["validate", "DUMP"], ["validate", "--config", "SWEEP"], ["plan", "--config", "SWEEP"],
            ["run", "--config", "SWEEP", "--out", "OUT", "--fresh", "--quiet"])]
        self.worst_of(commands, True, (DONE, BAD_INPUT, VIOLATION))

    @unittest.skipUnless(all(map(importlib.util.find_spec, ("matplotlib", "pandas", "h5py"))),
                         "no matplotlib, pandas or h5py")
    def test_kvplot_refuses_or_draws_them(self):
        figure = [sys.executable, "-m", "kvplot", "score_bars", "--dump", "DUMP", "--out", "OUT",
                  "--decoded", "8", "--png-only", "--dpi", "30"]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE / "plots"), "MPLBACKEND": "agg"}
        self.worst_of([figure], False, (DONE, BAD_INPUT), environment)


if __name__ == "__main__":
    unittest.main()
