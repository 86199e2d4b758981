"""kb.calibrate: the program's file, named by kb.run, kb.replay and kb.Recorder."""

import json
import os
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import h5py
import kvbench as kb
from streams import DUMP, PROGRAM, without

TOKENS, PROMPT = 400, 300


class Calibrations(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(os.chdir, Path.cwd())
        os.chdir(self.folder)  # paths are relative to it
        self.fingerprint = kb.calibrate("qfilters", DUMP, out="m.cal.h5", layers=[0], tokens=PROMPT)

    def sweep(self, **params):
        return {"dumps": [str(DUMP)], "select": {"layers": [0], "tokens": TOKENS}, "seeds": [0],
                "replay": {"prompt_tokens": PROMPT},
                "algorithms": [{"algorithm": "qfilters", "params": {"budget": 64, **params}}]}

    def test_it_is_the_program_s_file(self):
        subprocess.run([PROGRAM, "calibrate", "--method", "qfilters", "--dump", DUMP, "--out", "program.h5",
                        "--layers", "0", "--tokens", str(PROMPT)], check=True, capture_output=True)
        self.assertEqual(Path("m.cal.h5").read_bytes(), Path("program.h5").read_bytes())

    def test_sweeps_replays_and_recorders_take_it(self):
        own = kb.run(self.sweep(calibration="prompt"), out="own", quiet=True)
        self.assertNotIn("calibration", own.cells[0]["key"]["params"])
        results = kb.run(self.sweep(calibration="m.cal.h5"), out="given", quiet=True)
        layer = next(iter(kb.open_dump(DUMP).values()))[0]
        for head, (cell, without_file) in enumerate(zip(results.cells, own.cells)):
            self.assertEqual(cell["key"]["params"]["calibration"], self.fingerprint)
            self.assertIs(cell["derived"]["calibrated_on_text"], True)
            self.assertEqual(cell["errors"], without_file["errors"])
            replayed = kb.replay(layer, "qfilters", budget=64, calibration="m.cal.h5", head=head,
                                 tokens=TOKENS, prompt=PROMPT)
            self.assertEqual(without(replayed.record), without(cell))
        arrays = {name: getattr(layer, name)[:, :TOKENS] for name in "qkv"}
        sweep = {name: value for name, value in self.sweep(calibration="m.cal.h5").items() if name not in ("dumps", "select")}
        rope = {"inv_freq": layer.rope[0], "layout": layer.rope[1]}
        with kb.Recorder(sweep, out="live", layers=30, quiet=True, rope=rope) as recorder:
            recorder.layer("text", 0, **arrays, scale=layer.scale)
        self.assertEqual([cell["errors"] for cell in recorder.results.cells], [cell["errors"] for cell in results.cells])

    def test_codecs_take_it_in_sweeps_replays_and_recorders(self):
        fingerprint = kb.calibrate("oscar", [DUMP], out="o.cal.h5", layers=[0], tokens=PROMPT)
        codec = {"codec": "oscar", "sinks": 4, "recent": 32}
        own, storage = ({"keys": each, "values": each} for each in (codec, {**codec, "calibration": "o.cal.h5"}))
        exact = [{"algorithm": "exact"}]
        plain = kb.run({**self.sweep(), "algorithms": exact, "storage": own}, out="plain", quiet=True)
        results = kb.run({**self.sweep(), "algorithms": exact, "storage": [storage]}, out="stored", quiet=True)
        entry = [{"algorithm": "exact", "storage": storage}]
        again = kb.run({**self.sweep(), "algorithms": entry}, out="entry", quiet=True)
        self.assertEqual([cell["id"] for cell in again.cells], [cell["id"] for cell in results.cells])
        layer = next(iter(kb.open_dump(DUMP).values()))[0]
        for head, (cell, without_file) in enumerate(zip(results.cells, plain.cells)):
            self.assertEqual(cell["key"]["storage"]["keys"]["calibration"], fingerprint)
            self.assertIs(cell["derived"]["calibrated_on_text"], True)
            self.assertEqual(cell["errors"], without_file["errors"])
            replayed = kb.replay(layer, "exact", storage=storage, head=head, tokens=TOKENS, prompt=PROMPT)
            self.assertEqual(without(replayed.record), without(cell))
        arrays = {name: getattr(layer, name)[:, :TOKENS] for name in "qkv"}
        sweep = {"replay": {"prompt_tokens": PROMPT}, "seeds": [0], "algorithms": exact, "storage": storage}
        rope = {"inv_freq": layer.rope[0], "layout": layer.rope[1]}
        with kb.Recorder(sweep, out="live", layers=30, quiet=True, rope=rope) as recorder:
            recorder.layer("text", 0, **arrays, scale=layer.scale)
        self.assertEqual([cell["errors"] for cell in recorder.results.cells], [cell["errors"] for cell in results.cells])
        with self.assertRaisesRegex(kb.Error, "storage: .*is a calibration of qfilters, and the codec is oscar"):
            kb.replay(layer, "exact", storage={"keys": {**codec, "calibration": "m.cal.h5"}}, tokens=TOKENS, prompt=PROMPT)

    def test_the_prompt_s_own_next_to_a_file(self):
        both = kb.run(self.sweep(calibration=["prompt", "m.cal.h5"]), out="both", quiet=True)
        each = [kb.run(self.sweep(calibration=one), out=f"one-{len(one)}", quiet=True)
                for one in ("prompt", "m.cal.h5")]
        self.assertEqual({cell["id"] for cell in both.cells}, {cell["id"] for one in each for cell in one.cells})

    def test_a_sweep_file_of_a_recorder_names_files_of_its_folder(self):
        layer = next(iter(kb.open_dump(DUMP).values()))[0]
        arrays = {name: getattr(layer, name)[:, :TOKENS] for name in "qkv"}
        rope = {"inv_freq": layer.rope[0], "layout": layer.rope[1]}
        sweep = self.sweep(calibration="m.cal.h5")
        del sweep["dumps"], sweep["select"]
        Path("sub").mkdir()
        Path("m.cal.h5").rename("sub/m.cal.h5")
        kb.calibrate("qfilters", DUMP, out="m.cal.h5", layers=[0], tokens=PROMPT - 100)  # another file of this name
        Path("sub/sweep.json").write_text(json.dumps(sweep))
        found = []
        for given, out in (("sub/sweep.json", "file"), (sweep, "dict")):
            with kb.Recorder(given, out=out, layers=30, quiet=True, rope=rope, save=f"{out}.h5") as recorder:
                recorder.layer("text", 0, **arrays, scale=layer.scale)
            found.append(recorder.results)
        key = [results.cells[0]["key"]["params"]["calibration"] for results in found]
        self.assertEqual(key[0], self.fingerprint)
        self.assertNotEqual(key[0], key[1])
        for results in found:
            command = [PROGRAM, *shlex.split(results.cells[0]["repro"])[1:]]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_model_with_another_number_of_layers(self):
        shutil.copy(DUMP, "other.h5")
        with h5py.File("other.h5", "r+") as file:
            file.attrs["n_layers"] = int(file.attrs["n_layers"]) + 2
        with self.assertRaisesRegex(kb.Error, r"layers of the model \(n_layers\) = 30, but it is 32 here"):
            kb.run({**self.sweep(calibration="m.cal.h5"), "dumps": ["other.h5"]}, out="other", quiet=True)
        with self.assertRaisesRegex(kb.Error, r"\(n_layers\) = 30, but it is 32 here"):
            kb.calibrate("qfilters", [DUMP, "other.h5"], out="x.h5", layers=[0])

    def test_refusals_name_keywords(self):
        with self.assertRaisesRegex(kb.Error, "^method: h2o is not a method or codec that is calibrated"):
            kb.calibrate("h2o", DUMP, out="x.h5")
        with self.assertRaisesRegex(kb.Error, "^params: /rank: unknown parameter of loki; it has basis, centre"):
            kb.calibrate("loki", [DUMP], out="x.h5", params={"rank": 3})
        with self.assertRaisesRegex(kb.Error, "was calibrated with"):
            kb.calibrate("loki", DUMP, out="m.cal.h5", layers=[0], params={"basis": "channels"})
            sweep = self.sweep()
            sweep["algorithms"] = [{"algorithm": "loki", "params": {"budget": 64, "rank": 8, "calibration": "m.cal.h5"}}]
            kb.run(sweep, out="out", quiet=True)
        self.assertFalse(Path("x.h5").exists())


if __name__ == "__main__":
    unittest.main()
