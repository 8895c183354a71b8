"""The step against an independent writing of the same equations in plain Python, configuration by configuration."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from benchmarks.training_plain import plain, plain_step
from jaxperf.io.huggingface import load_model
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.layout import Layout, training_layout
from jaxperf.training.model_build import training_model
from jaxperf.training.step import training_step
from tests.devices import A100, H100, QUICK

step = jax.jit(training_step, compiler_options=QUICK)
EFFICIENCIES = dataclasses.replace(assumed_training_efficiencies(), overlap_expert=0.6)


def layouts(count: int, experts: bool) -> list[Layout]:
    """Random layouts of every axis; batches always divide."""
    rng = np.random.default_rng(7)
    found = []
    for index in range(count):
        pipeline = float(rng.choice([1, 2, 4, 8, 12]))
        interleave = float(rng.choice([1, 2, 5])) if pipeline > 1 else 1.0
        data, micro = float(rng.choice([1, 2, 16, 64])), float(rng.choice([1, 2, 4]))
        tensor = float(rng.choice([1, 2, 8]))
        found.append(
            training_layout(
                ["bf16", "fp8", "fp32"][index % 3],
                schedule="interleaved" if interleave > 1 else "1f1b",
                recompute=str(rng.choice(["none", "selective", "full"])),
                context_method=str(rng.choice(["ring", "all-gather"])),
                tensor=tensor,
                pipeline=pipeline,
                context=float(rng.choice([1, 2, 16])),
                data=data,
                expert=float(min(rng.choice([1, 4, 8]), tensor * data)) if experts else 1.0,
                interleave=interleave,
                microbatch=micro,
                global_batch=data * micro * float(rng.choice([1, 8, 24])),
                sequence=float(rng.choice([2048, 4096])),
                zero=float(rng.integers(4)),
                sequence_parallel=float(rng.integers(2)),
            )
        )
    return found


@pytest.mark.parametrize("name", ["llama-3-70b", "gpt3-13b", "mixtral-8x7b", "gpt-oss-20b"])
def test_every_axis_agrees_with_plain_python(name: str) -> None:
    model = training_model(load_model(name))
    numbers, e = plain(model), plain(EFFICIENCIES)
    for index, layout in enumerate(layouts(40, experts=float(numbers.topk) > 0)):
        device = (H100, A100)[index % 2]
        got = step(model, layout, device, EFFICIENCIES)
        time, memory = plain_step(numbers, plain(layout), plain(device), e)
        assert float(got.unchecked_time) == pytest.approx(time, rel=1e-9), layout
        assert float(got.memory.total) == pytest.approx(memory, rel=1e-9), layout
