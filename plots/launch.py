#!/usr/bin/python3
"""Installed as bin/kvplot: python -m kvplot, where `cmake --install` put both."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True  # the installed folder stays as it is
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib/python3/dist-packages"))

from kvplot.__main__ import main  # noqa: E402

sys.exit(main())
