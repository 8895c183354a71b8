"""What of the forward pass is computed again before the backward one: whole layers, or modules of them.

Modules are those of Megatron-Core (`--recompute-modules`, megatron/core/transformer/transformer_config.py). A module
that is computed again drops what it keeps inside; norms, activations of experts and the projections up from MLA's
latents drop their output, too, which the product behind them reads.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwspecs.errors import InputError
from jaxperf.core.numerics import Scalar
from jaxperf.training.layout import MODULES, Layout
from jaxperf.training.model import TrainingModel


class Again(eqx.Module):
    """Share of the layers that compute again: the `whole` of themselves; or their attention `core`, `norms`, `up`
    projections from latents, `dense` feed-forward blocks, blocks of `experts`, the `shared` expert, the experts'
    `activation` alone [1]."""

    whole: Float[Array, "*batch"]
    core: Float[Array, "*batch"]
    norms: Float[Array, "*batch"]
    up: Float[Array, "*batch"]
    dense: Float[Array, "*batch"]
    experts: Float[Array, "*batch"]
    shared: Float[Array, "*batch"]
    activation: Float[Array, "*batch"]


def computed_again(layout: Layout) -> Again:
    """What a layout computes again. A block of experts has its shared expert and its activations inside."""
    full = layout.recompute > 1.5
    some = jnp.where((layout.recompute > 0.5) & ~full, layout.recomputed_share, 0.0)
    experts = some * layout.recompute_moe
    return Again(
        whole=jnp.where(full, layout.recomputed_share, 0.0),
        core=some * layout.recompute_core_attn,
        norms=some * layout.recompute_layernorm,
        up=some * layout.recompute_mla_up_proj,
        dense=some * layout.recompute_mlp,
        experts=experts,
        shared=jnp.maximum(experts, some * layout.recompute_shared_experts),
        activation=some * layout.recompute_moe_act * (1.0 - layout.recompute_moe),
    )


def layer_again(again: Again, **modules: Scalar) -> Scalar:
    """Sum over the named `modules` of their amount times the share of the layers that compute them again."""
    total = jnp.zeros_like(again.whole)
    for name, amount in modules.items():
        total = total + getattr(again, name) * amount
    return total


def modules_of(model: TrainingModel) -> tuple[str, ...]:
    """Those of `MODULES` that a model has."""
    layers = {
        "core_attn": model.attention_layers,
        "layernorm": model.layers,
        "mla_up_proj": model.up_rows,
        "mlp": model.dense_layers,
        "moe": model.moe_layers,
        "moe_act": model.moe_layers,
        "shared_experts": model.moe_layers * model.shared_weights,
    }
    return tuple(name for name in MODULES if float(layers[name]) > 0.0)


def check_modules(what: str, name: str, model: TrainingModel, modules: Sequence[str]) -> None:
    """Raises `InputError` for modules that a model has none of, for which nothing would be computed again; `what`: how
    the caller was told them, `name` of the model."""
    own = modules_of(model)
    if without := [module for module in modules if module not in own]:
        raise InputError(f"{what}: {name} has no {without[0]}; it has {', '.join(own)}.")
