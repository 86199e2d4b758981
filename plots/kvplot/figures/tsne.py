"""SubGen and ClusterGen Fig. 1: t-SNE of a head's keys (above) and values (below), with k-centers.

Centres are chosen by greedy farthest-first from the oldest token, in all dimensions, not the plane.
"""

from argparse import ArgumentParser, Namespace

import numpy
import pandas

from kvplot import style
from kvplot.dump import Array
from kvplot.figure import Figure
from kvplot.results import ResultsError

NEEDS = ("dump",)
# Where its start, scaled in single precision, is 0 or infinite, scikit-learn's t-SNE crashes.
SPREAD = (1e-15, 1e15)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--sequence", help="default: the first")
    parser.add_argument("--layers", type=int, nargs="+", help="default: all, at most 5 evenly")
    parser.add_argument("--kv-head", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=1024, help="the first N tokens; default 1024")
    parser.add_argument("--centers", type=int, default=16)
    parser.add_argument("--perplexity", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)


def farthest_first(points: Array, count: int) -> list[int]:
    """Indices of `count` greedy centres, the first point first; ties go to the lower index."""
    chosen = [0]
    nearest = numpy.linalg.norm(points - points[0], axis=1)
    while len(chosen) < min(count, len(points)):
        nearest[chosen] = -1.0
        chosen.append(int(numpy.argmax(nearest)))
        nearest = numpy.minimum(nearest, numpy.linalg.norm(points - points[chosen[-1]], axis=1))
    return chosen


def draw(inputs: Namespace) -> Figure:
    try:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise ModuleNotFoundError("t-SNE needs scikit-learn (Debian: python3-sklearn)") from error
    dump = (
        inputs.dump
        if inputs.sequence is None
        else type(inputs.dump)(inputs.dump.path, inputs.sequence)
    )
    count = min(inputs.tokens, dump.tokens)
    for wrong, words in (
        (
            not 0 < inputs.perplexity < count,
            f"--perplexity {inputs.perplexity:g}: expected above 0 "
            f"and less than the {count} tokens",
        ),
        (inputs.centers < 1, f"--centers {inputs.centers}: expected at least 1"),
        (not 0 <= inputs.seed < 2**32, f"--seed {inputs.seed}: expected 0 to 4294967295"),
    ):
        if wrong:
            raise ResultsError(f"{dump.path}: {words}")
    layers = inputs.layers or [
        dump.layers[place]
        for place in sorted({round(x) for x in numpy.linspace(0, len(dump.layers) - 1, 5)})
    ]
    for layer in layers:
        dump.check_head(layer, inputs.kv_head)
    figure, axes = style.panels(2, len(layers), 0.9 + 2 * style.PAGE / max(len(layers), 3))
    tables = []
    for row, name, words in zip(axes, "kv", ("keys", "values")):
        for axis, layer in zip(row, layers):
            points = dump.head(layer, name, inputs.kv_head)[:count]
            spread = float(numpy.abs(points - points.mean(axis=0)).max())
            if not SPREAD[0] <= spread <= SPREAD[1]:
                raise ResultsError(
                    f"{dump.path}: layer {layer}: {words} are at most {spread:g} from their mean; "
                    f"t-SNE places what is {SPREAD[0]:g} to {SPREAD[1]:g} from it"
                )
            with threadpool_limits(1):  # more are slower on a machine that has other work
                plane = TSNE(
                    perplexity=inputs.perplexity,
                    random_state=inputs.seed,
                    init="pca",
                    learning_rate="auto",
                ).fit_transform(points)
            centers = farthest_first(points, inputs.centers)
            shown = axis.scatter(
                *plane.T,
                c=numpy.arange(count),
                s=2,
                cmap="Greys",
                vmin=-count / 2,
                linewidths=0,
                rasterized=True,
            )
            axis.scatter(
                *plane[centers].T, s=22, color="#009E73", edgecolors="black", linewidths=0.5
            )
            axis.set_xticks([])
            axis.set_yticks([])
            axis.grid(False)
            if name == "k":
                axis.set_title(f"layer {layer}")
            tables.append(
                pandas.DataFrame(
                    {
                        "layer": layer,
                        "of": words,
                        "token": numpy.arange(count),
                        "x": plane[:, 0],
                        "y": plane[:, 1],
                        "center": numpy.isin(numpy.arange(count), centers),
                    }
                )
            )
        row[0].set_ylabel(words)
    bar = figure.colorbar(shown, ax=axes, shrink=0.5, pad=0.01)
    bar.set_label("token")
    bar.ax.set_ylim(0, count)
    return Figure(
        "tsne",
        figure,
        pandas.concat(tables),
        f"t-SNE (scikit-learn, perplexity {inputs.perplexity:g}, PCA start, seed "
        f"{inputs.seed}) of the keys after rotation and of the values of KV head "
        f"{inputs.kv_head}, first {count} tokens of {dump.model} on {dump.sequence}; grey: "
        f"position; green: {inputs.centers} greedy k-centers in all dimensions. Distances "
        "between clusters in the plane mean nothing.",
    )
