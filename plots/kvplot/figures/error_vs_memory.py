"""Error against the fraction of the exact cache's memory, both logarithmic, one line per algorithm.

A line joins the points of an algorithm with one swept parameter; where several are swept every
setting is a faint point and the line is the frontier: the least error for at most that memory.
Bars are the standard deviation over seeds of the mean over units.
"""

import json
import textwrap
from pathlib import Path

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, LogLocator

from kvplot import style
from kvplot.results import UNIT, ResultsError, load_results, mean_over_units

# An error below this is exact to rounding and has no place on a logarithmic axis.
ROUNDING = 1e-9
AXIS_NAMES = {
    "errors.relative_l2.mean": r"relative error $\Vert z-a\Vert\,/\,\Vert a\Vert$, mean",
    "memory.fraction": "memory / memory of the exact cache",
}


def add_arguments(parser):
    parser.add_argument("--results", required=True, help="results.json of a run")
    parser.add_argument("--out", required=True, help="folder for the PNG, PDF, CSV and caption")
    parser.add_argument("--metric", default="errors.relative_l2.mean", help="path of the error")
    parser.add_argument("--layer", type=int, help="only this layer")
    parser.add_argument(
        "--panels", choices=["layer"],
        help="one panel per layer instead of the mean over all units; files error_vs_memory_by_layer",
    )
    parser.add_argument(
        "--no-caption", action="store_true", help="leave the caption to the paper (it is in .txt)"
    )


def draw(arguments):
    frame = load_results(arguments.results)
    if arguments.layer is not None:
        frame = frame[frame["layer"] == arguments.layer]
    metric, memory = arguments.metric, "memory.fraction"
    by = [arguments.panels] if arguments.panels else []
    points = mean_over_units(frame, [metric, memory], by)
    if metric not in points or points[metric].isna().all():
        raise ResultsError(f"{arguments.results}: no finished cell has {metric}")
    points["on_axis"] = points[metric] >= ROUNDING
    drawn = points[points["on_axis"]]
    if drawn.empty:
        raise ResultsError(f"{arguments.results}: every error is below {ROUNDING:g}")

    style.apply()
    panels = sorted(drawn[by[0]].unique()) if by else [None]
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(style.PAGE, 3.5), sharey=True, squeeze=False,
        layout="constrained",
    )
    handles = {}
    for axis, panel in zip(axes[0], panels):
        shown = drawn if panel is None else drawn[drawn[by[0]] == panel]
        _draw_panel(axis, shown, metric, memory, handles)
        if panel is not None:
            axis.set_title(f"{by[0]} {panel}")
    axes[0][len(panels) // 2].set_xlabel(AXIS_NAMES[memory])
    axes[0][0].set_ylabel(AXIS_NAMES.get(metric, metric))
    names = sorted(handles)
    axes[0][-1].legend([handles[name] for name in names], names, loc="upper left",
                       bbox_to_anchor=(1.02, 1.0), borderaxespad=0.0)
    caption = _caption(frame, points, metric, memory, by)
    if not arguments.no_caption:
        figure.supxlabel(textwrap.fill(caption, 135), fontsize=6.5, x=0.02, ha="left")

    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    name = "error_vs_memory" + "".join(f"_by_{column}" for column in by)
    paths = [out / f"{name}{ending}" for ending in (".png", ".pdf", ".csv", ".txt")]
    figure.savefig(paths[0])
    figure.savefig(paths[1], metadata={"CreationDate": None})
    pyplot.close(figure)
    points.sort_values([*by, "label", memory]).to_csv(paths[2], index=False)
    paths[3].write_text(caption + "\n", encoding="utf-8")
    return paths


def _draw_panel(axis, points, metric, memory, handles):
    shown = points["algorithm"].unique()
    for (label, algorithm), series in points.groupby(["label", "algorithm"]):
        colour, marker = style.look(algorithm, shown)
        series = series.sort_values([memory, metric])
        several = _swept(series) > 1
        line = _frontier(series, metric, memory) if several else series
        if several:
            axis.plot(series[memory], series[metric], linestyle="none", marker=marker,
                      color=colour, alpha=0.25, markeredgewidth=0)
        deviation = line[f"{metric}.std_over_seeds"].fillna(0.0)
        low = line[metric] - (line[metric] - deviation).clip(lower=line[metric] / 10)
        bars = [low, deviation] if deviation.any() else None
        # At fraction 1 every token is kept: a line there would suggest a choice of memory.
        joined = "none" if (line[memory] >= 1.0).all() else "-"
        handles[label] = axis.errorbar(
            line[memory], line[metric], yerr=bars, linestyle=joined, marker=marker, color=colour,
            elinewidth=0.7, capsize=1.5, markeredgecolor="white", markeredgewidth=0.4)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.axvline(1.0, color="black", linewidth=0.7, linestyle=":", zorder=0)
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        each.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        each.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def _swept(series):
    """How many parameters differ between the points of a series."""
    settings = [json.loads(point) for point in series["point"]]
    names = {name for setting in settings for name in setting}
    return sum(len({json.dumps(s.get(name)) for s in settings}) > 1 for name in names)


def _frontier(series, metric, memory):
    """The points with a smaller error than every point of less or equal memory."""
    return series[series[metric] < series[metric].cummin().shift(fill_value=float("inf"))]


def _caption(frame, points, metric, memory, by):
    ok = frame[frame["status"] == "ok"]
    units = ok[UNIT].drop_duplicates()
    counts = units.groupby(by).size().unique() if by else [len(units)]
    counted = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
    seeds = ok["seed"].dropna().nunique()
    text = [
        f"{metric} against {memory}: mean over {counted} units (sequence, layer, KV head)"
        f"{' per ' + by[0] if by else ''}, "
        f"{seeds} seeds for randomised algorithms; bars: standard deviation over seeds.",
    ]
    frontiers = [
        label for label, series in points[points["on_axis"]].groupby("label") if _swept(series) > 1
    ]
    if frontiers:
        text.append(f"{', '.join(frontiers)}: all settings faint, the line is the frontier.")
    exact = points[~points["on_axis"]].groupby("label")[metric].max()
    if len(exact):
        held = ", ".join(f"{label} ({error:.0e})" for label, error in exact.items())
        text.append(f"Exact to rounding and so below the axis: {held}.")
    whole = points[points["on_axis"]].groupby("label")[memory].min()
    whole = [label for label, least in whole.items() if least == 1.0]
    if whole:
        text.append(f"At memory 1, no token is ever dropped: {', '.join(whole)}.")
    for status in ("failed", "skipped"):
        left_out = frame[frame["status"] == status]
        if len(left_out):
            labels = ", ".join(sorted(set(left_out["label"].dropna())))
            text.append(f"Left out, {status}: {len(left_out)} of {len(frame)} cells ({labels}).")
    return " ".join(text)
