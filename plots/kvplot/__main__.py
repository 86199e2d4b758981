"""python -m kvplot FIGURE --results results/quick/results.json --out DIR"""

import argparse
import errno
import importlib
import os
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pandas

from kvplot import figures, style
from kvplot.cache import Caches
from kvplot.dump import Dump
from kvplot.faults import RequestError, integer
from kvplot.figure import ENDINGS, drawn
from kvplot.inspection import Inspection
from kvplot.loop import Loop
from kvplot.results import Results, ResultsError, did_you_mean
from kvplot.terminal import one_line, printable, show_warning

# Further commands: modules with add_command(commands).
COMMANDS = (
    "anchors",
    "calibration",
    "field_modes",
    "findings",
    "paging",
    "papers",
    "pieces",
    "prefill",
    "questions",
    "report",
    "table",
)
INPUTS = {
    "results": (Results, "results.json of a run, or its folder"),
    "inspection": (Inspection, "what `kvbench inspect DUMP --json` printed"),
    "dump": (Dump, "a dump (HDF5)"),
    "loop": (Loop, "loop.json of data/closed_loop.py, or its folder; or several of other texts"),
    "caches": (Caches, "a cache file (HDF5), or a folder of them"),
}


def _add_figure(commands: "argparse._SubParsersAction[_Parser]", name: str) -> None:
    module = figures.module(name)
    summary = str(module.__doc__).strip().splitlines()[0]
    parser = commands.add_parser(
        name,
        help=summary.replace("%", "%%"),
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for need in module.NEEDS:
        if need == "caches":  # one per method
            parser.add_argument("caches", nargs="+", metavar="CACHE", help=INPUTS[need][1])
            continue
        several = {"nargs": "+"} if need == "loop" else {}  # a file of each text
        parser.add_argument(
            f"--{need}", required=True, metavar="FILE", help=INPUTS[need][1], **several
        )
    if "results" in module.NEEDS and not getattr(module, "WHOLE", False):
        parser.add_argument(
            "--layers",
            type=int,
            nargs="+",
            metavar="L",
            help="only these layers; default: all of the results",
        )
    if "results" in module.NEEDS:
        parser.add_argument(
            "--labels",
            nargs="+",
            metavar="PATTERN",
            help="only settings whose label matches one of these, * for any text and ? for any "
            "letter: 'snapkv*' '* | K q8_0*'; default: all of the results",
        )
    parser.add_argument(
        "-o",
        "--out",
        required=True,
        metavar="DIR",
        help="folder for the PNG, PDF, SVG, CSV and caption",
    )
    parser.add_argument(
        "--no-caption", action="store_true", help="leave the caption to the paper (it is in .txt)"
    )
    parser.add_argument("--png-only", action="store_true", help="no PDF, SVG, CSV and text")
    parser.add_argument(
        "--width",
        choices=list(style.WIDTHS),
        default="page",
        help=f"of a paper's column or page: {style.COLUMN} or {style.PAGE} inches; default page",
    )
    parser.add_argument(
        "--dpi", type=integer(1, 10000), default=200, help="resolution of the PNG; default 200"
    )
    if hasattr(module, "add_options"):
        module.add_options(parser)
    parser.set_defaults(run=lambda arguments: _draw(module, arguments))


def _draw(module: ModuleType, arguments: argparse.Namespace) -> list[Path]:
    for need in module.NEEDS:
        given = getattr(arguments, need)
        setattr(arguments, need, INPUTS[need][0](*(given if need == "loop" else [given])))
    if "results" in module.NEEDS and getattr(arguments, "layers", None):
        arguments.results.keep_layers(arguments.layers)
    if "results" in module.NEEDS and arguments.labels:
        arguments.results.keep_labels(arguments.labels)
    try:
        with style.width(arguments.width):
            figure = drawn(module, arguments)
    except RequestError:
        raise
    except ResultsError as error:
        raise ResultsError(f"{error}{_made_for(module)}") from error
    endings = (".png",) if arguments.png_only else ENDINGS
    return figure.save(arguments.out, not arguments.no_caption, arguments.dpi, endings)


def _made_for(module: ModuleType) -> str:
    """A remedy for results that lack what a figure shows: the sweep that it is made for."""
    from kvplot import papers

    sweeps = sorted(
        {
            reads
            for _, figure, reads, _ in papers.DRAWINGS
            if figure == module.__name__.rsplit(".", 1)[1]
        }
        - {"dump", "inspection"}
    )
    return f"; the gallery draws it from configs/figures/{sweeps[0]}.json" if sweeps else ""


def _parser(argv: Sequence[str]) -> "_Parser":
    """With the options of the command that is asked for, or of all for --help. Importing what draws
    the others would take longer than many inputs take to be refused."""
    wanted = next((word for word in argv if not word.startswith("-")), None)
    every = wanted is None
    parser = _Parser(
        prog="kvplot", description="Draws figures from what kvbench wrote, and a page about a run."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="FIGURE|COMMAND")
    for name in (*figures.NAMES, *COMMANDS):
        if not every and name != wanted:
            commands.add_parser(name)
        elif name in figures.NAMES:
            _add_figure(commands, name)
        else:
            importlib.import_module(f"kvplot.{name}").add_command(commands)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """argparse's own words; of a misspelt word first what it was probably meant to be, then the
        choices."""
        found = re.search(r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if found:
            known = re.findall(r"[\w-]+", found[3])
            near = did_you_mean(found[2], known).removeprefix("; ")
            message = (
                f"argument {found[1]}: unknown {found[2]!r}; {near and near + ' '}choose from "
            )
            message += ", ".join(known)
        super().error(message)


def _why_not_written(error: OSError) -> str:
    for kinds, words in (
        ((PermissionError,), "this user may not; choose another --out"),
        (
            (FileExistsError, NotADirectoryError, IsADirectoryError, FileNotFoundError),
            "there can be no such file or folder; choose another --out",
        ),
    ):
        if isinstance(error, kinds):
            return words
    return "the disk is full" if error.errno == errno.ENOSPC else f"the system says {error}"


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    arguments = _parser(words).parse_args(words)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show_warning
            warnings.simplefilter("ignore", pandas.errors.PerformanceWarning)
            written = arguments.run(arguments)
    except OSError as error:  # inputs that cannot be read are ResultsErrors
        place = error.filename or arguments.out
        said = one_line(f"kvplot: {place}: cannot be written, {_why_not_written(error)}")
        print(said, file=sys.stderr)
        return 2
    except (ResultsError, ModuleNotFoundError) as error:
        print(one_line(f"kvplot: {error}"), file=sys.stderr)
        return 2
    lines = "\n".join(str(path) for path in written)
    try:
        print(printable(lines) if sys.stdout.isatty() else lines, flush=True)
    except BrokenPipeError:  # the reader, head for one, has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
