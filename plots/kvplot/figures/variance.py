"""Where the spread of errors comes from: components of variance of texts, layers, heads and seeds.

Components of logarithms of errors, and of their ratio to uniform sampling, of every method
in the setting nearest to a memory. Estimates are those of a balanced nested analysis of variance.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

import numpy
import pandas
from scipy import stats

from kvplot import style
from kvplot.curves import words
from kvplot.dump import Array
from kvplot.figure import Figure, facts
from kvplot.figures import ecdf
from kvplot.results import ROUNDING, UNIT, Results, ResultsError

NEEDS = ("results",)
NOT_DRAWN = "unfinished, exact to rounding in a KV head, or no setting near"
BY = tuple(UNIT)  # a method that lacks a field is left out
METRIC, MEMORY, REFERENCE = "errors.relative_l2.mean", "memory.fraction", "uniform"
AXES = ["text", "layer", "kv_head", "seed"]
# In the order of the drawing.
COMPONENTS = ("layer", "head", "text", "text x layer", "text x head", "seed")
COLOURS = ("#08306B", "#2171B5", "#A63603", "#E6550D", "#FDAE6B", "#969696")


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--memory",
        type=float,
        default=0.38,
        help="draw every method's setting with the memory nearest to this; default 0.38",
    )


def fits(results: Results) -> bool:
    return any(block.shape[0] > 1 for _, _, block in blocks(results, 0.38))


def components(logs: Array) -> dict[str, float]:
    """Variances of a balanced design [text, layer, head, seed]: texts crossed with layers, heads
    within layers, seeds within all. A component whose factor has one level is left out, and falls
    to the one around it. Negative estimates are kept.

    S. R. Searle, G. Casella, C. E. McCulloch, "Variance Components" (1992), chapter 4."""
    a, b, c, r = logs.shape
    head = logs.mean(axis=3)
    layer, both = head.mean(axis=2), head.mean(axis=0)
    text, across = layer.mean(axis=1), both.mean(axis=1)

    def mean_square(residuals: Array, repeated: int, freedom: int, within: float) -> float:
        return float(repeated * (residuals**2).sum() / freedom) if freedom else within

    # A mean square that does not exist is the one within it.
    seed = mean_square(logs - head[..., None], 1, a * b * c * (r - 1), 0.0)
    residuals = head - layer[:, :, None] - both + across[:, None]
    text_head = mean_square(residuals, r, (a - 1) * b * (c - 1), seed)
    residuals = layer - text[:, None] - across + text.mean()
    text_layer = mean_square(residuals, c * r, (a - 1) * (b - 1), text_head)
    texts = mean_square(text - text.mean(), b * c * r, a - 1, text_layer)
    heads = mean_square(both - across[:, None], a * r, b * (c - 1), text_head)
    layers = mean_square(across - across.mean(), a * c * r, b - 1, heads)
    found = {
        "layer": (b, (layers - heads - text_layer + text_head) / (a * c * r)),
        "head": (c, (heads - text_head) / (a * r)),
        "text": (a, (texts - text_layer) / (b * c * r)),
        "text x layer": (min(a, b), (text_layer - text_head) / (c * r)),
        "text x head": (min(a, c), (text_head - seed) / r),
        "seed": (r, seed),
    }
    return {name: value for name, (levels, value) in found.items() if levels > 1}


def half_width(found: dict[str, float], shape: tuple[int, ...], texts: int, seeds: int) -> float:
    """The 95 % interval over texts of the mean logarithm over these layers and heads."""
    _, b, c, _ = shape
    share = {"text": 1, "text x layer": b, "text x head": b * c, "seed": b * c * seeds}
    variance = sum(max(found.get(name, 0.0), 0.0) / count for name, count in share.items())
    return float(stats.t.ppf(0.975, texts - 1) * numpy.sqrt(variance / texts))


def blocks(results: Results, memory: float) -> list[tuple[str, float, Array]]:
    """(label, memory, logs [text, layer, head, seed]) per method, with one seed if it has none,
    then their ratios to REFERENCE; only methods with a finished cell, not exact to rounding, in
    every field."""
    points = ecdf.at_memory(results, memory, tolerance=1.1)
    cells = results.ok.merge(points[["label", "point"]], on=["label", "point"])
    cells["seed"] = cells["seed"].fillna(-1)
    cells["text"] = cells["dump"].astype(str) + "/" + cells["sequence"].astype(str)
    found = []
    held = points.set_index("label")[MEMORY]
    fields = [sorted(cells[name].unique()) for name in AXES[:-1]]
    for label, own in cells.groupby("label", sort=False):
        index = [*fields, sorted(own[AXES[-1]].unique())]
        series = own.set_index(AXES)[METRIC]
        if series.index.has_duplicates or len(series) != numpy.prod([len(i) for i in index]):
            continue
        values = series.reindex(pandas.MultiIndex.from_product(index)).to_numpy(dtype=float)
        if (values <= ROUNDING).any():  # their logarithms are noise
            continue
        found.append((str(label), held[label], numpy.log(values.reshape([len(i) for i in index]))))
    base = next((block for label, _, block in found if label == REFERENCE), None)
    if base is not None:
        found += [
            (f"{label} / {REFERENCE}", share, block - base)
            for label, share, block in list(found)
            if label != REFERENCE and block.shape[:3] == base.shape[:3]
        ]
    return found


def rows_of(label: str, memory: float, logs: Array) -> list[dict[str, Any]]:
    whole = components(logs)
    total = sum(max(value, 0.0) for value in whole.values())
    texts = logs.shape[0]
    # Delete-one-text jackknife of standard deviations.
    without = (
        [components(numpy.delete(logs, at, axis=0)) for at in range(texts)] if texts > 2 else []
    )
    rows = []
    for name in COMPONENTS:
        if name not in whole:
            continue
        sd = numpy.sqrt(max(whole[name], 0.0))
        half = numpy.nan
        if without:
            left = numpy.array([numpy.sqrt(max(each[name], 0.0)) for each in without])
            error = numpy.sqrt((texts - 1) / texts * ((left - left.mean()) ** 2).sum())
            half = stats.t.ppf(0.975, texts - 1) * error
        rows.append(
            {
                "panel": "components",
                "label": label,
                MEMORY: memory,
                "component": name,
                "share": max(whole[name], 0.0) / total,
                "sd": sd,
                "sd_low": max(sd - half, 0.0),
                "sd_high": sd + half,
            }
        )
    if texts > 1:
        rows += [
            {
                "panel": "interval",
                "label": label,
                "texts": count,
                "seeds": seeds,
                "factor": numpy.exp(half_width(whole, logs.shape, count, seeds)),
            }
            for count in (3, 10, 30, 100)
            for seeds in (1, 10)
        ]
    return rows


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need(METRIC, MEMORY)
    found = blocks(results, inputs.memory)
    if not found:
        raise ResultsError(
            f"{results.path}: no method near memory {inputs.memory:g} has a finished cell for "
            "every text, layer, head and seed"
        )
    table = pandas.DataFrame([row for one in found for row in rows_of(*one)])
    parts = table[table["panel"] == "components"]
    labels = [label for label, *_ in found]
    figure, axes = style.panels(1, 1, 1.0 + 0.18 * len(labels))
    axis = axes[0][0]
    handles: dict[str, Any] = {}
    start = dict.fromkeys(labels, 0.0)
    for name, colour in zip(COMPONENTS, COLOURS):
        for _, row in parts[parts["component"] == name].iterrows():
            place = labels.index(row["label"])
            handles[name] = axis.barh(
                place, row["share"], left=start[row["label"]], color=colour, height=0.7
            )
            start[row["label"]] += row["share"]
    axis.set_yticks(range(len(labels)), labels, fontsize=7)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of the variance of a single cell's log error")
    style.legend_above(axis, handles)
    texts = max(block.shape[0] for *_, block in found)
    one = "" if texts > 1 else " One text: what differs between texts is in the other components."
    drawn = {label.removesuffix(f" / {REFERENCE}") for label in labels}
    left = sorted(set(results.ok["label"]) - drawn)
    return Figure(
        "variance",
        figure,
        table,
        f"{words(METRIC)}: variance components of its logarithm, at memory {inputs.memory:g}, "
        "and of its ratio to that of uniform sampling in the same unit, seed by seed; "
        f"negative estimates are drawn as 0.{one} {facts(results)}"
        + (f" Not drawn, {NOT_DRAWN}: {', '.join(left)}." if left else ""),
    )
