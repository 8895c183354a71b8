"""What the steps of a deployment are made of: time by kind of kernel over a grid of batches, and what memory holds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from calibration.serving.between_nodes import library_of, shares_between
from calibration.serving.clients import BUDGET
from calibration.serving.engines import cache_format, held_share
from calibration.serving.kernel_counts import added_kernels, counted
from calibration.serving.layouts import Deployed
from hwspecs import DeviceSpec
from jaxperf.core.efficiency import AbstractEfficiency, SustainedEfficiency
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.core.sustained import CalibratedDevice
from jaxperf.core.sustained_file import SustainedTable, calibration_of
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.config import ModelConfig
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer, transformer
from jaxperf.models.memory import kv_cache_bytes, memory_use, stage_share
from jaxperf.models.step import COLLECTIVES, decode_cost, prefill_cost
from jaxperf.models.towers import PREFIX, own_prompt, source_tokens, tower_positions
from jaxperf.models.transformer import CONTEXT_KERNELS, add_up
from jaxperf.serving.study import Assumed, assumed_at, deployment_of, formats_of
from jaxperf.sweeps.once import evaluate_over

KINDS = ("dense", "experts", "attention", "light", "collective", "between", "peers", "floor")
PRICED = KINDS[:-2]  # kinds of kernels; the others are of all kernels of a step
SEQUENCES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)  # in decode, of one attention replica
PROMPTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # in one prefill of an attention replica
LINEAR = ("delta_rule", "selective_scan", "lightning", "recurrence")
DENSE = ("projection", "router", "head", "absorb", "expansion")
# What a kernel in a replayed graph takes to start and drain [s], alike in all formats; kernels measured alone are not
# (products: 9 us in FP8, their quantization included, 3 us in BF16). The fitted `floor` multiplies it.
KERNEL_GAP = 5e-6


class Pieces(eqx.Module):
    """Of one deployment at its lengths.

    `decode` [S, K], `prefill` [P, K]: time by `KINDS` of one step at each of `SEQUENCES` and `PROMPTS`, "collective"
    being those of ranks in one node and "between" those of others, "peers" what one-shot all-reduces read beside (0 in
    prefill), "floor" what the kernels of all kinds take to launch and drain [s]; `launches`: kernels of a step that the
    host is counted to launch, those inside an operator of an engine (`kernel_counts`) left out [1]; `slots`: sequences
    that an attention replica has memory for, as its engine gives it out, of a fixed batch to their last token [1];
    `transfer`: cache of one prompt on one rank over the scale-out link [s]; `stages`: share of the layers on the
    fullest pipeline stage [1]; `reason`: bits of `core.feasible.Reason`.
    """

    decode: Float[Array, "*batch S K"]
    prefill: Float[Array, "*batch P K"]
    launches: Float[Array, "*batch"]
    slots: Float[Array, "*batch"]
    transfer: Float[Array, "*batch"]
    stages: Float[Array, "*batch"]
    reason: Int[Array, "*batch"]


def pieces_of(points: Sequence[Deployed], table: SustainedTable, level: str = "nominal") -> Pieces:
    """The pieces of every deployment, leaves [points, ...] on the host; one trace for each model.

    **Arguments:** `level`: of `jaxperf.core.sustained.RATE_LEVELS`; "roofline" for every efficiency at 1.
    """
    specs = {_key(point.spec): point.spec for point in points}
    devices = {key: jax.device_get(calibration_of(spec, table).calibrated) for key, spec in specs.items()}
    assumed = assumed_at(level, "graph")
    places = {model: [at for at, point in enumerate(points) if point.model == model] for model in _models(points)}

    found: dict[int, Pieces] = {}
    for model, own in places.items():
        arguments = _stacked([_arguments(points[at], devices[_key(points[at].spec)]) for at in own])
        rows = evaluate_over(_pieces(model), assumed, arguments, along=((), (0,)))
        found |= {at: jax.tree.map(lambda leaf, row=row: leaf[row], rows) for row, at in enumerate(own)}
    return _stacked([found[at] for at in range(len(points))])


def _models(points: Sequence[Deployed]) -> list[ModelConfig]:
    return list(dict.fromkeys(point.model for point in points))


def _stacked(points: Sequence[Any]) -> Any:
    """Pytrees of one structure stacked leaf by leaf, on the host."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *points)


def _key(spec: DeviceSpec) -> tuple[str, float]:
    """What tells devices apart: one may be there with and without a power cap."""
    return spec.name, spec.tdp.si


def _arguments(point: Deployed, device: CalibratedDevice) -> dict[str, Any]:
    engine, fixed = point.configuration.engine, point.configuration.mode == "static"
    numbers = {
        "tensor_parallel": point.tensor,
        "pipeline_parallel": point.pipeline,
        "data_parallel": point.data,
        "expert_parallel": point.expert,
        "prompt": point.prompt,
        "output": point.output,
        "held": point.output * (1.0 if fixed else held_share(engine)),
        "added": added_kernels(point.model, engine, point.weights),
        "alone": float(not counted(engine)),
    }
    own, checkpoint = point.model.weight_format, point.configuration.model
    cache = cache_format(engine, point.weights, own, checkpoint)
    formats = _formats(point.weights, cache)
    return {"device": device, "library": jax.device_get(library_of(point.spec)), **formats, **numbers}


@functools.cache
def _formats(weights: str, cache: str) -> dict[str, NumberFormat]:
    return jax.device_get(formats_of(weights, cache))


@functools.cache
def _pieces(config: ModelConfig) -> Callable[[Assumed, dict[str, Any]], Pieces]:
    """The pieces of a deployment of a model."""
    model = transformer(config)

    def one(assumed: Assumed, given: dict[str, Any]) -> Pieces:
        prompt, output, held = (given.pop(name) for name in ("prompt", "output", "held"))
        added, alone, library = (given.pop(name) for name in ("added", "alone", "library"))
        deployment = deployment_of(assumed, **given)
        data, zero, single = deployment.layout.data_parallel, as_float(0.0), as_float(1.0)
        # Where an encoder reads the prompt, the decoder keeps its own tokens and what it attends across to.
        own, source = own_prompt(model, prompt), source_tokens(model, prompt, None)
        held, positions = own + held, tower_positions(model, single, prompt, None)

        def timed(kernels: Kernels, tokens: Scalar) -> Array:
            size = tokens * model.hidden * deployment.activations.itemsize
            return by_kind(kernels, shares_between(deployment, library, size))

        def decode(share: Scalar, sequences: Scalar) -> tuple[Array, Array, Array]:
            floored = with_floors(deployment, share)
            step = decode_cost(floored, model, sequences * data, own + output / 2.0, source)
            return timed(step.kernels, sequences), add_up(step.kernels, lambda cost: cost.launches), step.reason

        def prefill(share: Scalar, prompts: Scalar) -> Array:
            floored = with_floors(deployment, share)
            return timed(prefill_cost(floored, model, prompts * data, prompt, zero).kernels, prompts * own)

        decodes, launches, reason = _over(decode, SEQUENCES)
        launches = launches[0, 0] + split_norm_kernels(config, deployment.layout.tensor_parallel)
        peers = peer_reads(deployment, model) * as_float(SEQUENCES)
        if model.encodes_prompt:  # which may be longer than its encoder was trained for
            reason = reason | prefill_cost(deployment, model, data, prompt, zero).reason
        memory = memory_use(deployment, model, single, held, jnp.minimum(own, BUDGET), source, positions)
        room = memory.usable - memory.weights - memory.activations
        cache = kv_cache_bytes(deployment, model, single, own, source)
        link = jnp.maximum(deployment.device.network_bandwidth, 1.0)
        started = launches + added
        return Pieces(
            decode=by_column(decodes, peers, started, alone),
            prefill=by_column(_over(prefill, PROMPTS), jnp.zeros(len(PROMPTS)), started, alone),
            launches=launches,
            slots=room / memory.kv_cache,
            transfer=cache / link,
            stages=stage_share(model, deployment.layout),
            reason=reason[0, 0],
        )

    return jax.jit(one)


def _over(step: Callable[[Scalar, Scalar], Any], counts: Sequence[float]) -> Any:
    """A step with its floors and without them, at each count: leaves [2, counts, ...]."""
    return jax.vmap(jax.vmap(step, (None, 0)), (0, None))(as_float((1.0, 0.0)), as_float(counts))


def with_floors(deployment: Deployment, share: Scalar) -> Deployment:
    """The deployment whose kernels launch and drain in `share` of the time that kernels measured alone take."""

    def scaled(efficiency: AbstractEfficiency) -> AbstractEfficiency:
        if isinstance(efficiency, SustainedEfficiency):
            return eqx.tree_at(lambda each: each.floor, efficiency, replace_fn=lambda floor: share * floor)
        return efficiency

    families = deployment.efficiencies
    changed = jax.tree.map(scaled, families, is_leaf=lambda each: isinstance(each, AbstractEfficiency))
    return eqx.tree_at(lambda each: each.efficiencies, deployment, changed)


def peer_reads(deployment: Deployment, model: Transformer) -> Scalar:
    """What the one-shot all-reduces of a decode step read of the other ranks' buffers for one sequence [s].

    Inside a node engines reduce small buffers in one shot, alpha + (n-1) S / B (`jaxperf.network.custom_all_reduce`),
    two in a layer; the collectives of `jaxperf.models.step` have the faster of one shot and two.
    """
    ranks = deployment.layout.tensor_parallel
    others = jnp.where(ranks > deployment.device.node_size, 0.0, ranks - 1.0)
    size = model.hidden * deployment.activations.itemsize
    return 2.0 * model.num_layers * others * size / jnp.maximum(deployment.device.link_bandwidth, 1.0)


def split_norm_kernels(config: ModelConfig, ranks: Scalar) -> Scalar:
    """Kernels that tensor-parallel ranks add to a step where one norm spans all heads of the queries and keys: sum of
    squares, its all-reduce and the norm in place of one kernel (vLLM, `MiniMaxText01RMSNormTP`) [1]."""
    wide = sum(getattr(layer.mixer, "qk_norm_wide", False) for layer in config.layers)
    return jnp.where(ranks > 1.0, 2.0 * wide, 0.0)


def by_column(
    times: Float[Array, "2 S P"], peers: Float[Array, " S"], started: Scalar, alone: Scalar
) -> Float[Array, "S K"]:
    """Times of the kernels of a step with floors and without by `PRICED`, as times by `KINDS` [s].

    Each of the kernels `started` has `KERNEL_GAP` for its floor; with `alone` 1 experts have theirs as well, for an
    expert layer that is measured alone is more kernels (routing, permutation, combination) than its two products.
    """
    experts = PRICED.index("experts")
    floors = KERNEL_GAP * started + alone * (times[0, :, experts] - times[1, :, experts])
    return jnp.column_stack([times[1], peers, floors])


def by_kind(kernels: Kernels, between: Mapping[str, Scalar]) -> Float[Array, " P"]:
    """Time of a step's kernels summed by `PRICED` [s].

    **Arguments:** `between`: of collectives, what they take between nodes over what they are priced at, 0 in one node.
    """
    times: dict[str, Scalar] = {kind: as_float(0.0) for kind in PRICED}
    for name, cost in kernels.items():
        share = between.get(name, as_float(0.0))
        times[kind_of(name)] += jnp.where(share > 0.0, 0.0, cost.time)
        times["between"] += share * cost.time
    return jnp.stack(list(times.values()))


def kind_of(kernel: str) -> str:
    """Which of `PRICED` a kernel of `jaxperf.models.step` is."""
    kernel = kernel.removeprefix(PREFIX)
    if kernel in COLLECTIVES:
        return "collective"
    if kernel in ("expert_up_projection", "expert_down_projection"):
        return "experts"
    if kernel.removeprefix("cross_") in CONTEXT_KERNELS or kernel.startswith(LINEAR):
        return "attention"
    return "dense" if any(word in kernel for word in DENSE) else "light"
