"""How the tokens of attention replicas reach the experts and come back."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.kernels.moe import Routing, busiest_rank
from jaxperf.kernels.roofline import operand_itemsize
from jaxperf.models.blocks.launch import flagged
from jaxperf.models.blocks.phase import Phase, Prefill
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.network.collectives import all_gather_cost, all_reduce_cost, network_cost
from jaxperf.network.expert_exchange import exchange_pass, token_hits
from jaxperf.network.limited_routing import GroupLimit, hits_table
from jaxperf.network.link import Fabric, group_fabric


def exchange_costs(
    deployment: Deployment, hidden: Scalar, routing: Routing, phase: Phase, limit: GroupLimit | None = None
) -> tuple[Cost, Cost]:
    """(dispatch, combine) of one MoE layer; `limit`: the groups of experts that a token keeps to.

    With one attention replica every rank already holds every token: nothing is dispatched and one all-reduce of the
    tensor-parallel group combines. With several, each rank sends its share of the tokens to every rank that shares a
    chosen expert; these all-reduce their outputs, one of them sends each token back, and the tensor-parallel group
    gathers its tokens. Over several nodes tokens are dispatched in the format that the experts multiply (DeepSeek-V3,
    arXiv:2412.19437, 3.3); inside one, where engines by default gather what attention left, in its format.
    """
    layout, link = deployment.layout, deployment.efficiencies.link
    ranks, sharing = layout.expert_parallel, layout.expert_tensor_parallel
    activations = phase.tokens * hidden * deployment.activations.itemsize
    tensor_fabric = flagged(deployment, deployment.tensor_fabric)
    reduce_all = all_reduce_cost(tensor_fabric, activations)
    wide = flagged(deployment, group_fabric(deployment.device, layout.tensor_parallel * layout.data_parallel, link))
    uneven = busiest_rank(routing, phase.tokens * layout.data_parallel, ranks)
    load = activations / layout.tensor_parallel * uneven
    narrow = operand_itemsize(deployment.device, deployment.weights, deployment.activations)
    narrowed = jnp.where(wide.nodes > 1.0, narrow / deployment.activations.itemsize, 1.0)
    several = layout.data_parallel > 1.0
    there = _sent(wide, layout, routing, phase, load * narrowed, sharing, limit)
    dispatch = there * several.astype(ranks.dtype)
    expert_group = flagged(deployment, group_fabric(deployment.device, sharing, link))
    outputs = activations * layout.data_parallel / ranks * token_hits(ranks, routing.chosen, _table(limit))
    back = _sent(wide, layout, routing, phase, load, as_float(1.0), limit)
    spread = back + all_reduce_cost(expert_group, outputs) + all_gather_cost(tensor_fabric, activations)
    combine = jax.tree.map(lambda a, b: jnp.where(several, a, b), spread, reduce_all)
    return dispatch, combine


def _sent(
    fabric: Fabric,
    layout: Parallelism,
    routing: Routing,
    phase: Phase,
    size: Scalar,
    receivers: Scalar,
    limit: GroupLimit | None,
) -> Cost:
    """One rank's tokens of `size` bytes to `receivers` of the ranks of each chosen expert.

    Prefill: one copy to each rank, over the network one to each node; decode: one to each expert (the normal and the
    low-latency kernels of DeepEP), as the latter write to a buffer of the expert on the one rank that has it.
    """
    ranks, sharing = layout.expert_parallel, layout.expert_tensor_parallel
    merged = jnp.where(sharing > 1.0, 1.0, float(isinstance(phase, Prefill)))
    time = exchange_pass(
        fabric, size, routing.chosen, merged, sharing=sharing, receivers=receivers, table=_table(limit)
    )
    copies = jnp.where(merged > 0.0, token_hits(ranks, routing.chosen, _table(limit)), routing.chosen)
    return network_cost(time, size * copies * receivers * (1.0 - 1.0 / (ranks * sharing)))


def _table(limit: GroupLimit | None) -> Float[Array, " bins"] | None:
    return None if limit is None else as_float(hits_table(limit))
