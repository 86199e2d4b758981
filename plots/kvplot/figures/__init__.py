"""One module per figure: NEEDS (its inputs), draw(inputs) -> Figure, and if it has options of its
own add_options(parser); fits(results) -> bool if a report may show it; WHOLE if it shows all
layers together; BY, what it shows apart, if that is not all units together: settings are compared
over the units of each that all of them have."""

import importlib
from types import ModuleType

# In the order of the papers; the numbers are those of plots/GALLERY.md.
NAMES = (
    "tsne",
    "clusterability",
    "rotation",
    "norms",
    "subgen_memory",
    "subgen_heat_map",
    "subgen_attribution",
    "subgen_halves",
    "subgen_sampling",
    "failure_rate",
    "tightness",
    "balancekv_layers",
    "walk",
    "merge_reduce",
    "occupancy",
    "scaling",
    "sparsity",
    "entropy",
    "top_mass",
    "score_bars",
    "score_growth",
    "damping",
    "budget",
    "noise",
    "recent_ratio",
    "recency",
    "tau",
    "cache_size",
    "bytes_per_token",
    "error_vs_memory",
    "error_vs_traffic",
    "storage_map",
    "keys_or_values",
    "field",
    "pareto",
    "settings",
    "ecdf",
    "layer_head",
    "layer_impact",
    "position",
    "forest",
    "displacement",
    "kept",
    "survival",
    "mixture",
    "variance",
    "error_vs_kld",
    "quality",
    "rank_agreement",
    "held_out",
    "pairs",
    "kld_by_layer",
)


def module(name: str) -> ModuleType:
    return importlib.import_module(f"kvplot.figures.{name}")
