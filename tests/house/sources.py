"""The files of a checkout that rules about text and includes hold for."""

import re
import subprocess
from pathlib import Path

CODE = {".hpp", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake"}
_BUILT = re.compile(r"^(build[^/]*|results|\.venv[^/]*|\.git)(/|$)|(^|/)__pycache__/|\.egg-info/")
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def files(root):
    """Paths relative to `root` of what git tracks or would; every file where there is no git."""
    root = Path(root)
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=False)
    if listed.returncode == 0 and (root / ".git").exists():
        paths = [Path(line) for line in listed.stdout.splitlines()]
    else:
        paths = [path.relative_to(root) for path in root.rglob("*")]
    return sorted(path for path in paths
                  if not _BUILT.search(path.as_posix()) and (root / path).is_file())


def text(path):
    """The file's text, or None where it is binary."""
    content = Path(path).read_bytes()
    return None if b"\0" in content[:65536] else content.decode("utf-8", errors="replace")


def includes(path):
    """[(is quoted, name)] of a C++ file."""
    return [(mark == '"', name) for mark, name in _INCLUDE.findall(text(path) or "")]
