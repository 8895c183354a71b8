"""How the tokens of attention replicas reach the experts and come back."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import Scalar
from jaxperf.kernels.moe import Routing, busiest_rank
from jaxperf.models.blocks.launch import flagged
from jaxperf.models.deployment import Deployment
from jaxperf.network.collectives import all_gather_cost, all_reduce_cost, all_to_all_cost
from jaxperf.network.link import group_fabric


def exchange_costs(deployment: Deployment, hidden: Scalar, routing: Routing, tokens: Scalar) -> tuple[Cost, Cost]:
    """(dispatch, combine) of one MoE layer.

    With one attention replica every rank already holds every token: nothing is dispatched and one all-reduce of the
    tensor-parallel group combines. With several, each rank sends its share of the tokens by all-to-all, one copy per
    destination group (k choices fall on R (1 - (1 - 1/R)^k) of R groups) to every rank that shares its experts; these
    all-reduce their outputs, one of them sends each token back, and the tensor-parallel group gathers its tokens.
    """
    layout = deployment.layout
    activations = tokens * hidden * deployment.activations.itemsize
    tensor_fabric = flagged(deployment, deployment.tensor_fabric)
    reduce_all = all_reduce_cost(tensor_fabric, activations)
    ranks = layout.expert_parallel
    elsewhere = jnp.log1p(-jnp.clip(1.0 / ranks, 0.0, 1.0 - 1e-6))
    copies = ranks * -jnp.expm1(routing.chosen * elsewhere)
    link = deployment.efficiencies.link
    wide = flagged(deployment, group_fabric(deployment.device, layout.tensor_parallel * layout.data_parallel, link))
    uneven = busiest_rank(routing, tokens * layout.data_parallel, ranks)
    sent = activations / layout.tensor_parallel * copies * uneven
    expert_group = flagged(deployment, group_fabric(deployment.device, layout.expert_tensor_parallel, link))
    reduce_expert = all_reduce_cost(expert_group, activations * layout.data_parallel / ranks * copies)
    gather = all_gather_cost(tensor_fabric, activations)
    several = layout.data_parallel > 1.0
    dispatch = all_to_all_cost(wide, sent * layout.expert_tensor_parallel) * several.astype(ranks.dtype)
    spread = all_to_all_cost(wide, sent) + reduce_expert + gather
    combine = jax.tree.map(lambda a, b: jnp.where(several, a, b), spread, reduce_all)
    return dispatch, combine
