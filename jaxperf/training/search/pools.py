"""Plans for pools of different devices: replicas or pipeline stages in each, as fast as the slowest pool allows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwspecs.errors import InputError
from jaxperf.core.device import Device
from jaxperf.core.formats import COMPUTE_FORMATS, FORMATS, format_name
from jaxperf.core.numerics import as_float
from jaxperf.training.layout import SCHEDULES
from jaxperf.training.pools import cross_pool_reduction, hand_over, part_of, whole_shares
from jaxperf.training.schedules import live_microbatches
from jaxperf.training.search.plan import Answer, Choice, Progress, Rates, Request, plan
from jaxperf.training.search.space import divisors
from jaxperf.training.stragglers import straggling_time

ROUNDS = 3
MOST_UNITS = 64  # parts a batch is divided into: a share is off by 1 % of the batch at most
PUT_OFF = ("zb-h1", "zb-h2", "zb-v")  # schedules whose gradients of the weights wait for gaps
FEW_UNITS = 8  # tried too: large parts have more divisors, and so more layouts


@dataclass(frozen=True)
class Pool:
    """`devices` of one kind and the efficiencies they reach."""

    name: str
    device: Device
    devices: int
    rates: Rates


@dataclass(frozen=True)
class PoolPlan:
    """One way to use pools: `assigned` "replicas" or "stages" to each, or one "alone"; `shares`: sequences or layers;
    `answers`: the plan of each for its share; `time` of the step, of which `between` pools [s], NaN where a pool has no
    layout."""

    assigned: str
    pools: Sequence[Pool]
    shares: Sequence[int]
    answers: Sequence[Answer]
    time: float
    between: float

    @property
    def feasible(self) -> bool:
        """Whether every pool has a layout."""
        return all(answer.choices for answer in self.answers)

    @property
    def bound(self) -> int:
        """The place of the slowest pool."""
        times = [answer.choices[0].metrics["time"] for answer in self.answers]
        return times.index(max(times))


def plan_pools(request: Request, pools: Sequence[Pool], progress: Progress | None = None) -> list[PoolPlan]:
    """Replicas in each pool, stages in each, and each pool alone: the fastest first, those that are infeasible last.

    Of pools that are alike one stands alone. An interruption ends with the plans there are.
    """
    plans: list[PoolPlan] = []
    different = {(pool.name, pool.devices): place for place, pool in enumerate(pools)}
    for assign in (_replicas, _stages, *(partial(_alone, place) for place in different.values())):
        plans.append(assign(request, pools, progress))
        if any(answer.found.interrupted for answer in plans[-1].answers):
            break
    return sorted(plans, key=lambda each: (not each.feasible, each.time))


def _alone(place: int, request: Request, pools: Sequence[Pool], progress: Progress | None) -> PoolPlan:
    """One pool only: what the others must improve on."""
    pool = pools[place]
    answer = plan(request, pool.name, pool.device, pool.devices, pool.rates, progress)
    return PoolPlan("alone", [pool], [request.global_batch], [answer], _slowest([answer]), 0.0)


def _replicas(request: Request, pools: Sequence[Pool], progress: Progress | None) -> PoolPlan:
    """Data-parallel replicas of the whole model in each pool; sequences by speed."""
    units = max(each for each in divisors(request.global_batch) if each <= MOST_UNITS)
    if units < len(pools):
        raise InputError(
            f"--global-batch: {request.global_batch:,} sequences divide into {units} equal parts (at most "
            f"{MOST_UNITS}), too few for {len(pools)} pools; give a multiple of {len(pools)}."
        )
    size = request.global_batch // units

    def asked(place: int, share: int, after: Sequence[Answer]) -> Request:
        return dataclasses.replace(request, global_batch=share * size)

    shares, answers = _balanced(asked, pools, units, request, progress, _slowest)
    gradients = request.learned_parameters() * request.layout(1).gradient_bytes
    reduced = float(cross_pool_reduction(gradients, _links(pools, [1.0] * len(pools))))
    between = reduced + _for_all_ranks(pools, answers)
    sequences = [share * size for share in shares]
    return PoolPlan("replicas", pools, sequences, answers, _slowest(answers) + between, between)


def _stages(request: Request, pools: Sequence[Pool], progress: Progress | None) -> PoolPlan:
    """Consecutive layers in each pool; every micro-batch passes through all pools."""

    def asked(place: int, share: int, after: Sequence[Answer]) -> Request:
        part = part_of(request.model, share, place == 0, place == len(pools) - 1)
        return dataclasses.replace(request, model=part, passed_on=True, behind=held_sequences(request, after))

    def ends(answers: Sequence[Answer]) -> float:
        return _slowest(answers) + _behind_another(request, pools, answers)

    shares, answers = _balanced(asked, pools, int(request.model.layers), request, progress, ends)
    return PoolPlan("stages", pools, shares, answers, ends(answers), _behind_another(request, pools, answers))


def _balanced(
    asked: Callable[[int, int, Sequence[Answer]], Request],
    pools: Sequence[Pool],
    units: int,
    request: Request,
    progress: Progress | None,
    ends: Callable[[Sequence[Answer]], float],
) -> tuple[list[int], list[Answer]]:
    """(units of each pool, its plan): shared by peak FLOP/s, then by the speeds found; of `ROUNDS` the one that `ends`
    first [s]. `asked` of a pool (its place, its units, the plans of the pools after it)."""
    peak = COMPUTE_FORMATS.index(FORMATS[format_name(request.dtype)].compute)
    speeds = [float(pool.device.peak_flops[peak]) * pool.devices for pool in pools]
    few = max(each for each in divisors(units) if each <= max(FEW_UNITS, len(pools)))
    tried: list[tuple[list[int], list[Answer]]] = []
    for parts in (*[units] * ROUNDS, few if few >= len(pools) else units):
        shares = [units // parts * share for share in whole_shares(parts, [0.0] * len(pools), speeds, least=1)]
        if any(shares == before for before, _ in tried):
            continue
        answers: list[Answer] = []
        for place, (pool, share) in reversed([*enumerate(zip(pools, shares, strict=True))]):
            asks = asked(place, share, answers)
            answers.insert(0, plan(asks, pool.name, pool.device, pool.devices, pool.rates, progress))
        tried.append((shares, answers))
        if any(answer.found.interrupted or not answer.choices for answer in answers):
            break
        speeds = [share / answer.choices[0].metrics["time"] for share, answer in zip(shares, answers, strict=True)]
    feasible = [each for each in tried if all(answer.choices for answer in each[1])]
    return min(feasible, key=lambda each: ends(each[1])) if feasible else tried[-1]


def _slowest(answers: Sequence[Answer]) -> float:
    """The time of the slowest pool, NaN where one has no layout [s]."""
    if not all(answer.choices for answer in answers):
        return float("nan")
    return max(answer.choices[0].metrics["time"] for answer in answers)


def _behind_another(request: Request, pools: Sequence[Pool], answers: Sequence[Answer]) -> float:
    """What stages behind one another add to the slowest pool [s]: the first micro-batch in every stage of all others,
    each as long as the busiest, on its way there and back, and where the borders are slower than every pool, what they
    take longer. The schedule of a pool fills gaps of its own stages alone: W of one whose schedule puts it off is not
    waited for, nor does it fill what another pool leaves (played greedily, 120 such pairs of pools add 1.6 % of a step
    less in the mean, with W waited for 5.6 % less)."""
    if not all(answer.choices for answer in answers):
        return float("nan")
    best = [answer.choices[0] for answer in answers]
    rows = [each.layout["data"] * each.layout["microbatch"] for each in best]
    times = [each.metrics["time"] for each in best]
    bound = times.index(max(times))
    learns = 1.0 - float(request.layout(1).frozen)
    ways = [_passage(each, learns) * row for row, each in zip(rows, best, strict=True)]
    fill = sum(ways) - ways[bound]
    row = request.sequence * float(request.model.hidden) * float(request.layout(1).activation_bytes)
    borders = np.asarray(hand_over(jnp.asarray(row), _links(pools, [each.layout["pipeline"] for each in best])))
    sent = 2.0 * float(borders @ np.maximum(rows[:-1], rows[1:]))
    behind = fill / request.global_batch + sent + max(request.global_batch * float(borders.max()) - max(times), 0.0)
    return behind + _for_all_ranks(pools, answers)


def _for_all_ranks(pools: Sequence[Pool], answers: Sequence[Answer]) -> float:
    """What the slowest pool waits for the slowest rank of all pools, beyond that of its own [s]."""
    if not all(answer.choices for answer in answers):
        return float("nan")
    best = [answer.choices[0].metrics for answer in answers]
    bound = max(range(len(best)), key=lambda place: best[place]["time"])
    computed = sum(value for name, value in best[bound].items() if name.startswith("compute."))
    work = as_float(computed + best[bound]["idle"] - _updates(best[bound]))
    everyone, own = (as_float(float(ranks)) for ranks in (sum(pool.devices for pool in pools), pools[bound].devices))
    spread = pools[bound].rates.nominal.rank_spread
    return float(straggling_time(work, everyone, spread) - straggling_time(work, own, spread))


def _passage(choice: Choice, learns: float) -> float:
    """A step's sequences through all stages of a pool one after the other [s]: what is no wait for another stage, in
    each of them, without W, a third of the products, where the schedule puts it off (none where nothing `learns`)."""
    metrics = choice.metrics
    busy = metrics["time"] - metrics["idle"] - _updates(metrics)
    products = metrics["compute.gemm"] + metrics["compute.experts"]
    put_off = learns * products / 3.0 if SCHEDULES[int(choice.layout["schedule"])] in PUT_OFF else 0.0
    return choice.layout["pipeline"] * (busy - put_off)


def _updates(metrics: Mapping[str, float]) -> float:
    """What a step ends with: the optimizer, on the device and on the host [s]."""
    return metrics["compute.optimizer"] + metrics["compute.host_optimizer"]


def held_sequences(request: Request, after: Sequence[Answer]) -> float:
    """Sequences that the pools `after` another hold at most before the first gradient comes back [1]."""
    held = 0.0
    for answer in reversed(after):
        if answer.choices:
            layout = dataclasses.replace(request.layout(0), behind=held, **answer.choices[0].layout)
            held = float(live_microbatches(layout)[0] * layout.data * layout.microbatch)
    return held


def _links(pools: Sequence[Pool], stages: Sequence[float]) -> Float[Array, " pools"]:
    """The ports of one of the `stages` of each pool together, at the share that collectives reach [byte/s]."""
    return jnp.stack(
        [
            pool.devices / stage * pool.device.network_bandwidth * pool.rates.nominal.link_network
            for pool, stage in zip(pools, stages, strict=True)
        ]
    )


def check_pools(pools: Sequence[Pool]) -> None:
    """Raises `InputError` unless there are at least two pools that a network joins."""
    if len(pools) < 2:
        raise InputError("--pool: one pool is no cluster of pools; use --device and --n, or give --pool twice.")
    for pool in pools:
        if float(pool.device.network_bandwidth) <= 0.0:
            raise InputError(f"--pool: '{pool.name}' has no scale-out network to join other pools.")
