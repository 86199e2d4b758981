"""python -m kvplot papers: Every figure of plots/GALLERY.md, from runs of the shipped sweeps."""

from argparse import ArgumentParser, Namespace, _SubParsersAction
from pathlib import Path
from types import ModuleType
from typing import Any

from kvplot import figures, style
from kvplot.cache import Caches
from kvplot.dump import Dump
from kvplot.figure import ENDINGS, Figure, drawn
from kvplot.gallery import write_page
from kvplot.inspection import Inspection
from kvplot.results import MEAN, Results, ResultsError

# Name of the files, figure, what it reads (a shipped sweep, or an input), options. Pictures, tables
# and prose of plots are of the mean error.
DRAWINGS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("tsne", "tsne", "dump", {}),
    ("clusterability", "clusterability", "inspection", {}),
    ("rotation", "rotation", "dump", {}),
    ("norms", "norms", "inspection", {}),
    ("subgen_memory", "subgen_memory", "subgen_error_vs_memory", {}),
    ("subgen_heat_map", "subgen_heat_map", "subgen_error_vs_memory", {}),
    ("subgen_attribution", "subgen_attribution", "subgen_attribution", {}),
    ("subgen_settings", "subgen_halves", "subgen_attribution", {}),
    ("subgen_sampling", "subgen_sampling", "subgen_sampling", {}),
    ("failure_rate", "failure_rate", "subgen_failure_rate", {}),
    ("tightness", "tightness", "tightness", {}),
    ("subgen_table1", "settings", "subgen_table1", {"against": "h2o"}),
    ("clustergen_table2", "settings", "clustergen_table2", {"against": "sink"}),
    ("balancekv_layers", "balancekv_layers", "balancekv_fig2", {}),
    ("balancekv_longbench", "settings", "balancekv_longbench", {"against": "uniform"}),
    ("walk", "walk", "balancekv_walk", {}),
    ("merge_reduce", "merge_reduce", "balancekv_merge_reduce", {}),
    ("occupancy", "occupancy", "balancekv_cells", {"layer": 15, "kv_head": 1}),
    ("scaling", "scaling", "scaling", {"metric": MEAN}),
    ("discrepancy", "scaling", "scaling", {"metric": "errors.normalizer_error.mean"}),
    ("sparsity", "sparsity", "inspection", {}),
    ("entropy", "entropy", "inspection", {}),
    ("top_mass", "top_mass", "inspection", {}),
    ("keyformer_fig3", "settings", "keyformer_fig3", {"against": "h2o"}),
    ("score_bars", "score_bars", "dump", {}),
    ("score_growth", "score_growth", "keyformer_fig4", {}),
    ("damping", "damping", "keyformer_fig5", {}),
    ("budget", "budget", "keyformer_fig7", {}),
    (
        "keyformer_table3",
        "settings",
        "keyformer_table3",
        {"against": "keyformer: positions original"},
    ),
    ("noise", "noise", "keyformer_table4", {}),
    ("recent_ratio", "recent_ratio", "keyformer_recent_ratio", {}),
    ("recency", "recency", "recency", {}),
    ("tau", "tau", "keyformer_tau", {}),
    ("cache_size", "cache_size", "subgen_table1", {}),
    ("bytes_per_token", "bytes_per_token", "bytes_per_token", {}),
    ("field", "field", "field", {"metric": MEAN}),
    ("pareto", "pareto", "pareto", {"metric": MEAN}),
    ("ecdf", "ecdf", "pareto", {}),
    ("layer_head", "layer_head", "pareto", {}),
    ("forest", "forest", "pareto", {"metric": MEAN}),
    ("displacement", "displacement", "pareto", {}),
    ("mixture", "mixture", "methods", {}),
    ("variance", "variance", "methods", {}),
    ("methods", "forest", "methods", {"metric": MEAN}),
    ("kvpress", "forest", "kvpress", {"metric": MEAN}),
    ("position", "position", "error_vs_position", {}),
    ("reading", "error_vs_traffic", "reading", {"metric": MEAN}),
    ("reading_paired", "forest", "reading", {"metric": MEAN, "against": "tova", "cost": "traffic"}),
    ("density", "error_vs_traffic", "density", {}),
    ("storage", "storage_map", "storage", {"metric": MEAN, "panels": "storage"}),
    ("bits", "forest", "bits", {"metric": MEAN, "against": "snapkv"}),
    ("keys_or_values", "keys_or_values", "bits", {}),
    ("kept", "kept", "kept_sets", {"layer": 15, "kv_head": 1}),
    ("survival", "survival", "kept_sets", {}),
)
Source = Caches | Dump | Inspection | Results
# A picture of the gallery is committed: as many colours as keep it this small.
GALLERY_COLOURS = (256, 128, 64, 32)
GALLERY_BYTES = 100_000


def add_command(commands: "_SubParsersAction[Any]") -> None:
    parser = commands.add_parser("papers", help=__doc__.split(": ", 1)[1], description=__doc__)
    parser.add_argument(
        "--runs",
        required=True,
        type=Path,
        metavar="DIR",
        help="holds <name>/results.json of every sweep of configs/figures, and of field.json",
    )
    parser.add_argument(
        "--inspection", type=Path, metavar="FILE", help="output of `kvbench inspect DUMP --json`"
    )
    parser.add_argument("--dump", type=Path, metavar="FILE")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    parser.add_argument(
        "--width",
        choices=list(style.WIDTHS),
        default="page",
        help="the width of a paper's column or page; default page",
    )
    parser.add_argument(
        "--gallery", type=Path, metavar="DIR", help="PNGs of a palette go here as well"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[name for name, *_ in DRAWINGS],
        metavar="NAME",
        help="these only, even if nothing changed",
    )
    parser.set_defaults(run=run)


def defaults(module: ModuleType) -> dict[str, Any]:
    """The options of a figure with their default values."""
    parser = ArgumentParser()
    if hasattr(module, "add_options"):
        module.add_options(parser)
    return vars(parser.parse_args([]))


def draw(figure: str, source: Source, options: dict[str, Any]) -> Figure:
    """The figure, drawn from what it needs."""
    module = figures.module(figure)
    return drawn(module, Namespace(**{**defaults(module), **options, module.NEEDS[0]: source}))


def source(
    figure: str, reads: str, runs: Path, inspection: Path | None, dump: Path | None
) -> tuple[Path, Path, type[Source]]:
    """The input of a drawing, the file by whose age it is redrawn, and the class that reads it."""
    if reads in ("dump", "inspection"):
        path = dump if reads == "dump" else inspection
        if path is None:
            raise ResultsError(f"{figure} needs --{reads}; add it, or name others with --only")
        return path, path, Dump if reads == "dump" else Inspection
    results = runs / reads / "results.json"
    if "caches" in figures.module(figure).NEEDS:
        return results.with_name("caches"), results, Caches
    return results, results, Results


def run(arguments: Namespace) -> list[str]:
    """Draws what is older than its input or than kvplot itself; returns lines to print."""
    code = max(path.stat().st_mtime for path in Path(__file__).parent.rglob("*.py"))
    count, lines = 0, []
    for name, figure, reads, options in DRAWINGS:
        if arguments.only and name not in arguments.only:
            continue
        path, dated, kind = source(
            figure, reads, arguments.runs, arguments.inspection, arguments.dump
        )
        if not (path.exists() and dated.exists()):
            raise ResultsError(f"{path}: missing; plots/figures.sh makes it")
        outputs = [arguments.out / f"{name}{ending}" for ending in ENDINGS]
        if arguments.gallery:
            outputs.append(arguments.gallery / f"{name}.png")
        newest = max(code, dated.stat().st_mtime)
        if not arguments.only and all(
            path.exists() and path.stat().st_mtime >= newest for path in outputs
        ):
            continue
        try:
            with style.width(arguments.width):
                plot = draw(figure, kind(path), options)
        except ModuleNotFoundError as error:
            lines.append(f"{name}: not drawn, {error}")
            continue
        plot.name = name
        lines += [str(path) for path in plot.save(arguments.out)]
        count += 1
        if arguments.gallery:
            with_palette(arguments.out / f"{name}.png", arguments.gallery / f"{name}.png")
    page = write_page(arguments.out, [name for name, *_ in DRAWINGS])
    lines.append(f"{count} figures drawn, the others were up to date, all on one page: {page}")
    return lines


def with_palette(source: Path, target: Path) -> None:
    """The same picture in a file of a third of the size: a palette, no finer shades."""
    from PIL import Image

    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(source) as image:
        for colours in GALLERY_COLOURS:
            image.convert("RGB").quantize(
                colours, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
            ).save(target, optimize=True)
            if target.stat().st_size < GALLERY_BYTES:
                break
