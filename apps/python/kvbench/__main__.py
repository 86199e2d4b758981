"""The program kvbench; `demo` replays the shipped sweep and draws its picture and page."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
PROGRAM = HERE / "bin" / "kvbench"
OUT = Path("results/quick")


def demo() -> int:
    """Runs quick.json into results/quick and draws what it gives; the exit code."""
    config = HERE / "share" / "configs" / "quick.json"
    command = [str(each) for each in (PROGRAM, "run", "--config", config, "--out", OUT)]
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        return code
    if not all(find_spec(name) for name in ("pandas", "matplotlib", "scipy", "h5py")):
        note = "kvbench: the picture and the page need pip install 'kvbench[plots]'"
        print(note, file=sys.stderr)
        return 0
    from kvplot.__main__ import main as kvplot

    results, page = OUT / "results.json", OUT / "report.html"
    code = kvplot(["error_vs_memory", "--results", str(results), "--out", str(OUT)])
    code = code or kvplot(["report", str(results), "--out", str(page)])
    if code == 0:
        print(f"a page to explore these results, in any browser: {page.resolve()}", file=sys.stderr)
    return code


def main() -> None:
    if sys.argv[1:] == ["demo"]:
        sys.exit(demo())
    os.execv(PROGRAM, [str(PROGRAM), *sys.argv[1:]])


if __name__ == "__main__":
    main()
