"""Helpers that tests of shipped sweeps share: the program, and plans of sweep files."""

import json
import os
import subprocess
from pathlib import Path

PROGRAM = os.environ["KVBENCH_PROGRAM"]
CONFIGS = Path(os.environ["KVBENCH_SOURCE"]) / "configs"


def kvbench(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                          timeout=300, check=False)


def plan(path, *settings):
    options = [word for setting in settings for word in ("--set", setting)]
    done = kvbench("plan", "--config", path, "--json", *options)
    assert done.returncode == 0, f"{path}: {done.stderr}"
    return json.loads(done.stdout)


def entries_with_nothing_to_run(path, *settings):
    """Indices of the entries of a sweep of which every cell is skipped."""
    idle = []
    for place, entry in enumerate(plan(path, *settings)["config"]["algorithms"]):
        alone = plan(path, *settings, f"/algorithms={json.dumps([entry])}")
        if alone["cells"] <= alone["skipped"]:
            idle.append(place)
    return idle
