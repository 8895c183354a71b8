"""Which measured runs leave together: nothing of a held-out configuration, source or model is seen by its fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.datasets.training import Run

FOLDS = 10  # of the configuration groups
SIZES = ("tp", "pp", "cp", "dp", "micro_batch")


@dataclass(frozen=True)
class Fold:
    """One fit of a split: rows that are `shown` to it, and those that it is `asked` for [rows]."""

    shown: np.ndarray
    asked: np.ndarray


def splits_of(runs: Sequence[Run]) -> dict[str, list[Fold]]:
    """The folds by split.

    "group": tenths of the configuration groups; "source" and "model": one of them; "native": all rows that Calculon
    models. A row whose model, device, format and task are those of a held-out row of another source is hidden from the
    fits by group, and one whose whole layout is, from those by source.
    """
    kinds = np.array([_kind(run) for run in runs])
    layouts = np.array([_configuration(run) for run in runs])
    order = {kind: place for place, kind in enumerate(sorted(set(kinds)))}
    tenths = np.array([str(order[kind] % FOLDS) for kind in kinds])
    sources, models = np.array([run.source for run in runs]), np.array([run.model_key for run in runs])
    native = np.array([run.native for run in runs], bool)
    return {
        "group": [_fold(tenths == name, tenths) for name in np.unique(tenths)],
        "source": [_fold(sources == name, layouts) for name in np.unique(sources)],
        "model": [_fold(models == name, models) for name in np.unique(models)],
        "native": [_fold(native, layouts)] if native.any() else [],
    }


def _fold(asked: np.ndarray, alike: np.ndarray) -> Fold:
    """The rows asked for, with all that are like one of them hidden."""
    return Fold(~np.isin(alike, alike[asked]), asked)


def _kind(run: Run) -> str:
    return "|".join((run.model_key, run.device, run.dtype, run.task))


def _configuration(run: Run) -> str:
    """A run's sizes, whoever published it and however much of the rest was told."""
    sizes = (run.devices, run.sequence, run.global_batch, *(run.layout[name] for name in SIZES))
    return "|".join((_kind(run), *map(str, sizes)))
