"""The kernels that one pass of some tokens launches on one rank, layer by layer and at the model's two ends."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar, ceil_div
from jaxperf.kernels.gather import embedding_cost
from jaxperf.models.blocks.base import AbstractMixer, Kernels
from jaxperf.models.blocks.launch import add, flagged, in_format, norm, plain_linear, plain_norm, reduce
from jaxperf.models.blocks.phase import Phase
from jaxperf.models.blocks.streams import collapse_kernels, mixing_kernels
from jaxperf.models.deployment import Deployment
from jaxperf.models.host import step_time
from jaxperf.models.layers import LayerGroup, Transformer
from jaxperf.network.collectives import all_gather_cost

Each = TypeVar("Each")

END_KERNELS = (
    *("embedding", "embedding_projection", "final_streams_projection", "final_streams_collapse", "final_norm"),
    *("head_projection", "output_head", "logits_all_gather"),
)
# What depends on the context, least first.
CONTEXT_KERNELS = ("indexer", "top_k", "prefix_expansion", "attention")


def add_up(kernels: Mapping[str, Each], quantity: Callable[[Each], Scalar]) -> Scalar:
    """Sum of a quantity over kernels, attention last.

    Over a grid only attention depends on the context: added last, it leaves every earlier partial sum as small as
    the axes it really uses.
    """
    first = [quantity(cost) for name, cost in kernels.items() if name not in CONTEXT_KERNELS]
    last = [quantity(kernels[name]) for name in CONTEXT_KERNELS if name in kernels]
    return functools.reduce(jnp.add, first + last)


def one_stage_time(deployment: Deployment, kernels: Kernels) -> Scalar:
    """Kernels of one pipeline stage one after the other, and the host beside them (`models.host`) [s]."""
    device_time = add_up(kernels, lambda cost: cost.time)
    return step_time(deployment.host, device_time, add_up(kernels, lambda cost: cost.launches))


def merged(parts: Sequence[Kernels]) -> Kernels:
    """All kernels by name, those of the same name added."""
    together: Kernels = {}
    for part in parts:
        for name, cost in part.items():
            together[name] = together[name] + cost if name in together else cost
    return together


def group_kernels(deployment: Deployment, hidden: Scalar, groups: Sequence[LayerGroup], phase: Phase) -> Kernels:
    """Every layer of the groups: the kernels of one layer times how often it occurs."""
    layers = [(layer_kernels(deployment, hidden, group, phase), group.repeats) for group in groups]
    return merged([{name: cost * repeats for name, cost in kernels.items()} for kernels, repeats in layers])


def layer_kernels(deployment: Deployment, hidden: Scalar, group: LayerGroup, phase: Phase) -> Kernels:
    """One layer on one rank: its blocks, the norms around them, and what joins their outputs."""
    parts = [norm_kernels(deployment, hidden, group, phase.tokens)]
    mixing, beside, feeding = (in_own_format(deployment, group, block) for block in ("mixer", "beside", "ffn"))
    if group.mixer is not None:
        parts += [mixer.kernels(at, hidden, phase) for mixer, at in zip(group.mixers, (mixing, beside), strict=False)]
        if not group.added_once:
            parts.append(reduce_kernel(deployment, hidden, group.mixer, phase))
    if group.parallel or group.beside is not None:
        parts.append({"branch_add": add(deployment, phase.tokens, hidden)})
    if group.cross is not None:
        parts.append(group.cross.kernels(mixing, hidden, phase))
        parts += [] if group.merged else [reduce_kernel(deployment, hidden, group.cross, phase)]
    if group.ffn is not None:
        parts.append(group.ffn.kernels(feeding, hidden, phase))
    parts += [{"layer_projections": plain_linear(deployment, phase.tokens, n, k)} for k, n in group.projections]
    return merged(parts)


def in_own_format(deployment: Deployment, group: LayerGroup, block: str) -> Deployment:
    """The deployment as a block sees it: its weights in the format of their own where the checkpoint has one."""
    own = dict(group.own)
    return in_format(deployment, own[block]) if block in own else deployment


def reduce_kernel(deployment: Deployment, hidden: Scalar, mixer: AbstractMixer, phase: Phase) -> Kernels:
    """The all-reduce after a mixer's output projection."""
    return {f"{mixer.name}_all_reduce": reduce(deployment, phase.tokens, hidden)}


def norm_kernels(deployment: Deployment, hidden: Scalar, group: LayerGroup, tokens: Scalar) -> Kernels:
    """A norm for each block while they last, then norms after the blocks (Gemma 2 has four for two blocks).

    Each adds the residual; a norm after its block instead of before costs the same. Where the residual has several
    streams they are mixed around each block instead, and the norms read what the block reads.
    """
    blocks = [mixer.name for mixer in (group.mixer, None if group.merged else group.cross) if mixer is not None]
    blocks += [] if group.ffn is None else ["ffn"]
    names = [f"{block}_norm" for block in blocks] + [f"post_{block}_norm" for block in blocks]
    one = norm if group.streams == 1 else plain_norm
    kernels = {name: one(deployment, tokens, hidden) for name in names[: group.norms]}
    if group.streams == 1:
        return kernels
    mixed = (group.streams, group.stream_weights)
    return merged([kernels, *(mixing_kernels(deployment, tokens, hidden, *mixed, block) for block in blocks)])


def edge_kernels(deployment: Deployment, model: Transformer, tokens: Scalar, outputs: Scalar) -> Kernels:
    """Before the first layer and after the last: embedding, final norm, output head for `outputs` tokens, logits.

    The tables are split over the vocabulary and stay unquantized, as in every quantization in use; the projections
    between their width and the model's (OPT-350m) are small and held by every rank.
    """
    device, tables = deployment.device, deployment.activations
    columns, width = ceil_div(model.vocabulary, deployment.layout.tensor_parallel), model.embedding_width
    logits = outputs * model.vocabulary * tables.itemsize
    kernels = {
        "embedding": embedding_cost(device, tokens, width, tables.itemsize, deployment.efficiencies.elementwise),
        "final_norm": (norm if model.streams == 1 else plain_norm)(deployment, outputs, model.hidden),
        "output_head": plain_linear(deployment, outputs, columns, width),
        "logits_all_gather": all_gather_cost(flagged(deployment, deployment.tensor_fabric), logits),
    }
    if model.streams > 1:
        kernels |= collapse_kernels(deployment, outputs, model.hidden, model.streams, model.streams, "final")
    if model.projected:
        kernels["embedding_projection"] = plain_linear(deployment, tokens, model.hidden, width)
        kernels["head_projection"] = plain_linear(deployment, outputs, width, model.hidden)
    return kernels
