"""SubGen eq. 6 and 5: RMS error of numerator and normalizer over s and t, and the exact prediction.

The prediction is the square root of the estimators' exact variance, no fit.
"""

from argparse import Namespace

import numpy
import pandas

from kvplot import style
from kvplot.curves import cut
from kvplot.figure import Figure, capped, facts
from kvplot.results import Results, ResultsError

NEEDS = ("results",)
BY = ("layer",)
SIDES = (("numerator", "s", "slots s"), ("normalizer", "t", "samples per cluster t"))


def rms(results: Results) -> pandas.DataFrame:
    """Measured and predicted RMS error per layer, label, size: over rows, heads, seeds, units; and
    the standard error over seeds of the measured one, NaN with a single seed."""
    cells = results.ok[results.ok["algorithm"] == "subgen"]
    tables = []
    for side, size, _ in SIDES:
        here = cells[cells[f"params.{side}"] == "sampled"]
        # Settings that vary only this side's size, so that every line is one setting.
        here = here[here.groupby("label")[f"params.{size}"].transform("nunique") > 1]
        if here.empty:
            continue
        rows = results.rows(f"{side}_error", here["id"])
        square = (rows[f"{side}_error"] ** 2).groupby(rows["id"]).mean().rename("measured")
        here = here.join(square, on="id")
        here["predicted"] = here[f"derived.predicted_rmse_{side}"] ** 2
        setting = ["layer", "label", f"params.{size}"]
        mean = here.groupby(setting)[["measured", "predicted"]].mean().apply(numpy.sqrt)
        of_seeds = here.groupby([*setting, "seed"])["measured"].mean()
        # The error of a root is that of the mean square over twice the root.
        mean["standard_error"] = of_seeds.groupby(setting).sem() / (2 * mean["measured"])
        mean = mean.reset_index().rename(columns={f"params.{size}": "size"})
        # Labels that differ in the other side alone have the same draws and so the same errors.
        mean = mean.drop_duplicates(["layer", "size", "measured"])
        tables.append(mean.assign(side=side))
    if not tables:
        raise ResultsError(f"{results.path}: no subgen cells that vary s or t")
    return pandas.concat(tables, ignore_index=True)


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("derived.predicted_rmse_numerator")
    table = rms(results)
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(1, 2, 2.9)
    markers = dict(zip(dict.fromkeys(table["label"]), "osD^v"))
    handles = {}
    for axis, (side, _, words) in zip(axes[0], SIDES):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        for layer, colour in zip(layers, style.ordered(len(layers))):
            for label, marker in markers.items():
                here = table[
                    (table["side"] == side) & (table["label"] == label) & (table["layer"] == layer)
                ]
                if here.empty:
                    continue
                axis.plot(here["size"], here["predicted"], color=colour, linewidth=0.9)
                seeds = here["standard_error"].notna().any()
                axis.errorbar(
                    here["size"],
                    here["measured"],
                    yerr=capped(here["standard_error"], here["measured"]) if seeds else None,
                    color=colour,
                    marker=marker,
                    linestyle="none",
                    markeredgecolor="white",
                    markeredgewidth=0.4,
                    elinewidth=0.7,
                    capsize=1.5,
                )
        style.plain_log(axis.yaxis)
        axis.set_xlabel(words)
        axis.set_ylabel(f"RMS {side} error")
    for layer, colour in zip(layers, style.ordered(len(layers))):
        handles[f"layer {layer}"] = style.pyplot.Line2D([], [], color=colour)
    for label, marker in markers.items():
        handles[label] = style.pyplot.Line2D([], [], color="grey", marker=marker, linestyle="none")
    style.legend_right(axes[0][-1], handles)
    table["ratio"] = table["measured"] / table["predicted"]
    spans = "; ".join(
        f"{side} {part.min():.2f} to {part.max():.2f}, median {part.median():.2f}"
        for side, part in table.groupby("side", sort=False)["ratio"]
    )
    return Figure(
        "subgen_attribution",
        figure,
        table,
        "Errors of eq. 6 (left) and eq. 5 (right): root mean square over rows, query "
        "heads, seeds and KV heads; lines: exact prediction, no fit; bars: standard error over "
        f"seeds{cut(table['measured'], table['standard_error'])}. Measured / "
        f"predicted: {spans}. {facts(results, by=['layer'])}",
    )
