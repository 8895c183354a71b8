"""Token mixers with a state of constant size, as their classes run them with the fused kernels that they call where
these are installed: the convolutions of causal-conv1d, the scans of mamba-ssm, and flash-linear-attention.

A scan is one node. Its products are those of its chunks, two more for each in the backward pass; what is made within a
chunk is not written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxperf.models.graph import Op
from jaxperf.models.mixer_parameters import mamba2_widths
from jaxperf.models.mixers import GatedDelta, KimiDelta, LightningAttention, Mamba1, Mamba2, Mixer, ShortConv
from jaxperf.models.workloads.attention import Given, by_head, merged, rotated
from jaxperf.models.workloads.kernels import bmm, stream
from jaxperf.models.workloads.operations import linear, multiply, pointwise, rms_norm, split
from jaxperf.models.workloads.tape import Tape, Tensor

RECURRENT = (Mamba1, Mamba2, GatedDelta, KimiDelta, LightningAttention, ShortConv)
CHUNKS = {Mamba2: 256, GatedDelta: 64, KimiDelta: 64}  # tokens computed at once, as in the published kernels


def recurrent(tape: Tape, x: Tensor, mixer: Mixer, given: Given) -> Tensor:
    """[batch, seq, hidden] to the same."""
    match mixer:
        case Mamba1():
            inner = _mamba1(tape, x, mixer)
        case Mamba2():
            inner = _mamba2(tape, x, mixer)
        case GatedDelta():
            inner = _gated_delta(tape, x, mixer)
        case KimiDelta():
            inner = _kimi_delta(tape, x, mixer)
        case LightningAttention():
            inner = _lightning(tape, x, mixer, given)
        case _:
            assert isinstance(mixer, ShortConv)
            inner = _short_conv(tape, x, mixer)
    return linear(tape, inner, x.shape[-1], "out", bool(getattr(mixer, "bias", False)))


# --- state spaces -----------------------------------------------------------------------------------------------------


def _mamba1(tape: Tape, x: Tensor, mixer: Mamba1) -> Tensor:
    """arXiv:2312.00752, section 3.3."""
    inner, state = mixer.inner, mixer.state
    seen, gate = split(tape, linear(tape, x, 2 * inner, "in", mixer.bias), (inner, inner))
    seen = _convolved(tape, seen, mixer.conv, mixer.conv_bias)
    selected = split(
        tape, linear(tape, seen, mixer.dt_rank + 2 * state, "select", False), (mixer.dt_rank, state, state)
    )
    if mixer.inner_norms:
        selected = tuple(
            rms_norm(tape, part, name) for part, name in zip(selected, ("dt_norm", "b_norm", "c_norm"), strict=True)
        )
    step = linear(tape, selected[0], inner, "step")
    read = sum(part.elements for part in (seen, gate, step, *selected[1:]))
    ops = [stream("selective scan", read, seen.elements, seen.rows)]
    return _scan(tape, (seen, gate, step, *selected[1:]), seen.shape, ops, (inner * state, inner))


def _mamba2(tape: Tape, x: Tensor, mixer: Mamba2) -> Tensor:
    """arXiv:2405.21060, section 6."""
    inner, shared = mamba2_widths(mixer)
    widths = (inner, inner + shared, mixer.heads)
    gate, seen, step = split(tape, linear(tape, x, sum(widths), "in", mixer.bias), widths)
    seen = _convolved(tape, seen, mixer.conv, mixer.conv_bias)
    products = _chunked(x, mixer.heads, mixer.groups, mixer.state, mixer.head_dim, CHUNKS[Mamba2])
    y = _scan(tape, (seen, step), (*x.shape[:-1], inner), products, (3 * mixer.heads,))
    y = _gated(tape, y, gate)
    return rms_norm(tape, y, "norm") if mixer.gated_norm else y


# --- linear attention -------------------------------------------------------------------------------------------------


def _gated_delta(tape: Tape, x: Tensor, mixer: GatedDelta) -> Tensor:
    """arXiv:2412.06464, as in Qwen3-Next."""
    keys, values = mixer.key_heads * mixer.key_dim, mixer.value_heads * mixer.value_dim
    seen, gate = split(tape, linear(tape, x, 2 * (keys + values), "in", False), (2 * keys + values, values))
    decay = linear(tape, x, 2 * mixer.value_heads, "gates", False)
    seen = _convolved(tape, seen, mixer.conv, False)
    sizes = (mixer.value_heads, mixer.key_dim, mixer.value_dim, CHUNKS[GatedDelta])
    y = _scan(tape, (seen, decay), gate.shape, _delta_rule(x, *sizes), (2 * mixer.value_heads,))
    return _gated(tape, _normed_heads(tape, y, mixer.value_heads), gate)


def _kimi_delta(tape: Tape, x: Tensor, mixer: KimiDelta) -> Tensor:
    """arXiv:2510.26692: a decay for each channel; it and the gate pass through a narrow layer unless `full`."""
    width, rank = mixer.heads * mixer.head_dim, mixer.head_dim
    seen = [_convolved(tape, linear(tape, x, width, name, False), mixer.conv, False) for name in ("q", "k", "v")]
    decay, gate = (
        linear(tape, x if mixer.full else linear(tape, x, rank, f"{name}_down", False), width, name, False)
        for name in ("decay", "gate")
    )
    step = linear(tape, x, mixer.heads, "step", False)
    products = _delta_rule(x, mixer.heads, rank, rank, CHUNKS[KimiDelta])
    y = _scan(tape, (*seen, decay, step), gate.shape, products, (mixer.heads, width))
    return _gated(tape, _normed_heads(tape, y, mixer.heads), gate)


def _lightning(tape: Tape, x: Tensor, mixer: LightningAttention, given: Given) -> Tensor:
    """arXiv:2501.08313, section 2.2."""
    width = mixer.heads * mixer.head_dim
    parts = split(tape, linear(tape, x, 3 * width, "qkv", False), (width,) * 3)
    q, k, v = (by_head(tape, part, mixer.heads) for part in parts)
    if mixer.qk_norm:
        q, k = rms_norm(tape, q, "q_norm"), rms_norm(tape, k, "k_norm")
    if mixer.rotary and given.rotary is not None:
        q, k = rotated(tape, q, given.rotary), rotated(tape, k, given.rotary)
    products = _chunked(x, mixer.heads, mixer.heads, mixer.head_dim, mixer.head_dim, mixer.block)
    y = rms_norm(tape, merged(tape, _scan(tape, (q, k, v), v.shape, products, ()), x), "norm")
    return _gated(tape, y, linear(tape, x, width, "gate", False), "sigmoid")


def _short_conv(tape: Tape, x: Tensor, mixer: ShortConv) -> Tensor:
    """arXiv:2511.23404: C conv(B x)."""
    width = mixer.width
    into, out, value = split(tape, linear(tape, x, 3 * width, "in", mixer.bias), (width,) * 3)
    return multiply(tape, out, _convolved(tape, multiply(tape, into, value), mixer.conv, mixer.bias))


# --- pieces -----------------------------------------------------------------------------------------------------------


def _convolved(tape: Tape, x: Tensor, taps: int, bias: bool) -> Tensor:
    """The causal convolution of each channel, its activation with it; backward one kernel for inputs and taps."""
    n, channels = x.elements, x.shape[-1]
    backward = [stream("causal conv gradient", 2 * n, n, x.rows)]
    parameters = (channels * taps, channels) if bias else (channels * taps,)
    return tape.record("conv", "conv1d", (x,), x.shape, [stream("causal conv", n, n, x.rows)], backward, parameters)


def _scan(
    tape: Tape, parts: Sequence[Tensor], shape: tuple[float, ...], ops: Sequence[Op], parameters: Sequence[float]
) -> Tensor:
    backward = [dataclasses.replace(op, count=2 * op.count) for op in ops]
    return tape.record("scan", "scan", parts, shape, ops, backward, parameters)


def _gated(tape: Tape, y: Tensor, gate: Tensor, function: str = "silu") -> Tensor:
    return multiply(tape, y, pointwise(tape, gate, function, name="gate"))


def _normed_heads(tape: Tape, y: Tensor, heads: int) -> Tensor:
    """A norm of each head with one weight for each of its elements."""
    return merged(tape, rms_norm(tape, by_head(tape, y, heads), "norm"), y)


def _chunked(x: Tensor, heads: int, groups: int, keys: int, values: int, chunk: int) -> list[Op]:
    """States of the chunks and their passing on; scores within chunks, once for a group of heads, times the values; and
    what the states add."""
    batch, seq = x.shape[0], x.shape[1]
    size, each = min(chunk, seq), batch * -(-seq // chunk)
    states = each * heads * keys * values
    return [
        bmm(each * heads, keys, values, size),
        stream("pass states on", states, states, each),
        bmm(each * groups, size, size, keys),
        bmm(each * heads, size, values, size),
        bmm(each * heads, size, values, keys),
    ]


def _delta_rule(x: Tensor, heads: int, keys: int, values: int, chunk: int) -> list[Op]:
    """The same with the products of keys that fold a chunk's updates into two matrices, and what these take from the
    states (arXiv:2406.06484, section 3.2); the inverse of a triangle is a third of a product."""
    batch, seq = x.shape[0], x.shape[1]
    size, each = min(chunk, seq), batch * -(-seq // chunk) * heads
    inverse = dataclasses.replace(bmm(each, size, size, size), count=1 / 6)
    folded = [bmm(each, size, size, keys), inverse, bmm(each, size, keys, size), bmm(each, size, values, size)]
    return [*folded, bmm(each, size, values, keys), *_chunked(x, heads, heads, keys, values, chunk)]
