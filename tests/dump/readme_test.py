"""The h5py example of data/README.md runs, and kvbench accepts what it writes."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import h5py  # noqa: F401
except ImportError:
    print("h5py is not installed")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "data/README.md").read_text(),
                    re.MULTILINE | re.DOTALL)
assert len(blocks) == 1, f"{len(blocks)} Python blocks in data/README.md"
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    printed = subprocess.run([sys.executable, "-c", blocks[0]], capture_output=True, text=True,
                             check=True).stdout
    assert printed.count("first") == 2, printed
    for command in ("validate", "inspect"):
        done = subprocess.run([sys.argv[1], command, "example.h5"], capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
