"""Errors of training steps on what the fit never saw, with fixed and fitted utilizations beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from calibration.figures import figures
from calibration.kernels.parameters import Parameters
from calibration.training.baselines import CONSTANT, fitted_constant, fixed, ideal_times
from calibration.training.fit import Rows, fitter, rows_of, steps_of
from calibration.training.points import Known
from calibration.training.ranking import Ranked, ranked_groups
from calibration.training.scalars import Design, assumed_starts, design_of, levels_of
from calibration.training.shares import starts_of
from calibration.training.splits import splits_of
from jaxperf.core.formats import FORMATS
from jaxperf.core.sustained import format_class

OURS = "ours"
WIDE = ("32-bit", "16-bit")  # formats whose runs are no exploration
SPLITS = ("group", "source", "model", "native")


@dataclass(frozen=True)
class HeldOut:
    """Measured runs with the logarithms of their times by fits that did not see them: `log_time[split][who]` [rows]
    [log s], NaN where a split does not ask; `fitted` [T] and `whole` [rows]: of the fit that saw all."""

    known: Known
    design: Design
    measured: np.ndarray
    log_time: Mapping[str, Mapping[str, np.ndarray]]
    fitted: np.ndarray
    whole: np.ndarray

    def residual(self, split: str, who: str = OURS) -> np.ndarray:
        """log predicted - log measured [rows]."""
        return self.log_time[split][who] - np.log(self.measured)

    @property
    def explored(self) -> np.ndarray:
        """As `explored_rows` of them [rows]."""
        return explored_rows(self.known)


def explored_rows(known: Known) -> np.ndarray:
    """Rows with experts, layers of state space or other mixers than attention, or a format below 16 bits [rows]."""
    models = [point.model for point in known.points]
    sparse = np.array([float(model.topk) > 0.0 or float(model.mixer_layers) > 0.0 for model in models], bool)
    formats = [format_class(FORMATS[run.dtype].compute) for run in known.runs]  # also where another stands in for it
    return sparse | ~np.isin(formats, WIDE)


def hold_out(
    known: Known,
    kernels: Parameters,
    splits: Sequence[str] = SPLITS,
    progress: Callable[[str], None] = lambda text: None,
) -> HeldOut:
    """Fit known runs, all measured: once on all, then for each split once without each fold."""
    design = design_of(known)
    rows = rows_of(known, design, starts_of(known, kernels, assumed_starts()))
    measured = np.array([run.measured for run in known.runs])
    fit = fitter(rows, design.deviation, measured, explored_rows(known))
    everything = np.ones(len(measured))
    fitted = fit(everything)
    progress("all rows")
    kin = _kin(known)
    log_time = {}
    for split in splits:
        found = {name: np.full(len(measured), np.nan) for name in (OURS, CONSTANT)}
        for number, fold in enumerate(splits_of(known.runs)[split]):
            values = fit(everything * fold.shown)
            times, ideal = _times(values, rows)
            found[OURS][fold.asked] = np.log(times[fold.asked])
            found[CONSTANT][fold.asked] = fitted_constant(ideal, measured, everything * fold.shown, kin)[fold.asked]
            progress(f"{split} {number + 1}")
        log_time[split] = found | fixed(_times(fitted, rows)[1])
    return HeldOut(known, design, measured, log_time, fitted, np.log(_times(fitted, rows)[0]))


def _times(fitted: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """(times, times at full utilization) of all rows [s]."""
    steps = steps_of(jnp.asarray(fitted), rows)
    time = np.asarray(steps.unchecked_time)
    return time, ideal_times(time, np.asarray(steps.mfu))


def _kin(known: Known) -> list[list[str]]:
    """Whose utilization a row is given, the closest first: its software's in its format, then its format's."""
    levels = levels_of(known)
    return [[f"{a}|{b}" for a, b in zip(levels["stack"], levels["class"], strict=True)], levels["class"]]


def error_rows(found: HeldOut) -> list[dict[str, Any]]:
    """Rows, mean, median and 90th percentile of the error, by split and part, of us and of every reference [1]."""
    return [
        {"split": split, "part": part, "who": who, **figures(found.residual(split, who)[own])}
        for split, times in found.log_time.items()
        for part, own in _parts(found, split).items()
        for who in times
    ]


def _parts(found: HeldOut, split: str) -> dict[str, np.ndarray]:
    """What a split is reported by: all dense rows and all explored ones, then each held-out source or model."""
    asked, explored = np.isfinite(found.log_time[split][OURS]), found.explored
    parts = {"dense": asked & ~explored, "exploratory": asked & explored}
    if split in ("source", "model"):
        names = np.array([run.source if split == "source" else run.model_key for run in found.known.runs])
        parts |= {f"dense {name}": parts["dense"] & (names == name) for name in np.unique(names)}
        parts |= {f"exploratory {name}": parts["exploratory"] & (names == name) for name in np.unique(names)}
    return {name: own for name, own in parts.items() if own.any()}


def worst_groups(found: HeldOut) -> list[dict[str, Any]]:
    """The ten configuration groups of the largest mean error [1]."""
    groups = np.array([run.group for run in found.known.runs])
    residual = found.residual("group")
    rows = [{"group": name, **figures(residual[groups == name])} for name in np.unique(groups)]
    return sorted(rows, key=lambda row: -row["mean"])[:10]


def rank_rows(found: HeldOut) -> list[dict[str, Any]]:
    """Spearman's correlation and the regret of every group of layouts, see `Ranked`."""
    ranked: list[Ranked] = ranked_groups(found.known.runs, np.exp(found.log_time["group"][OURS]))
    return [asdict(each) for each in ranked]
