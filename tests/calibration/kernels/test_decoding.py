"""How decode kernels divide their work: blocks, parts and rounds by hand, from what the engines' sources say."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from calibration.datasets.decode_kernels import Reading, reading
from calibration.kernels import decoding
from calibration.kernels.asked import Shape
from calibration.kernels.inputs import Prepared
from tests.calibration.kernels.test_ways import one

SHARED = {"a100-sxm-80gb": 164 * 1024.0, "l40s": 100 * 1024.0, "h100-sxm": 228 * 1024.0}
CORES = {"a100-sxm-80gb": 108.0, "l40s": 142.0, "h100-sxm": 132.0}
GENERATION = {"a100-sxm-80gb": "ampere-ga100", "l40s": "ada", "h100-sxm": "hopper"}
USUAL = {"batch": 16.0, "heads": 32.0, "kv_heads": 8.0, "head_dim": 128.0, "kv_len": 512.0, "window": 0.0}
FLASH_2 = ("vllm", "0.24.0", "vllm_flash_attn_fa2", "bf16")
FLASH_3 = ("vllm", "0.24.0", "vllm_flash_attn_fa3", "bf16")
XQA = ("trtllm", "1.3.0rc20", "torch_flow", "bf16")


def asked(names: tuple[str, str, str, str], device: str = "l40s", **sizes: float) -> Shape:
    """A shape and the ways of a kernel."""
    ways = reading(*names, GENERATION[device])._replace(shared=SHARED[device])
    return {name: jnp.asarray(value) for name, value in (USUAL | sizes | ways._asdict()).items()}


def prepared(names: tuple[str, str, str, str], device: str = "l40s", **sizes: float) -> Prepared:
    """The same as a row of a table."""
    keys = ("framework", "version", "kernel", "cache")
    return one("attention_decode", USUAL | sizes, device, **dict(zip(keys, names, strict=True)))


def launch(names: tuple[str, str, str, str], device: str = "l40s", **sizes: float) -> tuple[float, float, float]:
    """Groups, parts and rounds."""
    x, cores = asked(names, device, **sizes), jnp.asarray(CORES[device])
    return tuple(float(of(x, cores)) for of in (decoding.groups, decoding.parts, decoding.rounds))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({}, (128, 2, 2)),  # 284 wanted
        ({"heads": 8.0}, (128, 1, 1)),  # neither packed nor divided
        ({"window": 128.0}, (512, 1, 4)),
        ({"batch": 36.0}, (288, 1, 3)),
        ({"batch": 1.0, "kv_len": 300.0}, (8, 2, 1)),
    ],
)
def test_flash_attention_2_divides_only_what_it_swaps(sizes: dict[str, float], expected: tuple[int, int, int]) -> None:
    assert launch(FLASH_2, **sizes) == expected


@pytest.mark.parametrize(("keys", "parts"), [(1023.0, 1.0), (1024.0, 2.0), (2**20, 16.0)])
def test_flash_attention_3_divides_long_sequences_for_one_block_a_core(keys: float, parts: float) -> None:
    assert launch(FLASH_3, "h100-sxm", batch=1.0, kv_len=keys)[1] == parts


@pytest.mark.parametrize(
    ("batch", "keys", "parts", "rounds"),
    [(16.0, 256.0, 2, 2), (64.0, 256.0, 2, 8), (64.0, 4096.0, 2, 8), (128.0, 4096.0, 1, 8), (16.0, 1023.0, 7, 7)],
)
def test_grouped_queries_are_divided_into_eight_rounds(batch: float, keys: float, parts: int, rounds: int) -> None:
    """Of 132 cores; stretches of 128 keys at least."""
    assert launch(XQA, "h100-sxm", batch=batch, kv_len=keys)[1:] == (parts, rounds)


@pytest.mark.parametrize(
    ("sizes", "apart"),
    [
        ({"kv_len": 16.0, "batch": 4.0}, True),  # four times 32 blocks are fewer than 132 cores
        ({"kv_len": 16.0, "batch": 5.0}, False),
        ({"kv_len": 256.0, "batch": 4.0}, False),
        ({"heads": 8.0}, True),
        ({"heads": 264.0}, True),
    ],
)
def test_few_or_large_groups_take_masked_attention(sizes: dict[str, float], apart: bool) -> None:
    x, cores = asked(XQA, "h100-sxm", **sizes), jnp.asarray(CORES["h100-sxm"])
    assert bool(decoding.apart(x, cores)) is apart
    assert float(decoding.groups(x, cores)) == float(x["batch"] * (x["heads"] if apart else x["kv_heads"]))


@pytest.mark.parametrize(
    ("device", "size", "resident"),
    [
        ("l40s", 64.0, 1.0),  # 72 KiB a block
        ("l40s", 128.0, 1.0),  # 80 KiB
        ("a100-sxm-80gb", 128.0, 2.0),
        ("a100-sxm-80gb", 256.0, 1.0),  # 96 KiB
    ],
)
def test_a_core_holds_the_blocks_that_fit_its_shared_memory(device: str, size: float, resident: float) -> None:
    x = asked(FLASH_2, device, head_dim=size)
    assert float(decoding.resident(x, jnp.asarray(CORES[device]))) == resident


def test_one_block_streams_at_its_own_rate_however_idle_other_cores_are() -> None:
    """12 bytes a cycle: 512 keys of 128 elements, and their values, in 16 bits."""
    few, many = (prepared(FLASH_2, heads=1.0, kv_heads=1.0, batch=batch) for batch in (1.0, 142.0))
    cycles = 512 * 2 * 128 * 2 / 12
    products = few.demand.compute[0], many.demand.compute[0]
    assert few.core[0] - products[0] == pytest.approx(cycles / 2.52e9, rel=1e-4)
    assert many.core[0] - products[1] == pytest.approx(cycles / 2.52e9, rel=1e-3)


@pytest.mark.parametrize(
    ("sizes", "kernels"),
    [
        ({"kv_len": 100.0}, 2.0),  # queries and output copied
        ({"kv_len": 100.0, "batch": 1.0}, 0.0),
        ({"kv_len": 100.0, "heads": 8.0}, 0.0),
        ({}, 2.0 + 1.0 + 2 * 0.14),  # two parts
    ],
)
def test_small_kernels_beside_flash_attention_2(sizes: dict[str, float], kernels: float) -> None:
    found = decoding.small_kernels(asked(FLASH_2, **sizes), jnp.asarray(CORES["l40s"]))
    assert float(found) == pytest.approx(kernels, rel=1e-6)


def test_a_start_is_the_unit_of_flash_attention_2() -> None:
    assert prepared(FLASH_2, heads=8.0, batch=1.0).waves[0] == pytest.approx(1.0)
    assert prepared(FLASH_2, heads=8.0, batch=18.0).waves[0] == pytest.approx(2.0)  # 144 blocks


def test_more_keys_never_take_less_of_a_core() -> None:
    for names, device in ((FLASH_2, "l40s"), (FLASH_3, "h100-sxm"), (XQA, "a100-sxm-80gb")):
        times = [prepared(names, device, batch=256.0, kv_len=keys).core[0] for keys in (16.0, 256.0, 2048.0, 2.0**15)]
        assert np.all(np.diff(times) > 0.0)


def test_keys_and_values_on_the_same_pages_leave_memory_once() -> None:
    first, later = (prepared(("trtllm", version, "torch_flow", "bf16"), batch=256.0) for version in ("1.0.0", "1.3.0"))
    queries = 256 * 32 * 2 * 128 * 2
    assert later.demand.moved[0] - queries == pytest.approx(2 * (first.demand.moved[0] - queries), rel=1e-5)
    assert first.core[0] == later.core[0]


def test_an_unknown_kernel_is_an_ordinary_one() -> None:
    assert reading("another", "1", "its_decode", "bf16", "hopper") == Reading()


@pytest.mark.parametrize(("cache", "start"), [("bf16", 0.85), ("fp8", 0.85 * 1.35)])
def test_before_hopper_an_8_bit_cache_is_converted_first(cache: str, start: float) -> None:
    assert reading("trtllm", "1.3.0rc20", "torch_flow", cache, "ada").start == pytest.approx(start)
    assert reading("trtllm", "1.3.0rc20", "torch_flow", "fp8", "hopper").start == 0.65


def test_an_8_bit_cache_is_not_divided_before_hopper() -> None:
    names = (*XQA[:3], "fp8")
    assert launch(names, batch=1.0, kv_len=2.0**14) == (8, 1, 1)
    assert launch(names, "h100-sxm", batch=1.0, kv_len=2.0**14)[1] == 128


def test_blocks_that_fill_the_cores_ask_for_more_than_the_memory_gives() -> None:
    """Eight bytes a cycle from each of two blocks would leave two fifths of a B200's bandwidth idle."""
    found = prepared(("another", "1.0", "another", "bf16"), "b200", batch=4096.0, kv_len=4096.0)
    streamed = found.core[0] - found.demand.compute[0]
    assert streamed == pytest.approx(found.demand.memory[0] / 1.35, rel=0.05)


def test_what_a_compiler_wrote_streams_no_faster_from_a_faster_memory() -> None:
    """Six bytes a cycle from the blocks of Triton, 32 keys of 512 elements at a time."""
    found = prepared(("sglang", "0.5.14", "triton", "bf16"), "h100-sxm", **FOUR_LONG, heads=4.0, head_dim=512.0)
    streamed = found.core[0] - found.demand.compute[0]
    assert streamed == pytest.approx(2**14 / 8 * 512 * 2 * 2 / 6 / 1.83e9, rel=1e-3)


FOUR_LONG = {"batch": 4.0, "kv_heads": 1.0, "kv_len": 2.0**14}


@pytest.mark.parametrize(("batch", "parts", "rounds"), [(64.0, 32, 16), (1.0, 32, 1), (1024.0, 1, 8)])
def test_flash_attention_4_starts_all_parts_of_a_graph(batch: float, parts: int, rounds: int) -> None:
    """However few the keys, up to the largest step that a graph holds: 64 sequences are 2,048 blocks on 132 cores."""
    sizes = {"batch": batch, "heads": 8.0, "kv_heads": 1.0, "head_dim": 512.0, "kv_len": 2.0}
    assert launch(("vllm", "0.24.0", "vllm_flash_attn_fa4", "bf16"), "h100-sxm", **sizes) == (batch, parts, rounds)


@pytest.mark.parametrize(
    ("framework", "size", "more"), [("sglang", 192.0, 4.0), ("sglang", 128.0, 0.0), ("vllm", 192.0, 0.0)]
)
def test_sglang_pads_the_values_of_heads_of_192(framework: str, size: float, more: float) -> None:
    names = (framework, "1.0", "a_kernel", "bf16")
    own = decoding.small_kernels(asked(names, head_dim=size), jnp.asarray(142.0))
    usual = decoding.small_kernels(asked(("another", *names[1:]), head_dim=size), jnp.asarray(142.0))
    assert float(own) - float(usual) == pytest.approx(more)


@pytest.mark.parametrize(("framework", "threads"), [("vllm", 512), ("another", 0)])
def test_vllm_writes_the_new_keys_and_values_of_each_sequence_first(framework: str, threads: int) -> None:
    """A block for each token of a thread an element, 512 at most, at three cycles each."""
    found = prepared((framework, "1", "a_kernel", "bf16"), "h100-sxm", batch=1024.0, kv_heads=8.0)
    assert found.special[0] == pytest.approx(1024 * threads * 3.0 / 132 / 1.83e9, rel=1e-3)
