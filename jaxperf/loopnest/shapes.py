"""Nests that layers of networks are made of, by their usual loop names."""

from __future__ import annotations

from jaxperf.loopnest.problem import Names, Problem, build_problem

Built = tuple[Problem, Names]


def convolution(
    channels: float,
    filters: float,
    height: float,
    width: float,
    kernel: tuple[float, float],
    stride: tuple[float, float] = (1.0, 1.0),
    dilation: tuple[float, float] = (1.0, 1.0),
    batch: float = 1.0,
    groups: float = 1.0,
) -> Built:
    """O[n,g,m,p,q] += W[g,m,c,r,s] I[n,g,c, stride p + dilation r, stride q + dilation s].

    **Arguments:** `channels`, `filters`: of one group; `height`, `width`: of the output; pairs: (height, width) [1].
    A depthwise convolution has one channel and one filter in each of its groups.
    """
    bounds = {"N": batch, "G": groups, "C": channels, "M": filters}
    bounds |= {"P": height, "Q": width, "R": kernel[0], "S": kernel[1]}
    window = ([("R", "Hdilation"), ("P", "Hstride")], [("S", "Wdilation"), ("Q", "Wstride")])
    operands = {
        "Weights": _axes("GMCRS"),
        "Inputs": [*_axes("NGC"), *window],
        "Outputs": _axes("NGMPQ"),
    }
    coefficients = {"Hstride": stride[0], "Wstride": stride[1], "Hdilation": dilation[0], "Wdilation": dilation[1]}
    return build_problem(bounds, operands, ["Outputs"], coefficients)


def gemm(m: float, n: float, k: float, batch: float = 1.0) -> Built:
    """Z[b,m,n] += A[b,m,k] B[b,k,n]; a batch of one is a plain matrix product."""
    bounds = {"B": batch, "M": m, "N": n, "K": k}
    return build_problem(bounds, {"A": _axes("BMK"), "B": _axes("BKN"), "Z": _axes("BMN")}, ["Z"])


def _axes(names: str) -> list[list[tuple[str, str]]]:
    """One axis for each letter, indexed by the loop of that name alone."""
    return [[(name, "")] for name in names]
