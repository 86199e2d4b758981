"""python -m kvplot findings: The pictures of plots/FINDINGS.md, from the shipped tables alone."""

from argparse import Namespace, _SubParsersAction
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
from matplotlib import pyplot

from kvplot import style
from kvplot.field_pictures import always_kept, decoded, field, field_models, layers, survives
from kvplot.figure import Figure
from kvplot.interval_marks import (
    COLOURS,
    TABLES,
    Tables,
    dots,
    handles_of,
    line_of_intervals,
    name_rows,
    ratio_axis,
)
from kvplot.loop_pictures import kl_over_memory, metrics, others, pairs, ranks
from kvplot.papers import with_palette
from kvplot.results import HEADLINE
from kvplot.study_pictures import (
    anchors,
    calibration,
    error_over_distance,
    key_offset,
    key_offset_kl,
    paging,
    pieces,
    prefill,
    questions,
    questions_models,
)

CODECS = {
    "q8_0 V q8_0": "8 bits (q8_0)",
    "kivi bits=4 V kivi bits=4": "4 bits (KIVI)",
    "q4_0 rotate=hadamard V q4_0 rotate=hadamard": "4 bits (q4_0, rotated)",
    "turboquant V turboquant": "3 bits (TurboQuant)",
    "kivi V kivi": "2 bits (KIVI)",
    "turboquant bits=2 V turboquant bits=2": "2 bits (TurboQuant)",
}


def add_command(commands: "_SubParsersAction[Any]") -> None:
    parser = commands.add_parser("findings", help=__doc__.split(": ", 1)[1], description=__doc__)
    parser.add_argument(
        "--tables", type=Path, default=TABLES, metavar="DIR", help="default: those of plots/tables"
    )
    parser.add_argument("-o", "--out", required=True, type=Path, metavar="DIR")
    parser.add_argument("--width", choices=list(style.WIDTHS), default="page")
    parser.add_argument("--only", nargs="+", choices=list(PICTURES), metavar="NAME")
    parser.set_defaults(run=run)


def run(arguments: Namespace) -> list[str]:
    lines: list[str] = []
    with style.width(arguments.width):
        for name in arguments.only or PICTURES:
            figure = Figure(name, PICTURES[name](Tables(arguments.tables)), pandas.DataFrame(), "")
            drawing = name == "pipeline"  # has no numbers: sharp at any size
            ending = ".svg" if drawing else ".png"
            paths = figure.save(arguments.out, caption=False, endings=(ending,))
            for path in [] if drawing else paths:
                with_palette(path, path)
            lines += map(str, paths)
    return lines


def bits(tables: Tables) -> pyplot.Figure:
    rows = tables.read("smollm2/bits").set_index("setting")
    rows = rows.loc[[f"exact | K {codec}" for codec in CODECS]]
    figure, axes = style.panels(1, 1, 1.6)
    dots(axes[0][0], rows, "ratio_mean", [COLOURS[0]] * len(rows), ends="ratio")
    held = [f"{name}, {at:.2f} of the bytes" for name, at in zip(CODECS.values(), rows.iloc[:, 0])]
    name_rows(axes[0][0], held)
    ratio_axis(axes[0][0], "error / SnapKV's in 16 bits")
    return figure


def reading(tables: Tables) -> pyplot.Figure:
    rows = tables.read("smollm2/reading")
    rows = rows[~rows["setting"].str.startswith("window")]
    figure, axes = style.panels(1, 1, 2.6)
    oracle = [COLOURS[2] if name.startswith("oracle") else COLOURS[0] for name in rows["setting"]]
    dots(axes[0][0], rows, "ratio_mean", oracle, ends="ratio")
    names = rows["setting"].str.replace("oracle_topk", "oracle: true top tokens")
    name_rows(
        axes[0][0], [f"{name}, reads {at:.2f}" for name, at in zip(names, rows["traffic.fraction"])]
    )
    ratio_axis(axes[0][0], "error / TOVA's at equal reads")
    return figure


# Methods that keep all tokens and read some have full lines.
READERS = {
    "oracle_topk": "#000000",
    "sparq": "#0072B2",
    "double sparsity": "#009E73",
    "quest": "#CC79A7",
    "loki": "#7F7F7F",
    "tova": "#D55E00",
    "h2o": "#56B4E9",
    "streaming_llm": "#E69F00",
}


def density(tables: Tables) -> pyplot.Figure:
    """Means over heads against the bytes that a row reads."""
    rows = tables.read("smollm2/density")
    rows["method"] = rows["setting"].str.split(":").str[0]
    figure, axes = style.panels(1, 1, 2.6)
    axis = axes[0][0]
    evicts = {"tova": "^", "h2o": "s", "streaming_llm": "D"}
    for name, colour in READERS.items():
        own = rows[rows["method"] == name]
        look = {"color": colour, "marker": evicts.get(name, "o"), "label": name}
        line = "--" if name in evicts else "-"
        line_of_intervals(axis, own["traffic.fraction"], own, HEADLINE, **look, linestyle=line,
                          markersize=3.4, elinewidth=0.7, capsize=1.5)  # fmt: skip
    axis.set_xscale("log")
    axis.set_yscale("log")
    style.plain_log(axis.xaxis)
    style.plain_log(axis.yaxis)
    axis.set_xlabel("bytes that a row reads / those that exact attention reads")
    axis.set_ylabel("relative Frobenius error")
    handles, labels = axis.get_legend_handles_labels()
    style.legend_above(axis, dict(zip(labels, handles)))
    return figure


def recency(tables: Tables) -> pyplot.Figure:
    figure, axes = style.panels(1, 2, 2.4, sharey=True)
    names = {"scores kept for ever (H2O)": "recency_layers", "decay 0.99": "recency_layers_decay"}
    for axis, (title, name) in zip(axes[0], names.items()):
        rows = tables.read(f"smollm2/{name}").set_index("layer")
        layers = [layer for layer in rows.index if layer != "all"]
        for layer, colour, marker in zip(layers, style.ordered(len(layers)), "osD^vPX"):
            shares = rows.columns.astype(float)
            axis.plot(shares, rows.loc[layer], marker=marker, color=colour, label=layer)
        axis.set_yscale("log")
        style.plain_log(axis.yaxis)
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.set_title(title)
        axis.set_xlabel("share of recent tokens")
    axes[0][0].set_ylabel("error / sinks and recent tokens")
    handles, labels = axes[0][0].get_legend_handles_labels()
    style.legend_above(axes[0][0], {f"layer {at}": line for at, line in zip(labels, handles)})
    return figure


def scaling(tables: Tables) -> pyplot.Figure:
    rows = tables.read("smollm2/scaling_ratios")
    figure, axes = style.panels(1, 2, 2.5, sharey=True)
    axis = axes[0][0]
    looks = dict(zip(rows["label"].unique(), (COLOURS[0], COLOURS[2], COLOURS[1])))
    words = ("blocks of 256, as evaluated", "one block", "the theory's walk, r 8")
    tokens = [int(name) for name in rows.columns[2:]]
    for row in rows.to_dict("records"):
        values = [row[str(at)] for at in tokens]
        axis.plot(tokens, values, "o-", color=looks[row["label"]])
    axis.set_title("SmolLM2-135M")
    control = axes[0][1]
    for name, marker in (("bounded", "o"), ("usual", "s")):
        made = tables.read(f"theorems/control_{name}_ratios")
        for label, own in made.groupby("label", sort=False):
            ends = [own["ratio"] - own["ratio_low"], own["ratio_high"] - own["ratio"]]
            control.errorbar(
                own["params.tokens"],
                own["ratio"],
                yerr=ends,
                color=looks[label],
                marker=marker,
                markerfacecolor="white" if name == "usual" else looks[label],
                linestyle="--" if name == "usual" else "-",
                capsize=1.5,
                elinewidth=0.7,
            )
    control.set_title("made keys")
    for each, start, first, last in ((axis, 0.58, 256, 2048), (control, 0.34, 256, 8192)):
        across = [first, last]
        each.plot(across, [start * (at / first) ** -0.5 for at in across], ":", color="black")
        each.set_xscale("log", base=2)
        each.set_yscale("log")
        ticks = [2**power for power in range(8, 14) if 2**power <= last]
        each.set_xticks(ticks, list(map(str, ticks)))
        each.minorticks_off()
        style.plain_log(each.yaxis)
    style.outer_labels(axes, "tokens", "error / uniform sampling's")
    handles = {
        word: pyplot.Line2D([], [], color=colour) for word, colour in zip(words, looks.values())
    }
    looks_of_keys = {"small": ("-", "o", "0.4"), "usual": ("--", "s", "white")}
    for norms, (line, marker, face) in looks_of_keys.items():
        mark = pyplot.Line2D(
            [], [], linestyle=line, marker=marker, color="0.4", markerfacecolor=face
        )
        handles[f"keys of {norms} norms"] = mark
    handles["a rate faster by n^-1/2"] = pyplot.Line2D([], [], color="black", linestyle=":")
    style.legend_above(axis, handles)
    return figure


def balancekv(tables: Tables) -> pyplot.Figure:
    """Ratios to uniform sampling by T, both models."""
    figure, axes = style.panels(1, 1, 1.5)
    looks = {"SmolLM2-135M": (COLOURS[0], "smollm2"), "Gemma 3 270M": (COLOURS[1], "gemma")}
    halvings = (1, 2, 3)
    for shift, (colour, folder) in zip((-0.14, 0.14), looks.values()):
        rows = tables.read(f"{folder}/methods").set_index("setting")
        rows = rows.loc[[f"balancekv_prefill: T {each}" for each in halvings]]
        dots(axes[0][0], rows, "ratio_mean", [colour] * len(rows), "ratio", shift)
    held = tables.read("smollm2/methods").set_index("setting")["memory.fraction"]
    name_rows(axes[0][0], [f"T {each}, {held[f'balancekv_prefill: T {each}']:.2f} of the memory"
                        for each in halvings])  # fmt: skip
    ratio_axis(axes[0][0], "mean error / uniform sampling's")
    style.legend_above(axes[0][0], handles_of({name: look[0] for name, look in looks.items()}))
    return figure


def tightness(tables: Tables) -> pyplot.Figure:
    rows = tables.read("theorems/tightness")
    rows = rows.sort_values("model", kind="stable")  # that of a model first
    model = rows["model"].str.startswith("SmolLM2")
    figure, axes = style.panels(1, 1, 2.3)
    axis = axes[0][0]
    looks = {
        "as proved": ("vectors_proved", COLOURS[1]),
        "enough here": ("vectors_needed", COLOURS[0]),
    }
    for column, colour in looks.values():
        axis.plot(rows[column] / rows["vectors_exact"], range(len(rows)), "o", color=colour)
    kinds = ["made for it" if not own else f"layer {at}" for own, at in zip(model, rows["layer"])]
    names = [f"{kind}, epsilon {epsilon:g}" for kind, epsilon in zip(kinds, rows["epsilon"])]
    name_rows(axis, names)
    ratio_axis(axis, "vectors / vectors of the exact cache")
    style.legend_above(axis, handles_of({name: look[1] for name, look in looks.items()}))
    return figure


# Boxes of the drawing: left, width, heading, lines.
BOXES = (
    (0.0, 1.1, "model", ("one forward pass,", "or your arrays")),
    (1.5, 1.25, "dump (HDF5)", ("q, k, v per layer,", "text, W_O if asked")),
    (3.15, 1.55, "replay", ("token by token:", "method x quantiser", "x parameters x seed")),
    (5.1, 1.8, "results.json", ("error of each output,", "bytes held and read,", "95 % intervals")),
)


def pipeline(tables: Tables) -> pyplot.Figure:
    """From a model to an error; the loop below is data/loop.sh."""
    figure, axes = style.panels(1, 1, 1.5)
    axis = axes[0][0]
    axis.set_axis_off()
    axis.set_xlim(-0.05, 6.95)
    axis.set_ylim(-0.62, 1.02)
    arrow = {"arrowstyle": "->", "color": "black", "linewidth": 0.9}
    for (left, width, heading, lines), after in zip(BOXES, (*BOXES[1:], None)):
        box = pyplot.Rectangle(
            (left, 0), width, 1, facecolor="#F7FBFF", edgecolor="black", linewidth=0.8
        )
        axis.add_patch(box)
        middle = left + width / 2
        axis.text(middle, 0.86, heading, ha="center", va="center", weight="bold", fontsize=8)
        axis.text(middle, 0.38, "\n".join(lines), ha="center", va="center", fontsize=7)
        if after:
            axis.annotate("", (after[0], 0.5), (left + width, 0.5), arrowprops=arrow)
    axis.plot([3.92, 3.92, 0.55], [0, -0.28, -0.28], color="black", linewidth=0.9)
    axis.annotate("", (0.55, 0), (0.55, -0.29), arrowprops=arrow)
    words = "closed loop: the model decodes over the compressed cache; KL divergence, perplexity"
    axis.text(2.25, -0.5, words, ha="center", va="center", fontsize=7)
    return figure


PICTURES: dict[str, Callable[[Tables], pyplot.Figure]] = {
    "field": field,
    "field_models": field_models,
    "layers": layers,
    "metrics": metrics,
    "kl_over_memory": kl_over_memory,
    "ranks": ranks,
    "pairs": pairs,
    "others": others,
    "decoded": decoded,
    "always_kept": always_kept,
    "survives": survives,
    "pipeline": pipeline,
    "recency": recency,
    "scaling": scaling,
    "balancekv": balancekv,
    "bits": bits,
    "key_offset": key_offset,
    "key_offset_kl": key_offset_kl,
    "questions": questions,
    "questions_models": questions_models,
    "error_over_distance": error_over_distance,
    "calibration": calibration,
    "paging": paging,
    "anchors": anchors,
    "pieces": pieces,
    "prefill": prefill,
    "reading": reading,
    "density": density,
    "tightness": tightness,
}
