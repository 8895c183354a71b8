"""Kernels that take sums over rows: what they read again, and how streams were timed."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from calibration.kernels.fit import new_law
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.levels import LEVELS, NO_NAMES
from calibration.kernels.priors import priors_of
from tests.calibration.tables import blank_table

ROWS = 2.0**16


def row_wise(family: str, columns: float, device: str, rows: float = ROWS, **names: str) -> Prepared:
    """One kernel over fp32 rows of PyTorch, or of what `names` say instead."""
    shape = {"rows": np.full(1, rows), "columns": np.full(1, columns)}
    table = blank_table(family, shape, np.full(1, device, dtype=object), "fp32")
    text = {"framework": "torch"} | names
    return prepare(dataclasses.replace(table, **{key: np.full(1, name, dtype=object) for key, name in text.items()}))


def passes(data: Prepared) -> float:
    """How often every element is moved."""
    return float(data.demand.moved[0] / (4.0 * data.table.shape["rows"][0] * data.table.shape["columns"][0]))


@pytest.mark.parametrize(
    ("family", "columns", "device", "moved"),
    [
        ("norm", 1024.0, "l4", 2.0),  # 58 cores x 12 blocks: 2.9 MB in an L2 of 48 MiB
        ("norm", 2.0**15, "l4", 3.0),
        ("norm", 4096.0, "v100-pcie-32gb", 3.0),  # 80 x 16 blocks: 21 MB in 6 MiB
        ("softmax", 1024.0, "p100-pcie-16gb", 2.0),  # kept in the registers of a warp
        ("softmax", 2.0**14, "p100-pcie-16gb", 4.0),
        ("softmax", 4096.0, "l4", 2.0),
    ],
)
def test_a_row_is_read_again_from_memory_where_those_in_flight_exceed_l2(family, columns, device, moved) -> None:
    assert passes(row_wise(family, columns, device)) == pytest.approx(moved, rel=0.03)


def test_few_rows_stay_in_l2_however_many_a_core_could_take() -> None:
    assert passes(row_wise("norm", 2.0**15, "l4", rows=64.0)) == pytest.approx(2.0, rel=1e-2)


def test_what_is_read_again_but_found_comes_from_l2() -> None:
    """Three passes through L2, two through DRAM; the footprint counts an element's two places alone."""
    once, long = row_wise("softmax", 1024.0, "l4"), row_wise("softmax", 2048.0, "l4")
    assert long.on_chip[0] == pytest.approx(4.0 * once.on_chip[0], rel=1e-3)
    assert long.footprint[0] == pytest.approx(once.footprint[0] + np.log(2.0), abs=1e-3)


def test_a_norm_of_vllm_takes_a_block_of_threads_a_row_and_one_element_at_a_time() -> None:
    """An eighth as many rows are in flight as of PyTorch's, and a core loads four times as often."""
    torch, vidur = (row_wise("norm", 4096.0, "v100-pcie-32gb", framework=name) for name in ("torch", "vidur"))
    assert passes(vidur) < passes(torch)
    assert vidur.core[0] == pytest.approx(4.0 * torch.core[0], rel=1e-3)


def test_a_core_with_few_threads_waits_longer() -> None:
    """A T4 holds 1,024, two thirds of what hides its waits; a V100 more than enough."""
    t4, v100 = (row_wise("softmax", 512.0, device) for device in ("t4", "v100-pcie-32gb"))
    cycles = [each.core[0] * cores * each.clock[0] for each, cores in ((t4, 40.0), (v100, 80.0))]
    assert cycles[0] == pytest.approx(1.5 * cycles[1], rel=1e-4)


def test_a_call_by_the_host_takes_its_time_or_the_device_after_a_share_of_it() -> None:
    """PyTorch's framework of streams; a profiler's rows know no host."""
    means = {name: mean for name, (mean, _) in priors_of("softmax").scalars.items()}
    law = new_law(means | {"host": np.log(20e-6), "ahead": np.log(0.5)}, dict.fromkeys(LEVELS, 0), habits=0)

    def time(rows: float, framework: str) -> float:
        data = row_wise("softmax", 512.0, "h100-sxm", rows, framework=framework)
        return float(np.exp(jax.vmap(law)(data.inputs(NO_NAMES)))[0])

    assert time(1.0, "torch") == pytest.approx(20e-6, rel=0.1)
    assert time(1.0, "vidur") < 5e-6
    assert time(2.0**20, "torch") - time(2.0**20, "vidur") == pytest.approx(10e-6, rel=0.1)
    assert time(1.0, "torch rocm") == time(1.0, "torch")
