"""Coupled routing against plain fleets, and against the simulator of one replica."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.serving.fleet.build import simulate_fleet
from jaxperf.serving.simulator.run import simulate_requests
from jaxperf.serving.simulator.settings import parse_scheduler
from jaxperf.serving.simulator.step_time import StepTimeTable
from jaxperf.serving.simulator.workloads import Requests, draw_requests
from tests.serving.fleet.fuzz import compare
from tests.serving.simulator import fuzz

SETTINGS = {"sched": "vllm_v1", "num_blocks": 60, "block_size": 4, "batch_size_cap": 8, "max_tokens_in_batch": 16}


def drawn(rate: float, count: int = 60, seed: int = 3) -> Requests:
    lengths = {"kind": "uniform", "low": 2, "high": 24}
    arrivals = {"kind": "poisson", "rate": rate}
    return draw_requests({"count": count, "seed": seed, "arrivals": arrivals, "prompt": lengths, "output": lengths})


def uneven_table() -> StepTimeTable:
    """Step times that no two sums of agree in their last digits."""
    table = fuzz.table()
    return dataclasses.replace(table, tokens=table.tokens * 1.2345678901, decode=table.decode * 0.98765432109)


@pytest.mark.parametrize(
    ("name", "routing", "drawn", "follow_ups"),
    [
        ("vllm_v1", "prefix_aware", fuzz.draw_shared, False),
        ("vllm_v1", "least_outstanding", fuzz.draw_ahead, False),
        pytest.param("vllm", "least_outstanding", fuzz.draw_swap, True, marks=pytest.mark.long),
    ],
)
def test_a_fleet_agrees_with_plain_python(name: str, routing: str, drawn: fuzz.Draw, follow_ups: bool) -> None:
    assert compare(name, routing, 200, 0, drawn, follow_ups) == []


def test_one_replica_is_the_plain_simulator_bit_for_bit() -> None:
    scheduler = parse_scheduler(SETTINGS)
    requests = drawn(rate=8.0)
    plain = simulate_requests(scheduler, uneven_table(), [requests])
    fleet = simulate_fleet(scheduler, uneven_table(), requests, 1, "least_outstanding")
    for field in ("status", "scheduled", "first_token", "completed", "restarts"):
        np.testing.assert_array_equal(getattr(fleet.requests, field), getattr(plain.requests, field)[0, :60])
    assert int(fleet.found.replicas.totals.steps[0]) == int(plain.totals.steps[0])


def test_wrong_names_and_numbers_are_refused() -> None:
    scheduler, requests = parse_scheduler(SETTINGS), drawn(rate=1.0, count=2)
    with pytest.raises(InputError, match="round_robin"):
        simulate_fleet(scheduler, fuzz.table(), requests, 2, "roundrobin")
    with pytest.raises(InputError, match="replicas"):
        simulate_fleet(scheduler, fuzz.table(), requests, 0, "round_robin")
