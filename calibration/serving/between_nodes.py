"""Collectives of a step whose ranks are in several nodes, which engines leave to the collective library.

An engine's own all-reduce reads its peers' memory, so it ends with the node (vLLM and SGLang `custom_all_reduce`,
TensorRT-LLM's one-shot and two-shot); beyond it NCCL runs, in its rings and trees (`jaxperf.network.nccl`):

    t = t_priced x t_nccl(S) / t_alpha-beta(S)      of an all-reduce of S bytes;      t = t_priced      of an exchange

Exchanges of tokens between nodes take what they are priced at: 41 us each for 28 tokens a rank on 16 H100, where
DeepEP's low-latency kernels take 40 and 61 for 32 (dispatch and combine of SGLang, `data/kernels/collectives.parquet`).
"""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from calibration.collectives.facts import STAND_IN_TIER
from hwspecs import DeviceSpec
from jaxperf.core.numerics import Scalar
from jaxperf.models.blocks.launch import flagged
from jaxperf.models.deployment import Deployment
from jaxperf.models.step import COLLECTIVES
from jaxperf.network.collectives import all_reduce_cost
from jaxperf.network.link import Fabric, group_fabric
from jaxperf.network.nccl import NcclGroup, nccl_all_reduce_time
from jaxperf.network.nccl_constants import NcclTier, nccl_tier, tier_of

EXCHANGES = frozenset({"expert_dispatch", "expert_combine"})
TENSOR = COLLECTIVES - {"pipeline_send", "draft_collectives"}  # of the tensor-parallel group


class Library(eqx.Module):
    """What a collective library makes of a device: `tier`: its constants of the generation; `pcie`: 1 where the ranks
    of a node are joined by PCIe."""

    tier: NcclTier
    pcie: Float[Array, "*batch"]


def library_of(spec: DeviceSpec) -> Library:
    """The library on a device, leaves on the host."""
    tier = nccl_tier(tier_of(spec.architecture) or STAND_IN_TIER)
    return Library(tier, jnp.asarray(float(spec.node.topology == "pcie")))


def stand_in_between(spec: DeviceSpec, ranks: float) -> str:
    """A sentence where the all-reduces of so many ranks leave the node and the device has no NCCL, else none."""
    if ranks <= spec.node.size.si or tier_of(spec.architecture):
        return ""
    return f"between nodes NCCL's constants of {STAND_IN_TIER.capitalize()} stand in"


def shares_between(deployment: Deployment, library: Library, size: Scalar) -> Mapping[str, Scalar]:
    """Time of each collective of a step between nodes over what it is priced at; 0 where its ranks are in one node [1].

    **Arguments:** `size`: what the tokens of one attention replica make in a step, by which tensor-parallel ranks
    all-reduce [byte].
    """
    layout, device, link = deployment.layout, deployment.device, deployment.efficiencies.link
    group = flagged(deployment, group_fabric(device, layout.tensor_parallel, link))
    wide = group_fabric(device, layout.tensor_parallel * layout.data_parallel, link)
    gathers = (group.nodes > 1.0).astype(size.dtype)
    priced = jnp.where(group.nodes > 1.0, all_reduce_cost(group, size).time, 1.0)
    reduces = (
        gathers * nccl_all_reduce_time(library_group(deployment, library, group), library.tier, size).time / priced
    )
    exchanges = jnp.where(layout.data_parallel > 1.0, (wide.nodes > 1.0).astype(size.dtype), reduces)
    return {
        name: exchanges if name in EXCHANGES else reduces if name.endswith("all_reduce") else gathers for name in TENSOR
    }


def library_group(deployment: Deployment, library: Library, fabric: Fabric) -> NcclGroup:
    """The communicator of the ranks of a fabric, each with a port of its own."""
    link, tier = deployment.device.link_bandwidth, library.tier
    return NcclGroup(
        ranks=fabric.members,
        nodes=fabric.nodes,
        bus_bandwidth=link * tier.link_share,
        channels=tier.channels,
        pcie=library.pcie,
        nvls_bandwidth=link * tier.nvls_share,
        network_bandwidth=deployment.device.network_bandwidth * fabric.ports,
        shared_port=jnp.zeros_like(link),
    )
