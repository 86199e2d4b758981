"""Error along the stream: every scored row, per layer."""

from argparse import ArgumentParser, Namespace

from kvplot import style
from kvplot.figure import Figure, facts
from kvplot.results import UNIT, Results, undrawn

NEEDS = ("results",)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--span", type=int, default=9, help="rows of the running median; default 9")


def fits(results: Results) -> bool:
    rows = results.has_rows and results.rows("relative_l2", results.ok["id"].head(1))
    return rows is not False and rows["row"].nunique() >= 64 and results.ok["label"].nunique() <= 8


def draw(inputs: Namespace) -> Figure:
    results = inputs.results
    results.need("errors.relative_l2.mean")
    cells = results.ok[results.ok["algorithm"] != "exact"]
    rows = results.rows("relative_l2", cells["id"]).join(
        cells.set_index("id")[["label", "algorithm", "point", *UNIT]], on="id"
    )
    means = rows.groupby(["label", "algorithm", "point", *UNIT, "row"])["relative_l2"].mean()
    means = means.groupby(["label", "algorithm", "point", "layer", "row"]).mean().reset_index()
    layers = sorted(means["layer"].unique())
    figure, axes = style.panels(1, len(layers), 2.8)
    handles = {}
    looks = style.variants(means)
    for axis, layer in zip(axes[0], layers):
        axis.set_yscale("log")
        here = means[means["layer"] == layer]
        for (label, algorithm, _), series in here.groupby(["label", "algorithm", "point"]):
            series = series.sort_values("row")
            smooth = series["relative_l2"].rolling(inputs.span, center=True, min_periods=1).median()
            colour, marker = style.look(algorithm, means["algorithm"].unique())
            (handles[label],) = axis.plot(
                series["row"],
                smooth,
                color=colour,
                marker=marker,
                markevery=max(len(series) // 5, 1),
                markersize=3.5,
                linewidth=0.9,
                linestyle=looks[label][0],
            )
            means.loc[series.index, "shown"] = smooth
        style.plain_log(axis.yaxis)
        axis.set_title(f"layer {layer}")
    axes[0][0].set_ylabel(r"relative error $\Vert z-a\Vert\,/\,\Vert a\Vert$")
    axes[0][len(layers) // 2].set_xlabel("row (position in the stream)")
    style.legend_right(axes[0][-1], handles)
    return Figure(
        "position",
        figure,
        means,
        "relative_l2 of every scored row, mean over seeds, query heads and KV heads; "
        f"running median of {inputs.span} rows. {facts(results, by=['layer'])}"
        f"{undrawn(results.ok, cells, 'the reference')}",
    )
