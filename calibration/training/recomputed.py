"""What a run computes again, as its table states it, and other shares of the whole that a table may state."""

from __future__ import annotations

import math

from calibration.datasets.training import Run
from calibration.datasets.training_columns import ALLOWED
from calibration.training.stacks import Stack
from hwspecs.errors import InputError
from jaxperf.training.layout import module_fields


def recompute_fields(run: Run, stack: Stack) -> tuple[str, dict[str, float], list[str]]:
    """The name of the recomputation, its fields of a `Layout`, and a sentence for each choice that is not as stated."""
    recompute, untold = _recompute(run, stack)
    modules, unused = _modules(run, recompute)
    share, unused_share = _recomputed_share(run, recompute)
    return recompute, {"recomputed_share": share, **modules}, [untold, unused_share, unused]


def _recompute(run: Run, stack: Stack) -> tuple[str, str]:
    """The recomputation of the step model, and a sentence where it is not what the table states."""
    if run.recompute == "offload":
        return "full", "offloaded activations: as recomputed"
    if run.recompute:
        return run.recompute, ""
    if run.recompute_modules:
        return "selective", "recompute is not stated: selective, as there are recompute_modules"
    return stack.recompute, f"recompute is not stated: {stack.recompute}"


def _modules(run: Run, recompute: str) -> tuple[dict[str, float], str]:
    """The fields of the modules that are computed again, and a sentence where those of a table are not used."""
    if not run.recompute_modules:
        return {}, ""
    unused = "" if recompute == "selective" else f"recompute_modules are not used: recompute is {recompute}"
    return module_fields(run.recompute_modules), unused


def _recomputed_share(run: Run, recompute: str) -> tuple[float, str]:
    """The share of layers that recompute, all where a table does not say, and a sentence where none does."""
    unused = recompute == "none" and not math.isnan(run.layout["recomputed_share"])
    return share_of(run, "recomputed_share"), "recomputed_share is not used: nothing is recomputed" if unused else ""


def share_of(run: Run, name: str, default: float = 1.0) -> float:
    """A share of the whole [1], all, or the `default`, where a table does not say."""
    share = default if math.isnan(run.layout[name]) else run.layout[name]
    if share > 1.0:
        raise InputError(f"{name}: {share:g} must be {ALLOWED[name]}.")
    return share
