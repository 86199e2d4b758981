"""The program kvbench, in the place of this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).parent / "bin" / "kvbench"
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
