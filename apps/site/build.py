"""The site: the repository's own pages, a page per algorithm out of the registry, example report.

No text is kept twice: pages are read in place, their links are changed on the way, and mkdocs makes
HTML of them. Every broken link is an error."""

import argparse
import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from algorithms import AlgorithmPages, page_of
from pages import Links, SiteError, anchor, page_text

ROOT = Path(__file__).resolve().parents[2]
THEME = Path(__file__).resolve().parent / "theme"
SWEEP = "configs/quick.json"
REPORT = "report/quick.html"
# Pages of the repository in the menu, by groups; those that are not named come last.
MENU: dict[str, dict[str, str]] = {
    "Start": {
        "README.md": "kvbench",
        "configs/README.md": "Sweeps",
        "configs/RESULTS.md": "What results say",
        "data/README.md": "Dumps",
        "data/LARGE_MODEL.md": "A dump of an 8B model",
        "data/FORMAT.md": "The format of dumps and cache files",
        "data/EXPORTER.md": "Checks of the exporter",
        "data/LOOP.md": "What a model says",
        "FAQ.md": "Questions",
    },
    "Methods": {
        "algorithms/README.md": "Algorithms",
        "lib/algorithms/VERIFIED.md": "What was compared with what",
        "configs/papers/README.md": "Published settings",
        "data/KVPRESS.md": "Next to kvpress",
        "tests/peers/README.md": "Next to others' code",
    },
    "Findings": {
        "plots/FINDINGS.md": "Findings",
        "plots/KEY_OFFSET.md": "Why low-bit keys fail on Qwen2.5",
        "plots/ALLOCATE.md": "A storage per layer",
        "plots/PAGING.md": "The cost of paging",
        "plots/ANCHORS.md": "Tokens of an earlier layer",
        "plots/READING.md": "Compressed while it is read",
        "plots/PREFILL.md": "Masks of a prompt",
        "plots/LONG.md": "Long contexts",
        "plots/CALIBRATION.md": "Calibrated on other texts",
        "plots/METRICS.md": "Which metric to trust",
        "plots/GALLERY.md": "Gallery",
        "plots/README.md": "kvplot",
        "report/README.md": "An example report",
        "configs/figures/README.md": "Sweeps behind the figures",
    },
    "Python": {
        "apps/python/README.md": "The package",
        "apps/python/YOUR_METHOD.md": "A method of your own",
    },
    "Running": {
        "configs/ci/README.md": "In CI",
        "configs/launchers/README.md": "On many machines",
        "configs/slurm/README.md": "On Slurm",
        "cuda/README.md": "On a GPU",
        "tests/bench/MEASURED.md": "How fast it is",
        "SECURITY.md": "Untrusted files",
        "CHANGELOG.md": "Changes",
    },
}
REST, EACH = "Inside", "Each algorithm"


def repository_pages(root: Path) -> list[str]:
    """Markdown that git tracks, or every page where there is no git."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0 and (root / ".git").exists():
        return sorted(line for line in listed.stdout.splitlines() if (root / line).is_file())
    built = re.compile(r"(build|results|\.)")
    found = (path.relative_to(root).as_posix() for path in root.rglob("*.md"))
    return sorted(path for path in found if not built.match(path))


def title_of(text: str, name: str) -> str:
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    if not heading:
        raise SiteError(f"{name}: expected a heading of the first level")
    return heading[1].replace("`", "")


def notebook_text(notebook: str, picture: Callable[[bytes], str]) -> str:
    """Its cells and outputs as a page; `picture` stores a PNG and returns its address."""
    out = []
    for cell in json.loads(notebook)["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            out.append(text)
            continue
        out.append(f"```python\n{text}\n```")
        for each in cell["outputs"]:
            if each["output_type"] == "stream":
                out.append(f"```text\n{''.join(each['text']).rstrip()}\n```")
            else:
                png = base64.b64decode(each["data"]["image/png"])
                out.append(f'<img alt="The output of the cell above" src="{picture(png)}">')
    return "\n\n".join(out) + "\n"


def _picture(page: Path, png: bytes) -> str:
    """Stores a picture of a page next to it, and returns its name."""
    page.parent.mkdir(parents=True, exist_ok=True)
    path = page.with_name(f"{page.stem}-{hashlib.sha256(png).hexdigest()[:8]}.png")
    path.write_bytes(png)
    return path.name


class Site:
    def __init__(self, root: Path, program: Path, repository: str | None = None):
        self._root = root
        self._program = program
        self._pages = repository_pages(root)
        self._links = Links(root, [*self._pages], repository)
        self._titles: dict[str, str] = {}

    def stage(self, docs: Path, results: Path | None) -> list[dict[str, Any]]:
        """Writes what mkdocs reads; returns the menu."""
        listed = json.loads(self._said("list", "algorithms", "--json"))
        ids = {entry["id"]: page_of(entry["id"]) for entry in listed}
        for name in self._pages:
            text = (self._root / name).read_text(encoding="utf-8")
            self._write(docs, name, page_text(text, name, self._links, ids))
        made = AlgorithmPages(self._root, listed, self._links)
        self._write(docs, page_of("README"), made.index())
        for entry in listed:
            self._write(docs, page_of(entry["id"]), made.text(entry))
        self._report(docs, results)
        for name in sorted(self._links.notebooks):
            page = name.removesuffix(".ipynb") + ".md"
            text = notebook_text(
                (self._root / name).read_text(encoding="utf-8"), partial(_picture, docs / page)
            )
            self._write(docs, page, page_text(text, page, self._links, ids))
        for source, copy in self._links.copied.items():
            (docs / copy).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._root / source, docs / copy)
        if self._links.faults:
            raise SiteError("\n".join(sorted(set(self._links.faults))))
        return self._menu([entry["id"] for entry in listed])

    def _said(self, *words: str) -> str:
        done = subprocess.run(
            [str(self._program), *words], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SiteError(
                f"kvbench {' '.join(words)} ended with {done.returncode}: {done.stderr}"
            )
        return done.stdout

    def _write(self, docs: Path, name: str, text: str) -> None:
        self._titles[name] = title_of(text, name)
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _report(self, docs: Path, results: Path | None) -> None:
        """kvplot's report of the shipped sweep, run here if there are no results of it."""
        with tempfile.TemporaryDirectory(prefix="kvbench-site-") as folder:
            if results is None:
                config = str(self._root / SWEEP)
                self._said("run", "--config", config, "--out", folder, "--quiet")
                results = Path(folder) / "results.json"
            page = docs / REPORT
            page.parent.mkdir(parents=True, exist_ok=True)
            words = [sys.executable, "-m", "kvplot", "report", str(results), "--out", str(page)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SiteError(f"kvplot report ended with {done.returncode}: {done.stderr}")
        page_name = "report/README.md"
        sweep = self._links.changed(page_name, f"../{SWEEP}")
        plots = self._links.changed(page_name, "../plots/README.md")
        text = (
            "# An example report\n\n"
            f"[Open the report]({Path(REPORT).name}): the demo's sweep, [{SWEEP}]({sweep}), run on "
            "the shipped dump by the program that made this site. It is one file, as "
            "`kvplot report` writes it for any results; what it can do is described under "
            f"[a page to explore]({plots}#a-page-to-explore).\n\n"
            "```sh\n./bootstrap.sh demo\n```\n"
        )
        self._write(docs, page_name, text)

    def _menu(self, ids: list[str]) -> list[dict[str, Any]]:
        named = {name for group in MENU.values() for name in group}
        missing = sorted(named - set(self._titles))
        if missing:
            raise SiteError(
                "\n".join(f"the menu names {name}, which is missing" for name in missing)
            )
        menu: list[dict[str, Any]] = []
        for title, group in MENU.items():
            entries: list[dict[str, Any]] = [{words: name} for name, words in group.items()]
            if title == "Python":
                notebooks = [each.removesuffix(".ipynb") + ".md" for each in self._links.notebooks]
                entries += [{self._titles[name]: name} for name in sorted(notebooks)]
            menu.append({title: entries})
        shown = named | {page_of(each) for each in ids}
        shown |= {each.removesuffix(".ipynb") + ".md" for each in self._links.notebooks}
        rest = sorted(set(self._titles) - shown)
        menu.append({REST: [{self._titles[name]: name} for name in rest]})
        menu.append({EACH: [{each: page_of(each)} for each in ids]})
        return menu


def build(out: Path, site: Site, results: Path | None = None) -> None:
    """The site into `out`, which is emptied."""
    # Debian's mkdocs warns of its own packages on import.
    from mkdocs.commands.build import build as build_pages
    from mkdocs.config import load_config

    with tempfile.TemporaryDirectory(prefix="kvbench-docs-") as folder:
        docs = Path(folder) / "docs"
        docs.mkdir()
        menu = site.stage(docs, results)
        shutil.copytree(THEME / "css", docs / "css")
        config_file = Path(folder) / "mkdocs.yml"
        config_file.write_text("site_name: kvbench\n", encoding="utf-8")
        config = load_config(
            str(config_file),
            docs_dir=str(docs),
            site_dir=str(out.resolve()),
            site_name="kvbench",
            site_description="How far from exact attention is a compressed KV cache?",
            theme={"name": "readthedocs", "custom_dir": str(THEME), "highlightjs": False},
            extra_css=["css/site.css"],
            markdown_extensions=["sane_lists", {"toc": {"slugify": anchor, "permalink": "#"}}],
            nav=menu,
            strict=True,
            use_directory_urls=False,
        )
        for script in Path(config["theme"].dirs[1]).glob("js/jquery*.js"):
            (docs / "js").mkdir(exist_ok=True)
            shutil.copyfile(script.resolve(), docs / "js/jquery.min.js")
        build_pages(config)
    # Both need the address of the site.
    for name in ("404.html", "sitemap.xml", "sitemap.xml.gz"):
        (out / name).unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, required=True, help="the kvbench that is asked")
    parser.add_argument("--out", type=Path, required=True, help="folder of the site; it is emptied")
    parser.add_argument(
        "--results",
        type=Path,
        help="results.json for the example report; default: quick.json is run",
    )
    parser.add_argument(
        "--repository",
        metavar="URL",
        help="where links to source files lead, such as https://HOST/ORG/kvbench/blob/main; "
        "default: copies of those files on the site",
    )
    arguments = parser.parse_args()
    try:
        build(
            arguments.out,
            Site(ROOT, arguments.program.resolve(), arguments.repository),
            arguments.results,
        )
    except (SiteError, OSError) as error:
        print("\n".join(f"site: {line}" for line in str(error).splitlines()), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
