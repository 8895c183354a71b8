"""Steady states beyond usual lengths, with made-up steps: few tokens or slots, long prompts, wide spreads.

A step takes as long as memory does, or as its tokens do where that is longer, so that nothing of a model is in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.steady_engine import CAP, LENGTHS, REQUESTS, Case

CELLS, GRAIN = 128, 64.0  # of tokens: the law's
FLOOR, TOKEN = 7e-3, 2.3e-5  # s: what memory takes, and each token of a step that is bound by arithmetic
DECODE, PREFILL = (4e-4, 0.0, 4e-8), (6e-4, 0.0, 0.0, 0.0, 0.0)  # attention, as of `StepLaw` [s]
BLOCKS = 400_000
BUDGETS = {"vllm": 8192, "vllm_v1": 2048, "sarathi_fixed": 512}
LASTING = 4096  # requests of a lane: enough where outputs are long
FEW, MOST = (0.3, 0.6, 0.8), (0.2, 0.35, 0.5, 0.65, 0.8)  # loads
Both = tuple[dict[str, Any], dict[str, Any]]  # lengths of prompts and of outputs


class Setup(NamedTuple):
    """What one comparison is of: a scheduler, its budget [tokens] and slots, lengths, the coefficient of variation of
    the time between arrivals, the load, and `requests` of a lane."""

    scheduler: str
    budget: int
    slots: int
    lengths: Both
    variation: float
    load: float
    requests: int


def regimes() -> Iterator[tuple[str, list[Setup]]]:
    """Every regime by its name."""
    servers, new = tuple(BUDGETS), ("vllm_v1",)
    plain = servers[:2]
    yield "short prompts of one token", _grid(plain, _fixed((100, 300, 1000), (1,)), MOST)
    long = [_grid(new, _fixed((2048, 16000), (2,)), MOST, budget=budget) for budget in (2048, 8192)]
    yield "two tokens after prompts of 2,048 and 16,000", [*long[0], *long[1]]
    yield "2, 4, 11 tokens after prompts of 100 to 8,000", _grid(plain, _fixed((100, 1000, 8000), (2, 4, 11)), FEW)
    longest = _fixed((16000,), (2, 8, 32, 64))
    yield "prompts of 16,000, budget of 8,192", _grid(new, longest, (0.2, 0.4, 0.6, 0.8), budget=8192)
    about = [
        _grid(new, _fixed([round(share * budget) for share in (0.3, 0.7, 1.0, 1.5, 3.0)], (64,)), FEW, budget=budget)
        for budget in (512, 2048, 8192)
    ]
    yield "prompts of 0.3 to 3 budgets", [*itertools.chain(*about)]
    slots = [_grid(plain, _fixed((500,), (100,)), MOST, slots=number) for number in (2, 8, 32)]
    yield "2, 8 and 32 slots", [*itertools.chain(*slots)]
    wide = [(_spread(300, cv), _spread(600, cv)) for cv in (0.8, 1.5)]
    yield "long outputs, log-normal lengths", _grid(plain, wide, (0.2, 0.4, 0.6, 0.8), count=LASTING)
    loads = (0.1, 0.3, 0.5, 0.8)
    for name, kinds in (("chats", ("chats",)), ("short and fixed", ("short", "fixed"))):
        both = [_grid(servers, [LENGTHS[kind] for kind in kinds], loads, variation=cv) for cv in (0.5, 2.0)]
        yield f"{name}, coefficient of variation 1/2 and 2", [*itertools.chain(*both)]
    yield "usual lengths to 0.8", _grid(servers, list(LENGTHS.values()), loads)


def case_of(setup: Setup) -> Case:
    """The engine of made-up steps that a setup is of."""
    from jaxperf.core.numerics import as_float
    from jaxperf.serving.queueing.engine import Engine, chunked, prefill_first
    from jaxperf.serving.queueing.law import StepLaw
    from jaxperf.serving.queueing.steps import LawStepTime
    from jaxperf.serving.simulator.settings import parse_scheduler

    starts = np.arange(CELLS) * GRAIN
    ends = [np.maximum(FLOOR * (1.0 + 1e-5 * at), TOKEN * at) for at in (starts + 1.0, starts + GRAIN)]
    law = StepLaw(*map(as_float, (*ends, GRAIN, DECODE, PREFILL)))
    tokens = "chunk_size" if setup.scheduler == "sarathi_fixed" else "max_tokens_in_batch"
    settings = {"sched": setup.scheduler, "num_blocks": BLOCKS, "batch_size_cap": setup.slots, tokens: setup.budget}
    scheduler = parse_scheduler(settings | ({"enable_prefix_caching": False} if setup.scheduler == "vllm_v1" else {}))
    discipline = prefill_first if setup.scheduler == "vllm" else chunked
    return Case(scheduler, LawStepTime(law), law, discipline, Engine(float(setup.slots), float(setup.budget)))


def _grid(
    servers: Sequence[str],
    lengths: Sequence[Both],
    loads: Sequence[float],
    budget: int | None = None,
    slots: int = CAP,
    variation: float = 1.0,
    count: int = REQUESTS,
) -> list[Setup]:
    return [
        Setup(name, budget or BUDGETS[name], slots, both, variation, load, count)
        for name, both, load in itertools.product(servers, lengths, loads)
    ]


def _fixed(prompts: Sequence[int], outputs: Sequence[int]) -> list[Both]:
    pairs = itertools.product(prompts, outputs)
    return [({"kind": "fixed", "value": prompt}, {"kind": "fixed", "value": output}) for prompt, output in pairs]


def _spread(mean: float, cv: float) -> dict[str, Any]:
    return {"kind": "lognormal", "mean": mean, "cv": cv}
