"""The published table of requests with their power, where it is: what it states and what it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.power.rows import Run, read_power


@pytest.fixture(scope="module")
def runs(data_directory: Path) -> tuple[Run, ...]:
    path = data_directory / "serving" / "splitwise_perf_model.csv"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    table = read_power(path)
    assert not table.reasons
    return table.runs


def test_power_was_metered_on_one_device_without_a_limit(runs: tuple[Run, ...]) -> None:
    metered = [run for run in runs if np.isfinite(run.average_power)]
    assert {(run.device.name, run.limit) for run in metered} == {("a100-sxm-80gb", 1.0)}
    assert all(0.1 < run.average_power <= run.peak_power < 1.2 for run in metered)


def test_the_capped_twins_are_the_others_times_one_number(runs: tuple[Run, ...]) -> None:
    """Why `validate power` calls them computed: 1.3 x every prompt, every other time as without the limit."""
    before = {run.configuration: run for run in runs if run.limit == 1.0}
    twins = [run for run in runs if run.limit < 1.0]
    assert twins
    for run in twins:
        other = before[run.configuration]
        np.testing.assert_allclose(run.prompt_time, 1.3 * other.prompt_time, rtol=1e-12)
        assert (run.token_time, run.e2e_time) == (other.token_time, other.e2e_time)
