"""Several kinds of devices: how work is divided so that the slowest pool, which bounds the step, is fast."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwspecs.errors import InputError
from jaxperf.core.numerics import Scalar
from jaxperf.training.model import TrainingModel

LAYER_FIELDS = ("layers", "attention_layers", "window_layers", "mixer_layers", "dense_layers", "moe_layers")


def whole_shares(total: int, fixed: Sequence[float], speeds: Sequence[float], least: int = 0) -> list[int]:
    """Integers that sum to `total` with the least possible max_i (a_i + b_i / v_i).

    Each unit goes to the pool that would end it first, which is optimal because ends only grow (Graham 1969 for equal
    units). `least`: units that every pool gets in any case.

    **Raises:** `InputError` where there are fewer units than the pools must get.
    """
    if total < least * len(speeds):
        raise InputError(f"{total} units are too few for {len(speeds)} pools that need {least} each.")
    shares = [least] * len(speeds)
    for _ in range(total - sum(shares)):
        ends = [a + (share + 1) / v for a, share, v in zip(fixed, shares, speeds, strict=True)]
        shares[ends.index(min(ends))] += 1
    return shares


def cross_pool_reduction(gradients: Scalar, links: Float[Array, " pools"]) -> Scalar:
    """Ring all-reduce of gradients among k pools that each hold them whole, spread over all its devices [s].

    2 (k - 1) / k of the `gradients` [byte] through the narrowest of `links`, all ports of a pool together [byte/s].
    """
    pools = len(links)
    return 2.0 * (pools - 1) / pools * gradients / jnp.min(links)


def hand_over(size: Scalar, links: Float[Array, " pools"]) -> Float[Array, " borders"]:
    """Activations of `size` from each pool to the next, or their gradients back [s].

    size [byte] through the narrower of the `links` at a border, all ports of a pool's last or first stage together
    [byte/s].
    """
    return size / jnp.minimum(links[:-1], links[1:])


def part_of(model: TrainingModel, layers: int, first: bool, last: bool) -> TrainingModel:
    """A pool's `layers` of a model, each the average one; the token table is with the `first`, the head with the `last`
    of them."""
    share = layers / float(model.layers)
    scaled = {name: getattr(model, name) * share for name in (*LAYER_FIELDS, "other_parameters")}
    return dataclasses.replace(model, **scaled | {"layers": float(layers), "table": float(first), "head": float(last)})
