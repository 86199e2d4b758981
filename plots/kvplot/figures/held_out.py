"""Does the metric that ranks best on some texts rank best on others: a held-out test.

For each budget the metric with the highest mean rank correlation is chosen on one half of the
texts, in the order of the file, and tried on the other half; then the other way round. The table
has it next to metrics that were named beforehand, its gain over the Frobenius error, paired by
text, and the part of all halves of the texts that would have chosen the same metric.
"""

from argparse import Namespace
from itertools import combinations

import pandas

from kvplot import style
from kvplot.figure import Figure
from kvplot.figures import rank_agreement
from kvplot.figures.rank_agreement import BASELINE, METRICS, TARGETS
from kvplot.results import HEADLINE, ResultsError
from kvplot.statistics import mean_interval

NEEDS = ("loop",)
NAMED = (HEADLINE, "errors.relative_spectral_error", BASELINE)
CHOSEN = "chosen"
MIN_TEXTS = 4
WORDS = {name: words for name, words, _ in METRICS}
add_options = rank_agreement.add_options


def held_out(texts: pandas.DataFrame) -> pandas.DataFrame:
    """Per `over` and half rows of CHOSEN and NAMED, from rho per `over`, `metric` and `sequence`:
    the mean of rho over the other half, its interval and its gain over the Frobenius error there.
    The half "both" has the texts of both tests. `metric` is the chosen one, `same` the part of all
    halves that choose it."""
    rows = []
    for over, own in texts.groupby("over", sort=False):
        rho = own.pivot(index="sequence", columns="metric", values="rho").dropna(axis="columns")
        rho = rho.loc[list(dict.fromkeys(own["sequence"]))]
        half = len(rho) // 2
        if len(rho) < MIN_TEXTS or HEADLINE not in rho:
            continue
        every = [
            rho.iloc[list(some)].mean().idxmax() for some in combinations(range(len(rho)), half)
        ]
        tests = []
        for name, some, rest in (
            ("first", rho.iloc[:half], rho.iloc[half:]),
            ("second", rho.iloc[half:], rho.iloc[:half]),
        ):
            best = str(some.mean().idxmax())
            test = rest[[each for each in NAMED if each in rest]].assign(**{CHOSEN: rest[best]})
            tests.append(test)
            rows += _rows(test, over, name, best, every.count(best) / len(every))
        rows += _rows(pandas.concat(tests), over, "both", "", float("nan"))
    return pandas.DataFrame(rows)


def _rows(
    test: pandas.DataFrame, over: object, half: str, best: str, same: float
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name in (CHOSEN, *(each for each in NAMED if each in test)):
        row = {"over": over, "chosen_on": half, "which": name, "metric": best or name}
        row |= {"texts": len(test), "same": same if name == CHOSEN else float("nan")}
        units = pandas.DataFrame(
            {"rho": test[name], "gain": test[name] - test[HEADLINE]}
        ).rename_axis("sequence")
        units = units.reset_index().assign(dump="", layer=0, kv_head=0)
        for column in ("rho", "gain"):
            interval = mean_interval(units, column, signed=True)
            row |= {column: units[column].mean(), f"{column}_low": interval.low,
                    f"{column}_high": interval.high}  # fmt: skip
        rows.append(row)
    return rows


def draw(inputs: Namespace) -> Figure:
    loop = inputs.loop
    loop.need(HEADLINE, inputs.target)
    texts = rank_agreement.by_text(loop, inputs.only, inputs.memories, inputs.target)
    table = held_out(texts)
    if table.empty:
        raise ResultsError(f"{loop.path}: a held-out test needs {MIN_TEXTS} texts or more")
    overs = list(dict.fromkeys(table["over"]))
    looks = dict(zip((CHOSEN, *NAMED), style.SERIES))
    figure, axes = style.panels(1, 2, 0.9 + 0.32 * len(overs), sharex=True, sharey=True)
    for axis, half in zip(axes[0], ("first", "second")):
        for shift, (name, colour) in zip((-0.24, -0.08, 0.08, 0.24), looks.items()):
            own = table[(table["chosen_on"] == half) & (table["which"] == name)].set_index("over")
            for place, over in enumerate(overs):
                if over not in own.index:
                    continue
                row = own.loc[over]
                axis.hlines(place + shift, row["rho_low"], row["rho_high"], color=colour)
                axis.plot(row["rho"], place + shift, "o", color=colour, markersize=3.6)
        axis.set_title(f"chosen on the {half} half")
        axis.set_yticks(range(len(overs)), [named(over) for over in overs])
        axis.set_ylim(len(overs) - 0.5, -0.5)
    style.outer_labels(axes, "rank correlation on the other half", "")
    handles = {
        "chosen" if name == CHOSEN else WORDS[name]: style.pyplot.Line2D(
            [], [], color=colour, marker="o"
        )
        for name, colour in looks.items()
    }
    style.legend_above(axes[0][0], handles)
    chosen = table[(table["which"] == CHOSEN) & (table["chosen_on"] != "both")]
    picks = ", ".join(
        f"{named(str(over))}: "
        + " and ".join(WORDS[name].replace("$", "") for name in dict.fromkeys(own))
        for over, own in chosen.groupby("over", sort=False)["metric"]
    )
    return Figure(
        "held_out",
        figure,
        table,
        "The metric that ranks best on one half of the texts, tried on the other half: Spearman's "
        f"rank correlation with {TARGETS[inputs.target]}, next to three metrics that nobody chose. "
        f"Bars: 95 % intervals of the mean, Student's t over the texts of a half. Chosen, {picks}. "
        f"{loop.facts()}",
    )


def named(over: str) -> str:
    """ "0.35" of 'budget {"memory": 0.35}'; the panel's words."""
    if over in rank_agreement.PANELS:
        return rank_agreement.PANELS[over]
    asked = over.removeprefix("budget ")
    memory = rank_agreement.asked_memory(f'{{"budget": {asked}}}')
    return asked if memory is None else f"{memory:g} of the memory"
