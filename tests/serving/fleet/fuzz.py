"""Small random traces through compiled fleets and plain ones: they must agree on every request.

`python -m tests.serving.fleet.fuzz [COUNT]` compares COUNT (1,000) traces for every scheduler and routing.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.serving.fleet.build import follow_ups_of
from jaxperf.serving.fleet.routing import ROUTINGS
from jaxperf.serving.fleet.run import SimulatedFleet, simulate_fleets
from jaxperf.serving.fleet.state import Load, Pool
from jaxperf.serving.simulator.policies import POLICIES
from jaxperf.serving.simulator.state import Settings, Sizes, Status
from jaxperf.serving.simulator.trace import pad_traces
from tests.serving.fleet import reference
from tests.serving.simulator import fuzz
from tests.serving.simulator.reference import Request

REPLICAS = 3  # places; as many of them as a lane is drawn take part
SIZES = Sizes(fuzz.SLOTS, nodes=fuzz.SIZES.nodes, groups=fuzz.SIZES.groups)
Case = fuzz.Case


def draw(random: np.random.Generator, name: str, drawn: fuzz.Draw, follow_ups: bool) -> Case:
    """A case of one replica's, crowded into the time that several need, and how many they are."""
    numbers, trace = drawn(random, name)
    trace.replicas = int(random.integers(1, REPLICAS + 1))
    ticks = trace.arrived / fuzz.TICK
    trace.arrived = np.asarray(ticks / int(random.choice([1, 2, 8])), int) * fuzz.TICK
    if follow_ups:
        count = len(trace.arrived)
        before = [int(random.integers(-1, number)) if number else -1 for number in range(count)]
        trace.after = np.array(before)
        trace.delay = random.integers(0, 30, count) * fuzz.TICK
    return numbers, trace


def compiled(name: str, routing: str, cases: list[Case]) -> SimulatedFleet:
    """All cases as lanes of one call; of at least as many as one program has."""
    cases = [*cases, *cases[-1:] * (fuzz.LANES - len(cases))]
    traces = [trace for _, trace in cases]
    replicas = jnp.asarray([trace.replicas for trace in traces], jnp.int32)
    settings = settings_of([numbers for numbers, _ in cases])
    sizes = SIZES._replace(ahead="ahead" in cases[0][0])
    pool = Pool(settings, replicas, fuzz.table(), POLICIES[name], ROUTINGS[routing], REPLICAS, sizes)
    load = Load(pad_traces(traces, fuzz.REQUESTS), follow_ups_of(traces, fuzz.REQUESTS))
    return jax.tree.map(np.asarray, simulate_fleets(pool, load))


def settings_of(cases: list[Mapping[str, float]]) -> Settings:
    """The numbers of every case as lanes."""
    columns = {name: np.array([numbers[name] for numbers in cases]) for name in cases[0] if name != "ahead"}
    kinds = {name: jnp.float64 if values.dtype.kind == "f" else jnp.int32 for name, values in columns.items()}
    return Settings(**{name: jnp.asarray(values, kinds[name]) for name, values in columns.items()})


def disagreement(name: str, routing: str, case: Case, found: SimulatedFleet, lane: int) -> str:
    """What differs first between the two, or an empty string."""
    numbers, trace = case
    columns = zip(trace.arrived.tolist(), trace.prompt.tolist(), trace.output.tolist(), strict=True)
    requests = [Request(i, arrived, p, p + d) for i, (arrived, p, d) in enumerate(columns)]
    for one, path in zip(requests, getattr(trace, "path", np.empty((0, 0), int)), strict=False):
        one.path = [node for node in path.tolist() if node >= 0]
    for column in ("brought", "priority"):
        for one, value in zip(requests, getattr(trace, column, ()), strict=False):
            setattr(one, column, int(value))
    follow_ups = list(zip(vars(trace).get("after", ()), vars(trace).get("delay", ()), strict=True))
    routed = reference.simulate(name, routing, trace.replicas, numbers, requests, fuzz.seconds, follow_ups)
    record = jax.tree.map(lambda values: values[lane], found.requests)
    for i, one in enumerate(requests):
        if routed[i] != found.routed[lane, i]:
            return f"request {i}: routed to {found.routed[lane, i]}, reference {routed[i]}"
        if routed[i] < 0:
            continue
        mine = (record.arrived[i], record.scheduled[i], record.first_token[i], record.completed[i], record.restarts[i])
        theirs = (one.arrived, one.scheduled, one.first_token, one.completed, one.restarts)
        if mine != theirs or (record.status[i] == Status.REJECTED) != one.rejected:
            return f"request {i}: {mine}, reference {theirs}, rejected {one.rejected}"
    return ""


def compare(
    name: str, routing: str, count: int, seed: int = 0, drawn: fuzz.Draw = fuzz.draw, follow_ups: bool = False
) -> list[str]:
    """The disagreements among `count` random traces."""
    random = np.random.default_rng([seed, *name.encode(), *routing.encode()])
    cases = [draw(random, name, drawn, follow_ups) for _ in range(count)]
    found = compiled(name, routing, cases)
    said = [disagreement(name, routing, case, found, lane) for lane, case in enumerate(cases)]
    return [f"{name}, {routing}, trace {lane}: {text}" for lane, text in enumerate(said) if text]


# What is compared: with which requests, schedulers and routings.
KINDS: list[tuple[str, fuzz.Draw, Sequence[str], Sequence[str]]] = [
    ("", fuzz.draw, tuple(POLICIES), ("round_robin", "least_outstanding")),
    (", prefixes cached", fuzz.draw_shared, ("vllm_v1",), tuple(ROUTINGS)),
    (", swapping", fuzz.draw_swap, ("vllm",), ("least_outstanding",)),
    (", priorities", fuzz.draw_priorities, ("vllm_v1",), ("least_outstanding",)),
    (", formed ahead", fuzz.draw_ahead, ("vllm_v1",), ("round_robin", "least_outstanding")),
    (", prompts brought", fuzz.draw_brought, ("vllm", "vllm_v1", "sarathi_fixed", "orca"), ("least_outstanding",)),
]


def main(count: int) -> int:
    jax.config.update("jax_enable_x64", True)
    wrong = 0
    for (what, drawn, names, routings), follow_ups in itertools.product(KINDS, (False, True)):
        for name, routing in itertools.product(names, routings):
            found = []
            for start in range(0, count, 1000):
                found += compare(name, routing, min(1000, count - start), start, drawn, follow_ups)
            wrong += len(found)
            said = f"{name}, {routing}{what}{', follow-ups' * follow_ups}: {count} traces, {len(found)} disagree"
            print(said, *found[:3], sep="\n  ", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
