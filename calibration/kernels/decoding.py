"""How decode attention works through its cache: how many blocks, how many at once, and for how long each.

A block waits more than it multiplies: it starts, finds its pages, asks for keys and values, and does so again tile by
tile. A core hides the waits of as many blocks as it holds at once, so that its blocks take

    t = rounds (start + bytes of a block / (rate clock)),    rounds = ceil(blocks / (cores resident))

(flash-decoding: Dao et al. 2023, https://pytorch.org/blog/flash-decoding/; occupancy: CUDA C++ programming guide). What
a kernel does, and its start and rate, is a `calibration.datasets.decode_kernels.Reading`; the unit of the start is
`Law.block`.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool

from calibration.datasets.decode_kernels import ORDINARY
from calibration.kernels.asked import FULL, Shape, way
from calibration.kernels.formats import Formats
from calibration.kernels.hardware import Hardware
from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div, next_power_of_two
from jaxperf.kernels.attention import PACKED_QUERIES, AttentionShape
from jaxperf.kernels.roofline import kernel_cost, matrix_peak

LARGEST_GROUP = 32.0  # query heads of one key head that TensorRT-LLM's kernel for grouped queries takes
FEWEST_BUSY = 4.0  # it leaves a grid to masked attention that is smaller than the cores by more than that
STRETCH = 128.0  # keys of a part of a sequence when it decides so
MASKED_RESIDENT = 4.0  # blocks of masked attention on a core: 256 threads each, and hardly any shared memory
MASKED_RATE = 6.5  # bytes that each of those takes in a cycle
FEW_QUERIES = 4.0  # query heads of one key head from which FlashInfer multiplies on matrix units
VECTOR_RESIDENT, VECTOR_START = 6.0, 0.4  # of its small blocks on vector units: how many on a core, and their start
ITEMSIZE = 2.0  # what a tile in shared memory is made of [byte]
QUERY_ROWS = 64.0  # rows of queries beside it
USUAL_SIZE = 128.0  # elements a head at which a block's start is 1
# Shares of a start that grow with the elements of its first tile, and with each further 16 rows of queries; and a small
# kernel's time in starts. Set with the tables of A100, L40S and H100 in sight, where they are alike.
OF_TILE, OF_ROWS, SMALL_KERNEL = 0.4, 0.13, 0.45
SWAPPED = 2.0  # small kernels that copy the queries before and the output after
PADDED_SIZE, PADDED = 192.0, 4.0  # heads whose values are padded, and small kernels that do so
LARGEST_GRAPH = 512.0  # sequences of the largest step that vLLM captures (`cudagraph_capture_sizes`)
LARGEST_HEAD = 256.0  # elements that FlashAttention 3 takes; how version 4 divides keys is told by larger heads alone
LONGEST_ROUND = 5.0  # less than e^-5 of the cores busy is not told apart


def seen(x: Shape) -> Scalar:
    """Cached tokens that the new one attends to [1]."""
    return jnp.where(x["window"] > 0.0, jnp.minimum(x["kv_len"], x["window"]), x["kv_len"])


def masked(x: Shape, cores: Scalar) -> Bool[Array, ""]:
    """Whether TensorRT-LLM's masked attention takes the place of its kernel for grouped queries."""
    queries = x["heads"] / x["kv_heads"]
    stretches = jnp.maximum(floor_div(seen(x), as_float(STRETCH)), 1.0)
    stretches = jnp.where(_does(x, "whole"), 1.0, stretches)
    few = FEWEST_BUSY * x["batch"] * x["kv_heads"] * stretches < cores
    return _does(x, "masked") & ((queries == 1.0) | (queries > LARGEST_GROUP) | (few & _does(x, "falls_back")))


def unswapped(x: Shape) -> Bool[Array, ""]:
    """Whether a kernel that packs and divides by swapping dimensions does neither."""
    return _does(x, "swapping") & ((x["heads"] == x["kv_heads"]) | (x["window"] > 0.0))


def apart(x: Shape, cores: Scalar) -> Bool[Array, ""]:
    """Whether each query head reads the keys by itself."""
    return masked(x, cores) | unswapped(x)


def groups(x: Shape, cores: Scalar) -> Scalar:
    """Blocks if no sequence is divided [1]."""
    packed = x["kv_heads"] * ceil_div(x["heads"] / x["kv_heads"], _way(x, "packed"))
    return x["batch"] * jnp.where(apart(x, cores), x["heads"], packed)


def tile(x: Shape, size: Scalar) -> Scalar:
    """Keys that a block holds at once, of heads of `size` elements [1]."""
    usual = _way(x, "tile")
    return jnp.where(_does(x, "shrinking"), usual * USUAL_SIZE / next_power_of_two(size), usual)


def resident(x: Shape, cores: Scalar) -> Scalar:
    """Blocks that a core holds at once: as many as their queries, keys and values fit its shared memory [1]."""
    held = (2.0 * tile(x, x["head_dim"]) + QUERY_ROWS) * x["head_dim"] * ITEMSIZE
    fitting = jnp.clip(floor_div(_way(x, "shared"), held), 1.0, _way(x, "most_resident"))
    return jnp.where(masked(x, cores), MASKED_RESIDENT, jnp.where(_on_vectors(x), VECTOR_RESIDENT, fitting))


def parts(x: Shape, cores: Scalar) -> Scalar:
    """Blocks that share the keys of one group [1]."""
    most = jnp.minimum(floor_div(seen(x), _way(x, "least_keys")), _way(x, "most_parts"))
    some = jnp.clip(floor_div(cores * _way(x, "wanted"), groups(x, cores)), 1.0, jnp.maximum(most, 1.0))
    launched = _does(x, "launched") & (x["batch"] <= LARGEST_GRAPH) & (x["head_dim"] > LARGEST_HEAD)
    some = jnp.where(launched, _way(x, "most_parts"), some)
    return jnp.where(unswapped(x) | (_does(x, "whole") & ~masked(x, cores)), 1.0, some)


def rounds(x: Shape, cores: Scalar) -> Scalar:
    """Blocks that the busiest core works through one after the other, those that it holds at once being one [1]."""
    return ceil_div(groups(x, cores) * parts(x, cores), cores * resident(x, cores))


def starts(x: Shape, cores: Scalar) -> Scalar:
    """Time for the busiest core to start its blocks, and for small kernels beside them, in starts of a block of
    FlashAttention-2 for up to 16 query heads of 128 elements [1]."""
    usual = tile(x, jnp.full_like(x["head_dim"], USUAL_SIZE)) * USUAL_SIZE
    longer = 1.0 + OF_TILE * (tile(x, x["head_dim"]) * x["head_dim"] / usual - 1.0)
    heads = jnp.minimum(x["heads"] / x["kv_heads"], _way(x, "packed"))
    rows = jnp.where(apart(x, cores), 1.0, ceil_div(heads, as_float(PACKED_QUERIES)))
    own = jnp.where(_on_vectors(x), VECTOR_START, _way(x, "start"))
    own = jnp.where(masked(x, cores), _way(x, "masked_start"), own)
    each = own * longer * (1.0 + OF_ROWS * (rows - 1.0))
    return rounds(x, cores) * each + SMALL_KERNEL * small_kernels(x, cores)


def small_kernels(x: Shape, cores: Scalar) -> Scalar:
    """Kernels before and after the one that reads the cache [1]."""
    shared = parts(x, cores)
    combining = jnp.where(shared > 1.0, _way(x, "combining") + _way(x, "serial") * shared, 0.0)
    # With one sequence or one key head the swapped queries lie in memory as they did, and nothing is copied.
    swapped = _does(x, "swapping") & ~unswapped(x) & (x["kv_heads"] > 1.0) & (x["batch"] > 1.0)
    padded = _does(x, "padding") & (x["head_dim"] == PADDED_SIZE)
    return combining + SWAPPED * as_float(swapped) + PADDED * as_float(padded) + _way(x, "beside")


def streaming(x: Shape, hardware: Hardware) -> Scalar:
    """Time for the busiest core to take the keys and values of its blocks [s]."""
    cores = hardware.device.num_cores
    block = ceil_div(seen(x), parts(x, cores)) * 2.0 * x["head_dim"] * _way(x, "element")
    rate = jnp.where(masked(x, cores), MASKED_RATE, _way(x, "rate")) * hardware.clock
    needed = _way(x, "headroom") * hardware.device.memory_bandwidth / (cores * resident(x, cores))
    return rounds(x, cores) * block / jnp.maximum(rate, needed)


def times_read(x: Shape, cores: Scalar) -> Scalar:
    """How often the cores take what is cached: once, or for each query head; twice what is on the same pages [1]."""
    return _pages(x) * jnp.where(apart(x, cores), x["heads"] / x["kv_heads"], 1.0)


def launch_features(x: Shape, cores: Scalar) -> dict[str, Scalar]:
    """What the learned correction sees of how a sequence is divided."""
    slots, shared = cores * resident(x, cores), parts(x, cores)
    blocks = groups(x, cores) * shared
    idle = jnp.log(ceil_div(blocks, slots) * slots / blocks)
    return {
        "blocks per place": jnp.log2(blocks / slots),
        "blocks last round": jnp.clip(idle, 0.0, LONGEST_ROUND),
        "parts": jnp.log2(shared),
        "heads apart": as_float(apart(x, cores)),
    }


def decode(device: Device, x: Shape, f: Formats) -> Cost:
    """One new token a sequence. Keys and values leave memory once, however many blocks share them, and partial outputs
    stay in L2; the products are shared evenly (`streaming` has the busiest core)."""
    keys, size = seen(x), x["head_dim"]
    queries = x["batch"] * x["heads"]
    rows = ceil_div(x["heads"] / x["kv_heads"], as_float(PACKED_QUERIES)) * PACKED_QUERIES
    products = 4.0 * size * keys * x["batch"]
    cached = 2.0 * size * keys * x["batch"] * x["kv_heads"] * f.cache.itemsize
    return kernel_cost(
        device,
        FULL(AttentionShape(x["heads"], x["kv_heads"], size, x["window"]), device),
        compute=products * x["kv_heads"] * rows / matrix_peak(device, f.activations),
        flops=products * x["heads"],
        bytes_moved=cached / _pages(x) + queries * 2.0 * size * f.activations.itemsize,
    )


def _pages(x: Shape) -> Scalar:
    """Tokens whose pages a table took for one, of grouped queries [1]."""
    return 1.0 + as_float(_does(x, "aliased") & (x["heads"] > x["kv_heads"]))


def _on_vectors(x: Shape) -> Bool[Array, ""]:
    return _does(x, "by_vectors") & (x["heads"] < FEW_QUERIES * x["kv_heads"])


def _does(x: Shape, name: str) -> Bool[Array, ""]:
    return _way(x, name) > 0.0


def _way(x: Shape, name: str) -> Scalar:
    return way(x, name, getattr(ORDINARY, name))
