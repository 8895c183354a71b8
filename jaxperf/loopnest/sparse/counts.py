"""Accesses of every level to sparse operands: what is left out of storage, and what is gated or skipped of the rest.

Timeloop's src/sparse-analysis/storage-optimization-combiner.cpp. Storage that knows where its zeros are moves none of
them. What an outer level saves never reaches the levels inside; of what does reach a level its own unit saves
1 - (1 - p) / (1 - p of the nearest unit outside), both being shares of all traffic. Every share is rounded to words.
"""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from typing import NamedTuple

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.loopnest.accesses import Accesses
from jaxperf.loopnest.sparse.compute import Split
from jaxperf.loopnest.sparse.formats import Units
from jaxperf.loopnest.sparse.hardware import ACTIONS
from jaxperf.loopnest.sparse.optimization import Saving
from jaxperf.loopnest.sparse.whole import round_down, round_up


class Metadata(NamedTuple):
    """Accesses to the metadata of one rank [1]."""

    metadata: Split
    payload: Split


class SparseAccesses(NamedTuple):
    """What one instance does with one operand over the whole run. `words`: by action [word]; `ranks`: accesses to
    metadata by action and rank, innermost first [1]; `reductions`: updates that are added to a word read before;
    `decompressions`, `compressions`: words that change their form on the way in and out [word]."""

    words: dict[str, Split]
    ranks: dict[str, list[Metadata]]
    reductions: Scalar
    decompressions: Scalar
    compressions: Scalar


class Stored(NamedTuple):
    """An operand at one level. `dense`: its accesses were no word zero; `density`: share of the words that is moved
    [1]; `units`: metadata of a tile by rank; `child_ranks`: how many of them go inwards with a read; `compressed`:
    zeros are left out; `saving`: of the unit that acts on it."""

    dense: Accesses
    density: Scalar
    units: list[Units]
    child_ranks: int
    compressed: bool
    saving: Saving | None


def operand_counts(levels: Dictionary[int, Stored], written: bool) -> dict[int, SparseAccesses]:
    """Accesses to one operand at the levels that keep it.

    **Arguments:** `levels`: innermost first; `written`: whether the nest writes the operand.
    """
    found: dict[int, SparseAccesses] = {}
    outside = jnp.zeros_like(next(iter(levels.values())).density)
    parent: int | None = None
    for level in reversed([*levels]):
        stored = levels[level]
        words, ranks = _reaching(stored, outside)
        own = stored.saving
        if own is not None:  # fills come from outside, whatever is saved here
            for name in ("reads", "updates"):
                words[name] = _saved(words[name], own, outside, written and name == "reads")
                ranks[name] = _saved_ranks(ranks[name], own, outside, stored.child_ranks)
            outside = jnp.maximum(outside, own.share)
        nothing = jnp.zeros_like(outside)
        changes = parent is not None and levels[parent].compressed and not stored.compressed
        found[level] = SparseAccesses(
            words,
            ranks,
            _reductions(stored.dense, words["updates"].actual),
            words["fills"].actual if changes else nothing,
            found[parent].words["updates"].actual if changes and parent is not None and written else nothing,
        )
        parent = level
    return dict(reversed(found.items()))


def _reaching(stored: Stored, outside: Scalar) -> tuple[dict[str, Split], dict[str, list[Metadata]]]:
    """Words and metadata that reach a level at all: what is stored, less what units further out have saved."""
    words, ranks = {}, {}
    tile = jnp.maximum(stored.dense.tile, 1.0)
    for name in ACTIONS:
        dense: Scalar = getattr(stored.dense, name)
        moved = dense - round_down(dense * (1.0 - stored.density))
        words[name] = _whole(moved - round_down(moved * outside))
        accessed = [Units(*(round_up(each * (dense / tile)) for each in unit)) for unit in stored.units]
        ranks[name] = [Metadata(*(_whole(each - round_down(each * outside)) for each in unit)) for unit in accessed]
    return words, ranks


def _whole(count: Scalar) -> Split:
    return Split(count, jnp.zeros_like(count), jnp.zeros_like(count))


def _saved(split: Split, saving: Saving, outside: Scalar, rounds_up: bool) -> Split:
    """A count with the share of a unit taken off; reads of results lose the larger part where it is not whole."""
    remaining = 1.0 - outside
    reached = remaining > 0.0
    share = jnp.where(reached, 1.0 - (1.0 - saving.share) / jnp.where(reached, remaining, 1.0), 0.0)
    share = jnp.maximum(share, 0.0)
    lost = (round_up if rounds_up else round_down)(split.actual * share)
    gates = saving.gated > 0.0
    nothing = jnp.zeros_like(lost)
    return Split(split.actual - lost, jnp.where(gates, lost, nothing), jnp.where(gates, nothing, lost))


def _saved_ranks(ranks: list[Metadata], saving: Saving, outside: Scalar, child_ranks: int) -> list[Metadata]:
    """Metadata of the ranks that would have gone inwards; that of the others is read to find the tile."""
    return [
        Metadata(*(_saved(split, saving, outside, False) for split in rank)) if index < child_ranks else rank
        for index, rank in enumerate(ranks)
    ]


def _reductions(dense: Accesses, updates: Scalar) -> Scalar:
    """Reductions of the updates that are made, rounded up to whole ones."""
    some = dense.updates > 0.0
    return jnp.where(some, round_up(dense.reductions * updates / jnp.where(some, dense.updates, 1.0)), 0.0)
