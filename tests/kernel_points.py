"""Every kernel as a function of the same arguments and two sizes, for the properties that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Array

from jaxperf.core.cost import Cost
from jaxperf.core.device import Device
from jaxperf.core.efficiency import Efficiencies
from jaxperf.core.formats import NumberFormat, number_format
from jaxperf.core.numerics import as_float
from jaxperf.kernels.attention import ALIBI_FLOPS, AttentionShape, decode_attention_cost, prefill_attention_cost
from jaxperf.kernels.batched_gemm import BatchedGemm, batched_gemm_cost
from jaxperf.kernels.causal_conv import causal_conv_cost
from jaxperf.kernels.delta_rule import delta_decode_cost, delta_prefill_cost
from jaxperf.kernels.elementwise import activation_cost, rotary_cost
from jaxperf.kernels.gather import embedding_cost, kv_write_cost
from jaxperf.kernels.gemm import Gemm, gemm_cost, linear_cost
from jaxperf.kernels.lightning import lightning_prefill_cost
from jaxperf.kernels.masks import Chunked
from jaxperf.kernels.mla import LatentShape, mla_absorb_query_cost, mla_decode_cost, mla_prefill_cost
from jaxperf.kernels.moe import GroupedGemm, Routing, grouped_gemm_cost, rank_rows, touched_experts
from jaxperf.kernels.normalization import residual_norm_cost
from jaxperf.kernels.recurrent import LinearAttentionShape
from jaxperf.kernels.selective_scan import SelectiveScan, selective_scan_cost
from jaxperf.kernels.sparse_attention import (
    Indexer,
    indexer_prefill_cost,
    sparse_prefill_attention_cost,
    top_k_cost,
)
from jaxperf.kernels.ssd import ssd_prefill_cost
from jaxperf.kernels.tiling import Tile
from tests.devices import efficiencies

Arguments = tuple[Device, NumberFormat, NumberFormat, Efficiencies]
Point = Callable[..., Cost]


def fixed_tile(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    tile = Tile(as_float(128), as_float(128), as_float(2))
    return gemm_cost(device, Gemm(m, n, as_float(4096)), weights, acts, tile, e.gemm)


def linear(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    return linear_cost(device, m, n, as_float(4096), weights, acts, e.gemm)


def grouped(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    shape = GroupedGemm(m * 4.0, as_float(8), n, as_float(2048))
    return grouped_gemm_cost(device, shape, weights, acts, e.moe)


def routed(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    routing, ranks = Routing(as_float(64), as_float(6), as_float(1.25)), as_float(8)
    groups = touched_experts(routing, m, as_float(8))
    return grouped_gemm_cost(
        device, GroupedGemm(rank_rows(routing, m, ranks), groups, n, as_float(2048)), weights, acts, e.moe
    )


def prefill(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    shape, batch = AttentionShape(as_float(32), as_float(8), as_float(128), as_float(0)), as_float(2)
    return prefill_attention_cost(device, shape, batch, m, n, weights, acts, e.attention_prefill)


def windowed(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    shape, batch = AttentionShape(as_float(32), as_float(8), as_float(128), as_float(1024)), as_float(2)
    return prefill_attention_cost(device, shape, batch, m, n, weights, acts, e.attention_prefill)


def decode(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    shape = AttentionShape(as_float(32), as_float(8), as_float(128), as_float(0))
    return decode_attention_cost(device, shape, m, n, weights, acts, e.attention_decode)


def activation(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    return activation_cost(device, m, n, as_float(1), acts.itemsize, e.elementwise)


def rotary(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    return rotary_cost(device, m, n, as_float(128), acts.itemsize, e.elementwise)


def norm(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    return residual_norm_cost(device, m, n, acts.itemsize, e.elementwise)


def embedding(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    return embedding_cost(device, m, n, acts.itemsize, e.elementwise)


def kv_write(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    return kv_write_cost(device, m, n, as_float(128), acts.itemsize, weights, e.elementwise)


def batched(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    shape = BatchedGemm(as_float(7), m, n, as_float(512))
    return batched_gemm_cost(device, shape, weights, acts, e.gemm, "data-parallel")


def streamed(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    shape = BatchedGemm(as_float(3), m, n, as_float(4096))
    return batched_gemm_cost(device, shape, weights, acts, e.gemm, "stream-k")


def chunked(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    shape = AttentionShape(40, 8, 128, mask=Chunked(1024), score_flops=ALIBI_FLOPS, sinks=1.0)
    return prefill_attention_cost(device, shape, as_float(2), m, n, weights, acts, e.attention_prefill)


def deepseek_v3() -> LatentShape:
    """In the precision that is switched on."""
    return LatentShape(128, 128, 64, 128, 512)


def latent_prefill(
    device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array
) -> Cost:
    return mla_prefill_cost(device, deepseek_v3(), as_float(2), m, n, acts, e.attention_prefill)


def latent_decode(
    device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array
) -> Cost:
    return mla_decode_cost(device, deepseek_v3(), m, n, weights, acts, e.mla_decode)


def absorb(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    shape = LatentShape(n, 128, 64, 128, 512)
    return mla_absorb_query_cost(device, shape, m, weights, acts, e.gemm)


def scores(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    return indexer_prefill_cost(device, Indexer(64, 128, 2048), as_float(2), m, n, weights, acts, e.gemm)


def sparse(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    chosen = as_float(2048)
    return sparse_prefill_attention_cost(
        device, deepseek_v3().absorbed, chosen, as_float(2), m, n, weights, acts, e.attention_prefill
    )


def top_k(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    return top_k_cost(device, m, n, as_float(2048), e.elementwise)


def ssd(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    return ssd_prefill_cost(device, LinearAttentionShape(n, 1, 128, 64, 256), as_float(2), m, acts, e.linear_attention)


def delta(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    shape = LinearAttentionShape(n, n / 2.0, 128, 128, 64)
    return delta_prefill_cost(device, shape, as_float(2), m, acts, e.linear_attention)


def delta_step(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    return delta_decode_cost(device, LinearAttentionShape(n, n / 2.0, 128, 128, 64), m, acts, e.elementwise)


def lightning(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    shape = LinearAttentionShape(n, n, 128, 128, 256, gates=0)
    return lightning_prefill_cost(device, shape, as_float(2), m, acts, e.linear_attention)


def scan(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    return selective_scan_cost(device, SelectiveScan(n, 16), as_float(2), m, acts, e.linear_attention)


def conv(device: Device, weights: NumberFormat, acts: NumberFormat, e: Efficiencies, m: Array, n: Array) -> Cost:
    return causal_conv_cost(device, as_float(2), m, n, as_float(4), acts.itemsize, e.elementwise)


@dataclass(frozen=True)
class Kernel:
    """A kernel as a function of two sizes; `m_grows`, `n_grows`: whether more of it is more work at any size.

    `uses`: leaves of the device that only some kernels depend on; `launches`: kernels in it.

    Not so for a linear layer (a larger output needs fewer splits, hence fewer partial sums), for windowed prefill (the
    alignment of the prefix moves tiles), for decode (splits fill idle cores), nor for routed rows (imbalance falls);
    nor where idle cores of the last wave stretch the transfer (linear attention), where the place in a chunk counts
    (chunked prefill), nor for a stream cut evenly (more output tiles may need no fix-up), nor for the heads of a
    state-space duality (they share the scores of their group, over more cores).
    """

    point: Point
    m_grows: bool = True
    n_grows: bool = True
    uses: tuple[str, ...] = ()
    launches: int = 1


KERNELS = {
    "gemm": Kernel(fixed_tile),
    "linear": Kernel(linear, False, False),
    "grouped_gemm": Kernel(grouped),
    "routed_gemm": Kernel(routed, False, True),
    "prefill": Kernel(prefill),
    "windowed_prefill": Kernel(windowed, True, False),
    "decode": Kernel(decode, False, False),
    "activation": Kernel(activation),
    "rotary": Kernel(rotary),
    "norm": Kernel(norm),
    "embedding": Kernel(embedding),
    "kv_write": Kernel(kv_write),
    "batched_gemm": Kernel(batched),
    "stream_k": Kernel(streamed, False, False),
    "chunked_prefill": Kernel(chunked, True, False),
    "mla_prefill": Kernel(latent_prefill),
    "mla_decode": Kernel(latent_decode, False, False),
    "mla_absorb": Kernel(absorb, False, False),
    "indexer": Kernel(scores),
    "sparse_prefill": Kernel(sparse, uses=("l2_capacity",)),
    "top_k": Kernel(top_k),
    "ssd": Kernel(ssd, n_grows=False, launches=3),
    "delta": Kernel(delta, n_grows=False, launches=3),
    "delta_step": Kernel(delta_step, False, False),
    "lightning": Kernel(lightning, n_grows=False),
    "selective_scan": Kernel(scan, n_grows=False),
    "causal_conv": Kernel(conv),
}


def arguments(device: Device, weights: str = "bf16", level: str = "nominal") -> Arguments:
    return device, number_format(weights), number_format("bf16"), efficiencies(level)
