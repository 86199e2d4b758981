"""A copy of the tree to which files are added the way the pages say, and what that changes."""

import re
import shutil
import subprocess
from pathlib import Path

BUILT = re.compile(r"build.*|results|\.git|\.venv.*")


def run(*command, expected=0, **options):
    """The output of the command; AssertionError for another exit status."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **options)
    if done.returncode != expected:
        raise AssertionError(f"{command} gave {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class PlantedTree:
    def __init__(self, source, tree):
        self.root = Path(tree)
        source = Path(source)

        def left_out(folder, names):
            """The programs that are built."""
            return {name for name in names if name == "__pycache__" or (Path(folder) == source and BUILT.fullmatch(name))}

        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(source, self.root, ignore=left_out, symlinks=True)
        self.before = self._files()

    def _files(self):
        return {path.relative_to(self.root).as_posix(): path.read_bytes()
                for path in self.root.rglob("*")
                if path.is_file() and not path.is_relative_to(self.root / "build")}

    def insert(self, name, after, text):
        """Adds text behind the only place of a file that the regular expression matches."""
        path = self.root / name
        changed, count = re.subn(after, lambda match: match[0] + text, path.read_text())
        assert count == 1, f"{name} has {count} places like {after}"
        path.write_text(changed)

    def changed(self):
        """Names of files that are new, gone or not as they were copied."""
        now = self._files()
        return {name for name in now.keys() | self.before.keys()
                if now.get(name) != self.before.get(name)}
