"""Pictures of plots/FINDINGS.md: the field, and the choices that turn its claims."""

from typing import Any

import numpy
from matplotlib import pyplot

from kvplot import style
from kvplot.interval_marks import COLOURS, LINES, RANKED, Tables, handles_of, name_rows, ratio_axis
from kvplot.results import HEADLINE

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

# Models whose field is compared with SmolLM2's: folders of tables.
MODELS = {
    "gemma": "Gemma 3 270M",
    "qwen2.5-coder-0.5b": "Qwen2.5-Coder 0.5B",
    "qwen2.5-coder-1.5b": "Qwen2.5-Coder 1.5B",
}

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
    """Methods and families on other models against SmolLM2, both modes, at a fifth of the memory.
    Named are methods that are better than uniform sampling on one model alone; larger ratios than 8
    are left out."""
    figure, axes = style.panels(len(MODELS), 2, 2.9 * len(MODELS), sharex=True, sharey=True)
    for line, model in zip(axes, MODELS):
        for axis, mode in zip(line, ("published", "equalised")):
            _against_smollm2(axis, tables, model, mode)
            if model == next(iter(MODELS)):
                axis.set_title(f"{mode} settings")
    style.outer_labels(
        axes, "ratio on SmolLM2-135M", [f"ratio on {words}" for words in MODELS.values()]
    )
    style.legend_above(axes[0][0], handles_of(dict(zip(FAMILIES, COLOURS))))
    return figure


def _against_smollm2(axis: Any, tables: Tables, model: str, mode: str) -> None:
    colour = dict(zip(FAMILIES, COLOURS))
    axis.axhline(1.0, color="black", linewidth=0.8)
    axis.axline((1, 1), (2, 2), color="0.7", linewidth=0.6, linestyle=":")
    turned = []
    for part, key, marker, size in (
        ("modes", "method", "o", 3.4),
        ("families", "family", "D", 6.0),
    ):
        rows = [tables.read(f"{each}/field_{part}") for each in ("smollm2", model)]
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
    axis.set_yscale("log")
    ratio_axis(axis)
    axis.set_xlim(0.3, 8)
    axis.set_ylim(0.3, 8)
    style.plain_log(axis.yaxis)


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


def _lines(axis: Any, rows: dict[str, tuple[Any, Any]]) -> None:
    for name, (x, y) in rows.items():
        colour, marker, line = LINES[name]
        axis.plot(x, y, line, color=colour, marker=marker, label=name)
    axis.set_yscale("log")
    style.plain_log(axis.yaxis)


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
        {name: (counts, [at[HEADLINE][label] for at in errors]) for name, label in names.items()},
    )
    axes[0][0].set_xscale("log", base=2)
    axes[0][0].set_xticks(counts, list(map(str, counts)))
    axes[0][0].set_xlabel("decoded tokens of 2048")
    axes[0][0].set_ylabel("relative Frobenius error")
    handles, labels = axes[0][0].get_legend_handles_labels()
    style.legend_above(axes[0][0], dict(zip(labels, handles)))
    return figure


def always_kept(tables: Tables) -> pyplot.Figure:
    figure, axes = style.panels(1, 2, 1.5, sharex=True, sharey=True)
    for axis, count in zip(axes[0], (64, 256)):
        rows = tables.read(f"choices/decoded_{count}").set_index("label")
        errors = rows[rows["params.budget.memory"] == 0.2][HEADLINE]
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
            names = names or list(ratios[HEADLINE].sort_values().index)
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
