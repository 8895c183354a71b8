"""Prefill and decode step of one fixed batch: jaxperf's composed step at efficiencies that a few scalars describe.

    busy   = sum over kernels of their time + overhead
    energy = flops x joule / (TDP - cores x static)
    t      = (busy^p + energy^p)^(1/p)

The kernels are those of `jaxperf.models.step`, every one cold. Only attention knows that prompts differ in length: its
work is the sum over the prompts of one ragged launch. `energy` is the time in which the board may spend what all the
step's arithmetic takes: while it waits for a link it draws little, so the limit holds for the step and not for each
kernel. Each scalar and its prior is in `PRIORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.device import Device
from jaxperf.core.efficiency import AbstractEfficiency, Efficiencies, Utilization
from jaxperf.core.formats import NumberFormat
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.kernels.roofline import matrix_peak, operand_itemsize
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.phase import Decode, Prefill
from jaxperf.models.deployment import Deployment, Parallelism
from jaxperf.models.host import Host
from jaxperf.models.layers import Transformer
from jaxperf.models.memory import kv_cache_bytes, weight_bytes
from jaxperf.models.step import step_kernels
from jaxperf.models.transformer import CONTEXT_KERNELS, add_up

BEST_MATRIX = 0.95  # efficiency that no product exceeds, however good a guess for a device never measured looks
LEAST_POWER = 0.3  # share of the TDP that arithmetic gets however many cores there are
SHARPNESS = 6.0  # of the power limit: 12 % above the larger of two equal times
MOE_SHARE = 0.8  # of a dense product's efficiency that a grouped one reaches; assumed, no label has experts
LINEAR_SHARE = 0.5  # the same of linear attention's small products
JOULE = "energy/"  # prefix of the energies, one a kind of device
# The fitted scalars as (mean, standard deviation) of a logarithm. Efficiencies [1]: `matrix` times
# `Point.matrix`; `hbm`, `gddr` of the datasheet bandwidth, `inline_ecc` times that where error
# correction shares the memory's bus; `attention` of the matrix peak; `cache_reads`, `elementwise` of the sustained
# bandwidth. `launch`: times the datasheet's launch latency. `step` [s] once, `sequence` [s] a sequence in decode.
# `static`: power of a core that does not depend on its arithmetic [W].
PRIORS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "matrix": (0.0, 0.05),
        "hbm": (-0.20, 0.05),  # 0.82: products of few rows on H100 and H200 in the kernel tables
        "gddr": (-0.09, 0.03),  # 0.91: the same on RTX 3090, RTX 4090 and A6000
        "inline_ecc": (-0.09, 0.03),  # 0.83 on L40S
        "attention": (-0.7, 0.3),
        "cache_reads": (-0.35, 0.25),
        "elementwise": (-0.2, 0.2),
        "launch": (0.0, 0.4),
        "step": (-7.0, 0.7),  # 1 ms
        "sequence": (-11.0, 1.0),  # 17 us
        "static": (-0.5, 0.5),  # 0.6 W: about a third of the power of a board
    }
)
ENERGY_PRIOR = (-27.85, 0.6)  # 0.8 pJ a 16-bit FLOP, at which no board of the kernel tables is held back


class Fraction(AbstractEfficiency):
    """The same fraction of each peak for every shape; held as it is, because a gradient through 1 must exist."""

    compute: Float[Array, ""] = eqx.field(converter=as_float)
    memory: Float[Array, ""] = eqx.field(converter=as_float)

    def __call__(self, kernel: eqx.Module, device: eqx.Module) -> Utilization:
        return Utilization(self.compute, self.memory)


class Point(NamedTuple):
    """One batch on one group of devices; scalars, but `prompts` and `present` [P].

    `prompts`: tokens of each, 0 where not `present`; `output`: decode steps [1]; `ranks`: tensor-parallel;
    `matrix`: efficiency of large products, see `batches_points.matrix_efficiency`; `hbm`, `inline_ecc`: 1 where the
    memory is or has it; `prefill_link`, `decode_link`: rate at which the step's own all-reduce goes [byte/s]; `kind`
    [G]: weight of each fitted energy's logarithm, all 0 for a device without such a limit.
    """

    device: Device
    ranks: Scalar
    weights: NumberFormat
    activations: NumberFormat
    prompts: Float[Array, " P"]
    present: Float[Array, " P"]
    output: Scalar
    matrix: Scalar
    hbm: Scalar
    inline_ecc: Scalar
    prefill_link: Scalar
    decode_link: Scalar
    kind: Float[Array, " G"]


Scalars = Mapping[str, Scalar]


def step_times(model: Transformer, scalars: Scalars, point: Point) -> Float[Array, " 2"]:
    """(prefill, decode step) of one batch [s]."""
    return jnp.stack([prefill_time(model, scalars, point), decode_time(model, scalars, point)])


def prefill_time(model: Transformer, scalars: Scalars, point: Point) -> Scalar:
    """All prompts in one pass, a token out for each [s]."""
    deployment = deployment_of(scalars, point, point.prefill_link)
    tokens, sequences = jnp.sum(point.prompts), jnp.sum(point.present)
    zero = jnp.zeros_like(tokens)
    kernels = step_kernels(deployment, model, Prefill(as_float(1.0), tokens, zero, zero), sequences)
    rest = {name: cost for name, cost in kernels.items() if name not in CONTEXT_KERNELS}

    def ragged(prompt: Scalar) -> tuple[Scalar, Scalar]:
        own = step_kernels(deployment, model, Prefill(as_float(1.0), prompt, zero, zero), as_float(1.0))
        return _totals({name: cost for name, cost in own.items() if name in CONTEXT_KERNELS})

    flops, moved = jax.vmap(ragged)(jnp.maximum(point.prompts, 1.0))
    flops, moved = jnp.sum(flops * point.present), jnp.sum(moved * point.present)
    attention = _attention_time(scalars, deployment, flops, moved)
    busy = add_up(rest, lambda cost: cost.time) + attention + jnp.exp(scalars["step"])
    return _power_limited(scalars, point, busy, add_up(rest, lambda cost: cost.flops) + flops)


def decode_time(model: Transformer, scalars: Scalars, point: Point) -> Scalar:
    """One token for every sequence, halfway through the output [s].

    The reads of the cache are linear in the context, so the mean context stands for all of them.
    """
    deployment = deployment_of(scalars, point, point.decode_link)
    sequences = jnp.sum(point.present)
    context = jnp.sum(point.prompts) / sequences + point.output / 2.0
    kernels = step_kernels(deployment, model, Decode(sequences, context, jnp.zeros_like(context)), sequences)
    overhead = jnp.exp(scalars["step"]) + sequences * jnp.exp(scalars["sequence"])
    busy = add_up(kernels, lambda cost: cost.time) + overhead
    return _power_limited(scalars, point, busy, add_up(kernels, lambda cost: cost.flops))


def memory_share(model: Transformer, scalars: Scalars, point: Point) -> Scalar:
    """Weights and the cache of all sequences at their ends, over the memory of a device [1].

    Activations are left out: an engine prefills in chunks where they do not fit.
    """
    deployment = deployment_of(scalars, point, point.decode_link)
    sequences = jnp.sum(point.present)
    length = jnp.sum(point.prompts) / sequences + point.output
    kept = weight_bytes(deployment, model) + kv_cache_bytes(deployment, model, sequences, length)
    return kept / deployment.device.memory_capacity


def deployment_of(scalars: Scalars, point: Point, link: Scalar) -> Deployment:
    """The deployment at the efficiencies that the scalars state; `link`: see `Point` [byte/s]."""
    share = {name: jnp.exp(value) for name, value in scalars.items() if not name.startswith(JOULE)}
    streamed = jnp.where(point.hbm > 0.0, share["hbm"], share["gddr"] * share["inline_ecc"] ** point.inline_ecc)
    launch = point.device.launch_latency * share["launch"]
    device = point.device.replace(
        memory_bandwidth=point.device.memory_bandwidth * streamed,
        launch_latency=launch,
        link_bandwidth=link,
        link_latency=-0.5 * launch,  # so that no phase waits (`models.blocks.launch.flagged`): `link` holds that
        mesh=jnp.zeros_like(link),
        torus_dimensions=jnp.zeros_like(link),
        node_size=jnp.maximum(point.device.node_size, point.ranks),
    )
    matrix = jnp.minimum(point.matrix * share["matrix"], BEST_MATRIX)
    return Deployment(
        device=device,
        layout=Parallelism(tensor_parallel=point.ranks),
        weights=point.weights,
        activations=point.activations,
        cache=point.activations,
        efficiencies=Efficiencies(
            gemm=Fraction(matrix, 1.0),
            plain_gemm=Fraction(matrix, 1.0),
            attention_prefill=Fraction(share["attention"], 1.0),
            attention_decode=Fraction(share["attention"], share["cache_reads"]),
            mla_decode=Fraction(share["attention"], share["cache_reads"]),
            moe=Fraction(MOE_SHARE * matrix, 1.0),
            elementwise=Fraction(share["elementwise"], share["elementwise"]),
            linear_attention=Fraction(LINEAR_SHARE * matrix, 1.0),
            link=1.0,
        ),
        host=Host(0.0, 0.0),
    )


def _attention_time(scalars: Scalars, deployment: Deployment, flops: Scalar, moved: Scalar) -> Scalar:
    """One ragged launch: no wave waits, because the blocks of all sequences share the cores [s]."""
    rate = matrix_peak(deployment.device, deployment.activations) * jnp.exp(scalars["attention"])
    return jnp.maximum(flops / rate, moved / deployment.device.memory_bandwidth)


def _totals(kernels: Kernels) -> tuple[Scalar, Scalar]:
    """(FLOP, bytes) of some kernels."""
    if not kernels:
        return as_float(0.0), as_float(0.0)
    return add_up(kernels, lambda cost: cost.flops), add_up(kernels, lambda cost: cost.bytes_moved)


def _power_limited(scalars: Scalars, point: Point, busy: Scalar, flops: Scalar) -> Scalar:
    energies = [value for name, value in scalars.items() if name.startswith(JOULE)]
    if not energies:
        return busy
    limited = as_float(jnp.sum(point.kind) > 0.0)
    size = operand_itemsize(point.device, point.weights, point.activations)
    joule = limited * jnp.exp(jnp.sum(jnp.stack(energies) * point.kind)) * size / 2.0
    power = point.device.tdp - point.device.num_cores * jnp.exp(scalars["static"])
    ratio = flops * joule / (jnp.maximum(power, LEAST_POWER * point.device.tdp) * busy)
    return busy * (1.0 + ratio**SHARPNESS) ** (1.0 / SHARPNESS)
