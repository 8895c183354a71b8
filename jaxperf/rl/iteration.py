"""One iteration of reinforcement learning: answers are generated, scored, and learned from."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float


class Phases(eqx.Module):
    """Seconds of an iteration [s]: `generate` until the last answer has ended, `score` by all models that are asked,
    `train` all steps of all models that learn, `weights` on their way to who generates, `swap` of states between
    devices and host."""

    generate: Float[Array, "*batch"] = eqx.field(converter=as_float)
    score: Float[Array, "*batch"] = eqx.field(converter=as_float)
    train: Float[Array, "*batch"] = eqx.field(converter=as_float)
    weights: Float[Array, "*batch"] = eqx.field(converter=as_float)
    swap: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)


def iteration_time(phases: Phases, ahead: Scalar) -> Scalar:
    """One after the other where `ahead` is 0; where it is 1 answers are generated on devices of their own while those
    of the iteration before are learned from, and weights pass in between [s].

    t = generate + score + train + weights + swap, or max(generate, score + train) + weights (AReaL,
    arXiv:2505.24298, with a lag of one; HybridFlow, arXiv:2409.19256).
    """
    learn = phases.score + phases.train + phases.swap
    beside = jnp.maximum(phases.generate, learn)
    return jnp.where(ahead > 0.0, beside, phases.generate + learn) + phases.weights
