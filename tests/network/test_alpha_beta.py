"""The closed forms of cost level (a): figures by hand, how they hang together, and slopes."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float
from jaxperf.network import alpha_beta as flat
from jaxperf.network import alpha_beta_exchange as exchange
from jaxperf.network.alpha_beta import Hop
from jaxperf.network.alpha_beta_best import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, REDUCE_SCATTER, best

ALPHA, RATE, GAMMA = 1e-6, 1e9, 1e-10
EVERY = {
    f"{kind} {name}": algorithm
    for kind, table in {
        **{"all-reduce": ALL_REDUCE, "reduce-scatter": REDUCE_SCATTER, "all-gather": ALL_GATHER},
        **{"all-to-all": ALL_TO_ALL, "broadcast": BROADCAST},
    }.items()
    for name, algorithm in table.items()
}
COMPILED = {name: jax.jit(algorithm) for name, algorithm in EVERY.items()}
every_algorithm = pytest.mark.parametrize("name", EVERY)
ranks = st.integers(1, 300)
sizes = st.floats(1.0, 1e12)


def hop(alpha: float = ALPHA, rate: float = RATE, gamma: float = GAMMA) -> Hop:
    return Hop(alpha, rate, gamma)


def run(name: str, count: float, size: float, where: Hop | None = None) -> float:
    return float(COMPILED[name](as_float(count), as_float(size), where or hop()))


# By hand: n = 8 and n = 6, S = 1 MB, alpha 1 us, 1 GB/s (1 MB takes 1000 us), gamma 0.1 ns/byte (1 MB takes 100 us).
@pytest.mark.parametrize(
    ("name", "eight", "six"),
    [
        ("all-reduce ring", 14 + 7 / 8 * 2100, 10 + 5 / 6 * 2100),
        ("all-reduce recursive-doubling", 3 * 1101, 2 * 1101 + 2 * 1001 + 100),
        ("all-reduce halving-doubling", 6 + 7 / 8 * 2100, 4 + 3 / 4 * 2100 + 2 * 1001 + 100),
        ("all-reduce direct", 2 + 7 / 8 * 2100, 2 + 5 / 6 * 2100),
        ("all-reduce one-shot", 1 + 7 * 1100, 1 + 5 * 1100),
        ("all-reduce binary-tree", 6 + 3200, 6 + 3200),
        ("all-reduce double-binary-tree", 6 + 7 / 8 * 2100, 6 + 5 / 6 * 2100),
        ("all-reduce in-switch", 2 + 9 / 8 * 1000, 2 + 7 / 6 * 1000),
        ("reduce-scatter ring", 7 + 7 / 8 * 1100, 5 + 5 / 6 * 1100),
        ("reduce-scatter halving", 3 + 7 / 8 * 1100, 2 + 3 / 4 * 1100 + 1101),
        ("all-gather doubling", 3 + 7 / 8 * 1000, 2 + 3 / 4 * 1000 + 1001),
        ("all-gather direct", 1 + 7 / 8 * 1000, 1 + 5 / 6 * 1000),
        ("all-to-all pairwise", 7 + 7 / 8 * 1000, 5 + 5 / 6 * 1000),
        ("all-to-all bruck", 3 * 501, 3 * 501),
        ("broadcast binomial", 3 * 1001, 3 * 1001),
        ("broadcast chain", (6**0.5 + 1000**0.5) ** 2, (4**0.5 + 1000**0.5) ** 2),
        ("broadcast scatter-gather", 10 + 7 / 4 * 1000, 8 + 5 / 3 * 1000),
        ("broadcast multicast", 1001, 1001),
    ],
)
def test_figures_by_hand(name: str, eight: float, six: float) -> None:
    assert run(name, 8, 1e6) == pytest.approx(eight * 1e-6, rel=1e-13)
    assert run(name, 6, 1e6) == pytest.approx(six * 1e-6, rel=1e-13)


@every_algorithm
def test_one_rank_takes_no_time(name: str) -> None:
    assert run(name, 1, 1e9) == 0.0


def test_two_ranks_have_little_choice() -> None:
    """At n = 2 ring, halving, direct and both trees move the same bytes; one-shot is one exchange of the buffer."""
    once = ALPHA + 1e6 / RATE + 1e6 * GAMMA
    for name in ("ring", "halving-doubling", "direct", "double-binary-tree"):
        expected = 2 * ALPHA + 1e6 / RATE + 0.5e6 * GAMMA
        assert run(f"all-reduce {name}", 2, 1e6) == pytest.approx(expected, rel=1e-13)
    for name in ("one-shot", "recursive-doubling"):
        assert run(f"all-reduce {name}", 2, 1e6) == pytest.approx(once, rel=1e-13)
    assert run("all-reduce binary-tree", 2, 1e6) == pytest.approx(once + ALPHA, rel=1e-13)
    for name in ("binomial", "chain", "multicast"):
        assert run(f"broadcast {name}", 2, 1e6) == pytest.approx(ALPHA + 1e6 / RATE, rel=1e-13)


@given(ranks, sizes)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(count: int, size: float) -> None:
    parts = {"ring": ("ring", "ring"), "halving-doubling": ("halving", "doubling"), "direct": ("direct", "direct")}
    for whole, (scatter, gather) in parts.items():
        total = run(f"reduce-scatter {scatter}", count, size) + run(f"all-gather {gather}", count, size)
        assert run(f"all-reduce {whole}", count, size) == pytest.approx(total, rel=1e-12)


@every_algorithm
@given(count=ranks, size=sizes, factor=st.floats(1.0, 100.0))
def test_more_bytes_slower_links_and_longer_hops_never_help(name: str, count: int, size: float, factor: float) -> None:
    time = run(name, count, size) * (1 - 1e-12)
    assert run(name, count, size * factor) >= time
    assert run(name, count, size, hop(rate=RATE / factor)) >= time
    assert run(name, count, size, hop(alpha=ALPHA * factor)) >= time


@every_algorithm
@given(count=st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128]), size=sizes)
def test_twice_the_ranks_never_take_less_time(name: str, count: int, size: float) -> None:
    if name == "all-reduce in-switch" and count > 1:  # (n+1)/n falls: each rank reads a smaller share
        assert run(name, count, size) >= run(name, 2 * count, size) >= 2 * ALPHA + size / RATE
        return
    assert run(name, 2 * count, size) >= run(name, count, size) * (1 - 1e-12)


@every_algorithm
@given(count=ranks, size=sizes, unit=st.floats(1e-3, 1e3))
def test_times_scale_with_the_unit_of_time(name: str, count: int, size: float, unit: float) -> None:
    scaled = run(name, count, size, Hop(ALPHA * unit, RATE / unit, GAMMA * unit))
    assert scaled == pytest.approx(unit * run(name, count, size), rel=1e-11)


@pytest.mark.parametrize("count", [2, 3, 5, 8, 64])
@every_algorithm
def test_no_all_reduce_beats_its_bytes(name: str, count: int) -> None:
    """Without help of the switch 2 (n-1)/n S must enter a rank, whatever the algorithm (Patarasuk, Yuan 2009)."""
    least = {"all-reduce": 2.0, "reduce-scatter": 1.0, "all-gather": 1.0}.get(name.split()[0])
    if least is None or name.endswith("in-switch"):
        assert run(name, count, 1e12) >= 0.5 * 1e12 / RATE
        return
    assert run(name, count, 1e12) >= least * (count - 1) / count * 1e12 / RATE * (1 - 1e-12)


@pytest.mark.parametrize("pieces", [1, 2, 7, 30, 55, 200])
def test_a_chain_broadcasts_as_fast_as_its_best_pieces(pieces: int) -> None:
    count, size = as_float(6.0), as_float(1e6)
    cut = exchange.pipelined_broadcast(count, size, hop(), as_float(pieces))
    assert float(cut) == pytest.approx((4 + pieces) * (1e-6 + 1e-3 / pieces), rel=1e-13)
    assert float(cut) >= run("broadcast chain", 6, 1e6)
    best_cut = exchange.pipelined_broadcast(count, size, hop(), as_float(math.sqrt(4 * 1e-3 / 1e-6)))
    assert float(best_cut) == pytest.approx(run("broadcast chain", 6, 1e6), rel=1e-13)
    assert run("broadcast chain", 6, 1.0) == pytest.approx(5 * (1e-6 + 1e-9), rel=1e-13)


def test_sends_and_the_other_exchanges_by_hand() -> None:
    eight, size = as_float(8.0), as_float(1e6)
    assert float(exchange.send(size, hop())) == pytest.approx(1001e-6)
    assert float(exchange.connected_all_to_all(eight, size, hop())) == pytest.approx(126e-6)
    skewed = exchange.imbalanced_all_to_all(eight, size, hop(), as_float(1.5))
    assert float(skewed) == pytest.approx(7e-6 + 1.5 * 875e-6)


def test_reductions_in_a_network_of_switches_by_hand() -> None:
    eight, size = as_float(8.0), as_float(1e6)
    assert float(flat.in_network_all_reduce(eight, size, hop(), as_float(3.0))) == pytest.approx(1006e-6)
    outer = Hop(5e-6, 1e8, 0.0)
    both = flat.hierarchical_all_reduce(as_float(4.0), as_float(2.0), size, hop(), outer)
    inside, between = 6e-6 + 3 / 4 * 2100e-6, 10e-6 + 2 * 0.5 * 2500e-6
    assert float(both) == pytest.approx(inside + between, rel=1e-13)


@given(ranks, sizes)
def test_a_hierarchy_of_one_level_is_a_ring(count: int, size: float) -> None:
    ring, one = run("all-reduce ring", count, size), as_float(1.0)
    inside = flat.hierarchical_all_reduce(as_float(count), one, as_float(size), hop(), hop(rate=1.0))
    between = flat.hierarchical_all_reduce(one, as_float(count), as_float(size), hop(rate=1.0), hop())
    assert float(inside) == pytest.approx(ring, rel=1e-12) and float(between) == pytest.approx(ring, rel=1e-12)


def test_powers_of_two_are_exact() -> None:
    counts = range(1, 5000)
    below = jax.vmap(flat.power_of_two_below)(jnp.asarray(counts, float))
    rounds = jax.vmap(flat.log2_rounds)(jnp.asarray(counts, float))
    assert below.tolist() == [2 ** (count.bit_length() - 1) for count in counts]
    assert rounds.tolist() == pytest.approx([(count - 1).bit_length() for count in counts], abs=1e-12)


def test_the_best_algorithm_changes_with_the_size() -> None:
    names = ("ring", "recursive-doubling", "halving-doubling", "one-shot")
    algorithms = [ALL_REDUCE[name] for name in names]
    pick = jax.jit(jax.vmap(lambda size: best(algorithms, as_float(8.0), size, hop(gamma=0.0))))
    tried = jnp.asarray([100.0, 2000.0, 1e9])
    found = pick(tried)
    assert [names[int(index)] for index in found.winner] == ["one-shot", "recursive-doubling", "halving-doubling"]
    for name in names:
        times = jnp.asarray([run(f"all-reduce {name}", 8, float(size), hop(gamma=0.0)) for size in tried])
        assert bool(jnp.all(found.time <= times * (1 + 1e-12)))


@every_algorithm
@pytest.mark.parametrize("count", [1, 2, 6, 8])
def test_slopes_are_finite_and_equal_finite_differences(name: str, count: int) -> None:
    def time(logs: jax.Array) -> jax.Array:
        size, alpha, rate = jnp.exp(logs)
        return EVERY[name](as_float(count), size, Hop(alpha, rate, as_float(GAMMA)))

    at = jnp.log(jnp.asarray([1e6, ALPHA, RATE]))
    slope = jax.grad(time)(at)
    for index in range(3):
        nudge = jnp.zeros(3).at[index].set(1e-5)
        difference = (time(at + nudge) - time(at - nudge)) / 2e-5
        assert float(slope[index]) == pytest.approx(float(difference), rel=1e-6, abs=1e-15)
