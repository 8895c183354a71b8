"""The kinds of workloads that are drawn from a description beside plain requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.checks import show
from jaxperf.serving.workloads.agents import draw_agents
from jaxperf.serving.workloads.best_of_n import draw_best_of_n
from jaxperf.serving.workloads.drawn import Drawn
from jaxperf.serving.workloads.rag import draw_rag

KINDS: dict[str, Callable[[Mapping[str, Any], str], Drawn]] = {
    "best_of_n": draw_best_of_n,
    "agents": draw_agents,
    "rag": draw_rag,
}


def draw_workload(workload: Mapping[str, Any], where: str = "workload") -> Drawn:
    """Requests of the `kind` that a workload names. Raises `InputError` for an unknown one, and as each kind does."""
    kind = workload.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        hint = did_you_mean(str(kind), KINDS)
        raise InputError(
            f"{where}: kind is {show(kind)}; it is {', '.join(KINDS)}, or not given for plain requests.{hint}"
        )
    return KINDS[kind](workload, where)
