"""What the layers of a stack share: masks that are added to the scores, relative-position biases, rotary tables."""

from __future__ import annotations

from jaxperf.models.mixers import Attention
from jaxperf.models.workloads.kernels import Op, stream
from jaxperf.models.workloads.operations import add, embedding, filled, view
from jaxperf.models.workloads.styles import Style
from jaxperf.models.workloads.tape import Tape, Tensor


def added_mask(tape: Tape, style: Style, batch: float, seq: float, causal: bool) -> Tensor | None:
    """0 where a token may look and the lowest number elsewhere: [batch, 1, seq, seq], of padding [batch, 1, 1, seq]."""
    if style.mask in ("none", "where"):
        return None
    with tape.scope("mask"):
        if not causal:
            return _padding(tape, batch, seq)
        kernels = _clamped(batch, seq) if style.mask == "clamp" else _causal(batch, seq)
        return tape.record("causal", "fill", (), (batch, 1, seq, seq), kernels, gradient=False)


def cross_mask(tape: Tape, batch: float, heads: int, seq: float) -> Tensor:
    """The padding of the encoder's tokens added to a bias of zeros, [batch, heads, seq, seq] (T5)."""
    with tape.scope("cross_mask"):
        zeros = filled(tape, 1, heads, seq, seq, name="zeros")
        whole = view(tape, zeros, batch, heads, seq, seq, name="expand")
        return add(tape, whole, _padding(tape, batch, seq))


def _padding(tape: Tape, batch: float, seq: float) -> Tensor:
    """(1 - mask) times the lowest number."""
    ones = filled(tape, batch, seq, name="ones")
    n = batch * seq
    return tape.record("padding", "elementwise", (ones,), (batch, 1, 1, seq), _inverted(n, batch), gradient=False)


def _inverted(n: float, rows: float) -> list[Op]:
    return [stream("sub", n, n, rows), stream("mulu", n, n, rows)]


def _causal(batch: float, seq: float) -> list[Op]:
    """Positions repeated, compared, times the padding mask, inverted."""
    n, rows = batch * seq * seq, batch * seq
    made = [stream("copy", n, n, rows), stream("le", n, n, rows), stream("mul", n + rows, n, rows)]
    return [*made, *_inverted(n, rows)]


def _clamped(batch: float, seq: float) -> list[Op]:
    """OPT's class: a causal mask of one sequence, a padding mask of all, and the one filled in where the other is."""
    square, n = seq * seq, batch * seq * seq
    causal = [stream("fill", 0, square, seq), stream("arange", 0, seq), stream("addu", seq, seq)]
    causal += [stream("lt", 2 * seq, square, seq), stream("fill", square, square, seq)]
    padding = [stream("copy", batch * seq, n, batch * seq), stream("sub", n, n, batch * seq)]
    return [*causal, *padding, *[stream("fill", n, n, batch * seq)] * 4]


def position_bias(tape: Tape, mask: Tensor, mixer: Attention, batch: float, seq: float) -> Tensor:
    """The mask plus one learned number for each head and bucket of distances (T5, arXiv:1910.10683, section 2.1)."""
    with tape.scope("position_bias"):
        n = seq * seq
        names = ["sub", "lt", "divu", "log", "divu", "mulu", "addu", "min", "where"]
        names += ["min", "neg", "addu"] if mixer.causal else ["gt", "mulu", "addu", "abs", "add"]
        kernels = [stream(name, 2 * n if name in ("add", "where") else n, n, seq) for name in names]
        buckets = tape.record("buckets", "fill", (), (seq, seq), kernels, gradient=False)
        bias = embedding(tape, buckets, mixer.relative_buckets, mixer.heads, "table")
        turned = view(tape, bias, 1, mixer.heads, seq, seq, name="permute")
        whole = view(tape, turned, batch, mixer.heads, seq, seq, name="expand")
        return add(tape, whole, mask)


def rotary_tables(tape: Tape, seq: float, width: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of positions times frequencies, computed once for all layers (arXiv:2104.09864)."""
    n = seq * width
    with tape.scope("rotary"):
        angles = tape.record("angles", "fill", (), (seq, width), [stream("mul", 2 * n, n, seq)], gradient=False)
        cosine = tape.record("cos", "elementwise", (angles,), (seq, width), [stream("cos", n, n, seq)])
        return cosine, tape.record("sin", "elementwise", (angles,), (seq, width), [stream("sin", n, n, seq)])
