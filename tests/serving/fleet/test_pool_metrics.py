"""What two pools say, of replicas whose runs are written by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxperf.serving.fleet.metrics import summarize_pools
from jaxperf.serving.simulator.run import Simulated
from jaxperf.serving.simulator.state import Log, Totals


def replica(busy: tuple[float, float], sequences: tuple[int, int], blocks: tuple[int, int]) -> Simulated:
    """A step from 0 s and one from 100 s, with what each held."""
    ones, seconds = np.ones((1, 2), np.int32), np.array([busy])
    held, running = np.array([blocks]), np.array([sequences])
    start, mean = np.array([[0.0, 100.0]]), 1.0 * held
    log = Log(np.array([2]), start, seconds, ones, running, running, running, seconds, held, mean)
    shares = ((seconds * each).sum(axis=1) for each in (running, held))
    totals = Totals(np.array([2]), seconds.sum(axis=1), *shares, held.max(axis=1), np.array([0]))
    nothing: Any = None
    return Simulated(nothing, totals, log, nothing, nothing)


def test_a_warm_up_leaves_the_use_of_both_pools_out() -> None:
    """Two requests at 0 s in steps of 4 s (prefill) and 8 s (decode), and one at 100 s in steps of 1 s and 2 s."""
    columns = {
        **{"arrived": [0.0, 0.0, 100.0], "scheduled": [0.0, 0.0, 100.0], "first_token": [4.0, 4.0, 101.0]},
        **{"completed": [12.0, 12.0, 104.0], "restarts": [1, 0, 0], "prompt": [8, 8, 8], "output": [2, 2, 2]},
    }
    columns = {name: np.array(values) for name, values in columns.items()}
    found = SimpleNamespace(
        prefill=SimpleNamespace(
            replicas=replica((4.0, 1.0), (2, 1), (6, 3)),
            requests=SimpleNamespace(restarts=np.array([1, 0, 0, 0]), swaps=None),
        ),
        decode=SimpleNamespace(replicas=replica((8.0, 2.0), (2, 1), (8, 4))),
    )
    run: Any = SimpleNamespace(found=found)
    swapped = {**columns, "restarts": np.array([1, 0, 0]), "swaps": np.array([0, 3, 0])}
    assert summarize_pools(swapped, run, (10, 10), {})["preemptions"] == 3, "the prefill pool's is its own"
    assert summarize_pools(swapped, run, (10, 10), {})["prefill"]["preemptions"] == 1, "the decode pool swapped"
    whole, later = (summarize_pools(columns, run, (10, 10), {}, warm_up) for warm_up in (0.0, 30.0))
    names = ("utilization", "steps", "batch_occupancy", "kv_use", "kv_use_max", "preemptions")
    assert [whole[name] for name in names] == pytest.approx([10 / 104, 2, 1.8, 0.72, 0.8, 0])
    assert [later[name] for name in names] == pytest.approx([2 / 4, 1, 1.0, 0.4, 0.4, 0])
    assert [later["prefill"][name] for name in names] == pytest.approx([1 / 4, 1, 1.0, 0.3, 0.3, 0])
