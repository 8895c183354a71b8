"""The optimizer on the host against sums by hand: 16 B a parameter of 8 billion, sharded over 8 data-parallel ranks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.layout import Layout, training_layout
from jaxperf.training.memory import stage_memory, stage_parameters
from jaxperf.training.model_build import training_model
from jaxperf.training.optimizer import OptimizerStep, optimizer_step
from jaxperf.training.sweep import few_layouts
from tests.devices import H100

MODEL = training_model(load_model("llama-3.1-8b"))
OWN = 8_030_261_248 / 8  # parameters whose states a rank has
HBM, HOST, PCIE = 3e12, 60e9, 25e9
ONE = as_float(1.0)
RATES = dataclasses.replace(
    assumed_training_efficiencies(),
    host_memory_bandwidth=as_float(HOST),
    host_bandwidth=as_float(PCIE),
    overlap_offload=as_float(1.0),
)


def layout(**numbers: Any) -> Layout:
    return training_layout(data=8, global_batch=64, **numbers)


def update(**numbers: Any) -> OptimizerStep:
    at = layout(**numbers)
    own = stage_parameters(MODEL, at, MODEL.layers, as_float(2.0))
    return optimizer_step(own, at, as_float(HBM), RATES)


def test_the_host_moves_states_gradients_and_weights_of_its_share() -> None:
    """Adam's 12 bytes read and written, a gradient read and a weight written: 30 bytes a parameter, 4 of them on the
    device once more for the norm; 6 of them over PCIe."""
    plain, half, whole = (update(offload_optimizer=share) for share in (0.0, 0.5, 1.0))
    assert float(plain.time) == pytest.approx(OWN * 34 / HBM)
    assert float(half.on_device) == pytest.approx(OWN * (15 + 4) / HBM)
    assert float(half.on_host) == pytest.approx(OWN * 15 / HOST)
    assert float(whole.on_device) == pytest.approx(OWN * 4 / HBM)
    assert float(whole.on_host) == pytest.approx(OWN * 30 / HOST)
    assert float(whole.copies) == pytest.approx(OWN * 6 / PCIE)
    assert float(whole.exposed) == 0.0  # 0.24 s beside 0.5 s


def test_copies_that_the_software_does_not_overlap_are_waited_for() -> None:
    whole = update(offload_optimizer=1.0, overlap_offload=0.0)
    assert float(whole.exposed) == float(whole.copies) > 0.0
    assert float(whole.time) == pytest.approx(OWN * (4 / HBM + 30 / HOST + 6 / PCIE))


def test_states_leave_the_device_for_the_host() -> None:
    plain, half = (stage_memory(MODEL, layout(offload_optimizer=share), ONE, ONE) for share in (0.0, 0.5))
    assert float(plain.optimizer - half.optimizer) == pytest.approx(OWN * 6)
    assert float(plain.total - half.total) == pytest.approx(OWN * 6)
    assert float(half.host) == pytest.approx(OWN * (6 + 2))  # and the gradients of its share
    assert float(plain.host) == 0.0
    nothing = stage_memory(MODEL, layout(offload_optimizer=1.0, optimizer_bytes=0.0), ONE, ONE)
    assert float(nothing.host) == 0.0


def test_a_step_is_longer_by_the_update_on_the_host_and_the_copies_it_waits_for() -> None:
    columns = {"offload_optimizer": np.array([0.0, 1.0])}
    metrics = ("unchecked_time", "compute.optimizer", "compute.host_optimizer")
    rates = dataclasses.replace(RATES, overlap_offload=as_float(0.5))
    found = few_layouts(MODEL, columns, H100, rates, base=layout(), metrics=metrics)
    parts = found["compute.optimizer"] + found["compute.host_optimizer"]
    assert np.diff(found["unchecked_time"])[0] == pytest.approx(np.diff(parts)[0])
    np.testing.assert_allclose(found["compute.host_optimizer"], [0.0, OWN * (30 / HOST + 3 / PCIE)])
