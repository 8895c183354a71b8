"""Slopes of a step by every number of every device that is shipped, as a user asks for them."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import hwspecs
import jaxperf as jp

POINTS = [{"batch": 32, "context": 4096, "tensor_parallel": 8}, {"batch": 1, "context": 1}]


@pytest.mark.parametrize("point", POINTS, ids=["tp8", "least"])
def test_a_step_has_defined_slopes_by_every_number_of_every_device(point: dict[str, float]) -> None:
    """`jax.grad` of the whole device, without partitioning it: it refuses a device that holds integers."""
    step = jp.decode_step(jp.load_model("llama-3-8b"))
    slopes = jax.jit(jax.value_and_grad(lambda device: step(device, **point).time))
    names = sorted(hwspecs.open_registry().names)
    for name, device in zip(names, jp.load_devices(*names), strict=True):
        time, found = slopes(device)
        for path, leaf in jax.tree_util.tree_leaves_with_path(found):
            assert np.all(np.isfinite(leaf)), f"{name}{jax.tree_util.keystr(path)}"
        assert np.isnan(time) or found.memory_bandwidth < 0.0, name  # no time: it does not fit the memory
