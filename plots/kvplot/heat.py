"""A heat map with a number in every field."""

import numpy
import pandas
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.image import AxesImage

from kvplot import style


def heat(
    axis: Axes,
    table: pandas.DataFrame,
    norm: tuple[float, float] | None = None,
    digits: str = "{:.2g}",
    size: float = 6.5,
) -> AxesImage:
    """Draws a frame (index: y, columns: x) of positive numbers; returns the image for a colour bar.

    `norm`: (least, most) of the colours, default the table's own; logarithmic if they are a
    factor 10 apart. Missing fields stay white.
    """
    values = table.to_numpy(dtype=float)
    least, most = norm or (numpy.nanmin(values), numpy.nanmax(values))
    scale = (LogNorm if least > 0 and most / least >= 10 else Normalize)(least, most)
    image = axis.imshow(values, cmap=style.HEAT, norm=scale, aspect="auto")
    for (row, column), value in numpy.ndenumerate(values):
        if numpy.isfinite(value):
            white = style.dark(float(scale(value)))
            axis.text(
                column,
                row,
                digits.format(value),
                ha="center",
                va="center",
                fontsize=size,
                color="white" if white else "black",
            )
    axis.set_xticks(range(len(table.columns)), [_name(name) for name in table.columns])
    axis.set_yticks(range(len(table.index)), [_name(name) for name in table.index])
    axis.grid(False)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    return image


def _name(value: object) -> str:
    return f"{value:g}" if isinstance(value, (int, float, numpy.number)) else str(value)
