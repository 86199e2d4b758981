"""A folder that looks like the repository to a page's commands, with what they read already there.

The differences from a reader's checkout, with reasons:
* kvbench run and plan take the first 384 tokens of a dump, but of one that a page makes itself, and for an axis of
  tokens 192 and 384: whole sweeps are run by tests/configs and tests/check.
* ./bootstrap.sh only looks whether it has the verb, and scripts next to the tests do nothing: they install packages,
  compile, or take minutes. .ci/run and .ci/nightly call them.
* The exporter gives a synthetic dump: its real runs want torch and a model, and are in tests/exporter,
  which also parses the commands of data. pip and unzip do nothing: they want a network.
* kvpress_caches.py gives what window keeps under the names of KeyDiffPress: its real runs want kvpress and torch, and
  are in tests/peers.
* data/loop.sh wants torch and a model: tests/loop. Its results are made up by tests/plots/loop_test.py.
* sbatch takes a job and forgets it: tests/slurm has a real Slurm.
"""

import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

try:
    import h5py, matplotlib, pandas, scipy, yaml  # noqa: E401, F401
except ImportError as missing:
    raise unittest.SkipTest(f"SKIPPED: pages are not run without Python's {missing.name}") from missing

SOURCE = Path(os.environ["KVBENCH_SOURCE"])
BUILD = Path(os.environ["KVBENCH_BUILD"])
PROGRAM = BUILD / "bin/kvbench"

STAND_INS = {
    "build/bin/kvbench": f"""case $1 in
  run | plan)
    [[ "$*" != *"--dump example.h5 "* ]] || exec {PROGRAM} "$@"
    tokens=384
    [[ "$*" != *"/select/tokens=["* ]] || tokens="[192, 384]"
    [[ "$*" != *"/select/layers=[0,1,4,12,"* ]] || layers=(--set '/select/layers="all"')
    exec {PROGRAM} "$@" --set "/select/tokens=$tokens" "${{layers[@]}}" ;;
  *) exec {PROGRAM} "$@" ;;
esac""",
    "bin/kvplot": f'exec {sys.executable} -m kvplot "$@"',
    ".venv/bin/python": f'exec {sys.executable} "$@"',
    ".venv/bin/activate": "",
    "bin/python3": f"""[[ "$1 $2 $3" == "-m pip download" ]] && exit
if [[ "$1 $2" == "-m venv" ]]; then
  mkdir -p "$3/bin"
  touch "$3/bin/activate"
  exit
fi
exec {sys.executable} "$@" """,
    "bin/unzip": "",
    "bin/pip": "",
    "bin/sbatch": 'echo 1',
    "bootstrap.sh": f"""grep -Eq "^  $1\\)( |\\$)" {SOURCE}/bootstrap.sh""",
    ".venv-model/bin/python": f"""[[ "${{*: -2:1}}" == --out ]]
if [[ $1 == data/export_transformers.py ]]; then
  exec {PROGRAM} synth rope --tokens 384 --layers 2 --kv-heads 1 --d 64 --out "${{*: -1}}"
fi
[[ $1 == data/kvpress_caches.py ]]
mkdir -p "${{*: -1}}"
for budget in 256 512; do
  {PROGRAM} run --dump "$2" --algorithm window --budget $budget --out made --fresh --quiet \\
    --set /output/caches=true --set /select/tokens=384
  cp made/caches/window-*.h5 "${{*: -1}}/KeyDiffPress-budget=$budget.h5"
done""",
}


# Functions of bash in place of the scripts, and of cmake where it configures or compiles.
SCRIPTS = """function cmake { [[ $1 == --preset || $1 == --build ]] || command cmake "$@"; }
""" + "".join(f"function {path.relative_to(SOURCE)} {{ :; }}\n"
                  for top in ("apps", "cuda", "data", "plots", "tests") for path in sorted((SOURCE / top).rglob("*.sh"))
                  if "environment.sh" in path.read_text(encoding="utf-8"))


def environment(folder):
    return {**os.environ, "HOME": str(folder), "PYTHONPATH": str(SOURCE / "plots"),
            "PYTHONDONTWRITEBYTECODE": "1", "MPLCONFIGDIR": str(folder / ".mpl"),
            "PATH": f"{folder}/bin:{folder}/build/bin:{os.environ['PATH']}"}


def session(folder, script):
    """Runs a script of bash there; every command must succeed. Returns what was said and the code."""
    done = subprocess.run(["bash", "-euxo", "pipefail", "-c", SCRIPTS + script], cwd=folder, check=False,
                          env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, text=True, errors="replace", timeout=900)
    return done.stdout, done.returncode


def make(folder):
    """The repository as a page sees it."""
    for name in ("configs", "data"):
        shutil.copytree(SOURCE / name, folder / name, copy_function=os.symlink,
                        ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / "configs").rglob("*"):  # written by --write-baselines and > redirections
        if path.is_symlink():
            real = path.resolve()
            path.unlink()
            shutil.copy2(real, path)
    for name in ("plots", "tests", "lib", "apps"):
        (folder / name).symlink_to(SOURCE / name)
    (folder / "kvbench").symlink_to(SOURCE)
    (folder / "build/bin").mkdir(parents=True)
    for part in ("", "bin"):
        for path in (BUILD / part).iterdir():
            if path.name not in ("bin", "kvbench"):
                (folder / "build" / part / path.name).symlink_to(path)
    for name, body in STAND_INS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\nset -eo pipefail\n{body}\n")
        path.chmod(0o755)


# Files that commands read, by the names that pages use.
READ = """
kvbench run --config configs/quick.json --quiet
for i in 1 2 3; do
  kvbench run --config configs/quick.json --shard $i/3 --out shard-$i --set /select/layers=[0] --quiet
done
mkdir -p results/mine/shards results/before results/after before first second kv baselines
cp -r shard-* results/mine/shards
for name in results/before results/after; do cp results/quick/results.json $name; done
cp -r errors results/ci
for name in before first second; do cp errors/results.json $name; done
cp configs/quick.json kv/sweep.json
cp results/quick/results.json theirs.json
cp configs/bounds/ci.json kv/bounds.json
mkdir -p results/loop results/loop_gemma results/loop_storage results/layers results/loop_texts/made
python3 - <<'END'
import json
import re
import sys
sys.path.insert(0, "tests/plots")
from loop_test import document, record, sweep
labels = re.findall('"algorithm": "([a-z0-9_]+)"', open("configs/loop.json").read())
for name, layers in (("loop", [0, 1]), ("loop_gemma", [0, 1]), ("loop_storage", [0, 1]), ("layers", [0])):
    records = [each for text in ("us-constitution", "tom-sawyer", "python-source")
               for each in sweep(text, layers=layers)
               + [record(label, budget, 1 / budget, 2 / budget, text, layers)
                  for label in labels for budget in (128, 256, 512)
                  if label not in ("exact", "window", "h2o", "snapkv", "knorm", "uniform")]]
    if name != "layers":
        memories = {128: 0.35, 256: 0.5, 512: 0.7, 1024: 1}
        for each in records:
            each["params"]["budget"] = {"memory": memories[each["params"]["budget"]]}
    with open(f"results/{name}/loop.json", "w") as file:
        json.dump(document(records), file)
with open("apps/python/examples/loop_constitution.json") as file:
    shipped = json.load(file)
names = ("tom-sawyer", "python-source", "opticks")
with open("results/loop_texts/made/loop.json", "w") as file:  # one loop with the shipped one
    json.dump({**shipped, "texts": [{**shipped["texts"][0], "sequence": name} for name in names],
               "records": [{**each, "sequence": name} for name in names for each in shipped["records"]]}, file)
END
for name in a b cpu cuda before after; do cp results/quick/results.json $name.json; done
kvbench synth rope --tokens 384 --d 8 --out data/other.h5
kvbench run --dump data/smollm2-constitution.h5 --algorithm exact --storage float,q8_0 --out results/bits --quiet
kvbench synth rope --tokens 384 --d 8 --layers 5 --out book.h5
python3 - <<'END'
import numpy as np
rng = np.random.default_rng(0)
import h5py
with h5py.File("kept.h5", "w") as cache:
    cache.attrs.update({"format": "kvbench-cache", "format_version": 1, "method": "mine"})
    head = cache.create_group("sequences/constitution/layers/0/heads/0")
    head.attrs["prompt_tokens"] = 128
    head["token"] = np.arange(8, dtype=np.int32)
np.savez("layers.npz", **{f"{layer}/{name}": rng.standard_normal((2, 64, 64)).astype(np.float32)
                          for layer in (0, 5) for name in "qkv"})
import json, os, struct
os.makedirs("hooked/run/tp_rank_0")
tensors = {"q": rng.standard_normal((1, 2048, 128)), "k": rng.standard_normal((1, 2048, 256))}
bodies = [tensors[name].astype(np.float32).tobytes() for name in "qk"]
header = json.dumps({name: {"dtype": "F32", "shape": tensors[name].shape,
                            "data_offsets": [len(bodies[0]) * at, len(bodies[0]) * at + len(body)]}
                     for at, (name, body) in enumerate(zip("qk", bodies))}).encode()
with open("hooked/run/tp_rank_0/qk.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + b"".join(bodies))
with open("hooked/run/tp_rank_0/qk.json", "w") as file:
    json.dump({"config": {"num_attention_heads": 2, "num_key_value_heads": 2}, "seq_lens": [2048],
               "layer_order": [{"key_q": "q", "key_k": "k", "layer_num": 0}],
               "hookq_mode": "all_tokens"}, file)
END
"""
