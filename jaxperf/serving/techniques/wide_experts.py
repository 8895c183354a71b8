"""Experts spread over many nodes: copies of hot experts against imbalance (DeepSeek-V3, arXiv 2412.19437, 3.4).

The expert with the most load a copy gets the next spare slot, then the copies are packed, the heaviest first, each on
the least loaded rank with a slot left (DeepSeek's EPLB, 2025).

How uneven the experts are follows from the skew of the ranks: popularity falls as a power of the place (Zipf), and the
rank of the most popular expert, with others that chance put beside it, has the skew times the mean:

    R (p + (e - 1) (1 - p) / (E - 1)) = skew,    e = E / R experts a rank,    p = 1 / sum_i i^-z
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwspecs.errors import InputError
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.models.blocks.moe import MoeFfn
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import LayerGroup, Transformer

STEEPEST = 64.0  # exponent of popularity: all tokens choose one expert
BISECTIONS = 50


class ExpertCopies(eqx.Module):
    """`count` slots for copies of experts, over all ranks [1]; load of the busiest rank over the mean without them,
    `skew`, and with them, `balanced` (see `balanced_skew`) [1]."""

    count: Float[Array, ""] = eqx.field(converter=as_float)
    skew: Float[Array, ""] = eqx.field(converter=as_float)
    balanced: Float[Array, ""] = eqx.field(converter=as_float)


def without_copies(deployment: Deployment, copies: ExpertCopies | None) -> Deployment:
    """The deployment with the skew that copies are made against; itself where there are none."""
    return deployment if copies is None else dataclasses.replace(deployment, routing_skew=copies.skew)


def with_copies(
    deployment: Deployment, model: Transformer, copies: ExpertCopies | None
) -> tuple[Deployment, Transformer]:
    """Both with the copies: more slots in every layer that has experts, loads that are more even."""
    if copies is None:
        return deployment, model

    def more(group: LayerGroup) -> LayerGroup:
        if not isinstance(group.ffn, MoeFfn):
            return group
        return dataclasses.replace(group, ffn=dataclasses.replace(group.ffn, copies=copies.count))

    groups = tuple(map(more, model.groups))
    return dataclasses.replace(deployment, routing_skew=copies.balanced), dataclasses.replace(model, groups=groups)


def hottest_share(experts: int, ranks: int, skew: Scalar | float) -> Scalar:
    """Share of the most popular expert where its rank has on average `skew` times the mean load [1].

    **Arguments:** `ranks` of 2 or more; `skew` from 1 to below `ranks`.
    """
    beside = (experts / ranks - 1.0) / (experts - 1.0)  # of the load of the others, what is on the same rank
    return (as_float(skew) / ranks - beside) / (1.0 - beside)


def zipf_load(experts: int, hottest: Scalar) -> Float[Array, " experts"]:
    """Shares i^-z / sum i^-z whose first is `hottest` [experts]; bisection, and a step of Newton's method from there
    which carries the derivative (implicit function theorem)."""
    places = jnp.log(jnp.arange(1.0, experts + 1.0))

    def excess(z: Scalar) -> Scalar:
        return jnp.log(hottest) + jax.nn.logsumexp(-z * places)

    def halve(_: int, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        middle = 0.5 * (ends[0] + ends[1])
        steeper = excess(middle) > 0.0
        return jnp.where(steeper, middle, ends[0]), jnp.where(steeper, ends[1], middle)

    found, _ = jax.lax.stop_gradient(jax.lax.fori_loop(0, BISECTIONS, halve, (as_float(0.0), as_float(STEEPEST))))
    slope = jax.lax.stop_gradient(jax.grad(excess)(found))
    return jax.nn.softmax(-(found - excess(found) / slope) * places)


def balanced_skew(experts: int, ranks: int, copies: int, skew: Scalar | float) -> Scalar:
    """Load of the busiest rank over the mean once `copies` copies are made and packed, at least 1 [1].

    **Arguments:** as `hottest_share`. **Raises:** `InputError` as `rank_loads` does.
    """
    return imbalance(zipf_load(experts, hottest_share(experts, ranks, skew)), ranks, copies)


def expert_copies(load: Float[Array, " experts"], spare: int) -> Float[Array, " experts"]:
    """Copies of each expert: one, and one of `spare` more for whoever has the most load a copy, in turn [experts]."""

    def one(_: int, copies: Array) -> Array:
        return copies.at[jnp.argmax(load / copies)].add(1.0)

    return jax.lax.fori_loop(0, spare, one, jnp.ones_like(load))


def rank_loads(load: Float[Array, " experts"], ranks: int, spare: int) -> Float[Array, " ranks"]:
    """Load of each rank once the copies are packed, slots shared out evenly [ranks].

    **Arguments:** `load` of each expert, in any unit; `ranks` must divide the experts and the spare slots together.
    **Raises:** `InputError` where they do not.
    """
    slots = load.shape[0] + spare
    if ranks < 1 or spare < 0 or slots % ranks:
        raise InputError(
            f"{load.shape[0]} experts and {spare} copies are not shared out evenly by {ranks} ranks; choose the copies "
            "so that they are."
        )
    copies = expert_copies(load, spare)
    expert = jnp.repeat(jnp.arange(load.shape[0]), copies.astype(jnp.int32), total_repeat_length=slots)
    each = jnp.sort((load / copies)[expert], descending=True)

    def place(state: tuple[Array, Array], weight: Array) -> tuple[tuple[Array, Array], None]:
        loads, room = state
        rank = jnp.argmin(jnp.where(room > 0.0, loads, jnp.inf))
        return (loads.at[rank].add(weight), room.at[rank].add(-1.0)), None

    room = jnp.full(ranks, float(slots // ranks))
    (loads, _), _ = jax.lax.scan(place, (jnp.zeros(ranks), room), each)
    return loads


def imbalance(load: Float[Array, " experts"], ranks: int, spare: int) -> Scalar:
    """Load of the busiest rank over the mean, at least 1 [1]. Raises `InputError` as `rank_loads` does."""
    return jnp.max(rank_loads(load, ranks, spare)) * ranks / jnp.sum(load)
