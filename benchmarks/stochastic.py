"""The distribution of a step time against Monte-Carlo, level by level and all of them event by event.

Kolmogorov-Smirnov distances in per cent; a sample of n is itself 87 % / sqrt(n) off on average: 0.6 at 20,000.
`python -m benchmarks.stochastic` prints what jitter makes a step wait on average, simulated and by the law.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.pipeline_events import one_forward_one_backward
from benchmarks.table import Row

TARGET = "<= 2"
SAMPLES = 20_000
OF_REPLICAS = 6 * SAMPLES  # for the slowest of several, which the power of a sample tells less well
NORMALS = 2.5e7  # drawn at once at most
ALL_NORMALS = 1e9  # and for one case
STATIC, DYNAMIC, SPREAD = 0.03, 0.05, 0.02
# ranks, static and dynamic variation, segments
GROUPS = [(1, 0.03, 0.03, 20), (2, 0.03, 0.1, 5), (8, 0.03, 0.05, 40), (8, 0.03, 0.05, 3), (64, 0.03, 0.05, 8)]
STILL = [(2, 2), (3, 3), (4, 4), (4, 16), (8, 4), (8, 8), (8, 64), (16, 8), (16, 64), (64, 64), (128, 32)]
JITTERED = [(2, 8), (4, 4), (4, 16), (8, 4), (8, 8), (8, 32), (16, 16), (16, 64), (32, 32)]
JITTERS = (0.5, 1.0, 2.0)  # of a micro-batch, in spreads of stages
# ranks of a stage, stages, micro-batches, segments of a micro-batch, replicas, dynamic variation
WHOLE = [
    *[(*each, DYNAMIC) for each in (
        (4, 4, 8, 16, 8), (4, 4, 8, 6, 1), (4, 4, 8, 3, 1), (8, 4, 16, 3, 4), (8, 8, 8, 6, 1), (8, 8, 8, 3, 1),
        (2, 8, 32, 4, 1), (1, 16, 32, 4, 1), (8, 1, 16, 64, 16), (64, 1, 16, 8, 16),
    )],
    *[(8, 4, 16, 4, replicas, dynamic) for dynamic in (DYNAMIC, 0.02) for replicas in (1, 4, 16)],
]  # fmt: skip
# drawn evenly in the logarithm: stages, micro-batches of a stage, jitter; ranks, segments, replicas, dynamic variation
RANDOM_PIPELINES, RANDOM_PIPELINE = 12, ((2, 32), (1, 4), (0.3, 2.0))
RANDOM_STEPS, RANDOM_STEP = 6, ((1, 16), (1, 6), (1, 3), (2, 8), (1, 16), (0.01, 0.1))
WAIT_STAGES, WAIT_TIMES, WAIT_SPREADS, WAIT_JITTER = (2, 3, 5, 8, 12, 20, 32), (1, 2, 8), (0.1, 0.6, 1.0, 2.5), 0.005
REPLICAS, PIPELINES = (16, 128, 1024, 4096), 4_000_000


def run() -> list[Row]:
    """The distance of every case."""
    jax.config.update("jax_enable_x64", True)
    named = [*groups(), *still_pipelines(), *jittered_pipelines(), *whole_steps(WHOLE), *many_replicas()]
    return [*named, *random_pipelines(), *whole_steps(random_steps())]


def distance(samples: np.ndarray, model: Any, replicas: int = 1) -> float:
    """Kolmogorov-Smirnov distance of the largest of so many of a sample to a `Distribution` [%]."""
    ordered = np.sort(samples)
    scores = jnp.interp(jnp.asarray(ordered), model.values, model.scores)
    empirical = ((np.arange(len(ordered)) + 0.5) / len(ordered)) ** replicas
    return 100.0 * float(np.abs(np.asarray(jax.scipy.special.ndtr(scores)) - empirical).max())


def groups() -> Iterator[Row]:
    """Ranks that wait for each other in every segment."""
    from jaxperf.training.stochastic.grid import plus_normal
    from jaxperf.training.stochastic.group import group_time

    for members, static, dynamic, segments in GROUPS:
        drawn = microbatches_of(np.random.default_rng(members), (SAMPLES, 1, members), 1, segments, static, dynamic)
        group = compiled(group_time)(*map(jnp.float64, (static, dynamic, members, segments)))
        model = plus_normal(group.persistent, jnp.float64(0.0), group.jitter)
        what = f"group of {members}, static {static:.0%}, dynamic {dynamic:.0%}, {segments} segments"
        yield Row("stochastic", what, distance(drawn.sum(axis=0)[:, 0, 0], model), "%", TARGET)


def still_pipelines() -> Iterator[Row]:
    """Pipelines whose stages differ, micro-batches alike: the makespan is a maximum of sums."""
    for stages, microbatches in STILL:
        count = min(5 * SAMPLES, int(NORMALS / stages))
        times = 1.0 + SPREAD * np.random.default_rng(stages).standard_normal((count, stages))
        model = pipeline_model(stages, microbatches, 0.0)
        what = f"pipeline of {stages}, {microbatches} micro-batches, no jitter"
        yield Row("stochastic", what, distance(makespan(times, microbatches), model), "%", TARGET)


def jittered_pipelines() -> Iterator[Row]:
    """The same with micro-batches that differ, event by event."""
    for (stages, microbatches), ratio in itertools.product(JITTERED, JITTERS):
        yield jittered_pipeline(stages, microbatches, ratio)


def random_pipelines() -> Iterator[Row]:
    """The same of shapes and jitters that nothing was chosen on."""
    random = np.random.default_rng(11)
    for _ in range(RANDOM_PIPELINES):
        stages, times, ratio = log_uniform(random, RANDOM_PIPELINE)
        yield jittered_pipeline(round(stages), round(stages * times), round(ratio, 2))


def random_steps() -> Iterator[tuple[Any, ...]]:
    """Cases of `WHOLE` that nothing was chosen on."""
    random = np.random.default_rng(12)
    for _ in range(RANDOM_STEPS):
        members, stages, times, segments, replicas, dynamic = log_uniform(random, RANDOM_STEP)
        counts = (members, stages, stages * times, segments, replicas)
        yield *map(round, counts), round(dynamic, 3)


def log_uniform(random: np.random.Generator, ranges: tuple[tuple[float, float], ...]) -> list[float]:
    """One number from each range, evenly in its logarithm."""
    return [float(np.exp(random.uniform(*np.log(ends)))) for ends in ranges]


def jittered_pipeline(stages: int, microbatches: int, ratio: float) -> Row:
    """A pipeline whose micro-batches differ by `ratio` of what its stages differ by."""
    count = min(SAMPLES, int(NORMALS / (stages * microbatches)))
    _, times = jittered(count, stages, microbatches, SPREAD, ratio * SPREAD)
    found = distance(times, pipeline_model(stages, microbatches, ratio * SPREAD))
    what = f"pipeline of {stages}, {microbatches} micro-batches, jitter {ratio:g} of the spread"
    return Row("stochastic", what, found, "%", TARGET)


def jittered(count: int, stages: int, microbatches: int, spread: float, jitter: float) -> tuple[np.ndarray, np.ndarray]:
    """(what each stage takes for a micro-batch, the time of the step) of sampled pipelines, a third of it forward."""
    random = np.random.default_rng(stages)
    mean = 1.0 + spread * random.standard_normal((count, stages, 1), dtype=np.float32)
    shape = (count, stages, microbatches)
    passes = [
        share * mean + jitter * share**0.5 * random.standard_normal(shape, dtype=np.float32)
        for share in (1.0 / 3.0, 2.0 / 3.0)
    ]
    return mean[..., 0], one_forward_one_backward(*passes)


def whole_steps(cases: Iterable[tuple[Any, ...]]) -> Iterator[Row]:
    """Ranks and stages together, event by event; the slowest of some replicas by the power of their distribution."""
    for members, stages, microbatches, segments, replicas, dynamic in cases:
        count = SAMPLES if replicas == 1 else OF_REPLICAS
        count = min(count, int(ALL_NORMALS / (members * stages * microbatches * segments)))
        part = min(count, int(NORMALS / (members * stages * microbatches)))
        random = np.random.default_rng(members)
        times = np.concatenate([
            one_forward_one_backward(
                *microbatches_of(random, (part, stages, members), microbatches, segments, STATIC, dynamic)
            )
            for _ in range(-(-count // part))
        ])  # fmt: skip
        model = step_model(members, stages, microbatches, segments, replicas, dynamic)
        what = (
            f"{replicas} x {stages} stages x {members} ranks, {microbatches} micro-batches of {segments} segments, "
            f"dynamic {dynamic:.3g}"
        )
        yield Row("stochastic", what, distance(times, model, replicas), "%", TARGET, f"{len(times)} pipelines drawn")


def many_replicas() -> Iterator[Row]:
    """The tails that many replicas of 8 x 8 ranks reach, from as many pipelines drawn at once."""
    stages = members = 8
    random = np.random.default_rng(2)
    part = PIPELINES // 40
    stage = np.concatenate(
        [random.standard_normal((part, stages, members), dtype=np.float32).max(axis=2) for _ in range(40)]
    )
    times = makespan(1.0 + STATIC * stage, 32)
    for replicas in REPLICAS:
        found = distance(times, step_model(members, stages, 32, 1000, replicas, 0.0), replicas)
        what = f"{replicas} replicas of 8 x 8 ranks: {replicas * stages * members} ranks"
        yield Row("stochastic", what, found, "%", TARGET, f"{PIPELINES} pipelines drawn")


def microbatches_of(
    random: np.random.Generator, shape: tuple[int, ...], microbatches: int, segments: int, static: float, dynamic: float
) -> np.ndarray:
    """(forward, backward) of each stage and micro-batch: the slowest rank in each segment, a third of them forward, but
    one at least."""
    ranks = 1.0 + static * random.standard_normal(shape, dtype=np.float32)
    passes = np.zeros((2, *shape[:-1], microbatches), np.float32)
    for microbatch in range(microbatches):
        for segment in range(segments):
            one = (ranks + dynamic * random.standard_normal(shape, dtype=np.float32)).max(axis=-1)
            passes[int(segment >= max(segments // 3, 1)), ..., microbatch] += one / segments
    return passes


def makespan(times: np.ndarray, microbatches: int) -> np.ndarray:
    """The 1F1B step of stages (..., p) that take the same for each micro-batch (`stochastic.pipeline`)."""
    stages = times.shape[-1]
    weight = microbatches - stages + np.arange(stages)
    after = times.sum(axis=-1, keepdims=True) - times.cumsum(axis=-1)
    return times.sum(axis=-1) + np.where(weight >= 0, weight * times + after, -np.inf).max(axis=-1)


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled once for all cases."""
    return jax.jit(function)


def pipeline_model(stages: int, microbatches: int, jitter: float, spread: float = SPREAD) -> Any:
    """The distribution of one pipeline whose stages are normal."""
    from jaxperf.training.stochastic.grid import normal
    from jaxperf.training.stochastic.group import even_jitter
    from jaxperf.training.stochastic.pipeline import pipeline_time

    stage = even_jitter(normal(jnp.float64(1.0), jnp.float64(spread)), jnp.float64(jitter))
    return compiled(pipeline_time)(stage, *map(jnp.float64, (microbatches, stages, 1.0)))


def step_model(members: int, stages: int, microbatches: int, segments: int, replicas: int, dynamic: float) -> Any:
    """The distribution of a whole step with no variation but that of ranks."""
    from jaxperf.training.stochastic.cluster import Synchronization, Variation, step_distribution

    nothing = dict.fromkeys((field.name for field in dataclasses.fields(Synchronization)), 0.0)
    step = Synchronization(**nothing | {
        "busy": 1.0, "bubble": 1.0, "microbatches": microbatches, "stages": stages, "members": members,
        "segments": segments, "replicas": replicas,
    })  # fmt: skip
    return compiled(step_distribution)(
        step, Variation(static=STATIC, dynamic=dynamic, common=0.0, network=0.0, domain=jnp.inf)
    )


def main() -> None:
    """Print the mean wait of pipelines whose micro-batches differ, and the root of the mean square of its errors."""
    from jaxperf.training.stochastic.grid import moments

    jax.config.update("jax_enable_x64", True)
    print("stages  micro-batches  spread/jitter  wait/jitter: simulated    law  error in standard deviations of a step")
    errors: dict[float, list[float]] = {ratio: [] for ratio in WAIT_SPREADS}
    for stages, times in itertools.product(WAIT_STAGES, WAIT_TIMES):
        microbatches = stages * times
        for ratio in WAIT_SPREADS:
            spread, count = ratio * WAIT_JITTER, min(4000, int(NORMALS / (stages * microbatches)))
            mean, drawn = jittered(count, stages, microbatches, spread, WAIT_JITTER)
            waited = float((drawn - makespan(mean, microbatches)).mean()) / WAIT_JITTER
            ends = [moments(pipeline_model(stages, microbatches, each, spread))[0] for each in (WAIT_JITTER, 0.0)]
            law = float(ends[0] - ends[1]) / WAIT_JITTER
            errors[ratio].append((law - waited) * WAIT_JITTER / float(drawn.std()))
            print(
                f"{stages:6d} {microbatches:14d} {ratio:14g} {waited:23.2f} {law:6.2f} {errors[ratio][-1]:+8.3f}",
                flush=True,
            )
    for ratio, each in errors.items():
        print(f"spread/jitter {ratio:g}: root mean square error {np.sqrt(np.mean(np.square(each))):.3f}")


if __name__ == "__main__":
    main()
