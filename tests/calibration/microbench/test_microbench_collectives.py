"""Collectives, in a process of its own that has four devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from calibration.microbench.collectives import collectives

ROOT = Path(__file__).resolve().parents[3]
RUN = """
import json, jax, numpy as np
from calibration.datasets import read_table
from calibration.microbench.collectives import collectives
from calibration.microbench.run import Plan, measure
from calibration.microbench.points import Point
from calibration.microbench.store import save
from calibration.microbench.timing import TimingSettings
devices = tuple(jax.devices())
operations = collectives(devices)
results = {}
for each in operations:
    function, (shards,) = each.call({"bytes": 4096}, "fp32", 0)
    whole = np.asarray(shards)
    results[each.name] = [whole.tolist(), np.asarray(jax.jit(function)(shards)).tolist()]
plan = Plan("xeon-cloud-2-core", operations, timing=TimingSettings(2, 2, 0.0, 1))
points = [Point(each, {"bytes": 4096}, dtype, "resident") for each in operations for dtype in each.dtypes]
done = list(measure(plan, points))
save([each.row for each in done], {}, __import__("pathlib").Path("run.csv"))
(table,) = read_table("run.csv").tables
planned = Plan("xeon-cloud-2-core", operations, count=3, longest=1e-3).points()
print(json.dumps({
    "results": results,
    "problems": [each.problem for each in done],
    "ops": sorted(set(table.text["op"])),
    "bytes": sorted(set(table.shape["bytes"])), "ranks": sorted(set(table.shape["num_gpus"])),
    "largest": max(point.sizes["bytes"] for point in planned),
}))
"""


def test_a_single_device_has_none() -> None:
    assert collectives((object(),)) == ()


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> dict:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=tmp_path_factory.mktemp("four"),
        env=os.environ | flags,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_they_exchange_what_their_names_say(four: dict) -> None:
    """Buffers of 4096 byte, 1024 numbers a rank; of an all-gather, the whole is 1024."""
    for name, (given, got) in four["results"].items():
        assert len(given) == (1024 if name == "all_gather" else 4096), name
        ranks = [given[len(given) // 4 * rank :][: len(given) // 4] for rank in range(4)]
        total = [sum(column) for column in zip(*ranks, strict=True)]
        expected = {
            "all_reduce": total * 4,
            "all_gather": given * 4,
            "reduce_scatter": total,
            "all_to_all": [x for to in range(4) for rank in ranks for x in rank[256 * to :][:256]],
        }[name]
        assert got == pytest.approx(expected, rel=1e-5, abs=1e-5), name


def test_their_rows_read_back(four: dict) -> None:
    assert not any(four["problems"])
    assert four["ops"] == ["all_gather", "all_reduce", "all_to_all", "reduce_scatter"]
    assert (four["bytes"], four["ranks"]) == ([4096.0], [4.0])
    assert four["largest"] <= 40e9 * 1e-3
