"""Kernels as `Op`s, in the words of this package: which family a kernel belongs to and its shape in elements."""

from __future__ import annotations

from jaxperf.models.graph import Op

HOST = Op("none", {})  # a call of the framework that launches nothing, such as a view


def gemm(m: float, n: float, k: float) -> Op:
    """[m, k] x [k, n]."""
    return Op("gemm", {"m": m, "n": n, "k": k}, note="linear")


def bmm(batch: float, m: float, n: float, k: float) -> Op:
    """batch x [m, k] x [k, n], each with its own right-hand side."""
    return Op("bmm", {"batch": batch, "m": m, "n": n, "k": k}, note="bmm")


def attention(batch: float, heads: float, queries: float, keys: float, width: float) -> Op:
    """softmax(q k^T) v in one kernel, every query seeing every key (arXiv:2205.14135).

    Query i of the family sees `prefix` + i keys: with K - (Q + 1) / 2 all Q see K in the mean, so that the FLOP are
    exact. Queries that are more than the keys are taken in the fewest equal blocks that are not, which have no negative
    prefix; thread blocks take them apart as well.
    """
    blocks = -(-queries // keys)
    own = queries / blocks
    shape = {"batch": batch * blocks, "q_len": own, "prefix": keys - (own + 1) / 2}
    return Op("attention_prefill", shape | {"heads": heads, "kv_heads": heads, "head_dim": width}, note="attention")


def stream(note: str, inputs: float, outputs: float, rows: float = 1.0) -> Op:
    """An elementwise kernel that reads `inputs` elements and writes `outputs`, over `rows` rows."""
    return Op("elementwise", {"elements_in": inputs, "elements_out": outputs, "rows": max(rows, 1.0)}, note=note)


def norm(rows: float, columns: float) -> Op:
    """A normalization of `rows` rows."""
    return Op("norm", {"rows": rows, "columns": columns}, note="ln")


def softmax(rows: float, columns: float) -> Op:
    """A softmax of `rows` rows."""
    return Op("softmax", {"rows": rows, "columns": columns}, note="softmax")


def lookup(rows: float, columns: float) -> Op:
    """`rows` rows of `columns` elements gathered from a table."""
    return Op("embedding", {"rows": rows, "columns": columns}, note="embedding")


def movement(read: float, written: float) -> Op:
    """A copy, a fill or a scatter: `read` and `written` bytes."""
    return Op("memory", {"bytes_in": read, "bytes_out": written})


def convolution(
    images: float, inputs: float, outputs: float, side: float, kernel: float, stride: float, padding: float
) -> Op:
    """A square convolution of `images` maps of `side` x `side` with `inputs` channels.

    A grouped convolution is `groups` times the images with the channels of one group: the same FLOP and activations.
    """
    shape = {"batch": images, "input_channels": inputs, "output_channels": outputs, "input_size": side}
    return Op("convolution", shape | {"kernel_size": kernel, "stride": stride, "padding": padding}, note="conv")
