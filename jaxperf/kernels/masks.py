"""Which keys a query of attention sees: pairs counted exactly, and the tiles a kernel visits to cover them.

The kind of mask is structure (a class), its lengths are numbers (leaves). All counts are of one head of one sequence,
for `queries` new tokens at the positions `prefix` .. `prefix + queries - 1`.
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div, floor_div

BLOCK = 128.0  # query rows and key columns of one tile
UNLIMITED = 2.0**27  # window of full attention: a power of two, exact in float32; no command takes a longer context


class AbstractMask(eqx.Module):
    """What attention kernels ask of a mask. Implementations are final and hold lengths only."""

    @abc.abstractmethod
    def pairs(self, queries: Scalar, prefix: Scalar) -> Scalar:
        """Query-key pairs [1]."""

    @abc.abstractmethod
    def tiles(self, queries: Scalar, prefix: Scalar) -> Scalar:
        """Key tiles visited by all query tiles [1]."""

    @abc.abstractmethod
    def longest(self, queries: Scalar, prefix: Scalar) -> Scalar:
        """Key tiles of the query tile that visits most [1]."""

    @abc.abstractmethod
    def keys(self, queries: Scalar, prefix: Scalar) -> Scalar:
        """Keys that any query sees [1]."""

    @abc.abstractmethod
    def visible(self, context: Scalar) -> Scalar:
        """Keys that the newest of `context` tokens sees, itself included where it is a key [1]."""

    @abc.abstractmethod
    def kept(self, length: Scalar) -> Scalar:
        """Tokens whose keys a cache must hold for a sequence that grows to `length` tokens [1]."""


class Causal(AbstractMask):
    """A query sees itself and the tokens before it, `window` of them at most (itself included); 0 means all."""

    window: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    @property
    def span(self) -> Float[Array, "*batch"]:
        """Keys a query can see [1]."""
        return jnp.where(self.window > 0.0, self.window, UNLIMITED)

    def pairs(self, queries: Scalar, prefix: Scalar) -> Scalar:
        return causal_pairs(queries, prefix, self.span)

    def tiles(self, queries: Scalar, prefix: Scalar) -> Scalar:
        return visited_tiles(queries, prefix, self.span)

    def longest(self, queries: Scalar, prefix: Scalar) -> Scalar:
        block = as_float(BLOCK)
        # From the first key of a tile's first row to the last of its last; before the window is full, all tiles so far.
        last, first = prefix + jnp.minimum(queries, block), prefix + 1.0 - self.span
        return jnp.minimum(ceil_div(prefix + queries, block), ceil_div(last, block) - floor_div(first, block))

    def keys(self, queries: Scalar, prefix: Scalar) -> Scalar:
        return queries + jnp.minimum(prefix, self.span - 1.0)

    def visible(self, context: Scalar) -> Scalar:
        return jnp.minimum(context, self.span)

    def kept(self, length: Scalar) -> Scalar:
        return jnp.minimum(length, self.span)


class Chunked(AbstractMask):
    """Causal within aligned blocks of `chunk` tokens: token p sees floor(p / chunk) chunk .. p (Llama 4).

    Kernels treat every block as a sequence of its own, so tiles do not cross a border.
    """

    chunk: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def _parts(self, queries: Scalar, prefix: Scalar) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """(tokens of the first block before the queries, queries in it, whole blocks after it, queries in the last)."""
        before = prefix - floor_div(prefix, self.chunk) * self.chunk
        first = jnp.minimum(queries, self.chunk - before)
        whole = floor_div(queries - first, self.chunk)
        return before, first, whole, queries - first - whole * self.chunk

    def pairs(self, queries: Scalar, prefix: Scalar) -> Scalar:
        before, first, whole, last = self._parts(queries, prefix)
        ramp = first * before + first * (first + 1.0) / 2.0
        return ramp + whole * (self.chunk * (self.chunk + 1.0) / 2.0) + last * (last + 1.0) / 2.0

    def tiles(self, queries: Scalar, prefix: Scalar) -> Scalar:
        before, first, whole, last = self._parts(queries, prefix)
        none, span = as_float(0.0), as_float(UNLIMITED)
        each = visited_tiles(self.chunk, none, span)
        return visited_tiles(first, before, span) + whole * each + visited_tiles(last, none, span)

    def longest(self, queries: Scalar, prefix: Scalar) -> Scalar:
        before = self._parts(queries, prefix)[0]
        return ceil_div(jnp.minimum(before + queries, self.chunk), as_float(BLOCK))

    def keys(self, queries: Scalar, prefix: Scalar) -> Scalar:
        return self._parts(queries, prefix)[0] + queries

    def visible(self, context: Scalar) -> Scalar:
        return context - floor_div(context - 1.0, self.chunk) * self.chunk

    def kept(self, length: Scalar) -> Scalar:
        return jnp.minimum(length, self.chunk)


class Full(AbstractMask):
    """No mask: every query sees all tokens, before and after it (encoders)."""

    def pairs(self, queries: Scalar, prefix: Scalar) -> Scalar:
        return queries * (prefix + queries)

    def tiles(self, queries: Scalar, prefix: Scalar) -> Scalar:
        return ceil_div(queries, as_float(BLOCK)) * self.longest(queries, prefix)

    def longest(self, queries: Scalar, prefix: Scalar) -> Scalar:
        return ceil_div(prefix + queries, as_float(BLOCK))

    def keys(self, queries: Scalar, prefix: Scalar) -> Scalar:
        return prefix + queries

    def visible(self, context: Scalar) -> Scalar:
        return context

    def kept(self, length: Scalar) -> Scalar:
        return length


class Cross(AbstractMask):
    """Queries see the `length` tokens of another sequence, such as an encoder's output, and not each other."""

    length: Float[Array, "*batch"] = eqx.field(converter=as_float)

    def pairs(self, queries: Scalar, prefix: Scalar) -> Scalar:
        return queries * self.length

    def tiles(self, queries: Scalar, prefix: Scalar) -> Scalar:
        return ceil_div(queries, as_float(BLOCK)) * self.longest(queries, prefix)

    def longest(self, queries: Scalar, prefix: Scalar) -> Scalar:
        return ceil_div(self.length, as_float(BLOCK))

    def keys(self, queries: Scalar, prefix: Scalar) -> Scalar:
        return self.length

    def visible(self, context: Scalar) -> Scalar:
        return self.length

    def kept(self, length: Scalar) -> Scalar:
        return self.length


def causal_pairs(queries: Scalar, prefix: Scalar, span: Scalar) -> Scalar:
    """Query-key pairs of causal attention: sum over i < queries of min(span, prefix + i + 1) [1].

    The first `a` queries see all keys before them, the rest exactly `span`.
    """
    a = jnp.clip(span - prefix, 0.0, queries)
    return a * prefix + a * (a + 1.0) / 2.0 + (queries - a) * span


def visited_tiles(queries: Scalar, prefix: Scalar, span: Scalar) -> Scalar:
    """Key tiles visited by all query tiles of one head, exactly [1].

    Query tile t covers rows tB .. min((t+1)B, queries) - 1; its last key tile is ceil((prefix + row end) / B), and
    the max(0, floor((prefix + tB + 1 - span) / B)) tiles before the window of its first row are skipped.
    """
    block = as_float(BLOCK)
    rows = ceil_div(queries, block)
    full = (rows - 1.0) * ceil_div(prefix, block) + rows * (rows - 1.0) / 2.0 + ceil_div(prefix + queries, block)
    first = floor_div(prefix + 1.0 - span, block)
    late = jnp.clip(rows - 1.0 + first, 0.0, None)
    skipped = jnp.where(first >= 0.0, rows * first + rows * (rows - 1.0) / 2.0, late * (late + 1.0) / 2.0)
    return full - skipped
