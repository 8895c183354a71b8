"""Many fleets at once, in tiles of lanes as `simulator.run` has them."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32

from jaxperf.serving.fleet.state import UNROUTED, Fleet, Load, Pool, alive, empty_fleet, of_requests
from jaxperf.serving.fleet.turn import coupled, fleet_turn
from jaxperf.serving.simulator.run import TILE, Simulated, enough, in_tiles, lanes_together
from jaxperf.serving.simulator.state import Requests, Settings, initial_state


class SimulatedFleet(eqx.Module):
    """What came of each lane: its `requests` N in the order of the load; the replica that each was `routed` to, -1
    where it was never sent, and its `place` there; what each replica did, with an axis R behind that of the lanes."""

    requests: Requests
    routed: Int32[Array, "*lanes N"]
    place: Int32[Array, "*lanes N"]
    replicas: Simulated


@jax.jit
def simulate_fleets(pool: Pool, load: Load) -> SimulatedFleet:
    """Simulate lanes of fleets, all with one policy, one routing and one function of step times.

    **Arguments:** `pool`, `load`: a leading axis of lanes, but for the function of step times.
    **Returns:** `SimulatedFleet` with the same leading axis. Clocks are 64-bit floats: JAX must be in 64 bits.
    """
    policy = coupled(pool.policy, pool.router, pool.places, load.follow_ups is not None)
    pool = dataclasses.replace(pool, policy=policy)

    def tile(lanes: tuple[Settings, Int32[Array, " lanes"], Load]) -> SimulatedFleet:
        settings, replicas, load = lanes
        return _tile(dataclasses.replace(pool, settings=settings, replicas=replicas), load)

    return in_tiles(
        tile,
        (pool.settings, pool.replicas, load),
        lanes_together() if pool.places == 1 else max(1, TILE // pool.places),
    )


def simulate_whole(pool: Pool, load: Load) -> SimulatedFleet:
    """As `simulate_fleets`, with room for every group of cached blocks and, if there is a log, for all runs."""
    while True:
        found = simulate_fleets(pool, load)
        sizes = enough(pool.sizes, found.replicas)
        if sizes == pool.sizes:
            return found
        pool = dataclasses.replace(pool, sizes=sizes)


def _tile(pool: Pool, load: Load) -> SimulatedFleet:
    axes = Pool(0, 0, None, pool.policy, pool.router, pool.places, pool.sizes)  # type: ignore
    fleet = jax.vmap(empty_fleet, (axes, 0))(pool, load)

    def any_alive(fleet: Fleet) -> Array:
        return jnp.any(jax.vmap(alive)(load, fleet))

    def turn(fleet: Fleet) -> Fleet:
        return jax.vmap(fleet_turn, (axes, 0, 0))(pool, load, fleet)

    fleet = jax.lax.while_loop(any_alive, turn, fleet)
    own = jax.vmap(_own_requests, (axes, 0, 0))(pool, load, fleet)
    replicas = Simulated(**{field.name: getattr(fleet.replicas, field.name) for field in dataclasses.fields(Simulated)})
    return SimulatedFleet(own, fleet.routed, fleet.place, replicas)


def _own_requests(pool: Pool, load: Load, fleet: Fleet) -> Requests:
    """The records of the fleet's requests; those that were never sent have the one they began with."""
    untouched = initial_state(pool.settings, load.requests, pool.sizes).requests

    def own(values: Array, before: Array) -> Array:
        return jnp.where(fleet.routed == UNROUTED, before, of_requests(values, fleet))

    return jax.tree.map(own, fleet.replicas.requests, untouched)
