"""One look for all figures: an algorithm keeps its colour and marker wherever it appears."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

# Widths of a column and of a page in two-column papers, inches.
COLUMN = 3.35
PAGE = 6.9

# Okabe and Ito's colours and three dark ones, told apart with every common colour blindness; black
# is kept for exact.
_BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_PINK, _SKY, _BROWN, _GREY, _BLACK = "#CC79A7", "#56B4E9", "#8C510A", "#7F7F7F", "#000000"
_INDIGO = "#332288"

_LOOK = {
    "exact": (_BLACK, "*"),
    "subgen": (_RED, "o"),
    "kcenter": (_ORANGE, "s"),
    "uniform": (_BLUE, "D"),
    "balancekv": (_GREEN, "P"),
    "balancekv_prefill": (_GREEN, "X"),
    "softmax_balance": (_GREEN, "d"),
    "h2o": (_PINK, "^"),
    "key_attention": (_INDIGO, "v"),
    "keyformer": (_INDIGO, ">"),
    "snapkv": (_SKY, "<"),
    "pyramidkv": (_SKY, "p"),
    "streaming_llm": (_SKY, "h"),
    "window": (_BROWN, "8"),
    "dilated_window": (_BROWN, "d"),
    "oracle_topk": (_GREY, "P"),
}
_SPARE = [(c, m) for m in ("o", "s", "^", "D") for c in (_GREY, _BLUE, _RED, _GREEN, _ORANGE)]


def look(algorithm, shown=()):
    """Colour and marker of an algorithm; one that has none of its own gets one by its place among
    the unknown ones of `shown`."""
    if algorithm in _LOOK:
        return _LOOK[algorithm]
    unknown = sorted({name for name in shown if name not in _LOOK} | {algorithm})
    return _SPARE[unknown.index(algorithm) % len(_SPARE)]


def apply():
    pyplot.rcParams.update(
        {
            "font.family": "serif",
            "font.serif": ["STIXGeneral", "DejaVu Serif"],
            "mathtext.fontset": "stix",
            "font.size": 9,
            "axes.labelsize": 9,
            "axes.titlesize": 9,
            "legend.fontsize": 8,
            "xtick.labelsize": 8,
            "ytick.labelsize": 8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.linewidth": 0.4,
            "grid.alpha": 0.35,
            "axes.axisbelow": True,
            "lines.linewidth": 1.1,
            "lines.markersize": 4.5,
            "legend.frameon": False,
            "pdf.fonttype": 42,
            "savefig.dpi": 200,
        }
    )
