"""Representative steps of a simulation, and what they need of the device."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from jaxperf.serving.colocate import steps
from jaxperf.serving.colocate.steps import MeanSteps, mean_steps, step_needs
from jaxperf.serving.techniques.colocation import busy_shares
from tests.devices import H100, decode_step, deployment, model, prefill_step
from tests.models.shipped import prefill_once

STEPS = MeanSteps(prompts=2, tokens=512, prefix=0, beside=0, decodes=8, context=1024)


def log(**columns: list) -> SimpleNamespace:
    """Rows of a log, and one behind them that is not written."""
    count = len(columns["steps"])
    return SimpleNamespace(count=count, **{name: np.array([*each, 0]) for name, each in columns.items()})


def test_means_are_over_the_time_of_each_phase() -> None:
    found = mean_steps(
        log(
            seconds=[0.2, 0.01, 0.03],
            steps=[1, 10, 10],
            sequences=[3, 2, 6],
            tokens=[801, 2, 6],
            decodes=[1, 2, 6],
        ),  # type: ignore[arg-type]
        {"prompt": np.array([400, 400]), "output": np.array([3, 1])},
    )
    assert found == MeanSteps(prompts=2, tokens=400, prefix=0, beside=1, decodes=5, context=402)


def test_a_part_of_a_prompt_stands_behind_half_of_the_rest() -> None:
    rows = log(seconds=[0.1], steps=[4], sequences=[1], tokens=[100], decodes=[0])
    requests = {"prompt": np.array([400]), "output": np.array([1])}
    assert mean_steps(rows, requests)[:3] == (1, 100, 150)  # type: ignore[arg-type]


def test_an_engine_without_a_step_has_steps_all_the_same() -> None:
    rows = log(seconds=[], steps=[], sequences=[], tokens=[], decodes=[])
    found = mean_steps(rows, {"prompt": np.array([64]), "output": np.array([1])})  # type: ignore[arg-type]
    assert found == MeanSteps(prompts=1, tokens=64, prefix=0, beside=0, decodes=1, context=64)


def test_a_step_of_one_phase_is_that_of_an_estimate() -> None:
    at, llama = deployment(H100), model("llama-3.1-8b")
    found = step_needs(at, llama, STEPS)
    for place, step in enumerate((prefill_step(at, llama, 2, 512), decode_step(at, llama, 8, 1024))):
        assert float(found.time[place]) == pytest.approx(float(step.time))
        np.testing.assert_allclose(found.shares[place], busy_shares(step.kernels, step.time))


def test_decodes_beside_a_prompt_read_their_cache_and_the_weights_once() -> None:
    at, llama = deployment(H100), model("llama-3.1-8b")
    plain, mixed = (step_needs(at, llama, STEPS._replace(beside=number)) for number in (0, 8))
    assert plain.time[0] < mixed.time[0] < plain.time[0] + plain.time[1]
    of_memory = [float(each.shares[0, 1] * each.time[0]) for each in (plain, mixed)]
    assert of_memory[0] < of_memory[1] < of_memory[0] + float(plain.shares[1, 1] * plain.time[1])


def test_the_prefix_of_latent_attention_is_expanded_beside_decodes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    at, whole = deployment(H100), model("deepseek-v2-lite")
    latent = dataclasses.replace(whole, groups=whole.groups[:1])
    plain = float(prefill_once(at, latent, STEPS.prompts, STEPS.tokens, 32_768).time)
    monkeypatch.setattr(steps, "_step_needs", steps._step_needs.__wrapped__)  # kernels compiled one by one
    mixed = float(step_needs(at, latent, STEPS._replace(prefix=32_768, context=64, beside=8)).time[0])
    assert plain < mixed < 1.1 * plain
