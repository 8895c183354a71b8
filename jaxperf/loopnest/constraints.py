"""What a machine and its user allow of a mapping, by the names of levels and loops."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass, field, fields

from hwspecs.errors import InputError, did_you_mean
from jaxperf.loopnest.problem import Names

KINDS = ("temporal", "spatial_x", "spatial_y")  # the leaves of a `Mapping` that hold factors, in their order


@dataclass(frozen=True)
class LevelConstraints:
    """One storage level; the default leaves everything open to a level without a mesh.

    `temporal`, `spatial_x`, `spatial_y`: the loops that may have a factor there, `None` for all of them; `mesh_x`,
    `mesh_y`: children along each direction [1], beyond 1 the direction is open; `factors`: fixed ones by kind of
    `KINDS` and loop [1]; `order`: of the temporal loops, outermost first, `None` where it is free; `keep`: operands
    that the level holds, `None` for those that the case names.
    """

    temporal: tuple[str, ...] | None = None
    spatial_x: tuple[str, ...] | None = None
    spatial_y: tuple[str, ...] | None = None
    mesh_x: float = 1.0
    mesh_y: float = 1.0
    factors: Dictionary[str, Dictionary[str, float]] = field(default_factory=dict)
    order: tuple[str, ...] | None = None
    keep: tuple[str, ...] | None = None

    def allowed(self, kind: str, dimensions: tuple[str, ...]) -> tuple[str, ...]:
        """The loops that may have a factor of a kind of `KINDS`, fixed ones included."""
        open_here = kind == "temporal" or {"spatial_x": self.mesh_x, "spatial_y": self.mesh_y}[kind] > 1.0
        named: tuple[str, ...] | None = getattr(self, kind)
        return (dimensions if named is None else named) if open_here else ()

    def free(self, kind: str, dimensions: tuple[str, ...]) -> tuple[str, ...]:
        """The loops that may have a factor of a kind of `KINDS` which is not fixed."""
        fixed = self.factors.get(kind, {})
        return tuple(name for name in self.allowed(kind, dimensions) if name not in fixed)


Constraints = Dictionary[str, LevelConstraints]  # by level; a level that is not named is open


def check_constraints(constraints: Constraints, levels: tuple[str, ...], names: Names, source: str) -> None:
    """Raises `InputError` naming level and field for what the case does not have, or a fixed factor out of place."""
    for level, limits in constraints.items():
        where = f"{source}: {level}"
        _check_known([level], levels, "level", source)
        for kind in KINDS:
            _check_known(getattr(limits, kind) or (), names.dimensions, "dimension", f"{where}: {kind}")
        _check_known(limits.order or (), names.dimensions, "dimension", f"{where}: order")
        _check_known(limits.keep or (), names.operands, "operand", f"{where}: keep")
        _check_known(limits.factors, KINDS, "kind of factor", f"{where}: factors")
        for kind, factors in limits.factors.items():
            _check_known(factors, names.dimensions, "dimension", f"{where}: factors: {kind}")
            for name, factor in factors.items():
                _check_factor(factor, name in limits.allowed(kind, names.dimensions), f"{where}: {kind} {name}")
        for direction in ("mesh_x", "mesh_y"):
            if not 1.0 <= getattr(limits, direction) < math.inf:
                raise InputError(f"{where}: {direction} is {getattr(limits, direction)}; it must be an integer from 1.")


def check_kept(
    constraints: Constraints, levels: Sequence[str], names: Names, kept: Sequence[Sequence[bool]], source: str
) -> None:
    """Raises `InputError` for an operand that no level keeps; `kept`: of the case, where constraints do not say."""
    for operand, name in enumerate(names.operands):
        stated = [constraints.get(level, LevelConstraints()).keep for level in levels]
        if not any(held[operand] if named is None else name in named for named, held in zip(stated, kept, strict=True)):
            raise InputError(f"{source}: no level keeps {name}; name it in keep of {levels[-1]}, the outermost level.")


def check_factors(
    constraints: Constraints, levels: Sequence[str], names: Names, bounds: Sequence[float], source: str
) -> None:
    """Raises `InputError` naming loop and levels where fixed factors do not divide a bound, or nowhere remains for the
    rest of it."""
    limits = {level: constraints.get(level, LevelConstraints()) for level in levels}
    for name, bound in zip(names.dimensions, bounds, strict=True):
        fixed = {
            f"{factor:g} at {level} ({kind})": factor
            for level, limit in limits.items()
            for kind, factors in limit.factors.items()
            for loop, factor in factors.items()
            if loop == name
        }
        product = math.prod(fixed.values())
        said = f": {', '.join(fixed)}" if fixed else ""
        if bound % product:
            raise InputError(
                f"{source}: {name}: the fixed factors multiply to {product:g}, which does not divide the bound "
                f"{bound:g}{said}."
            )
        if product < bound and not any(
            name in limit.free(kind, names.dimensions) for limit in limits.values() for kind in KINDS
        ):
            raise InputError(
                f"{source}: {name}: no level may have its factors; its bound is {bound:g}, of which {product:g} is "
                f"fixed{said}."
            )


def _check_known(given: Iterable[str], known: Iterable[str], what: str, where: str) -> None:
    names, given = tuple(known), tuple(given)
    for name in given:
        if name not in names:
            hint = did_you_mean(str(name), names)
            raise InputError(f"{where}: '{name}' is no {what}; there are {', '.join(names)}.{hint}")
        if given.count(name) > 1:
            raise InputError(f"{where}: {name} is named twice; name it once.")


def _check_factor(factor: float, allowed: bool, where: str) -> None:
    if not (factor >= 1.0 and factor == int(factor)):
        raise InputError(f"{where}: the fixed factor is {factor}; it must be an integer from 1.")
    if factor > 1.0 and not allowed:
        raise InputError(f"{where}: a factor of {factor:g} is fixed where the loop is not allowed.")


FIELDS = tuple(each.name for each in fields(LevelConstraints))
