"""Step times of our own models as a table: the composition of a deployment on a grid, computed once, on the host."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Float64

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.phase import Decode, Prefill
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.models.step import check_decoder_alone, step_kernels
from jaxperf.models.transformer import CONTEXT_KERNELS, add_up, one_stage_time
from jaxperf.serving.simulator.fused_attention import FusedAttention
from jaxperf.serving.simulator.step_time import ComposedStepTimes
from jaxperf.sweeps.once import evaluate_over

CONTEXT_STEP = 64  # tokens between the contexts of the grid
LENGTH_STEP = 16  # tokens between its lengths of prompts
PRODUCTS = ("prefix_expansion",)  # kernels that look at the context and are no attention
Step = Callable[..., Scalar]


def tabulated(
    deployment: Deployment, model: Transformer, decodes: int, tokens: int, context: int, cached: int = 0
) -> ComposedStepTimes:
    """The composed step times of one pipeline stage, for steps up to so many decodes, tokens and context, and prompts
    that find up to `cached` tokens, all together, of theirs computed (`context` of them, where that is more).

    With l(T) the layers' kernels that do not look at the context, for T tokens, and the host's share of a step:
    tokens[T] = l(T); decode[n, c] = t_decode(n, c) - l(n); prefill[p, q] = t_prefill(p, q) - l(q). A step of decodes
    alone, or of one prompt alone, so has the very time of `decode_cost` or `prefill_cost`, and in a mixed step the
    linear layers run once over all tokens.

    **Raises:** `InputError` for a model without a decoder or with an encoder that reads every request.
    """
    check_decoder_alone(model)
    return _tables((_linear, _decode, _prefill), deployment, model, decodes, tokens, context, cached)


def tabulated_fused(
    deployment: Deployment, model: Transformer, decodes: int, tokens: int, context: int, cached: int = 0
) -> FusedAttention:
    """The same of an engine that runs attention of prompts and decodes as one kernel, with two more tables: how long
    the kernels that look at the context keep the arithmetic units busy, and how long the memory [s]."""
    reach = (decodes, tokens, context, cached)
    busy = (_tables(_busy(name), deployment, model, *reach) for name in ("compute", "memory"))
    return FusedAttention(tabulated(deployment, model, *reach), *busy)


def _tables(
    steps: tuple[Step, Step, Step],
    deployment: Deployment,
    model: Transformer,
    decodes: int,
    tokens: int,
    context: int,
    cached: int,
) -> ComposedStepTimes:
    """Three functions on the grid: of tokens, of decodes and their context, of a prefix and its prompt."""
    linear, decode, prefill = steps
    prefixes = np.r_[0.0, _counts(max(context, cached), CONTEXT_STEP)]
    lengths, contexts = _counts(tokens, LENGTH_STEP), _counts(context, CONTEXT_STEP)

    def over(step: Step, *counts: Float64[np.ndarray, " points"]) -> np.ndarray:
        axes = tuple((axis,) for axis in range(len(counts)))
        return evaluate_over(step, deployment, model, *counts, along=((), (), *axes))

    put = jax.device_put
    return ComposedStepTimes(
        tokens=put(_with_zero(over(linear, _counts(tokens, 1)), (0,))),
        decode=put(_with_zero(over(decode, _counts(decodes, 1), contexts), (0, 1))),
        prefill=put(_with_zero(over(prefill, prefixes, lengths), (1,))),
        shared_prefill=put(np.float64(1.0)),
        bucket=put(np.float64(CONTEXT_STEP)),
        length_step=put(np.float64(LENGTH_STEP)),
    )


def _counts(largest: int, step: int) -> Float64[np.ndarray, " points"]:
    """step, 2 step, ... up to the first that reaches `largest`."""
    return np.arange(1, -(-largest // step) + 1, dtype=np.float64) * step


@jax.jit
def _linear(deployment: Deployment, model: Transformer, length: Scalar) -> Scalar:
    kernels = step_kernels(deployment, model, Prefill(1.0, length), as_float(1.0))
    return one_stage_time(deployment, {name: cost for name, cost in kernels.items() if name not in CONTEXT_KERNELS})


@jax.jit
def _decode(deployment: Deployment, model: Transformer, number: Scalar, length: Scalar) -> Scalar:
    kernels = step_kernels(deployment, model, Decode(number, length), number)
    return one_stage_time(deployment, kernels) - _linear(deployment, model, number)


@jax.jit
def _prefill(deployment: Deployment, model: Transformer, prefix: Scalar, length: Scalar) -> Scalar:
    kernels = step_kernels(deployment, model, Prefill(1.0, length, prefix), as_float(1.0))
    return one_stage_time(deployment, kernels) - _linear(deployment, model, length)


def _busy(resource: str) -> tuple[Step, Step, Step]:
    """How long attention and what chooses its tokens keep a resource busy [s]; tokens by themselves do not."""

    def of(kernels: Kernels) -> Scalar:
        looking = {name: kernels[name] for name in CONTEXT_KERNELS if name in kernels and name not in PRODUCTS}
        return add_up(looking, lambda cost: getattr(cost, resource))

    @jax.jit
    def tokens(deployment: Deployment, model: Transformer, length: Scalar) -> Scalar:
        return 0.0 * length

    @jax.jit
    def decode(deployment: Deployment, model: Transformer, number: Scalar, length: Scalar) -> Scalar:
        return of(step_kernels(deployment, model, Decode(number, length), number))

    @jax.jit
    def prefill(deployment: Deployment, model: Transformer, prefix: Scalar, length: Scalar) -> Scalar:
        return of(step_kernels(deployment, model, Prefill(1.0, length, prefix), as_float(1.0)))

    return tokens, decode, prefill


def _with_zero(values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """A leading zero along `axes`: no tokens take no time."""
    return np.pad(values, [(1, 0) if axis in axes else (0, 0) for axis in range(values.ndim)])
