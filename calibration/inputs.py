"""From a table of kernels to what a `KernelModel` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.demand import Demand, demand
from calibration.features import features, on_chip_time, waves
from calibration.hardware import REFERENCE_CLOCK, load_hardware
from calibration.levels import Names, spell
from calibration.model import Inputs
from jaxperf.core.numerics import as_float


@dataclass(frozen=True)
class Prepared:
    """A table whose devices are all known, with its demands and features; `usable` [R]: the demands are numbers."""

    table: KernelTable
    demand: Demand
    names: tuple[str, ...]
    features: np.ndarray
    on_chip: np.ndarray
    footprint: np.ndarray
    waves: np.ndarray
    clock: np.ndarray
    spelled: dict[str, np.ndarray]
    usable: np.ndarray

    def take(self, rows: np.ndarray) -> Prepared:
        """The rows that an index or a mask selects."""
        return Prepared(
            self.table.take(rows),
            self.demand.take(rows),
            self.names,
            self.features[rows],
            self.on_chip[rows],
            self.footprint[rows],
            self.waves[rows],
            self.clock[rows],
            {level: column[rows] for level, column in self.spelled.items()},
            self.usable[rows],
        )

    @property
    def roofline(self) -> np.ndarray:
        """The plain roofline: the longer of useful FLOP at the matrix peak and bytes at the bandwidth [s]."""
        return np.maximum(self.demand.ideal, self.demand.memory)

    def inputs(self, names: Names) -> Inputs:
        """The arrays of a model that knows `names`."""
        log = lambda x: as_float(np.log(np.maximum(x, 1e-30)))  # noqa: E731
        return Inputs(
            compute=log(self.demand.compute),
            memory=log(self.demand.memory),
            power=log(self.demand.power),
            on_chip=log(self.on_chip),
            footprint=as_float(self.footprint),
            waves=log(self.waves),
            clock=log(self.clock),
            features=as_float(self.features),
            levels={level: jnp.asarray(at) for level, at in names.index(self.spelled).items()},
        )


def prepare(table: KernelTable, directories: Sequence[str | Path] = ()) -> Prepared:
    """Demands, features and names of every row. Rows without a device must have been taken out before."""
    devices, index = np.unique(table.device.astype(str), return_inverse=True)
    hardware = load_hardware(list(devices), directories)
    asked = demand(table, hardware, index)
    names, values = features(table, asked, hardware, index)
    cache = np.asarray(hardware.device.l2_capacity, np.float64)[index]
    usable = np.isfinite(asked.compute) & np.isfinite(asked.memory) & np.isfinite(values).all(axis=1)
    return Prepared(
        table,
        asked,
        names,
        np.nan_to_num(values, posinf=50.0, neginf=-50.0),
        on_chip_time(asked, hardware, index).astype(np.float32),
        np.log(np.maximum(asked.moved, 1.0) / cache),
        waves(table, hardware, index),
        np.asarray(hardware.clock, np.float64)[index] / REFERENCE_CLOCK,
        spell(table),
        usable,
    )
