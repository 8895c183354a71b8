"""All mappings of one problem that a machine allows: where prime factors of loops may go, and which orders are free.

Factors multiply to the problem's bounds wherever they go, so only meshes, capacities and bandwidths can refuse a point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hwspecs.errors import InputError
from jaxperf.core.numerics import Scalar, as_float
from jaxperf.loopnest.constraints import KINDS, Constraints, LevelConstraints, check_factors
from jaxperf.loopnest.mapping import Mapping, product
from jaxperf.loopnest.problem import Names, Problem


class Slot(NamedTuple):
    """One place of a factor. `kind`: position in `KINDS`."""

    level: int
    kind: int


@dataclass(frozen=True)
class Structure:
    """What is compiled in: it belongs to the machine and its constraints, not to the layer.

    `slots`: by dimension, where a factor may go; `pinned`: (dimension, slot) of fixed factors; `orders`: by level, the
    dimensions from the innermost, `None` where the order is free; `kept`: as in `Mapping`; `choices`: (level, operand)
    that may be kept or bypassed.
    """

    slots: tuple[tuple[Slot, ...], ...]
    pinned: tuple[tuple[int, Slot], ...]
    orders: tuple[tuple[int, ...] | None, ...]
    kept: tuple[tuple[bool, ...], ...]
    choices: tuple[tuple[int, int], ...] = ()

    @property
    def free_levels(self) -> tuple[int, ...]:
        """Levels whose order is free."""
        return tuple(level for level, order in enumerate(self.orders) if order is None)


class MapSpace(eqx.Module):
    """`primes`: K prime factors of what of each of D bounds is not fixed, padded by ones; `pins`: the fixed factors,
    in the order of `structure.pinned` [1]."""

    primes: Float[Array, "D K"]
    pins: Float[Array, " P"]
    structure: Structure = eqx.field(static=True)


def build_space(
    problem: Problem,
    names: Names,
    levels: Sequence[str],
    kept: tuple[tuple[bool, ...], ...],
    constraints: Constraints,
    width: int = 1,
    bypass: bool = False,
) -> MapSpace:
    """The space of a problem on levels from the innermost.

    **Arguments:** `kept`: as the case has it, where `constraints` do not say; `width`: least number of prime factors a
    dimension, so that the layers of a network share one compilation; `bypass`: whether any level but the outermost may
    let pass what constraints do not say it keeps.
    **Raises:** `InputError` where fixed factors do not divide a bound, nowhere remains for the rest of it, or 32 bits,
    in which mappings are searched, do not hold it.
    """
    bounds = [float(bound) for bound in problem.bounds]
    _check_exact(names, bounds)
    check_factors(constraints, levels, names, bounds, "constraints")
    limits = [constraints.get(level, LevelConstraints()) for level in levels]
    may_keep = tuple(
        _kept(limit, held, names, bypass and level + 1 < len(limits))
        for level, (limit, held) in enumerate(zip(limits, kept, strict=True))
    )
    structure = Structure(
        tuple(_slots(name, limits, names) for name in names.dimensions),
        tuple(
            (names.dimensions.index(name), Slot(level, kind))
            for level, limit in enumerate(limits)
            for kind, key in enumerate(KINDS)
            for name in limit.factors.get(key, {})
        ),
        tuple(_order(limit, names) for limit in limits),
        may_keep,
        _choices(limits, may_keep) if bypass else (),
    )
    pins = [limits[slot.level].factors[KINDS[slot.kind]][names.dimensions[d]] for d, slot in structure.pinned]
    primes = [_free_primes(d, bound, structure, pins) for d, bound in enumerate(bounds)]
    padded = np.ones((len(primes), max(width, *map(len, primes))))
    for row, each in zip(padded, primes, strict=True):
        row[: len(each)] = each
    return MapSpace(jnp.asarray(padded, float), jnp.asarray(pins, float), structure)


def _kept(limit: LevelConstraints, held: tuple[bool, ...], names: Names, open_here: bool) -> tuple[bool, ...]:
    """What a level keeps, or may keep where that is open."""
    if limit.keep is not None:
        return tuple(name in limit.keep for name in names.operands)
    return (True,) * len(held) if open_here else held


def _choices(limits: Sequence[LevelConstraints], kept: tuple[tuple[bool, ...], ...]) -> tuple[tuple[int, int], ...]:
    """(level, operand) that constraints leave open, where a level further out keeps the operand."""
    return tuple(
        (level, operand)
        for level, limit in enumerate(limits)
        if limit.keep is None
        for operand in range(len(kept[level]))
        if any(outer[operand] for outer in kept[level + 1 :])
    )


def _slots(name: str, limits: Sequence[LevelConstraints], names: Names) -> tuple[Slot, ...]:
    """Outermost first, so that a loop with one place alone is the backing store's."""
    return tuple(
        Slot(level, kind)
        for level in reversed(range(len(limits)))
        for kind, key in enumerate(KINDS)
        if name in limits[level].free(key, names.dimensions)
    )


def _order(limit: LevelConstraints, names: Names) -> tuple[int, ...] | None:
    """Dimensions from the innermost; those not named are innermost. One loop or none has no order to choose."""
    movable = [name for name in limit.allowed("temporal", names.dimensions)]
    if limit.order is None and len(movable) > 1:
        return None
    named = [names.dimensions.index(name) for name in reversed(limit.order or movable)]
    return (*[d for d in range(len(names.dimensions)) if d not in named], *named)


def _check_exact(names: Names, bounds: Sequence[float]) -> None:
    for name, bound in zip(names.dimensions, bounds, strict=True):
        if float(np.float32(bound)) != bound:  # where it is exact, all that divides it is
            raise InputError(
                f"{name}: the search is in 32 bits, which do not hold the bound {bound:.0f}; split the loop."
            )


def _free_primes(dimension: int, bound: float, structure: Structure, pins: Sequence[float]) -> list[int]:
    """Prime factors of what is not fixed of a bound."""
    fixed = int(np.prod([pin for (d, _), pin in zip(structure.pinned, pins, strict=True) if d == dimension]))
    return prime_factors(int(bound) // fixed)


def prime_factors(number: int) -> list[int]:
    """Prime factors in ascending order; none of 1."""
    found, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found


def factors_of(space: MapSpace, place: Int[Array, "D K"]) -> list[list[Scalar]]:
    """The factor in every slot of every dimension: the product of the primes that are there [1]."""
    return [
        [
            product(jnp.where(place[d, k] == position, space.primes[d, k], 1.0) for k in range(space.primes.shape[1]))
            for position in range(len(slots))
        ]
        for d, slots in enumerate(space.structure.slots)
    ]


def mapping_of(space: MapSpace, factors: Sequence[Sequence[Scalar]], rank: Float[Array, "F D"]) -> Mapping:
    """The mapping with these factors in the slots of each dimension; all others are fixed, or one.

    The ones are constants, so that the compiler leaves out the loops that a machine cannot have.
    """
    structure = space.structure
    shape = (len(KINDS), len(structure.orders), len(structure.slots))
    table = {(slot, d): space.pins[index] for index, (d, slot) in enumerate(structure.pinned)}
    for d, slots in enumerate(structure.slots):
        table |= {(slot, d): factor for slot, factor in zip(slots, factors[d], strict=True)}
    one = as_float(1.0)
    temporal, spatial_x, spatial_y = [
        [jnp.stack([table.get((Slot(level, kind), d), one) for d in range(shape[2])]) for level in range(shape[1])]
        for kind in range(shape[0])
    ]
    ranks = [
        rank[structure.free_levels.index(level)] if order is None else as_float(np.argsort(np.array(order)))
        for level, order in enumerate(structure.orders)
    ]
    stack = jnp.stack
    return Mapping(stack(temporal), stack(spatial_x), stack(spatial_y), stack(ranks), structure.kept)
