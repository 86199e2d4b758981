"""python -m kvplot report results.json -o report.html: A page to explore results; no network."""

from argparse import Namespace, _SubParsersAction
from pathlib import Path
from typing import Any

from kvplot.documents import KIND, file_of
from kvplot.report.page import page
from kvplot.results import Results, ResultsError

# Numbers over rows that neither the still parts nor any figure on the page shows; the page's data
# are read apart from them. They are half of a cell.
UNUSED = ("median", "p90", "p99", "max")
# A browser answers a click among single cells of 100,000 in 0.3 s.
MAX_CELLS = 250_000


def add_command(commands: "_SubParsersAction[Any]") -> None:
    parser = commands.add_parser("report", help=__doc__.split(": ", 1)[1], description=__doc__)
    parser.add_argument("results", type=Path, help="results.json of a run, or its folder")
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="default: report.html",
    )
    parser.add_argument(
        "--metric",
        nargs="+",
        default=[],
        metavar="PATH",
        help="numbers of a cell that the page has besides its own choice: errors.relative_l2.p90",
    )
    parser.add_argument(
        "--no-figures", action="store_true", help="without the still figures, which take longest"
    )
    parser.set_defaults(run=run)


def is_unused(column: str) -> bool:
    """Whether a page can be made without this column of the cells' frame."""
    section, number = column.split(".")[0], column.split(".")[-1]
    if section == "trivial":
        return number != "last"
    return section in ("errors", "mass") and number in UNUSED


def refuse_to_replace(path: Path) -> None:
    """ResultsError where `path` is a file with content other than a page."""
    if not path.is_file():
        return
    begin = b"<!doctype html"
    with path.open("rb") as file:
        found = file.read(len(begin))
    if found and found.lower() != begin:
        raise ResultsError(f"{path}: is not a page and would be replaced; choose another --out")


def _write(path: Path, text: str) -> None:
    """Writes the page whole or not at all: an earlier one stays where the disk is full."""
    if path.exists() and not path.is_file():  # a pipe or a device
        path.write_text(text, encoding="utf-8")
        return
    target = path.resolve()
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(target)
    except PermissionError:  # the page itself may be writable in a folder that is not
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        error.filename = str(path)
        raise


def run(arguments: Namespace) -> list[str]:
    path = file_of(arguments.results, KIND)
    if arguments.out.exists() and path.exists() and arguments.out.samefile(path):
        raise ResultsError(f"{path}: the page would replace it; choose another --out")
    refuse_to_replace(arguments.out)
    results = Results(path, left_out=is_unused)
    count = len(results.document["cells"])
    if count > MAX_CELLS:
        raise ResultsError(
            f"{path}: has {count} cells, more than the {MAX_CELLS} of a page; draw figures, "
            "or give parts of the sweep a page each (`kvbench run --only` into a folder of its own)"
        )
    text = page(results, arguments.metric, figures=not arguments.no_figures)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    _write(arguments.out, text)
    return [str(arguments.out)]


__all__ = ["add_command", "page", "run"]
