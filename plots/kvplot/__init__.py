"""Figures from kvbench's results.json, and a loader for notebooks: kvplot.load_results(path)."""

import warnings
from collections.abc import Sequence

import pandas

from kvplot import results as _results
from kvplot.documents import read_results
from kvplot.evidence import globally_lost
from kvplot.results import Results, ResultsError, load_layers, load_results, with_params

__all__ = [
    "Results",
    "ResultsError",
    "globally_lost",
    "load_layers",
    "load_results",
    "mean_over_units",
    "read_results",
    "with_params",
]


def mean_over_units(
    frame: pandas.DataFrame, columns: Sequence[str], by: Sequence[str] = ()
) -> pandas.DataFrame:
    """See kvplot.results; warns where some points lack units that others have."""
    table = _results.mean_over_units(frame, columns, by)
    if table.attrs.get("said"):
        warnings.warn(table.attrs["said"].strip(), stacklevel=2)
    return table


mean_over_units.__doc__ = (
    f"{_results.mean_over_units.__doc__}\n    Warns where some points lack units that others have."
)
