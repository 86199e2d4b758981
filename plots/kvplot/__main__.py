"""python -m kvplot FIGURE --results results/quick/results.json --out DIR"""

import argparse
import importlib
import sys

from kvplot.figures import NAMES
from kvplot.results import ResultsError


def main(argv=None):
    parser = argparse.ArgumentParser(prog="kvplot", description="Draws a figure from results.json.")
    figures = parser.add_subparsers(dest="figure", required=True, metavar="FIGURE")
    modules = {}
    for name in NAMES:
        modules[name] = importlib.import_module(f"kvplot.figures.{name}")
        summary = modules[name].__doc__.strip().splitlines()[0]
        modules[name].add_arguments(figures.add_parser(name, help=summary, description=summary))
    arguments = parser.parse_args(argv)
    try:
        written = modules[arguments.figure].draw(arguments)
    except (ResultsError, OSError) as error:
        print(f"kvplot: {error}", file=sys.stderr)
        return 2
    print("\n".join(str(path) for path in written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
