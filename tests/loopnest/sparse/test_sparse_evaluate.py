"""Nests with zeros: equal to dense ones where there is none, to arithmetic where there are, and finite everywhere."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.core.numerics import as_float
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.evaluate import NestCost, nest_cost
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.shapes import gemm
from jaxperf.loopnest.sparse.density import Density
from jaxperf.loopnest.sparse.evaluate import Reason, SparseCost, sparse_nest_cost, sparse_sentences
from jaxperf.loopnest.sparse.formats import Format, Rank
from jaxperf.loopnest.sparse.hardware import Energies, SparseLevel
from jaxperf.loopnest.sparse.optimization import GATING, SKIPPING, Directive, Option
from jaxperf.loopnest.sparse.sparsity import Sparsity

SHARES = np.linspace(0.1, 1.0, 10)


# --- a product of matrices by hand ------------------------------------------------------------------------------------


def product_case(**more: Any) -> tuple[Any, Architecture, Mapping, dict[str, Any]]:
    """Z = A B of 8 x 8 matrices out of one buffer below a store; A passes by. M is innermost, then N, then K."""
    nest, names = gemm(8.0, 8.0, 8.0)
    order = [names.dimensions.index(name) for name in "MNK"]
    temporal, ones, rank = np.ones((2, 4)), np.ones((2, 4)), np.tile(np.arange(4.0), (2, 1))
    temporal[0, order] = 8.0
    rank[0, order] = [1.0, 2.0, 3.0]
    rank[0, 0] = 0.0
    mapping = Mapping(temporal, ones, ones, rank, ((False, True, True), (True, True, True)))
    levels = (Level(read_energy=1.0, write_energy=1.0, update_energy=1.0), Level(read_energy=10.0, write_energy=10.0))
    csr = Format((Rank("CP"), Rank("UOP")))
    formats = ((None, csr, None), (csr, csr, None))
    densities = (Density(0.25), Density(0.5), Density())
    level = SparseLevel(8.0, 4.0, 4.0, metadata=Energies(0.5, 0.5, 0.5))
    given = {"levels": (level, level), "formats": formats, **more}
    return nest, Architecture(levels, mac_energy=1.0), mapping, {"densities": densities, **given}


def skipping(target: int, *leaders: int) -> Directive:
    return Directive(SKIPPING, 0, (Option(target, leaders),))


def test_both_sides_of_an_intersection_skip() -> None:
    """1/4 of A and 1/2 of B: 1/8 of the 512 products, and as many reads of either operand."""
    directives = (skipping(0, 1), skipping(1, 0), skipping(2, 0, 1))
    nest, architecture, mapping, given = product_case(directives=directives)
    cost = sparse_nest_cost(nest, architecture, mapping, Sparsity(**given))
    assert cost.operations == (64.0, 0.0, 0.0) and cost.nest.cycles == 64.0
    b, z, a = cost.accesses[0][1], cost.accesses[0][2], cost.accesses[1][0]
    assert a is not None and b is not None and z is not None
    assert a.words["reads"] == (64.0, 0.0, 64.0)  # of 512 a quarter is stored, of which half meets a zero
    assert b.words["reads"] == (64.0, 0.0, 192.0) and b.words["fills"] == (32.0, 0.0, 0.0)
    assert z.words["reads"] == (56.0, 0.0, 392.0) and z.words["updates"] == (64.0, 0.0, 448.0)
    # A matrix of 8 columns of pointers and one more, its coordinates; read eight times, half of it skipped.
    assert [tuple(each.payload) for each in a.ranks["reads"]] == [(0.0, 0.0, 0.0), (36.0, 0.0, 36.0)]
    assert [tuple(each.metadata) for each in a.ranks["reads"]] == [(64.0, 0.0, 64.0), (0.0, 0.0, 0.0)]
    # Words at 1 and 10 J, metadata of 4 bits at 1/2 J: B 64 + 32 and (18 + 64 + 9 + 32) / 2, Z 120; A 640 and 50, ...
    buffer, store = cost.nest.levels
    assert buffer.energy == 96.0 + 61.5 + 120.0
    assert store.energy == (640.0 + 50.0) + (320.0 + 20.5) + 0.0


def test_one_side_alone_leaves_zeros_of_the_other() -> None:
    """B follows A, and A is not looked up: the units meet a zero in half of the operations that are left."""
    only = {"formats": ((None,) * 3,) * 2, "directives": (skipping(1, 0),)}
    nest, architecture, mapping, given = product_case(**only)
    plain = sparse_nest_cost(nest, architecture, mapping, Sparsity(**given))
    gates = sparse_nest_cost(nest, architecture, mapping, Sparsity(**given, gates_zeros=True, gated_mac_energy=0.1))
    assert plain.operations == (128.0, 0.0, 0.0) and gates.operations == (64.0, 64.0, 0.0)
    assert gates.nest.cycles == plain.nest.cycles == 128.0  # gated operations take their cycles
    assert gates.nest.mac_energy == pytest.approx(64.0 + 6.4)


def test_absent_operands_are_skipped_where_units_look_for_them() -> None:
    nest, architecture, mapping, given = product_case()
    bubbles = sparse_nest_cost(nest, architecture, mapping, Sparsity(**given))
    jumps = sparse_nest_cost(nest, architecture, mapping, Sparsity(**given, skips_unaligned=True))
    # Both stored: 1/8 of 512; one of them: 3/4 x 1/2 + 1/4 x 1/2; neither: 3/8, which no unit ever sees.
    assert bubbles.operations == (320.0, 0.0, 0.0) and jumps.operations == (64.0, 0.0, 256.0)


def test_a_follower_that_stays_waits_for_all_that_it_meets() -> None:
    """B is read into its buffer once for each of M loops outside: a word of it is left out where all 4 words of A in
    its column that pass while it stays are zero."""
    nest, architecture, mapping, given = product_case()
    m = 1
    temporal = mapping.temporal.at[:, m].set(jnp.asarray([4.0, 2.0]))
    temporal = temporal.at[:, 2].set(jnp.asarray([1.0, 8.0])).at[:, 3].set(jnp.asarray([1.0, 8.0]))
    mapping = dataclasses.replace(mapping, temporal=temporal)
    store = Directive(SKIPPING, 1, (Option(1, (0,)),))
    none = ((None,) * 3,) * 2
    given |= {"formats": none, "directives": (store,), "densities": (Density(0.1), Density(), Density())}
    # The store's loops from the inside: M, which B does not have, then N and K.
    inside = Mapping(mapping.temporal, mapping.spatial_x, mapping.spatial_y, mapping.rank, mapping.kept)
    cost = sparse_nest_cost(nest, architecture, inside, Sparsity(**given))
    outer = cost.accesses[1][1]
    assert outer is not None
    assert outer.words["reads"] == (52.0, 0.0, 12.0)  # floor of 64 x (1 - 8 x 0.1)
    inner = cost.accesses[0][1]
    assert inner is not None
    assert inner.words["fills"] == (52.0, 0.0, 0.0)  # what is not read above does not come in below


def test_a_block_is_left_out_as_one() -> None:
    """Four words of A lie in a block along M, which B does not have; of B's along N, which A does not have."""
    nest, architecture, mapping, given = product_case(directives=(skipping(0, 1),), formats=((None,) * 3,) * 2)
    wide = dataclasses.replace(architecture.levels[1], block=as_float(4.0))
    both = Architecture((architecture.levels[0], wide), mac_energy=1.0)
    cost = sparse_nest_cost(nest, both, mapping, Sparsity(**given))
    a = cost.accesses[1][0]
    assert a is not None and a.words["reads"].skipped == 256.0
    turned = dataclasses.replace(mapping, rank=mapping.rank.at[0].set(jnp.asarray([0.0, 3.0, 2.0, 1.0])))
    cost = sparse_nest_cost(nest, both, turned, Sparsity(**given))
    a = cost.accesses[1][0]
    # K is innermost and indexes both: a block is needed unless four words of B are zero.
    assert a is not None and a.words["reads"].skipped == 0.0


def test_of_two_options_the_one_that_saves_more_is_taken() -> None:
    either = Directive(SKIPPING, 0, (Option(1, (0,)), Option(0, (1,))))
    nest, architecture, mapping, given = product_case(directives=(either,), formats=((None,) * 3,) * 2)
    cost = sparse_nest_cost(nest, architecture, mapping, Sparsity(**given))
    a, b = cost.accesses[1][0], cost.accesses[0][1]
    assert a is not None and b is not None
    assert (a.words["reads"].skipped, b.words["reads"].skipped) == (256.0, 0.0)  # words of the store cost ten times


def test_tiles_of_compressed_words_fit_where_dense_ones_do_not() -> None:
    nest, architecture, mapping, given = product_case()
    small = dataclasses.replace(architecture.levels[0], size=as_float(100.0))
    tight = Architecture((small, architecture.levels[1]))
    assert nest_cost(nest, tight, mapping).reason != 0  # 64 words of B and of Z
    cost = sparse_nest_cost(nest, tight, mapping, Sparsity(**given))
    held = cost.nest.levels[0].accesses[1]
    assert cost.nest.reason == 0 and held is not None and held.tile == 32.0


def test_metadata_has_to_fit_and_every_loop_needs_a_rank() -> None:
    nest, architecture, mapping, given = product_case()
    small = dataclasses.replace(given["levels"][0], metadata_size=as_float(100.0))
    full = sparse_nest_cost(nest, architecture, mapping, Sparsity(**{**given, "levels": (small, small)}))
    assert int(full.nest.reason) & Reason.METADATA and jnp.isnan(full.nest.energy)
    flat = Format((Rank("CP"),))
    short = {**given, "formats": ((None, flat, None), (flat, flat, None))}
    cost = sparse_nest_cost(nest, architecture, mapping, Sparsity(**short))
    assert sparse_sentences(int(cost.nest.reason)) == [
        "a format has fewer ranks than there are loops that index its operand"
    ]
    joined = Format((Rank("CP", frozenset(range(4))),))
    cost = sparse_nest_cost(nest, architecture, mapping, Sparsity(**{**short, "formats": ((None, joined, None),) * 2}))
    assert cost.nest.reason == 0


def test_all_zeros_cost_a_step() -> None:
    directives = (skipping(0, 1), skipping(1, 0))
    nest, architecture, mapping, given = product_case(directives=directives)
    given["densities"] = (Density(0.0), Density(0.0), Density())
    cost = sparse_nest_cost(nest, architecture, mapping, Sparsity(**given))
    assert cost.operations.actual == 0.0 and cost.nest.cycles == 1.0 and cost.nest.utilization == 0.0


# --- no zeros, and ever fewer -----------------------------------------------------------------------------------------


def tilings() -> tuple[jax.Array, jax.Array]:
    """Temporal factors and ranks of mappings: which loops run in the buffer and which outside, in every order."""
    outer = np.asarray(np.meshgrid([1, 2, 8], [1, 4], [1, 8])).reshape(3, -1).T
    splits = [np.asarray([[1, *(8 // each)], [1, *each]], float) for each in outer]
    ranks = [np.tile(np.asarray([0, *order], float), (2, 1)) for order in itertools.permutations((1, 2, 3))]
    temporal, rank = zip(*itertools.product(splits, ranks), strict=True)
    return jnp.asarray(np.asarray(temporal)), jnp.asarray(np.asarray(rank))


BOTH = (skipping(0, 1), skipping(1, 0), Directive(GATING, 1, (Option(1, (0,)),)))


def test_a_density_of_one_is_the_dense_nest_to_the_last_bit() -> None:
    units = {"gates_zeros": True, "skips_unaligned": True}
    nest, architecture, mapping, given = product_case(directives=BOTH, formats=((None,) * 3,) * 2, **units)
    none = Sparsity(**{**given, "densities": (Density(),) * 3})
    wide = tuple(
        dataclasses.replace(level, block=as_float(4.0), leakage=as_float(0.3)) for level in architecture.levels
    )
    machine = Architecture(wide, mac_energy=1.0)

    def both(temporal: jax.Array, rank: jax.Array) -> tuple[NestCost, NestCost]:
        tiled = dataclasses.replace(mapping, temporal=temporal, rank=rank)
        return nest_cost(nest, machine, tiled), sparse_nest_cost(nest, machine, tiled, none).nest

    dense, found = jax.device_get(jax.jit(jax.vmap(both))(*tilings()))
    assert not dense.reason.any()
    for one, other in zip(jax.tree.leaves(dense), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(one, other)


@functools.cache
def swept() -> SparseCost:
    """Costs of a product of matrices in several mappings at rising densities, of both operands alike: [density,
    mapping]. Every operand is compressed somewhere, and followed somewhere."""
    flat = frozenset(range(4))
    coordinates, runs = Format((Rank("CP", flat),)), Format((Rank("RLE", flat),))
    above = Format((Rank("RLE", flat), Rank("UOP", flat)))
    formats = ((None, runs, None), (coordinates, above, None))
    nest, architecture, mapping, given = product_case(directives=BOTH, formats=formats, gates_zeros=True)

    def cost(share: jax.Array, temporal: jax.Array, rank: jax.Array) -> SparseCost:
        densities = (Density(share), Density(share), Density())
        tiled = dataclasses.replace(mapping, temporal=temporal, rank=rank)
        return sparse_nest_cost(nest, architecture, tiled, Sparsity(**{**given, "densities": densities}))

    every = jax.vmap(jax.vmap(cost, in_axes=(None, 0, 0)), in_axes=(0, None, None))
    return jax.device_get(jax.jit(every)(jnp.asarray(SHARES), *tilings()))


def test_what_becomes_of_words_and_operations_adds_up() -> None:
    cost = swept()
    assert not cost.nest.reason.any()
    assert (sum(cost.operations) <= cost.nest.macs).all()
    for level, dense in zip(cost.accesses, cost.nest.levels, strict=True):
        for each, counted in zip(level, dense.accesses, strict=True):
            for name, split in {} if each is None else each.words.items():
                assert (sum(split) <= getattr(counted, name)).all() and all((part >= 0.0).all() for part in split)
                assert all((part == np.round(part)).all() for part in split)


def test_the_operations_that_matter_are_the_same_in_every_mapping() -> None:
    """Units that gate what is left make d_A d_B of all operations, however much was saved on the way to them."""
    cost = swept()
    more = cost.operations.actual - 512.0 * SHARES[:, None] ** 2
    assert (more >= -1e-9).all() and (more < 4.0).all()  # what four counts lose by being rounded down


def test_energy_and_cycles_rise_with_density() -> None:
    cost = swept()
    assert (np.diff(cost.nest.energy, axis=0) >= 0.0).all()
    assert (np.diff(cost.nest.cycles, axis=0) >= 0.0).all()


@pytest.mark.long
def test_slopes_are_finite_and_one_compile_serves_all_densities() -> None:
    """A product of plain matrices, the words of one drawn, those of the other on a band."""
    _, architecture, mapping, given = product_case(directives=(skipping(0, 1), skipping(2, 0, 1)))
    batched, _ = gemm(8.0, 8.0, 8.0)
    matrices = tuple(dataclasses.replace(each, axes=each.axes[1:]) for each in batched.operands)
    nest = dataclasses.replace(batched, operands=matrices)

    def energy(share: jax.Array) -> jax.Array:
        densities = (Density(share, kind="hypergeometric"), Density(band=7.0 * share, kind="banded"), Density())
        return sparse_nest_cost(nest, architecture, mapping, Sparsity(**{**given, "densities": densities})).nest.energy

    traced = eqx.debug.assert_max_traces(energy, max_traces=1)
    found, slopes = jax.jit(jax.vmap(jax.value_and_grad(traced)))(jnp.asarray([1e-6, 0.03, 0.25, 0.7, 1.0]))
    assert jnp.isfinite(found).all() and jnp.isfinite(slopes).all()
    assert (jnp.diff(found) > 0.0).all() and (slopes[1:] > 0.0).all()
