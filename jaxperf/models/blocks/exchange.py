"""How the tokens of attention replicas reach the experts and come back."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar
from jaxperf.kernels.moe import Routing, busiest_rank
from jaxperf.models.blocks.launch import flagged
from jaxperf.models.blocks.phase import Phase, Prefill
from jaxperf.models.deployment import Deployment
from jaxperf.network.collectives import all_gather_cost, all_reduce_cost, network_cost
from jaxperf.network.expert_exchange import exchange_pass, expected_hits
from jaxperf.network.link import group_fabric


def exchange_costs(deployment: Deployment, hidden: Scalar, routing: Routing, phase: Phase) -> tuple[Cost, Cost]:
    """(dispatch, combine) of one MoE layer.

    With one attention replica every rank already holds every token: nothing is dispatched and one all-reduce of the
    tensor-parallel group combines. With several, each rank sends its share of the tokens by all-to-all, in prefill one
    copy to each rank with a chosen expert and over the network one to each node, in decode one to each chosen expert
    (the normal and the low-latency kernels of DeepEP; `network.expert_exchange`). A copy goes to every rank that
    shares the expert; these all-reduce their outputs, one of them sends each token back, and the tensor-parallel group
    gathers its tokens.
    """
    layout, link = deployment.layout, deployment.efficiencies.link
    ranks, sharing = layout.expert_parallel, layout.expert_tensor_parallel
    activations = phase.tokens * hidden * deployment.activations.itemsize
    tensor_fabric = flagged(deployment, deployment.tensor_fabric)
    reduce_all = all_reduce_cost(tensor_fabric, activations)
    wide = flagged(deployment, group_fabric(deployment.device, layout.tensor_parallel * layout.data_parallel, link))
    held = activations / layout.tensor_parallel
    load = held * busiest_rank(routing, phase.tokens * layout.data_parallel, ranks)
    # Low-latency kernels write to each expert's own buffer on the one rank that has it.
    merged = jnp.where(sharing > 1.0, 1.0, float(isinstance(phase, Prefill)))
    hit = expected_hits(ranks, routing.chosen)
    sent = load * jnp.where(merged > 0.0, hit, routing.chosen) * (1.0 - 1.0 / (ranks * sharing))

    def exchange(receivers: Scalar | float) -> Cost:
        time = exchange_pass(wide, load, routing.chosen, merged, sharing=sharing, receivers=receivers)
        return network_cost(time, sent * receivers)

    several = layout.data_parallel > 1.0
    dispatch = exchange(sharing) * several.astype(ranks.dtype)
    expert_group = flagged(deployment, group_fabric(deployment.device, sharing, link))
    reduce_expert = all_reduce_cost(expert_group, activations * layout.data_parallel / ranks * hit)
    spread = exchange(1.0) + reduce_expert + all_gather_cost(tensor_fabric, activations)
    combine = jax.tree.map(lambda a, b: jnp.where(several, a, b), spread, reduce_all)
    return dispatch, combine
