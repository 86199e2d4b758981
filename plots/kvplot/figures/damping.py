"""Keyformer Fig. 5 as attention error: damped accumulated scores, over the factor alpha."""

from argparse import Namespace

import numpy
import pandas

from kvplot import style
from kvplot.curves import NAMES, bars, by_layer, line, words
from kvplot.figure import Figure, facts
from kvplot.statistics import standard_error

NEEDS = ("results",)
BY = ("layer",)
METRIC = "errors.relative_l2.mean"


def _worse(damped: pandas.DataFrame) -> str:
    """The settings in which damping old scores costs most over none, for the caption."""
    old = damped[damped["params.damping_form"] == "old"]
    errors = old.pivot_table(index="layer", columns="params.damping", values=METRIC)
    if 1.0 not in errors or errors.shape[1] < 2:
        return ""
    over = errors.drop(columns=1.0).div(errors[1.0], axis=0).to_numpy()
    layer, alpha = divmod(int(numpy.nanargmax(over)), over.shape[1])
    if not over[layer, alpha] > 1.0:
        return ""
    at = errors.drop(columns=1.0).columns[alpha]
    return f", but at alpha {at:g} it rises in layer {errors.index[layer]}"


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("params.damping", METRIC)
    table = by_layer(results.ok, [METRIC, "memory.fraction"])
    damped = table[table["params.damping"].notna()].copy()
    alphas = sorted(damped["params.damping"].unique())
    damped["place"] = damped["params.damping"].map(alphas.index)
    layers = sorted(table["layer"].unique())
    figure, axes = style.panels(1, len(layers), 2.5, sharex=True)
    for axis, layer in zip(axes[0], layers):
        here = damped[damped["layer"] == layer]
        colour, marker = style.look("keyformer")
        handles = {}
        axis.set_yscale("log")
        for form, formula, dashes, face in (
            ("old", r"$f \leftarrow \alpha f + s$", "-", colour),
            ("new", r"$f \leftarrow f + \alpha s$", "--", "white"),
        ):
            handles[formula] = line(
                axis,
                here[here["params.damping_form"] == form],
                "place",
                METRIC,
                colour,
                marker,
                linestyle=dashes,
                markerfacecolor=face,
                edge=colour,
            )
        rest = table[(table["layer"] == layer) & (table["algorithm"] == "key_attention")]
        for value in rest[METRIC]:
            handles["no recent tokens, undamped"] = axis.axhline(
                value, color=style.look("key_attention")[0], linestyle=":"
            )
        style.plain_log(axis.yaxis)
        axis.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas], rotation=60)
        axis.set_title(f"layer {layer}")
    style.outer_labels(axes, r"damping factor $\alpha$", NAMES[METRIC])
    style.legend_right(axes[0][-1], handles)
    flat = damped[damped["params.damping_form"] == "new"].groupby("layer")[METRIC]
    spread = numpy.nanmax(flat.max() - flat.min())
    over_seeds = standard_error(damped, METRIC).fillna(0.0).any()
    budgets = ", ".join(f"{value:g}" for value in sorted(damped["params.budget"].unique()))
    return Figure(
        "damping",
        figure,
        damped,
        f"{words(METRIC)}, against the damping factor, in uneven steps; Keyformer's rule without "
        "noise at tau 1, "
        f"budget {budgets} of the prompt; {bars(damped, METRIC) + '; ' if over_seeds else ''}full "
        "attention has error 0. Where old scores are damped (filled) the error falls in most "
        f"layers{_worse(damped)}. "
        f"Largest difference within the second form: {spread:.1g}. {facts(results, by=['layer'])}",
    )
