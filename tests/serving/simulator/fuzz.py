"""Small random traces through the compiled simulator and the plain reference: they must agree step for step.

`python -m tests.serving.simulator.fuzz [COUNT]` compares COUNT (10,000) traces with every scheduler.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.core.compiler_options import quicken_loops
from jaxperf.serving.simulator.paths import prefix_paths
from jaxperf.serving.simulator.policies import POLICIES
from jaxperf.serving.simulator.policies.vllm_v1 import VLLM_V1_QUEUE
from jaxperf.serving.simulator.run import Simulated, simulate
from jaxperf.serving.simulator.state import Settings, Sizes, Status
from jaxperf.serving.simulator.step_time import StepTimeTable
from jaxperf.serving.simulator.trace import pad_traces
from tests.serving.simulator import reference

TICK = 1.0 / 1024.0  # s: all times are whole ticks, so that sums are exact and ties are ties
REQUESTS, SLOTS, LOG, LANES = 12, 8, 1024, 200
# A request has at most 64 tokens and a block at least one; each is evicted less often than it has tokens.
SIZES = Sizes(SLOTS, LOG, nodes=64 * REQUESTS, groups=256)
BUCKET = 8

Case = tuple[Mapping[str, Any], SimpleNamespace]
Draw = Callable[[np.random.Generator, str], Case]
Reference = Callable[..., list[reference.Step]]


def table() -> StepTimeTable:
    """Times of whole ticks that grow with what is computed; the decode's only every `BUCKET` tokens of context."""
    tokens = 5.0 + np.arange(400) // 4
    decode = 1.0 + np.add.outer(np.arange(SLOTS + 1), 2 * np.arange(40))
    prefill = 2.0 + np.add.outer(np.arange(40), np.arange(400))
    decode[0], prefill[:, 0] = 0.0, 0.0
    arrays = [jnp.asarray(each * TICK) for each in (tokens, decode, prefill)]
    return StepTimeTable(*arrays, jnp.float64(1.0), jnp.float64(BUCKET), jnp.float64(1.0))


def seconds(batch: reference.Batch) -> float:
    """The same times by counting."""
    decodes = [one.processed for one, _ in batch if one.prefilled]
    prompts = [(one.processed, tokens) for one, tokens in batch if not one.prefilled]
    ticks = 5 + sum(tokens for _, tokens in batch) // 4
    if decodes:
        ticks += 1 + len(decodes) + 2 * -(-(sum(decodes) // len(decodes)) // BUCKET)
    if prompts:
        prefixes = sum(-(-context // BUCKET) for context, _ in prompts)
        ticks += 2 + prefixes + round(sum(tokens**2 for _, tokens in prompts) ** 0.5)
    return ticks * TICK


def draw(random: np.random.Generator, name: str) -> Case:
    """A scheduler short of everything and a trace that makes it feel that."""
    count = int(random.integers(1, REQUESTS + 1))
    block_size = 1 if name == "lightllm" else int(random.integers(1, 9))
    tokens = int(random.integers(24, 200))
    numbers = {
        "blocks": -(-tokens // block_size),
        "block_size": block_size,
        "watermark": int(random.integers(0, 3)),
        "cap": int(random.integers(1, SLOTS + 1)),
        "batch_tokens": int(random.integers(20, 120)),
        "chunk": int(random.integers(SLOTS if name == "vllm_v1" else 2, 40)),
        "reserved": -(-64 // block_size),
        "waiting_steps": int(random.integers(1, 6)),
    }
    gaps = random.integers(0, int(random.choice([2, 40, 400])), count)
    trace = SimpleNamespace(
        arrived=np.cumsum(gaps) * TICK,
        prompt=random.integers(1, 41, count),
        output=random.integers(1, 25, count),
    )
    return numbers, trace


def draw_shared(random: np.random.Generator, name: str = "vllm_v1") -> Case:
    """As `draw` for vLLM v1, with prompts that begin alike: hashes of a few families, then the request's own."""
    numbers, trace = draw(random, name)
    size = numbers["block_size"]
    hashes = []
    for request, prompt in enumerate(trace.prompt.tolist()):
        blocks = -(-prompt // size)
        alike = int(random.integers(0, blocks + 1))
        family = int(random.integers(0, 3))
        hashes.append([1000 * family + block for block in range(alike)] + [10_000 + request] * (blocks - alike))
    trace.path = prefix_paths(hashes, trace.prompt, trace.output, size, size)
    return numbers, trace


def draw_brought(random: np.random.Generator, name: str) -> Case:
    """As `draw`, of requests that bring nothing, some or all of their prompt; with shared prefixes where they count."""
    numbers, trace = draw_shared(random) if name == "vllm_v1" else draw(random, name)
    bring(random, trace)
    return numbers, trace


def bring(random: np.random.Generator, trace: SimpleNamespace) -> None:
    """Have the requests of a trace bring nothing, some or all of their prompt."""
    some = random.integers(0, trace.prompt + 1)
    trace.brought = np.select(
        [random.random(len(some)) < share for share in (0.3, 0.7)], [0 * some, trace.prompt], some
    )
    trace.output = np.maximum(trace.output, 1 + (trace.brought == trace.prompt))


def draw_swap(random: np.random.Generator, name: str) -> Case:
    """As `draw`, with room in host memory for some of what is evicted; in half of the traces prompts are brought."""
    numbers, trace = draw(random, name)
    trace.brought = 0 * trace.prompt
    if random.random() < 0.5:
        bring(random, trace)
    return {
        **numbers,
        "swap_blocks": int(random.integers(0, 60)),
        "swap_seconds": int(random.integers(0, 3)) * TICK,
    }, trace


def draw_pipeline(random: np.random.Generator, name: str, stages: int = 2) -> Case:
    """As `draw`, with several stages, whose share of every time is a number too."""
    numbers, trace = draw(random, name)
    return {**numbers, "stages": stages}, trace


def draw_queue(random: np.random.Generator, name: str, stages: int = 2) -> Case:
    """As `draw_pipeline`, with batches formed by vLLM's queue of them."""
    numbers, trace = draw_pipeline(random, name, stages)
    return {**numbers, "queue": 1}, trace


def draw_ahead(random: np.random.Generator, name: str, drawn: Draw = draw) -> Case:
    """As another kind, with each step formed while the one before it is computed."""
    numbers, trace = drawn(random, name)
    return {**numbers, "ahead": 1}, trace


def draw_ahead_brought(random: np.random.Generator, name: str) -> Case:
    """As `draw_ahead`, of requests that bring nothing, some or all of their prompt."""
    numbers, trace = draw_ahead(random, name)
    bring(random, trace)
    return numbers, trace


def draw_priorities(random: np.random.Generator, name: str) -> Case:
    """As `draw`, of requests with one of a few priorities."""
    numbers, trace = draw(random, name)
    trace.priority = random.integers(-2, 3, len(trace.prompt))
    return numbers, trace


def compiled(name: str, cases: list[Case]) -> Simulated:
    """All cases as lanes of one call; of at least `LANES`, so that one program serves them all."""
    cases = [*cases, *cases[-1:] * (LANES - len(cases))]
    names = [name for name in cases[0][0] if name not in ("stages", "ahead", "queue")]
    first = cases[0][0]
    sizes = SIZES._replace(stages=int(first.get("stages", 1)), ahead=bool(first.get("ahead")))
    columns = {key: np.array([numbers[key] for numbers, _ in cases]) for key in names}
    kinds = {key: jnp.float64 if values.dtype.kind == "f" else jnp.int32 for key, values in columns.items()}
    settings = Settings(**{key: jnp.asarray(values, kinds[key]) for key, values in columns.items()})
    trace = pad_traces([trace for _, trace in cases], REQUESTS)
    policy = VLLM_V1_QUEUE if first.get("queue") else POLICIES[name]
    found = simulate(policy, table(), settings, trace, sizes)
    return jax.tree.map(np.asarray, found)


def disagreement(name: str, case: Case, found: Simulated, lane: int, by: Reference = reference.simulate) -> str:
    """What differs first between the two, or an empty string."""
    numbers, trace = case
    columns = zip(trace.arrived.tolist(), trace.prompt.tolist(), trace.output.tolist(), strict=True)
    requests = [reference.Request(i, arrived, p, p + d) for i, (arrived, p, d) in enumerate(columns)]
    for one, path in zip(requests, getattr(trace, "path", ()), strict=False):
        one.path = [node for node in path.tolist() if node >= 0]
    for one, brought in zip(requests, getattr(trace, "brought", ()), strict=False):
        one.brought = int(brought)
    for one, priority in zip(requests, getattr(trace, "priority", ()), strict=False):
        one.priority = int(priority)
    steps = by(name, numbers, requests, seconds)
    ours = unrolled(found, lane)
    for index, (mine, theirs) in enumerate(zip(ours, steps, strict=False)):
        if mine != theirs[:-1]:
            return f"step {index}: {mine}, reference {theirs}"
    if len(ours) != len(steps):
        return f"{len(ours)} steps, reference {len(steps)}"
    held, counted = float(found.totals.block_seconds[lane]), sum(step[-1] for step in steps)
    if not math.isclose(held, counted, rel_tol=1e-9):
        return f"{held} block-seconds, reference {counted}"
    record = jax.tree.map(lambda values: values[lane], found.requests)
    for one in requests:
        i = one.number
        mine = (record.scheduled[i], record.first_token[i], record.completed[i], record.restarts[i])
        theirs = (one.scheduled, one.first_token, one.completed, one.restarts)
        # What is rejected after an eviction keeps the token it had made; the reference knows it at once.
        if mine != theirs or (record.status[i] == Status.REJECTED) != one.rejected:
            return f"request {i}: {mine}, reference {theirs}, rejected {one.rejected}"
    return ""


def unrolled(found: Simulated, lane: int) -> list[tuple[float, float, int, int, int]]:
    """The log of a lane as single steps."""
    log = jax.tree.map(lambda values: values[lane], found.log)
    assert log.count <= LOG and (found.cache is None or found.cache.groups[lane] <= SIZES.groups)
    steps = []
    for run in range(int(log.count)):
        values = (float(log.seconds[run]), int(log.sequences[run]), int(log.tokens[run]), int(log.decodes[run]))
        steps += [(float(log.start[run]) + k * values[0], *values) for k in range(int(log.steps[run]))]
    return steps


def compare(name: str, count: int, seed: int = 0, drawn: Draw = draw, by: Reference = reference.simulate) -> list[str]:
    """The disagreements with a reference among `count` random traces."""
    random = np.random.default_rng([seed, *name.encode()])
    cases = [drawn(random, name) for _ in range(count)]
    found = compiled(name, cases)
    said = [disagreement(name, case, found, lane, by) for lane, case in enumerate(cases)]
    return [f"{name}, trace {lane}: {text}" for lane, text in enumerate(said) if text]


# One of each kind: `sarathi_fixed` differs from `sarathi` after an eviction only, in which nothing here is new.
VARIED = ("vllm", "vllm_v1", "sarathi", "orca")
# What is compared, beside the plain traces of every scheduler, and with which schedulers.
KINDS: list[tuple[str, Draw, Sequence[str]]] = [
    ("", draw, tuple(POLICIES)),
    (", prefixes cached", draw_shared, ("vllm_v1",)),
    (", formed ahead", draw_ahead, ("vllm_v1",)),
    (", formed ahead, prefixes cached", functools.partial(draw_ahead, drawn=draw_shared), ("vllm_v1",)),
    (", formed ahead, priorities", functools.partial(draw_ahead, drawn=draw_priorities), ("vllm_v1",)),
    (", formed ahead, prompts brought", draw_ahead_brought, ("vllm_v1",)),
    (", swapping", draw_swap, ("vllm",)),
    (", priorities", draw_priorities, ("vllm_v1",)),
    (", two stages", draw_pipeline, VARIED),
    (", four stages", functools.partial(draw_pipeline, stages=4), VARIED[1:2]),
    (", two stages, vLLM's queue", draw_queue, ("vllm_v1",)),
    (", four stages, vLLM's queue", functools.partial(draw_queue, stages=4), ("vllm_v1",)),
    (", prompts brought", draw_brought, VARIED),
]


def main(count: int) -> int:
    jax.config.update("jax_enable_x64", True)
    wrong = 0
    for what, drawn, names in KINDS:
        for name in names:
            starts = range(0, count, 1000)
            found = [text for start in starts for text in compare(name, min(1000, count - start), start, drawn)]
            wrong += len(found)
            print(f"{name}{what}: {count} traces, {len(found)} disagree", *found[:3], sep="\n  ", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    quicken_loops()  # as `jaxperf simulate` does
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
