"""Whether a simulated load meets a service-level objective. On the host, in NumPy, for any leading axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hwspecs.errors import InputError, did_you_mean
from jaxperf.serving.simulator.metrics import SLO_METRICS, Columns, request_metrics


@dataclass(frozen=True)
class Slo:
    """Limits on latencies [s], and the `share` of requests that must keep them: all limits together (goodput, as in
    DistServe: Zhong et al., OSDI 2024), or each limit on its own (`each`), which is a limit on that quantile.

    A request that is not completed keeps no limit; one of a single token has no TPOT and meets any limit on it
    together with others, and does not count for that limit on its own.
    """

    limits: Mapping[str, float]
    share: float = 0.9
    each: bool = False

    def __post_init__(self) -> None:
        if not self.limits:
            raise InputError(f"an SLO needs a limit on one of {', '.join(SLO_METRICS)}, such as ttft=1s.")
        for name, limit in self.limits.items():
            if name not in SLO_METRICS:
                hint = did_you_mean(name, SLO_METRICS)
                raise InputError(f"an SLO has no '{name}'; it limits {', '.join(SLO_METRICS)}.{hint}")
            if not limit > 0.0:
                raise InputError(f"an SLO of {name} = {limit:g} s is met by no request; it must be above zero.")
        if not 0.0 < self.share <= 1.0:
            raise InputError(f"the share of requests that must meet the SLO is {self.share:g}; it is above 0, up to 1.")


def meets(requests: Columns, slo: Slo) -> np.ndarray:
    """Whether the requests, along the last axis, meet the SLO.

    **Arguments:** `requests`: as for `request_metrics`, arrays [..., R]; `real` [..., R] which of them are any.
    """
    metrics, real = request_metrics(requests), requests["real"]
    done = np.isfinite(metrics["e2e"])
    kept = {name: done & ~(metrics[name] > limit) for name, limit in slo.limits.items()}
    if not slo.each:
        return _share(np.logical_and.reduce(list(kept.values())), real) >= slo.share
    counted = {name: real & (~done | np.isfinite(metrics[name])) for name in kept}
    return np.logical_and.reduce([_share(kept[name], counted[name]) >= slo.share for name in kept])


def _share(kept: np.ndarray, among: np.ndarray) -> np.ndarray:
    """The share of those `among` that are `kept`, along the last axis; 1 where there are none."""
    number = among.sum(axis=-1)
    return np.where(number > 0, (kept & among).sum(axis=-1) / np.maximum(number, 1), 1.0)
