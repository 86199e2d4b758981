"""Which metric of attention ranks settings as the model does.

Spearman's rank correlation of each metric with the KL divergence of next tokens: over all settings
of a text, and among settings of one budget (the mean over budgets). Texts are the units; the table
also has every budget alone, and the difference to the mean relative error, paired by text.
`--target perplexity.ratio` ranks by the compressed model's perplexity over the full one's instead.
"""

import json
from argparse import ArgumentParser, Namespace

import numpy
import pandas

from kvplot import style
from kvplot.figure import Figure
from kvplot.figures.error_vs_kld import KL, ROUNDING, means, of_labels
from kvplot.loop import Loop
from kvplot.results import ResultsError
from kvplot.statistics import mean_interval

NEEDS = ("loop",)
BASELINE = "errors.relative_l2.mean"
# Metric, its name on the axis, and 1 if it grows with the error or -1.
METRICS = (
    (BASELINE, "relative error, mean", 1),
    ("errors.relative_l2.median", "relative error, median", 1),
    ("errors.relative_l2.p99", "relative error, 99th percentile", 1),
    ("errors.relative_l1.mean", "relative error, 1-norm", 1),
    ("errors.relative_frobenius_error", "Frobenius norm over rows", 1),
    ("errors.relative_spectral_error", "spectral norm over rows", 1),
    ("errors.epsilon_spectral.mean", "epsilon of the spectral bound", 1),
    ("errors.cosine_distance.mean", "cosine distance", 1),
    ("errors.kl_divergence.mean", "KL divergence of rows", 1),
    ("outputs.relative_output_l2.mean", r"relative error after $W_O$", 1),
    ("outputs.residual_ratio.mean", r"error after $W_O$ / residual stream", 1),
    ("outputs.residual_ratio.p99", r"error after $W_O$ / residual stream, p99", 1),
    ("mass.kept.mean", "attention mass that is not kept", -1),
    ("memory.fraction", "memory that is not held", -1),
)
TARGETS = {
    KL: "the mean KL divergence of next-token distributions from those over the full cache",
    "perplexity.ratio": "the perplexity over that of the full cache",
}
PANELS = {"all": "all settings", "budget": "settings of one memory"}
# Ranks of fewer settings say nothing.
MIN_SETTINGS = 3


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--only", nargs="+", metavar="LABEL", help="take these methods alone (default: all)"
    )
    parser.add_argument(
        "--memories",
        nargs="+",
        type=float,
        metavar="F",
        help="take settings of these fractions of the memory alone (default: all)",
    )

    parser.add_argument("--target", choices=list(TARGETS), default=KL, help=f"default {KL}")


def of_memories(table: pandas.DataFrame, memories: list[float] | None) -> pandas.DataFrame:
    """The settings whose budget is {"memory": F} with one of these F, all where none are given."""
    if not memories:
        return table
    asked = table["point"].map(asked_memory)
    there = sorted({each for each in asked if each is not None})
    for memory in memories:
        if memory not in there:
            raise ResultsError(
                f"--memories: no budget of memory {memory:g}; there are "
                f"{', '.join(f'{each:g}' for each in there) or 'none'}"
            )
    return table[asked.isin(memories)]


def asked_memory(point: str) -> float | None:
    """The part of the exact cache that a setting's budget asks for; None if it asks for tokens."""
    budget = json.loads(point).get("budget")
    return budget.get("memory") if isinstance(budget, dict) else None


def budget_of(point: str) -> str:
    """A setting's budget, as JSON; "null" if it has none."""
    return json.dumps(json.loads(point).get("budget"), sort_keys=True)


def rank_correlation(own: pandas.DataFrame, metric: str, target: str) -> float:
    """NaN where either is constant, or there are fewer than MIN_SETTINGS settings."""
    if len(own) < MIN_SETTINGS or own[metric].nunique() < 2 or own[target].nunique() < 2:
        return float("nan")
    return float(own[metric].corr(own[target], method="spearman"))


def by_text(
    loop: Loop, only: list[str] | None = None, memories: list[float] | None = None, target: str = KL
) -> pandas.DataFrame:
    """rho of every metric per text, over the settings that all metrics are known of."""
    known = [each for each in METRICS if each[0] in loop.ok and loop.ok[each[0]].notna().any()]
    columns = [metric for metric, _, _ in known]
    table = means(loop, columns[0])[["sequence", "label", "algorithm", "point", KL]].copy()
    for metric in dict.fromkeys([*columns, target]):
        table[metric] = means(loop, metric)[metric].to_numpy()
    table = table[(table[KL] > ROUNDING) & table[[*columns, target]].notna().all(axis=1)]
    table = of_memories(of_labels(table, only), memories).copy()
    table["budget"] = table["point"].map(budget_of)
    rows = []
    for text, own in table.groupby("sequence", sort=False):
        for metric, _, sign in known:
            signed = own.assign(**{metric: sign * own[metric]})
            within = {
                f"budget {budget}": rank_correlation(group, metric, target)
                for budget, group in signed.groupby("budget")
            }
            finite = [rho for rho in within.values() if numpy.isfinite(rho)]
            for over, rho in (
                ("all", rank_correlation(signed, metric, target)),
                ("budget", numpy.mean(finite) if finite else numpy.nan),
                *within.items(),
            ):
                rows.append({"over": over, "metric": metric, "sequence": text, "rho": rho})
    found = pandas.DataFrame(rows, columns=["over", "metric", "sequence", "rho"]).dropna()
    baseline = found[found["metric"] == BASELINE].set_index(["over", "sequence"])["rho"]
    places = pandas.MultiIndex.from_frame(found[["over", "sequence"]])
    found["gain"] = found["rho"] - baseline.reindex(places).to_numpy()
    return found


def intervals(texts: pandas.DataFrame) -> pandas.DataFrame:
    """Per panel and metric: mean over texts of rho and of its gain, each with its 95 % interval."""
    rows = []
    for (over, metric), own in texts.groupby(["over", "metric"], sort=False):
        units = own.assign(dump="", layer=0, kv_head=0)
        row = {"over": over, "metric": metric, "texts": len(own)}
        for name in ("rho", "gain"):
            interval = mean_interval(units, name, signed=True)
            row |= {name: own[name].mean(), f"{name}_low": interval.low,
                    f"{name}_high": interval.high}  # fmt: skip
        rows.append({**row, "texts_ahead": int((own["gain"] > 0).sum())})
    return pandas.DataFrame(rows)


def draw(inputs: Namespace) -> Figure:
    loop = inputs.loop
    loop.need(BASELINE, KL)
    texts = by_text(loop, inputs.only, inputs.memories, inputs.target)
    if texts.empty:
        raise ResultsError(
            f"{loop.path}: no text has {MIN_SETTINGS} settings with a divergence above rounding"
        )
    table = intervals(texts)
    panels = [name for name in PANELS if name in set(table["over"])]
    names = [each for each in METRICS if each[0] in set(table["metric"])]
    figure, axes = style.panels(1, len(panels), 0.8 + 0.2 * len(names), sharex=True, sharey=True)
    for axis, panel in zip(axes[0], panels):
        own = table[table["over"] == panel].set_index("metric")
        for place, (metric, _, _) in enumerate(names):
            if metric not in own.index:
                continue
            row = own.loc[metric]
            axis.plot([row["rho_low"], row["rho_high"]], [place, place], color=style.KEYS)
            axis.plot(row["rho"], place, "o", color=style.KEYS, markersize=4)
            each = texts[(texts["over"] == panel) & (texts["metric"] == metric)]
            axis.plot(each["rho"], [place] * len(each), "|", color=style.KEYS, alpha=0.6)
        axis.set_title(PANELS[panel])
        axis.set_yticks(range(len(names)), [name for _, name, _ in names])
        axis.set_ylim(len(names) - 0.5, -0.5)
    named = "KL divergence" if inputs.target == KL else "the perplexity ratio"
    style.outer_labels(axes, f"Spearman's rank correlation with {named}", "")
    count = texts["sequence"].nunique()
    bars = f"; line: 95 % interval of the mean, Student's t over {count} texts" if count > 1 else ""
    among = f" among {', '.join(inputs.only)}" if inputs.only else ""
    if inputs.memories:
        among += f" at {', '.join(f'{each:g}' for each in inputs.memories)} of the memory"
    best = table[table["over"] == "all"].sort_values("rho").iloc[-1]
    word = {metric: name for metric, name, _ in METRICS}[best["metric"]].replace("$", "")
    return Figure(
        "rank_agreement",
        figure,
        table.merge(texts, on=["over", "metric"], suffixes=("", "_of_text")),
        "Spearman's rank correlation of metrics of attention, averaged over layers and KV heads, "
        f"with {TARGETS[inputs.target]}, over all settings of a text{among}, and among those of "
        "one memory (mean over memories). "
        f"Point: mean over texts; ticks: texts{bars}. Largest over all settings: {word}, "
        f"{best['rho']:.2f}. {loop.facts()}",
    )
