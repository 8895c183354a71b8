"""The open loop: limits with known answers, units, monotonicity, gradients, overload."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.core.numerics import as_float
from jaxperf.serving.queueing.decoding import clump
from jaxperf.serving.queueing.engine import Engine, Load, chunked, prefill_first
from jaxperf.serving.queueing.law import StepLaw
from jaxperf.serving.queueing.lengths import Lengths, lengths_as, lengths_of, padded
from jaxperf.serving.queueing.line import Company, met
from jaxperf.serving.queueing.pools import no_prompts
from jaxperf.serving.queueing.waiting import prompts_together, sharing
from jaxperf.sweeps.once import evaluate_once
from tests.serving.queueing.engines import even_law, most_of, steady, straight_law

CHATS = {"kind": "uniform", "low": 16, "high": 2000}, {"kind": "uniform", "low": 10, "high": 400}


def fixed(tokens: int) -> Lengths:
    return lengths_as({"kind": "fixed", "value": tokens})


@pytest.fixture(scope="module")
def lengths() -> tuple[Lengths, Lengths]:
    prompt, output = map(lengths_as, CHATS)
    return prompt, output


def test_processor_sharing_with_an_affine_step_is_its_product_form() -> None:
    """N = lambda n (a + d) / (1 - lambda n d), exactly, by the stationary distribution of Cohen (1979), summed."""
    floor, each, steps, rate = 8e-3, 1e-4, 200, 30.0
    law = even_law(floor, (0.0, each, 0.0), (0.0,) * 5)
    found = steady(no_prompts, law, Load(rate, fixed(100), fixed(steps + 1)), Engine(1e6, 8192.0))
    numbers = np.arange(1, 3000)
    weights = np.concatenate([[0.0], np.cumsum(np.log(rate * steps * (floor + each * numbers) / numbers))])
    weights = np.exp(weights - weights.max())
    mean = float((weights * np.arange(3000)).sum() / weights.sum())
    variance = float((weights * (np.arange(3000) - mean) ** 2).sum() / weights.sum())
    assert float(found.batch) == pytest.approx(mean, rel=1e-4)
    assert float(found.spread) == pytest.approx(variance, rel=1e-4)
    assert float(found.e2e - found.ttft) == pytest.approx(mean / rate, rel=1e-4)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_prompts_of_one_step_each_wait_as_in_m_d_1(load: float) -> None:
    """W = rho S / (2 (1 - rho)) (Pollaczek and Khinchine), where a step is one prompt and nothing else."""
    service = 0.1
    law = even_law(1e-6, (0.0,) * 3, (0.0, service / 1000, 0.0, 0.0, 0.0))
    found = steady(chunked, law, Load(load / service, fixed(1000), fixed(1)), Engine(8.0, 1000.0))
    assert float(found.ttft) == pytest.approx(service * (1.0 + 0.5 * load / (1.0 - load)), rel=1e-3)
    assert float(found.utilization) == pytest.approx(load, rel=1e-3)
    assert float(found.e2e) == float(found.ttft) and jnp.isnan(found.tpot)


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_prompts_of_any_lengths_that_fill_steps_wait_as_in_m_g_1(load: float) -> None:
    """In a queue all steps are full, so that each takes its share s of them, and lambda E s^2 / (2 (1 - rho)) of that
    is before who comes, however short the last step of one that is alone."""
    budget, prompt = 2000, lengths_as({"kind": "lognormal", "mean": 4000, "cv": 1.5})
    law = straight_law(decode=(0.0, 0.0, 0.0), start=0.0)
    service = 2.3e-5 * float(prompt.mean)
    found = steady(chunked, law, Load(load / service, prompt, fixed(2)), Engine(256.0, float(budget)))
    square = service**2 * float(prompt.square / prompt.mean**2)
    assert float(found.prefill.packed) == pytest.approx(service, rel=1e-2)
    assert float(found.wait.queued) == pytest.approx(0.5 * load / service * square / (1.0 - load), rel=0.05)


@pytest.mark.parametrize("stages", [2.0, 4.0])
@pytest.mark.parametrize("load", [0.3, 0.8])
def test_prompts_of_a_pipeline_wait_for_its_first_stage_alone(stages: float, load: float) -> None:
    """Stages of the same time in a row: M/D/1 at the first, and nobody waits behind it (Avi-Itzhak 1965)."""
    service = 0.1
    law = even_law(1e-6, (0.0,) * 3, (0.0, service / 1000, 0.0, 0.0, 0.0))
    asked = Load(load * stages / service, fixed(1000), fixed(1))
    found = steady(chunked, law, asked, Engine(8.0 * stages, 1000.0, stages))
    assert float(found.ttft) == pytest.approx(service * (1.0 + 0.5 * load / (1.0 - load) / stages), rel=1e-3)
    assert float(found.utilization) == pytest.approx(load, rel=1e-3)


def test_a_queue_enters_a_pipeline_as_its_first_stage_is_free(lengths) -> None:
    """lambda E s^2 / (2 (1 - rho / P)); Llama-3-8B's chats at load 0.7 on four stages had a queue twice as long."""
    for stages in (1.0, 4.0):
        found = steady(chunked, straight_law(), Load(8.0 * stages, *lengths), Engine(64.0, 2048.0, stages))
        share = found.prefill.share / found.overlap
        inside = lengths[0].inside(share)
        square = float(jnp.sum(lengths[0].share * (share**2 + inside)))
        busy = 8.0 * stages * float(jnp.sum(lengths[0].share * share)) * float(found.overlap) / max(stages, 1.0)
        assert float(found.wait.queued) == pytest.approx(4.0 * stages * square / (1.0 - busy), rel=0.01)


@pytest.mark.parametrize("discipline", [chunked, prefill_first])
def test_an_empty_engine_takes_the_time_of_its_steps(discipline, lengths) -> None:
    law, (prompt, output) = straight_law(), (fixed(1000), fixed(101))
    found = steady(discipline, law, Load(1e-4, prompt, output), Engine(64.0, 4096.0))
    assert float(found.ttft) == pytest.approx(1000 * 2.3e-5 + 6e-4, rel=0.02)
    assert float(found.tpot) == pytest.approx(7e-3 + 4e-4 + 4e-8 * 1050, rel=0.01)


def test_more_requests_wait_longer_until_the_engine_cannot_serve_them(lengths) -> None:
    law, engine = straight_law(), Engine(128.0, 2048.0)
    most = most_of(chunked, law, lengths, engine)
    shares = np.linspace(0.02, 0.95, 20)
    found = [steady(chunked, law, Load(share * most, *lengths), engine) for share in shares]
    for name in ("ttft", "tpot", "e2e", "batch", "utilization", "prefill_share"):
        assert np.all(np.diff([float(getattr(each, name)) for each in found]) > 0.0), name
    np.testing.assert_allclose([float(each.utilization) for each in found], shares, rtol=1e-9)
    for share in (1.01, 3.0):
        over = steady(chunked, law, Load(share * most, *lengths), engine)
        assert not over.stable and np.isnan(over.ttft) and np.isnan(over.tpot)


def test_twice_as_slow_a_clock_is_twice_the_time(lengths) -> None:
    law = straight_law()
    slow = StepLaw(2.0 * law.first, 2.0 * law.last, law.grain, 2.0 * law.decode, 2.0 * law.prefill)
    engine = Engine(128.0, 2048.0)
    found = steady(chunked, law, Load(12.0, *lengths), engine)
    scaled = steady(chunked, slow, Load(6.0, *lengths), engine)
    for name in ("ttft", "tpot", "e2e"):
        assert float(getattr(scaled, name)) == pytest.approx(2.0 * float(getattr(found, name)), rel=1e-9)


def test_the_derivative_by_the_rate_is_the_difference(lengths) -> None:
    law, engine, rate, step = straight_law(), Engine(128.0, 2048.0), as_float(6.0), 1e-4

    def e2e(rate):
        return steady(chunked, law, Load(rate, *lengths), engine).e2e

    difference = (e2e(rate + step) - e2e(rate - step)) / (2.0 * step)
    slope = evaluate_once(jax.jit(jax.jacfwd(e2e)), rate)
    assert float(slope) == pytest.approx(float(difference), rel=1e-3)


def test_steps_in_stairs_have_a_fixed_point() -> None:
    """N = lambda (e2e - ttft) at every rate, where tiles end among the prompts and decodes of a step: what goes to and
    fro at an edge differs by percents between 32 and 64 bits."""
    law, kinds = (
        straight_law(),
        ({"kind": "lognormal", "mean": 100, "cv": 0.5}, {"kind": "uniform", "low": 50, "high": 300}),
    )
    tiles = 5e-3 + 3e-3 * np.repeat(np.arange(1.0, 65.0), 2)  # of 128 tokens
    law, lengths = StepLaw(tiles, tiles, law.grain, law.decode, law.prefill), tuple(map(lengths_as, kinds))
    for rate in np.linspace(19.5, 22.0, 51):
        found = steady(chunked, law, Load(rate, *lengths), Engine(256.0, 2048.0))
        assert float(found.batch) == pytest.approx(rate * float(found.e2e - found.ttft), rel=1e-3)


def test_bursts_wait_longer_and_even_arrivals_less(lengths) -> None:
    law, engine, (prompt, output) = straight_law(), Engine(128.0, 2048.0), lengths
    even, random, bursts = (
        float(steady(chunked, law, Load(12.0, prompt, output, variation), engine).ttft) for variation in (0.2, 1.0, 4.0)
    )
    assert even < random < bursts


def test_a_pipeline_lets_no_more_prompts_overlap_than_it_has_stages(lengths) -> None:
    law = straight_law()
    cost = [
        1.0 / most_of(chunked, law, lengths, Engine(64.0 * ways, 2048.0, *split))
        for ways, split in ((1, (1.0, 1.0)), (4, (4.0, 1.0)), (4, (1.0, 4.0)))
    ]
    assert cost[1] < cost[0] and cost[2] < cost[0]
    assert min(cost[1:]) > 0.25 * cost[0] * (1.0 - 1e-9)


def test_classes_of_lengths_keep_mean_and_square() -> None:
    values = np.random.default_rng(1).integers(1, 5000, 3001)
    found = lengths_of(values)
    assert float(found.share.sum()) == pytest.approx(1.0)
    assert float(found.mean) == pytest.approx(values.mean())
    assert float(found.square) == pytest.approx((values.astype(float) ** 2).mean())
    assert jnp.all(jnp.diff(found.tokens) >= 0.0)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_few_lengths_fill_the_classes_there_are(count: int) -> None:
    values = np.arange(1.0, count + 1.0)
    found = lengths_of(values)
    assert float(found.mean) == pytest.approx(values.mean()) and np.isfinite(found.tokens).all()


@pytest.mark.parametrize("ends", [(2000, 7000), (16, 2000), (50, 300), (1024, 1024)])
def test_prompts_fill_a_padded_batch_as_if_taken_one_by_one(ends: tuple[int, int]) -> None:
    """(requests + 1) x longest <= budget, as vLLM v0 takes them; at least one."""
    budget, random = 8192, np.random.default_rng(3)
    drawn = random.integers(ends[0], ends[1] + 1, (1000, budget // ends[0] + 1))
    longest = np.maximum.accumulate(drawn, axis=1)
    taken = (longest * np.arange(1, longest.shape[1] + 1) <= budget).sum(axis=1).mean()
    assert float(padded(lengths_of(drawn[:, 0]), as_float(budget))) == pytest.approx(max(taken, 1.0), rel=0.05)


def test_no_more_sequences_run_than_have_a_slot() -> None:
    """A step that grows with its sequences stops growing at the slots, whatever the variance of their number."""
    law = even_law(1e-3, (0.0, 1e-3, 0.0), (0.0,) * 5)
    state = steady(no_prompts, law, Load(30.0, fixed(100), fixed(33)), Engine(32.0, 8192.0))
    assert float(state.step) <= 1e-3 + 32 * 1e-3


def test_prompts_that_delay_each_other_begin_to_decode_in_rows() -> None:
    """Steps of t, and d for each prompt that came in the one before: starts in a long window vary as `clump` says."""
    step, delay, rate, window = 1.0, 2.0, 0.3, 200
    random, begun = np.random.default_rng(0), np.zeros((400, 2000))
    for at in range(1, begun.shape[1]):
        begun[:, at] = random.poisson(rate * (step + delay * begun[:, at - 1]))
    windows = begun[:, 200:].reshape(400, -1, window).sum(axis=2)
    dispersion = windows.var() / windows.mean()
    assert float(clump(Load(rate, fixed(1), fixed(2)), as_float(10.0), as_float(rate * delay))) + 1.0 == pytest.approx(
        dispersion, rel=0.05
    )


@pytest.mark.parametrize(("floor", "share", "vacation"), [(0.0, 0.5, 0.05), (0.2, 0.5, 0.3), (1.0, 0.1, 1.0)])
def test_prompts_of_a_step_that_has_any(floor: float, share: float, vacation: float) -> None:
    """Steps of f + k s, each with the prompts that came in the one before; those without any take v."""
    random, waiting, steps, prompts = np.random.default_rng(0), np.zeros(2000, int), 0, 0
    for _ in range(500):
        waiting = random.poisson(np.where(waiting > 0, floor + share * waiting, vacation))
        steps, prompts = steps + (waiting > 0).sum(), prompts + waiting.sum()
    found = prompts_together(*map(as_float, (1.0, floor, share, vacation)))
    assert float(found) == pytest.approx(prompts / steps, rel=0.05)


@pytest.mark.parametrize("left", [0.3, 1.0])
def test_less_room_than_one_prompt_is_taken_where_any_comes(left: float) -> None:
    some = np.minimum(np.random.default_rng(0).poisson(0.7, 1 << 20), left).mean()
    assert float(sharing(as_float(0.7), as_float(left))) == pytest.approx(some, rel=0.01)


@pytest.mark.parametrize(("mean", "dispersion"), [(0.5, 1.0), (3.0, 1.5), (10.0, 2.5)])
def test_the_line_through_two_points_is_the_least_squares_of_a_parabola(mean: float, dispersion: float) -> None:
    """Gauss's rule of two points is exact for products of a parabola with a line."""
    random, more = np.random.default_rng(0), dispersion - 1.0
    rates = random.gamma(mean / more, more, 1 << 20) if more else np.full(1 << 20, mean)
    number = 1.0 + random.poisson(rates)
    slope, floor = np.polyfit(number, (1.0 + number) ** 2, 1)
    line = met(lambda k: (1.0 + k) ** 2, Company(*map(as_float, (mean, mean, dispersion))), as_float(0.0))
    assert float(line.each) == pytest.approx(slope, rel=0.02)
    assert float(line.floor + line.each * (1.0 + mean)) == pytest.approx(floor + slope * (1.0 + mean), rel=0.02)


def test_no_step_of_a_row_is_shorter_than_the_shortest() -> None:
    """max(f + k s, shortest) with the prompts that came in the step before; vacations v until one comes."""
    random, waiting, steps, prompts = np.random.default_rng(0), np.zeros(4000, int), 0, 0
    for _ in range(500):
        waiting = random.poisson(np.where(waiting > 0, np.maximum(0.2 + 0.3 * waiting, 0.8), 0.3))
        steps, prompts = steps + (waiting > 0).sum(), prompts + waiting.sum()
    line = met(
        lambda k: jnp.maximum(0.2 + 0.3 * k, 0.8),
        Company(*map(as_float, (prompts / steps - 1.0, 0.0, 1.1))),
        as_float(0.0),
    )
    found = prompts_together(as_float(1.0), line.floor, line.each, as_float(0.3), as_float(0.8))
    assert float(found) == pytest.approx(prompts / steps, rel=0.05)


def test_prompts_that_share_a_step_are_not_dealt_to_all_stages() -> None:
    """Eight stages for prompts of which twenty share a step were promised eight times the speed they have."""
    law = even_law(1e-6, (0.0,) * 3, (0.0, 1e-4, 0.0, 0.0, 0.0))
    rooms = {}
    for tokens in (1000, 50):
        asked = Load(1.0, fixed(tokens), fixed(1))
        rooms[tokens] = [float(steady(chunked, law, asked, Engine(64.0, 1000.0, n)).utilization) for n in (1.0, 8.0)]
    assert rooms[1000][0] / rooms[1000][1] == pytest.approx(8.0, rel=1e-3)
    assert 1.0 < rooms[50][0] / rooms[50][1] < 2.0
