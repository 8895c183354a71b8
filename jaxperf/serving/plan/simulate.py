"""The best points of a plan once more, request by request: the simulator with the same steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.serving.fleet.transfer import Transfer, arrivals
from jaxperf.serving.plan.engines import EngineFacts, facts_at, sending
from jaxperf.serving.plan.points import LATENCIES
from jaxperf.serving.plan.request import Answer, Choice, Request
from jaxperf.serving.plan.search import eased
from jaxperf.serving.plan.study import Study
from jaxperf.serving.queueing.arrivals import split_variation
from jaxperf.serving.queueing.pools import Sending
from jaxperf.serving.queueing.steps import LawStepTime
from jaxperf.serving.simulator.metrics import request_metrics
from jaxperf.serving.simulator.run import Simulated, simulate_requests
from jaxperf.serving.simulator.settings import LARGEST, Scheduler, parse_scheduler
from jaxperf.serving.simulator.workloads import Requests, draw_requests

REQUESTS = 1024  # of an engine
SEEDS = 4  # engines with requests of their own, where all do the same
WARM_UP = 0.2  # of the requests, which find an emptier system
ATTEMPTS, EASING = 5, 0.93  # loads that are tried of a choice that the simulator refuses
FURTHER = 8  # choices that are simulated so that the best one is
BLOCK = 16  # tokens, vLLM's default
MOMENTS = 400  # at which a timeline shows the cache


@dataclass(frozen=True)
class Timeline:
    """One engine: when each run of steps began and ended [s], prompt `tokens` of a step and sequences in `decode`;
    `moments` [s] and the share of the `cache` that is taken then."""

    start: np.ndarray
    end: np.ndarray
    tokens: np.ndarray
    decodes: np.ndarray
    moments: np.ndarray
    cache: np.ndarray


@dataclass(frozen=True)
class Rescored:
    """Latencies by the names of the choice's metrics [s], and the first engine of each pool over time."""

    latencies: Mapping[str, float]
    timelines: Mapping[str, Timeline]


def rescored(request: Request, answer: Answer, choice: Choice) -> Rescored | None:
    """Simulate a choice; None where its engines have attention replicas, which the simulator does not know."""
    configuration, row = choice.configuration, choice.row
    places = [place for place in (configuration.prefill, configuration.engine) if place is not None]
    if any(answer.candidates[place].layout["data_parallel"] > 1 for place in places):
        return None
    if configuration.prefill is None:
        engines = row["replicas"]
        shares = [_drawn(request, row["rate"] / engines, REQUESTS, seed, engines) for seed in range(SEEDS)]
        found = _simulated(request, answer, configuration.engine, row, shares)
        columns = _columns(found, shares)
        blocks = _blocks(request, facts_at(answer.facts, configuration.engine))
        return Rescored(_latencies(request, columns), {"engine": _timeline(choice, found, columns, blocks)})
    return _pools(request, answer, choice)


def confirmed(request: Request, answer: Answer, count: int) -> tuple[Answer, Mapping[str, Timeline]]:
    """The answer with its best `count` choices simulated, and the first of them over time.

    A choice that misses a limit there is given less to do, `EASING` of its rate at a time, unless the rate is asked
    for. The choices are put in order again after each, until the best `count` are simulated or twice as many were and
    the best one is. Where `FURTHER` more do not suffice for that, those that were simulated come first; Ctrl-C ends it
    with those that were.
    """
    study = Study(request, answer.candidates, answer.levels, answer.devices)
    choices, told, interrupted = list(answer.choices), {}, answer.interrupted
    try:
        for turn in range(2 * count + FURTHER if count else 0):
            best = choices[: count if turn < 2 * count else 1]
            place = next((at for at, each in enumerate(best) if each.configuration not in told), None)
            if place is None:
                break
            choices[place], again = _simulated_choice(study, answer, choices[place])
            told[choices[place].configuration] = {} if again is None else again.timelines
            choices.sort(key=lambda each: (bool(each.missed(request.slo)), each.order()))
        if choices and choices[0].configuration not in told:
            choices.sort(key=lambda each: each.configuration not in told)
    except KeyboardInterrupt:
        interrupted = True
    timelines = told.get(choices[0].configuration, {}) if choices else {}
    return dataclasses.replace(answer, choices=choices, interrupted=interrupted), timelines


def _simulated_choice(study: Study, answer: Answer, choice: Choice) -> tuple[Choice, Rescored | None]:
    """The choice with its simulated latencies, eased until it keeps the limits."""
    request = study.request
    for attempt in range(ATTEMPTS):
        again = rescored(request, answer, choice)
        if again is None:
            return choice, None
        choice = dataclasses.replace(choice, simulated=again.latencies)
        if not choice.missed(request.slo) or request.rate is not None or attempt == ATTEMPTS - 1:
            return choice, again
        choice = eased(study, choice, EASING)
    raise AssertionError("at least one attempt is made")


def _pools(request: Request, answer: Answer, choice: Choice) -> Rescored:
    """Prompts in one pool, then outputs in the other when the cache has arrived; engines take requests in turn."""
    row, configuration = choice.row, choice.configuration
    assert configuration.prefill is not None
    places = (configuration.prefill, configuration.engine)
    prefillers, decoders = int(row["prefillers"]), int(row["replicas"])
    drawn = _drawn(request, row["rate"], REQUESTS * max(prefillers, decoders), 0)
    several = dataclasses.replace(drawn, output=np.maximum(drawn.output, 2))
    prompts = _in_turn(dataclasses.replace(several, output=np.ones_like(several.output)), prefillers)
    first = _simulated(request, answer, configuration.prefill, row, prompts)
    before = _columns(first, prompts)
    link = sending(*(facts_at(answer.facts, place) for place in places))
    arrived = _there(link, _back(before, "first_token", prefillers, len(drawn.arrived)), drawn.prompt, prefillers)
    order = np.argsort(arrived, kind="stable")
    sent = Requests(arrived[order], several.prompt[order], several.output[order], brought=several.prompt[order])
    outputs = _in_turn(sent, decoders)
    found = _simulated(request, answer, configuration.engine, row, outputs)
    after = _columns(found, outputs)
    completed = np.empty_like(arrived)
    completed[order] = _back(after, "completed", decoders, len(order))
    columns = {"arrived": drawn.arrived, "scheduled": drawn.arrived, "first_token": arrived, "completed": completed}
    blocks = [_blocks(request, facts_at(answer.facts, place)) for place in places]
    timelines = {
        "prefill": _timeline(choice, first, before, blocks[0]),
        "decode": _timeline(choice, found, after, blocks[1]),
    }
    return Rescored(_latencies(request, [columns | {"output": several.output}]), timelines)


def _there(sent: Sending, done: np.ndarray, prompt: np.ndarray, prefillers: int) -> np.ndarray:
    """When the cache of each request is at the decoders [s]; it grows with the prompt."""
    wire = jnp.asarray(float(sent.wire) * prompt / prompt.mean(), jnp.float64)
    transfer = Transfer(wire, jnp.asarray(float(sent.latency), jnp.float64))
    sender = jnp.arange(len(done), dtype=jnp.int32) % prefillers
    found = arrivals(transfer, jnp.asarray(done, jnp.float64), sender, jnp.ones(len(done), bool), prefillers)
    return np.asarray(found)


def _drawn(request: Request, rate: float, count: int, seed: int, engines: float = 1.0) -> Requests:
    """Requests to the system, or to one of its `engines`."""
    prompt, output = request.kinds()
    cv = float(split_variation(request.arrival_variation, engines)) ** 0.5
    arrivals = {"kind": "poisson", "rate": rate} if cv == 1.0 else {"kind": "gamma", "rate": rate, "cv": cv}
    return draw_requests({"count": count, "seed": seed, "arrivals": arrivals, "prompt": prompt, "output": output})


def _in_turn(requests: Requests, engines: int) -> list[Requests]:
    """The share of each engine: every n-th request."""
    arrays = [requests.arrived, requests.prompt, requests.output]
    brought = requests.brought
    return [
        Requests(
            *(values[one::engines] for values in arrays), brought=None if brought is None else brought[one::engines]
        )
        for one in range(engines)
    ]


def _back(columns: Sequence[Mapping[str, np.ndarray]], name: str, engines: int, count: int) -> np.ndarray:
    """What every engine says of its share, in the order of the requests."""
    together = np.empty(count)
    for one, each in enumerate(columns):
        together[one::engines] = each[name]
    return together


def _simulated(
    request: Request, answer: Answer, place: int, row: Mapping[str, float], shares: Sequence[Requests]
) -> Simulated:
    """Engines of one candidate, each with a share of the requests."""
    facts, stages = facts_at(answer.facts, place), answer.candidates[place].layout["pipeline_parallel"]
    law = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), facts.law)
    return simulate_requests(_scheduler(request, facts, row, stages), LawStepTime(law), shares)


def _scheduler(request: Request, facts: EngineFacts, row: Mapping[str, float], stages: int) -> Scheduler:
    """vLLM v1 with the memory and the stages of an engine."""
    settings = {"sched": "vllm_v1", "num_blocks": _blocks(request, facts), "block_size": BLOCK, "pp": stages}
    steps = {"batch_size_cap": int(row["slots"]), "max_tokens_in_batch": int(row["budget"])}
    modes = {"enable_prefix_caching": False, "async_scheduling": request.forms_ahead(stages)}
    return parse_scheduler({**settings, **steps, **modes})


def _columns(found: Simulated, shares: Sequence[Requests]) -> list[dict[str, np.ndarray]]:
    """What came of the requests of every engine."""
    names = ("arrived", "scheduled", "first_token", "completed")
    return [
        {name: getattr(found.requests, name)[lane][: len(share.arrived)] for name in names}
        | {"prompt": share.prompt, "output": share.output}
        for lane, share in enumerate(shares)
    ]


def _latencies(request: Request, engines: Sequence[Mapping[str, np.ndarray]]) -> dict[str, float]:
    found: dict[str, list[np.ndarray]] = {name: [] for name in LATENCIES}
    for each in engines:
        metrics = request_metrics(each)
        for name in LATENCIES:
            found[name].append(metrics[name][int(WARM_UP * len(metrics[name])) :])
    values = {name: np.concatenate(parts) for name, parts in found.items()}
    told = {name: each[np.isfinite(each)] for name, each in values.items()}
    told = {name: each if len(each) else np.array([np.nan]) for name, each in told.items()}  # single tokens: no TPOT
    means = {name: float(np.mean(each)) for name, each in told.items()}
    return means | {f"{name}_at": float(np.quantile(each, request.level)) for name, each in told.items()}


def _timeline(choice: Choice, found: Simulated, columns: Sequence[Mapping[str, np.ndarray]], blocks: int) -> Timeline:
    """The first engine from the end of its warm-up, for a few requests' time."""
    log, own = jax.tree.map(lambda values: np.asarray(values[0]), found.log), columns[0]
    begin = float(own["arrived"][int(WARM_UP * len(own["arrived"]))])
    span = 4.0 * float(choice.row["e2e"])
    runs = np.arange(len(log.start)) < log.count
    start, steps = log.start[runs], log.steps[runs]
    end = start + steps * log.seconds[runs]
    shown = (end > begin) & (start < begin + span)
    moments = np.linspace(begin, begin + span, MOMENTS)
    return Timeline(
        start=start[shown],
        end=end[shown],
        tokens=(log.tokens - log.decodes)[runs][shown],
        decodes=log.decodes[runs][shown],
        moments=moments,
        cache=_held(own, moments) / (blocks * BLOCK),
    )


def _blocks(request: Request, facts: EngineFacts) -> int:
    """Blocks of an engine's cache: a whole request for each of its slots, as far as the simulator counts."""
    tokens = float(facts.slots) * (request.prompt + request.output)
    return max(int(min(tokens, LARGEST) / BLOCK), 1)


def _held(columns: Mapping[str, np.ndarray], moments: np.ndarray) -> np.ndarray:
    """Tokens in the cache at each moment: prompts from when they are scheduled, outputs as they are made."""
    start, first, end = (columns[name][:, None] for name in ("scheduled", "first_token", "completed"))
    there = (start >= 0.0) & (start <= moments) & (moments < end)
    made = np.clip((moments - first) / np.maximum(end - first, 1e-12), 0.0, 1.0)
    return np.where(there, columns["prompt"][:, None] + made * columns["output"][:, None], 0.0).sum(axis=0)
