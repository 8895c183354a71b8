"""Chains that share a tile: against their nests one by one, against loops walked in integers, and FlashAttention."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import stack
from jaxperf.io.fused_case import Task, alternating_notes
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.evaluate import nest_cost
from jaxperf.loopnest.feasible import Reason
from jaxperf.loopnest.fused.chain import Chain, Einsum, build_chain
from jaxperf.loopnest.fused.evaluate import ChainCost, ChainReason, chain_cost
from jaxperf.loopnest.fused.mapping import FusedMapping, Fusion, chain_kept
from jaxperf.loopnest.fused.shapes import attention, mlp
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.mapspace import prime_factors

compiled = jax.jit(chain_cost, static_argnames=("fusion",))
LEVELS = ("registers", "sram", "dram")
FUSED, ALONE = Fusion(1), Fusion(2)
CHAIN, NAMES = attention(queries=16.0, keys=12.0, dim=4.0, heads=4.0, kv_heads=2.0, softmax=3.0)
H, R, Q, K, E = range(5)  # loops of every stage, the last being E, steps or F


@pytest.fixture(autouse=True, scope="module")
def wide(quick_compilation: None) -> Iterator[None]:
    """Costs are compared with whole numbers, which takes 64 bits."""
    with jax.enable_x64(True):
        yield


def evaluated(chain: Chain, architecture: Architecture, mapping: FusedMapping, fusion: Fusion) -> ChainCost:
    """The cost, compiled where many points are evaluated."""
    return (compiled if fusion == FUSED else chain_cost)(chain, architecture, mapping, fusion)


def machine(size: float = 1e6, bandwidth: float = math.inf, srams: float = 1.0) -> Architecture:
    """Registers and an SRAM that leak, a DRAM of some bandwidth."""
    inner = Level(instances=64, read_energy=1e-12, write_energy=2e-12, update_energy=3e-12, leakage=1e-15)
    sram = Level(instances=srams, size=size, read_energy=5e-12, write_energy=6e-12, update_energy=7e-12, leakage=1e-14)
    dram = Level(read_energy=1e-10, write_energy=1e-10, update_energy=1e-10, block=4, shared_bandwidth=bandwidth)
    return Architecture((inner, sram, dram), macs=64, mac_energy=1e-12)


def kept(fusion: Fusion) -> tuple:
    return chain_kept(CHAIN.links, NAMES, LEVELS, [None] * 3, fusion.level)


def tiled(outside: Sequence[float], order: Sequence[float], fusion: Fusion, own: float = 1.0) -> FusedMapping:
    """Shared loops over H, R, Q, K at DRAM, `own` of the last loop of each stage inside of them, the rest in SRAM."""
    bounds = np.array([[2.0, 2.0, 16.0, 12.0, last] for last in (4.0, 3.0, 4.0)])
    ones, ranks = np.ones((3, 5)), np.tile(np.arange(5.0), (3, 1))
    shared = np.ones((3, 4))
    shared[2] = outside
    stages = []
    for bound, held in zip(bounds, kept(fusion), strict=True):
        temporal = ones.copy()
        streams = own if bound[E] == 4.0 else 1.0  # the steps of the softmax do not
        temporal[1] = bound / np.array([*outside, streams])
        temporal[2, E] = streams
        stages.append(Mapping(temporal, ones, ones, ranks, held))
    rank = np.tile(np.asarray(order, float), (3, 1))
    return FusedMapping(Mapping(shared, np.ones((3, 4)), np.ones((3, 4)), rank, ((),) * 3), tuple(stages))


# --- nothing is fused -------------------------------------------------------------------------------------------------


PAIR, PAIR_NAMES = mlp(tokens=8.0, hidden=4.0, inner=6.0)


def random_stages(seed: int) -> tuple[Mapping, ...]:
    """Mappings of the nests of two matrix products, prime factors anywhere."""
    rng = np.random.default_rng(seed)
    stages = []
    held = chain_kept(PAIR.links, PAIR_NAMES, LEVELS, [None] * 3, ALONE.level)
    for problem, own in zip(PAIR.problems, held, strict=True):
        factors = np.ones((3, 3, 3))  # kind, level, loop
        for d, bound in enumerate(np.asarray(problem.bounds)):
            for prime in prime_factors(int(bound)):
                factors[rng.choice(3, p=(0.8, 0.1, 0.1)), rng.integers(3), d] *= prime
        stages.append(Mapping(*factors, np.stack([rng.permutation(3) for _ in range(3)]), own))
    return tuple(stages)


def test_kept_in_the_backing_store_a_chain_is_the_sum_of_its_nests() -> None:
    whole = machine(bandwidth=3.0)
    levels = [
        dataclasses.replace(level, instances=64**outside)
        for outside, level in zip((2, 1, 0), whole.levels, strict=True)
    ]
    architecture = dataclasses.replace(whole, levels=tuple(levels), macs=64**3)  # children for loops in space anywhere
    unused = Mapping(*np.ones((4, 3, 2)), ((),) * 3)
    for seed in range(5):
        stages = random_stages(seed)
        found = evaluated(PAIR, architecture, FusedMapping(unused, stages), ALONE)
        nests = [nest_cost(problem, architecture, own) for problem, own in zip(PAIR.problems, stages, strict=True)]
        assert int(found.reason) == 0
        for name in ("cycles", "energy", "macs"):
            assert float(getattr(found, name)) == pytest.approx(sum(float(getattr(n, name)) for n in nests), rel=1e-14)
        for stage, nest in zip(found.stages, nests, strict=True):
            mine, alone = ([level.accesses for level in cost.levels] for cost in (stage, nest))
            assert jax.tree.map(float, mine) == jax.tree.map(float, alone)


# --- words of DRAM ----------------------------------------------------------------------------------------------------


def walked(outside: Sequence[int], order: Sequence[int], own: int) -> list[dict[str, int]]:
    """Words that each stage reads from and writes to DRAM, tile by tile as the loops run; outputs that come back are
    read again."""
    outwards = sorted(range(4), key=lambda d: -order[d])
    sizes = dict(zip("HRQKEF", (2, 2, 16, 12, 4, 4), strict=True))
    parts = dict(zip("HRQK", outside, strict=True))
    stages = ({"Queries": "HRQE", "Keys": "HKE"}, {}, {"Values": "HKF", "Outputs": "HRQF"})
    found = []
    for arrays, last in zip(stages, ("E", "steps", "F"), strict=True):
        words, held, seen = {}, {}, set()
        for step in itertools.product(*(range(outside[d]) for d in outwards), range(own)):
            index = {"HRQK"[d]: step[place] for place, d in enumerate(outwards)} | {last: step[-1]}
            for name, ranks in arrays.items():
                tile = tuple(index[rank] for rank in ranks)
                if held.get(name) == tile:
                    continue
                held[name] = tile
                size = math.prod(sizes[r] // (parts | {last: own})[r] for r in ranks)
                again = name == "Outputs" and (name, tile) in seen
                words[name] = words.get(name, 0) + size * (1 + again)
                seen.add((name, tile))
        found.append(words)
    return found


def test_words_of_dram_are_those_of_a_walk() -> None:
    """Shared tiles in several orders; intermediate arrays are not among what DRAM moves."""
    rng = np.random.default_rng(0)
    for outside in itertools.product((1, 2), (1, 2), (1, 4, 16), (1, 3, 12)):
        point = outside, tuple(map(int, rng.permutation(4))), int(rng.choice((1, 2)))
        cost = evaluated(CHAIN, machine(), tiled(*point[:2], FUSED, point[2]), FUSED)
        assert int(cost.reason) == 0
        for names, stage, expected in zip(NAMES.nests, cost.stages, walked(*point), strict=True):
            found = {
                name: float(each.reads + each.updates)
                for name, each in zip(names.operands, stage.levels[-1].accesses, strict=True)
                if each is not None
            }
            assert found == expected


def test_keys_and_values_pass_once_a_query_tile() -> None:
    """Q and O once, K and V once for each of ceil(S / tile) query tiles and query head."""
    for tile in (16, 8, 2):
        cost = evaluated(CHAIN, machine(), tiled((2, 2, 16 // tile, 3), (3, 2, 1, 0), FUSED), FUSED)
        queries, keys, _ = cost.stages[0].levels[-1].accesses
        _, values, outputs = cost.stages[2].levels[-1].accesses
        assert float(queries.reads) == float(outputs.updates) == 2 * 2 * 16 * 4
        assert float(keys.reads) == float(values.reads) == -(-16 // tile) * 2 * 2 * 12 * 4
        assert float(outputs.reads) == 0.0


# --- FlashAttention ---------------------------------------------------------------------------------------------------

LENGTH, SIZE = 1024, 64


@pytest.fixture(scope="module")
def flash() -> tuple[np.ndarray, ChainCost]:
    """Every pair of query and key tiles that are powers of two, keys outside [0, :] and queries outside [1, :]; one
    head."""
    chain, names = attention(LENGTH, LENGTH, SIZE, 1.0, 1.0)
    held = chain_kept(chain.links, names, LEVELS, [None] * 3, 1)
    tiles = np.array([*itertools.product(2.0 ** np.arange(3, 11), repeat=2)])
    ones, ranks = np.ones((3, 5)), np.tile(np.arange(5.0), (3, 1))

    def one(tile: np.ndarray, order: Sequence[float]) -> ChainCost:
        stages = []
        for problem, own in zip(chain.problems, held, strict=True):
            temporal = ones.copy()
            temporal[1, Q:] = *tile, float(problem.bounds[E])
            stages.append(Mapping(temporal, ones, ones, ranks, own))
        shared = np.ones((3, 4))
        shared[2, Q:] = LENGTH / tile
        outer = Mapping(shared, np.ones((3, 4)), np.ones((3, 4)), np.tile(order, (3, 1)), ((),) * 3)
        return evaluated(chain, machine(math.inf), FusedMapping(outer, tuple(stages)), FUSED)

    by_order = [stack([one(tile, order) for tile in tiles]) for order in ((2.0, 3.0, 0.0, 1.0), (2.0, 3.0, 1.0, 0.0))]
    return tiles, stack(by_order)


def dram_words(cost: ChainCost) -> np.ndarray:
    accesses = [each for stage in cost.stages for each in stage.levels[-1].accesses if each is not None]
    return np.asarray(sum(each.reads + each.updates for each in accesses))


def test_algorithm_1_of_flash_attention(flash: tuple[np.ndarray, ChainCost]) -> None:
    """Keys outside: K and V are read once; Q is read, and O written and read (but for the first time), in each of the
    T_c passes (Dao et al., NeurIPS 2022, Algorithm 1)."""
    tiles, cost = flash
    several = tiles[:, 0] < LENGTH  # one tile of queries would stay
    expected = 2 * LENGTH * SIZE + (3 * LENGTH / tiles[:, 1] - 1) * LENGTH * SIZE
    assert np.array_equal(dram_words(cost)[0][several], expected[several])


def test_words_of_dram_fall_as_theorem_2_says(flash: tuple[np.ndarray, ChainCost]) -> None:
    """Theta(N^2 d^2 / M) words for d <= M <= N d, in either order; the nests one by one move 4 N^2 of S and P alone."""
    _, cost = flash
    sizes = 2.0 ** np.arange(12, 16)
    for words, held in zip(dram_words(cost), np.asarray(cost.held[0]), strict=True):
        least = np.array([words[held <= size].min() for size in sizes])
        constants = least * sizes / (LENGTH * SIZE) ** 2
        assert (constants > 1.0).all() and constants.max() < 4.0 * constants.min()
        assert least[-1] < 4 * LENGTH**2


# --- what does not fit, and pipelines ---------------------------------------------------------------------------------


def test_all_tiles_are_held_and_probabilities_take_the_room_of_scores() -> None:
    mapping = tiled((2, 2, 4, 3), (3, 2, 1, 0), FUSED)
    words = 4 * 4 + 4 * 4 + 4 * 4 + 4 * 4 + 4 * 4  # Q, K, S or P, V, O of 4 queries, 4 keys, 4 dimensions
    for fusion, held in ((FUSED, words), (Fusion(1, pipelined=True), words + 3 * 4 * 4)):
        assert float(evaluated(CHAIN, machine(held), mapping, fusion).held[0]) == held
        assert int(evaluated(CHAIN, machine(held), mapping, fusion).reason) == 0
        crowded = evaluated(CHAIN, machine(held - 1), mapping, fusion)
        assert int(crowded.reason) == Reason.CAPACITY and math.isnan(float(crowded.edp))


def test_a_stage_has_no_loops_of_its_own_outside_but_over_its_own_ranks() -> None:
    fine = tiled((2, 2, 4, 3), (3, 2, 1, 0), FUSED)
    first, *others = fine.stages
    streamed = first.temporal.at[1, E].set(2.0).at[2, E].set(2.0)
    ours = FusedMapping(fine.shared, (dataclasses.replace(first, temporal=streamed), *others))
    assert int(evaluated(CHAIN, machine(), ours, FUSED).reason) == 0
    spread = dataclasses.replace(
        first, temporal=first.temporal.at[1, E].set(2.0), spatial_x=first.spatial_x.at[2, E].set(2.0)
    )
    theirs = evaluated(CHAIN, machine(), FusedMapping(fine.shared, (spread, *others)), FUSED)
    assert int(theirs.reason) & ChainReason.LOOPS


def test_a_pipeline_takes_its_slowest_stage_for_every_tile_and_the_way_through() -> None:
    mapping = tiled((2, 2, 4, 3), (3, 2, 1, 0), FUSED)
    tiles, points = 2 * 2 * 4 * 3, 2 * 2 * 16 * 12
    one_by_one = evaluated(CHAIN, machine(), mapping, FUSED)
    assert float(one_by_one.cycles) == points * (4 + 3 + 4)
    together = evaluated(CHAIN, machine(), mapping, Fusion(1, pipelined=True))
    assert float(together.cycles) == points * 4 * (tiles + 2) / tiles and int(together.limiter) == 0
    words = 256 + 4 * 192 + 4 * 192 + 256  # Q, K, V and O of DRAM, at a twentieth of a word per cycle
    waiting = evaluated(CHAIN, machine(bandwidth=0.05), mapping, Fusion(1, pipelined=True))
    assert int(waiting.limiter) == 3
    assert float(waiting.cycles) == pytest.approx(words / 0.05 * (tiles + 2) / tiles, rel=1e-4)
    assert float(together.energy) > float(one_by_one.energy) - 3 * float(one_by_one.cycles) * 1e-14  # leakage apart


def test_stages_of_a_pipeline_share_the_units_of_one_sram() -> None:
    """Three stages on four units each: eight are too few, and so are sixteen under two SRAMs of which one works."""
    mapping = tiled((2, 2, 4, 3), (3, 2, 1, 0), FUSED)
    stages = tuple(
        dataclasses.replace(each, temporal=each.temporal.at[1, Q].set(1.0), spatial_x=each.spatial_x.at[1, Q].set(4.0))
        for each in mapping.stages
    )
    spread = FusedMapping(mapping.shared, stages)
    for units, srams, refused in ((8.0, 1.0, True), (16.0, 2.0, True), (16.0, 1.0, False), (24.0, 2.0, False)):
        few = dataclasses.replace(machine(srams=srams), macs=jnp.asarray(units))
        assert int(evaluated(CHAIN, few, spread, FUSED).reason) == 0
        found = evaluated(CHAIN, few, spread, Fusion(1, pipelined=True))
        assert int(found.reason) == (Reason.FAN_OUT if refused else 0)


# --- chains that are none ---------------------------------------------------------------------------------------------

A = Einsum("B", ("A",), {"A": ("M",), "B": ("M",)})
B = Einsum("C", ("B",), {"B": ("M",), "C": ("M",)})
APART = Einsum("C", ("B", "W"), {"B": ("M",), "W": ("M", "N"), "C": ("N",)})
BAD = [
    ([A, APART, Einsum("D", ("C",), {"C": ("N",), "D": ("N",)})], "B, C have no rank in common"),
    ([A], "at least two stages"),
    ([A, A, B], "written by two stages"),
    ([B, A], "reads B before"),
    ([A, Einsum("C", ("A",), {"A": ("M",), "C": ("M",)})], "No later stage reads B"),
    ([A, Einsum("C", ("B",), {"B": ("N",), "C": ("N",)})], "indexed by M and by N"),
    ([A, Einsum("C", ("B",), {"B": ("M",), "C": ("Mm",)})], "Did you mean M"),
]


@pytest.mark.parametrize(("einsums", "said"), BAD)
def test_what_is_no_chain_is_refused(einsums: list[Einsum], said: str) -> None:
    with pytest.raises(InputError) as error:
        build_chain(einsums, {"M": 2.0, "N": 2.0})
    assert said in str(error.value)


def test_the_shared_level_must_keep_what_is_shared() -> None:
    with pytest.raises(InputError, match="sram does not keep Scores"):
        chain_kept(CHAIN.links, NAMES, LEVELS, [None, ["Queries"], None], 1)
    with pytest.raises(InputError, match="No level keeps Keys"):
        chain_kept(CHAIN.links, NAMES, LEVELS, [["Queries", "Scores", "Probabilities"]] * 3, 1)


@pytest.mark.parametrize(
    ("size", "turns", "pipelined", "notes"), [(24, 2, False, 1), (32, 2, False, 0), (24, 1, False, 0), (24, 2, True, 0)]
)
def test_stages_that_evict_each_other_are_said(size: int, turns: int, pipelined: bool, notes: int) -> None:
    """Two stages of 16 words each on registers inside of the shared level, where shared factors are not turns."""
    whole = machine()
    registers = dataclasses.replace(whole.levels[0], size=size)
    architecture = dataclasses.replace(whole, levels=(registers, *whole.levels[1:]))
    task = Task(PAIR, PAIR_NAMES, architecture, LEVELS, "mac", {})
    shared = Mapping(np.full((3, 1), [[4.0], [4.0], [turns]]), *np.ones((3, 3, 1)), ((),) * 3)
    stages = [SimpleNamespace(levels=[SimpleNamespace(accesses=(SimpleNamespace(tile=16.0), None))])] * 2
    found: Any = SimpleNamespace(mapping=FusedMapping(shared, ()), cost=SimpleNamespace(stages=stages))
    said = alternating_notes(task, Fusion(1, pipelined), found)
    assert len(said) == notes and all(each.startswith(f"{LEVELS[0]}: the stages take turns") for each in said)
