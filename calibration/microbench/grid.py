"""The sizes an operation is measured at: log-uniform, round, distinct, and the same for the same seed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import numpy as np

from calibration.microbench.operation import Operation, Range, Sizes

_STEPS = 8  # round sizes in a power of two: 8 9 10 ... 15, 16 18 20 ... 30
_TRIES = 50  # candidates a point wanted


def round_size(size: float) -> int:
    """The nearest size with four significant bits: 1000 becomes 1024, 11008 becomes 11264, and 7 stays."""
    whole = max(1, round(size))
    step = 2 ** max(0, whole.bit_length() - _STEPS.bit_length())
    return step * round(whole / step)


def candidates(operation: Operation, seed: int) -> Iterator[Sizes]:
    """Sizes without end, drawn from a generator of the operation's own, so that no other operation moves them."""
    generator = np.random.default_rng([seed, zlib.crc32(operation.name.encode())])
    while True:
        sizes = {name: _draw(allowed, generator) for name, allowed in operation.sizes.items()}
        if operation.accepts(sizes):
            yield sizes


def draw(operation: Operation, count: int, seed: int, keep: Callable[[list[Sizes]], np.ndarray]) -> list[Sizes]:
    """At most `count` distinct sizes, in the order drawn; `keep` says of a list which ones are wanted [bool]."""
    drawn = dict.fromkeys(
        tuple(sizes.items()) for sizes, _ in zip(candidates(operation, seed), range(_TRIES * count), strict=False)
    )
    distinct: list[Sizes] = [dict(sizes) for sizes in drawn]
    return [sizes for sizes, wanted in zip(distinct, keep(distinct), strict=True) if wanted][:count]


def _draw(allowed: Range | tuple[int, ...], generator: np.random.Generator) -> int:
    if isinstance(allowed, tuple):
        return int(generator.choice(allowed))
    low, high = np.log(allowed.low), np.log(allowed.high)
    return min(max(round_size(np.exp(generator.uniform(low, high))), allowed.low), allowed.high)
