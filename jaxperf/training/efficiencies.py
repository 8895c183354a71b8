"""What software and silicon reach of the datasheet in training: traced scalars, assumed until they are fitted."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.efficiency import LEVELS
from jaxperf.core.numerics import as_float


class TrainingEfficiencies(eqx.Module):
    """Shares of datasheet rates, of communication that compute can hide, and costs the datasheet does not know.

    `gemm`, `plain_gemm`, `grouped_gemm`, `attention`, `attention_backward`: share of the matrix peak [1] of
    large products in the layers' format, of those left in 16 bits (head), of experts' (times `gemm`), and of the
    attention core forward and backward; `scan`: share of the vector units' peak [1] of recurrent scans; `stream`:
    share of the memory bandwidth [1]; `wave_loss`: part of a wave of tiles that idles [1]; `depth_ramp`: depth of a
    reduction worth its prologue and epilogue [1]; `link_local`, `link_network`: share of the link rates [1].

    `overlap_*`: share of a communication that compute can hide [1]. `imbalance`: rows of the busiest rank's experts
    over the mean, >= 1 [1]. Added for each micro-batch: `layer_overhead` a layer, `expert_overhead` an expert of the
    rank and layer, `stage_overhead` a chunk of a stage [s]; `host_layer`: least time of a layer and micro-batch on the
    host that launches it, `step_overhead`: added to a step [s]. `rank_spread`: standard deviation of the time that
    equal ranks take for the same work, over its mean [1]; `host_bandwidth`: device to host, one way, and
    `host_memory_bandwidth`: of the host's memory for one device [byte/s]; `reserved_memory`: of runtime, communicators
    and fragmentation [byte].
    """

    gemm: Float[Array, "*batch"] = eqx.field(converter=as_float)
    plain_gemm: Float[Array, "*batch"] = eqx.field(converter=as_float)
    grouped_gemm: Float[Array, "*batch"] = eqx.field(converter=as_float)
    attention: Float[Array, "*batch"] = eqx.field(converter=as_float)
    attention_backward: Float[Array, "*batch"] = eqx.field(converter=as_float)
    scan: Float[Array, "*batch"] = eqx.field(converter=as_float)
    stream: Float[Array, "*batch"] = eqx.field(converter=as_float)
    wave_loss: Float[Array, "*batch"] = eqx.field(converter=as_float)
    depth_ramp: Float[Array, "*batch"] = eqx.field(converter=as_float)
    link_local: Float[Array, "*batch"] = eqx.field(converter=as_float)
    link_network: Float[Array, "*batch"] = eqx.field(converter=as_float)
    overlap_tensor: Float[Array, "*batch"] = eqx.field(converter=as_float)
    overlap_context: Float[Array, "*batch"] = eqx.field(converter=as_float)
    overlap_expert: Float[Array, "*batch"] = eqx.field(converter=as_float)
    overlap_pipeline: Float[Array, "*batch"] = eqx.field(converter=as_float)
    overlap_data: Float[Array, "*batch"] = eqx.field(converter=as_float)
    overlap_offload: Float[Array, "*batch"] = eqx.field(converter=as_float)
    imbalance: Float[Array, "*batch"] = eqx.field(converter=as_float)
    layer_overhead: Float[Array, "*batch"] = eqx.field(converter=as_float)
    expert_overhead: Float[Array, "*batch"] = eqx.field(converter=as_float)
    host_layer: Float[Array, "*batch"] = eqx.field(converter=as_float)
    stage_overhead: Float[Array, "*batch"] = eqx.field(converter=as_float)
    step_overhead: Float[Array, "*batch"] = eqx.field(converter=as_float)
    rank_spread: Float[Array, "*batch"] = eqx.field(converter=as_float)
    host_bandwidth: Float[Array, "*batch"] = eqx.field(converter=as_float)
    host_memory_bandwidth: Float[Array, "*batch"] = eqx.field(converter=as_float)
    reserved_memory: Float[Array, "*batch"] = eqx.field(converter=as_float)


def assumed_training_efficiencies(level: str = "nominal") -> TrainingEfficiencies:
    """The shipped assumptions at `level`: "low" (slow), "nominal" or "high" (fast), with their reasons in the file.

    **Raises:** `InputError` for another level.
    """
    if level not in LEVELS:
        raise InputError(f"Unknown level {level!r}; allowed: {', '.join(LEVELS)}.{did_you_mean(level, LEVELS)}")
    return TrainingEfficiencies(**{name: entry[level] for name, entry in assumed_table().items()})


def assumed_table() -> dict[str, dict[str, Any]]:
    """The shipped assumptions as they stand in the file: name -> level -> number, and the reason."""
    text = resources.files("jaxperf.training").joinpath("assumed_training.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
