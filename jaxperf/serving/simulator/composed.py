"""Step times by default: our own model of a model on a device, tabulated as far as a trace can reach."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.core.sustained import CalibratedDevice
from jaxperf.models.config import ModelConfig
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import transformer
from jaxperf.serving.estimate import check_tensor_splits
from jaxperf.serving.simulator.fused_attention import FusedAttention
from jaxperf.serving.simulator.run import power_of_two
from jaxperf.serving.simulator.settings import Scheduler
from jaxperf.serving.simulator.step_time import ComposedStepTimes
from jaxperf.serving.simulator.tabulate import CONTEXT_STEP, tabulated, tabulated_fused
from jaxperf.serving.study import assumed_at, deployment_of, formats_of

# Of the grid; steps beyond it take its last entries and are counted.
MOST_DECODES, MOST_TOKENS, MOST_CONTEXT, MOST_CACHED = 1 << 12, 1 << 15, 1 << 17, 1 << 18


def composed_times(
    model: ModelConfig,
    device: CalibratedDevice,
    scheduler: Scheduler,
    requests: Any,
    weights: str | None = None,
    kv_cache: str = "bf16",
    alike: bool = False,
    level: str = "nominal",
    fused: bool = False,
) -> ComposedStepTimes | FusedAttention:
    """The composed step times of a deployment, as far as the scheduler and the requests reach.

    **Arguments:** `requests`: `prompt`, `output` [tokens], arrays of one length; `weights`: a format, None for the
    model's own; `alike`: prompts may begin alike, and find that in the cache of a scheduler that has one;
    `level`: of what kernels sustain, one of `LEVELS`; `fused`: attention of prompts and decodes is one kernel.
    **Raises:** `InputError` as `tabulated` does, and where tensor-parallel ranks do not divide the model.
    """
    deployment = deployment_for(model, device, scheduler.tensor_parallel, weights, kv_cache, level=level)
    longest = int((requests.prompt + requests.output).max())
    if longest > MOST_CONTEXT:
        raise InputError(f"a request has {longest:,} tokens; our step times reach {MOST_CONTEXT:,}.")
    return (tabulated_fused if fused else tabulated)(
        deployment,
        transformer(model),
        decodes=power_of_two(min(scheduler.numbers["cap"], len(requests.prompt), MOST_DECODES)),
        tokens=min(power_of_two(scheduler.most_tokens(longest)), MOST_TOKENS),
        context=power_of_two(longest),
        cached=_most_cached(scheduler, requests.prompt) if alike and scheduler.tokens_per_hash else 0,
    )


def _most_cached(scheduler: Scheduler, prompt: np.ndarray) -> int:
    """What the prompts of one step find in the cache at most, each rounded up to the table's steps [tokens]."""
    longest = np.sort(prompt)[-scheduler.numbers["cap"] :]
    return min(power_of_two(int((longest + CONTEXT_STEP - 1).sum())), MOST_CACHED)


def deployment_for(
    model: ModelConfig,
    device: CalibratedDevice,
    tensor_parallel: int,
    weights: str | None = None,
    kv_cache: str = "bf16",
    pipeline_parallel: int = 1,
    level: str = "nominal",
) -> Deployment:
    """The deployment of one replica; its step times are those of all stages together.

    **Raises:** `InputError` for a model without a decoder, one that its tensor-parallel ranks do not divide, and for
    more stages than layers.
    """
    if not model.layers:
        raise InputError(f"{model.name} is an encoder: it generates no tokens, so no engine decodes with it.")
    check_tensor_splits(model, [tensor_parallel])
    if pipeline_parallel > len(model.layers):
        raise InputError(f"pp {pipeline_parallel} is more than the {len(model.layers)} layers of {model.name}.")
    formats = formats_of(model.weight_format if weights is None else weights, kv_cache)
    return deployment_of(
        assumed_at(level, "graph"),
        device=device,
        weights=formats["weights"],
        activations=formats["activations"],
        cache=formats["cache"],
        tensor_parallel=as_float(tensor_parallel),
        pipeline_parallel=as_float(pipeline_parallel),
    )
