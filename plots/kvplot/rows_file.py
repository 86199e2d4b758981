"""results.rows.h5: values of a metric at every scored row."""

from collections.abc import Sequence
from functools import partial

import h5py
import numpy
import pandas

from kvplot.faults import ResultsError, did_you_mean
from kvplot.hdf5 import Hdf5File, huge_chunk

# Cells that one child process reads: its time goes by the bytes of the file, and thousands of cells
# of few rows take more.
AT_ONCE = 500


class RowsFile(Hdf5File):
    KIND = "file of rows"
    REMEDY = "rerun `kvbench run` of the same sweep to rewrite it"

    def rows(self, metric: str, cells: Sequence[str]) -> list[pandas.DataFrame]:
        """A frame per cell: columns id, head (query head of the group), row, <metric>."""
        frames: list[pandas.DataFrame] = []
        for first in range(0, len(cells), AT_ONCE):
            some = cells[first : first + AT_ONCE]
            frames += self._read(partial(self._all_of, some, metric))
        return frames

    def _all_of(self, cells: Sequence[str], metric: str, file: h5py.File) -> list[pandas.DataFrame]:
        return [self._rows_of(file, cell, metric) for cell in cells]

    def _rows_of(self, file: h5py.File, cell: str, metric: str) -> pandas.DataFrame:
        group = self._member(file, cell)
        if not isinstance(group, h5py.Group):
            raise ResultsError(f"{self.path}: no rows of cell {cell}")
        if metric not in group:
            raise ResultsError(f"{self.path}: no {metric}{did_you_mean(metric, list(group))}")
        values, rows = self._numbers(group, metric, 2), self._numbers(group, "rows", 1)
        if values.shape[1] != len(rows):
            raise ResultsError(
                f"{self.path}: cell {cell}: {metric} has {values.shape[1]} rows of {len(rows)}"
            )
        return pandas.DataFrame(
            {
                "id": cell,
                "head": numpy.repeat(numpy.arange(len(values)), len(rows)),
                "row": numpy.tile(rows, len(values)),
                metric: values.ravel(),
            }
        )

    def _numbers(self, group: h5py.Group, name: str, dimensions: int) -> numpy.ndarray:
        data = self._member(group, name)
        if (
            not isinstance(data, h5py.Dataset)
            or data.ndim != dimensions
            or data.dtype.kind not in "fiu"
            or huge_chunk(data)
        ):
            raise ResultsError(
                f"{self.path}: {group.name}/{name}: expected numbers of {dimensions} dimension(s)"
            )
        return numpy.asarray(data[()])
