"""What a queueing model knows of an engine: what it is asked, its batches, and what prompts do to its steps.

A discipline says how prompts and decodes share the steps: `prefill_first` (vLLM v0) or `chunked` (Sarathi-Serve, vLLM
v1). Each is a function of one point that gives `Prefill`: of the law, the load, the engine, the `decodes` of a step
[1], what a `step` without prompts takes [s], the `company` of a prompt in its step, and how many prompts are `ready`
for one at most, None for any number [1].
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, floor_div
from jaxperf.serving.queueing.arrivals import float_or_none
from jaxperf.serving.queueing.gamma import gamma_tail
from jaxperf.serving.queueing.law import (
    StepLaw,
    decode_attention,
    linear_time,
    mean_linear_time,
    prompt_attention,
)
from jaxperf.serving.queueing.lengths import Lengths, padded
from jaxperf.serving.queueing.line import Company, met, points


class Load(eqx.Module):
    """What is asked of one engine: `rate` of requests [1/s], `variation`: squared coefficient of variation of the time
    between them [1], None for Poisson's, which is 1 and has simpler equations; lengths of prompts and outputs,
    independent of each other; `cached`: tokens before those of `prompt` that a prefix cache has, in the mean [1]."""

    rate: Float[Array, "*batch"] = eqx.field(converter=as_float)
    prompt: Lengths
    output: Lengths
    variation: Float[Array, "*batch"] | None = eqx.field(converter=float_or_none, default=None)
    cached: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    @property
    def unevenness(self) -> Scalar:
        """`variation` as a number [1]."""
        return jnp.ones_like(self.rate) if self.variation is None else self.variation


class Engine(eqx.Module):
    """`slots`: sequences that run at once, by the engine's cap and its cache [1]; `budget`: tokens of a step [1];
    `stages` of its pipeline, with a batch in flight for each, and `replicas` of its attention, whose steps begin and
    end together; each has its share of the sequences [1]; `ahead`: 1 where a step is formed while the one before it is
    computed, else 0 (`formed`)."""

    slots: Float[Array, "*batch"] = eqx.field(converter=as_float)
    budget: Float[Array, "*batch"] = eqx.field(converter=as_float)
    stages: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    replicas: Float[Array, "*batch"] = eqx.field(converter=as_float, default=1.0)
    ahead: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)

    @property
    def ways(self) -> Float[Array, "*batch"]:
        """Batches in flight [1]."""
        return self.stages * self.replicas


class Last(NamedTuple):
    """The step in which a prompt of each class [K] ends: `after`: how long after the first of its own steps it begins
    [s]; `left`: other prompts that it has room for behind this one [1], and `each`: what one of them adds to it [s].
    `further`: the step after it, in which it ends behind one for which the step has no room [s]."""

    after: Float[Array, " K"]
    left: Float[Array, " K"]
    each: Float[Array, " K"]
    further: Float[Array, " K"]


class Prefill(NamedTuple):
    """Prompts of each class [K]: `own`: the steps of one that is alone [s]; `share`: what it adds to the queue behind
    it [s]; `delay`: how long decodes get no token for it, `stall` of a step aside [s]. `floor`: a step with prompts,
    without what they add [s]; `stall`: what of it keeps decodes waiting [s]; `room`: prompts that fit in one step [1];
    `filling`: one's share of steps that are full [s], and `packed` its mean, in which so many decodes per prompt are
    done as well as `beside` says [1]."""

    own: Float[Array, " K"]
    share: Float[Array, " K"]
    delay: Float[Array, " K"]
    floor: Scalar
    stall: Scalar
    room: Scalar
    filling: Float[Array, " K"]
    packed: Scalar
    beside: Scalar
    last: Last


FEWEST = 1e-6  # of others, in place of none
SHORTEST = 1e-9  # in place of nothing, where something is divided by it
FULL = 0.98  # of a load: beyond it the answer is that of a queue as long, and `utilization` says that there is none

Discipline = Callable[[StepLaw, Load, Engine, Scalar, Scalar, Company, Scalar | None], Prefill]


def prefill_first(
    law: StepLaw,
    load: Load,
    engine: Engine,
    decodes: Scalar,
    step: Scalar,
    company: Company,
    ready: Scalar | None,
) -> Prefill:
    """Steps of whole prompts alone, before any decode (vLLM v0): `budget` padded tokens hold budget / longest prompts.

    What one more prompt adds, and the floor beside it, are the line where requests meet it (`line`).
    """
    tokens, mean = load.prompt.tokens, load.prompt.mean
    attention = jax.vmap(functools.partial(prompt_attention, law, cached=load.cached))(tokens, tokens)
    own = jax.vmap(functools.partial(linear_time, law))(tokens) + law.prefill[0] + attention
    average = functools.partial(mean_over, load.prompt)
    room = jnp.minimum(padded(load.prompt, engine.budget), _most(engine, ready))
    several = jnp.maximum(room, 1.0)

    def together(number: Scalar) -> Scalar:
        """So many prompts, in steps that are full where they do not fit in one [s]."""
        inside = jnp.minimum(number, several)
        linear = jax.vmap(functools.partial(linear_time, law))(tokens + (inside - 1.0) * mean)
        return (average(linear) + law.prefill[0]) * number / inside + number * average(attention)

    packed = together(several) / several
    line = met(together, company, load.prompt.square / load.prompt.mean**2 - 1.0)
    floor = jnp.clip(line.floor, 0.0, average(own))
    share = jnp.maximum(own - average(own) + line.each, 0.0)
    # In a pipeline a batch of prompts is in front of decodes that would have waited for others: a stage behind it.
    stall = jnp.maximum(floor - step * (1.0 - 1.0 / engine.stages), -average(share))
    zero = jnp.zeros_like(own)
    each = average(share) + (floor + average(share) - average(own)) / jnp.maximum(company.after, FEWEST)
    last = Last(zero, zero + 0.5 * (several - 1.0), zero + each, zero)
    return Prefill(own, share, share, floor, stall, room, own, packed, jnp.zeros_like(packed), last)


def chunked(
    law: StepLaw,
    load: Load,
    engine: Engine,
    decodes: Scalar,
    step: Scalar,
    company: Company,
    ready: Scalar | None,
) -> Prefill:
    """Prompts beside the decodes, in chunks of what these leave of the budget (Sarathi-Serve, OSDI 2024; vLLM v1).

    Decodes get their token in every step, so a prompt delays them by what its steps take beyond decode steps. One
    that fills several has steps of its own where it is alone; in a queue all are full, and it takes its share of them.
    Others in the step in which it ends make what each token adds to the step another, E k e(k) / E k over the numbers k
    of prompts in steps that have any: few tokens take no longer than memory does.
    """
    free = jnp.maximum(engine.budget - decodes, 1.0)
    tokens = load.prompt.tokens
    decoding = decode_attention(law, decodes, mean_context(load)) * jnp.minimum(decodes, 1.0)

    def mixed(size: Scalar) -> Scalar:
        return linear_time(law, decodes + size) + decoding + law.prefill[0]

    full, shortest = mixed(free), mixed(jnp.ones_like(free))
    room = jnp.minimum(free / load.prompt.mean, _most(engine, ready))
    filled = mixed(jnp.minimum(room * load.prompt.mean, free))

    def alone(prompt: Scalar) -> tuple[Scalar, ...]:
        """(time, number) of the steps of one prompt; (time, prompts it has room for) of its last.

        So many full steps or one more, by how many of Poisson's decodes are beside: P(n <= x) of them is the tail of
        a gamma distribution of x + 1.
        """
        steps = jnp.maximum(floor_div(prompt + 0.5 * free, free), 1.0)
        most = engine.budget - prompt / steps
        shape = jnp.maximum(most, 0.0) + 1.0
        fits = jnp.where(most < 0.0, 0.0, gamma_tail(decodes, shape, shape))
        over = prompt - steps * free
        found = mixed(jnp.where(over > 0.0, jnp.maximum(over, 1.0), over + free))
        last = found + jnp.where(over > 0.0, fits * (full - found), (1.0 - fits) * (shortest - found))
        left = (jnp.maximum(-over, 0.0) * fits + (1.0 - fits) * jnp.minimum(free - over, free)) / load.prompt.mean
        steps = steps - fits
        return steps * full + last + attention_of(prompt), steps + 1.0, last, left

    def attention_of(prompt: Scalar) -> Scalar:
        return prompt_attention(law, prompt, jnp.minimum(prompt, free), load.cached)

    own, steps, last, left = jax.vmap(alone)(tokens)
    attention, average = jax.vmap(attention_of)(tokens), functools.partial(mean_over, load.prompt)
    filling = filled / room * tokens / load.prompt.mean + attention
    packed = average(filling)
    short, mean = load.prompt.mean < free, jnp.minimum(load.prompt.mean, free)

    def together(number: Scalar) -> Scalar:
        """So many prompts, in steps that are full where they do not fit in one [s]."""
        inside = jnp.minimum(number * mean, free)
        return mixed(inside) * number * mean / inside + number * average(attention)

    spread = load.prompt.square / load.prompt.mean**2 - 1.0
    line = met(together, company, spread)
    waste = jnp.maximum(average(own) - together(jnp.ones_like(free)), 0.0)
    waste = waste * (1.0 - jnp.minimum((1.0 + company.others) / jnp.maximum(room, 1.0), 1.0) ** 2)
    floor = jnp.where(short, jnp.clip(line.floor + waste, 0.0, average(own)), step)
    queued = jnp.minimum(load.rate * packed, 1.0)
    in_queue = tokens / free * (full - step) + attention
    delay = own - steps * step
    delay = jnp.where(short, delay, delay + queued * (in_queue - delay))
    further = jnp.where(short & (left < 1.0), jax.vmap(mixed)(jnp.maximum(1.0 - left, 0.0) * mean), 0.0)
    first, later = Last(own - last, left, full - last, further), Last(own - 0.5 * full, 0.5 * room, 0.5 * full, further)
    ending = _ending(first, later, queued)
    share = jnp.where(short, jnp.maximum(own - average(own) + line.each, 0.0), jnp.maximum(own - floor, 0.0))
    each = average(share) + (floor + average(share) - average(own)) / jnp.maximum(company.after, FEWEST)
    ending = ending._replace(each=jnp.where(short, each, ending.each))
    rest = tokens - jnp.minimum(floor_div(tokens, free) * free, tokens)
    ends = jnp.maximum(average(rest), 1.0)
    lonely = jnp.minimum(average(rest**2) / ends, free)
    among = points(company, spread)
    weight = sum(weight * number for number, weight in among)

    def beyond(prompts: Scalar) -> Scalar:
        """What each of so many tokens of prompts adds to a step of decodes, whose number varies [s]."""
        beside = mean_linear_time(law, decodes + prompts) + decoding + law.prefill[0]
        return (beside - step) / prompts

    def met_by(number: Scalar) -> Scalar:
        return beyond(jnp.minimum(lonely + (number - 1.0) * load.prompt.mean, free))

    shared = sum(share * number / weight * met_by(number) for number, share in among)
    delay = jnp.where(short, jnp.maximum(delay + ends * (shared - beyond(lonely)), 0.0), delay)
    return Prefill(own, share, delay, floor, jnp.zeros_like(floor), room, filling, packed, 1.0 / room, ending)


def _most(engine: Engine, ready: Scalar | None) -> Scalar:
    """Prompts of one step at most: those that are `ready`, each with a slot of its batch [1]."""
    most = jnp.maximum(engine.slots / engine.ways, 1.0)
    return most if ready is None else jnp.minimum(most, ready)


def _ending(alone: Last, queued: Last, often: Scalar) -> Last:
    """The last step of a prompt that meets others in a queue so `often` [1], from that of one alone and of one in a
    queue, which ends anywhere in a full step; `each` of both is what all that it has room for add [s]."""
    after, left, taken, further = (one + often * (other - one) for one, other in zip(alone, queued, strict=True))
    return Last(jnp.maximum(after, 0.0), left, taken / jnp.maximum(left, SHORTEST), further)


def mean_context(load: Load) -> Scalar:
    """Tokens that a decode attends to: the prompt, what of it is cached included, and half of what it has made, longer
    outputs met more often [1]."""
    made = load.output.square - load.output.mean
    return load.cached + load.prompt.mean + 0.5 * made / jnp.maximum(load.output.mean - 1.0, 1e-9)


def decode_step(law: StepLaw, load: Load, engine: Engine, sequences: Scalar) -> Scalar:
    """One decode of `sequences` in all the batches in flight [s]."""
    each = jnp.maximum(sequences / engine.ways, 1.0)
    return linear_time(law, each) + decode_attention(law, each, mean_context(load))


def mean_over(lengths: Lengths, values: Float[Array, " K"]) -> Scalar:
    """The mean over requests of what each class of lengths has."""
    return jnp.sum(lengths.share * values, axis=-1)
