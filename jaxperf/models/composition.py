"""From the times of kernels to the time of an iteration: a host that issues work ahead of a device that does it.

The host takes c for every node and kernel it issues; the device starts a kernel when it has finished the one before and
the host has issued it:

    H' = H + c,    D' = max(D, H') + t

A sequence of such steps is a max-plus linear map (Baccelli et al., Synchronization and Linearity, 1992) with three
numbers: h, what it adds to H; s, what it adds to D where the device is behind; g, from the H before it to the D after
it where the device waits. Sequences compose as (h1 + h2, s1 + s2, max(g1 + s2, h1 + g2)), and one that is repeated r
times is (r h, r s, g + (r - 1) max(h, s)): a layer is worked through once, however often the model has it.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, as_optional_float
from jaxperf.models.graph_steps import ACCUMULATE, FORWARD, Steps, critical_path


class Composition(eqx.Module):
    """How a framework turns kernels into an iteration.

    `launch`: host time to issue one kernel [s]; `node`: host time of a node beside its kernels [s]; `gap`: idle time of
    the device between two kernels [s]; `overhead`: of an iteration, that nothing hides [s]. In-graph times over
    isolated ones: `dense` of the matrix units' kernels, `stream` of the others, `backward_dense` and `backward_stream`
    of the backward pass over the forward one [1]; `accumulate`: share of the accumulating kernels that is executed [1].
    `hidden`: share of the time of an empty kernel, measured alone, that the kernels of a graph do not take [1].
    `draw`: power that the device draws in all but the matrix units' kernels, over its limit [1] (`shared_limit`).
    `streams`: kernels that may run at the same time [1], or `None` for one after the other (structure).
    """

    launch: Float[Array, ""] = eqx.field(converter=as_float)
    node: Float[Array, ""] = eqx.field(converter=as_float)
    gap: Float[Array, ""] = eqx.field(converter=as_float)
    overhead: Float[Array, ""] = eqx.field(converter=as_float)
    dense: Float[Array, ""] = eqx.field(converter=as_float, default=1.0)
    stream: Float[Array, ""] = eqx.field(converter=as_float, default=1.0)
    backward_dense: Float[Array, ""] = eqx.field(converter=as_float, default=1.0)
    backward_stream: Float[Array, ""] = eqx.field(converter=as_float, default=1.0)
    accumulate: Float[Array, ""] = eqx.field(converter=as_float, default=1.0)
    hidden: Float[Array, ""] = eqx.field(converter=as_float, default=0.0)
    draw: Float[Array, ""] = eqx.field(converter=as_float, default=1.0)
    streams: Float[Array, ""] | None = eqx.field(converter=as_optional_float, default=None)


class Iteration(eqx.Module):
    """`time` of an iteration; `forward`, `backward` (with accumulation) of its passes; `kernel`: what the device works;
    `host`: what the host issues; all [s]."""

    time: Float[Array, ""]
    forward: Float[Array, ""]
    backward: Float[Array, ""]
    kernel: Float[Array, ""]
    host: Float[Array, ""]


LEAST = 0.1  # of a kernel's isolated time, that is left of it in a graph
CORNER = 4.0  # sharpness of the corner between full clock and power limit, as in the law of kernels
NEAR = 1e-6  # a product slower by no more than this share is not limited by power


def shared_limit(
    steps: Steps, times: Float[Array, " K"], unlimited: Float[Array, " K"], draw: Scalar | float
) -> Float[Array, " K"]:
    """Isolated times of the kernels where the mean power of the iteration keeps the limit, not that of each kernel [s].

    A product that takes c at full clock and p at the limited power takes |(c, p)| = (c^4 + p^4)^(1/4) when it runs
    again and again. A limiter sees the mean over many kernels (NVML, `nvmlDeviceGetPowerUsage`: over a second on boards
    since Ampere's), and leaves to the products what the kernels between them do not draw. Those, S in all, draw u of
    the limit, so (S (1 - u^4)^(1/4), u S); with sums C and P of the products'

        T = |(C + S (1 - u^4)^(1/4), P + u S)|

    instead of |(C, P)| + S, which is never shorter. Every product is relieved of the same share of its t - c.

    **Arguments:** `times`: |(c, p)| of each distinct kernel, `unlimited`: c [s]; `draw`: u, of 1 at most [1].
    """
    launched = jax.ops.segment_sum(_executed(steps) * steps.count, steps.kernel, num_segments=times.shape[0] + 1)[:-1]
    dense = steps.dense > 0.5
    limited = dense & (times > (1.0 + NEAR) * unlimited)
    slower = jnp.where(limited, times, 2.0) / jnp.where(limited, unlimited, 1.0)
    energy = jnp.where(limited, unlimited * (slower**CORNER - 1.0) ** (1.0 / CORNER), 0.0)
    added = jnp.where(limited, launched * (times - unlimited), 0.0).sum()
    clock, power = jnp.where(dense, launched * unlimited, 0.0).sum(), jnp.sum(launched * energy)
    others = jnp.where(dense, 0.0, launched * times).sum()
    busy = others * jnp.maximum(1.0 - draw**CORNER, NEAR) ** (1.0 / CORNER)
    together = ((clock + busy) ** CORNER + (power + draw * others) ** CORNER) ** (1.0 / CORNER)
    share = jnp.where(added > 0.0, together - others - clock, 1.0) / jnp.where(added > 0.0, added, 1.0)
    return jnp.where(limited, unlimited + jnp.clip(share, 0.0, 1.0) * (times - unlimited), times)


def iteration_time(
    steps: Steps, times: Float[Array, " K"], composition: Composition, empty: Scalar | float = 0.0
) -> Iteration:
    """The time of one iteration on one device.

    The passes are separated by a synchronization. With several streams the device is busy for the longer of the
    critical path and the work over the streams: the lower bound that list scheduling reaches within a factor two
    (Graham 1966).

    **Arguments:** `times`: isolated times of the distinct kernels [s]; `empty`: of a kernel that does nothing, as it is
    contained in them: the launch, which a graph hides behind the kernel before [s].
    """
    each, count = step_durations(steps, times, composition, empty)
    ahead = as_float(steps.part == FORWARD)
    one_pass = functools.partial(_pass, steps, each, count, composition)
    passes = jax.vmap(one_pass)(jnp.stack([ahead, 1.0 - ahead]))
    executed = _executed(steps)
    return Iteration(
        time=passes[0] + passes[1] + composition.overhead,
        forward=passes[0],
        backward=passes[1],
        kernel=jnp.sum(executed * count * each),
        host=jnp.sum(executed * (steps.node * composition.node + count * composition.launch)),
    )


def step_durations(
    steps: Steps, times: Float[Array, " K"], composition: Composition, empty: Scalar | float = 0.0
) -> tuple[Float[Array, " S"], Float[Array, " S"]]:
    """What the device works for each kernel of a step, the gap after it included [s], and how many there are [1]."""
    none = jnp.zeros_like(times[:1])
    dense = jnp.concatenate([steps.dense, none])[steps.kernel] > 0.5
    exposed = jnp.maximum(times - composition.hidden * empty, LEAST * times)
    isolated = jnp.concatenate([exposed, none])[steps.kernel]
    in_graph = jnp.where(dense, composition.dense, composition.stream)
    backward = jnp.where(dense, composition.backward_dense, composition.backward_stream)
    each = isolated * in_graph * jnp.where(steps.part == FORWARD, 1.0, backward) + composition.gap
    return each, jnp.where(steps.part == ACCUMULATE, composition.accumulate, 1.0) * steps.count


def _executed(steps: Steps) -> Float[Array, " S"]:
    """How often each step is executed [1]."""
    owned = jnp.concatenate([steps.times, jnp.zeros(1)])
    return owned[steps.owner]


def _pass(steps: Steps, each: Array, count: Array, composition: Composition, inside: Array) -> Scalar:
    """Time from the first launch of a pass to the end of its last kernel [s]; `inside` [S]: 1 for its steps."""
    count = inside * count
    if composition.streams is not None:
        each = each * _concurrency(steps, count * each, composition.streams)

    def step(carry: tuple[Array, ...], at: tuple[Array, ...]) -> tuple[tuple[Array, ...], None]:
        done, block = carry[:3], carry[3:]
        node, time, launches, repeats = at
        some = launches > 0.0
        kernels = _power((composition.launch, time, composition.launch + time), launches)
        issued = node * composition.node
        block = _then(block, (issued, 0.0 * issued, issued))
        block = _choose(some, _then(block, kernels), block)
        closed = _then(done, _power(block, repeats))
        ends = repeats > 0.0
        return (*_choose(ends, closed, done), *_choose(ends, _nothing(time), block)), None

    start = _nothing(each[0])
    (h, s, g, *_), _ = jax.lax.scan(step, (*start, *start), (inside * steps.node, each, count, steps.repeats))
    return jnp.maximum(jnp.maximum(h, s), g)


def _concurrency(steps: Steps, work: Array, streams: Scalar) -> Scalar:
    """Busy time with the streams there are over that with one [1]."""
    per_node = jax.ops.segment_sum(work, steps.owner, num_segments=steps.times.shape[0] + 1)[:-1] * steps.times
    total = jnp.sum(per_node)
    path = critical_path(steps.before, per_node)
    busy = jnp.minimum(jnp.maximum(path, total / streams), total)
    return jnp.where(total > 0.0, busy / jnp.where(total > 0.0, total, 1.0), 1.0)


def _nothing(like: Array) -> tuple[Array, Array, Array]:
    """The map of no step: g is as good as minus infinity."""
    zero = jnp.zeros_like(like)
    return zero, zero, zero - 1e30


def _choose(condition: Array, yes: tuple[Array, ...], no: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(jnp.where(condition, a, b) for a, b in zip(yes, no, strict=True))


def _then(first: tuple[Array, ...], second: tuple[Array, ...]) -> tuple[Array, Array, Array]:
    (h1, s1, g1), (h2, s2, g2) = first, second
    return h1 + h2, s1 + s2, jnp.maximum(g1 + s2, h1 + g2)


def _power(block: tuple[Array, ...], repeats: Scalar) -> tuple[Array, Array, Array]:
    """The map of a block that is worked through `repeats` times, at least once (less counts in h and s only)."""
    h, s, g = block
    return repeats * h, repeats * s, g + jnp.maximum(repeats - 1.0, 0.0) * jnp.maximum(h, s)
