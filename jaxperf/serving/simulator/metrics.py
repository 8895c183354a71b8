"""What a simulation says: latencies of requests, their distribution, and what the replica did. On the host, in NumPy.

Times in seconds. TTFT = first token - arrival; TPOT = (completion - first token) / (output - 1), the mean after the
first; TPOT over all = E2E / output, as some clients count it; ITL: each single gap between two tokens of a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from hwspecs.errors import InputError
from jaxperf.serving.simulator.run import Simulated
from jaxperf.serving.simulator.state import Log
from jaxperf.serving.simulator.used import used_in_all, used_since

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
SLO_METRICS = ("ttft", "tpot", "e2e")
SAME_TIME = 1e-9  # relative to the time since the first step: the same instant, computed on the device and the host

ROUNDING = 4.0 * np.finfo(float).eps  # relative to the clock, which may start late

Columns = Mapping[str, np.ndarray]


def request_metrics(requests: Columns) -> dict[str, np.ndarray]:
    """Latencies of every request [R]; NaN for a request that was not completed, for the TPOT of a single token, and for
    TTFT and prefill where the first token was made elsewhere, so that the request had it when it came.

    **Arguments:** `requests`: `arrived`, `scheduled`, `first_token`, `completed` [R] s (-1: never), `output` [R];
    perhaps `asked` [R] s: when the client asked, from which TTFT and E2E count where that is before `arrived`.
    """
    done = requests["completed"] >= 0.0
    times = {name: np.where(done, requests[name], np.nan) for name in ("scheduled", "first_token", "completed")}
    output = requests["output"].astype(float)
    asked = requests.get("asked", requests["arrived"])
    ttft, e2e = times["first_token"] - asked, times["completed"] - asked
    here = ttft > 0.0
    return {
        "ttft": np.where(here, ttft, np.nan),
        "tpot": np.where(output > 1.0, (e2e - ttft) / np.maximum(output - 1.0, 1.0), np.nan),
        "tpot_over_all": e2e / output,
        "e2e": e2e,
        "queueing": times["scheduled"] - requests["arrived"],
        "prefill": np.where(here, times["first_token"] - times["scheduled"], np.nan),
    }


def distribution(values: np.ndarray, weights: np.ndarray | None = None) -> dict[str, float]:
    """Mean, quantiles and maximum of the numbers among `values`, each counted `weights` times; NaN where none is one.

    A quantile q is the smallest value that at least a share q of the numbers does not exceed.
    """
    weights = np.ones_like(values) if weights is None else weights
    kept = np.isfinite(values) & (weights > 0.0)
    if not kept.any():
        return dict.fromkeys(("mean", *QUANTILES, "max"), float("nan"))
    order = np.argsort(values[kept])
    ordered, counted = values[kept][order], weights[kept][order]
    reached = np.cumsum(counted) / counted.sum()
    places = np.minimum(np.searchsorted(reached, np.array(list(QUANTILES.values())) - SAME_TIME), len(ordered) - 1)
    quantiles = dict(zip(QUANTILES, ordered[places].tolist(), strict=True))
    return {"mean": float(np.average(ordered, weights=counted)), **quantiles, "max": float(ordered[-1])}


def token_gaps(requests: Columns, log: Log) -> tuple[np.ndarray, np.ndarray]:
    """Gaps between consecutive tokens of the requests of one replica [s], and how often each occurs.

    Every running request takes part in every step with decodes, so its tokens are its first one and the ends of those
    steps from then on, or from its admission where it brought all of its prompt, up to its completion. Requests that
    were evicted are left out: theirs also come from prefills, or they had to wait.

    **Arguments:** `requests`: as for `request_metrics`, with `restarts` [R] and perhaps `swaps`; `log`: of the
    one replica, complete.
    """
    ends = _decode_ends(log)
    origin = float(np.asarray(log.start)[0])
    counted = (requests["completed"] >= 0.0) & (_evictions(requests) == 0) & (requests["output"] > 1)
    scheduled, first, last = (requests[name][counted] for name in ("scheduled", "first_token", "completed"))
    begin, end = (
        np.searchsorted(ends, times + SAME_TIME * (times - origin) + ROUNDING * times, side="right")
        for times in (np.maximum(first, scheduled), last)
    )
    told = end > begin  # late on a clock a short step may be lost in its rounding
    first, begin, end = first[told], begin[told], end[told]
    changes = np.zeros(len(ends) + 1)
    np.add.at(changes, begin + 1, 1.0)
    np.add.at(changes, end, -1.0)
    gaps = np.concatenate([np.diff(ends), ends[begin] - first])
    return gaps, np.concatenate([np.cumsum(changes)[1 : len(ends)], np.ones(len(first))])


def _evictions(requests: Columns) -> np.ndarray:
    """How often each request was evicted, whether computed again or swapped out."""
    return requests["restarts"] + requests.get("swaps", 0)


def _decode_ends(log: Log) -> np.ndarray:
    """When each step with decodes ended [s]."""
    runs = np.flatnonzero((np.arange(len(log.start)) < int(log.count)) & (np.asarray(log.decodes) > 0))
    steps = np.asarray(log.steps)[runs]
    number = np.arange(steps.sum()) - np.repeat(np.cumsum(steps) - steps, steps) + 1
    start, seconds = (np.repeat(np.asarray(values)[runs], steps) for values in (log.start, log.seconds))
    return start + number * seconds


def rates(requests: Columns) -> dict[str, float]:
    """Completed requests and their tokens over the time from the first arrival to the last completion."""
    done = requests["completed"] >= 0.0
    span = duration(requests)
    return {
        "requests_per_second": float(done.sum()) / span,
        "output_tokens_per_second": float(requests["output"][done].sum()) / span,
        "total_tokens_per_second": float((requests["output"] + requests["prompt"])[done].sum()) / span,
        "duration": span,
    }


def duration(requests: Columns) -> float:
    """From the first arrival to the last completion [s]; NaN where none was completed."""
    done = requests["completed"] >= 0.0
    return float(requests["completed"].max() - requests["arrived"].min()) if done.any() else float("nan")


def use(requests: Columns, simulated: Simulated, blocks: int, warm_up: float = 0.0) -> dict[str, float]:
    """How the replicas were used from the first arrival to the end of the last step, which may be of a request that is
    then rejected; shares of batch and cache are means over their busy time.

    **Arguments:** `simulated`: with an axis of replicas; `blocks` of one; `warm_up`: as in `after_warm_up`, from whose
    first arrival on everything counts, with the evictions of its requests [s].
    """
    kept, log = after_warm_up(requests, warm_up), simulated.log
    begin, replicas = float(kept["arrived"].min()), len(log.count)
    used = used_since(log, begin) if warm_up > 0.0 else used_in_all(simulated.totals)
    working = used.busy if used.busy > 0.0 else float("nan")
    written = np.arange(np.shape(log.start)[-1]) < np.asarray(log.count)[:, None]
    end = np.max(np.asarray(log.start) + np.asarray(log.steps) * log.seconds, where=written, initial=0.0)
    span = max(float(end), float(kept["completed"].max())) - begin
    return {
        "utilization": _share(used.busy / span / replicas),
        "steps": used.steps,
        "batch_occupancy": used.sequence_seconds / working,
        "kv_use": _share(used.block_seconds / working / blocks),
        "kv_use_max": used.most_blocks / blocks,
        "preemptions": int(_evictions(kept).sum()),
    }


def _share(value: float) -> float:
    """A share that sums of floats may bring above 1 by their rounding, without that [1]."""
    return 1.0 if 1.0 < value < 1.0 + SAME_TIME else value


def after_warm_up(requests: Columns, warm_up: float) -> dict[str, np.ndarray]:
    """The requests that are sent `warm_up` [s] or more after the first."""
    return _sent_since(requests, float(requests["arrived"].min()) + warm_up)


def _sent_since(requests: Columns, begin: float) -> dict[str, np.ndarray]:
    return {name: values[requests["arrived"] >= begin] for name, values in requests.items()}


def goodput(metrics: Columns, slo: Mapping[str, float], duration: float) -> dict[str, float]:
    """Requests within all limits of `slo` [s]: their share of all, and how many a second.

    A request of one token has no TPOT and meets any limit on it.
    """
    met = np.isfinite(metrics["e2e"])
    for name, limit in slo.items():
        met &= ~(metrics[name] > limit)
    return {"share": float(met.mean()), "requests_per_second": float(met.sum()) / duration}


def summarize(
    replicas: Sequence[Columns],
    simulated: Simulated,
    blocks: int,
    slo: Mapping[str, float],
    warm_up: float = 0.0,
    pipelined: bool = False,
) -> dict[str, Any]:
    """Distributions of all latencies, the replicas' figures, and goodput where there is an SLO.

    **Arguments:** `replicas`: the requests of each, in the order of `simulated`'s leading axis; `blocks` of one;
    `warm_up`: requests sent earlier than so long after the first are left out, and all steps before the next one [s];
    `pipelined`: several batches were under way at once, so that the log does not tell single gaps.
    **Raises:** `InputError` where no request is left.
    """
    begin = min(float(requests["arrived"].min()) for requests in replicas) + warm_up
    kept = [_sent_since(one, begin) for one in replicas]
    together = _joined(kept)
    if not len(together["arrived"]):
        raise InputError(f"no request is sent {warm_up:g} s or more after the first: the warm-up leaves none.")
    metrics = request_metrics(together)
    pairs = [
        token_gaps(one, jax.tree.map(lambda values, lane=lane: values[lane], simulated.log))
        for lane, one in enumerate(kept)
    ]
    gaps, weights = (np.concatenate(each) for each in zip(*pairs, strict=True))
    weights = np.zeros_like(weights) if pipelined else weights
    figures = rates(together) | use(_joined(replicas), simulated, blocks, warm_up)
    latencies = {name: distribution(values) for name, values in metrics.items()} | {"itl": distribution(gaps, weights)}
    good = {"goodput": goodput(metrics, slo, figures["duration"])} if slo else {}
    return {"latency_s": latencies, **figures, **good}


def _joined(replicas: Sequence[Columns]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([one[name] for one in replicas]) for name in replicas[0]}
