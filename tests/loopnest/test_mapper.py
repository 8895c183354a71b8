"""The mapper on spaces small enough to try every mapping: it finds the best, and the bound never exceeds it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.constraints import LevelConstraints, check_constraints
from jaxperf.loopnest.evaluate import nest_cost
from jaxperf.loopnest.feasible import Reason
from jaxperf.loopnest.genomes import Genome, genome_mapping, random_genomes
from jaxperf.loopnest.lower_bound import Relaxed, best_orders, relaxed_costs
from jaxperf.loopnest.lower_bound_branch import TOLERANCE, prove
from jaxperf.loopnest.lower_bound_compulsory import compulsory, distinct_words
from jaxperf.loopnest.mapper import Effort, find_mapping
from jaxperf.loopnest.mapspace import MapSpace, build_space, prime_factors
from jaxperf.loopnest.mapspace_factors import count_ways, factorings, feasible_rows
from jaxperf.loopnest.problem import Names, Problem, build_problem
from jaxperf.loopnest.search import CHILDREN, OBJECTIVES, objective_of
from jaxperf.loopnest.shapes import gemm

LEVELS = ("registers", "memory")
KEPT = ((False, True, True), (True, True, True))
LIMITS = {
    "registers": LevelConstraints(temporal=("K", "P")),
    "memory": LevelConstraints(mesh_x=4, spatial_x=("M", "P")),
}
EFFORT = Effort(generations=40, patience=8)


def machine(size: float = 24.0) -> Architecture:
    """Few registers around four units, a narrow memory."""
    registers = Level(
        instances=4, size=size, read_energy=1e-12, write_energy=1.2e-12, update_energy=1.1e-12, leakage=1e-14
    )
    memory = Level(fan_x=4, fan_y=1, block=2, read_energy=6e-11, write_energy=7e-11, update_energy=8e-11)
    memory = Level(**{**vars(memory), "read_bandwidth": 6.0, "write_bandwidth": 3.0})
    return Architecture((registers, memory), macs=4, mac_energy=5e-13)


def sliding(positions: float = 6.0, stride: float = 2.0) -> tuple[Problem, Names]:
    """A strided one-dimensional convolution, whose windows overlap."""
    operands = {
        "Weights": [[("M", "")], [("R", "")], [("K", "")]],
        "Inputs": [[("K", "")], [("P", "stride"), ("R", "")]],
        "Outputs": [[("M", "")], [("P", "")]],
    }
    bounds = {"M": 4.0, "K": 2.0, "R": 3.0, "P": positions}
    return build_problem(bounds, operands, ["Outputs"], {"stride": stride})


def space_of(problem: Problem, names: Names, **limits: LevelConstraints) -> MapSpace:
    constraints = {**LIMITS, **limits}
    check_constraints(constraints, LEVELS, names, "test")
    return build_space(problem, names, LEVELS, KEPT, constraints)


def everything(problem: Problem, space: MapSpace) -> dict[str, np.ndarray]:
    """Scores of all mappings by objective: every place of every prime, every order."""
    structure = space.structure
    ways = [
        range(len(slots)) if prime > 1.0 else range(1)
        for slots, primes in zip(structure.slots, np.asarray(space.primes), strict=True)
        for prime in primes
    ]
    places = np.array(list(itertools.product(*ways)), np.int32).reshape(-1, *space.primes.shape)
    dimensions = range(len(structure.slots))
    orders = list(itertools.product(itertools.permutations(dimensions), repeat=len(structure.free_levels)))
    pairs = np.arange(len(places) * len(orders))
    genomes = Genome(
        jnp.asarray(places[pairs // len(orders)]), jnp.asarray(np.array(orders, float)[pairs % len(orders)])
    )

    def scores(genome: Genome) -> list[Scalar]:
        cost = nest_cost(problem, machine(), genome_mapping(space, genome))
        return [objective_of(cost, objective) for objective in OBJECTIVES]

    return dict(zip(OBJECTIVES, map(np.asarray, jax.jit(jax.vmap(scores))(genomes)), strict=True))


Small = tuple[Problem, MapSpace, dict[str, np.ndarray]]


@pytest.fixture(autouse=True, scope="module")
def wide(quick_compilation: None) -> Iterator[None]:
    """Bounds and exact scores are made in 64 bits, whatever the suite runs in."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def small() -> Small:
    problem, names = sliding()
    space = space_of(problem, names, registers=LevelConstraints(temporal=("K", "P"), order=("P", "K")))
    return problem, space, everything(problem, space)


@pytest.mark.parametrize("method", ["evolution", pytest.param("gradient", marks=pytest.mark.long)])
def test_it_finds_the_best_of_all_mappings(small: Small, method: str) -> None:
    problem, space, scores = small
    assert np.isinf(scores["edp"]).any() and np.isfinite(scores["edp"]).any()
    found = find_mapping(problem, machine(), space, seed=1, effort=EFFORT, method=method)
    assert found.score == pytest.approx(scores["edp"].min(), rel=1e-12)
    assert found.evaluations % CHILDREN == 0 and Reason.CAPACITY in found.rejected


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_proof_meets_the_best_of_all_mappings(small: Small, objective: str) -> None:
    problem, space, scores = small
    least = scores[objective].min()
    proof = prove(problem, machine(), space, objective, np.inf)
    assert proof.exhaustive and proof.mapping is not None
    assert least * (1.0 - 1e-12) <= proof.score <= least * (1.0 + TOLERANCE)
    assert least * (1.0 - TOLERANCE) <= proof.bound <= least * (1.0 + 1e-12)


def test_a_bound_of_cycles_is_whole(small: Small) -> None:
    """126 words of 1.1 a cycle take 115, not 114.5 cycles: the last one of every mapping is whole."""
    problem, space, _ = small
    memory = dataclasses.replace(machine().levels[1], read_bandwidth=as_float(1.1))
    slow = dataclasses.replace(machine(), levels=(machine().levels[0], memory))
    proof = prove(problem, slow, space, "cycles", np.inf)
    assert proof.exhaustive and proof.bound == proof.score == 115.0


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_simple_bound_is_below_every_mapping(small: Small, objective: str) -> None:
    problem, space, scores = small
    floor = compulsory(problem, machine(), space)
    bound = {"edp": floor.energy * floor.cycles, "energy": floor.energy, "cycles": floor.cycles}[objective]
    assert 0.3 * scores[objective].min() < float(bound) <= scores[objective].min()
    assert prove(problem, machine(), space, objective, np.inf, most_nodes=0).bound == float(bound)


def test_words_that_no_window_touches_are_not_in_the_simple_bound(small: Small) -> None:
    _, space, _ = small
    problem, _ = sliding(stride=40.0)
    found = find_mapping(problem, machine(), space, "energy", seed=1, effort=Effort(4), method="random")
    assert float(compulsory(problem, machine(), space).energy) < found.score
    proof = prove(problem, machine(), space, "energy", found.score)
    assert 0.0 < proof.bound <= found.score


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ([[("P", "s"), ("R", "")]], 18),
        ([[("P", ""), ("R", "")]], 8),
        ([[("P", "s"), ("R", "d")]], 13),  # even ones
        ([[("P", "s")], [("R", "d")]], 18),
        ([[("P", "")], [("P", "")]], 6),
    ],
)
def test_distinct_words(axes: list[list[tuple[str, str]]], words: int) -> None:
    problem, _ = build_problem({"P": 6.0, "R": 3.0}, {"A": axes}, [], {"s": 4.0, "d": 2.0})
    assert distinct_words(problem.operands[0], problem) == words


def test_a_bound_above_a_known_mapping_is_no_bound(small: Small) -> None:
    problem, space, scores = small
    proof = prove(problem, machine(), space, "energy", 0.01 * float(scores["energy"].min()), most_nodes=0)
    assert proof.bound == 0.0 and not proof.exhaustive


def test_the_bound_of_given_factors_is_below_every_order() -> None:
    problem, names = sliding(positions=12.0)
    problem = dataclasses.replace(problem, coefficients=jnp.asarray([1.0, 1.0]))  # windows slide by less than they are
    space = space_of(problem, names, registers=LevelConstraints(temporal=("K", "P"), order=("P", "K")))
    ways, orders = factorings(space), jnp.asarray(best_orders(problem, space))
    rows = feasible_rows(problem, machine(), space, ways, 10**6, 0.0)
    assert rows is not None
    rows = rows[:: max(1, len(rows) // 40)][:40]
    every = np.array(list(itertools.permutations(range(4))), float)

    def relaxed(rows: np.ndarray, ranks: np.ndarray, fixed: bool) -> Relaxed:
        given = jnp.full((len(rows), 1), fixed)
        at = (jnp.asarray(rows, jnp.int32), jnp.asarray(ranks)[:, None], given, orders)
        return relaxed_costs(problem, machine(), space, ways.tables, *at, "energy")

    exact = relaxed(np.repeat(rows, len(every), axis=0), np.tile(every, (len(rows), 1)), True).score
    bound = relaxed(np.repeat(rows, len(every), axis=0), np.tile(every, (len(rows), 1)), False).bound
    least = np.asarray(exact).reshape(len(rows), -1).min(axis=1)
    found = np.asarray(bound).reshape(len(rows), -1)[:, 0]
    assert (found <= least * (1.0 + 1e-12)).all()
    assert np.isclose(found, least, rtol=1e-12).any()  # where one loop runs, or all operands want the same order


def test_the_same_seed_finds_the_same(small: Small) -> None:
    problem, space, _ = small
    one, two = (find_mapping(problem, machine(), space, seed=7, effort=EFFORT) for _ in range(2))
    assert one.evaluations == two.evaluations and one.rejected == two.rejected
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(one.mapping), jax.tree.leaves(two.mapping), strict=True))


def test_feasible_rows_are_those_that_fit(small: Small) -> None:
    problem, space, _ = small
    ways = factorings(space)
    rows = feasible_rows(problem, machine(), space, ways, 10**6, 0.0)
    assert rows is not None
    structure = space.structure
    registers = [slots.index((0, 0)) if (0, 0) in slots else None for slots in structure.slots]
    across = [slots.index((1, 1)) if (1, 1) in slots else None for slots in structure.slots]
    fits = set()
    for row in itertools.product(*map(range, ways.sizes)):
        factors = [np.asarray(table)[way] for table, way in zip(ways.tables, row, strict=True)]
        k, p = (factors[d][registers[d]] for d in (1, 3))
        used = np.prod([factors[d][across[d]] for d in (0, 3)])
        if used <= 4 and k * (2 * (p - 1) + 1) + p <= 24:  # inputs and outputs of one unit, no weights
            fits.add(row)
    assert {tuple(map(int, row)) for row in rows} == fits
    assert count_ways(space) == np.prod(ways.sizes)


def test_the_proof_sees_that_nothing_fits() -> None:
    problem, names = sliding()
    pinned = LevelConstraints(temporal=("K", "P"), order=("P", "K"), factors={"temporal": {"P": 6}})
    space = space_of(problem, names, registers=pinned)
    proof = prove(problem, machine(size=8.0), space, "edp", np.inf)
    assert (proof.factorings, proof.mapping, proof.bound) == (0, None, np.inf)


def test_a_level_may_keep_nothing() -> None:
    problem, names = sliding(positions=2.0)
    space = space_of(problem, names, registers=LevelConstraints(temporal=(), keep=()))
    proof = prove(problem, machine(), space, "energy", np.inf)
    assert proof.exhaustive and 0.0 < proof.bound <= proof.score < np.inf


def test_an_interruption_keeps_the_best(small: Small) -> None:
    problem, space, _ = small

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    found = find_mapping(problem, machine(), space, effort=EFFORT, report=stop, method="random")
    assert found.interrupted and found.mapping is not None and np.isfinite(found.score)


@given(st.integers(1, 10**6))
def test_prime_factors(number: int) -> None:
    primes = prime_factors(number)
    assert np.prod(primes, dtype=object) == number or (number == 1 and not primes)
    assert all(p > 1 and all(p % d for d in range(2, int(p**0.5) + 1)) for p in primes)


@settings(max_examples=6)
@given(st.tuples(*[st.integers(1, 48)] * 3), st.integers(0, 2**31 - 1))
def test_every_genome_multiplies_to_the_problem(bounds: tuple[int, int, int], seed: int) -> None:
    problem, names = gemm(*map(float, bounds))
    kept = ((True, True, True), (True, True, True))
    limits = {"memory": LevelConstraints(mesh_x=4, factors={"temporal": {"M": bounds[0]}})}
    space = build_space(problem, names, LEVELS, kept, limits, width=6)
    genome = jax.tree.map(lambda leaf: leaf[0], random_genomes(space, jax.random.key(seed), 1))
    mapping = genome_mapping(space, genome)
    tiles = (mapping.temporal * mapping.spatial_x * mapping.spatial_y).prod(axis=0)
    assert (tiles == problem.bounds).all()
    assert float(mapping.temporal[1, names.dimensions.index("M")]) == bounds[0]
    assert (jnp.sort(mapping.rank, axis=1) == jnp.arange(4.0)[None]).all()


BAD = [
    ({"cache": LevelConstraints()}, "'cache' is no level"),
    ({"memory": LevelConstraints(temporal=("Q",))}, "'Q' is no dimension"),
    ({"memory": LevelConstraints(order=("K", "K"))}, "memory: order: K is named twice"),
    ({"memory": LevelConstraints(keep=("Output",))}, "Did you mean Outputs"),
    ({"memory": LevelConstraints(order=("K", "Z"))}, "memory: order: 'Z'"),
    ({"memory": LevelConstraints(factors={"spatial": {"K": 2}})}, "'spatial' is no kind of factor"),
    ({"memory": LevelConstraints(factors={"spatial_x": {"K": 2}})}, "a factor of 2 is fixed where"),
    ({"memory": LevelConstraints(factors={"temporal": {"K": 1.5}})}, "must be an integer from 1"),
    ({"memory": LevelConstraints(mesh_x=0)}, "mesh_x is 0"),
]


@pytest.mark.parametrize(("limits", "said"), BAD)
def test_wrong_constraints_are_named(limits: dict, said: str) -> None:
    with pytest.raises(InputError, match="test") as error:
        check_constraints(limits, LEVELS, sliding()[1], "test")
    assert said in str(error.value)


def test_fixed_factors_must_divide_and_leave_a_place() -> None:
    problem, names = sliding()
    with pytest.raises(
        InputError, match=r"constraints: P: .* to 4, which does not divide the bound 6: 4 at registers \(temporal\)"
    ):
        space_of(problem, names, registers=LevelConstraints(factors={"temporal": {"P": 4}}))
    nowhere = {"memory": LevelConstraints(temporal=()), "registers": LevelConstraints(temporal=("K", "P"))}
    with pytest.raises(InputError, match="M: no level may have its factors"):
        space_of(problem, names, **nowhere)


def test_an_unknown_objective_is_refused(small: Small) -> None:
    with pytest.raises(InputError, match="Did you mean energy"):
        find_mapping(small[0], machine(), small[1], "energie")
