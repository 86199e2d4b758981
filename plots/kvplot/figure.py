"""A drawn figure with its numbers and caption, and the facts of its data in every caption."""

import json
import re
import textwrap
import warnings
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas
from matplotlib import pyplot

from kvplot import style
from kvplot.results import UNIT, Results, ResultsError

# Parameters by which tokens are kept whatever their scores say, in a caption's words.
ALWAYS_KEPT = {
    "sinks": "{} sinks",
    "recent": "{} recent",
    "recent_fraction": "{} of the budget recent",
}
ENDINGS = (".png", ".pdf", ".svg", ".csv", ".txt")
# How matplotlib begins to say that nothing is left of the axes.
COLLAPSED = "constrained_layout not applied"


@dataclass
class Figure:
    """`table` holds every number that `plot` shows."""

    name: str
    plot: pyplot.Figure
    table: pandas.DataFrame
    caption: str

    def save(
        self,
        out: Path | str,
        caption: bool = True,
        dpi: int = 200,
        endings: Sequence[str] = ENDINGS,
    ) -> list[Path]:
        """Writes <name>.png, .pdf, .svg, .csv and the caption as .txt; returns the paths.

        `caption`: also below the panels, for which the figure grows. ResultsError if labels
        leave the panels no room; nothing is written then."""
        out = Path(out)
        out.mkdir(parents=True, exist_ok=True)
        style.literal(self.plot)
        try:
            if caption:
                lines = textwrap.wrap(self.caption, int(self.plot.get_figwidth() * 24))
                style.grow(self.plot, below=0.1 * len(lines))
                self.plot.supxlabel(
                    "\n".join(lines), fontsize=6.5, x=0.02, ha="left", parse_math=False
                )
            paths = [out / f"{self.name}{ending}" for ending in endings]
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=COLLAPSED)
                for path in paths:
                    self._write(path, dpi)
        except UserWarning as warning:
            if not re.match(COLLAPSED, str(warning)):
                raise
            raise ResultsError(
                f"{self.name}: labels leave the axes no room: draw fewer settings with --labels "
                "PATTERN, or fewer panels with --layers, or a wider figure with --width page"
            ) from warning
        finally:
            pyplot.close(self.plot)
        return paths

    def _write(self, path: Path, dpi: int) -> None:
        if path.suffix == ".png":
            self.plot.savefig(path, dpi=dpi, metadata={"Software": None})
        elif path.suffix == ".pdf":
            self.plot.savefig(path, metadata={"CreationDate": None})
        elif path.suffix == ".svg":
            self.plot.savefig(path, metadata={"Date": None})
        elif path.suffix == ".csv":
            self.table.to_csv(path, index=False)
        else:
            path.write_text(self.caption + "\n", encoding="utf-8")


def facts(results: Results, cells: pandas.DataFrame | None = None, by: Sequence[str] = ()) -> str:
    """Model, tokens, scored rows, units and seeds behind the finished cells of a sweep."""
    cells = results.ok if cells is None else cells
    models = results.models()
    names = sorted({models.get(dump, dump) for dump in cells["dump"]})
    units = cells[UNIT].drop_duplicates()
    counts = units.groupby(list(by)).size().unique() if by else [len(units)]
    layers = ", ".join(str(layer) for layer in sorted(cells["layer"].unique()))
    texts = len(units[["dump", "sequence"]].drop_duplicates())
    seeds = cells["seed"].dropna().nunique()
    text = (
        f"{', '.join(names)}: {span(cells['tokens'])} tokens, prompt "
        f"{span(cells['prompt_tokens'])}, {scored_rows(cells)} scored; {span(counts)} "
        f"unit{'s' if max(counts) > 1 else ''} (KV heads of "
        f"layer{'s' if cells['layer'].nunique() > 1 else ''} {layers}"
        f"{f', {texts} texts' if texts > 1 else ''})"
        f"{' per ' + ' and '.join(by).replace('_', ' ') if by else ''}; "
    )
    if not seeds:
        text += "no random numbers."
    else:
        text += f"{seeds} seed{'s' if seeds > 1 else ''} for randomised algorithms."
    return text + results.said + left_out(results.whole)


def drawn(module: ModuleType, inputs: Namespace) -> Figure:
    """The figure of a module of kvplot.figures; of results, over the units that all settings
    have."""
    results = getattr(inputs, "results", None)
    if isinstance(results, Results):
        metric = getattr(inputs, "metric", None) or getattr(module, "METRIC", None)
        metric = metric or next(iter(getattr(module, "METRICS", ())), None)
        panels = getattr(inputs, "panels", None)
        by = (panels,) if panels else getattr(module, "BY", ())
        inputs = Namespace(**{**vars(inputs), "results": results.compared(metric, by)})
    with columns_of(results):
        figure: Figure = module.draw(inputs)
        return figure


@contextmanager
def columns_of(results: Any) -> Iterator[None]:
    """A column that a figure takes for granted and no cell has is an error of the results."""
    try:
        yield
    except KeyError as error:
        text = str(error.args[0]) if error.args else ""
        names = re.findall(r"'([^']+)'", text) if text.endswith("not in index") else [text]
        missing = [name for name in names if "." in name and name not in results.frame]
        if not isinstance(results, Results) or not missing:
            raise
        raise ResultsError(
            f"{results.path}: no finished cell has {' and '.join(missing)}"
        ) from error


def left_out(frame: pandas.DataFrame) -> str:
    text = ""
    for status in ("failed", "skipped"):
        cells = frame[frame["status"] == status]
        if len(cells):
            labels = ", ".join(sorted(set(cells["label"].dropna())))
            text += f" Left out, {status}: {len(cells)} of {len(frame)} cells ({labels})."
    return text


def always_kept(cells: pandas.DataFrame) -> str:
    """Sinks and recent tokens that methods keep whatever their scores say, by label: where methods
    are ranked, what some have and others lack is a part of the order."""
    values: dict[str, dict[str, set[float]]] = {}
    for label, point in cells[["label", "point"]].drop_duplicates().itertuples(index=False):
        for name, value in json.loads(point).items():
            if name in ALWAYS_KEPT and isinstance(value, (int, float)):
                values.setdefault(label, {}).setdefault(name, set()).add(value)
    labels: dict[str, list[str]] = {}
    for label in sorted(values):
        words = [
            text.format(" or ".join(f"{value:g}" for value in sorted(values[label][name])))
            for name, text in ALWAYS_KEPT.items()
            if values[label].get(name, {0}) != {0}
        ]
        if words:
            labels.setdefault(", ".join(words), []).append(label)
    if not labels:
        return ""
    listed = "; ".join(f"{', '.join(of)} {words}" for words, of in labels.items())
    return f" Always kept: {listed}."


def span(values: Iterable[int]) -> str:
    """ "5", or "5 to 9"."""
    values = list(values)
    least, most = min(values), max(values)
    return f"{least}" if least == most else f"{least} to {most}"


def scored_rows(cells: pandas.DataFrame) -> str:
    found = []
    for column, row, of in (("rows", "decoded row", ""), ("rows.prompt", "row", " of the prompt")):
        for name, words in (
            ("every", f"every {{:g}}th {row}{of}"),
            ("last", f"last {{:g}} rows{of}"),
        ):
            if f"{column}.{name}" in cells:
                values = sorted(cells[f"{column}.{name}"].dropna().unique())
                found += [words.format(value) for value in values]
        if column in cells:
            found += [
                f"{len(value)} chosen rows{of}" if isinstance(value, list) else f"every {row}{of}"
                for value in {str(v): v for v in cells[column].dropna()}.values()
            ]
    text = ", ".join(found).replace("every 2th", "every 2nd").replace("every 3th", "every 3rd")
    return text.replace("last 1 rows", "last row")


def capped(
    deviation: "pandas.Series[float]", value: "pandas.Series[float]"
) -> list["pandas.Series[float]"]:
    """Lower and upper length of an error bar that stays on a logarithmic axis."""
    return [value - (value - deviation).clip(lower=value / 10), deviation]


__all__ = [
    "ENDINGS",
    "Figure",
    "always_kept",
    "capped",
    "columns_of",
    "drawn",
    "facts",
    "left_out",
    "span",
    "style",
]
