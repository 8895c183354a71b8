"""Kernels that write fewer bits: what they move, what their blocks wait for, and a launch that is hidden."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.datasets.text import as_text
from calibration.kernels.fit import counts, new_law
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.levels import NO_NAMES
from calibration.kernels.model import CHAINED
from calibration.kernels.priors import priors_of
from calibration.kernels.quantizing import FROM_L2, FROM_MEMORY, WAIT
from tests.calibration.tables import blank_table

CORES, CLOCK = 132, 1.83e9  # H100


def one(m: int, k: int, framework: str, op: str = "scale_matrix", device: str = "h100-sxm") -> Prepared:
    shape = {"m": np.full(1, float(m)), "k": np.full(1, float(k))}
    table = blank_table("quantize", shape, np.full(1, device, dtype=object), "fp8")
    table.text["op"] = as_text(np.full(1, op, dtype=object))
    return prepare(dataclasses.replace(table, framework=np.full(1, framework, dtype=object)))


@pytest.mark.parametrize(
    ("framework", "op", "each"),
    [
        ("vllm", "scale_matrix", 3),
        ("trtllm", "scale_matrix", 3),
        ("trtllm", "compute_scale", 2),
        ("sglang", "scale_matrix", 21),
    ],
)
def test_bytes_of_an_element(framework: str, op: str, each: int) -> None:
    """A search for a scale writes none; elementary operations go to fp32 and back."""
    assert one(512, 4096, framework, op).demand.moved[0] == pytest.approx(each * 512 * 4096, rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(m=st.integers(1, 33000), k=st.integers(1, 3000))
def test_rows_wait_in_turn(m: int, k: int) -> None:
    """Eight blocks of 256 threads at a time on a core, each of 16 elements a thread."""
    found = one(m, k, "vllm").on_chip[0]
    waits = -(-m // (CORES * 8)) * (1 + -(-k // 4096)) * WAIT / CLOCK
    assert found == pytest.approx(max(waits, 3.0 * m * k / (64 * CORES * CLOCK)), rel=1e-4)


@pytest.mark.parametrize(("k", "latency"), [(8192, FROM_L2), (65536, FROM_MEMORY)])
def test_a_search_waits_for_every_number_of_its_threads(k: int, latency: float) -> None:
    """1,024 blocks of 1,024 threads, two of them on a core of the H100, one on one of the L40S."""
    steps = 1 + 2048 * k // 1024**2
    assert one(2048, k, "trtllm", "compute_scale").on_chip[0] == pytest.approx(4 * steps * latency / CLOCK, rel=1e-4)
    shares = [one(2048, 65536, "trtllm", "compute_scale", device).on_chip[0] for device in ("h100-sxm", "l40s")]
    assert shares[1] / shares[0] == pytest.approx(8 / 4 * CLOCK / 2.52e9, rel=1e-4)


def test_a_launch_that_the_kernel_before_hides_halves_the_floor() -> None:
    chained, apart = (one(1, 32, framework) for framework in ("trtllm", "vllm"))
    assert (chained.chained[0], apart.chained[0]) == (1.0, 0.0)
    assert one(1, 32, "trtllm", device="l40s").chained[0] == one(1, 32, "trtllm", "compute_scale").chained[0] == 0.0
    means = {name: mean for name, (mean, _) in priors_of("quantize").scalars.items()}
    law = new_law(means, counts(NO_NAMES), 0)
    floors = [float(jax.vmap(law.parts)(each.inputs(NO_NAMES))[2][0]) for each in (apart, chained)]
    assert floors[0] - floors[1] == pytest.approx(CHAINED, rel=1e-5)
