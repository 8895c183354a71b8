"""TTFT, TPOT and throughput of configurations from their pieces and the fitted scalars, by `jaxperf.serving.steady`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from calibration.serving.engines import mixing_share, most_running, prompts_together, works_ahead
from calibration.serving.layouts import Deployed
from calibration.serving.pieces import KINDS, PROMPTS, SEQUENCES, Pieces, pieces_of
from calibration.serving.split import prefillers
from jaxperf.core.numerics import Scalar, as_float, overlap
from jaxperf.core.sustained_file import SustainedTable
from jaxperf.serving.arriving import Arriving, open_loop, open_pools
from jaxperf.serving.queueing.engine import Discipline, chunked, prefill_first
from jaxperf.serving.steady import Load, Schedule, Steady, Steps, aggregated, disaggregated, fixed_batch

APART = ("pools", "open pools")  # of `LAWS`
HOST_SHARPNESS = 4.0  # between what the host launches and what the device works: 19 % above the larger of two equals
MOST_HELD = 0.125  # share of the requests in flight: the most that was measured (0.108: TRT-LLM, Llama 3.1 8B, 8)
Values = Mapping[str, Scalar]


class Setup(eqx.Module):
    """What a configuration asks: `replicas`, `data`: ranks that share the requests [1]; `load`: requests in flight
    [1], of an open loop requests a second [1/s]; `prompt`, `output` tokens [1]; `stages`: of the pipeline [1];
    `mixing`: share of prefill steps that decode too [1]; `ahead`: 1 where the host works ahead of the device, or 0;
    `alike`: 1 where all requests have the same lengths, or 0; `most`: requests that a rank runs together [1];
    `together`: prompts that a step has room for [1]; `decoders`: of two pools the workers that decode, 0 where that is
    not stated [1]."""

    replicas: Float[Array, "*batch"]
    data: Float[Array, "*batch"]
    load: Float[Array, "*batch"]
    prompt: Float[Array, "*batch"]
    output: Float[Array, "*batch"]
    stages: Float[Array, "*batch"]
    mixing: Float[Array, "*batch"]
    ahead: Float[Array, "*batch"]
    alike: Float[Array, "*batch"]
    most: Float[Array, "*batch"]
    together: Float[Array, "*batch"]
    decoders: Float[Array, "*batch"]


@dataclass(frozen=True)
class Rows:
    """Configurations as the compiled functions take them: `setups` and `pieces` stacked, `kinds[law]`: the rows that
    each of `LAWS` answers; `others`: those of them that may have another layout than is stated, as `places` among the
    rows and what they are with it."""

    setups: Setup
    pieces: Pieces
    kinds: Mapping[str, np.ndarray]
    others: tuple[np.ndarray, Rows] | None = None


def rows_of(points: Sequence[Deployed], rates: SustainedTable) -> Rows:
    """The rows of configurations, leaves [rows]; for pools with the layout that a table leaves open."""
    left_open = [law_of(point) in APART and point.by_requests is not point for point in points]
    places = np.flatnonzero(left_open)
    spread = [points[place].by_requests for place in places.tolist()]
    others = (places, _rows(spread, rates)) if spread else None
    return dataclasses.replace(_rows(points, rates), others=others)


def _rows(points: Sequence[Deployed], rates: SustainedTable) -> Rows:
    laws = np.array([law_of(point) for point in points])
    setups = Setup(
        replicas=as_float(np.array([p.replicas for p in points])),
        data=as_float(np.array([p.data for p in points])),
        load=as_float(np.array([p.rate if np.isnan(p.concurrency) else p.concurrency for p in points])),
        prompt=as_float(np.array([p.prompt for p in points])),
        output=as_float(np.array([p.output for p in points])),
        stages=as_float(np.array([p.pipeline for p in points])),
        mixing=as_float(np.array([_mixing(p) for p in points])),
        ahead=as_float(np.array([float(_ahead(p)) for p in points])),
        alike=as_float(np.array([float(not p.drawn) for p in points])),
        most=as_float(np.array([most_running(p.configuration.engine, p.spec.memory_capacity.si) for p in points])),
        together=as_float(np.array([prompts_together(p.configuration.engine, p.room, p.prompt) for p in points])),
        decoders=as_float(np.array([p.decoders for p in points])),
    )
    kinds = {name: np.flatnonzero(laws == name) for name in LAWS if (laws == name).any()}
    return Rows(setups, jax.tree.map(jnp.asarray, pieces_of(points, rates)), kinds)


def _ahead(point: Deployed) -> bool:
    """Whether the host works ahead of the device; a fixed batch has no server that would."""
    given = point.configuration
    return given.mode != "static" and works_ahead(given.engine, given.version)


def _mixing(point: Deployed) -> float:
    """Share of the prefill steps that decode too: all where a source set its engine up so, else its default."""
    return 1.0 if point.mixed else mixing_share(point.configuration.engine)


def law_of(point: Deployed) -> str:
    """Which of `LAWS` a configuration is under; two pools need two workers."""
    if point.configuration.mode == "static":
        return "static"
    apart = point.configuration.mode == "disagg" and point.replicas > 1.0
    if np.isnan(point.concurrency):
        return "open pools" if apart else "open" if _mixing(point) else "open, prompts first"
    return "pools" if apart else "closed"


def answers(values: Mapping[str, Float[Array, " rows"]], rows: Rows) -> tuple[Steady, Float[Array, " rows"]]:
    """The steady state of every row, leaves [rows], `throughput` of the whole system, and its utilization where the
    load is open, else 0 [1]. Of two layouts that a row may have it is the one that serves, or could serve, more."""
    found = _answers(values, rows)
    if rows.others is None:
        return found
    places, others = rows.others
    other = _answers({name: value[places] for name, value in values.items()}, others)
    own, served = other[0].throughput, found[0].throughput[places]
    more = (own > served) | ((own == served) & (other[1] < found[1][places]))
    return jax.tree.map(lambda own, new: own.at[places].set(jnp.where(more, new, own[places])), found, other)


def _answers(values: Mapping[str, Float[Array, " rows"]], rows: Rows) -> tuple[Steady, Float[Array, " rows"]]:
    """The steady state of every row with the layout it states."""
    found = None
    for name, own in rows.kinds.items():
        part = jax.tree.map(lambda leaf, at=own: leaf[at], (dict(values), rows.setups, rows.pieces))
        made = _COMPILED[name](*part)
        empty = jax.tree.map(lambda leaf: jnp.zeros(rows.setups.load.shape, leaf.dtype), made)
        found = jax.tree.map(lambda all_, leaf, at=own: all_.at[at].set(leaf), found or empty, made)
    if found is None:
        raise ValueError("answers needs at least one row")
    return found


def closed(values: Values, setup: Setup, pieces: Pieces) -> tuple[Steady, Scalar]:
    """Requests in flight shared by alike ranks, each of which prefills and decodes."""
    ranks = setup.replicas * setup.data
    one = _shared(values, setup, pieces, burst_share(values, setup), setup.alike * setup.mixing)
    found = one(jnp.maximum(setup.load / ranks, 1.0))
    return _whole(found, jnp.minimum(ranks, setup.load)), jnp.zeros_like(ranks)


def opened(discipline: Discipline, values: Values, setup: Setup, pieces: Pieces) -> tuple[Steady, Scalar]:
    """Requests at a rate, shared by alike ranks; they come one by one, so that no burst and no row is."""
    ranks, zero = setup.replicas * setup.data, jnp.zeros_like(setup.load)
    slots = _slots(values, setup, pieces)
    load = Load(slots, setup.output, slots, setup.together)
    arriving = Arriving(setup.load / ranks, setup.prompt, values["first_each"] * setup.data)
    schedule = Schedule(setup.mixing, zero, values["wait"], values["first"], zero, setup.ahead, zero)
    found, utilization = open_loop(discipline, steps_of(values, setup, pieces), load, schedule, arriving)
    return _whole(found, ranks), utilization


def static(values: Values, setup: Setup, pieces: Pieces) -> tuple[Steady, Scalar]:
    """One batch, prefilled and decoded together."""
    ranks = setup.replicas * setup.data
    load = Load(jnp.maximum(setup.load / ranks, 1.0), setup.output, setup.most, 1.0)
    found = fixed_batch(steps_of(values, setup, pieces), load, Schedule(0.0, 0.0, 0.0, values["first"]))
    return _whole(found, jnp.minimum(ranks, setup.load)), jnp.zeros_like(ranks)


def beside_work(values: Values, setup: Setup, pieces: Pieces) -> Scalar:
    """Of a decode step of a fixed batch the floors of its kernels and what the host adds [s]."""
    batch = jnp.maximum(setup.load / (setup.replicas * setup.data), 1.0)
    floors = values["decode"] * values["floor"] * pieces.decode[:, KINDS.index("floor")]
    flight = jnp.maximum(setup.stages * pieces.stages, 1.0)
    return along(batch, SEQUENCES, floors * flight) + _hosting(values, batch)


def pools(values: Values, setup: Setup, pieces: Pieces) -> tuple[Steady, Scalar]:
    """The split of the workers into prefill and decode that is stated, or that serves most."""
    steps, slots = steps_of(values, setup, pieces), _slots(values, setup, pieces)
    first = values["first"] + values["handover"] + values["first_each"] * setup.load
    schedule = Schedule(0.0, values["pool_synchrony"], values["wait"], first)
    load, workers = Load(setup.load, setup.output, slots, setup.together), jnp.maximum(setup.replicas, 2.0)

    def split(prefill: Scalar) -> Steady:
        decoders = jnp.maximum(workers - prefill, 1.0)
        state = disaggregated(steps, load, schedule, prefill * setup.data, decoders * setup.data, pieces.transfer)
        return eqx.tree_at(lambda s: s.throughput, state, jnp.where(prefill < workers, state.throughput, 0.0))

    every = jax.vmap(split)(prefillers(workers, setup.decoders))
    best = jnp.argmax(every.throughput)
    return jax.tree.map(lambda leaf: leaf[best], every), jnp.zeros_like(slots)


def opened_pools(values: Values, setup: Setup, pieces: Pieces) -> tuple[Steady, Scalar]:
    """Requests at a rate, on the split of the workers into prefill and decode that could serve most."""
    slots, workers = _slots(values, setup, pieces), jnp.maximum(setup.replicas, 2.0)
    schedule = Schedule(0.0, 0.0, values["wait"], values["first"] + values["handover"])
    load = Load(slots, setup.output, slots, setup.together)
    arriving = Arriving(setup.load, setup.prompt, values["first_each"])
    engines = (prefillers(workers, setup.decoders) * setup.data, workers * setup.data, pieces.transfer)
    return open_pools(steps_of(values, setup, pieces), load, schedule, arriving, *engines)


Law = Callable[[Values, Setup, Pieces], tuple[Steady, Scalar]]
LAWS: Mapping[str, Law] = {
    "closed": closed,
    "open": functools.partial(opened, chunked),
    "open, prompts first": functools.partial(opened, prefill_first),
    "static": static,
    "pools": pools,
    "open pools": opened_pools,
}
_COMPILED = {name: jax.jit(jax.vmap(law)) for name, law in LAWS.items()}


def _shared(values: Values, setup: Setup, pieces: Pieces, synchrony: Scalar, row: Scalar) -> Callable[[Scalar], Steady]:
    """The closed loop of one rank as a function of its requests in flight, the share `synchrony` of which start in a
    burst and the share `row` of the others come back in a row."""
    steps, slots = steps_of(values, setup, pieces), _slots(values, setup, pieces)

    def loop(concurrency: Scalar) -> Steady:
        # Every replica has a server of its own, which all its ranks share.
        first = values["first"] + values["first_each"] * concurrency * setup.data
        turn = values["turn"] + values["tokenize"] * setup.prompt
        schedule = Schedule(setup.mixing, synchrony, values["wait"], first, row, setup.ahead, turn)
        load = Load(concurrency, setup.output, slots, setup.together, held_of(values["held"], concurrency))
        return aggregated(steps, load, schedule)

    return loop


def held_of(held: Scalar, concurrency: Scalar) -> Scalar:
    """Of `concurrency` requests in flight on a rank those between client and engine [1]."""
    return jnp.minimum(held, MOST_HELD * concurrency)


def burst_share(values: Values, setup: Setup) -> Scalar:
    """Share of requests that start in one burst [1]: of the client's first wave, and of all later ones where lengths
    are alike and they stay together.

    An engine that prefills before it decodes on has a burst of equal lengths decode in step, so that it ends together
    and the next one is a burst again (any number of waves, as a simulation of such an engine shows); one that decodes
    in its prefill steps spreads it out.
    """
    together = setup.alike * (1.0 - setup.mixing) * values["lockstep"]
    return values["synchrony"] + (1.0 - values["synchrony"]) * together


def _slots(values: Values, setup: Setup, pieces: Pieces) -> Scalar:
    """Requests that run together on a rank; where it has no memory for the weights themselves, its labels are not those
    of what ran, and no limit is known."""
    held = jnp.where(pieces.slots > 0.0, pieces.slots * values["slots"], setup.most)
    return jnp.clip(held, 1.0, setup.most)


def _whole(state: Steady, ranks: Scalar) -> Steady:
    return eqx.tree_at(lambda s: s.throughput, state, state.throughput * ranks)


def steps_of(values: Values, setup: Setup, pieces: Pieces) -> Steps:
    """The step times of a replica with the fitted scalars in them.

    The host launches kernels ahead of the device, so the longer of the two counts. What it does once a decode step and
    for each of its sequences is added where the device waits for it; where it works ahead the longer counts again.
    """
    of_decode = jnp.stack([values[kind] for kind in KINDS])
    of_prefill = jnp.stack([values.get(f"prefill_{kind}", jnp.ones_like(setup.load)) for kind in KINDS])
    flight = jnp.maximum(setup.stages * pieces.stages, 1.0)
    decodes = values["decode"] * pieces.decode @ of_decode * flight
    reads = values["decode"] * pieces.decode[:, KINDS.index("attention")] * values["attention"]
    prefills = values["prefill"] * pieces.prefill @ of_prefill
    decodes = overlap(
        decodes, pieces.launches * values["launch"] * jnp.ones_like(decodes), sharpness=as_float(HOST_SHARPNESS)
    )
    launching = pieces.launches * values["prefill_launch"] * jnp.ones_like(prefills)
    prefills = overlap(prefills, launching, sharpness=as_float(HOST_SHARPNESS))

    def decode(batch: Scalar) -> Scalar:
        device, host = along(batch, SEQUENCES, decodes), _hosting(values, batch)
        longer = overlap(device, host, sharpness=as_float(HOST_SHARPNESS))
        return jnp.where(setup.ahead > 0.0, longer, device + host)

    return Steps(
        decode=decode,
        attention=lambda batch: along(batch, SEQUENCES, reads),
        prefill=lambda prompts: along(prompts, PROMPTS, prefills) + values["prefill_step"],
    )


def _hosting(values: Values, batch: Scalar) -> Scalar:
    """What the host does once a decode step and for each of its sequences [s]."""
    return values["step"] + values["sequence"] * batch


def along(count: Scalar, knots: Sequence[float], times: Float[Array, " K"]) -> Scalar:
    """Times between the knots by straight lines, beyond the last along its line [s]."""
    inside = jnp.interp(count, as_float(knots), times)
    slope = (times[-1] - times[-2]) / (knots[-1] - knots[-2])
    return inside + jnp.maximum(count - knots[-1], 0.0) * slope
