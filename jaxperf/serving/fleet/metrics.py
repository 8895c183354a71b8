"""What a simulated fleet, or two pools, say: the figures of `simulator.metrics` for requests that replicas share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxperf.serving.fleet.pools import PoolsRun
from jaxperf.serving.simulator.metrics import Columns, summarize, use
from jaxperf.serving.simulator.run import Simulated
from jaxperf.serving.simulator.state import Requests

RECORDED = ("arrived", "scheduled", "first_token", "completed", "restarts", "status")


def columns_of(requests: Requests, trace: Any) -> dict[str, np.ndarray]:
    """What became of every request of a trace, with its tokens."""
    recorded = RECORDED if requests.swaps is None else (*RECORDED, "swaps")
    columns = {name: np.asarray(getattr(requests, name)) for name in recorded}
    asked = getattr(trace, "asked", None)
    columns |= {} if asked is None else {"asked": asked}
    return {**columns, "prompt": trace.prompt, "output": trace.output}


def summarize_fleet(
    columns: Columns,
    shares: Sequence[np.ndarray],
    found: Simulated,
    blocks: int,
    slo: Mapping[str, float],
    warm_up: float = 0.0,
) -> dict[str, Any]:
    """Latencies, rates and use of replicas of which each had the requests with the numbers in its share.

    **Raises:** `InputError` as `summarize` does.
    """
    worked = np.array([replica for replica, numbers in enumerate(shares) if len(numbers)], int)
    replicas = [{name: values[shares[replica]] for name, values in columns.items()} for replica in worked]
    said = summarize(replicas, jax.tree.map(lambda values: values[worked], found), blocks, slo, warm_up)
    return said | {"utilization": said["utilization"] * len(worked) / len(shares)}


def summarize_pools(
    columns: Columns, run: PoolsRun, blocks: tuple[int, int], slo: Mapping[str, float], warm_up: float = 0.0
) -> dict[str, Any]:
    """Latencies and rates as the client sees them and the use of the decode pool, with its evictions; under `prefill`
    those of the other.

    Single gaps between tokens are not told: the first one of each request lies between the pools.

    **Arguments:** `blocks` of a replica of each pool.
    **Raises:** `InputError` as `summarize` does.
    """
    said = summarize([columns], run.found.decode.replicas, blocks[1], slo, warm_up, pipelined=True)
    own, number = run.found.prefill.requests, len(columns["arrived"])
    counted = {"restarts": own.restarts, "swaps": np.zeros_like(own.restarts) if own.swaps is None else own.swaps}
    first = {**columns, **{name: np.asarray(values)[:number] for name, values in counted.items()}}
    sent = use(first, run.found.prefill.replicas, blocks[0], warm_up)
    return said | {"preemptions": said["preemptions"] - sent["preemptions"], "prefill": sent}
