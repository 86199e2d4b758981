"""Which layer a model can least spare: KL divergence of next tokens with one layer compressed.

From a closed loop with --layers one-at-a-time; a line per setting, a panel per text. Bars are the
standard error of the mean over decoded rows, from means of blocks of consecutive rows.
"""

from argparse import Namespace
from typing import Any

import pandas

from kvplot import style
from kvplot.curves import cut, labelled_lines
from kvplot.figure import Figure
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
    lines = drawn.assign(label=drawn["setting"])
    for axis, text in zip(axes[0], texts):
        axis.set_yscale("log")
        own = lines[lines["sequence"] == text]
        labelled_lines(axis, own, "layer", KL, handles, lines, "kl.se")
        if len(texts) > 1:
            axis.set_title(style.shortened(text))
        style.plain_log(axis.yaxis)
    style.outer_labels(axes, "compressed layer", "KL divergence of next tokens, nats")
    style.legend_right(axes[0][-1], handles, style.shortened)
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
        "mean over decoded rows, from blocks of consecutive ones"
        f"{cut(drawn[KL], drawn['kl.se'])}. Largest, {texts[0]}: {most}. "
        f"{loop.facts()}",
    )
