"""Measured runs as arrays: the kernels of their two phases, and the law applied to them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from calibration.power.rows import Run
from jaxperf.core.device import Device, device_from_spec
from jaxperf.core.numerics import Scalar, as_float, stack
from jaxperf.core.sustained_file import SustainedTable, calibration_of
from jaxperf.io.huggingface import load_model
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.config import ModelConfig
from jaxperf.models.layers import transformer
from jaxperf.models.step import decode_cost, prefill_cost
from jaxperf.models.transformer import add_up
from jaxperf.serving.study import assumed_at, deployment_of, formats_of
from jaxperf.serving.techniques.power import PowerLaw, capped_clock, clocked_time, step_power
from jaxperf.sweeps.once import evaluate_over


class Points(eqx.Module):
    """Runs of one model [N]: the device; the kernels of a prefill of all prompts and of a decode step at the mean
    context, one rank; measured `prompt_time`, `token_time` and time after the prompt, `rest_time` [s]; `limit` over the
    TDP [1]."""

    device: Device
    prefill: Kernels
    decode: Kernels
    prompt_time: Float[Array, "*runs"] = eqx.field(converter=as_float)
    token_time: Float[Array, "*runs"] = eqx.field(converter=as_float)
    rest_time: Float[Array, "*runs"] = eqx.field(converter=as_float)
    limit: Float[Array, "*runs"] = eqx.field(converter=as_float)


class Answer(NamedTuple):
    """Times under the limit [s], and powers over the TDP [1]: the average over the request and the higher phase's."""

    prompt_time: Scalar
    token_time: Scalar
    e2e_time: Scalar
    average_power: Scalar
    peak_power: Scalar


class Priced(NamedTuple):
    """The runs of one model, and their places among all runs [N]."""

    places: np.ndarray
    points: Points


def priced_runs(runs: Sequence[Run], table: SustainedTable) -> list[Priced]:
    """The kernels of every run, model by model. All must have prompt and token times."""
    found = []
    for model in dict.fromkeys(run.model for run in runs):
        places = [place for place, run in enumerate(runs) if run.model == model]
        found.append(Priced(np.array(places), _one_model([runs[place] for place in places], table)))
    return found


def _one_model(runs: Sequence[Run], table: SustainedTable) -> Points:
    config = load_model(runs[0].model)
    devices = {run.device.name: calibration_of(run.device, table).calibrated for run in runs}
    counts = [as_float([getattr(run, name) for run in runs]) for name in ("tensor", "batch", "prompt", "output")]
    own = stack([devices[run.device.name] for run in runs])
    prefill, decode = evaluate_over(_kernels(config), own, *counts, along=((0,),) * (1 + len(counts)))
    return Points(
        stack([device_from_spec(run.device) for run in runs]),
        prefill,
        decode,
        [run.prompt_time for run in runs],
        [run.token_time for run in runs],
        [run.rest_time for run in runs],
        [run.limit for run in runs],
    )


@functools.cache
def _kernels(config: ModelConfig) -> Callable[..., tuple[Kernels, Kernels]]:
    """The kernels of the prefill and of a decode step of a run of one model."""
    formats = formats_of(config.weight_format, "bf16")

    def kernels(device: Any, tensor: Scalar, batch: Scalar, prompt: Scalar, output: Scalar) -> tuple[Kernels, Kernels]:
        model, assumed = transformer(config), assumed_at("nominal", "graph")
        given: dict[str, Any] = {"device": device, **formats, "tensor_parallel": tensor}
        at = deployment_of(assumed, **given)
        prefill = prefill_cost(at, model, batch, prompt, as_float(0.0))
        return prefill.kernels, decode_cost(at, model, batch, prompt + output / 2.0).kernels

    return jax.jit(kernels)


def answer(law: PowerLaw, point: Points, limited: bool) -> Answer:
    """A run at the highest clock, or under its limit: from the times that it, or its twin, takes without one."""
    times, powers = [], []
    for kernels, time in ((point.prefill, point.prompt_time), (point.decode, point.token_time)):
        stretch = time / add_up(kernels, lambda cost: cost.time)
        at = functools.partial(clocked_time, kernels, time, stretch=stretch)
        limit = point.limit * point.device.tdp
        clock = capped_clock(point.device, law, kernels, at, limit) if limited else jnp.ones_like(time)
        times.append(at(clock))
        powers.append(step_power(point.device, law, kernels, at, clock) / point.device.tdp)
    (prompt, token), (first, later) = times, powers
    decoding = point.rest_time * token / point.token_time
    total = prompt + decoding
    return Answer(prompt, token, total, (first * prompt + later * decoding) / total, jnp.maximum(first, later))


@functools.partial(jax.jit, static_argnames="limited")
def answers(law: PowerLaw, points: Points, limited: bool) -> Answer:
    """`answer` of all runs of a model [N]."""
    return jax.vmap(lambda point: answer(law, point, limited))(points)


def all_answers(law: PowerLaw, priced: Sequence[Priced], limited: bool) -> dict[str, np.ndarray]:
    """The fields of `Answer` of all runs, in their own order [runs]."""
    found = {name: np.full(sum(len(each.places) for each in priced), np.nan) for name in Answer._fields}
    for places, points in priced:
        for name, values in answers(law, points, limited)._asdict().items():
            found[name][places] = np.asarray(values)
    return found
