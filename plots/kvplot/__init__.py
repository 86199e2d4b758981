"""Figures from kvbench's results.json, and a loader for notebooks: kvplot.load_results(path)."""

from kvplot.results import ResultsError, load_results, mean_over_units, read_results

__all__ = ["ResultsError", "load_results", "mean_over_units", "read_results"]
