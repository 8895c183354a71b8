"""From which batch on a speculative step no longer pays, its verification being compute-bound before the plain one is;
and from which on two micro-batches pay, once their exchange is longer than reading the weights again."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.models.step import StepCost, decode_cost
from jaxperf.models.transformer import one_stage_time
from jaxperf.serving.techniques.speculative import Speculation, expected_tokens, round_kernels
from jaxperf.serving.techniques.step import Step, several_token_kernels, with_kernels
from jaxperf.serving.techniques.two_batches import decode_in_two

MOST_DOUBLINGS = 12  # of one sequence per attention replica


def speculative_step(
    deployment: Deployment, model: Transformer, speculation: Speculation, batch: Scalar, context: Scalar
) -> tuple[StepCost, Scalar]:
    """(a round, its time per output token [s]); see `models.step.decode_cost` for the plain step."""
    plain = decode_cost(deployment, model, batch, context)
    kernels = round_kernels(deployment, model, speculation, batch, context, as_float(0.0))
    step = with_kernels(deployment, plain, kernels)
    return step, step.time / expected_tokens(speculation.acceptance)


def break_even_batch(deployment: Deployment, model: Transformer, speculation: Speculation, context: Scalar) -> Scalar:
    """The smallest batch, doubling from one sequence per attention replica, from which on a token takes no less time
    than in a plain step, were there memory for it; infinite where it pays up to 2^`MOST_DOUBLINGS` of them [1]."""
    roomy = dataclasses.replace(deployment, device=deployment.device.replace(memory_capacity=jnp.inf))

    def pays(batch: Scalar) -> Bool[Array, ""]:
        _, token = speculative_step(roomy, model, speculation, batch, context)
        return token < decode_cost(roomy, model, batch, context).time

    batches = deployment.layout.data_parallel * 2.0 ** jnp.arange(MOST_DOUBLINGS + 1.0)
    return first_of_the_rest(~jax.vmap(pays)(batches), batches)


def paying_batch(
    deployment: Deployment, model: Transformer, speculation: Speculation | None, context: Scalar
) -> Scalar:
    """The smallest batch, doubling from two sequences per attention replica, from which on a step in two micro-batches
    takes less time than in one, were there memory for it; infinite where it does not up to 2^`MOST_DOUBLINGS` [1]."""
    zero = as_float(0.0)

    def pays(batch: Scalar) -> Bool[Array, ""]:
        sequences = ceil_div(batch, deployment.layout.data_parallel)

        def time(step: Step) -> Scalar:
            if speculation is None:
                kernels = step(deployment, model, sequences, context, as_float(1.0), zero)
            else:
                kernels = round_kernels(deployment, model, speculation, batch, context, zero, step)
            return one_stage_time(deployment, kernels)

        return time(decode_in_two) < time(several_token_kernels)

    batches = deployment.layout.data_parallel * 2.0 ** jnp.arange(1.0, MOST_DOUBLINGS + 1.0)
    return first_of_the_rest(jax.vmap(pays)(batches), batches)


def first_of_the_rest(condition: Bool[Array, " n"], values: Float[Array, " n"]) -> Scalar:
    """The smallest of the growing `values` [1] at which and above which the condition holds; infinite without one."""
    ever_after = jnp.flip(jnp.cumprod(jnp.flip(condition).astype(values.dtype)))
    return jnp.min(jnp.where(ever_after > 0.5, values, jnp.inf))
