"""How many replicas for prefill and how many for decode: every division of so many devices, in one search."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64

from hwspecs.errors import InputError
from jaxperf.serving.fleet.capacity import (
    PRECISION,
    RATES,
    Capacity,
    after_stages,
    at_rates,
    capacity,
    columns_of,
    repeated,
    share_beyond,
    unit_arrivals,
    with_lanes,
)
from jaxperf.serving.fleet.disaggregated import simulate_whole_disaggregated
from jaxperf.serving.fleet.settings import MOST_REPLICAS
from jaxperf.serving.fleet.slo import Slo
from jaxperf.serving.fleet.state import Load, Pool
from jaxperf.serving.fleet.transfer import Transfer
from jaxperf.serving.simulator.metrics import Columns
from jaxperf.serving.workloads.drawn import Stage


@dataclass(frozen=True)
class Divisions:
    """Replicas of the two pools, one pair for each division of the devices."""

    prefill: np.ndarray
    decode: np.ndarray


def divisions(devices: int, prefill_size: int, decode_size: int) -> Divisions:
    """All divisions of `devices` in which both pools have a replica and no other replica would fit.

    **Arguments:** `prefill_size`, `decode_size`: devices of one replica of each pool.
    **Raises:** `InputError` where the devices are too few for one replica of each, or make too many of one.
    """
    if devices < prefill_size + decode_size:
        raise InputError(
            f"{devices} devices are too few: a prefill replica takes {prefill_size} and a decode replica {decode_size}."
        )
    most = MOST_REPLICAS * min(prefill_size, decode_size)
    if devices > most:
        raise InputError(f"{devices:,} devices are too many: with {most:,} a pool has {MOST_REPLICAS:,} replicas.")
    prefill = np.arange(1, (devices - decode_size) // prefill_size + 1)
    decode = (devices - prefill * prefill_size) // decode_size
    _, first = np.unique(decode[::-1], return_index=True)  # of those with as many decodes, the one with most prefills
    kept = np.sort(len(prefill) - 1 - first)
    return Divisions(prefill[kept], decode[kept])


def disaggregated_capacity(
    prefill: Pool,
    decode: Pool,
    transfer: Transfer,
    load: Load,
    slo: Slo,
    first_from_decode: bool = False,
    rates: int = RATES,
    precision: float = PRECISION,
    stages: Sequence[Stage] = (),
) -> Capacity:
    """The capacity of each lane of two pools, for its load; `stages` as in `fleet_capacity`.

    **Raises:** `InputError` as `unit_arrivals`, `capacity` and `simulate_whole_disaggregated` do.
    """
    units = unit_arrivals(load.requests)

    def simulate(tried: Float64[np.ndarray, "L K"]) -> Columns:
        lanes, order, asked = after_stages(at_rates(load, units, tried), stages)
        pools = (with_lanes(prefill, rates), with_lanes(decode, rates))
        sent = repeated(transfer, rates)
        sent = dataclasses.replace(sent, wire=jnp.take_along_axis(sent.wire, jnp.asarray(order), axis=1))
        found = simulate_whole_disaggregated(*pools, sent, lanes, first_from_decode)
        columns = columns_of(found.requests, lanes.requests, tried.shape, order, asked)
        totals = [one.replicas.totals for one in (found.prefill, found.decode)]
        return {**columns, "beyond": share_beyond(totals, tried.shape)}

    return capacity(simulate, slo, units.shape[0], rates, precision)


def divided(prefill: Pool, decode: Pool, among: Divisions) -> tuple[Pool, Pool]:
    """Pools with one lane as pools with a lane for each division."""

    def lanes(pool: Pool, replicas: np.ndarray) -> Pool:
        pool = with_lanes(pool, len(replicas))
        return dataclasses.replace(pool, replicas=jnp.asarray(replicas, jnp.int32), places=int(replicas.max()))

    return lanes(prefill, among.prefill), lanes(decode, among.decode)
