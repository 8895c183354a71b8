"""Multi-head attention as an eager class computes it: projections, products of all scores, softmax (arXiv:1706.03762).

The scores of masked tokens are computed too: only `jaxperf.models.fusion.flash_attention` leaves them out.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from hwspecs.errors import InputError
from jaxperf.models.mixers import Attention
from jaxperf.models.workloads import kernels
from jaxperf.models.workloads.kernels import movement, stream
from jaxperf.models.workloads.operations import (
    add,
    chosen,
    contiguous,
    dropout,
    filled,
    joined,
    layer_norm,
    linear,
    matmul,
    multiply,
    part,
    pointwise,
    rms_norm,
    scaled,
    softmax,
    split,
    view,
)
from jaxperf.models.workloads.styles import Style
from jaxperf.models.workloads.tape import Tape, Tensor

FLASH_BACKWARD = 2.5  # FLOP of the backward pass over the forward one: five products for two (arXiv:2307.08691, 3.1)
CORE = "core"  # scope of what the scores and their softmax need: what selective recomputation runs again
CAUSAL, PADDING, BIAS = "causal_mask", "padding_mask", "head_bias"  # names of the node that adds to the scores
REFUSED = ("shared_kv", "keys_as_values", "q_rank", "indexer", "input_width", "merged", "experts")


@dataclass(frozen=True)
class Given:
    """What all layers of a stack share: the `mask` that is added to the scores and what it is, of `CAUSAL`, `PADDING`
    and `BIAS`; cosine and sine of the rotary positions ([seq, head_dim] each); whether norms are LayerNorms; and the
    mask of cross-attention."""

    style: Style
    mask: Tensor | None = None
    mask_is: str = PADDING
    rotary: tuple[Tensor, Tensor] | None = None
    layer_norms: bool = True
    cross_mask: Tensor | None = None


def check_attention(mixer: Attention, where: str) -> None:
    """Raises `InputError` that begins with `where` for what is not built yet."""
    for name in REFUSED:
        if getattr(mixer, name):
            raise InputError(f"{where}: Attention.{name} has no workload graph yet, like {', '.join(REFUSED)}.")


def attention(tape: Tape, x: Tensor, mixer: Attention, given: Given, memory: Tensor | None = None) -> Tensor:
    """[batch, seq, hidden] to the same; keys and values come from `memory` where it is given (cross-attention)."""
    q, k, v = _projections(tape, x, mixer, given, memory)
    if given.style.scale == "queries":
        q = scaled(tape, q)
    q, k, v = (by_head(tape, part, heads) for part, heads in zip((q, k, v), _counts(mixer), strict=True))
    if mixer.qk_norm and not mixer.qk_norm_wide:
        q, k = (_norm(tape, part, mixer, given, name) for part, name in ((q, "q_norm"), (k, "k_norm")))
    if mixer.rotary and given.rotary is not None and memory is None:
        q, k = rotated(tape, q, given.rotary), rotated(tape, k, given.rotary)
    k, v = _repeated(tape, k, mixer), _repeated(tape, v, mixer)
    if given.style.copies:
        q, k, v = (_flat(tape, part) for part in (q, k, v))
    y = merged(tape, attended(tape, q, k, v, given, mixer.heads if mixer.sinks else 0), x)
    if mixer.output_gate or mixer.head_gate:
        y = gated(tape, y, x, mixer.heads, whole=mixer.output_gate, bias=mixer.gate_bias)
    return linear(tape, y, x.shape[-1], "output", mixer.output_bias)


def gated(tape: Tape, y: Tensor, x: Tensor, heads: int, whole: bool, bias: bool = False) -> Tensor:
    """y times the sigmoid of a projection of x: of each element where `whole`, else of each of its heads."""
    gate = pointwise(tape, linear(tape, x, y.shape[-1] if whole else heads, "gate", bias), "sigmoid")
    if whole:
        return multiply(tape, y, gate)
    batch, seq, width = y.shape
    parted = view(tape, y, batch, seq, heads, width // heads)
    return view(tape, multiply(tape, parted, view(tape, gate, batch, seq, heads, 1)), batch, seq, width)


def attended(tape: Tape, q: Tensor, k: Tensor, v: Tensor, given: Given, sinks: int = 0) -> Tensor:
    """softmax(q k^T / sqrt(d) + mask) v, of [..., seq, head_dim] each; `sinks` heads have a learned logit each."""
    turned = view(tape, k, *k.shape[:-2], k.shape[-1], k.shape[-2], name="transpose")
    with tape.scope(CORE):
        weights = _weights(tape, matmul(tape, q, turned, "scores"), given, sinks)
        return matmul(tape, weights, v, "values")


def flash(tape: Tape, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same of [batch, heads, seq, head_dim] each, unmasked and unscaled, by one kernel that writes no scores."""
    batch, heads, queries, width = q.shape
    op = kernels.attention(batch, heads, queries, k.shape[-2], width)
    backward = dataclasses.replace(op, count=FLASH_BACKWARD, note="attention gradient")
    return tape.record("flash", "attention", (q, k, v), q.shape, [op], [backward])


def _counts(mixer: Attention) -> tuple[int, int, int]:
    return mixer.heads, mixer.kv_heads, mixer.kv_heads


def _projections(
    tape: Tape, x: Tensor, mixer: Attention, given: Given, memory: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [batch, seq, heads x head_dim], normed over all heads where the mixer does so."""
    widths = (mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim, mixer.kv_heads * mixer.value_width)
    source = x if memory is None else memory
    if given.style.joined and memory is None:
        q, k, v = split(tape, linear(tape, x, sum(widths), "qkv", mixer.qkv_bias), widths)
    else:
        q = linear(tape, x, widths[0], "query", mixer.qkv_bias)
        k = linear(tape, source, widths[1], "key", mixer.qkv_bias and mixer.key_bias)
        v = linear(tape, source, widths[2], "value", mixer.qkv_bias)
    if mixer.qk_norm_wide:
        q, k = (_norm(tape, part, mixer, given, name) for part, name in ((q, "q_norm"), (k, "k_norm")))
    return q, k, v


def _norm(tape: Tape, x: Tensor, mixer: Attention, given: Given, name: str) -> Tensor:
    """Of each head, or of all heads together; like the other norms of the layer a LayerNorm or an RMSNorm."""
    return layer_norm(tape, x, name, mixer.qk_norm_bias) if given.layer_norms else rms_norm(tape, x, name)


def by_head(tape: Tape, x: Tensor, heads: int) -> Tensor:
    """[batch, seq, width] to [batch, heads, seq, width / heads]."""
    batch, seq, width = x.shape
    parted = view(tape, x, batch, seq, heads, width // heads)
    return view(tape, parted, batch, heads, seq, width // heads, name="permute")


def rotated(tape: Tape, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """x cos + rotate(x) sin, with the halves of x exchanged and one negated (arXiv:2104.09864)."""
    with tape.scope("rotary"):
        straight = multiply(tape, x, rotary[0])
        half = view(tape, x, *x.shape[:-1], x.shape[-1] / 2, name="half")
        turned = joined(tape, (x, pointwise(tape, half, "neg", backward=0)), x.shape)
        return add(tape, straight, multiply(tape, turned, rotary[1]))


def _repeated(tape: Tape, x: Tensor, mixer: Attention) -> Tensor:
    """Keys or values of a group copied for each of its query heads; backward their gradients are summed."""
    if mixer.kv_heads == mixer.heads:
        return x
    batch, _, seq, width = x.shape
    shape = (batch, mixer.heads, seq, width)
    copied = movement(x.elements * tape.itemsize, math.prod(shape) * tape.itemsize)
    return tape.record("repeat", "copy", (x,), shape, [copied], [stream("sum", math.prod(shape), x.elements, x.rows)])


def _flat(tape: Tape, x: Tensor) -> Tensor:
    """[batch, heads, seq, width] copied in order and seen as [batch x heads, seq, width]."""
    batch, heads, seq, width = x.shape
    return view(tape, contiguous(tape, x), batch * heads, seq, width)


def _weights(tape: Tape, scores: Tensor, given: Given, sinks: int) -> Tensor:
    """Scores [..., seq, source] scaled, masked and normed."""
    style = given.style
    if style.scale == "scores":
        scores = scaled(tape, scores, "divu", name="scale")
    elif style.scale == "tensor":
        number = filled(tape, 1)
        scores = _over(tape, scores, number)
    if style.mask == "where":
        filled(tape, 1)
        scores = chosen(tape, scores, scores.shape[-1] * scores.shape[-2], name=CAUSAL)
    elif style.mask != "none" and given.mask is not None:
        scores = add(tape, scores, given.mask, name=given.mask_is)
    if style.mask == "clamp":
        scores = pointwise(tape, scores, "max", name="clamp")
    weights = _softmax_with_sinks(tape, scores, sinks) if sinks else softmax(tape, scores)
    return dropout(tape, weights) if style.dropout else weights


def _softmax_with_sinks(tape: Tape, scores: Tensor, sinks: int) -> Tensor:
    """The softmax of each row with one learned logit of its head, whose weight is left out (gpt-oss)."""
    *rows, keys = scores.shape
    size = scores.rows * (keys + 1) * tape.itemsize
    logits = [movement(size, size)]
    summed = [stream("sum", scores.rows, sinks, sinks)]
    wider = tape.record("sinks", "copy", (scores,), (*rows, keys + 1), logits, summed, (sinks,))
    return part(tape, softmax(tape, wider), *scores.shape)


def _over(tape: Tape, x: Tensor, number: Tensor) -> Tensor:
    """x over one number that lies on the device, and has no gradient."""
    op = stream("div", x.elements + 1, x.elements, x.rows)
    return tape.record("scale", "elementwise", (x, number), x.shape, [op], [op])


def merged(tape: Tape, mixed: Tensor, x: Tensor) -> Tensor:
    """Heads side by side again [batch, seq, heads x value_dim], by one copy."""
    batch, seq = x.shape[0], x.shape[1]
    heads, width = math.prod(mixed.shape[:-2]) / batch, mixed.shape[-1]
    turned = view(tape, mixed, batch, seq, heads, width, name="permute")
    return view(tape, contiguous(tape, turned), batch, seq, heads * width)
