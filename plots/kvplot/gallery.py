"""A page of figures that were saved to a folder: every picture as SVG, its caption, its numbers."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>kvbench: figures</title>
<style>
:root {{ color-scheme: light dark }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 serif }}
nav {{ columns: 12rem }}
nav a {{ display: block }}
figure {{ margin: 3rem 0 }}
img {{ width: 100%; background: white }}
</style>
<h1>Figures</h1>
<nav aria-label="figures">
{contents}
</nav>
{figures}
</html>
"""
FIGURE = """<figure id="{name}">
<h2><a href="#{name}">{name}</a></h2>
<img src="{name}.svg" alt="{caption}" loading="lazy">
<figcaption>{caption}
<a href="{name}.csv">numbers</a>, <a href="{name}.pdf">PDF</a></figcaption>
</figure>"""


def write_page(folder: Path, names: Sequence[str]) -> Path:
    """index.html of the figures `names` whose files are in the folder; those that are not are left
    out."""
    there = [name for name in names if (folder / f"{name}.svg").exists()]
    captions = [(folder / f"{name}.txt").read_text(encoding="utf-8").strip() for name in there]
    path = folder / "index.html"
    path.write_text(
        PAGE.format(
            contents="\n".join(f'<a href="#{name}">{name}</a>' for name in there),
            figures="\n".join(
                FIGURE.format(name=name, caption=escape(caption))
                for name, caption in zip(there, captions)
            ),
        ),
        encoding="utf-8",
    )
    return path
