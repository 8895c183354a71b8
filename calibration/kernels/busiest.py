"""What the busiest core of a device works through, and what cores take from L2, beyond what point functions say.

Every function is of one kernel, scalars in and scalars out; `BUSIEST` says which family has which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import equinox as eqx
import jax.numpy as jnp

from calibration.kernels import (
    convolutions,
    decoding,
    experts,
    latent_decoding,
    latent_prefill,
    latents,
    mixed,
    prefill,
    prefill_beside,
    products,
    quantizing,
    reductions,
)
from calibration.kernels.asked import Shape, way
from calibration.kernels.cache_writing import writing
from calibration.kernels.demand import STREAMS, Demand, prefill_operands
from calibration.kernels.features import LEAST, TILES, blocks_of, matrix_shape
from calibration.kernels.formats import Formats
from calibration.kernels.hardware import REFERENCE_CLOCK, Hardware
from jaxperf.core.numerics import Scalar, as_float, ceil_div

NOT_HELD = 10.0  # logarithm of operands over a cache that holds none of them
CORE_BYTES_PER_CYCLE = 64.0  # what a core takes from L2 in one cycle; the same on every NVIDIA core since Volta
FLOPS_PER_THREAD = 2.0  # of an issued instruction at best: a fused multiply-add
# Elements that a thread of PyTorch's elementary operations loads at a time, where vLLM's rotary embedding loads one
# (csrc/pos_encoding_kernels.cu).
ROTATED_AT_ONCE = 4.0
# Threads of a core that hide what its streams wait for: cores of GA102, which hold as many, are as fast as those of the
# A100 and H100, which hold 2,048; with these for a measure lookups on devices left out were at 24 % in place of 11 %.
MANY_THREADS = 1536.0


class Kernel(eqx.Module):
    """A kernel of a `family` with the shape `x`, what it asks of a device, and the device."""

    family: str = eqx.field(static=True)
    x: Shape
    demand: Demand
    hardware: Hardware
    formats: Formats

    @property
    def cores(self) -> Scalar:
        return self.hardware.device.num_cores

    def from_l2(self, taken: Scalar) -> Scalar:
        """Time for all cores together to take so many bytes from L2 [s]."""
        return taken / (CORE_BYTES_PER_CYCLE * self.cores * self.hardware.clock)


class Busiest(eqx.Module):
    """`core`: busy time of the busiest core; `special`: of its other pipelines that its products do not hide, and of
    what writes the cache before them; `on_chip`: for all cores together to take the kernel's bytes from L2, or for
    the busiest to wait for its operands [s]. `waves`: blocks that it works through one after the other, of grouped
    products the steps of their reductions, of decode attention the starts of its blocks [1]; `alone`: 1 where a block
    fills a core, so that nothing hides its start, else 0; `footprint`: operands over L2 [log 1]; `before`: of kernels
    that run before [s].
    """

    core: Scalar
    special: Scalar
    on_chip: Scalar
    waves: Scalar
    alone: Scalar
    footprint: Scalar
    before: Scalar


def busiest(family: str, x: Shape, demand: Demand, hardware: Hardware, formats: Formats) -> Busiest:
    """What a kernel asks of the busiest core; where a device is no GPU, of its arithmetic alone."""
    own = BUSIEST[family](Kernel(family, x, demand, hardware, formats))
    many = as_float(hardware.many_cores)
    none = jnp.zeros_like(many)
    over = jnp.log(jnp.maximum(own["held"], LEAST)) - jnp.log(experts.cache(x, hardware.device))
    return Busiest(
        own["core"],
        own.get("special", none) * many,
        own["on_chip"] * many,
        own.get("waves", none) * many,
        own.get("alone", none),
        jnp.where(many > 0.0, over, NOT_HELD),
        own.get("before", none),
    )


Parts = dict[str, Scalar]  # of `Busiest`, by name, 0 where absent; `held` [byte] in place of `footprint`


def _plain(one: Kernel) -> Parts:
    moved = as_float(one.demand.moved)
    return {"core": as_float(one.demand.compute), "on_chip": one.from_l2(moved), "held": moved}


def _product(one: Kernel) -> Parts:
    m, batch = matrix_shape(one.family, one.x)[:2]
    quantized = way(one.x, "quantized") * m * batch
    return _plain(one) | {"waves": ceil_div(_tiles_of(one) + quantized, one.cores)}


def _tiles_of(one: Kernel) -> Scalar:
    height, width = TILES[1]
    m, batch, n, _ = matrix_shape(one.family, one.x)
    return blocks_of(m, height) * blocks_of(n, width) * batch


def _linear(one: Kernel) -> Parts:
    own = _plain(one)
    waits = products.stepping(one.hardware, one.x, one.formats)
    return own | {
        "on_chip": jnp.maximum(own["on_chip"], waits),
        "waves": ceil_div(_tiles_of(one), one.cores),
        "before": quantizing.before(one.x, one.hardware, one.formats),
    }


def _absorbing(one: Kernel) -> Parts:
    own = _product(one)
    waits = products.stepping(one.hardware, latents.absorbing(one.family, one.x), one.formats)
    held = own["held"] - latents.narrowed(one.family, one.x, one.formats)
    return own | {"on_chip": jnp.maximum(own["on_chip"], waits), "held": held}


def _convolution(one: Kernel) -> Parts:
    return _product(one) | {"special": convolutions.chosen(one.hardware.device, one.x, one.formats).beside}


def _experts(one: Kernel) -> Parts:
    """Of products, and of what turns weights of few bits into operands."""
    given = experts.work(one.x, one.formats)
    unpacking = experts.unpacked(one.x, given, one.formats, one.cores) / (experts.UNPACKED * one.hardware.clock)
    own = _plain(one)
    return own | {
        "core": own["core"] + unpacking * one.hardware.many_cores,
        "on_chip": one.from_l2(experts.bytes_from_l2(one.x, given, one.formats)),
        "waves": experts.steps(one.x, given, one.cores),
    }


def _prefill(one: Kernel) -> Parts:
    """The start of a block is latencies of the memory, which no clock of a core shortens."""
    own = _tiled(one)
    before = writing(one.x, one.hardware, one.formats, prefill_operands(one.x, one.formats))
    return own | {
        "special": own["special"] + before,
        "waves": own["waves"] * one.hardware.clock / REFERENCE_CLOCK,
    }


def _tiled(one: Kernel) -> Parts:
    tiled = prefill.prefill_of(one.family, one.x)
    return _plain(one) | {
        "core": prefill.products_time(tiled, one.hardware, prefill_operands(one.x, one.formats)),
        "special": prefill_beside.beside_products_time(tiled, one.hardware),
        "waves": prefill.starts(tiled, one.hardware),
    }


def _latent_prefill(one: Kernel) -> Parts:
    """As other prefill where keys and values are expanded first, else by the kernel that absorbs their projections."""
    own, x, hardware = _tiled(one), one.x, one.hardware
    absorbed = {
        "core": as_float(one.demand.compute) + latent_prefill.waiting(x, hardware) * hardware.many_cores,
        "special": latent_prefill.beside_products_time(x, hardware),
        "waves": latent_prefill.starts(x, one.cores),
    }
    own |= {name: jnp.where(latent_prefill.absorbed(x), time, own[name]) for name, time in absorbed.items()}
    return own | {"waves": own["waves"] + latent_prefill.small_kernels(x)}


def _decode(one: Kernel) -> Parts:
    """Of products, and of the waits of its blocks for keys and values."""
    own, x = _plain(one), one.x
    new = {**x, "q_len": as_float(1.0), "writing": way(x, "by_tokens")}
    return own | {
        "core": own["core"] + decoding.streaming(x, one.hardware) * one.hardware.many_cores,
        "special": writing(new, one.hardware, one.formats, one.formats.cache),
        "on_chip": one.from_l2(own["held"] * decoding.times_read(x, one.cores)),
        "waves": decoding.starts(x, one.cores),
    }


def _latent_decode(one: Kernel) -> Parts:
    """The queries, the tile and the output fill a core. Others' blocks may do so as well; their laws were chosen
    without."""
    own, x, hardware = _plain(one), one.x, one.hardware
    waits = latent_decoding.waiting(x, hardware) + latent_decoding.through_shared_memory(x, hardware)
    return own | {
        "core": own["core"] * latent_decoding.products_share(x) + waits * hardware.many_cores,
        "special": latent_decoding.converting(x, hardware, one.formats.cache.itemsize),
        "waves": latent_decoding.starts(x, one.cores),
        "alone": jnp.ones_like(hardware.many_cores),
    }


def _mixed(one: Kernel) -> Parts:
    """Of the blocks of all sequences, or of decode attention where there is no chunk."""
    own, x, hardware = _plain(one), one.x, one.hardware
    decodes, divided = mixed.as_decode(x), mixed.divided(x)
    streaming = decoding.streaming(decodes, hardware) * hardware.many_cores
    core = jnp.where(hardware.many_cores > 0.0, mixed.products_time(x, hardware, one.formats.activations), own["core"])
    return own | {
        "core": jnp.where(divided, own["core"] + streaming, core),
        "special": jnp.where(divided, 0.0, mixed.beside_products_time(x, hardware)),
        "waves": jnp.where(
            divided, mixed.DECODE_START * decoding.starts(decodes, one.cores), mixed.starts(x, hardware)
        ),
    }


def _stream(one: Kernel) -> Parts:
    return _issuing(one, as_float(1.0))


def _issuing(one: Kernel, times: Scalar) -> Parts:
    """On a GPU, a stream is busy issuing instructions, so many `times`.

    Such a kernel computes addresses, converts and waits more than it multiplies: how many bytes a core moves in a cycle
    is a property of the software, and differs little between cores with more or fewer fp32 units.
    """
    own, hardware = _plain(one), one.hardware
    # Threads that wait for memory keep a core busy as long as there are enough of them.
    waiting = jnp.minimum(hardware.resident / MANY_THREADS, 1.0)
    rate = FLOPS_PER_THREAD * hardware.issued * waiting * one.cores * hardware.clock
    issuing = as_float(one.demand.flops) / rate * times
    return own | {"core": jnp.where(hardware.many_cores > 0.0, issuing, own["core"])}


def _rotation(one: Kernel) -> Parts:
    return _issuing(one, 1.0 + way(one.x, "scalar") * (ROTATED_AT_ONCE - 1.0))


def _reduction(one: Kernel) -> Parts:
    """Of rows that are read more than once, and found in L2 where they fit it."""
    device, width = one.hardware.device, one.formats.activations.itemsize
    own = _issuing(one, 1.0 / reductions.vector(one.family, one.x, width))
    found = reductions.bytes_found(one.family, one.x, width, device)
    held = own["held"] - reductions.bytes_again(one.family, one.x, width, device)
    return own | {"on_chip": one.from_l2(own["held"] + found), "held": held}


def _quantization(one: Kernel) -> Parts:
    own = _stream(one)
    waits = quantizing.waiting(one.x, one.hardware, one.formats.activations.itemsize)
    held = quantizing.held(one.x, own["held"])
    return own | {"on_chip": jnp.maximum(own["on_chip"], waits), "held": held}


BUSIEST: Mapping[str, Callable[[Kernel], Parts]] = MappingProxyType(
    dict.fromkeys(STREAMS, _stream)
    | dict.fromkeys(latents.ABSORBING, _absorbing)
    | {
        "gemm": _linear,
        "bmm": _product,
        "convolution": _convolution,
        "moe": _experts,
        "attention_prefill": _prefill,
        "mla_prefill": _latent_prefill,
        "attention_decode": _decode,
        "mla_decode": _latent_decode,
        "attention_mixed": _mixed,
        "rope": _rotation,
        "norm": _reduction,
        "softmax": _reduction,
        "quantize": _quantization,
    }
)
