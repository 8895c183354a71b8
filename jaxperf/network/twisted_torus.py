"""All-to-all on a twisted torus, whose rings along the short axes end half of the long ones further on.

Slices of k x k x 2k and k x 2k x 2k chips can be wired so by optical switches (TPU v4: Jouppi et al., ISCA 2023). A
rank scatters S bytes over h hops in the mean, and has 2 D links of b; if shortest ways load all links evenly, as those
of k x k x 2k can (Camara et al., IEEE TPDS 2010),

    T = h S / (2 D b) + alpha x hops to the farthest rank

in place of the busiest cut of the long axis, n S / (8 b) (`bisection_all_to_all`). No routing is faster; how near it
comes is not known here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hwspecs.errors import InputError
from jaxperf.core.numerics import Scalar

Chip = tuple[int, ...]


def twisted_all_to_all(sizes: Sequence[int], bandwidth: Scalar, latency: Scalar, size: Scalar) -> Scalar:
    """Each rank scatters `size` bytes over all ranks of a twisted torus [s].

    **Arguments:** `sizes`: chips along each axis, some k and some 2k; `bandwidth` of a link in one direction [byte/s];
    `latency` of a hop [s].
    **Raises:** `InputError` for sizes that cannot be twisted.
    """
    hops = distances(sizes)
    mean = sum(hops.values()) / len(hops)
    return mean * size / (2.0 * len(sizes) * bandwidth) + max(hops.values()) * latency


def distances(sizes: Sequence[int]) -> dict[Chip, int]:
    """Hops from one chip to every other [1]; all chips see the same. Raises `InputError` for other axes than k, 2 k."""
    short, long = min(sizes), max(sizes)
    if short < 2 or long != 2 * short or any(each not in (short, long) for each in sizes):
        shape = " x ".join(map(str, sizes))
        raise InputError(
            f"A torus of {shape} chips cannot be twisted; its axes must be k or 2 k long, both with k >= 2."
        )
    edge: list[Chip] = [(0,) * len(sizes)]
    found: dict[Chip, int] = dict.fromkeys(edge, 0)
    while edge:
        new = dict.fromkeys(each for chip in edge for each in _neighbors(chip, sizes) if each not in found)
        found |= dict.fromkeys(new, found[edge[0]] + 1)
        edge = list(new)
    return found


def _neighbors(chip: Chip, sizes: Sequence[int]) -> Iterator[Chip]:
    """One step along each axis, either way; a step over the end of a short axis goes k along every long one."""
    short = min(sizes)
    for axis, step in itertools.product(range(len(sizes)), (1, -1)):
        to = [place + step * (each == axis) for each, place in enumerate(chip)]
        if sizes[axis] == short and not 0 <= to[axis] < short:
            to = [place + short * (length != short) for place, length in zip(to, sizes, strict=True)]
        yield tuple(place % length for place, length in zip(to, sizes, strict=True))
