"""The NumPy twin of the decode step, written from the equations alone, agrees with jaxperf to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.grid import Grid, twin_inputs
from jaxperf.core.device import load_device
from jaxperf.io.huggingface import load_model

# A switch, a torus, a fully connected mesh, a small device without fp8, and one whose node has a single device.
DEVICES = ("h100-sxm", "tpu-v5e", "mi300x", "gaudi3", "l4", "t4", "trn2")
VALUES = {
    "tensor_parallel": (1, 2, 3, 8, 16),
    "batch": (1, 7, 96, 512),
    "context": (1, 255, 4096, 65536, 131072),
    "weights": ("bf16", "fp8", "int4", "fp4", "fp32"),
}
ORDERS = (
    ("device", "tensor_parallel", "batch", "weights", "context"),
    ("context", "device", "weights", "batch", "tensor_parallel"),
)


def grid(model: str, order: tuple[str, ...] = ORDERS[0], launch: str = "graph") -> Grid:
    return Grid(load_model(model), {name: load_device(name) for name in DEVICES}, VALUES, order, launch)


@pytest.mark.parametrize(
    "ours",
    [grid("llama-3-70b"), grid("llama-2-7b", ORDERS[1], "eager")],
    ids=["grouped heads, captured graph", "all heads, every kernel launched, axes in another order"],
)
def test_the_twin_agrees_at_every_point(ours: Grid) -> None:
    expected = twin_inputs(ours).evaluate()
    assert {0, 1, 2, 3, 32} <= set(np.unique(expected["reason"])), "feasible points, and points that fail each check"
    for name, values in ours.sweep().dense().metrics.items():
        right = np.broadcast_to(expected[name], ours.shape)
        np.testing.assert_allclose(values.reshape(ours.shape), right, rtol=1e-12, atol=0, err_msg=name)


def test_launching_every_kernel_takes_longer() -> None:
    graph, eager = (twin_inputs(grid("llama-2-7b", launch=launch)).evaluate()["tpot"] for launch in ("graph", "eager"))
    assert np.all((eager > graph) | np.isnan(graph))


def test_blocks_of_devices_are_the_whole() -> None:
    ours = grid("llama-3-70b")
    inputs = twin_inputs(ours)
    whole = inputs.evaluate()["tpot"]
    parts = [inputs.rows(start, start + 1).evaluate()["tpot"] for start in range(len(DEVICES))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_the_twin_shares_no_code_with_the_formulas() -> None:
    from benchmarks import numpy_decode

    modules = {getattr(value, "__module__", "") for value in vars(numpy_decode).values()}
    assert not any(str(name).startswith(("jax", "jaxperf")) for name in modules)
