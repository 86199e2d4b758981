"""python -m kvplot report results.json -o report.html: a page to explore results, no network."""

from argparse import Namespace, _SubParsersAction
from pathlib import Path
from typing import Any

from kvplot.report.page import page
from kvplot.report.verdicts import read_check, read_comparison
from kvplot.results import Results, ResultsError

MAX_RESULTS = 2
# Numbers over rows that neither the still parts nor any figure on the page shows; the page's data
# are read apart from them. They are half of a cell.
UNUSED = ("median", "p90", "p99", "max")
# A browser answers a click among single cells of 100,000 in 0.3 s.
MAX_CELLS = 250_000


def add_command(commands: "_SubParsersAction[Any]") -> None:
    parser = commands.add_parser("report", help=__doc__.split(": ", 1)[1], description=__doc__)
    parser.add_argument(
        "results", type=Path, nargs="+", help="results.json of a run; of two, B is shown next to A"
    )
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="default: report.html",
    )
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="FILE",
        help="output of `kvbench compare A B --json` for these two results",
    )
    parser.add_argument(
        "--check",
        type=Path,
        metavar="FILE",
        help="output of `kvbench check --json` for (one of) these results",
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


def run(arguments: Namespace) -> list[str]:
    inputs = [*arguments.results, arguments.compare, arguments.check]
    for path in filter(None, inputs):
        if arguments.out.exists() and path.exists() and arguments.out.samefile(path):
            raise ResultsError(f"{path}: the page would replace it; choose another --out")
    refuse_to_replace(arguments.out)
    if len(arguments.results) > MAX_RESULTS:
        raise ResultsError(
            f"{len(arguments.results)} results: a page shows at most {MAX_RESULTS}; "
            "name A and B, or make a page for each"
        )
    if arguments.compare and len(arguments.results) != MAX_RESULTS:
        raise ResultsError("--compare needs two results, in the order of `kvbench compare A B`")
    every = [Results(path, left_out=is_unused) for path in arguments.results]
    for results in every:
        if len(results.document["cells"]) > MAX_CELLS:
            raise ResultsError(
                f"{results.path}: has {len(results.document['cells'])} cells, more than the "
                f"{MAX_CELLS} that a page holds; draw figures, or give parts of the sweep a page "
                "each (`kvbench run --only` into a folder of its own)"
            )
    comparison = read_comparison(arguments.compare, every) if arguments.compare else None
    check = read_check(arguments.check, every) if arguments.check else None
    text = page(every, comparison, check, arguments.metric, figures=not arguments.no_figures)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text, encoding="utf-8")
    return [str(arguments.out)]


__all__ = ["add_command", "page", "run"]
