"""What prefill kernels ask of the busiest core, against whole numbers."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration.datasets.prefill_kernels import ANY, PrefillReading, Tile
from calibration.datasets.schema import KernelTable
from calibration.kernels.fit import new_law
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.levels import LEVELS, NO_NAMES
from calibration.kernels.point import load_kinds, whole_shape
from calibration.kernels.prefill import prefill_of
from calibration.kernels.prefill_beside import beside_products_time
from calibration.kernels.priors import PRIORS
from tests.calibration.tables import blank_table

SHAPE = {"batch": 1.0, "q_len": 128.0, "prefix": 0.0, "heads": 1.0, "kv_heads": 1.0, "head_dim": 128.0, "window": 0.0}
LATENT = {"batch": 1.0, "q_len": 128.0, "kv_len": 128.0, "heads": 1.0}
TILE = 128 * 128  # scores of one tile
CLOCK = {"h100-sxm": 1.83e9, "a100-sxm-80gb": 1.41e9}


def one(shape: dict[str, float], device: str = "h100-sxm", family: str = "attention_prefill", **names: str) -> Prepared:
    return prepare(row(shape, device, family, **names))


def row(shape: dict[str, float], device: str, family: str = "attention_prefill", **names: str) -> KernelTable:
    columns = {name: np.full(1, value) for name, value in shape.items()}
    table = blank_table(family, columns, np.full(1, device, dtype=object))
    named = {"framework": "unknown", **names}
    return dataclasses.replace(table, **{key: np.full(1, name, dtype=object) for key, name in named.items()})


def beside(shape: dict[str, float], framework: str, kernel: str, device: str = "l40s", **names: str) -> float:
    """Time of the attention alone beside its products, without what writes the cache before it [s]."""
    table = row(SHAPE | shape, device, framework=framework, kernel=kernel, **names)
    kind = load_kinds(table).rows(0)
    x = whole_shape(kind, {name: jnp.asarray(column[0]) for name, column in table.shape.items()})
    return float(beside_products_time(prefill_of("attention_prefill", x), kind.hardware))


def test_exponentials_of_whole_tiles_at_sixteen_a_cycle() -> None:
    """On Hopper, whose matrix instructions read shared memory themselves, nothing else stands beside the products."""
    assert one(SHAPE).special[0] == pytest.approx(TILE / 16 / CLOCK["h100-sxm"], rel=1e-5)
    three = one(SHAPE | {"q_len": 256.0})  # causal: one tile, then two, on a core each
    assert three.special[0] == pytest.approx(2 * TILE / 16 / CLOCK["h100-sxm"], rel=1e-5)


def test_blackwell_ultra_has_twice_the_exponentials_of_blackwell() -> None:
    cycles = {}
    for name in ("b200", "gb300"):
        found = one(SHAPE, name)
        cycles[name] = found.special[0] * found.clock[0]
    assert cycles["b200"] == pytest.approx(2.0 * cycles["gb300"], rel=1e-5)


@pytest.mark.parametrize(
    ("family", "shape", "widths"), [("attention_prefill", SHAPE, 256), ("mla_prefill", LATENT, 320)]
)
def test_warps_load_keys_and_values_for_64_queries_where_registers_feed_the_matrix_units(
    family: str, shape: dict[str, float], widths: int
) -> None:
    """Two bytes of each element of a key and a value, at 128 bytes a cycle; latent heads have 192 and 128 elements."""
    found = one(shape, "a100-sxm-80gb", family)
    loads = widths * 2 / 64 / 128
    assert found.special[0] == pytest.approx(TILE * (1 / 16 + loads) / CLOCK["a100-sxm-80gb"], rel=1e-5)


def test_a_block_fills_a_core_whose_matrix_instructions_read_shared_memory() -> None:
    """Nothing hides its start there, which is latencies of the memory: no clock shortens it."""
    assert one(SHAPE | {"heads": 132.0 * 6}).waves[0] == pytest.approx(6.0 * 1.83 / 1.83)
    half = one(SHAPE | {"heads": 108.0 * 6}, "a100-sxm-80gb", framework="trtllm")  # blocks of 64 queries, two a core
    assert half.waves[0] == pytest.approx(2 * 6 * 0.5 / 2 * 1.41 / 1.83)


@pytest.mark.parametrize(
    ("device", "kernel", "residents"),
    [("a100-sxm-80gb", "vllm_flash_attn", 2), ("l40s", "vllm_flash_attn", 1), ("l40s", "flashinfer", 2)],
)
def test_as_many_blocks_share_a_core_as_its_shared_memory_holds(device: str, kernel: str, residents: int) -> None:
    """64 queries and tiles of 128 keys and values of 128 elements are 80 KiB, of 164 KB and 100 KB."""
    cores = {"a100-sxm-80gb": 108.0, "l40s": 142.0}[device]
    found = named({"heads": cores * 8, "kv_heads": cores * 8}, "vllm", kernel, device)
    rows = 0.5 * 2 if kernel == "vllm_flash_attn" else 1.0  # two blocks of 64 queries, or one of 128
    assert found.waves[0] / found.clock[0] == pytest.approx(8 * rows / residents, rel=1e-5)


@pytest.mark.parametrize(("queries", "keys"), [(1.0, 32), (64.0, 64), (65.0, 64 + 96), (192.0, 64 + 128 + 192)])
def test_tiles_of_tensorrt_before_hopper_are_of_64_queries_and_32_keys(queries: float, keys: int) -> None:
    busy = SHAPE | {"q_len": queries, "heads": 142.0 * 6000}  # so many that the last block hardly counts
    small, large = (one(busy, "l40s", framework=name) for name in ("trtllm", "unknown"))
    whole = sum(128 * (block + 1) for block in range(-(-int(queries) // 128)))
    assert small.core[0] / large.core[0] == pytest.approx(64 * keys / (128 * whole), rel=1e-3)


@pytest.mark.parametrize(("device", "rows"), [("a100-sxm-80gb", 64), ("l40s", 64)])
def test_heads_of_256_take_large_tiles_of_tensorrt_but_for_few_keys(device: str, rows: int) -> None:
    """64 queries: a tile of 32 keys, then another; 65: a tile of 128, twice."""
    wide = {"head_dim": 256.0, "heads": 142.0 * 108.0 * 6}
    few, more = (beside(wide | {"q_len": queries}, "trtllm", "torch_flow", device) for queries in (64.0, 65.0))
    assert more / few == pytest.approx(2 * 128 / 64, rel=1e-5)


@pytest.mark.parametrize(("head", "spills"), [(64.0, True), (128.0, False), (192.0, False), (256.0, True)])
def test_eight_bit_kernels_of_tensorrt_on_ada_spill_registers_for_the_smallest_and_largest_heads(
    head: float, spills: bool
) -> None:
    narrow = {"dtype": "fp8", "cache": "fp8"}
    shape = {"q_len": 1024.0, "heads": 142.0, "head_dim": head}
    of_ada, of_others = (beside(shape, name, "torch_flow", **narrow) for name in ("trtllm", "unknown"))
    assert (of_ada > 1.5 * of_others) == spills


def test_heads_share_blocks_of_flash_attention_2_for_one_query_alone() -> None:
    shape = {"heads": 142.0 * 8, "kv_heads": 142.0}
    waves = [
        named(shape | one_, "vllm", "vllm_flash_attn").waves[0]
        for one_ in ({"q_len": 1.0}, {"q_len": 2.0}, {"q_len": 1.0, "window": 128.0})
    ]
    assert waves[1:] == pytest.approx([8 * waves[0]] * 2)


def by_blocks(queries: int, prefix: int, span: int, rows: int, group: int, keys: int) -> tuple[int, int]:
    """Keys of the tiles that all blocks may see, and those of them that a window hides, block after block."""
    seen = hidden = 0
    for block in range(-(-queries * group // rows)):
        last = min(-(-(block + 1) * rows // group), queries)
        seen += -(-(prefix + last) // keys) * keys
        hidden += max((block * rows // group + prefix + 1 - span) // keys, 0) * keys
    return seen, hidden


@pytest.mark.parametrize(
    ("rows", "group", "keys"), [(128, 1, 128), (64, 1, 256), (128, 8, 128), (128, 1, 64), (16, 4, 32)]
)
@pytest.mark.parametrize("span", [128, 1024, 10**6])
@pytest.mark.parametrize("prefix", [0, 256, 512])
@pytest.mark.parametrize("queries", [1, 64, 200, 1000])
def test_keys_of_tiles_equal_a_loop_over_the_blocks(
    queries: int, prefix: int, span: int, rows: int, group: int, keys: int
) -> None:
    x = {**SHAPE, "q_len": queries, "prefix": prefix, "window": span, "heads": group}
    x |= PrefillReading((Tile(ANY, rows, keys),)).columns() | {"packed": 1}
    one_ = prefill_of("attention_prefill", {name: jnp.asarray(float(each)) for name, each in x.items()})
    assert (int(one_.causal()), int(one_.hidden())) == by_blocks(queries, prefix, span, rows, group, keys)


def named(shape: dict[str, float], framework: str, kernel: str, device: str = "l40s", **names: str) -> Prepared:
    return one(SHAPE | shape, device, framework=framework, kernel=kernel, **names)


@pytest.mark.parametrize(
    ("framework", "kernel", "hides"), [("sglang", "flashinfer", False), ("vllm", "flashinfer", True)]
)
def test_only_a_kernel_that_is_given_the_window_leaves_products_out(framework: str, kernel: str, hides: bool) -> None:
    long = {"q_len": 4096.0, "heads": 64.0, "kv_heads": 8.0}
    windowed, whole = (named(long | {"window": window}, framework, kernel).core[0] for window in (128.0, 0.0))
    assert (windowed < 0.15 * whole) if hides else windowed == whole


def asked(found: Prepared) -> list[float]:
    """All numbers that a model reads of one kernel."""
    return [*found.features[0], *found.habits[0], found.core[0], found.special[0], found.waves[0], found.kernels[0]]


@pytest.mark.parametrize("window", [1124.0, 1e6])
@pytest.mark.parametrize(("framework", "kernel"), [("trtllm", "torch_flow"), ("vllm", "vllm_flash_attn")])
def test_a_window_that_hides_no_key_is_none(framework: str, kernel: str, window: float) -> None:
    shape = {"q_len": 1024.0, "prefix": 100.0, "heads": 32.0, "kv_heads": 8.0}
    whole, wide, narrow = (named(shape | {"window": w}, framework, kernel) for w in (0.0, window, 1123.0))
    assert asked(wide) == asked(whole)
    assert asked(narrow) != asked(whole)


@pytest.mark.parametrize(("kernel", "queries"), [("triton", 1024.0), ("flash_attn", 1.0)])
def test_a_kernel_that_any_window_makes_go_another_way_keeps_one_that_hides_no_key(kernel: str, queries: float) -> None:
    framework = {"triton": "sglang", "flash_attn": "vllm"}[kernel]
    shape = {"q_len": queries, "heads": 142.0 * 8, "kv_heads": 142.0}
    whole, wide = (named(shape | {"window": w}, framework, kernel) for w in (0.0, 1e6))
    assert wide.waves[0] > whole.waves[0]


def test_blocks_that_are_fewer_than_the_cores_share_the_keys() -> None:
    """One head of 1,024 queries: 8 blocks of 132, the longest of 8 tiles, whose shares are at least a tile."""
    long = {"q_len": 1024.0}
    divided, whole = (named(long, "vllm", "fa3", "h100-sxm", version=name).core[0] for name in ("0.24.0", "0.14.0"))
    assert divided / whole == pytest.approx(1 / 8, rel=1e-5)


def test_heads_of_a_key_head_share_blocks_of_flash_attention_3() -> None:
    short = {"q_len": 16.0, "heads": 132.0 * 8, "kv_heads": 132.0}
    assert named(short, "vllm", "fa3", "h100-sxm").waves[0] == 1.0
    assert one(SHAPE | short).waves[0] == 8.0


def test_flashinfer_takes_small_blocks_for_few_queries() -> None:
    """16 queries see one tile of 32 keys, 64 see two, 128 see four."""
    few = [beside({"q_len": queries}, "vllm", "flashinfer") for queries in (16.0, 64.0, 128.0)]
    assert few[1:] == pytest.approx([4 * 2 * few[0], 8 * 4 * few[0]], rel=1e-5)


def test_triton_multiplies_heads_of_the_next_power_of_two() -> None:
    odd, even = (named({"head_dim": size}, "sglang", "triton").core[0] for size in (192.0, 256.0))
    assert odd == even


def test_triton_waits_for_a_tile_and_for_all_of_its_bytes() -> None:
    """One block's one tile of 128 keys and values of 64 elements of two bytes: 3,000 cycles, and 25 bytes a cycle."""
    found = beside({"head_dim": 64.0}, "sglang", "triton") * 2.52e9
    usual = 64 * 128 * (1 / 16 + 128 * 2 / 64 / 128)
    assert found - usual == pytest.approx(3000 + 128 * 128 * 2 / 25, rel=1e-3)


@pytest.mark.parametrize(
    ("device", "framework", "kernel", "faster"),
    [
        ("h100-sxm", "sglang", "fa3", 2.0),
        ("h100-sxm", "trtllm", "torch_flow", 2.0),
        ("h100-sxm", "sglang", "triton", 1.0),
        ("h100-sxm", "vllm", "vllm_flash_attn_fa3", 2.0),
        ("l40s", "vllm", "vllm_flashinfer", 1.0),
        ("l40s", "vllm", "vllm_flashinfer_fiprefill", 1.0),
        ("l40s", "trtllm", "torch_flow", 1.0),
    ],
)
def test_kernels_that_cast_queries_multiply_in_the_format_of_the_cache(
    device: str, framework: str, kernel: str, faster: float
) -> None:
    named = {"framework": framework, "kernel": kernel}
    wide, narrow = (one(SHAPE, device, cache=cache, **named) for cache in ("bf16", "fp8"))
    assert wide.demand.compute[0] / narrow.demand.compute[0] == pytest.approx(faster, rel=1e-3)


def test_heads_whose_accumulators_do_not_fit_take_fewer_queries_at_a_time() -> None:
    """A head of 512 has four times the products of one of 128, and twice the loads of its operands."""
    small, large = (one(SHAPE | {"head_dim": size}) for size in (128.0, 512.0))
    assert large.core[0] / small.core[0] == pytest.approx(8.0, rel=1e-5)


def test_exponentials_hide_behind_products_where_those_have_a_memory_for_their_results() -> None:
    """On Hopper they add up; on Blackwell the longer of the two is nearly all."""
    law = new_law({name: mean for name, (mean, _) in PRIORS.items()} | {"special": 0.0}, dict.fromkeys(LEVELS, 0), 5)
    nothing = {"power": -99.0, "waves": -99.0, "compute": np.log(2e-3), "special": np.log(2e-3)}
    for device, longer in (("h100-sxm", 2.0), ("b200", 2.0**0.25)):
        x = one(SHAPE, device).inputs(NO_NAMES)
        x = dataclasses.replace(x, **{name: jnp.full(1, value) for name, value in nothing.items()})
        law_ = dataclasses.replace(law, compute=jnp.zeros(()))
        core, _, _ = jax.vmap(law_.parts)(x)
        assert float(np.exp(core[0])) == pytest.approx(2e-3 * longer, rel=1e-3)


@pytest.mark.parametrize(("framework", "kernel", "ends"), [("vllm", "vllm_flash_attn", 78.4), ("unknown", "", 68.0)])
def test_grids_that_go_through_queries_row_by_row_end_with_the_longest_block(
    framework: str, kernel: str, ends: float
) -> None:
    """2,048 queries of 32 heads on 128 cores are 68 tiles of 64 x 128 a core, the longest block 16 of them; others'
    kernels are taken to share them evenly."""
    found = named({"q_len": 2048.0, "heads": 32.0, "kv_heads": 32.0}, framework, kernel, "rtx-4090")
    tiles = found.core[0] * 165.2e12 / 128 / (4 * 128 * 64 * 128)
    assert tiles == pytest.approx(ends, rel=0.02)


@pytest.mark.parametrize(
    ("framework", "size", "more"), [("sglang", 192.0, 4.0), ("sglang", 128.0, 0.0), ("vllm", 192.0, 0.0)]
)
def test_small_kernels_pad_the_values_of_heads_of_192_in_sglang(framework: str, size: float, more: float) -> None:
    own, usual = (named({"head_dim": size}, name, "a_kernel", "h100-sxm") for name in (framework, "another"))
    assert float(own.waves[0] - usual.waves[0]) == pytest.approx(more)
