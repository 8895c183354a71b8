"""Inputs of a graph launch nothing, but parameters that stand as inputs are trained."""

from __future__ import annotations

import numpy as np

from jaxperf.models.graph import Graph, Node, Op
from jaxperf.models.graph_steps import ACCUMULATE, FORWARD, lay_out


def test_an_input_that_is_trained_accumulates_its_gradient():
    add = Op("elementwise", {"elements_in": 2048, "elements_out": 1024}, note="add")
    gemm = Op("gemm", {"m": 8, "n": 8, "k": 8})
    nodes = (
        Node("tokens", "input"),
        Node("weight", "input", accumulate=(add,)),
        Node("product", forward=(gemm,), backward=(gemm,), before=("tokens", "weight")),
    )
    laid = lay_out(Graph("g", nodes))
    steps = laid.steps
    launched = {part: float(np.asarray(steps.count)[np.asarray(steps.part) == part].sum()) for part in range(3)}
    assert launched[ACCUMULATE] == 1.0 and launched[FORWARD] == 1.0
    assert [op.family for op in laid.ops] == ["gemm", "elementwise"]
    forward = np.asarray(steps.node)[np.asarray(steps.part) == FORWARD].sum()
    assert forward == 1.0  # neither input is a node of the forward pass
