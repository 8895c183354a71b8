"""A whole sweep in memory: arrays of the full product with their labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Integer, Shaped

from hwspecs.errors import InputError
from jaxperf.sweeps.axes import Axis
from jaxperf.sweeps.columns import Column, codes_of_rows, label_columns
from jaxperf.sweeps.reduce import Reducer, Selection, TopK

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False)
class Results:
    """Metrics of every point.

    **Arguments:** `axes`: the sweep's axes. `metrics`: name -> array with one dimension per axis, in order.
    """

    axes: tuple[Axis, ...]
    metrics: Mapping[str, Shaped[np.ndarray, "*product"]]

    @property
    def dims(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.axes)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(one.size for one in self.axes)

    @property
    def coords(self) -> dict[str, tuple[str, Shaped[np.ndarray, " size"]]]:
        """Label column -> (the axis it runs along, its values); a zip axis has several columns."""
        return {column: (one.name, values) for one in self.axes for column, values in one.labels.items()}

    def __getitem__(self, metric: str) -> Shaped[np.ndarray, "*product"]:
        return self.metrics[metric]

    def rows(self, indices: Integer[np.ndarray, " rows"]) -> dict[str, Column]:
        """Labels and metrics of the given flat rows (C order)."""
        labels = label_columns(self.axes, codes_of_rows(self.sizes, indices))
        return labels | {name: values.reshape(-1)[indices] for name, values in self.metrics.items()}

    def select(self, reducer: Reducer) -> Selection:
        """What `reducer` keeps of the whole result."""
        reducer.check(tuple(self.metrics))
        return reducer.update(None, 0, {name: values.reshape(-1) for name, values in self.metrics.items()})

    def best(self, metric: str, k: int = 1, *, largest: bool = False, where: str | None = None) -> dict[str, Column]:
        """Labels and metrics of the `k` points with the smallest (or largest) `metric`, best first.

        **Raises:** `InputError` for an unknown metric or k < 1.
        """
        return self.rows(self.select(TopK(metric, k, largest=largest, where=where)).indices)

    def to_xarray(self, units: Mapping[str, str] | None = None) -> xr.Dataset:
        """A labeled dataset; units in the attributes of each variable. Nothing is copied.

        **Raises:** `InputError` if the optional package xarray is not installed.
        """
        try:
            import xarray as xr
        except ImportError:
            raise InputError("Labeled arrays need the package xarray: pip install 'jaxperf[xarray]'.") from None

        units = units or {}

        def attributes(name: str) -> dict[str, str]:
            return {"units": units[name]} if name in units else {}

        variables = {name: (self.dims, values, attributes(name)) for name, values in self.metrics.items()}
        coords = {name: (dim, values, attributes(name)) for name, (dim, values) in self.coords.items()}
        return xr.Dataset(variables, coords)
