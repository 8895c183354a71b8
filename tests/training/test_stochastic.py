"""The distribution of a step time against Monte-Carlo simulation, exact limits, and finite differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import ndtr

from benchmarks.pipeline_events import one_forward_one_backward
from jaxperf.core.numerics import as_float
from jaxperf.training.stochastic.cluster import (
    Synchronization,
    Variation,
    assumed_variation,
    slowest_replica,
    step_distribution,
)
from jaxperf.training.stochastic.grid import (
    Distribution,
    binned,
    largest_of,
    masses,
    mixture,
    moments,
    nodes,
    normal,
    plus_normal,
    quantile,
    sharpened,
)
from jaxperf.training.stochastic.group import GroupTime, even_jitter, group_time
from jaxperf.training.stochastic.overlap import clark_max, exposed_normal
from jaxperf.training.stochastic.pipeline import pipeline_time
from jaxperf.training.stochastic.slowest import slowest_of, two_slowest
from jaxperf.training.stochastic.waiting import turning

TARGET = 0.02  # Kolmogorov-Smirnov distance to Monte-Carlo
SAMPLES = 20_000  # whose own distance to the truth is 0.6 % on average
STEP = Synchronization(
    busy=1.0, microbatches=32.0, stages=8.0, bubble=1.0, members=8.0, segments=40.0, replicas=16.0,
    network=0.5, reduction=1.0, cover=0.8, rest=0.2,
)  # fmt: skip
compiled_group = jax.jit(group_time)
compiled_pipeline = jax.jit(pipeline_time)
compiled_step = jax.jit(step_distribution)


def distance(samples: np.ndarray, model: Distribution, replicas: int = 1) -> float:
    """Kolmogorov-Smirnov distance of the largest of so many of a sample."""
    ordered = np.sort(samples)
    cdf = ndtr(jnp.interp(jnp.asarray(ordered), model.values, model.scores))
    return float(np.abs(np.asarray(cdf) - ((np.arange(len(ordered)) + 0.5) / len(ordered)) ** replicas).max())


@pytest.mark.parametrize("count", [1.0, 2.0, 100.0, 131072.0])
def test_maximum_has_the_exact_quantiles(count: float) -> None:
    largest = largest_of(normal(as_float(5.0), as_float(2.0)), as_float(count))
    for probability in (0.01, 0.5, 0.99):
        exact = 5.0 + 2.0 * float(jax.scipy.special.ndtri(probability ** (1.0 / count)))
        assert float(quantile(largest, as_float(probability))) == pytest.approx(exact, rel=1e-3)


def test_mixture_of_one_kind_is_a_normal() -> None:
    wide = plus_normal(normal(as_float(3.0), as_float(0.3)), as_float(1.0), as_float(0.4))
    assert [float(each) for each in moments(wide)] == pytest.approx([4.0, 0.5], rel=2e-3)
    assert float(quantile(wide, as_float(0.999))) == pytest.approx(4.0 + 0.5 * 3.0902, rel=2e-3)
    two = mixture(jnp.array([0.0, 1.0]), jnp.array([0.6, 0.6]), jnp.array([0.5, 0.5]))
    assert float(moments(two)[1]) == pytest.approx((0.36 + 0.25) ** 0.5, rel=2e-3)


@pytest.mark.parametrize(
    ("members", "static", "dynamic", "segments"), [(1, 0.03, 0.03, 20), (8, 0.03, 0.05, 40), (32, 0.02, 0.1, 20)]
)
def test_group_against_simulation(members: int, static: float, dynamic: float, segments: int) -> None:
    random = np.random.default_rng(members)
    ranks = 1.0 + static * random.standard_normal((SAMPLES, members))
    drawn = [(ranks + dynamic * random.standard_normal(ranks.shape)).max(axis=1) for _ in range(segments)]
    group = compiled_group(*map(as_float, (static, dynamic, members, segments)))
    whole = plus_normal(group.persistent, as_float(0.0), group.jitter)
    assert distance(np.mean(drawn, axis=0), whole) < TARGET


def test_tail_of_many_groups_against_exact_means() -> None:
    """H(s) by quadrature for every sampled s."""
    members, static, dynamic, replicas = 8, 0.03, 0.05, 16
    group = group_model(members, static, dynamic)
    means = exact_means(members, static, dynamic, 100_000)
    assert distance(means, largest_of(group.persistent, as_float(replicas)), replicas) < TARGET


def test_groups_are_skewed_as_their_exact_means_are() -> None:
    """Sixteen ranks whose dynamic part exceeds the static one: mean, deviation and skewness of H(s), by quadrature."""
    means, exact = exact_means(16, 0.03, 0.1, 20_000), group_model(16, 0.03, 0.1)
    middle, mass = (np.asarray(each) for each in nodes(exact.persistent))
    mean, std = (float(each) for each in moments(exact.persistent))
    assert mean == pytest.approx(means.mean(), abs=0.02 * std)
    assert std == pytest.approx(means.std(), rel=0.015)
    skews = [(mass * ((middle - mean) / std) ** 3).sum(), (((means - means.mean()) / means.std()) ** 3).mean()]
    assert skews[0] == pytest.approx(skews[1], abs=0.04)


def group_model(members: int, static: float, dynamic: float) -> GroupTime:
    return compiled_group(*map(as_float, (static, dynamic, members, 64)))


def exact_means(members: int, static: float, dynamic: float, count: int) -> np.ndarray:
    """H(s) = integral of 1 - prod_r Phi((x - s_r) / d), by quadrature for every sampled s."""
    ranks = static * np.random.default_rng(7).standard_normal((members, count))
    x = np.linspace(-3.5 * dynamic - 0.125, 5.0 * dynamic + 0.25, 41)
    below = np.ones((len(x), count))
    for rank in ranks:
        below *= np.asarray(ndtr((x[:, None] - rank[None, :]) / dynamic))
    return 1.0 + x[-1] - np.trapezoid(below, x, axis=0)


def test_two_slowest_are_those_of_order_statistics() -> None:
    """P(M1 <= a) = F(a)^g and P(M2 <= b) = g F^(g-1) - (g-1) F^g; of one rank the second is nowhere above it."""
    mass = masses(normal(as_float(0.0), as_float(1.0)).scores)
    reached = np.cumsum(np.asarray(mass))
    for members in (1.0, 2.0, 2.5, 8.0):
        pairs = np.asarray(two_slowest(mass, as_float(members)))
        assert (pairs >= 0.0).all() and (np.triu(pairs, 1) == 0.0).all()
        np.testing.assert_allclose(pairs.sum(axis=1).cumsum(), reached**members, rtol=1e-9, atol=1e-12)
        second = members * reached ** (members - 1.0) - (members - 1.0) * reached**members
        np.testing.assert_allclose(pairs.sum(axis=0).cumsum(), second, atol=2e-3)


def test_a_grid_adds_nothing_to_a_tail() -> None:
    """Time and again without any noise: the narrowest normal that a grid resolves is no part of the answer."""
    again = normal(as_float(0.0), as_float(1.0))
    for _ in range(3):
        again = jax.jit(plus_normal)(again, as_float(0.0), as_float(0.0))
    for score in (1.0, 3.0, 4.5):
        found = float(ndtr(-jnp.interp(score, again.values, again.scores)))
        assert found == pytest.approx(float(ndtr(-score)), rel=4e-3)
    assert float(jnp.sum(sharpened(jnp.array([0.0, 0.9, 0.1]), jnp.full(3, 0.4)))) == pytest.approx(1.0)


@pytest.mark.parametrize(("stages", "microbatches", "jitter"), [(24, 24, 0.08), (12, 30, 0.1)])
def test_walks_that_turn_before_the_last_stage(stages: int, microbatches: int, jitter: float) -> None:
    """What steps gain beyond the first order of the jitter, the same draws scaled down to it."""
    random = np.random.default_rng(stages)
    drawn = [share**0.5 * random.standard_normal((1500, stages, microbatches)) for share in (1.0 / 3.0, 2.0 / 3.0)]

    def step(scale: float) -> float:
        times = one_forward_one_backward(1.0 / 3.0 + scale * drawn[0], 2.0 / 3.0 + scale * drawn[1])
        return float(times.mean() - (microbatches + stages - 1.0)) / scale

    gained = jitter * (step(jitter) - step(1e-4))
    asked = map(as_float, (jitter, 1.0, microbatches, stages, 1.0))
    assert float(turning(*asked)) == pytest.approx(gained, rel=0.25)


@pytest.mark.parametrize(
    ("stages", "microbatches", "ratio", "simulated"),
    [(8, 16, 0.6, 7.01), (20, 20, 0.1, 16.76), (20, 160, 0.6, 79.58), (32, 256, 0.6, 121.75), (32, 256, 1.0, 67.38)],
)
def test_wait_of_long_steps(stages: int, microbatches: int, ratio: float, simulated: float) -> None:
    """In jitters of a micro-batch; simulated by `python -m benchmarks.stochastic`."""
    jitter, spread = 0.005, ratio * 0.005
    means = [
        float(moments(compiled_pipeline(even_jitter(normal(as_float(1.0), as_float(spread)), as_float(each)),
                                        *map(as_float, (microbatches, stages, 1.0))))[0])
        for each in (jitter, 0.0)
    ]  # fmt: skip
    assert (means[0] - means[1]) / jitter == pytest.approx(simulated, rel=0.025)


def test_nothing_is_lost_in_bins() -> None:
    values, weights = jnp.array([[0.0, 0.31], [0.4, 1.0]]), jnp.array([[0.1, 0.2], [0.3, 0.4]])
    grid, (share,) = binned(values, (weights,))
    assert float(share.sum()) == pytest.approx(1.0)
    assert float((grid * share).sum()) == pytest.approx(float((values * weights).sum()))


@pytest.mark.long
@pytest.mark.parametrize(
    ("stages", "microbatches", "spread", "jitter"),
    [
        (1, 8, 0.02, 0.005),
        (2, 2, 0.02, 0.002),
        (4, 4, 0.02, 0.0),
        (8, 4, 0.02, 0.02),
        (4, 16, 0.01, 0.02),
        (16, 8, 0.02, 0.002),
        (8, 32, 0.015, 0.015),
        (24, 24, 0.002, 0.02),
        (32, 32, 0.02, 0.04),
    ],
)
def test_pipeline_against_its_events(stages: int, microbatches: int, spread: float, jitter: float) -> None:
    random = np.random.default_rng(stages)
    shape = (SAMPLES, stages, microbatches)
    mean = 1.0 + spread * random.standard_normal((SAMPLES, stages, 1))
    forward = mean / 3.0 + jitter * 3.0**-0.5 * random.standard_normal(shape)
    backward = 2.0 * mean / 3.0 + jitter * 1.5**-0.5 * random.standard_normal(shape)
    stage = even_jitter(normal(as_float(1.0), as_float(spread)), as_float(jitter))
    model = compiled_pipeline(stage, *map(as_float, (microbatches, stages, 1.0)))
    assert distance(one_forward_one_backward(forward, backward), model) < TARGET


def test_pipeline_without_variation_is_the_textbook_time() -> None:
    stage = even_jitter(normal(as_float(1.0), as_float(1e-6)), as_float(0.0))
    for stages, bubble in ((1, 1.0), (4, 1.0), (16, 0.5), (128, 0.0)):
        mean, _ = moments(compiled_pipeline(stage, as_float(256.0), as_float(stages), as_float(bubble)))
        assert float(mean) == pytest.approx(256.0 + bubble * (stages - 1), rel=1e-4)
    assert jnp.isnan(moments(compiled_pipeline(stage, as_float(256.0), as_float(129.0), as_float(1.0)))[0])


@pytest.mark.parametrize("bubble", [0.0, 0.1, 0.5])
def test_more_stages_than_micro_batches(bubble: float) -> None:
    """Where the bubble is hidden, stages can outnumber the micro-batches that they wait in."""
    stage = even_jitter(normal(as_float(1.0), as_float(0.03)), as_float(0.05))
    for microbatches in (1.0, 2.0, 8.0):
        means = []
        for stages in (4.0, 16.0, 64.0, 128.0):
            mean, spread = moments(compiled_pipeline(stage, *map(as_float, (microbatches, stages, bubble))))
            assert 0.0 < float(spread) < float(mean)
            assert float(mean) > microbatches + bubble * (stages - 1.0)
            means.append(float(mean))
        assert means == sorted(means)


def test_slowest_part_far_above_the_others_keeps_its_own_jitter() -> None:
    """Var[X | the slowest part]: of eight alike the largest varies less than one, of one that is alone it does not."""
    parts, own = normal(as_float(0.0), as_float(0.03)), 0.05
    slowest = slowest_of(parts, jnp.full_like(parts.values[1:], own), as_float(8.0))
    alone = slowest_of(parts, jnp.full_like(parts.values[1:], own), as_float(1.0))
    np.testing.assert_allclose(alone.jitter, own, rtol=1e-5)
    assert float(slowest.jitter[0]) < 0.65 * own and float(slowest.jitter[-1]) == pytest.approx(own, rel=0.02)
    assert (jnp.diff(slowest.jitter) > 0.0).all()


@pytest.mark.long
def test_slowest_of_many_replicas_against_simulation() -> None:
    """Few segments and much jitter: the tail is of stages that one rank slows down, with a jitter of their own."""
    samples, members, stages, microbatches, segments, replicas = SAMPLES // 2, 8, 4, 16, 3, 4
    random = np.random.default_rng(5)
    ranks = 1.0 + 0.03 * random.standard_normal((samples, stages, members), dtype=np.float32)
    passes = np.zeros((2, samples, stages, microbatches), dtype=np.float32)
    for microbatch in range(microbatches):
        for segment in range(segments):
            one = (ranks + 0.05 * random.standard_normal(ranks.shape, dtype=np.float32)).max(axis=-1)
            passes[int(segment >= segments // 3), ..., microbatch] += one / segments
    variation = Variation(static=0.03, dynamic=0.05, common=0.0, network=0.0, domain=jnp.inf)
    nothing = dict.fromkeys(("network", "reduction", "cover", "rest"), 0.0)
    step = Synchronization(
        busy=1.0, microbatches=microbatches, stages=stages, bubble=1.0, members=members, segments=segments,
        replicas=replicas, **nothing,
    )  # fmt: skip
    drawn = one_forward_one_backward(*passes).astype(float)
    assert distance(drawn, compiled_step(step, variation), replicas) < TARGET


@pytest.mark.parametrize("replicas_sharing", [8, pytest.param(2, marks=pytest.mark.long)])
def test_whole_cluster_against_simulation(replicas_sharing: int) -> None:
    members, stages, microbatches, segments, replicas = 4, 4, 8, 16, 8
    variation = Variation(static=0.03, dynamic=0.05, common=0.01, network=0.1, domain=replicas_sharing * 16.0)
    samples = 4000
    random = np.random.default_rng(1)
    ranks = 1.0 + 0.03 * random.standard_normal((samples * replicas * stages, members), dtype=np.float32)
    passes = np.zeros((2, len(ranks), microbatches), dtype=np.float32)
    for microbatch in range(microbatches):
        for segment in range(segments):
            one = (ranks + 0.05 * random.standard_normal(ranks.shape, dtype=np.float32)).max(axis=1)
            passes[int(segment >= segments // 3), :, microbatch] += one / segments
    forward, backward = passes.reshape(2, samples, replicas, stages, microbatches)
    pipelines = one_forward_one_backward(forward, backward)
    shared = 1.0 + 0.01 * random.standard_normal((samples, replicas // replicas_sharing))
    slowest = (pipelines * np.repeat(shared, replicas_sharing, axis=1)).max(axis=1)
    step = Synchronization(
        busy=1.0, microbatches=microbatches, stages=stages, bubble=1.0, members=members, segments=segments,
        replicas=replicas, network=0.3, reduction=0.0, cover=0.0, rest=0.0,
    )  # fmt: skip
    times = slowest + 0.3 * (1.0 + 0.1 * random.standard_normal(samples))
    assert distance(times, compiled_step(step, variation)) < TARGET


def test_many_replicas_against_simulation() -> None:
    """The tail that 4,096 ranks reach, from 400,000 simulated replicas of 8 x 8 ranks."""
    stages, microbatches, replicas, count = 8, 32, 64, 400_000
    random = np.random.default_rng(2)
    stage = 1.0 + 0.03 * np.concatenate(
        [random.standard_normal((count // 20, stages, 8), dtype=np.float32).max(axis=2) for _ in range(20)]
    )
    behind = stage.sum(axis=1, keepdims=True) - stage.cumsum(axis=1)
    weight = microbatches - stages + np.arange(stages)
    times = np.sort(stage.sum(axis=1) + (weight * stage + behind).max(axis=1))
    step = dataclasses.replace(STEP, replicas=as_float(replicas), network=as_float(0.0), rest=as_float(0.0))
    step = dataclasses.replace(step, reduction=as_float(0.0), cover=as_float(0.0), segments=as_float(1e3))
    still = Variation(static=0.03, dynamic=0.0, common=0.0, network=0.0, domain=jnp.inf)
    model = compiled_step(step, still)
    cdf = np.asarray(ndtr(jnp.interp(jnp.asarray(times), model.values, model.scores)))
    empirical = (np.arange(1, count + 1) / count) ** replicas
    assert np.abs(cdf - empirical).max() < TARGET


def test_quantiles_grow_with_the_cluster_and_with_variation() -> None:
    medians = [
        float(
            quantile(compiled_step(dataclasses.replace(STEP, replicas=as_float(n)), assumed_variation()), as_float(0.5))
        )
        for n in (1, 16, 128, 1024, 16384)
    ]
    assert medians == sorted(medians) and medians[0] > float(STEP.nominal)
    ends = [[float(quantile(compiled_step(STEP, assumed_variation(level)), as_float(p))) for p in (0.05, 0.95)]
            for level in range(3)]  # fmt: skip
    assert ends[0][0] < ends[0][1] < ends[2][1] and ends[0][1] - ends[0][0] < ends[2][1] - ends[2][0]


def test_domains_of_their_own_are_slower_than_one_shared() -> None:
    replica = normal(as_float(10.0), as_float(0.1))
    medians = [
        float(quantile(slowest_replica(replica, as_float(64.0), as_float(together), as_float(0.02)), as_float(0.5)))
        for together in (64.0, 8.0, 1.0)
    ]
    assert medians[0] < medians[1] < medians[2]
    exact = 10.0 * float(quantile(largest_of(normal(as_float(1.0), as_float((1e-4 + 4e-4) ** 0.5)), as_float(64.0)),
                                  as_float(0.5)))  # fmt: skip
    assert medians[2] == pytest.approx(exact, rel=1e-3)


def late_group(static: jax.Array, dynamic: jax.Array, members: jax.Array, segments: jax.Array) -> jax.Array:
    group = group_time(static, dynamic, members, segments)
    return quantile(group.persistent, as_float(0.95)) + group.jitter


def late_pipeline(spread: jax.Array, jitter: jax.Array, microbatches: jax.Array, bubble: jax.Array) -> jax.Array:
    stage = even_jitter(normal(jnp.ones_like(spread), spread), jitter)
    return quantile(pipeline_time(stage, microbatches, as_float(8.0), bubble), as_float(0.95))


def late_replica(spread: jax.Array, replicas: jax.Array, together: jax.Array, common: jax.Array) -> jax.Array:
    replica = normal(jnp.ones_like(spread), spread)
    return quantile(slowest_replica(replica, replicas, together, common), as_float(0.95))


@pytest.mark.long
@pytest.mark.parametrize(
    ("late", "point"),
    [
        (late_group, (0.03, 0.05, 8.0, 40.0)),
        (late_pipeline, (0.02, 0.005, 32.0, 0.7)),
        (late_pipeline, (0.02, 0.005, 1.0, 0.05)),
        (late_replica, (0.02, 64.0, 8.0, 0.01)),
    ],
)
def test_slopes_match_finite_differences(late: Callable[..., jax.Array], point: tuple[float, ...]) -> None:
    along = jax.jit(lambda at, direction: jax.jvp(late, at, direction))
    here = tuple(map(as_float, point))
    for place, value in enumerate(point):
        unit = tuple(as_float(float(index == place)) for index in range(len(point)))
        ends = [
            along((*here[:place], as_float(value * (1.0 + way)), *here[place + 1 :]), unit)[0] for way in (1e-4, -1e-4)
        ]
        slope = float(along(here, unit)[1])
        assert slope == pytest.approx(float(ends[0] - ends[1]) / (2e-4 * value), rel=2e-2, abs=1e-6), place


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.9])
def test_clark_against_simulation(correlation: float) -> None:
    random = np.random.default_rng(3)
    covariance = [[0.09, correlation * 0.3 * 0.5], [correlation * 0.3 * 0.5, 0.25]]
    samples = random.multivariate_normal([2.0, 2.2], covariance, size=400_000).max(axis=1)
    first, second = (as_float(2.0), as_float(0.3)), (as_float(2.2), as_float(0.5))
    mean, std = clark_max(first, second, as_float(correlation))
    assert float(mean) == pytest.approx(samples.mean(), abs=4.0 * samples.std() / 400_000**0.5)
    assert float(std) == pytest.approx(samples.std(), rel=5e-3)


def test_clark_without_variation_is_the_maximum() -> None:
    zero = as_float(0.0)
    assert float(clark_max((as_float(2.0), zero), (as_float(3.0), zero), zero)[0]) == 3.0
    assert float(exposed_normal((as_float(2.0), zero), (as_float(3.0), zero), zero)[0]) == 0.0
    slope = jax.grad(lambda m: exposed_normal((m, as_float(0.1)), (as_float(3.0), zero), zero)[0])(as_float(3.0))
    assert float(slope) == pytest.approx(0.5)
