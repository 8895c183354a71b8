"""Chains of nests: what one writes, the next reads tile by tile, so that it never leaves the level that keeps it.

The stages run inside of loops over ranks that they share; a tile of every intermediate array is made, used and dropped
within one iteration (LoopTree: Gilbert et al., IEEE TCASAI 2024; FLAT: Kao et al., ASPLOS 2023). Inside, every stage
has a mapping of its own.
"""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx

from hwspecs.errors import InputError, did_you_mean
from jaxperf.loopnest.problem import Names, Problem, build_problem

STEPS = "steps"  # the loop over the operations of one point, which indexes nothing


@dataclass(frozen=True)
class Einsum:
    """One stage. `output`; `inputs`: arrays and the ranks that index them, every other rank being summed over;
    `ranks`: of each array; `operations`: of a unit for one point of the nest, that build on each other [1]."""

    output: str
    inputs: tuple[str, ...]
    ranks: Dictionary[str, tuple[str, ...]]
    operations: float = 1.0


@dataclass(frozen=True)
class Links:
    """How the stages hang together, in positions. `shared`: how many dimensions index every intermediate array, the
    first of each stage; `held`: of each stage, those that index some but not all; `tensors`: of each stage, the array
    that each operand is; `intermediate`: of each array, whether stages alone use it; `room`: of each array, the one
    whose words its own replace one by one, or itself."""

    shared: int
    held: tuple[tuple[int, ...], ...]
    tensors: tuple[tuple[int, ...], ...]
    intermediate: tuple[bool, ...]
    room: tuple[int, ...]


class Chain(eqx.Module):
    """`problems`: one nest a stage, in the order they run."""

    problems: tuple[Problem, ...]
    links: Links = eqx.field(static=True)


@dataclass(frozen=True)
class ChainNames:
    """What the positions in a chain are called: `nests` of each stage, `tensors`, `shared` dimensions."""

    nests: tuple[Names, ...]
    tensors: tuple[str, ...]
    shared: tuple[str, ...]

    @property
    def stages(self) -> tuple[str, ...]:
        """Stages are called by what they write."""
        return tuple(nest.operands[-1] for nest in self.nests)


def build_chain(einsums: Sequence[Einsum], bounds: Dictionary[str, float]) -> tuple[Chain, ChainNames]:
    """A chain of stages in the order they run.

    **Arguments:** `bounds` [1]: of every rank.
    **Raises:** `InputError` for fewer than two stages, a rank without a bound, an array written twice, indexed in two
    ways or read before it is written, a stage whose output no later one reads though it is not the last, or
    intermediate arrays that no rank indexes in common.
    """
    _check(einsums, bounds)
    written = [each.output for each in einsums]
    made = written[:-1]
    ranks = {name: own for each in einsums for name, own in each.ranks.items()}
    shared = tuple(rank for rank in ranks[made[0]] if all(rank in ranks[name] for name in made))
    if not shared:
        raise InputError(f"{', '.join(made)} have no rank in common; there is no loop that the stages could share.")
    some = {rank for name in made for rank in ranks[name]} - set(shared)
    tensors = tuple(dict.fromkeys(name for each in einsums for name in (*each.inputs, each.output)))
    built = [_stage(each, bounds, shared) for each in einsums]
    nests = tuple(names for _, names in built)
    links = Links(
        len(shared),
        tuple(tuple(d for d, rank in enumerate(nest.dimensions) if rank in some) for nest in nests),
        tuple(tuple(tensors.index(name) for name in nest.operands) for nest in nests),
        tuple(name in made for name in tensors),
        tuple(tensors.index(_room(name, einsums, ranks, made)) for name in tensors),
    )
    return Chain(tuple(problem for problem, _ in built), links), ChainNames(nests, tensors, shared)


def _stage(einsum: Einsum, bounds: Dictionary[str, float], shared: Sequence[str]) -> tuple[Problem, Names]:
    """The nest of one stage: shared ranks first, the output last of its operands."""
    arrays = (*einsum.inputs, einsum.output)
    own = {rank: bounds[rank] for rank in (*shared, *(rank for name in arrays for rank in einsum.ranks[name]))}
    if einsum.operations != 1.0:
        own[STEPS] = einsum.operations
    operands = {name: [[(rank, "")] for rank in einsum.ranks[name]] for name in arrays}
    return build_problem(own, operands, [einsum.output])


def _room(name: str, einsums: Sequence[Einsum], ranks: Dictionary[str, tuple[str, ...]], made: Sequence[str]) -> str:
    """The first array of those that are overwritten word by word up to this one: a stage that indexes an intermediate
    array just as its output needs no room for both, if nobody reads the old one again."""
    place = next((place for place, each in enumerate(einsums) if each.output == name), None)
    if place is None or name not in made:
        return name
    for source in einsums[place].inputs:
        later = any(source in each.inputs for each in einsums[place + 1 :])
        alike = set(ranks[source]) == {rank for array in einsums[place].ranks.values() for rank in array}
        if source in made and alike and set(ranks[name]) == set(ranks[source]) and not later:
            return _room(source, einsums, ranks, made)
    return name


def _check(einsums: Sequence[Einsum], bounds: Dictionary[str, float]) -> None:
    if len(einsums) < 2:
        raise InputError(f"A chain has at least two stages; this one has {len(einsums)}.")
    ranks: dict[str, tuple[str, ...]] = {}
    written = [each.output for each in einsums]
    for place, each in enumerate(einsums):
        if each.output in written[:place]:
            raise InputError(f"{each.output} is written by two stages; give every stage an output of its own.")
        for name in each.inputs:
            if name in written[place:]:
                raise InputError(f"{each.output} reads {name} before a stage has written it.")
        if place < len(einsums) - 1 and not any(each.output in other.inputs for other in einsums[place + 1 :]):
            raise InputError(f"No later stage reads {each.output}; only the last one's output may leave the chain.")
        for name, own in each.ranks.items():
            if ranks.setdefault(name, own) != own:
                raise InputError(f"{name} is indexed by {', '.join(ranks[name])} and by {', '.join(own)}; use one way.")
            for rank in own:
                if rank not in bounds:
                    raise InputError(f"{name}: the rank {rank} has no bound.{did_you_mean(rank, bounds)}")
