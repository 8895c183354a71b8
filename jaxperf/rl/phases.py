"""What an iteration has beside generation and steps of training: scoring, and weights on their way to who generates."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.network.alpha_beta import Hop
from jaxperf.network.alpha_beta_exchange import chain_broadcast
from jaxperf.network.collectives import all_gather_cost
from jaxperf.network.hierarchy import group_link, pair_link


def scoring_time(through: Scalar, stage: Scalar, micro_batches: Scalar) -> Scalar:
    """Forward passes of `micro_batches`, one after the other through a pipeline: the first takes `through`, each
    further one waits for the busiest `stage` [s]."""
    return jnp.where(micro_batches > 0.0, through + (micro_batches - 1.0) * stage, 0.0)


def gathered_beside(through: Scalar, device: Device, weights: Scalar, members: Scalar, stride: Scalar) -> Scalar:
    """A forward pass while its weights are gathered layer by layer from `members` ranks that share them (ZeRO-3,
    arXiv:1910.02054), whichever is longer [s].

    **Arguments:** `weights`: of a rank once they are gathered [byte]; `stride`: devices between members [1].
    """
    return jnp.maximum(through, all_gather_cost(group_link(device, members, stride), weights).time)


def gathering_time(device: Device, weights: Scalar, trained: Scalar, generating: Scalar) -> Scalar:
    """Weights that are kept in `trained` parts become those of replicas of `generating` parts, on the same devices [s].

    Ranks that lie side by side hold what one of them needs: each gathers `weights` / `generating` bytes from k =
    trained / generating of them; with as many parts or more, nothing moves (HybridFlow, arXiv:2409.19256, section 5).

    **Arguments:** `weights`: of the whole model [byte]; `trained`, `generating`: parts it is divided in [1].
    """
    members = jnp.maximum(ceil_div(trained, generating), 1.0)
    return all_gather_cost(group_link(device, members, as_float(1.0)), weights / generating).time


def sending_time(device: Device, weights: Scalar, generating: Scalar, replicas: Scalar, devices: Scalar) -> Scalar:
    """Weights go from devices that train to `replicas` on others, one after the other in pieces [s].

    Every port of a replica takes its own part: a chain of the replicas and one that has the weights, over the slowest
    link between neighbors of all `devices`.

    **Arguments:** `weights`: of the whole model [byte]; `generating`: parts of a replica [1].
    """
    pair = pair_link(device, devices, as_float(1.0))
    across = pair.nodes > 1.0
    latency = jnp.where(across, pair.network_latency, pair.local_latency)
    bandwidth = jnp.where(across, pair.network_bandwidth, pair.local_bandwidth)
    return chain_broadcast(replicas + 1.0, weights / generating, Hop(latency, bandwidth))
