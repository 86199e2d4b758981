"""Which layer a model can least spare: KL divergence of next tokens with one layer compressed.

From a closed loop with --layers one-at-a-time; a line per setting, a panel per text. Bars are the
standard error of the mean over decoded rows, from means of blocks of consecutive rows.
"""

from argparse import Namespace
from typing import Any

import pandas

from kvplot import style
from kvplot.figure import Figure, capped
from kvplot.loop import setting_names
from kvplot.results import POINT, ResultsError

NEEDS = ("loop",)
KL = "kl.mean"
ROUNDING = 1e-9


def draw(inputs: Namespace) -> Figure:
    loop = inputs.loop
    loop.need(KL)
    single = loop.ok[loop.ok["layers"].map(len) == 1].copy()
    if single.empty:
        raise ResultsError(
            f"{loop.path}: no record compresses one layer alone; run data/closed_loop.py with "
            "--layers one-at-a-time"
        )
    single["layer"] = single["layers"].map(lambda layers: layers[0])
    single["setting"] = setting_names(single)
    columns = [KL, "kl.se"]
    single[columns] = single[columns].apply(pandas.to_numeric, errors="coerce")
    keys = ["sequence", "setting", *POINT, "layer"]
    table = single.groupby(keys, sort=False)[columns].mean().reset_index()
    drawn = table[table[KL] > ROUNDING]
    if drawn.empty:
        raise ResultsError(f"{loop.path}: every divergence is rounding")
    texts = list(dict.fromkeys(drawn["sequence"]))
    figure, axes = style.panels(1, len(texts), 3.0, sharey=True)
    handles: dict[str, Any] = {}
    for axis, text in zip(axes[0], texts):
        axis.set_yscale("log")
        _lines(axis, drawn[drawn["sequence"] == text], drawn, handles)
        if len(texts) > 1:
            axis.set_title(style.shortened(text))
        style.plain_log(axis.yaxis)
    style.outer_labels(axes, "compressed layer", "KL divergence of next tokens, nats")
    style.legend_right(axes[0][-1], handles)
    worst = drawn.loc[drawn.groupby(["sequence", "setting"], sort=False)[KL].idxmax()]
    most = ", ".join(
        f"{one.setting} in layer {one.layer}"
        for one in worst.itertuples()
        if one.sequence == texts[0]
    )
    return Figure(
        "kld_by_layer",
        figure,
        table,
        "Mean KL divergence, in nats, of next-token distributions from those over the full cache, "
        "with the cache of one layer compressed and all others whole; bars: standard error of the "
        f"mean over decoded rows, from blocks of consecutive ones. Largest, {texts[0]}: {most}. "
        f"{loop.facts()}",
    )


def _lines(
    axis: Any, own: pandas.DataFrame, drawn: pandas.DataFrame, handles: dict[str, Any]
) -> None:
    shown, looks = drawn["algorithm"].unique(), style.variants(drawn.assign(label=drawn["setting"]))
    for key, series in own.groupby(["setting", "algorithm"], sort=False):
        name, algorithm = map(str, key)
        colour, marker = style.look(algorithm, shown)
        dashes, filled = looks[name]
        series = series.sort_values("layer")
        handles[style.shortened(name)] = axis.errorbar(
            series["layer"],
            series[KL],
            yerr=capped(series["kl.se"].fillna(0.0), series[KL]),
            linestyle=dashes,
            marker=marker,
            color=colour,
            elinewidth=0.7,
            capsize=1.5,
            markerfacecolor=colour if filled else "white",
            markeredgecolor="white" if filled else colour,
            markeredgewidth=0.4,
        )
