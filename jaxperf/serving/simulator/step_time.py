"""The time of one engine step: any function of what each slot computes. The one here looks it up in tables."""

from __future__ import annotations

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32

from jaxperf.core.numerics import ceil_div, floor_div


class Work(NamedTuple):
    """A step, slot by slot: `tokens` computed (0 where the slot has no part in it), `context` tokens in the cache that
    they attend to besides themselves, and whether it is a decode; a prompt's chunk is not."""

    tokens: Int32[Array, " S"]
    context: Int32[Array, " S"]
    decoding: Bool[Array, " S"]


class Timing(NamedTuple):
    """`seconds` of one step; `alike`: so many decode steps in a row, each one token further, take the same time;
    `covered`: whether the step lies inside what the times were made for."""

    seconds: Float64[Array, ""]
    alike: Int32[Array, ""]
    covered: Bool[Array, ""]


class AbstractStepTime(eqx.Module):
    """A jit-able function of the mixed batch."""

    @abc.abstractmethod
    def __call__(self, work: Work) -> Timing:
        """The time of one step with at least one token."""


class Parts(NamedTuple):
    """One step by what a table says of it: `linear` layers, attention of the decodes and of the prompts [s], and what
    `Timing` has besides."""

    linear: Float64[Array, ""]
    decode: Float64[Array, ""]
    prefill: Float64[Array, ""]
    alike: Int32[Array, ""]
    covered: Bool[Array, ""]


class StepTimeTable(AbstractStepTime):
    """Tables of a step: linear layers once over all tokens, attention of the decodes, attention of the prompts.

    t = tokens[T] + decode[n, ceil(mean context / bucket)]
        + prefill[sum_i ceil(c_i / bucket), round(sqrt(sum_i q_i^2) / length_step)]

    with T tokens in all, n decodes, and prompts i of which q_i tokens are computed after c_i; as in Vidur (Agrawal et
    al., MLSys 2024, section 4). Beyond its end a table gives its last entry, and the step is not `covered`.

    `tokens` [T + 1], `decode` [n + 1, contexts], `prefill` [contexts, lengths + 1], all in seconds with zeros for no
    tokens; `shared_prefill`: factor of the prefill where a step has several prompts [1]; `bucket`, `length_step`:
    tokens from one entry to the next.
    """

    tokens: Float64[Array, " T"]
    decode: Float64[Array, "n contexts"]
    prefill: Float64[Array, "prefixes lengths"]
    shared_prefill: Float64[Array, ""]
    bucket: Float64[Array, ""]
    length_step: Float64[Array, ""]

    def __call__(self, work: Work) -> Timing:
        found = self.parts(work)
        return Timing(found.linear + found.decode + found.prefill, found.alike, found.covered)

    def parts(self, work: Work) -> Parts:
        """The summands of the step's time."""
        prompt = (work.tokens > 0) & ~work.decoding
        decodes, prompts = jnp.sum(work.decoding, dtype=jnp.int32), jnp.sum(prompt, dtype=jnp.int32)
        context = work.context.astype(jnp.float64)
        total = jnp.sum(jnp.where(work.decoding, context, 0.0))
        mean = floor_div(total, jnp.maximum(decodes, 1).astype(jnp.float64))
        column = ceil_div(mean, self.bucket)
        linear, inside = _entry(self.tokens, jnp.sum(work.tokens, dtype=jnp.int32))
        decode, inside_decode = _entry(self.decode, decodes, column)
        prefill, inside_prefill = self._prompts(
            jnp.where(prompt, work.tokens, 0).astype(jnp.float64), jnp.where(prompt, context, 0.0), prompts
        )
        return Parts(
            linear,
            decode,
            prefill,
            alike=(column * self.bucket - mean + 1.0).astype(jnp.int32),
            covered=inside & inside_decode & inside_prefill,
        )

    def _prompts(
        self, tokens: Float64[Array, " S"], context: Float64[Array, " S"], prompts: Int32[Array, ""]
    ) -> tuple[Float64[Array, ""], Bool[Array, ""]]:
        """Attention of the `prompts`, zeros where a slot has none, and whether it was inside the table."""
        found, inside = _entry(
            self.prefill, jnp.sum(ceil_div(context, self.bucket)), self._length(jnp.sqrt(jnp.sum(tokens**2)))
        )
        return found * jnp.where(prompts > 1, self.shared_prefill, 1.0), inside

    def _length(self, tokens: Float64[Array, ""]) -> Float64[Array, ""]:
        """round(tokens / length_step)."""
        return floor_div(2.0 * tokens + self.length_step, 2.0 * self.length_step)


class ComposedStepTimes(StepTimeTable):
    """The same tables, in which prompts do not attend to one another's cached tokens: instead of the law of their sums

        prefill[C, Q], Q = sqrt(sum_i q_i^2), C = sum_i q_i c_i / Q

    with the very scores of all prompts, Q (C + Q / 2) = sum_i q_i (c_i + q_i / 2), and of several at least the time in
    which a short chunk reads all that is cached for them, prefill[sum_i ceil(c_i / bucket), 1].
    """

    def _prompts(
        self, tokens: Float64[Array, " S"], context: Float64[Array, " S"], prompts: Int32[Array, ""]
    ) -> tuple[Float64[Array, ""], Bool[Array, ""]]:
        length = jnp.sqrt(jnp.sum(tokens**2))
        prefix = jnp.sum(tokens * context) / jnp.maximum(length, 1.0)
        scores, inside = _entry(self.prefill, ceil_div(prefix, self.bucket), self._length(length))
        reading, inside_reading = _entry(self.prefill, jnp.sum(ceil_div(context, self.bucket)), jnp.ones_like(length))
        cached = (prompts > 1) & (jnp.sum(context) > 0.0)
        return jnp.where(cached, jnp.maximum(scores, reading), scores), inside & (inside_reading | ~cached)


def _entry(table: Array, *place: Array) -> tuple[Float64[Array, ""], Bool[Array, ""]]:
    """The entry at `place`, or the nearest at the end of the table, and whether it was inside."""
    ends = [size - 1 for size in table.shape]
    indices = tuple(jnp.minimum(index.astype(jnp.int32), end) for index, end in zip(place, ends, strict=True))
    inside = jnp.bool_(True)
    for index, end in zip(place, ends, strict=True):
        inside &= index <= end
    return table[indices], inside
