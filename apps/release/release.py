"""A release in one folder: wheel and source archive of one commit, and SHA256SUMS of both.

Refused, all reasons together: files of another version, changes that are not committed, a CHANGELOG
whose first part is not that version with a date, and a CITATION.cff of another version or date."""

import argparse
import gzip
import hashlib
import re
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """Why this is not a release, one reason per line."""


def said(*words: str | Path, root: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, cwd=root
    )
    if done.returncode != 0:
        raise ReleaseError(f"{words[0]} {words[1]}: {done.stderr.strip() or 'failed'}")
    return done.stdout


def wheel_version(path: Path) -> str:
    with zipfile.ZipFile(path) as wheel:
        name = next(each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
        return str(HeaderParser().parsestr(wheel.read(name).decode())["Version"])


def version_faults(version: str, files: list[Path]) -> list[str]:
    """Wheels whose own version, or that of their name, is another."""
    faults = []
    for path in files:
        if path.suffix != ".whl":
            faults.append(f"{path}: expected a wheel (.whl)")
            continue
        own = wheel_version(path)
        named = re.match(r"kvbench-([\d.]+)-", path.name)
        for what, found in (("it is", own), ("its name says", named[1] if named else None)):
            if found != version:
                faults.append(f"{path}: {what} {found}, version.txt is {version}; build it again")
    return faults


def text_faults(root: Path, version: str) -> list[str]:
    """Errors of CHANGELOG.md and CITATION.cff."""
    faults = []
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## (.*)$", changes, re.MULTILINE)
    has = first[1] if first else "none"
    dated = re.fullmatch(rf"{re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)", has)
    if not dated:
        faults.append(f"CHANGELOG.md: its first part is {has}; expected {version} (YYYY-MM-DD)")
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    for key, expected in (("version", version), ("date-released", dated[1] if dated else None)):
        found = re.search(rf'^{key}: "?([^"\n]*)"?$', citation, re.MULTILINE)
        if expected and (found is None or found[1] != expected):
            has = found[1] if found else "missing"
            faults.append(f"CITATION.cff: {key} is {has}; expected {expected}")
    return faults


def source_archive(root: Path, version: str, out: Path) -> Path:
    """The commit's archive, the same bytes whenever it is made."""
    name = f"kvbench-{version}"
    tar = subprocess.run(
        ["git", "-C", str(root), "archive", "--format=tar", f"--prefix={name}/", "HEAD"],
        capture_output=True,
        check=True,
    ).stdout
    path = out / f"{name}.tar.gz"
    path.write_bytes(gzip.compress(tar, 9, mtime=0))
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def release(root: Path, files: list[Path], out: Path) -> list[Path]:
    """Fills `out`, which is made and holds nothing else; returns what SHA256SUMS names."""
    version = (root / "version.txt").read_text(encoding="utf-8").strip()
    faults = version_faults(version, files) + text_faults(root, version)
    changed = said("git", "-C", root, "status", "--porcelain").splitlines()
    if changed:
        faults.append(f"{len(changed)} files differ from the commit; commit them: {changed[0][3:]}")
    if out.exists() and any(out.iterdir()):
        faults.append(f"{out}: it is not empty; remove it")
    if faults:
        raise ReleaseError("\n".join(faults))
    out.mkdir(parents=True, exist_ok=True)
    shipped = [source_archive(root, version, out)]
    for path in files:
        copy = out / path.name
        copy.write_bytes(path.read_bytes())
        shipped.append(copy)
    lines = [f"{sha256(path)}  {path.name}\n" for path in sorted(shipped)]
    (out / SUMS).write_text("".join(lines), encoding="utf-8")
    said("sha256sum", "--check", "--strict", SUMS, root=out)
    return sorted(shipped)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "files", type=Path, nargs="*", metavar="WHEEL", help="wheels of this version"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder; made, or empty")
    arguments = parser.parse_args()
    try:
        for path in release(ROOT, arguments.files, arguments.out):
            print(path)
    except (ReleaseError, OSError) as error:
        print("\n".join(f"release: {line}" for line in str(error).splitlines()), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
