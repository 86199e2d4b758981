"""The pictures of the pages next to plots/FINDINGS.md, each of one study, from its tables."""

from typing import Any

import pandas
from matplotlib import pyplot
from matplotlib.axes import Axes

from kvplot import style
from kvplot.interval_marks import (
    COLOURS,
    LINES,
    Tables,
    dots,
    handles_of,
    line_of_intervals,
    name_rows,
    ratio_axis,
)

# Codecs of keys by their text in a label, and what takes their offset off.
KEY_CODECS = {
    "q4_0": ("q4_0", "#D55E00", "s"),
    "token": ("token, 4 bits", "#E69F00", "^"),
    "turboquant bits=4": ("TurboQuant, 4 bits", "#CC79A7", "v"),
    "q8_0": ("q8_0", "#0072B2", "o"),
    "kivi bits=4": ("KIVI, 4 bits", "#009E73", "D"),
    "kivi": ("KIVI, 2 bits", "#56B4E9", "P"),
}
REMEDIES = {
    "": "as they are",
    " centre=mean": "less the mean",
    " centre=mean rope=before": "less the mean, before RoPE",
}


def key_offset(tables: Tables) -> pyplot.Figure:
    """Error by layer of codecs of keys, and the norm of the offset that the keys share."""
    errors = tables.read("qwen/key_offset").set_index("label")
    offsets = tables.read("qwen/offsets").groupby("layer")["offset"].max()
    figure, axes = style.panels(1, len(REMEDIES), 2.5, sharey=True)
    for axis, (remedy, title) in zip(axes[0], REMEDIES.items()):
        for codec, (words, colour, marker) in KEY_CODECS.items():
            row = errors.loc[f"exact | K {_with_residual(codec)}{remedy} V float"]
            axis.plot(row.index.astype(int), row, marker=marker, color=colour, label=words)
        axis.plot(
            offsets.index, offsets / 100, ":", color="black", label="norm of the offset / 100"
        )
        axis.set_yscale("log")
        style.plain_log(axis.yaxis)
        axis.set_title(title)
    style.outer_labels(axes, "layer", "relative Frobenius error")
    handles, labels = axes[0][0].get_legend_handles_labels()
    style.legend_above(axes[0][0], dict(zip(labels, handles)))
    return figure


def _with_residual(codec: str) -> str:
    return f"{codec} residual=32" if codec.startswith("kivi") else codec


# Settings of the loop by their text in a label: words, colour.
IN_THE_MODEL = {
    "q8_0": ("q8_0", COLOURS[1]),
    "q8_0 centre=mean rope=before": ("q8_0, offset taken off", COLOURS[0]),
    "kivi bits=4 residual=32": ("KIVI, 4 bits", COLOURS[2]),
    "turboquant bits=4 scale=eden": ("TurboQuant, 4 bits, EDEN's scale", COLOURS[1]),
    "turboquant bits=4 scale=eden centre=mean rope=before": (
        "TurboQuant, offset taken off",
        COLOURS[0],
    ),
    "q4_0": ("q4_0", COLOURS[1]),
    "q4_0 rotate=hadamard": ("q4_0, Hadamard", COLOURS[3]),
    "q4_0 centre=mean rope=before": ("q4_0, offset taken off", COLOURS[0]),
    "kivi residual=32": ("KIVI, 2 bits", COLOURS[2]),
}


def key_offset_kl(tables: Tables) -> pyplot.Figure:
    """The model's KL divergence over codecs of keys: a dot per text, a line at their mean."""
    rows = tables.read("qwen/key_offset_kl").set_index("label")["kl.mean"]
    figure, axes = style.panels(1, 1, 2.6)
    axis = axes[0][0]
    for place, (codec, (_, colour)) in enumerate(IN_THE_MODEL.items()):
        own = rows[[f"exact | K {codec} V float"]]
        axis.plot(own, [place] * len(own), "o", color=colour, markersize=3.6, alpha=0.6)
        axis.plot(own.mean(), place, "|", color=colour, markersize=12)
    axis.set_xscale("log")
    style.plain_log(axis.xaxis)
    axis.set_xlabel("KL divergence of next tokens from the full cache, nats")
    name_rows(axis, [words for words, _ in IN_THE_MODEL.values()])
    return figure


# Lines of the figures of questions: a method's words, and its looks as above.
ASKED = {
    "snapkv": ("SnapKV", *LINES["snapkv"]),
    "tova": ("TOVA", *LINES["tova"]),
    "h2o": ("H2O", *LINES["h2o"]),
    "h2o with decay": ("H2O with decay", "#E69F00", "<", "-"),
    "expected_attention": ("expected attention", *LINES["expected_attention"]),
    "uniform": ("uniform sampling", *LINES["uniform"]),
    "streaming_llm": ("sinks and recent tokens", *LINES["streaming_llm"]),
    "quest": ("Quest (reads)", "#56B4E9", "*", "-"),
}
PROTOCOLS = {"seen": "question in the prompt", "unseen": "compressed before the question"}
APART = 12  # tokens by which methods of one distance are moved


def questions(tables: Tables) -> pyplot.Figure:
    """The model's answer and the kept evidence over the distance of the sentence, at a fifth of the
    memory, in both protocols."""
    rows = _distances(tables)
    values = {"rank": "rank of the right token", "kl": "KL divergence, nats",
              "held": "share of the sentence kept"}  # fmt: skip
    figure, axes = style.panels(len(values), 2, 6.2, sharex=True, sharey="row")
    for column, (protocol, title) in enumerate(PROTOCOLS.items()):
        own = rows[rows["protocol"] == protocol]
        lost = own[own["label"] == "without the sentence"]
        for axis, value in zip(axes[:, column], values):
            _over_distance(axis, own[own["asked"] == 0.2], value)
            if value != "held":
                axis.plot(lost["distance"], lost[value], ":", color="black",
                          label="full cache without the sentence")  # fmt: skip
        axes[0][column].set_title(title)
    axes[0][0].set_yscale("log")
    axes[0][0].set_ylim(0.8, 2e4)
    style.plain_log(axes[0][0].yaxis)
    return _asked(figure, axes, list(values.values()))


def error_over_distance(tables: Tables) -> pyplot.Figure:
    """Frobenius error over the distance of the sentence, in both protocols; a row per memory."""
    rows = _distances(tables)
    memories = {0.2: "a fifth", 0.5: "half"}
    figure, axes = style.panels(len(memories), 2, 4.6, sharex=True, sharey="row")
    for line, (asked, words) in zip(axes, memories.items()):
        for axis, (protocol, title) in zip(line, PROTOCOLS.items()):
            own = rows[(rows["protocol"] == protocol) & (rows["asked"] == asked)]
            _over_distance(axis, own, "error")
            axis.set_title(f"{title}, {words} of the memory")
        line[0].set_ylim(bottom=0.0)
    return _asked(figure, axes, "Frobenius error")


# Titles of panels, by the folder of their tables.
QUESTIONED = {
    "questions": "SmolLM2-135M, four distances",
    "questions/gemma": "Gemma 3 270M, two distances",
}


def questions_models(tables: Tables) -> pyplot.Figure:
    """KL of each method at a fifth of the memory in both protocols, a panel per model."""
    figure, axes = style.panels(1, len(QUESTIONED), 2.8, sharex=True, sharey=True)
    colours = dict(zip(PROTOCOLS, COLOURS))
    first = tables.read(f"{next(iter(QUESTIONED))}/methods")
    first = first[(first["protocol"] == "seen") & (first["asked"] == 0.2)]
    order = list(first.sort_values("kl")["label"])
    for axis, (folder, title) in zip(axes[0], QUESTIONED.items()):
        rows = tables.read(f"{folder}/methods").set_index("label")
        lost = rows[rows.index == "without the sentence"]["kl"]
        axis.axvline(lost.iloc[0], linestyle=":", color="black")
        rows = rows[rows["asked"] == 0.2]
        for shift, (protocol, colour) in zip((-0.14, 0.14), colours.items()):
            own = rows[rows["protocol"] == protocol].loc[order]
            dots(axis, own, "kl", [colour] * len(own), shift=shift)
        axis.set_title(title)
    name_rows(axes[0][0], [ASKED[name][0] if name in ASKED else name for name in order])
    figure.supxlabel("KL divergence, nats", fontsize="medium")
    style.legend_above(axes[0][0], handles_of({PROTOCOLS[each]: colours[each] for each in colours}))
    return figure


def _distances(tables: Tables) -> pandas.DataFrame:
    """Rows of the four distances that were asked together, and of the one that was asked later."""
    names = ("questions/distances", "questions/seven_tenths/distances")
    return pandas.concat(map(tables.read, names)).sort_values("distance")


def _over_distance(axis: Axes, rows: pandas.DataFrame, value: str) -> None:
    for place, (name, (words, colour, marker, dashes)) in enumerate(ASKED.items()):
        own = rows[rows["label"] == name]
        apart = own["distance"] + APART * (place - (len(ASKED) - 1) / 2)
        looks = {"color": colour, "marker": marker, "linestyle": dashes, "label": words}
        if f"{value}_low" in own:
            line_of_intervals(axis, apart, own, value, **looks, elinewidth=0.4)
        else:
            axis.plot(apart, own[value], linewidth=0.8, **looks)


def _asked(figure: pyplot.Figure, axes: Any, y: str | list[str]) -> pyplot.Figure:
    style.outer_labels(axes, "tokens from the sentence to the question", y)
    handles, labels = axes[0][0].get_legend_handles_labels()
    style.legend_above(axes[0][0], dict(zip(labels, handles)))
    return figure


# Models of a study by the folder of their tables: words, marker. Gemma has one KV head a layer.
MODELS = {"smollm2": ("SmolLM2-135M", "o"), "qwen2.5-coder-0.5b": ("Qwen2.5-Coder 0.5B", "D")}
GEMMA = {"gemma": ("Gemma 3 270M", "*")}


def _model_handles() -> dict[str, Any]:
    looks: dict[str, Any] = {"linestyle": "none", "color": "black", "fillstyle": "none"}
    return {
        words: pyplot.Line2D([], [], marker=marker, **looks) for words, marker in MODELS.values()
    }


# Kinds of a calibration, and variants of a choice by pages: (words, colour).
CALIBRATED = {"one": ("one other text", COLOURS[1]), "others": ("all other texts", COLOURS[0])}
PAGED = {
    (16, "head"): ("pages of 16 tokens", COLOURS[0]),
    (1, "layer"): ("same tokens in a layer", COLOURS[2]),
    (16, "layer"): ("both", COLOURS[1]),
}


def calibration(tables: Tables) -> pyplot.Figure:
    """Error with numbers of other texts over that with the prompt's own, a row of panels per model:
    by memory, and by layer at the middle one."""
    figure, axes = style.panels(len(MODELS), 2, 5.4)
    looks = handles_of(dict(CALIBRATED.values()))
    for (axis, of_layers), (model, (name, _)) in zip(axes, MODELS.items()):
        rows = tables.read(f"{model}/calibration")
        settings = rows[rows["kind"] == "one"][["method", "at"]]
        for shift, (kind, (_, colour)) in zip((-0.16, 0.16), CALIBRATED.items()):
            own = settings.merge(rows[rows["kind"] == kind], "left")  # a kind may lack a method
            dots(axis, own, "frobenius", [colour] * len(own), shift=shift)
        at = [f"{at:g} of the memory" if at < 1 else f"{at:g} tokens read" for at in settings["at"]]
        name_rows(axis, [f"{method}, {word}" for method, word in zip(settings["method"], at)])
        ratio_axis(axis)
        axis.set_title(name)
        looks |= _by_layer(of_layers, tables.read(f"{model}/calibration_layers"))
    axes[-1][0].set_xlabel("Frobenius error / the prompt's own")
    axes[-1][1].set_xlabel("layer, a fifth of the memory, one other text")
    style.legend_above(axes[0][0], looks)
    return figure


def _by_layer(axis: Axes, rows: pandas.DataFrame) -> dict[str, Any]:
    """Lines of the methods with numbers of one other text, and their handles."""
    rows = rows[(rows["kind"] == "one") & rows["at"].isin([0.2, 410])]
    names = sorted(rows["layer"].unique())
    for (method, own), colour, marker in zip(rows.groupby("method"), COLOURS[2:], "os^v"):
        places = [names.index(layer) for layer in own["layer"]]
        axis.plot(places, own["frobenius"], "-", color=colour, marker=marker, label=method)
    axis.set_xticks(range(len(names)), list(map(str, names)))
    axis.set_yscale("log")
    style.plain_log(axis.yaxis)
    axis.axhline(1.0, color="black", linewidth=0.8)
    handles, labels = axis.get_legend_handles_labels()
    return dict(zip(labels, handles))


def paging(tables: Tables) -> pyplot.Figure:
    """Error of whole pages and of shared choices over the free choice, by method and memory, a row
    of panels per model."""
    every = MODELS | GEMMA
    models = {name: tables.read(f"{model}/paging") for model, (name, _) in every.items()}
    budgets = sorted(next(iter(models.values()))["budget"].unique())
    figure, axes = style.panels(len(models), len(budgets), 6.2, sharex=True, sharey=True)
    for line, (name, rows) in zip(axes, models.items()):
        rows = rows[~rows["method"].str.contains(",")]
        for axis, budget in zip(line, budgets):
            held = rows[(rows["budget"] == budget) & (rows["page_score"] == "mean")]
            for shift, ((pages, same), (_, colour)) in zip((-0.22, 0.0, 0.22), PAGED.items()):
                own = held[(held["pages"] == pages) & (held["same_in"] == same)]
                dots(axis, own, "frobenius", [colour] * len(own), shift=shift)
            axis.set_title(f"{held['memory'].iloc[0]:.3g} of the memory")
            ratio_axis(axis)
        name_rows(line[0], sorted(held["method"].unique()))
        line[0].set_ylabel(name)
    figure.supxlabel("Frobenius error / that of the free choice", fontsize="medium")
    style.legend_above(axes[0][0], handles_of(dict(PAGED.values())))
    return figure


ANCHORS = pyplot.get_cmap("viridis")([each / 6 for each in range(6)])
# Settings of the figure of anchors: method, layers from anchor to anchor, heads; words and colour.
READ = {
    ("kascade", 2, "closest"): ("anchors every 2 layers", COLOURS[0]),
    ("kascade", 4, "closest"): ("anchors every 4 layers", COLOURS[0]),
    ("kascade", 8, "closest"): ("anchors every 8 layers", COLOURS[0]),
    ("kascade", 100, "closest"): ("layer 0 alone", COLOURS[0]),
    ("kascade", 4, "same"): ("every 4 layers, head of one number", COLOURS[2]),
    ("kascade", 4, "pooled"): ("every 4 layers, one choice a layer", COLOURS[2]),
    ("sparq", 0, "none"): ("SparQ, 16 channels", COLOURS[1]),
    ("quest", 0, "none"): ("Quest, pages of 16", COLOURS[1]),
    ("snapkv", 0, "none"): ("SnapKV (evicts)", COLOURS[3]),
}


def anchors(tables: Tables) -> pyplot.Figure:
    """Error of reading another layer's tokens over that of the layer's own best, of two models, and
    the overlap of the two sets over the layers between, of the first and of Gemma."""
    figure, axes = style.panels(1, 2, 3.0)
    axis, of_layers = axes[0]
    for shift, (model, (_, marker)) in zip((-0.16, 0.16), MODELS.items()):
        rows = tables.read(f"{model}/anchors")
        rows = rows[rows["at"] == 0.1].set_index(["method", "every", "match"])
        colours = [colour for _, colour in READ.values()]
        own = rows.loc[list(READ)].reset_index()
        dots(axis, own, "frobenius", colours, shift=shift, marker=marker)
    name_rows(axis, [words for words, _ in READ.values()])
    ratio_axis(axis, "Frobenius error / that of the layer's own best tokens")
    style.legend_above(axis, _model_handles())
    pairs = tables.read("smollm2/anchors_distance")
    for anchor, colour, marker in zip((0, 1, 4, 8, 16, 24), ANCHORS, "os^vDP"):
        each = pairs[pairs["anchor"] == anchor]
        of_layers.plot(each["layer"] - anchor, each["overlap"], "-", color=colour, marker=marker,
                       markersize=3, linewidth=0.8, label=f"layer {anchor}")  # fmt: skip
    for model, (name, marker) in GEMMA.items():
        each = tables.read(f"{model}/anchors_distance")
        of_layers.plot(each["layer"] - each["anchor"], each["overlap"], marker, color=COLOURS[1],
                       label=name)  # fmt: skip
    of_layers.axhline(0.1, linestyle=":", color="black", label="by chance")
    of_layers.set_title(MODELS["smollm2"][0])
    of_layers.set_xlabel("layers from the anchor to the reading layer")
    of_layers.set_ylabel("share of own best tokens that is read")
    of_layers.set_ylim(0.0, 1.0)
    of_layers.legend(title="anchor", ncols=2)
    return figure


# Pairs of the figure of masks: a rule, what it is compared with, and their words.
MASKED = {
    ("flexprefill", "xattention"): "FlexPrefill / XAttention",
    ("streaming_llm", "xattention"): "window, 64 sinks / XAttention",
    ("streaming_llm, 4 sinks", "xattention"): "window, 4 sinks / XAttention",
    ("streaming_llm", "flexprefill"): "window, 64 sinks / FlexPrefill",
    ("minference", "xattention"): "MInference / XAttention",
    ("minference", "flexprefill"): "MInference / FlexPrefill",
    ("streaming_llm", "minference"): "window, 64 sinks / MInference",
    ("xattention", "exact masses"): "XAttention / exact masses",
    ("flexprefill", "exact masses"): "FlexPrefill / exact masses",
    ("streaming_llm", "exact masses"): "window, 64 sinks / exact masses",
    ("minference", "exact masses"): "MInference / exact masses",
}


def prefill(tables: Tables) -> pyplot.Figure:
    """Error of a mask of the prompt over another's at equal fractions of the pairs; a panel per
    model."""
    figure, axes = style.panels(1, len(MODELS), 2.4, sharex=True, sharey=True)
    looks: dict[str, str] = {}
    for axis, (folder, (title, _)) in zip(axes[0], MODELS.items()):
        rows = tables.read(f"{folder}/prefill")
        rows = rows[(rows["equal"] == "head") & (rows["block"] == 128)]
        for shift, colour, (at, part) in zip((-0.16, 0.16), COLOURS, rows.groupby("at")):
            own = part.set_index(["method", "other"]).loc[list(MASKED)]
            dots(axis, own, "frobenius", [colour] * len(own), shift=shift)
            looks[f"{at:g} of the pairs"] = colour
        axis.set_title(title)
        ratio_axis(axis)
    name_rows(axes[0][0], list(MASKED.values()))
    figure.supxlabel("ratio of Frobenius errors", fontsize="medium")
    style.legend_above(axes[0][0], handles_of(looks))
    return figure


KL_ERRORS = {"replay": "replay", "live": "compressed\nmodel's own", "dense": "dense pass"}


def pieces(tables: Tables) -> pyplot.Figure:
    """KL of a prompt compressed while it is read over that of one read whole, KL in both ways, and
    rank correlations of errors with KL."""
    rows, errors = tables.read("smollm2/pieces"), tables.read("smollm2/pieces_errors")
    rows = rows.sort_values("kl_whole")
    errors = errors[errors["of"] == "all"].set_index("error").loc[list(KL_ERRORS)]
    figure, axes = style.panels(1, 3, 2.6)
    (ratio, both, agree), colour, place = axes[0], COLOURS[0], list(range(len(rows)))
    dots(ratio, rows, "kl", [colour] * len(rows))
    both.hlines(place, rows["kl_whole"], rows["kl_pieces"], color=colour, linewidth=0.8)
    both.plot(rows["kl_pieces"], place, "o", color=colour, markersize=4)
    both.plot(rows["kl_whole"], place, "o", color=colour, markerfacecolor="white", markersize=4)
    for way, shift, fill in (("whole", -0.08, "white"), ("in_pieces", 0.08, colour)):
        near = [each + shift for each in range(len(errors))]
        agree.hlines(near, errors[f"{way}_low"], errors[f"{way}_high"], color=colour, linewidth=1.0)
        agree.plot(errors[way], near, "o", color=colour, markerfacecolor=fill, markersize=4)
    name_rows(ratio, list(rows["method"]))
    name_rows(both, [""] * len(rows))
    name_rows(agree, list(KL_ERRORS.values()))
    ratio_axis(ratio, "KL in pieces / KL read whole")
    both.set_xscale("log")
    style.plain_log(both.xaxis)
    both.set_xlabel("KL in nats")
    agree.set_xlabel("rank correlation of error and KL")
    ways = {
        way: pyplot.Line2D([], [], linestyle="none", marker="o", color=colour, markerfacecolor=fill)
        for way, fill in (("read whole", "white"), ("in pieces", colour))
    }
    style.legend_above(ratio, ways)
    return figure
