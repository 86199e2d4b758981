"""Pictures of plots/FINDINGS.md: the model over a compressed cache."""

from matplotlib import pyplot

from kvplot import style
from kvplot.interval_marks import (
    COLOURS,
    LINES,
    RANKED,
    Tables,
    dots,
    handles_of,
    line_of_intervals,
    name_rows,
    ratio_axis,
)
from kvplot.results import HEADLINE

RATIO = "perplexity.ratio"

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
        if name in (HEADLINE, "errors.relative_l2.mean")
    } | {"memory.fraction": "memory alone"}
    for shift, (colour, folder) in zip((-0.14, 0.14), looks.values()):
        rows = tables.read(f"{folder}/others").set_index("metric").loc[list(shown)]
        dots(axes[0][0], rows, "rho", [colour] * len(rows), shift=shift)
    name_rows(axes[0][0], list(shown.values()))
    axes[0][0].set_xlabel("rank correlation with the model's KL divergence")
    style.legend_above(axes[0][0], handles_of({name: look[0] for name, look in looks.items()}))
    return figure


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
