"""Mixtures of experts as eager classes run them: a router, then one expert after the other on the rows sent to it.

The rows of an expert are those of a balanced router, tokens x chosen / experts, which may be a fraction; where the
class gives an expert a fixed capacity (Switch, arXiv:2101.03961), it is that. Nodes of the experts are recorded once,
with `repeats`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxperf.models.feedforward import Moe
from jaxperf.models.workloads.activations import ACTIVATIONS
from jaxperf.models.workloads.kernels import movement, stream
from jaxperf.models.workloads.operations import (
    add,
    dropout,
    filled,
    joined,
    linear,
    multiply,
    pointwise,
    power,
    softmax,
    view,
)
from jaxperf.models.workloads.styles import Style
from jaxperf.models.workloads.tape import Tape, Tensor


def experts(tape: Tape, x: Tensor, moe: Moe, style: Style, scores: list[Tensor]) -> Tensor:
    """[batch, seq, hidden] to the same; the scores of a router that has losses of its own are added to `scores`."""
    with tape.scope("experts"):
        routed = _sparse(tape, x, moe, style) if style.capacity is None else _switch(tape, x, moe, style, scores)
        if not moe.shared_intermediate:
            return routed
        return add(tape, routed, _shared(tape, x, moe, style))


def _sparse(tape: Tape, x: Tensor, moe: Moe, style: Style) -> Tensor:
    """Softmax over the experts, the best of each token, and an indexed sum of what they return (Mixtral's class)."""
    tokens, sent = x.rows, x.rows * moe.experts_per_token
    active = min(moe.experts, sent)
    gates = softmax(tape, linear(tape, x, moe.choices, "router", moe.router_bias))
    ranked = [stream("topk", gates.elements, sent, tokens), stream("one hot", sent, sent * moe.choices, tokens)]
    if moe.correction_bias:  # added to choose, not to weigh; no optimizer step trains it
        ranked.insert(0, stream("add", gates.elements + moe.choices, gates.elements, tokens))
        tape.own(gates, moe.choices)
    spread = [movement(sent * tape.itemsize, gates.elements * tape.itemsize)]
    best = tape.record("topk", "route", (gates,), (tokens, moe.experts_per_token), ranked, spread)
    best = pointwise(tape, best, "div", name="renormalize")
    narrow = x if moe.latent is None else linear(tape, x, moe.latent, "to_latent", bias=False)
    made = filled(tape, *narrow.shape, name="zeros")
    with tape.repeated(active):
        out = _expert(tape, _gathered(tape, narrow, sent / active), moe, style)
        weighted = multiply(tape, out, view(tape, best, out.shape[0], 1))
        summed = _scattered(tape, weighted, made)
    _idle(tape, narrow, moe, moe.experts - active)
    return summed if moe.latent is None else linear(tape, summed, x.shape[-1], "from_latent", bias=False)


def _switch(tape: Tape, x: Tensor, moe: Moe, style: Style, scores: list[Tensor]) -> Tensor:
    """The best expert of each token, of which each takes up to its capacity of a sequence."""
    tokens, batch = x.rows, x.shape[0]
    seen = _jittered(tape, x) if tape.training else x
    scores.append(linear(tape, seen, moe.experts, "router", moe.router_bias))
    gates = softmax(tape, scores[-1])
    chosen, n = _priority(tape, gates, tokens), gates.elements
    spread = movement(tokens * tape.itemsize, n * tape.itemsize)
    best = tape.record("max", "route", (gates,), (tokens, 1), [stream("max", n, tokens, tokens)], [spread])
    capacity = (style.capacity or 0) * batch
    made = filled(tape, *x.shape, name="zeros")
    with tape.repeated(moe.experts):
        out = _scattered(tape, _expert(tape, _gathered(tape, x, capacity, chosen), moe, style), made)
    return multiply(tape, out, best)


def _jittered(tape: Tape, x: Tensor) -> Tensor:
    """x times uniform noise, which the router alone sees in training."""
    noise = tape.record("noise", "fill", (), x.shape, [stream("uniform", 0, x.elements, x.rows)], gradient=False)
    return multiply(tape, x, noise, name="jitter")


def _priority(tape: Tape, gates: Tensor, tokens: float) -> Tensor:
    """Which tokens an expert still has room for: argmax, one-hot, running sum, comparison, product."""
    n = gates.elements
    kernels = [
        stream("argmax", n, tokens, tokens),
        stream("one hot", tokens, n, tokens),
        stream("cumsum", n, n, tokens),
        stream("le", n, n, tokens),
        stream("mul", 2 * n, n, tokens),
        stream("argmax", n, tokens, tokens),
    ]
    return tape.record("priority", "route", (gates,), (tokens, 1), kernels, gradient=False)


def _gathered(tape: Tape, x: Tensor, rows: float, *others: Tensor) -> Tensor:
    """`rows` rows for an expert, after the host has waited for their number; backward they are written into zeros of
    the whole."""
    piece, whole = rows * x.shape[-1] * tape.itemsize, x.elements * tape.itemsize
    forward = [stream("nonzero", x.rows, rows), movement(piece, piece)]
    return tape.record("gather", "gather", (x, *others), (rows, x.shape[-1]), forward, [movement(piece, whole)])


def _scattered(tape: Tape, rows: Tensor, made: Tensor) -> Tensor:
    """The rows of an expert added to their places in `made`; backward it takes its rows of the gradient."""
    piece = rows.elements * tape.itemsize
    forward, backward = movement(2 * piece, piece), movement(piece, piece)
    placed = tape.record("scatter", "scatter", (rows, made), rows.shape, [forward], [backward])
    return dataclasses.replace(placed, shape=made.shape)  # in place: no memory but that of `made`


def _expert(tape: Tape, x: Tensor, moe: Moe, style: Style) -> Tensor:
    """One expert on its rows."""
    inner = linear(tape, x, moe.intermediate, "gate" if moe.gated else "up", moe.bias)
    inner = ACTIVATIONS[style.gate if moe.gated else style.activation](tape, inner)
    if moe.gated:
        inner = multiply(tape, inner, linear(tape, x, moe.intermediate, "up", moe.bias))
    if style.inner_dropout:
        inner = dropout(tape, inner)
    return linear(tape, inner, x.shape[-1], "down", moe.bias)


def _idle(tape: Tape, x: Tensor, moe: Moe, count: float) -> None:
    """The weights of the experts that no token is sent to: in memory, without a gradient."""
    if count > 0:
        inputs, width = 1 + moe.gated, x.shape[-1]
        sizes = [width * moe.intermediate] * (inputs + 1)
        biases = [moe.intermediate] * inputs + [width] if moe.bias else []
        with tape.repeated(count):
            tape.record("idle", "input", (), (0,), parameters=[*sizes, *biases], gradient=False)


def _shared(tape: Tape, x: Tensor, moe: Moe, style: Style) -> Tensor:
    """The expert every token visits, with a gate of its own where it has one."""
    with tape.scope("shared"):
        whole = dataclasses.replace(moe, intermediate=moe.shared_intermediate, bias=False)
        out = _expert(tape, x, whole, style)
        if not moe.shared_gate:
            return out
        return multiply(tape, out, pointwise(tape, linear(tape, x, 1, "shared_gate", bias=False), "sigmoid"))


def router_losses(tape: Tape, routed: Sequence[tuple[Tensor, int]]) -> None:
    """Z-loss and load-balancing loss over the router scores of all sparse layers of a stack (arXiv:2101.03961).

    `routed`: scores [batch, seq, experts] and how often their layer is repeated.
    """
    logits = [scores for scores, _ in routed]
    batch, experts = logits[0].shape[0], logits[0].shape[-1]
    with tape.scope("router_losses"):
        scores = joined(tape, logits, (batch, sum(part.shape[1] * times for part, times in routed), experts))
        n, rows = scores.elements, scores.rows
        spread = [stream("logsumexp", n, rows, rows)], [stream("logsumexp", n + rows, n, rows)]
        power(tape, tape.record("logsumexp", "reduce", (scores,), scores.shape[:-1], *spread))
        _balance(tape, softmax(tape, scores))


def _balance(tape: Tape, chances: Tensor) -> Tensor:
    """The mean chance of each expert times the mean of the tokens it was given."""
    batch, experts = chances.shape[0], chances.shape[-1]
    n, rows, few = chances.elements, chances.rows, batch * experts
    means = [stream("mean", n, few, batch), stream("mean", n, few, batch)]
    product = [stream("mul", 2 * few, few, batch), stream("mean", few, 1)]
    forward = [stream("one hot", rows, n, rows), *means, *product]
    backward = [stream("divu", 1, few), stream("mul", 2 * few, few, batch), stream("divu", few, n, rows)]
    return tape.record("balance", "reduce", (chances,), (1,), forward, backward)
