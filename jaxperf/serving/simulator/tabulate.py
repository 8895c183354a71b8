"""Step times of our own models as a table: the composition of a deployment on a grid, computed once."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float64

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.phase import Decode, Prefill
from jaxperf.models.deployment import Deployment
from jaxperf.models.host import step_time
from jaxperf.models.layers import Transformer
from jaxperf.models.step import check_decodes, step_kernels
from jaxperf.models.transformer import CONTEXT_KERNELS, add_up
from jaxperf.serving.simulator.step_time import StepTimeTable

CONTEXT_STEP = 64  # tokens between the contexts of the grid
LENGTH_STEP = 16  # tokens between its lengths of prompts


def tabulated(
    deployment: Deployment, model: Transformer, decodes: int, tokens: int, context: int, cached: int = 0
) -> StepTimeTable:
    """The composed step times of one pipeline stage, for steps up to so many decodes, tokens and context, and prompts
    that find up to `cached` tokens, all together, of theirs computed (`context` of them, where that is more).

    With l(T) the layers' kernels that do not look at the context, for T tokens, and the host's share of a step:
    tokens[T] = l(T); decode[n, c] = t_decode(n, c) - l(n); prefill[p, q] = t_prefill(p, q) - l(q). A step of decodes
    alone, or of one prompt alone, so has the very time of `decode_cost` or `prefill_cost`, and in a mixed step the
    linear layers run once over all tokens.

    **Raises:** `InputError` for a model without a decoder.
    """
    check_decodes(model)
    prefixes = jnp.concatenate([jnp.zeros(1), _counts(max(context, cached), CONTEXT_STEP)])
    lengths, contexts = _counts(tokens, LENGTH_STEP), _counts(context, CONTEXT_STEP)
    return _table(deployment, model, _counts(tokens, 1), _counts(decodes, 1), contexts, prefixes, lengths)


def _counts(largest: int, step: int) -> Float64[Array, " points"]:
    """step, 2 step, ... up to the first that reaches `largest`."""
    return jnp.arange(1, -(-largest // step) + 1, dtype=jnp.float64) * step


@eqx.filter_jit  # once for a deployment at every level of what its kernels sustain
def _table(
    deployment: Deployment,
    model: Transformer,
    tokens: Array,
    decodes: Array,
    contexts: Array,
    prefixes: Array,
    lengths: Array,
) -> StepTimeTable:
    """Over so many tokens, decodes of so many contexts, and prompts after so many prefixes, each an axis of its own."""

    def linear(length: Scalar) -> Scalar:
        kernels = step_kernels(deployment, model, Prefill(1.0, length), as_float(1.0))
        return _step(deployment, {name: cost for name, cost in kernels.items() if name not in CONTEXT_KERNELS})

    def decode(number: Scalar, length: Scalar) -> Scalar:
        return _step(deployment, step_kernels(deployment, model, Decode(number, length), number)) - linear(number)

    def prefill(prefix: Scalar, length: Scalar) -> Scalar:
        kernels = step_kernels(deployment, model, Prefill(1.0, length, prefix), as_float(1.0))
        return _step(deployment, kernels) - linear(length)

    return StepTimeTable(
        tokens=_with_zero(jax.vmap(linear)(tokens), (0,)),
        decode=_with_zero(_grid(decode, decodes, contexts), (0, 1)),
        prefill=_with_zero(_grid(prefill, prefixes, lengths), (1,)),
        shared_prefill=jnp.float64(1.0),
        bucket=jnp.float64(CONTEXT_STEP),
        length_step=jnp.float64(LENGTH_STEP),
    )


def _grid(point, rows: Array, columns: Array) -> Float64[Array, "rows columns"]:
    return jax.vmap(jax.vmap(point, (None, 0)), (0, None))(rows, columns)


def _with_zero(values: Array, axes: tuple[int, ...]) -> Array:
    """A leading zero along `axes`: no tokens take no time."""
    return jnp.pad(values, [(1, 0) if axis in axes else (0, 0) for axis in range(values.ndim)])


def _step(deployment: Deployment, kernels: Kernels) -> Scalar:
    """Kernels one after the other, and the host beside them."""
    device_time = add_up(kernels, lambda cost: cost.time)
    return step_time(deployment.host, device_time, add_up(kernels, lambda cost: cost.launches))
