"""The training steps of an iteration as rows of `jaxperf train`, and what models keep on the devices that train."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwspecs.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from calibration.training.points import Point
    from jaxperf.io.rl_iteration import Iteration
    from jaxperf.rl.answers import Answers

SOFTWARE = "megatron-core"  # where the file names no software
SPLITS_WEIGHTS = 3  # the stage of ZeRO
NOT_STATED = ("model", "gpu", "n_gpus", "seq", "global_batch", "cfg_group", "model_key", "repeat_of_release")


@dataclass(frozen=True)
class Learned:
    """One model that learns: `seconds` of all its steps with their interval (`lower`, `upper`) [s], `mfu`; `memory` of
    a step on the fullest device, at the longest answer, and what of it stays between steps (`states`) [byte]; `reason`
    why it does not run, "" where it does; `notes`."""

    seconds: float
    lower: float
    upper: float
    mfu: float
    memory: float
    states: float
    reason: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Steps:
    """How the answers are learned from: `count` steps of `global_batch` sequences of `sequence` tokens;
    `longest` answer, rounded up as `sequence` is; `tensor`, `pipeline`, `context`, `data` ranks; whether ZeRO-3 splits
    the weights too; `weight_bytes` of one of them, in `dtype`."""

    sequence: int
    global_batch: int
    longest: int
    count: int
    tensor: int
    pipeline: int
    context: int
    data: int
    split_weights: bool
    dtype: str
    weight_bytes: float

    @property
    def weight_parts(self) -> int:
        """Parts that the weights are kept in."""
        return self.tensor * self.pipeline * (self.context * self.data if self.split_weights else 1)


def steps_of(asked: Iteration, answers: Answers, where: str) -> Steps:
    """The steps of one model's training: sequences that are alike, in whole micro-batches.

    **Raises:** `InputError` for a layout that the devices are no multiple of.
    """
    from jaxperf.core.formats import format_name
    from jaxperf.core.numerics import as_float, ceil_div
    from jaxperf.rl.lengths import alike
    from jaxperf.serving.simulator.cells import count_of
    from jaxperf.training.layout import format_fields

    tensor, pipeline, context, micro = (_whole(asked.train, name, where) for name in ("tp", "pp", "cp", "micro_batch"))
    parts, devices = tensor * pipeline * context, asked.training_devices
    if devices % parts:
        raise InputError(f"{where}: train: {devices} devices are no multiple of tp x pp x cp = {parts}.")
    data, tokens = devices // parts, int(answers.lengths.sum())
    sequence = context * int(ceil_div(as_float(alike(answers.lengths).length), as_float(context)))
    # Whole micro-batches of whole numbers: a quotient of floats could round up to one more.
    batch = _multiple(-(-tokens // (sequence * asked.mini_batches)), data * micro)
    longest = _multiple(int(answers.lengths.max()), context)
    dtype = format_name(str(asked.train.get("dtype", "bf16")))
    split = count_of(asked.train, "zero", f"{where}: train", 0) == SPLITS_WEIGHTS
    bytes_each = format_fields(dtype)["weight_bytes"]
    count = asked.epochs * asked.mini_batches
    return Steps(sequence, batch, longest, count, tensor, pipeline, context, data, split, dtype, bytes_each)


def _multiple(number: int, unit: int) -> int:
    """The least multiple of `unit` that is no less."""
    return -(-number // unit) * unit


def learned(asked: Iteration, steps: Steps, where: str, folders: Sequence[str]) -> dict[str, Learned]:
    """Role -> its training, of every model that learns. Raises `InputError` for what no row of `train` has."""
    from calibration.datasets.training import training_table
    from calibration.kernels.parameters import load_parameters
    from calibration.training.parameters import load_training
    from calibration.training.points import known_runs
    from calibration.training.predict import predict_training

    _check_columns(asked.train, where)
    table = training_table(where, _rows(asked, steps), folders)
    columns = predict_training(table, load_training(None), load_parameters(None), folders)
    known = known_runs(table, folders)
    points = dict(zip((run.row for run in known.runs), known.points, strict=True))
    return {
        role: _learned(columns, points.get(2 * place), 2 * place, steps.count)
        for place, role in enumerate(asked.learners)
    }


def _rows(asked: Iteration, steps: Steps) -> list[dict[str, Any]]:
    """Two rows a model: the steps as they are, and with all answers as long as the longest, for the memory."""
    common = {"source": SOFTWARE, **asked.train, "gpu": asked.device, "n_gpus": asked.training_devices}
    return [
        {**common, "model": asked.models.named[role], "seq": sequence, "global_batch": steps.global_batch}
        for role in asked.learners
        for sequence in (steps.sequence, steps.longest)
    ]


def _learned(columns: Mapping[str, Any], point: Point | None, row: int, count: int) -> Learned:
    texts = [text for text in str(columns["reason"][row]).split("; ") if text]
    if point is None or not math.isfinite(columns["predicted_step_time_s"][row]):
        nan = math.nan
        return Learned(nan, nan, nan, nan, nan, nan, "; ".join(texts) or "no prediction")
    seconds, lower, upper = (count * float(columns[name][row]) for name in ("predicted_step_time_s", "lower", "upper"))
    memory = float(columns["memory_bytes"][row + 1])
    return Learned(seconds, lower, upper, float(columns["mfu"][row]), memory, _states(point), "", tuple(texts))


def _states(point: Point) -> float:
    """Weights, gradients and optimizer of the fullest stage [byte]."""
    from jaxperf.core.numerics import as_float
    from jaxperf.training.memory import stage_memory

    found = stage_memory(point.model, point.layout, as_float(1.0), as_float(0.0))
    return float(found.weights + found.gradients + found.optimizer)


def _check_columns(train: Mapping[str, Any], where: str) -> None:
    from calibration.datasets.training_columns import COLUMNS

    allowed = [name for name in COLUMNS if name not in NOT_STATED]
    for name in train:
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            raise InputError(f"{where}: train has '{name}'; allowed: {', '.join(allowed)}.{hint}")


def _whole(train: Mapping[str, Any], name: str, where: str) -> int:
    from jaxperf.serving.simulator.cells import count_of

    return count_of(train, name, f"{where}: train") or 1
