"""results.rows.h5: values of a metric at every scored row."""

from collections.abc import Sequence

import h5py
import numpy
import pandas

from kvplot.faults import ResultsError, did_you_mean
from kvplot.hdf5 import Hdf5File


class RowsFile(Hdf5File):
    KIND = "file of rows"
    REMEDY = "rerun `kvbench run` of the same sweep to rewrite it"

    def rows(self, metric: str, cells: Sequence[str]) -> list[pandas.DataFrame]:
        """A frame per cell: columns id, head (query head of the group), row, <metric>."""
        return self._read(lambda file: [self._rows_of(file, cell, metric) for cell in cells])

    def _rows_of(self, file: h5py.File, cell: str, metric: str) -> pandas.DataFrame:
        group = file.get(cell)
        if not isinstance(group, h5py.Group):
            raise ResultsError(f"{self.path}: no rows of cell {cell}")
        if metric not in group:
            raise ResultsError(f"{self.path}: no {metric}{did_you_mean(metric, list(group))}")
        values, rows = group[metric][()], group["rows"][()]
        return pandas.DataFrame(
            {
                "id": cell,
                "head": numpy.repeat(numpy.arange(len(values)), len(rows)),
                "row": numpy.tile(rows, len(values)),
                metric: values.ravel(),
            }
        )
