"""What the busiest core of a device works through, and what cores take from L2, beyond what point functions say.

Every function is of one kernel: scalars in, scalars out.
"""

from __future__ import annotations

import jax.numpy as jnp

from calibration.kernels import (
    convolutions,
    decoding,
    experts,
    latent_decoding,
    latent_prefill,
    latents,
    prefill,
    products,
    quantizing,
    reductions,
)
from calibration.kernels.asked import Shape
from calibration.kernels.demand import STREAMS, Demand, prefill_operands
from calibration.kernels.features import (
    LEAST,
    MATRICES,
    PREFILLS,
    QUERY_BLOCK,
    REDUCING,
    TILES,
    blocks_of,
    matrix_shape,
)
from calibration.kernels.formats import Formats
from calibration.kernels.hardware import Hardware
from calibration.kernels.latents import ABSORBING
from jaxperf.core.numerics import Scalar, as_float, ceil_div

CORE_BYTES_PER_CYCLE = 64.0  # what a core takes from L2 in one cycle; the same on every NVIDIA core since Volta
FLOPS_PER_THREAD = 2.0  # of an issued instruction at best: a fused multiply-add
# Elements that a thread of PyTorch's elementary operations loads at a time, where vLLM's rotary embedding loads one
# (csrc/pos_encoding_kernels.cu).
ROTATED_AT_ONCE = 4.0
QUANTIZING = 8.0  # rows that a core quantizes at once before a product, a block each; assumed
# Threads of a core that hide what its streams wait for: cores of GA102, which hold as many, are as fast as those of the
# A100 and H100, which hold 2,048; with these for a measure lookups on devices left out were at 24 % in place of 11 %.
MANY_THREADS = 1536.0


def waves(family: str, x: Shape, hardware: Hardware, formats: Formats | None = None) -> Scalar:
    """Blocks that the busiest core works through one after the other [1], of grouped products the steps of their
    reductions, of decode attention the starts of its blocks; 0 for a kernel that is only a stream."""
    height, width = TILES[1]
    if family in MATRICES:
        m, batch, n, _ = matrix_shape(family, x)
        resident = QUANTIZING if family == "gemm" else 1.0
        blocks = blocks_of(m, height) * blocks_of(n, width) * batch + x.get("quantized", 0.0) * m * batch / resident
    elif family == "moe" and formats is not None:
        return experts.steps(x, experts.load(x), formats, hardware.device.num_cores) * hardware.many_cores
    elif family in PREFILLS:
        found = prefill.starts(prefill.prefill_of(family, x), hardware)
        if family == "mla_prefill":
            latent = latent_prefill.starts(x, hardware.device.num_cores)
            found = jnp.where(latent_prefill.absorbed(x), latent, found) + latent_prefill.small_kernels(x)
        return found * hardware.many_cores
    elif family == "attention_decode":
        return decoding.starts(x, hardware.device.num_cores) * hardware.many_cores
    elif family == "mla_decode":
        return latent_decoding.starts(x, hardware.device.num_cores) * hardware.many_cores
    elif family == "attention_mixed":
        blocks = (blocks_of(x["prefill_q"], QUERY_BLOCK) + x["n_decode"]) * x["heads"]
    else:
        return jnp.zeros_like(hardware.many_cores)
    return ceil_div(blocks, hardware.device.num_cores) * hardware.many_cores


def alone(family: str, hardware: Hardware) -> Scalar:
    """1 where one block of a kernel fills a core, so that nothing hides its start: the queries, the tile and the output
    of latent attention do; else 0 [1]. Others may do so as well; their laws were chosen without."""
    return as_float(family == "mla_decode") * jnp.ones_like(hardware.many_cores)


def on_chip_time(family: str, x: Shape, demand: Demand, hardware: Hardware, formats: Formats) -> Scalar:
    """Time for all cores of a GPU together to take the kernel's bytes from L2, or for the busiest one of a product to
    wait for its operands [s]; 0 on another kind of device."""
    rate = CORE_BYTES_PER_CYCLE * hardware.device.num_cores * hardware.clock
    if family == "moe":
        return experts.bytes_from_l2(x, experts.load(x), formats) / rate * hardware.many_cores
    if family == "gemm" or family in ABSORBING:
        own = latents.absorbing(family, x) if family in ABSORBING else x
        waits = products.stepping(hardware, own, formats)
        return jnp.maximum(as_float(demand.moved) / rate, waits) * hardware.many_cores
    if family == "quantize":
        waits = quantizing.waiting(x, hardware, formats.activations.itemsize)
        return jnp.maximum(as_float(demand.moved) / rate, waits) * hardware.many_cores
    times = decoding.times_read(x, hardware.device.num_cores) if family == "attention_decode" else as_float(1.0)
    taken = as_float(demand.moved) * times
    if family in REDUCING:
        taken += reductions.bytes_found(family, x, formats.activations.itemsize, hardware.device)
    return taken / rate * hardware.many_cores


def footprint(family: str, x: Shape, demand: Demand, hardware: Hardware, formats: Formats) -> Scalar:
    """Bytes of a kernel's operands over L2 [log 1]."""
    held = as_float(demand.moved)
    if family in REDUCING:
        held -= reductions.bytes_again(family, x, formats.activations.itemsize, hardware.device)
    if family == "quantize":
        held = quantizing.held(x, held)
    if family in ABSORBING:
        held -= latents.narrowed(family, x, formats)
    return jnp.log(jnp.maximum(held, LEAST)) - jnp.log(experts.cache(x, hardware.device))


def core_time(family: str, x: Shape, demand: Demand, hardware: Hardware, formats: Formats) -> Scalar:
    """Busy time of the busiest core [s]: of its arithmetic; of a stream on a GPU, of issuing instructions.

    Such a kernel computes addresses, converts and waits more than it multiplies: how many bytes a core moves in a cycle
    is a property of the software, and differs little between cores with more or fewer fp32 units. Of decode attention:
    of its products, and of its blocks' waits for keys and values.
    """
    if family == "mla_decode":
        products = as_float(demand.compute) * latent_decoding.products_share(x)
        waits = latent_decoding.waiting(x, hardware) + latent_decoding.through_shared_memory(x, hardware)
        return products + waits * hardware.many_cores
    if family in PREFILLS:
        found = prefill.products_time(prefill.prefill_of(family, x), hardware, prefill_operands(x, formats))
        if family == "mla_prefill":
            latent = as_float(demand.compute) + latent_prefill.waiting(x, hardware) * hardware.many_cores
            found = jnp.where(latent_prefill.absorbed(x), latent, found)
        return found
    if family == "attention_decode":
        return as_float(demand.compute) + decoding.streaming(x, hardware) * hardware.many_cores
    if family == "moe":
        weights = experts.unpacked(x, experts.load(x), formats, hardware.device.num_cores)
        return as_float(demand.compute) + weights / (experts.UNPACKED * hardware.clock) * hardware.many_cores
    if family not in STREAMS:
        return as_float(demand.compute)
    # Threads that wait for memory keep a core busy as long as there are enough of them.
    waiting = jnp.minimum(hardware.resident / MANY_THREADS, 1.0)
    rate = FLOPS_PER_THREAD * hardware.issued * waiting * hardware.device.num_cores * hardware.clock
    issuing = as_float(demand.flops) / rate
    if family == "rope":
        issuing *= 1.0 + x.get("scalar", jnp.zeros_like(issuing)) * (ROTATED_AT_ONCE - 1.0)
    if family in REDUCING:
        issuing /= reductions.vector(family, x, formats.activations.itemsize)
    return jnp.where(hardware.many_cores > 0.0, issuing, as_float(demand.compute))


def special_time(family: str, x: Shape, hardware: Hardware, formats: Formats) -> Scalar:
    """Time of the busiest core's other pipelines that its matrix products do not hide, and to write a narrow cache anew
    before them [s]; 0 where none is known."""
    if family == "mla_decode":
        return latent_decoding.converting(x, hardware, formats.cache.itemsize) * hardware.many_cores
    if family in PREFILLS:
        found = prefill.beside_products_time(prefill.prefill_of(family, x), hardware)
        if family == "mla_prefill":
            latent = latent_prefill.beside_products_time(x, hardware) * hardware.many_cores
            found = jnp.where(latent_prefill.absorbed(x), latent, found)
        return found
    if family == "convolution":
        return convolutions.chosen(hardware.device, x, formats).beside * hardware.many_cores
    return jnp.zeros_like(hardware.many_cores)
