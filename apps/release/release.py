"""What a release ships, in one folder: wheel, Debian package and source archive of one commit and
version, recipes for conda and Spack with the archive's hash, and SHA256SUMS of all.

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
RECIPES = {
    "configs/packages/conda/recipe.yaml": "conda/recipe.yaml",
    "configs/packages/spack/package.py": "spack/package.py",
}


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


def package_version(path: Path) -> str:
    return said("dpkg-deb", "--field", path, "Version").strip()


def version_faults(version: str, files: list[Path]) -> list[str]:
    """Of every file its own version, and its name's."""
    faults = []
    for path in files:
        kinds = {".whl": wheel_version, ".deb": package_version}
        if path.suffix not in kinds:
            faults.append(f"{path}: expected a wheel (.whl) or a Debian package (.deb)")
            continue
        own = kinds[path.suffix](path)
        named = re.match(r"kvbench[-_]([\d.]+)[-_]", path.name)
        for what, found in (("it is", own), ("its name says", named[1] if named else None)):
            if found != version:
                faults.append(f"{path}: {what} {found}, version.txt is {version}; build it again")
    return faults


def text_faults(root: Path, version: str) -> list[str]:
    """Of CHANGELOG.md and CITATION.cff."""
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
    """Of the commit, the same bytes whenever it is made."""
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


def filled(text: str, version: str, address: str, digest: str) -> str:
    for mark, value in (("@VERSION@", version), ("@ADDRESS@", address), ("@SHA256@", digest)):
        text = text.replace(mark, value)
    return text


def release(root: Path, files: list[Path], out: Path, address: str) -> list[Path]:
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
    archive = shipped[0].name
    for path in files:
        copy = out / path.name
        copy.write_bytes(path.read_bytes())
        shipped.append(copy)
    where = f"{address.rstrip('/')}/{archive}"
    for recipe, name in RECIPES.items():
        text = (root / recipe).read_text(encoding="utf-8")
        copy = out / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(filled(text, version, where, sha256(shipped[0])), encoding="utf-8")
        shipped.append(copy)
    lines = [f"{sha256(path)}  {path.relative_to(out).as_posix()}\n" for path in sorted(shipped)]
    (out / SUMS).write_text("".join(lines), encoding="utf-8")
    said("sha256sum", "--check", "--strict", SUMS, root=out)
    return sorted(shipped)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="*", help="wheel and Debian package")
    parser.add_argument("--out", type=Path, required=True, help="folder; made, or empty")
    parser.add_argument(
        "--address",
        metavar="URL",
        help="where the source archive will lie, for the recipes; default: OUT on this machine",
    )
    arguments = parser.parse_args()
    address = arguments.address or arguments.out.resolve().as_uri()
    try:
        for path in release(ROOT, arguments.files, arguments.out, address):
            print(path)
    except (ReleaseError, OSError) as error:
        print("\n".join(f"release: {line}" for line in str(error).splitlines()), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
