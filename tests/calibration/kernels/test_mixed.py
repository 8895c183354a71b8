"""What a mixed step asks of a core, against whole numbers of blocks and tiles."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.datasets.mixed_kernels import MixedReading, reading
from calibration.kernels.inputs import Prepared, prepare
from tests.calibration.tables import blank_table

CLOCK = 1.83e9  # of the H100
TILE = 128 * 64 / 16 + 64 * 256 * 2 * 4 * 0.5 / 128  # exponentials, and loads of four warps half hidden [cycle]


def mixed(framework: str, device: str = "h100-sxm", **sizes: float) -> Prepared:
    ordinary = {"prefill_q": 0, "prefill_kv": 0, "n_decode": 8, "kv_decode": 4096}
    ordinary |= {"heads": 32, "kv_heads": 32, "head_dim": 128, "window": 0}
    shape = {name: np.array([float(value)]) for name, value in (ordinary | sizes).items()}
    table = blank_table("attention_mixed", shape, np.array([device], dtype=object))
    table.framework[:] = framework
    return prepare(table)


def cycles(found: Prepared) -> float:
    return float(found.special[0]) * CLOCK


def test_every_query_head_of_a_decode_has_a_block_of_whole_tiles() -> None:
    """Of the first profiler: 4 sequences on 32 heads are 128 blocks on 132 cores, 5 are 160, two on the busiest; one
    alone on its core waits for each of its tiles of 64 keys."""
    one = mixed("v0", n_decode=4, kv_decode=4 * 129)
    assert cycles(one) == pytest.approx(3 * (TILE + 500.0), rel=1e-4)
    assert cycles(mixed("v0", n_decode=5, kv_decode=5 * 129)) == pytest.approx(6 * TILE, rel=1e-4)
    assert mixed("v0", n_decode=9, kv_decode=9 * 129).waves == pytest.approx(2 * one.waves)
    shared = mixed("v0", n_decode=5, kv_decode=5 * 129, kv_heads=4)  # reads less, and computes as much
    assert cycles(shared) == pytest.approx(6 * TILE, rel=1e-4)


def test_a_remainder_of_the_keys_is_left_out_and_without_keys_nothing_runs() -> None:
    assert mixed("v0", n_decode=4, kv_decode=4 * 64 + 3).special == mixed("v0", n_decode=4, kv_decode=4 * 64).special
    none = mixed("v0", n_decode=200, kv_decode=100)
    assert none.special == 0.0
    assert none.waves == 0.0
    assert none.demand.memory[0] > 0.0  # its output is written


def test_the_first_profilers_chunk_sees_all_keys() -> None:
    """And vLLM's only those before each query: 8 heads, 1,024 queries, on fewer blocks than cores."""
    chunk = {"prefill_q": 1024, "n_decode": 0, "kv_decode": 0, "heads": 64, "kv_heads": 64}
    whole = mixed("v0", "rtx-a6000", **chunk, prefill_kv=1024)  # 512 blocks of 32 tiles of 32 keys on 84 cores
    tile = 128 * 32 / 16 + 32 * 256 * 2 * 4 * 0.5 / 128
    # The seventh block of a core has no other beside it.
    assert float(whole.special[0]) * 1.8e9 == pytest.approx(7 * 32 * tile + 32 * 500.0, rel=1e-4)
    causal = mixed("vllm", "rtx-a6000", **chunk, prefill_kv=0)
    assert causal.core[0] < 0.65 * whole.core[0]


def test_vllm_divides_keys_in_steps_without_a_chunk_alone() -> None:
    alone = mixed("vllm", "rtx-4090", n_decode=1, kv_decode=16383, kv_heads=8)
    beside = mixed("vllm", "rtx-4090", n_decode=1, kv_decode=16383, kv_heads=8, prefill_q=16)
    assert alone.special[0] == 0.0
    assert beside.core[0] > 4.0 * alone.core[0]  # 128 tiles in a row


def test_the_new_token_of_a_decode_is_one_key_more() -> None:
    """128 cached tokens are two tiles of 128 keys in vLLM, 127 are one."""
    few = {"heads": 8, "kv_heads": 8, "prefill_q": 16}  # 72 blocks on 128 cores
    two, one = (mixed("vllm", "rtx-4090", **few, kv_decode=cached) for cached in (128, 127))
    assert two.core[0] == pytest.approx(2.0 * one.core[0], rel=0.03)


def test_the_longest_block_starts_late() -> None:
    """A chunk behind 16,384 tokens beside short decodes: the last head's block starts when theirs are nearly done."""
    chunk = {"prefill_q": 16, "prefill_kv": 16384, "kv_heads": 8}
    alone, beside = (mixed("vllm", "rtx-4090", **chunk, n_decode=n, kv_decode=128) for n in (0, 128))
    decodes = mixed("vllm", "rtx-4090", **chunk | {"prefill_kv": 0}, n_decode=128, kv_decode=128)
    assert beside.core[0] > 0.95 * (alone.core[0] + decodes.core[0])


def test_the_grid_of_a_chunk_starts_blocks_of_decodes_in_vain() -> None:
    """31 of 32 blocks of a decode and head have no queries where the chunk has 2,048, of 64 a block."""
    long, few = {"prefill_q": 2048, "kv_heads": 8, "kv_decode": 15}, {"n_decode": 1}
    more = mixed("vllm", "rtx-4090", **long, n_decode=129)
    less = mixed("vllm", "rtx-4090", **long | few)
    empty = 31 * 32 * 128 / 128 * 900.0
    tiles = 32 * 128 / 128 * (64 * 128 / 16 + 128 * 256 * 2 * 4 * 0.5 / 128 + 500.0)
    clock = 2.52e9
    assert float(more.special[0] - less.special[0]) * clock == pytest.approx(empty + tiles, rel=0.05)


def test_query_heads_read_keys_again_that_l2_does_not_hold() -> None:
    """A grid that goes through all sequences of a head before the next: 268 MB a key head, 72 MiB of L2."""
    step = {"prefill_q": 16, "kv_heads": 8}
    much = mixed("vllm", "rtx-4090", **step, n_decode=128, kv_decode=4095)
    as_much = mixed("vllm", "rtx-4090", **step | {"kv_heads": 32}, n_decode=128, kv_decode=4095)
    assert much.demand.memory[0] == pytest.approx(as_much.demand.memory[0], rel=0.05)
    little = mixed("vllm", "rtx-4090", **step, n_decode=128, kv_decode=255)
    apart = mixed("vllm", "rtx-4090", **step | {"kv_heads": 32}, n_decode=128, kv_decode=255)
    assert little.demand.memory[0] < 0.3 * apart.demand.memory[0]


def test_all_tokens_of_a_chunk_are_its_own_and_those_before_it() -> None:
    chunk = {"prefill_q": 512, "n_decode": 0, "kv_decode": 0}
    alone = mixed("vllm", **chunk, prefill_kv=0)
    for said in (mixed("v0", **chunk, prefill_kv=512), mixed("v0", **chunk, prefill_kv=0)):
        np.testing.assert_array_equal(said.demand.moved, alone.demand.moved)
        np.testing.assert_array_equal(said.demand.flops, alone.demand.flops)
    before = mixed("vllm", **chunk, prefill_kv=256)
    np.testing.assert_array_equal(mixed("v0", **chunk, prefill_kv=768).demand.flops, before.demand.flops)
    on_tpu = mixed("v0", "tpu-v6e", **chunk, prefill_kv=256)  # there the table counts what was cached before
    np.testing.assert_array_equal(on_tpu.demand.flops, before.demand.flops)


def test_a_history_of_each_sequence_is_their_sum_times_as_much() -> None:
    each, summed = mixed("vllm", kv_decode=511), mixed("v0", kv_decode=8 * 512)
    np.testing.assert_array_equal(each.demand.memory, summed.demand.memory)
    assert mixed("v0", kv_decode=512).demand.moved[0] < 0.2 * each.demand.moved[0]


def test_a_framework_that_nobody_knows_packs_heads() -> None:
    assert reading("mine", "hopper") == MixedReading()
    together, apart = mixed("mine", kv_heads=4, n_decode=64), mixed("mine", kv_heads=32, n_decode=64)
    assert together.core[0] < 0.2 * apart.core[0]
