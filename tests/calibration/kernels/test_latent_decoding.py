"""How decode kernels of latent attention divide their work: blocks, tiles and parts by hand."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.datasets.caches import LatentReading, reading
from calibration.kernels import latent_decoding
from calibration.kernels.asked import Shape

SHARED = {"a100-sxm-80gb": 164 * 1024.0, "l40s": 100 * 1024.0, "h100-sxm": 228 * 1024.0}
CORES = {"a100-sxm-80gb": 108.0, "l40s": 142.0, "h100-sxm": 132.0}
GENERATION = {"a100-sxm-80gb": "ampere-ga100", "l40s": "ada", "h100-sxm": "hopper"}
USUAL = {"batch": 16.0, "heads": 16.0, "kv_len": 1024.0, "q_len": 1.0}
SIZES = {
    "batch": st.integers(1, 2048),
    "heads": st.sampled_from([1, 16, 64, 65, 128]),
    "kv_len": st.integers(1, 2**17),
}


def asked(framework: str, kernel: str, device: str = "h100-sxm", cache: str = "bf16", **sizes: float) -> Shape:
    """A shape and the ways of a kernel."""
    ways = reading(framework, "", kernel, cache, GENERATION[device])._replace(shared=SHARED[device])
    return {name: jnp.asarray(float(value)) for name, value in (USUAL | sizes | ways._asdict()).items()}


@pytest.mark.parametrize(
    ("batch", "heads", "keys", "tiles", "parts"),
    [
        (1, 16, 64, 6, 1),  # six tiles for 132 cores, and five more
        (1, 16, 132 * 64 - 5 * 64, 6, 127),  # one of them each
        (1, 128, 4096, 7, 32),  # half of the cores for each 64 heads
        (256, 16, 64, 17, 1),
        (1024, 64, 8192, 1037, 1),
    ],
)
def test_all_cores_share_all_tiles_evenly(batch: int, heads: int, keys: int, tiles: int, parts: int) -> None:
    x, cores = asked("trtllm", "default", batch=batch, heads=heads, kv_len=keys), jnp.asarray(132.0)
    assert float(latent_decoding.shared_tiles(x, cores)) == tiles
    assert float(latent_decoding.parts(x, cores)) == parts


@given(**SIZES)
def test_parts_are_whole_and_at_most_the_tiles(batch: int, heads: int, kv_len: int) -> None:
    x, cores = asked("trtllm", "default", batch=batch, heads=heads, kv_len=kv_len), jnp.asarray(132.0)
    parts = float(latent_decoding.parts(x, cores))
    assert parts == int(parts)
    assert 1 <= parts <= min(-(-kv_len // 64), 132)


@pytest.mark.parametrize(
    ("device", "batch", "heads", "blocks", "rounds"),
    [
        ("a100-sxm-80gb", 54, 64, 1, 1),
        ("a100-sxm-80gb", 64, 64, 2, 1),  # two of them fit a core of 164 KiB
        ("a100-sxm-80gb", 128, 1, 3, 2),
        ("a100-sxm-80gb", 1024, 64, 19, 10),
        ("l40s", 71, 64, 1, 1),
        ("l40s", 128, 64, 2, 2),  # one of 100 KiB
        ("l40s", 128, 65, 4, 4),
    ],
)
def test_two_blocks_share_an_undivided_sequence(device: str, batch: int, heads: int, blocks: int, rounds: int) -> None:
    x, cores = asked("trtllm", "default", device, batch=batch, heads=heads), jnp.asarray(CORES[device])
    assert float(latent_decoding.undivided_blocks(x, cores)) == blocks
    assert float(latent_decoding.rounds(x, cores)) == rounds


@pytest.mark.parametrize(("framework", "parts"), [("sglang", 16), ("vllm", 4)])
@pytest.mark.parametrize(("heads", "groups"), [(1, 1), (16, 1), (17, 2), (128, 8)])
def test_triton_launches_all_parts_of_16_heads(framework: str, parts: int, heads: int, groups: int) -> None:
    x, cores = asked(framework, "triton", "l40s", batch=64, heads=heads, kv_len=1), jnp.asarray(142.0)
    assert float(latent_decoding.rounds(x, cores)) == -(-64 * groups * parts // 142)


@given(**SIZES)
def test_groups_of_heads_beside_each_other_read_once(batch: int, heads: int, kv_len: int) -> None:
    x, cores = asked("sglang", "triton", "l40s", batch=batch, heads=heads, kv_len=kv_len), jnp.asarray(142.0)
    groups = -(-heads // 16)
    expected = min(max(batch * groups / 142, 1.0), groups)
    assert float(latent_decoding.times_read(x, cores)) == pytest.approx(expected, rel=1e-6)


def test_a_kernel_that_is_not_known_is_as_flash_mla() -> None:
    assert reading("", "", "", "", "") == LatentReading()
    x = {name: jnp.asarray(value) for name, value in USUAL.items()}
    assert float(latent_decoding.starts(x, jnp.asarray(132.0))) == pytest.approx(
        float(latent_decoding.starts(asked("trtllm", "default"), jnp.asarray(132.0)))
    )


@pytest.mark.parametrize(("kernel", "converted"), [("flash_attention", 1.0), ("flashinfer", 1.0), ("triton", 0.0)])
def test_sglang_writes_a_narrow_cache_anew_in_a_kernel_of_its_own(kernel: str, converted: float) -> None:
    wide, narrow = (reading("sglang", "", kernel, cache, "hopper") for cache in ("bf16", "fp8"))
    assert (wide.converted, narrow.converted) == (0.0, converted)
    assert narrow.beside - wide.beside == converted


@pytest.mark.parametrize(("heads", "times"), [(1.0, 4.0), (16.0, 4.0), (33.0, 64 / 48), (64.0, 1.0), (128.0, 1.0)])
def test_a_block_of_flash_mla_multiplies_64_rows(heads: float, times: float) -> None:
    found = float(latent_decoding.products_share(asked("trtllm", "default", heads=heads)))
    assert found == pytest.approx(times * 989 / 660)
    assert float(latent_decoding.products_share(asked("trtllm", "default", "l40s", heads=heads))) == 1.0
