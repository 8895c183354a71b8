"""Times by the device's own kernels: what of a profile counts, how it falls to calls, and where there is none."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import jax.numpy as jnp
import pytest

from calibration.microbench import Plan, TimingSettings, measure
from calibration.microbench.device_clock import Kernel, kernels, per_call, time_on_device
from calibration.microbench.points import Point
from calibration.microbench.registry import OPERATIONS, families, operations
from calibration.microbench.timing import FLUSH

pytestmark = pytest.mark.usefixtures("plain_jax")
QUICK = TimingSettings(least=2, most=2, seconds=0.0, warm_up=1)


def event(name: str, start: float, duration: float, **stats: Any) -> Thing:
    return Thing(name=name, start_ns=start, duration_ns=duration, stats=list(stats.items()))


def ran(*durations: float, module: str = "jit_f") -> list[Kernel]:
    return [Kernel("k", module, 0.0, each) for each in durations]


def test_streams_of_devices_count_and_nothing_else() -> None:
    product = event("gemm", 5.0, 2000.0, hlo_module="jit_matmul")
    planes = [
        Thing(name="/host:CPU", lines=[Thing(name="Stream of text", events=[product])]),
        Thing(
            name="/device:GPU:0",
            lines=[
                Thing(name="Stream #14(Compute)", events=[product, event("Memset 3", 1.0, 500.0)]),
                Thing(name="XLA Ops", events=[product]),
            ],
        ),
    ]
    found = list(kernels(planes))
    assert [(each.name, each.module) for each in found] == [("gemm", "jit_matmul"), ("Memset 3", "")]
    assert [each.duration for each in found] == pytest.approx([2e-6, 5e-7])


def test_a_call_is_the_sum_of_its_kernels_without_those_that_empty_the_cache() -> None:
    flush = ran(9.0, module=f"jit_{FLUSH}")
    assert per_call([*flush, *ran(1.0, 2.0), *flush, *ran(3.0, 4.0)], 2) == [3.0, 7.0]
    assert per_call(ran(1.0, 2.0, 3.0), 2) == [3.0]  # calls of unlike kernels: their mean
    with pytest.raises(ValueError, match="no kernel of this call"):
        per_call(flush, 2)


def test_a_processor_has_no_such_clock_and_a_run_says_so() -> None:
    with pytest.raises(ValueError, match="no kernel"):
        time_on_device(lambda: jnp.ones(3) + 1.0, QUICK)
    point = Point(OPERATIONS[0], {"m": 8, "n": 64, "k": 64}, "bf16", "resident")
    (found,) = measure(Plan("xeon-cloud-2-core", timing=QUICK, clock="device"), [point])
    assert found.row is None and "time it with the host's clock" in found.problem


def test_gpus_have_every_family_without_products_that_they_do_in_tf32() -> None:
    there = operations("gpu")
    assert operations("cpu") is OPERATIONS and set(families(there)) == set(families())
    matrices = [each for each in there if each.family in ("gemm", "bmm", "moe", "attention_prefill")]
    assert "fp8" in {dtype for each in matrices for dtype in each.dtypes}
    assert not any("fp32" in each.dtypes for each in matrices)
