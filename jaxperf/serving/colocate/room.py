"""How engines divide the memory of one device: weights and the largest step of each, and what is left for caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hwspecs.errors import InputError
from jaxperf.serving.simulator.memory import GIGABYTE

FINEST = 10_000  # shares of the memory are counted in so many parts, as an operator would write them


class Need(NamedTuple):
    """Of one engine [byte]: weights and activations, `fixed`; and all that it takes, `whole`, where its settings state
    the size of its cache or of its share; else None."""

    fixed: float
    whole: float | None


def memory_shares(capacity: float, needs: Sequence[Need], usable: float) -> list[float | None]:
    """The share of the memory that each engine takes [1], None where its own settings state it.

    What is stated, and the weights and activations of the others, come off first: of the `usable` share of the
    capacity, or of all of it where every engine states what it takes. The rest is divided in equal parts.

    **Raises:** `InputError` where nothing is left.
    """
    open_ended = [need for need in needs if need.whole is None]
    limit = (usable if open_ended else 1.0) * capacity
    taken = sum(need.fixed if need.whole is None else need.whole for need in needs)
    if taken > limit or (open_ended and taken == limit):
        raise InputError(_too_much(capacity, needs, taken, limit))
    part = (limit - taken) / max(len(open_ended), 1)
    return [None if need.whole is not None else _share((need.fixed + part) / capacity) for need in needs]


def _share(share: float) -> float:
    """Rounded down."""
    return int(share * FINEST) / FINEST


def _too_much(capacity: float, needs: Sequence[Need], taken: float, limit: float) -> str:
    each = " + ".join(f"{(need.fixed if need.whole is None else need.whole) / GIGABYTE:.4g}" for need in needs)
    what = "weights, activations and stated caches" if any(need.whole for need in needs) else "weights and activations"
    of = f"{limit / GIGABYTE:.4g} GB of the {capacity / GIGABYTE:.4g} GB of memory"
    return f"{what} of all engines are {each} = {taken / GIGABYTE:.4g} GB, and there are {of} for them."
