"""Error against the bytes that a row reads, as a fraction of exact attention's, both logarithmic.

For methods that keep every token and choose by the query what to read, and for those that evict and
read all that they hold. Drawn as error_vs_memory is.
"""

from argparse import ArgumentParser, Namespace

from kvplot.figure import Figure
from kvplot.figures import error_vs_memory
from kvplot.results import HEADLINE, Results

NEEDS = ("results",)
TRAFFIC = "traffic.fraction"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--metric", default=HEADLINE, metavar="PATH", help=f"of the error; default {HEADLINE}"
    )
    parser.add_argument(
        "--panels",
        choices=["layer"],
        help="one panel per layer instead of the mean over all units; "
        "files error_vs_traffic_by_layer",
    )


def fits(results: Results) -> bool:
    """Where some method's traffic is not its memory."""
    cells = results.ok
    if TRAFFIC not in cells or not error_vs_memory.fits(results, TRAFFIC):
        return False
    return bool((cells[TRAFFIC] < 0.9 * cells["memory.fraction"]).any())


def draw(inputs: Namespace) -> Figure:
    return error_vs_memory.draw_against(inputs, "error_vs_traffic", TRAFFIC)
