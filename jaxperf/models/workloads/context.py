"""Attention of a sequence whose tokens several devices share, each of which holds all weights; forward only.

Ulysses (arXiv:2309.14509): before the attention an all-to-all gives a device all tokens of its share of the heads,
after it another its share of the tokens with all heads. Ring attention (arXiv:2310.01889): queries stay, keys and
values go round, each block on its way while the one before is worked at. All else of a layer works token by token.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.graph import Graph, Op
from jaxperf.models.workloads import kernels
from jaxperf.models.workloads.attention import by_head, flash
from jaxperf.models.workloads.kernels import stream
from jaxperf.models.workloads.operations import contiguous, joined, view
from jaxperf.models.workloads.tape import Tape, Tensor

METHODS = ("ulysses", "ring")
ALL_TO_ALL, SEND = "all_to_all", "send"  # kinds of nodes whose output devices exchange
MOST_NAMED = 64  # ranks that an error lists


@dataclass(frozen=True)
class Division:
    """The tokens of a sequence over `ranks` devices, with attention by one of `METHODS`."""

    ranks: int = 1
    method: str = METHODS[0]

    def own(self, name: str, heads: int, tokens: int) -> int:
        """Tokens of one device.

        **Raises:** `InputError` that begins with `name` for tokens, and with Ulysses heads, that the ranks do not
        divide; for an unknown method.
        """
        if self.method not in METHODS:
            hint = did_you_mean(self.method, METHODS)
            raise InputError(
                f"The method of context ranks is {self.method!r}; it must be {' or '.join(METHODS)}.{hint}"
            )
        by_heads = self.method == "ulysses"
        whole = math.gcd(heads, tokens) if by_heads else tokens
        if whole % self.ranks:
            allowed = ", ".join(str(n) for n in range(1, min(whole, MOST_NAMED) + 1) if whole % n == 0)
            what = f"{heads} heads and {tokens:,} tokens" if by_heads else f"{tokens:,} tokens"
            most = f" of up to {MOST_NAMED}" if whole > MOST_NAMED else ""
            raise InputError(
                f"{name}: {what} do not divide over {self.ranks} context ranks ({self.method}); those{most} that do: "
                f"{allowed}."
            )
        return tokens // self.ranks


WHOLE = Division()


def divided_attention(tape: Tape, q: Tensor, k: Tensor, v: Tensor, heads: int, division: Division) -> Tensor:
    """Attention without a mask: [batch, own tokens, width] each to the same."""
    if division.ranks == 1:
        return whole_attention(tape, q, k, v, heads)
    return {"ulysses": _ulysses, "ring": _ring}[division.method](tape, (q, k, v), heads, division.ranks)


def whole_attention(tape: Tape, q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """The same on one device; keys and values may be of other tokens."""
    mixed = flash(tape, by_head(tape, q, heads), by_head(tape, k, heads), by_head(tape, v, heads))
    return view(tape, mixed, *q.shape, name="merged")


def _ulysses(tape: Tape, parts: tuple[Tensor, Tensor, Tensor], heads: int, ranks: int) -> Tensor:
    """Each all-to-all is between two copies, as what goes to one device has to lie together."""
    batch, own, width = parts[0].shape
    share = width / ranks
    with tape.scope("to_heads"):
        packed = joined(tape, parts, (ranks, 3, batch, own, share), name="pack")
        whole = contiguous(tape, _exchanged(tape, packed), 3, batch, ranks * own, share, name="unpack")
    q, k, v = (view(tape, whole, batch, heads // ranks, ranks * own, width / heads, name=name) for name in "qkv")
    mixed = flash(tape, q, k, v)
    with tape.scope("to_tokens"):
        packed = contiguous(tape, mixed, ranks, batch, own, share, name="pack")
        return contiguous(tape, _exchanged(tape, packed), batch, own, width, name="unpack")


def _exchanged(tape: Tape, x: Tensor) -> Tensor:
    return tape.record("exchange", ALL_TO_ALL, (x,), x.shape)


def _ring(tape: Tape, parts: tuple[Tensor, Tensor, Tensor], heads: int, ranks: int) -> Tensor:
    """As many blocks as ranks, and the output rescaled and added to for each after the first."""
    batch, own, width = parts[0].shape
    q, k, v = (by_head(tape, each, heads) for each in parts)
    sent = tape.record("keys_and_values", SEND, (k, v), (2, *k.shape))
    block = kernels.attention(batch, heads, own, own, width / heads)
    merge = stream("merge", 2 * q.elements, q.elements, q.rows)
    ops = [dataclasses.replace(block, count=float(ranks)), dataclasses.replace(merge, count=ranks - 1.0)]
    mixed = tape.record("ring", "attention", (q, k, v, sent), q.shape, ops)
    return view(tape, mixed, batch, own, width, name="merged")


@dataclass(frozen=True)
class Exchange:
    """`times` an iteration a device hands on `size` bytes, in an all-to-all that it waits for or, where there is one,
    to its neighbour while it works at the kernel `behind`."""

    size: float
    times: float
    behind: Op | None = None


def exchanges(graph: Graph, ranks: int) -> tuple[Exchange, ...]:
    """What a device of `ranks` sends in the forward pass of its graph."""
    found = [Exchange(node.output_bytes, node.repeats) for node in graph.nodes if node.kind == ALL_TO_ALL]
    for node in graph.nodes:
        for other in (graph[name] for name in node.before):
            if other.kind == SEND:
                block = dataclasses.replace(node.forward[0], count=1.0)
                found.append(Exchange(other.output_bytes, node.repeats * (ranks - 1), block))
    return tuple(found)
