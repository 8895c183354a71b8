"""The keys and values of a prompt on their way from the replica that made them to the one that decodes."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32

from jaxperf.core.numerics import Scalar
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.models.memory import kv_cache_bytes


class Transfer(eqx.Module):
    """How long each request N keeps its sender's link busy, `wire` [s], and how much later the last byte is there,
    `latency` [s]."""

    wire: Float64[Array, "*lanes N"]
    latency: Float64[Array, "*lanes"]


class Link(eqx.Module):
    """What one device sends or takes in one direction: `bandwidth` [byte/s], `latency` of a message [s]."""

    bandwidth: Scalar
    latency: Scalar


def network_link(deployment: Deployment) -> Link:
    """The scale-out link of a device, after the link efficiency."""
    device = deployment.device
    return Link(device.network_bandwidth * deployment.efficiencies.link, device.network_latency)


def node_link(deployment: Deployment) -> Link:
    """The scale-up links of a device, after the link efficiency."""
    device = deployment.device
    return Link(device.link_bandwidth * deployment.efficiencies.link, device.link_latency)


def wire_time(
    receiver: Deployment, model: Transformer, length: Scalar, sending: Link, taking: Link, senders: Scalar
) -> Scalar:
    """The time that a prompt's cache takes from one replica to another [s]; see `pull_time`.

    **Arguments:** `receiver`: the deployment that decodes; `length`: tokens of the prompt [1]; `sending`, `taking`: a
    device's link on either side; `senders`: ranks that computed the prompt [1].
    """
    share = kv_cache_bytes(receiver, model, jnp.ones_like(length), length)
    return pull_time(share, receiver.layout.tensor_parallel, senders, sending, taking)


def pull_time(share: Scalar, takers: Scalar, senders: Scalar, sending: Link, taking: Link) -> Scalar:
    """max(r b / (s B_s), b / B_r): each of the r ranks that decode pulls its own share of b bytes, which is counted as
    it is kept there, copies of shared heads included; the s ranks that computed the prompt send alike [s]."""
    return jnp.maximum(takers * share / (senders * sending.bandwidth), share / taking.bandwidth)


def arrivals(
    transfer: Transfer,
    done: Float64[Array, " N"],
    sender: Int32[Array, " N"],
    crosses: Bool[Array, " N"],
    senders: int,
) -> Float64[Array, " N"]:
    """When the cache of each request is there [s], infinite for one that stays: start_i = max(done_i, end_(i-1)).

    A replica sends one cache after the other, in the order in which they are done; its link is not slowed by others,
    and the receiver takes from any number of senders at once.
    """

    def send(free: Float64[Array, " R"], request: Int32[Array, ""]) -> tuple[Array, Array]:
        end = jnp.maximum(done[request], free[sender[request]]) + transfer.wire[request]
        to = jnp.where(crosses[request], sender[request], senders)
        return free.at[to].set(end, mode="drop"), end

    order = jnp.argsort(jnp.where(crosses, done, jnp.inf)).astype(jnp.int32)
    _, ends = jax.lax.scan(send, jnp.zeros(senders), order)
    found = jnp.zeros_like(done).at[order].set(ends)
    return jnp.where(crosses, found + transfer.latency, jnp.inf)
