"""Error along the stream, and how much larger it is than at the start, per layer."""

from argparse import ArgumentParser, Namespace
from typing import Any

import numpy
import pandas

from kvplot import style
from kvplot.faults import RequestError
from kvplot.figure import Figure, facts
from kvplot.results import POINT, UNIT, Results, bytes_over_bytes, undrawn

NEEDS = ("results",)
BY = ("layer",)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--parts", type=int, default=7, help="parts of the stream; default 7")


def fits(results: Results) -> bool:
    rows = results.has_rows and results.rows("relative_l2", results.ok["id"].head(1))
    return rows is not False and rows["row"].nunique() >= 64 and results.ok["label"].nunique() <= 8


def parts_of(results: Results, count: int) -> pandas.DataFrame:
    """Mean error of rows in `count` equal parts of the scored rows, per setting and unit, and over
    that of the first part."""
    cells = results.ok[results.ok["algorithm"] != "exact"]
    rows = results.rows("relative_l2", cells["id"]).join(
        cells.set_index("id")[["label", "algorithm", "point", *UNIT]], on="id"
    )
    group = [*POINT, *UNIT]
    means = rows.groupby([*group, "row"])["relative_l2"].mean().reset_index()
    first, last = means["row"].min(), means["row"].max()
    means["part"] = ((means["row"] - first) * count // (last - first + 1)).astype(int)
    means["at"] = first + (means["part"] + 0.5) * (last - first + 1) / count
    table = means.groupby([*group, "part", "at"])["relative_l2"].mean().reset_index()
    start = table[table["part"] == 0].set_index(group)["relative_l2"].rename("start")
    table = table.join(start, on=group)
    return table.assign(ratio=table["relative_l2"] / table.pop("start"))


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("errors.relative_l2.mean")
    if inputs.parts < 2:
        raise RequestError(f"--parts {inputs.parts}: expected at least 2")
    table = parts_of(results, inputs.parts)
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(2, len(layers), 4.2, sharex=True, sharey="row")
    handles: dict[str, Any] = {}
    looks = style.variants(table)
    step = (table["at"].max() - table["at"].min()) / 60
    offsets = {label: step * (1 + place) for place, label in enumerate(looks)}
    shown = table["algorithm"].unique()
    for row, column in zip(axes, ("relative_l2", "ratio")):
        for axis, layer in zip(row, layers):
            axis.set_yscale("log")
            here = table[table["layer"] == layer]
            for (label, algorithm, _), series in here.groupby(["label", "algorithm", "point"]):
                colour, marker = style.look(algorithm, shown)
                logs = numpy.log(series.set_index("at")[column]).groupby(level="at")
                middle = numpy.exp(logs.mean())
                last = middle.index[-1]
                axis.vlines(
                    last + offsets[label],
                    numpy.exp(logs.min())[last],
                    numpy.exp(logs.max())[last],
                    color=colour,
                    linewidth=0.9,
                )
                (handles[label],) = axis.plot(
                    middle.index,
                    middle,
                    color=colour,
                    marker=marker,
                    markersize=3.5,
                    linestyle=looks[label][0],
                    markeredgecolor="white",
                    markeredgewidth=0.4,
                )
            style.plain_log(axis.yaxis)
            if column == "ratio":
                axis.axhline(1.0, color="black", linewidth=0.6, linestyle=":")
            else:
                axis.set_title(f"layer {layer}")
    style.outer_labels(
        axes, "position in the stream", ("relative error", "error / that of the first part")
    )
    style.legend_above(axes[0][0], handles)
    memory = {
        label: bytes_over_bytes(cells, "memory.fraction")
        for label, cells in results.ok.groupby("label")
    }
    held = ", ".join(f"{label} {memory[label]:.2f}" for label in handles)
    return Figure(
        "position",
        figure,
        table,
        "How the error changes along the stream: relative error of the attention output in "
        f"{inputs.parts} equal parts of it, mean over scored rows, query heads and seeds, and over "
        "that of the same head's first part (dotted: 1). Line: geometric mean over KV heads; "
        "upright lines: the range of all heads in the last part. Memories differ, so that only the "
        f"lower row compares methods; as a fraction of the exact cache: {held}. "
        f"{facts(results, by=['layer'])}"
        f"{undrawn(results.ok, table, 'the reference')}",
    )
