"""Figures from kvbench's results.json, and a loader for notebooks: kvplot.load_results(path)."""

from kvplot.evidence import globally_lost
from kvplot.results import (
    Results,
    ResultsError,
    load_layers,
    load_results,
    mean_over_units,
    read_results,
    with_params,
)

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
