"""Collectives that run at the same time and share links: max-min fair rates, and when alpha-beta is too hopeful.

A session (a collective) at rate 1 byte/s loads link l with `load[l, c]` byte/s; `link_load_paths` builds that matrix.
Progressive filling (Bertsekas, Gallager, Data Networks, 6.5.2): all rates rise together until a link is full, the
sessions on it keep their rate, the others rise on. Shapes: L links, C sessions; both are structure.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

TOO_HOPEFUL = 1.1  # alpha-beta is off by more than 10 % beyond this slowdown


class Shared(eqx.Module):
    """Sessions beside each other: `time` until each is done [s], `alone`, what alpha-beta says of it by itself [s],
    `slowdown`, their ratio [1], and `off`, whether alpha-beta is off by more than 10 %."""

    time: Float[Array, " sessions"]
    alone: Float[Array, " sessions"]
    slowdown: Float[Array, " sessions"]
    off: Bool[Array, " sessions"]


def max_min_rates(
    load: Float[Array, "links sessions"],
    capacity: Float[Array, " links"],
    running: Bool[Array, " sessions"] | None = None,
) -> Float[Array, " sessions"]:
    """Max-min fair rates of the sessions that run, 0 of the others, infinite of one that loads no link [byte/s].

    **Arguments:** `load` [1], not negative; `capacity` [byte/s], positive; `running`: all of them if `None`.
    """
    links, sessions = load.shape
    start = jnp.ones(sessions, bool) if running is None else running
    free = jnp.where(start, jnp.inf, 0.0).astype(capacity.dtype)

    def fill(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        rates, rising = state
        wanted = load @ jnp.where(rising, 1.0, 0.0).astype(capacity.dtype)
        taken = load @ jnp.where(rising, 0.0, jnp.where(jnp.isinf(rates), 0.0, rates))
        asked = wanted > 0.0
        level = jnp.where(asked, jnp.maximum(capacity - taken, 0.0) / jnp.where(asked, wanted, 1.0), jnp.inf)
        lowest = jnp.min(level)
        full = asked & (level <= lowest)
        stops = rising & jnp.any(full[:, None] & (load > 0.0), axis=0)
        return (jnp.where(stops, lowest, rates), rising & ~stops), None

    (rates, _), _ = jax.lax.scan(fill, (free, start), length=min(links, sessions))
    return rates


def finish_times(
    load: Float[Array, "links sessions"], capacity: Float[Array, " links"], size: Float[Array, " sessions"]
) -> Float[Array, " sessions"]:
    """When each of the sessions that start together has moved its `size` [byte] [s].

    Who is done leaves its rate to the others; who loads no link is done at once, who has a link of capacity 0 never.
    """
    sessions = load.shape[1]

    def drain(state: tuple[Array, Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array, Array], None]:
        left, now, done_at, running = state
        rates = max_min_rates(load, capacity, running)
        unbound = running & jnp.isinf(rates)
        moving = running & (rates > 0.0) & ~unbound
        needed = jnp.where(moving, left / jnp.where(moving, rates, 1.0), jnp.where(unbound, 0.0, jnp.inf))
        step = jnp.min(needed)
        ends = running & (needed <= step) & ~jnp.isinf(needed)
        step = jnp.where(jnp.isinf(step), 0.0, step)
        left = jnp.where(moving, jnp.maximum(left - jnp.where(moving, rates, 0.0) * step, 0.0), left)
        return (left, now + step, jnp.where(ends, now + step, done_at), running & ~ends), None

    start = (size, jnp.zeros((), size.dtype), jnp.full_like(size, jnp.inf), jnp.ones(sessions, bool))
    (_, _, done_at, _), _ = jax.lax.scan(drain, start, length=sessions)
    return done_at


def shared_time(
    load: Float[Array, "links sessions"],
    capacity: Float[Array, " links"],
    size: Float[Array, " sessions"],
    latency: Float[Array, " sessions"],
) -> Shared:
    """Sessions of `size` [byte] and `latency` [s], their alphas, that start together on links of `capacity` [byte/s].

    Alone a session has its narrowest link, S max_l(load / capacity); beside the others it has its max-min share.
    """
    alone = latency + size * jnp.max(load / capacity[:, None], axis=0)
    time = latency + finish_times(load, capacity, size)
    slowdown = jnp.where(alone > 0.0, time / jnp.where(alone > 0.0, alone, 1.0), 1.0)
    return Shared(time, alone, slowdown, slowdown > TOO_HOPEFUL)
