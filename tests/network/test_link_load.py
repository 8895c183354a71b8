"""Max-min fair shares against exact rational arithmetic, and what collectives beside each other cost."""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.network.link_load import finish_times, max_min_rates, shared_time
from jaxperf.network.link_load_paths import FatTree, all_to_all_flows, incast_flows, load_matrix, ring_flows
from jaxperf.network.topology import leaf_share

LINKS, SESSIONS = 4, 5  # one shape, compiled once
RATES = jax.jit(max_min_rates)
FINISH = jax.jit(finish_times)


def exact_rates(load: list[list[int]], capacity: list[int], running: set[int]) -> dict[int, Fraction]:
    """Progressive filling in rational numbers, as in the textbook."""
    rates, rising = dict.fromkeys(running, Fraction(0)), set(running)
    while rising:
        room = [
            (Fraction(cap) - sum(row[c] * rates[c] for c in running - rising), sum(row[c] for c in rising))
            for row, cap in zip(load, capacity, strict=True)
        ]
        level = min(free / wanted for free, wanted in room if wanted)
        full = [row for row, (free, wanted) in zip(load, room, strict=True) if wanted and free / wanted == level]
        stopped = {c for c in rising if any(row[c] for row in full)}
        rates.update(dict.fromkeys(stopped, level))
        rising -= stopped
    return rates


def exact_finish(load: list[list[int]], capacity: list[int], sizes: list[int]) -> list[Fraction]:
    left, now = {c: Fraction(size) for c, size in enumerate(sizes)}, Fraction(0)
    done = [Fraction(0)] * len(sizes)
    while left:
        rates = exact_rates(load, capacity, set(left))
        step = min(left[c] / rates[c] for c in left)
        now += step
        left = {c: size - step * rates[c] for c, size in left.items()}
        for c in [c for c, size in left.items() if size == 0]:
            done[c] = now
            del left[c]
    return done


loads = st.lists(st.lists(st.integers(0, 2), min_size=SESSIONS, max_size=SESSIONS), min_size=LINKS, max_size=LINKS).map(
    lambda rows: [*rows[:-1], [1 if not any(row[c] for row in rows) else rows[-1][c] for c in range(SESSIONS)]]
)
capacities = st.lists(st.integers(1, 50), min_size=LINKS, max_size=LINKS)
byte_counts = st.lists(st.integers(1, 1000), min_size=SESSIONS, max_size=SESSIONS)


@given(loads, capacities)
def test_rates_are_the_exact_max_min_shares(load: list[list[int]], capacity: list[int]) -> None:
    found = RATES(jnp.asarray(load, float), jnp.asarray(capacity, float))
    exact = exact_rates(load, capacity, set(range(SESSIONS)))
    np.testing.assert_allclose(found, [float(exact[c]) for c in range(SESSIONS)], rtol=1e-11)


@given(loads, capacities)
def test_no_link_is_overfull_and_every_session_has_a_full_one(load: list[list[int]], capacity: list[int]) -> None:
    rates = np.asarray(RATES(jnp.asarray(load, float), jnp.asarray(capacity, float)))
    used = np.asarray(load) @ rates
    assert (used <= np.asarray(capacity) * (1 + 1e-12)).all()
    full = used >= np.asarray(capacity) * (1 - 1e-11)
    assert all(any(full[link] and load[link][c] for link in range(LINKS)) for c in range(SESSIONS))


@given(loads, capacities, byte_counts)
def test_finish_times_are_exact(load: list[list[int]], capacity: list[int], sizes: list[int]) -> None:
    found = FINISH(*(jnp.asarray(values, float) for values in (load, capacity, sizes)))
    np.testing.assert_allclose(found, [float(time) for time in exact_finish(load, capacity, sizes)], rtol=1e-9)


def test_the_textbook_line_of_links() -> None:
    """One long session over three links and a short one on each: capacities 1, 2, 3 give 1/2, 1/2, 3/2, 5/2."""
    load = jnp.asarray([[1.0, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]])
    rates = max_min_rates(load, jnp.asarray([1.0, 2.0, 3.0]))
    assert rates.tolist() == [0.5, 0.5, 1.5, 2.5]
    paused = max_min_rates(load, jnp.asarray([1.0, 2.0, 3.0]), jnp.asarray([False, True, True, True]))
    assert paused.tolist() == [0.0, 1.0, 2.0, 3.0]
    free = max_min_rates(jnp.asarray([[1.0, 0.0]]), jnp.asarray([4.0]))
    assert free.tolist() == [4.0, float("inf")]


def test_two_collectives_on_one_port_say_that_alpha_beta_is_off() -> None:
    tree = FatTree(nodes=4, leaf_nodes=4, port=50e9)
    load = load_matrix(tree, [ring_flows([0, 1]), ring_flows([0, 1]), ring_flows([2, 3])])
    found = shared_time(
        jnp.asarray(load), jnp.asarray(tree.capacities()), jnp.full(3, 1e9), jnp.asarray([1e-3, 1e-3, 1e-3])
    )
    assert found.time.tolist() == pytest.approx([41e-3, 41e-3, 21e-3])
    assert found.alone.tolist() == pytest.approx([21e-3] * 3)
    assert found.off.tolist() == [True, True, False]


def test_who_is_done_leaves_its_rate_to_the_others() -> None:
    """Half rate until the smaller one is done at 2 s, then the full rate: 1 + 3 bytes at 1 byte/s."""
    found = finish_times(jnp.ones((1, 2)), jnp.ones(1), jnp.asarray([1.0, 3.0]))
    assert found.tolist() == [2.0, 4.0]


def test_who_loads_nothing_is_done_at_once_and_who_has_no_link_never() -> None:
    load = jnp.asarray([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert finish_times(load, jnp.asarray([2.0, 0.0]), jnp.ones(3)).tolist() == [0.5, float("inf"), 0.0]


def shared(tree: FatTree, sessions: list[dict[tuple[int, int], float]]) -> list[float]:
    """Rates of up to five sessions, padded with links and sessions that load nothing so that one program does."""
    load, capacity = np.zeros((24, SESSIONS)), np.ones(24)
    matrix = load_matrix(tree, sessions)
    load[: matrix.shape[0], : len(sessions)], capacity[: matrix.shape[0]] = matrix, tree.capacities()
    return np.asarray(RATES(jnp.asarray(load), jnp.asarray(capacity)))[: len(sessions)].tolist()


def test_an_oversubscribed_spine_slows_what_crosses_it() -> None:
    """Eight nodes, leaves of four, 4:1: one port of uplink a leaf."""
    tree = FatTree(nodes=8, leaf_nodes=4, port=50.0, oversubscription=4.0)
    inside = all_to_all_flows([0, 1, 2, 3])
    across = all_to_all_flows(list(range(8)))
    assert shared(tree, [inside]) == [pytest.approx(50.0)]
    assert shared(tree, [ring_flows(list(range(8)))]) == [pytest.approx(50.0)]  # one message leaves each leaf
    assert shared(tree, [across]) == [pytest.approx(50.0 / (4 * 4 / 7))]
    assert shared(tree, [ring_flows([0, 4]), ring_flows([1, 5])]) == [25.0, 25.0]
    four = [ring_flows([node, node + 4]) for node in range(4)]
    assert shared(tree, four) == [12.5] * 4


@pytest.mark.parametrize(("nodes", "leaf", "over"), [(8, 4, 1.0), (8, 4, 2.0), (8, 2, 4.0), (6, 3, 8.0)])
def test_the_closed_form_of_an_oversubscribed_all_to_all_is_its_max_min_rate(
    nodes: int, leaf: int, over: float
) -> None:
    tree = FatTree(nodes=nodes, leaf_nodes=leaf, port=50.0, oversubscription=over)
    share = leaf_share(*map(as_float, (nodes, leaf, over)))
    assert shared(tree, [all_to_all_flows(list(range(nodes)))]) == [pytest.approx(50.0 * float(share), rel=1e-12)]


def test_incast_shares_the_receivers_port() -> None:
    tree = FatTree(nodes=8, leaf_nodes=8, port=50.0)
    assert shared(tree, [incast_flows(range(1, 6), 0)]) == [10.0]


def test_hashed_flows_collide_where_pooled_ones_do_not() -> None:
    pooled = FatTree(nodes=8, leaf_nodes=4, port=50.0)
    sessions = [ring_flows([0, 4]), ring_flows([1, 5])]
    assert shared(pooled, sessions) == [50.0, 50.0]
    single = FatTree(nodes=8, leaf_nodes=4, port=50.0, uplinks=4)
    for uplink, rate in ((0, 25.0), (1, 50.0)):
        hashed = [dict.fromkeys(sessions[0], 0), dict.fromkeys(sessions[1], uplink)]
        load = jnp.asarray(load_matrix(single, sessions, hashed))
        assert max_min_rates(load, jnp.asarray(single.capacities())).tolist() == [rate, rate]


def test_shares_are_batched_and_have_slopes() -> None:
    load = jnp.asarray([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    capacity = jnp.asarray([[10.0, 30.0], [40.0, 8.0]])
    rates = jax.jit(jax.vmap(max_min_rates, in_axes=(None, 0)))(load, capacity)
    assert rates.tolist() == [[5.0, 5.0, 25.0], [36.0, 4.0, 4.0]]
    slope = jax.jit(jax.jacrev(lambda caps: max_min_rates(load, caps)))(capacity[0])
    assert slope.tolist() == [[0.5, 0.0], [0.5, 0.0], [-0.5, 1.0]]
    finish = jax.jit(jax.jacfwd(lambda sizes: finish_times(jnp.ones((1, 2)), jnp.ones(1), sizes)))
    assert finish(jnp.asarray([1.0, 3.0])).tolist() == [[2.0, 0.0], [1.0, 1.0]]


def test_places_that_do_not_exist_are_refused() -> None:
    tree = FatTree(nodes=4, leaf_nodes=2, port=1.0)
    with pytest.raises(InputError, match="Node 4 is not one of the 4"):
        load_matrix(tree, [ring_flows([0, 4])])
    with pytest.raises(InputError, match="Uplink 1 is not one of the 1"):
        load_matrix(tree, [ring_flows([0, 1])], [{(0, 1): 1}])
    with pytest.raises(InputError, match="at least one node"):
        FatTree(nodes=0, leaf_nodes=1, port=1.0)
