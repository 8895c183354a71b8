"""Networks as a cell of a table says them: a pod's slice, one axis after the other, or a fat tree.

tpu-v4 4x4x8            rings where the slice closes; `tpu-v4 4x4x8 twisted` for its all-to-all
ring 16 45GB/s 1us; switch 4 50GB/s 5us 2:1        axes, innermost first; 2:1 is an oversubscribed switch
fat-tree 8/4 50GB/s 5us 2:1                        eight nodes of a port each, four below a leaf
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import hwspecs
from hwspecs.errors import InputError, did_you_mean
from hwspecs.network import load_network
from jaxperf.core.numerics import as_float
from jaxperf.network.link_load_paths import FatTree
from jaxperf.network.topology import KINDS, Axis, Topology, torus_slice

HOP = 1e-6  # of a pod's link, where it is not said; assumed [s]
TREE, TWISTED = "fat-tree", "twisted"
_EXTENTS = re.compile(r"\d+(?:x\d+)*", re.I)
_RATIO = re.compile(r"(\d+(?:\.\d+)?):1")


@dataclass(frozen=True)
class Tree:
    """A fat tree and the latency of a message across it [s]."""

    tree: FatTree
    latency: float


@dataclass(frozen=True)
class Twisted:
    """A slice whose rings are twisted: chips along each axis, `bandwidth` of a link [byte/s], `latency` [s]."""

    sizes: tuple[int, ...]
    bandwidth: float
    latency: float


Network = Topology | Tree | Twisted


def parse_network(text: str) -> tuple[Network, str]:
    """What a cell means, and what had to be assumed of it, "" for nothing.

    **Raises:** `InputError` for a name, a number or a form that is none.
    """
    pieces = [piece.split() for piece in text.split(";")]
    if not all(pieces):
        raise InputError(
            f"network: {text!r} has an axis without a word; write ring 16 45GB/s 1us; switch 4 50GB/s 5us."
        )
    first = pieces[0][0].lower()
    if first == TREE:
        return _tree(pieces[0][1:]), ""
    if first in KINDS or len(pieces) > 1:
        return tuple(map(_axis, pieces)), ""
    return _slice(pieces[0])


def _axis(words: list[str]) -> Axis:
    kind = words[0].lower()
    if kind not in KINDS:
        raise InputError(f"network: '{kind}' is no axis; allowed: {', '.join(KINDS)}.{did_you_mean(kind, KINDS)}")
    words, ratio = _ratio(words)
    if len(words) != 4 or (ratio != 1.0 and kind != "switch"):
        raise InputError(f"network: '{' '.join(words)}' is not of the form {kind} 16 45GB/s 1us, of a switch with 2:1.")
    size = _count(words[1], "ranks of an axis")
    rate, latency = _quantity(words[2], "byte/s"), _quantity(words[3], "s")
    return Axis(kind, size, rate, latency, as_float(ratio))


def _tree(words: list[str]) -> Tree:
    words, ratio = _ratio(words)
    counts = words[0].split("/") if words else []
    if len(words) != 3 or len(counts) != 2:
        raise InputError(f"network: '{TREE} {' '.join(words)}' is not of the form {TREE} 8/4 50GB/s 5us 2:1.")
    nodes, leaf = (_count(each, "nodes") for each in counts)
    return Tree(FatTree(nodes, leaf, _quantity(words[1], "byte/s"), ratio), _quantity(words[2], "s"))


def _slice(words: list[str]) -> tuple[Network, str]:
    twisted = words[-1].lower() == TWISTED
    words = words[:-1] if twisted else words
    latency = _quantity(words.pop(), "s") if len(words) > 2 else HOP
    if len(words) != 2 or not _EXTENTS.fullmatch(words[1]):
        raise InputError(
            f"network: '{' '.join(words)}' is no pod with its slice, such as tpu-v4 4x4x8, nor axes such as "
            "ring 16 45GB/s 1us."
        )
    sizes = tuple(_count(each, "chips") for each in words[1].lower().split("x"))
    spec = load_network(words[0])
    said = f"{HOP * 1e6:g} us a hop is assumed" if latency == HOP else ""
    axes = torus_slice(spec, sizes, as_float(latency))
    return (Twisted(sizes, spec.bandwidth.si, latency) if twisted else axes), said


def _ratio(words: list[str]) -> tuple[list[str], float]:
    """The words without an oversubscription at their end, and that."""
    found = _RATIO.fullmatch(words[-1]) if words else None
    if found is None:
        return words, 1.0
    if float(found[1]) < 1.0:
        raise InputError(f"network: an oversubscription of {words[-1]} must be 1:1 or more.")
    return words[:-1], float(found[1])


def _count(text: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 2**20:
        raise InputError(f"network: '{text}' {what} must be a whole number from 1 to {2**20:,}.")
    return int(text)


def _quantity(text: str, unit: str) -> float:
    try:
        return hwspecs.parse_quantity(text, unit)
    except InputError as error:
        raise InputError(f"network: {error}") from None
