"""python -m kvplot findings: The pictures of plots/FINDINGS.md, from the shipped tables alone."""

from argparse import Namespace, _SubParsersAction
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pandas
from matplotlib import pyplot

from kvplot import style
from kvplot.figure import Figure
from kvplot.interval_marks import (
    COLOURS,
    LINES,
    TABLES,
    Tables,
    dots,
    handles_of,
    line_of_intervals,
    name_rows,
    ratio_axis,
)
from kvplot.papers import with_palette
from kvplot.study_pictures import (
    calibration,
    error_over_distance,
    key_offset,
    key_offset_kl,
    paging,
    questions,
)

FROBENIUS = "errors.relative_frobenius_error"
RATIO = "perplexity.ratio"
# Methods that share one idea count as one; words are those of the legend.
FAMILIES = {
    "attention of the last rows": "snapkv pyramidkv adakv criticalkv chunkkv cake rkv tova caote",
    "attention summed over rows": "h2o keyformer roco key_attention",
    "merged or fitted": "attention_matching merge_cosine kf_merge cam d2o",
    "a model of future queries": "expected_attention qfilters",
    "keys or values alone": "knorm keydiff lagkv curdkv capkv compactor kcenter",
    "positions alone": "streaming_llm window",
    "weighted samples, features": "balancekv_prefill balancekv softmax_balance thinformer wildcat "
    "performer subgen",
}
METRICS = {
    "errors.relative_frobenius_error": "Frobenius error",
    "outputs.residual_ratio.mean": "error after W_O / residual stream",
    "errors.relative_spectral_error": "spectral error",
    "errors.relative_l2.p99": "error of a row, 99th percentile",
    "errors.cosine_distance.mean": "cosine distance of a row, mean",
    "errors.relative_l2.mean": "error of a row, mean",
    "errors.kl_divergence.mean": "KL divergence of a row, mean",
    "mass.kept.mean": "attention mass kept",
}
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


def field(tables: Tables) -> pyplot.Figure:
    """Families on top, then their methods; both modes, at a fifth of the memory."""
    colour = dict(zip(FAMILIES, COLOURS))
    read = {name: tables.read(f"smollm2/field_{name}") for name in ("families", "modes")}
    read = {name: rows[rows["at"] == 0.2] for name, rows in read.items()}
    modes = list(dict.fromkeys(read["modes"]["mode"]))
    families = list(dict.fromkeys(read["families"]["family"]))
    names = list(dict.fromkeys(read["modes"]["method"]))
    figure, axes = style.panels(1, len(modes), 5.8, sharey=True)
    for axis, mode in zip(axes[0], modes):
        for part, (key, order, size) in {
            "families": ("family", families, 5.5),
            "modes": ("method", names, 3.4),
        }.items():
            rows = read[part][read[part]["mode"] == mode]
            first = 0 if part == "families" else len(families) + 1
            for row in rows.to_dict("records"):
                place, look = first + order.index(row[key]), colour[row["family"]]
                ends = row["frobenius_low"], row["frobenius_high"]
                axis.hlines(place, *ends, color=look, linewidth=1.0)
                marker = "D" if part == "families" else "o"
                axis.plot(row["frobenius"], place, marker, color=look, markersize=size)
        axis.axhline(len(families), color="0.7", linewidth=0.6)
        axis.set_title(f"{mode} settings")
        ratio_axis(axis)
    figure.supxlabel(
        "Frobenius error / that of uniform sampling at equal memory", fontsize="medium"
    )
    name_rows(axes[0][0], [*families, "", *names])
    return figure


def field_models(tables: Tables) -> pyplot.Figure:
    """Methods and families on two models, both modes, at a fifth of the memory. Named are methods
    that are better than uniform sampling on one model alone; larger ratios than 8 are left out."""
    colour = dict(zip(FAMILIES, COLOURS))
    figure, axes = style.panels(1, 2, 3.3, sharex=True, sharey=True)
    for axis, mode in zip(axes[0], ("published", "equalised")):
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.axline((1, 1), (2, 2), color="0.7", linewidth=0.6, linestyle=":")
        turned = []
        for part, key, marker, size in (
            ("modes", "method", "o", 3.4),
            ("families", "family", "D", 6.0),
        ):
            rows = [tables.read(f"{model}/field_{part}") for model in ("smollm2", "gemma")]
            one, two = (each[(each["at"] == 0.2) & (each["mode"] == mode)] for each in rows)
            for row in one.merge(two, on=[key], suffixes=("", "_2")).to_dict("records"):
                place = row["frobenius"], row["frobenius_2"]
                axis.plot(*place, marker, color=colour[row["family"]], markersize=size,
                          markeredgecolor="white", markeredgewidth=0.4)  # fmt: skip
                if part == "modes" and (place[0] < 1) != (place[1] < 1):
                    turned.append((place, row[key]))
        line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.5, "relpos": (0, 0.5)}
        for rank, (place, name) in enumerate(sorted(turned, key=lambda each: each[0][1])):
            axis.annotate(name, place, (0.62, 0.04 + 0.065 * rank), textcoords="axes fraction",
                          fontsize=6.5, va="center", arrowprops=line)  # fmt: skip
        axis.set_title(f"{mode} settings")
        axis.set_yscale("log")
        ratio_axis(axis)
        axis.set_xlim(0.3, 8)
        axis.set_ylim(0.3, 8)
        style.plain_log(axis.yaxis)
    style.outer_labels(axes, "ratio on SmolLM2-135M", "ratio on Gemma 3 270M")
    style.legend_above(axes[0][0], handles_of(colour))
    return figure


def layers(tables: Tables) -> pyplot.Figure:
    """Every method in every layer over uniform sampling there, as published; families together."""
    rows = tables.read("smollm2/field_layers")
    family = {name: own for own, names in FAMILIES.items() for name in names.split()}
    colour = dict(zip(FAMILIES, COLOURS))
    rows["family"] = rows["method"].map(lambda name: family[name.split(",")[0]])
    fields = rows.drop(columns="family").set_index("method")
    rows["mean"] = fields.transform(numpy.log2).mean(axis=1).to_numpy()
    best = rows.groupby("family")["mean"].transform("mean")
    order = rows.assign(best=best).sort_values(["best", "family", "mean"])
    fields = fields.loc[list(order["method"])].transform(numpy.log2)
    figure, axes = style.panels(1, 1, 5.0)
    axis = axes[0][0]
    image = axis.imshow(fields, aspect="auto", cmap="RdBu_r", vmin=-3, vmax=3)
    axis.grid(False)
    axis.set_xticks(range(0, len(fields.columns), 5), list(fields.columns[::5]))
    axis.set_yticks(range(len(fields)), list(fields.index), fontsize=6.5)
    for label, own in zip(axis.get_yticklabels(), order["family"]):
        label.set_color(colour[own])
    axis.tick_params(length=0)
    axis.set_xlabel("layer")
    bar = figure.colorbar(image, ax=axis, pad=0.01, extend="both")
    bar.set_ticks(range(-3, 4), labels=["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    bar.set_label("Frobenius error / that of uniform sampling")
    style.legend_above(
        axis, handles_of({name: colour[name] for name in dict.fromkeys(order["family"])})
    )
    return figure


def metrics(tables: Tables) -> pyplot.Figure:
    figure, axes = style.panels(1, 2, 2.4, sharey=True)
    looks = {"SmolLM2-135M": (COLOURS[0], "loop"), "Gemma 3 270M": (COLOURS[1], "loop_gemma")}
    for axis, (title, end) in zip(
        axes[0], {"all memories": "metrics", "one memory": "metrics_one_memory"}.items()
    ):
        for shift, (colour, folder) in zip((-0.14, 0.14), looks.values()):
            rows = tables.read(f"{folder}/{end}").set_index("metric").loc[list(METRICS)]
            dots(axis, rows, "rho", [colour] * len(rows), shift=shift)
        axis.set_title(title)
    figure.supxlabel("rank correlation with the model's KL divergence", fontsize="medium")
    name_rows(axes[0][0], list(METRICS.values()))
    style.legend_above(axes[0][0], handles_of({name: look[0] for name, look in looks.items()}))
    return figure


def others(tables: Tables) -> pyplot.Figure:
    """Rank correlations with KL of the methods that do not fail by far, over all memories."""
    figure, axes = style.panels(1, 1, 1.5)
    looks = {"SmolLM2-135M": (COLOURS[0], "loop"), "Gemma 3 270M": (COLOURS[1], "loop_gemma")}
    shown = {
        name: word
        for name, word in METRICS.items()
        if name in (FROBENIUS, "errors.relative_l2.mean")
    } | {"memory.fraction": "memory alone"}
    for shift, (colour, folder) in zip((-0.14, 0.14), looks.values()):
        rows = tables.read(f"{folder}/others").set_index("metric").loc[list(shown)]
        dots(axes[0][0], rows, "rho", [colour] * len(rows), shift=shift)
    name_rows(axes[0][0], list(shown.values()))
    axes[0][0].set_xlabel("rank correlation with the model's KL divergence")
    style.legend_above(axes[0][0], handles_of({name: look[0] for name, look in looks.items()}))
    return figure


# Labels of choices.json, with none or few and with many tokens that are always kept.
KEPT = {
    "uniform sampling": ("uniform, nothing always kept", "uniform"),
    "knorm": ("knorm, published", "knorm"),
    "streaming_llm": ("streaming_llm, published", "streaming_llm"),
    "attention_matching": (
        "attention_matching, published",
        "attention_matching, published references",
    ),
}


def always_kept(tables: Tables) -> pyplot.Figure:
    figure, axes = style.panels(1, 2, 1.5, sharex=True, sharey=True)
    for axis, count in zip(axes[0], (64, 256)):
        rows = tables.read(f"choices/decoded_{count}").set_index("label")
        errors = rows[rows["params.budget.memory"] == 0.2][FROBENIUS]
        for place, (few, many) in enumerate(KEPT.values()):
            axis.hlines(place, errors[many], errors[few], color="0.7", linewidth=1.0)
            axis.plot(errors[few], place, "o", color=COLOURS[1], markersize=3.6)
            axis.plot(errors[many], place, "o", color=COLOURS[0], markersize=3.6)
        axis.set_xscale("log")
        style.plain_log(axis.xaxis)
        axis.set_title(f"{count} decoded tokens")
    figure.supxlabel("relative Frobenius error", fontsize="medium")
    name_rows(axes[0][0], list(KEPT))
    looks = {
        "as released, or none always kept": COLOURS[1],
        "32 sinks and 32 recent tokens": COLOURS[0],
    }
    style.legend_above(axes[0][0], handles_of(looks))
    return figure


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
        line_of_intervals(axis, own["traffic.fraction"], own, FROBENIUS, **look, linestyle=line,
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


def _lines(axis: Any, rows: dict[str, tuple[Any, Any]]) -> None:
    for name, (x, y) in rows.items():
        colour, marker, line = LINES[name]
        axis.plot(x, y, line, color=colour, marker=marker, label=name)
    axis.set_yscale("log")
    style.plain_log(axis.yaxis)


def kl_over_memory(tables: Tables) -> pyplot.Figure:
    """Lines of one memory are moved apart, so that their bars can be told."""
    rows = tables.read("loop/quality")
    figure, axes = style.panels(1, 2, 2.7)
    words = {"kl.mean": "KL divergence of the model, nats", RATIO: "perplexity / full cache's"}
    for axis, column in zip(axes[0], words):
        for place, (name, (colour, marker, dashes)) in enumerate(LINES.items()):
            own = rows[rows["label"] == name]
            apart = own["memory.fraction"] + 0.009 * (place - len(LINES) / 2)
            looks = {"color": colour, "marker": marker, "linestyle": dashes, "label": name}
            line_of_intervals(axis, apart, own, column, **looks, elinewidth=0.7, capsize=1.5)
        axis.set_yscale("log")
        style.plain_log(axis.yaxis)
        axis.set_xticks(sorted(set(rows["asked"])))
        axis.set_ylabel(words[column])
    figure.supxlabel("memory / memory of the exact cache", fontsize="medium")
    handles, labels = axes[0][0].get_legend_handles_labels()
    style.legend_above(axes[0][0], dict(zip(labels, handles)))
    return figure


def decoded(tables: Tables) -> pyplot.Figure:
    counts = (64, 128, 256)
    figure, axes = style.panels(1, 1, 2.3)
    found = [tables.read(f"choices/decoded_{count}") for count in counts]
    errors = [rows[rows["params.budget.memory"] == 0.2].set_index("label") for rows in found]
    names = {name: name for name in LINES} | {
        name: f"{name}, published" for name in ("tova", "h2o", "snapkv", "expected_attention")
    }
    _lines(
        axes[0][0],
        {name: (counts, [at[FROBENIUS][label] for at in errors]) for name, label in names.items()},
    )
    axes[0][0].set_xscale("log", base=2)
    axes[0][0].set_xticks(counts, list(map(str, counts)))
    axes[0][0].set_xlabel("decoded tokens of 2048")
    axes[0][0].set_ylabel("relative Frobenius error")
    handles, labels = axes[0][0].get_legend_handles_labels()
    style.legend_above(axes[0][0], dict(zip(labels, handles)))
    return figure


RANKED = {
    "outputs.residual_ratio.p99": ("after W_O / residual stream, 99th percentile", "#000000", "o"),
    FROBENIUS: ("Frobenius error", "#0072B2", "s"),
    "errors.relative_spectral_error": ("spectral error", "#009E73", "^"),
    "errors.relative_l2.mean": ("mean error of a row", "#D55E00", "D"),
}


def ranks(tables: Tables) -> pyplot.Figure:
    """Bars are 95 % intervals over texts; metrics of one memory are moved apart."""
    figure, axes = style.panels(1, 2, 2.5)
    names = {"metrics_by_memory": "with KL divergence", "perplexity_by_memory": "with perplexity"}
    for axis, (name, title) in zip(axes[0], names.items()):
        rows = tables.read(f"loop/{name}")
        rows["at"] = rows["over"].str.extract(r"budget .*?([\d.]+)", expand=False).astype(float)
        rows = rows.dropna(subset=["at"]).sort_values("at")
        for place, (metric, (words, colour, marker)) in enumerate(RANKED.items()):
            own = rows[rows["metric"] == metric]
            ends = [own["rho"] - own["rho_low"], own["rho_high"] - own["rho"]]
            axis.errorbar(
                own["at"] + 0.01 * (place - 1.5),
                own["rho"],
                yerr=ends,
                color=colour,
                marker=marker,
                label=words,
                linewidth=0.8,
                elinewidth=0.7,
                capsize=1.5,
            )
        axis.set_title(title)
        axis.set_xticks(sorted(set(rows["at"])))
    style.outer_labels(axes, "memory / exact cache", "rank correlation")
    handles, labels = axes[0][0].get_legend_handles_labels()
    style.legend_above(axes[0][0], dict(zip(labels, handles)))
    return figure


def pairs(tables: Tables) -> pyplot.Figure:
    """Pairs whose KL divergences differ for certain; left of 1 the metric has another order."""
    rows = tables.read("loop/pairs")
    rows = rows[rows["kl_low"] > 1]
    metrics = [name for name in RANKED if name in set(rows["metric"])]
    looks = dict(zip(sorted(rows["at"].unique()), ("#0072B2", "#D55E00", "#009E73")))
    figure, axes = style.panels(1, len(metrics), 2.4, sharex=True, sharey=True)
    for axis, metric in zip(axes[0], metrics):
        for at, colour in looks.items():
            own = rows[(rows["metric"] == metric) & (rows["at"] == at)]
            axis.plot(own["ratio"], own["kl"], "o", color=colour, markersize=3)
        ratio_axis(axis)
        axis.set_yscale("log")
        style.plain_log(axis.yaxis)
        axis.set_title(RANKED[metric][0].replace(", 99th", ",\n99th"), fontsize=7.5)
    style.outer_labels(axes, "ratio of the errors", "ratio of KL divergences")
    style.legend_above(
        axes[0][0], handles_of({f"{at:g} of the memory": c for at, c in looks.items()})
    )
    return figure


def survives(tables: Tables) -> pyplot.Figure:
    """Every method over uniform sampling under every choice: one dot each."""
    metrics = list(RANKED)[1:]
    counts = {64: "#56B4E9", 128: "#E69F00", 256: "#000000"}
    figure, axes = style.panels(1, 2, 3.2, sharex=True, sharey=True)
    names: list[str] = []
    for axis, memory in zip(axes[0], (0.2, 0.35)):
        for shift, (count, colour) in zip((-0.22, 0.0, 0.22), counts.items()):
            rows = tables.read(f"choices/decoded_{count}").set_index("label")
            rows = rows[rows["params.budget.memory"] == memory]
            ratios = rows[metrics].div(rows.loc["uniform", metrics]).drop("uniform")
            names = names or list(ratios[FROBENIUS].sort_values().index)
            for metric in metrics:
                known = [name for name in names if name in ratios.index]
                places = [names.index(name) + shift for name in known]
                marker = RANKED[metric][2]
                axis.plot(ratios.loc[known, metric], places, marker, color=colour, markersize=3)
        ratio_axis(axis)
        axis.set_title(f"{memory} of the memory")
    figure.supxlabel("error / uniform sampling's with as many bytes", fontsize="medium")
    name_rows(axes[0][0], names)
    handles = handles_of({f"{count} decoded": colour for count, colour in counts.items()})
    for metric in metrics:
        words, _, marker = RANKED[metric]
        handles[words] = pyplot.Line2D([], [], linestyle="none", marker=marker, color="0.5")
    style.legend_above(axes[0][0], handles)
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
    "error_over_distance": error_over_distance,
    "calibration": calibration,
    "paging": paging,
    "reading": reading,
    "density": density,
    "tightness": tightness,
}
